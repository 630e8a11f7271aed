--
-- Idempotent operations: every answer with every column, and what it leaves
-- behind.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE SCHEMA regress_once;
SET search_path = regress_once, public;
CREATE TABLE payment (tenant text, key text, account text, amount numeric CHECK (amount > 0));
CREATE TABLE allowed (who text, account text);
INSERT INTO allowed VALUES ('ann', 'a'), ('ann', 'b'), ('bob', 'b');
-- who may pay from which account
CREATE FUNCTION may(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS boolean LANGUAGE sql STABLE AS
$$ SELECT EXISTS (SELECT FROM regress_once.allowed a WHERE a.who = auth->>'who' AND a.account = request->>'account') $$;
CREATE FUNCTION yes(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS boolean LANGUAGE sql STABLE AS 'SELECT true';

-- the state is looked at as superuser
CREATE TEMP VIEW state AS
SELECT (SELECT count(*) FROM fencing.records WHERE operation LIKE 'once/%') AS records,
	(SELECT count(*) FROM payment) AS rows, (SELECT count(*) FROM fencing.outbox WHERE aggregatetype = 'once') AS events;
\set write '''INSERT INTO payment SELECT $1, $3, $4->>''''account'''', ($4->>''''amount'''')::numeric RETURNING key, amount, fencing_outbox_emit(''''once'''', $3, ''''paid'''', $4) IS NOT NULL AS event'''

SELECT fencing_define_operation('once/pay', 'may(text,text,jsonb,jsonb)');
SELECT fencing_define_request('once/pay', 1, '{"type": "object", "required": ["account", "amount"], "properties": {
	"account": {"type": "string"}, "amount": {"type": "number"}, "currency": {"type": "string", "default": "EUR"},
	"due": {"type": "string", "format": "date-time"}, "trace": {"x-fencing": "ignore"}}}');
SELECT * FROM fencing.operation_status WHERE operation LIKE 'once/%';

--
-- committed
--
SELECT clock_timestamp() AS t0 \gset
SELECT outcome, result, committed_at BETWEEN :'t0' AND clock_timestamp() AS by_clock, hash_version, error
FROM fencing_once('t', 'once/pay', 'k', '{"account": "a", "amount": 4.50, "trace": 1}', :write, '{"who": "ann"}');
SELECT * FROM state;
SELECT * FROM payment;
SELECT committed_at AS at, xmin AS xmin FROM fencing.records WHERE operation = 'once/pay' AND key = 'k' \gset
-- The record: the request itself is not kept.  Its hash is for ever.
SELECT tenant_id, operation, key, encode(hash, 'hex') AS hash, hash = fencing_request_hash('once/pay', 1, '{"account": "a", "amount": 4.5}') AS same, hash_version, digest_version, result, responded, purged
FROM fencing.records WHERE operation LIKE 'once/%';
SELECT column_name FROM information_schema.columns WHERE table_schema = 'fencing' AND table_name IN ('records', 'operations', 'request_schemas') AND data_type = 'jsonb' ORDER BY 1;

--
-- replayed: the first result and its time, whatever the statement says now;
-- the statement does not run, and nothing is written
--
SELECT n, outcome, result, committed_at = :'at' AS at, hash_version, error
FROM (VALUES (1, '{"account": "a", "amount": 4.50, "trace": 1}'::jsonb, :write), (2, '{"amount": 4.5, "account": "a"}', 'SELECT 1 / 0'), (3, '{"amount": 45e-1, "account": "a", "currency": "EUR"}', NULL), (4, '{"trace": {"attempt": 4}, "amount": 4.500, "account": "\u0061"}', 'SELECT 1')) v (n, request, statement),
	LATERAL fencing_once('t', 'once/pay', 'k', request, statement, '{"who": "ann"}') ORDER BY n;
SELECT outcome FROM fencing_once('t', 'once/pay', 'k', '{"account": "a", "amount": 4.5}', :write, '{"who": "ann", "role": "other"}');
BEGIN;
SELECT outcome FROM fencing_once('t', 'once/pay', 'k', '{"account": "a", "amount": 4.5}', :write, '{"who": "ann"}');
SELECT outcome FROM fencing_once('t', 'once/pay', 'k', '{"account": "a", "amount": 5}', :write, '{"who": "ann"}');
SELECT outcome FROM fencing_once('t', 'once/pay', 'k', '{"account": "a", "amount": 4.5}', :write, '{"who": "eve"}');
SELECT pg_current_xact_id_if_assigned() IS NULL AS nothing_written, count(*) AS locks FROM pg_locks WHERE pid = pg_backend_pid() AND (locktype = 'advisory' OR mode IN ('RowExclusiveLock', 'ExclusiveLock') AND locktype = 'relation');
COMMIT;
SELECT xmin = :xmin AS unchanged FROM fencing.records WHERE operation = 'once/pay' AND key = 'k';

--
-- conflict: no result, the record's time and version
--
SELECT n, outcome, result, committed_at = :'at' AS at, hash_version, error
FROM (VALUES (1, '{"account": "a", "amount": 4.51}'::jsonb), (2, '{"account": "b", "amount": 4.5}'), (3, '{"account": "a", "amount": 4.5, "currency": "USD"}'), (4, '{"account": "a", "amount": 4.5, "due": "2026-01-01T00:00:00Z"}'),
	-- what the record's schema refuses is another request
	(5, '{"account": "a"}'), (6, '{"account": "a", "amount": "4.5"}'), (7, '{"account": "a", "amount": 4.5, "more": null}'), (8, '{"account": "a", "amount": 4.5, "currency": null}'), (9, '{"account": "a", "amount": 4.5, "due": "tomorrow"}')) v (n, request),
	LATERAL fencing_once('t', 'once/pay', 'k', request, :write, '{"who": "ann"}') ORDER BY n;
SELECT * FROM state;

--
-- denied: NULL in every other column, whether or not the key exists, and
-- whatever the request
--
SELECT n, o.* FROM (VALUES (1, 'k', '{"account": "a", "amount": 4.5}'::jsonb), (2, 'k', '{"account": "a", "amount": 5}'), (3, 'absent', '{"account": "a", "amount": 4.5}'),
	(4, 'absent', '{"account": "a"}'), (5, 'k', '{"account": 1, "more": 2}'), (6, 'absent', '{"account": "a", "amount": "x", "more": 1}'), (7, 'k', '[]'), (8, 'absent', 'null')) v (n, key, request),
	LATERAL fencing_once('t', 'once/pay', key, request, :write, '{"who": "eve"}') o ORDER BY n;
SELECT o.* FROM fencing_once('t', 'once/pay', 'k', '{"account": "a", "amount": 4.5}') o;
SELECT o.* FROM fencing_once('t', 'once/pay', 'absent', '{"account": "a", "amount": 4.5}', report_errors => true) o;
SELECT * FROM state;

--
-- What authorize allows is validated: 22023, and the key stays free
--
SELECT fencing_once('t', 'once/pay', 'v', '{"account": "a"}', :write, '{"who": "ann"}');
SELECT fencing_once('t', 'once/pay', 'v', '{"account": "a", "amount": "4"}', :write, '{"who": "ann"}');
SELECT fencing_once('t', 'once/pay', 'v', '{"account": "a", "amount": 4, "unheard": null}', :write, '{"who": "ann"}');
SELECT fencing_once('t', 'once/pay', 'v', '{"account": "a", "amount": 4, "due": "2026-02-30T00:00:00Z"}', :write, '{"who": "ann"}');
SELECT outcome FROM fencing_once('t', 'once/pay', 'v', '{"account": "a", "amount": 4}', :write, '{"who": "ann"}');

--
-- Whose key it is: tenants and operations do not share keys
--
SELECT fencing_define_operation('once/other', 'yes(text,text,jsonb,jsonb)');
SELECT fencing_define_request('once/other', 1, '{}');
SELECT tenant, operation, o.outcome FROM (VALUES (1, 't', 'once/other'), (2, 'u', 'once/pay'), (3, 'u', 'once/other'), (4, 'T', 'once/pay'), (5, 't ', 'once/pay'), (6, 'u', 'once/pay')) v (n, tenant, operation),
	LATERAL fencing_once(tenant, operation, 'k', '{"account": "a", "amount": 7}', :write, '{"who": "ann"}') o ORDER BY n;
-- Keys are compared byte by byte.
SELECT count(*), count(DISTINCT o.outcome) FROM unnest(ARRAY['K', ' k', 'k ', E'k\t', U&'\00E9', U&'e\0301', 'ss', U&'\00DF', '%', '_', '''', '"', E'\\', ';--']) key,
	LATERAL fencing_once('t', 'once/other', key, '1', 'SELECT $3', NULL) o WHERE o.outcome = 'committed';
-- 512 bytes, however well they can be compressed; one more is an error
CREATE FUNCTION long(n int) RETURNS text LANGUAGE sql AS $$ SELECT repeat('k', n) $$;
CREATE FUNCTION random(n int) RETURNS text LANGUAGE sql AS $$ SELECT left(string_agg(md5('seed' || i), ''), n) FROM generate_series(1, 40) i $$;
SELECT o.outcome, o.result FROM fencing_once(long(512), 'once/other', long(512), '1', 'SELECT length($1) + length($3) AS n') o;
SELECT o.outcome, o.result FROM fencing_once(random(512), 'once/other', random(512), '1', 'SELECT length($1) + length($3) AS n') o;
SELECT o.outcome FROM fencing_once(random(512), 'once/other', random(512), '1', 'SELECT 1') o;
SELECT fencing_define_operation('once/' || random(507), 'yes(text,text,jsonb,jsonb)'), fencing_define_request('once/' || random(507), 1, '{}');
SELECT o.outcome FROM fencing_once(random(512), 'once/' || random(507), random(512), '1', 'SELECT 1') o;
SELECT o.outcome FROM fencing_once(random(512), 'once/' || random(507), random(512), '1', 'SELECT 1') o;

--
-- The statement
--
CREATE FUNCTION run(key text, statement text, auth jsonb DEFAULT '{"a": 1}', request jsonb DEFAULT '{"r": [1.50, null]}', OUT answer text, OUT result jsonb, OUT record bigint) LANGUAGE plpgsql AS $$
BEGIN
	BEGIN
		SELECT o.outcome, o.result INTO answer, result FROM fencing_once('t', 'once/other', run.key, request, statement, auth) o;
	EXCEPTION WHEN OTHERS THEN
		answer := SQLSTATE;
	END;
	SELECT count(*) INTO record FROM fencing.records r WHERE r.operation = 'once/other' AND r.key = run.key;
END $$;
-- $1 to $5, of these types, also where auth is NULL
SELECT * FROM run('a1', 'SELECT $1 AS tenant, $2 AS operation, $3 AS key, $4 AS request, $5 AS auth');
SELECT * FROM run('a2', 'SELECT pg_typeof($1) AS "$1", pg_typeof($2) AS "$2", pg_typeof($3) AS "$3", pg_typeof($4) AS "$4", pg_typeof($5) AS "$5"');
SELECT * FROM run('a3', 'SELECT $5 IS NULL AS auth_is_null', NULL);
SELECT * FROM run('a4', 'SELECT $5 IS NULL AS auth_is_null', 'null');
-- the request as it was sent, with all its fields
SELECT outcome, result FROM fencing_once('t', 'once/pay', 'a5', '{"trace": {"t": 1}, "amount": 1.00, "account": "a"}', 'SELECT $4 AS request', '{"who": "ann"}');
-- what becomes of its first row
SELECT * FROM run('r1', 'SELECT 1 AS a, ''x'' AS b, NULL AS c');
SELECT * FROM run('r2', 'SELECT ''{"json": 1.0}''::json');
SELECT * FROM run('r3', 'SELECT ''[1]''::jsonb AS named');
SELECT * FROM run('r4', 'SELECT 1 AS a WHERE false');
SELECT * FROM run('r4', 'SELECT 1 AS a');
SELECT * FROM run('r5', 'SELECT NULL::jsonb');
SELECT * FROM run('r6', 'UPDATE allowed SET who = who WHERE false');
SELECT * FROM run('r7', 'INSERT INTO allowed VALUES (''x'', ''x''), (''y'', ''y'')');
SELECT * FROM run('r8', 'DELETE FROM allowed WHERE who IN (''x'', ''y'') RETURNING who');
SELECT * FROM run('r8', 'DELETE FROM allowed WHERE who = ''x'' RETURNING who');
SELECT * FROM run('r9', 'WITH d AS (DELETE FROM allowed WHERE who = ''y'' RETURNING who) SELECT count(*) FROM d');
-- what is not a statement, and what fails: nothing is kept
SELECT k, r.* FROM unnest(ARRAY['', ';', 'SELECT 1; SELECT 2', 'CREATE TABLE x ()', 'COMMIT', 'DO ''''', 'CALL x()', 'EXECUTE x', 'SET a.b = 1', 'TRUNCATE allowed', 'COPY allowed TO STDOUT', 'LOCK allowed', 'SELECT 1 INTO x', 'EXPLAIN SELECT 1', 'VALUES (1), (2)',
	'SELECT 1 / 0', 'SELECT * FROM nowhere', 'SELEC', 'SELECT $6', 'SELECT nowhere()', 'INSERT INTO payment VALUES (''t'', ''e'', ''a'', -1)', 'INSERT INTO payment VALUES (''t'', ''e'', ''a'', 1), (''t'', ''e'', ''a'', 0)']) WITH ORDINALITY s (k, n), run('e', k) r ORDER BY n;
-- an event of a failed statement is not kept either (CASES 33), and the key is free
SELECT * FROM run('e', 'SELECT fencing_outbox_emit(''once'', ''e'', ''failed'', ''1''), 1 / 0');
SELECT * FROM run('e', 'SELECT fencing_outbox_emit(''once'', ''e'', ''done'', ''1'') IS NOT NULL AS event');
SELECT type, payload FROM fencing.outbox WHERE aggregatetype = 'once' AND aggregateid = 'e';
-- any key but its own may be used from within
SELECT * FROM run('n1', 'SELECT o.outcome, (o.result->>''n'')::int AS n FROM fencing_once($1, $2, ''n2'', ''2'', ''SELECT 2 AS n'') o');
SELECT * FROM run('n2', 'SELECT 1', NULL, '2');
SELECT * FROM run('n3', 'SELECT o.outcome FROM fencing_once(''u'', $2, $3, $4, ''SELECT 1'') o');
-- its own is in use: 55006, also deeper down; nothing is kept of any
SELECT * FROM run('n4', 'SELECT o.outcome FROM fencing_once($1, $2, $3, $4, ''SELECT 1'') o');
SELECT * FROM run('n4', 'SELECT o.outcome FROM fencing_once($1, $2, ''n5'', $4, ''SELECT o.outcome FROM fencing_once($1, $2, ''''n4'''', $4, ''''SELECT 1'''') o'') o');
SELECT key FROM fencing.records WHERE operation = 'once/other' AND key IN ('n4', 'n5');
-- where its error is caught the outer call goes on
CREATE FUNCTION caught(command text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN EXECUTE command; RETURN 'done'; EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE; END $$;
SELECT * FROM run('n4', 'SELECT caught($a$ SELECT fencing_once(''t'', ''once/other'', ''n4'', ''1'', ''SELECT 1'') $a$)');
SELECT * FROM run('n4', 'SELECT 1');
-- a search_path of the caller, and his temporary tables
CREATE TEMP TABLE mine (a int);
SELECT * FROM run('p1', 'INSERT INTO mine VALUES (1) RETURNING a, current_setting(''search_path'') AS path');

--
-- report_errors
--
SELECT outcome, result, committed_at, hash_version, error - 'message' - 'context' AS error FROM fencing_once('t', 'once/pay', 'f', '{"account": "a", "amount": -1}', :write, '{"who": "ann"}', report_errors => true);
SELECT outcome, error->>'sqlstate' AS sqlstate, (SELECT string_agg(k, ' ' ORDER BY k) FROM jsonb_object_keys(error) k) AS keys FROM fencing_once('t', 'once/pay', 'f', '{"account": "a", "amount": -1}', :write, '{"who": "ann"}', report_errors => true);
SELECT * FROM state;
-- what is reported, and what propagates all the same
SELECT n, what, o.outcome, o.error->>'sqlstate' AS sqlstate FROM (VALUES
	(1, 'invalid', 't', 'once/pay', 'f', '{"account": "a"}'::jsonb, 'SELECT 1'), (2, 'no such operation', 't', 'once/unknown', 'f', '1', 'SELECT 1'), (3, 'NULL', NULL, 'once/pay', 'f', '1', 'SELECT 1'), (4, 'empty', 't', 'once/pay', '', '{"account": "a", "amount": 1}', 'SELECT 1'),
	(5, 'too long', 't', 'once/pay', long(513), '{"account": "a", "amount": 1}', 'SELECT 1'), (6, '22012', 't', 'once/pay', 'f', '{"account": "a", "amount": 1}', 'SELECT 1 / 0'), (7, 'kind', 't', 'once/pay', 'f', '{"account": "a", "amount": 1}', 'CREATE TABLE x ()'), (8, 'rows', 't', 'once/pay', 'f', '{"account": "a", "amount": 1}', 'VALUES (1), (2)'),
	(9, 'committed', 't', 'once/pay', 'f', '{"account": "a", "amount": 1}', 'SELECT 1'), (10, 'replayed', 't', 'once/pay', 'f', '{"account": "a", "amount": 1}', 'SELECT 1 / 0'), (11, 'conflict', 't', 'once/pay', 'f', '{"account": "a", "amount": 2}', 'SELECT 1 / 0')) v (n, what, tenant, operation, key, request, statement),
	LATERAL fencing_once(tenant, operation, key, request, statement, '{"who": "ann"}', report_errors => true) o ORDER BY n;
CREATE FUNCTION raise(state text) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION USING errcode = state, message = 'raised'; END $$;
SELECT fencing_once('t', 'once/other', 'f2', '1', 'SELECT raise(''40001'')', report_errors => true);
SELECT fencing_once('t', 'once/other', 'f2', '1', 'SELECT raise(''42501'')', report_errors => true);
SELECT fencing_once('t', 'once/other', 'f2', '1', 'SELECT raise(''57014'')', report_errors => true);
SELECT fencing_once('t', 'once/other', 'f2', '1', 'SELECT raise(''53100'')', report_errors => true);
SELECT fencing_once('t', 'once/other', 'f2', '1', 'SELECT raise(''XX000'')', report_errors => true);
SELECT fencing_once('t', 'once/other', 'f2', '1', 'SELECT 1', report_errors => true, strict => true);
SELECT count(*) FROM fencing.records WHERE key = 'f2';
-- A batch: each item by itself.
SELECT item->>'key' AS key, o.outcome, o.error->>'sqlstate' AS sqlstate FROM unnest(ARRAY['{"key": "b1", "amount": 1}', '{"key": "b2", "amount": -1}', '{"key": "b3", "amount": 3}', '{"key": "b1", "amount": 1}', '{"key": "b3", "amount": 4}']::jsonb[]) WITH ORDINALITY i (item, n),
	LATERAL fencing_once('t', 'once/pay', item->>'key', jsonb_build_object('account', 'a', 'amount', item->'amount'), :write, '{"who": "ann"}', report_errors => true) o ORDER BY n;

--
-- strict: LF005 unless committed or replayed
--
SELECT outcome FROM fencing_once('t', 'once/pay', 's', '{"account": "a", "amount": 1}', :write, '{"who": "ann"}', strict => true);
SELECT outcome FROM fencing_once('t', 'once/pay', 's', '{"account": "a", "amount": 1}', :write, '{"who": "ann"}', strict => true);
SELECT outcome FROM fencing_once('t', 'once/pay', 's', '{"account": "a", "amount": 2}', :write, '{"who": "ann"}', strict => true);
SELECT outcome FROM fencing_once('t', 'once/pay', 's', '{"account": "a", "amount": 1}', :write, '{"who": "eve"}', strict => true);
SELECT outcome FROM fencing_once('t', 'once/pay', 's2', '{"account": "a", "amount": 1}', :write, '{"who": "eve"}', strict => true);
-- the outcome is in DETAIL; of a denial nothing tells whether the key is there
CREATE FUNCTION told(key text, who text) RETURNS TABLE (state text, message text, detail text, hint text) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fencing_once('t', 'once/pay', told.key, '{"account": "a", "amount": 2}', 'SELECT 1', jsonb_build_object('who', who), strict => true);
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	RETURN NEXT;
END $$;
SELECT state, detail FROM told('s', 'ann');
SELECT a.state, a.detail, replace(a.message, 's3', 's') = b.message AND a.detail = b.detail AND a.hint = b.hint AS same FROM told('s3', 'eve') a, told('s', 'eve') b;

--
-- Transactions: savepoints, snapshots, read-only
--
BEGIN;
SAVEPOINT p;
SELECT outcome FROM fencing_once('t', 'once/pay', 'sp', '{"account": "a", "amount": 1}', :write, '{"who": "ann"}');
SELECT outcome FROM fencing_once('t', 'once/pay', 'sp', '{"account": "a", "amount": 1}', :write, '{"who": "ann"}');
SELECT outcome FROM fencing_once('t', 'once/pay', 'sp', '{"account": "a", "amount": 2}', :write, '{"who": "ann"}');
ROLLBACK TO p;
SELECT count(*) FROM fencing.records WHERE key = 'sp';
SELECT outcome, result FROM fencing_once('t', 'once/pay', 'sp', '{"account": "a", "amount": 2}', :write, '{"who": "ann"}');
RELEASE p;
SELECT outcome, result FROM fencing_once('t', 'once/pay', 'sp', '{"account": "a", "amount": 2}', :write, '{"who": "ann"}');
COMMIT;
SELECT count(*), min(amount) FROM payment WHERE key = 'sp';
SELECT count(*) AS locks_left FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory';
-- errors in the block: nothing of it is kept
BEGIN;
SELECT outcome FROM fencing_once('t', 'once/pay', 'rb', '{"account": "a", "amount": 1}', :write, '{"who": "ann"}');
SELECT 1 / 0;
COMMIT;
SELECT outcome, result FROM fencing_once('t', 'once/pay', 'rb', '{"account": "a", "amount": 3}', :write, '{"who": "ann"}');
-- its own work is in the transaction's snapshot, at every level
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT outcome FROM fencing_once('t', 'once/pay', 'rr', '{"account": "a", "amount": 1}', :write, '{"who": "ann"}');
SELECT outcome FROM fencing_once('t', 'once/pay', 'rr', '{"account": "a", "amount": 1}', :write, '{"who": "ann"}');
SELECT outcome FROM fencing_once('t', 'once/pay', 'rr', '{"account": "a", "amount": 2}', :write, '{"who": "ann"}');
SELECT outcome FROM fencing_once('t', 'once/pay', 'k', '{"account": "a", "amount": 4.5}', :write, '{"who": "ann"}');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT outcome FROM fencing_once('t', 'once/pay', 'ser', '{"account": "a", "amount": 1}', :write, '{"who": "ann"}');
SELECT outcome FROM fencing_once('t', 'once/pay', 'ser', '{"account": "a", "amount": 1}', :write, '{"who": "ann"}');
COMMIT;
-- read-only: replayed, conflict and denied; anything else is 25006
BEGIN READ ONLY;
SELECT outcome, result FROM fencing_once('t', 'once/pay', 'k', '{"account": "a", "amount": 4.5}', :write, '{"who": "ann"}');
SELECT outcome FROM fencing_once('t', 'once/pay', 'k', '{"account": "a", "amount": 5}', NULL, '{"who": "ann"}');
SELECT outcome FROM fencing_once('t', 'once/pay', 'ro', '{"account": "a", "amount": 4.5}', :write, '{"who": "eve"}');
SELECT outcome FROM fencing_once('t', 'once/pay', 'ro', '{"account": "a", "amount": 4.5}', :write, '{"who": "ann"}');
ROLLBACK;
BEGIN READ ONLY;
SELECT outcome FROM fencing_once('t', 'once/pay', 'ro', '{"account": "a", "amount": 4.5}', NULL, '{"who": "ann"}', report_errors => true);
ROLLBACK;
BEGIN READ ONLY;
SELECT fencing_define_operation('once/other', 'yes(text,text,jsonb,jsonb)');
ROLLBACK;
BEGIN READ ONLY;
SELECT fencing_define_request('once/other', 2, '{}');
ROLLBACK;
BEGIN READ ONLY;
SELECT fencing_retire_request('once/other', 1);
ROLLBACK;

--
-- The three cases of a permission
--
SELECT outcome, result FROM fencing_once('t', 'once/pay', 'case', '{"account": "b", "amount": 10}', :write, '{"who": "bob"}');
SELECT * FROM state \gset before_
-- another resource, without permission: denied
SELECT o.* FROM fencing_once('t', 'once/pay', 'case', '{"account": "a", "amount": 10}', :write, '{"who": "bob"}') o;
-- permission still valid, parameters changed: conflict
SELECT outcome, result FROM fencing_once('t', 'once/pay', 'case', '{"account": "b", "amount": 11}', :write, '{"who": "bob"}');
-- permission revoked, the key replayed: denied
BEGIN;
DELETE FROM allowed WHERE who = 'bob';
SELECT o.* FROM fencing_once('t', 'once/pay', 'case', '{"account": "b", "amount": 10}', :write, '{"who": "bob"}') o;
COMMIT;
SELECT o.* FROM fencing_once('t', 'once/pay', 'case', '{"account": "b", "amount": 10}', :write, '{"who": "bob"}') o;
-- no new side effect of all that
SELECT records = :before_records AND rows = :before_rows AND events = :before_events AS no_side_effect FROM state;
-- given again: replayed, to whoever may
INSERT INTO allowed VALUES ('bob', 'b');
SELECT outcome, result FROM fencing_once('t', 'once/pay', 'case', '{"account": "b", "amount": 10}', :write, '{"who": "bob"}');
SELECT outcome, result FROM fencing_once('t', 'once/pay', 'case', '{"account": "b", "amount": 10}', :write, '{"who": "ann"}');

--
-- Upgrade of the request schema
--
SELECT fencing_define_operation('once/up', 'yes(text,text,jsonb,jsonb)');
SELECT fencing_define_request('once/up', 1, '{"properties": {"a": {"type": "integer"}, "o": {"properties": {"b": {}}}, "l": {"items": {"properties": {"c": {}}}}}}');
CREATE FUNCTION up(key text, request jsonb, OUT answer text, OUT result jsonb, OUT version int) LANGUAGE plpgsql AS $$
BEGIN
	SELECT o.outcome, o.result, o.hash_version INTO answer, result, version
	FROM fencing_once('t', 'once/up', key, request, 'INSERT INTO payment VALUES ($1, $3, ''up'', 1) RETURNING $4 AS first, fencing_outbox_emit(''once'', $3, ''up'', $4) IS NOT NULL AS event') o;
EXCEPTION WHEN OTHERS THEN
	answer := SQLSTATE;
END $$;
SELECT * FROM up('v1', '{"a": 1, "o": {"b": 1}, "l": [{"c": 1}, {}]}');
SELECT encode(hash, 'hex') AS hash FROM fencing.records WHERE key = 'v1' \gset
SELECT :'hash' = encode(sha256('{"a":1,"l":[{"c":1},{}],"o":{"b":1}}'), 'hex') AS by_hand;
SELECT fencing_define_request('once/up', 2, '{"properties": {"a": {"type": "integer"}, "n": {"type": "string"}, "d": {"type": "string", "default": "x"}, "t": {"x-fencing": "ignore"},
	"o": {"properties": {"b": {}, "n": {}, "d": {"default": 1}}}, "l": {"items": {"properties": {"c": {}, "n": {}, "d": {"default": false}}}}}}');
-- the old key by its old version, with the original digest and result
SELECT * FROM up('v1', '{"a": 1, "o": {"b": 1}, "l": [{"c": 1}, {}]}');
SELECT encode(hash, 'hex') = :'hash' AS original, hash_version FROM fencing.records WHERE key = 'v1';
-- a client already upgraded: its new fields are left out when absent or at their default, else conflict
SELECT request, u.* FROM (VALUES (1, '{"a": 1, "d": "x", "o": {"b": 1}, "l": [{"c": 1}, {}]}'::jsonb), (2, '{"a": 1, "o": {"b": 1, "d": 1.0}, "l": [{"c": 1}, {}]}'), (3, '{"a": 1, "o": {"b": 1}, "l": [{"c": 1, "d": false}, {"d": false}]}'), (4, '{"a": 1, "d": "x", "o": {"b": 1, "d": 1}, "l": [{"c": 1, "d": false}, {"d": false}]}'),
	(5, '{"a": 1, "d": "y", "o": {"b": 1}, "l": [{"c": 1}, {}]}'), (6, '{"a": 1, "n": "x", "o": {"b": 1}, "l": [{"c": 1}, {}]}'), (7, '{"a": 1, "d": null, "o": {"b": 1}, "l": [{"c": 1}, {}]}'), (8, '{"a": 1, "o": {"b": 1, "d": 2}, "l": [{"c": 1}, {}]}'), (9, '{"a": 1, "o": {"b": 1, "n": null}, "l": [{"c": 1}, {}]}'),
	(10, '{"a": 1, "o": {"b": 1}, "l": [{"c": 1}, {"d": true}]}'), (11, '{"a": 1, "o": {"b": 1}, "l": [{"c": 1, "n": 0}, {}]}'), (12, '{"a": 1, "unheard": 1, "o": {"b": 1}, "l": [{"c": 1}, {}]}'), (13, '{"a": 1, "o": {"b": 1, "unheard": 1}, "l": [{"c": 1}, {}]}'), (14, '{"a": 2, "d": "x", "o": {"b": 1}, "l": [{"c": 1}, {}]}'),
	(15, '{"a": "1", "o": {"b": 1}, "l": [{"c": 1}, {}]}'), (16, '{"a": 1, "d": "x", "o": {"b": 1}, "l": [{"c": 1}]}')) v (n, request), up('v1', request) u ORDER BY n;
-- one that the later version leaves out as well is no difference
SELECT * FROM up('v1', '{"a": 1, "t": 5, "o": {"b": 1}, "l": [{"c": 1}, {}]}');
SELECT count(*) AS rows_of_v1 FROM payment WHERE key = 'v1';
-- a new key by the new version; an old client's retry of it, without the new fields
SELECT * FROM up('v2', '{"a": 1, "d": "x", "o": {"b": 1, "d": 1}}');
SELECT * FROM up('v2', '{"a": 1, "o": {"b": 1}}');
SELECT * FROM up('v2', '{"a": 1, "n": "x", "o": {"b": 1}}');
SELECT * FROM up('v2n', '{"a": 1, "n": "x"}');
SELECT * FROM up('v2n', '{"a": 1}');
-- A bad version can be stopped: new keys go by the highest that is not retired, keys that used it stay with it.
SELECT fencing_retire_request('once/up', 2);
SELECT hash_version, retired, records, tombstones FROM fencing.operation_status WHERE operation = 'once/up' ORDER BY hash_version;
SELECT * FROM up('v2', '{"a": 1, "o": {"b": 1}}');
SELECT * FROM up('v2n', '{"a": 1, "n": "y"}');
SELECT * FROM up('v3', '{"a": 1, "n": "x"}');
SELECT * FROM up('v3', '{"a": 1}');
SELECT * FROM up('v3', '{"a": 1, "d": "x"}');
SELECT * FROM up('v1', '{"a": 1, "o": {"b": 1}, "l": [{"c": 1}, {}]}');
-- again: nothing; the same definition does not bring it back, another is refused
SELECT fencing_retire_request('once/up', 2);
SELECT fencing_define_request('once/up', 2, (SELECT request_schema FROM fencing.request_schemas WHERE operation = 'once/up' AND hash_version = 2));
SELECT fencing_define_request('once/up', 2, '{}');
SELECT hash_version, retired FROM fencing.operation_status WHERE operation = 'once/up' ORDER BY hash_version;
SELECT * FROM up('v4', '{"a": 4}');
-- the next one
SELECT fencing_define_request('once/up', 3, '{"properties": {"a": {"type": "integer"}, "m": {"default": 0}}}');
SELECT * FROM up('v5', '{"a": 5}');
-- defaults of later versions: an object that is new as a whole, another spelling
SELECT * FROM up('v7', '{"a": 7}');
SELECT fencing_define_request('once/up', 4, '{"properties": {"a": {"type": "integer"}, "m": {"default": 0}, "q": {"default": {}, "properties": {"x": {"default": 1}, "i": {"x-fencing": "ignore"}}}, "r": {"properties": {"x": {"default": 1}}},
	"at": {"type": "string", "format": "date-time", "default": "2026-01-01T00:00:00Z"}}}');
