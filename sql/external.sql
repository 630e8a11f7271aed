--
-- External jobs: tokens that another service issues (an etcd revision, a
-- ZooKeeper zxid, a Consul LockIndex), announced by fencing_advance().
--
UPDATE fencing.floor SET floor = 0;

CREATE TEMP VIEW state AS
SELECT job_key, f.token AS fence, f.purged_through, f.external, l.token AS lease,
	(SELECT count(*) FROM fencing.receipts r WHERE r.job_key = f.job_key) AS receipts
FROM fencing.fences f FULL JOIN fencing.leases l USING (job_key) WHERE job_key LIKE 'external/%';

-- advance: advanced, current, stale; the fence never goes down
SELECT * FROM fencing_advance('external/a', 5);
SELECT * FROM state WHERE job_key = 'external/a';
SELECT * FROM fencing_advance('external/a', 5);
SELECT * FROM fencing_advance('external/a', 4);
SELECT * FROM fencing_advance('external/a', 1);
SELECT * FROM fencing_advance('external/a', 9);
SELECT * FROM state WHERE job_key = 'external/a';

-- commit by external tokens.  Every lower token is stale, none is pruned:
-- nothing has been purged.
SELECT outcome, result, committed_at IS NOT NULL AS at, fence, error
FROM fencing_commit('external/a', 9, '{"n": 9}', 'SELECT $2 AS t');
SELECT outcome, result, committed_at IS NOT NULL AS at, fence, error
FROM fencing_commit('external/a', 9, '{"n": 9.0}', 'SELECT 0 AS t');
SELECT outcome, result, committed_at IS NOT NULL AS at, fence, error
FROM fencing_commit('external/a', 9, '{"n": 10}', 'SELECT 0 AS t');
SELECT * FROM fencing_commit('external/a', 5, '{"n": 9}', 'SELECT 0 AS t');
SELECT * FROM fencing_commit('external/a', 1, '{"n": 9}', 'SELECT 0 AS t');
-- above the fence: not announced here yet
SELECT fencing_commit('external/a', 10, '{"n": 10}', 'SELECT $2 AS t');
\echo :SQLSTATE
SELECT fencing_commit('external/a', 9223372036854775807, '{"n": 10}', 'SELECT $2 AS t');
\echo :SQLSTATE
SELECT fencing_commit('external/unknown', 1, '{"n": 10}', 'SELECT $2 AS t');
\echo :SQLSTATE
SELECT * FROM state ORDER BY job_key;
-- announced: the old receipt still replays, an old token without one is stale
SELECT * FROM fencing_advance('external/a', 12);
SELECT outcome, result, fence FROM fencing_commit('external/a', 9, '{"n": 9}', 'SELECT 0 AS t');
SELECT outcome, result, fence FROM fencing_commit('external/a', 10, '{"n": 10}', 'SELECT 0 AS t');
SELECT outcome, result, fence FROM fencing_commit('external/a', 12, '{"n": 12}', 'SELECT $2 AS t');

-- revoke: the last token + 1 is burnt
SELECT * FROM fencing_revoke('external/a', 'operator');
SELECT outcome, result, fence FROM fencing_commit('external/a', 12, '{"n": 13}', 'SELECT 0 AS t', step => 'late');
SELECT * FROM fencing_advance('external/a', 12);
SELECT * FROM fencing_advance('external/a', 13);
SELECT * FROM fencing_advance('external/a', 14);
SELECT token, reason FROM fencing.revocations WHERE job_key = 'external/a' ORDER BY id;
SELECT fencing_revoke('external/unknown', 'operator');
\echo :SQLSTATE

-- the highest token there is; beyond it nothing, and the error changes nothing
SELECT * FROM fencing_advance('external/max', 9223372036854775806);
SELECT fencing_revoke('external/max', 'one below');
SELECT outcome, result, fence FROM fencing_commit('external/max', 9223372036854775807, '1', 'SELECT $2 AS t');
SELECT fencing_revoke('external/max', 'overflow');
\echo :SQLSTATE
SELECT * FROM fencing_advance('external/max', 9223372036854775807);
SELECT outcome, result, fence FROM fencing_commit('external/max', 9223372036854775807, '1', 'SELECT 0 AS t');
SELECT * FROM state WHERE job_key = 'external/max';
SELECT token, reason FROM fencing.revocations WHERE job_key = 'external/max' ORDER BY id;
SELECT * FROM fencing_advance('external/max2', 9223372036854775807);

