--
-- Leases and fences: every answer of acquire, renew, release, revoke and
-- forget, every column of it, and what it leaves behind.
--

-- Tokens are exact below, so the floor must be where an installation starts.
UPDATE fencing.floor SET floor = 0;

-- What no application role can see.  Owners are letters: md5('A')::uuid.
CREATE TEMP VIEW state AS
SELECT job_key, f.token AS fence, f.purged_through, f.external,
	l.token AS lease,
	CASE l.owner WHEN md5('A')::uuid THEN 'A' WHEN md5('B')::uuid THEN 'B' END AS owner,
	CASE WHEN l.lease_until = '-infinity' THEN 'released'
		WHEN l.lease_until > clock_timestamp() THEN 'ahead'
		WHEN l.lease_until IS NOT NULL THEN 'over' END AS ends
FROM fencing.fences f FULL JOIN fencing.leases l USING (job_key) WHERE job_key LIKE 'lease/%';

-- A lease ends without anybody sleeping.
CREATE FUNCTION pg_temp.expire(k text) RETURNS void LANGUAGE sql AS
$$ UPDATE fencing.leases SET lease_until = clock_timestamp() - interval '1 s' WHERE job_key = k $$;

--
-- acquire
--

-- first: token 1, the end is clock + ttl, 30 s less 1 %
SELECT clock_timestamp() AS t0 \gset
SELECT outcome, token, lease_until - interval '30 s' BETWEEN :'t0' AND clock_timestamp() AS by_clock,
	safe_for_ms, retry_after_ms
FROM fencing_acquire('lease/a', md5('A')::uuid);
SELECT * FROM state;

-- the same owner again (a lost reply): the same token at once, extended
SELECT lease_until AS old FROM fencing.leases WHERE job_key = 'lease/a' \gset
SELECT clock_timestamp() AS t0 \gset
SELECT outcome, token, lease_until - interval '30 s' BETWEEN :'t0' AND clock_timestamp() AS by_clock,
	lease_until > :'old' AS extended, safe_for_ms, retry_after_ms
FROM fencing_acquire('lease/a', md5('A')::uuid);

-- somebody else: held, however short the ttl he asks for; the end is the
-- holder's and retry_after_ms the rest of it
SELECT lease_until AS holder FROM fencing.leases WHERE job_key = 'lease/a' \gset
SELECT clock_timestamp() AS t0 \gset
SELECT outcome, token, lease_until = :'holder' AS the_holders, safe_for_ms,
	retry_after_ms BETWEEN floor(extract(epoch FROM lease_until - clock_timestamp()) * 1000)
		AND ceil(extract(epoch FROM lease_until - :'t0') * 1000) AS the_rest
FROM fencing_acquire('lease/a', md5('B')::uuid, '1 second');
SELECT outcome, token, lease_until = :'holder' AS the_holders, safe_for_ms, retry_after_ms > 0 AS retry
FROM fencing_acquire('lease/a', md5('B')::uuid, '1 microsecond');
SELECT * FROM state;

-- a live lease is never shortened by a shorter ttl, from acquire or renew
SELECT outcome, token, safe_for_ms FROM fencing_acquire('lease/a', md5('A')::uuid, '1 hour');
SELECT lease_until AS old FROM fencing.leases WHERE job_key = 'lease/a' \gset
SELECT outcome, token, lease_until = :'old' AS unchanged, safe_for_ms
FROM fencing_acquire('lease/a', md5('A')::uuid, '1 second');
SELECT outcome, token, lease_until = :'old' AS unchanged, safe_for_ms
FROM fencing_renew('lease/a', md5('A')::uuid, 1, '1 second');

-- over: anybody gets the next token, the former owner too
SELECT pg_temp.expire('lease/a');
SELECT outcome, token, safe_for_ms, retry_after_ms FROM fencing_acquire('lease/a', md5('A')::uuid);
SELECT pg_temp.expire('lease/a');
SELECT outcome, token, safe_for_ms, retry_after_ms FROM fencing_acquire('lease/a', md5('B')::uuid, '1 hour');
SELECT * FROM state;

-- a ttl that has passed when the next call comes
SELECT outcome, token, retry_after_ms FROM fencing_acquire('lease/b', md5('A')::uuid, '1 microsecond');
SELECT outcome, token, retry_after_ms FROM fencing_acquire('lease/b', md5('B')::uuid, '1 microsecond');

