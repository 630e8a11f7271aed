--
-- Who somebody is after a call that worked as the owner of the tables, and whom
-- the records name.
--
SET client_min_messages = error;
CREATE ROLE regress_who_admin;
CREATE ROLE regress_who_other;
CREATE ROLE regress_who_owner;
SELECT fencing_grant('regress_who_admin', 'admin');
CREATE SCHEMA regress_who AUTHORIZATION regress_who_admin;
CREATE TABLE regress_who.report (job text);
ALTER TABLE regress_who.report OWNER TO regress_who_admin;

SET ROLE regress_who_admin;
SELECT outcome FROM fencing_acquire('who_did_it', md5('a')::uuid, '1 microsecond');
-- the same role as before, in the same command and after it
SELECT fencing_grant('regress_who_other', 'client'), current_user;
SELECT current_user;
SELECT fencing_ungrant('regress_who_other', 'client'), current_user;
SELECT current_user;
SELECT fencing_revoke('who_did_it', 'test') IS NOT NULL AS revoked, current_user;
SELECT current_user;
SELECT fencing_outbox_emit('who_did_it', '1', 'x', '1') IS NOT NULL AS emitted, current_user;
SELECT outcome, current_user FROM fencing_publish('who_did_it', 0, '1');
SELECT purged IS NOT NULL AS purged, current_user FROM fencing_purge('receipts', '1 day');
SELECT fencing_protect('regress_who.report', 'job'), current_user;
SELECT fencing_unprotect('regress_who.report'), current_user;
SELECT current_user;
-- also after an error that was caught
DO $$
BEGIN
	BEGIN
		PERFORM fencing_outbox_park('who_did_it', 1, gen_random_uuid(), 'x');
	EXCEPTION WHEN OTHERS THEN
		NULL;
	END;
	BEGIN
		PERFORM fencing_publish_force('who_did_it', '2', '');
	EXCEPTION WHEN OTHERS THEN
		NULL;
	END;
	ASSERT current_user = 'regress_who_admin';
END $$;
-- no table can be read
SELECT count(*) FROM fencing.revocations;
RESET ROLE;
-- the session's user did it, whatever role it had, and whoever owns the tables
GRANT regress_who_admin TO regress_who_other;
SET SESSION AUTHORIZATION regress_who_other;
SET ROLE regress_who_admin;
SELECT fencing_revoke('who_did_it', 'by another') IS NOT NULL AS revoked, session_user, current_user;
SELECT fencing_publish_force('who_did_it', '3', 'by another') IS NOT NULL AS published;
RESET SESSION AUTHORIZATION;
RESET ROLE;
SELECT revoked_by FROM fencing.revocations WHERE reason = 'by another';
SELECT actor FROM fencing.revisions WHERE document_id = 'who_did_it' AND note = 'by another';

-- an owner who is not superuser, and forces row security on itself
BEGIN;
DO $$
DECLARE
	t regclass;
BEGIN
	GRANT USAGE ON SCHEMA fencing TO regress_who_owner;
	FOR t IN SELECT oid FROM pg_class WHERE relnamespace = 'fencing'::regnamespace AND relkind = 'r' LOOP
		EXECUTE format('ALTER TABLE %s OWNER TO regress_who_owner', t);
		EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', t);
	END LOOP;
END $$;
SELECT fencing_revoke('who_did_it', 'test') IS NOT NULL AS revoked;
SELECT fencing_outbox_subscribe('who_did_it', true);
ROLLBACK;

DROP SCHEMA regress_who CASCADE;
DELETE FROM fencing.grants;
DROP OWNED BY regress_who_admin, regress_who_other, regress_who_owner;
DROP ROLE regress_who_admin, regress_who_other, regress_who_owner;

\getenv folder PG_ABS_SRCDIR
\set clean_up :folder '/sql/clean_up.psql'
\i :clean_up
