--
-- Retention: what fencing_purge() takes, what it leaves, and what becomes of
-- the retry that comes too late.
--
\set VERBOSITY sqlstate
SET client_min_messages = error;
UPDATE fencing.floor SET floor = 0;
-- A purge goes on where the last one ended, also one that was rolled back.
CREATE FUNCTION pg_temp.from_start() RETURNS void LANGUAGE sql AS $$ SELECT setval('fencing.purge_receipts_position', 0) $$;
TRUNCATE fencing.receipts;
SELECT pg_temp.from_start();

-- Every issue of a token, and every receipt, with a job: tokens count from 1.
-- Receipts are aged by hand, in minutes.
CREATE FUNCTION pg_temp.issue(job text, n int DEFAULT 1) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. n LOOP
		PERFORM fencing_acquire(job, md5('A')::uuid, '1 microsecond');
	END LOOP;
END $$;
CREATE FUNCTION pg_temp.receipt(job text, token bigint, age int, step text DEFAULT '') RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO fencing.receipts
	SELECT job, token, step, fencing_digest('1'), 1, '{"is": "kept"}', clock_timestamp() - make_interval(mins => age);
END $$;
-- the retry of a commit
CREATE FUNCTION pg_temp.retry(job text, token bigint, step text DEFAULT '', payload jsonb DEFAULT '1') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	r record;
BEGIN
	SELECT * INTO r FROM fencing_commit(job, token, payload, 'SELECT 1 AS was_run', step);
	RETURN concat_ws(' ', r.outcome, r.result);
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
CREATE TEMP VIEW fences AS SELECT job_key, token, purged_through, external FROM fencing.fences WHERE job_key LIKE 'purge/%' ORDER BY 1;
CREATE TEMP VIEW left_over AS SELECT job_key, string_agg(token || step, ' ' ORDER BY token, step COLLATE "C") AS receipts
FROM fencing.receipts WHERE job_key LIKE 'purge/%' GROUP BY 1 ORDER BY 1;

--
-- By age; never the current token's
--
SELECT pg_temp.issue('purge/a', 4);
SELECT count(pg_temp.receipt('purge/a', token, age)) FROM (VALUES (1, 180), (2, 121), (3, 119), (4, 600)) v (token, age);
SELECT * FROM fencing_purge('receipts', '3 hours 1 minute');
SELECT * FROM fences;
SELECT * FROM fencing_purge('receipts', '2 hours');
SELECT * FROM left_over;
SELECT * FROM fences;
-- pruned, and not committed, under any step and payload; what is younger replays
SELECT token, step, payload, pg_temp.retry('purge/a', token, step, payload)
FROM generate_series(1, 5) token, (VALUES ('', '1'::jsonb), ('', '2'), ('step', '1')) v (step, payload)
WHERE token <> 4 OR step = '' ORDER BY 1, 2, 3;
SELECT count(*) FROM fencing_receipt('purge/a', 1);
SELECT outcome, result, committed_at, fence, error FROM fencing_commit('purge/a', 1, '1');
SELECT outcome, error FROM fencing_commit('purge/a', 1, '1', 'SELECT 1', report_errors => true);
SELECT outcome FROM fencing_commit('purge/a', 1, '1', strict => true);
-- again: nothing
SELECT * FROM fencing_purge('receipts', '2 hours');
-- The current token's become fair game when it is not current any more.
SELECT pg_temp.issue('purge/a');
SELECT * FROM fencing_purge('receipts', '2 hours');
SELECT * FROM left_over;
-- token 3's receipt is younger and there, its other steps are told pruned
SELECT * FROM fences;
SELECT token, pg_temp.retry('purge/a', token), pg_temp.retry('purge/a', token, 'step') AS step FROM generate_series(3, 4) token;
-- a later purge of a lower token does not lower it
SELECT * FROM fencing_purge('receipts', '1 hour');
SELECT * FROM fences;
-- the holder goes on
SELECT pg_temp.retry('purge/a', 5), pg_temp.retry('purge/a', 5);
-- released, ended or revoked: a lease's state does not matter, the fence does
SELECT pg_temp.issue('purge/released');
SELECT pg_temp.receipt('purge/released', 1, 600);
SELECT fencing_release('purge/released', md5('A')::uuid, 1);
SELECT * FROM fencing_purge('receipts', '1 hour');
SELECT fencing_revoke('purge/released', 'test');
SELECT * FROM fencing_purge('receipts', '1 hour');
SELECT pg_temp.retry('purge/released', 1), pg_temp.retry('purge/released', 2);

