--
-- The caller's statement: which kinds, what it sees, what its first row becomes.
--
UPDATE fencing.floor SET floor = 0;
CREATE SCHEMA regress_statement;
SET search_path = regress_statement, public;
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE SEQUENCE ran;  -- nextval() is not rolled back, so it tells what ran

-- Commits with a step of its own and says what came of it: the answer, or the
-- error.  Nothing may be left of an error, and the next call must work.
CREATE FUNCTION run(statement text, payload jsonb DEFAULT '{"id": 1}', OUT answer text, OUT result jsonb, OUT receipt bigint)
LANGUAGE plpgsql AS $$
DECLARE name text := nextval('steps')::text;
BEGIN
	BEGIN
		SELECT c.outcome::text, c.result INTO answer, result
		FROM fencing_commit('statement/a', 1, payload, statement, step => name) c;
	EXCEPTION WHEN OTHERS OR query_canceled OR assert_failure THEN
		answer := SQLSTATE || ': ' || SQLERRM;
	END;
	SELECT count(*) INTO receipt FROM fencing_receipt('statement/a', 1, name);
END $$;
CREATE SEQUENCE steps;

SELECT outcome, token FROM fencing_acquire('statement/a', md5('A')::uuid, '1 hour');

--
-- Kinds that are allowed
--
CREATE TEMP TABLE kind (n serial, statement text);
INSERT INTO kind (statement) VALUES
	('SELECT 1 AS x'),
	('SELECT 1 AS x;'),
	('SELECT 1 AS x ; ; '),
	('; SELECT 1 AS x'),
	('/* why */ SELECT 1 AS x -- done'),
	('(SELECT 1 AS x)'),
	('SELECT 1 AS x UNION ALL SELECT 2 LIMIT 1'),
	('VALUES (1, 2)'),
	('WITH x AS (SELECT 1 AS x) SELECT * FROM x'),
	('INSERT INTO t VALUES (1, ''one'')'),
	('INSERT INTO t VALUES (2, ''two'') RETURNING id, v'),
	('INSERT INTO t VALUES (2, ''zwei'') ON CONFLICT (id) DO UPDATE SET v = excluded.v RETURNING v'),
	('INSERT INTO t VALUES (2, ''deux'') ON CONFLICT DO NOTHING RETURNING v'),
	('INSERT INTO t SELECT g, ''many'' FROM generate_series(10, 19) g'),
	('UPDATE t SET v = ''all'''),
	('UPDATE t SET v = ''one'' WHERE id = 1 RETURNING *'),
	('UPDATE t SET v = ''none'' WHERE id = 999 RETURNING *'),
	('DELETE FROM t WHERE id = 2 RETURNING t'),
	('DELETE FROM t WHERE id >= 11'),
	('MERGE INTO t USING (VALUES (1), (3)) AS s (id) ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = ''merged'' WHEN NOT MATCHED THEN INSERT VALUES (s.id, ''merged'')'),
	('TABLE t LIMIT 0'),
	('SELECT * FROM t WHERE id = 1 FOR UPDATE'),
	('WITH w AS (INSERT INTO t SELECT g, ''with'' FROM generate_series(21, 25) g RETURNING id) SELECT count(*), sum(id) FROM w'),
	-- what nobody reads is written all the same
	('WITH w AS (INSERT INTO t SELECT g, ''unread'' FROM generate_series(31, 35) g) SELECT 1 AS x'),
	('WITH w AS (DELETE FROM t WHERE v IN (''with'', ''unread'') RETURNING id) INSERT INTO t SELECT 40, count(*)::text FROM w RETURNING v');
SELECT statement, r.* FROM kind, LATERAL run(statement) r ORDER BY n;
SELECT * FROM t ORDER BY id;