-- safe_for_ms: the ttl less greatest(5 ms, 1 %), rounded to the safe side and
-- never negative
SELECT ttl, outcome, safe_for_ms
FROM unnest(ARRAY['1 microsecond', '1 ms', '5 ms', '6 ms', '10.5 ms', '100 ms', '500 ms', '501 ms', '1 s',
	'1.999 s', '1 minute', '1 hour', '24 hours', '1 day', '1 day -23:59:59'])
	WITH ORDINALITY AS u (ttl, n),
	LATERAL fencing_acquire('lease/safe/' || n, md5('A')::uuid, ttl::interval)
ORDER BY n;

--
-- renew
--
SELECT outcome, token FROM fencing_acquire('lease/r', md5('A')::uuid);
SELECT clock_timestamp() AS t0 \gset
SELECT outcome, token, lease_until - interval '1 minute' BETWEEN :'t0' AND clock_timestamp() AS by_clock,
	safe_for_ms, retry_after_ms
FROM fencing_renew('lease/r', md5('A')::uuid, 1, '1 minute');
-- the default of ttl is 30 s
SELECT outcome, token, safe_for_ms, retry_after_ms FROM fencing_renew('lease/r', md5('A')::uuid, 1);

-- over, but neither superseded nor released: still renewed, counted from now
SELECT pg_temp.expire('lease/r');
SELECT clock_timestamp() AS t0 \gset
SELECT outcome, token, lease_until - interval '30 s' BETWEEN :'t0' AND clock_timestamp() AS by_clock,
	safe_for_ms, retry_after_ms
FROM fencing_renew('lease/r', md5('A')::uuid, 1);

-- bound to owner and token: lost, and the row stays as it was to the byte
SELECT ctid AS row_at, lease_until AS old FROM fencing.leases WHERE job_key = 'lease/r' \gset
SELECT * FROM fencing_renew('lease/r', md5('B')::uuid, 1);
SELECT * FROM fencing_renew('lease/r', md5('A')::uuid, 2);
SELECT * FROM fencing_renew('lease/r', md5('A')::uuid, 9223372036854775807);
SELECT * FROM fencing_renew('lease/unknown', md5('A')::uuid, 1);
SELECT ctid = :'row_at' AS same_row, lease_until = :'old' AS same_end FROM fencing.leases WHERE job_key = 'lease/r';

-- superseded: the loser does not touch the winner's row
SELECT pg_temp.expire('lease/r');
SELECT outcome, token FROM fencing_acquire('lease/r', md5('B')::uuid);
SELECT ctid AS row_at, lease_until AS old FROM fencing.leases WHERE job_key = 'lease/r' \gset
SELECT * FROM fencing_renew('lease/r', md5('A')::uuid, 1);
SELECT * FROM fencing_renew('lease/r', md5('A')::uuid, 2);
SELECT * FROM fencing_release('lease/r', md5('A')::uuid, 1);
SELECT * FROM fencing_release('lease/r', md5('A')::uuid, 2);
SELECT ctid = :'row_at' AS same_row, lease_until = :'old' AS same_end FROM fencing.leases WHERE job_key = 'lease/r';
SELECT * FROM state WHERE job_key = 'lease/r';

-- the token is constant across renewals
SELECT n, r.outcome, r.token
FROM generate_series(1, 3) n, LATERAL fencing_renew('lease/r', md5('B')::uuid, 2) r ORDER BY n;

--
-- release
--
SELECT outcome, token FROM fencing_acquire('lease/rel', md5('A')::uuid);
SELECT * FROM fencing_release('lease/rel', md5('B')::uuid, 1);
SELECT * FROM fencing_release('lease/rel', md5('A')::uuid, 2);
SELECT * FROM fencing_release('lease/unknown', md5('A')::uuid, 1);
SELECT * FROM state WHERE job_key = 'lease/rel';
SELECT * FROM fencing_release('lease/rel', md5('A')::uuid, 1);
SELECT * FROM state WHERE job_key = 'lease/rel';
-- twice is released twice, and a late heartbeat does not revive it
SELECT * FROM fencing_release('lease/rel', md5('A')::uuid, 1);
SELECT * FROM fencing_renew('lease/rel', md5('A')::uuid, 1);
SELECT * FROM state WHERE job_key = 'lease/rel';
-- the fence stays: the next token is higher, for the same owner too
SELECT outcome, token FROM fencing_acquire('lease/rel', md5('A')::uuid);
SELECT * FROM fencing_release('lease/rel', md5('A')::uuid, 1);
-- over and then released
SELECT pg_temp.expire('lease/rel');
SELECT * FROM fencing_release('lease/rel', md5('A')::uuid, 2);
SELECT outcome, token FROM fencing_acquire('lease/rel', md5('B')::uuid);
SELECT * FROM state WHERE job_key = 'lease/rel';

