--
-- Retention of idempotent operations: from a record to a tombstone, and from
-- there to nothing; and request schemas that no record needs any more.
--
\set VERBOSITY sqlstate
SET client_min_messages = error;
CREATE SCHEMA regress_once_purge;
SET search_path = regress_once_purge, public;
CREATE FUNCTION may(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS boolean LANGUAGE sql AS $$ SELECT auth IS NULL $$;
CREATE SEQUENCE ran;
-- an operation that keeps results for an hour and keys for two
SELECT fencing_define_operation('purge/' || o, 'may(text,text,jsonb,jsonb)', '1 hour', '2 hours'), fencing_define_request('purge/' || o, 1, '{"properties": {"a": {"type": "integer"}}}') FROM unnest('{one,two}'::text[]) o;
-- Records are aged by hand, in minutes.
CREATE FUNCTION record(operation text, key text, age int, request jsonb DEFAULT '{"a": 1}') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	SELECT outcome INTO answer FROM fencing_once('t', 'purge/' || record.operation, record.key, request, 'SELECT 1 AS kept');
	UPDATE fencing.records r SET committed_at = clock_timestamp() - make_interval(mins => age) WHERE r.operation = 'purge/' || record.operation AND r.key = record.key;
	RETURN answer;
END $$;
CREATE FUNCTION once(operation text, key text, request jsonb DEFAULT '{"a": 1}', auth jsonb DEFAULT NULL, strict boolean DEFAULT false) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	o record;
BEGIN
	SELECT * INTO o FROM fencing_once('t', 'purge/' || once.operation, once.key, request, 'SELECT nextval(''regress_once_purge.ran'') IS NOT NULL AS was_run', auth, strict => once.strict) o;
	RETURN concat_ws(' ', o.outcome, o.result);
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
CREATE FUNCTION attempt(call text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE 'SELECT ' || call;
	RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ': ' || SQLERRM;
END $$;
CREATE VIEW state AS SELECT operation, key, result, purged, responded FROM fencing.records WHERE operation LIKE 'purge/%' ORDER BY operation, key;

-- until there is nothing more to do
CREATE PROCEDURE purge_all(older_than interval, max_rows int DEFAULT 10000) LANGUAGE plpgsql AS $$
DECLARE
	calls int := 0;
	p record;
BEGIN
	LOOP
		SELECT * INTO p FROM fencing_purge('records', older_than, max_rows);
		calls := calls + 1;
		ASSERT p.purged <= max_rows AND calls <= 100;
		EXIT WHEN p.purged = 0 AND NOT p.more;
		COMMIT;
	END LOOP;
END $$;

--
-- By age: the record's, by both intervals
--
SELECT record('one', 'r' || age, age) FROM unnest('{30,50,61,110,121,200}'::int[]) age;
-- an expired record that is not purged yet still replays
SELECT once('one', 'r200');
-- older_than is not over for any
SELECT * FROM fencing_purge('records', '201 minutes');
SELECT * FROM fencing_purge('records', '1 day');
SELECT count(*) FROM state WHERE purged;
-- older_than is over for one; the retention for four, the time to forget for two
CALL purge_all('150 minutes');
SELECT * FROM state WHERE key <> 'r200';
CALL purge_all('1 minute');
SELECT * FROM state;
SELECT * FROM fencing_purge('records', '1 minute');
SELECT hash_version, records, tombstones FROM fencing.operation_status WHERE operation = 'purge/one';

--
-- pruned: whatever is asked, nothing is run
--
SELECT outcome, result, error FROM fencing_once('t', 'purge/one', 'r61', '{"a": 1}', 'SELECT nextval(''regress_once_purge.ran'')');
SELECT once('one', 'r61'), once('one', 'r61', '{"a": 2}') AS other, once('one', 'r61', strict => true) AS strict, once('one', 'r61', auth => '1') AS denied;
SELECT outcome, error FROM fencing_once('t', 'purge/one', 'r61', '{"a": 1}', 'SELECT 1', report_errors => true);
SELECT outcome, error FROM fencing_once('t', 'purge/one', 'r61', '{"a": 1}');
SELECT fencing_once_respond('t', 'purge/one', 'r61', '1');
BEGIN READ ONLY;
SELECT once('one', 'r61');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT once('one', 'r61');
COMMIT;
SELECT is_called FROM ran;
-- younger ones replay
SELECT once('one', 'r50'), once('one', 'r30'), once('one', 'r30', '{"a": 2}') AS other;
-- forgotten ones are new
SELECT once('one', 'r121', '{"a": 5}'), once('one', 'r121', '{"a": 5}') AS again;
-- Strange ages: a record of the future, one of long ago.
SELECT record('one', 'future', -1000000), record('one', 'past', 1000000000);
CALL purge_all('1 microsecond');
SELECT count(*) FROM state WHERE key = 'past';
SELECT key, purged FROM state WHERE key = 'future';
DELETE FROM fencing.records WHERE operation = 'purge/one';

--
-- Each operation has its own retention, and what it is now counts
--
SELECT fencing_define_operation('purge/two', 'may(text,text,jsonb,jsonb)', '10 minutes', '20 minutes');
SELECT record('one', 'k', 30), record('two', 'k', 30), record('two', 'l', 15), record('two', 'm', 5);
SELECT purged >= 2 AS purged FROM fencing_purge('records', '1 microsecond');
SELECT * FROM state WHERE NOT (operation = 'purge/two' AND key = 'k');
SELECT fencing_define_operation('purge/one', 'may(text,text,jsonb,jsonb)', '10 minutes', '20 minutes'), fencing_define_operation('purge/two', 'may(text,text,jsonb,jsonb)', '1 hour', '2 hours');
DELETE FROM fencing.records WHERE operation = 'purge/one';
SELECT record('one', 'k', 15);
SELECT * FROM fencing_purge('records', '1 microsecond');
SELECT * FROM state WHERE NOT (operation = 'purge/two' AND key = 'k');
-- a tombstone does not come to life again by a longer one
SELECT once('two', 'l');
-- keys are not forgotten sooner than results
SELECT fencing_define_operation('purge/two', 'may(text,text,jsonb,jsonb)', '1 hour', '59 minutes');
SELECT fencing_define_operation('purge/two', 'may(text,text,jsonb,jsonb)', '91 days');
SELECT fencing_define_operation('purge/two', 'may(text,text,jsonb,jsonb)', '1 hour', '1 hour');
DELETE FROM fencing.records WHERE operation LIKE 'purge/%';
SELECT record('two', 'a', 50), record('two', 'b', 61);
CALL purge_all('1 microsecond');
SELECT once('two', 'a'), once('two', 'b');
-- for ever: longer ago than time began, in years, in days, and by a sum that is less
SELECT record('two', 'c', 60);
SELECT fencing_define_operation('purge/two', 'may(text,text,jsonb,jsonb)', '1 hour', '10000 years');
SELECT * FROM fencing_purge('records', '1 microsecond');
SELECT fencing_define_operation('purge/two', 'may(text,text,jsonb,jsonb)', '2000000000 days', '2000000000 days');
SELECT * FROM fencing_purge('records', '1 microsecond');
SELECT fencing_define_operation('purge/two', 'may(text,text,jsonb,jsonb)', '10000 years -3500000 days', '10000 years -3500000 days');
SELECT * FROM fencing_purge('records', '1 microsecond');
SELECT once('two', 'c');
DELETE FROM fencing.records WHERE operation LIKE 'purge/%';
SELECT fencing_define_operation('purge/' || o, 'may(text,text,jsonb,jsonb)', '1 hour', '2 hours') FROM unnest('{one,two}'::text[]) o;

--
-- One calendar, by definition and by purge: a day is 24 hours, a month 31 days, a
-- year 12 of them.  Nothing goes before a calendar would say so.
--
-- what is less, and what is equal
SELECT r, f, attempt(format('fencing_define_operation(''purge/two'', ''may(text,text,jsonb,jsonb)'', %L, %L)', r, f)) FROM (VALUES (1, '1 year', '361 days'), (2, '1 year', '371 days 23:59:59.999999'), (3, '1 year', '372 days'), (4, '372 days', '1 year'), (5, '1 mon', '30 days'), (6, '1 mon', '744 hours'), (7, '13 mons', '1 year 31 days'), (8, '1 year', '13 mons -31 days'), (9, '1 year', '13 mons -32 days'),
	(10, '1 mon -31 days', '1 year'), (11, '1 mon -30 days', '1 day'), (12, '1 mon -30 days -24:00', '1 day'), (13, '-1 mon 40 days', '1 year'), (14, '-1 mon', '1 year'), (15, '1 day -1 microsecond', '23:59:59.999999'), (16, '2 days -24:00:00.000001', '23:59:59.999999'),
	(17, '178000000 years', '178000000 years'), (18, '178000000 years -2147483647 days', '178000000 years'), (19, '1 day', '-178000000 years 2147483647 days'), (20, '2147483647 days 2562047788 hours', '2147483647 days'), (21, '-2147483647 days 2562047788 hours', '1 day')) v (n, r, f) ORDER BY n;
-- at the boundaries: seconds before and after, of what is kept, and of what is remembered
CREATE FUNCTION boundary(retention interval, forget_after interval) RETURNS TABLE (age interval, outcome text) LANGUAGE plpgsql AS $$
DECLARE
	offsets interval[] := ARRAY[forget_after + interval '1 minute', forget_after - interval '1 minute', retention + interval '1 minute', retention - interval '1 minute'];
BEGIN
	DELETE FROM fencing.records r WHERE r.operation = 'purge/two';
	PERFORM fencing_define_operation('purge/two', 'may(text,text,jsonb,jsonb)', retention, forget_after);
	FOREACH age IN ARRAY offsets LOOP
		PERFORM fencing_once('t', 'purge/two', age::text, '{"a": 1}', 'SELECT 1');
		-- by 31 days to the month, and no calendar
		UPDATE fencing.records r SET committed_at = clock_timestamp() - make_interval(secs => ((extract(year FROM age) * 12 + extract(month FROM age)) * 31 + extract(day FROM age)) * 86400 + extract(hour FROM age) * 3600 + extract(minute FROM age) * 60)
		WHERE r.operation = 'purge/two' AND r.key = age::text;
	END LOOP;
	PERFORM fencing_purge('records', '1 microsecond');
	FOREACH age IN ARRAY offsets LOOP
		SELECT o.outcome INTO outcome FROM fencing_once('t', 'purge/two', age::text, '{"a": 1}', 'SELECT 1') o;
		RETURN NEXT;
	END LOOP;
END $$;
SELECT v.n, b.* FROM (VALUES (1, interval '1 mon', interval '2 mons'), (2, '1 year', '2 years'), (3, '1 year', '1 year'), (4, '1 mon -30 days', '2 mons -30 days'), (5, '1 day 01:00', '10 years')) v (n, r, f), boundary(r, f) b ORDER BY n;
-- a session's calendar is none of its business
SET TimeZone = 'Europe/Berlin';
SELECT DISTINCT string_agg(outcome, ' ') FROM boundary('1 day', '1 mon');
RESET TimeZone;
DELETE FROM fencing.records WHERE operation LIKE 'purge/%';
SELECT fencing_define_operation('purge/two', 'may(text,text,jsonb,jsonb)', '1 hour', '2 hours');

--
-- In batches, the oldest first; that is, the operation that has it, and its oldest
--
SELECT count(record(CASE WHEN n % 2 = 0 THEN 'one' ELSE 'two' END, 'b' || lpad(n::text, 2, '0'), 60 + n)) FROM generate_series(1, 30) n;
SELECT * FROM fencing_purge('records', '1 hour', 7);
SELECT string_agg(key, ' ' ORDER BY key) AS tombstones FROM state WHERE purged;
SELECT * FROM fencing_purge('records', '1 hour', 1);
SELECT count(*) AS tombstones FROM state WHERE purged;
CALL purge_all('1 hour', 5);
SELECT count(*) AS records, count(*) FILTER (WHERE purged) AS tombstones FROM state;
-- records and tombstones together do not go over the bound
UPDATE fencing.records SET committed_at = committed_at - interval '1 hour' WHERE operation LIKE 'purge/%' AND key < 'b11';
SELECT count(record('one', 'c' || n, 90)) FROM generate_series(1, 10) n;
SELECT purged <= 5 AS bounded, more FROM fencing_purge('records', '1 hour', 5);
CALL purge_all('1 hour', 5);
SELECT count(*) AS records, count(*) FILTER (WHERE purged) AS tombstones FROM state;
DELETE FROM fencing.records WHERE operation LIKE 'purge/%';
-- a purge that is rolled back
SELECT record('one', 'k', 90);
BEGIN;
SELECT * FROM fencing_purge('records', '1 hour');
SELECT once('one', 'k');
ROLLBACK;
SELECT once('one', 'k');
--
-- Request schemas: a retired one goes when no record is left
--
DELETE FROM fencing.records WHERE operation LIKE 'purge/%';
SELECT record('one', 's1', 30), record('one', 's2', 90);
SELECT fencing_define_request('purge/one', 2, '{"properties": {"a": {"type": "integer"}, "b": {"default": 0}}}');
SELECT fencing_retire_request('purge/one', 1);
SELECT more FROM fencing_purge('records', '1 microsecond');
SELECT hash_version, retired, records, tombstones FROM fencing.operation_status WHERE operation = 'purge/one' ORDER BY 1;
SELECT once('one', 's1'), once('one', 's1', '{"a": 1, "b": 0}') AS upgraded, once('one', 's2'), once('one', 's3');
SELECT encode(fencing_request_hash('purge/one', 1, '{"a": 1}'), 'hex') = encode(sha256('{"a":1}'), 'hex') AS still_there;
-- one that is in force stays, without a record as well; a retired one goes with its last
UPDATE fencing.records SET committed_at = clock_timestamp() - interval '3 hours' WHERE operation LIKE 'purge/%';
CALL purge_all('1 microsecond');
SELECT hash_version, retired, records, tombstones FROM fencing.operation_status WHERE operation = 'purge/one' ORDER BY 1;
SELECT fencing_request_hash('purge/one', 1, '{"a": 1}');
SELECT once('one', 's1'), once('one', 's1', '{"a": 1, "b": 0}') AS again;
-- its number is free then, for another schema
SELECT fencing_define_request('purge/one', 1, '{"properties": {"c": {}}}');
SELECT fencing_request_canonical('purge/one', 1, '{"c": 1}');
SELECT once('one', 's5', '{"c": 1}'), once('one', 's5', '{"a": 1}');
-- not one that was retired by this very transaction, which others do not know of
SELECT fencing_retire_request('purge/two', 1);
BEGIN;
SELECT fencing_define_request('purge/two', 2, '{}'), fencing_retire_request('purge/two', 2);
SELECT more FROM fencing_purge('records', '1 microsecond');
SELECT count(*) FROM fencing.request_schemas WHERE operation = 'purge/two' AND hash_version = 2;
ROLLBACK;

-- one that was retired in another cluster, whose transactions had higher numbers
UPDATE fencing.request_schemas SET retired_by = '9000000000000000000' WHERE operation = 'purge/two' AND hash_version = 1;
CALL purge_all('1 microsecond');
SELECT count(*) FROM fencing.request_schemas WHERE operation = 'purge/two' AND hash_version = 1;

--
-- Who may ask is decided by the record's version, also where a tombstone is all that
-- is left: the answer does not tell that it is one.
--
CREATE FUNCTION newer(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS boolean LANGUAGE sql AS $$ SELECT request ? 'b' OR auth IS NULL $$;
SELECT fencing_define_operation('purge/three', 'newer(text,text,jsonb,jsonb)', '1 hour', '2 hours'), fencing_define_request('purge/three', 1, '{"properties": {"a": {"type": "integer"}}}');
SELECT record('three', 'live', 30), record('three', 'tomb', 90);
SELECT fencing_define_request('purge/three', 2, '{"properties": {"a": {"type": "integer"}, "b": {"default": 0}}}');
CREATE FUNCTION ask() RETURNS TABLE (request jsonb, auth jsonb, live text, tomb text, absent text) LANGUAGE plpgsql AS $$
BEGIN
	FOR request, auth IN VALUES ('{"a": 1, "b": 0}'::jsonb, '1'::jsonb), ('{"a": 1, "b": 2}', '1'), ('{"a": 1}', '1'), ('{"a": 1, "b": 0}', NULL), ('{"a": 1, "b": 2}', NULL) LOOP
		live := once('three', 'live', request, auth);
		tomb := once('three', 'tomb', request, auth);
		BEGIN
			absent := once('three', 'absent', request, auth);
			RAISE EXCEPTION USING errcode = 'ZZ000';
		EXCEPTION WHEN SQLSTATE 'ZZ000' THEN
		END;
		RETURN NEXT;
	END LOOP;
END $$;
SELECT * FROM ask();
SELECT more FROM fencing_purge('records', '1 microsecond');
SELECT key, purged FROM state WHERE operation = 'purge/three';
SELECT * FROM ask();
-- the schema of a tombstone stays, and goes with it
SELECT fencing_retire_request('purge/three', 1);
SELECT more FROM fencing_purge('records', '1 microsecond');
SELECT * FROM ask();
SELECT hash_version, retired, records, tombstones FROM fencing.operation_status WHERE operation = 'purge/three' ORDER BY 1;
-- and were it gone all the same, nobody could tell who may ask
UPDATE fencing.records SET hash_version = 7 WHERE operation = 'purge/three';
SELECT * FROM ask();
UPDATE fencing.records SET hash_version = 1, committed_at = committed_at - interval '3 hours' WHERE operation = 'purge/three';
CALL purge_all('1 microsecond');
SELECT hash_version FROM fencing.operation_status WHERE operation = 'purge/three';

--
-- Arguments and privileges
--
SELECT c, attempt(c) FROM unnest(ARRAY['fencing_purge(''records'', NULL)', 'fencing_purge(NULL, ''1 day'')', 'fencing_purge(''records'', ''1 day'', NULL)', 'fencing_purge(''records'', ''0'')', 'fencing_purge(''records'', ''-1 day'')', 'fencing_purge(''records'', ''1 day -24:00:00'')', 'fencing_purge(''records'', ''1 day'', 0)', 'fencing_purge(''records'', ''1 day'', -1)',
	'fencing_purge(''record'', ''1 day'')', 'fencing_purge(''Records'', ''1 day'')', 'fencing_purge(''operations'', ''1 day'')', 'fencing_purge('''', ''1 day'')', 'fencing_purge(''records'', ''100000 years'')', 'fencing_purge(''records'', ''1 day'', 2147483647)']) WITH ORDINALITY u (c, n) ORDER BY n;
BEGIN READ ONLY;
SELECT fencing_purge('records', '1 day');
ROLLBACK;
CREATE ROLE regress_fencing_once_purge;
SELECT fencing_grant('regress_fencing_once_purge', 'client');
SET ROLE regress_fencing_once_purge;
SELECT fencing_purge('records', '1 day');
RESET ROLE;
SELECT fencing_ungrant('regress_fencing_once_purge', 'client'), fencing_grant('regress_fencing_once_purge', 'admin');
SELECT record('one', 'admin', 90, '{"a": 1}');
SET ROLE regress_fencing_once_purge;
SELECT * FROM fencing_purge('records', '1 hour');
RESET ROLE;
SELECT key, purged FROM state;
SELECT fencing_ungrant('regress_fencing_once_purge', 'admin');
-- other kinds leave records alone
SELECT record('one', 'others', 90, '{"a": 1}');
SELECT more FROM fencing_purge('receipts', '1 microsecond');
SELECT more FROM fencing_purge('events', '1 microsecond');
SELECT once('one', 'others');

DELETE FROM fencing.records WHERE operation LIKE 'purge/%';
DELETE FROM fencing.request_schemas WHERE operation LIKE 'purge/%';
DELETE FROM fencing.operations WHERE operation LIKE 'purge/%';
DROP SCHEMA regress_once_purge CASCADE;
DROP ROLE regress_fencing_once_purge;
