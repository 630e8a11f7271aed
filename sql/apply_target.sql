--
-- A target outside this database, which cannot write conditionally: begin hands
-- a version out, observe judges what was read back from the target, and nothing
-- counts as applied before that.
--
-- The target is a table here, written without any condition, as by somebody who
-- only knows what he was handed out.
--
UPDATE fencing.floor SET floor = 0;
SET client_min_messages = warning;
CREATE SCHEMA regress_target;
SET search_path = regress_target, public;

CREATE FUNCTION who(name text) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$ SELECT md5(name)::uuid $$;
CREATE FUNCTION digest(document text, number bigint) RETURNS bytea LANGUAGE sql AS
$$ SELECT digest FROM fencing.revisions WHERE document_id = document AND version = number $$;
-- Publishes {"v": 1}, {"v": 2}, ... up to a version.
CREATE FUNCTION publish_to(document text, version bigint) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	FOR v IN coalesce((SELECT c.version FROM fencing_publish_current(document) c), 0) + 1 .. publish_to.version LOOP
		ASSERT (SELECT outcome = 'committed' FROM fencing_publish(document, v - 1, jsonb_build_object('v', v)));
	END LOOP;
	RETURN document || ' ' || version;
END $$;
-- What was handed out last, for the observations.
CREATE TABLE handed (document text, target text, owner text, job_key text, token bigint, version bigint, content jsonb, digest bytea, idempotency_key text);
CREATE FUNCTION start(document text, target text, owner text, ttl interval DEFAULT '1 hour') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	b record;
BEGIN
	SELECT * INTO STRICT b FROM fencing_apply_begin(document, target, who(owner), ttl);
	IF b.outcome IN ('acquired', 'renewed') THEN
		ASSERT b.digest = digest(document, b.version), 'the digest is not that of the version';
		DELETE FROM handed h WHERE (h.document, h.target, h.owner) = ($1, $2, $3);
		INSERT INTO handed VALUES (document, target, owner, b.job_key, b.token, b.version, b.content, b.digest, b.idempotency_key);
	END IF;
	RETURN concat_ws(' ', b.outcome, 'token ' || b.token, b.version, b.content);
END $$;
-- What an owner reads back from the target: a version with its digest or that of
-- another version; NULL: it is empty.
CREATE FUNCTION observe(document text, target text, owner text, version bigint, digest_of bigint DEFAULT NULL) RETURNS fencing_outcome LANGUAGE sql AS $$
SELECT fencing_apply_observe(document, target, (SELECT token FROM handed h WHERE (h.document, h.target, h.owner) = ($1, $2, $3)), version,
	CASE WHEN version IS NOT NULL THEN coalesce(digest(document, coalesce(digest_of, version)), '\x00') END)
