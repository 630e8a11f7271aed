--
-- Hostile surroundings: names that stand in the way, settings that change the
-- meaning of SQL, and extensions that come and go while the backend lives.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;

CREATE SCHEMA regress_fencing_around;
CREATE SCHEMA regress_fencing_trap;

-- The whole story for one job: its answers in one line, always the same one.
CREATE FUNCTION regress_fencing_around.story(job text, OUT answers text) LANGUAGE plpgsql AS $$
DECLARE
	a pg_catalog.uuid := '00000000-0000-0000-0000-00000000000a';
	b pg_catalog.uuid := '00000000-0000-0000-0000-00000000000b';
	first_token pg_catalog.int8;
	next_token pg_catalog.int8;
	word pg_catalog.text;
BEGIN
	SELECT c.outcome, c.token INTO word, first_token FROM public.fencing_acquire(job, a) c;
	answers := word;
	SELECT c.outcome INTO word FROM public.fencing_acquire(job, b) c;
	answers := pg_catalog.concat_ws(' ', answers, word);
	SELECT c.outcome INTO word FROM public.fencing_renew(job, a, first_token, '1 minute') c;
	answers := pg_catalog.concat_ws(' ', answers, word);
	SELECT pg_catalog.concat_ws(' ', c.outcome, c.result) INTO word
	FROM public.fencing_commit(job, first_token, '{"k": [1.50, "x"]}', 'SELECT 1 AS one') c;
	answers := pg_catalog.concat_ws(' ', answers, word);
	SELECT pg_catalog.concat_ws(' ', c.outcome, c.result) INTO word
	FROM public.fencing_commit(job, first_token, '{"k": [1.5, "x"]}', 'SELECT 1 AS one') c;
	answers := pg_catalog.concat_ws(' ', answers, word);
	SELECT c.outcome INTO word FROM public.fencing_commit(job, first_token, '{"k": [1.6, "x"]}', 'SELECT 1 AS one') c;
	answers := pg_catalog.concat_ws(' ', answers, word);
	SELECT c.outcome INTO word FROM public.fencing_release(job, a, first_token) c;
	answers := pg_catalog.concat_ws(' ', answers, word);
	SELECT c.outcome, c.token INTO word, next_token FROM public.fencing_acquire(job, b, '1 day') c;
	answers := pg_catalog.concat_ws(' ', answers, word, next_token OPERATOR(pg_catalog.-) first_token);
	SELECT c.outcome INTO word FROM public.fencing_renew(job, a, first_token) c;
	answers := pg_catalog.concat_ws(' ', answers, word);
	SELECT c.outcome INTO word FROM public.fencing_commit(job, first_token, '{}', step => 'late') c;
	answers := pg_catalog.concat_ws(' ', answers, word);
	answers := pg_catalog.concat_ws(' ', answers, public.fencing_revoke(job, 'test') OPERATOR(pg_catalog.-) next_token);
	SELECT pg_catalog.encode(c.digest, 'hex') OPERATOR(pg_catalog.=) pg_catalog.encode(pg_catalog.sha256('{"k":[1.5,"x"]}'), 'hex')
	INTO word FROM public.fencing_receipt(job, first_token) c;
	answers := pg_catalog.concat_ws(' ', answers, word);
	SELECT pg_catalog.concat_ws(' ', l.token OPERATOR(pg_catalog.-) first_token, l.live) INTO word
	FROM fencing.lease_status l WHERE l.job_key OPERATOR(pg_catalog.=) job;
	answers := pg_catalog.concat_ws(' ', answers, word);
	SELECT pg_catalog.count(*) INTO word FROM fencing.receipt_log l WHERE l.job_key OPERATOR(pg_catalog.=) job;
	answers := pg_catalog.concat_ws(' ', answers, word);
	SELECT c.outcome INTO word FROM public.fencing_advance(pg_catalog.concat(job, '/external'), 7) c;
	answers := pg_catalog.concat_ws(' ', answers, word);
	PERFORM public.fencing_grant('pg_monitor', 'relay');
	SELECT pg_catalog.has_function_privilege('pg_monitor', 'public.fencing_renew(pg_catalog.text, pg_catalog.uuid, pg_catalog.int8, pg_catalog.interval)', 'EXECUTE') INTO word;
	answers := pg_catalog.concat_ws(' ', answers, word);
	PERFORM public.fencing_ungrant('pg_monitor', 'relay');
	SELECT pg_catalog.has_function_privilege('pg_monitor', 'public.fencing_renew(pg_catalog.text, pg_catalog.uuid, pg_catalog.int8, pg_catalog.interval)', 'EXECUTE') INTO word;
	answers := pg_catalog.concat_ws(' ', answers, word);
	PERFORM public.fencing_forget(job);
	SELECT c.outcome INTO word FROM public.fencing_commit(job, first_token, '{"k": [1.5, "x"]}', 'SELECT 1 AS one') c;
	answers := pg_catalog.concat_ws(' ', answers, word);