--
-- Kinds that are not: refused before anything runs
--
TRUNCATE kind, t;
CREATE PROCEDURE proc() LANGUAGE sql AS 'INSERT INTO t VALUES (99, ''proc'')';
INSERT INTO kind (statement) VALUES
	(''), (' '), (E'\t\r\n'), (';'), (' ; ; '), ('-- comment'), ('/* comment */'), ('/* comment */ ; -- comment'),
	('SELECT nextval(''ran''); SELECT 1'),
	('SELECT nextval(''ran''); COMMIT'),
	('INSERT INTO t VALUES (nextval(''ran''), ''first''); INSERT INTO t VALUES (2, ''second'')'),
	('SELECT nextval(''ran''); syntax error'),
	('BEGIN'), ('COMMIT'), ('END'), ('ROLLBACK'), ('ABORT'), ('COMMIT AND CHAIN'), ('START TRANSACTION'),
	('SAVEPOINT s'), ('ROLLBACK TO s'), ('RELEASE s'), ('PREPARE TRANSACTION ''x'''), ('COMMIT PREPARED ''x'''),
	('SET TRANSACTION READ ONLY'), ('SET CONSTRAINTS ALL IMMEDIATE'),
	('CALL proc()'), ('DO $x$ BEGIN INSERT INTO t VALUES (98, ''do''); END $x$'),
	('COPY t TO STDOUT'), ('COPY t FROM STDIN'), ('COPY (SELECT 1) TO STDOUT'),
	('SET ROLE pg_monitor'), ('RESET ROLE'), ('SET SESSION AUTHORIZATION DEFAULT'), ('SET search_path = public'),
	('SET LOCAL work_mem = ''1MB'''), ('RESET ALL'), ('SHOW search_path'), ('DISCARD ALL'),
	('DECLARE c CURSOR FOR SELECT 1'), ('FETCH c'), ('CLOSE ALL'), ('MOVE c'),
	('CREATE TABLE u (a int)'), ('CREATE TABLE u AS SELECT 1 AS a'), ('SELECT 1 AS a INTO u'), ('SELECT 1 AS a INTO TEMP u'),
	('WITH x AS (SELECT 1 AS a) SELECT a INTO u FROM x'), ('SELECT 1 AS a INTO u UNION SELECT 2'),
	('CREATE MATERIALIZED VIEW u AS SELECT 1 AS a'), ('CREATE VIEW u AS SELECT 1 AS a'), ('CREATE INDEX ON t (v)'),
	('ALTER TABLE t ADD w int'), ('DROP TABLE t'), ('TRUNCATE t'), ('LOCK TABLE t'), ('COMMENT ON TABLE t IS ''x'''),
	('GRANT SELECT ON t TO PUBLIC'), ('CREATE ROLE regress_fencing_u'), ('CREATE FUNCTION f() RETURNS int RETURN 1'),
	('EXPLAIN SELECT 1'), ('EXPLAIN ANALYZE INSERT INTO t VALUES (1)'),
	('PREPARE p AS SELECT 1'), ('EXECUTE p'), ('DEALLOCATE ALL'),
	('VACUUM t'), ('ANALYZE t'), ('CHECKPOINT'), ('CLUSTER'), ('REINDEX TABLE t'), ('LISTEN x'), ('NOTIFY x'), ('UNLISTEN *'),
	('LOAD ''fencing'''), ('CREATE EXTENSION pgcrypto'), ('REFRESH MATERIALIZED VIEW u'), ('IMPORT FOREIGN SCHEMA s FROM SERVER s INTO s');
SELECT statement, r.* FROM kind, LATERAL run(statement) r ORDER BY n;
SELECT is_called AS ran FROM ran;
SELECT count(*) FROM t;
SELECT to_regclass('u') AS u, current_setting('search_path') AS path, current_user = session_user AS same_user;

--
-- Errors of the statement keep their SQLSTATE; its writes go with them
--
TRUNCATE kind;
CREATE FUNCTION raise(state text, message text DEFAULT 'raised') RETURNS int LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION USING errcode = state, message = message; END $$;
CREATE FUNCTION ends() RETURNS int LANGUAGE plpgsql AS $$ BEGIN INSERT INTO t VALUES (97, 'ends'); COMMIT; RETURN 1; END $$;
INSERT INTO kind (statement) VALUES
	('SELEC 1'), ('SELECT'' '), ('SELECT 1 +'), ('INSERT INTO t VALUES ('),
	('SELECT * FROM missing'), ('SELECT missing FROM t'), ('SELECT missing()'),
	('SELECT $4'), ('SELECT $0'), ('SELECT $1 + $2'), ('SELECT $3 || 1'),
	('SELECT 1/0'), ('SELECT ($3->>''id'')::date'),
	('WITH w AS (INSERT INTO t VALUES (1, ''w'') RETURNING id) SELECT 1 / (id - 1) FROM w'),
	('INSERT INTO t VALUES (1, ''one''), (1, ''two'')'), ('INSERT INTO t (v) VALUES (''no id'')'),
	('SELECT raise(''P0001'')'), ('SELECT raise(''40001'')'), ('SELECT raise(''57014'')'), ('SELECT raise(''XX000'')'),
	('SELECT raise(''ABCDE'', ''100% of %s'')'),
	('SELECT ends()'),
	-- more than one row
	('SELECT g FROM generate_series(1, 2) g'), ('SELECT g FROM generate_series(1, 100000) g'), ('VALUES (1), (2)'),
	('INSERT INTO t VALUES (1, ''one''), (2, ''two'') RETURNING id'),
	('WITH w AS (INSERT INTO t VALUES (1, ''one''), (2, ''two'') RETURNING id) SELECT id FROM w');
