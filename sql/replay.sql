--
-- What is only told writes nothing: no transaction id, no WAL, no row version,
-- no lock.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;

CREATE SCHEMA regress_fencing_replay;
SET search_path = regress_fencing_replay, public;

CREATE TABLE business (line text);
SELECT token FROM fencing_acquire('replay/job', '00000000-0000-0000-0000-00000000000a') \gset
SELECT outcome, result FROM fencing_commit('replay/job', :token, '{"a": 1, "b": [true]}',
	'INSERT INTO business VALUES (''once'') RETURNING line');
-- An older token without a receipt, for stale; the holder is 000b.
SELECT token AS former FROM fencing_acquire('replay/moved', '00000000-0000-0000-0000-00000000000a') \gset
SELECT outcome FROM fencing_release('replay/moved', '00000000-0000-0000-0000-00000000000a', :former);
SELECT outcome, token > :former AS higher FROM fencing_acquire('replay/moved', '00000000-0000-0000-0000-00000000000b', '1 hour');

CREATE TABLE calls (n serial, what text, command text);
INSERT INTO calls (what, command) VALUES
('replayed', format($$SELECT outcome FROM fencing_commit('replay/job', %s, '{"b": [true], "a": 1.0}',
	'INSERT INTO business VALUES (''once'') RETURNING line')$$, :token)),
('replayed by the gate', format($$SELECT outcome FROM fencing_commit('replay/job', %s, '{"b": [true], "a": 1.0}')$$, :token)),
('replayed, report_errors', format($$SELECT outcome FROM fencing_commit('replay/job', %s, '{"a": 1, "b": [true]}',
	report_errors => true)$$, :token)),
('replayed, strict', format($$SELECT outcome FROM fencing_commit('replay/job', %s, '{"a": 1, "b": [true]}',
	strict => true)$$, :token)),
('conflict', format($$SELECT outcome FROM fencing_commit('replay/job', %s, '{"a": 2}',
	'INSERT INTO business VALUES (''once'') RETURNING line')$$, :token)),
('stale', format($$SELECT outcome FROM fencing_commit('replay/moved', %s, '{"a": 2}',
	'INSERT INTO business VALUES (''once'') RETURNING line')$$, :former)),
('held', $$SELECT outcome FROM fencing_acquire('replay/moved', '00000000-0000-0000-0000-00000000000c')$$),
('lost', format($$SELECT outcome FROM fencing_renew('replay/moved', '00000000-0000-0000-0000-00000000000a', %s)$$, :former)),
('release lost', format($$SELECT outcome FROM fencing_release('replay/moved', '00000000-0000-0000-0000-00000000000a', %s)$$, :former)),
('receipt', format($$SELECT digest = fencing_digest('{"a": 1, "b": [true]}') FROM fencing_receipt('replay/job', %s)$$, :token)),
('no receipt', format($$SELECT count(*) FROM fencing_receipt('replay/job', %s, 'other step')$$, :token));

-- The answer, and what the transaction has taken since: it runs as the only
-- one of its transaction.
CREATE PROCEDURE each_alone() LANGUAGE plpgsql AS $$
DECLARE
	c record;
	answer text;
BEGIN
	FOR c IN SELECT * FROM calls ORDER BY n LOOP
		COMMIT;
		EXECUTE c.command INTO answer;
		RAISE WARNING USING MESSAGE = format('%s: %s, transaction id: %s, locks: %s', c.what, answer,
			COALESCE(pg_current_xact_id_if_assigned()::text, 'none'),
			(SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype IN ('advisory', 'tuple', 'transactionid') AND mode <> 'SIReadLock'));
	END LOOP;
END $$;
\set VERBOSITY terse
\set SHOW_CONTEXT never
CALL each_alone();
SET default_transaction_isolation = 'repeatable read';
CALL each_alone();
SET default_transaction_isolation = 'serializable';
CALL each_alone();
RESET default_transaction_isolation;
\set VERBOSITY sqlstate

-- The same as a client would see it.
BEGIN;
SELECT outcome, result, error FROM fencing_commit('replay/job', :token, '{"b": [true], "a": 1.0}',
	'INSERT INTO business VALUES (''twice'') RETURNING line');
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
SELECT outcome, result FROM fencing_commit('replay/job', :token, '{}');
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
SELECT outcome, result FROM fencing_commit('replay/moved', :former, '{}');
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
SELECT outcome, token, retry_after_ms > 3000000 AS retry_later
FROM fencing_acquire('replay/moved', '00000000-0000-0000-0000-00000000000c');
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
COMMIT;
SELECT * FROM business;

