--
-- Retention of jobs: what fencing_purge('jobs') forgets, what it leaves, and what
-- becomes of tokens of the past.
--
CREATE FUNCTION who(text) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$ SELECT md5($1)::uuid $$;
CREATE FUNCTION ago(job text, i interval) RETURNS void LANGUAGE sql AS $$
	UPDATE fencing.leases SET lease_until = clock_timestamp() - i WHERE job_key = job AND lease_until > '-infinity';
	UPDATE fencing.receipts SET committed_at = clock_timestamp() - i WHERE job_key = job
$$;
CREATE VIEW jobs AS SELECT string_agg(replace(job_key, 'purge_jobs/', ''), ' ' ORDER BY job_key) AS jobs FROM fencing.fences;
DELETE FROM fencing.receipts;
-- (which gives the pages back, too)
TRUNCATE fencing.leases;
DELETE FROM fencing.fences;
UPDATE fencing.floor SET floor = 0;
SELECT setval('fencing.purge_jobs_position', 0);

SELECT job, outcome, token FROM unnest(ARRAY['committed', 'expired', 'live', 'new', 'recent', 'released', 'revoked', 'steps']) job, fencing_acquire('purge_jobs/' || job, who('a'), '1 hour');
SELECT outcome FROM fencing_advance('purge_jobs/external', 5);
SELECT outcome FROM fencing_commit('purge_jobs/committed', 1, '1', 'SELECT 1');
SELECT outcome FROM fencing_commit('purge_jobs/recent', 1, '1', 'SELECT 1');
SELECT count(outcome) FROM generate_series(1, 3) i, fencing_commit('purge_jobs/steps', 1, '1', 'SELECT 1', i::text);
SELECT fencing_revoke('purge_jobs/revoked', 'test');
SELECT outcome FROM fencing_release('purge_jobs/released', who('a'), 1);
SELECT ago('purge_jobs/' || job, '10 days') FROM unnest(ARRAY['committed', 'expired', 'recent', 'revoked', 'steps']) job;
SELECT ago('purge_jobs/new', '1 hour');
UPDATE fencing.receipts SET committed_at = clock_timestamp() WHERE job_key = 'purge_jobs/recent';
UPDATE fencing.receipts SET committed_at = clock_timestamp() WHERE job_key = 'purge_jobs/steps' AND step = '2';

-- what is too young, live, external or has committed since stays
SELECT * FROM fencing_purge('jobs', '7 days');
SELECT * FROM jobs;
SELECT floor FROM fencing.floor;
-- the past is pruned, the next token above all
SELECT outcome FROM fencing_commit('purge_jobs/committed', 1, '1', 'SELECT 1');
SELECT outcome FROM fencing_commit('purge_jobs/revoked', 2, '1', 'SELECT 1');
SELECT fencing_commit('purge_jobs/revoked', 3, '1', 'SELECT 1');
SELECT outcome FROM fencing_renew('purge_jobs/expired', who('a'), 1);
SELECT outcome, token FROM fencing_acquire('purge_jobs/expired', who('b'));
SELECT outcome FROM fencing_commit('purge_jobs/expired', 1, '1', 'SELECT 1');
-- nothing more; and with time the others
SELECT * FROM fencing_purge('jobs', '7 days');
SELECT ago('purge_jobs/' || job, '10 days') FROM unnest(ARRAY['new', 'recent', 'steps']) job;
SELECT * FROM fencing_purge('jobs', '7 days');
SELECT * FROM jobs;
SELECT count(*) FROM fencing.receipts;
-- a live job is left alone however short the time
SELECT * FROM fencing_purge('jobs', '1 microsecond');
SELECT * FROM jobs;

-- within its own statement a job is busy
UPDATE fencing.leases SET lease_until = clock_timestamp() - interval '10 days' WHERE job_key = 'purge_jobs/live';
SELECT outcome, result FROM fencing_commit('purge_jobs/live', 1, '1', $$SELECT purged FROM fencing_purge('jobs', '7 days')$$);
SELECT * FROM jobs;

-- part by part: a call looks at max_rows of them or so, and goes on where the last one ended
SELECT count(outcome) FROM generate_series(1, 1000) i, fencing_acquire('purge_jobs/many/' || i, who('a'), '1 hour');
SELECT count(*) FROM (SELECT ago('purge_jobs/many/' || i, '10 days') FROM generate_series(1, 1000, 3) i) x;
CREATE TABLE calls (purged bigint, more boolean);
DO $$
DECLARE
	again boolean := true;
BEGIN
	WHILE again LOOP
		INSERT INTO calls SELECT * FROM fencing_purge('jobs', '7 days', 100) RETURNING more INTO again;
	END LOOP;
END $$;
SELECT count(*) > 5 AS parts, max(purged) <= 200 AS bounded, sum(purged) AS purged FROM calls;
SELECT count(*) FROM fencing.fences WHERE job_key LIKE 'purge_jobs/many/%';
-- an update moved rows to other pages: the next round finds those
SELECT sum(purged) FROM generate_series(1, 30), fencing_purge('jobs', '7 days', 1000);

-- bad input, and who may
SELECT fencing_purge('job', '7 days');
SELECT fencing_purge('jobs', '0');
SELECT fencing_purge('jobs', '7 days', 0);
BEGIN READ ONLY;
SELECT fencing_purge('jobs', '7 days');
ROLLBACK;

DROP TABLE calls;
DROP VIEW jobs;
DROP FUNCTION ago, who;
\getenv folder PG_ABS_SRCDIR
\set clean_up :folder '/sql/clean_up.psql'
\i :clean_up