$$;
CREATE FUNCTION release(document text, target text, owner text) RETURNS fencing_outcome LANGUAGE sql AS $$
SELECT fencing_release(job_key, who(owner), token) FROM handed h WHERE (h.document, h.target, h.owner) = ($1, $2, $3)
$$;
-- the key of an attempt, by a letter
CREATE TABLE known_key (n serial, key text);
CREATE FUNCTION key(document text, target text, owner text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	k text := (SELECT idempotency_key FROM handed h WHERE (h.document, h.target, h.owner) = ($1, $2, $3));
BEGIN
	IF NOT EXISTS (SELECT FROM known_key WHERE known_key.key = k) THEN
		INSERT INTO known_key (key) VALUES (k);
	END IF;
	RETURN (SELECT chr(64 + n) FROM known_key WHERE known_key.key = k);
END $$;
CREATE FUNCTION attempt(call text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE answer text;
BEGIN
	EXECUTE call INTO answer;
	RETURN coalesce(answer, 'no row');
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ': ' || SQLERRM;
END $$;
CREATE FUNCTION status(document text, target text DEFAULT 't') RETURNS TABLE (desired bigint, attempted bigint, applied bigint, lag bigint, diverged boolean,
	observed bigint, applications bigint, superseded bigint, rejected bigint, error boolean) LANGUAGE sql AS $$
SELECT desired_version, attempted_version, applied_version, lag, diverged, observed_version, applications, superseded, rejected_version,
	last_error IS NOT NULL
FROM fencing.rollout_status WHERE (document_id, target_id) = ($1, $2)
$$;

--
-- begin: what is handed out, and to whom
--
SELECT attempt($$SELECT fencing_apply_begin('target/app', 't', who('A'))$$);
SELECT publish_to('target/app', 3), fencing_target_desire('target/app', 't');
SELECT attempt($$SELECT fencing_apply_begin('target/app', 'unknown', who('A'))$$);
SELECT clock_timestamp() AS t0 \gset
SELECT outcome, job_key ~ '^apply/[0-9a-f]{64}$' AS job, token, lease_until BETWEEN :'t0'::timestamptz + '30 s' AND clock_timestamp() + '30 s' AS lease,
	version, content, digest = digest('target/app', 3) AS digest, idempotency_key <> '' AS key
FROM fencing_apply_begin('target/app', 't', who('A'));
-- handed out is attempted, not applied
SELECT * FROM status('target/app');
-- again by the same owner: the same token, version and key
SELECT start('target/app', 't', 'A'), key('target/app', 't', 'A');
SELECT start('target/app', 't', 'A'), key('target/app', 't', 'A');
-- by another
SELECT outcome, job_key = (SELECT job_key FROM handed WHERE owner = 'A') AS same_job, token, lease_until - clock_timestamp() BETWEEN '59 minutes' AND '1 hour' AS of_holder,
	version, content, digest, idempotency_key
FROM fencing_apply_begin('target/app', 't', who('B'));
-- the lease is one like any other
SELECT token, live FROM fencing.lease_status WHERE job_key = (SELECT job_key FROM handed WHERE owner = 'A');
SELECT r.outcome FROM handed, LATERAL fencing_renew(job_key, who('A'), token, '1 hour') r;
-- the target is empty: write; written: recorded; and that again is the same
SELECT observe('target/app', 't', 'A', NULL), observe('target/app', 't', 'A', NULL);
SELECT * FROM status('target/app');
SELECT observe('target/app', 't', 'A', 3);
SELECT * FROM status('target/app');
SELECT observe('target/app', 't', 'A', 3), observe('target/app', 't', 'A', 3);
SELECT * FROM status('target/app');
-- nothing to write, for whoever asks
SELECT outcome, job_key = (SELECT job_key FROM handed WHERE owner = 'A') AS same_job, token, lease_until, version, content, digest = digest('target/app', 3) AS digest, idempotency_key
FROM fencing_apply_begin('target/app', 't', who('A'));
SELECT release('target/app', 't', 'A');
SELECT start('target/app', 't', 'A'), start('target/app', 't', 'B');

-- The next version: another token, another key, and the lower one is read back
SELECT publish_to('target/app', 4);
SELECT * FROM status('target/app');
SELECT start('target/app', 't', 'A'), key('target/app', 't', 'A');
SELECT observe('target/app', 't', 'A', 3);
SELECT * FROM status('target/app');
-- A is gone and has written nothing.  B writes it: with the key of the attempt
SELECT release('target/app', 't', 'A');
SELECT start('target/app', 't', 'B'), key('target/app', 't', 'B');
SELECT observe('target/app', 't', 'A', 3) AS a, observe('target/app', 't', 'B', 3) AS b;
-- B is gone and has written: C only records it
SELECT release('target/app', 't', 'B');
SELECT start('target/app', 't', 'C'), key('target/app', 't', 'C');
SELECT observe('target/app', 't', 'C', 4), observe('target/app', 't', 'B', 4);
SELECT * FROM status('target/app');
-- the key is another one for another target, and for another document
SELECT publish_to('target/app2', 4), fencing_target_desire('target/app2', 't'), fencing_target_desire('target/app', 'u');
SELECT start('target/app', 'u', 'A'), key('target/app', 'u', 'A'), start('target/app2', 't', 'A'), key('target/app2', 't', 'A');

-- A lease that has ended but was not taken over still counts; a revoked one not
SELECT publish_to('target/app', 5);
SELECT release('target/app', 't', 'C'), start('target/app', 't', 'A', '1 microsecond');
SELECT observe('target/app', 't', 'A', 4), observe('target/app', 't', 'A', 5);
SELECT publish_to('target/app', 6);
SELECT start('target/app', 't', 'A', '1 microsecond');
SELECT start('target/app', 't', 'B');
SELECT observe('target/app', 't', 'A', 5), observe('target/app', 't', 'A', 6), observe('target/app', 't', 'A', NULL);
SELECT * FROM status('target/app');
SELECT fencing_revoke(job_key, 'wild') - token AS moved FROM handed WHERE document = 'target/app' AND target = 't' AND owner = 'B';
SELECT observe('target/app', 't', 'B', 6);
-- a token that was never issued, or is not of this target
SELECT attempt($$SELECT fencing_apply_observe('target/app', 't', 1000, 5, digest('target/app', 5))$$);
SELECT attempt($$SELECT fencing_apply_observe('target/app', 'unknown', 1, 5, digest('target/app', 5))$$);
SELECT fencing_target_desire('target/app', 'never begun');
SELECT attempt($$SELECT fencing_apply_observe('target/app', 'never begun', 1, 5, digest('target/app', 5))$$);
SELECT start('target/app', 't', 'C'), observe('target/app', 't', 'C', 6);
SELECT release('target/app', 't', 'C');

-- Published while it is written: what was written is recorded, and the next is
-- written with the same lease
SELECT publish_to('target/next', 1), fencing_target_desire('target/next', 't');
SELECT start('target/next', 't', 'A'), key('target/next', 't', 'A');
SELECT publish_to('target/next', 3);
SELECT start('target/next', 't', 'A'), key('target/next', 't', 'A');
SELECT observe('target/next', 't', 'A', 1);
SELECT * FROM status('target/next');
-- also what nobody handed out to this owner, as long as it is in between
SELECT observe('target/next', 't', 'A', 2);
SELECT * FROM status('target/next');
-- with another digest it is not that version
SELECT publish_to('target/next', 5);
SELECT start('target/next', 't', 'A'), observe('target/next', 't', 'A', 4, 5);
SELECT * FROM status('target/next');
SELECT start('target/next', 't', 'A'), key('target/next', 't', 'A'), observe('target/next', 't', 'A', 4, 5), observe('target/next', 't', 'A', 5), release('target/next', 't', 'A');
SELECT * FROM status('target/next');

-- a version above what was handed out, although it was published meanwhile
SELECT publish_to('target/next', 7);
SELECT start('target/next', 't', 'B'), publish_to('target/next', 8), observe('target/next', 't', 'B', 8), start('target/next', 't', 'B'), observe('target/next', 't', 'B', 8);
SELECT * FROM status('target/next');

-- What is desired is what is handed out
SELECT publish_to('target/desired', 4), fencing_target_desire('target/desired', 't', 2);
SELECT start('target/desired', 't', 'A'), observe('target/desired', 't', 'A', NULL), observe('target/desired', 't', 'A', 2);
SELECT start('target/desired', 't', 'A');
SELECT attempt($$SELECT fencing_target_desire('target/desired', 't', 1)$$);
SELECT fencing_target_desire('target/desired', 't', 3);
SELECT start('target/desired', 't', 'A'), fencing_target_desire('target/desired', 't', 4), start('target/desired', 't', 'A');
-- it may be taken back before it is written: nothing to do, although it was handed out
SELECT fencing_target_desire('target/desired', 't', 2);
SELECT outcome, token, version FROM fencing_apply_begin('target/desired', 't', who('A'));
SELECT release('target/desired', 't', 'A');
-- a document that is not published here: nothing desired, nothing to do; a
-- version that is desired cannot be handed out without its content
SELECT fencing_target_desire('target/none', 't');
SELECT outcome, token, version, content, digest, idempotency_key FROM fencing_apply_begin('target/none', 't', who('A'));
SELECT fencing_target_desire('target/none', 't', 5);
SELECT attempt($$SELECT fencing_apply_begin('target/none', 't', who('A'))$$);
SELECT * FROM status('target/none');

-- begin is part of its transaction, and of its subtransaction
SELECT publish_to('target/back', 1), fencing_target_desire('target/back', 't');
BEGIN;
SELECT outcome, token FROM fencing_apply_begin('target/back', 't', who('A'));
ROLLBACK;
SELECT * FROM status('target/back');
BEGIN;
SAVEPOINT s;
SELECT start('target/back', 't', 'A'), observe('target/back', 't', 'A', 1);
ROLLBACK TO s;
SELECT * FROM status('target/back');
SELECT start('target/back', 't', 'B'), observe('target/back', 't', 'B', NULL);
COMMIT;
SELECT * FROM status('target/back');

--
-- An observation that fails says so: ahead, diverged; never silently on
--
SELECT publish_to('target/fail', 3), fencing_target_desire('target/fail', 't');
SELECT start('target/fail', 't', 'A'), observe('target/fail', 't', 'A', 3);
-- ahead: nothing is recorded as applied, nothing is to be written
SELECT observe('target/fail', 't', 'A', 4), observe('target/fail', 't', 'A', 1000);
SELECT * FROM status('target/fail');
SELECT observe('target/fail', 't', 'A', 3);
SELECT * FROM status('target/fail');
-- with something to write
SELECT publish_to('target/fail', 4);
SELECT start('target/fail', 't', 'A'), observe('target/fail', 't', 'A', 5);
SELECT * FROM status('target/fail');
-- a version that was lost here and is known there: publish above it, with that
-- number it is another one
SELECT publish_to('target/fail', 5);
SELECT start('target/fail', 't', 'A'), observe('target/fail', 't', 'A', 5, 3);
SELECT * FROM status('target/fail');
SELECT publish_to('target/fail', 6);
SELECT start('target/fail', 't', 'A'), observe('target/fail', 't', 'A', 5, 3), observe('target/fail', 't', 'A', 6);
SELECT * FROM status('target/fail');

-- diverged: fallen back, emptied, other content.  Until begin has handed the
-- repair out there is nothing to write.
SELECT key('target/fail', 't', 'A');
SELECT observe('target/fail', 't', 'A', 4), observe('target/fail', 't', 'A', 4), observe('target/fail', 't', 'A', 5);
SELECT * FROM status('target/fail');
-- the applied version again, with another key
SELECT start('target/fail', 't', 'A'), key('target/fail', 't', 'A');
SELECT start('target/fail', 't', 'A'), key('target/fail', 't', 'A');
SELECT * FROM status('target/fail');
SELECT observe('target/fail', 't', 'A', 4), observe('target/fail', 't', 'A', 3), observe('target/fail', 't', 'A', NULL), observe('target/fail', 't', 'A', 6, 5);
SELECT * FROM status('target/fail');
SELECT observe('target/fail', 't', 'A', 6);
SELECT * FROM status('target/fail');
SELECT start('target/fail', 't', 'A');
-- emptied; and the repair is interrupted: the same key
SELECT observe('target/fail', 't', 'A', NULL);
SELECT start('target/fail', 't', 'A'), key('target/fail', 't', 'A'), release('target/fail', 't', 'A');
SELECT start('target/fail', 't', 'B'), key('target/fail', 't', 'B'), observe('target/fail', 't', 'A', 6), observe('target/fail', 't', 'B', NULL), observe('target/fail', 't', 'B', 6);
SELECT * FROM status('target/fail');
-- other content under its number
SELECT observe('target/fail', 't', 'B', 6, 5);
SELECT * FROM status('target/fail');
-- while it is diverged, a higher version comes: that is handed out
SELECT publish_to('target/fail', 7);
SELECT start('target/fail', 't', 'B'), key('target/fail', 't', 'B'), observe('target/fail', 't', 'B', 6, 5), observe('target/fail', 't', 'B', 7);
SELECT * FROM status('target/fail');
-- it has repaired itself (somebody set it right by hand)
SELECT observe('target/fail', 't', 'B', 6), observe('target/fail', 't', 'B', 7);
SELECT * FROM status('target/fail');
SELECT start('target/fail', 't', 'B');
-- ahead while diverged
SELECT observe('target/fail', 't', 'B', 6), observe('target/fail', 't', 'B', 9);
SELECT * FROM status('target/fail');
SELECT start('target/fail', 't', 'B'), observe('target/fail', 't', 'B', 9), observe('target/fail', 't', 'B', 7);
SELECT * FROM status('target/fail');
SELECT release('target/fail', 't', 'B');

-- A periodic observer takes the lease himself: nothing is handed out, so what is
-- applied is what should be there
SELECT job_key FROM fencing_apply_begin('target/fail', 't', who('O')) \gset
SELECT outcome, token FROM fencing_acquire(:'job_key', who('O'), '1 hour') \gset
SELECT fencing_apply_observe('target/fail', 't', :token, 7, digest('target/fail', 7)) AS same,
	fencing_apply_observe('target/fail', 't', :token, 8, digest('target/fail', 7)) AS higher,
	fencing_apply_observe('target/fail', 't', :token, 7, digest('target/fail', 7)) AS same_again;
SELECT publish_to('target/fail', 8);
SELECT fencing_apply_observe('target/fail', 't', :token, 7, digest('target/fail', 7)) AS same,
	fencing_apply_observe('target/fail', 't', :token, 5, digest('target/fail', 5)) AS lower;
SELECT * FROM status('target/fail');
SELECT start('target/fail', 't', 'O'), observe('target/fail', 't', 'O', 5), observe('target/fail', 't', 'O', 8);
SELECT release('target/fail', 't', 'O');
SELECT * FROM status('target/fail');
-- of a target that has nothing: empty is what it should be
SELECT fencing_target_desire('target/fail', 'empty');
SELECT job_key FROM fencing_apply_begin('target/fail', 'empty', who('A')) \gset
SELECT fencing_release(:'job_key', who('A'), 1);
SELECT outcome, token FROM fencing_acquire(:'job_key', who('O'), '1 hour') \gset
SELECT fencing_apply_observe('target/fail', 'empty', :token, NULL, NULL);
SELECT * FROM status('target/fail', 'empty');
SELECT fencing_apply_observe('target/fail', 'empty', :token, 1, digest('target/fail', 1));

--
-- Deletions: an empty target has one
--
SELECT publish_to('target/deleted', 1), fencing_target_desire('target/deleted', 't'), fencing_target_desire('target/deleted', 'u');
SELECT start('target/deleted', 't', 'A'), observe('target/deleted', 't', 'A', 1);
SELECT outcome, version FROM fencing_publish_delete('target/deleted', 1);
SELECT outcome, token, version, content, digest = sha256('') AS digest FROM fencing_apply_begin('target/deleted', 't', who('A'));
SELECT start('target/deleted', 't', 'A'), observe('target/deleted', 't', 'A', 1), observe('target/deleted', 't', 'A', NULL);
SELECT * FROM status('target/deleted');
-- recorded with its number by a target that keeps one
SELECT observe('target/deleted', 't', 'A', 2), observe('target/deleted', 't', 'A', NULL);
-- a target that never had anything
SELECT start('target/deleted', 'u', 'A'), observe('target/deleted', 'u', 'A', NULL);
SELECT * FROM status('target/deleted', 'u');
-- what comes back is not there any more
SELECT observe('target/deleted', 't', 'A', 1), start('target/deleted', 't', 'A');
SELECT observe('target/deleted', 't', 'A', 1), observe('target/deleted', 't', 'A', NULL);
SELECT * FROM status('target/deleted');
-- the document is made again
SELECT outcome, version FROM fencing_publish('target/deleted', 2, '{"v": 3}');
SELECT start('target/deleted', 't', 'A'), observe('target/deleted', 't', 'A', NULL), observe('target/deleted', 't', 'A', 2), observe('target/deleted', 't', 'A', 3);
SELECT * FROM status('target/deleted');
SELECT observe('target/deleted', 't', 'A', NULL);

--
-- reject: a version that cannot be applied does not block the next
--
SELECT publish_to('target/reject', 3), fencing_target_desire('target/reject', 't');
SELECT start('target/reject', 't', 'A'), observe('target/reject', 't', 'A', NULL);
SELECT fencing_apply_reject('target/reject', 't', 3, 'no space left');
SELECT * FROM status('target/reject');
SELECT last_error, last_error_at <= clock_timestamp() AS at FROM fencing.rollout_status WHERE document_id = 'target/reject';
-- nobody is told to write it any more
SELECT observe('target/reject', 't', 'A', NULL);
-- it is not handed out any more, and neither is a lower one
SELECT start('target/reject', 't', 'A');
SELECT release('target/reject', 't', 'A');
SELECT outcome, token, version, digest FROM fencing_apply_begin('target/reject', 't', who('A'));
-- again, with another reason; a lower one does not take it back
SELECT fencing_apply_reject('target/reject', 't', 3, 'still no space'), fencing_apply_reject('target/reject', 't', 2, 'nor here');
SELECT applied_version, rejected_version, last_error FROM fencing.rollout_status WHERE document_id = 'target/reject';
SELECT start('target/reject', 't', 'A');
-- the next one is
SELECT publish_to('target/reject', 4);
SELECT start('target/reject', 't', 'A'), observe('target/reject', 't', 'A', NULL), observe('target/reject', 't', 'A', 4);
SELECT * FROM status('target/reject');
SELECT last_error, last_error_at FROM fencing.rollout_status WHERE document_id = 'target/reject';
-- what is applied, or lower, is not rejected any more
SELECT fencing_apply_reject('target/reject', 't', 4, 'late'), fencing_apply_reject('target/reject', 't', 3, 'late');
SELECT * FROM status('target/reject');
-- it may be applied after all: read back, or in this database
SELECT publish_to('target/reject', 5);
SELECT start('target/reject', 't', 'A'), observe('target/reject', 't', 'A', 4), fencing_apply_reject('target/reject', 't', 5, 'timeout'), observe('target/reject', 't', 'A', 5);
SELECT * FROM status('target/reject');
SELECT publish_to('target/reject', 6);
SELECT fencing_apply_reject('target/reject', 't', 6, 'timeout');
SELECT outcome, applied_version FROM fencing_apply('target/reject', 't', 6, digest('target/reject', 6), statement => 'SELECT 1 / 0');
SELECT fencing_target_desire('target/reject', 't');
SELECT outcome, applied_version FROM fencing_apply('target/reject', 't', 6, digest('target/reject', 6), statement => 'SELECT 1');
SELECT * FROM status('target/reject');
-- one that is desired and was rejected: it waits for the desire of another
SELECT publish_to('target/reject', 8);
SELECT fencing_target_desire('target/reject', 't', 7), fencing_apply_reject('target/reject', 't', 7, 'bad');
SELECT outcome FROM fencing_apply_begin('target/reject', 't', who('B'));
SELECT * FROM status('target/reject');
SELECT fencing_target_desire('target/reject', 't');
SELECT release('target/reject', 't', 'A'), start('target/reject', 't', 'B');
-- diverged, with a rejected version above: the applied one is repaired
SELECT fencing_apply_reject('target/reject', 't', 8, 'bad too');
SELECT observe('target/reject', 't', 'B', 5);
SELECT start('target/reject', 't', 'B'), observe('target/reject', 't', 'B', 5), observe('target/reject', 't', 'B', 6);
SELECT * FROM status('target/reject');
-- pinned below a version whose rejection comes late: only that one is given up
SELECT publish_to('target/pin', 5), fencing_target_desire('target/pin', 't', 3);
SELECT start('target/pin', 't', 'A'), observe('target/pin', 't', 'A', 3), fencing_target_desire('target/pin', 't'), start('target/pin', 't', 'A');
SELECT fencing_target_desire('target/pin', 't', 4), start('target/pin', 't', 'A'), fencing_apply_reject('target/pin', 't', 5, 'bad');
SELECT rejected_version, last_error FROM fencing.rollout_status WHERE document_id = 'target/pin';
SELECT observe('target/pin', 't', 'A', 3), start('target/pin', 't', 'A');
-- and not in place of one of the desired version
SELECT fencing_apply_reject('target/pin', 't', 4, 'bad as well'), fencing_apply_reject('target/pin', 't', 5, 'bad');
SELECT rejected_version, last_error FROM fencing.rollout_status WHERE document_id = 'target/pin';
SELECT observe('target/pin', 't', 'A', 3), start('target/pin', 't', 'A');
-- another desire takes it back
SELECT fencing_target_desire('target/pin', 't', 4), start('target/pin', 't', 'A'), observe('target/pin', 't', 'A', 4);
-- given up, but written after all: who comes next reads it back
SELECT fencing_target_desire('target/pin', 't'), start('target/pin', 't', 'A'), fencing_apply_reject('target/pin', 't', 5, 'timeout'), release('target/pin', 't', 'A');
SELECT outcome, job_key FROM fencing_apply_begin('target/pin', 't', who('O')) \gset
\echo :outcome
SELECT token FROM fencing_acquire(:'job_key', who('O'), '1 hour') \gset
SELECT fencing_apply_observe('target/pin', 't', :token, 5, digest('target/pin', 4)) AS other_content, fencing_apply_observe('target/pin', 't', :token, 6, digest('target/pin', 5)) AS higher,
	fencing_apply_observe('target/pin', 't', :token, 5, digest('target/pin', 5)) AS that;
SELECT * FROM status('target/pin');
-- where nothing is published any version may be given up
SELECT fencing_target_desire('target/elsewhere', 't'), fencing_apply_reject('target/elsewhere', 't', 7, 'no space left');
SELECT rejected_version, last_error FROM fencing.rollout_status WHERE document_id = 'target/elsewhere';
-- the reason stays until another version is applied, whatever is read back
SELECT publish_to('target/reason', 1), fencing_target_desire('target/reason', 't');
SELECT start('target/reason', 't', 'A'), observe('target/reason', 't', 'A', 1), publish_to('target/reason', 2), fencing_apply_reject('target/reason', 't', 2, 'no space left');
SELECT last_error FROM fencing.rollout_status WHERE document_id = 'target/reason';
SELECT observe('target/reason', 't', 'A', 1);
SELECT rejected_version, last_error FROM fencing.rollout_status WHERE document_id = 'target/reason';
-- a target, and a version, that is not there; of a document that is published
-- elsewhere any version may be
SELECT attempt($$SELECT fencing_apply_reject('target/reject', 't', 9, 'bad')$$), fencing_apply_reject('target/none', 't', 9, 'bad');
SELECT attempt($$SELECT fencing_apply_reject('target/reject', 'unknown', 8, 'bad')$$), attempt($$SELECT fencing_apply_reject('target/unknown', 't', 8, 'bad')$$);

--
-- A target that is applied to from here and from outside: one watermark
--
SELECT publish_to('target/both', 4), fencing_target_desire('target/both', 't', 2);
SELECT start('target/both', 't', 'A');
-- a lease is no obstacle to fencing_apply, but what is desired is
SELECT outcome, applied_version FROM fencing_apply('target/both', 't', 3, digest('target/both', 3), statement => 'SELECT 1 / 0');
SELECT fencing_target_desire('target/both', 't', 3);
SELECT outcome, applied_version FROM fencing_apply('target/both', 't', 3, digest('target/both', 3), statement => 'SELECT 1');
-- what was handed out is below it now; what is applied is what should be there
SELECT observe('target/both', 't', 'A', 3), observe('target/both', 't', 'A', 4), observe('target/both', 't', 'A', 2);
SELECT * FROM status('target/both');
SELECT fencing_target_desire('target/both', 't');
SELECT start('target/both', 't', 'A'), observe('target/both', 't', 'A', 2), observe('target/both', 't', 'A', 4);
SELECT outcome, applied_version, result FROM fencing_apply('target/both', 't', 4, digest('target/both', 4), statement => 'SELECT 1 / 0');
SELECT outcome, applied_version FROM fencing_apply('target/both', 't', 3, digest('target/both', 3), statement => 'SELECT 1 / 0');
SELECT * FROM status('target/both');

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
CREATE FUNCTION d() RETURNS bytea LANGUAGE sql AS $$ SELECT fencing_digest('{"v": 1}') $$;
CREATE FUNCTION long(n int) RETURNS text LANGUAGE sql AS $$ SELECT repeat('k', n % 2) || repeat(U&'\00E9', n / 2) $$;
SELECT publish_to('target/a', 1), fencing_target_desire('target/a', 't');
SELECT start('target/a', 't', 'A');
SELECT md5(t::text) AS before FROM fencing.targets t WHERE document_id = 'target/a' \gset
CALL attempt_all('fencing_apply_begin', ARRAY[
	'NULL, ''t'', who(''A'')', '''target/a'', NULL, who(''A'')', '''target/a'', ''t'', NULL', '''target/a'', ''t'', who(''A''), NULL',
	''''', ''t'', who(''A'')', '''target/a'', '''', who(''A'')', 'long(513), ''t'', who(''A'')', '''target/a'', long(514), who(''A'')',
	'''target/a'', ''t'', who(''A''), ''0''', '''target/a'', ''t'', who(''A''), ''-1 s''', '''target/a'', ''t'', who(''A''), ''25 hours''']);
CALL attempt_all('fencing_apply_observe', ARRAY[
	'NULL, ''t'', 1, 1, d()', '''target/a'', NULL, 1, 1, d()', '''target/a'', ''t'', NULL, 1, d()', '''target/a'', ''t'', 1, NULL, d()', '''target/a'', ''t'', 1, 1, NULL',
	''''', ''t'', 1, 1, d()', '''target/a'', '''', 1, 1, d()', 'long(513), ''t'', 1, 1, d()', '''target/a'', long(514), 1, 1, d()',
	'''target/a'', ''t'', 0, 1, d()', '''target/a'', ''t'', -1, 1, d()', '''target/a'', ''t'', 2, 1, d()', '''target/a'', ''t'', 9223372036854775807, 1, d()',
	'''target/a'', ''t'', 1, 0, d()', '''target/a'', ''t'', 1, -1, d()', '''target/a'', ''t'', 1, (-9223372036854775808)::bigint, d()']);
CALL attempt_all('fencing_apply_reject', ARRAY[
	'NULL, ''t'', 1, ''why''', '''target/a'', NULL, 1, ''why''', '''target/a'', ''t'', NULL, ''why''', '''target/a'', ''t'', 1, NULL', '''target/a'', ''t'', 1, ''''',
	''''', ''t'', 1, ''why''', '''target/a'', '''', 1, ''why''', 'long(513), ''t'', 1, ''why''', '''target/a'', long(514), 1, ''why''',
	'''target/a'', ''t'', 0, ''why''', '''target/a'', ''t'', -1, ''why''']);
SELECT call, answer FROM attempts ORDER BY n;
SELECT md5(t::text) = :'before' AS unchanged FROM fencing.targets t WHERE document_id = 'target/a';
-- read-only
BEGIN READ ONLY;
SELECT attempt($$SELECT fencing_apply_begin('target/a', 't', who('A'))$$) AS begin, attempt($$SELECT fencing_apply_begin('target/a', 't', who('B'))$$) AS held;
SELECT attempt($$SELECT fencing_apply_begin('target/next', 't', who('B'))$$) AS done, attempt($$SELECT fencing_apply_begin('target/a', 'unknown', who('A'))$$) AS unknown;
SELECT attempt($$SELECT fencing_apply_observe('target/a', 't', 1, 1, d())$$) AS observe, attempt($$SELECT fencing_apply_observe('target/a', 't', 1, NULL, NULL)$$) AS empty;
SELECT attempt($$SELECT fencing_apply_reject('target/a', 't', 1, 'why')$$) AS reject;
ROLLBACK;
SELECT md5(t::text) = :'before' AS unchanged FROM fencing.targets t WHERE document_id = 'target/a';
-- a digest that is none is another digest; long reasons
SELECT fencing_apply_observe('target/a', 't', 1, 1, '\x');
SELECT start('target/a', 't', 'A'), observe('target/a', 't', 'A', 1);
SELECT publish_to('target/a', 2), fencing_apply_reject('target/a', 't', 2, repeat('why ', 100000));

--
-- Tokens of the past: forgotten, and of a former epoch
--
SELECT publish_to('target/past', 2), fencing_target_desire('target/past', 't');
SELECT start('target/past', 't', 'A', '1 microsecond'), key('target/past', 't', 'A');
SELECT fencing_forget(job_key) FROM handed WHERE document = 'target/past';
SELECT observe('target/past', 't', 'A', 2);
SELECT start('target/past', 't', 'B', '1 hour') LIKE 'acquired%' AS acquired, key('target/past', 't', 'B'), observe('target/past', 't', 'A', 2) AS a, observe('target/past', 't', 'B', 1) AS b;
UPDATE fencing.floor SET epoch = 1;
\c -
SET client_min_messages = warning;
SET search_path = regress_target, public;
SELECT observe('target/past', 't', 'B', 2);
SELECT start('target/past', 't', 'B', '1 hour') LIKE 'acquired%' AS acquired, key('target/past', 't', 'B'), observe('target/past', 't', 'B', 2);
SELECT * FROM status('target/past');
UPDATE fencing.floor SET epoch = 0, floor = 0;

SET session_replication_role = replica;
DELETE FROM fencing.revisions WHERE document_id LIKE 'target/%';
RESET session_replication_role;
DELETE FROM fencing.targets WHERE document_id LIKE 'target/%';
DELETE FROM fencing.documents WHERE document_id LIKE 'target/%';
DELETE FROM fencing.revocations;
DELETE FROM fencing.leases WHERE job_key LIKE 'apply/%';
DELETE FROM fencing.fences WHERE job_key LIKE 'apply/%';
SELECT more FROM fencing_purge('events', '1 microsecond', 1000000);
DROP SCHEMA regress_target CASCADE;
