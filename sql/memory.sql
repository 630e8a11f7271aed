--
-- What a long transaction keeps of attempts that failed: nothing that grows.
--
SET client_min_messages = error;
CREATE SCHEMA regress_memory;
SET search_path = regress_memory, public;

-- Calls a query of the right kind many times; the growth of the backend's memory
-- after the first of them, in steps of a megabyte.
CREATE FUNCTION grown() RETURNS bigint LANGUAGE sql AS $$ SELECT sum(total_bytes) FROM pg_backend_memory_contexts $$;
CREATE FUNCTION megabytes(command text, times int DEFAULT 2000) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	before bigint;
BEGIN
	FOR i IN 1..times LOOP
		IF i = 100 THEN
			before := grown();
		END IF;
		BEGIN
			EXECUTE command USING i;
			RAISE EXCEPTION USING ERRCODE = 'UNDO1';
		EXCEPTION WHEN SQLSTATE 'UNDO1' OR undefined_table THEN
		END;
	END LOOP;
	RETURN (grown() - before) / 1000000;
END $$;

-- Passes: answered `failed`, and rolled back after `committed`
SELECT token AS t FROM fencing_acquire('memory/' || repeat('k', 500), md5('A')::uuid, '1 day') \gset
CREATE FUNCTION gate(step text, statement text) RETURNS text LANGUAGE sql AS
'SELECT outcome FROM fencing_commit(''memory/'' || repeat(''k'', 500), (SELECT token FROM fencing.fences WHERE job_key LIKE ''memory/k%''), ''{}'', statement, step, report_errors => true)';
BEGIN;
SELECT gate('x', 'SELECT 1/0'), megabytes($$SELECT gate($1::text, 'SELECT 1/0')$$) AS failed;
SELECT gate('x', NULL), megabytes($$SELECT gate($1::text, NULL)$$) AS rolled_back;
ROLLBACK;
BEGIN;
SELECT megabytes($$SELECT gate($1::text, NULL)$$) AS rolled_back;
SELECT gate('x', NULL);
ROLLBACK;

-- Claims
CREATE FUNCTION may(text, text, jsonb, jsonb) RETURNS boolean LANGUAGE sql AS 'SELECT true';
SELECT fencing_define_operation('memory', 'may(text,text,jsonb,jsonb)');
SELECT fencing_define_request('memory', 1, '{}');
BEGIN;
SELECT megabytes($$SELECT fencing_once(repeat('t', 500), 'memory', repeat('k', 500), '{}')$$) AS claims;
-- one that is kept has to be responded to still, and one of an inner level with its outer one
SAVEPOINT a;
SAVEPOINT b;
SELECT outcome FROM fencing_once('t', 'memory', 'b', '{}');
RELEASE b;
SAVEPOINT c;
SELECT outcome FROM fencing_once('t', 'memory', 'c', '{}');
ROLLBACK TO c;
ROLLBACK TO a;
SAVEPOINT d;
SELECT outcome FROM fencing_once('t', 'memory', 'd', '{}');
RELEASE d;
SAVEPOINT e;
SELECT outcome FROM fencing_once('t', 'memory', 'e', '{}');
ROLLBACK TO e;
COMMIT;
BEGIN;
SAVEPOINT a;
SELECT outcome FROM fencing_once('t', 'memory', 'a', '{}');
RELEASE a;
SELECT fencing_once_respond('t', 'memory', 'a', '1');
SAVEPOINT b;
SELECT outcome FROM fencing_once('t', 'memory', 'b', '{}');
ROLLBACK TO b;
COMMIT;
SELECT key, result FROM fencing.records WHERE operation = 'memory';

-- A query of the extension that cannot be parsed: what outlives the transaction
CREATE OR REPLACE FUNCTION grown() RETURNS bigint LANGUAGE sql AS
$$ SELECT used_bytes * 100 FROM pg_backend_memory_contexts WHERE name = 'TopMemoryContext' $$;
\c -
SET client_min_messages = error;
SET search_path = regress_memory, public;
SELECT outcome FROM fencing_acquire('memory/job', md5('A')::uuid);
BEGIN;
ALTER TABLE fencing.revocations RENAME TO elsewhere;
SELECT megabytes($$SELECT fencing_revoke('memory/job', 'test')$$) AS hundredths;
ROLLBACK;

DELETE FROM fencing.records WHERE operation = 'memory';
DELETE FROM fencing.request_schemas WHERE operation = 'memory';
DELETE FROM fencing.operations WHERE operation = 'memory';
DELETE FROM fencing.receipts WHERE job_key LIKE 'memory/%';
DELETE FROM fencing.leases WHERE job_key LIKE 'memory/%';
DELETE FROM fencing.fences WHERE job_key LIKE 'memory/%';
DROP SCHEMA regress_memory CASCADE;