--
-- Steps
--
SELECT pg_temp.issue('purge/steps', 3);
SELECT count(pg_temp.receipt('purge/steps', token, age, step)) FROM (VALUES
	(1, 180, 'a'), (1, 170, 'b'), (1, 10, 'c'), (2, 160, 'a'), (2, 9, 'b'), (3, 600, 'a'), (3, 1, 'b')) v (token, age, step);
SELECT * FROM fencing_purge('receipts', '2 hours');
SELECT * FROM left_over WHERE job_key = 'purge/steps';
SELECT * FROM fences WHERE job_key = 'purge/steps';
SELECT token, step, pg_temp.retry('purge/steps', token, step)
FROM generate_series(1, 3) token, unnest('{a,b,c,d}'::text[]) step WHERE token < 3 OR step < 'c' ORDER BY 1, 2;

--
-- External jobs: likewise, by the announced token
--
SELECT outcome FROM fencing_advance('purge/x', 100);
SELECT pg_temp.receipt('purge/x', 100, 300);
SELECT * FROM fencing_purge('receipts', '1 hour');
SELECT outcome FROM fencing_advance('purge/x', 200);
SELECT pg_temp.receipt('purge/x', 200, 300);
SELECT * FROM fencing_purge('receipts', '1 hour');
SELECT * FROM fences WHERE external;
SELECT token, pg_temp.retry('purge/x', token), pg_temp.retry('purge/x', token, 'step') AS step FROM unnest('{1,100,150,200,201}'::bigint[]) token;
SELECT * FROM fencing_advance('purge/x', 150);
SELECT * FROM fencing_advance('purge/x', 201);

--
-- max_rows and more; several jobs; from where the last call ended
--
TRUNCATE fencing.receipts;
SELECT pg_temp.from_start();
SELECT count(pg_temp.issue('purge/' || j, 3)) FROM unnest('{j,k,l}'::text[]) j;
SELECT count(pg_temp.receipt('purge/' || j, token, age, step)) FROM (VALUES
	('j', 1, 200, 'a'), ('k', 1, 199, 'a'), ('l', 1, 198, 'a'), ('j', 1, 197, 'b'), ('k', 2, 196, 'a'), ('j', 2, 195, 'a'), ('l', 2, 194, 'a'),
	('j', 2, 1, 'b'), ('l', 3, 500, 'a')) v (j, token, age, step);
CREATE FUNCTION pg_temp.purge_all(rows_at_a_time int) RETURNS TABLE (call bigint, at_most boolean) LANGUAGE plpgsql AS $$
DECLARE
	r record;
BEGIN
	at_most := true;
	call := 0;
	LOOP
		SELECT * INTO r FROM fencing_purge('receipts', '1 hour', rows_at_a_time);
		at_most := at_most AND r.purged <= rows_at_a_time;
		call := call + r.purged;
		EXIT WHEN NOT r.more;
	END LOOP;
	RETURN NEXT;