--
-- revoke
--
SELECT outcome, token FROM fencing_acquire('lease/v', md5('A')::uuid);
SELECT * FROM fencing_revoke('lease/v', 'pod is gone, 100% sure');
-- the holder is out at once, though his lease would have lasted
SELECT * FROM state WHERE job_key = 'lease/v';
SELECT * FROM fencing_renew('lease/v', md5('A')::uuid, 1);
SELECT outcome, fence FROM fencing_commit('lease/v', 1, '1', 'SELECT 1');
-- it stops an execution, not an owner
SELECT outcome, token FROM fencing_acquire('lease/v', md5('A')::uuid);
-- of a job that nobody holds
SELECT * FROM fencing_release('lease/v', md5('A')::uuid, 3);
SELECT token FROM fencing_revoke('lease/v', 'again');
SELECT outcome, token FROM fencing_acquire('lease/v', md5('B')::uuid);
-- recorded: the login, also behind SET ROLE; an unknown job leaves no entry
CREATE ROLE regress_fencing_lease_admin;
SELECT fencing_grant('regress_fencing_lease_admin', 'admin');
SET ROLE regress_fencing_lease_admin;
SELECT token FROM fencing_revoke('lease/v', 'as admin');
RESET ROLE;
SELECT fencing_revoke('lease/unknown', 'typing error');
\echo :SQLSTATE
SELECT token, reason, revoked_by = session_user AS by_login, client_addr IS NOT DISTINCT FROM inet_client_addr() AS from_here,
	revoked_at BETWEEN now() - interval '1 hour' AND clock_timestamp() AS at_clock
FROM fencing.revocations WHERE job_key LIKE 'lease/%' ORDER BY id;

--
-- forget
--
SELECT outcome, token FROM fencing_acquire('lease/f', md5('A')::uuid);
-- live: busy
SELECT fencing_forget('lease/f');
\echo :SQLSTATE
SELECT * FROM state WHERE job_key = 'lease/f';
SELECT fencing_forget('lease/unknown');
\echo :SQLSTATE
-- raise its tokens, so that the floor shows
SELECT token FROM fencing_revoke('lease/f', 'count up') \g /dev/null
SELECT token FROM fencing_revoke('lease/f', 'count up') \g /dev/null
SELECT outcome, token FROM fencing_acquire('lease/f', md5('A')::uuid);
SELECT outcome, result, fence FROM fencing_commit('lease/f', 4, '{"n": 1}', 'SELECT 1 AS n');
SELECT * FROM fencing_release('lease/f', md5('A')::uuid, 4);
SELECT fencing_forget('lease/f') IS NOT NULL AS done;
-- nothing of it is left but the floor
SELECT (SELECT count(*) FROM state WHERE job_key = 'lease/f') AS rows,
	(SELECT count(*) FROM fencing.receipts WHERE job_key = 'lease/f') AS receipts,
	(SELECT max(floor) FROM fencing.floor) AS floor;
