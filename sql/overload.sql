--
-- Others may create functions where the extension is: a warning when it is made.
--
CREATE ROLE regress_overload_stranger;
CREATE ROLE "regress_overload Owner";
CREATE SCHEMA regress_overload;
CREATE SCHEMA "regress_overload Q";
GRANT USAGE ON SCHEMA regress_overload TO PUBLIC;

-- Each in a transaction that is rolled back.
CREATE PROCEDURE pg_temp.install(schema text, VARIADIC before text[]) LANGUAGE plpgsql AS $$
DECLARE
	command text;
BEGIN
	SET LOCAL client_min_messages = error;
	DROP EXTENSION fencing CASCADE;
	RESET client_min_messages;
	FOREACH command IN ARRAY before LOOP
		EXECUTE command;
	END LOOP;
	EXECUTE format('CREATE EXTENSION fencing SCHEMA %I', schema);
	ROLLBACK;
END $$;

-- nobody else may, or those who could do worse: none
CALL pg_temp.install('public', 'SELECT 1');
CALL pg_temp.install('regress_overload', 'SELECT 1');
CALL pg_temp.install('regress_overload', 'GRANT CREATE ON SCHEMA regress_overload TO pg_database_owner, CURRENT_USER');
CALL pg_temp.install('regress_overload', 'ALTER SCHEMA regress_overload OWNER TO "regress_overload Owner"');
CALL pg_temp.install('regress_overload', 'ALTER ROLE regress_overload_stranger SUPERUSER', 'GRANT CREATE ON SCHEMA regress_overload TO regress_overload_stranger');
-- others
CALL pg_temp.install('public', 'GRANT CREATE ON SCHEMA public TO PUBLIC');
CALL pg_temp.install('regress_overload', 'GRANT ALL ON SCHEMA regress_overload TO regress_overload_stranger, "regress_overload Owner"');
CALL pg_temp.install('regress_overload Q', 'GRANT CREATE ON SCHEMA "regress_overload Q" TO PUBLIC, regress_overload_stranger');

-- What it warns of: calls as the pages have them find the stranger's.
BEGIN;
SET LOCAL client_min_messages = error;
DROP EXTENSION fencing CASCADE;
GRANT CREATE ON SCHEMA regress_overload TO regress_overload_stranger;
CREATE EXTENSION fencing SCHEMA regress_overload;
RESET client_min_messages;
SET LOCAL search_path = regress_overload;
SET LOCAL ROLE regress_overload_stranger;
CREATE FUNCTION fencing_commit(job_key text, token integer, payload jsonb, statement text) RETURNS text LANGUAGE sql AS $$ SELECT 'taken over' $$;
RESET ROLE;
SELECT outcome FROM fencing_acquire('overload/job', md5('A')::uuid);
SELECT fencing_commit('overload/job', 1, '{}', 'SELECT 1');
SELECT (fencing_commit('overload/job', 1::bigint, '{}', 'SELECT 1')).outcome;
-- no grant is given to it, none is taken
SELECT fencing_grant('"regress_overload Owner"', 'client');
SELECT p.oid::regprocedure, has_function_privilege('regress_overload Owner', p.oid, 'EXECUTE') AS may,
	p.proacl IS NULL AS untouched FROM pg_proc p WHERE proname = 'fencing_commit' ORDER BY 1::text COLLATE "C";
ROLLBACK;

SELECT extnamespace::regnamespace FROM pg_extension WHERE extname = 'fencing';
DROP SCHEMA regress_overload, "regress_overload Q";
DROP ROLE regress_overload_stranger, "regress_overload Owner";
