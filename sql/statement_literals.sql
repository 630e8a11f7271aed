--
-- A statement does what the same text would do as a plain statement now, however
-- often it has run: no kept plan freezes a literal whose value depends on time or
-- settings.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
SET escape_string_warning = off;

CREATE SCHEMA regress_fencing_literals;
SET search_path = regress_fencing_literals, public;
SELECT token FROM fencing_acquire('literals/job', '00000000-0000-0000-0000-00000000000a', '1 hour') \gset
SELECT set_config('regress.token', :'token', false) = :'token' AS set;

CREATE SEQUENCE step;
CREATE TABLE fenced (v text);
CREATE TABLE plain (v text);

-- Each runs a statement, and answers a word or the SQLSTATE.
CREATE FUNCTION run(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	RETURN outcome FROM fencing_commit('literals/job', current_setting('regress.token')::bigint, '{}', statement,
		step => nextval('regress_fencing_literals.step')::text);
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
CREATE FUNCTION run_plain(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE statement;
	RETURN 'committed';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;

--
-- By settings: under one value, under another, and back, what is written is what a
-- plain statement writes.  (lc_monetary is below: other locales may not be there.)
--
CREATE DOMAIN moment AS timestamptz;
CREATE TYPE span AS RANGE (subtype = timestamptz);
CREATE TYPE pair AS (at timestamptz, note text);
CREATE TABLE cases (id serial, expression text, setting text, a text, b text);
INSERT INTO cases (expression, setting, a, b) VALUES
	($$timestamptz '2026-08-03 12:00'$$, 'TimeZone', 'UTC', 'Asia/Tokyo'),
	($$'2026-08-03 12:00'::moment$$, 'TimeZone', 'UTC', 'Asia/Tokyo'),
	($$'{2026-08-03 12:00}'::timestamptz[]$$, 'TimeZone', 'UTC', 'Asia/Tokyo'),
	($$'{2026-08-03 12:00}'::moment[]$$, 'TimeZone', 'UTC', 'Asia/Tokyo'),
	($$ARRAY['2026-08-03 12:00', NULL]::timestamptz[]$$, 'TimeZone', 'UTC', 'Asia/Tokyo'),
	($$'[2026-08-03 12:00,infinity)'::tstzrange$$, 'TimeZone', 'UTC', 'Asia/Tokyo'),
	($$'[2026-08-03 12:00,infinity)'::span$$, 'TimeZone', 'UTC', 'Asia/Tokyo'),
	($$'{[2026-08-03 12:00,infinity)}'::tstzmultirange$$, 'TimeZone', 'UTC', 'Asia/Tokyo'),
	($$'(2026-08-03 12:00,x)'::pair$$, 'TimeZone', 'UTC', 'Asia/Tokyo'),
	($$'{"(2026-08-03 12:00,x)"}'::pair[]$$, 'TimeZone', 'UTC', 'Asia/Tokyo'),
	($$ROW('2026-08-03 12:00', 'x')::pair$$, 'TimeZone', 'UTC', 'Asia/Tokyo'),
	($$timetz '12:00'$$, 'TimeZone', 'UTC', 'Asia/Tokyo'),
	($$date '02/01/2026'$$, 'DateStyle', 'ISO, MDY', 'ISO, DMY'),
	($$timestamp '02/01/2026 12:00'$$, 'DateStyle', 'ISO, MDY', 'ISO, DMY'),
	($$'[02/01/2026,03/01/2026)'::daterange$$, 'DateStyle', 'ISO, MDY', 'ISO, DMY'),
	($$extract(month FROM date '02/01/2026')$$, 'DateStyle', 'ISO, MDY', 'ISO, DMY'),
	($$justify_hours(interval '-1 1:00:00')$$, 'IntervalStyle', 'postgres', 'sql_standard'),
	($$length('a\nb')$$, 'standard_conforming_strings', 'on', 'off'),
	($$'a\\b'$$, 'standard_conforming_strings', 'on', 'off'),
	($$'\x41'::bytea$$, 'standard_conforming_strings', 'on', 'off'),
	($$E'a\'b'$$, 'backslash_quote', 'on', 'off'),
	($$current_setting('no.such', true) = NULL$$, 'transform_null_equals', 'off', 'on'),
	($$'{NULL}'::text[]$$, 'array_nulls', 'on', 'off'),
	($$'a <b/>'::xml$$, 'xmloption', 'content', 'document'),
	($$'place'::regclass$$, 'search_path', 'regress_fencing_literals, public', 'pg_catalog, public'),
	($$('place'::regtype)::oid = 'regress_fencing_literals.place'::regtype::oid$$, 'search_path', 'regress_fencing_literals, public', 'public'),
	-- these were never in danger: they are evaluated when the statement runs
	($$to_tsvector('the cats')$$, 'default_text_search_config', 'english', 'simple'),
	($$('2026-08-03 12:00'::text)::timestamptz$$, 'TimeZone', 'UTC', 'Asia/Tokyo'),
	($$to_char(1234.5, 'L9G999D9')$$, 'lc_numeric', 'C', 'C.UTF-8');
CREATE TABLE place (a int);

-- Often, because a plan for any arguments comes at the sixth run.  (Nothing in here
-- may make PostgreSQL analyze a kept statement again.)
CREATE FUNCTION compare(expression text, setting text, a text, b text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	before text = current_setting(setting);
	value text;
	different int = 0;
BEGIN
	FOREACH value IN ARRAY ARRAY[a, b, a, a, a, a, a, b, b, a] LOOP
		PERFORM set_config(setting, value, true);
		IF public.fencing_digest(to_jsonb(regress_fencing_literals.run('INSERT INTO regress_fencing_literals.fenced (v) SELECT (' || expression || ')::text')))
			<> public.fencing_digest(to_jsonb(regress_fencing_literals.run_plain('INSERT INTO regress_fencing_literals.plain (v) SELECT (' || expression || ')::text')))
		THEN
			different = different + 1;
		END IF;
		different = different + (SELECT count(*) FROM (TABLE regress_fencing_literals.fenced EXCEPT TABLE regress_fencing_literals.plain) d);
		PERFORM set_config(setting, before, true);
		DELETE FROM regress_fencing_literals.fenced;
		DELETE FROM regress_fencing_literals.plain;
	END LOOP;
	RETURN CASE different WHEN 0 THEN 'the same' ELSE 'DIFFERENT' END;
END $$;
SELECT setting, expression, compare(expression, setting, a, b) FROM cases ORDER BY id;

--
-- Wherever in a statement such a literal stands.  Kept: a second call finds the plan.
--
CREATE TABLE t (id int PRIMARY KEY, at timestamptz, label text DEFAULT 'x', since timestamptz DEFAULT '2000-01-01', lim int);
CREATE VIEW v AS SELECT t.id FROM t WHERE t.since >= timestamptz '1999-01-01';
CREATE TYPE colour AS ENUM ('red', 'green');
CREATE FUNCTION kept(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	before record;
	answer text;
BEGIN
	answer = run(statement);
	IF answer <> 'committed' THEN
		RETURN answer;
	END IF;
	SELECT * INTO before FROM fencing_statement_cache();
	answer = run(statement);
	IF answer <> 'committed' THEN
		RETURN answer;
	END IF;
	RETURN CASE WHEN c.hits > before.hits AND c.unkept = before.unkept THEN 'kept'
		WHEN c.unkept > before.unkept THEN 'not kept' ELSE 'missed' END
	FROM fencing_statement_cache() c;
END $$;
CREATE TABLE positions (id serial, statement text);
INSERT INTO positions (statement) VALUES
	($$UPDATE t SET at = 'now'$$),
	($$UPDATE t SET at = DEFAULT WHERE at < 'today'$$),
	($$DELETE FROM t WHERE at IN ('yesterday', 'today')$$),
	($$DELETE FROM t WHERE at BETWEEN 'yesterday' AND 'today'$$),
	($$INSERT INTO t VALUES (1, 'now') ON CONFLICT DO NOTHING$$),
	($$INSERT INTO t VALUES (1, NULL), (2, 'now') ON CONFLICT DO NOTHING$$),
	($$INSERT INTO t VALUES (1) ON CONFLICT (id) DO UPDATE SET at = 'now'$$),
	($$INSERT INTO t VALUES (1) ON CONFLICT (id) DO UPDATE SET at = now() WHERE t.at < 'now'$$),
	($$INSERT INTO t SELECT 1, 'now' ON CONFLICT DO NOTHING$$),
	($$INSERT INTO t VALUES (1) ON CONFLICT (id) DO UPDATE SET at = NULL RETURNING 'now'::timestamptz$$),
	($$MERGE INTO t USING (SELECT 1) s ON t.id = 1 WHEN MATCHED THEN UPDATE SET at = 'now'$$),
	($$MERGE INTO t USING (SELECT 1) s ON t.id = 1 WHEN MATCHED AND at < 'now' THEN DELETE$$),
	($$WITH w AS (INSERT INTO t VALUES (1, 'now') ON CONFLICT DO NOTHING RETURNING id) SELECT count(*) FROM w$$),
	($$SELECT CASE WHEN true THEN timestamptz 'now' END AS a$$),
	($$SELECT coalesce(NULL, timestamptz 'now') AS a$$),
	($$SELECT nullif(now(), 'now') AS a$$),
	($$SELECT (VALUES (timestamptz 'now')) AS a$$),
	($$SELECT date_trunc('day', timestamptz 'now') AS a$$),
	($$SELECT count(*) FROM generate_series(timestamptz 'today', 'tomorrow', '1 day')$$),
	($$SELECT count(*) FROM t a JOIN t b ON a.at > 'today'$$),
	($$SELECT id FROM t GROUP BY id HAVING max(at) > 'today' LIMIT 1$$),
	($$SELECT id FROM t ORDER BY at > 'today' LIMIT 1$$),
	($$SELECT count(*) OVER (ORDER BY at RANGE BETWEEN '1 day' PRECEDING AND CURRENT ROW) FROM t LIMIT 1$$),
	($$SELECT count(*) FILTER (WHERE at > 'today') FROM t$$),
	($$SELECT now() > ANY ('{today}') AS a$$),
	($$SELECT a.x FROM (SELECT 1 UNION SELECT 2 WHERE now() > 'today') a (x) LIMIT 1$$),
	($$SELECT now() + '1 day' AS a$$),
	($$SELECT '1.00'::money AS a$$),
	($$SELECT '{1.00}'::money[] AS a$$),
	($$SELECT 'postgres'::regrole AS a$$),
	($$SELECT '{t}'::regclass[] AS a$$),
	-- the same without one, which is to be kept
	($$UPDATE t SET at = now()$$),
	($$UPDATE t SET at = 'now'::text::timestamptz$$),
	($$UPDATE t SET at = ($3 ->> 'at')::timestamptz$$),
	($$UPDATE t SET at = NULL, label = 'now', lim = '5'$$),
	($$INSERT INTO t (id) VALUES (1) ON CONFLICT DO NOTHING$$),
	($$INSERT INTO t VALUES (1, DEFAULT, DEFAULT, DEFAULT) ON CONFLICT DO NOTHING$$),
	($$SELECT count(*) FROM v$$),
	($$SELECT count(*) FROM t WHERE since > current_date$$),
	($$SELECT nextval('step') AS n$$),
	($$SELECT 'red'::colour AS a, '{red}'::colour[] AS b, 'x'::"char" AS c, '{"a": 1}'::jsonb AS d, '{1,2}'::int[] AS e$$),
	($$SELECT '[1,2)'::int4range AS a, '{[1,2)}'::nummultirange AS b, 'x'::varchar(3) AS c, '\x00'::bytea AS d, '1.50'::numeric AS e$$);
SELECT kept(statement), statement FROM positions ORDER BY id;

--
-- By time: each of these is a transaction of its own, and writes its own "now".
--
CREATE TABLE moments (n serial, at timestamptz, xact timestamptz DEFAULT transaction_timestamp());
\set now 'INSERT INTO moments (at) VALUES (''now'')'
SELECT run(:'now');
SELECT run(:'now');
SELECT run(:'now');
SELECT count(*), count(*) FILTER (WHERE at = xact) AS right_now FROM moments;
-- A text becomes a time: the kept plan is analyzed again, once, and not kept.
CREATE TABLE altered (n serial, at text, xact timestamptz DEFAULT transaction_timestamp());
\set altered 'INSERT INTO altered (at) VALUES (''now'') RETURNING n'
SELECT kept(:'altered');
ALTER TABLE altered ALTER at TYPE timestamptz USING xact;
SELECT run(:'altered');
SELECT run(:'altered');
SELECT run(:'altered');
SELECT count(*), count(*) FILTER (WHERE at = xact) AS right_now FROM altered;
-- also when the run that analyzed it again failed
ALTER TABLE altered ALTER at TYPE text USING 'now';
SELECT kept(:'altered');
ALTER TABLE altered ALTER at TYPE timestamptz USING xact, ADD CONSTRAINT none CHECK (n < 0) NOT VALID;
SELECT run(:'altered');
ALTER TABLE altered DROP CONSTRAINT none;
SELECT run(:'altered');
SELECT run(:'altered');
SELECT count(*), count(*) FILTER (WHERE at = xact) AS right_now FROM altered;
-- A label of an enum is given to another value.
CREATE TABLE painted (n serial, a colour, b colour[]);
\set red 'INSERT INTO painted (a, b) VALUES (''red'', ''{red}'')'
SELECT kept(:'red');
ALTER TYPE colour RENAME VALUE 'red' TO 'crimson';
SELECT run(:'red');
ALTER TYPE colour ADD VALUE 'red';
SELECT kept(:'red');
SELECT a, b FROM painted ORDER BY n;
-- A sequence is given another's name.
CREATE SEQUENCE line START 100;
SELECT kept('SELECT nextval(''line'') AS n');
ALTER SEQUENCE line RENAME TO former;
CREATE SEQUENCE line START 500;
SELECT kept('SELECT nextval(''line'') AS n');
SELECT nextval('former') AS former, nextval('line') AS line;
-- A literal in a function that the planner puts into the plan.
CREATE FUNCTION noon() RETURNS timestamptz LANGUAGE sql STABLE AS $$ SELECT timestamptz '2026-06-01 12:00' $$;
CREATE TABLE noons (n serial, at timestamptz);
\set noon 'INSERT INTO noons (at) SELECT noon()'
SET TimeZone = 'UTC';
SELECT run(:'noon') FROM generate_series(1, 8);
SET TimeZone = 'Asia/Tokyo';
SELECT run(:'noon');
SET TimeZone = 'UTC';
SELECT at, count(*) FROM noons GROUP BY at ORDER BY at;

DELETE FROM fencing.receipts WHERE job_key LIKE 'literals/%';
DELETE FROM fencing.leases WHERE job_key LIKE 'literals/%';
DELETE FROM fencing.fences WHERE job_key LIKE 'literals/%';
DROP SCHEMA regress_fencing_literals CASCADE;
