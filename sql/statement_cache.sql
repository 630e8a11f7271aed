--
-- Plans of the caller's statements are kept per backend and text: they are
-- found again, there is a bound, and they never outlive what they were made
-- for.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;

CREATE SCHEMA regress_fencing_cache;
SET search_path = regress_fencing_cache, public;

-- What happened to the counters since the last call.
CREATE TABLE counters (hits bigint, misses bigint, evictions bigint);
INSERT INTO counters VALUES (0, 0, 0);
CREATE FUNCTION since(OUT hits bigint, OUT misses bigint, OUT evictions bigint) LANGUAGE plpgsql AS $$
DECLARE
	now record;
BEGIN
	SELECT * INTO now FROM fencing_statement_cache();
	SELECT now.hits - c.hits, now.misses - c.misses, now.evictions - c.evictions
	INTO since.hits, since.misses, since.evictions FROM counters c;
	UPDATE counters c SET hits = now.hits, misses = now.misses, evictions = now.evictions;
END $$;

-- Every commit is a step of its own, so that each runs its statement.
CREATE SEQUENCE step;
SELECT token FROM fencing_acquire('cache/job', '00000000-0000-0000-0000-00000000000a') \gset
SELECT set_config('regress.token', :'token', false) = :'token' AS set;
CREATE FUNCTION run(statement text, payload jsonb DEFAULT '{}', OUT outcome text, OUT result jsonb) LANGUAGE plpgsql AS $$
BEGIN
	SELECT c.outcome, c.result INTO run.outcome, run.result
	FROM fencing_commit('cache/job', current_setting('regress.token')::bigint, payload, run.statement,
		step => nextval('regress_fencing_cache.step')::text) c;
END $$;

--
-- A fresh backend knows no text; the second call of one finds it.
--
SELECT capacity > 0 AS bounded, entries, hits, misses, evictions FROM fencing_statement_cache();
SELECT * FROM run('SELECT 1 AS one');
SELECT * FROM since();
SELECT * FROM run('SELECT 1 AS one');
SELECT * FROM since();
SELECT * FROM run('SELECT 1 AS one');
SELECT * FROM since();
SELECT entries FROM fencing_statement_cache();
-- The text is the key as it stands; parameters are no part of it.
SELECT * FROM run('SELECT  1 AS one');
SELECT * FROM since();
SELECT * FROM run('SELECT $3->''a'' AS a', '{"a": 1}');
SELECT * FROM run('SELECT $3->''a'' AS a', '{"a": 2}');
SELECT * FROM since();
SELECT entries FROM fencing_statement_cache();
-- Every job uses the same plan.
SELECT token AS other FROM fencing_acquire('cache/other', '00000000-0000-0000-0000-00000000000a') \gset
SELECT outcome, result FROM fencing_commit('cache/other', :other, '{}', 'SELECT 1 AS one');
SELECT * FROM since();
-- A replay and a conflict ask for no plan, nor does a gate alone.
SELECT outcome, result FROM fencing_commit('cache/other', :other, '{}', 'SELECT 1 AS one');
SELECT outcome, result FROM fencing_commit('cache/other', :other, '{"a": 1}', 'SELECT 1 AS one');
BEGIN;
SELECT outcome, result FROM fencing_commit('cache/other', :other, '{}', step => 'gate');
COMMIT;
SELECT * FROM since();

--
-- Texts that cannot be kept.
--
SELECT entries FROM fencing_statement_cache() \gset
SELECT * FROM run('SELECT * FROM no_such_table');
SELECT * FROM run('SELEC 1');
SELECT * FROM run('');
SELECT * FROM run('SELECT 1; SELECT 2');
SELECT * FROM run('CREATE TABLE t (a int)');
SELECT * FROM run('SELECT $4');
SELECT * FROM run('SELECT * FROM no_such_table');
SELECT entries - :entries AS more FROM fencing_statement_cache();
-- Nor may a failure of one leave something behind that a later call trips on.
CREATE TABLE no_such_table AS SELECT 'it is there now'::text AS now;
SELECT * FROM run('SELECT * FROM no_such_table');
SELECT entries - :entries AS more FROM fencing_statement_cache();
SELECT count(*) FROM since();