END $$;
BEGIN;
SELECT * FROM fencing_purge('receipts', '1 hour', 3);
SELECT * FROM left_over;
SELECT job_key, purged_through FROM fences WHERE job_key IN ('purge/j', 'purge/k', 'purge/l');
SELECT * FROM fencing_purge('receipts', '1 hour', 3);
SELECT * FROM left_over;
SELECT job_key, purged_through FROM fences WHERE job_key IN ('purge/j', 'purge/k', 'purge/l');
SELECT * FROM fencing_purge('receipts', '1 hour', 3);
SELECT * FROM left_over;
SELECT job_key, purged_through FROM fences WHERE job_key IN ('purge/j', 'purge/k', 'purge/l');
-- rolled back, all is as before
ROLLBACK;
SELECT pg_temp.from_start();
SELECT * FROM left_over;
SELECT job_key, purged_through FROM fences WHERE job_key IN ('purge/j', 'purge/k', 'purge/l');
SELECT pg_temp.retry('purge/j', 1, 'a');
BEGIN;
SAVEPOINT s;
SELECT * FROM fencing_purge('receipts', '1 hour', 1);
SELECT pg_temp.retry('purge/j', 1, 'a');
ROLLBACK TO s;
SELECT pg_temp.retry('purge/j', 1, 'a');
COMMIT;
SELECT pg_temp.from_start();
-- "more" until nothing is left, however many at a time
BEGIN;
SELECT * FROM pg_temp.purge_all(1);
SELECT * FROM left_over;
ROLLBACK;
SELECT pg_temp.from_start();
BEGIN;
SELECT * FROM pg_temp.purge_all(7);
SELECT * FROM left_over;
ROLLBACK;
SELECT pg_temp.from_start();
BEGIN;
SELECT * FROM fencing_purge('receipts', '1 hour', 8);
SELECT * FROM left_over;
ROLLBACK;
SELECT pg_temp.from_start();
BEGIN;
SELECT * FROM fencing_purge('receipts', '1 hour', 2147483647);
ROLLBACK;
SELECT pg_temp.from_start();
-- A holder that keeps its token for months does not stand in the way of others.
SELECT pg_temp.issue('purge/keeper');
SELECT count(pg_temp.receipt('purge/keeper', 1, 10000 + i, i::text)) FROM generate_series(1, 500) i;
SELECT * FROM pg_temp.purge_all(2);
SELECT job_key, count(*) FROM fencing.receipts WHERE job_key LIKE 'purge/%' GROUP BY 1 ORDER BY 1;
-- The default: ten thousand rows a call
SELECT count(pg_temp.issue('purge/many/' || j, 2)) FROM generate_series(1, 50) j;
SELECT count(pg_temp.receipt('purge/many/' || j, 1, 100, i::text)) FROM generate_series(1, 50) j, generate_series(1, 250) i;
SELECT purged, more FROM fencing_purge('receipts', '1 hour');
SELECT purged, more FROM fencing_purge('receipts', '1 hour');
SELECT count(*) FROM fencing.receipts WHERE job_key LIKE 'purge/many/%';
SELECT purged_through, count(*) FROM fences WHERE job_key LIKE 'purge/many/%' GROUP BY 1;
-- Of one transaction: a receipt of its own, and a token that it moved itself
BEGIN;
SELECT pg_temp.issue('purge/own');
SELECT pg_temp.retry('purge/own', 1);
SELECT count(*) FROM fencing_purge('receipts', '1 microsecond', 1000000);
SELECT pg_temp.issue('purge/own');
SELECT pg_temp.retry('purge/own', 1);
SELECT purged > 0 AS purged FROM fencing_purge('receipts', '1 microsecond', 1000000);
SELECT pg_temp.retry('purge/own', 1);
ROLLBACK;
SELECT pg_temp.from_start();
-- A purge keeps tokens and leases as they are.
SELECT pg_temp.issue('purge/lease');
SELECT outcome FROM fencing_acquire('purge/lease', md5('A')::uuid, '1 hour');
SELECT pg_temp.receipt('purge/lease', 1, 100);
SELECT * FROM fencing_purge('receipts', '1 hour');
SELECT * FROM fences WHERE job_key = 'purge/lease';
SELECT outcome FROM fencing_renew('purge/lease', md5('A')::uuid, 2);
SELECT live FROM fencing.lease_status WHERE job_key = 'purge/lease';
-- Forgotten and issued on: what was purged stays so.
SELECT fencing_release('purge/lease', md5('A')::uuid, 2);
SELECT fencing_forget('purge/lease');
SELECT pg_temp.issue('purge/lease');
SELECT * FROM fences WHERE job_key = 'purge/lease';
SELECT token, pg_temp.retry('purge/lease', token) FROM generate_series(1, 3) token;
UPDATE fencing.floor SET floor = 0;