SELECT statement, r.* FROM kind, LATERAL run(statement) r ORDER BY n;
SELECT count(*) FROM t;

-- at top level: SQLSTATE, and a CONTEXT line that says where
SELECT fencing_commit('statement/a', 1, '1', 'SELECT 1 / $2 - 1 / ($2 - 1)', step => 'top');
\echo :SQLSTATE
SELECT fencing_commit('statement/a', 1, '1', 'SELECT * FROM missing', step => 'top');
\echo :SQLSTATE
SELECT fencing_commit('statement/a', 1, '1', 'SELECT raise(''P0001'')', step => 'top');
\echo :SQLSTATE
SELECT fencing_commit('statement/a', 1, '1', 'VALUES (1), (2)', step => 'top');
\echo :SQLSTATE
SELECT fencing_commit('statement/a', 1, '1', '', step => 'top');
\echo :SQLSTATE
SELECT fencing_commit('statement/a', 1, '1', 'COMMIT', step => 'top');
\echo :SQLSTATE
SELECT outcome, result FROM fencing_commit('statement/a', 1, '1', 'SELECT ''healthy'' AS x', step => 'top');
-- an error of the calling command, after the statement has ended, is not the
-- statement's: no such CONTEXT
SELECT outcome, 1 / (CASE outcome WHEN 'committed' THEN 0 END)
FROM fencing_commit('statement/a', 1, '1', 'SELECT 1', step => 'later');
\echo :SQLSTATE
SELECT count(*) FROM fencing_receipt('statement/a', 1, 'later');
SELECT outcome, 1 / (CASE outcome WHEN 'committed' THEN 0 END)
FROM fencing_commit('statement/a', 1, '1', 'SELECT 1', step => 'later', report_errors => true);
\echo :SQLSTATE
SELECT outcome, error->>'sqlstate' AS sqlstate, 1 / (CASE outcome WHEN 'failed' THEN 0 END)
FROM fencing_commit('statement/a', 1, '1', 'SELECT 1 / 0', step => 'later', report_errors => true);
\echo :SQLSTATE
SELECT outcome FROM fencing_commit('statement/a', 1, '1', 'SELECT 1', step => 'later');

--
-- What becomes the result: the first row
--
TRUNCATE kind;
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN document AS jsonb;
CREATE TABLE no_columns ();
INSERT INTO no_columns DEFAULT VALUES;
INSERT INTO kind (statement) VALUES
	-- one json or jsonb column as it is
	('SELECT ''{"b": 1, "a": [1.50, null]}''::jsonb'), ('SELECT ''{"b": 1, "a": [1.50, null], "b": 2}''::json AS x'),
	('SELECT ''[]''::jsonb'), ('SELECT ''"s"''::jsonb'), ('SELECT ''1e2''::json'), ('SELECT ''null''::jsonb'), ('SELECT ''null''::json'),
	('SELECT NULL::jsonb'), ('SELECT NULL::json AS x'), ('SELECT $3'), ('SELECT json_build_object(''a'', 1)'), ('SELECT ''{"a": 1}''::document AS d'),
	-- otherwise an object
	('SELECT $3 AS a, $3 AS b'), ('SELECT 1 AS n'), ('SELECT 1'), ('SELECT 1.50 AS n, ''NaN''::numeric AS nan, 1e30 AS big'),
	('SELECT 1.5::float8 AS f, ''Infinity''::float8 AS inf'), ('SELECT ''x''::text AS t, true AS b, NULL AS nothing'),
	('SELECT NULL'), ('SELECT ARRAY[1, 2, NULL] AS a, ''{}''::text[] AS e'), ('SELECT ROW(1, ''x'')::pair AS p'), ('SELECT ROW(1, ''x'') AS r'),
	('SELECT ''\xdeadbeef''::bytea AS b, ''1 day''::interval AS i, DATE ''2026-08-03'' AS d'),
	('SELECT TIMESTAMPTZ ''2026-08-03 00:00:00+00'' AT TIME ZONE ''UTC'' AS t'),
	('SELECT E''quote " back \\ line \n'' AS "a ""b"" \ c"'),
	('SELECT 1 AS a, 2 AS b, 3 AS a'), ('SELECT * FROM (VALUES (1)) x (id), (VALUES (2)) y (id)'),
	('SELECT (ROW(1, ''x'')::pair).*'), ('SELECT pg_notify(''fencing'', ''a void'')'),
	-- no columns, no row, no RETURNING
	('SELECT'), ('TABLE no_columns'), ('SELECT 1 WHERE false'), ('SELECT ''1''::jsonb WHERE false'), ('INSERT INTO t VALUES (1, ''one'')');
