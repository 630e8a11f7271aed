--
-- A call that wrote nothing leaves no lock behind in its transaction: none on a
-- key or a row, and none on a table that would keep others out, such as the one
-- that everybody has who judges by the epoch.
--
SET client_min_messages = error;
CREATE SCHEMA regress_locks_left;
SET search_path = regress_locks_left, public;
CREATE FUNCTION who(text) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$ SELECT md5($1)::uuid $$;
CREATE FUNCTION may(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS boolean LANGUAGE sql AS $$ SELECT auth IS NULL $$;
SELECT fencing_define_operation('locks_left', 'may(text,text,jsonb,jsonb)');
SELECT fencing_define_request('locks_left', 1, 'true');
SELECT (fencing_acquire('locks_left', who('a'), '1 day')).token AS t \gset
SELECT outcome FROM fencing_commit('locks_left', :t, '1', 'SELECT 1');
SELECT outcome FROM fencing_once('t', 'locks_left', 'k', '1', 'SELECT 1');
SELECT outcome FROM fencing_advance('locks_left/x', 5);
SELECT outcome FROM fencing_publish('locks_left', 0, '1');
SELECT fencing_target_desire('locks_left', 't');
SELECT outcome FROM fencing_apply('locks_left', 't', 1, fencing_digest('1'), statement => 'SELECT 1');
SELECT fencing_outbox_subscribe('locks_left/relay', true);
SELECT (fencing_acquire('locks_left/relay', who('a'), '1 day')).token AS r \gset
SELECT outcome FROM fencing_outbox_ack('locks_left/relay', :r, ARRAY(SELECT id FROM fencing_outbox_read('locks_left/relay', :r)));
SELECT fencing_outbox_subscribe('locks_left/counts', true);
SELECT (fencing_acquire('locks_left/counts', who('a'), '1 day')).token AS rc \gset
SELECT job_key AS target_job, token AS target_token FROM fencing_apply_begin('locks_left', 't', who('a')) \gset
SELECT f.token AS old FROM fencing.fences f WHERE job_key = 'locks_left' \gset

-- in a transaction of its own, with what is left of it
CREATE FUNCTION left_behind() RETURNS text LANGUAGE sql AS $$
SELECT coalesce(string_agg(DISTINCT coalesce(relation::regclass::text, locktype) || ' ' || mode, ', '), 'nothing')
FROM pg_locks WHERE pid = pg_backend_pid() AND granted
AND (locktype IN ('advisory', 'tuple') AND mode = 'ExclusiveLock'
	OR relation::regclass::text LIKE 'fencing.%' AND mode <> 'AccessShareLock'
	OR relation = 'fencing.floor'::regclass)
$$;
CREATE FUNCTION try(call text, OUT answer text, OUT leaves text) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE 'SELECT (SELECT x.outcome FROM ' || call || ' AS x(outcome) LIMIT 1)' INTO answer;
	leaves := left_behind();
END $$;
-- after those that were for writing only, nothing is left of what goes before either
SELECT c.n, t.* FROM (VALUES
	(1, format('fencing_acquire(%L, who(%L))', 'locks_left', 'b')),
	(2, format('fencing_renew(%L, who(%L), %s)', 'locks_left', 'b', :t)),
	(3, format('fencing_renew(%L, who(%L), %s)', 'nobody knows it', 'b', :t)),
	(4, format('fencing_release(%L, who(%L), %s)', 'locks_left', 'b', :t)),
	(5, format('fencing_commit(%L, %s, %L, %L)', 'locks_left', :t, '1', 'SELECT 1')),
	(6, format('fencing_commit(%L, %s, %L, %L)', 'locks_left', :t, '2', 'SELECT 1')),
	(7, format('fencing_once(%L, %L, %L, %L, %L)', 't', 'locks_left', 'k', '1', 'SELECT 1')),
	(8, format('fencing_once(%L, %L, %L, %L, %L)', 't', 'locks_left', 'k', '2', 'SELECT 1')),
	(9, format('fencing_once(%L, %L, %L, %L, %L, %L)', 't', 'locks_left', 'new', '2', 'SELECT 1', '{}')),
	(10, format('fencing_advance(%L, 5)', 'locks_left/x')),
	(11, format('fencing_advance(%L, 4)', 'locks_left/x')),
	(12, format('fencing_publish(%L, 0, %L)', 'locks_left', '1')),
	(13, format('fencing_publish(%L, 0, %L)', 'locks_left', '2')),
	(14, format('fencing_apply(%L, %L, 1, fencing_digest(%L), statement => %L)', 'locks_left', 't', '1', 'SELECT 1')),
	(15, format('fencing_apply_begin(%L, %L, who(%L))', 'locks_left', 't', 'a')),
	(16, format('fencing_apply_reject(%L, %L, 1, %L)', 'locks_left', 't', 'bad')),
	(17, format('fencing_target_desire(%L, %L)', 'locks_left', 't')),
	(18, format('fencing_outbox_read(%L, %s)', 'locks_left/relay', :r)),
	(19, format('fencing_outbox_ack(%L, %s, ARRAY[who(%L)])', 'locks_left/relay', :r, 'no event')),
	(20, format('fencing_outbox_park(%L, %s, who(%L), %L)', 'locks_left/relay', :r, 'no event', 'bad')),
	(21, 'fencing_receipt(''locks_left'', 1)'),
	(22, '(SELECT fencing.epoch_start() IS NOT NULL)'),
	(23, '(SELECT fencing_outbox_subscribe(''locks_left/relay'', true)::text)'),
	-- one that delivers counts, under a lock that nobody waits for
	(24, format('fencing_outbox_read(%L, %s)', 'locks_left/counts', :rc))) c(n, call), try(c.call) t ORDER BY c.n;
DROP SCHEMA regress_locks_left CASCADE;

\getenv folder PG_ABS_SRCDIR
\set clean_up :folder '/sql/clean_up.psql'
\i :clean_up
