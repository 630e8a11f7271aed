--
-- Queries of the extension itself: planned as the tables are when they run, and
-- with settings of its own, which nothing else sees.
--
SET client_min_messages = warning;
CREATE SCHEMA regress_own_queries;
SET search_path = regress_own_queries, public;
SELECT fencing_outbox_subscribe('own_queries', true);
SELECT token AS t FROM fencing_acquire('own_queries', md5('A')::uuid, '1 day') \gset

-- The sequential scans of a command, by table.
CREATE VIEW scans AS
SELECT relname, seq_scan, idx_scan FROM pg_stat_xact_user_tables
WHERE schemaname = 'fencing' AND seq_scan + idx_scan > 0 AND relname IN ('revisions', 'outbox', 'outbox_acks', 'receipts', 'records');
CREATE FUNCTION seq_scans_of(command text, OUT relname name, OUT seq_scans bigint) RETURNS SETOF record LANGUAGE plpgsql AS $$
DECLARE
	before jsonb := (SELECT jsonb_object_agg(s.relname, s.seq_scan) FROM scans s);
BEGIN
	EXECUTE command;
	RETURN QUERY SELECT s.relname, s.seq_scan - COALESCE((before->>s.relname)::bigint, 0) FROM scans s
	WHERE s.seq_scan > COALESCE((before->>s.relname)::bigint, 0) ORDER BY 1;
END $$;

-- A plan that was made when the table had one row does not stay.
SELECT version FROM fencing_publish('own_queries/0', 0, '0');
SELECT revision AS r FROM fencing.revisions WHERE document_id = 'own_queries/0' \gset
ANALYZE fencing.revisions;
SELECT count(*) FROM (SELECT fencing_publish_revision(:'r') FROM generate_series(1, 10)) s;
SELECT count(*) FROM generate_series(1, 1000) i, LATERAL fencing_publish('own_queries/' || i, 0, '{}');
SELECT * FROM seq_scans_of(format('SELECT * FROM fencing_publish_revision(%L)', :'r'));

-- Whatever the caller has set.
VACUUM ANALYZE fencing.revisions, fencing.outbox, fencing.outbox_acks, fencing.outbox_consumers;
SET enable_indexscan = off;
SET enable_indexonlyscan = off;
SET enable_bitmapscan = off;
SET enable_nestloop = off;
SET random_page_cost = 1000000;
SET seq_page_cost = 0;
SET cpu_operator_cost = 0;
SET work_mem = '64kB';
SET plan_cache_mode = force_generic_plan;
SET geqo_threshold = 2;
SET jit = on;
SET min_parallel_table_scan_size = 0;
SET min_parallel_index_scan_size = 0;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET row_security = off;
CREATE VIEW my_settings AS
SELECT name, setting FROM pg_settings WHERE source = 'session' AND category LIKE ANY ('{Query Tuning%,Resource Usage%}') OR name = 'row_security';
SELECT count(*) AS settings, md5(string_agg(name || ' ' || setting, ',' ORDER BY name COLLATE "C")) AS settings_before FROM my_settings \gset

SELECT * FROM seq_scans_of(format('SELECT * FROM fencing_publish_revision(%L)', :'r'));
SELECT * FROM seq_scans_of($$SELECT fencing_outbox_emit('own_queries', 'a', 't', '1')$$);
SELECT * FROM seq_scans_of($$SELECT fencing_revoke('own_queries/job', 'test') FROM fencing_acquire('own_queries/job', md5('A')::uuid)$$);
SELECT count(*) AS hits FROM fencing_publish_revision(:'r');
-- an application's own queries have those of the application
SELECT relname FROM seq_scans_of(format('SELECT * FROM fencing.revisions WHERE revision = %L', :'r'));
SELECT outcome, result FROM fencing_commit('own_queries', :t, '1', $$SELECT current_setting('work_mem') AS work_mem, current_setting('jit') AS jit,
	(SELECT outcome FROM fencing_publish('own_queries/statement', 0, '1')) AS publish, current_setting('enable_indexscan') AS enable_indexscan$$);
-- and its settings are as they were, also after an error in a query of the extension
CREATE VIEW settings_now AS
SELECT count(*) AS settings, md5(string_agg(name || ' ' || setting, ',' ORDER BY name COLLATE "C")) AS now FROM my_settings;
SELECT settings = :settings AND now = :'settings_before' AS same FROM settings_now;
-- (an error of the query itself: there are no numbers left)
BEGIN;
ALTER SEQUENCE fencing.revocations_id_seq MINVALUE -1 MAXVALUE 0 START 0 RESTART 0;
SELECT nextval('fencing.revocations_id_seq');
SAVEPOINT s;
\set VERBOSITY sqlstate
SELECT fencing_revoke('own_queries/job', 'bad');
ROLLBACK TO s;
SELECT settings = :settings AND now = :'settings_before' AS same FROM settings_now;
DO $$
BEGIN
	PERFORM fencing_revoke('own_queries/job', 'bad');
EXCEPTION WHEN sequence_generator_limit_exceeded THEN
	PERFORM set_config('regress.same', 'caught', false);
END $$;
SELECT current_setting('regress.same');
SELECT settings = :settings AND now = :'settings_before' AS same FROM settings_now;
SET LOCAL work_mem = '128kB';
ALTER SEQUENCE fencing.revocations_id_seq MAXVALUE 1000000 RESTART 999000;
SELECT fencing_revoke('own_queries/job', 'good') > 0 AS revoked;
SELECT current_setting('work_mem');
ROLLBACK;
SELECT settings = :settings AND now = :'settings_before' AS same FROM settings_now;
RESET ALL;

SET client_min_messages = warning;
\set VERBOSITY terse
SELECT fencing_outbox_unsubscribe('own_queries');
TRUNCATE fencing.outbox_acks;
BEGIN;
SET LOCAL session_replication_role = replica;
DELETE FROM fencing.outbox WHERE aggregateid LIKE 'own_queries/%' OR aggregatetype = 'own_queries';
DELETE FROM fencing.revisions WHERE document_id LIKE 'own_queries/%';
DELETE FROM fencing.documents WHERE document_id LIKE 'own_queries/%';
COMMIT;
DELETE FROM fencing.revocations WHERE job_key LIKE 'own_queries%';
DELETE FROM fencing.receipts WHERE job_key LIKE 'own_queries%';
DELETE FROM fencing.leases WHERE job_key LIKE 'own_queries%';
DELETE FROM fencing.fences WHERE job_key LIKE 'own_queries%';
DROP SCHEMA regress_own_queries CASCADE;