-- its old tokens: nobody can tell any more, receipt or not; no fence to show
SELECT t, c.* FROM unnest(ARRAY[1, 2, 3, 4]) t, LATERAL fencing_commit('lease/f', t, '{"n": 1}', 'SELECT 1 AS n') c ORDER BY t;
SELECT * FROM fencing_renew('lease/f', md5('A')::uuid, 4);
SELECT * FROM fencing_release('lease/f', md5('A')::uuid, 4);
SELECT count(*) FROM fencing_receipt('lease/f', 4);
-- a token that was never issued
SELECT fencing_commit('lease/f', 5, '{"n": 1}', 'SELECT 1 AS n');
\echo :SQLSTATE
-- strictly higher when it comes again, and the old ones stay pruned
SELECT outcome, token FROM fencing_acquire('lease/f', md5('B')::uuid);
SELECT * FROM state WHERE job_key = 'lease/f';
SELECT t, c.* FROM unnest(ARRAY[1, 4]) t, LATERAL fencing_commit('lease/f', t, '{"n": 1}', 'SELECT 1 AS n') c ORDER BY t;
-- one floor for all jobs: a new one, and one that stood below it
SELECT outcome, token FROM fencing_acquire('lease/f2', md5('A')::uuid);
SELECT pg_temp.expire('lease/b');
SELECT outcome, token FROM fencing_acquire('lease/b', md5('A')::uuid);
SELECT * FROM state WHERE job_key IN ('lease/b', 'lease/f2') ORDER BY job_key;
-- the floor is not lowered by a job whose last token is below it
SELECT outcome, token FROM fencing_acquire('lease/f3', md5('A')::uuid);
UPDATE fencing.fences SET token = 2 WHERE job_key = 'lease/f3';
SELECT fencing_forget('lease/f3') IS NOT NULL AS done;
SELECT max(floor) AS floor FROM fencing.floor;
-- over, but not released; and revoked, though its lease would have lasted
SELECT pg_temp.expire('lease/f');
SELECT fencing_forget('lease/f') IS NOT NULL AS done;
SELECT fencing_revoke('lease/f2', 'end');
SELECT fencing_forget('lease/f2') IS NOT NULL AS done;
SELECT max(floor) AS floor FROM fencing.floor;
-- rolled back: as if it had not been
SELECT pg_temp.expire('lease/b');
BEGIN;
SELECT fencing_forget('lease/b') IS NOT NULL AS done;
SELECT outcome, token FROM fencing_acquire('lease/b', md5('B')::uuid);
ROLLBACK;
SELECT * FROM state WHERE job_key = 'lease/b';
SELECT max(floor) AS floor FROM fencing.floor;
UPDATE fencing.floor SET floor = 0;

--
-- The view for people
--
SELECT outcome FROM fencing_acquire('lease/view/live', md5('A')::uuid)
UNION ALL SELECT outcome FROM fencing_acquire('lease/view/over', md5('A')::uuid)
UNION ALL SELECT outcome FROM fencing_acquire('lease/view/released', md5('A')::uuid)
UNION ALL SELECT outcome FROM fencing_acquire('lease/view/revoked', md5('A')::uuid);
SELECT pg_temp.expire('lease/view/over');
SELECT outcome FROM fencing_release('lease/view/released', md5('A')::uuid, 1);
SELECT fencing_revoke('lease/view/revoked', 'view');
SELECT job_key, token, owner = md5('A')::uuid AS a, lease_until > now() AS ahead, live,
	remaining BETWEEN interval '1 s' AND interval '30 s' AS remaining
FROM fencing.lease_status WHERE job_key LIKE 'lease/view/%' ORDER BY job_key;

--
-- Time
--

-- No function takes a client's time.
SELECT p.oid::regprocedure FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.deptype = 'e'
	JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'fencing'
WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_extension'::regclass
	AND p.proargtypes::oid[] && ARRAY['timestamptz', 'timestamp', 'date', 'time', 'timetz']::regtype[]::oid[];

-- A transaction that began long ago does not get a lease of the past.
BEGIN;
SELECT pg_sleep(0.3) \g /dev/null
SELECT clock_timestamp() AS t0 \gset
SELECT now() < :'t0' AS began_before;
SELECT outcome, lease_until - interval '1 s' >= :'t0' AS by_clock
FROM fencing_acquire('lease/t1', md5('A')::uuid, '1 s');
SELECT clock_timestamp() AS t0 \gset
SELECT outcome, lease_until - interval '5 s' >= :'t0' AS by_clock
FROM fencing_renew('lease/t1', md5('A')::uuid, 1, '5 s');
SELECT clock_timestamp() AS t0 \gset
SELECT outcome, committed_at BETWEEN :'t0' AND clock_timestamp() AS by_clock
FROM fencing_commit('lease/t1', 1, '1', 'SELECT 1');
COMMIT;

-- Acquired under one time zone, judged under another.
SET TimeZone = 'Asia/Seoul';
SELECT outcome, token FROM fencing_acquire('lease/t2', md5('A')::uuid, '1 hour');
SELECT extract(epoch FROM lease_until) AS seoul FROM fencing.leases WHERE job_key = 'lease/t2' \gset
SET TimeZone = 'America/New_York';
SELECT outcome, extract(epoch FROM lease_until) = :'seoul'::numeric AS same_end,
	retry_after_ms BETWEEN 3000000 AND 3600000 AS an_hour
