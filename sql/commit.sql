--
-- The fenced commit: every answer with every column, and what it leaves behind.
--
UPDATE fencing.floor SET floor = 0;
CREATE SCHEMA regress_commit;
SET search_path = regress_commit, public;
CREATE TABLE report (job text, token bigint, n int CHECK (n > 0));

-- receipts and business rows are counted as superuser
CREATE TEMP VIEW state AS
SELECT job_key, f.token AS fence, l.token AS lease, f.purged_through,
	(SELECT count(*) FROM fencing.receipts r WHERE r.job_key = f.job_key) AS receipts,
	(SELECT count(*) FROM report WHERE job = f.job_key) AS rows
FROM fencing.fences f FULL JOIN fencing.leases l USING (job_key) WHERE job_key LIKE 'commit/%';

-- a takeover without anybody sleeping
CREATE FUNCTION pg_temp.expire(k text) RETURNS void LANGUAGE sql AS
$$ UPDATE fencing.leases SET lease_until = clock_timestamp() - interval '1 s' WHERE job_key = k $$;

\set write '''INSERT INTO report SELECT $1, $2, ($3->>''''n'''')::int RETURNING n, token'''

--
-- committed
--
SELECT outcome, token FROM fencing_acquire('commit/a', md5('A')::uuid, '1 hour');
SELECT clock_timestamp() AS t0 \gset
SELECT outcome, result, committed_at BETWEEN :'t0' AND clock_timestamp() AS by_clock, fence, error
FROM fencing_commit('commit/a', 1, '{"n": 7, "list": [1, 2]}', :write);
SELECT * FROM state;
SELECT * FROM report;

-- its receipt: digest and version, the first row, the same time
SELECT committed_at AS at FROM fencing.receipts WHERE job_key = 'commit/a' \gset
SELECT digest = fencing_digest('{"list": [1, 2], "n": 7}') AS digest, digest_version, result, committed_at = :'at' AS at
FROM fencing_receipt('commit/a', 1);
SELECT count(*) FROM fencing_receipt('commit/a', 2);
SELECT count(*) FROM fencing_receipt('commit/a', 1, 'x');
SELECT count(*) FROM fencing_receipt('commit/unknown', 1);
SELECT job_key, token, step, digest_version, committed_at = :'at' AS at FROM fencing.receipt_log WHERE job_key LIKE 'commit/%';

--
-- replayed: the first result and its time, whatever the statement says now;
-- the statement does not run
--
SELECT outcome, result, committed_at = :'at' AS at, fence, error
FROM fencing_commit('commit/a', 1, '{"n": 7, "list": [1, 2]}', :write);
SELECT outcome, result, committed_at = :'at' AS at, fence, error
FROM fencing_commit('commit/a', 1, '{"n": 7, "list": [1, 2]}', 'SELECT 1 / 0');
SELECT outcome, result, committed_at = :'at' AS at, fence, error
FROM fencing_commit('commit/a', 1, '{"n": 7, "list": [1, 2]}');
-- another spelling of the payload
SELECT p, outcome, result, committed_at = :'at' AS at
FROM unnest(ARRAY['{"list": [1, 2], "n": 7}', '{"list":[1,2],"n":7}', ' { "n" : 7.0, "list" : [ 1.00, 2e0 ] } ',
	'{"n": 70e-1, "list": [0.1e1, 200E-2]}', '{"n": 8, "list": [1, 2], "n": 7}', '{"\u006e": 7, "list": [1, 2]}'])
	WITH ORDINALITY AS u (p, n), LATERAL fencing_commit('commit/a', 1, p::jsonb, :write) ORDER BY n;
SELECT step, p1, p2, c1.outcome, c2.outcome, c2.result
FROM (VALUES ('a', '{"price": 4.50}', '{"price": 4.5}'), ('b', '1e2', '100'), ('c', '1.01', '1.010'), ('d', '0', '-0.000'),
	('e', '"a/b"', '"\u0061\/b"'), ('f', '[]', ' [ ] '), ('g', 'null', ' null '), ('h', '{"a": {"c": 1, "b": 2}}', '{"a": {"b": 2, "c": 1}}'))
	AS v (step, p1, p2),
	LATERAL fencing_commit('commit/a', 1, p1::jsonb, 'SELECT $3 AS first', step => step) c1,
	LATERAL fencing_commit('commit/a', 1, CASE WHEN c1.outcome IS NOT NULL THEN p2::jsonb END, :write, step => step) c2
