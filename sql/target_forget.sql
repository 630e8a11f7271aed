--
-- What a target does not get: versions that it is not to have, and, when it is
-- retired, any.
--
SET client_min_messages = warning;
CREATE SCHEMA regress_forget;
SET search_path = regress_forget, public;

CREATE TABLE written (target text, version bigint);
CREATE FUNCTION attempt(call text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
	detail text;
	hint text;
BEGIN
	EXECUTE call INTO answer;
	RETURN coalesce(nullif(answer, ''), 'done');
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	RETURN concat_ws(' | ', SQLSTATE || ': ' || SQLERRM,
		nullif(regexp_replace(replace(detail, session_user, '(me)'), ' at [0-9].*?: ', ' at (then): '), ''), nullif(hint, ''));
END $$;
CREATE FUNCTION d(version bigint) RETURNS bytea LANGUAGE sql AS $$ SELECT fencing_digest(to_jsonb(version)) $$;
-- with content, as to a target in another database, or without
CREATE FUNCTION apply(document text, target text, version bigint, given boolean DEFAULT false) RETURNS text LANGUAGE sql AS $$
SELECT attempt(format('SELECT concat_ws($a$ $a$, outcome, applied_version, result, error) FROM fencing_apply(%L, %L, %s, d(%3$s), %s, $a$INSERT INTO written VALUES ($2, $3)$a$)',
	document, target, version, CASE WHEN given THEN quote_literal(version) ELSE 'NULL' END))
$$;
CREATE VIEW status AS
SELECT document_id, target_id, desired_version AS desired, attempted_version AS attempted, applied_version AS applied, lag, rejected_version AS rejected,
	retired_by = session_user AND retired_at <= clock_timestamp() AS retired, retired_reason AS reason
FROM fencing.rollout_status WHERE document_id LIKE 'forget/%';

SELECT count(outcome) FROM generate_series(1, 4) v, LATERAL fencing_publish('forget/d', v - 1, to_jsonb(v));

--
-- Pinned: lower versions are steps on the way, higher ones are undesired
--
SELECT fencing_target_desire('forget/d', 'pinned', 3);
SELECT apply('forget/d', 'pinned', 4), apply('forget/d', 'pinned', 4, true), apply('forget/d', 'pinned', 1), apply('forget/d', 'pinned', 3, true), apply('forget/d', 'pinned', 4);
-- above the latest: never published, also where it would be undesired; other content: conflict
SELECT apply('forget/d', 'pinned', 5);
SELECT apply('forget/d', 'pinned', 5) = apply('forget/d', 'pinned', 5, true) AS the_same;
SELECT outcome, applied_version FROM fencing_apply('forget/d', 'pinned', 4, d(5), '5', 'SELECT 1 / 0');
-- what is applied is replayed, what is below stale
SELECT apply('forget/d', 'pinned', 3), apply('forget/d', 'pinned', 2);
-- no result, no error; strict raises, report_errors has none to report
SELECT outcome, result, applied_version, applied_digest = d(3) AS digest, error FROM fencing_apply('forget/d', 'pinned', 4, d(4), NULL, 'SELECT 1 / 0');
SELECT attempt($$SELECT fencing_apply('forget/d', 'pinned', 4, d(4), statement => 'SELECT 1 / 0', strict => true)$$) ~ '^LF005.*undesired' AS strict;
SELECT outcome, error FROM fencing_apply('forget/d', 'pinned', 4, d(4), statement => 'SELECT 1 / 0', report_errors => true);
-- nothing is left behind by it, no lock either
BEGIN;
SELECT apply('forget/d', 'pinned', 4);
SELECT pg_current_xact_id_if_assigned() IS NULL AS nothing_written, count(*) AS locks FROM pg_locks
WHERE pid = pg_backend_pid() AND (mode NOT LIKE '%Share%' OR locktype = 'advisory') AND locktype NOT IN ('virtualxid', 'object');
COMMIT;
SELECT fencing_target_desire('forget/d', 'pinned');
SELECT apply('forget/d', 'pinned', 4), apply('forget/d', 'pinned', 4);
SELECT * FROM status;

--
-- Rejected: that one, until it is asked for again
--
SELECT fencing_target_desire('forget/d', 'rejecting');
SELECT fencing_apply_reject('forget/d', 'rejecting', 2, 'too big');
SELECT apply('forget/d', 'rejecting', 2), apply('forget/d', 'rejecting', 2, true), apply('forget/d', 'rejecting', 1);
SELECT fencing_target_desire('forget/d', 'rejecting'), apply('forget/d', 'rejecting', 2);
SELECT fencing_apply_reject('forget/d', 'rejecting', 3, 'too big'), apply('forget/d', 'rejecting', 3), apply('forget/d', 'rejecting', 4);

-- a second rejection does not take back the first, nor does one that comes late; a desire takes back all
SELECT fencing_target_desire('forget/d', 'twice');
SELECT fencing_apply_reject('forget/d', 'twice', 2, 'too big'), fencing_apply_reject('forget/d', 'twice', 4, 'too big'), fencing_apply_reject('forget/d', 'twice', 3, 'late');
SELECT apply('forget/d', 'twice', 2), apply('forget/d', 'twice', 3), apply('forget/d', 'twice', 4), apply('forget/d', 'twice', 1);
SELECT rejected, rejections, rejected_reason FROM fencing.targets WHERE target_id = 'twice';
SELECT outcome FROM fencing_apply_begin('forget/d', 'twice', md5('A')::uuid);
SELECT fencing_target_desire('forget/d', 'twice'), apply('forget/d', 'twice', 2), apply('forget/d', 'twice', 4);
-- what is below the applied version does not stay
SELECT fencing_target_desire('forget/far', 't', 100), fencing_apply_reject('forget/far', 't', 5, 'bad'), fencing_apply_reject('forget/far', 't', 3, 'bad'),
	apply('forget/far', 't', 4, true), fencing_apply_reject('forget/far', 't', 9, 'bad');
SELECT rejections FROM fencing.targets WHERE document_id = 'forget/far';
SELECT apply('forget/far', 't', 5, true), apply('forget/far', 't', 9, true), apply('forget/far', 't', 6, true);
-- of very many the lowest are not told apart: all below count as rejected
SELECT fencing_target_desire('forget/far', 'many', 5000);
SELECT count(fencing_apply_reject('forget/far', 'many', v * 2, 'bad')) FROM generate_series(1, 1000) v;
SELECT cardinality(rejections), rejections[1] AS lowest FROM fencing.targets WHERE target_id = 'many';
SELECT apply('forget/far', 'many', 1, true), apply('forget/far', 'many', 3, true);
SELECT fencing_target_desire('forget/far', 'many', 5000);
SELECT count(fencing_apply_reject('forget/far', 'many', v * 2, 'bad')) FROM generate_series(1, 1001) v;
SELECT cardinality(rejections), rejections[1] AS lowest, rejections[1000] AS highest FROM fencing.targets WHERE target_id = 'many';
SELECT apply('forget/far', 'many', 2, true), apply('forget/far', 'many', 3, true), apply('forget/far', 'many', 4, true), apply('forget/far', 'many', 5, true);

--
-- A document that is published elsewhere: only its own desire counts
--
SELECT fencing_target_desire('forget/elsewhere', 't', 7);
SELECT apply('forget/elsewhere', 't', 8, true), apply('forget/elsewhere', 't', 5, true), fencing_apply_reject('forget/elsewhere', 't', 6, 'bad');
SELECT apply('forget/elsewhere', 't', 6, true), apply('forget/elsewhere', 't', 7, true), apply('forget/elsewhere', 't', 8, true);
SELECT fencing_target_desire('forget/elsewhere', 't'), apply('forget/elsewhere', 't', 9007199254740992, true);
SELECT apply('forget/elsewhere', 't', 9007199254740991, true), apply('forget/elsewhere', 't', 10, true);

--
-- A writer that was handed a version which the target is not to have any more
--
SELECT fencing_target_desire('forget/d', 'file', 4);
SELECT outcome, version, token AS a FROM fencing_apply_begin('forget/d', 'file', md5('A')::uuid) \gset
SELECT :'outcome' AS outcome, :version AS version, fencing_apply_observe('forget/d', 'file', :a, NULL, NULL);
SELECT fencing_target_desire('forget/d', 'file', 2), fencing_apply_observe('forget/d', 'file', :a, NULL, NULL);
SELECT outcome, version FROM fencing_apply_begin('forget/d', 'file', md5('A')::uuid);
SELECT fencing_apply_observe('forget/d', 'file', :a, NULL, NULL), fencing_apply_observe('forget/d', 'file', :a, 2, d(2));
SELECT * FROM status WHERE target_id = 'file';

--
-- Retired: while nobody is at it
--
SELECT attempt($$SELECT fencing_target_forget('forget/d', 'file', 'sold')$$) ~ '^55006: target "file" of document "forget/d" is being written . Job "apply/[0-9a-f]{64}" has a live lease. . Release or revoke it first.$' AS refused;
SELECT job_key AS key FROM fencing_apply_begin('forget/d', 'file', md5('A')::uuid) \gset
SELECT fencing_release(:'key', md5('A')::uuid, :a);
SELECT fencing_target_forget('forget/d', 'file', 'sold'), fencing_target_forget('forget/d', 'file', 'the reason is the first one'), fencing_target_forget('forget/d', 'pinned', 'moved');
SELECT * FROM status ORDER BY document_id, target_id;
-- what it has is still told; else nothing but what became of it
SELECT apply('forget/d', 'pinned', 4);
SELECT outcome FROM fencing_apply('forget/d', 'pinned', 4, d(3));
SELECT apply('forget/d', 'pinned', 5);
SELECT apply('forget/d', 'pinned', 3) = apply('forget/d', 'pinned', 5, true) AS the_same;
SELECT attempt($$SELECT fencing_apply_begin('forget/d', 'file', md5('A')::uuid)$$);
SELECT attempt(format($$SELECT fencing_apply_observe('forget/d', 'file', %s, 2, d(2))$$, :a));
SELECT attempt($$SELECT fencing_apply_reject('forget/d', 'file', 4, 'bad')$$);
SELECT count(*) AS written FROM written WHERE target = 'file';

--
-- Desired again: above what it had, with the next token
--
SELECT attempt($$SELECT fencing_target_desire('forget/d', 'file', 1)$$);
SELECT fencing_target_desire('forget/d', 'file', 2);
SELECT * FROM status WHERE target_id = 'file';
SELECT apply('forget/d', 'file', 1), apply('forget/d', 'file', 2), apply('forget/d', 'file', 3);
SELECT fencing_target_desire('forget/d', 'file');
SELECT outcome, version, token > :a AS higher FROM fencing_apply_begin('forget/d', 'file', md5('B')::uuid, '1 microsecond');
SELECT fencing_target_forget('forget/d', 'file', 'sold again'), fencing_target_desire('forget/d', 'file');
SELECT retired, retired_reason, applied FROM fencing.targets WHERE document_id = 'forget/d' AND target_id = 'file';

--
-- Bad input, and who is in the way
--
SELECT attempt('SELECT fencing_target_forget(' || a || ')') FROM unnest(ARRAY['NULL, ''t'', ''r''', '''forget/d'', NULL, ''r''', '''forget/d'', ''t'', NULL',
	''''', ''t'', ''r''', '''forget/d'', '''', ''r''', '''forget/d'', ''t'', ''''', '''forget/d'', ''unknown'', ''r''', '''none'', ''t'', ''r''',
	'repeat(''k'', 513), ''t'', ''r''']) a;
SELECT attempt($$SELECT fencing_apply('forget/d', 'file', 3, d(3), statement => 'SELECT fencing_target_forget($1, $2, ''from within'')')$$);
BEGIN READ ONLY;
SELECT attempt($$SELECT fencing_target_forget('forget/d', 'file', 'r')$$);
ROLLBACK;
BEGIN;
SELECT fencing_target_forget('forget/d', 'file', 'rolled back');
ROLLBACK;
SELECT apply('forget/d', 'file', 3);

SET session_replication_role = replica;
DELETE FROM fencing.revisions WHERE document_id LIKE 'forget/%';
RESET session_replication_role;
DELETE FROM fencing.targets WHERE document_id LIKE 'forget/%';
DELETE FROM fencing.documents WHERE document_id LIKE 'forget/%';
DELETE FROM fencing.leases WHERE job_key LIKE 'apply/%';
DELETE FROM fencing.fences WHERE job_key LIKE 'apply/%';
SELECT more FROM fencing_purge('events', '1 microsecond', 1000000);
DROP SCHEMA regress_forget CASCADE;
