--
-- Key locks: one at a time, whatever a transaction makes, under names that say
-- nothing; only the aggregates of events stay locked, and are counted.
--
CREATE FUNCTION key_locks_allow(text, text, jsonb, jsonb) RETURNS boolean LANGUAGE sql AS 'SELECT true';
SELECT fencing_define_operation('key_locks/pay', 'key_locks_allow(text, text, jsonb, jsonb)');
SELECT fencing_define_request('key_locks/pay', 1, '{"type": "object"}');
CREATE VIEW key_locks_mine AS
SELECT l.locktype, l.mode, l.objsubid FROM pg_locks l WHERE l.pid = pg_backend_pid() AND l.locktype IN ('advisory', 'tuple', 'object', 'transactionid')
-- but the one that all who emit share
AND (l.locktype, l.mode) <> ('advisory', 'RowExclusiveLock');

-- more new rows than the lock table has room for, in one transaction
BEGIN;
SELECT count(*), min(token), max(token) FROM generate_series(1, 30000) i, LATERAL fencing_acquire('key_locks/' || i, md5('A')::uuid, '1 hour') a WHERE outcome = 'acquired';
SELECT locktype, count(*) FROM key_locks_mine GROUP BY 1 ORDER BY 1;
ROLLBACK;
BEGIN;
SELECT count(*) FROM generate_series(1, 3000) i, LATERAL fencing_advance('key_locks/x' || i, 1) WHERE outcome = 'advanced';
SELECT count(*) FROM generate_series(1, 3000) i, LATERAL fencing_target_desire('key_locks/d', i::text);
SELECT locktype, count(*) FROM key_locks_mine GROUP BY 1 ORDER BY 1;
ROLLBACK;
BEGIN;
SELECT count(*) FROM generate_series(1, 3000) i, LATERAL fencing_once('acme', 'key_locks/pay', i::text, '{}', 'SELECT 1') WHERE outcome = 'committed';
SELECT locktype, count(*) FROM key_locks_mine GROUP BY 1 ORDER BY 1;
ROLLBACK;
BEGIN;
SELECT count(*) FROM generate_series(1, 3000) i, LATERAL fencing_publish('key_locks/' || i, 0, '{}') WHERE outcome = 'committed';
SELECT locktype, count(*) FROM key_locks_mine GROUP BY 1 ORDER BY 1;
ROLLBACK;
-- made, and forgotten
SELECT count(*) FROM generate_series(1, 3000) i, LATERAL fencing_acquire('key_locks/' || i, md5('A')::uuid, '1 microsecond') WHERE outcome = 'acquired';
BEGIN;
SELECT count(fencing_forget('key_locks/' || i)::text) FROM generate_series(1, 3000) i;
SELECT locktype, count(*) FROM key_locks_mine GROUP BY 1 ORDER BY 1;
COMMIT;

-- What is refused, answered or rolled back leaves none either.
BEGIN;
SELECT outcome FROM fencing_acquire('key_locks/1', md5('A')::uuid, '1 hour');
SAVEPOINT s;
SELECT outcome FROM fencing_acquire('key_locks/2', md5('A')::uuid, '1 hour');
ROLLBACK TO s;
SELECT outcome FROM fencing_acquire('key_locks/2', md5('B')::uuid, '1 hour');
SELECT outcome FROM fencing_once('acme', 'key_locks/pay', '1', '{}', 'SELECT 1/0', report_errors => true);
SELECT outcome FROM fencing_once('acme', 'key_locks/pay', '1', '{}', 'SELECT 1');
SELECT outcome FROM fencing_once('acme', 'key_locks/pay', '1', '{}', 'SELECT 1');
SELECT locktype, count(*) FROM key_locks_mine WHERE locktype <> 'transactionid' GROUP BY 1 ORDER BY 1;
ROLLBACK;