ORDER BY step;
SELECT * FROM state;

--
-- conflict: no result, the receipt's time, and nothing of it is written
--
SELECT outcome, result, committed_at = :'at' AS at, fence, error
FROM fencing_commit('commit/a', 1, '{"n": 8, "list": [1, 2]}', :write);
SELECT p, outcome, result, committed_at = :'at' AS at
FROM unnest(ARRAY['{"n": 7, "list": [2, 1]}', '{"n": "7", "list": [1, 2]}', '{"n": 7.0000000000000000001, "list": [1, 2]}',
	'{"n": 7, "list": [1, 2], "x": null}', '{"N": 7, "list": [1, 2]}', '{"n": 7}', 'null', '[]', '{}'])
	WITH ORDINALITY AS u (p, n), LATERAL fencing_commit('commit/a', 1, p::jsonb, :write) ORDER BY n;
SELECT * FROM state;

--
-- An old lease is no fault as long as nobody took over: a long job commits.
--
SELECT pg_temp.expire('commit/a');
SELECT outcome, result, fence FROM fencing_commit('commit/a', 1, '{"n": 9}', :write, step => 'late');
SELECT outcome, token FROM fencing_acquire('commit/a', md5('A')::uuid, '1 hour');
SELECT outcome FROM fencing_release('commit/a', md5('A')::uuid, 2);
SELECT outcome, result, fence FROM fencing_commit('commit/a', 2, '{"n": 9}', :write);

--
-- stale: superseded, no receipt.  The receipt is looked up first: what landed
-- is replayed, also under an old token.
--
SELECT outcome, token FROM fencing_acquire('commit/a', md5('B')::uuid, '1 hour');
SELECT * FROM fencing_commit('commit/a', 2, '{"n": 9}', :write, step => 'too late');
SELECT * FROM fencing_commit('commit/a', 1, '{"n": 9}', :write, step => 'too late');
SELECT outcome, result, committed_at = :'at' AS at, fence, error
FROM fencing_commit('commit/a', 1, '{"n": 7, "list": [1, 2]}', :write);
SELECT outcome, result, committed_at = :'at' AS at, fence, error
FROM fencing_commit('commit/a', 1, '{"n": 8, "list": [1, 2]}', :write);
SELECT * FROM state;

--
-- pruned: no receipt, and receipts of that age are gone.  What a purge leaves
-- behind is made by hand here.
--
UPDATE fencing.fences SET purged_through = 1 WHERE job_key = 'commit/a';
DELETE FROM fencing.receipts WHERE job_key = 'commit/a' AND token = 1 AND step = '';
SELECT * FROM fencing_commit('commit/a', 1, '{"n": 7, "list": [1, 2]}', :write);
SELECT * FROM fencing_commit('commit/a', 1, '{"n": 8}', :write);
-- a receipt that is still there is still told, and above the border it is stale
SELECT outcome, result, fence FROM fencing_commit('commit/a', 1, '{"n": 9}', :write, step => 'late');
SELECT * FROM fencing_commit('commit/a', 2, '{"n": 9}', :write, step => 'too late');
-- a token below a job's first one, though the job has a fence
UPDATE fencing.floor SET floor = 5;
SELECT outcome, token FROM fencing_acquire('commit/p', md5('A')::uuid);
SELECT t, c.* FROM unnest(ARRAY[1, 5]) t, LATERAL fencing_commit('commit/p', t, '{"n": 7}', :write) c ORDER BY t;
-- and of a job that has none
SELECT t, c.* FROM unnest(ARRAY[1, 5]) t, LATERAL fencing_commit('commit/unknown', t, '{"n": 7}', :write) c ORDER BY t;
SELECT fencing_commit('commit/unknown', 6, '{"n": 7}', :write);
\echo :SQLSTATE
UPDATE fencing.floor SET floor = 0;