--
-- Errors while a kept plan runs.
--
SELECT * FROM run('SELECT 1 / ($3->>''by'')::int AS quotient', '{"by": 1}');
SELECT * FROM run('SELECT 1 / ($3->>''by'')::int AS quotient', '{"by": 0}');
SELECT * FROM run('SELECT 1 / ($3->>''by'')::int AS quotient', '{"by": 1}');
SELECT * FROM run('SELECT generate_series(1, ($3->>''rows'')::int) AS g', '{"rows": 2}');
SELECT * FROM run('SELECT generate_series(1, ($3->>''rows'')::int) AS g', '{"rows": 1}');
-- hits: 3 of 5 (the first call of each text is the miss)
SELECT * FROM since();
-- Planned in a transaction that was rolled back, or in a savepoint.
BEGIN;
SELECT * FROM run('SELECT ''rolled back'' AS plan');
ROLLBACK;
SELECT * FROM run('SELECT ''rolled back'' AS plan');
BEGIN;
SAVEPOINT s;
SELECT * FROM run('SELECT ''in a savepoint'' AS plan');
ROLLBACK TO s;
SELECT * FROM run('SELECT ''in a savepoint'' AS plan');
COMMIT;
SELECT * FROM run('SELECT ''in a savepoint'' AS plan');
SELECT outcome, result, error->>'sqlstate' AS sqlstate
FROM fencing_commit('cache/job', :token, '{"by": 0}', 'SELECT 2 / ($3->>''by'')::int AS quotient', 'reported', report_errors => true);
SELECT outcome, result, error->>'sqlstate' AS sqlstate
FROM fencing_commit('cache/job', :token, '{"by": 1}', 'SELECT 2 / ($3->>''by'')::int AS quotient', 'reported', report_errors => true);
SELECT count(*) FROM since();

--
-- What the plan was made for changes.
--
CREATE TABLE thing (a int);
INSERT INTO thing VALUES (1);
SELECT * FROM run('SELECT * FROM thing');
ALTER TABLE thing ADD COLUMN b text DEFAULT 'added';
SELECT * FROM run('SELECT * FROM thing');
ALTER TABLE thing ALTER COLUMN a TYPE text USING 'text ' || a;
SELECT * FROM run('SELECT * FROM thing');
ALTER TABLE thing RENAME COLUMN b TO c;
SELECT * FROM run('SELECT * FROM thing');
ALTER TABLE thing DROP COLUMN c;
SELECT * FROM run('SELECT * FROM thing');
DROP TABLE thing;
SELECT * FROM run('SELECT * FROM thing');
CREATE TABLE thing (z date);
INSERT INTO thing VALUES ('2026-08-03');
SELECT * FROM run('SELECT * FROM thing');
ALTER TABLE thing RENAME TO thing_before;
CREATE VIEW thing AS SELECT 'a view' AS what;
SELECT * FROM run('SELECT * FROM thing');
CREATE OR REPLACE VIEW thing AS SELECT 'another view' AS what, 2 AS second;
SELECT * FROM run('SELECT * FROM thing');
-- INSERT ... SELECT * and a function that is made again.
CREATE TABLE target (z date, y int DEFAULT 7);
SELECT * FROM run('INSERT INTO target SELECT * FROM thing_before RETURNING *');
ALTER TABLE thing_before ADD COLUMN y int DEFAULT 8;
SELECT * FROM run('INSERT INTO target SELECT * FROM thing_before RETURNING *');
ALTER TABLE target ADD COLUMN x text DEFAULT 'new';
SELECT * FROM run('INSERT INTO target SELECT * FROM thing_before RETURNING *');
CREATE FUNCTION f() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1';
SELECT * FROM run('SELECT f() AS f');
CREATE OR REPLACE FUNCTION f() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 2';
SELECT * FROM run('SELECT f() AS f');
DROP FUNCTION f();
CREATE FUNCTION f() RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT ''three''::text';
SELECT * FROM run('SELECT f() AS f');
-- The result's own type changes, and is dropped while the plan is kept.
CREATE TYPE colour AS ENUM ('red');
CREATE FUNCTION paint() RETURNS SETOF colour LANGUAGE sql AS 'SELECT ''red''::regress_fencing_cache.colour';
SELECT * FROM run('SELECT * FROM paint() AS colour');
DROP FUNCTION paint();
DROP TYPE colour;
CREATE TYPE colour AS (r int, g int, b int);
CREATE FUNCTION paint() RETURNS SETOF colour LANGUAGE sql AS 'SELECT 255, 0, 0';
SELECT * FROM run('SELECT * FROM paint() AS colour');
SELECT count(*) FROM since();
-- A trigger that comes later.
CREATE TABLE plain (a int);
SELECT * FROM run('INSERT INTO plain VALUES (1) RETURNING a');
CREATE FUNCTION double() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.a = 2 * NEW.a; RETURN NEW; END';
CREATE TRIGGER double BEFORE INSERT ON plain FOR EACH ROW EXECUTE FUNCTION double();
SELECT * FROM run('INSERT INTO plain VALUES (1) RETURNING a');
SELECT a FROM plain ORDER BY a;
-- The session throws all plans away.
SELECT * FROM run('SELECT 1 AS one');
DISCARD PLANS;
SELECT * FROM run('SELECT 1 AS one');
DISCARD ALL;
SET client_min_messages = warning;
SET search_path = regress_fencing_cache, public;
SELECT set_config('regress.token', :'token', false) = :'token' AS set;
SELECT * FROM run('SELECT 1 AS one');
SELECT * FROM run('SELECT * FROM thing');
SELECT count(*) FROM since();