-- a job is internal or external from its first call: mixing is an error
SELECT fencing_acquire('external/a', md5('A')::uuid);
\echo :SQLSTATE
SELECT fencing_forget('external/a');
\echo :SQLSTATE
SELECT fencing_renew('external/a', md5('A')::uuid, 14);
\echo :SQLSTATE
SELECT fencing_release('external/a', md5('A')::uuid, 14);
\echo :SQLSTATE
SELECT outcome, token FROM fencing_acquire('external/internal', md5('A')::uuid);
SELECT fencing_advance('external/internal', 1);
\echo :SQLSTATE
SELECT fencing_advance('external/internal', 2);
\echo :SQLSTATE
-- also when its lease is over
SELECT outcome FROM fencing_release('external/internal', md5('A')::uuid, 1);
SELECT fencing_advance('external/internal', 2);
\echo :SQLSTATE
SELECT * FROM state ORDER BY job_key;
SELECT count(*) FROM fencing.lease_status WHERE job_key = 'external/a';

-- the floor is for tokens that are issued here
SELECT fencing_forget('external/internal') IS NOT NULL AS done;
SELECT outcome, token FROM fencing_acquire('external/internal2', md5('A')::uuid);
SELECT fencing_revoke('external/internal2', 'count up') \g /dev/null
SELECT fencing_forget('external/internal2') IS NOT NULL AS done;
SELECT max(floor) FROM fencing.floor;
SELECT * FROM fencing_advance('external/low', 1);
SELECT outcome, fence FROM fencing_commit('external/low', 1, '1', 'SELECT 1');
-- the key of a forgotten internal job may become external
SELECT * FROM fencing_advance('external/internal', 1);
SELECT * FROM state WHERE job_key IN ('external/low', 'external/internal') ORDER BY job_key;
UPDATE fencing.floor SET floor = 0;

-- no answer dooms its transaction, and one that wrote nothing holds nothing
CREATE TEMP TABLE done (n serial, what text);
BEGIN;
SELECT outcome FROM fencing_advance('external/d', 2);
INSERT INTO done (what) VALUES ('advanced');
COMMIT;
BEGIN;
SELECT outcome FROM fencing_advance('external/d', 2);
SELECT pg_current_xact_id_if_assigned() AS xid;
INSERT INTO done (what) VALUES ('current');
COMMIT;
BEGIN;
SELECT outcome FROM fencing_advance('external/d', 1);
SELECT pg_current_xact_id_if_assigned() AS xid;
INSERT INTO done (what) VALUES ('stale');
COMMIT;
SELECT * FROM done ORDER BY n;

-- rolled back: not announced
BEGIN;
SELECT outcome, fence FROM fencing_advance('external/d', 9);
SELECT outcome, fence FROM fencing_commit('external/d', 9, '1', 'SELECT 1');
ROLLBACK;
SELECT fencing_commit('external/d', 9, '1', 'SELECT 1');
\echo :SQLSTATE
BEGIN;
SAVEPOINT s;
SELECT outcome, fence FROM fencing_advance('external/new', 3);
ROLLBACK TO s;
SELECT outcome, fence FROM fencing_advance('external/new', 2);
COMMIT;
SELECT * FROM state WHERE job_key IN ('external/d', 'external/new') ORDER BY job_key;

-- announce and commit in one command, at each isolation level
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT a.outcome, a.fence, c.outcome, c.result
FROM fencing_advance('external/rr', 3) a, LATERAL fencing_commit('external/rr', a.fence, '1', 'SELECT $2 AS t') c;
SELECT outcome, fence FROM fencing_advance('external/rr', 4);
SELECT outcome, fence FROM fencing_advance('external/rr', 4);
SELECT outcome, fence FROM fencing_commit('external/rr', 3, '2', 'SELECT 1', step => 'late');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT a.outcome, a.fence, c.outcome, c.result
FROM fencing_advance('external/rr', 5) a, LATERAL fencing_commit('external/rr', a.fence, '1', 'SELECT $2 AS t') c;
SELECT outcome, result, fence FROM fencing_commit('external/rr', 3, '1', 'SELECT 1');
COMMIT;

BEGIN READ ONLY;
SELECT fencing_advance('external/d', 1);
\echo :SQLSTATE
ROLLBACK;
SELECT * FROM state WHERE job_key = 'external/d';

DELETE FROM fencing.receipts WHERE job_key LIKE 'external/%';
DELETE FROM fencing.leases WHERE job_key LIKE 'external/%';
DELETE FROM fencing.fences WHERE job_key LIKE 'external/%';
DELETE FROM fencing.revocations WHERE job_key LIKE 'external/%';
