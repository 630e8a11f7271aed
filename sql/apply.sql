--
-- fencing_target_desire and fencing_apply: a target in this database moves only
-- upwards, and content, digest and applied version are one transaction.  The
-- other ways to a target are in apply_target.
--
UPDATE fencing.floor SET floor = 0;
SET client_min_messages = warning;
CREATE SCHEMA regress_apply;
SET search_path = regress_apply, public;

-- What runs at a target, and everything that ever did, in order.
CREATE TABLE running (document text, target text, version bigint, content jsonb, PRIMARY KEY (document, target));
CREATE TABLE written (n serial, document text, target text, version bigint, content jsonb);
CREATE FUNCTION write(document text, target text, version bigint, content jsonb) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO running VALUES ($1, $2, $3, $4)
	ON CONFLICT ON CONSTRAINT running_pkey DO UPDATE SET version = $3, content = $4;
	INSERT INTO written (document, target, version, content) VALUES ($1, $2, $3, $4);
	RETURN $3 || ': ' || coalesce($4::text, 'deleted');
END $$;
CREATE FUNCTION digest(document text, number bigint) RETURNS bytea LANGUAGE sql AS
$$ SELECT digest FROM fencing.revisions WHERE document_id = document AND version = number $$;
CREATE FUNCTION publish(document text, VARIADIC contents jsonb[]) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	content jsonb;
	latest bigint := coalesce((SELECT version FROM fencing_publish_current(document)), 0);
BEGIN
	FOREACH content IN ARRAY contents LOOP
		ASSERT (SELECT outcome = 'committed' FROM fencing_publish(document, latest, content));
		latest := latest + 1;
	END LOOP;
	RETURN document || ' ' || latest;
END $$;
-- a delivery, as an application would write it
CREATE FUNCTION deliver(document text, target text, version bigint) RETURNS text LANGUAGE sql AS $$
SELECT concat_ws(' ', outcome, applied_version, result)
FROM fencing_apply(document, target, version, digest(document, version),
	statement => 'SELECT to_jsonb(write($1, $2, $3, $5))')
$$;
-- one by one, in the order given
CREATE FUNCTION deliver_all(document text, target text, versions bigint[]) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	version bigint;
BEGIN
	FOREACH version IN ARRAY versions LOOP
		RETURN NEXT version || ' ' || deliver(document, target, version);
	END LOOP;
