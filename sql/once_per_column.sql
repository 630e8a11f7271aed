--
-- (f(…)).* calls a function once per column of its result: docs/reference.md says to write
-- SELECT … FROM f(…).  What happens where somebody does it all the same.
--
CREATE SCHEMA regress_fencing_columns;
SET search_path = regress_fencing_columns, public;
CREATE TABLE business (line text);
CREATE VIEW versions AS SELECT document_id, version, content, note, kind
FROM fencing.revisions WHERE document_id LIKE 'columns/%' ORDER BY 1, 2;

-- A commit: the first call is committed, the others replay it.
SELECT token FROM fencing_acquire('columns/job', '00000000-0000-0000-0000-00000000000a', '1 hour') \gset
CREATE TABLE commits (outcome fencing_outcome, result jsonb, committed_at timestamptz, fence bigint, error jsonb);
INSERT INTO commits SELECT (fencing_commit('columns/job', :token, '{}', 'INSERT INTO business VALUES (''one'') RETURNING line')).*;
SELECT outcome, result, c.committed_at = r.committed_at AS same_time, fence, error
FROM commits c, LATERAL (SELECT committed_at FROM fencing_receipt('columns/job', :token)) r;
SELECT line FROM business;

-- A forced version has no number by which it would be replayed: the calls for the
-- other columns are told from another call.
CREATE TABLE forces (outcome fencing_outcome, version bigint, digest bytea, digest_version int, committed_at timestamptz,
	latest_version bigint, latest_digest bytea);
CREATE VIEW answers AS SELECT outcome, version, digest = fencing_digest('{"v": 1}') AS right_digest, digest_version,
	committed_at IS NOT NULL AS at, latest_version, latest_digest = digest AS same FROM forces;
INSERT INTO forces SELECT (fencing_publish_force('columns/a', '{"v": 1}', 'first')).*;
-- the same again is another version; so is the same for each of three rows
INSERT INTO forces SELECT (fencing_publish_force('columns/a', '{"v": 1}', 'second')).*;
INSERT INTO forces SELECT (fencing_publish_force('columns/a', '{"v": 1}', 'third ' || i)).* FROM generate_series(1, 3) i;
PREPARE force(jsonb) AS INSERT INTO forces SELECT (fencing_publish_force('columns/a', $1, 'prepared')).*;
EXECUTE force('{"v": 1}');
EXECUTE force('{"v": 1}');
SELECT * FROM answers ORDER BY version;
SELECT * FROM versions;
SELECT count(*) FROM fencing.outbox WHERE aggregatetype = 'document' AND aggregateid = 'columns/a';
-- without INSERT, at every isolation level
SELECT (fencing_publish_force('columns/b', '{"v": 1}', 'select')).* \g /dev/null
-- COPY is found within its text, as it was written
SELECT 'before' AS several \; COPY (SELECT (fencing_publish_force('columns/copy', '{"v": 1}', 'copy')).version WHERE 1 IS NOT NULL) TO STDOUT \; SELECT 'after' AS several;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT (fencing_publish_force('columns/b', '{"v": 1}', 'repeatable read')).* \g /dev/null
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT (fencing_publish_force('columns/b', '{"v": 1}', 'serializable')).* \g /dev/null
SELECT (fencing_publish_force('columns/b', '{"v": 1}', 'in one transaction')).* \g /dev/null
COMMIT;
-- two places in the text are two calls; so is each content of its own
SELECT (fencing_publish_force('columns/b', '{"v": 1}', 'place 1')).version, (fencing_publish_force('columns/b', '{"v": 1}', 'place 2')).version;
SELECT (fencing_publish_force('columns/b', '{"v": 1}', 'once')).version FROM generate_series(1, 2);
SELECT count(*), count(DISTINCT note) FROM versions WHERE document_id = 'columns/b';
SELECT note, count(*) FROM versions WHERE document_id = 'columns/b' GROUP BY note ORDER BY min(version);
-- inside a function calls cannot be told apart: each is one
CREATE FUNCTION twice() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	a bigint;
	b bigint;
BEGIN
	a = (fencing_publish_force('columns/c', '{"v": 1}', 'twice')).version;
	b = (fencing_publish_force('columns/c', '{"v": 1}', 'twice')).version;
	RETURN a || ' ' || b;
END $$;
SELECT twice();
SELECT twice(), twice();
-- an error on the way leaves nothing behind
SELECT (fencing_publish_force('columns/c', CASE WHEN i = 1 THEN '{"v": 1}'::jsonb END, 'error')).* FROM generate_series(1, 2) i;
SELECT (fencing_publish_force('columns/c', '{"v": 1}', 'after')).version;
SELECT version, note FROM versions WHERE document_id = 'columns/c';

SET session_replication_role = replica;
DELETE FROM fencing.revisions WHERE document_id LIKE 'columns/%';
RESET session_replication_role;
DELETE FROM fencing.documents WHERE document_id LIKE 'columns/%';
DELETE FROM fencing.receipts WHERE job_key LIKE 'columns/%';
DELETE FROM fencing.leases WHERE job_key LIKE 'columns/%';
DELETE FROM fencing.fences WHERE job_key LIKE 'columns/%';
SELECT more FROM fencing_purge('events', '1 microsecond', 1000000);
SET client_min_messages = warning;
DROP SCHEMA regress_fencing_columns CASCADE;
