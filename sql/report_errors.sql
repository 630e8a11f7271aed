--
-- report_errors: the business write alone is rolled back, and the answer says
-- why.  And the batch form that it is for.
--
UPDATE fencing.floor SET floor = 0;
CREATE SCHEMA regress_report;
SET search_path = regress_report, public;
CREATE TABLE item (job text NOT NULL, step text, n int CHECK (n > 0), UNIQUE (job, step));
CREATE FUNCTION raise(state text) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO item VALUES ('raise', state, 1);
	RAISE EXCEPTION USING errcode = state, message = 'raised ' || state;
END $$;
SELECT outcome, token FROM fencing_acquire('report/a', md5('A')::uuid, '1 hour');

-- failed: every other column as of a job that has a fence, and an error with
-- all five keys
SELECT outcome, result, committed_at, fence, error
FROM fencing_commit('report/a', 1, '{"n": 0}', 'INSERT INTO item VALUES ($1, ''s'', ($3->>''n'')::int)', report_errors => true);
SELECT key, value IS NOT NULL AND value <> 'null' AS there
FROM fencing_commit('report/a', 1, '{"n": 0}', 'INSERT INTO item VALUES ($1, ''s'', ($3->>''n'')::int)', report_errors => true),
	LATERAL jsonb_each(error) ORDER BY key;
-- detail, hint and context as they were raised
CREATE FUNCTION full_error() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'the message' USING errcode = 'AB123', detail = 'The detail.', hint = 'The hint.';
END $$;
SELECT outcome, error->>'sqlstate' AS sqlstate, error->>'message' AS message, error->>'detail' AS detail, error->>'hint' AS hint,
	error->>'context' AS context
FROM fencing_commit('report/a', 1, '1', 'SELECT full_error()', report_errors => true);
-- absent: JSON null, not a missing key
SELECT outcome, error->'detail' AS detail, error->'hint' AS hint, (SELECT count(*) FROM jsonb_object_keys(error)) AS keys
FROM fencing_commit('report/a', 1, '1', 'SELECT 1 / 0', report_errors => true);
-- without an error nothing is different
SELECT outcome, result, committed_at IS NOT NULL AS at, fence, error
FROM fencing_commit('report/a', 1, '{"n": 1}', 'INSERT INTO item VALUES ($1, ''ok'', ($3->>''n'')::int) RETURNING n', step => 'ok', report_errors => true);
SELECT outcome, result, committed_at IS NOT NULL AS at, fence, error
FROM fencing_commit('report/a', 1, '{"n": 1}', 'SELECT 1 / 0', step => 'ok', report_errors => true);
SELECT outcome, result, committed_at IS NOT NULL AS at, fence, error
FROM fencing_commit('report/a', 1, '{"n": 2}', 'SELECT 1 / 0', step => 'ok', report_errors => true);
SELECT * FROM item;
SELECT step FROM fencing.receipts WHERE job_key = 'report/a';
-- a failed step can be committed afterwards
SELECT outcome, result FROM fencing_commit('report/a', 1, '{"n": 3}', 'INSERT INTO item VALUES ($1, ''s'', ($3->>''n'')::int) RETURNING n', report_errors => true);

