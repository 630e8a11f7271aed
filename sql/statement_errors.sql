--
-- Statements that fail, in any way, leave nothing behind in their session: no
-- place in the cache that is never given back, no scope in progress, no owner.
--
SET client_min_messages = error;
CREATE SCHEMA regress_statement_errors;
SET search_path = regress_statement_errors, public;
CREATE TABLE report (n int CHECK (n <> 1), line text);
SELECT (fencing_acquire('statement_errors', md5('a')::uuid, '1 day')).token AS token \gset
SELECT set_config('regress.token', :'token', false) = :'token' AS set;
CREATE FUNCTION run(statement text, step text DEFAULT '') RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	RETURN (SELECT outcome FROM fencing_commit('statement_errors', current_setting('regress.token')::bigint, '{}', statement, step));
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
CREATE FUNCTION bounded() RETURNS boolean LANGUAGE sql AS $$ SELECT entries <= capacity FROM fencing_statement_cache() $$;

-- at run time: by a constraint, by a cast, by a second row; at parse, at analysis
SELECT run('INSERT INTO report VALUES (1, ''' || i || ''')') AS answer, count(*) FROM generate_series(1, 200) i GROUP BY 1;
SELECT bounded();
SELECT run('SELECT ' || i || ' / ($2 - $2)') AS answer, count(*) FROM generate_series(1, 200) i GROUP BY 1;
SELECT bounded();
SELECT run('SELECT ' || i || ' FROM generate_series(1, 2)') AS answer, count(*) FROM generate_series(1, 200) i GROUP BY 1;
SELECT bounded();
SELECT run('SELECT nothing' || i) AS answer, count(*) FROM generate_series(1, 200) i GROUP BY 1;
SELECT run('SELECT ' || i || '; SELECT 1') AS answer, count(*) FROM generate_series(1, 200) i GROUP BY 1;
SELECT bounded();
-- reported
SELECT outcome, error->>'sqlstate' AS sqlstate, count(*)
FROM generate_series(1, 200) i, fencing_commit('statement_errors', :token, '{}', 'INSERT INTO report VALUES (1, ''reported ' || i || ''')', report_errors => true)
GROUP BY 1, 2;
SELECT bounded();

-- the same scope is free, also for a statement that calls the gate for another
SELECT run('SELECT 1 / ($2 - $2)', 'again'), run('SELECT 1', 'again'), run('SELECT 1', 'again');
SELECT run($$SELECT run('SELECT 1 / ($2 - $2)', 'inner')$$, 'outer'), run('SELECT 1', 'inner'), run('SELECT 1', 'outer');
-- its own gate called again by its statement: refused, then free
SELECT run($$SELECT outcome FROM fencing_commit($1, $2, '{}', 'SELECT 1', 'self')$$, 'self');
SELECT run('SELECT 1', 'self');
-- and the caller is who it was
SELECT current_user = session_user AS same_user;

DROP SCHEMA regress_statement_errors CASCADE;

\getenv folder PG_ABS_SRCDIR
\set clean_up :folder '/sql/clean_up.psql'
\i :clean_up
