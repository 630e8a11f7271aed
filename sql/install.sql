--
-- What CREATE EXTENSION makes, and what DROP EXTENSION leaves.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;

SELECT extname, extnamespace::regnamespace, extrelocatable, extversion FROM pg_extension WHERE extname = 'fencing';
SELECT superuser, trusted, relocatable, schema, requires FROM pg_available_extension_versions WHERE name = 'fencing' AND version = '1.0';

CREATE SCHEMA regress_fencing_install;
CREATE VIEW regress_fencing_install.members AS
SELECT d.classid, d.objid, pg_describe_object(d.classid, d.objid, 0) AS object
FROM pg_depend d JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
WHERE e.extname = 'fencing' AND d.deptype = 'e' AND d.objsubid = 0;

-- The members, without the types that come with a table or another type.
SELECT object FROM regress_fencing_install.members m
WHERE NOT EXISTS (SELECT FROM pg_type t WHERE m.classid = 'pg_type'::regclass AND t.oid = m.objid AND (t.typelem <> 0 OR t.typrelid <> 0))
ORDER BY object COLLATE "C";

--
-- Comments: on everything, columns included.
--
SELECT object AS without_comment FROM regress_fencing_install.members m
WHERE obj_description(objid, classid::regclass::name) IS NULL
AND NOT EXISTS (SELECT FROM pg_type t WHERE m.classid = 'pg_type'::regclass AND t.oid = m.objid AND (t.typelem <> 0 OR t.typrelid <> 0))
ORDER BY object COLLATE "C";
SELECT m.object, a.attname AS column_without_comment
FROM regress_fencing_install.members m
JOIN pg_class c ON m.classid = 'pg_class'::regclass AND c.oid = m.objid AND c.relkind IN ('r', 'v')
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE col_description(c.oid, a.attnum) IS NULL ORDER BY 1, a.attnum;
SELECT obj_description(oid, 'pg_extension') IS NOT NULL AS extension_has_comment FROM pg_extension WHERE extname = 'fencing';

--
-- Labels.  What changes something: volatile, unsafe, not strict.  Pure:
-- immutable, strict, safe.  None is SECURITY DEFINER or has settings.
--
SELECT p.pronamespace::regnamespace AS schema, p.proname, p.provolatile, p.proparallel, p.proisstrict, p.prosecdef, p.proretset, p.proconfig, l.lanname
FROM regress_fencing_install.members m JOIN pg_proc p ON m.classid = 'pg_proc'::regclass AND p.oid = m.objid
JOIN pg_language l ON l.oid = p.prolang
ORDER BY 1, 2;
-- Executable by PUBLIC: the pure ones, and the triggers of protected tables.
SELECT p.proname
FROM regress_fencing_install.members m JOIN pg_proc p ON m.classid = 'pg_proc'::regclass AND p.oid = m.objid
WHERE EXISTS (SELECT FROM aclexplode(COALESCE(p.proacl, acldefault('f', p.proowner))) a WHERE a.grantee = 0)
ORDER BY 1;

--
-- State: heap tables, all dumped with their identity sequences, whole.
--
SELECT c.relname, c.relkind, am.amname, c.relpersistence, c.relrowsecurity
FROM pg_class c LEFT JOIN pg_am am ON am.oid = c.relam
WHERE c.relnamespace = 'fencing'::regnamespace AND c.relkind <> 'i' ORDER BY c.relkind, c.relname;
SELECT u.relation AS dumped, u.condition
FROM pg_extension e, unnest(e.extconfig::regclass[], e.extcondition) u(relation, condition)
WHERE e.extname = 'fencing' ORDER BY u.relation::text COLLATE "C";
SELECT c.oid::regclass AS not_dumped
FROM pg_class c WHERE c.relnamespace = 'fencing'::regnamespace AND c.relkind IN ('r', 'S')
AND NOT EXISTS (SELECT FROM pg_extension e WHERE e.extname = 'fencing' AND c.oid = ANY (e.extconfig));
-- Nothing that makes a restore or pg_upgrade fail, or hot rows depend on others.
SELECT conrelid::regclass, conname FROM pg_constraint WHERE connamespace = 'fencing'::regnamespace AND contype NOT IN ('p', 'n');
SELECT tgrelid::regclass, tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid WHERE c.relnamespace = 'fencing'::regnamespace ORDER BY tgrelid::regclass::text, tgname;
SELECT attrelid::regclass, attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
WHERE c.relnamespace = 'fencing'::regnamespace AND atttypid IN ('regproc'::regtype, 'regprocedure'::regtype, 'regoper'::regtype,
	'regoperator'::regtype, 'regconfig'::regtype, 'regdictionary'::regtype, 'regnamespace'::regtype, 'regcollation'::regtype);