SELECT statement, r.answer, r.result, r.result IS NULL AS sql_null FROM kind, LATERAL run(statement) r ORDER BY n;

-- and is returned again: a JSON null stays one, and so does no result at all
SELECT step, a.outcome, a.result, b.outcome, b.result, b.result IS NULL AS sql_null
FROM (VALUES ('r1', 'SELECT ''null''::jsonb'), ('r2', 'SELECT NULL::jsonb'), ('r3', 'SELECT 1 WHERE false'), ('r4', 'SELECT NULL AS x'),
	('r5', 'SELECT ''{"b": 1.50, "a": 1e2}''::json'), ('r6', 'SELECT 1.50 AS b, ''x'' AS a')) v (step, statement),
	LATERAL fencing_commit('statement/a', 1, '{}', statement, step => step) a,
	LATERAL fencing_commit('statement/a', 1, CASE WHEN a.outcome IS NOT NULL THEN '{}'::jsonb END, 'SELECT 0', step => step) b
ORDER BY step;
SELECT step, result, result IS NULL AS sql_null FROM fencing.receipts WHERE job_key = 'statement/a' AND step LIKE 'r_' ORDER BY step;

--
-- The parameters: scope, number, content, with their types
--
SELECT outcome, result
FROM fencing_commit('statement/a', 1, '{"k": [1]}', 'SELECT $1 AS key, pg_typeof($1) AS t1, $2 AS token, pg_typeof($2) AS t2, $3 AS payload, pg_typeof($3) AS t3', step => 'params');
-- in the middle of another type, and unused
SELECT r.* FROM unnest(ARRAY['SELECT $2 + 1 AS n', 'SELECT $1 || ''!'' AS s', 'SELECT $3->''id'' AS j', 'SELECT (SELECT count(*) FROM t WHERE id = $2) AS n']) s, LATERAL run(s) r;

--
-- Runs as the caller: role, privileges and search_path, also when the text has
-- been run before by somebody else
--
CREATE ROLE regress_fencing_stmt;
SELECT fencing_grant('regress_fencing_stmt', 'client');
CREATE SCHEMA regress_statement2;
CREATE TABLE regress_statement2.t (id int, v text);
GRANT USAGE ON SCHEMA regress_statement, regress_statement2 TO regress_fencing_stmt;
GRANT INSERT ON regress_statement2.t TO regress_fencing_stmt;
TRUNCATE t;
SELECT outcome FROM fencing_commit('statement/a', 1, '1', 'INSERT INTO t VALUES ($2, current_user)', step => 'su');
SET search_path = regress_statement2, public;
SELECT outcome FROM fencing_commit('statement/a', 1, '1', 'INSERT INTO t VALUES ($2, current_user)', step => 'su2');
SET ROLE regress_fencing_stmt;
SELECT outcome FROM fencing_commit('statement/a', 1, '1', 'INSERT INTO t VALUES ($2, current_user)', step => 'role2');
SELECT outcome, result = jsonb_build_object('c', current_user, 's', session_user, 'r', current_user) AS as_caller
FROM fencing_commit('statement/a', 1, '1', 'SELECT current_user AS c, session_user AS s, current_role AS r', step => 'who');
SET search_path = regress_statement, public;
SELECT fencing_commit('statement/a', 1, '1', 'INSERT INTO t VALUES ($2, current_user)', step => 'role1');
\echo :SQLSTATE
SELECT fencing_commit('statement/a', 1, '1', 'INSERT INTO fencing.grants VALUES (current_user, ''admin'')', step => 'role1');
\echo :SQLSTATE
SELECT fencing_commit('statement/a', 1, '1', 'SELECT count(*) FROM fencing.receipts', step => 'role1');
\echo :SQLSTATE
RESET ROLE;
SELECT v = session_user AS by_superuser FROM regress_statement.t;
SELECT v = session_user AS by_superuser, v = 'regress_fencing_stmt' AS by_role FROM regress_statement2.t ORDER BY 2;
SELECT count(*) FROM fencing_receipt('statement/a', 1, 'role1');