END $$;
-- an answer, or the error
CREATE FUNCTION attempt(call text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE answer text;
BEGIN
	EXECUTE call INTO answer;
	RETURN coalesce(answer, 'no row');
EXCEPTION WHEN OTHERS OR query_canceled THEN
	RETURN SQLSTATE || ': ' || SQLERRM;
END $$;
CREATE VIEW status AS
SELECT document_id, target_id, desired_version AS desired, attempted_version AS attempted, applied_version AS applied, lag,
	applications, superseded, rejected_version AS rejected, last_error
FROM fencing.rollout_status WHERE document_id LIKE 'apply/%';

--
-- desire
--
SELECT publish('apply/app', '{"v": 1}', '{"v": 2}', '{"v": 3}');
SELECT fencing_target_desire('apply/app', 'eu');
-- what is desired is not shown as applied, nor as attempted
SELECT * FROM fencing.rollout_status WHERE document_id = 'apply/app';
SELECT * FROM running;
-- a version of its own, another, and back to the latest
SELECT fencing_target_desire('apply/app', 'eu', 2);
SELECT desired, applied, lag FROM status;
SELECT fencing_target_desire('apply/app', 'eu', 1);
SELECT desired, applied, lag FROM status;
SELECT fencing_target_desire('apply/app', 'eu', NULL), fencing_target_desire('apply/app', 'eu', NULL);
SELECT desired, applied, lag FROM status;
-- a version that is not there
SELECT attempt($$SELECT fencing_target_desire('apply/app', 'eu', 4)$$);
SELECT attempt($$SELECT fencing_target_desire('apply/app', 'new', 4)$$);
-- of a document that is published elsewhere: any
SELECT fencing_target_desire('apply/elsewhere', 'eu'), fencing_target_desire('apply/elsewhere', 'us', 9007199254740991);
SELECT * FROM status ORDER BY document_id, target_id;
-- it is part of its transaction
BEGIN;
SELECT fencing_target_desire('apply/app', 'back');
SAVEPOINT s;
SELECT fencing_target_desire('apply/app', 'eu', 2);
ROLLBACK TO s;
SELECT desired FROM status WHERE document_id = 'apply/app' ORDER BY target_id;
ROLLBACK;
SELECT target_id, desired FROM status WHERE document_id = 'apply/app';
-- never desired, never applied: also a document that is not there
SELECT attempt($$SELECT deliver('apply/app', 'unknown', 1)$$), attempt($$SELECT fencing_apply('apply/unknown', 'eu', 1, '\x00')$$);
SELECT outcome FROM fencing_apply('apply/app', 'unknown', 1, digest('apply/app', 1), '{"v": 1}', 'SELECT 1');
\echo :SQLSTATE

--
-- The order of versions
--
-- 3 and 2 in reverse: it stays 3
SELECT * FROM deliver_all('apply/app', 'eu', '{3, 2}');
SELECT version, content FROM running WHERE target = 'eu';
SELECT * FROM status WHERE target_id = 'eu' AND document_id = 'apply/app';
-- each in turn; a lower one that was applied once is stale when it comes again
SELECT fencing_target_desire('apply/app', 'us');
SELECT * FROM deliver_all('apply/app', 'us', '{1, 1, 2, 1, 2, 3, 2, 1, 3}');
SELECT version, content FROM running WHERE target = 'us';
SELECT * FROM status WHERE target_id = 'us' AND document_id = 'apply/app';
-- 1 to 3: 2 is superseded
SELECT fencing_target_desire('apply/app', 'asia');
SELECT * FROM deliver_all('apply/app', 'asia', '{1, 3, 2}');
SELECT * FROM status WHERE target_id = 'asia' AND document_id = 'apply/app';
SELECT target, string_agg(version::text, ' ' ORDER BY n) AS versions FROM written GROUP BY target ORDER BY target;
-- It is not limited by what is desired, and lags behind what is desired only.
SELECT fencing_target_desire('apply/app', 'pinned', 2);
SELECT * FROM deliver_all('apply/app', 'pinned', '{1}');
SELECT desired, applied, lag FROM status WHERE target_id = 'pinned';
SELECT * FROM deliver_all('apply/app', 'pinned', '{3}');
SELECT desired, applied, lag FROM status WHERE target_id = 'pinned';
SELECT fencing_target_desire('apply/app', 'pinned', 3);
SELECT * FROM deliver_all('apply/app', 'pinned', '{2,3}');
-- what it has is the least that can be desired
SELECT attempt($$SELECT fencing_target_desire('apply/app', 'pinned', 2)$$);
SELECT fencing_target_desire('apply/app', 'pinned', 3), fencing_target_desire('apply/app', 'pinned', 3);
SELECT desired, applied, lag FROM status WHERE target_id = 'pinned';

-- A rollback of 1 after 3 is 4, with the content of 1: order goes by the version
-- alone, and the redelivered 1 is stale although its digest is that of 4.
SELECT outcome, version, digest = digest('apply/app', 1) AS same_content FROM fencing_publish_rollback('apply/app', 3, 1, 'bad colour');
SELECT outcome, version, latest_version FROM fencing_publish('apply/app', 3, '{"v": "draft of 3"}');
SELECT target_id, desired, applied, lag FROM status WHERE document_id = 'apply/app' ORDER BY target_id;
SELECT * FROM deliver_all('apply/app', 'us', '{4, 1, 3, 4}');
SELECT version, content FROM running WHERE target = 'us';
-- ... and the digest of 3 under the number of 4 is a conflict, applied or not
SELECT outcome, applied_version FROM fencing_apply('apply/app', 'us', 4, digest('apply/app', 3), statement => 'SELECT write($1, $2, $3, $5)');
SELECT outcome, applied_version FROM fencing_apply('apply/app', 'eu', 4, digest('apply/app', 3), statement => 'SELECT write($1, $2, $3, $5)');

-- A full resync, the latest first or the oldest first: through the same gate
SELECT t AS target, d FROM unnest(ARRAY['asia', 'eu', 'us']) WITH ORDINALITY x (t, i), LATERAL deliver_all('apply/app', t, CASE t WHEN 'eu' THEN '{1, 2, 3, 4}' ELSE '{4, 3, 2, 1}'::bigint[] END) d;
SELECT target, version, content FROM running ORDER BY target;
SELECT target_id, applied, lag, applications, superseded FROM status WHERE document_id = 'apply/app' ORDER BY target_id;
-- content writes happened as often as recorded, and no target ever went down
SELECT target_id, applications = count(n) AS as_recorded, bool_and(rising) AS rising
FROM status LEFT JOIN (SELECT *, version > lag(version, 1, 0::bigint) OVER (PARTITION BY target ORDER BY n) AS rising FROM written) w ON target = target_id
WHERE document_id = 'apply/app' GROUP BY target_id, applications ORDER BY target_id;

--
-- What an answer contains
--
CREATE FUNCTION whole(document text, target text, version bigint, digest bytea, content jsonb DEFAULT NULL, statement text DEFAULT NULL)
RETURNS TABLE (outcome fencing_outcome, result jsonb, applied_version bigint, digest_of text, error jsonb) LANGUAGE sql AS $$
SELECT a.outcome, a.result, a.applied_version,
	(SELECT string_agg(r.version::text, ', ' ORDER BY r.version) FROM fencing.revisions r WHERE r.document_id = document AND r.digest = a.applied_digest), a.error
FROM fencing_apply(document, target, version, digest, content, statement) a
$$;
SELECT publish('apply/answer', '{"v": 1}', '{"v": 2}', '{"v": 3}'), fencing_target_desire('apply/answer', 't');
-- nothing is applied yet: conflict
SELECT * FROM whole('apply/answer', 't', 2, digest('apply/answer', 1), statement => 'SELECT $3 AS n');
SELECT * FROM whole('apply/answer', 't', 2, digest('apply/answer', 2), statement => 'SELECT $3 AS n, $5 AS content');
-- the result of then, whatever the statement is now
SELECT * FROM whole('apply/answer', 't', 2, digest('apply/answer', 2), statement => 'SELECT 1 / 0');
SELECT * FROM whole('apply/answer', 't', 2, digest('apply/answer', 2));
SELECT * FROM whole('apply/answer', 't', 2, digest('apply/answer', 3), statement => 'SELECT 1 / 0');
SELECT * FROM whole('apply/answer', 't', 1, digest('apply/answer', 1), statement => 'SELECT 1 / 0');
-- a lower version is stale whatever its digest is, or whether it is there
SELECT * FROM whole('apply/answer', 't', 1, '\x00', statement => 'SELECT 1 / 0');
SELECT * FROM whole('apply/answer', 't', 3, digest('apply/answer', 2), statement => 'SELECT 1 / 0');
-- digests of any other length are other digests
SELECT outcome FROM unnest(ARRAY['\x', '\x00', digest('apply/answer', 3) || '\x00', substr(digest('apply/answer', 3), 1, 31)]) WITH ORDINALITY d (d, i),
	LATERAL fencing_apply('apply/answer', 't', 3, d, statement => 'SELECT 1 / 0') ORDER BY i;
-- a version that was never published
SELECT attempt($$SELECT fencing_apply('apply/answer', 't', 4, digest('apply/answer', 3))$$);

--
-- statement
--
SELECT publish('apply/statement', '{"v": 1}', '{"v": 2}', '{"v": 3}', '"4"', '5', 'null', '{"v": 7}', '{"v": 8}');
SELECT fencing_target_desire('apply/statement', 't');
-- its arguments
SELECT outcome, result - 'digest' AS result, (result ->> 'digest')::bytea = digest('apply/statement', 1) AS digest
FROM fencing_apply('apply/statement', 't', 1, digest('apply/statement', 1),
	statement => 'SELECT $1 AS document_id, $2 AS target_id, $3 AS version, $4 AS digest, $5 AS content');
SELECT outcome, result FROM fencing_apply('apply/statement', 't', 2, digest('apply/statement', 2),
	statement => 'SELECT pg_typeof($1) AS a, pg_typeof($2) AS b, pg_typeof($3) AS c, pg_typeof($4) AS d, pg_typeof($5) AS e');
-- every kind of it, and no row
CREATE TABLE kind (version bigint, content jsonb);
SELECT outcome, result FROM fencing_apply('apply/statement', 't', 3, digest('apply/statement', 3), statement => 'INSERT INTO kind VALUES ($3, $5) RETURNING version, content');
SELECT outcome, result FROM fencing_apply('apply/statement', 't', 4, digest('apply/statement', 4), statement => 'UPDATE kind SET version = $3, content = $5 RETURNING content');
SELECT outcome, result FROM fencing_apply('apply/statement', 't', 5, digest('apply/statement', 5),
	statement => 'MERGE INTO kind USING (SELECT) x ON true WHEN MATCHED THEN UPDATE SET version = $3, content = $5');
SELECT * FROM kind;
-- JSON's null is a content, not a deletion
SELECT outcome, result FROM fencing_apply('apply/statement', 't', 6, digest('apply/statement', 6), statement => 'DELETE FROM kind RETURNING $5 IS NULL AS deleted, $5 AS content');
SELECT outcome, result, applied_version FROM fencing_apply('apply/statement', 't', 6, digest('apply/statement', 6));
-- errors take the watermark with them, and what the statement wrote before
CREATE FUNCTION write_and_fail(document text, target text, version bigint, content jsonb) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	PERFORM write(document, target, version, content);
	RAISE EXCEPTION USING errcode = 'AB123', message = 'written and failed';
END $$;
SELECT attempt(format($$SELECT fencing_apply('apply/statement', 't', 7, digest('apply/statement', 7), statement => %L)$$, s)) AS error
FROM unnest(ARRAY['SELECT write_and_fail($1, $2, $3, $5)', 'VALUES (1), (2)', 'SELECT 1 / 0', 'SELECT $6', 'SELECT missing', '', 'COMMIT', 'SELECT 1; SELECT 2',
	'TRUNCATE running']) WITH ORDINALITY x (s, i) ORDER BY i;
SELECT applied, applications FROM status WHERE document_id = 'apply/statement';
SELECT count(*) FROM running WHERE document = 'apply/statement';
-- an error that comes only at COMMIT
CREATE TABLE later (version bigint, CONSTRAINT later_key UNIQUE (version) DEFERRABLE INITIALLY DEFERRED);
INSERT INTO later VALUES (7);
SELECT outcome FROM fencing_apply('apply/statement', 't', 7, digest('apply/statement', 7), statement => 'INSERT INTO later VALUES ($3)');
\echo :SQLSTATE
SELECT applied FROM status WHERE document_id = 'apply/statement';
-- the version that failed does not block the next, and comes too late itself
SELECT * FROM deliver_all('apply/statement', 't', '{8, 7}');
SELECT * FROM status WHERE document_id = 'apply/statement';

--
-- The gate alone: the client writes afterwards, in the same transaction
--
SELECT publish('apply/gate', '{"v": 1}', '{"v": 2}', '{"v": 3}', '{"v": 4}', '{"v": 5}', '{"v": 6}');
SELECT fencing_target_desire('apply/gate', 't');
BEGIN;
SELECT outcome, result, applied_version FROM fencing_apply('apply/gate', 't', 1, digest('apply/gate', 1));
SELECT write('apply/gate', 't', 1, '{"v": 1}');
-- in this transaction it is applied already
SELECT outcome, result, applied_version FROM fencing_apply('apply/gate', 't', 1, digest('apply/gate', 1));
COMMIT;
SELECT applied FROM status WHERE document_id = 'apply/gate';
-- one that has failed since: neither the content nor the watermark
BEGIN;
SELECT outcome, applied_version FROM fencing_apply('apply/gate', 't', 2, digest('apply/gate', 2));
SELECT write('apply/gate', 't', 2, '{"v": 2}');
ROLLBACK;
SELECT applied, applications FROM status WHERE document_id = 'apply/gate';
SELECT version FROM running WHERE document = 'apply/gate';
-- rolled back to a savepoint: committed again, also with another digest of its
-- own version, and a lower one too
BEGIN;
SAVEPOINT s;
SELECT outcome, applied_version FROM fencing_apply('apply/gate', 't', 3, digest('apply/gate', 3));
ROLLBACK TO s;
SELECT applied FROM status WHERE document_id = 'apply/gate';
SELECT outcome, applied_version FROM fencing_apply('apply/gate', 't', 2, digest('apply/gate', 2));
SELECT write('apply/gate', 't', 2, '{"v": 2}');
SAVEPOINT s;
SELECT outcome, applied_version FROM fencing_apply('apply/gate', 't', 4, digest('apply/gate', 4));
SELECT outcome, applied_version FROM fencing_apply('apply/gate', 't', 3, digest('apply/gate', 3));
ROLLBACK TO s;
-- several in one transaction
SELECT outcome, applied_version FROM fencing_apply('apply/gate', 't', 3, digest('apply/gate', 3));
SELECT write('apply/gate', 't', 3, '{"v": 3}');
RELEASE s;
COMMIT;
SELECT applied, applications, superseded FROM status WHERE document_id = 'apply/gate';
SELECT string_agg(version::text, ' ' ORDER BY n) AS versions FROM written WHERE document = 'apply/gate';
-- at top level outside of a transaction block: a watermark for a content that
-- nobody has written.  What would be committed is refused.
SET client_min_messages = notice;
\set VERBOSITY sqlstate
SELECT outcome FROM fencing_apply('apply/gate', 't', 4, digest('apply/gate', 4));
BEGIN;
SELECT outcome FROM fencing_apply('apply/gate', 't', 4, digest('apply/gate', 4));
COMMIT;
SELECT outcome FROM fencing_apply('apply/gate', 't', 4, digest('apply/gate', 4));
SELECT outcome FROM fencing_apply('apply/gate', 't', 4, digest('apply/gate', 3));
SELECT outcome FROM fencing_apply('apply/gate', 't', 3, digest('apply/gate', 3));
SELECT outcome FROM fencing_apply('apply/gate', 't', 5, digest('apply/gate', 5), statement => 'SELECT write($1, $2, $3, $5)');
BEGIN;
SELECT outcome FROM fencing_apply('apply/gate', 't', 6, digest('apply/gate', 6));
ROLLBACK;
DO $$ BEGIN PERFORM fencing_apply('apply/gate', 't', 6, digest('apply/gate', 6)); PERFORM write('apply/gate', 't', 6, '{"v": 6}'); END $$;
\set VERBOSITY default
SET client_min_messages = warning;

--
-- content given: no revision is needed here
--
-- checked against the digest; equal as JSON is enough
SELECT outcome, applied_version FROM fencing_apply('apply/elsewhere', 'eu', 3, fencing_digest('{"v": 3.0, "w": null}'), '{"w": null, "v": 3}',
	'SELECT write($1, $2, $3, $5)');
SELECT version, content FROM running WHERE document = 'apply/elsewhere';
SELECT * FROM status WHERE document_id = 'apply/elsewhere' AND target_id = 'eu';
SELECT attempt(format($$SELECT fencing_apply('apply/elsewhere', 'eu', 4, %s, %L, 'SELECT 1 / 0')$$, d, c)) AS error
FROM (VALUES ('fencing_digest(''{"v": 4}'')', '{"v": 5}'), ('fencing_digest(''{"v": 4}'')', '{"v": "4"}'), ('''\x''', '{"v": 4}'), ('sha256('''')', 'null'), ('sha256('''')', '{}'), ('sha256('''')', '""'))
	AS x (d, c);
-- replayed, conflict and stale need none
SELECT outcome, applied_version FROM fencing_apply('apply/elsewhere', 'eu', 3, fencing_digest('{"v": 3, "w": null}'), '{"v": 3, "w": null}', 'SELECT 1 / 0');
SELECT outcome, applied_version FROM fencing_apply('apply/elsewhere', 'eu', 3, fencing_digest('{"v": 3, "w": null}'));
SELECT outcome, applied_version FROM fencing_apply('apply/elsewhere', 'eu', 3, fencing_digest('{"v": 0}'), '{"v": 0}', 'SELECT 1 / 0');
SELECT outcome, applied_version FROM fencing_apply('apply/elsewhere', 'eu', 2, fencing_digest('{"v": 2}'), '{"v": 2}', 'SELECT 1 / 0');
SELECT outcome, applied_version FROM fencing_apply('apply/elsewhere', 'eu', 2, fencing_digest('{"v": 2}'));
-- no content and no revision
SELECT attempt($$SELECT fencing_apply('apply/elsewhere', 'eu', 4, fencing_digest('{"v": 4}'))$$);
-- a deletion: the digest of no text, and no content
SELECT outcome, applied_version, applied_digest = sha256('') AS empty FROM fencing_apply('apply/elsewhere', 'eu', 5, sha256(''),
	statement => 'SELECT write($1, $2, $3, $5)');
SELECT version, content FROM running WHERE document = 'apply/elsewhere';
SELECT outcome, applied_version FROM fencing_apply('apply/elsewhere', 'eu', 5, sha256(''));
SELECT outcome, applied_version FROM fencing_apply('apply/elsewhere', 'eu', 5, fencing_digest('null'), 'null', 'SELECT 1 / 0');
-- and again above it, to the end
SELECT outcome, applied_version FROM fencing_apply('apply/elsewhere', 'eu', 6, fencing_digest('null'), 'null', 'SELECT write($1, $2, $3, $5)');
SELECT outcome, applied_version FROM fencing_apply('apply/elsewhere', 'us', 9007199254740991, fencing_digest('{"v": 9}'), '{"v": 9}', 'SELECT write($1, $2, $3, $5)');
SELECT * FROM status WHERE document_id = 'apply/elsewhere' ORDER BY target_id;
-- one that is published here: its revision counts
SELECT publish('apply/given', '{"v": 1}', '{"v": 2}'), fencing_target_desire('apply/given', 't');
SELECT outcome, applied_version FROM fencing_apply('apply/given', 't', 1, fencing_digest('{"v": 2}'), '{"v": 2}', 'SELECT 1 / 0');
SELECT outcome, applied_version FROM fencing_apply('apply/given', 't', 1, fencing_digest('{"v": 1}'), '{"v": 1.0}', 'SELECT write($1, $2, $3, $5)');
SELECT attempt($$SELECT fencing_apply('apply/given', 't', 2, fencing_digest('{"v": 2}'), '{"v": 1}', 'SELECT 1 / 0')$$);
-- a version above the latest was never published, whatever content is given with it
SELECT attempt($$SELECT fencing_apply('apply/given', 't', 5, fencing_digest('{"v": 5}'), '{"v": 5}', 'SELECT 1 / 0')$$);
-- the most there may be; else the target would be stale for ever
SELECT attempt($$SELECT fencing_apply('apply/elsewhere', 'eu', 9007199254740992, fencing_digest('1'), '1', 'SELECT 1 / 0')$$);
SELECT attempt($$SELECT fencing_apply('apply/elsewhere', 'eu', 9223372036854775807, fencing_digest('1'), '1', 'SELECT 1 / 0')$$);
SELECT attempt($$SELECT fencing_target_desire('apply/elsewhere', 'eu', 9007199254740992)$$);
SELECT attempt($$SELECT fencing_apply_reject('apply/elsewhere', 'eu', 9007199254740992, 'bad')$$);
SELECT * FROM status WHERE document_id = 'apply/given';
-- until it is
SELECT publish('apply/given', '{"v": 3}', '{"v": 4}', '{"v": "other 5"}');
SELECT * FROM deliver_all('apply/given', 't', '{3, 5}');
SELECT publish('apply/given', '{"v": "other 5"}');
SELECT * FROM deliver_all('apply/given', 't', '{6}');

--
-- Deletions
--
SELECT publish('apply/deleted', '{"v": 1}'), fencing_target_desire('apply/deleted', 't');
SELECT outcome, version FROM fencing_publish_delete('apply/deleted', 1);
SELECT publish('apply/deleted', '{"v": 3}');
SELECT outcome, version FROM fencing_publish_delete('apply/deleted', 3);
SELECT outcome, version FROM fencing_publish_delete('apply/deleted', 4);
SELECT * FROM deliver_all('apply/deleted', 't', '{1, 2, 1, 2, 3, 2, 4}');
SELECT version, content FROM running WHERE document = 'apply/deleted';
-- deleted twice is two versions, with one digest
SELECT * FROM deliver_all('apply/deleted', 't', '{5, 4}');
SELECT * FROM status WHERE document_id = 'apply/deleted';
SELECT outcome, applied_version, applied_digest = sha256('') AS empty, result FROM fencing_apply('apply/deleted', 't', 5, sha256(''));
-- not a deletion, and not that version
SELECT fencing_target_desire('apply/deleted', 'u');
SELECT outcome FROM fencing_apply('apply/deleted', 'u', 1, sha256(''), statement => 'SELECT 1 / 0');
SELECT outcome FROM fencing_apply('apply/deleted', 'u', 2, digest('apply/deleted', 1), statement => 'SELECT 1 / 0');
SELECT outcome FROM fencing_apply('apply/deleted', 'u', 2, fencing_digest('null'), 'null', 'SELECT 1 / 0');
-- a target that never had it: a deletion is applied all the same
SELECT outcome, applied_version, result FROM fencing_apply('apply/deleted', 'u', 2, sha256(''), statement => 'SELECT $5 IS NULL AS deleted');
-- but not one that was never published, of a document that is
SELECT attempt($$SELECT fencing_apply('apply/deleted', 'u', 9, sha256(''), statement => 'SELECT 1 / 0')$$);

--
-- report_errors and strict
--
SELECT publish('apply/report', '{"n": 1}', '{"n": 0}', '{"n": 3}'), fencing_target_desire('apply/report', 't');
CREATE TABLE item (version bigint, n int CHECK (n > 0));
BEGIN;
INSERT INTO item VALUES (0, 1);
SELECT outcome, result, applied_version, applied_digest, error ->> 'sqlstate' AS sqlstate, (SELECT count(*) FROM jsonb_object_keys(error)) AS keys
FROM fencing_apply('apply/report', 't', 2, digest('apply/report', 2), statement => 'INSERT INTO item VALUES ($3, ($5->>''n'')::int)', report_errors => true);
SELECT outcome, result, applied_version, error
FROM fencing_apply('apply/report', 't', 1, digest('apply/report', 1), statement => 'INSERT INTO item VALUES ($3, ($5->>''n'')::int) RETURNING n', report_errors => true);
-- the version that fails does not block the next
SELECT outcome, applied_version, error ->> 'sqlstate' AS sqlstate, error ->> 'message' AS message
FROM fencing_apply('apply/report', 't', 2, digest('apply/report', 2), statement => 'INSERT INTO item VALUES ($3, ($5->>''n'')::int)', report_errors => true);
SELECT outcome, applied_version
FROM fencing_apply('apply/report', 't', 3, digest('apply/report', 3), statement => 'INSERT INTO item VALUES ($3, ($5->>''n'')::int)', report_errors => true);
COMMIT;
SELECT * FROM item ORDER BY version;
SELECT desired, applied, lag, applications, superseded FROM status WHERE document_id = 'apply/report';
-- what is reported, and what propagates
CREATE FUNCTION raise(state text) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION USING errcode = state, message = 'raised ' || state; END $$;
SELECT publish('apply/report', '{"n": 4}');
SELECT attempt(format($$SELECT concat_ws(' ', outcome, applied_version, error ->> 'sqlstate', error ->> 'message') FROM fencing_apply(%s, report_errors => true)$$, a)) AS answer
FROM unnest(ARRAY[
	$$'apply/report', 't', 4, digest('apply/report', 4), NULL, 'SELECT raise(''P0001'')'$$,
	$$'apply/report', 't', 4, digest('apply/report', 4), NULL, 'SELECT raise(''40001'')'$$,
	$$'apply/report', 't', 4, digest('apply/report', 4), NULL, 'SELECT raise(''42501'')'$$,
	$$'apply/report', 't', 4, digest('apply/report', 4), NULL, 'SELECT raise(''25006'')'$$,
	$$'apply/report', 't', 4, digest('apply/report', 4), NULL, 'SELECT raise(''57014'')'$$,
	$$'apply/report', 't', 4, digest('apply/report', 4), NULL, 'SELECT raise(''XX000'')'$$,
	$$'apply/report', 't', 4, digest('apply/report', 4), NULL, 'VALUES (1), (2)'$$,
	$$'apply/report', 't', 4, digest('apply/report', 4), NULL, 'COMMIT'$$,
	$$'apply/report', 't', 5, digest('apply/report', 4)$$,
	$$'apply/report', 'unknown', 4, digest('apply/report', 4)$$,
	$$'apply/report', 't', 4, digest('apply/report', 4), '{"n": 5}'$$,
	$$NULL, 't', 4, digest('apply/report', 4)$$,
	$$'apply/report', 't', 0, digest('apply/report', 4)$$,
	$$'apply/report', repeat('t', 513), 4, digest('apply/report', 4)$$,
	$$'apply/report', 't', 4, digest('apply/report', 3)$$,
	$$'apply/report', 't', 3, digest('apply/report', 3)$$,
	$$'apply/report', 't', 1, digest('apply/report', 1)$$]) WITH ORDINALITY x (a, i) ORDER BY i;
-- strict: what is not committed or replayed is an error, with the outcome in it
CREATE FUNCTION strict(version bigint, digest bytea) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
	detail text;
BEGIN
	SELECT concat_ws(' ', outcome, applied_version) INTO answer
	FROM fencing_apply('apply/report', 't', version, digest, statement => 'SELECT write($1, $2, $3, $5)', strict => true);
	RETURN answer;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
	RETURN SQLSTATE || ': ' || detail;
END $$;
SELECT strict(4, digest('apply/report', 4)) AS first, strict(4, digest('apply/report', 4)) AS again;
SELECT strict(4, digest('apply/report', 3)) AS other, strict(3, digest('apply/report', 3)) AS lower;
SELECT attempt($$SELECT fencing_apply('apply/report', 't', 4, digest('apply/report', 4), strict => true, report_errors => true)$$);
-- the batch form: 30 targets, one bad
SELECT publish('apply/batch', '{"n": 1}');
SELECT count(*) FROM generate_series(1, 30) i, LATERAL (SELECT fencing_target_desire('apply/batch', to_char(i, 'FM00'))) d;
CREATE TABLE batch (target text PRIMARY KEY CHECK (target <> '07'));
SELECT a.outcome, count(*), min(t.target) FILTER (WHERE a.outcome = 'failed') AS target, min(a.error ->> 'sqlstate') AS sqlstate
FROM (SELECT array_agg(to_char(i, 'FM00') ORDER BY i) AS targets FROM generate_series(1, 30) i) x,
	LATERAL unnest(targets) t (target),
	LATERAL fencing_apply('apply/batch', t.target, 1, digest('apply/batch', 1), statement => 'INSERT INTO batch VALUES ($2)', report_errors => true) a
GROUP BY a.outcome ORDER BY a.outcome;
SELECT count(*), (SELECT string_agg(target_id, ', ') FROM status WHERE document_id = 'apply/batch' AND lag = 1) AS lagging FROM batch;

--
-- Re-entry: a target in progress refuses it from its own statement, others do not
--
SELECT publish('apply/nested', '{"v": 1}', '{"v": 2}', '{"v": 3}');
SELECT fencing_target_desire('apply/nested', t) FROM unnest(ARRAY['t', 'u']) t;
SELECT attempt($$SELECT fencing_apply('apply/nested', 't', 2, digest('apply/nested', 2),
	statement => 'SELECT fencing_apply($1, $2, $3, $4)')$$);
SELECT attempt($$SELECT fencing_apply('apply/nested', 't', 2, digest('apply/nested', 2),
	statement => 'SELECT fencing_apply($1, $2, $3 + 1, digest($1, $3 + 1))')$$);
SELECT attempt($$SELECT fencing_apply('apply/nested', 't', 2, digest('apply/nested', 2),
	statement => 'SELECT fencing_apply($1, $2, $3 - 1, digest($1, $3 - 1))')$$);
SELECT outcome, result FROM fencing_apply('apply/nested', 't', 2, digest('apply/nested', 2),
	statement => 'SELECT outcome, applied_version FROM fencing_apply($1, ''u'', 3, digest($1, 3), NULL, ''SELECT write($1, $2, $3, $5)'')');
-- nor does anything else write its row
SELECT call, attempt(format($$SELECT fencing_apply('apply/nested', 't', 3, digest('apply/nested', 3), statement => 'SELECT %s')$$, call))
FROM unnest(ARRAY['fencing_target_desire($1, $2)', 'fencing_target_desire($1, $2, 3)', 'fencing_apply_reject($1, $2, 3, $a$bad$a$)',
	'fencing_apply_begin($1, $2, gen_random_uuid())', 'fencing_apply_observe($1, $2, 1, 3, $4)']) call;
SELECT target_id, applied FROM status WHERE document_id = 'apply/nested' ORDER BY target_id;
-- a job and an event of its own in the statement
SELECT token FROM fencing_acquire('apply/job', md5('A')::uuid) \gset
SELECT outcome, result FROM fencing_apply('apply/nested', 't', 3, digest('apply/nested', 3),
	statement => format('SELECT outcome, fencing_outbox_emit(''config'', $2, ''applied'', $5) IS NOT NULL AS event FROM fencing_commit(''apply/job'', %s, $5, ''SELECT 1'')', :token));

--
-- The pass of a protected table is that of the target's job
--
SELECT publish('apply/pass', '{"v": 1}', '{"v": 2}', '{"v": 3}', '{"v": 4}');
SELECT fencing_target_desire('apply/pass', t) FROM unnest(ARRAY['t', 'u']) t;
SELECT job_key, job_key ~ '^apply/[0-9a-f]{64}$' AS form FROM fencing_apply_begin('apply/pass', 't', md5('A')::uuid) \gset
\echo :form
CREATE TABLE protected (version bigint, content jsonb);
SELECT fencing_protect('protected', job_key => :'job_key');
SELECT attempt('INSERT INTO protected VALUES (0)');
-- begin gives none
BEGIN;
SELECT outcome FROM fencing_apply_begin('apply/pass', 't', md5('A')::uuid);
SELECT attempt('INSERT INTO protected VALUES (0)');
COMMIT;
SELECT outcome FROM fencing_apply('apply/pass', 't', 1, digest('apply/pass', 1), statement => 'INSERT INTO protected VALUES ($3, $5)');
BEGIN;
SELECT outcome FROM fencing_apply('apply/pass', 't', 2, digest('apply/pass', 2));
INSERT INTO protected VALUES (2, '{"v": 2}');
COMMIT;
-- nobody else's, nor of what was not committed
BEGIN;
SELECT outcome FROM fencing_apply('apply/pass', 'u', 3, digest('apply/pass', 3));
SELECT attempt('INSERT INTO protected VALUES (0)') AS other_target;
SELECT outcome FROM fencing_apply('apply/pass', 't', 2, digest('apply/pass', 2));
SELECT attempt('INSERT INTO protected VALUES (0)') AS replayed;
SELECT outcome FROM fencing_apply('apply/pass', 't', 1, digest('apply/pass', 1));
SELECT attempt('INSERT INTO protected VALUES (0)') AS stale;
SELECT outcome FROM fencing_apply('apply/pass', 't', 3, digest('apply/pass', 1));
SELECT attempt('INSERT INTO protected VALUES (0)') AS conflict;
SAVEPOINT s;
SELECT outcome FROM fencing_apply('apply/pass', 't', 3, digest('apply/pass', 3));
ROLLBACK TO s;
SELECT attempt('INSERT INTO protected VALUES (0)') AS rolled_back;
SELECT outcome, error ->> 'sqlstate' AS sqlstate FROM fencing_apply('apply/pass', 't', 3, digest('apply/pass', 3), statement => 'SELECT 1 / 0', report_errors => true);
SELECT attempt('INSERT INTO protected VALUES (0)') AS failed;
COMMIT;
SELECT * FROM protected ORDER BY version;
SELECT fencing_unprotect('protected');

--
-- What is only told writes nothing: no transaction id, no lock, no row version
--
CREATE TABLE calls (n serial, what text, command text);
INSERT INTO calls (what, command) VALUES
('replayed', $$SELECT outcome FROM fencing_apply('apply/app', 'us', 4, digest('apply/app', 4), statement => 'SELECT 1 / 0')$$),
('replayed, gate alone', $$SELECT outcome FROM fencing_apply('apply/app', 'us', 4, digest('apply/app', 4))$$),
('replayed, content given', $$SELECT outcome FROM fencing_apply('apply/app', 'us', 4, digest('apply/app', 4), '{"v": 1}')$$),
('replayed, strict', $$SELECT outcome FROM fencing_apply('apply/app', 'us', 4, digest('apply/app', 4), strict => true)$$),
('conflict', $$SELECT outcome FROM fencing_apply('apply/app', 'us', 4, digest('apply/app', 3), statement => 'SELECT 1 / 0')$$),
('stale', $$SELECT outcome FROM fencing_apply('apply/app', 'us', 2, digest('apply/app', 2), statement => 'SELECT 1 / 0')$$);
CREATE PROCEDURE each_alone() LANGUAGE plpgsql AS $$
DECLARE
	c record;
	answer text;
BEGIN
	FOR c IN SELECT * FROM calls ORDER BY n LOOP
		COMMIT;
		EXECUTE c.command INTO answer;
		RAISE WARNING USING MESSAGE = format('%s: %s, transaction id: %s, locks: %s', c.what, answer,
			coalesce(pg_current_xact_id_if_assigned()::text, 'none'),
			(SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype IN ('advisory', 'tuple', 'transactionid') AND mode <> 'SIReadLock'));
	END LOOP;
END $$;
\set VERBOSITY terse
\set SHOW_CONTEXT never
SELECT md5(string_agg(ctid || ' ' || xmin || ' ' || xmax || ' ' || t, ',' ORDER BY target_id)) AS before FROM fencing.targets t WHERE document_id = 'apply/app' \gset
CALL each_alone();
SET default_transaction_isolation = 'repeatable read';
CALL each_alone();
SET default_transaction_isolation = 'serializable';
CALL each_alone();
RESET default_transaction_isolation;
SELECT md5(string_agg(ctid || ' ' || xmin || ' ' || xmax || ' ' || t, ',' ORDER BY target_id)) = :'before' AS unchanged FROM fencing.targets t WHERE document_id = 'apply/app';

-- Read-only: what is known is told, the rest is 25006
BEGIN READ ONLY;
SELECT command, attempt(command) AS answer FROM (VALUES
	($$SELECT outcome FROM fencing_apply('apply/app', 'us', 4, digest('apply/app', 4), statement => 'SELECT 1')$$),
	($$SELECT outcome FROM fencing_apply('apply/app', 'us', 4, digest('apply/app', 3), statement => 'SELECT 1')$$),
	($$SELECT outcome FROM fencing_apply('apply/app', 'us', 2, digest('apply/app', 2), statement => 'SELECT 1')$$),
	($$SELECT outcome FROM fencing_apply('apply/app', 'eu', 4, digest('apply/app', 4), statement => 'SELECT 1')$$),
	($$SELECT outcome FROM fencing_apply('apply/app', 'eu', 4, digest('apply/app', 4), statement => 'SELECT 1', report_errors => true)$$),
	($$SELECT outcome FROM fencing_apply('apply/app', 'eu', 9, digest('apply/app', 4), statement => 'SELECT 1')$$),
	($$SELECT outcome FROM fencing_apply('apply/app', 'unknown', 1, digest('apply/app', 1), statement => 'SELECT 1')$$),
	($$SELECT fencing_target_desire('apply/app', 'us')$$),
	($$SELECT fencing_target_desire('apply/app', 'new')$$)) AS x (command);
ROLLBACK;

--
-- A digest version that this installation does not know is never applied anew
--
SELECT publish('apply/digest', '{"v": 1}', '{"v": 2}'), fencing_target_desire('apply/digest', 't');
SELECT * FROM deliver_all('apply/digest', 't', '{1}');
SET session_replication_role = replica;
UPDATE fencing.revisions SET digest_version = 99, digest = '\x99' WHERE document_id = 'apply/digest' AND version = 2;
RESET session_replication_role;
SET client_min_messages = error;
SELECT outcome FROM fencing_apply('apply/digest', 't', 2, '\x99', statement => 'SELECT write($1, $2, $3, $5)');
\echo :SQLSTATE
SELECT outcome FROM fencing_apply('apply/digest', 't', 2, fencing_digest('{"v": 2}'), '{"v": 2}', statement => 'SELECT write($1, $2, $3, $5)');
\echo :SQLSTATE
SELECT applied, applications FROM status WHERE document_id = 'apply/digest';
SET client_min_messages = warning;

--
-- Keys are compared byte by byte, and one part is not taken for the other
--
CREATE TABLE key (n serial, d text, t text);
INSERT INTO key (d, t) VALUES ('apply/k', 'x'), ('apply/K', 'x'), ('apply/k', 'X'), ('apply/k', 'x '), ('apply/k ', 'x'), ('apply/kx', 'x'), ('apply/k', 'xx'),
	('apply/k', U&'Caf\00E9'), ('apply/k', U&'Cafe\0301'), ('apply/k', U&'\+01F600'), ('apply/k,', 'x'), ('apply/k', ',x'), ('apply/k', E'\\'), ('apply/k', ''''),
	(rpad('apply/k', 512, 'k'), rpad('x', 512, 'x')), ('apply/' || repeat(U&'\00E9', 253), repeat(U&'\+01F600', 128));
SELECT count(fencing_target_desire(d, t)) FROM key;
SELECT count(*) FILTER (WHERE a.outcome = 'committed') AS committed, count(*) AS keys
FROM key, LATERAL fencing_apply(d, t, n, fencing_digest(to_jsonb(n)), to_jsonb(n), 'SELECT write($1, $2, $3, $5)') a;
SELECT count(*) AS as_applied FROM key JOIN status ON document_id = d COLLATE "C" AND target_id = t COLLATE "C" AND applied = n;
SELECT count(DISTINCT job_key) AS jobs FROM key, LATERAL fencing_apply_begin(d, t, md5('A')::uuid);
SELECT DISTINCT outcome FROM key, LATERAL fencing_apply_begin(d, t, md5('A')::uuid);

--
-- NULL and bad input
--
CREATE TABLE attempts (n serial, call text, answer text);
CREATE PROCEDURE attempt_all(prefix text, arguments text[]) LANGUAGE plpgsql AS $$
DECLARE a text;
BEGIN
	FOREACH a IN ARRAY arguments LOOP
		INSERT INTO attempts (call, answer) VALUES (a, attempt(format('SELECT %s(%s)', prefix, a)));
	END LOOP;
END $$;
SELECT publish('apply/a', '{"v": 1}'), fencing_target_desire('apply/a', 't');
CREATE FUNCTION d() RETURNS bytea LANGUAGE sql AS $$ SELECT fencing_digest('{"v": 1}') $$;
CREATE FUNCTION ascii(n int) RETURNS text LANGUAGE sql AS $$ SELECT rpad('apply/', n, 'k') $$;
-- n bytes whose last character is two bytes long, so that a cut would split it
CREATE FUNCTION two_bytes(n int) RETURNS text LANGUAGE sql AS $$ SELECT repeat('k', n % 2) || repeat(U&'\00E9', n / 2) $$;
CREATE FUNCTION deep(n int) RETURNS jsonb LANGUAGE sql AS $$ SELECT (repeat('[', n) || repeat(']', n))::jsonb $$;
CALL attempt_all('fencing_target_desire', ARRAY[
	'NULL, ''t''', '''apply/a'', NULL', 'NULL, NULL, NULL', ''''', ''t''', '''apply/a'', ''''',
	'ascii(513), ''t''', '''apply/a'', ascii(513)', 'two_bytes(513), ''t''', '''apply/a'', two_bytes(514)', 'ascii(100000), ascii(100000)',
	'''apply/a'', ''t'', 0', '''apply/a'', ''t'', -1', '''apply/a'', ''t'', (-9223372036854775808)::bigint', '''apply/none'', ''t'', 0', '''apply/a'', ''t'', 9223372036854775807']);
CALL attempt_all('fencing_apply', ARRAY[
	'NULL, ''t'', 1, d()', '''apply/a'', NULL, 1, d()', '''apply/a'', ''t'', NULL, d()', '''apply/a'', ''t'', 1, NULL',
	'''apply/a'', ''t'', 1, d(), NULL, ''SELECT 1'', NULL', '''apply/a'', ''t'', 1, d(), NULL, ''SELECT 1'', false, NULL', '''apply/a'', ''t'', 1, d(), NULL, ''SELECT 1'', true, true',
	''''', ''t'', 1, d()', '''apply/a'', '''', 1, d()', 'ascii(513), ''t'', 1, d()', '''apply/a'', ascii(513), 1, d()', 'two_bytes(513), ''t'', 1, d()', '''apply/a'', two_bytes(514), 1, d()',
	'''apply/a'', ''t'', 0, d()', '''apply/a'', ''t'', -1, d()', '''apply/a'', ''t'', (-9223372036854775808)::bigint, d()', '''apply/a'', ''t'', 9223372036854775807, d()',
	'''apply/a'', ''t'', 1, d(), deep(513)', '''apply/a'', ''t'', 1, d(), deep(5000)',
	'''apply/a'', ''t'', 1, d(), NULL, ''''', '''apply/a'', ''t'', 1, d(), NULL, '' ''']);
SELECT call, answer FROM attempts ORDER BY n;
SELECT * FROM status WHERE document_id = 'apply/a';
-- 50 MB, and 512 deep
SELECT outcome, result FROM fencing_apply('apply/elsewhere', 'eu', 7, fencing_digest(to_jsonb(repeat('0123456789', 5242880))), to_jsonb(repeat('0123456789', 5242880)),
	'SELECT length($5#>>''{}'') AS n');
SELECT outcome FROM fencing_apply('apply/elsewhere', 'eu', 8, fencing_digest(deep(512)), deep(512), 'SELECT write($1, $2, $3, NULL)');

--
-- Who may call
--
CREATE ROLE regress_fencing_client;
CREATE ROLE regress_fencing_target;
CREATE ROLE regress_fencing_publisher;
CREATE ROLE regress_fencing_relay;
CREATE ROLE regress_fencing_external;
CREATE ROLE regress_fencing_admin;
CREATE ROLE regress_fencing_watch IN ROLE pg_monitor;
GRANT USAGE ON SCHEMA regress_apply TO PUBLIC;
SELECT publish('apply/a', '{"v": 2}', '{"v": 3}');
SELECT fencing_grant(('regress_fencing_' || access)::regrole, access) FROM unnest(ARRAY['client', 'target', 'publisher', 'relay', 'external', 'admin']) access;
CREATE VIEW answers AS
SELECT n, left(current_user, 0) || what AS what, left(attempt(command), 5) AS answer FROM (VALUES
	(1, 'desire', $$SELECT coalesce(nullif(fencing_target_desire('apply/a', current_user)::text, ''), 'done')$$),
	(2, 'apply', $$SELECT outcome FROM fencing_apply('apply/a', 't', 2, fencing_digest('{"v": 2}'), '{"v": 2}', 'SELECT 1')$$),
	(3, 'begin', $$SELECT outcome FROM fencing_apply_begin('apply/a', 't', md5(current_user)::uuid, '1 microsecond')$$),
	(4, 'observe', $$SELECT fencing_apply_observe('apply/a', 't', 1, 2, fencing_digest('{"v": 2}'))$$),
	(5, 'reject', $$SELECT fencing_apply_reject('apply/a', 't', 1, 'cannot')$$),
	(5, 'forget', $$SELECT coalesce(nullif(fencing_target_forget('apply/a', current_user, 'gone')::text, ''), 'done')$$),
	(6, 'current', $$SELECT 'row ' || version FROM fencing_publish_current('apply/a')$$),
	(7, 'status', $$SELECT 'row ' || applied_version FROM fencing.rollout_status WHERE (document_id, target_id) = ('apply/a', 't')$$),
	(8, 'table', $$SELECT 'row ' || applied FROM fencing.targets WHERE (document_id, target_id) = ('apply/a', 't')$$),
	(9, 'write', $$UPDATE fencing.targets SET applied = 0$$)) AS calls (n, what, command);
GRANT SELECT ON answers TO PUBLIC;
CREATE TABLE told (role text, n int, what text, answer text);
GRANT INSERT ON told TO PUBLIC;
SET ROLE regress_fencing_target;
INSERT INTO told SELECT 'target', * FROM answers;
SET ROLE regress_fencing_client;
INSERT INTO told SELECT 'client', * FROM answers;
SET ROLE regress_fencing_publisher;
INSERT INTO told SELECT 'publisher', * FROM answers;
SET ROLE regress_fencing_relay;
INSERT INTO told SELECT 'relay', * FROM answers;
SET ROLE regress_fencing_external;
INSERT INTO told SELECT 'external', * FROM answers;
SET ROLE regress_fencing_admin;
INSERT INTO told SELECT 'admin', * FROM answers;
SET ROLE regress_fencing_watch;
INSERT INTO told SELECT 'watch', * FROM answers;
RESET ROLE;
SELECT what, max(answer) FILTER (WHERE role = 'client') AS client, max(answer) FILTER (WHERE role = 'target') AS target,
	max(answer) FILTER (WHERE role = 'publisher') AS publisher, max(answer) FILTER (WHERE role = 'relay') AS relay, max(answer) FILTER (WHERE role = 'external') AS external,
	max(answer) FILTER (WHERE role = 'admin') AS admin, max(answer) FILTER (WHERE role = 'watch') AS watch
FROM told GROUP BY n, what ORDER BY n;
-- the statement runs as the caller, who may not do more by it
\set VERBOSITY sqlstate
CREATE TABLE secret (line text);
SET ROLE regress_fencing_target;
SELECT outcome FROM fencing_apply('apply/a', 't', 3, fencing_digest('{"v": 3}'), '{"v": 3}', 'INSERT INTO secret VALUES ($2)');
\echo :SQLSTATE
SELECT outcome FROM fencing_apply('apply/a', 't', 3, fencing_digest('{"v": 3}'), '{"v": 3}', 'UPDATE fencing.targets SET applied = 0');
\echo :SQLSTATE
SELECT outcome, result FROM fencing_apply('apply/a', 't', 3, fencing_digest('{"v": 3}'), '{"v": 3}', 'SELECT current_user::text AS me');
RESET ROLE;

SET session_replication_role = replica;
DELETE FROM fencing.revisions WHERE document_id LIKE 'apply/%';
RESET session_replication_role;
DELETE FROM fencing.targets WHERE document_id LIKE 'apply/%';
DELETE FROM fencing.documents WHERE document_id LIKE 'apply/%';
DELETE FROM fencing.receipts WHERE job_key LIKE 'apply/%';
DELETE FROM fencing.leases WHERE job_key LIKE 'apply/%';
DELETE FROM fencing.fences WHERE job_key LIKE 'apply/%';
SELECT more FROM fencing_purge('events', '1 microsecond', 1000000);
SELECT fencing_ungrant(('regress_fencing_' || access)::regrole, access) FROM unnest(ARRAY['client', 'target', 'publisher', 'relay', 'external', 'admin']) access;
DROP SCHEMA regress_apply CASCADE;
DROP ROLE regress_fencing_client, regress_fencing_target, regress_fencing_publisher, regress_fencing_relay, regress_fencing_external, regress_fencing_admin, regress_fencing_watch;
