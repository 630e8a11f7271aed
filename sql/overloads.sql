--
-- Functions of others that are called like the extension's, in its own schema:
-- they are neither granted nor taken with its own, and whoever may call one of
-- them has no access by that.
--
SET client_min_messages = error;
CREATE ROLE regress_overload_owner;
CREATE ROLE regress_overload_client;
SELECT pronamespace::regnamespace AS schema FROM pg_proc WHERE oid = 'fencing_acquire(text, uuid, interval)'::regprocedure \gset
CREATE FUNCTION :schema.fencing_acquire(int) RETURNS int LANGUAGE sql AS $$ SELECT 1 $$;
CREATE FUNCTION :schema.fencing_revoke(int) RETURNS int LANGUAGE sql AS $$ SELECT 1 $$;
ALTER FUNCTION :schema.fencing_acquire(int) OWNER TO regress_overload_owner;
REVOKE ALL ON FUNCTION :schema.fencing_acquire(int), :schema.fencing_revoke(int) FROM PUBLIC;
CREATE FUNCTION pg_temp.may(VARIADIC functions text[]) RETURNS text LANGUAGE sql AS $$
SELECT string_agg(f || ' ' || has_function_privilege('regress_overload_client', f, 'EXECUTE'), ', ') FROM unnest(functions) f
$$;
CREATE FUNCTION pg_temp.acl() RETURNS SETOF aclitem[] LANGUAGE sql AS $$
SELECT proacl FROM pg_proc WHERE oid IN ('fencing_acquire(int)'::regprocedure, 'fencing_revoke(int)'::regprocedure) ORDER BY proname
$$;

SELECT fencing_grant('regress_overload_client', 'client');
SELECT fencing_grant('regress_overload_client', 'admin');
SELECT pg_temp.may('fencing_acquire(text, uuid, interval)', 'fencing_revoke(text, text)', 'fencing_acquire(int)', 'fencing_revoke(int)');
SELECT array_to_string(acl, ' ') LIKE '%overload_client%' AS granted FROM pg_temp.acl() acl;
SELECT fencing_ungrant('regress_overload_client', 'admin');
SELECT pg_temp.may('fencing_acquire(text, uuid, interval)', 'fencing_revoke(text, text)', 'fencing_acquire(int)', 'fencing_revoke(int)');

-- what others have granted stays
GRANT EXECUTE ON FUNCTION :schema.fencing_acquire(int), :schema.fencing_revoke(int) TO regress_overload_client;
SELECT fencing_ungrant('regress_overload_client', 'client');
SELECT fencing_ungrant('regress_overload_client', 'admin');
SELECT pg_temp.may('fencing_acquire(text, uuid, interval)', 'fencing_revoke(text, text)', 'fencing_acquire(int)', 'fencing_revoke(int)');
-- and is no access: what has been lost by hand is forgotten
SELECT fencing_grant('regress_overload_client', 'admin');
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA :schema FROM regress_overload_client;
GRANT EXECUTE ON FUNCTION :schema.fencing_acquire(int), :schema.fencing_revoke(int) TO regress_overload_client;
SELECT fencing_grant('regress_overload_client', 'external');
SELECT access FROM fencing.grants WHERE role = 'regress_overload_client' ORDER BY access;

DROP FUNCTION :schema.fencing_acquire(int), :schema.fencing_revoke(int);
DROP OWNED BY regress_overload_client, regress_overload_owner;
DELETE FROM fencing.grants;
DROP ROLE regress_overload_client, regress_overload_owner;