--
-- LF001: a token that was never issued here
--
SELECT fencing_commit('commit/a', 4, '{"n": 7}', :write);
\echo :SQLSTATE
SELECT fencing_commit('commit/a', 9223372036854775807, '{"n": 7}', :write);
\echo :SQLSTATE
SELECT fencing_commit('commit/unknown', 1, '{"n": 7}', :write);
\echo :SQLSTATE
-- what comes from outside is no format string
SELECT fencing_commit('commit/%s%n%d "x" \', 1, '{"n": 7}', :write);
\echo :SQLSTATE
SELECT * FROM state ORDER BY job_key;

--
-- LF002: a receipt of a digest version that this installation does not know is
-- an error, and nothing runs
--
UPDATE fencing.receipts SET digest_version = 99 WHERE job_key = 'commit/a' AND step = 'late';
SELECT fencing_commit('commit/a', 1, '{"n": 9}', :write, step => 'late');
\echo :SQLSTATE
SELECT digest_version FROM fencing_receipt('commit/a', 1, 'late');
SELECT * FROM state WHERE job_key = 'commit/a';

--
-- Steps: one token, several commits
--
SELECT outcome, token FROM fencing_acquire('commit/s', md5('A')::uuid, '1 hour');
SELECT s, outcome, result FROM unnest(ARRAY['', 'a', 'A', 'a ', ' ', 'b']) WITH ORDINALITY AS u (s, n),
	LATERAL fencing_commit('commit/s', 1, jsonb_build_object('n', n), :write, step => s) ORDER BY n;
SELECT s, outcome, result FROM unnest(ARRAY['', 'a', 'A', 'a ', ' ', 'b']) WITH ORDINALITY AS u (s, n),
	LATERAL fencing_commit('commit/s', 1, jsonb_build_object('n', n), 'SELECT 0', step => s) ORDER BY n;
SELECT s, outcome FROM unnest(ARRAY['', 'a', 'b']) WITH ORDINALITY AS u (s, n),
	LATERAL fencing_commit('commit/s', 1, '0', :write, step => s) ORDER BY n;
SELECT s, result FROM unnest(ARRAY['', 'a', 'A', 'a ', ' ', 'b', 'c']) WITH ORDINALITY AS u (s, n),
	LATERAL fencing_receipt('commit/s', 1, s) ORDER BY n;
SELECT * FROM state WHERE job_key = 'commit/s';

--
-- The gate alone: the client writes afterwards.  At top level outside a
-- transaction that would commit a receipt alone: a warning, once it has been
-- taken, and not for an answer that wrote nothing.
--
SELECT outcome, token FROM fencing_acquire('commit/g', md5('A')::uuid, '1 hour');
SELECT outcome, result, fence FROM fencing_commit('commit/g', 1, '{"n": 1}', step => 'top');
BEGIN;
SELECT outcome, result, fence FROM fencing_commit('commit/g', 1, '{"n": 1}', step => 'top');
COMMIT;
SELECT outcome, result, fence FROM fencing_commit('commit/g', 1, '{"n": 1}', NULL, 'top');
SELECT outcome, result, fence FROM fencing_commit('commit/g', 1, '{"n": 2}', NULL, 'top');
BEGIN;
SELECT outcome, result, fence FROM fencing_commit('commit/g', 1, '{"n": 1}', step => 'block');
INSERT INTO report VALUES ('commit/g', 1, 1);
COMMIT;
DO $$
BEGIN
	IF (SELECT outcome FROM fencing_commit('commit/g', 1, '{"n": 1}', step => 'function')) = 'committed' THEN
		INSERT INTO report VALUES ('commit/g', 1, 2);
	END IF;
END $$;
WITH gate AS (SELECT * FROM fencing_commit('commit/g', 1, '{"n": 1}', step => 'with'))
INSERT INTO report SELECT 'commit/g', 1, 3 FROM gate WHERE outcome = 'committed' RETURNING n;
WITH gate AS (SELECT * FROM fencing_commit('commit/g', 1, '{"n": 1}', step => 'with')),
	written AS (INSERT INTO report SELECT 'commit/g', 1, 4 FROM gate WHERE outcome = 'committed' RETURNING n)
SELECT outcome, n FROM gate LEFT JOIN written ON true;
-- with a statement there is nothing to warn of
SELECT outcome, result, fence FROM fencing_commit('commit/g', 1, '{"n": 1}', 'SELECT 1', step => 'statement');
SELECT * FROM state WHERE job_key = 'commit/g';

--
-- strict: anything but committed and replayed is an error, the answer in DETAIL
--
SELECT outcome, token FROM fencing_acquire('commit/x', md5('A')::uuid);
SELECT outcome, result FROM fencing_commit('commit/x', 1, '{"n": 1}', :write, strict => true);
SELECT outcome, result FROM fencing_commit('commit/x', 1, '{"n": 1}', :write, strict => true);
SELECT fencing_commit('commit/x', 1, '{"n": 2}', :write, strict => true);
\echo :SQLSTATE
SELECT pg_temp.expire('commit/x');
SELECT outcome, token FROM fencing_acquire('commit/x', md5('B')::uuid);
SELECT fencing_commit('commit/x', 1, '{"n": 2}', :write, step => 's', strict => true);
\echo :SQLSTATE
UPDATE fencing.fences SET purged_through = 1 WHERE job_key = 'commit/x';
SELECT fencing_commit('commit/x', 1, '{"n": 2}', :write, step => 's', strict => true);
\echo :SQLSTATE
-- the words of DETAIL as a client finds them
DO $$
DECLARE detail text;
BEGIN
	PERFORM fencing_commit('commit/x', 1, '{"n": 2}', strict => true);
EXCEPTION WHEN SQLSTATE 'LF005' THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
	RAISE NOTICE 'detail: %', detail;
END $$;
SELECT fencing_commit('commit/x', 2, '{"n": 2}', :write, strict => true, report_errors => true);
\echo :SQLSTATE
SELECT * FROM state WHERE job_key = 'commit/x';

--
-- No answer dooms its transaction; no id was drawn where nothing was written.
--
CREATE TABLE done (n serial, what text);
SELECT outcome, token FROM fencing_acquire('commit/d', md5('A')::uuid);
BEGIN;
SELECT outcome FROM fencing_commit('commit/d', 1, '{"n": 1}', :write);
INSERT INTO done (what) VALUES ('committed');
COMMIT;
BEGIN;
SELECT outcome FROM fencing_commit('commit/d', 1, '{"n": 1}', :write);
SELECT pg_current_xact_id_if_assigned() AS xid;
INSERT INTO done (what) VALUES ('replayed');
COMMIT;
BEGIN;
SELECT outcome FROM fencing_commit('commit/d', 1, '{"n": 2}', :write);
SELECT pg_current_xact_id_if_assigned() AS xid;
INSERT INTO done (what) VALUES ('conflict');
COMMIT;
BEGIN;
SELECT outcome FROM fencing_commit('commit/d', 1, '{"n": 0}', :write, step => 's', report_errors => true);
INSERT INTO done (what) VALUES ('failed');
COMMIT;
SELECT pg_temp.expire('commit/d');
SELECT outcome, token FROM fencing_acquire('commit/d', md5('B')::uuid);
BEGIN;
SELECT outcome FROM fencing_commit('commit/d', 1, '{"n": 2}', :write, step => 's');
SELECT pg_current_xact_id_if_assigned() AS xid;
INSERT INTO done (what) VALUES ('stale');
COMMIT;
UPDATE fencing.fences SET purged_through = 1 WHERE job_key = 'commit/d';
BEGIN;
SELECT outcome FROM fencing_commit('commit/d', 1, '{"n": 2}', :write, step => 's');
SELECT pg_current_xact_id_if_assigned() AS xid;
INSERT INTO done (what) VALUES ('pruned');
COMMIT;
SELECT * FROM done ORDER BY n;
SELECT * FROM state WHERE job_key = 'commit/d';

--
-- Read-only: what has a receipt is answered, everything else is an error
--
BEGIN READ ONLY;
SELECT outcome, result, fence FROM fencing_commit('commit/d', 1, '{"n": 1.0}', :write);
SELECT outcome, result, fence FROM fencing_commit('commit/d', 1, '{"n": 2}', :write);
SELECT result FROM fencing_receipt('commit/d', 1);
SELECT fencing_commit('commit/d', 2, '{"n": 1}', :write);
\echo :SQLSTATE
ROLLBACK;
-- pruned, stale, never issued, no such job
BEGIN READ ONLY;
SELECT fencing_commit('commit/d', 1, '{"n": 2}', :write, step => 's');
\echo :SQLSTATE
ROLLBACK;
BEGIN READ ONLY;
SELECT fencing_commit('commit/a', 2, '{"n": 2}', :write, step => 's');
\echo :SQLSTATE
ROLLBACK;
BEGIN READ ONLY;
SELECT fencing_commit('commit/d', 9, '{"n": 2}', :write, step => 's');
\echo :SQLSTATE
ROLLBACK;
BEGIN READ ONLY;
SELECT fencing_commit('commit/unknown', 1, '{"n": 2}', :write, step => 's');
\echo :SQLSTATE
ROLLBACK;

--
-- Savepoints: rolled back means no receipt; a retry commits, or is stale
--
SELECT outcome, token FROM fencing_acquire('commit/sp', md5('A')::uuid);
BEGIN;
SAVEPOINT s;
SELECT outcome, result FROM fencing_commit('commit/sp', 1, '{"n": 1}', :write);
ROLLBACK TO s;
SELECT count(*) FROM fencing_receipt('commit/sp', 1);
SELECT outcome, result FROM fencing_commit('commit/sp', 1, '{"n": 2}', :write);
SAVEPOINT t;
SELECT outcome, result FROM fencing_commit('commit/sp', 1, '{"n": 2}', :write);
SELECT outcome, result FROM fencing_commit('commit/sp', 1, '{"n": 3}', :write, step => 'x');
ROLLBACK TO t;
SELECT outcome, result FROM fencing_commit('commit/sp', 1, '{"n": 2}', :write);
SELECT outcome, result FROM fencing_commit('commit/sp', 1, '{"n": 4}', :write, step => 'x');
RELEASE s;
COMMIT;
SELECT step, result FROM fencing.receipts WHERE job_key = 'commit/sp' ORDER BY step;
SELECT * FROM state WHERE job_key = 'commit/sp';
BEGIN;
SAVEPOINT s;
SELECT outcome, result FROM fencing_commit('commit/sp', 1, '{"n": 1}', :write, step => 'y');
ROLLBACK TO s;
SELECT pg_temp.expire('commit/sp');
SELECT outcome, token FROM fencing_acquire('commit/sp', md5('B')::uuid);
SELECT outcome, result FROM fencing_commit('commit/sp', 1, '{"n": 1}', :write, step => 'y');
COMMIT;
-- rolled back as a whole
BEGIN;
SELECT outcome, result FROM fencing_commit('commit/sp', 2, '{"n": 1}', :write);
ROLLBACK;
SELECT count(*) FROM fencing_receipt('commit/sp', 2);
SELECT outcome, result FROM fencing_commit('commit/sp', 2, '{"n": 5}', :write);
SELECT * FROM state WHERE job_key = 'commit/sp';

-- Committed and forgotten in one transaction: nobody can tell any more.
SELECT outcome, token FROM fencing_acquire('commit/end', md5('A')::uuid);
BEGIN;
SELECT outcome FROM fencing_commit('commit/end', 1, '{"n": 1}', :write);
SELECT outcome FROM fencing_release('commit/end', md5('A')::uuid, 1);
SELECT fencing_forget('commit/end') IS NOT NULL AS done;
SELECT outcome, fence FROM fencing_commit('commit/end', 1, '{"n": 1}', :write);
SELECT outcome, token FROM fencing_acquire('commit/end', md5('B')::uuid);
SELECT outcome, fence FROM fencing_commit('commit/end', 2, '{"n": 2}', :write);
SELECT outcome, fence FROM fencing_commit('commit/end', 1, '{"n": 1}', :write);
COMMIT;
SELECT * FROM state WHERE job_key = 'commit/end';
UPDATE fencing.floor SET floor = 0;

-- A check that waits for COMMIT takes the receipt with it.
CREATE TABLE parent (id int PRIMARY KEY);
CREATE TABLE child (id int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
SELECT outcome FROM fencing_commit('commit/sp', 2, '{"n": 6}', 'INSERT INTO child VALUES (1)', step => 'deferred');
\echo :SQLSTATE
SELECT count(*) FROM fencing_receipt('commit/sp', 2, 'deferred');
INSERT INTO parent VALUES (1);
SELECT outcome FROM fencing_commit('commit/sp', 2, '{"n": 6}', 'INSERT INTO child VALUES (1)', step => 'deferred');

-- In a procedure that ends its transactions itself.
CREATE PROCEDURE chunks() LANGUAGE plpgsql AS $$
DECLARE answer record;
BEGIN
	FOR i IN 1..3 LOOP
		SELECT * INTO answer FROM fencing_commit('commit/sp', 2, jsonb_build_object('n', i),
			'INSERT INTO report SELECT $1, $2, ($3->>''n'')::int', step => 'chunk ' || i);
		IF i = 2 THEN ROLLBACK; ELSE COMMIT; END IF;
	END LOOP;
END $$;
CALL chunks();
SELECT step FROM fencing.receipts WHERE job_key = 'commit/sp' AND step LIKE 'chunk%' ORDER BY step;
CALL chunks();
SELECT step FROM fencing.receipts WHERE job_key = 'commit/sp' AND step LIKE 'chunk%' ORDER BY step;
SELECT * FROM state WHERE job_key = 'commit/sp';

--
-- Wherever else a call may stand
--

-- a cursor: what was not fetched has not been called
BEGIN;
DECLARE c CURSOR FOR SELECT n, outcome FROM generate_series(1, 3) n, LATERAL fencing_commit('commit/sp', 2, to_jsonb(n), 'SELECT 1', step => 'cursor ' || n);
FETCH 2 FROM c;
CLOSE c;
COMMIT;
SELECT step FROM fencing.receipts WHERE job_key = 'commit/sp' AND step LIKE 'cursor%' ORDER BY step;
-- a condition
SELECT n FROM generate_series(1, 3) n
WHERE (fencing_commit('commit/sp', 2, to_jsonb(n), 'SELECT 1', step => 'cursor ' || n)).outcome = 'committed';
-- a trigger that fires at COMMIT
CREATE TABLE late (n int);
CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO done (what) SELECT 'at COMMIT: ' || outcome FROM fencing_commit('commit/sp', 2, to_jsonb(new.n), step => 'late');
	RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON late DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION late();
INSERT INTO late VALUES (1);
INSERT INTO late VALUES (1), (2);
SELECT what FROM done WHERE what LIKE 'at%' ORDER BY n;
-- an expanded row calls once for each column: the first says what it did
SELECT outcome, result, error FROM (SELECT (fencing_commit('commit/sp', 2, '1', 'SELECT 1 AS n', step => 'expanded')).*) x;
-- the caller's settings
SET standard_conforming_strings = off;
SET escape_string_warning = off;
SET DateStyle = 'German';
SET bytea_output = 'escape';
SELECT outcome, result FROM fencing_commit('commit/sp', 2, '"a"', 'SELECT ''a'' AS a', step => 'settings');
SELECT outcome, result FROM fencing_commit('commit/sp', 2, '"a"', 'SELECT ''b'' AS a', step => 'settings');
RESET standard_conforming_strings;
RESET escape_string_warning;
RESET DateStyle;
RESET bytea_output;
SELECT outcome, result FROM fencing_commit('commit/sp', 2, '"a"', 'SELECT ''b'' AS a', step => 'settings');

--
-- Prepared statements, as drivers send them
--
PREPARE call (text, bigint, jsonb) AS
	SELECT outcome, result, fence FROM fencing_commit($1, $2, $3, 'SELECT $3 AS p', step => 'prepared');
EXECUTE call ('commit/sp', 2, '1');
EXECUTE call ('commit/sp', 2, '1');
EXECUTE call ('commit/sp', 2, '2');
EXECUTE call ('commit/sp', 1, '2');
EXECUTE call ('commit/s', 1, '2');
EXECUTE call ('commit/s', 1, '2');
EXECUTE call ('commit/sp', 2, '1');
DEALLOCATE call;
-- the outcome is an enum: a misspelt word is an error
SELECT outcome = 'comitted' FROM fencing_commit('commit/s', 1, '2', step => 'prepared');
\echo :SQLSTATE

DELETE FROM fencing.receipts WHERE job_key LIKE 'commit/%';
DELETE FROM fencing.leases WHERE job_key LIKE 'commit/%';
DELETE FROM fencing.fences WHERE job_key LIKE 'commit/%';
SET client_min_messages = warning;
DROP SCHEMA regress_commit CASCADE;
