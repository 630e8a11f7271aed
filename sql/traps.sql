--
-- No name in a query of the extension is looked up in the caller's search_path:
-- operators, functions and types of the callers come first in it, and each of
-- them is a trap.
--
SET client_min_messages = error;
CREATE SCHEMA regress_traps;
CREATE SCHEMA regress_traps_own;
CREATE FUNCTION regress_traps_own.may(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS boolean LANGUAGE sql AS $$ SELECT true $$;
DO $$
DECLARE
	o record;
BEGIN
	-- every operator for the types that columns of ours have
	FOR o IN
		SELECT oprname, oprleft::regtype AS l, oprright::regtype AS r, oprresult::regtype AS result, oid
		FROM pg_operator
		WHERE oprkind = 'b' AND oprnamespace = 'pg_catalog'::regnamespace AND oprname IN ('=', '<>', '<', '>', '<=', '>=', '+', '-', '*', '||')
		AND (oprleft::regtype::text = ANY ('{text,name,bigint,integer,uuid,boolean,timestamp with time zone,interval,xid8,pg_lsn,bytea,jsonb,oid,numeric,double precision}')
			AND oprright::regtype::text = ANY ('{text,name,bigint,integer,uuid,boolean,timestamp with time zone,interval,xid8,pg_lsn,bytea,jsonb,oid,numeric,double precision}'))
	LOOP
		EXECUTE format('CREATE FUNCTION regress_traps.operator_%s(%s, %s) RETURNS %s LANGUAGE plpgsql AS $f$ BEGIN RAISE ''trap: operator %% for %% and %%'', %L, %L, %L; END $f$',
			o.oid, o.l, o.r, o.result, o.oprname, o.l, o.r);
		EXECUTE format('CREATE OPERATOR regress_traps.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = regress_traps.operator_%s)', o.oprname, o.l, o.r, o.oid);
	END LOOP;
	-- and every function with up to seven arguments that could be meant
	FOR o IN
		SELECT DISTINCT ON (proname, proargtypes::text) proname, pg_get_function_identity_arguments(oid) AS args
		FROM pg_proc
		WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind = 'f' AND provariadic = 0
		AND proname IN ('clock_timestamp', 'to_timestamp', 'now', 'transaction_timestamp', 'pg_current_xact_id', 'pg_current_xact_id_if_assigned', 'pg_current_snapshot',
			'pg_snapshot_xmin', 'pg_snapshot_xmax', 'pg_visible_in_snapshot', 'inet_client_addr', 'current_database', 'encode', 'unnest', 'pg_prepared_xact', 'setval', 'nextval', 'generate_series')
		AND pg_get_function_identity_arguments(oid) !~ 'OUT|any'
	LOOP
		EXECUTE format('CREATE FUNCTION regress_traps.%I(%s) RETURNS text LANGUAGE plpgsql AS $f$ BEGIN RAISE ''trap: function %%'', %L; END $f$', o.proname, o.args, o.proname);
	END LOOP;
END $$;
CREATE FUNCTION regress_traps.trapped(bigint, anyelement) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE 'trap: aggregate'; END $$;
CREATE FUNCTION regress_traps.trapped(bigint) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE 'trap: count'; END $$;
CREATE AGGREGATE regress_traps.count(*) (SFUNC = regress_traps.trapped, STYPE = bigint, INITCOND = '0');
CREATE AGGREGATE regress_traps.max(bigint) (SFUNC = regress_traps.trapped, STYPE = bigint, INITCOND = '0');
CREATE AGGREGATE regress_traps.min(bigint) (SFUNC = regress_traps.trapped, STYPE = bigint, INITCOND = '0');
CREATE AGGREGATE regress_traps.sum(bigint) (SFUNC = regress_traps.trapped, STYPE = bigint, INITCOND = '0');
CREATE FUNCTION regress_traps.jsonb_build_object(VARIADIC text[]) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE 'trap: jsonb_build_object'; END $$;
CREATE FUNCTION regress_traps.jsonb_build_object(text, text, text, bigint, text, bigint, text, text, text, text, text, integer, text, uuid) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE 'trap: jsonb_build_object'; END $$;
CREATE DOMAIN regress_traps.xid8 AS pg_catalog.int4;
CREATE DOMAIN regress_traps.regclass AS pg_catalog.int4;
CREATE TABLE regress_traps_own.report (job text);
SELECT count(*) > 100 AS traps FROM pg_operator WHERE oprnamespace = 'regress_traps'::regnamespace;

-- the plans are of this session
\c -
SET client_min_messages = error;
SET search_path = regress_traps, pg_catalog, public;
-- they are there
SELECT 'a'::text = 'a'::text;
SELECT count(*);
-- and no call of the extension meets them
SELECT outcome FROM fencing_acquire('traps', 'a0000000-0000-0000-0000-000000000000', '1 day');
SELECT outcome FROM fencing_renew('traps', 'a0000000-0000-0000-0000-000000000000', 9223372036854775807);
SELECT fencing_revoke('traps', 'test') IS NOT NULL AS revoked;
SELECT outcome FROM fencing_acquire('traps', 'b0000000-0000-0000-0000-000000000000', '1 microsecond') \gset
SELECT outcome FROM fencing_advance('traps/x', 5);
SELECT outcome FROM fencing_commit('traps/x', 5, '1', 'SELECT 1');
SELECT outcome FROM fencing_advance('traps/x', 6);
SELECT purged IS NOT NULL AS purged FROM fencing_purge('receipts', '1 microsecond');
SELECT fencing_forget('traps');
SELECT fencing_define_operation('traps', 'regress_traps_own.may(text,text,jsonb,jsonb)', '1 microsecond', '2 microseconds');
SELECT fencing_define_request('traps', 1, 'true');
SELECT outcome FROM fencing_once('t', 'traps', 'k', '1', 'SELECT 1');
BEGIN;
SELECT outcome FROM fencing_once('t', 'traps', 'open', '1'), fencing_once_respond('t', 'traps', 'open', '1');
COMMIT;
SELECT fencing_define_request('traps', 2, 'true');
SELECT fencing_retire_request('traps', 1);
SELECT purged IS NOT NULL AS purged FROM fencing_purge('records', '1 microsecond');
SELECT fencing_outbox_subscribe('traps', true);
SELECT token FROM fencing_acquire('traps', 'a0000000-0000-0000-0000-000000000000', '1 day') \gset
SELECT fencing_outbox_emit('traps', '1', 'one', '1') AS one \gset
SELECT fencing_outbox_emit('traps', '1', 'two', '1') AS two \gset
SELECT type FROM fencing_outbox_read('traps', :token) WHERE aggregate_type OPERATOR(pg_catalog.=) 'traps';
SELECT fencing_outbox_park('traps', :token, :'one', 'bad');
SELECT fencing_outbox_park('traps', :token, :'one', NULL);
SELECT fencing_outbox_ack('traps', :token, ARRAY[:'one']::uuid[]);
SELECT fencing_outbox_ack('traps', :token, ARRAY[:'one']::uuid[]);
SELECT purged IS NOT NULL AS purged FROM fencing_purge('events', '1 microsecond');
SELECT outcome FROM fencing_publish('traps', 0, '1');
SELECT outcome FROM fencing_publish_rollback('traps', 1, 1, 'again');
SELECT outcome FROM fencing_publish_force('traps', '3', 'test');
SELECT version FROM fencing_publish_current('traps');
SELECT version FROM fencing_publish_current('traps') c, fencing_publish_revision(c.revision) r(document_id, revised);
SELECT fencing_target_desire('traps', 't');
SELECT outcome FROM fencing_apply('traps', 't', 1, fencing_digest('1'), statement => 'SELECT 1');
SELECT outcome, token AS writer FROM fencing_apply_begin('traps', 't', 'a0000000-0000-0000-0000-000000000000') \gset
SELECT fencing_apply_observe('traps', 't', :writer, 3, fencing_digest('3'));
SELECT outcome FROM fencing_publish_delete('traps', 3, 'gone');
SELECT fencing_apply_reject('traps', 't', 4, 'bad');
SELECT fencing_protect('regress_traps_own.report', 'job');
SELECT fencing_protect('regress_traps_own.report', job_key => 'traps');
SELECT fencing_unprotect('regress_traps_own.report');
SELECT fencing_grant('pg_monitor', 'client');
SELECT fencing_ungrant('pg_monitor', 'client');
SELECT fencing_outbox_unsubscribe('traps');
-- a view is what it was made of
SELECT live FROM fencing.lease_status LIMIT 0;
SELECT consumer FROM fencing.outbox_status LIMIT 0;
SELECT lag FROM fencing.rollout_status LIMIT 0;
SELECT operation FROM fencing.operation_status LIMIT 0;

RESET search_path;
\c -
SET client_min_messages = error;
DROP SCHEMA regress_traps, regress_traps_own CASCADE;

\getenv folder PG_ABS_SRCDIR
\set clean_up :folder '/sql/clean_up.psql'
\i :clean_up
