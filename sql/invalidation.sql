--
-- Every call while nothing stays in a cache: whatever may process invalidations
-- then does, and what it frees is overwritten.  Only a server built with
-- assertions can do so; on another this is a walk through the functions.
--
\set VERBOSITY sqlstate
SET client_min_messages = error;
CREATE SCHEMA regress_invalidation;
SET search_path = regress_invalidation, public;
CREATE TABLE t (id int, job text) PARTITION BY LIST (id);
CREATE TABLE t1 PARTITION OF t FOR VALUES IN (1);
CREATE TABLE t2 PARTITION OF t FOR VALUES IN (2);
CREATE TABLE plain (job text);
CREATE FUNCTION may(text, text, jsonb, jsonb) RETURNS boolean LANGUAGE sql AS 'SELECT true';

DO $$
BEGIN
	PERFORM set_config('debug_discard_caches', '1', false);
EXCEPTION WHEN invalid_parameter_value THEN
END $$;

-- protected tables, again and no more: their triggers are read from the relcache
SELECT fencing_protect('t', 'job');
SELECT fencing_protect('t', job_key => 'invalidation/a');
SELECT fencing_protect('t1', 'job');
SELECT fencing_unprotect('t1');
SELECT fencing_protect('plain', 'job');
SELECT tgrelid::regclass, tgname FROM pg_trigger WHERE tgrelid IN ('t'::regclass, 't1'::regclass, 't2'::regclass, 'plain'::regclass) ORDER BY 1, 2;

-- leases, commits, and writes that they let pass
SELECT outcome, token AS a FROM fencing_acquire('invalidation/a', md5('A')::uuid, '1 day') \gset
SELECT outcome FROM fencing_renew('invalidation/a', md5('A')::uuid, :a, '1 day');
SELECT outcome, result FROM fencing_commit('invalidation/a', :a, '1', 'INSERT INTO t VALUES (2, $1) RETURNING id');
SELECT outcome, result FROM fencing_commit('invalidation/a', :a, '1', 'INSERT INTO t VALUES (2, $1) RETURNING id');
SELECT outcome, result FROM fencing_commit('invalidation/a', :a, '2', 'INSERT INTO plain VALUES ($1) RETURNING *', '2');
SELECT outcome, error->>'sqlstate' AS sqlstate FROM fencing_commit('invalidation/a', :a, '3', 'SELECT 1/0', '3', report_errors => true);
INSERT INTO t VALUES (1, 'invalidation/a');
SELECT outcome FROM fencing_release('invalidation/a', md5('A')::uuid, :a);
SELECT fencing_revoke('invalidation/a', 'test') - :a AS moved;
SELECT outcome FROM fencing_advance('invalidation/x', 5);
SELECT fencing_unprotect('t');
SELECT fencing_unprotect('plain');
SELECT count(*) FROM pg_trigger WHERE tgrelid IN ('t'::regclass, 't1'::regclass, 't2'::regclass, 'plain'::regclass);

-- operations
SELECT fencing_define_operation('invalidation', 'may(text,text,jsonb,jsonb)');
SELECT fencing_define_request('invalidation', 1, '{"properties": {"n": {"type": "integer", "default": 1}}}');
SELECT outcome, result FROM fencing_once('t', 'invalidation', 'k', '{"n": 1}', 'SELECT 1 AS one');
SELECT outcome, result FROM fencing_once('t', 'invalidation', 'k', '{}', 'SELECT 1 AS one');
SELECT fencing_define_request('invalidation', 2, '{"properties": {"n": {"type": "integer"}, "m": {"type": "string", "default": "x"}}}');
SELECT outcome, hash_version FROM fencing_once('t', 'invalidation', 'k', '{"n": 1}', 'SELECT 1 AS one');
SELECT outcome, hash_version FROM fencing_once('t', 'invalidation', 'l', '{"n": 1}', 'SELECT 1 AS one');

-- documents, and their events
SELECT outcome, version FROM fencing_publish('invalidation', 0, '{"n": 1}');
SELECT outcome, version FROM fencing_publish('invalidation', 1, '{"n": 2}');
SELECT fencing_target_desire('invalidation', 'target');
SELECT outcome, result FROM fencing_apply('invalidation', 'target', 2, fencing_digest('{"n": 2}'), statement => 'SELECT $5 AS content');

SELECT fencing_apply_reject('invalidation', 'target', 2, 'late');
SELECT outcome FROM fencing_apply_begin('invalidation', 'target', md5('A')::uuid);
SELECT fencing_target_forget('invalidation', 'target', 'test');

-- events and their consumers
SELECT fencing_outbox_subscribe('invalidation/c', false);
SELECT outcome, token AS c FROM fencing_acquire('invalidation/c', md5('A')::uuid, '1 day') \gset
SELECT fencing_outbox_emit('invalidation', 'i', 'made', '1') AS one, fencing_outbox_emit('invalidation', 'j', 'made', '2') AS two \gset
SELECT fencing_outbox_park('invalidation/c', :c, :'two', 'test');
SELECT payload FROM fencing_outbox_read('invalidation/c', :c);
SELECT * FROM fencing_outbox_ack('invalidation/c', :c, ARRAY[:'one'::uuid]);
SELECT fencing_outbox_park('invalidation/c', :c, :'two', NULL);
SELECT payload FROM fencing_outbox_read('invalidation/c', :c);
SELECT fencing_outbox_unsubscribe('invalidation/c');
SELECT purged > 0 AS purged FROM fencing_purge('events', '1 microsecond');

RESET debug_discard_caches;
BEGIN;
SET LOCAL session_replication_role = replica;
DELETE FROM fencing.outbox WHERE aggregatetype = 'invalidation' OR aggregateid = 'invalidation';
DELETE FROM fencing.revisions WHERE document_id = 'invalidation';
DELETE FROM fencing.documents WHERE document_id = 'invalidation';
COMMIT;
DELETE FROM fencing.targets WHERE document_id = 'invalidation';
DELETE FROM fencing.records WHERE operation = 'invalidation';
DELETE FROM fencing.request_schemas WHERE operation = 'invalidation';
DELETE FROM fencing.operations WHERE operation = 'invalidation';
DELETE FROM fencing.revocations WHERE job_key LIKE 'invalidation/%';
DELETE FROM fencing.receipts WHERE job_key LIKE 'invalidation/%';
DELETE FROM fencing.leases WHERE job_key LIKE 'invalidation/%';
DELETE FROM fencing.fences WHERE job_key LIKE 'invalidation/%';
DROP SCHEMA regress_invalidation CASCADE;