FROM fencing_acquire('lease/t2', md5('B')::uuid);
SELECT outcome FROM fencing_renew('lease/t2', md5('A')::uuid, 1);
SELECT pg_temp.expire('lease/t2');
SET TimeZone = 'Asia/Seoul';
SELECT outcome, token FROM fencing_acquire('lease/t2', md5('B')::uuid);

-- A day is 24 hours: a zone whose clocks go forward, and one whose clocks go
-- back, in the coming 24 hours, made for today.
SELECT extract(doy FROM t)::int - 1 AS day, extract(hour FROM t)::int AS hour
FROM (SELECT now() AT TIME ZONE 'UTC' + interval '12 hours') x (t) \gset
SELECT set_config('TimeZone', format('AAA0BBB,%s/%s,%s/0', :day, :hour, (:day + 100) % 365), false) \g /dev/null
SELECT now() + interval '1 day' - now() AS a_local_day;
SELECT outcome, extract(epoch FROM lease_until - clock_timestamp()) BETWEEN 86300 AND 86400 AS h24, safe_for_ms
FROM fencing_acquire('lease/t3', md5('A')::uuid, '1 day');
SELECT set_config('TimeZone', format('AAA0BBB,%s/0,%s/%s', (:day + 100) % 365, :day, :hour + 1), false) \g /dev/null
SELECT now() + interval '1 day' - now() AS a_local_day;
SELECT outcome, extract(epoch FROM lease_until - clock_timestamp()) BETWEEN 86300 AND 86400 AS h24, safe_for_ms
FROM fencing_acquire('lease/t4', md5('A')::uuid, '1 day');
RESET TimeZone;

-- The longest ttl is the administrator's decision.
SELECT fencing_acquire('lease/t5', md5('A')::uuid, '25 hours');
\echo :SQLSTATE
SET fencing.max_ttl = 90000;
SELECT outcome, safe_for_ms FROM fencing_acquire('lease/t5', md5('A')::uuid, '25 hours');
SET fencing.max_ttl = 10;
SELECT outcome, safe_for_ms FROM fencing_renew('lease/t5', md5('A')::uuid, 1, '10 s');
SELECT fencing_renew('lease/t5', md5('A')::uuid, 1, '10.000001 s');
\echo :SQLSTATE
SET ROLE regress_fencing_lease_admin;
SET fencing.max_ttl = 1000000;
\echo :SQLSTATE
RESET ROLE;
SHOW fencing.max_ttl;
-- there is always a limit, and it is above zero
\set VERBOSITY sqlstate
SET fencing.max_ttl = 0;
SET fencing.max_ttl = -1;
SET fencing.max_ttl = 'infinity';
\set VERBOSITY default
SET fencing.max_ttl = '2d';
SELECT outcome, safe_for_ms FROM fencing_renew('lease/t5', md5('A')::uuid, 1, '48 hours');
RESET fencing.max_ttl;
SHOW fencing.max_ttl;

--
-- No answer dooms its transaction, and one that wrote nothing holds nothing:
-- a transaction without an id has no row locked.
--
CREATE TEMP TABLE done (n serial, what text);
BEGIN;
SELECT outcome FROM fencing_acquire('lease/d', md5('A')::uuid);
INSERT INTO done (what) VALUES ('acquired');
COMMIT;
BEGIN;
SELECT outcome FROM fencing_acquire('lease/d', md5('A')::uuid);
INSERT INTO done (what) VALUES ('acquire: renewed');
COMMIT;
BEGIN;
SELECT outcome FROM fencing_acquire('lease/d', md5('B')::uuid);
SELECT pg_current_xact_id_if_assigned() AS xid;
INSERT INTO done (what) VALUES ('held');
COMMIT;
BEGIN;
SELECT outcome FROM fencing_renew('lease/d', md5('A')::uuid, 1);
INSERT INTO done (what) VALUES ('renewed');
COMMIT;
BEGIN;
SELECT outcome FROM fencing_renew('lease/d', md5('B')::uuid, 1);
SELECT pg_current_xact_id_if_assigned() AS xid;
INSERT INTO done (what) VALUES ('renew: lost');
COMMIT;
BEGIN;
SELECT outcome FROM fencing_release('lease/d', md5('B')::uuid, 1);
SELECT pg_current_xact_id_if_assigned() AS xid;
INSERT INTO done (what) VALUES ('release: lost');
COMMIT;
BEGIN;
SELECT outcome FROM fencing_release('lease/d', md5('A')::uuid, 1);
INSERT INTO done (what) VALUES ('released');
COMMIT;
BEGIN;
SELECT token FROM fencing_revoke('lease/d', 'done');
INSERT INTO done (what) VALUES ('revoked');
COMMIT;
BEGIN;
SELECT fencing_forget('lease/d') IS NOT NULL AS done;
INSERT INTO done (what) VALUES ('forgotten');
COMMIT;
SELECT * FROM done ORDER BY n;
UPDATE fencing.floor SET floor = 0;
-- no advisory lock outlives its transaction
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();