-- A user's cast to json is called as the caller, never as the owner of state.
CREATE TYPE color AS ENUM ('red', 'green', 'blue');
CREATE FUNCTION color_to_json(color) RETURNS json LANGUAGE plpgsql AS $$
BEGIN
	IF $1 = 'blue' THEN RAISE EXCEPTION 'no blue'; END IF;
	RETURN json_build_object('color', $1::text, 'caller', CASE current_user WHEN session_user THEN 'superuser' ELSE current_user END);
END $$;
CREATE CAST (color AS json) WITH FUNCTION color_to_json(color);
SELECT outcome, result FROM fencing_commit('statement/a', 1, '1', 'SELECT ''red''::color AS c, 1 AS n', step => 'cast1');
SET ROLE regress_fencing_stmt;
SELECT outcome, result FROM fencing_commit('statement/a', 1, '1', 'SELECT ''red''::color AS c', step => 'cast2');
SELECT outcome, result FROM fencing_commit('statement/a', 1, '1', 'SELECT ''red''::color AS c', step => 'cast2');
SELECT fencing_commit('statement/a', 1, '1', 'SELECT ''blue''::color AS c', step => 'cast3');
\echo :SQLSTATE
SELECT outcome, result, error->>'message' AS message
FROM fencing_commit('statement/a', 1, '1', 'SELECT ''blue''::color AS c', step => 'cast3', report_errors => true);
SELECT outcome, result FROM fencing_commit('statement/a', 1, '1', 'SELECT ''green''::color AS c', step => 'cast3');
RESET ROLE;
SELECT step, result FROM fencing.receipts WHERE job_key = 'statement/a' AND step LIKE 'cast%' ORDER BY step;

--
-- What a text meant before is not kept when its tables change
--
TRUNCATE t;
SELECT r.* FROM run('INSERT INTO t VALUES (50, ''a'') RETURNING *') r;
ALTER TABLE t ADD COLUMN w int DEFAULT 7;
DELETE FROM t;
SELECT r.* FROM run('INSERT INTO t VALUES (50, ''a'') RETURNING *') r;
DROP TABLE t;
SELECT r.* FROM run('INSERT INTO t VALUES (50, ''a'') RETURNING *') r;
CREATE TABLE t (id bigint, v json);
SELECT r.* FROM run('INSERT INTO t VALUES (50, ''[1]'') RETURNING *') r;
SELECT r.* FROM run('INSERT INTO t VALUES (50, ''a'') RETURNING *') r;
DROP TABLE t;
CREATE TABLE t (id int PRIMARY KEY, v text);
SELECT r.* FROM run('INSERT INTO t VALUES (50, ''a'') RETURNING *') r;

-- it sees what this transaction has written, each call the ones before it
TRUNCATE t;
BEGIN;
INSERT INTO t VALUES (1, 'one');
SELECT n, r.result FROM generate_series(2, 4) n,
	LATERAL run('INSERT INTO t SELECT count(*) + 1, $3->>''n'' FROM t RETURNING id, v', jsonb_build_object('n', n)) r ORDER BY n;
COMMIT;

-- rules: rewritten to more or to nothing; a trigger that refuses the row
CREATE TABLE log (id int);
CREATE TABLE ruled (id int);
CREATE RULE also AS ON INSERT TO ruled DO ALSO INSERT INTO log VALUES (new.id);
CREATE RULE nothing AS ON DELETE TO ruled DO INSTEAD NOTHING;
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER refuse BEFORE UPDATE ON ruled FOR EACH ROW EXECUTE FUNCTION refuse();
SELECT r.* FROM run('INSERT INTO ruled VALUES (1)') r;
SELECT r.* FROM run('DELETE FROM ruled') r;
SELECT r.* FROM run('UPDATE ruled SET id = 2 RETURNING id') r;
SELECT (SELECT count(*) FROM ruled) AS ruled, (SELECT count(*) FROM log) AS log;

--
-- Re-entry: the same commit from its own statement is refused, another step or
-- another job is not
--
SELECT outcome, token FROM fencing_acquire('statement/b', md5('A')::uuid, '1 hour');
SELECT fencing_commit('statement/b', 1, '1', 'SELECT * FROM fencing_commit($1, $2, $3, ''SELECT 1'')');
\echo :SQLSTATE
SELECT fencing_commit('statement/b', 1, '1', 'SELECT * FROM fencing_commit($1, $2, ''2'', strict => true)');
\echo :SQLSTATE
-- deeper: a step inside a step calls the outermost again
SELECT fencing_commit('statement/b', 1, '1',
	'SELECT * FROM fencing_commit($1, $2, $3, ''SELECT * FROM fencing_commit($1, $2, $3)'', step => ''in'')');