--
-- What is reported
--
CREATE TYPE call_result AS (what text, outcome fencing_outcome, result jsonb, fence bigint, sqlstate text, message text);
CREATE FUNCTION report(what text, job_key text, token bigint, payload jsonb, statement text, step text) RETURNS SETOF call_result LANGUAGE sql AS $$
SELECT what, c.outcome, c.result, c.fence, c.error->>'sqlstate', c.error->>'message'
FROM fencing_commit(job_key, token, payload, statement, step, report_errors => true) c
$$;
SELECT r.* FROM (VALUES
	(1, 'never issued', 'report/a', 2, '1'::jsonb, 'SELECT 1', 'x'),
	(2, 'no such job', 'report/unknown', 1, '1', 'SELECT 1', 'x'),
	(3, 'job_key NULL', NULL, 1, '1', 'SELECT 1', 'x'),
	(4, 'token NULL', 'report/a', NULL, '1', 'SELECT 1', 'x'),
	(5, 'payload NULL', 'report/a', 1, NULL, 'SELECT 1', 'x'),
	(6, 'step NULL', 'report/a', 1, '1', 'SELECT 1', NULL),
	(7, 'job_key empty', '', 1, '1', 'SELECT 1', 'x'),
	(8, 'token 0', 'report/a', 0, '1', 'SELECT 1', 'x'),
	(9, 'job_key long', repeat('k', 513), 1, '1', 'SELECT 1', 'x'),
	(10, 'step long', 'report/a', 1, '1', 'SELECT 1', repeat('s', 513)),
	(11, 'payload deep', 'report/a', 1, (repeat('[', 513) || repeat(']', 513))::jsonb, 'SELECT 1', 'x'),
	(12, 'empty', 'report/a', 1, '1', '', 'x'),
	(13, 'two commands', 'report/a', 1, '1', 'SELECT 1; SELECT 2', 'x'),
	(14, 'COMMIT', 'report/a', 1, '1', 'COMMIT', 'x'),
	(15, 'two rows', 'report/a', 1, '1', 'VALUES (1), (2)', 'x'),
	(16, 'syntax', 'report/a', 1, '1', 'SELEC 1', 'x'),
	(17, 'no table', 'report/a', 1, '1', 'SELECT * FROM missing', 'x'),
	(18, '$4', 'report/a', 1, '1', 'SELECT $4', 'x'),
	(19, 'unique', 'report/a', 1, '1', 'INSERT INTO item VALUES ($1, ''ok'', 1)', 'x'),
	(20, 'not null', 'report/a', 1, '1', 'INSERT INTO item VALUES (NULL)', 'x'),
	(21, 'raised', 'report/a', 1, '1', 'SELECT raise(''P0001'')', 'x'),
	(22, 'raised', 'report/a', 1, '1', 'SELECT raise(''22004'')', 'x'),
	(23, 'raised', 'report/a', 1, '1', 'SELECT raise(''22023'')', 'x'),
	(24, 'raised', 'report/a', 1, '1', 'SELECT raise(''54000'')', 'x'),
	(25, 'raised', 'report/a', 1, '1', 'SELECT raise(''55000'')', 'x'),
	(26, 'raised', 'report/a', 1, '1', 'SELECT raise(''P0004'')', 'x'),
	(27, 'raised', 'report/a', 1, '1', 'SELECT raise(''25001'')', 'x'),
	(28, 'raised', 'report/a', 1, '1', 'SELECT raise(''ABCDE'')', 'x'),
	(29, 'raised', 'report/a', 1, '1', 'SELECT raise(''LF003'')', 'x'),
	(30, 'raised', 'report/a', 1, '1', 'SELECT raise(''58030'')', 'x'),
	(31, 'its own commit', 'report/a', 1, '1', 'SELECT * FROM fencing_commit($1, $2, $3, step => ''x'')', 'x'),
	(32, 'and then', 'report/a', 1, '1', 'SELECT 1 AS n', 'x'))
	AS v (n, what, job_key, token, payload, statement, step),
	LATERAL report(what, job_key, token, payload, statement, step) r ORDER BY n;
SELECT * FROM item ORDER BY step;
SELECT step FROM fencing.receipts WHERE job_key = 'report/a' ORDER BY step;

-- a wrong flag cannot be reported
SELECT fencing_commit('report/a', 1, '1', 'SELECT 1', step => 'y', report_errors => NULL);
\echo :SQLSTATE
SELECT fencing_commit('report/a', 1, '1', 'SELECT 1', step => 'y', report_errors => true, strict => true);
\echo :SQLSTATE