-- A token counts once its transaction has committed: rolled back, its number
-- is issued again.
BEGIN;
SELECT outcome, token FROM fencing_acquire('lease/rb', md5('A')::uuid);
ROLLBACK;
SELECT count(*) FROM state WHERE job_key = 'lease/rb';
SELECT outcome, token FROM fencing_acquire('lease/rb', md5('B')::uuid);
BEGIN;
SAVEPOINT s;
SELECT outcome FROM fencing_release('lease/rb', md5('B')::uuid, 1);
ROLLBACK TO s;
SELECT outcome FROM fencing_renew('lease/rb', md5('B')::uuid, 1);
COMMIT;

-- A whole life in one transaction, at each isolation level, after the snapshot
-- has been taken: a transaction sees its own rows.
BEGIN ISOLATION LEVEL READ COMMITTED;
SELECT count(*) FROM done;
SELECT outcome, token FROM fencing_acquire('lease/life', md5('A')::uuid);
SELECT outcome, token FROM fencing_renew('lease/life', md5('A')::uuid, 1);
SELECT outcome, token FROM fencing_acquire('lease/life', md5('B')::uuid);
SELECT outcome, result FROM fencing_commit('lease/life', 1, '1', 'SELECT 1 AS n');
SELECT outcome, result FROM fencing_commit('lease/life', 1, '1', 'SELECT 2 AS n');
SELECT outcome, result FROM fencing_commit('lease/life', 1, '2', 'SELECT 2 AS n');
SELECT outcome FROM fencing_release('lease/life', md5('A')::uuid, 1);
SELECT outcome, token FROM fencing_acquire('lease/life', md5('B')::uuid);
SELECT outcome FROM fencing_commit('lease/life', 1, '1', 'SELECT 2 AS n', step => 's');
SELECT fencing_revoke('lease/life', 'end');
SELECT fencing_forget('lease/life') IS NOT NULL AS done;
SELECT outcome, token FROM fencing_acquire('lease/life', md5('B')::uuid);
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM done;
SELECT outcome, token FROM fencing_acquire('lease/life', md5('A')::uuid);
SELECT outcome, token FROM fencing_renew('lease/life', md5('A')::uuid, 1);
SELECT outcome, token FROM fencing_acquire('lease/life', md5('B')::uuid);
SELECT outcome, result FROM fencing_commit('lease/life', 1, '1', 'SELECT 1 AS n');
SELECT outcome, result FROM fencing_commit('lease/life', 1, '1', 'SELECT 2 AS n');
SELECT outcome, result FROM fencing_commit('lease/life', 1, '2', 'SELECT 2 AS n');
SELECT outcome FROM fencing_release('lease/life', md5('A')::uuid, 1);
SELECT outcome, token FROM fencing_acquire('lease/life', md5('B')::uuid);
SELECT outcome FROM fencing_commit('lease/life', 1, '1', 'SELECT 2 AS n', step => 's');
SELECT fencing_revoke('lease/life', 'end');
SELECT fencing_forget('lease/life') IS NOT NULL AS done;
SELECT outcome, token FROM fencing_acquire('lease/life', md5('B')::uuid);
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT count(*) FROM done;
SELECT outcome, token FROM fencing_acquire('lease/life', md5('A')::uuid);
SELECT outcome, token FROM fencing_renew('lease/life', md5('A')::uuid, 1);
SELECT outcome, token FROM fencing_acquire('lease/life', md5('B')::uuid);
SELECT outcome, result FROM fencing_commit('lease/life', 1, '1', 'SELECT 1 AS n');
SELECT outcome, result FROM fencing_commit('lease/life', 1, '1', 'SELECT 2 AS n');
SELECT outcome, result FROM fencing_commit('lease/life', 1, '2', 'SELECT 2 AS n');
SELECT outcome FROM fencing_release('lease/life', md5('A')::uuid, 1);
SELECT outcome, token FROM fencing_acquire('lease/life', md5('B')::uuid);
SELECT outcome FROM fencing_commit('lease/life', 1, '1', 'SELECT 2 AS n', step => 's');
SELECT fencing_revoke('lease/life', 'end');
SELECT fencing_forget('lease/life') IS NOT NULL AS done;
SELECT outcome, token FROM fencing_acquire('lease/life', md5('B')::uuid);
ROLLBACK;
-- and in one command, whose own snapshot is older than every one of its calls
SELECT a.outcome, a.token, n.outcome AS renew, c.outcome AS commit, r.outcome AS retry, r.result, l.outcome AS release
FROM fencing_acquire('lease/one', md5('A')::uuid) a,
	LATERAL fencing_renew('lease/one', md5('A')::uuid, a.token) n,
	LATERAL fencing_commit('lease/one', n.token, '1', 'SELECT 1 AS n') c,
	LATERAL fencing_commit('lease/one', CASE WHEN c.outcome IS NOT NULL THEN n.token END, '1', 'SELECT 2 AS n') r,
	LATERAL fencing_release('lease/one', md5('A')::uuid, CASE WHEN r.outcome IS NOT NULL THEN n.token END) l;

