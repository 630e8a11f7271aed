--
-- Publishing: every outcome of fencing_publish, _rollback, _delete and _force,
-- what _current and _revision show, the events, and that nothing of it can be
-- changed afterwards.
--
-- Contents are JSON strings here.  An answer is told as
--   outcome, version and its content, latest version and its content
-- and a content is known by nothing but its digest.
--
UPDATE fencing.floor SET floor = 0;
SET client_min_messages = warning;
CREATE SCHEMA regress_publish;
SET search_path = regress_publish, public;

-- what other tests have left, as only a superuser may
SELECT FROM fencing_purge('events', '1 microsecond', 1000000);
SET session_replication_role = replica;
DELETE FROM fencing.revisions;
DELETE FROM fencing.documents;
DELETE FROM fencing.targets;
RESET session_replication_role;
SELECT (SELECT count(*) FROM fencing.documents) AS documents, (SELECT count(*) FROM fencing.revisions) AS revisions,
	(SELECT count(*) FROM fencing.targets) AS targets, (SELECT count(*) FROM fencing.outbox) AS events;

-- the functions and their arguments
SELECT p.proname, pg_get_function_arguments(p.oid) AS arguments, p.provolatile, p.proparallel, p.proisstrict, p.proretset, p.prosecdef
FROM pg_proc p WHERE p.proname LIKE 'fencing\_publish%' ORDER BY p.proname;

-- digests made by others: SHA-256 of what the canonical text is
CREATE TABLE known (name text, digest bytea);
INSERT INTO known SELECT c, sha256(convert_to('"' || c || '"', 'UTF8')) FROM string_to_table('a b c d e f', ' ') c;
INSERT INTO known SELECT t, sha256(convert_to(t, 'UTF8')) FROM unnest(ARRAY['null', '0', '""', '[]', '{}', 'false', '{"a":1.5,"b":[true]}']) t;
INSERT INTO known VALUES ('(deleted)', sha256(''));
CREATE FUNCTION what(of bytea) RETURNS text LANGUAGE sql AS $$
SELECT CASE WHEN of IS NULL THEN '-' ELSE coalesce((SELECT name FROM known WHERE digest = of), 'unknown') END
$$;

