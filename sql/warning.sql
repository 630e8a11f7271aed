--
-- A gate alone at top level outside a transaction block commits a receipt for
-- work that nobody has done: a warning (25P01), as SET LOCAL gives one there.
-- Wherever the client's write can still be in the same transaction, silence.
--
\set VERBOSITY sqlstate

CREATE SCHEMA regress_fencing_warning;
SET search_path = regress_fencing_warning, public;

CREATE TABLE business (line text);
SELECT token FROM fencing_acquire('warning/job', '00000000-0000-0000-0000-00000000000a', '1 hour') \gset

--
-- Warned: what a client that forgot BEGIN sends.
--
SELECT outcome FROM fencing_commit('warning/job', :token, '{}', step => 'alone');
SELECT (fencing_commit('warning/job', :token, '{}', step => 'select list')).outcome;
SELECT outcome FROM fencing_commit('warning/job', :token, '{}', NULL, 'null statement');
-- Neither option changes that.
SELECT outcome FROM fencing_commit('warning/job', :token, '{}', step => 'strict', strict => true);
SELECT outcome FROM fencing_commit('warning/job', :token, '{}', step => 'reported', report_errors => true);
-- EXECUTE is a command of the client's.
PREPARE gate(bigint, text) AS SELECT outcome FROM fencing_commit('warning/job', $1, '{}', step => $2);
EXECUTE gate(:token, 'prepared');
-- After a transaction block is outside again.
BEGIN;
COMMIT;
SELECT outcome FROM fencing_commit('warning/job', :token, '{}', step => 'after commit');
BEGIN;
SELECT 1 / 0;
ROLLBACK;
SELECT outcome FROM fencing_commit('warning/job', :token, '{}', step => 'after rollback');
-- After a function was entered and left by an error, too.
DO $$ BEGIN RAISE EXCEPTION 'left by an error'; END $$;
SELECT outcome FROM fencing_commit('warning/job', :token, '{}', step => 'after an error');

--
-- Not warned: no receipt came of it.
--
SELECT outcome FROM fencing_commit('warning/job', :token, '{}', step => 'alone');
SELECT outcome FROM fencing_commit('warning/job', :token, '{"other": 1}', step => 'alone');
EXECUTE gate(:token, 'prepared');
SELECT outcome FROM fencing_commit('warning/job', :token + 1, '{}', step => 'ahead');
SELECT outcome FROM fencing_commit('warning/job', :token + 1, '{}', step => 'ahead', report_errors => true);
SELECT token AS former FROM fencing_acquire('warning/moved', '00000000-0000-0000-0000-00000000000a') \gset
SELECT outcome FROM fencing_release('warning/moved', '00000000-0000-0000-0000-00000000000a', :former);
SELECT outcome FROM fencing_acquire('warning/moved', '00000000-0000-0000-0000-00000000000b');
SELECT outcome FROM fencing_commit('warning/moved', :former, '{}');

--
-- Not warned: the statement is the write.
--
SELECT outcome FROM fencing_commit('warning/job', :token, '{}', 'INSERT INTO business VALUES (''statement'')', 'statement');

--
-- Not warned: inside a transaction block, explicit or of several commands in
-- one message, or in a savepoint.
--
BEGIN;
SELECT outcome FROM fencing_commit('warning/job', :token, '{}', step => 'begin');
SAVEPOINT s;
SELECT outcome FROM fencing_commit('warning/job', :token, '{}', step => 'savepoint');
EXECUTE gate(:token, 'prepared in a block');
COMMIT;
SELECT outcome FROM fencing_commit('warning/job', :token, '{}', step => 'several') \; INSERT INTO business VALUES ('several');
INSERT INTO business VALUES ('before') \; SELECT outcome FROM fencing_commit('warning/job', :token, '{}', step => 'last of several');
\set AUTOCOMMIT off
SELECT outcome FROM fencing_commit('warning/job', :token, '{}', step => 'no autocommit');
INSERT INTO business VALUES ('no autocommit');
COMMIT;
\set AUTOCOMMIT on

--
-- Not warned: the command itself writes.
--
WITH gate AS (SELECT outcome FROM fencing_commit('warning/job', :token, '{}', step => 'with'))
INSERT INTO business SELECT 'with ' || outcome FROM gate;
INSERT INTO business SELECT 'select ' || outcome FROM fencing_commit('warning/job', :token, '{}', step => 'insert select');
INSERT INTO business VALUES ('returning') RETURNING line, (fencing_commit('warning/job', :token, '{}', step => 'returning')).outcome;
UPDATE business SET line = line || ' ' || g.outcome
FROM fencing_commit('warning/job', :token, '{}', step => 'update') g WHERE line = 'returning';
DELETE FROM business USING fencing_commit('warning/job', :token, '{}', step => 'delete') g
WHERE line = 'returning committed' AND g.outcome = 'committed';
WITH gate AS (SELECT outcome FROM fencing_commit('warning/job', :token, '{}', step => 'data-modifying with')),
	write AS (INSERT INTO business SELECT 'data-modifying with' FROM gate WHERE outcome = 'committed' RETURNING line)
