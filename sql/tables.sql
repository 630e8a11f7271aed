--
-- A state table that is not what the extension made is refused, before
-- anything is written: its functions fire no triggers, check no constraints,
-- and find columns by their number.
--
CREATE ROLE regress_fencing_tables;
CREATE FUNCTION tables_allow(text, text, jsonb, jsonb) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION tables_trigger() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE NOTICE ''fired''; RETURN NULL; END';
CREATE FUNCTION tables_quiet_trigger() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
SELECT outcome FROM fencing_acquire('tables/job', md5('A')::uuid, '1 hour');
SELECT outcome FROM fencing_acquire('tables/ended', md5('A')::uuid, '1 hour');
SELECT fencing_release('tables/ended', md5('A')::uuid, 1);
SELECT outcome FROM fencing_acquire('tables/consumer', md5('A')::uuid, '1 hour');
SELECT fencing_outbox_subscribe('tables/consumer', from_start => false);
SELECT fencing_outbox_emit('tables', '1', 'made', '{}') IS NOT NULL AS emitted;
SELECT fencing_define_operation('tables/pay', 'tables_allow(text, text, jsonb, jsonb)');
SELECT fencing_define_request('tables/pay', 1, '{"type": "object"}');
SELECT outcome FROM fencing_tag_create('tables', md5('1')::uuid, 'tag');
SELECT outcome FROM fencing_tag_create('tables', md5('2')::uuid, 'other');

-- a call that writes each of them
CREATE TABLE tables_call (name text PRIMARY KEY, call text);
INSERT INTO tables_call VALUES
	('floor', $$SELECT fencing_forget('tables/ended')$$),
	('fences', $$SELECT outcome FROM fencing_acquire('tables/new', md5('A')::uuid)$$),
	('leases', $$SELECT outcome FROM fencing_renew('tables/job', md5('A')::uuid, 1)$$),
	('receipts', $$SELECT outcome FROM fencing_commit('tables/job', 1, '1', 'SELECT 1')$$),
	('revocations', $$SELECT fencing_revoke('tables/job', 'test')$$),
	('grants', $$SELECT fencing_grant('regress_fencing_tables', 'client')$$),
	('operations', $$SELECT fencing_define_operation('tables/other', 'tables_allow(text, text, jsonb, jsonb)')$$),
	('request_schemas', $$SELECT fencing_define_request('tables/pay', 2, '{"type": "object"}')$$),
	('records', $$SELECT outcome FROM fencing_once('acme', 'tables/pay', '1', '{}', 'SELECT 1')$$),
	('outbox', $$SELECT fencing_outbox_emit('tables', '2', 'made', '{}')$$),
	('outbox_consumers', $$SELECT fencing_outbox_subscribe('tables/other', from_start => false)$$),
	('outbox_acks', $$SELECT outcome FROM fencing_outbox_ack('tables/consumer', 1, ARRAY(SELECT id FROM fencing.outbox WHERE aggregatetype = 'tables'))$$),
	('outbox_attempts', $$SELECT outcome FROM fencing_outbox_read('tables/consumer', 1)$$),
	('documents', $$SELECT outcome FROM fencing_publish('tables', 0, '{}')$$),
	('revisions', $$SELECT outcome FROM fencing_publish('tables', 0, '{}')$$),
	('targets', $$SELECT fencing_target_desire('tables/elsewhere', 'target')$$),
	('tags', $$SELECT outcome FROM fencing_tag_create('tables', md5('3')::uuid, 'new')$$),
	('tag_names', $$SELECT outcome FROM fencing_tag_alias('tables', md5('3')::uuid, 'tag', 'new')$$),
	('tag_events', $$SELECT outcome FROM fencing_tag_unassign('tables', md5('3')::uuid, 'tag', 'subject')$$),
	('tag_migrations', $$SELECT outcome FROM fencing_tag_rename('tables', md5('3')::uuid, 'tag', 'new', 0)$$),
	('tag_merges', $$SELECT outcome FROM fencing_tag_merge('tables', md5('3')::uuid, 'tag', 'other', 0)$$),
	('tag_links', $$SELECT outcome FROM fencing_tag_assign('tables', md5('3')::uuid, 'tag', 'subject')$$),
	('tag_follows', $$SELECT outcome FROM fencing_tag_subscribe('tables', md5('3')::uuid, 'tag', 'subscriber')$$);
