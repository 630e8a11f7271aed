--
-- Who may call what, and what lies beneath the functions.  Refusals are shown
-- by SQLSTATE alone.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;

CREATE SCHEMA regress_fencing_access;
GRANT USAGE ON SCHEMA regress_fencing_access TO PUBLIC;
SET search_path = regress_fencing_access, public;

CREATE ROLE regress_fencing_nobody;
CREATE ROLE regress_fencing_client;
CREATE ROLE regress_fencing_relay;
CREATE ROLE regress_fencing_target;
CREATE ROLE regress_fencing_publisher;
CREATE ROLE regress_fencing_external;
CREATE ROLE regress_fencing_admin;
CREATE ROLE regress_fencing_watch IN ROLE pg_monitor;

-- Runs one command as whoever calls: its answer, or its SQLSTATE.
CREATE FUNCTION attempt(command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	EXECUTE command INTO answer;
	RETURN COALESCE(NULLIF(answer, ''), 'done');
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;

-- A call of everything, in an order in which all of it can be answered.
CREATE TABLE calls (n serial, fn text, command text);
GRANT SELECT ON calls TO PUBLIC;
INSERT INTO calls (fn, command) VALUES
('acquire', $$SELECT outcome || left(set_config('regress.token', token::text, false), 0)
	FROM fencing_acquire('access/' || current_user, '00000000-0000-0000-0000-00000000000a')$$),
('renew', $$SELECT outcome FROM fencing_renew('access/' || current_user,
	'00000000-0000-0000-0000-00000000000a', current_setting('regress.token')::bigint)$$),
('commit', $$SELECT outcome FROM fencing_commit('access/' || current_user,
	current_setting('regress.token')::bigint, '{}', 'SELECT 1 AS one')$$),
('receipt', $$SELECT count(*) || ' receipt' FROM fencing_receipt('access/' || current_user,
	current_setting('regress.token')::bigint)$$),
('release', $$SELECT outcome FROM fencing_release('access/' || current_user,
	'00000000-0000-0000-0000-00000000000a', current_setting('regress.token')::bigint)$$),
('revoke', $$SELECT CASE WHEN fencing_revoke('access/' || current_user, 'test')
	= current_setting('regress.token')::bigint + 1 THEN 'moved' END$$),
('forget', $$SELECT fencing_forget('access/' || current_user)$$),
('advance', $$SELECT outcome FROM fencing_advance('access/external/' || current_user, 5)$$),
('grant', $$SELECT fencing_grant('regress_fencing_publisher', 'publisher')$$),
('ungrant', $$SELECT fencing_ungrant('regress_fencing_publisher', 'publisher')$$),
('canonical', $$SELECT fencing_canonical('{"b": 1, "a": 2}')$$),
('digest', $$SELECT length(fencing_digest('{}')) || ' bytes'$$),
('epoch_start', $$SELECT CASE WHEN fencing.epoch_start() >= 0 THEN 'number' END$$),
('statement_cache', $$SELECT CASE WHEN entries <= capacity THEN 'numbers' END FROM fencing_statement_cache()$$);

CREATE VIEW answers AS
SELECT n, fn, attempt(command) AS answer FROM (SELECT * FROM calls ORDER BY n OFFSET 0) c;
GRANT SELECT ON answers TO PUBLIC;

-- Everything that is kept, to compare before and after.
CREATE FUNCTION state() RETURNS text LANGUAGE sql AS $$
SELECT concat_ws(E'\n',
	(SELECT string_agg(t::text, E'\n' ORDER BY t::text) FROM fencing.floor t),
	(SELECT string_agg(t::text, E'\n' ORDER BY t::text) FROM fencing.fences t),
	(SELECT string_agg(t::text, E'\n' ORDER BY t::text) FROM fencing.leases t),
	(SELECT string_agg(t::text, E'\n' ORDER BY t::text) FROM fencing.receipts t),
	(SELECT string_agg(t::text, E'\n' ORDER BY t::text) FROM fencing.revocations t),
	(SELECT string_agg(t::text, E'\n' ORDER BY t::text) FROM fencing.grants t),
	(SELECT concat(last_value, is_called) FROM fencing.revocations_id_seq))
$$;

-- The functions of the extension that a role may execute beyond those that all
-- may: the pure ones, and the triggers of protected tables.
CREATE FUNCTION may(role name) RETURNS text LANGUAGE sql AS $$
SELECT COALESCE(string_agg(p.proname, ' ' ORDER BY p.proname), '(none)')
FROM pg_proc p
JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
WHERE e.extname = 'fencing' AND p.provolatile <> 'i' AND p.proname NOT LIKE 'fencing_guard%' AND p.proname <> 'fencing_statement_cache'
AND has_function_privilege(role, p.oid, 'EXECUTE')
$$;

-- Their access lists, to compare before and after.
CREATE FUNCTION acls() RETURNS text LANGUAGE sql AS $$
SELECT string_agg(concat(p.proname, ' ', (SELECT array_agg(a ORDER BY a::text) FROM unnest(p.proacl) a)), E'\n' ORDER BY p.oid)
FROM pg_proc p
JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
WHERE e.extname = 'fencing'
$$;

SELECT acls() AS acls_at_first, set_config('regress.token', '1', false) AS token \gset
-- forget raises the floor; other files count from where it was.
SELECT max(floor) AS floor FROM fencing.floor \gset

--
-- Nobody: the two pure functions and nothing else, and nothing is written.
--
SELECT state() AS state_before \gset
SET ROLE regress_fencing_nobody;
SELECT fn, answer FROM answers ORDER BY n;
RESET ROLE;
SELECT state() = :'state_before' AS nothing_written;

--
-- Each kind gives its functions and no others.
--
SELECT fencing_grant('regress_fencing_client', 'client');
SELECT fencing_grant('regress_fencing_relay', 'relay');
SELECT fencing_grant('regress_fencing_target', 'target');
SELECT fencing_grant('regress_fencing_publisher', 'publisher');
SELECT fencing_grant('regress_fencing_external', 'external');
SELECT fencing_grant('regress_fencing_admin', 'admin');
SELECT role, access FROM fencing.grants WHERE role LIKE 'regress_fencing_%' ORDER BY role, access;

-- client: acquire commit receipt release renew; relay: acquire release renew;
-- target, which is given beside client, and publisher: none yet; external:
-- advance; admin: all fencing_*.
SELECT r AS role, may(r) FROM unnest('{regress_fencing_nobody,regress_fencing_client,regress_fencing_relay,
	regress_fencing_target,regress_fencing_publisher,regress_fencing_external,regress_fencing_admin,
	regress_fencing_watch}'::name[]) WITH ORDINALITY u(r, n) ORDER BY n;

SELECT set_config('regress.token', '1', false) AS token \gset
SET ROLE regress_fencing_client;
SELECT fn, answer FROM answers ORDER BY n;
SET ROLE regress_fencing_relay;
SELECT fn, answer FROM answers ORDER BY n;
SET ROLE regress_fencing_target;
SELECT fn, answer FROM answers ORDER BY n;
SET ROLE regress_fencing_publisher;
SELECT fn, answer FROM answers ORDER BY n;
SET ROLE regress_fencing_external;
SELECT fn, answer FROM answers ORDER BY n;
-- The administrator's ungrant takes the publisher's access away: given again below.
SET ROLE regress_fencing_admin;
SELECT fn, answer FROM answers WHERE fn NOT IN ('epoch_start', 'statement_cache') ORDER BY n;
RESET ROLE;
SELECT fencing_grant('regress_fencing_publisher', 'publisher');

-- A member has what his group has.
CREATE ROLE regress_fencing_member IN ROLE regress_fencing_relay;
SELECT may('regress_fencing_member');
SET ROLE regress_fencing_member;
SELECT outcome FROM fencing_acquire('access/member', '00000000-0000-0000-0000-00000000000a');
SELECT outcome FROM fencing_commit('access/member', 1, '{}', 'SELECT 1');
RESET ROLE;

--
-- The state itself is for no application role, also where somebody was so
-- careless as to open the schema.
--
CREATE VIEW intrusions AS
SELECT c.relname, a.what, attempt(format(a.command, c.oid::regclass, f.attname)) AS answer
FROM pg_class c
JOIN (VALUES
	('r', 'SELECT', 'SELECT count(*) FROM %s'),
	('r', 'SELECT FOR UPDATE', 'SELECT 1 FROM %s FOR UPDATE'),
	('r', 'INSERT', 'INSERT INTO %s DEFAULT VALUES'),
	('r', 'UPDATE', 'UPDATE %1$s SET %2$I = %2$I'),
	('r', 'DELETE', 'DELETE FROM %s'),
	('r', 'TRUNCATE', 'TRUNCATE %s'),
	('r', 'LOCK', 'LOCK TABLE %s IN ACCESS SHARE MODE'),
	('r', 'TRIGGER', 'CREATE TRIGGER t BEFORE INSERT ON %s EXECUTE FUNCTION pg_catalog.suppress_redundant_updates_trigger()'),
	('r', 'ALTER', 'ALTER TABLE %s SET (fillfactor = 10)'),
	('r', 'DROP', 'DROP TABLE %s'),
	('v', 'SELECT', 'SELECT count(*) FROM %s'),
	('v', 'DROP', 'DROP VIEW %s'),
	('S', 'SELECT', 'SELECT last_value FROM %s'),
	('S', 'nextval', 'SELECT nextval(%1$L)'),
	('S', 'setval', 'SELECT setval(%1$L, 1)'),
	('S', 'DROP', 'DROP SEQUENCE %s')) a(kind, what, command) ON a.kind = c.relkind::text
LEFT JOIN pg_attribute f ON f.attrelid = c.oid AND f.attnum = 2
WHERE c.relnamespace = 'fencing'::regnamespace;
GRANT SELECT ON intrusions TO PUBLIC;

CREATE FUNCTION intrude(role name) RETURNS TABLE (attempts bigint, refused bigint, others text) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('role', role, true);
	RETURN QUERY SELECT count(*), count(*) FILTER (WHERE answer = '42501'),
		string_agg(concat_ws(' ', what, relname, answer), ', ' ORDER BY relname, what) FILTER (WHERE answer <> '42501')
	FROM regress_fencing_access.intrusions;
	PERFORM set_config('role', 'none', true);
END $$;

SELECT state() AS state_before \gset
SELECT r AS role, attempts = refused AS all_refused, others
FROM unnest('{regress_fencing_nobody,regress_fencing_client,regress_fencing_relay,regress_fencing_target,
	regress_fencing_publisher,regress_fencing_external,regress_fencing_admin}'::name[]) WITH ORDINALITY u(r, n)
CROSS JOIN LATERAL intrude(r) ORDER BY n;
GRANT USAGE ON SCHEMA fencing TO PUBLIC;
SELECT r AS role, attempts = refused AS all_refused, attempts >= 68 AS enough, others
FROM unnest('{regress_fencing_nobody,regress_fencing_client,regress_fencing_relay,regress_fencing_target,
	regress_fencing_publisher,regress_fencing_external,regress_fencing_admin}'::name[]) WITH ORDINALITY u(r, n)
CROSS JOIN LATERAL intrude(r) ORDER BY n;
-- pg_monitor: SELECT on the views is all.
SELECT r AS role, attempts = refused AS all_refused, others
FROM unnest('{regress_fencing_watch}'::name[]) WITH ORDINALITY u(r, n)
CROSS JOIN LATERAL intrude(r) ORDER BY n;
REVOKE USAGE ON SCHEMA fencing FROM PUBLIC;
SELECT state() = :'state_before' AS nothing_written;

-- COPY, a column by name, and a new object among the state.
SET ROLE regress_fencing_client;
COPY fencing.receipts TO STDOUT;
COPY fencing.receipts (job_key) TO STDOUT;
SELECT result FROM fencing.receipts;
CREATE TABLE fencing.mine (a int);
CREATE FUNCTION fencing.mine() RETURNS int LANGUAGE sql AS 'SELECT 1';
RESET ROLE;

-- Privileges on state and views: the owner's, and pg_monitor's on the views.
SELECT c.relname, a.grantee::regrole, a.privilege_type
FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
WHERE c.relnamespace = 'fencing'::regnamespace AND a.grantee <> c.relowner ORDER BY 1, 2, 3;

--
-- pg_monitor reads the views and the numbers beside them, and calls nothing.
--
SET ROLE regress_fencing_watch;
SELECT job_key, live FROM fencing.lease_status WHERE job_key = 'access/regress_fencing_client';
SELECT job_key, step, digest_version FROM fencing.receipt_log WHERE job_key = 'access/regress_fencing_client';
SELECT fn, answer FROM answers ORDER BY n;
RESET ROLE;
-- No view shows a payload, a result or a digest.
SELECT c.relname, string_agg(a.attname, ' ' ORDER BY a.attnum)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
WHERE c.relnamespace = 'fencing'::regnamespace AND c.relkind = 'v' GROUP BY 1 ORDER BY 1;

--
-- fencing_grant and fencing_ungrant: bad input, and nothing is written by it.
--
SELECT state() AS state_before, acls() AS acls_before \gset
SELECT command, attempt(command) FROM unnest(ARRAY[
	$$SELECT fencing_grant('regress_fencing_nobody', 'clients')$$,
	$$SELECT fencing_grant('regress_fencing_nobody', 'Client')$$,
	$$SELECT fencing_grant('regress_fencing_nobody', ' client')$$,
	$$SELECT fencing_grant('regress_fencing_nobody', '')$$,
	$$SELECT fencing_grant(NULL, 'client')$$,
	$$SELECT fencing_grant('regress_fencing_nobody', NULL)$$,
	$$SELECT fencing_grant('-', 'client')$$,
	$$SELECT fencing_grant(0::oid::regrole, 'client')$$,
	$$SELECT fencing_grant('regress_fencing_unknown', 'client')$$,
	$$SELECT fencing_ungrant('regress_fencing_client', 'clients')$$,
	$$SELECT fencing_ungrant('regress_fencing_client', '')$$,
	$$SELECT fencing_ungrant(NULL, 'client')$$,
	$$SELECT fencing_ungrant('regress_fencing_client', NULL)$$,
	$$SELECT fencing_ungrant('-', 'client')$$,
	$$SELECT fencing_ungrant(0::oid::regrole, 'client')$$,
	$$SELECT fencing_ungrant('regress_fencing_unknown', 'client')$$]) WITH ORDINALITY u(command, n) ORDER BY n;
-- The OID of no role at all is refused, too.
SELECT attempt('SELECT fencing_grant(4294967294::oid::regrole, ''client'')') ~ '^[0-9A-Z]{5}$' AS refused;
SELECT state() = :'state_before' AS no_row, acls() = :'acls_before' AS no_privilege;

-- Twice is once, and once is enough to take it back.
SELECT fencing_grant('regress_fencing_nobody', 'client');
SELECT fencing_grant('regress_fencing_nobody', 'client');
SELECT count(*) FROM fencing.grants WHERE role = 'regress_fencing_nobody';
SELECT may('regress_fencing_nobody');
SELECT fencing_ungrant('regress_fencing_nobody', 'client');
SELECT may('regress_fencing_nobody');
SELECT state() = :'state_before' AS no_row, acls() = :'acls_before' AS no_privilege;

-- What was not granted is not taken: not another kind's.
SELECT fencing_ungrant('regress_fencing_nobody', 'client');
SELECT fencing_ungrant('regress_fencing_client', 'relay');
SELECT fencing_ungrant('regress_fencing_client', 'admin');
SELECT state() = :'state_before' AS no_row, acls() = :'acls_before' AS no_privilege;
-- But what the kind gives is taken, as by REVOKE, whoever gave it.
GRANT EXECUTE ON FUNCTION fencing_receipt(text, bigint, text), fencing_advance(text, bigint) TO regress_fencing_nobody;
SELECT fencing_ungrant('regress_fencing_nobody', 'client');
SELECT may('regress_fencing_nobody');
REVOKE EXECUTE ON FUNCTION fencing_advance(text, bigint) FROM regress_fencing_nobody;
SELECT acls() = :'acls_before' AS no_privilege;

-- Also from a role that was renamed: the row has the name that it had.
CREATE ROLE regress_fencing_app;
SELECT fencing_grant('regress_fencing_app', 'client');
ALTER ROLE regress_fencing_app RENAME TO regress_fencing_app2;
SELECT may('regress_fencing_app2');
SELECT fencing_ungrant('regress_fencing_app2', 'client');
SELECT may('regress_fencing_app2');
SELECT acls() = :'acls_before' AS no_privilege;
-- What another kind gives it, under the former name, stays.
ALTER ROLE regress_fencing_app2 RENAME TO regress_fencing_app;
SELECT fencing_grant('regress_fencing_app', k) FROM unnest('{client,relay}'::text[]) k;
ALTER ROLE regress_fencing_app RENAME TO regress_fencing_app2;
SELECT fencing_ungrant('regress_fencing_app2', 'relay');
SELECT may('regress_fencing_app2');
SELECT fencing_ungrant('regress_fencing_app2', 'client');
SELECT may('regress_fencing_app2');
SELECT acls() = :'acls_before' AS no_privilege;
-- Nor is the owner's own privilege taken.
SELECT fencing_ungrant(extowner::regrole, k) FROM pg_extension, unnest('{client,admin}'::text[]) k WHERE extname = 'fencing';
SELECT acls() = :'acls_before' AS no_change;
-- Another role of the former name has not what the row says: it is forgotten.
CREATE ROLE regress_fencing_app;
SELECT fencing_grant('regress_fencing_app', 'relay');
SELECT role, access FROM fencing.grants WHERE role LIKE 'regress_fencing_app%' ORDER BY role, access;
SELECT may('regress_fencing_app');
SELECT fencing_ungrant('regress_fencing_app', 'relay');
SELECT may('regress_fencing_app');
-- Nor has one that was made after DROP ROLE, not even a function that both kinds give.
SELECT fencing_grant('regress_fencing_app', k) FROM unnest('{client,publisher}'::text[]) k;
DROP OWNED BY regress_fencing_app;
DROP ROLE regress_fencing_app;
CREATE ROLE regress_fencing_app;
GRANT EXECUTE ON FUNCTION fencing_acquire(text, uuid, interval) TO regress_fencing_app;
SELECT fencing_ungrant('regress_fencing_app', 'relay');
SELECT may('regress_fencing_app');
SELECT fencing_grant('regress_fencing_app', 'admin');
SELECT role, access FROM fencing.grants WHERE role = 'regress_fencing_app' ORDER BY access;
SELECT fencing_ungrant('regress_fencing_app', 'admin');
SELECT may('regress_fencing_app');
SELECT state() = :'state_before' AS no_row, acls() = :'acls_before' AS no_privilege;
DROP ROLE regress_fencing_app, regress_fencing_app2;

-- Overlapping kinds: each keeps what another still gives.
SELECT fencing_grant('regress_fencing_nobody', k) FROM unnest('{client,relay,target,publisher,external}'::text[]) k;
SELECT may('regress_fencing_nobody');
SELECT fencing_ungrant('regress_fencing_nobody', 'client');
SELECT may('regress_fencing_nobody');
SELECT fencing_ungrant('regress_fencing_nobody', 'relay');
SELECT may('regress_fencing_nobody');
SELECT fencing_ungrant('regress_fencing_nobody', 'target');
SELECT may('regress_fencing_nobody');
SELECT fencing_ungrant('regress_fencing_nobody', 'external');
SELECT fencing_ungrant('regress_fencing_nobody', 'publisher');
SELECT fencing_grant('regress_fencing_nobody', k) FROM unnest('{client,admin}'::text[]) k;
SELECT fencing_ungrant('regress_fencing_nobody', 'admin');
SELECT may('regress_fencing_nobody');
SELECT fencing_ungrant('regress_fencing_nobody', 'client');
SELECT state() = :'state_before' AS no_row, acls() = :'acls_before' AS no_privilege;

-- A grant is of its transaction.
BEGIN;
SELECT fencing_grant('regress_fencing_nobody', 'client');
SAVEPOINT s;
SELECT fencing_ungrant('regress_fencing_nobody', 'client');
ROLLBACK TO s;
SELECT may('regress_fencing_nobody');
ROLLBACK;
SELECT state() = :'state_before' AS no_row, acls() = :'acls_before' AS no_privilege;

-- Privileges that were lost in another way come back with the next grant.
SELECT fencing_grant('regress_fencing_nobody', 'relay');
DROP OWNED BY regress_fencing_nobody;
SELECT may('regress_fencing_nobody');
GRANT USAGE ON SCHEMA regress_fencing_access TO regress_fencing_nobody;
SELECT fencing_grant('regress_fencing_nobody', 'relay');
SELECT may('regress_fencing_nobody');
SELECT fencing_ungrant('regress_fencing_nobody', 'relay');
SELECT state() = :'state_before' AS no_row, acls() = :'acls_before' AS no_privilege;

--
-- "cdc" gives no function, but the table of events and the way to it.
--
CREATE FUNCTION may_read(role name) RETURNS text LANGUAGE sql AS $$
SELECT COALESCE(string_agg(CASE WHEN has_schema_privilege(role, 'fencing', 'USAGE') THEN '' ELSE 'behind the door: ' END
	|| relname || ' ' || privilege, ', ' ORDER BY relname, privilege), '(none)')
FROM pg_class, unnest('{SELECT,INSERT,UPDATE,DELETE,TRUNCATE,REFERENCES,TRIGGER}'::text[]) privilege
WHERE relnamespace = 'fencing'::regnamespace AND relkind IN ('r', 'v') AND has_table_privilege(role, oid, privilege)
$$;
SELECT fencing_grant('regress_fencing_nobody', 'cdc');
SELECT may('regress_fencing_nobody'), may_read('regress_fencing_nobody');
SELECT access FROM fencing.grants WHERE role = 'regress_fencing_nobody';
SET ROLE regress_fencing_nobody;
SELECT count(*) >= 0 AS read FROM fencing.outbox;
SELECT * FROM fencing.outbox FOR UPDATE;
SELECT * FROM fencing.outbox_acks;
SELECT * FROM fencing.outbox_attempts;
SELECT * FROM fencing.outbox_pending;
SELECT nextval('fencing.outbox_no_seq');
RESET ROLE;
SELECT fencing_grant('regress_fencing_nobody', k) FROM unnest('{cdc,relay}'::text[]) k;
SELECT fencing_ungrant('regress_fencing_nobody', 'relay');
SELECT may('regress_fencing_nobody'), may_read('regress_fencing_nobody');
SELECT fencing_ungrant('regress_fencing_nobody', 'cdc');
SELECT may('regress_fencing_nobody'), may_read('regress_fencing_nobody');
-- lost in another way, and not there any more
SELECT fencing_grant('regress_fencing_nobody', 'cdc');
REVOKE SELECT ON fencing.outbox FROM regress_fencing_nobody;
SELECT fencing_grant('regress_fencing_nobody', 'relay');
SELECT access FROM fencing.grants WHERE role = 'regress_fencing_nobody';
SELECT fencing_ungrant('regress_fencing_nobody', k) FROM unnest('{cdc,relay}'::text[]) k;
SELECT may('regress_fencing_nobody'), may_read('regress_fencing_nobody');
-- the administrator's access is that of the functions; what the extension gives pg_monitor stays
SELECT may_read('regress_fencing_admin'), may_read('pg_monitor') AS before \gset
SELECT fencing_grant('pg_monitor', 'cdc'), may_read('regress_fencing_watch') <> :'before' AS more;
SELECT fencing_ungrant('pg_monitor', 'cdc'), may_read('regress_fencing_watch') = :'before' AS as_before;
SELECT state() = :'state_before' AS no_row, acls() = :'acls_before' AS no_privilege;

-- Names that must be quoted, and one that looks like a keyword.
CREATE ROLE "regress_fencing_Upper ""q'$1";
CREATE ROLE "regress_fencing_public";
SELECT fencing_grant('"regress_fencing_Upper ""q''$1"', 'client');
SELECT fencing_grant((SELECT oid FROM pg_roles WHERE rolname = 'regress_fencing_public')::regrole, 'external');
SELECT role, access FROM fencing.grants WHERE role LIKE '%Upper%' OR role LIKE '%public' ORDER BY role;
SELECT may('regress_fencing_Upper "q''$1'), may('regress_fencing_public');
SET ROLE "regress_fencing_Upper ""q'$1";
SELECT outcome FROM fencing_acquire('access/quoted', '00000000-0000-0000-0000-00000000000a');
RESET ROLE;
SELECT fencing_ungrant('"regress_fencing_Upper ""q''$1"', 'client');
SELECT fencing_ungrant('regress_fencing_public', 'external');
SELECT may('regress_fencing_Upper "q''$1'), may('regress_fencing_public');
SELECT acls() = :'acls_before' AS no_privilege;
DROP ROLE "regress_fencing_Upper ""q'$1";
DROP ROLE "regress_fencing_public";

--
-- A wrapper: callers need no grant, the statement runs as its owner.
--
CREATE SCHEMA regress_fencing_work AUTHORIZATION regress_fencing_client;
SET ROLE regress_fencing_client;
CREATE TABLE regress_fencing_work.reports (line text);
CREATE FUNCTION regress_fencing_work.report(token bigint, line text, OUT outcome text, OUT result jsonb)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = regress_fencing_work, public, pg_temp AS $$
BEGIN
	SELECT c.outcome, c.result INTO report.outcome, report.result
	FROM fencing_commit('access/wrapper', token, jsonb_build_object('line', line),
		'INSERT INTO reports SELECT $3->>''line'' RETURNING line, current_user AS writer') c;
END $$;
SELECT token FROM fencing_acquire('access/wrapper', '00000000-0000-0000-0000-00000000000a') \gset
RESET ROLE;
GRANT USAGE ON SCHEMA regress_fencing_work TO regress_fencing_nobody;
SET ROLE regress_fencing_nobody;
SELECT * FROM regress_fencing_work.report(:token, 'one');
SELECT current_user;
SELECT * FROM regress_fencing_work.report(:token, 'one');
SELECT * FROM regress_fencing_work.report(:token, 'two');
SELECT outcome FROM fencing_commit('access/wrapper', :token, '{}');
SELECT count(*) FROM regress_fencing_work.reports;
RESET ROLE;
SELECT * FROM regress_fencing_work.reports;

--
-- The statement has the caller's privileges, and those only.
--
CREATE TABLE secret (a int);
SET ROLE regress_fencing_client;
SELECT token FROM fencing_acquire('access/secret', '00000000-0000-0000-0000-00000000000a') \gset
SELECT outcome FROM fencing_commit('access/secret', :token, '{}', 'INSERT INTO secret VALUES (1)');
SELECT outcome FROM fencing_commit('access/secret', :token, '{}', 'SELECT count(*) FROM secret');
SELECT outcome FROM fencing_commit('access/secret', :token, '{}', 'SELECT count(*) FROM fencing.receipts');
SELECT outcome FROM fencing_commit('access/secret', :token, '{}', 'DELETE FROM fencing.fences');
SELECT outcome FROM fencing_commit('access/secret', :token, '{}',
	'WITH w AS (INSERT INTO secret VALUES (1) RETURNING a) SELECT a FROM w');
SELECT outcome FROM fencing_commit('access/secret', :token, '{}', 'SELECT fencing_revoke(''access/secret'', ''by a client'')');
-- Also with report_errors: it is a fault of the installation, not of the item.
SELECT outcome FROM fencing_commit('access/secret', :token, '{}', 'INSERT INTO secret VALUES (1)', report_errors => true);
RESET ROLE;
SELECT count(*) FROM secret;
SELECT count(*) FROM fencing.receipts WHERE job_key = 'access/secret';
SET ROLE regress_fencing_client;
SELECT outcome, result FROM fencing_commit('access/secret', :token, '{}', 'SELECT current_user::text AS caller');
-- A replay needs nothing but the receipt.
SELECT outcome, result FROM fencing_commit('access/secret', :token, '{}', 'INSERT INTO secret VALUES (1)');
-- After a refusal the transaction of the caller is his again.
BEGIN;
SAVEPOINT s;
SELECT outcome FROM fencing_commit('access/secret', :token, '{}', 'INSERT INTO secret VALUES (1)', step => 's');
ROLLBACK TO s;
SELECT current_user;
SELECT count(*) FROM secret;
ROLLBACK TO s;
SELECT outcome FROM fencing_commit('access/secret', :token, '{}', 'SELECT 1 AS one', step => 's');
COMMIT;
RESET ROLE;

-- The statement's own functions do not run as the owner of the state, nor do
-- the output of its row or the triggers of the business table.
CREATE TYPE regress_fencing_work.nosy AS ENUM ('nosy');
CREATE FUNCTION regress_fencing_work.whoami() RETURNS text LANGUAGE plpgsql AS 'BEGIN RETURN current_user; END';
CREATE FUNCTION regress_fencing_work.stamp() RETURNS trigger LANGUAGE plpgsql AS
	'BEGIN NEW.by = current_user; RETURN NEW; END';
CREATE FUNCTION regress_fencing_work.nosy_json(regress_fencing_work.nosy) RETURNS json LANGUAGE plpgsql AS
	'BEGIN RETURN json_build_object(''cast_as'', current_user); END';
CREATE CAST (regress_fencing_work.nosy AS json) WITH FUNCTION regress_fencing_work.nosy_json(regress_fencing_work.nosy);
CREATE TABLE regress_fencing_work.stamped (n regress_fencing_work.nosy, by text);
CREATE TRIGGER stamp BEFORE INSERT ON regress_fencing_work.stamped FOR EACH ROW
	EXECUTE FUNCTION regress_fencing_work.stamp();
GRANT ALL ON regress_fencing_work.stamped TO regress_fencing_client;
SET ROLE regress_fencing_client;
SELECT outcome, result FROM fencing_commit('access/secret', :token, '{}', $$
	INSERT INTO regress_fencing_work.stamped VALUES ('nosy') RETURNING n, by, regress_fencing_work.whoami()$$, step => 'who');
RESET ROLE;

--
-- One text, two roles, one backend: a kept plan carries no privileges and no
-- search_path over.
--
CREATE ROLE regress_fencing_a;
CREATE ROLE regress_fencing_b;
SELECT fencing_grant(r, 'client') FROM unnest('{regress_fencing_a,regress_fencing_b}'::regrole[]) r;
CREATE SCHEMA regress_fencing_a;
CREATE SCHEMA regress_fencing_b;
GRANT USAGE ON SCHEMA regress_fencing_a TO regress_fencing_a, regress_fencing_b;
GRANT USAGE ON SCHEMA regress_fencing_b TO regress_fencing_a, regress_fencing_b;
CREATE TABLE regress_fencing_a.mine AS SELECT 'of a'::text AS row_of;
CREATE TABLE regress_fencing_b.mine AS SELECT 2 AS row_of;
GRANT SELECT ON regress_fencing_a.mine TO regress_fencing_a;
GRANT SELECT ON regress_fencing_b.mine TO regress_fencing_b;
SELECT token FROM fencing_acquire('access/two', '00000000-0000-0000-0000-00000000000a') \gset
-- A may, B may not, A may again; then B may and A may not.
SET ROLE regress_fencing_a;
SELECT outcome, result FROM fencing_commit('access/two', :token, '{}', 'SELECT row_of FROM regress_fencing_a.mine', step => 'a1');
SET ROLE regress_fencing_b;
SELECT outcome, result FROM fencing_commit('access/two', :token, '{}', 'SELECT row_of FROM regress_fencing_a.mine', step => 'b1');
SET ROLE regress_fencing_a;
SELECT outcome, result FROM fencing_commit('access/two', :token, '{}', 'SELECT row_of FROM regress_fencing_a.mine', step => 'a2');
RESET ROLE;
REVOKE SELECT ON regress_fencing_a.mine FROM regress_fencing_a;
GRANT SELECT ON regress_fencing_a.mine TO regress_fencing_b;
SET ROLE regress_fencing_a;
SELECT outcome, result FROM fencing_commit('access/two', :token, '{}', 'SELECT row_of FROM regress_fencing_a.mine', step => 'a3');
SET ROLE regress_fencing_b;
SELECT outcome, result FROM fencing_commit('access/two', :token, '{}', 'SELECT row_of FROM regress_fencing_a.mine', step => 'b2');
RESET ROLE;
GRANT SELECT ON regress_fencing_a.mine TO regress_fencing_a;
-- The same setting of search_path leads each role to a schema of his own.
SET search_path = "$user", public;
SET ROLE regress_fencing_a;
SELECT outcome, result FROM fencing_commit('access/two', :token, '{}', 'SELECT row_of FROM mine', step => 'p1');
SET ROLE regress_fencing_b;
SELECT outcome, result FROM fencing_commit('access/two', :token, '{}', 'SELECT row_of FROM mine', step => 'p2');
SET ROLE regress_fencing_a;
SELECT outcome, result FROM fencing_commit('access/two', :token, '{}', 'SELECT row_of FROM mine', step => 'p3');
-- And one role by two settings.
SET search_path = regress_fencing_b, public;
SELECT outcome, result FROM fencing_commit('access/two', :token, '{}', 'SELECT row_of FROM mine', step => 'p4');
SET search_path = regress_fencing_a, public;
SELECT outcome, result FROM fencing_commit('access/two', :token, '{}', 'SELECT row_of FROM mine', step => 'p5');
RESET ROLE;
SET search_path = regress_fencing_access, public;
SELECT step, result FROM fencing.receipts WHERE job_key = 'access/two' ORDER BY step;

--
-- Row security of the business table holds in the statement, also with the
-- plan kept, and row_security = off refuses instead of showing more.
--
CREATE TABLE regress_fencing_work.ledger (holder name, amount int);
INSERT INTO regress_fencing_work.ledger VALUES ('regress_fencing_a', 1), ('regress_fencing_a', 2), ('regress_fencing_b', 10);
ALTER TABLE regress_fencing_work.ledger ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_rows ON regress_fencing_work.ledger USING (holder = current_user);
GRANT USAGE ON SCHEMA regress_fencing_work TO regress_fencing_a, regress_fencing_b;
GRANT ALL ON regress_fencing_work.ledger TO regress_fencing_a, regress_fencing_b;
-- 3 for a, 10 for b, 3 for a; 42501 with row_security off; 13 for a superuser.
SET ROLE regress_fencing_a;
SELECT outcome, result FROM fencing_commit('access/two', :token, '{}', 'SELECT sum(amount) FROM regress_fencing_work.ledger', step => 'r1');
SET ROLE regress_fencing_b;
SELECT outcome, result FROM fencing_commit('access/two', :token, '{}', 'SELECT sum(amount) FROM regress_fencing_work.ledger', step => 'r2');
SET ROLE regress_fencing_a;
SELECT outcome, result FROM fencing_commit('access/two', :token, '{}', 'SELECT sum(amount) FROM regress_fencing_work.ledger', step => 'r3');
SET row_security = off;
SELECT outcome, result FROM fencing_commit('access/two', :token, '{}', 'SELECT sum(amount) FROM regress_fencing_work.ledger', step => 'r4');
-- The state is reached all the same.
SELECT outcome, result FROM fencing_commit('access/two', :token, '{}', 'SELECT 4 AS four', step => 'r4');
RESET row_security;
SELECT outcome, result FROM fencing_commit('access/two', :token, '{}', 'SELECT sum(amount) FROM regress_fencing_work.ledger', step => 'r5');
-- A row of somebody else's is refused by the policy, and nothing remains.
SELECT outcome, result FROM fencing_commit('access/two', :token, '{}',
	'INSERT INTO regress_fencing_work.ledger VALUES (''regress_fencing_b'', 5)', step => 'r6');
SELECT outcome, result FROM fencing_commit('access/two', :token, '{}',
	'INSERT INTO regress_fencing_work.ledger VALUES (''regress_fencing_a'', 5) RETURNING amount', step => 'r6');
SELECT outcome, result FROM fencing_commit('access/two', :token, '{}',
	'WITH u AS (UPDATE regress_fencing_work.ledger SET amount = 0 RETURNING 1) SELECT count(*) FROM u', step => 'r7');
RESET ROLE;
SELECT outcome, result FROM fencing_commit('access/two', :token, '{}', 'SELECT sum(amount) FROM regress_fencing_work.ledger', step => 'r8');
-- Forced upon the owner of the state's tables, row security changes nothing for the functions.
ALTER TABLE fencing.receipts ENABLE ROW LEVEL SECURITY;
ALTER TABLE fencing.receipts FORCE ROW LEVEL SECURITY;
SET ROLE regress_fencing_a;
SELECT outcome, result FROM fencing_commit('access/two', :token, '{}', 'SELECT 4 AS four', step => 'r4');
SELECT outcome, result FROM fencing_commit('access/two', :token, '{}', 'SELECT 9 AS nine', step => 'r9');
RESET ROLE;
ALTER TABLE fencing.receipts NO FORCE ROW LEVEL SECURITY;
ALTER TABLE fencing.receipts DISABLE ROW LEVEL SECURITY;

--
-- Away with it: after the last ungrant the roles have no privilege left.
--
SELECT fencing_ungrant(role::text::regrole, access) FROM (SELECT role, access FROM fencing.grants
	WHERE role LIKE 'regress_fencing_%' AND role <> 'regress_fencing_admin' ORDER BY role OFFSET 0) g;
-- An administrator may take his own.
SET ROLE regress_fencing_admin;
SELECT fencing_ungrant('regress_fencing_admin', 'admin');
SELECT fencing_ungrant('regress_fencing_admin', 'admin');
RESET ROLE;
SELECT count(*) FROM fencing.grants WHERE role LIKE 'regress_fencing_%';
SELECT acls() = :'acls_at_first' AS as_at_first;
DELETE FROM fencing.receipts WHERE job_key LIKE 'access/%';
DELETE FROM fencing.leases WHERE job_key LIKE 'access/%';
DELETE FROM fencing.fences WHERE job_key LIKE 'access/%';
DELETE FROM fencing.revocations WHERE job_key LIKE 'access/%';
UPDATE fencing.floor SET floor = :floor;
DROP SCHEMA regress_fencing_access, regress_fencing_work, regress_fencing_a, regress_fencing_b CASCADE;
DROP ROLE regress_fencing_nobody, regress_fencing_client, regress_fencing_relay, regress_fencing_target,
	regress_fencing_publisher, regress_fencing_external, regress_fencing_admin, regress_fencing_watch,
	regress_fencing_member, regress_fencing_a, regress_fencing_b;
