--
-- A gate alone at top level outside a transaction block would commit a receipt for
-- work that nobody has done: 25P01, and nothing is written.  Wherever the client's
-- write can still be in the same transaction, it passes.
--
\set VERBOSITY sqlstate

CREATE SCHEMA regress_fencing_alone;
SET search_path = regress_fencing_alone, public;

CREATE TABLE business (line text);
SELECT token FROM fencing_acquire('alone/job', '00000000-0000-0000-0000-00000000000a', '1 hour') \gset

--
-- Refused: what a client that forgot BEGIN sends.
--
\set VERBOSITY default
SELECT outcome FROM fencing_commit('alone/job', :token, '{}', step => 'alone');
\set VERBOSITY sqlstate
SELECT (fencing_commit('alone/job', :token, '{}', step => 'select list')).outcome;
SELECT outcome FROM fencing_commit('alone/job', :token, '{}', NULL, 'null statement');
-- Neither option changes that: the program is wrong, not this attempt.
SELECT outcome FROM fencing_commit('alone/job', :token, '{}', step => 'strict', strict => true);
SELECT outcome FROM fencing_commit('alone/job', :token, '{}', step => 'reported', report_errors => true);
-- EXECUTE is a command of the client's.
PREPARE gate(bigint, text) AS SELECT outcome FROM fencing_commit('alone/job', $1, '{}', step => $2);
EXECUTE gate(:token, 'prepared');
-- After a transaction block is outside again.
BEGIN;
COMMIT;
SELECT outcome FROM fencing_commit('alone/job', :token, '{}', step => 'after commit');
BEGIN;
SELECT 1 / 0;
ROLLBACK;
SELECT outcome FROM fencing_commit('alone/job', :token, '{}', step => 'after rollback');
-- After a function was entered and left by an error, too.
DO $$ BEGIN RAISE EXCEPTION 'left by an error'; END $$;
SELECT outcome FROM fencing_commit('alone/job', :token, '{}', step => 'after an error');
-- By way of a view, a function that PostgreSQL takes apart, or a batch.
CREATE VIEW by_view AS SELECT outcome FROM fencing_commit('alone/job', (SELECT token FROM fencing.fences WHERE job_key = 'alone/job'), '{}', step => 'view');
SELECT outcome FROM by_view;
CREATE FUNCTION inlined(token bigint) RETURNS text LANGUAGE sql AS $$ SELECT (fencing_commit('alone/job', token, '{}', step => 'inlined')).outcome::text $$;
SELECT inlined(:token);
SELECT c.outcome FROM unnest('{a,b}'::text[]) s, LATERAL fencing_commit('alone/job', :token, '{}', step => s) c;
SELECT count(*) FROM (SELECT outcome FROM fencing_commit('alone/job', :token, '{}', step => 'subquery') OFFSET 0) s;
WITH gate AS MATERIALIZED (SELECT outcome FROM fencing_commit('alone/job', :token, '{}', step => 'with')) SELECT outcome FROM gate;
-- Commands that run a query of theirs, which writes nothing else.
EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) SELECT outcome FROM fencing_commit('alone/job', :token, '{}', step => 'explain');
COPY (SELECT outcome FROM fencing_commit('alone/job', (SELECT token FROM fencing.fences WHERE job_key = 'alone/job'), '{}', step => 'copy')) TO STDOUT;
EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) SELECT fencing_commit('alone/job', :token, '{}', step => 'explain');
PREPARE prepared AS SELECT fencing_commit('alone/job', $1, '{}', step => 'explain');
EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) EXECUTE prepared(:token);
EXECUTE prepared(:token);
DEALLOCATE prepared;
COPY (SELECT fencing_commit('alone/job', (SELECT token FROM fencing.fences WHERE job_key = 'alone/job'), '{}', step => 'copy')) TO STDOUT;
COPY (SELECT (public.fencing_commit('alone/job', token, '{}', step => 'copy')).outcome FROM fencing.fences WHERE job_key = 'alone/job') TO STDOUT;
-- analysis changes what COPY has: parts of this are not as they were written
COPY (SELECT fencing_commit('alone/job', token, '{}', step => 'copy') FROM fencing.fences f
	WHERE job_key = 'alone/job' AND token IS NOT NULL AND token IN (SELECT token FROM fencing.fences) AND external IS FALSE) TO STDOUT;
EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) SELECT * FROM by_view;
DECLARE held CURSOR WITH HOLD FOR SELECT outcome FROM fencing_commit('alone/job', (SELECT token FROM fencing.fences WHERE job_key = 'alone/job'), '{}', step => 'held');
-- A cursor in a block, as psql before 17 makes of it with FETCH_COUNT.
BEGIN;
DECLARE fetched CURSOR FOR SELECT outcome FROM fencing_commit('alone/job', :token, '{}', step => 'fetched');
FETCH ALL FROM fetched;
COMMIT;
-- The other gates.
CREATE FUNCTION may(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS boolean LANGUAGE sql AS 'SELECT auth IS NOT NULL';
SELECT fencing_define_operation('alone/pay', 'regress_fencing_alone.may(text, text, jsonb, jsonb)');
SELECT fencing_define_request('alone/pay', 1, '{}');
SELECT outcome FROM fencing_once('t', 'alone/pay', 'k', '{}', auth => '{}');
SELECT outcome FROM fencing_once('t', 'alone/pay', 'k', '{}', auth => '{}', report_errors => true);
SELECT fencing_once_respond('t', 'alone/pay', 'k', '{}') FROM fencing_once('t', 'alone/pay', 'k', '{}', auth => '{}') WHERE outcome = 'committed';
SELECT fencing_target_desire('alone/doc', 't');
SELECT outcome FROM fencing_apply('alone/doc', 't', 1, fencing_digest('{"a": 1}'), '{"a": 1}');
-- Nothing is there but that of the cursor, and no lock is left.
SELECT (SELECT count(*) FROM fencing.receipts WHERE job_key LIKE 'alone/%') AS receipts,
	(SELECT count(*) FROM fencing.records WHERE operation LIKE 'alone/%') AS records,
	(SELECT applied FROM fencing.targets WHERE document_id = 'alone/doc') AS applied,
	(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()) AS locks;
-- What follows needs some receipts.
BEGIN;
SELECT outcome FROM fencing_commit('alone/job', :token, '{}', step => 'alone');
EXECUTE gate(:token, 'prepared');
SELECT outcome FROM fencing_apply('alone/doc', 't', 1, fencing_digest('{"a": 1}'), '{"a": 1}');
SELECT outcome FROM fencing_once('t', 'alone/pay', 'k', '{}', auth => '{}');
SELECT fencing_once_respond('t', 'alone/pay', 'k', '{}');
COMMIT;

--
-- Not refused: no receipt comes of it.
--
SELECT outcome FROM fencing_commit('alone/job', :token, '{}', step => 'alone');
SELECT outcome FROM fencing_commit('alone/job', :token, '{"other": 1}', step => 'alone');
EXECUTE gate(:token, 'prepared');
SELECT outcome FROM fencing_commit('alone/job', :token + 1, '{}', step => 'ahead');
SELECT outcome FROM fencing_commit('alone/job', :token + 1, '{}', step => 'ahead', report_errors => true);
SELECT token AS former FROM fencing_acquire('alone/moved', '00000000-0000-0000-0000-00000000000a') \gset
SELECT outcome FROM fencing_release('alone/moved', '00000000-0000-0000-0000-00000000000a', :former);
SELECT outcome FROM fencing_acquire('alone/moved', '00000000-0000-0000-0000-00000000000b');
SELECT outcome FROM fencing_commit('alone/moved', :former, '{}');
SELECT outcome FROM fencing_once('t', 'alone/pay', 'k', '{}', auth => '{}');
SELECT outcome FROM fencing_once('t', 'alone/pay', 'new', '{}');
SELECT outcome FROM fencing_apply('alone/doc', 't', 1, fencing_digest('{"a": 1}'), '{"a": 1}');

--
-- Not refused: the statement is the write.
--
SELECT outcome FROM fencing_commit('alone/job', :token, '{}', 'INSERT INTO business VALUES (''statement'')', 'statement');

--
-- Not refused: inside a transaction block, explicit or of several commands in
-- one message, or in a savepoint.
--
BEGIN;
SELECT outcome FROM fencing_commit('alone/job', :token, '{}', step => 'begin');
SAVEPOINT s;
SELECT outcome FROM fencing_commit('alone/job', :token, '{}', step => 'savepoint');
EXECUTE gate(:token, 'prepared in a block');
COMMIT;
SELECT outcome FROM fencing_commit('alone/job', :token, '{}', step => 'several') \; INSERT INTO business VALUES ('several');
INSERT INTO business VALUES ('before') \; SELECT outcome FROM fencing_commit('alone/job', :token, '{}', step => 'last of several');
\set AUTOCOMMIT off
SELECT outcome FROM fencing_commit('alone/job', :token, '{}', step => 'no autocommit');
INSERT INTO business VALUES ('no autocommit');
COMMIT;
\set AUTOCOMMIT on

--
-- Not refused: the command itself writes.
--
WITH gate AS (SELECT outcome FROM fencing_commit('alone/job', :token, '{}', step => 'with'))
INSERT INTO business SELECT 'with ' || outcome FROM gate;
INSERT INTO business SELECT 'select ' || outcome FROM fencing_commit('alone/job', :token, '{}', step => 'insert select');
INSERT INTO business VALUES ('returning') RETURNING line, (fencing_commit('alone/job', :token, '{}', step => 'returning')).outcome;
UPDATE business SET line = line || ' ' || g.outcome
FROM fencing_commit('alone/job', :token, '{}', step => 'update') g WHERE line = 'returning';
DELETE FROM business USING fencing_commit('alone/job', :token, '{}', step => 'delete') g
WHERE line = 'returning committed' AND g.outcome = 'committed';
WITH gate AS (SELECT outcome FROM fencing_commit('alone/job', :token, '{}', step => 'data-modifying with')),
	write AS (INSERT INTO business SELECT 'data-modifying with' FROM gate WHERE outcome = 'committed' RETURNING line)
SELECT outcome, line FROM gate, write;
MERGE INTO business b USING fencing_commit('alone/job', :token, '{}', step => 'merge') g ON b.line = 'no such line'
WHEN NOT MATCHED THEN INSERT VALUES ('merge ' || g.outcome);
PREPARE write(bigint) AS INSERT INTO business
	SELECT 'prepared insert ' || outcome FROM fencing_commit('alone/job', $1, '{}', step => 'prepared insert');
EXECUTE write(:token);
CREATE TABLE made AS SELECT outcome FROM fencing_commit('alone/job', :token, '{}', step => 'create table as');
SELECT outcome FROM made;
EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off)
INSERT INTO business SELECT 'explain ' || outcome FROM fencing_commit('alone/job', :token, '{}', step => 'explain insert') \g /dev/null
EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off)
CREATE TABLE explained AS SELECT outcome FROM fencing_commit('alone/job', :token, '{}', step => 'explain create table as') \g /dev/null
PREPARE made(bigint) AS SELECT outcome FROM fencing_commit('alone/job', $1, '{}', step => 'create table as execute');
CREATE TABLE executed AS EXECUTE made(:token);
DEALLOCATE made;
SELECT outcome FROM executed;
COPY (INSERT INTO business SELECT 'copy ' || outcome FROM fencing_commit('alone/job',
	(SELECT token FROM fencing.fences WHERE job_key = 'alone/job'), '{}', step => 'copy insert') RETURNING line) TO STDOUT;