\echo :SQLSTATE
SELECT count(*) FROM fencing.receipts WHERE job_key = 'statement/b';
-- the scope is not left behind by the error
SELECT outcome, result FROM fencing_commit('statement/b', 1, '1',
	'SELECT o.outcome AS step, j.outcome AS job FROM fencing_commit($1, $2, $3, ''SELECT 1'', step => ''in'') o, fencing_commit(''statement/a'', 1, $3, ''SELECT 1'', step => ''in'') j');
SELECT job_key, step FROM fencing.receipts WHERE job_key LIKE 'statement/%' AND step IN ('', 'in') ORDER BY 1, 2;
-- the inner commit has succeeded, the outer statement fails afterwards: both go
SELECT fencing_commit('statement/b', 1, '1',
	'SELECT 1 / (CASE outcome WHEN ''committed'' THEN 0 END) FROM fencing_commit($1, $2, $3, ''SELECT 1'', step => ''in 2'')', step => 'out 2');
\echo :SQLSTATE
SELECT count(*) FROM fencing.receipts WHERE job_key = 'statement/b' AND step LIKE '% 2';
-- caught inside the statement, the outer call goes on
CREATE FUNCTION catch(k text, t bigint) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fencing_commit(k, t, '1', 'SELECT 1', step => 'caught');
	RETURN 'ran';
EXCEPTION WHEN object_in_use THEN
	RETURN 'busy';
END $$;
SELECT outcome, result FROM fencing_commit('statement/b', 1, '1', 'SELECT catch($1, $2)', step => 'caught');
SELECT outcome, result FROM fencing_commit('statement/b', 1, '1', 'SELECT catch($1, $2)', step => 'caught');
SELECT outcome, result FROM fencing_commit('statement/b', 1, '1', 'SELECT outcome FROM fencing_commit($1, $2, $3, step => ''reported'', report_errors => true)', step => 'reported');
SELECT step, result FROM fencing.receipts WHERE job_key = 'statement/b' AND step IN ('caught', 'reported') ORDER BY step;
-- it may pass the job on: what comes afterwards is stale, itself it replays
SELECT outcome, token FROM fencing_acquire('statement/c', md5('A')::uuid);
SELECT outcome, result FROM fencing_commit('statement/c', 1, '1',
	'SELECT r.outcome AS mine, a.outcome AS next, a.token FROM fencing_release($1, md5(''A'')::uuid, $2) r (outcome), LATERAL fencing_acquire(CASE WHEN r.outcome IS NOT NULL THEN $1 END, md5(''B'')::uuid) a');
SELECT outcome, fence FROM fencing_commit('statement/c', 1, '1', 'SELECT 1', step => 'after');
SELECT outcome, result, fence FROM fencing_commit('statement/c', 1, '1', 'SELECT 1');
SELECT outcome, fence FROM fencing_commit('statement/c', 2, '1', 'SELECT 1');
-- the lease may be touched from within; the job cannot be forgotten
SELECT outcome, result FROM fencing_commit('statement/b', 1, '1', 'SELECT outcome FROM fencing_renew($1, md5(''A'')::uuid, $2)', step => 'renew');
SELECT outcome, result FROM fencing_commit('statement/b', 1, '1', 'SELECT fencing_release($1, md5(''A'')::uuid, $2) AS outcome', step => 'release');
SELECT fencing_commit('statement/b', 1, '1', 'SELECT fencing_forget($1)', step => 'forget');
\echo :SQLSTATE
SELECT token, (SELECT count(*) FROM fencing.receipts r WHERE r.job_key = f.job_key) AS receipts FROM fencing.fences f WHERE job_key = 'statement/b';

DELETE FROM fencing.receipts WHERE job_key LIKE 'statement/%';
DELETE FROM fencing.leases WHERE job_key LIKE 'statement/%';
DELETE FROM fencing.fences WHERE job_key LIKE 'statement/%';
SET client_min_messages = warning;
DROP SCHEMA regress_statement, regress_statement2 CASCADE;
SELECT fencing_ungrant('regress_fencing_stmt', 'client');
DROP ROLE regress_fencing_stmt;