SELECT request, u.answer, u.version FROM (VALUES (1, '{"a": 7, "q": {}}'::jsonb), (2, '{"a": 7, "q": {"x": 1.0}}'), (3, '{"a": 7, "q": {"x": 1, "i": 5}}'), (4, '{"a": 7, "at": "2026-01-01T01:00:00+01:00"}'), (5, '{"a": 7, "q": {"x": 2}}'), (6, '{"a": 7, "q": null}'), (7, '{"a": 7, "r": {}}'), (8, '{"a": 7, "r": {"x": 1}}'), (9, '{"a": 7, "at": "2026-01-01T01:00:00Z"}')) v (n, request), up('v7', request) u ORDER BY n;
-- all retired: keys that exist are answered, a new one is 55000
SELECT fencing_retire_request('once/up', v) FROM unnest('{1,3,4}'::int[]) v;
SELECT * FROM up('v5', '{"a": 5, "m": 0}');
SELECT * FROM up('v1', '{"a": 2}');
SELECT * FROM up('v6', '{"a": 6}');
-- whoever is denied is not told that
SELECT fencing_define_operation('once/up', 'may(text,text,jsonb,jsonb)');
SELECT * FROM up('v5', '{"a": 5}');
SELECT * FROM up('v6', '{"a": 6}');
-- an operation without a request schema at all
SELECT fencing_define_operation('once/empty', 'yes(text,text,jsonb,jsonb)');
SELECT fencing_once('t', 'once/empty', 'k', '1', 'SELECT 1');
SELECT * FROM fencing.operation_status WHERE operation = 'once/empty';
-- What a record's schema leaves out by additionalProperties stays left out when a later version lists it: the unchanged retry replays.
SELECT fencing_define_operation('once/extra', 'yes(text,text,jsonb,jsonb)'), fencing_define_request('once/extra', 1, '{"additionalProperties": true, "properties": {"a": {}}}');
SELECT outcome, hash_version FROM fencing_once('t', 'once/extra', 'k', '{"a": 1, "n": 5}', 'SELECT 1');
SELECT fencing_define_request('once/extra', 2, '{"additionalProperties": true, "properties": {"a": {}, "n": {}}}');
SELECT r, outcome, hash_version FROM unnest('{"{\"a\": 1, \"n\": 5}","{\"a\": 1, \"n\": 6}","{\"a\": 1}","{\"a\": 2, \"n\": 5}"}'::jsonb[]) WITH ORDINALITY u (r, n), fencing_once('t', 'once/extra', 'k', r, 'SELECT 1') ORDER BY n;
SELECT r, outcome, hash_version FROM unnest('{"{\"a\": 1, \"n\": 5, \"m\": 1}","{\"a\": 1, \"n\": 5, \"m\": 2}","{\"a\": 1, \"n\": 6}"}'::jsonb[]) WITH ORDINALITY u (r, n), fencing_once('t', 'once/extra', 'l', r, 'SELECT 1') ORDER BY n;
-- Authorize is shown just what is compared, or somebody shows his own account there and gets the result of another's key, or hides it.
-- What the record's version leaves out, though a later one lists it, is not shown: left out by additionalProperties, ignored, in an array, in a part.
CREATE FUNCTION own(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS boolean LANGUAGE sql STABLE AS
$$ SELECT coalesce(request->>'account', request->'to'->0->>'account', request->'meta'->>'account') = auth->>0 $$;
CREATE FUNCTION as_whom(name text, who text, request text, OUT shown text, OUT outcome fencing_outcome, OUT result jsonb) LANGUAGE plpgsql AS $$
BEGIN
	shown := replace(request, 'WHO', who);
	SELECT o.outcome, o.result INTO as_whom.outcome, as_whom.result FROM fencing_once('t', 'once/' || name, 'k', shown::jsonb, format('SELECT %L::text AS of', who), to_jsonb(ARRAY[who])) o;
END $$;
CREATE TABLE shown (name text, before jsonb, after jsonb, request text);
INSERT INTO shown VALUES
	('open', '{"additionalProperties": true, "properties": {"a": {}}}', '{"properties": {"a": {}, "account": {}}}', '{"a": 1, "account": "WHO"}'),
	('ignored', '{"properties": {"a": {}, "account": {"x-fencing": "ignore"}}}', '{"properties": {"a": {}, "account": {}}}', '{"a": 1, "account": "WHO"}'),
	('array', '{"properties": {"to": {"type": "array", "items": {"type": "object", "additionalProperties": true, "properties": {"a": {}}}}}}', '{"properties": {"to": {}}}', '{"to": [{"a": 1, "account": "WHO"}]}'),
	('whole', '{"properties": {"meta": {"type": "object", "additionalProperties": true, "properties": {"a": {}}}}}', '{"properties": {"meta": {}}}', '{"meta": {"a": 1, "account": "WHO"}}'),
	('deeper', '{"properties": {"meta": {"type": "object", "additionalProperties": true}}}', '{"properties": {"meta": {"type": "object", "properties": {"account": {"type": "string"}}}}}', '{"meta": {"account": "WHO"}}');
SELECT name, fencing_define_operation('once/' || name, 'yes(text,text,jsonb,jsonb)'), fencing_define_request('once/' || name, 1, before) FROM shown ORDER BY name;
SELECT name, w.* FROM shown, as_whom(name, 'ann', request) w ORDER BY name;
SELECT name, fencing_define_operation('once/' || name, 'own(text,text,jsonb,jsonb)'), fencing_define_request('once/' || name, 2, after) FROM shown ORDER BY name;
SELECT name, w.* FROM shown, unnest(ARRAY['ann', 'eve']) WITH ORDINALITY u (who, n), as_whom(name, who, request) w ORDER BY name, n;
-- who asks for nothing that is left out gets his answers
SELECT fencing_define_operation('once/default', 'yes(text,text,jsonb,jsonb)'), fencing_define_request('once/default', 1, '{"additionalProperties": true, "properties": {"a": {}}}');
SELECT w.* FROM as_whom('default', 'ann', '{"a": 1, "currency": "EUR", "trace": 1}') w;
SELECT fencing_define_request('once/default', 2, '{"additionalProperties": true, "properties": {"a": {}, "currency": {"default": "EUR"}}}');
SELECT w.* FROM unnest('{"{\"a\": 1, \"currency\": \"EUR\", \"trace\": 2}","{\"a\": 1}","{\"a\": 1, \"currency\": \"USD\"}"}'::text[]) WITH ORDINALITY u (r, n), as_whom('default', 'ann', r) w ORDER BY n;
-- likewise when the later version is retired
SELECT name, fencing_retire_request('once/' || name, 2) FROM shown ORDER BY name;
SELECT name, w.* FROM shown, unnest(ARRAY['ann', 'eve']) WITH ORDINALITY u (who, n), as_whom(name, who, request) w ORDER BY name, n;
-- a record by a version that is retired since and counts less
SELECT fencing_define_operation('once/back', 'yes(text,text,jsonb,jsonb)'), fencing_define_request('once/back', 1, '{"properties": {"a": {}, "account": {}}}'),
	fencing_define_request('once/back', 2, '{"properties": {"a": {}, "account": {"x-fencing": "ignore"}}}');
SELECT w.* FROM as_whom('back', 'ann', '{"a": 1, "account": "WHO"}') w;
SELECT fencing_retire_request('once/back', 2), fencing_define_operation('once/back', 'own(text,text,jsonb,jsonb)');
SELECT w.* FROM unnest(ARRAY['ann', 'eve']) WITH ORDINALITY u (who, n), as_whom('back', who, '{"a": 1, "account": "WHO"}') w ORDER BY n;
-- all of them retired: by the newest
SELECT fencing_retire_request('once/back', 1);
SELECT w.* FROM unnest(ARRAY['ann', 'eve']) WITH ORDINALITY u (who, n), as_whom('back', who, '{"a": 1, "account": "WHO"}') w ORDER BY n;
-- and by one that counts more: it is not hidden from authorize, which has nothing against requests without an account
CREATE FUNCTION lax(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS boolean LANGUAGE sql STABLE AS
$$ SELECT coalesce(request->>'account', auth->>0) = auth->>0 $$;
SELECT fencing_define_operation('once/more', 'lax(text,text,jsonb,jsonb)'), fencing_define_request('once/more', 1, '{"properties": {"a": {}}, "additionalProperties": true}'),
	fencing_define_request('once/more', 2, '{"properties": {"a": {}, "account": {}}}');
SELECT w.* FROM as_whom('more', 'ann', '{"a": 1, "account": "ann"}') w;
SELECT w.* FROM unnest(ARRAY['ann', 'eve']) WITH ORDINALITY u (who, n), as_whom('more', who, '{"a": 1, "account": "ann"}') w ORDER BY n;
SELECT fencing_retire_request('once/more', 2);
SELECT w.* FROM unnest(ARRAY['ann', 'eve']) WITH ORDINALITY u (who, n), as_whom('more', who, '{"a": 1, "account": "ann"}') w ORDER BY n;
-- retired within a transaction, and taken back
SELECT fencing_define_request('once/empty', 1, '{"properties": {"a": {}}}');
BEGIN;
SELECT fencing_retire_request('once/empty', 1);
SELECT fencing_once('t', 'once/empty', 'k', '{"a": 1}', 'SELECT 1');
ROLLBACK;
SELECT outcome FROM fencing_once('t', 'once/empty', 'k', '{"a": 1}', 'SELECT 1');
BEGIN;
SELECT fencing_define_request('once/empty', 2, '{"properties": {"b": {}}}');
SELECT outcome, hash_version FROM fencing_once('t', 'once/empty', 'k2', '{"b": 1}', 'SELECT 1');
ROLLBACK;
SELECT outcome, hash_version FROM fencing_once('t', 'once/empty', 'k2', '{"a": 1}', 'SELECT 1');

--
-- What this installation does not know fails closed: LF002, and neither row nor event
--
SELECT fencing_define_operation('once/up', 'yes(text,text,jsonb,jsonb)');
SELECT * FROM state \gset before_
UPDATE fencing.records SET hash_version = 7 WHERE key = 'v1';
SELECT * FROM up('v1', '{"a": 1, "o": {"b": 1}, "l": [{"c": 1}, {}]}');
SELECT * FROM up('v1', '{"a": 2}');
SELECT fencing_once('t', 'once/up', 'v1', '{"a": 1}', 'SELECT 1', strict => true);
SELECT outcome, result, error->>'sqlstate' AS sqlstate FROM fencing_once('t', 'once/up', 'v1', '{"a": 1}', 'SELECT 1', report_errors => true);
UPDATE fencing.records SET hash_version = 1, digest_version = 2 WHERE key = 'v1';
SELECT * FROM up('v1', '{"a": 1, "o": {"b": 1}, "l": [{"c": 1}, {}]}');
SELECT * FROM up('v1', '{"a": 2}');
UPDATE fencing.records SET digest_version = 1 WHERE key = 'v1';
SELECT * FROM up('v1', '{"a": 1, "o": {"b": 1}, "l": [{"c": 1}, {}]}');
BEGIN;
DELETE FROM fencing.request_schemas WHERE operation = 'once/up' AND hash_version = 1;
SELECT * FROM up('v1', '{"a": 1, "o": {"b": 1}, "l": [{"c": 1}, {}]}');
ROLLBACK;
SELECT * FROM up('v1', '{"a": 1, "o": {"b": 1}, "l": [{"c": 1}, {}]}');
SELECT records = :before_records AND rows = :before_rows AND events = :before_events AS no_side_effect FROM state;
-- the denied are told nothing of it
BEGIN;
UPDATE fencing.records SET hash_version = 7 WHERE key = 'k' AND tenant_id = 't' AND operation = 'once/pay';
SELECT outcome FROM fencing_once('t', 'once/pay', 'k', '{"account": "a", "amount": 4.5}', 'SELECT 1', '{"who": "eve"}');
SELECT outcome FROM fencing_once('t', 'once/pay', 'k', '{"account": "a", "amount": 4.5}', 'SELECT 1', '{"who": "ann"}');
ROLLBACK;
SELECT fencing_request_canonical('once/up', 7, '{}');
SELECT fencing_request_hash('once/up', 7, '{}');
SELECT fencing_retire_request('once/up', 7);

--
-- Definition of an operation
--
SELECT authorize_schema, authorize_name, authorize_owner = current_user AS owner, retention, forget_after FROM fencing.operations WHERE operation = 'once/other';
SELECT fencing_define_operation('once/other', 'may(text,text,jsonb,jsonb)', '2 hours', '3 hours');
SELECT authorize_schema, authorize_name, retention, forget_after FROM fencing.operations WHERE operation = 'once/other';
SELECT fencing_define_operation('once/other', 'yes(text,text,jsonb,jsonb)');
SELECT authorize_name, retention, forget_after FROM fencing.operations WHERE operation = 'once/other';
BEGIN;
SELECT fencing_define_operation('once/other', 'may(text,text,jsonb,jsonb)');
SELECT outcome FROM fencing_once('t', 'once/other', 'new', '1', 'SELECT 1');
ROLLBACK;
SELECT outcome FROM fencing_once('t', 'once/other', 'new', '1', 'SELECT 1');
-- what an authorize function must be: 22023
CREATE FUNCTION few(text, text, jsonb) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION many(text, text, jsonb, jsonb, int DEFAULT 1) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION types(text, text, json, jsonb) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION gives_int(text, text, jsonb, jsonb) RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION gives_text(text, text, jsonb, jsonb) RETURNS text LANGUAGE sql AS 'SELECT ''t''';
CREATE FUNCTION gives_set(text, text, jsonb, jsonb) RETURNS SETOF boolean LANGUAGE sql AS 'SELECT true';
CREATE DOMAIN truth AS boolean;
CREATE FUNCTION gives_domain(text, text, jsonb, jsonb) RETURNS truth LANGUAGE sql AS 'SELECT true::regress_once.truth';
CREATE FUNCTION gives_void(text, text, jsonb, jsonb) RETURNS void LANGUAGE sql AS '';
CREATE PROCEDURE a_procedure(text, text, jsonb, jsonb) LANGUAGE sql AS '';
CREATE FUNCTION step(boolean, text, text, jsonb, jsonb) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE AGGREGATE an_aggregate(text, text, jsonb, jsonb) (SFUNC = step, STYPE = boolean);
CREATE FUNCTION variadic(text, text, VARIADIC jsonb[]) RETURNS boolean LANGUAGE sql AS 'SELECT true';
SELECT f, caught(format('SELECT fencing_define_operation(%L, %L)', 'once/bad', f)) FROM unnest(ARRAY['few(text,text,jsonb)', 'many(text,text,jsonb,jsonb,int)', 'types(text,text,json,jsonb)', 'gives_int(text,text,jsonb,jsonb)', 'gives_text(text,text,jsonb,jsonb)', 'gives_set(text,text,jsonb,jsonb)',
	'gives_domain(text,text,jsonb,jsonb)', 'gives_void(text,text,jsonb,jsonb)', 'a_procedure(text,text,jsonb,jsonb)', 'an_aggregate(text,text,jsonb,jsonb)', 'variadic(text,text,jsonb[])', '0', '-', '4294967295']) f;
-- retention: 0 is not unset (CASES 31)
SELECT i, r.answer AS retention, f.answer AS forget_after FROM unnest('{0,-1 day,-1 microsecond,0 days,1 day -24:00:00,-1 mon 40 days,1 mon -31 days,NULL}'::interval[]) WITH ORDINALITY i (i, n),
	LATERAL (SELECT caught(format('SELECT fencing_define_operation(%L, %L, %L)', 'once/bad', 'yes(text,text,jsonb,jsonb)', i)) AS answer) r, LATERAL (SELECT caught(format('SELECT fencing_define_operation(%L, %L, forget_after => %L)', 'once/bad', 'yes(text,text,jsonb,jsonb)', i)) AS answer) f ORDER BY n;
SELECT count(*) FROM fencing.operations WHERE operation = 'once/bad';
SELECT caught(format('SELECT fencing_define_operation(%L, %L, %L, %L)', 'once/small', 'yes(text,text,jsonb,jsonb)', '1 microsecond', '1 microsecond'));

--
-- NULL and bad values in every argument: an error that names it, and nothing is written
--
CREATE FUNCTION attempt(call text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE 'SELECT ' || call;
	RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ': ' || SQLERRM;
END $$;
CREATE FUNCTION state() RETURNS text LANGUAGE sql AS $$
SELECT md5(concat_ws('|', (SELECT string_agg(o.ctid::text || o::text, ',' ORDER BY o.operation) FROM fencing.operations o), (SELECT string_agg(s.ctid::text || s::text, ',' ORDER BY s.operation, s.hash_version) FROM fencing.request_schemas s),
	(SELECT string_agg(r.ctid::text || r::text, ',' ORDER BY r.tenant_id, r.operation, r.key) FROM fencing.records r)))
$$;
SELECT state() AS before \gset
SELECT c, attempt(c) FROM unnest(ARRAY[
	'fencing_define_operation(NULL, ''yes(text,text,jsonb,jsonb)'')', 'fencing_define_operation(''once/x'', NULL)', 'fencing_define_operation(''once/x'', ''yes(text,text,jsonb,jsonb)'', NULL)', 'fencing_define_operation(''once/x'', ''yes(text,text,jsonb,jsonb)'', ''1 day'', NULL)', 'fencing_define_operation('''', ''yes(text,text,jsonb,jsonb)'')', 'fencing_define_operation(long(513), ''yes(text,text,jsonb,jsonb)'')',
	'fencing_define_request(NULL, 1, ''{}'')', 'fencing_define_request(''once/pay'', NULL, ''{}'')', 'fencing_define_request(''once/pay'', 9, NULL)', 'fencing_define_request('''', 1, ''{}'')', 'fencing_define_request(long(513), 1, ''{}'')', 'fencing_define_request(''once/unknown'', 1, ''{}'')', 'fencing_define_request(''once/pay'', 0, ''{}'')', 'fencing_define_request(''once/pay'', -1, ''{}'')',
	'fencing_retire_request(NULL, 1)', 'fencing_retire_request(''once/pay'', NULL)', 'fencing_retire_request('''', 1)', 'fencing_retire_request(long(513), 1)', 'fencing_retire_request(''once/unknown'', 1)', 'fencing_retire_request(''once/pay'', 0)', 'fencing_retire_request(''once/pay'', -1)', 'fencing_retire_request(''once/pay'', 9)',
	'fencing_once(NULL, ''once/other'', ''x'', ''1'', ''SELECT 1'')', 'fencing_once(''t'', NULL, ''x'', ''1'', ''SELECT 1'')', 'fencing_once(''t'', ''once/other'', NULL, ''1'', ''SELECT 1'')', 'fencing_once(''t'', ''once/other'', ''x'', NULL, ''SELECT 1'')', 'fencing_once(''t'', ''once/other'', ''x'', ''1'', ''SELECT 1'', report_errors => NULL)', 'fencing_once(''t'', ''once/other'', ''x'', ''1'', ''SELECT 1'', strict => NULL)', 'fencing_once(NULL, NULL, NULL, NULL)',
	'fencing_once('''', ''once/other'', ''x'', ''1'', ''SELECT 1'')', 'fencing_once(''t'', '''', ''x'', ''1'', ''SELECT 1'')', 'fencing_once(''t'', ''once/other'', '''', ''1'', ''SELECT 1'')', 'fencing_once(long(513), ''once/other'', ''x'', ''1'', ''SELECT 1'')', 'fencing_once(''t'', long(513), ''x'', ''1'', ''SELECT 1'')', 'fencing_once(''t'', ''once/other'', long(513), ''1'', ''SELECT 1'')', 'fencing_once(''t'', ''once/other'', random(513), ''1'', ''SELECT 1'')',
	'fencing_once(''t'', ''once/unknown'', ''x'', ''1'', ''SELECT 1'')', 'fencing_once(''t'', ''ONCE/OTHER'', ''x'', ''1'', ''SELECT 1'')', 'fencing_once(''t'', ''once/other'', ''x'', ''1'', ''SELECT 1'', NULL, true, true)', 'fencing_once(''t'', ''once/other'', ''x'', (repeat(''['', 513) || repeat('']'', 513))::jsonb, ''SELECT 1'')',
	'fencing_once_respond(NULL, ''once/other'', ''x'', ''1'')', 'fencing_once_respond(''t'', NULL, ''x'', ''1'')', 'fencing_once_respond(''t'', ''once/other'', NULL, ''1'')', 'fencing_once_respond(''t'', ''once/other'', ''x'', NULL)', 'fencing_once_respond('''', ''once/other'', ''x'', ''1'')', 'fencing_once_respond(''t'', '''', ''x'', ''1'')', 'fencing_once_respond(''t'', ''once/other'', '''', ''1'')',
	'fencing_once_respond(long(513), ''once/other'', ''x'', ''1'')', 'fencing_once_respond(''t'', ''once/other'', long(513), ''1'')', 'fencing_once_respond(''t'', ''once/other'', ''x'', ''1'')', 'fencing_once_respond(''t'', ''once/unknown'', ''x'', ''1'')',
	'fencing_request_canonical(NULL, 1, ''{}'')', 'fencing_request_canonical(''once/pay'', NULL, ''{}'')', 'fencing_request_canonical(''once/pay'', 1, NULL)', 'fencing_request_canonical('''', 1, ''{}'')', 'fencing_request_canonical(''once/unknown'', 1, ''{}'')', 'fencing_request_hash(NULL, 1, ''{}'')', 'fencing_request_hash(''once/pay'', NULL, ''{}'')', 'fencing_request_hash(''once/pay'', 1, NULL)', 'fencing_request_hash(''once/unknown'', 1, ''{}'')']) WITH ORDINALITY u (c, n) ORDER BY n;
SELECT state() = :'before' AS nothing_written;

--
-- Who may: a client executes and responds, an administrator defines
--
CREATE ROLE regress_fencing_once_client;
CREATE ROLE regress_fencing_once_admin;
CREATE ROLE regress_fencing_once_nobody;
SELECT fencing_grant('regress_fencing_once_client', 'client'), fencing_grant('regress_fencing_once_admin', 'admin');
GRANT USAGE ON SCHEMA regress_once TO PUBLIC;
SELECT r, p.proname FROM unnest('{client,admin,nobody}'::text[]) r, pg_proc p WHERE p.proname ~ '^fencing_(define|retire|once|request)' AND has_function_privilege('regress_fencing_once_' || r, p.oid, 'EXECUTE') ORDER BY 1, 2;
SET ROLE regress_fencing_once_client;
SELECT fencing_define_operation('once/x', 'yes(text,text,jsonb,jsonb)');
SELECT fencing_define_request('once/other', 2, '{}');
SELECT fencing_retire_request('once/other', 1);
SELECT count(*) FROM fencing.records;
SELECT count(*) FROM fencing.operation_status;
-- the statement runs with his privileges, the record is kept all the same
SELECT outcome, result FROM fencing_once('t', 'once/other', 'role', '1', 'SELECT current_user AS me');
SELECT outcome, result FROM fencing_once('t', 'once/other', 'role', '1', 'SELECT current_user AS me');
SELECT outcome FROM fencing_once('t', 'once/other', 'role', '2');
SELECT fencing_once('t', 'once/other', 'role2', '1', 'INSERT INTO payment VALUES (''t'', ''x'', ''a'', 1)');
SELECT fencing_once('t', 'once/other', 'role2', '1', 'SELECT * FROM fencing.records', report_errors => true);
RESET ROLE;
SELECT key FROM fencing.records WHERE key LIKE 'role%';
SET ROLE regress_fencing_once_nobody;
SELECT fencing_once('t', 'once/other', 'role', '1');
SELECT fencing_once_respond('t', 'once/other', 'role', '1');
SELECT fencing_request_hash('once/other', 1, '1');
RESET ROLE;
-- an administrator need not be allowed to read the state either
SET ROLE regress_fencing_once_admin;
SELECT fencing_define_operation('once/admin', 'yes(text,text,jsonb,jsonb)');
SELECT fencing_define_request('once/admin', 1, '{"properties": {"a": {}}}');
SELECT fencing_retire_request('once/admin', 1);
SELECT count(*) FROM fencing.request_schemas;
RESET ROLE;
-- monitoring sees counts, and nothing of the contents
GRANT pg_monitor TO regress_fencing_once_nobody;
SET ROLE regress_fencing_once_nobody;
SELECT operation, hash_version, retired, records, tombstones, oldest IS NOT NULL AS oldest FROM fencing.operation_status WHERE operation = 'once/pay';
SELECT count(*) FROM fencing.records;
RESET ROLE;
SELECT c.relname, string_agg(a.attname, ' ' ORDER BY a.attnum) AS columns FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 WHERE c.relname = 'operation_status' GROUP BY 1;
SELECT fencing_ungrant('regress_fencing_once_client', 'client'), fencing_ungrant('regress_fencing_once_admin', 'admin');
SELECT count(*) FROM pg_proc p WHERE p.proname LIKE 'fencing_once%' AND has_function_privilege('regress_fencing_once_client', p.oid, 'EXECUTE');

DELETE FROM fencing.records WHERE operation LIKE 'once/%';
DELETE FROM fencing.request_schemas WHERE operation LIKE 'once/%';
DELETE FROM fencing.operations WHERE operation LIKE 'once/%';
SELECT more FROM fencing_purge('events', '1 microsecond');
DROP SCHEMA regress_once CASCADE;
DROP ROLE regress_fencing_once_client, regress_fencing_once_admin, regress_fencing_once_nobody;