-- Keys are compared byte by byte.
SELECT attrelid::regclass, attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
WHERE c.relnamespace = 'fencing'::regnamespace AND c.relkind IN ('r', 'v') AND attname IN ('job_key', 'step')
AND (attcollation <> '"C"'::regcollation OR atttypid <> 'text'::regtype);
-- Heartbeats stay heap-only: one index, and room on the page.
SELECT indkey::text, indisprimary FROM pg_index WHERE indrelid = 'fencing.leases'::regclass;
SELECT 'fillfactor=70' = ANY (reloptions) AS room FROM pg_class WHERE oid = 'fencing.leases'::regclass;
-- The only row that the script put into a dumped table bears this installation's name.
SELECT (SELECT count(*) FROM fencing.floor f, pg_control_system() s, pg_database d
	WHERE f.sysid = s.system_identifier AND f.dboid = d.oid AND d.datname = current_database()
	AND f.reloid = 'fencing.floor'::regclass) AS own_row;

--
-- Settings: one, for administrators, and no misspelt one beside it.
--
SELECT length(fencing_digest('{}')) AS library_loaded;
SELECT name, setting, unit, context, vartype FROM pg_settings WHERE name LIKE 'fencing.%';
SELECT short_desc <> '' AS described FROM pg_settings WHERE name = 'fencing.max_ttl';
SET fencing.max_tll = 1;
SET fencing.max_ttl = 0;
SET fencing.max_ttl = -1;
CREATE ROLE regress_fencing_user;
SET ROLE regress_fencing_user;
SET fencing.max_ttl = 10;
RESET ROLE;
DROP ROLE regress_fencing_user;

--
-- It does not move, and it does not settle in a schema that was there before.
--
ALTER EXTENSION fencing SET SCHEMA regress_fencing_install;
DROP EXTENSION fencing;
CREATE SCHEMA fencing;
CREATE TABLE fencing.grants (trap text);
CREATE EXTENSION fencing;
SELECT count(*) FROM pg_extension WHERE extname = 'fencing';
DROP SCHEMA fencing CASCADE;

-- DROP EXTENSION leaves nothing of it.
SELECT count(*) FROM pg_namespace WHERE nspname = 'fencing';
SELECT typname FROM pg_type WHERE typname ~ 'fencing' AND typname !~ 'regress';
SELECT proname FROM pg_proc WHERE proname ~ 'fencing';
SELECT relname FROM pg_class WHERE relname ~ 'fencing' AND relname !~ 'regress';
SELECT count(*) FROM pg_extension WHERE extname = 'pgcrypto';
SELECT count(*) FROM pg_init_privs WHERE classoid = 'pg_proc'::regclass AND NOT EXISTS (SELECT FROM pg_proc WHERE oid = objoid);
SELECT count(*) FROM pg_shdepend WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
AND classid = 'pg_proc'::regclass AND NOT EXISTS (SELECT FROM pg_proc WHERE oid = objid);
-- The library is loaded still; a call finds no function.
SELECT fencing_digest('{}');