--
-- Read-only: an error, never "held" or "lost"
--
BEGIN READ ONLY;
SELECT fencing_acquire('lease/a', md5('C')::uuid);
\echo :SQLSTATE
ROLLBACK;
BEGIN READ ONLY;
SELECT fencing_renew('lease/a', md5('C')::uuid, 1);
\echo :SQLSTATE
ROLLBACK;
BEGIN READ ONLY;
SELECT fencing_release('lease/a', md5('C')::uuid, 1);
\echo :SQLSTATE
ROLLBACK;
BEGIN READ ONLY;
SELECT fencing_revoke('lease/a', 'read-only');
\echo :SQLSTATE
ROLLBACK;
BEGIN READ ONLY;
SELECT fencing_forget('lease/a');
\echo :SQLSTATE
ROLLBACK;
SELECT * FROM state WHERE job_key = 'lease/a';

--
-- Epochs: a new one ends all leases for their owners and puts every new token
-- above the old ones; others wait until the end that was promised.  The change is
-- followed by a new connection.
--
SELECT outcome, token FROM fencing_acquire('lease/e1', md5('A')::uuid, '1 hour');
SELECT outcome, result FROM fencing_commit('lease/e1', 1, '1', 'SELECT 1 AS n', step => 'old');
SELECT outcome, token FROM fencing_acquire('lease/e2', md5('A')::uuid, '1 hour');
SELECT outcome, token FROM fencing_acquire('lease/e3', md5('A')::uuid, '1 hour');
SELECT outcome, token FROM fencing_acquire('lease/e4', md5('A')::uuid, '1 hour');
SELECT outcome, fence FROM fencing_advance('lease/ext', 7);
SELECT fencing.epoch_start();
UPDATE fencing.floor SET epoch = 3;
\c -
SELECT fencing.epoch_start();
SELECT live, remaining IS NOT NULL AS rest, former_epoch FROM fencing.lease_status WHERE job_key = 'lease/e1';
-- the token is the fence's, the lease would last, and yet
SELECT * FROM fencing_renew('lease/e1', md5('A')::uuid, 1);
SELECT * FROM fencing_commit('lease/e1', 1, '2', 'SELECT 2 AS n');
-- a receipt of the old epoch still says what happened
SELECT outcome, result, fence FROM fencing_commit('lease/e1', 1, '1', 'SELECT 2 AS n', step => 'old');
SELECT outcome, result, fence FROM fencing_commit('lease/e1', 1, '2', 'SELECT 2 AS n', step => 'old');
-- no fence at all: pruned up to the start of the epoch, above it never issued
SELECT * FROM fencing_commit('lease/e9', 206158430208, '1', 'SELECT 1');
SELECT fencing_commit('lease/e9', 206158430209, '1', 'SELECT 1');
\echo :SQLSTATE
-- the same owner gets a new token; another waits, unless the old owner released
SELECT outcome, token FROM fencing_acquire('lease/e1', md5('A')::uuid);
SELECT outcome, token, lease_until > now() + interval '59 min' AS promised, retry_after_ms > 59 * 60000 AS retry
FROM fencing_acquire('lease/e2', md5('B')::uuid);
SELECT outcome, token FROM fencing_renew('lease/e2', md5('A')::uuid, 1);
SELECT fencing_release('lease/e2', md5('B')::uuid, 1), fencing_release('lease/e2', md5('A')::uuid, 1), fencing_release('lease/e2', md5('A')::uuid, 1);
SELECT outcome, token FROM fencing_acquire('lease/e2', md5('B')::uuid);
SELECT fencing_release('lease/e2', md5('A')::uuid, 1);
SELECT outcome, token FROM fencing_acquire('lease/e9', md5('A')::uuid);
SELECT fencing_revoke('lease/e3', 'new epoch');
SELECT outcome, fence FROM fencing_commit('lease/e1', 206158430209, '3', 'SELECT 3 AS n');
SELECT outcome, fence FROM fencing_commit('lease/e1', 1, '3', 'SELECT 3 AS n');
SELECT outcome, token FROM fencing_acquire('lease/e1', md5('B')::uuid);
SELECT live, former_epoch FROM fencing.lease_status WHERE job_key = 'lease/e1';
SELECT job_key, token, purged_through FROM fencing.fences WHERE job_key ~ '^lease/e[0-9]' ORDER BY job_key;
-- somebody may still be at it: not to be forgotten before it is revoked, or ended
SELECT fencing_forget('lease/e4') IS NOT NULL AS done;
\echo :SQLSTATE
SELECT fencing_revoke('lease/e4', 'new epoch');
SELECT fencing_forget('lease/e4') IS NOT NULL AS done;
-- tokens issued elsewhere know no epochs
SELECT outcome, fence FROM fencing_commit('lease/ext', 7, '1', 'SELECT 1');
SELECT outcome, fence FROM fencing_commit('lease/ext', 6, '1', 'SELECT 1');
SELECT outcome, fence FROM fencing_advance('lease/ext', 8);
SELECT fencing_revoke('lease/ext', 'new epoch');
-- back to where the installation starts
UPDATE fencing.floor SET epoch = 0, floor = 0;
\c -
SELECT fencing.epoch_start();
SELECT outcome, token FROM fencing_acquire('lease/e10', md5('A')::uuid);