--
-- Another search_path, another role, another planner setting: the same entry.
-- (Whose rows and whose privileges: see access.)
--
CREATE SCHEMA regress_fencing_cache2;
CREATE TABLE regress_fencing_cache2.place AS SELECT 'second'::text AS schema;
CREATE TABLE regress_fencing_cache.place AS SELECT 1 AS schema;
SELECT * FROM run('SELECT schema FROM place');
SET search_path = regress_fencing_cache2, regress_fencing_cache, public;
SELECT * FROM run('SELECT schema FROM place');
SET search_path = regress_fencing_cache, public;
SELECT * FROM run('SELECT schema FROM place');
CREATE TEMP TABLE place AS SELECT 'temporary' AS schema;
SELECT * FROM run('SELECT schema FROM place');
DROP TABLE pg_temp.place;
SELECT * FROM run('SELECT schema FROM place');
SET plan_cache_mode = force_generic_plan;
SELECT * FROM run('SELECT $3->>''plan'' AS plan', '{"plan": "generic"}');
SET plan_cache_mode = force_custom_plan;
SELECT * FROM run('SELECT $3->>''plan'' AS plan', '{"plan": "custom"}');
RESET plan_cache_mode;
-- place: one miss, four hits; plan: one and one
SELECT * FROM since();

--
-- Bounded: fifty more than there are places.
--
CREATE FUNCTION many(prefix text, n int, OUT wrong int) LANGUAGE plpgsql AS $$
BEGIN
	wrong = 0;
	FOR i IN 1..n LOOP
		IF (SELECT result->>'v' FROM run(format('SELECT %L AS v', prefix || i))) IS DISTINCT FROM prefix || i THEN
			wrong = wrong + 1;
		END IF;
	END LOOP;