-- Aggregates: a quarter of the lock table, and clearly refused above.
CREATE TABLE key_locks_limits (n bigint);
CREATE FUNCTION key_locks_limit() RETURNS bigint LANGUAGE sql AS 'SELECT n FROM key_locks_limits';
CREATE FUNCTION key_locks_emit(from_no bigint, to_no bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	detail text;
	hint text;
BEGIN
	PERFORM fencing_outbox_emit('key_locks', i::text, 'made', '{}') FROM generate_series(from_no, to_no) i;
	RETURN 'emitted';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	IF key_locks_limit() IS NULL THEN
		INSERT INTO key_locks_limits VALUES (substring(detail, '\d+')::bigint);
	END IF;
	RETURN concat_ws(' | ', SQLSTATE, SQLERRM, replace(detail, key_locks_limit()::text, 'N'), hint);
END
$$;
SELECT key_locks_emit(1, 30000);
SELECT key_locks_limit() BETWEEN 64 AND 30000 AS sensible;
BEGIN;
SELECT key_locks_emit(1, key_locks_limit());
SELECT key_locks_emit(1, 10);	-- locked already
SELECT key_locks_emit(1, key_locks_limit() + 1);
SELECT key_locks_emit(0, 0);
SELECT count(*) = key_locks_limit() AS counted FROM key_locks_mine WHERE locktype = 'advisory' AND objsubid = 254;
ROLLBACK;
-- what was rolled back counts no more, what a subtransaction has left does
BEGIN;
SELECT key_locks_emit(1, key_locks_limit() / 2);
SAVEPOINT a;
SELECT key_locks_emit(key_locks_limit() / 2 + 1, key_locks_limit());
ROLLBACK TO a;
SELECT key_locks_emit(key_locks_limit() + 1, 2 * key_locks_limit() - key_locks_limit() / 2);
SAVEPOINT b;
SAVEPOINT c;
SELECT key_locks_emit(-1, -1);
RELEASE c;
RELEASE b;
SELECT count(*) - key_locks_limit() AS counted FROM key_locks_mine WHERE locktype = 'advisory' AND objsubid = 254;
SELECT key_locks_emit(-9, -3);
ROLLBACK TO a;
SELECT key_locks_emit(-(key_locks_limit() - key_locks_limit() / 2), -1);
SELECT key_locks_emit(-100000, -1) LIKE '54000%' AS refused;
ROLLBACK;
BEGIN;
SELECT key_locks_emit(1, key_locks_limit());
ROLLBACK;
-- the error as it is, outside of any function
\set VERBOSITY terse
SELECT count(fencing_outbox_emit('key_locks', i::text, 'made', '{}')) FROM generate_series(1, 30000) i;
\set VERBOSITY default
\echo :LAST_ERROR_SQLSTATE
SELECT count(*) FROM key_locks_mine WHERE locktype = 'advisory';
-- publishing needs none
BEGIN;
SELECT key_locks_emit(1, key_locks_limit());
SELECT outcome FROM fencing_publish('key_locks/new', 0, '{}');
ROLLBACK;

-- Names: the same key always has the same, no two of them are alike, and none is
-- what anybody can compute.
CREATE TABLE key_locks_name (what text, classid oid, objid oid);
CREATE FUNCTION key_locks_remember(what text) RETURNS void LANGUAGE sql AS
$$INSERT INTO key_locks_name SELECT what, classid, objid FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory' AND objsubid = 254 AND mode = 'ExclusiveLock'$$;
BEGIN;
SELECT fencing_outbox_emit('a', 'b', 'made', '{}') IS NOT NULL AS emitted;
SELECT key_locks_remember('first');
COMMIT;
BEGIN;
SELECT fencing_outbox_emit('a', 'b', 'made', '{}') IS NOT NULL AS emitted;
SELECT key_locks_remember('second');
COMMIT;
BEGIN;
SELECT fencing_outbox_emit('ab', 'c', 'made', '{}') IS NOT NULL AS emitted;
SELECT key_locks_remember('other');
COMMIT;
BEGIN;
SELECT fencing_outbox_emit('a', 'bc', 'made', '{}') IS NOT NULL AS emitted;
SELECT key_locks_remember('another');
COMMIT;
SELECT string_agg(what, ', ' ORDER BY what) AS alike FROM key_locks_name GROUP BY classid, objid ORDER BY 1;
SELECT count(*) AS computable FROM key_locks_name, LATERAL (VALUES ('outbox/1/a/b'), ('a/b'), ('ab'), ('1:a1:b')) v(name)
WHERE hashtextextended(name, 0) = (classid::bigint << 32 | objid::bigint);
-- the application cannot take one: its locks have 1 and 2 there
BEGIN;
SELECT pg_advisory_xact_lock((SELECT classid::bigint << 32 | objid::bigint FROM key_locks_name WHERE what = 'first')) IS NULL AS taken;
SELECT pg_advisory_xact_lock(1, 254) IS NULL AS taken;
SELECT objsubid FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory' ORDER BY 1;
COMMIT;

DROP TABLE key_locks_name, key_locks_limits;
DROP FUNCTION key_locks_emit(bigint, bigint), key_locks_limit(), key_locks_remember(text), key_locks_allow(text, text, jsonb, jsonb);
DROP VIEW key_locks_mine;
ALTER TABLE fencing.outbox DISABLE TRIGGER immutable;
DELETE FROM fencing.outbox WHERE aggregatetype IN ('a', 'ab');
ALTER TABLE fencing.outbox ENABLE TRIGGER immutable;
DELETE FROM fencing.request_schemas WHERE operation LIKE 'key_locks/%';
DELETE FROM fencing.operations WHERE operation LIKE 'key_locks/%';
UPDATE fencing.floor SET floor = 0;