END $$;

SELECT story AS usual FROM regress_fencing_around.story('around/usual') \gset
SELECT :'usual' AS usual;

--
-- Names.  A digest, operators, functions, types and tables stand earlier in
-- the search_path than those that are meant.  Each springs when it is touched.
--
CREATE FUNCTION regress_fencing_trap.spring() RETURNS text LANGUAGE plpgsql AS
	'BEGIN RAISE EXCEPTION ''a trap was sprung'' USING ERRCODE = ''TRAP1''; END';
CREATE FUNCTION regress_fencing_trap.digest(bytea, text) RETURNS bytea LANGUAGE plpgsql AS
	'BEGIN RETURN regress_fencing_trap.spring(); END';
CREATE FUNCTION regress_fencing_trap.digest(text, text) RETURNS bytea LANGUAGE plpgsql AS
	'BEGIN RETURN regress_fencing_trap.spring(); END';
CREATE FUNCTION regress_fencing_trap.sha256(bytea) RETURNS bytea LANGUAGE plpgsql AS
	'BEGIN RETURN regress_fencing_trap.spring(); END';
CREATE FUNCTION regress_fencing_trap.convert_to(text, name) RETURNS bytea LANGUAGE plpgsql AS
	'BEGIN RETURN regress_fencing_trap.spring(); END';
CREATE FUNCTION regress_fencing_trap.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS
	'BEGIN RETURN regress_fencing_trap.spring(); END';
CREATE FUNCTION regress_fencing_trap.now() RETURNS timestamptz LANGUAGE plpgsql AS
	'BEGIN RETURN regress_fencing_trap.spring(); END';
CREATE FUNCTION regress_fencing_trap.inet_client_addr() RETURNS inet LANGUAGE plpgsql AS
	'BEGIN RETURN regress_fencing_trap.spring(); END';
CREATE FUNCTION regress_fencing_trap.nextval(regclass) RETURNS bigint LANGUAGE plpgsql AS
	'BEGIN RETURN regress_fencing_trap.spring(); END';
CREATE FUNCTION regress_fencing_trap.to_jsonb(anyelement) RETURNS jsonb LANGUAGE plpgsql AS
	'BEGIN RETURN regress_fencing_trap.spring(); END';
CREATE FUNCTION regress_fencing_trap.row_to_json(record) RETURNS json LANGUAGE plpgsql AS
	'BEGIN RETURN regress_fencing_trap.spring(); END';
CREATE FUNCTION regress_fencing_trap.epoch_start() RETURNS bigint LANGUAGE plpgsql AS
	'BEGIN RETURN regress_fencing_trap.spring(); END';
DO $$
DECLARE
	t text;
	op text;