SELECT outcome, line FROM gate, write;
MERGE INTO business b USING fencing_commit('warning/job', :token, '{}', step => 'merge') g ON b.line = 'no such line'
WHEN NOT MATCHED THEN INSERT VALUES ('merge ' || g.outcome);
PREPARE write(bigint) AS INSERT INTO business
	SELECT 'prepared insert ' || outcome FROM fencing_commit('warning/job', $1, '{}', step => 'prepared insert');
EXECUTE write(:token);

--
-- Not warned: inside a function, procedure, trigger or DO, which can write
-- before or after it.
--
CREATE FUNCTION in_plpgsql(token bigint, step text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	SELECT outcome INTO answer FROM fencing_commit('warning/job', token, '{}', step => step);
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
	answer = (fencing_commit('warning/job', token, '{}', step => 'expression')).outcome;
	INSERT INTO business VALUES ('expression');
	RETURN answer;
END $$;
SELECT in_expression(:token);
CREATE FUNCTION in_exception_block(token bigint) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	BEGIN
		PERFORM fencing_commit('warning/job', token, '{}', step => 'exception block');
		INSERT INTO business VALUES ('exception block');
	EXCEPTION WHEN division_by_zero THEN
		RETURN 'failed';
	END;
	RETURN 'written';
END $$;
SELECT in_exception_block(:token);
CREATE FUNCTION in_sql(token bigint) RETURNS SETOF text LANGUAGE sql AS $$
INSERT INTO business SELECT 'sql' FROM fencing_commit('warning/job', token, '{}', step => 'sql 1');
SELECT outcome::text FROM fencing_commit('warning/job', token, '{}', step => 'sql 2');
$$;
SELECT * FROM in_sql(:token);
CREATE FUNCTION in_standard_sql(token bigint) RETURNS text LANGUAGE sql
BEGIN ATOMIC
	INSERT INTO business VALUES ('begin atomic');
	SELECT outcome::text FROM fencing_commit('warning/job', token, '{}', step => 'begin atomic');
END;
SELECT in_standard_sql(:token);
CREATE PROCEDURE in_procedure(token bigint) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fencing_commit('warning/job', token, '{}', step => 'procedure 1');
	COMMIT;
	PERFORM fencing_commit('warning/job', token, '{}', step => 'procedure 2');
	INSERT INTO business VALUES ('procedure');
END $$;
CALL in_procedure(:token);
DO $$
BEGIN
	PERFORM fencing_commit('warning/job', (SELECT token FROM fencing.fences WHERE job_key = 'warning/job'), '{}', step => 'do');
	EXECUTE 'SELECT fencing_commit(''warning/job'', (SELECT token FROM fencing.fences WHERE job_key = ''warning/job''), ''{}'', step => ''do execute'')';
	INSERT INTO business VALUES ('do');
END $$;
CREATE TABLE doorbell (a int);
CREATE FUNCTION ring() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fencing_commit('warning/job', (SELECT token FROM fencing.fences WHERE job_key = 'warning/job'), '{}', step => 'trigger');
	RETURN NEW;
END $$;
CREATE TRIGGER ring BEFORE INSERT ON doorbell FOR EACH ROW EXECUTE FUNCTION ring();
INSERT INTO doorbell VALUES (1);
-- Nor in the statement of another commit.
SELECT outcome, result FROM fencing_commit('warning/job', :token, '{}',
	$$SELECT outcome FROM fencing_commit('warning/moved', (SELECT token FROM fencing.fences WHERE job_key = 'warning/moved'), '{}')$$,
	'nested');

--
-- Every receipt is there, warned or not.
--
SELECT count(*), count(*) FILTER (WHERE digest = fencing_digest('{}')) AS right_digest
FROM fencing.receipts WHERE job_key LIKE 'warning/%';
SELECT line FROM business ORDER BY line COLLATE "C";
-- It is a warning like any other: it can be turned off.
SET client_min_messages = error;
SELECT outcome FROM fencing_commit('warning/job', :token, '{}', step => 'quiet');
RESET client_min_messages;

DEALLOCATE ALL;
DELETE FROM fencing.receipts WHERE job_key LIKE 'warning/%';
DELETE FROM fencing.leases WHERE job_key LIKE 'warning/%';
DELETE FROM fencing.fences WHERE job_key LIKE 'warning/%';
SET client_min_messages = warning;
DROP SCHEMA regress_fencing_warning CASCADE;