--
-- In a schema of one's own: the functions are there, the state is where it
-- always is, and no search_path is needed.
--
CREATE SCHEMA "regress_fencing Other";
CREATE EXTENSION fencing SCHEMA "regress_fencing Other";
SELECT extnamespace::regnamespace FROM pg_extension WHERE extname = 'fencing';
SELECT DISTINCT p.pronamespace::regnamespace AS schema
FROM regress_fencing_install.members m JOIN pg_proc p ON m.classid = 'pg_proc'::regclass AND p.oid = m.objid ORDER BY 1;
SELECT typnamespace::regnamespace FROM pg_type WHERE typname = 'fencing_outcome';
SET search_path = '';
SELECT fencing_acquire('install/job', '00000000-0000-0000-0000-00000000000a');
SELECT outcome, token FROM "regress_fencing Other".fencing_acquire('install/job', '00000000-0000-0000-0000-00000000000a');
SELECT outcome, token FROM "regress_fencing Other".fencing_renew('install/job', '00000000-0000-0000-0000-00000000000a', 1);
SELECT outcome, result, fence FROM "regress_fencing Other".fencing_commit('install/job', 1, '{"a": 1}', 'SELECT 1 AS one');
SELECT outcome, result, fence FROM "regress_fencing Other".fencing_commit('install/job', 1, '{"a": 1}');
SELECT outcome, result, fence FROM "regress_fencing Other".fencing_commit('install/job', 1, '{"a": 2}');
SELECT digest = pg_catalog.sha256('{"a":1}') AS digest, digest_version FROM "regress_fencing Other".fencing_receipt('install/job', 1);
SELECT outcome FROM "regress_fencing Other".fencing_release('install/job', '00000000-0000-0000-0000-00000000000a', 1);
SELECT "regress_fencing Other".fencing_revoke('install/job', 'test');
SELECT outcome, fence FROM "regress_fencing Other".fencing_advance('install/external', 7);
SELECT "regress_fencing Other".fencing_forget('install/job');
SELECT "regress_fencing Other".fencing_canonical('{"b": 1, "a": 2}');
SELECT job_key, live FROM fencing.lease_status;
SELECT job_key, token FROM fencing.receipt_log;
CREATE ROLE regress_fencing_user;
SELECT "regress_fencing Other".fencing_grant('regress_fencing_user', 'client');
GRANT USAGE ON SCHEMA "regress_fencing Other" TO regress_fencing_user;
SET ROLE regress_fencing_user;
SELECT outcome FROM "regress_fencing Other".fencing_acquire('install/user', '00000000-0000-0000-0000-00000000000a');
SELECT "regress_fencing Other".fencing_revoke('install/user', 'test');
RESET ROLE;
SELECT "regress_fencing Other".fencing_ungrant('regress_fencing_user', 'client');
-- The outcome's type is found there as well.
SELECT 'commited'::"regress_fencing Other".fencing_outcome;
SELECT 'committed'::"regress_fencing Other".fencing_outcome;
RESET search_path;

-- CASCADE brings what it needs.
DROP EXTENSION fencing;
DROP EXTENSION pgcrypto;
CREATE EXTENSION fencing;
CREATE EXTENSION fencing CASCADE;
SELECT extname FROM pg_extension WHERE extname IN ('fencing', 'pgcrypto') ORDER BY extname;
SELECT outcome, token FROM fencing_acquire('install/again', '00000000-0000-0000-0000-00000000000a');
SELECT outcome FROM fencing_commit('install/again', 1, '{}', 'SELECT 1 AS one');
SELECT outcome FROM fencing_release('install/again', '00000000-0000-0000-0000-00000000000a', 1);
DELETE FROM fencing.receipts WHERE job_key LIKE 'install/%';
DELETE FROM fencing.leases WHERE job_key LIKE 'install/%';
DELETE FROM fencing.fences WHERE job_key LIKE 'install/%';
DROP SCHEMA regress_fencing_install, "regress_fencing Other" CASCADE;
DROP ROLE regress_fencing_user;