BEGIN
	FOREACH t IN ARRAY '{text,bytea,bigint,uuid,name,oid,timestamptz,boolean,integer}'::text[] LOOP
		EXECUTE format('CREATE FUNCTION regress_fencing_trap.compare(%1$s, %1$s) RETURNS boolean LANGUAGE plpgsql AS %2$L',
			t, 'BEGIN RETURN regress_fencing_trap.spring(); END');
		FOREACH op IN ARRAY '{=,<>,<,<=,>,>=}'::text[] LOOP
			EXECUTE format('CREATE OPERATOR regress_fencing_trap.%1$s (LEFTARG = %2$s, RIGHTARG = %2$s, FUNCTION = regress_fencing_trap.compare)', op, t);
		END LOOP;
	END LOOP;
	FOREACH t IN ARRAY '{text,jsonb,bytea,uuid,timestamptz,regclass,regrole,fencing_outcome}'::text[] LOOP
		EXECUTE format('CREATE TYPE regress_fencing_trap.%I AS ENUM (''trap'')', t);
	END LOOP;
	FOREACH t IN ARRAY '{floor,fences,leases,receipts,revocations,grants,lease_status,receipt_log}'::text[] LOOP
		EXECUTE format('CREATE TABLE regress_fencing_trap.%I (trap int)', t);
		EXECUTE format('CREATE TEMP TABLE %I (trap int)', t);
	END LOOP;
END $$;
CREATE FUNCTION regress_fencing_trap.fencing_digest(pg_catalog.jsonb, int DEFAULT 1) RETURNS pg_catalog.bytea LANGUAGE plpgsql AS
	'BEGIN RETURN regress_fencing_trap.spring(); END';

-- The traps do work.
SET search_path = pg_temp, regress_fencing_trap, pg_catalog, public;
SELECT 1::bigint = 1::bigint;
SELECT digest('a'::pg_catalog.bytea, 'sha256');
SELECT * FROM receipts;
-- The functions pass by: usual answers, by plans made here or made before.
SELECT answers OPERATOR(pg_catalog.=) :'usual' AS as_usual FROM regress_fencing_around.story('around/trap');
SELECT pg_catalog.encode(public.fencing_digest('{"b": 1, "a": [true]}'), 'hex')
	OPERATOR(pg_catalog.=) pg_catalog.encode(pg_catalog.sha256('{"a":[true],"b":1}'), 'hex') AS digest;
-- The statement is the caller's: what he names is found where he looks for it.
SELECT outcome, token FROM public.fencing_acquire('around/own', '00000000-0000-0000-0000-00000000000a') \gset
SELECT outcome, result FROM public.fencing_commit('around/own', :token, '{}', 'INSERT INTO receipts VALUES (1) RETURNING trap');
SELECT outcome, result FROM public.fencing_commit('around/own', :token, '{}', 'SELECT digest(''a''::pg_catalog.bytea, ''sha256'') AS d', 'spring');
RESET search_path;
SELECT count(*) AS temporary FROM pg_temp.receipts;
SELECT (SELECT count(*) FROM regress_fencing_trap.floor) + (SELECT count(*) FROM regress_fencing_trap.fences)
	+ (SELECT count(*) FROM regress_fencing_trap.leases) + (SELECT count(*) FROM regress_fencing_trap.receipts)
	+ (SELECT count(*) FROM regress_fencing_trap.revocations) + (SELECT count(*) FROM regress_fencing_trap.grants)
	+ (SELECT count(*) FROM pg_temp.floor) + (SELECT count(*) FROM pg_temp.fences)
	+ (SELECT count(*) FROM pg_temp.leases)
	+ (SELECT count(*) FROM pg_temp.revocations) + (SELECT count(*) FROM pg_temp.grants) AS rows_in_traps;
-- An empty search_path, and one that leads nowhere.
SET search_path = '';
SELECT answers OPERATOR(pg_catalog.=) :'usual' AS as_usual FROM regress_fencing_around.story('around/empty');
SET search_path = no_such_schema;
SELECT answers OPERATOR(pg_catalog.=) :'usual' AS as_usual FROM regress_fencing_around.story('around/nowhere');
RESET search_path;
-- A backend that has planned everything among the traps, and a trap laid later.
DISCARD PLANS;
SET search_path = pg_temp, regress_fencing_trap, pg_catalog, public;
SELECT answers OPERATOR(pg_catalog.=) :'usual' AS as_usual FROM regress_fencing_around.story('around/trap 2');
RESET search_path;
DISCARD TEMP;
DROP SCHEMA regress_fencing_trap CASCADE;
SELECT answers = :'usual' AS as_usual FROM regress_fencing_around.story('around/trap 3');