--
-- No WAL of its own: counted for this backend by EXPLAIN, so that the rest of
-- the server does not matter.  The first calls may set hint bits.
--
CREATE FUNCTION wal_records(command text, times int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	plan json;
	records bigint := 0;
BEGIN
	FOR i IN 1..times LOOP
		EXECUTE 'EXPLAIN (ANALYZE, WAL, TIMING OFF, FORMAT JSON) ' || command INTO plan;
		records = records + (plan->0->'Plan'->>'WAL Records')::bigint;
	END LOOP;
	RETURN records;
END $$;
-- It does see a write.
SELECT wal_records('INSERT INTO business VALUES (''seen'')', 1) > 0 AS seen;
DELETE FROM business WHERE line = 'seen';
VACUUM business;
CHECKPOINT;
SELECT count(wal_records(command, 3)) AS warmed_up FROM calls;
-- A cache that another process invalidates in between costs catalog reads: the
-- best of three rounds counts.
SELECT what, min(wal_records(command, 100)) AS records
FROM calls, generate_series(1, 3) WHERE what IN ('replayed', 'replayed by the gate', 'conflict', 'stale', 'held', 'receipt')
GROUP BY n, what ORDER BY n;

--
-- The rows are the same versions, untouched and unlocked.
--
SELECT xmin AS receipt_xmin, ctid AS receipt_ctid, xmax AS receipt_xmax, committed_at FROM fencing.receipts WHERE job_key = 'replay/job' \gset
SELECT xmin AS fence_xmin, ctid AS fence_ctid, xmax AS fence_xmax FROM fencing.fences WHERE job_key = 'replay/moved' \gset
SELECT xmin AS lease_xmin, ctid AS lease_ctid, xmax AS lease_xmax FROM fencing.leases WHERE job_key = 'replay/moved' \gset
SELECT outcome, committed_at = :'committed_at' AS same_time, result
FROM fencing_commit('replay/job', :token, '{"a": 1e0, "b": [true]}');
SELECT outcome, committed_at = :'committed_at' AS same_time, result, error, fence = :token AS fence
FROM fencing_commit('replay/job', :token, '{"a": "1", "b": [true]}');
SELECT outcome FROM fencing_commit('replay/moved', :former, '{}');
SELECT outcome FROM fencing_acquire('replay/moved', '00000000-0000-0000-0000-00000000000c');
SELECT outcome FROM fencing_renew('replay/moved', '00000000-0000-0000-0000-00000000000a', :former);
SELECT outcome FROM fencing_release('replay/moved', '00000000-0000-0000-0000-00000000000b', :former);
SELECT xmin = :'receipt_xmin' AS xmin, ctid = :'receipt_ctid' AS ctid, xmax = :'receipt_xmax' AS xmax FROM fencing.receipts WHERE job_key = 'replay/job';
SELECT xmin = :'fence_xmin' AS xmin, ctid = :'fence_ctid' AS ctid, xmax = :'fence_xmax' AS xmax FROM fencing.fences WHERE job_key = 'replay/moved';
SELECT xmin = :'lease_xmin' AS xmin, ctid = :'lease_ctid' AS ctid, xmax = :'lease_xmax' AS xmax FROM fencing.leases WHERE job_key = 'replay/moved';

--
-- The receipt decides before the fence: after a takeover, for every step.
--
SELECT outcome, result FROM fencing_commit('replay/job', :token, '{"step": 2}', 'SELECT 2 AS step', 'second');
SELECT outcome FROM fencing_release('replay/job', '00000000-0000-0000-0000-00000000000a', :token);
SELECT outcome, token > :token AS higher, token AS next FROM fencing_acquire('replay/job', '00000000-0000-0000-0000-00000000000b') \gset
SELECT :'outcome' AS outcome, :'higher' AS higher;
SELECT outcome, result, fence = :next AS fence FROM fencing_commit('replay/job', :token, '{"a": 1, "b": [true]}');
SELECT outcome, result FROM fencing_commit('replay/job', :token, '{"step": 2}', step => 'second');
SELECT outcome, result FROM fencing_commit('replay/job', :token, '{"step": 3}', step => 'second');
SELECT outcome, result FROM fencing_commit('replay/job', :token, '{"step": 3}', step => 'third');
-- Replayed in the transaction that committed it, and in its savepoints.
BEGIN;
SELECT outcome, result FROM fencing_commit('replay/job', :next, '{"n": 1}', 'INSERT INTO business VALUES (''next'') RETURNING line');
SELECT outcome, result FROM fencing_commit('replay/job', :next, '{"n": 1}', 'INSERT INTO business VALUES (''next'') RETURNING line');
SELECT outcome, result FROM fencing_commit('replay/job', :next, '{"n": 2}');
SAVEPOINT s;
SELECT outcome, result FROM fencing_commit('replay/job', :next, '{"n": 1}', step => 'in savepoint');
SELECT outcome, result FROM fencing_commit('replay/job', :next, '{"n": 1}', step => 'in savepoint');
ROLLBACK TO s;
SELECT outcome, result FROM fencing_commit('replay/job', :next, '{"n": 2}', step => 'in savepoint');
SELECT outcome, result FROM fencing_commit('replay/job', :next, '{"n": 1}');
COMMIT;
SELECT line, count(*) FROM business GROUP BY line ORDER BY line;
-- A replay does not care for the statement's text, table or outcome.
DROP TABLE business;
SELECT outcome, result FROM fencing_commit('replay/job', :next, '{"n": 1}', 'INSERT INTO business VALUES (''next'') RETURNING line');
-- An answer leaves the transaction usable.
BEGIN;
SELECT outcome FROM fencing_commit('replay/job', :token, '{}');
SELECT outcome FROM fencing_commit('replay/job', :token, '{}', step => 'none');
SELECT outcome FROM fencing_acquire('replay/job', '00000000-0000-0000-0000-00000000000c');
SELECT outcome FROM fencing_commit('replay/job', :next, '{}', 'SELECT 1 AS one', 'usable');
COMMIT;

DELETE FROM fencing.receipts WHERE job_key LIKE 'replay/%';
DELETE FROM fencing.leases WHERE job_key LIKE 'replay/%';
DELETE FROM fencing.fences WHERE job_key LIKE 'replay/%';
DROP SCHEMA regress_fencing_replay CASCADE;