--
-- What propagates all the same: the transaction cannot or should not go on
--
CREATE FUNCTION propagates(state text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE answer fencing_outcome;
BEGIN
	SELECT outcome INTO answer FROM fencing_commit('report/a', 1, '1', format('SELECT raise(%L)', state), step => 'z', report_errors => true);
	RETURN 'answered ' || answer;
EXCEPTION WHEN OTHERS OR query_canceled THEN
	RETURN SQLSTATE || ': ' || SQLERRM;
END $$;
SELECT s, propagates(s) FROM unnest(ARRAY['25006', '42501', '40000', '40001', '40P01', '40002', '53000', '53100', '53200', '53300',
	'57000', '57014', '57P01', '57P03', 'XX000', 'XX001', 'XX002']) s;
-- at top level
SELECT fencing_commit('report/a', 1, '1', 'SELECT raise(''40001'')', step => 'z', report_errors => true);
\echo :SQLSTATE
SELECT fencing_commit('report/a', 1, '1', 'SELECT raise(''57014'')', step => 'z', report_errors => true);
\echo :SQLSTATE
-- the real ones: no privilege, and read-only
CREATE ROLE regress_fencing_report;
SELECT fencing_grant('regress_fencing_report', 'client');
GRANT USAGE ON SCHEMA regress_report TO regress_fencing_report;
SET ROLE regress_fencing_report;
SELECT fencing_commit('report/a', 1, '1', 'SELECT * FROM item', step => 'z', report_errors => true);
\echo :SQLSTATE
RESET ROLE;
BEGIN READ ONLY;
SELECT fencing_commit('report/a', 1, '1', 'SELECT 1', step => 'z', report_errors => true);
\echo :SQLSTATE
ROLLBACK;
BEGIN READ ONLY;
SELECT fencing_commit('report/a', 9, '1', 'SELECT 1', step => 'z', report_errors => true);
\echo :SQLSTATE
ROLLBACK;
-- canceled wherever it was, so the CONTEXT is not printed
\set VERBOSITY terse
BEGIN;
SET LOCAL statement_timeout = '50ms';
SELECT fencing_commit('report/a', 1, '1', 'SELECT pg_sleep(60)', step => 'z', report_errors => true);
\echo :SQLSTATE
ROLLBACK;
\set VERBOSITY default
SELECT count(*) FROM fencing_receipt('report/a', 1, 'z');
SELECT outcome FROM fencing_commit('report/a', 1, '1', 'SELECT 1', step => 'z', report_errors => true);

--
-- The transaction goes on after a failure, and its other writes stay
--
BEGIN;
INSERT INTO item VALUES ('before', 'b', 1);
SELECT outcome FROM fencing_commit('report/a', 1, '1', 'INSERT INTO item VALUES ($1, ''f'', 0)', step => 'f', report_errors => true);
INSERT INTO item VALUES ('after', 'a', 1);
SELECT outcome FROM fencing_commit('report/a', 1, '1', 'INSERT INTO item VALUES ($1, ''f'', 1)', step => 'f', report_errors => true);
COMMIT;
SELECT * FROM item WHERE step IN ('a', 'b', 'f') ORDER BY step;
-- the gate alone
BEGIN;
SELECT outcome, error FROM fencing_commit('report/a', 1, '1', step => 'g', report_errors => true);
SELECT outcome, error->>'sqlstate' AS sqlstate FROM fencing_commit('report/a', 7, '1', step => 'g', report_errors => true);
COMMIT;
SELECT count(*) FROM fencing_receipt('report/a', 1, 'g');
-- report_errors within a statement that itself fails, and the other way round
SELECT outcome, result, error->>'sqlstate' AS sqlstate FROM fencing_commit('report/a', 1, '1',
	'SELECT outcome, error->>''sqlstate'' AS sqlstate FROM fencing_commit($1, $2, $3, ''SELECT 1 / 0'', step => ''inner'', report_errors => true)',
	step => 'outer', report_errors => true);
SELECT outcome, result, error->>'sqlstate' AS sqlstate FROM fencing_commit('report/a', 1, '1',
	'SELECT 1 / (CASE outcome WHEN ''committed'' THEN 0 END) FROM fencing_commit($1, $2, $3, ''SELECT 1'', step => ''inner2'')',
	step => 'outer2', report_errors => true);
SELECT step FROM fencing.receipts WHERE job_key = 'report/a' AND (step LIKE 'inner%' OR step LIKE 'outer%') ORDER BY step;

--
-- The batch: 200 items, three of them bad, in one command ordered by key
--
SELECT count(*) FROM generate_series(1, 200) i, LATERAL fencing_acquire('report/batch/' || to_char(i, 'FM000'), md5('A')::uuid, '1 hour');
CREATE TEMP TABLE batch AS
SELECT 'report/batch/' || to_char(i, 'FM000') AS job_key,
	CASE i WHEN 50 THEN 2 ELSE 1 END::bigint AS token,						-- never issued
	CASE i WHEN 77 THEN '{"n": 0}' WHEN 150 THEN NULL ELSE jsonb_build_object('n', i) END AS payload	-- the check, no payload
FROM generate_series(1, 200) i;
CREATE TEMP TABLE answer AS
SELECT b.job_key, c.*
FROM (SELECT array_agg(job_key ORDER BY job_key) AS k, array_agg(token ORDER BY job_key) AS t, array_agg(payload ORDER BY job_key) AS p FROM batch) a,
	LATERAL unnest(a.k, a.t, a.p) AS b (job_key, token, payload),
	LATERAL fencing_commit(b.job_key, b.token, b.payload, 'INSERT INTO item VALUES ($1, ''batch'', ($3->>''n'')::int) RETURNING n', report_errors => true) c;
SELECT outcome, count(*), count(DISTINCT (result->>'n')::int) AS results, count(error) AS errors FROM answer GROUP BY outcome ORDER BY outcome;
SELECT job_key, fence, error->>'sqlstate' AS sqlstate, error->>'message' AS message FROM answer WHERE outcome = 'failed' ORDER BY job_key;
SELECT (SELECT count(*) FROM item WHERE step = 'batch') AS rows, (SELECT count(*) FROM fencing.receipts WHERE job_key LIKE 'report/batch/%') AS receipts;
-- corrected and sent again as a whole: the 197 replay, the three commit
SELECT outcome, count(*), count(DISTINCT (result->>'n')::int) AS results
FROM generate_series(1, 200) i,
	LATERAL fencing_commit('report/batch/' || to_char(i, 'FM000'), 1, jsonb_build_object('n', i), 'INSERT INTO item VALUES ($1, ''batch'', ($3->>''n'')::int) RETURNING n', report_errors => true)
GROUP BY outcome ORDER BY outcome;
SELECT (SELECT count(*) FROM item WHERE step = 'batch') AS rows, (SELECT count(*) FROM fencing.receipts WHERE job_key LIKE 'report/batch/%') AS receipts;
-- steps of one job, with one conflict, one replay and one that fails
SELECT s, outcome, result, error->>'sqlstate' AS sqlstate
FROM unnest(ARRAY['1', '2', '2', '2', '3', '4'], ARRAY[11, 12, 12, 13, 0, 14]) WITH ORDINALITY AS b (s, n, i),
	LATERAL fencing_commit('report/a', 1, jsonb_build_object('n', n), 'INSERT INTO item VALUES ($1, $3->>''n'', ($3->>''n'')::int) RETURNING n', step => s, report_errors => true)
ORDER BY i;

DELETE FROM fencing.receipts WHERE job_key LIKE 'report/%';
DELETE FROM fencing.leases WHERE job_key LIKE 'report/%';
DELETE FROM fencing.fences WHERE job_key LIKE 'report/%';
SET client_min_messages = warning;
DROP SCHEMA regress_report CASCADE;
SELECT fencing_ungrant('regress_fencing_report', 'client');
DROP ROLE regress_fencing_report;