-- CREATE EXTENSION itself among such names.
CREATE SCHEMA regress_fencing_trap;
CREATE FUNCTION regress_fencing_trap.digest(bytea, text) RETURNS bytea LANGUAGE sql AS 'SELECT ''\x00''::bytea';
CREATE TYPE regress_fencing_trap.fencing_outcome AS ENUM ('trap');
CREATE FUNCTION regress_fencing_trap.never(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT false';
CREATE OPERATOR regress_fencing_trap.= (LEFTARG = text, RIGHTARG = text, FUNCTION = regress_fencing_trap.never);
DROP EXTENSION fencing;
SET search_path = regress_fencing_trap, pg_catalog, public;
CREATE EXTENSION fencing SCHEMA public;
SELECT answers OPERATOR(pg_catalog.=) :'usual' AS as_usual FROM regress_fencing_around.story('around/made in a trap');
RESET search_path;
DROP SCHEMA regress_fencing_trap CASCADE;

--
-- Settings of the session.
--
CREATE FUNCTION regress_fencing_around.under(setting text, value text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	usual text := current_setting(setting);
	answers text;
BEGIN
	PERFORM set_config(setting, value, true);
	DISCARD PLANS;
	SELECT s.answers INTO answers FROM regress_fencing_around.story('around/' || setting || '/' || value) s;
	PERFORM set_config(setting, usual, true);
	RETURN answers;
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
SELECT setting, value, regress_fencing_around.under(setting, value) = :'usual' AS as_usual
FROM (VALUES
	('enable_indexscan', 'off'), ('enable_seqscan', 'off'), ('enable_bitmapscan', 'off'), ('enable_indexonlyscan', 'off'),
	('enable_sort', 'off'), ('from_collapse_limit', '1'), ('geqo_threshold', '2'),
	('plan_cache_mode', 'force_generic_plan'), ('plan_cache_mode', 'force_custom_plan'),
	('jit_above_cost', '0'), ('max_parallel_workers_per_gather', '0'), ('parallel_setup_cost', '0'),
	('standard_conforming_strings', 'off'), ('backslash_quote', 'off'), ('escape_string_warning', 'off'),
	('quote_all_identifiers', 'on'), ('transform_null_equals', 'on'), ('array_nulls', 'off'),
	('bytea_output', 'escape'), ('datestyle', 'SQL, DMY'), ('intervalstyle', 'sql_standard'), ('timezone', 'Asia/Kathmandu'),
	('extra_float_digits', '-15'), ('xmlbinary', 'hex'), ('lc_monetary', 'C'), ('lc_numeric', 'C'),
	('synchronous_commit', 'off'),
	('row_security', 'off'), ('check_function_bodies', 'off'), ('session_replication_role', 'replica'),
	('work_mem', '64'),
	('default_table_access_method', 'heap'), ('default_toast_compression', 'pglz'), ('temp_file_limit', '0'),
	('track_functions', 'all'), ('cursor_tuple_fraction', '0'), ('constraint_exclusion', 'on'), ('gin_fuzzy_search_limit', '1'),
	('allow_system_table_mods', 'on'), ('commit_delay', '10'), ('wal_compression', 'on'),
	('log_statement', 'none'), ('client_encoding', 'LATIN1'), ('default_tablespace', ''), ('search_path', 'pg_catalog')) v(setting, value);
BEGIN;
SET LOCAL client_encoding = 'SQL_ASCII';
SELECT answers = :'usual' AS as_usual FROM regress_fencing_around.story('around/ascii');
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT answers = :'usual' AS as_usual FROM regress_fencing_around.story('around/repeatable read');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT answers = :'usual' AS as_usual FROM regress_fencing_around.story('around/serializable');
COMMIT;

--
-- Parallel workers.  What reads may run there.  What writes refuses, also
-- when it comes in a function that is labelled wrong; a replay only reads.
--
SELECT outcome, token FROM fencing_acquire('around/parallel', '00000000-0000-0000-0000-00000000000a') \gset
SELECT outcome FROM fencing_commit('around/parallel', :token, '{"a": 1}', 'SELECT 1 AS one');
CREATE FUNCTION regress_fencing_around.mislabelled(token bigint, payload jsonb) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
	RETURN (fencing_commit('around/parallel', token, payload, 'SELECT 1 AS one', payload->>'step')).outcome;
END $$;
CREATE FUNCTION regress_fencing_around.mislabelled_acquire() RETURNS text
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
	RETURN (fencing_acquire('around/parallel 2', '00000000-0000-0000-0000-00000000000a')).outcome;
END $$;
SELECT set_config(name, 'on', false) AS set FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query');
SELECT fencing_digest('{"a": 1}') = sha256('{"a":1}') AS digest;
SELECT digest = fencing_digest('{"a": 1}') AS digest, result FROM fencing_receipt('around/parallel', :token);
SELECT outcome FROM fencing_commit('around/parallel', :token, '{"a": 1}');
SELECT regress_fencing_around.mislabelled(:token, '{"a": 1, "step": "new"}');
SELECT regress_fencing_around.mislabelled_acquire();
SELECT outcome FROM fencing_commit('around/parallel', :token, '{"a": 1, "step": "new"}', 'SELECT 1 AS one', 'new');
SELECT regress_fencing_around.mislabelled(:token, '{"a": 1, "step": "new"}');
SELECT set_config(name, 'off', false) AS set FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query');

--
-- pgcrypto in another schema: moved, or made there; by callers who may not
-- even look into it.
--
CREATE SCHEMA regress_fencing_crypto;
ALTER EXTENSION pgcrypto SET SCHEMA regress_fencing_crypto;
SELECT answers = :'usual' AS as_usual FROM regress_fencing_around.story('around/moved');
-- A function of that name where pgcrypto was before is none of its.
CREATE FUNCTION public.digest(bytea, text) RETURNS bytea LANGUAGE sql AS 'SELECT ''\x00''::bytea';
CREATE FUNCTION regress_fencing_crypto.digest(bytea, text, int DEFAULT 1) RETURNS bytea LANGUAGE sql AS 'SELECT ''\x00''::bytea';
DISCARD PLANS;
SELECT answers = :'usual' AS as_usual FROM regress_fencing_around.story('around/moved 2');
DROP EXTENSION pgcrypto CASCADE;
SELECT count(*) FROM pg_namespace WHERE nspname = 'fencing';
CREATE EXTENSION pgcrypto SCHEMA regress_fencing_crypto;
CREATE EXTENSION fencing;
SELECT answers = :'usual' AS as_usual FROM regress_fencing_around.story('around/elsewhere');
CREATE ROLE regress_fencing_user;
SELECT fencing_grant('regress_fencing_user', 'client');
REVOKE EXECUTE ON FUNCTION regress_fencing_crypto.digest(bytea, text), regress_fencing_crypto.digest(text, text) FROM PUBLIC;
SET ROLE regress_fencing_user;
SELECT regress_fencing_crypto.digest('a'::bytea, 'sha256');
SELECT fencing_digest('{}') = sha256('{}') AS digest;
SELECT outcome, token FROM fencing_acquire('around/user', '00000000-0000-0000-0000-00000000000a') \gset
SELECT outcome, result FROM fencing_commit('around/user', :token, '{}', 'SELECT 1 AS one');
SELECT outcome, result FROM fencing_commit('around/user', :token, '{"a": 1}', 'SELECT 1 AS one');
RESET ROLE;
SELECT fencing_ungrant('regress_fencing_user', 'client');
DROP ROLE regress_fencing_user;
DROP FUNCTION public.digest(bytea, text);
DROP FUNCTION regress_fencing_crypto.digest(bytea, text, int);
ALTER EXTENSION pgcrypto SET SCHEMA public;
DROP SCHEMA regress_fencing_crypto;
SELECT answers = :'usual' AS as_usual FROM regress_fencing_around.story('around/moved back');

--
-- The extension goes and comes again, and this backend has plans, identifiers
-- and an epoch in its memory from before.
--
SELECT outcome FROM fencing_acquire('around/again', '00000000-0000-0000-0000-00000000000a');
DROP EXTENSION fencing;
CREATE EXTENSION fencing;
-- Nothing of the former state: the first token of the new installation is 1.
SELECT outcome, token FROM fencing_acquire('around/again', '00000000-0000-0000-0000-00000000000b');
SELECT outcome, result FROM fencing_commit('around/again', 1, '{"a": 1}', 'SELECT 1 AS one');
SELECT outcome, result FROM fencing_commit('around/again', 1, '{"a": 1}', 'SELECT 1 AS one');
SELECT outcome, result FROM fencing_commit('around/again', 1, '{"a": 2}', 'SELECT 1 AS one');
SELECT answers = :'usual' AS as_usual FROM regress_fencing_around.story('around/again 2');
DROP EXTENSION pgcrypto CASCADE;
SELECT fencing_digest('{}');
CREATE EXTENSION pgcrypto;
CREATE EXTENSION fencing;
SELECT outcome, token FROM fencing_acquire('around/again', '00000000-0000-0000-0000-00000000000c');
SELECT outcome, result FROM fencing_commit('around/again', 1, '{"a": 1}', 'SELECT 1 AS one');
SELECT outcome, result FROM fencing_commit('around/again', 1, '{"a": 1}', 'SELECT 1 AS one');
SELECT answers = :'usual' AS as_usual FROM regress_fencing_around.story('around/again 3');
-- In one transaction, and back: what is rolled back was never gone.
BEGIN;
DROP EXTENSION fencing;
CREATE EXTENSION fencing;
SELECT outcome, token FROM fencing_acquire('around/inside', '00000000-0000-0000-0000-00000000000a');
SELECT outcome, result FROM fencing_commit('around/inside', 1, '{"a": 1}', 'SELECT 1 AS one');
ROLLBACK;
SELECT outcome, result FROM fencing_commit('around/again', 1, '{"a": 1}', 'SELECT 1 AS one');
SELECT answers = :'usual' AS as_usual FROM regress_fencing_around.story('around/again 4');
BEGIN;
SAVEPOINT s;
DROP EXTENSION pgcrypto CASCADE;
CREATE EXTENSION fencing CASCADE;
SELECT outcome, token FROM fencing_acquire('around/inside', '00000000-0000-0000-0000-00000000000a');
SELECT outcome, result FROM fencing_commit('around/inside', 1, '{"a": 1}', 'SELECT 1 AS one');
ROLLBACK TO s;
SELECT outcome, result FROM fencing_commit('around/again', 1, '{"a": 1}', 'SELECT 1 AS one');
SELECT outcome, result FROM fencing_commit('around/again', 1, '{"a": 1}', 'SELECT 2 AS two', 'second');
COMMIT;
SELECT answers = :'usual' AS as_usual FROM regress_fencing_around.story('around/again 5');
-- The tables and indexes are rewritten under kept plans.
VACUUM FULL fencing.fences;
VACUUM FULL fencing.receipts;
CLUSTER fencing.leases USING leases_pkey;
REINDEX SCHEMA fencing;
SELECT answers = :'usual' AS as_usual FROM regress_fencing_around.story('around/rewritten');
TRUNCATE fencing.leases;
SELECT answers = :'usual' AS as_usual FROM regress_fencing_around.story('around/truncated');
-- An administrator's own index beside the key's, first in name and kind.
CREATE INDEX aaa ON fencing.receipts (step);
CREATE UNIQUE INDEX aab ON fencing.fences (token, job_key);
SELECT answers = :'usual' AS as_usual FROM regress_fencing_around.story('around/indexed');
DROP INDEX fencing.aaa, fencing.aab;

DELETE FROM fencing.receipts WHERE job_key LIKE 'around/%';
DELETE FROM fencing.leases WHERE job_key LIKE 'around/%';
DELETE FROM fencing.fences WHERE job_key LIKE 'around/%';
DELETE FROM fencing.revocations WHERE job_key LIKE 'around/%';
UPDATE fencing.floor SET floor = 0;
DROP SCHEMA regress_fencing_around CASCADE;