--
-- Arguments
--
CREATE FUNCTION pg_temp.purge(kind text, older_than interval, max_rows int DEFAULT 10) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	r record;
BEGIN
	SELECT * INTO r FROM fencing_purge(kind, older_than, max_rows);
	RETURN r.purged;
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
TRUNCATE fencing.receipts;
SELECT pg_temp.from_start();
SELECT pg_temp.receipt('purge/a', 1, 60 * 24 * 45);
SELECT kind, pg_temp.purge(kind, '1 hour') FROM unnest(ARRAY[NULL, '', 'receipt', 'Receipts', ' receipts', 'record', 'event']) kind;
SELECT pg_temp.purge('receipts', NULL) AS older_than, pg_temp.purge('receipts', '1 hour', NULL) AS max_rows;
SELECT n, pg_temp.purge('receipts', '1 hour', n) FROM unnest('{0,-1,-2147483648}'::int[]) n;
SELECT i, pg_temp.purge('receipts', i::interval) FROM unnest('{0,-1 microsecond,-1 hour,1 day -24 hours,1 month -31 days,1 day -25 hours,-1 year}'::text[]) i;
-- infinite: a value since PostgreSQL 17
CREATE FUNCTION pg_temp.infinite(i text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	IF current_setting('server_version_num')::int < 170000 THEN
		RETURN '22023';
	END IF;
	RETURN pg_temp.purge('receipts', i::interval);
END $$;
SELECT i, pg_temp.infinite(i) FROM unnest('{infinity,-infinity}'::text[]) i;
-- as long ago as an interval reaches: nothing is that old
SELECT i, pg_temp.purge('receipts', i::interval) FROM unnest('{2 months,1000 years,7000 years,290000 years,178000000 years,1000000 days,2000000000 days,2000000000 hours}'::text[]) i;
-- nothing of this has purged anything; months count as months
SELECT * FROM left_over;
SELECT pg_temp.purge('receipts', '1 month');
-- not in a read-only transaction
BEGIN READ ONLY;
SELECT * FROM fencing_purge('receipts', '1 hour');
ROLLBACK;
-- at the other isolation levels
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT pg_temp.receipt('purge/a', 2, 100);
SELECT * FROM fencing_purge('receipts', '1 hour');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT pg_temp.receipt('purge/a', 3, 100);
SELECT * FROM fencing_purge('receipts', '1 hour');
COMMIT;

--
-- Who may
--
CREATE ROLE regress_purge;
SELECT pg_temp.receipt('purge/a', 1, 100);
SET ROLE regress_purge;
SELECT * FROM fencing_purge('receipts', '1 hour');
RESET ROLE;
SELECT fencing_grant('regress_purge', k) FROM unnest('{client,relay,target,publisher,external}'::text[]) k;
SET ROLE regress_purge;
SELECT * FROM fencing_purge('receipts', '1 hour');
RESET ROLE;
SELECT fencing_grant('regress_purge', 'admin');
SET ROLE regress_purge;
DELETE FROM fencing.receipts;
SELECT * FROM fencing_purge('receipts', '1 hour');
RESET ROLE;
SELECT * FROM left_over;
SELECT fencing_ungrant('regress_purge', k) FROM unnest('{client,relay,target,publisher,external,admin}'::text[]) k;
DROP ROLE regress_purge;
-- Settings and names that stand in the way
CREATE SCHEMA regress_purge;
CREATE FUNCTION regress_purge.never(bigint, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT false';
CREATE FUNCTION regress_purge.never(timestamptz, timestamptz) RETURNS boolean LANGUAGE sql AS 'SELECT false';
CREATE FUNCTION regress_purge.never(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT false';
CREATE OPERATOR regress_purge.< (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = regress_purge.never);
CREATE OPERATOR regress_purge.< (LEFTARG = timestamptz, RIGHTARG = timestamptz, FUNCTION = regress_purge.never);
CREATE OPERATOR regress_purge.= (LEFTARG = text, RIGHTARG = text, FUNCTION = regress_purge.never);
CREATE FUNCTION regress_purge.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT '2000-01-01'::timestamptz $$;
CREATE TABLE regress_purge.receipts (LIKE fencing.receipts);
SELECT pg_temp.receipt('purge/a', 1, 100);
SET search_path = regress_purge, pg_catalog, public;
SELECT * FROM public.fencing_purge('receipts', '1 hour');
RESET search_path;
DROP SCHEMA regress_purge CASCADE;
SELECT name, setting, pg_temp.receipt('purge/a', 1, 100) IS NOT NULL AS there, set_config(name, setting, true) = setting AS set, pg_temp.purge('receipts', '1 hour')
FROM (VALUES ('enable_indexscan', 'off'), ('enable_seqscan', 'off'), ('enable_bitmapscan', 'off'), ('enable_tidscan', 'off'), ('timezone', 'Asia/Kathmandu'),
	('intervalstyle', 'sql_standard'), ('datestyle', 'SQL, DMY'), ('row_security', 'off'), ('session_replication_role', 'replica')) v (name, setting);

DELETE FROM fencing.receipts WHERE job_key LIKE 'purge/%';
DELETE FROM fencing.leases WHERE job_key LIKE 'purge/%';
DELETE FROM fencing.fences WHERE job_key LIKE 'purge/%';
DELETE FROM fencing.revocations WHERE job_key LIKE 'purge/%';
UPDATE fencing.floor SET floor = 0;
