--
-- A caller whose search_path has types of his own before those of PostgreSQL.
-- A cast in a query of ours that took one would execute his code as the owner
-- of the state tables.
--
SET client_min_messages = warning;
UPDATE fencing.floor SET floor = 0;
CREATE SCHEMA regress_hostile;
CREATE FUNCTION regress_hostile.caught() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'a type of the caller was used, as %', current_user;
END $$;
-- every base type of PostgreSQL that can be a column, with a check that tells
DO $$
DECLARE
	t record;
BEGIN
	FOR t IN SELECT typname FROM pg_type
		WHERE typnamespace = 'pg_catalog'::regnamespace AND typtype = 'b' AND typelem = 0
	LOOP
		EXECUTE format('CREATE DOMAIN regress_hostile.%I AS pg_catalog.%I CHECK (regress_hostile.caught())', t.typname, t.typname);
	END LOOP;
END $$;
CREATE TABLE regress_hostile.guarded (job_key pg_catalog.text);
CREATE FUNCTION public.regress_may(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS boolean LANGUAGE sql AS 'SELECT true';

SET search_path = regress_hostile, pg_catalog, public;
SELECT '1'::xid8;

-- plans are kept per connection: a new one has none
\c -
SET client_min_messages = warning;
SET search_path = regress_hostile, pg_catalog, public;
SELECT outcome FROM fencing_acquire('hostile/a', '00000000-0000-0000-0000-00000000000a');
SELECT outcome FROM fencing_renew('hostile/a', '00000000-0000-0000-0000-00000000000a', 1);
SELECT outcome, result FROM fencing_commit('hostile/a', 1, '{"a": 1}', 'SELECT 1 AS one');
SELECT outcome FROM fencing_commit('hostile/a', 1, '{"a": 1}');
SELECT digest_version FROM fencing_receipt('hostile/a', 1);
SELECT outcome FROM fencing_release('hostile/a', '00000000-0000-0000-0000-00000000000a', 1);
SELECT fencing_revoke('hostile/a', 'why');
SELECT outcome FROM fencing_advance('hostile/x', 7);
SELECT purged FROM fencing_purge('receipts', '1 year');
SELECT fencing_forget('hostile/a');
SELECT fencing_protect('regress_hostile.guarded', 'job_key');
SELECT fencing_unprotect('regress_hostile.guarded');

SELECT fencing_define_operation('hostile/op', 'public.regress_may(pg_catalog.text, pg_catalog.text, pg_catalog.jsonb, pg_catalog.jsonb)');
SELECT fencing_define_request('hostile/op', 1, '{}'), fencing_define_request('hostile/op', 2, '{"title": "two"}'), fencing_retire_request('hostile/op', 1);
SELECT outcome, result FROM fencing_once('t', 'hostile/op', 'k', '1', 'SELECT 1 AS one');
SELECT outcome FROM fencing_once('t', 'hostile/op', 'k', '1');
BEGIN;
SELECT outcome FROM fencing_once('t', 'hostile/op', 'l', '1');
SELECT fencing_once_respond('t', 'hostile/op', 'l', '2');
COMMIT;
SELECT fencing_request_canonical('hostile/op', 2, '1');
SELECT purged FROM fencing_purge('records', '1 year');

SELECT fencing_outbox_subscribe('hostile/c', true), fencing_outbox_subscribe('hostile/d', false);
SELECT outcome FROM fencing_acquire('hostile/c', '00000000-0000-0000-0000-00000000000a');
SELECT fencing_outbox_emit('hostile', '1', 'a', '1') IS NOT NULL AS emitted;
SELECT outcome, type FROM fencing_outbox_read('hostile/c', 3);
SELECT outcome FROM fencing_outbox_park('hostile/c', 3, (SELECT id FROM fencing.outbox WHERE aggregatetype = 'hostile'), 'why');
SELECT outcome FROM fencing_outbox_park('hostile/c', 3, (SELECT id FROM fencing.outbox WHERE aggregatetype = 'hostile'), NULL);
SELECT outcome, acked FROM fencing_outbox_ack('hostile/c', 3, ARRAY(SELECT id FROM fencing.outbox WHERE aggregatetype = 'hostile'));
SELECT fencing_outbox_unsubscribe('hostile/c'), fencing_outbox_unsubscribe('hostile/d');

SELECT outcome, version FROM fencing_publish('hostile', 0, '1');
SELECT outcome, version FROM fencing_publish_rollback('hostile', 1, 1);
SELECT outcome, version FROM fencing_publish_delete('hostile', 2);
SELECT outcome, version FROM fencing_publish_force('hostile', '4', 'why');
SELECT version, content FROM fencing_publish_current('hostile');
SELECT (fencing_publish_revision(revision)).version FROM fencing.revision_history WHERE document_id = 'hostile' AND latest;
SELECT fencing_target_desire('hostile', 't'), fencing_target_desire('hostile', 'u', 4);
SELECT outcome FROM fencing_apply('hostile', 't', 4, fencing_digest('4'), statement => 'SELECT 1');
SELECT outcome, version FROM fencing_apply_begin('hostile', 'u', '00000000-0000-0000-0000-00000000000a');
SELECT outcome FROM fencing_apply_observe('hostile', 'u', 3, NULL, NULL);
SELECT outcome FROM fencing_apply_observe('hostile', 'u', 3, 4, fencing_digest('4'));
SELECT outcome FROM fencing_apply_reject('hostile', 'u', 4, 'why');
SELECT more FROM fencing_purge('events', '1 microsecond', 1000000);

SELECT live FROM fencing.lease_status WHERE job_key = 'hostile/c';
SELECT tombstones FROM fencing.operation_status WHERE operation = 'hostile/op' ORDER BY hash_version;
SELECT consumer FROM fencing.outbox_status;
SELECT target_id, lag FROM fencing.rollout_status WHERE document_id = 'hostile' ORDER BY target_id;
BEGIN;
SELECT fencing_new_epoch('why');
ROLLBACK;

SET search_path = public;
SET session_replication_role = replica;
DELETE FROM fencing.revisions;
RESET session_replication_role;
DELETE FROM fencing.documents;
DELETE FROM fencing.targets;
DELETE FROM fencing.records;
DELETE FROM fencing.request_schemas WHERE operation = 'hostile/op';
DELETE FROM fencing.operations WHERE operation = 'hostile/op';
DELETE FROM fencing.receipts;
DELETE FROM fencing.leases;
DELETE FROM fencing.fences;
DELETE FROM fencing.revocations;
UPDATE fencing.floor SET floor = 0;
DROP FUNCTION regress_may;
DROP SCHEMA regress_hostile CASCADE;