-- An answer, and whether its time is that of the version that was made, or is in the way.
CREATE FUNCTION say(call text, document text, made bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	before timestamptz := clock_timestamp();
	r record;
BEGIN
	EXECUTE 'SELECT * FROM ' || call INTO STRICT r;
	RETURN format('%s %s %s, latest %s %s', r.outcome, coalesce(r.version::text, '-'), what(r.digest),
			coalesce(r.latest_version::text, '-'), what(r.latest_digest))
		|| CASE WHEN r.digest_version IS DISTINCT FROM CASE WHEN r.version IS NOT NULL THEN 1 END THEN ', wrong digest version' ELSE '' END
		|| CASE WHEN r.committed_at IS DISTINCT FROM (SELECT v.committed_at FROM fencing.revisions v
				WHERE v.document_id = document AND v.version = coalesce(made, r.version)) THEN ', wrong time' ELSE '' END
		|| CASE WHEN (r.committed_at BETWEEN before AND clock_timestamp()) <> (r.outcome = 'committed') THEN ', wrong clock' ELSE '' END;
END $$;
CREATE FUNCTION pub(document text, expected bigint, content jsonb, note text DEFAULT NULL) RETURNS text LANGUAGE sql AS
$$ SELECT say(format('fencing_publish(%L, %L, %L, %L)', document, expected, content, note), document, expected + 1) $$;
CREATE FUNCTION back(document text, expected bigint, source bigint, note text DEFAULT NULL) RETURNS text LANGUAGE sql AS
$$ SELECT say(format('fencing_publish_rollback(%L, %L, %L, %L)', document, expected, source, note), document, expected + 1) $$;
CREATE FUNCTION del(document text, expected bigint, note text DEFAULT NULL) RETURNS text LANGUAGE sql AS
$$ SELECT say(format('fencing_publish_delete(%L, %L, %L)', document, expected, note), document, expected + 1) $$;
CREATE FUNCTION force(document text, content jsonb, reason text DEFAULT 'has to be') RETURNS text LANGUAGE sql AS
$$ SELECT say(format('fencing_publish_force(%L, %L, %L)', document, content, reason), document, NULL) $$;
-- an answer, or the error
CREATE FUNCTION attempt(call text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE answer text;
BEGIN
	EXECUTE call INTO answer;
	RETURN coalesce(answer, 'no row');
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ': ' || SQLERRM;
END $$;
-- what there is, as a reader sees it
CREATE FUNCTION history(document text) RETURNS text LANGUAGE sql AS $$
SELECT string_agg(format('%s %s%s %s%s', version, kind, coalesce(' of ' || source_version, ''), coalesce(content #>> '{}', content::text, '(nothing)'), coalesce(' "' || note || '"', '')), ', ' ORDER BY version)
FROM fencing.revisions WHERE document_id = document
$$;
-- rows and row versions: a lock shows, too
CREATE FUNCTION state() RETURNS text LANGUAGE sql AS $$
SELECT md5(concat_ws('|',
	(SELECT string_agg(concat(ctid, xmin, xmax, d), ',' ORDER BY d.document_id) FROM fencing.documents d),
	(SELECT string_agg(concat(ctid, xmin, xmax, r), ',' ORDER BY r.document_id, r.version) FROM fencing.revisions r),
	(SELECT string_agg(concat(ctid, xmin, xmax, t), ',' ORDER BY t.document_id, t.target_id) FROM fencing.targets t),
	(SELECT string_agg(concat(ctid, xmin, xmax, e), ',' ORDER BY e.no) FROM fencing.outbox e)))
$$;
-- what they say
CREATE FUNCTION contents() RETURNS text LANGUAGE sql AS $$
SELECT md5(concat_ws('|',
	(SELECT string_agg(d::text, ',' ORDER BY d.document_id) FROM fencing.documents d),
	(SELECT string_agg(r::text, ',' ORDER BY r.document_id, r.version) FROM fencing.revisions r),
	(SELECT string_agg(e::text, ',' ORDER BY e.no) FROM fencing.outbox e)))
$$;
-- Whatever does not fit together: a version without its event, an event without
-- its version, a gap, a digest of something else.
CREATE VIEW wrong AS
SELECT coalesce(r.document_id, e.aggregateid) AS document_id, coalesce(r.version::text, e.payload->>'version') AS version, e.payload
FROM (SELECT *, row_number() OVER (PARTITION BY document_id ORDER BY version) AS n FROM fencing.revisions) r
FULL JOIN (SELECT *, row_number() OVER (PARTITION BY aggregateid ORDER BY no) AS n FROM fencing.outbox WHERE aggregatetype = 'document') e
	ON e.aggregateid = r.document_id AND e.n = r.n
WHERE (r.version = r.n AND e.type = r.kind AND e.payload = jsonb_build_object('document_id', r.document_id, 'version', r.version,
		'source_version', r.source_version, 'kind', r.kind, 'digest', encode(r.digest, 'hex'), 'digest_version', r.digest_version, 'revision', r.revision)
	AND r.digest = coalesce(fencing_digest(r.content, r.digest_version), sha256(''))) IS NOT TRUE
UNION ALL
SELECT coalesce(d.document_id, r.document_id), d.version::text, NULL
FROM fencing.documents d FULL JOIN (SELECT document_id, max(version) AS version FROM fencing.revisions GROUP BY document_id) r ON r.document_id = d.document_id
WHERE (d.version = r.version) IS NOT TRUE;

SELECT fencing_outbox_subscribe('publish/events', true);
SELECT token FROM fencing_acquire('publish/events', md5('A')::uuid, '1 hour') \gset

--
-- publish
--
-- a new document
SELECT pub('d', 0, '"a"', 'first');
-- the same again, and another instead
SELECT pub('d', 0, '"a"', 'first');
SELECT pub('d', 0, '"b"', 'first');
-- the next
SELECT pub('d', 1, '"b"');
-- the content of the latest once more: a version of its own
SELECT pub('d', 2, '"b"', '');
-- any version replays, and none can be made twice; latest says where the document is
SELECT pub('d', 0, '"a"');
SELECT pub('d', 1, '"b"');
SELECT pub('d', 1, '"a"');
SELECT pub('d', 0, '"c"');
SELECT pub('d', 2, '"b"');
SELECT pub('d', 2, '"c"');
-- never published: above the latest, and of a document that is not there
SELECT attempt('SELECT pub(''d'', 4, ''"c"'')');
SELECT attempt('SELECT pub(''d'', 5, ''"b"'')');
SELECT attempt('SELECT fencing_publish(''d'', 9223372036854775807, ''"b"'')');
SELECT attempt('SELECT pub(''no document'', 1, ''"b"'')');
SELECT attempt('SELECT fencing_publish(''no document'', 9223372036854775807, ''"b"'')');
SELECT history('d'), history('no document');

-- equal is what has equal digests, however it is written
SELECT pub('e', 0, '{"a": 1.50, "b": [true]}');
SELECT pub('e', 0, '{"b":[true],"a":15e-1}', 'another note');
SELECT pub('e', 0, '{"b": [true], "a": 1.51}');
SELECT pub('e', 0, '{"a": 1.5, "b": [true], "c": null}');
SELECT history('e');
-- any content there is
SELECT pub('any', 0, '0');
SELECT pub('any', 1, '""');
SELECT pub('any', 2, '[]');
SELECT pub('any', 3, '{}');
SELECT pub('any', 4, 'false');
SELECT pub('any', 5, 'null');
SELECT history('any');
-- each of these is another
SELECT v, c, split_part(pub('any', v - 1, c::jsonb), ' ', 1) AS outcome
FROM generate_series(1, 6) v, unnest(ARRAY['0', '""', '[]', '{}', 'false', 'null']) WITH ORDINALITY u (c, n)
WHERE split_part(pub('any', v - 1, c::jsonb), ' ', 1) <> CASE WHEN n = v THEN 'replayed' ELSE 'conflict' END;

-- 1,000 versions in one statement, 1,000 documents in one
SELECT count(*) FILTER (WHERE outcome = 'committed' AND version = n + 1 AND latest_version = n + 1) AS committed
FROM generate_series(0, 999) n, LATERAL fencing_publish('many', n, to_jsonb(n));
SELECT count(*) FILTER (WHERE outcome = 'committed' AND version = 1) AS committed
FROM generate_series(1, 1000) n, LATERAL fencing_publish('many/' || n, 0, to_jsonb(n));
SELECT count(*) FILTER (WHERE outcome = 'replayed' AND version = n + 1 AND latest_version = 1000) AS replayed
FROM generate_series(0, 999) n, LATERAL fencing_publish('many', n, to_jsonb(n));
SELECT * FROM wrong;

--
-- rollback: the old content as a new version
--
SELECT pub('r', 0, '"a"', 'one');
SELECT pub('r', 1, '"b"', 'two');
SELECT pub('r', 2, '"c"', 'three');
-- of 1 after 3: it is version 4
SELECT back('r', 3, 1, 'b is bad');
SELECT version, content, source_version, kind, note FROM fencing_publish_current('r');
-- again: replayed; of another version: conflict
SELECT back('r', 3, 1, 'b is bad');
SELECT back('r', 3, 2);
-- the draft that was made from 3 still has the bad value: it conflicts
SELECT pub('r', 3, '"c"');
SELECT pub('r', 3, '"d"');
SELECT del('r', 3);
-- what counts is the content alone, not how it came there
SELECT pub('r', 3, '"a"');
SELECT back('r', 1, 1);
-- who expects a version knows none above it
SELECT attempt('SELECT back(''r'', 3, 4)');
SELECT attempt('SELECT back(''r'', 1, 2)');
-- note and time are its own, and there may be no note
SELECT back('r', 4, 2);
-- of what was a rollback, of the latest itself
SELECT back('r', 5, 4);
SELECT back('r', 6, 6);
SELECT history('r');
SELECT bool_and(committed_at > before) AS later FROM (SELECT committed_at, lag(committed_at) OVER (ORDER BY version) AS before FROM fencing.revisions WHERE document_id = 'r') v;
-- nor one that was never published
SELECT attempt('SELECT back(''r'', 7, 8)');
SELECT attempt('SELECT back(''r'', 7, 9223372036854775807)');
SELECT attempt('SELECT back(''r'', 3, 8)');
-- what is expected was never published
SELECT attempt('SELECT back(''r'', 8, 1)');
SELECT attempt('SELECT back(''r'', 8, 8)');
SELECT attempt('SELECT back(''no document'', 1, 1)');
-- another document's versions are not this one's
SELECT pub('r2', 0, '"a"');
SELECT attempt('SELECT back(''r2'', 1, 2)');
SELECT back('r2', 1, 1);

--
-- delete: a version without content
--
SELECT pub('x', 0, '"a"');
SELECT pub('x', 1, '"b"');
SELECT del('x', 2, 'not needed');
SELECT del('x', 2);
SELECT version, content, kind, source_version, note, digest = sha256('') AS digest FROM fencing_publish_current('x');
-- a deletion is not JSON's null, nor the other way round
SELECT pub('x', 2, 'null');
SELECT del('any', 5);
-- instead of a version that is there: conflict
SELECT del('x', 1);
-- what is deleted may be deleted again
SELECT del('x', 3);
-- there is nothing to be deleted of a new document
SELECT attempt('SELECT del(''x'', 0)');
SELECT attempt('SELECT del(''no document'', 0)');
SELECT attempt('SELECT del(''x'', 5)');
SELECT attempt('SELECT del(''no document'', 1)');
-- made again, it goes on above; as new it is in conflict, even if it starts as then
SELECT pub('x', 0, '"c"');
SELECT pub('x', 2, '"c"');
SELECT pub('x', 3, '"c"');
SELECT pub('x', 4, '"a"', 'made again');
SELECT pub('x', 0, '"a"');
SELECT pub('x', 5, '"b"');
-- there is no content to go back to
SELECT attempt('SELECT back(''x'', 6, 3)');
SELECT attempt('SELECT back(''x'', 3, 4)');
-- but one may go back from it, to anything before
SELECT del('x', 6);
SELECT back('x', 7, 1, 'was needed after all');
SELECT back('x', 7, 1);
SELECT history('x');

--
-- force: above whatever is there
--
SELECT force('f', '"a"', 'emergency');
-- each call makes a version
SELECT force('f', '"a"', 'emergency');
SELECT force('f', '"b"', 'another');
SELECT pub('f', 3, '"c"');
SELECT force('f', '"d"');
SELECT del('f', 5);
SELECT force('f', '"e"', 'back to life');
-- it is a version as any other
SELECT pub('f', 0, '"a"');
SELECT pub('f', 6, '"f"');
SELECT pub('f', 5, '"e"');
SELECT pub('f', 5, '"f"');
SELECT back('f', 7, 1);
SELECT force('f', 'null', 'last');
SELECT history('f');
SELECT * FROM wrong;

--
-- Two drafts from one version: the second conflicts, whatever it is, except
-- where the first one left what it wants (nothing can be reverted unseen)
--
CREATE TABLE entry (n serial, name text, call text);
INSERT INTO entry (name, call) VALUES
	('publish', 'pub(%L, 2, ''"c"'')'), ('publish a', 'pub(%L, 2, ''"a"'')'), ('rollback', 'back(%L, 2, 1)'), ('delete', 'del(%L, 2)'), ('force', 'force(%L, ''"d"'')');
SELECT pub('draft/' || f.n || s.n, 0, '"a"') || pub('draft/' || f.n || s.n, 1, '"b"') IS NOT NULL AS made, count(*)
FROM entry f, entry s WHERE s.name <> 'force' GROUP BY 1;
CREATE TABLE drafts AS SELECT f.n, s.n AS m, f.name AS first, s.name AS second,
	attempt(format('SELECT ' || f.call, 'draft/' || f.n || s.n)) AS first_answer, NULL AS second_answer
FROM entry f, entry s WHERE s.name <> 'force' ORDER BY f.n, s.n;
UPDATE drafts SET second_answer = attempt(format('SELECT ' || s.call, 'draft/' || drafts.n || s.n)) FROM entry s WHERE s.n = m;
SELECT first, first_answer, second, second_answer FROM drafts ORDER BY n, m;
SELECT count(*) FILTER (WHERE version = 3) AS thirds, max(version) FROM fencing.documents WHERE document_id LIKE 'draft/%';

--
-- current and revision
--
SELECT * FROM fencing_publish_current('no document');
SELECT version, content, what(digest), digest_version, kind, source_version, note, actor = session_user AS own FROM fencing_publish_current('r');
SELECT version, content, what(digest), digest_version, kind, source_version, note, actor = session_user AS own FROM fencing_publish_current('d');
-- every version can be had by its id, all of it
SELECT count(*) AS revisions, count(DISTINCT r.revision) AS ids,
	count(*) FILTER (WHERE ROW(p.document_id, p.version, p.content, p.digest, p.digest_version, p.kind, p.source_version, p.note, p.actor, p.committed_at)
		IS NOT DISTINCT FROM ROW(r.document_id, r.version, r.content, r.digest, r.digest_version, r.kind, r.source_version, r.note, r.actor, r.committed_at)) AS equal
FROM fencing.revisions r, LATERAL fencing_publish_revision(r.revision) p;
SELECT count(*) AS documents,
	count(*) FILTER (WHERE ROW(p.version, p.content, p.digest, p.digest_version, p.kind, p.source_version, p.revision, p.note, p.actor, p.committed_at)
		IS NOT DISTINCT FROM ROW(r.version, r.content, r.digest, r.digest_version, r.kind, r.source_version, r.revision, r.note, r.actor, r.committed_at)) AS equal
FROM fencing.documents d JOIN fencing.revisions r ON r.document_id = d.document_id AND r.version = d.version, LATERAL fencing_publish_current(d.document_id) p;
SELECT count(*) FROM fencing_publish_revision(md5('no revision')::uuid);
-- they see what the calling query sees: 2 beside 3, then 3
SELECT outcome, p.version AS made, (SELECT c.version FROM fencing_publish_current('r2') c) AS current FROM fencing_publish('r2', 2, '"c"') p;
SELECT version FROM fencing_publish_current('r2');
BEGIN;
SELECT pub('r2', 3, '"d"');
SELECT version, content FROM fencing_publish_current('r2');
ROLLBACK;
SELECT version, content FROM fencing_publish_current('r2');
-- also in a parallel worker
SELECT set_config(name, 'on', false) AS set FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query');
SELECT version, content FROM fencing_publish_current('r2');
SELECT version, content FROM fencing_publish_revision((SELECT revision FROM fencing.revisions WHERE document_id = 'r2' AND version = 1));
-- publishing is not for one: refused in it, and done beside it
CREATE FUNCTION mislabelled(expected bigint, content jsonb) RETURNS text LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
	RETURN (fencing_publish('r2', expected, content)).outcome;
END $$;
\set VERBOSITY sqlstate
SELECT mislabelled(3, '"d"');
\set VERBOSITY default
SELECT outcome FROM fencing_publish('r2', 3, '"d"');
SELECT mislabelled(3, '"d"'), mislabelled(3, '"e"');
SELECT set_config(name, 'off', false) AS set FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query');

--
-- Events: one of each version, as the outbox delivers them
--
SELECT * FROM wrong;
CREATE TABLE delivered AS SELECT * FROM fencing_outbox_read('publish/events', :token, 100000) WITH ORDINALITY;
SELECT count(*) = (SELECT count(*) FROM fencing.revisions) AS all_of_them, count(DISTINCT id) = count(*) AS distinct, count(DISTINCT payload->>'revision') = count(*) AS revisions FROM delivered;
SELECT outcome, aggregate_type, string_agg(DISTINCT keys, ', ') AS keys, bool_and(type = payload->>'kind') AS type_is_kind, bool_and(aggregate_id = payload->>'document_id') AS id_is_document
FROM (SELECT *, (SELECT string_agg(key, ' ' ORDER BY key) FROM jsonb_object_keys(payload) key) AS keys FROM delivered) d GROUP BY 1, 2;
-- as they are, digest and place apart; in the order of the versions
SELECT payload - 'digest' - 'revision' AS payload, what(decode(payload->>'digest', 'hex')) AS digest, jsonb_typeof(payload->'version') AS version, jsonb_typeof(payload->'digest_version') AS digest_version
FROM delivered WHERE aggregate_id IN ('r', 'x', 'f') ORDER BY aggregate_id, ordinality;
SELECT count(*) FILTER (WHERE (payload->>'version')::bigint <> n) AS out_of_order FROM (SELECT payload, row_number() OVER (PARTITION BY aggregate_id ORDER BY ordinality) AS n FROM delivered) d;
-- from an event to what it tells of
SELECT count(*) AS events, count(p.version) AS found, count(*) FILTER (WHERE p.document_id = aggregate_id AND p.version = (payload->>'version')::bigint
	AND p.digest = decode(payload->>'digest', 'hex') AND p.kind = type) AS equal
FROM delivered LEFT JOIN LATERAL fencing_publish_revision((payload->>'revision')::uuid) p ON true;
-- no content, and no note, in any
SELECT count(*) FROM delivered WHERE payload::text LIKE '%needed%' OR payload ? 'content' OR payload ? 'note';
-- acknowledged like any other
SELECT outcome, acked = (SELECT count(*) FROM delivered) AS all_of_them FROM fencing_outbox_ack('publish/events', :token, ARRAY(SELECT id FROM delivered));
SELECT count(*) FROM fencing_outbox_read('publish/events', :token);

--
-- A publish that fails, or is rolled back, leaves no version, revision or event
--
CREATE FUNCTION left_over() RETURNS text LANGUAGE sql AS $$
SELECT format('%s, events: %s', coalesce(history('t'), 'nothing'), (SELECT count(*) FROM fencing.outbox WHERE aggregateid = 't'))
$$;
BEGIN;
SELECT pub('t', 0, '"a"');
SELECT left_over();
ROLLBACK;
SELECT left_over();
BEGIN;
SELECT pub('t', 0, '"a"');
SAVEPOINT s;
SELECT pub('t', 1, '"b"');
SELECT back('t', 2, 1);
SELECT del('t', 3);
SELECT force('t', '"c"');
SELECT left_over();
ROLLBACK TO s;
SELECT left_over();
-- the number is free again, for any content
SELECT pub('t', 1, '"d"');
SELECT pub('t', 1, '"b"');
SAVEPOINT s2;
SELECT pub('t', 2, '"e"');
RELEASE s2;
COMMIT;
SELECT left_over();
-- an error after it, in the same statement, in a later one, and caught
SELECT attempt('SELECT 1 / (version - 4) FROM fencing_publish(''t'', 3, ''"f"'')');
DO $$
BEGIN
	PERFORM fencing_publish('t', 3, '"f"');
	PERFORM fencing_publish_delete('t', 4);
	RAISE EXCEPTION 'too late';
EXCEPTION WHEN raise_exception THEN
	PERFORM fencing_publish('t', 3, '"e"', 'instead');
END $$;
BEGIN;
SELECT pub('t', 4, '"f"');
SELECT 1 / 0;
COMMIT;
SELECT left_over();
SELECT aggregate_id, type, payload->'version' AS version FROM fencing_outbox_read('publish/events', :token) WITH ORDINALITY ORDER BY ordinality;
SELECT outcome, acked FROM fencing_outbox_ack('publish/events', :token, ARRAY(SELECT id FROM fencing_outbox_read('publish/events', :token)));
-- what is only answered, or refused, touches no row: not even by a lock
SELECT state() AS before \gset
SELECT call, attempt('SELECT ' || call) FROM unnest(ARRAY['pub(''t'', 0, ''"a"'')', 'pub(''t'', 0, ''"b"'')', 'pub(''t'', 3, ''"e"'')', 'pub(''t'', 2, ''"a"'')', 'pub(''t'', 5, ''"a"'')', 'pub(''t'', -1, ''"a"'')',
	'back(''t'', 1, 2)', 'back(''t'', 3, 1)', 'back(''t'', 4, 5)', 'back(''t'', 5, 1)', 'del(''t'', 3)', 'del(''t'', 5)', 'del(''t'', 0)', 'del(''x'', 2)', 'back(''x'', 3, 3)',
	'force(''t'', ''"a"'', '''')', 'force(''t'', NULL, ''r'')', 'pub(''new'', 1, ''"a"'')', 'del(''new'', 1)', 'back(''new'', 1, 1)']) call;
SELECT state() = :'before' AS untouched;
-- nor does it need a transaction id, or keep a lock
BEGIN;
SELECT pub('t', 0, '"a"') AS replayed, pub('t', 0, '"b"') AS conflict, back('t', 3, 2) AS rollback, del('t', 2) AS delete;
SELECT version FROM fencing_publish_current('t');
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_id,
	(SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND (locktype IN ('advisory', 'tuple', 'transactionid') OR mode IN ('RowShareLock', 'RowExclusiveLock'))) AS locks;
COMMIT;
SELECT state() = :'before' AS untouched;
-- a replay that is part of something that writes
BEGIN;
SELECT pub('t', 4, '"f"'), pub('t', 0, '"b"'), pub('t', 4, '"f"'), pub('t', 4, '"e"'), pub('t', 0, '"a"');
COMMIT;
-- its own versions at every isolation level
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT pub('t', 5, '"a"');
SELECT pub('t', 5, '"a"');
SELECT pub('t', 5, '"b"');
SELECT back('t', 6, 1);
SELECT del('t', 7);
SELECT force('t', '"c"');
SELECT version FROM fencing_publish_current('t');
SELECT attempt('SELECT pub(''t'', 10, ''"c"'')');
SELECT pub('t2', 0, '"a"');
SELECT pub('t2', 1, '"a"');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT pub('t', 9, '"a"');
SELECT pub('t', 9, '"a"');
SELECT pub('t', 9, '"b"');
SELECT back('t', 10, 2);
SELECT del('t', 11);
SELECT force('t', '"c"');
SELECT version FROM fencing_publish_current('t');
SELECT pub('t3', 0, '"a"');
SELECT pub('t3', 1, '"a"');
COMMIT;
SELECT history('t');
SELECT * FROM wrong;

-- inside the business function of a fenced commit: once per token
SELECT token AS job FROM fencing_acquire('publish/job', md5('A')::uuid, '1 hour') \gset
SELECT outcome, result FROM fencing_commit('publish/job', :job, '{"content": "a"}', 'SELECT outcome, version FROM fencing_publish(''j'', 0, $3->''content'')');
SELECT outcome, result FROM fencing_commit('publish/job', :job, '{"content": "a"}', 'SELECT outcome, version FROM fencing_publish(''j'', 0, $3->''content'')');
SELECT outcome, result FROM fencing_commit('publish/job', :job, '{"content": "b"}', 'SELECT outcome, version FROM fencing_publish(''j'', 1, $3->''content'')');
-- an error takes it with it, also one that is answered, and its own ones are reported
SELECT outcome, error->>'sqlstate' AS sqlstate FROM fencing_commit('publish/job', :job, '{"content": "b"}',
	'SELECT 1 / (version - 2) FROM fencing_publish(''j'', 1, $3->''content'')', 'fails', report_errors => true);
SELECT outcome, error->>'sqlstate' AS sqlstate FROM fencing_commit('publish/job', :job, '{"content": "b"}',
	'SELECT version FROM fencing_publish(''j'', 2, $3->''content'')', 'fails', report_errors => true);
SELECT history('j'), (SELECT count(*) FROM fencing.outbox WHERE aggregateid = 'j') AS events;

--
-- A revision of a digest version that this installation does not know
--
SELECT pub('later', 0, '"a"');
SELECT pub('later', 1, '"b"');
SELECT pub('later', 2, '"c"');
SET session_replication_role = replica;
UPDATE fencing.revisions SET digest_version = 2 WHERE document_id = 'later' AND version = 2;
RESET session_replication_role;
\set VERBOSITY sqlstate
SELECT outcome FROM fencing_publish('later', 1, '"b"');
SELECT outcome FROM fencing_publish('later', 1, '"c"');
SELECT outcome FROM fencing_publish_rollback('later', 1, 1);
\set VERBOSITY default
-- what does not ask for it goes on
SELECT pub('later', 0, '"a"');
SELECT pub('later', 2, '"a"');
SELECT pub('later', 3, '"d"');
SET session_replication_role = replica;
UPDATE fencing.revisions SET digest_version = 1 WHERE document_id = 'later' AND version = 2;
RESET session_replication_role;
SELECT pub('later', 1, '"b"');

--
-- Immutable, for owner and superuser too
--
SELECT contents() AS before \gset
CREATE TABLE change (n serial, call text);
INSERT INTO change (call) VALUES
	('UPDATE fencing.revisions SET content = ''"z"'' WHERE document_id = ''d'' AND version = 1'),
	('UPDATE fencing.revisions SET note = ''never said so'' WHERE document_id = ''d'''),
	('UPDATE fencing.revisions SET version = version'),
	('UPDATE fencing.revisions SET actor = ''somebody else'''),
	('UPDATE fencing.revisions SET committed_at = committed_at - interval ''1 year'''),
	('DELETE FROM fencing.revisions WHERE document_id = ''d'' AND version = 3'),
	('DELETE FROM fencing.revisions'),
	('TRUNCATE fencing.revisions'),
	('TRUNCATE fencing.revisions CASCADE'),
	('TRUNCATE fencing.documents, fencing.revisions'),
	('INSERT INTO fencing.revisions SELECT * FROM fencing.revisions ON CONFLICT (document_id, version) DO UPDATE SET content = NULL'),
	('MERGE INTO fencing.revisions r USING (VALUES (1)) v (n) ON r.version = v.n WHEN MATCHED THEN UPDATE SET content = NULL'),
	('MERGE INTO fencing.revisions r USING (VALUES (1)) v (n) ON r.version = v.n WHEN MATCHED THEN DELETE'),
	('WITH d AS (DELETE FROM fencing.revisions RETURNING 1) SELECT count(*) FROM d'),
	('UPDATE fencing.outbox SET payload = jsonb_set(payload, ''{version}'', ''99'')'),
	('DELETE FROM fencing.outbox WHERE aggregateid = ''d'''),
	('TRUNCATE fencing.outbox');
SELECT call, attempt(call) FROM change ORDER BY n;
-- whoever owns the tables
CREATE ROLE regress_publish_owner;
GRANT USAGE ON SCHEMA fencing, regress_publish TO regress_publish_owner;
GRANT SELECT ON change TO regress_publish_owner;
BEGIN;
ALTER TABLE fencing.revisions OWNER TO regress_publish_owner;
ALTER TABLE fencing.documents OWNER TO regress_publish_owner;
ALTER TABLE fencing.outbox OWNER TO regress_publish_owner;
SET LOCAL ROLE regress_publish_owner;
SELECT attempt(call), count(*) FROM change GROUP BY 1 ORDER BY 1;
ROLLBACK;
-- no purge takes them, and one of events leaves no door open
SELECT attempt('SELECT fencing_purge(''revisions'', ''1 microsecond'')');
SELECT attempt('SELECT fencing_purge(''documents'', ''1 microsecond'')');
SELECT outcome FROM fencing_outbox_ack('publish/events', :token, ARRAY(SELECT id FROM fencing_outbox_read('publish/events', :token, 10000)));
BEGIN;
SELECT purged > 0 AS purged FROM fencing_purge('events', '1 microsecond', 10);
SELECT left(attempt('DELETE FROM fencing.revisions'), 5) AS revisions, left(attempt('DELETE FROM fencing.outbox'), 5) AS outbox;
ROLLBACK;
-- as a function it is none
SELECT left(attempt('SELECT fencing_immutable()'), 5) AS sqlstate;
-- an acknowledgement changes no event either
SELECT contents() = :'before' AS unchanged;

--
-- Views
--
SELECT attname, format_type(atttypid, atttypmod) AS type FROM pg_attribute WHERE attrelid = 'fencing.revision_history'::regclass AND attnum > 0 ORDER BY attnum;
SELECT attname, format_type(atttypid, atttypmod) AS type FROM pg_attribute WHERE attrelid = 'fencing.rollout_status'::regclass AND attnum > 0 ORDER BY attnum;
-- no view that people may read shows what was published, or a digest of it
SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relnamespace = 'fencing'::regnamespace AND c.relkind = 'v' AND has_table_privilege('pg_monitor', c.oid, 'SELECT')
	AND (a.attname IN ('content', 'payload', 'result') OR a.attname LIKE '%digest' OR a.attname = 'idempotency_key');
CREATE ROLE regress_publish_watch IN ROLE pg_monitor;
SET ROLE regress_publish_watch;
SELECT document_id, version, kind, source_version, revision IS NOT NULL AS revision, digest_version, note, committed_at IS NOT NULL AS at, latest
FROM fencing.revision_history WHERE document_id IN ('x', 'f') ORDER BY document_id, version;
RESET ROLE;
SELECT count(*) = (SELECT count(*) FROM fencing.revisions) AS all_of_them, count(*) FILTER (WHERE latest) = (SELECT count(*) FROM fencing.documents) AS one_latest, string_agg(DISTINCT actor, ' ') = session_user AS own
FROM fencing.revision_history;
-- what is desired is not applied
SELECT fencing_target_desire('r', 'follows'), fencing_target_desire('r', 'stays', 2), fencing_target_desire('published elsewhere', 'follows'), fencing_target_desire('published elsewhere', 'stays', 5);
SET ROLE regress_publish_watch;
SELECT document_id, target_id, desired_version, attempted_version, applied_version, lag, diverged, observed_version, observed_at, applied_at, applications, superseded, rejected_version, last_error, last_error_at
FROM fencing.rollout_status ORDER BY document_id, target_id;
RESET ROLE;
SELECT pub('r', 7, '"e"');
SELECT del('r', 8);
SELECT fencing_target_desire('r', 'stays', 3);
SELECT document_id, target_id, desired_version, attempted_version, applied_version, lag FROM fencing.rollout_status ORDER BY document_id, target_id;
DELETE FROM fencing.targets;

--
-- NULL and bad values in every argument
--
CREATE FUNCTION ascii(n int) RETURNS text LANGUAGE sql AS $$ SELECT rpad('publish/', n, 'k') $$;
CREATE FUNCTION two_bytes(n int) RETURNS text LANGUAGE sql AS $$ SELECT repeat('k', n % 2) || repeat(U&'\00E9', n / 2) $$;
CREATE FUNCTION deep(n int) RETURNS jsonb LANGUAGE sql AS $$ SELECT (repeat('[', n) || repeat(']', n))::jsonb $$;
SELECT pub('bad', 0, '"a"');
SELECT del('bad', 1);
SELECT pub('bad', 2, '"b"');
SELECT state() AS before \gset
CREATE TABLE bad (n serial, call text);
INSERT INTO bad (call) SELECT format('fencing_publish(%s)', a) FROM unnest(ARRAY[
	'NULL, 3, ''1''', '''bad'', NULL, ''1''', '''bad'', 3, NULL', 'NULL, NULL, NULL, NULL', ''''', 3, ''1''', ''''', 0, ''1''',
	'ascii(513), 0, ''1''', 'two_bytes(513), 0, ''1''', 'two_bytes(514), 0, ''1''', 'ascii(1000000), 0, ''1''',
	'''bad'', -1, ''1''', '''bad'', (-9223372036854775808)::bigint, ''1''', '''none'', -1, ''1''', '''bad'', 4, ''1''', '''bad'', 9223372036854775806, ''1''', '''bad'', 9223372036854775807, ''1''',
	'''none'', 9223372036854775807, ''1''', '''bad'', 3, deep(513)', '''bad'', 0, deep(513)', '''none'', 0, deep(6000)', '''bad'', 3, ''not json''', '''bad'', ''3.5'', ''1''']) a;
INSERT INTO bad (call) SELECT format('fencing_publish_rollback(%s)', a) FROM unnest(ARRAY[
	'NULL, 3, 1', '''bad'', NULL, 1', '''bad'', 3, NULL', 'NULL, NULL, NULL, NULL', ''''', 3, 1', 'ascii(513), 3, 1', 'two_bytes(513), 3, 1',
	'''bad'', -1, 1', '''bad'', (-9223372036854775808)::bigint, 1', '''bad'', 3, 0', '''bad'', 3, -1', '''bad'', 3, (-9223372036854775808)::bigint',
	'''bad'', 3, 4', '''bad'', 3, 9223372036854775807', '''bad'', 4, 1', '''bad'', 9223372036854775807, 1', '''bad'', 3, 2', '''none'', 1, 1']) a;
INSERT INTO bad (call) SELECT format('fencing_publish_delete(%s)', a) FROM unnest(ARRAY[
	'NULL, 3', '''bad'', NULL', 'NULL, NULL, NULL', ''''', 3', 'ascii(513), 3', 'two_bytes(513), 3',
	'''bad'', -1', '''bad'', (-9223372036854775808)::bigint', '''bad'', 0', '''none'', 0', '''bad'', 4', '''bad'', 9223372036854775807', '''none'', 1']) a;
INSERT INTO bad (call) SELECT format('fencing_publish_force(%s)', a) FROM unnest(ARRAY[
	'NULL, ''1'', ''r''', '''bad'', NULL, ''r''', '''bad'', ''1'', NULL', 'NULL, NULL, NULL', ''''', ''1'', ''r''', '''bad'', ''1'', ''''',
	'ascii(513), ''1'', ''r''', 'two_bytes(513), ''1'', ''r''', '''bad'', deep(513), ''r''']) a;
INSERT INTO bad (call) SELECT format('fencing_publish_current(%s)', a) FROM unnest(ARRAY['NULL', '''''', 'ascii(513)', 'two_bytes(513)']) a;
INSERT INTO bad (call) SELECT format('fencing_publish_revision(%s)', a) FROM unnest(ARRAY['NULL', '''not an id''']) a;
SELECT call, attempt('SELECT ' || call) FROM bad ORDER BY n;
SELECT state() = :'before' AS untouched;

-- the longest there may be, of each
SELECT outcome, version FROM fencing_publish(ascii(512), 0, '1', repeat('why ', 100000));
SELECT outcome, version FROM fencing_publish(two_bytes(512), 0, deep(512), repeat(U&'\+01F600', 1000));
SELECT outcome, version FROM fencing_publish_rollback(ascii(512), 1, 1, repeat('why ', 100000));
SELECT outcome, version FROM fencing_publish_delete(ascii(512), 2, repeat('why ', 100000));
SELECT outcome, version FROM fencing_publish_force(ascii(512), deep(512), repeat('why ', 100000));
SELECT outcome, version FROM fencing_publish_rollback(two_bytes(512), 1, 1);
SELECT left(document_id, 7) AS document_id, octet_length(document_id), version, length(note) FROM fencing.revisions WHERE octet_length(document_id) = 512 ORDER BY 1, 3;
SELECT version, content = deep(512) AS content FROM fencing_publish_current(two_bytes(512));
SELECT octet_length(payload::text) > 512 AS long, octet_length(aggregate_id) FROM fencing_outbox_read('publish/events', :token, 10000) WHERE aggregate_id = ascii(512);
-- 20 MB, as one string and as many
SELECT outcome, version FROM fencing_publish('big', 0, to_jsonb(repeat('0123456789', 2000000)));
SELECT outcome, version FROM fencing_publish('big', 0, to_jsonb(repeat('0123456789', 2000000)));
SELECT outcome, version FROM fencing_publish('big', 0, to_jsonb(repeat('0123456789', 2000000) || 'x'));
SELECT outcome, version FROM fencing_publish('big', 1, (SELECT jsonb_object_agg(i, repeat('0123456789', 1000)) FROM generate_series(1, 2000) i));
SELECT outcome, version FROM fencing_publish('big', 1, (SELECT jsonb_object_agg(2001 - i, repeat('0123456789', 1000)) FROM generate_series(1, 2000) i));
SELECT outcome, version FROM fencing_publish_rollback('big', 2, 1);
SELECT version, length(content #>> '{}') AS content, digest = sha256(convert_to('"' || repeat('0123456789', 2000000) || '"', 'UTF8')) AS digest FROM fencing_publish_current('big');
SELECT max(octet_length(payload::text)) < 1000 AS short FROM fencing_outbox_read('publish/events', :token, 10000) WHERE aggregate_id = 'big';
-- what is compared byte by byte
CREATE TABLE key (n serial, k text);
INSERT INTO key (k) VALUES ('k'), ('K'), ('k '), (' k'), ('kk'), (U&'Caf\00E9'), (U&'Cafe\0301'), (U&'\+01F600'), (E'k\t'), (E'k\n'), (E'\\'), (''''), ('"'), ('%'), ('k%L'), ('$1'), ('NULL'), ('0'), ('; DROP TABLE k');
SELECT count(*) FROM key, LATERAL fencing_publish(k, 0, to_jsonb(n)) WHERE outcome = 'committed' AND version = 1;
SELECT count(*) FROM key, LATERAL fencing_publish_current(k) WHERE content = to_jsonb(n);
SELECT count(*) FROM key, LATERAL fencing_publish_rollback(k, 1, 1, k) WHERE outcome = 'committed' AND version = 2;
SELECT count(*) FROM key, LATERAL fencing_publish_delete(k, 2, k) WHERE outcome = 'committed' AND version = 3;
SELECT count(*) FROM key, LATERAL fencing_publish_force(k, to_jsonb(k), k) WHERE outcome = 'committed' AND version = 4;
SELECT count(*) FROM key, LATERAL fencing_publish_current(k) WHERE content = to_jsonb(k) AND note = k;
SELECT * FROM wrong;

--
-- Names that stand in the way.  Each springs when it is touched.
--
CREATE SCHEMA regress_publish_trap;
CREATE FUNCTION story(document text, OUT answers text) LANGUAGE plpgsql AS $$
DECLARE
	word pg_catalog.text;
	id pg_catalog.uuid;
BEGIN
	SELECT pg_catalog.concat_ws(' ', c.outcome, c.version) INTO answers FROM public.fencing_publish(document, 0, '{"k": [1.50, "x"]}', 'one') c;
	SELECT pg_catalog.concat_ws(' ', c.outcome, c.version) INTO word FROM public.fencing_publish(document, 0, '{"k": [1.5, "x"]}') c;
	answers := pg_catalog.concat_ws(' ', answers, word);
	SELECT pg_catalog.concat_ws(' ', c.outcome, c.version) INTO word FROM public.fencing_publish(document, 0, '{"k": [1.6, "x"]}') c;
	answers := pg_catalog.concat_ws(' ', answers, word);
	SELECT pg_catalog.concat_ws(' ', c.outcome, c.version) INTO word FROM public.fencing_publish(document, 1, '"b"') c;
	answers := pg_catalog.concat_ws(' ', answers, word);
	SELECT pg_catalog.concat_ws(' ', c.outcome, c.version) INTO word FROM public.fencing_publish_rollback(document, 2, 1, 'three') c;
	answers := pg_catalog.concat_ws(' ', answers, word);
	SELECT pg_catalog.concat_ws(' ', c.outcome, c.version) INTO word FROM public.fencing_publish_delete(document, 3) c;
	answers := pg_catalog.concat_ws(' ', answers, word);
	SELECT pg_catalog.concat_ws(' ', c.outcome, c.version) INTO word FROM public.fencing_publish_force(document, '"c"', 'five') c;
	answers := pg_catalog.concat_ws(' ', answers, word);
	SELECT pg_catalog.concat_ws(' ', c.version, c.content, c.kind, c.note, pg_catalog.encode(c.digest, 'hex')), c.revision INTO word, id FROM public.fencing_publish_current(document) c;
	answers := pg_catalog.concat_ws(' ', answers, word);
	SELECT pg_catalog.concat_ws(' ', c.version, c.content, c.kind, c.note, pg_catalog.encode(c.digest, 'hex')) INTO word FROM public.fencing_publish_revision(id) c;
	answers := pg_catalog.concat_ws(' ', answers, word);
	PERFORM public.fencing_target_desire(document, 't');
	SELECT pg_catalog.concat_ws(' ', s.desired_version, s.applied_version, s.lag) INTO word FROM fencing.rollout_status s WHERE s.document_id OPERATOR(pg_catalog.=) document;
	answers := pg_catalog.concat_ws(' ', answers, word);
	SELECT pg_catalog.string_agg(pg_catalog.concat_ws(' ', h.version, h.kind, h.source_version, h.latest), ' ' ORDER BY h.version USING OPERATOR(pg_catalog.<)) INTO word
	FROM fencing.revision_history h WHERE h.document_id OPERATOR(pg_catalog.=) document;
	answers := pg_catalog.concat_ws(' ', answers, word);
	SELECT pg_catalog.count(*) INTO word FROM fencing.outbox e WHERE e.aggregateid OPERATOR(pg_catalog.=) document;
	answers := pg_catalog.concat_ws(' ', answers, word);
END $$;
SELECT story AS usual FROM story('story/usual') \gset
SELECT :'usual' AS usual;
CREATE FUNCTION regress_publish_trap.spring() RETURNS text LANGUAGE plpgsql AS
	'BEGIN RAISE EXCEPTION ''a trap was sprung'' USING ERRCODE = ''TRAP1''; END';
DO $$
DECLARE
	t text;
	op text;
BEGIN
	FOREACH t IN ARRAY '{digest(bytea\,text)/bytea,digest(text\,text)/bytea,sha256(bytea)/bytea,convert_to(text\,name)/bytea,encode(bytea\,text)/text,clock_timestamp()/timestamptz,now()/timestamptz,
		gen_random_uuid()/uuid,jsonb_build_object(text\,text)/jsonb,to_jsonb(anyelement)/jsonb,nextval(regclass)/bigint,fencing_digest(jsonb\,int)/bytea,fencing_canonical(jsonb\,int)/text,
		fencing_outbox_emit(text\,text\,text\,jsonb)/uuid,pg_notify(text\,text)/void,pg_current_xact_id()/xid8}'::text[] LOOP
		EXECUTE format('CREATE FUNCTION regress_publish_trap.%s RETURNS %s LANGUAGE plpgsql AS %L', split_part(trim(E' \t\n' FROM t), '/', 1), split_part(t, '/', 2),
			'BEGIN PERFORM regress_publish_trap.spring(); END');
	END LOOP;
	FOREACH t IN ARRAY '{text,bytea,bigint,integer,uuid,jsonb,name,oid,timestamptz,boolean,xid8}'::text[] LOOP
		EXECUTE format('CREATE FUNCTION regress_publish_trap.compare(%1$s, %1$s) RETURNS boolean LANGUAGE plpgsql AS %2$L',
			t, 'BEGIN RETURN regress_publish_trap.spring(); END');
		FOREACH op IN ARRAY '{=,<>,<,<=,>,>=}'::text[] LOOP
			EXECUTE format('CREATE OPERATOR regress_publish_trap.%1$s (LEFTARG = %2$s, RIGHTARG = %2$s, FUNCTION = regress_publish_trap.compare)', op, t);
		END LOOP;
	END LOOP;
	FOREACH t IN ARRAY '{text,jsonb,bytea,uuid,timestamptz,fencing_outcome}'::text[] LOOP
		EXECUTE format('CREATE TYPE regress_publish_trap.%I AS ENUM (''trap'')', t);
	END LOOP;
	FOREACH t IN ARRAY '{documents,revisions,targets,outbox,floor,revision_history,rollout_status}'::text[] LOOP
		EXECUTE format('CREATE TABLE regress_publish_trap.%I (trap int)', t);
		EXECUTE format('CREATE TEMP TABLE %I (trap int)', t);
	END LOOP;
END $$;
SET search_path = pg_temp, regress_publish_trap, pg_catalog, public;
-- they do work
\set VERBOSITY sqlstate
SELECT 1::bigint = 1::bigint;
SELECT encode('a'::pg_catalog.bytea, 'hex');
\set VERBOSITY default
-- passed by, by plans made before, and made here
SELECT answers OPERATOR(pg_catalog.=) :'usual' AS as_usual FROM regress_publish.story('story/trap');
DISCARD PLANS;
SELECT answers OPERATOR(pg_catalog.=) :'usual' AS as_usual FROM regress_publish.story('story/trap 2');
\c -
SET client_min_messages = warning;
SET search_path = regress_publish_trap, pg_catalog, public;
SELECT answers OPERATOR(pg_catalog.=) :'usual' AS as_usual FROM regress_publish.story('story/new backend');
-- an empty search_path, and one that leads nowhere
SET search_path = '';
SELECT answers OPERATOR(pg_catalog.=) :'usual' AS as_usual FROM regress_publish.story('story/empty');
SET search_path = no_such_schema;
SELECT answers OPERATOR(pg_catalog.=) :'usual' AS as_usual FROM regress_publish.story('story/nowhere');
SET search_path = regress_publish, public;
SELECT sum(n) AS rows_in_traps FROM (SELECT count(*) AS n FROM regress_publish_trap.documents UNION ALL SELECT count(*) FROM regress_publish_trap.revisions
	UNION ALL SELECT count(*) FROM regress_publish_trap.targets UNION ALL SELECT count(*) FROM regress_publish_trap.outbox) c;
DROP SCHEMA regress_publish_trap CASCADE;
-- settings that change the meaning of what is written, or how it is read
CREATE FUNCTION under(setting text, value text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	usual text := current_setting(setting);
	answer text;
BEGIN
	PERFORM set_config(setting, value, true);
	DISCARD PLANS;
	SELECT answers INTO answer FROM story('story/' || setting || '/' || value);
	PERFORM set_config(setting, usual, true);
	RETURN answer;
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ' ' || SQLERRM;
END $$;
SELECT setting, value, nullif(under(setting, value), :'usual') AS unusual
FROM (VALUES ('enable_indexscan', 'off'), ('enable_seqscan', 'off'), ('enable_bitmapscan', 'off'), ('plan_cache_mode', 'force_generic_plan'),
	('standard_conforming_strings', 'off'), ('quote_all_identifiers', 'on'), ('transform_null_equals', 'on'), ('bytea_output', 'escape'), ('datestyle', 'SQL, DMY'),
	('timezone', 'Asia/Kathmandu'), ('extra_float_digits', '-15'), ('synchronous_commit', 'off'), ('row_security', 'off'), ('session_replication_role', 'replica'),
	('work_mem', '64'), ('track_functions', 'all'), ('client_encoding', 'LATIN1'), ('search_path', 'regress_publish, pg_catalog')) v (setting, value);
DELETE FROM fencing.targets;
SELECT * FROM wrong;

--
-- Roles
--
CREATE ROLE regress_publish_client;
CREATE ROLE regress_publish_relay;
CREATE ROLE regress_publish_target;
CREATE ROLE regress_publish_publisher;
CREATE ROLE regress_publish_external;
CREATE ROLE regress_publish_admin;
CREATE ROLE regress_publish_nobody;
SELECT count(fencing_grant(('regress_publish_' || kind)::regrole, kind)) FROM unnest(ARRAY['client', 'relay', 'target', 'publisher', 'external', 'admin']) kind;
GRANT USAGE ON SCHEMA regress_publish TO PUBLIC;
CREATE TABLE calls (n serial, call text);
GRANT SELECT ON calls TO PUBLIC;
-- those that all can make come first, for those that may: replayed
INSERT INTO calls (call) VALUES ('SELECT outcome FROM fencing_publish(''role'', 0, ''"a"'')'),
	('SELECT outcome FROM fencing_publish_rollback(''role'', 1, 1)'),
	('SELECT outcome FROM fencing_publish_delete(''role'', 2)'),
	('SELECT outcome FROM fencing_publish_force(''role'', ''"b"'', ''r'')'),
	('SELECT kind FROM fencing_publish_current(''role'')'),
	('SELECT count(*) FROM fencing_publish_revision(md5(''no revision'')::uuid)'),
	('SELECT fencing_target_desire(''role'', ''t'')'),
	('SELECT count(*) >= 0 FROM fencing.revision_history'), ('SELECT count(*) >= 0 FROM fencing.rollout_status'),
	('SELECT count(*) FROM fencing.documents'), ('SELECT count(*) FROM fencing.revisions'), ('SELECT count(*) FROM fencing.targets'),
	('INSERT INTO fencing.documents (version) VALUES (1)'), ('UPDATE fencing.documents SET version = 0'), ('DELETE FROM fencing.documents'),
	('INSERT INTO fencing.revisions (kind) VALUES (''publish'')'), ('UPDATE fencing.revisions SET note = NULL'), ('DELETE FROM fencing.revisions'), ('TRUNCATE fencing.revisions'),
	('SELECT fencing_immutable()');
CREATE FUNCTION answers(first int DEFAULT 100) RETURNS TABLE (n int, answer text) LANGUAGE plpgsql AS $$
DECLARE c record;
BEGIN
	FOR c IN SELECT * FROM calls ORDER BY calls.n LIMIT first LOOP
		n := c.n;
		BEGIN
			EXECUTE c.call INTO answer;
			answer := coalesce(nullif(answer, ''), 'done');
		EXCEPTION WHEN OTHERS THEN
			answer := SQLSTATE;
		END;
		RETURN NEXT;
	END LOOP;
END $$;
SELECT * FROM answers(7);
SET ROLE regress_publish_client;
CREATE TEMP TABLE client AS SELECT * FROM answers();
RESET ROLE;
SET ROLE regress_publish_relay;
CREATE TEMP TABLE relay AS SELECT * FROM answers();
RESET ROLE;
SET ROLE regress_publish_target;
CREATE TEMP TABLE target AS SELECT * FROM answers();
RESET ROLE;
SET ROLE regress_publish_publisher;
CREATE TEMP TABLE publisher AS SELECT * FROM answers();
RESET ROLE;
SET ROLE regress_publish_external;
CREATE TEMP TABLE external AS SELECT * FROM answers();
RESET ROLE;
SET ROLE regress_publish_watch;
CREATE TEMP TABLE watch AS SELECT * FROM answers();
RESET ROLE;
SET ROLE regress_publish_nobody;
CREATE TEMP TABLE nobody AS SELECT * FROM answers();
RESET ROLE;
SET ROLE regress_publish_admin;
CREATE TEMP TABLE admin AS SELECT * FROM answers();
RESET ROLE;
SELECT regexp_replace(call, '^SELECT (outcome FROM |kind FROM |count\(\*\) FROM |count\(\*\) >= 0 FROM )?|\(.*', '', 'g') AS call, client.answer AS client, relay.answer AS relay, target.answer AS target, publisher.answer AS publisher,
	external.answer AS external, admin.answer AS admin, watch.answer AS watch, nobody.answer AS nobody
FROM calls JOIN client USING (n) JOIN relay USING (n) JOIN target USING (n) JOIN publisher USING (n) JOIN external USING (n) JOIN admin USING (n) JOIN watch USING (n) JOIN nobody USING (n) ORDER BY n;
-- the actor is who logged in: a role taken on later does not hide him, and neither does a function of another's
SET SESSION AUTHORIZATION regress_publish_publisher;
SELECT outcome, version FROM fencing_publish('actor', 0, '"a"');
RESET SESSION AUTHORIZATION;
GRANT regress_publish_publisher TO regress_publish_nobody;
SET SESSION AUTHORIZATION regress_publish_nobody;
SET ROLE regress_publish_publisher;
SELECT outcome, version FROM fencing_publish('actor', 1, '"b"');
SELECT outcome, version FROM fencing_publish_rollback('actor', 2, 1);
RESET ROLE;
RESET SESSION AUTHORIZATION;
CREATE FUNCTION through(content jsonb) RETURNS text LANGUAGE sql SECURITY DEFINER SET search_path = public AS
	$$ SELECT outcome FROM fencing_publish_force('actor', content, 'through a function') $$;
ALTER FUNCTION through OWNER TO regress_publish_admin;
SET SESSION AUTHORIZATION regress_publish_client;
SELECT regress_publish.through('"c"');
RESET SESSION AUTHORIZATION;
SELECT outcome, version FROM fencing_publish_delete('actor', 4);
SELECT version, kind, replace(actor, session_user, '(this one)') AS actor FROM fencing.revision_history WHERE document_id = 'actor' ORDER BY version;
-- a replay by another: it stays the first one's
SET SESSION AUTHORIZATION regress_publish_admin;
SELECT outcome, version FROM fencing_publish('actor', 0, '"a"');
RESET SESSION AUTHORIZATION;
SELECT actor FROM fencing.revision_history WHERE document_id = 'actor' AND version = 1;
-- what is taken back is gone
SELECT fencing_ungrant('regress_publish_publisher', 'publisher');
SET ROLE regress_publish_publisher;
SELECT left(attempt('SELECT fencing_publish(''actor'', 0, ''"a"'')'), 5) AS publish, left(attempt('SELECT fencing_publish_current(''actor'')'), 5) AS current;
RESET ROLE;
DELETE FROM fencing.targets;

--
-- Read-only: what is known is answered, everything else is 25006
--
SELECT pub('o', 0, '"a"');
SELECT pub('o', 1, '"b"');
SELECT del('o', 2);
SELECT back('o', 3, 1);
SELECT state() AS before \gset
CREATE TABLE read_only (n serial, call text);
INSERT INTO read_only (call) SELECT unnest(ARRAY['pub(''o'', 0, ''"a"'')', 'pub(''o'', 0, ''"b"'')', 'pub(''o'', 2, ''"a"'')', 'pub(''o'', 4, ''"a"'')', 'pub(''o'', 5, ''"a"'')', 'pub(''new'', 0, ''"a"'')', 'pub(''new'', 1, ''"a"'')',
	'back(''o'', 3, 1)', 'back(''o'', 1, 2)', 'back(''o'', 3, 2)', 'back(''o'', 2, 1)', 'back(''o'', 4, 1)', 'back(''o'', 5, 1)', 'back(''new'', 1, 1)', 'back(''o'', 3, 9)', 'back(''o'', 4, 9)',
	'del(''o'', 2)', 'del(''o'', 1)', 'del(''o'', 4)', 'del(''o'', 5)', 'del(''new'', 1)', 'force(''o'', ''"a"'')', 'force(''new'', ''"a"'')',
	'concat_ws('' '', version, kind) FROM fencing_publish_current(''o'')', 'count(*) FROM fencing_publish_current(''new'')', 'count(*) FROM fencing_publish_revision(md5(''no revision'')::uuid)', 'fencing_target_desire(''o'', ''t'')']);
BEGIN READ ONLY;
SELECT call, regexp_replace(attempt('SELECT ' || call), '(25006).*', '\1') AS answer FROM read_only ORDER BY n;
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SELECT string_agg(left(attempt('SELECT ' || call), 5), ' ' ORDER BY n) AS answers FROM read_only;
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY;
SELECT string_agg(left(attempt('SELECT ' || call), 5), ' ' ORDER BY n) AS answers FROM read_only;
COMMIT;
SELECT state() = :'before' AS untouched;
-- from the middle of a transaction on
BEGIN;
SELECT pub('o', 4, '"c"');
SET TRANSACTION READ ONLY;
SELECT pub('o', 4, '"c"') AS replayed, pub('o', 4, '"d"') AS conflict, left(attempt('SELECT pub(''o'', 5, ''"d"'')'), 5) AS next;
COMMIT;
SELECT history('o');

--
-- Against a model: many steps on three documents, with transactions that roll
-- back now and then.  NULL is a deletion.
--
CREATE TABLE model (document text, version bigint, content jsonb, kind text, source bigint, PRIMARY KEY (document, version));
CREATE TABLE answered (what text);
CREATE PROCEDURE run(steps int) LANGUAGE plpgsql AS $$
DECLARE
	d text;
	latest bigint;
	expected bigint;
	src bigint;
	kind text;
	new jsonb;
	there record;
	call text;
	wanted text;
	got text;
BEGIN
	FOR step IN 1 .. steps LOOP
		d := 'model/' || (random() * 2)::int;
		SELECT coalesce(max(version), 0) INTO latest FROM model WHERE document = d;
		expected := CASE WHEN random() < 0.6 THEN latest WHEN random() < 0.8 THEN greatest(latest - (random() * 4)::int, 0) ELSE latest + 1 + (random() * 2)::int END;
		kind := (ARRAY['publish', 'publish', 'publish', 'rollback', 'rollback', 'delete', 'force'])[1 + floor(random() * 7)];
		new := to_jsonb((ARRAY['a', 'b', 'c'])[1 + floor(random() * 3)]);
		src := NULL;
		wanted := NULL;
		IF kind = 'publish' THEN
			call := format('pub(%L, %s, %L, %L)', d, expected, new, step);
		ELSIF kind = 'rollback' THEN
			expected := greatest(expected, 1);
			src := (random() * (latest + 1))::bigint;
			call := format('back(%L, %s, %s)', d, expected, src);
			SELECT * INTO there FROM model WHERE document = d AND version = src;
			new := there.content;
			IF src < 1 OR src > expected THEN
				wanted := '22023';
			ELSIF there IS NULL THEN
				wanted := 'LF001';
			ELSIF new IS NULL THEN
				wanted := CASE WHEN expected > latest THEN 'LF001 or 22023' ELSE '22023' END;
			END IF;
		ELSIF kind = 'delete' THEN
			call := format('del(%L, %s)', d, expected);
			new := NULL;
			IF expected = 0 THEN
				wanted := '22023';
			END IF;
		ELSE
			call := format('force(%L, %L)', d, new);
			expected := latest;
		END IF;
		IF wanted IS NULL THEN
			SELECT * INTO there FROM model WHERE document = d AND version = expected + 1;
			wanted := CASE WHEN expected > latest THEN 'LF001'
				WHEN expected = latest THEN format('committed %s %s, latest %1$s %2$s', expected + 1, coalesce(new #>> '{}', '(deleted)'))
				ELSE format('%s %s, latest %s %s', CASE WHEN new IS NOT DISTINCT FROM there.content THEN 'replayed ' || expected + 1 ELSE 'conflict -' END,
					CASE WHEN new IS NOT DISTINCT FROM there.content THEN coalesce(new #>> '{}', '(deleted)') ELSE '-' END,
					latest, (SELECT coalesce(content #>> '{}', '(deleted)') FROM model WHERE document = d AND version = latest)) END;
			IF wanted LIKE 'committed%' THEN
				INSERT INTO model VALUES (d, expected + 1, new, kind, src);
			END IF;
		END IF;
		got := attempt('SELECT ' || call);
		IF (CASE WHEN wanted ~ '^(LF|22)' THEN strpos(wanted, left(got, 5)) = 0 ELSE wanted <> got END) THEN
			RAISE WARNING 'step %, %: % instead of %', step, call, got, wanted;
		END IF;
		INSERT INTO answered VALUES (kind || ' ' || split_part(split_part(got, ':', 1), ' ', 1));
		IF random() < 0.15 THEN
			ROLLBACK;
		ELSIF random() < 0.6 THEN
			COMMIT;
		END IF;
	END LOOP;
END $$;
SELECT setseed(0.53);
-- a difference would be a warning
CALL run(3000);
-- every kind of answer was among them
SELECT DISTINCT what FROM answered ORDER BY what;
-- and what is there is what was answered
SELECT count(*) > 300 AS many, count(*) FILTER (WHERE ROW(r.content, r.kind, r.source_version) IS DISTINCT FROM ROW(m.content, m.kind, m.source)) AS differ
FROM model m FULL JOIN (SELECT * FROM fencing.revisions WHERE document_id LIKE 'model/%') r ON r.document_id = m.document AND r.version = m.version;
SELECT * FROM wrong;

--
-- Nothing is left.  Who may disable triggers may delete it.
--
SELECT fencing_outbox_unsubscribe('publish/events');
SELECT more FROM fencing_purge('events', '1 microsecond', 1000000);
-- events are gone, versions are not
SELECT pub('d', 0, '"a"');
SET session_replication_role = replica;
DELETE FROM fencing.revisions;
RESET session_replication_role;
DELETE FROM fencing.documents;
SELECT (SELECT count(*) FROM fencing.documents) AS documents, (SELECT count(*) FROM fencing.revisions) AS revisions,
	(SELECT count(*) FROM fencing.targets) AS targets, (SELECT count(*) FROM fencing.outbox) AS events;
SELECT count(fencing_ungrant(role::regrole, access)) FROM (SELECT * FROM fencing.grants WHERE role LIKE 'regress\_publish\_%' ORDER BY role, access OFFSET 0) g;
DROP SCHEMA regress_publish CASCADE;
DROP TABLE client, relay, target, publisher, external, watch, nobody, admin;
REVOKE ALL ON SCHEMA fencing FROM regress_publish_owner;
DROP ROLE regress_publish_client, regress_publish_relay, regress_publish_target, regress_publish_publisher, regress_publish_external,
	regress_publish_admin, regress_publish_nobody, regress_publish_watch, regress_publish_owner;
DELETE FROM fencing.receipts;
DELETE FROM fencing.leases;
DELETE FROM fencing.fences;
DELETE FROM fencing.revocations;
UPDATE fencing.floor SET floor = 0;