-- A limit that somebody set before the library was there has no effect.
\c -
SET ROLE regress_fencing_lease_admin;
SET fencing.max_ttl = 1000000;
SELECT outcome FROM fencing_acquire('lease/e11', md5('A')::uuid, '2 days');
\echo :SQLSTATE
SHOW fencing.max_ttl;
RESET ROLE;

DELETE FROM fencing.receipts WHERE job_key LIKE 'lease/%';
DELETE FROM fencing.leases WHERE job_key LIKE 'lease/%';
DELETE FROM fencing.fences WHERE job_key LIKE 'lease/%';
DELETE FROM fencing.revocations WHERE job_key LIKE 'lease/%';
SELECT fencing_ungrant('regress_fencing_lease_admin', 'admin');
DROP ROLE regress_fencing_lease_admin;

--
-- since when, and by whom
--
SET application_name = 'nightly at host a';
SELECT clock_timestamp() AS t0 \gset
SELECT outcome, token FROM fencing_acquire('lease/who', md5('A')::uuid);
SELECT acquired_at BETWEEN :'t0' AND clock_timestamp() AS since, application_name, client_addr IS NOT DISTINCT FROM inet_client_addr() AS from_here
FROM fencing.lease_status WHERE job_key = 'lease/who';

-- who renews or releases has not acquired it
SELECT acquired_at AS since FROM fencing.leases WHERE job_key = 'lease/who' \gset
SET application_name = 'another';
SELECT outcome FROM fencing_acquire('lease/who', md5('A')::uuid);
SELECT outcome FROM fencing_renew('lease/who', md5('A')::uuid, 1);
SELECT outcome FROM fencing_release('lease/who', md5('A')::uuid, 1);
SELECT acquired_at = :'since' AS the_same, application_name FROM fencing.lease_status WHERE job_key = 'lease/who';

-- who takes over has
SELECT outcome, token FROM fencing_acquire('lease/who', md5('B')::uuid);
SELECT acquired_at > :'since' AS later, application_name FROM fencing.lease_status WHERE job_key = 'lease/who';
SET application_name = '';
SELECT outcome, token FROM fencing_acquire('lease/nobody', md5('B')::uuid);
SELECT application_name = '' AS empty FROM fencing.lease_status WHERE job_key = 'lease/nobody';
RESET application_name;
