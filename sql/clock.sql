--
-- The clock is the server's at the moment of the decision: not that of the
-- transaction's beginning, nor of the statement's.
--
SET client_min_messages = error;
CREATE FUNCTION pg_temp.who(text) RETURNS uuid LANGUAGE sql AS $$ SELECT md5($1)::uuid $$;
-- all of it in one statement
DO $$
DECLARE
	ttl interval = '30 milliseconds';
	t timestamptz;
	a record;
BEGIN
	PERFORM pg_sleep(0.03);
	t := clock_timestamp();
	SELECT * INTO a FROM fencing_acquire('clock', pg_temp.who('a'), ttl);
	ASSERT a.outcome = 'acquired' AND a.lease_until >= t + ttl, 'new';
	ASSERT a.lease_until <= clock_timestamp() + ttl, 'new, not too long';

	PERFORM pg_sleep(0.01);
	t := clock_timestamp();
	SELECT * INTO a FROM fencing_renew('clock', pg_temp.who('a'), a.token, ttl);
	ASSERT a.outcome = 'renewed' AND a.lease_until >= t + ttl, 'renewed';

	PERFORM pg_sleep(0.01);
	t := clock_timestamp();
	SELECT * INTO a FROM fencing_acquire('clock', pg_temp.who('a'), '1 hour');
	ASSERT a.outcome IN ('renewed', 'acquired') AND a.lease_until >= t + interval '1 hour', 'extended';
	PERFORM fencing_release('clock', pg_temp.who('a'), a.token);

	-- ended since the beginning of the transaction: nobody is held
	PERFORM fencing_acquire('clock', pg_temp.who('a'), '10 milliseconds');
	PERFORM pg_sleep(0.02);
	t := clock_timestamp();
	SELECT * INTO a FROM fencing_acquire('clock', pg_temp.who('b'), ttl);
	ASSERT a.outcome = 'acquired' AND a.lease_until >= t + ttl, 'taken over';
	PERFORM fencing_release('clock', pg_temp.who('b'), a.token);

	-- what is told to a challenger is not a millisecond too early
	PERFORM fencing_acquire('clock', pg_temp.who('a'), '1 hour');
	FOR i IN 1..20 LOOP
		SELECT * INTO a FROM fencing_acquire('clock', pg_temp.who('b'), ttl);
		ASSERT a.outcome = 'held' AND a.retry_after_ms * interval '1 millisecond' >= a.lease_until - clock_timestamp(), 'held';
	END LOOP;

	-- receipts, events
	PERFORM fencing_acquire('clock/receipt', pg_temp.who('a'), '1 hour');
	PERFORM pg_sleep(0.01);
	t := clock_timestamp();
	SELECT c.* INTO a FROM fencing.fences f, fencing_commit(f.job_key, f.token, '{}', 'SELECT 1') c WHERE f.job_key = 'clock/receipt';
	ASSERT a.outcome = 'committed' AND a.committed_at >= t, 'receipt';
	t := clock_timestamp();
	PERFORM fencing_outbox_emit('clock', '1', 'x', '1');
	ASSERT (SELECT created_at FROM fencing.outbox WHERE aggregatetype = 'clock') >= t, 'event';
	t := clock_timestamp();
	SELECT * INTO a FROM fencing_publish('clock', 0, '1');
	ASSERT a.committed_at >= t, 'revision';
	t := clock_timestamp();
	PERFORM fencing_revoke('clock', 'test');
	ASSERT (SELECT revoked_at FROM fencing.revocations WHERE job_key = 'clock') >= t, 'revocation';
END $$;

\getenv folder PG_ABS_SRCDIR
\set clean_up :folder '/sql/clean_up.psql'
\i :clean_up