END $$;
SELECT capacity FROM fencing_statement_cache() \gset
SELECT * FROM many('a', :capacity + 50);
SELECT entries <= :capacity AS bounded, entries > :capacity / 2 AS used FROM fencing_statement_cache();
SELECT hits, misses - :capacity AS misses_beyond, evictions >= 50 AS evicted FROM since();
-- The same again: nothing is wrong, and it stays within the bound.
SELECT * FROM many('a', :capacity + 50);
SELECT entries <= :capacity AS bounded FROM fencing_statement_cache();
SELECT evictions >= 50 AS evicted FROM since();
-- Least recently used goes first: what is used all the time stays.
CREATE FUNCTION with_favourite(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..n LOOP
		PERFORM run('SELECT 1 AS favourite');
		PERFORM run(format('SELECT %L AS v', 'b' || i));
	END LOOP;
END $$;
SELECT with_favourite(:capacity + 50);
-- misses beyond the capacity: 50, and one for the favourite's first time
SELECT hits - :capacity AS hits_beyond, misses - :capacity AS misses_beyond FROM since();
-- Long texts are not kept, but they run.
SELECT outcome, length(result->>'v') FROM run(format('SELECT %L AS v', repeat('x', 1000000)));
SELECT outcome, length(result->>'v') FROM run(format('SELECT %L AS v', repeat('x', 1000000)));
SELECT entries <= :capacity AS bounded FROM fencing_statement_cache();
SELECT count(*) FROM since();

--
-- Bounded by bytes too: inserts of 10,000 and of 500 rows, and then 140 of which each
-- by itself may be kept.  What is counted is what PostgreSQL says they take.
--
CREATE TABLE loaded (a int, b text);
CREATE FUNCTION load(n int, nrows int, times int DEFAULT 1) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	wrong int = 0;
BEGIN
	FOR i IN 1..n LOOP
		FOR j IN 1..times LOOP
			IF (SELECT result->>'n' FROM run(format('WITH w AS (INSERT INTO loaded VALUES %s RETURNING 1) SELECT count(*) AS n FROM w',
				(SELECT string_agg(format('(%s, ''%s'')', k, i), ', ') FROM generate_series(1, nrows) k)))) IS DISTINCT FROM nrows::text THEN
				wrong = wrong + 1;
			END IF;
			DELETE FROM loaded;
		END LOOP;
	END LOOP;
	RETURN wrong;
END $$;
CREATE FUNCTION plans_mb() RETURNS int LANGUAGE sql AS $$
SELECT sum(total_bytes) / 1048576 FROM pg_backend_memory_contexts
WHERE name LIKE 'CachedPlan%' OR name LIKE 'SPI Plan%'
$$;
SELECT load(3, 10000) AS wrong;
SELECT load(140, 500) AS wrong;
SELECT load(140, 100) AS wrong;
SELECT entries > 20 AS used, bytes > max_bytes / 2 AS filled, bytes <= max_bytes AS bounded, evictions > 20 AS evicted, unkept >= 3 AS some_unkept,
	max_bytes / 1048576 AS max_mb FROM fencing_statement_cache();
SELECT plans_mb() <= 12 AS bounded;
-- The plan for any arguments, which comes at the sixth run, counts as well; also
-- if that run fails.
SET plan_cache_mode = force_generic_plan;
SELECT load(140, 100, 2) AS wrong;
SELECT bytes <= max_bytes AS bounded FROM fencing_statement_cache();
SELECT plans_mb() <= 12 AS bounded;
SET plan_cache_mode = force_custom_plan;
SELECT * FROM run('SELECT 2 / ($3->>''by'')::int AS quotient', '{"by": 1}');
SELECT bytes FROM fencing_statement_cache() \gset
SET plan_cache_mode = force_generic_plan;
SELECT * FROM run('SELECT 2 / ($3->>''by'')::int AS quotient', '{"by": 0}');
SELECT bytes > :bytes AS grown FROM fencing_statement_cache();
RESET plan_cache_mode;
SELECT count(*) FROM since();

--
-- A statement that commits another job, whose statement commits another ...
-- Ten deep, with one text for all of them.
--
SELECT count(outcome) FROM generate_series(1, 11) i,
	LATERAL fencing_acquire('cache/deep/' || i, '00000000-0000-0000-0000-00000000000a');
CREATE FUNCTION descend(level int) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	answer record;
BEGIN
	IF level > 10 THEN
		RETURN '"bottom"';
	END IF;
	SELECT outcome, result INTO answer FROM fencing_commit('cache/deep/' || level,
		(SELECT token FROM fencing.fences WHERE job_key = 'cache/deep/' || level),
		jsonb_build_object('level', level),
		'SELECT jsonb_build_object(''level'', $3->''level'', ''below'', descend(($3->>''level'')::int + 1)) AS r');
	RETURN jsonb_build_object('outcome', answer.outcome, 'result', answer.result);
END $$;
SELECT jsonb_path_query_array(descend(1), '$.**.outcome') AS outcomes;
-- nine hits and one miss
SELECT * FROM since();
SELECT count(*), count(DISTINCT job_key) FROM fencing.receipts WHERE job_key LIKE 'cache/deep/%';
SELECT jsonb_path_query_array(result, '$.**.level') AS levels FROM fencing.receipts WHERE job_key = 'cache/deep/1';
SELECT jsonb_path_query_array(descend(1), '$.**.outcome') AS outcomes;
-- The innermost fails: all ten take their receipts with them.
DELETE FROM fencing.receipts WHERE job_key LIKE 'cache/deep/%';
CREATE OR REPLACE FUNCTION bottom() RETURNS jsonb LANGUAGE plpgsql AS 'BEGIN RAISE division_by_zero; END';
CREATE OR REPLACE FUNCTION descend(level int) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF level > 10 THEN
		RETURN bottom();
	END IF;
	RETURN (SELECT result FROM fencing_commit('cache/deep/' || level,
		(SELECT token FROM fencing.fences WHERE job_key = 'cache/deep/' || level), '{}',
		format('SELECT descend(%s) AS r', level + 1)));
END $$;
SELECT descend(1);
SELECT count(*) FROM fencing.receipts WHERE job_key LIKE 'cache/deep/%';
CREATE OR REPLACE FUNCTION bottom() RETURNS jsonb LANGUAGE sql AS 'SELECT ''"bottom"''::jsonb';
SELECT descend(1);
SELECT count(*) FROM fencing.receipts WHERE job_key LIKE 'cache/deep/%';
-- Round in a circle: the job at the top is in progress.
SELECT outcome FROM fencing_commit('cache/deep/11', (SELECT token FROM fencing.fences WHERE job_key = 'cache/deep/11'), '{}',
	$$SELECT result FROM fencing_commit($1, $2, $3, 'SELECT 1 AS one')$$);
SELECT count(*) FROM fencing.receipts WHERE job_key = 'cache/deep/11';
-- Nothing of the refused call stays in progress.
SELECT outcome FROM fencing_commit('cache/deep/11', (SELECT token FROM fencing.fences WHERE job_key = 'cache/deep/11'), '{}',
	'SELECT 1 AS one');

--
-- A plan is in use while its place is given away many times over.
--
CREATE TABLE out_rows (v text);
SELECT outcome, result FROM fencing_commit('cache/other', :other, '{}', format($$
	INSERT INTO out_rows SELECT 'wrong: ' || (SELECT wrong FROM many('c', %1$s)) || ', ' || (SELECT wrong FROM many('d', %1$s))
	RETURNING v, 'still here' AS plan$$, :capacity * 2 + 10), 'in use');
SELECT entries <= :capacity AS bounded FROM fencing_statement_cache();
SELECT v FROM out_rows;
-- The same with an error at the end of it, caught by the caller.
CREATE FUNCTION evict_and_fail() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	PERFORM many('e', (SELECT capacity + 10 FROM fencing_statement_cache()));
	RAISE division_by_zero;
END $$;
SELECT outcome, error->>'sqlstate' AS sqlstate FROM fencing_commit('cache/other', :other, '{}',
	'SELECT evict_and_fail() AS v', 'evict', report_errors => true);
SELECT * FROM run('SELECT 1 AS one');
-- The statement invalidates its own plan while it runs.
CREATE FUNCTION redefine() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	CREATE OR REPLACE FUNCTION regress_fencing_cache.inner_part() RETURNS int LANGUAGE sql AS 'SELECT 2';
	CREATE TABLE regress_fencing_cache.made_inside (a int);
	DROP TABLE regress_fencing_cache.made_inside;
	DISCARD PLANS;
	RETURN 'redefined';
END $$;
CREATE FUNCTION inner_part() RETURNS int LANGUAGE sql AS 'SELECT 1';
SELECT * FROM run('SELECT redefine() AS a, inner_part() AS b');
SELECT * FROM run('SELECT redefine() AS a, inner_part() AS b');
-- The statement throws the extension away: refused or not, the backend lives,
-- and everything is as before.
CREATE FUNCTION drop_all() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	DROP EXTENSION fencing CASCADE;
	RETURN 'dropped';
END $$;
DO $$
BEGIN
	PERFORM run('SELECT drop_all() AS a');
	RAISE division_by_zero USING MESSAGE = 'the answer came';
EXCEPTION WHEN division_by_zero THEN
	RAISE WARNING 'a commit was answered whose receipt is nowhere';
WHEN OTHERS THEN
	NULL;
END $$;
SELECT count(*) FROM pg_extension WHERE extname = 'fencing';
SELECT * FROM run('SELECT 1 AS one');
SELECT * FROM run('SELECT ''new'' AS text');

DELETE FROM fencing.receipts WHERE job_key LIKE 'cache/%';
DELETE FROM fencing.leases WHERE job_key LIKE 'cache/%';
DELETE FROM fencing.fences WHERE job_key LIKE 'cache/%';
DROP SCHEMA regress_fencing_cache, regress_fencing_cache2 CASCADE;