SELECT string_agg(relname, ', ' ORDER BY relname) AS not_tested FROM pg_class
WHERE relnamespace = 'fencing'::regnamespace AND relkind = 'r' AND relname NOT IN (SELECT name FROM tables_call);

-- Changes the table, makes the call, and takes the change back.
CREATE FUNCTION tables_try(table_name text, change text, call text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
	detail text;
	hint text;
BEGIN
	BEGIN
		IF change <> '' THEN
			EXECUTE replace(change, '%t', 'fencing.' || table_name);
		END IF;
		BEGIN
			EXECUTE call;
			answer := 'done';
		EXCEPTION WHEN OTHERS THEN
			GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
			answer := concat_ws(' | ', SQLSTATE, SQLERRM, NULLIF(detail, ''), NULLIF(hint, ''));
		END;
		RAISE EXCEPTION 'undo';
	EXCEPTION WHEN raise_exception THEN
		RETURN answer;
	END;
END
$$;
CREATE FUNCTION tables_try_all(change text) RETURNS TABLE (table_name text, answer text) LANGUAGE sql AS
$$SELECT name, tables_try(name, change, call) FROM tables_call ORDER BY name$$;

\pset format unaligned
\pset tuples_only on

-- unchanged, each call does what it should
SELECT string_agg(DISTINCT answer, ', ') FROM tables_try_all('');

-- a foreign trigger on every table, row or statement, whenever it fires
SELECT * FROM tables_try_all('CREATE TRIGGER foreign_trigger AFTER INSERT OR UPDATE OR DELETE ON %t FOR EACH ROW EXECUTE FUNCTION tables_trigger()');
SELECT substr(answer, 1, 5), count(*) FROM tables_try_all('CREATE TRIGGER immutable2 BEFORE INSERT ON %t FOR EACH ROW EXECUTE FUNCTION tables_trigger()') GROUP BY 1;
SELECT substr(answer, 1, 5), count(*) FROM tables_try_all('CREATE TRIGGER a AFTER UPDATE ON %t FOR EACH STATEMENT EXECUTE FUNCTION tables_trigger(); ALTER TABLE %t ENABLE ALWAYS TRIGGER a') GROUP BY 1;
SELECT substr(answer, 1, 5), count(*) FROM tables_try_all('CREATE TRIGGER a AFTER DELETE ON %t FOR EACH ROW EXECUTE FUNCTION fencing_immutable(); ALTER TABLE %t DISABLE TRIGGER a') GROUP BY 1;
SELECT tables_try('outbox', 'DROP TRIGGER immutable ON %t; CREATE TRIGGER immutable BEFORE INSERT ON %t FOR EACH ROW EXECUTE FUNCTION tables_trigger()', call) FROM tables_call WHERE name = 'outbox';
-- pg_repack's is named as such
CREATE SCHEMA repack;
CREATE FUNCTION repack.repack_trigger() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
SELECT tables_try('receipts', 'CREATE TRIGGER repack_trigger AFTER INSERT ON %t FOR EACH ROW EXECUTE FUNCTION repack.repack_trigger()', call) FROM tables_call WHERE name = 'receipts';
DROP FUNCTION repack.repack_trigger();
DROP SCHEMA repack;
-- one for TRUNCATE, which the extension never does, or before a statement sees no row, and is no harm
SELECT substr(answer, 1, 5), count(*) FROM tables_try_all('CREATE TRIGGER a BEFORE INSERT OR UPDATE OR DELETE ON %t FOR EACH STATEMENT EXECUTE FUNCTION tables_quiet_trigger()') GROUP BY 1;
SELECT substr(answer, 1, 5), count(*) FROM tables_try_all('CREATE TRIGGER a BEFORE TRUNCATE ON %t EXECUTE FUNCTION tables_trigger()') GROUP BY 1;

-- a rule
SELECT * FROM tables_try_all('CREATE RULE foreign_rule AS ON INSERT TO %t DO INSTEAD NOTHING');

-- added columns: one, seven, one with a default, a generated one
SELECT * FROM tables_try_all('ALTER TABLE %t ADD COLUMN added integer');
SELECT substr(answer, 1, 5), count(*) FROM tables_try_all('ALTER TABLE %t ADD COLUMN a1 text, ADD COLUMN a2 text, ADD COLUMN a3 text, ADD COLUMN a4 text, ADD COLUMN a5 text, ADD COLUMN a6 text, ADD COLUMN a7 text') GROUP BY 1;
SELECT substr(answer, 1, 5), count(*) FROM tables_try_all($$ALTER TABLE %t ADD COLUMN added text NOT NULL DEFAULT 'x'$$) GROUP BY 1;
SELECT substr(answer, 1, 5), count(*) FROM tables_try_all('ALTER TABLE %t ADD COLUMN added integer GENERATED ALWAYS AS (1) STORED') GROUP BY 1;
-- dropped again they stay in the catalog, and do no harm
SELECT substr(answer, 1, 5), count(*) FROM tables_try_all('ALTER TABLE %t ADD COLUMN a1 text, ADD COLUMN a2 text; ALTER TABLE %t DROP COLUMN a1, DROP COLUMN a2') GROUP BY 1;

-- the last column, and a key's, dropped, renamed, or of another type
CREATE VIEW tables_column AS
	SELECT c.name, c.call, quote_ident(a.attname) AS "last", format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull AS not_null
	FROM tables_call c JOIN pg_attribute a ON a.attrelid = ('fencing.' || c.name)::regclass
		AND a.attnum = (SELECT max(attnum) FROM pg_attribute m WHERE m.attrelid = a.attrelid AND NOT m.attisdropped);
-- (the views depend on columns; and a view of the extension cannot go alone)
CREATE FUNCTION tables_drop_views() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	view regclass;
BEGIN
	FOR view IN SELECT oid FROM pg_class WHERE relnamespace = 'fencing'::regnamespace AND relkind = 'v' ORDER BY oid DESC LOOP
		EXECUTE format('ALTER EXTENSION fencing DROP VIEW %1$s; DROP VIEW %1$s CASCADE', view);
	END LOOP;
END
$$;
SET client_min_messages = warning;
SELECT name, tables_try(name, format('SELECT tables_drop_views(); ALTER TABLE %%t DROP COLUMN %s CASCADE', "last"), call) FROM tables_column ORDER BY name;
SELECT substr(tables_try(name, format('SELECT tables_drop_views(); ALTER TABLE %%t DROP COLUMN %1$s CASCADE; ALTER TABLE %%t ADD COLUMN %1$s %2$s', "last", type), call), 1, 5) AS answer, count(*) FROM tables_column GROUP BY 1;
SELECT substr(tables_try(name, format('ALTER TABLE %%t RENAME COLUMN %s TO renamed', "last"), call), 1, 5) AS answer, count(*) FROM tables_column GROUP BY 1;
SELECT name, tables_try(name, format('ALTER TABLE %%t ALTER COLUMN %s %s NOT NULL', "last", CASE WHEN not_null THEN 'DROP' ELSE 'SET' END), call)
FROM tables_column WHERE name IN ('fences', 'revocations', 'outbox') ORDER BY name;
SELECT tables_try('leases', 'SELECT tables_drop_views(); ALTER TABLE %t ALTER COLUMN token TYPE integer', call) FROM tables_call WHERE name = 'leases';
SELECT tables_try('leases', 'SELECT tables_drop_views(); ALTER TABLE %t ALTER COLUMN lease_until TYPE timestamptz(0)', call) FROM tables_call WHERE name = 'leases';
SELECT tables_try('fences', 'SELECT tables_drop_views(); ALTER TABLE %t ALTER COLUMN job_key TYPE text COLLATE "default"', call) FROM tables_call WHERE name = 'fences';
RESET client_min_messages;

-- constraints, foreign keys
SELECT * FROM tables_try_all('ALTER TABLE %t ADD CONSTRAINT foreign_check CHECK (true) NOT VALID');
SELECT tables_try('documents', 'CREATE TABLE tables_reference (id text REFERENCES %t)', call) FROM tables_call WHERE name = 'documents';
SELECT tables_try('fences', 'ALTER TABLE %t ADD CONSTRAINT foreign_unique UNIQUE (job_key, token) DEFERRABLE', call) FROM tables_call WHERE name = 'fences';
-- inheritance, in both directions; a partition
SELECT substr(answer, 1, 5), count(*) FROM tables_try_all('CREATE TABLE tables_child () INHERITS (%t)') GROUP BY 1;
SELECT tables_try('fences', 'CREATE TABLE tables_child () INHERITS (%t)', call) FROM tables_call WHERE name = 'fences';
SELECT tables_try('fences', 'CREATE TABLE tables_child () INHERITS (%t); DROP TABLE tables_child', call) FROM tables_call WHERE name = 'fences';
SELECT tables_try('fences', 'CREATE TABLE tables_parent (); ALTER TABLE %t INHERIT tables_parent', call) FROM tables_call WHERE name = 'fences';
SELECT tables_try('fences', 'CREATE TABLE tables_parent (LIKE %t) PARTITION BY LIST (external); ALTER TABLE tables_parent ATTACH PARTITION %t FOR VALUES IN (true, false)', call) FROM tables_call WHERE name = 'fences';
-- indexes: what the executor knows is no harm to the tables that it writes
SELECT name, tables_try(name, format('CREATE INDEX foreign_index ON %%t ((1)) WHERE %s IS NOT NULL', "last"), call) FROM tables_column ORDER BY name;
SELECT substr(tables_try(name, format('CREATE INDEX foreign_index ON %%t USING hash (%s)', "last"), call), 1, 5) AS answer, count(*) FROM tables_column GROUP BY 1;
-- the primary key
SELECT substr(tables_try(name, format('ALTER TABLE %%t DROP CONSTRAINT %s_pkey CASCADE', name), call), 1, 200) AS answer FROM tables_call ORDER BY name;
SELECT tables_try('receipts', 'ALTER TABLE %t DROP CONSTRAINT receipts_pkey, ADD PRIMARY KEY (job_key, step, token)', call) FROM tables_call WHERE name = 'receipts';
-- unlogged
SELECT substr(answer, 1, 5), count(*) FROM tables_try_all('ALTER TABLE %t SET UNLOGGED') GROUP BY 1;
SELECT tables_try('fences', 'ALTER TABLE %t SET UNLOGGED', call) FROM tables_call WHERE name = 'fences';
-- row-level security and storage parameters have no say
SELECT substr(answer, 1, 5), count(*) FROM tables_try_all('ALTER TABLE %t ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY, SET (fillfactor = 40)') GROUP BY 1;
SET client_min_messages = error;	-- wal_level need not be logical here
-- what a publication could not replicate is refused as for any writer
SELECT tables_try('leases', 'ALTER TABLE %t REPLICA IDENTITY NOTHING; CREATE PUBLICATION tables_publication FOR TABLE %t', call) FROM tables_call WHERE name = 'leases';
SELECT tables_try('floor', 'ALTER TABLE fencing.fences REPLICA IDENTITY NOTHING; CREATE PUBLICATION tables_publication FOR TABLE fencing.fences', call) FROM tables_call WHERE name = 'floor';
SELECT substr(answer, 1, 5), count(*) FROM tables_try_all('CREATE PUBLICATION tables_publication FOR TABLE %t') GROUP BY 1;
RESET client_min_messages;

-- Readers need the columns, and do not mind triggers.
SELECT tables_try('receipts', 'CREATE TRIGGER a AFTER INSERT ON %t FOR EACH ROW EXECUTE FUNCTION tables_trigger()', $$SELECT * FROM fencing_receipt('tables/job', 1)$$);
SELECT tables_try('receipts', 'ALTER TABLE %t ADD COLUMN a1 text', $$SELECT * FROM fencing_receipt('tables/job', 1)$$);
SELECT tables_try('floor', 'ALTER TABLE %t ADD COLUMN a1 text', 'SELECT fencing.epoch_start()');

-- Outside a transaction, in a backend that knows the table, and in others.
SELECT outcome FROM fencing_renew('tables/job', md5('A')::uuid, 1);
ALTER TABLE fencing.leases ADD COLUMN a1 int, ADD COLUMN a2 int, ADD COLUMN a3 int, ADD COLUMN a4 int, ADD COLUMN a5 int, ADD COLUMN a6 int, ADD COLUMN a7 int;
SELECT outcome FROM fencing_renew('tables/job', md5('A')::uuid, 1);
SELECT outcome FROM fencing_acquire('tables/new', md5('A')::uuid);
\c -
\pset format unaligned
\pset tuples_only on
SELECT outcome FROM fencing_renew('tables/job', md5('A')::uuid, 1);
ALTER TABLE fencing.leases DROP COLUMN a1, DROP COLUMN a2, DROP COLUMN a3, DROP COLUMN a4, DROP COLUMN a5, DROP COLUMN a6, DROP COLUMN a7;
SELECT outcome FROM fencing_renew('tables/job', md5('A')::uuid, 1);
SELECT outcome FROM fencing_acquire('tables/new', md5('A')::uuid);
-- the same for the tables whose rows are read whole
ALTER TABLE fencing.records ADD COLUMN a1 int;
ALTER TABLE fencing.records DROP COLUMN a1;
ALTER TABLE fencing.request_schemas ADD COLUMN a1 int;
ALTER TABLE fencing.request_schemas DROP COLUMN a1;
ALTER TABLE fencing.targets ADD COLUMN a1 int;
ALTER TABLE fencing.targets DROP COLUMN a1;
BEGIN;
SELECT outcome FROM fencing_once('acme', 'tables/pay', '2', '{}');
SELECT fencing_once_respond('acme', 'tables/pay', '2', '{"a": 1}');
COMMIT;
SELECT outcome, result FROM fencing_once('acme', 'tables/pay', '2', '{}');
SELECT fencing_define_request('tables/pay', 2, '{"type": "object"}');
SELECT fencing_retire_request('tables/pay', 1);
SELECT fencing_target_desire('tables/elsewhere', 'target');
SELECT fencing_target_desire('tables/elsewhere', 'target', 2);

-- nothing of what was refused is there
SELECT count(*) FROM fencing.receipts WHERE job_key LIKE 'tables/%';
SELECT count(*) FROM fencing.documents WHERE document_id LIKE 'tables%';

SELECT fencing_outbox_unsubscribe('tables/consumer');
ALTER TABLE fencing.outbox DISABLE TRIGGER immutable;
DELETE FROM fencing.outbox WHERE aggregatetype IN ('tables');
ALTER TABLE fencing.outbox ENABLE TRIGGER immutable;
ALTER TABLE fencing.tag_events DISABLE TRIGGER immutable;
DELETE FROM fencing.tag_events;
ALTER TABLE fencing.tag_events ENABLE TRIGGER immutable;
DELETE FROM fencing.tag_names;
DELETE FROM fencing.tags;
DELETE FROM fencing.leases WHERE job_key LIKE 'tables/%';
DELETE FROM fencing.fences WHERE job_key LIKE 'tables/%';
DELETE FROM fencing.targets WHERE document_id LIKE 'tables/%';
DELETE FROM fencing.records WHERE operation LIKE 'tables/%';
DELETE FROM fencing.request_schemas WHERE operation LIKE 'tables/%';
DELETE FROM fencing.operations WHERE operation LIKE 'tables/%';
DROP VIEW tables_column;
DROP FUNCTION tables_try_all(text), tables_try(text, text, text), tables_trigger(), tables_quiet_trigger(), tables_drop_views(), tables_allow(text, text, jsonb, jsonb);
DROP TABLE tables_call;
DROP ROLE regress_fencing_tables;
