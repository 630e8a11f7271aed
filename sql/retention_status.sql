--
-- What is kept because of something that may be forgotten: each shows in a
-- view, with what to do, and is gone when that has been done.
--
CREATE SCHEMA regress_retention;
SET search_path = regress_retention, public;
\pset null -
\pset format unaligned
SELECT FROM fencing_purge('events', '1 microsecond', 1000000);

-- a consumer that nobody relays for; one that is caught up does not show
SELECT fencing_outbox_subscribe('retention/gone', true), fencing_outbox_subscribe('retention/well', true);
SELECT count(fencing_outbox_emit('retention', 'a', 'made', '{}')) FROM generate_series(1, 3);
SELECT token FROM fencing_acquire('retention/well', md5('a')::uuid) \gset
SELECT outcome FROM fencing_outbox_ack('retention/well', :token, ARRAY(SELECT id FROM fencing_outbox_read('retention/well', :token)));

-- a schema that is retired, with records that need it
CREATE FUNCTION allow(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS boolean LANGUAGE sql AS 'SELECT true';
SELECT fencing_define_operation('retention', 'allow(text, text, jsonb, jsonb)', '1 hour', '2 hours');
SELECT fencing_define_request('retention', v, '{"type": "object"}') FROM generate_series(1, 2) v;
SELECT fencing_retire_request('retention', 2);
SELECT outcome FROM unnest('{1,2}'::text[]) k, fencing_once('acme', 'retention', k, '{}', 'SELECT 1');
SELECT fencing_define_request('retention', 3, '{"type": "object"}');
SELECT fencing_retire_request('retention', 1);

-- partitions: one detached, one added later; a trigger that was disabled; and one that is as it should be
CREATE TABLE parts (job text, n int) PARTITION BY RANGE (n);
CREATE TABLE part_one PARTITION OF parts FOR VALUES FROM (0) TO (10);
CREATE TABLE part_two PARTITION OF parts FOR VALUES FROM (10) TO (20);
SELECT fencing_protect('parts', 'job');
CREATE TABLE part_new PARTITION OF parts FOR VALUES FROM (20) TO (30);
ALTER TABLE parts DETACH PARTITION part_two;
CREATE TABLE plain (job text);
CREATE TABLE off (job text);
SELECT fencing_protect('plain', 'job'), fencing_protect('off', 'job');
ALTER TABLE off DISABLE TRIGGER fencing_guard_row;

SELECT relation, problem FROM fencing.protected_tables WHERE relation::text ~ '^(part|plain|off)' ORDER BY relation::text COLLATE "C";
SELECT kind, name, since IS NOT NULL AS since, held > 0 AS held, remedy FROM fencing.retention_status ORDER BY name COLLATE "C", kind;

-- the remedies
SELECT fencing_protect('parts', 'job'), fencing_unprotect('part_two'), fencing_protect('off', 'job');
SELECT fencing_outbox_unsubscribe('retention/gone');
UPDATE fencing.records SET committed_at = committed_at - interval '1 day' WHERE operation = 'retention';
SELECT * FROM fencing_purge('records', '1 hour');
SELECT kind, name FROM fencing.retention_status ORDER BY name COLLATE "C";

SELECT fencing_outbox_unsubscribe('retention/well');
SET client_min_messages = warning;
DROP SCHEMA regress_retention CASCADE;
\getenv folder PG_ABS_SRCDIR
\set clean_up :folder '/sql/clean_up.psql'
\i :clean_up