COPY (WITH write AS (INSERT INTO business SELECT 'copy with ' || (fencing_commit('alone/job', token, '{}', step => 'copy with')).outcome
	FROM fencing.fences WHERE job_key = 'alone/job' RETURNING line) SELECT line FROM write) TO STDOUT;
COPY (SELECT line FROM business WHERE line LIKE 'copy%' ORDER BY line) TO STDOUT;

--
-- Not refused: inside a function, procedure, trigger or DO, which can write
-- before or after it.
--
CREATE FUNCTION in_loop(token bigint, step text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer record;
BEGIN
	FOR answer IN SELECT outcome FROM fencing_commit('alone/job', token, '{}', step => step) LOOP
		INSERT INTO business VALUES (step || ' ' || answer.outcome);
	END LOOP;
	RETURN answer.outcome;
END $$;
SELECT in_loop(:token, 'in a loop');
PREPARE looped(bigint) AS SELECT in_loop($1, 'in a loop, prepared');
EXECUTE looped(:token);
DEALLOCATE looped;
EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) SELECT in_loop(:token, 'in a loop, explained') \g /dev/null
CREATE FUNCTION in_plpgsql(token bigint, step text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	SELECT outcome INTO answer FROM fencing_commit('alone/job', token, '{}', step => step);
	IF answer = 'committed' THEN
		INSERT INTO business VALUES (step);
	END IF;
	RETURN answer;
END $$;
SELECT in_plpgsql(:token, 'plpgsql');
-- A simple expression, which PL/pgSQL evaluates without SPI.
CREATE FUNCTION in_expression(token bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	answer = (fencing_commit('alone/job', token, '{}', step => 'expression')).outcome;
	INSERT INTO business VALUES ('expression');
	RETURN answer;
END $$;
SELECT in_expression(:token);
CREATE FUNCTION in_exception_block(token bigint) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	BEGIN
		PERFORM fencing_commit('alone/job', token, '{}', step => 'exception block');
		INSERT INTO business VALUES ('exception block');
	EXCEPTION WHEN division_by_zero THEN
		RETURN 'failed';
	END;
	RETURN 'written';
END $$;
SELECT in_exception_block(:token);
CREATE FUNCTION in_sql(token bigint) RETURNS SETOF text LANGUAGE sql AS $$
INSERT INTO business SELECT 'sql' FROM fencing_commit('alone/job', token, '{}', step => 'sql 1');
SELECT outcome::text FROM fencing_commit('alone/job', token, '{}', step => 'sql 2');
$$;
SELECT * FROM in_sql(:token);
CREATE FUNCTION in_standard_sql(token bigint) RETURNS text LANGUAGE sql
BEGIN ATOMIC
	INSERT INTO business VALUES ('begin atomic');
	SELECT outcome::text FROM fencing_commit('alone/job', token, '{}', step => 'begin atomic');
END;
SELECT in_standard_sql(:token);
CREATE PROCEDURE in_procedure(token bigint) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fencing_commit('alone/job', token, '{}', step => 'procedure 1');
	COMMIT;
	PERFORM fencing_commit('alone/job', token, '{}', step => 'procedure 2');
	INSERT INTO business VALUES ('procedure');
END $$;
CALL in_procedure(:token);
DO $$
BEGIN
	PERFORM fencing_commit('alone/job', (SELECT token FROM fencing.fences WHERE job_key = 'alone/job'), '{}', step => 'do');
	EXECUTE 'SELECT fencing_commit(''alone/job'', (SELECT token FROM fencing.fences WHERE job_key = ''alone/job''), ''{}'', step => ''do execute'')';
	INSERT INTO business VALUES ('do');
END $$;
CREATE TABLE doorbell (a int);
CREATE FUNCTION ring() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fencing_commit('alone/job', (SELECT token FROM fencing.fences WHERE job_key = 'alone/job'), '{}', step => 'trigger');
	RETURN NEW;
END $$;
CREATE TRIGGER ring BEFORE INSERT ON doorbell FOR EACH ROW EXECUTE FUNCTION ring();
INSERT INTO doorbell VALUES (1);
-- Nor in the statement of another commit.
SELECT outcome, result FROM fencing_commit('alone/job', :token, '{}',
	$$SELECT outcome FROM fencing_commit('alone/moved', (SELECT token FROM fencing.fences WHERE job_key = 'alone/moved'), '{}')$$,
	'nested');

--
-- Every receipt is there that was not refused.
--
SELECT count(*), count(*) FILTER (WHERE digest = fencing_digest('{}')) AS right_digest
FROM fencing.receipts WHERE job_key LIKE 'alone/%';
SELECT line FROM business ORDER BY line COLLATE "C";
-- No setting lets it pass.
SET client_min_messages = error;
SELECT outcome FROM fencing_commit('alone/job', :token, '{}', step => 'quiet');
RESET client_min_messages;

DEALLOCATE ALL;
DELETE FROM fencing.receipts WHERE job_key LIKE 'alone/%';
DELETE FROM fencing.leases WHERE job_key LIKE 'alone/%';
DELETE FROM fencing.fences WHERE job_key LIKE 'alone/%';
DELETE FROM fencing.records WHERE operation LIKE 'alone/%';
DELETE FROM fencing.request_schemas WHERE operation LIKE 'alone/%';
DELETE FROM fencing.operations WHERE operation LIKE 'alone/%';
DELETE FROM fencing.targets WHERE document_id LIKE 'alone/%';
SET client_min_messages = warning;
DROP SCHEMA regress_fencing_alone CASCADE;
