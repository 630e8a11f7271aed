--
-- Authorization: who is asked, as whom, with which names, and what he is shown.
-- Each verdict is given twice, for a key that is there and for one that is not:
-- 'replayed committed' or 'denied denied'.
--
\set VERBOSITY sqlstate
SET client_min_messages = error;
CREATE SCHEMA regress_authorize;
SET search_path = regress_authorize, public;
CREATE ROLE regress_fencing_auth_client;
CREATE ROLE regress_fencing_auth_owner;
CREATE ROLE regress_fencing_auth_other;
GRANT ALL ON SCHEMA regress_authorize TO PUBLIC;
SELECT fencing_grant('regress_fencing_auth_client', 'client'), fencing_grant('regress_fencing_auth_owner', 'client');

CREATE TABLE allowed (who text);
INSERT INTO allowed VALUES ('ann');
GRANT SELECT ON allowed TO PUBLIC;
CREATE TABLE trail (who text);
CREATE SEQUENCE number;
GRANT ALL ON trail, number TO PUBLIC;

-- Makes the operation with a record, and then gives it its authorize function.
CREATE FUNCTION yes(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS boolean LANGUAGE sql STABLE AS 'SELECT true';
CREATE FUNCTION operation(name text, authorize regprocedure, schema jsonb DEFAULT '{}') RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	name := 'authorize/' || name;
	PERFORM fencing_define_operation(name, 'regress_authorize.yes(text,text,jsonb,jsonb)');
	PERFORM fencing_define_request(name, 1, schema);
	PERFORM fencing_once('t', name, 'k', '{}', 'SELECT 1');
	PERFORM fencing_define_operation(name, authorize);
	RETURN name;
END $$;
CREATE FUNCTION verdict(name text, auth jsonb DEFAULT '{"who": "ann"}', request jsonb DEFAULT '{}') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	present text;
	absent text;
BEGIN
	BEGIN
		SELECT outcome INTO present FROM fencing_once('t', 'authorize/' || name, 'k', request, 'SELECT 1', auth);
	EXCEPTION WHEN OTHERS OR query_canceled OR assert_failure THEN
		present := SQLSTATE;
	END;
	BEGIN
		SELECT outcome INTO absent FROM fencing_once('t', 'authorize/' || name, 'absent', request, 'SELECT 1', auth);
		RAISE EXCEPTION USING errcode = 'ZZ000';
	EXCEPTION WHEN OTHERS OR query_canceled OR assert_failure THEN
		IF SQLSTATE <> 'ZZ000' THEN
			absent := SQLSTATE;
		END IF;
	END;
	RETURN present || ' ' || absent;
END $$;
-- A function with this body.
CREATE FUNCTION authorize(name text, body text, options text DEFAULT 'LANGUAGE plpgsql') RETURNS regprocedure LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE FUNCTION regress_authorize.%I(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS boolean %s AS %L', name, options, body);
	RETURN format('regress_authorize.%I(text,text,jsonb,jsonb)', name)::regprocedure;
END $$;

--
-- What it says: nothing but true is true
--
SELECT operation('may', authorize('may', 'BEGIN RETURN EXISTS (SELECT FROM regress_authorize.allowed a WHERE a.who = auth->>''who''); END'));
SELECT verdict('may'), verdict('may', '{"who": "eve"}') AS eve, verdict('may', '{}') AS nobody, verdict('may', NULL) AS nothing, verdict('may', 'null') AS null;
SELECT b, operation('says' || n, authorize('says' || n, b)), verdict('says' || n) FROM unnest('{BEGIN RETURN true; END,BEGIN RETURN false; END,BEGIN RETURN NULL; END,BEGIN END}'::text[]) WITH ORDINALITY u (b, n) ORDER BY n;
SELECT operation('strict', authorize('strict', 'SELECT true', 'LANGUAGE sql STRICT'));
SELECT verdict('strict'), verdict('strict', NULL) AS nothing, verdict('strict', 'null') AS null;
-- what it is given
SELECT operation('given', authorize('given', 'SELECT (tenant_id, operation, request) = (''t'', ''authorize/given'', ''{"r": 1}''::jsonb) AND auth IS NOT DISTINCT FROM ''[1]''::jsonb', 'LANGUAGE sql'));
SELECT verdict('given', '[1]', '{"r": 1.0}'), verdict('given', '[1]', '{"r": 2}') AS other, verdict('given', NULL, '{"r": 1}') AS nothing;

--
-- What it raises: denied, but for the classes that are nobody's verdict
--
SELECT operation('raise', authorize('raise', 'BEGIN RAISE EXCEPTION USING errcode = auth->>''state'', message = auth::text; END'));
SELECT s, verdict('raise', jsonb_build_object('state', s)) FROM unnest('{P0001,22012,23505,25006,42501,53100,54000,54001,55006,58030,LF001,LF002,LF005,XX000,XX001,P0004,0A000,AB123,40001,40P01,40003,57014,57P01,57P03,57000}'::text[]) WITH ORDINALITY u (s, n) ORDER BY n;
SELECT b, operation('error' || n, authorize('error' || n, b)), verdict('error' || n) FROM unnest(ARRAY['BEGIN RETURN 1 / 0; END', 'BEGIN ASSERT false; END', 'BEGIN RETURN (SELECT * FROM nowhere.at_all); END', 'BEGIN RETURN auth->>''who''; END', 'BEGIN COMMIT; RETURN true; END', 'BEGIN ROLLBACK; RETURN true; END',
	'DECLARE r boolean; BEGIN SELECT x INTO STRICT r FROM generate_series(1, 2) x; RETURN r; END']) WITH ORDINALITY u (b, n) ORDER BY n;
-- An error that it catches itself is its own affair.
SELECT operation('catches', authorize('catches', 'BEGIN PERFORM 1 / 0; EXCEPTION WHEN division_by_zero THEN RETURN true; END'));
SELECT verdict('catches');
-- a timeout is a timeout
SELECT operation('sleeps', authorize('sleeps', 'BEGIN PERFORM pg_sleep(60); RETURN true; END'));
SET statement_timeout = '20ms';
SELECT outcome FROM fencing_once('t', 'authorize/sleeps', 'k', '{}', 'SELECT 1');
RESET statement_timeout;
-- without an end: denied
SELECT operation('recursive', authorize('recursive', 'BEGIN RETURN regress_authorize.recursive(tenant_id, operation, request, auth); END'));
SELECT verdict('recursive');
SELECT operation('itself', authorize('itself', 'BEGIN RETURN (SELECT outcome = ''replayed'' FROM public.fencing_once(tenant_id, operation, ''k'', request, ''SELECT 1'', auth)); END'));
SELECT verdict('itself');
-- In strict and with report_errors it is the same for both keys.
SELECT k, outcome, error FROM unnest('{k,absent}'::text[]) k, fencing_once('t', 'authorize/raise', k, '{}', 'SELECT 1', '{"state": "22012"}', report_errors => true) ORDER BY 1;
SELECT fencing_once('t', 'authorize/raise', 'k', '{}', 'SELECT 1', '{"state": "22012"}', strict => true);
SELECT fencing_once('t', 'authorize/raise', 'absent', '{}', 'SELECT 1', '{"state": "22012"}', strict => true);
SELECT fencing_once('t', 'authorize/raise', 'k', '{}', 'SELECT 1', '{"state": "40001"}', report_errors => true);

--
-- What it writes: denied, and nothing is left of it
--
SELECT b, operation('write' || n, authorize('write' || n, 'BEGIN ' || b || '; RETURN true; END')), verdict('write' || n) FROM unnest(ARRAY['INSERT INTO regress_authorize.trail VALUES (''x'')', 'UPDATE regress_authorize.allowed SET who = who', 'DELETE FROM regress_authorize.allowed', 'TRUNCATE regress_authorize.trail',
	'CREATE TABLE regress_authorize.made ()', 'CREATE TEMP TABLE made ()', 'DROP TABLE regress_authorize.trail', 'PERFORM nextval(''regress_authorize.number'')', 'PERFORM setval(''regress_authorize.number'', 7)', 'PERFORM FROM regress_authorize.allowed FOR UPDATE', 'PERFORM FROM regress_authorize.allowed FOR SHARE',
	'SET TRANSACTION READ WRITE', 'PERFORM set_config(''transaction_read_only'', ''off'', true)', 'GRANT ALL ON regress_authorize.trail TO PUBLIC', 'PERFORM public.fencing_outbox_emit(''authorize'', ''x'', ''y'', ''1'')', 'PERFORM public.fencing_acquire(''authorize'', ''00000000-0000-0000-0000-000000000001'')', 'VACUUM regress_authorize.trail']) WITH ORDINALITY u (b, n) ORDER BY n;
-- Settings and locks are not read-only: what it does to them is rolled back.
SELECT operation('temp', authorize('temp', 'BEGIN LOCK TABLE regress_authorize.allowed IN EXCLUSIVE MODE; PERFORM set_config(''app.who'', ''x'', false), set_config(''search_path'', ''public'', false); RETURN true; END'));
SET app.who = 'before';
BEGIN;
SELECT verdict('temp');
SELECT count(*) AS locks FROM pg_locks WHERE relation = 'allowed'::regclass AND mode = 'ExclusiveLock';
COMMIT;
SELECT (SELECT count(*) FROM trail) AS trail, (SELECT last_value FROM number) AS number, current_setting('app.who') AS who, current_setting('search_path') AS path, to_regclass('regress_authorize.made') AS made;
LISTEN regress_authorize;
SELECT operation('notify', authorize('notify', 'BEGIN PERFORM pg_notify(''regress_authorize'', ''told''); RETURN true; END'));
SELECT verdict('notify') IN ('denied denied', 'replayed committed') AS answered;
UNLISTEN *;

--
-- Temporary tables: the caller makes them, so what they have in them is no
-- verdict.  A name that is found nowhere else is not found there either.
--
SET check_function_bodies = off;
CREATE FUNCTION rows(who text) RETURNS bigint LANGUAGE sql STABLE AS 'SELECT count(*) FROM member';
CREATE FUNCTION inlined() RETURNS SETOF text LANGUAGE sql STABLE AS 'SELECT who FROM member';
SELECT n, operation('member' || n, authorize('member' || n, body, options)), verdict('member' || n) FROM (VALUES
	(1, 'SELECT EXISTS (SELECT FROM member m WHERE m.who = auth->>''who'')', 'LANGUAGE sql STABLE'), (2, 'SELECT EXISTS (SELECT FROM member m WHERE m.who = auth->>''who'')', 'LANGUAGE sql'), (3, 'BEGIN RETURN EXISTS (SELECT FROM member); END', 'LANGUAGE plpgsql'),
	(4, 'DECLARE r record; BEGIN FOR r IN SELECT * FROM member LOOP RETURN true; END LOOP; RETURN false; END', 'LANGUAGE plpgsql'), (5, 'BEGIN RETURN (SELECT count(*) > 0 FROM pg_roles LEFT JOIN member ON false); END', 'LANGUAGE plpgsql SECURITY DEFINER'),
	(6, 'SELECT EXISTS (SELECT FROM member)', 'LANGUAGE sql SET search_path = regress_authorize, pg_temp'), (7, 'BEGIN RETURN regress_authorize.rows(auth->>''who'') > 0; END', 'LANGUAGE plpgsql'), (8, 'BEGIN RETURN EXISTS (SELECT FROM regress_authorize.inlined()); END', 'LANGUAGE plpgsql'),
	(9, 'DECLARE n int; BEGIN EXECUTE ''SELECT count(*) FROM member'' INTO n; RETURN n > 0; END', 'LANGUAGE plpgsql'), (10, 'DECLARE c CURSOR FOR SELECT * FROM member; BEGIN OPEN c; RETURN true; END', 'LANGUAGE plpgsql'), (11, 'BEGIN RETURN EXISTS (SELECT FROM pg_class c WHERE c.oid = ''member''::regclass); END', 'LANGUAGE plpgsql'),
	(12, 'BEGIN INSERT INTO member VALUES (''x''); RETURN true; END', 'LANGUAGE plpgsql'), (13, 'BEGIN RETURN EXISTS (SELECT FROM pg_temp.member); END', 'LANGUAGE plpgsql'), (14, 'WITH w AS (SELECT 1 FROM member) SELECT true FROM pg_roles WHERE (SELECT count(*) FROM w) > 0 LIMIT 1', 'LANGUAGE sql')) v (n, body, options) ORDER BY n;
RESET check_function_bodies;
SELECT operation('handles', authorize('handles', 'BEGIN RETURN EXISTS (SELECT FROM member); EXCEPTION WHEN undefined_table THEN RETURN auth->>''who'' = ''ann''; END'));
CREATE FUNCTION verdicts() RETURNS text LANGUAGE sql AS $$ SELECT string_agg(DISTINCT verdict('member' || n), ', ') || ', handles ' || verdict('handles') || ', eve ' || verdict('handles', '{"who": "eve"}') FROM generate_series(1, 14) n $$;
SELECT verdicts();
-- a table, views of another and of nothing, a partitioned one, a sequence
CREATE TEMP TABLE member (who text);
INSERT INTO member VALUES ('ann'), ('eve');
SELECT verdicts();
-- also where the session has the plans already
SET search_path = pg_catalog, pg_temp;
SELECT regress_authorize.member1('t', 'o', '{}', '{"who": "ann"}'), regress_authorize.member3('t', 'o', '{}', '{"who": "ann"}'), regress_authorize.member7('t', 'o', '{}', '{"who": "ann"}'), regress_authorize.member8('t', 'o', '{}', '{"who": "ann"}');
SET search_path = regress_authorize, public;
SELECT verdicts();
DROP TABLE pg_temp.member;
CREATE TEMP VIEW member AS SELECT who FROM allowed;
SELECT verdicts();
DROP VIEW pg_temp.member;
CREATE TEMP VIEW member AS SELECT 'ann'::text AS who;
SELECT verdicts();
DROP VIEW pg_temp.member;
CREATE TEMP TABLE member (who text) PARTITION BY LIST (who);
CREATE TEMP TABLE member_ann PARTITION OF member DEFAULT;
INSERT INTO member VALUES ('ann');
SELECT verdicts();
DROP TABLE pg_temp.member;
CREATE TEMP SEQUENCE member;
SELECT verdicts();
DROP SEQUENCE pg_temp.member;
-- the rows of a temporary child are not the table's
CREATE TABLE parent (who text);
GRANT SELECT ON parent TO PUBLIC;
INSERT INTO parent VALUES ('ann');
SELECT operation('parent', authorize('parent', 'SELECT EXISTS (SELECT FROM regress_authorize.parent p WHERE p.who = auth->>''who'')', 'LANGUAGE sql STABLE'));
CREATE TEMP TABLE child () INHERITS (parent);
INSERT INTO child VALUES ('eve');
SELECT verdict('parent', '{"who": "eve"}') AS eve;
DROP TABLE child;
SELECT verdict('parent'), verdict('parent', '{"who": "eve"}') AS eve;
-- afterwards the session reads them as before, in the statement too
CREATE TEMP TABLE member (who text);
SELECT outcome, result FROM fencing_once('t', 'authorize/may', 'temporary', '{}', 'INSERT INTO member VALUES ($5->>''who'') RETURNING who', '{"who": "ann"}');
SELECT verdict('member1'), (SELECT count(*) FROM member) AS rows;
DROP TABLE member;
-- a temporary function is no authorize function
CREATE FUNCTION pg_temp.fleeting(text, text, jsonb, jsonb) RETURNS boolean LANGUAGE sql AS 'SELECT true';
SELECT fencing_define_operation('authorize/fleeting', 'pg_temp.fleeting(text,text,jsonb,jsonb)');

--
-- As whom: the caller
--
SELECT operation('me', authorize('me', 'SELECT format(''%s %s %s %s'', current_user, current_setting(''search_path''), current_setting(''transaction_read_only''), current_setting(''role'')) = auth->>0', 'LANGUAGE sql'));
SET ROLE regress_fencing_auth_client;
SELECT verdict('me', '["regress_fencing_auth_client pg_catalog, pg_temp on regress_fencing_auth_client"]');
SELECT format('%s %s %s %s', current_user, current_setting('search_path'), current_setting('transaction_read_only'), current_setting('role')) AS after;
RESET ROLE;
-- by his privileges: on tables, on the function itself, row security
CREATE TABLE secret AS SELECT 1 AS a;
SELECT operation('table', authorize('table', 'SELECT EXISTS (SELECT FROM regress_authorize.secret)', 'LANGUAGE sql'));
SELECT verdict('table');
SET ROLE regress_fencing_auth_client;
SELECT verdict('table');
RESET ROLE;
GRANT SELECT ON secret TO regress_fencing_auth_client;
SET ROLE regress_fencing_auth_client;
SELECT verdict('table');
RESET ROLE;
ALTER TABLE secret ENABLE ROW LEVEL SECURITY;
CREATE POLICY p ON secret USING (current_user = 'regress_fencing_auth_other');
SET ROLE regress_fencing_auth_client;
SELECT verdict('table');
SET row_security = off;
SELECT verdict('table');
RESET row_security;
RESET ROLE;
ALTER TABLE secret DISABLE ROW LEVEL SECURITY;
REVOKE EXECUTE ON FUNCTION "table"(text, text, jsonb, jsonb) FROM PUBLIC;
SET ROLE regress_fencing_auth_client;
SELECT verdict('table');
RESET ROLE;
GRANT EXECUTE ON FUNCTION "table"(text, text, jsonb, jsonb) TO regress_fencing_auth_client;
SET ROLE regress_fencing_auth_client;
SELECT verdict('table');
RESET ROLE;
-- SECURITY DEFINER is asked as its owner
REVOKE SELECT ON secret FROM regress_fencing_auth_client;
SELECT operation('definer', authorize('definer', 'SELECT EXISTS (SELECT FROM regress_authorize.secret) AND session_user <> ''regress_fencing_auth_client''', 'LANGUAGE sql SECURITY DEFINER'));
SET ROLE regress_fencing_auth_client;
SELECT verdict('definer'), current_user;
RESET ROLE;
-- a search_path of its own is its own
SELECT operation('path', authorize('path', 'SELECT EXISTS (SELECT FROM allowed a WHERE a.who = auth->>''who'')', 'LANGUAGE sql SET work_mem = 1024 SET search_path = "Other ""one", regress_authorize, pg_temp'));
CREATE TEMP TABLE allowed (who text);
INSERT INTO allowed VALUES ('eve');
SELECT verdict('path'), verdict('path', '{"who": "eve"}') AS eve;
-- but one that lets the caller's tables in is refused, and denied if it is set later
\set VERBOSITY default
SELECT operation('path', authorize('path1', 'SELECT EXISTS (SELECT FROM allowed a WHERE a.who = auth->>''who'')', 'LANGUAGE sql SET search_path = regress_authorize'));
\set VERBOSITY sqlstate
SELECT operation('path', authorize('path2', 'SELECT true', 'LANGUAGE sql SET search_path = pg_temp, regress_authorize'));
SELECT operation('path', authorize('path5', 'SELECT true', 'LANGUAGE sql SET search_path = pg_temp, regress_authorize, pg_temp'));
SELECT operation('path', authorize('path3', 'SELECT true', 'LANGUAGE sql SET search_path = '''''));
SELECT operation('path', authorize('path4', 'SELECT true', 'LANGUAGE sql SET search_path = "regress_authorize, pg_temp"'));
ALTER FUNCTION path(text, text, jsonb, jsonb) SET search_path = regress_authorize;
SELECT verdict('path'), verdict('path', '{"who": "eve"}') AS eve;
ALTER FUNCTION path(text, text, jsonb, jsonb) SET search_path = regress_authorize, pg_temp;
SELECT verdict('path'), verdict('path', '{"who": "eve"}') AS eve;
DROP TABLE pg_temp.allowed;

--
-- With which names.  Whatever the caller puts in the way, the verdict stays.
--
SELECT operation('names', authorize('names', 'BEGIN RETURN EXISTS (SELECT FROM regress_authorize.allowed a WHERE a.who = auth->>''who'' AND lower(a.who) = a.who AND a.who::text IN (SELECT x::text FROM unnest(ARRAY[a.who]) x)) AND EXISTS (SELECT FROM pg_roles); END'));
SELECT operation('names_sql', authorize('names_sql', 'SELECT EXISTS (SELECT FROM regress_authorize.allowed a WHERE a.who = auth->>''who'' AND lower(a.who) = a.who) AND EXISTS (SELECT FROM pg_roles)', 'LANGUAGE sql STABLE'));
SELECT verdict('names'), verdict('names_sql'), verdict('names', '{"who": "eve"}') AS eve, verdict('names_sql', '{"who": "eve"}') AS eve;
CREATE FUNCTION always(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION never(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT false';
CREATE FUNCTION fail(jsonb, text) RETURNS text LANGUAGE sql AS 'SELECT (1 / 0)::text';
CREATE FUNCTION lower(text) RETURNS text LANGUAGE sql AS 'SELECT ''other''';
CREATE OPERATOR = (LEFTARG = text, RIGHTARG = text, FUNCTION = always);
CREATE OPERATOR ->> (LEFTARG = jsonb, RIGHTARG = text, FUNCTION = fail);
CREATE TEMP TABLE allowed (who text);
INSERT INTO allowed VALUES ('eve');
CREATE TEMP TABLE pg_roles (a int);
CREATE TEMP TABLE pg_authid (a int);
CREATE FUNCTION pg_temp.lower(text) RETURNS text LANGUAGE sql AS 'SELECT ''other''';
CREATE FUNCTION pg_temp.may(text, text, jsonb, jsonb) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION pg_temp.names(text, text, jsonb, jsonb) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION public.regress_names(text, text, jsonb, jsonb) RETURNS boolean LANGUAGE sql AS 'SELECT true';
SELECT path, set_config('search_path', path, false) IS NULL AS failed, pg_catalog.concat_ws('; ', regress_authorize.verdict('names'), regress_authorize.verdict('names_sql'), regress_authorize.verdict('may'), regress_authorize.verdict('names', '{"who": "eve"}'), regress_authorize.verdict('names_sql', '{"who": "eve"}'), regress_authorize.verdict('may', '{"who": "eve"}')) AS verdicts
FROM pg_catalog.unnest('{"regress_authorize, public","regress_authorize, pg_catalog, public","pg_temp, regress_authorize, pg_catalog, public"}'::text[]) WITH ORDINALITY u (path, n) ORDER BY n;
SET search_path = regress_authorize, public;
DROP OPERATOR regress_authorize.= (text, text);
DROP OPERATOR regress_authorize.->> (jsonb, text);
DROP FUNCTION regress_authorize.lower(text);
DROP TABLE pg_temp.allowed, pg_temp.pg_roles, pg_temp.pg_authid;
DROP FUNCTION public.regress_names(text, text, jsonb, jsonb);
-- an operator with other types that would fit better, were it found
CREATE FUNCTION better(text, name) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE OPERATOR public.= (LEFTARG = text, RIGHTARG = name, FUNCTION = better);
SELECT operation('better', authorize('better', 'BEGIN RETURN (auth->>''who'') = ''eve''::name; END'));
SELECT verdict('better'), verdict('better', '{"who": "eve"}') AS eve;
DROP OPERATOR public.= (text, name);

--
-- Which function: this one, of this owner.  One session sees all of it.
--
SET ROLE regress_fencing_auth_owner;
CREATE FUNCTION mine(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS boolean LANGUAGE sql AS 'SELECT true';
RESET ROLE;
SELECT operation('mine', 'mine(text,text,jsonb,jsonb)'), verdict('mine');
SELECT authorize_schema, authorize_name, authorize_owner FROM fencing.operations WHERE operation = 'authorize/mine';
-- replaced by its owner: his new verdict, at once
SET ROLE regress_fencing_auth_owner;
CREATE OR REPLACE FUNCTION mine(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS boolean LANGUAGE sql AS 'SELECT auth = ''1''';
RESET ROLE;
SELECT verdict('mine'), verdict('mine', '1');
-- overloaded, by more arguments, by names alike, and by domains over the types
CREATE DOMAIN domain_text AS text;
CREATE DOMAIN domain_jsonb AS jsonb;
SET ROLE regress_fencing_auth_other;
CREATE FUNCTION mine(domain_text, domain_text, domain_jsonb, domain_jsonb) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION mine(domain_text, text, jsonb, jsonb) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION mine(text, text, jsonb, jsonb, boolean DEFAULT true) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION mine(varchar, text, jsonb, jsonb) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION mine(anyelement, anyelement, jsonb, jsonb) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION mine(text, text, VARIADIC jsonb[]) RETURNS boolean LANGUAGE sql AS 'SELECT true';
RESET ROLE;
SELECT verdict('mine'), verdict('mine', '1');
-- dropped: denied, although all of those are left
DROP FUNCTION mine(text, text, jsonb, jsonb);
SELECT verdict('mine'), verdict('mine', '1');
-- made again by somebody else: denied
SET ROLE regress_fencing_auth_other;
CREATE FUNCTION mine(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS boolean LANGUAGE sql AS 'SELECT true';
RESET ROLE;
SELECT verdict('mine'), verdict('mine', '1');
-- given to the owner: his again; taken from him
ALTER FUNCTION mine(text, text, jsonb, jsonb) OWNER TO regress_fencing_auth_owner;
SELECT verdict('mine');
ALTER FUNCTION mine(text, text, jsonb, jsonb) OWNER TO regress_fencing_auth_other;
SELECT verdict('mine');
-- unless the operation is defined anew
SELECT fencing_define_operation('authorize/mine', 'mine(text,text,jsonb,jsonb)');
SELECT verdict('mine');
-- renamed, moved to another schema
ALTER FUNCTION mine(text, text, jsonb, jsonb) RENAME TO yours;
SELECT verdict('mine');
ALTER FUNCTION yours(text, text, jsonb, jsonb) RENAME TO mine;
SELECT verdict('mine');
ALTER FUNCTION mine(text, text, jsonb, jsonb) SET SCHEMA public;
SELECT verdict('mine');
ALTER FUNCTION public.mine(text, text, jsonb, jsonb) SET SCHEMA regress_authorize;
SELECT verdict('mine');
ALTER SCHEMA regress_authorize RENAME TO regress_authorize_moved;
SET search_path = regress_authorize_moved, public;
SELECT verdict('mine');
ALTER SCHEMA regress_authorize_moved RENAME TO regress_authorize;
SET search_path = regress_authorize, public;
SELECT verdict('mine');
-- another type of result, and a procedure
DROP FUNCTION mine(text, text, jsonb, jsonb);
SET ROLE regress_fencing_auth_other;
CREATE FUNCTION mine(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS text LANGUAGE sql AS 'SELECT ''t''';
RESET ROLE;
SELECT verdict('mine');
DROP FUNCTION mine(text, text, jsonb, jsonb);
SET ROLE regress_fencing_auth_other;
CREATE FUNCTION mine(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS int LANGUAGE sql AS 'SELECT 1';
RESET ROLE;
SELECT verdict('mine');
DROP FUNCTION mine(text, text, jsonb, jsonb);
SET ROLE regress_fencing_auth_other;
CREATE FUNCTION mine(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS SETOF boolean LANGUAGE sql AS 'SELECT true';
RESET ROLE;
SELECT verdict('mine');
DROP FUNCTION mine(text, text, jsonb, jsonb);
SET ROLE regress_fencing_auth_other;
CREATE PROCEDURE mine(tenant_id text, operation text, request jsonb, auth jsonb) LANGUAGE sql AS '';
RESET ROLE;
SELECT verdict('mine');
DROP PROCEDURE mine(text, text, jsonb, jsonb);
SET ROLE regress_fencing_auth_other;
CREATE FUNCTION mine(a text, b text, c jsonb, d jsonb) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RETURN true; END';
RESET ROLE;
SELECT verdict('mine');
-- the owner is a name: another role of that name is he, he under another name is not
ALTER ROLE regress_fencing_auth_other RENAME TO regress_fencing_auth_renamed;
SELECT verdict('mine');
ALTER ROLE regress_fencing_auth_renamed RENAME TO regress_fencing_auth_other;
SELECT verdict('mine');
-- within a transaction, and back
BEGIN;
DROP FUNCTION mine(text, text, jsonb, jsonb);
SELECT verdict('mine');
ROLLBACK;
SELECT verdict('mine');

--
-- When: with a fresh snapshot, the transaction's own work included
--
BEGIN;
INSERT INTO allowed VALUES ('new');
SELECT verdict('may', '{"who": "new"}'), verdict('names_sql', '{"who": "new"}');
ROLLBACK;
SELECT verdict('may', '{"who": "new"}'), verdict('names_sql', '{"who": "new"}');
BEGIN ISOLATION LEVEL SERIALIZABLE;
DELETE FROM allowed;
SELECT verdict('may'), verdict('names_sql');
ROLLBACK;

--
-- What it is shown: the request without the fields that the newest schema
-- leaves out of the hash, and nothing added
--
SELECT operation('shown', authorize('shown', 'SELECT request = auth AND request::text = auth::text', 'LANGUAGE sql'), '{"properties": {"a": {}, "d": {"default": 1}, "t": {"type": "string", "format": "date-time"}, "x": {"x-fencing": "ignore"},
	"o": {"additionalProperties": true, "properties": {"b": {}, "y": {"x-fencing": "ignore"}}}, "l": {"items": {"properties": {"c": {}, "z": {"type": "string", "x-fencing": "ignore"}}}}, "w": {}}}');
SELECT n, split_part(verdict('shown', shown, request), ' ', 2) AS verdict FROM (VALUES
	(1, '{"a": 1}'::jsonb, '{"a": 1}'::jsonb), (2, '{"a": 1, "x": 1}', '{"a": 1}'), (3, '{"x": {"a": 1}}', '{}'), (4, '{"o": {"b": 1, "y": 2, "extra": 3}}', '{"o": {"b": 1}}'), (5, '{"l": [{"c": 1, "z": "2"}, {"z": "3"}, {}]}', '{"l": [{"c": 1}, {}, {}]}'), (6, '{"w": {"x": 1, "y": [2]}}', '{"w": {"x": 1, "y": [2]}}'),
	-- no default, and every value as it was sent
	(7, '{}', '{}'), (8, '{"a": 1.50, "t": "2026-01-01T01:00:00+01:00"}', '{"a": 1.50, "t": "2026-01-01T01:00:00+01:00"}')) v (n, request, shown) ORDER BY n;
-- and refused by one that sees something else
SELECT verdict('shown', '{"a": 1, "x": 1}', '{"a": 1, "x": 1}'), verdict('shown', '{"o": {"b": 1, "extra": 3}}', '{"o": {"b": 1, "extra": 3}}'), verdict('shown', '{"l": [{"z": "3"}]}', '{"l": [{"z": "3"}]}');
-- Showing one's own resource to authorize and another's key to the look-up does
-- not work: the field that differs is not part of either.
SELECT operation('resource', authorize('resource', 'SELECT request->>''account'' = auth->>''account''', 'LANGUAGE sql'), '{"additionalProperties": true, "properties": {"amount": {}}}');
SELECT verdict('resource', '{"account": "mine"}', '{"account": "mine"}'), verdict('resource', '{"account": "mine"}', '{"account": "mine", "amount": 1}');
-- the newest version counts, also for a key of an older one
SELECT fencing_define_request('authorize/resource', 2, '{"additionalProperties": true, "properties": {"amount": {}, "account": {}}}');
SELECT split_part(verdict('resource', '{"account": "mine"}', '{"account": "mine"}'), ' ', 2) AS verdict;
SELECT fencing_define_request('authorize/resource', 3, '{"additionalProperties": true, "properties": {"amount": {}, "account": {"x-fencing": "ignore"}}}');
SELECT verdict('resource', '{"account": "mine"}', '{"account": "mine"}');
-- a request of another kind than the schema says
SELECT operation('kind', authorize('kind', 'SELECT jsonb_typeof(request) = auth->>0', 'LANGUAGE sql'), '{"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {}}}}}');
SELECT r, split_part(verdict('kind', jsonb_build_array(jsonb_typeof(r)), r), ' ', 2) AS verdict FROM unnest('{[],1,"null","\"x\"","{\"a\": 1}","{\"a\": [{\"b\": 1}]}"}'::jsonb[]) WITH ORDINALITY u (r, n) ORDER BY n;
-- the statement sees the whole of it
SELECT result FROM fencing_once('t', 'authorize/shown', 'whole', '{"a": 1, "x": 1}', 'SELECT $4', '{"a": 1}');

--
-- auth is in no table and in no error
--
SELECT operation('secret', authorize('secret', 'BEGIN IF auth->>''fail'' IS NOT NULL THEN RAISE EXCEPTION ''%'', auth USING detail = auth, hint = auth; END IF; RETURN true; END'));
CREATE FUNCTION report(auth jsonb, statement text, strict boolean, report_errors boolean) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	parts text[] := '{}';
	answer record;
	part text;
BEGIN
	SELECT * INTO answer FROM fencing_once('t', 'authorize/secret', 's', '{}', statement, auth, report_errors, strict);
	RETURN answer::text;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS part = MESSAGE_TEXT;
	parts := parts || part;
	GET STACKED DIAGNOSTICS part = PG_EXCEPTION_DETAIL;
	parts := parts || part;
	GET STACKED DIAGNOSTICS part = PG_EXCEPTION_HINT;
	parts := parts || part;
	GET STACKED DIAGNOSTICS part = PG_EXCEPTION_CONTEXT;
	RETURN SQLSTATE || array_to_string(parts || part, ' ');
END $$;
SELECT n, report(auth, statement, strict, report_errors) !~ 'S3CR3T' AS clean FROM (VALUES
	(1, '{"token": "S3CR3T", "fail": 1}'::jsonb, 'SELECT 1', false, false), (2, '{"token": "S3CR3T", "fail": 1}', 'SELECT 1', true, false), (3, '{"token": "S3CR3T", "fail": 1}', 'SELECT 1', false, true), (4, '{"token": "S3CR3T"}', 'SELECT 1 / 0', false, false), (5, '{"token": "S3CR3T"}', 'SELECT 1 / 0', false, true),
	(6, '{"token": "S3CR3T"}', 'SELECT ($1 = ''t'')::int / 0, $5', false, true), (7, '{"token": "S3CR3T"}', 'INSERT INTO nowhere VALUES ($5)', false, true), (8, '{"token": "S3CR3T"}', 'SELECT 1', true, false), (9, '{"token": "S3CR3T"}', 'SELECT 1', false, false)) v (n, auth, statement, strict, report_errors) ORDER BY n;
CREATE FUNCTION found(pattern text) RETURNS SETOF regclass LANGUAGE plpgsql AS $$
DECLARE
	t regclass;
	n bigint;
BEGIN
	FOR t IN SELECT oid FROM pg_class WHERE relnamespace = 'fencing'::regnamespace AND relkind IN ('r', 'v') LOOP
		EXECUTE format('SELECT count(*) FROM %s t WHERE t::text LIKE %L', t, '%' || pattern || '%') INTO n;
		IF n > 0 THEN
			RETURN NEXT t;
		END IF;
	END LOOP;
END $$;
SELECT found('S3CR3T');
-- the search does find what is there
SELECT found('authorize/secret')::text COLLATE "C" AS found ORDER BY 1;

DELETE FROM fencing.records WHERE operation LIKE 'authorize/%';
DELETE FROM fencing.request_schemas WHERE operation LIKE 'authorize/%';
DELETE FROM fencing.operations WHERE operation LIKE 'authorize/%';
SELECT fencing_ungrant('regress_fencing_auth_client', 'client'), fencing_ungrant('regress_fencing_auth_owner', 'client');
DROP SCHEMA regress_authorize CASCADE;
DROP ROLE regress_fencing_auth_client, regress_fencing_auth_owner, regress_fencing_auth_other;
