--
-- Epochs and the floor, as far as one server that is never restarted shows
-- them: what fencing_new_epoch() ends, what it leaves, how the epoch of a
-- database is computed, and what fencing_forget() leaves behind.
--
\set VERBOSITY sqlstate
SET client_min_messages = error;

-- Tokens are shown as epoch and number within it, the epoch relative to the one
-- at the start.  A database in its first epoch shows absolute ones.
UPDATE fencing.floor SET floor = 0;
SELECT fencing.epoch_start() >> 36 AS first, tli AS own_tli FROM fencing.floor \gset
CREATE SCHEMA regress_epoch;
SET search_path = regress_epoch, public;
CREATE TABLE at_start AS SELECT :first::bigint AS epoch;
CREATE TABLE own_tli AS SELECT :own_tli AS tli;
CREATE FUNCTION show(token bigint) RETURNS text LANGUAGE sql AS
$$ SELECT format('%s:%s', (token >> 36) - epoch, token & ((1::bigint << 36) - 1)) FROM at_start $$;
CREATE FUNCTION token(epochs int, number bigint) RETURNS bigint LANGUAGE sql AS
$$ SELECT ((epoch + epochs) << 36) + number FROM at_start $$;
CREATE FUNCTION acquire(job text, who text DEFAULT 'A', ttl interval DEFAULT '1 hour') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	r record;
BEGIN
	SELECT * INTO r FROM fencing_acquire(job, md5(who)::uuid, ttl);
	RETURN concat_ws(' ', r.outcome, show(r.token));
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
CREATE FUNCTION commit(job text, token bigint, payload jsonb DEFAULT '1', step text DEFAULT '') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	r record;
BEGIN
	SELECT * INTO r FROM fencing_commit(job, token, payload, 'SELECT 1 AS was_run', step);
	RETURN concat_ws(' ', r.outcome, r.result);
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
CREATE FUNCTION new_epoch(reason text, above bigint DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	RETURN show(fencing_new_epoch(reason, above));
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
CREATE VIEW floors AS SELECT dboid = (SELECT oid FROM pg_database WHERE datname = current_database()) AS own_database,
	reloid = 'fencing.floor'::regclass AS own_table, epoch - (SELECT epoch FROM at_start) AS epoch, show(floor) AS floor FROM fencing.floor;

CREATE VIEW revocations AS SELECT * FROM fencing.revocations WHERE job_key IS NULL OR job_key LIKE 'epoch/%';

--
-- What a new epoch ends
--
-- a: live, committed; b: live; c: revoked, live again; d: ended; e: purged;
-- p: committed, two steps; f: forgotten; x: external
SELECT acquire('epoch/' || j) FROM unnest('{a,b,c,d,e,f,p}'::text[]) j;
SELECT commit('epoch/a', token(0, 1)), commit('epoch/p', token(0, 1), step => 'a'), commit('epoch/e', token(0, 1));
SELECT show(fencing_revoke('epoch/c', 'test')), acquire('epoch/c');
SELECT fencing_release('epoch/d', md5('A')::uuid, token(0, 1)), fencing_release('epoch/f', md5('A')::uuid, token(0, 1)), fencing_forget('epoch/f');
SELECT show(fencing_revoke('epoch/e', 'test'));
UPDATE fencing.receipts SET committed_at = committed_at - interval '2 hours' WHERE job_key = 'epoch/e';
SELECT purged FROM fencing_purge('receipts', '1 hour');
SELECT outcome FROM fencing_advance('epoch/x', 7);
UPDATE fencing.floor SET floor = 0;
DELETE FROM revocations;
SELECT job_key, live, remaining IS NOT NULL AS rest FROM fencing.lease_status WHERE job_key LIKE 'epoch/%' ORDER BY 1;
SELECT show(fencing.epoch_start());

SELECT show(epoch_start) AS epoch_start FROM fencing_new_epoch('restored from yesterday''s snapshot');
SELECT show(fencing.epoch_start());
SELECT * FROM floors;
-- leases
SELECT job_key, live, remaining IS NOT NULL AS rest, former_epoch FROM fencing.lease_status WHERE job_key LIKE 'epoch/%' ORDER BY 1;
SELECT j, acquire('epoch/' || j, 'B') FROM unnest('{a,b,c}'::text[]) j;
SELECT j, outcome, token, lease_until FROM unnest('{a,b}'::text[]) j, fencing_renew('epoch/' || j, md5('A')::uuid, token(0, 1));
SELECT j, fencing_release('epoch/' || j, md5('A')::uuid, token(0, 1)) FROM unnest('{a,b,d}'::text[]) j;
-- commits: with a receipt as ever, without one stale, and never LF001: the old
-- epoch may have issued more than there is left to see
SELECT j, n, commit('epoch/' || j, token(0, n)) AS the_same, commit('epoch/' || j, token(0, n), '2') AS another_payload,
	commit('epoch/' || j, token(0, n), step => 'b') AS another_step
FROM unnest('{a,b,c,d,e}'::text[]) j, unnest('{1,2,3,68719476735}'::bigint[]) n ORDER BY 1, 2;
SELECT commit('epoch/p', token(0, 1), step => 'a'), commit('epoch/p', token(0, 1), step => 'b');
SELECT commit('epoch/a', token(1, 0)), commit('epoch/a', token(1, 1)), commit('epoch/a', token(2, 0));
SELECT outcome, result, committed_at, show(fence), error FROM fencing_commit('epoch/b', token(0, 1), '1');
SELECT outcome, error FROM fencing_commit('epoch/b', token(0, 1), '1', 'SELECT 1', report_errors => true);
SELECT outcome FROM fencing_commit('epoch/b', token(0, 1), '1', strict => true);
SELECT count(*) FROM fencing_receipt('epoch/a', token(0, 1));
-- no fence row: pruned, unless no epoch has issued it
SELECT j, commit(j, token(0, 1)), commit(j, token(1, 0)) AS last, commit(j, token(1, 1)) AS above FROM unnest('{epoch/f,epoch/never}'::text[]) j;
-- the same owner, another one, a new job, the forgotten one
SELECT acquire('epoch/a'), acquire('epoch/a'), acquire('epoch/a', 'B');
SELECT acquire('epoch/b', 'B'), acquire('epoch/c', 'A'), acquire('epoch/n'), acquire('epoch/f');
SELECT job_key, live FROM fencing.lease_status WHERE job_key LIKE 'epoch/%' ORDER BY 1;
-- revoked before anybody acquires again: above the epoch, too
SELECT show(fencing_revoke('epoch/d', 'test')), acquire('epoch/d');
-- afterwards all is as usual
SELECT commit('epoch/a', token(1, 1)) AS replayed, commit('epoch/a', token(1, 1), step => 'new') AS new_step, commit('epoch/a', token(1, 1), step => 'new') AS again;
SELECT commit('epoch/b', token(1, 1)), commit('epoch/b', token(0, 1)), commit('epoch/b', token(1, 2));
SELECT (fencing_renew('epoch/b', md5('B')::uuid, token(1, 1))).outcome AS renew, fencing_release('epoch/b', md5('B')::uuid, token(1, 1)), acquire('epoch/b', 'B');
-- external jobs are none of its business
SELECT commit('epoch/x', 7), commit('epoch/x', 7), commit('epoch/x', 6), commit('epoch/x', 8);
SELECT * FROM fencing_advance('epoch/x', 7);
SELECT * FROM fencing_advance('epoch/x', 8);
SELECT * FROM fencing_advance('epoch/y', 1);
SELECT commit('epoch/x', 8), commit('epoch/x', 7), commit('epoch/y', 1);
SELECT fencing_revoke('epoch/x', 'test');

--
-- Who did it
--
CREATE ROLE regress_epoch;
GRANT USAGE ON SCHEMA regress_epoch TO regress_epoch;
GRANT SELECT ON at_start TO regress_epoch;
SET ROLE regress_epoch;
SELECT new_epoch('not allowed');
RESET ROLE;
SELECT fencing_grant('regress_epoch', k) FROM unnest('{client,relay,target,publisher,external}'::text[]) k;
SET ROLE regress_epoch;
SELECT new_epoch('not allowed');
RESET ROLE;
SELECT fencing_grant('regress_epoch', 'admin');
SET ROLE regress_epoch;
SELECT new_epoch('by an administrator');
INSERT INTO fencing.floor VALUES (1, 1, 1, 1, 1, 1);
RESET ROLE;
SELECT fencing_ungrant('regress_epoch', k) FROM unnest('{client,relay,target,publisher,external,admin}'::text[]) k;
SELECT job_key, show(token) AS token, reason, revoked_by = session_user AS by_session_user, client_addr,
	revoked_at BETWEEN now() - interval '1 hour' AND clock_timestamp() AS now
FROM revocations ORDER BY id;
DELETE FROM revocations;

--
-- Who may look: pg_monitor, at everything that needs no secret
--
GRANT pg_monitor TO regress_epoch;
SET ROLE regress_epoch;
SELECT epoch_start = fencing.epoch_start() AS same, since IS NOT NULL AS since, new_epoch_needed FROM fencing.epoch_status;
SELECT count(*) >= 0 AS may FROM fencing.revocations;
SELECT count(*) >= 0 AS may FROM fencing.lease_status;
SELECT * FROM fencing.floor;
DELETE FROM fencing.revocations;
RESET ROLE;
REVOKE pg_monitor FROM regress_epoch;
-- and nobody else
SET ROLE regress_epoch;
SELECT * FROM fencing.epoch_status;
SELECT * FROM fencing.read_epoch();
SELECT * FROM fencing.revocations;
RESET ROLE;
-- no view shows a time that a client cannot read
SELECT count(*) FROM (SELECT table_name, column_name FROM information_schema.columns JOIN information_schema.views USING (table_schema, table_name)
	WHERE table_schema = 'fencing' AND data_type LIKE 'timestamp%') c
CROSS JOIN LATERAL query_to_xml(format('SELECT 1 FROM fencing.%I WHERE NOT isfinite(%I)', table_name, column_name), true, false, '') AS x
WHERE x::text LIKE '%row%';

--
-- Sequences: a new epoch moves them above what the tables hold, and never back
--
SELECT show(fencing_revoke('epoch/n', 'test')) IS NOT NULL AS done FROM generate_series(1, 3);
SELECT fencing_outbox_emit('epoch', 'e', 'test', '1') IS NOT NULL AS done FROM generate_series(1, 3);
SELECT last_value AS revocations FROM fencing.revocations_id_seq \gset
SELECT last_value AS events FROM fencing.outbox_no_seq \gset
-- as logical replication leaves them
SELECT setval('fencing.revocations_id_seq', 1, false), setval('fencing.outbox_no_seq', 1, false);
SELECT new_epoch('switched over') IS NOT NULL AS done;
SELECT (SELECT last_value FROM fencing.revocations_id_seq) - :revocations AS revocations,
	(SELECT last_value FROM fencing.outbox_no_seq) - :events AS events;
SELECT fencing_outbox_emit('epoch', 'e', 'test', '1') IS NOT NULL AS emitted, show(fencing_revoke('epoch/n', 'test')) IS NOT NULL AS revoked;
SELECT setval('fencing.outbox_no_seq', :events + 100) > 0 AS set, setval('fencing.revocations_id_seq', :revocations + 100) > 0 AS set;
SELECT new_epoch('nothing to do') IS NOT NULL AS done;
SELECT (SELECT last_value FROM fencing.revocations_id_seq) - :revocations AS revocations,
	(SELECT last_value FROM fencing.outbox_no_seq) - :events AS events;
-- of events that are gone the consumers know: a number that they take for done
-- would not be delivered
SELECT fencing_outbox_subscribe('epoch/consumer', true);
UPDATE fencing.outbox_consumers SET after_no = :events + 300 WHERE consumer = 'epoch/consumer';
SELECT new_epoch('switched over') IS NOT NULL AS done;
SELECT last_value - :events AS events FROM fencing.outbox_no_seq;
SELECT fencing_outbox_unsubscribe('epoch/consumer');
-- undone, they stay where they are: that does no harm
SELECT setval('fencing.outbox_no_seq', 1);
BEGIN;
SELECT new_epoch('undone') IS NOT NULL AS done;
ROLLBACK;
SELECT last_value >= :events AS events FROM fencing.outbox_no_seq;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT new_epoch('repeatable read') IS NOT NULL AS done;
COMMIT;
SELECT purged > 0 AS purged FROM fencing_purge('events', '1 microsecond');
\set back 'DELETE FROM fencing.floor WHERE reloid <> \'fencing.floor\'::regclass OR sysid <> (SELECT system_identifier FROM pg_control_system()); UPDATE fencing.floor SET epoch = :first, floor = 0, tli = :own_tli; DELETE FROM fencing.leases WHERE job_key LIKE \'epoch/%\'; DELETE FROM fencing.fences WHERE job_key LIKE \'epoch/%\'; DELETE FROM fencing.receipts WHERE job_key LIKE \'epoch/%\'; DELETE FROM revocations;'
:back

--
-- Arguments
--
SELECT new_epoch(NULL) AS null, new_epoch('') AS empty, new_epoch(NULL, 1) AS null_above, new_epoch('', 1) AS empty_above;
SELECT show(fencing.epoch_start());
SELECT count(*) FROM revocations;
-- above a token: what is lower changes nothing, so the next epoch
SELECT new_epoch('above', 1), new_epoch('above', token(2, 5)), new_epoch('above', token(5, 0)), acquire('epoch/above');
-- the next token is above it, wherever in an epoch it lies
SELECT i, n, show(token(i, n)) AS given, new_epoch('above', token(i, n)), fencing.epoch_start() >= token(i, n) AS above,
	(fencing_acquire('epoch/above', md5('A')::uuid)).token > token(i, n) AS next
FROM (VALUES (10, 0), (20, 1), (30, (1::bigint << 36) - 1)) v (i, n);
SELECT new_epoch('up to 2^53', (1::bigint << 53) - 1) IS NOT NULL AS done, fencing.epoch_start() >= (1::bigint << 53) - 1 AS above;
-- above all that there is: refused, and nothing changes
SELECT fencing.epoch_start() AS before \gset
SELECT n, new_epoch('too high', n) FROM unnest('{9223372036854775807,9223372036854775806,9223372036854700000}'::bigint[]) n;
SELECT fencing.epoch_start() = :before AS unchanged;
SELECT n, new_epoch('below', n) FROM unnest('{0,-1,-9223372036854775808}'::bigint[]) n;
-- back to the start
:back
-- Another connection, as a backend may remember the epoch while nobody tells it
-- of an UPDATE by hand.
\c -
\set VERBOSITY sqlstate
SET client_min_messages = error;
SET search_path = regress_epoch, public;
SELECT show(fencing.epoch_start()), acquire('epoch/a');

--
-- Transactions
--
-- read only
BEGIN READ ONLY;
SELECT new_epoch('read only');
ROLLBACK;
-- undone: as if it had not been, in this session too
BEGIN;
SELECT new_epoch('undone'), show(fencing.epoch_start()), commit('epoch/a', token(0, 1)), acquire('epoch/a'), acquire('epoch/n');
ROLLBACK;
SELECT show(fencing.epoch_start()), commit('epoch/a', token(0, 1)), acquire('epoch/a'), acquire('epoch/n');
SELECT count(*) FROM revocations;
BEGIN;
SAVEPOINT s;
SELECT new_epoch('undone'), commit('epoch/n', token(0, 1)), acquire('epoch/n');
ROLLBACK TO s;
SELECT show(fencing.epoch_start()), commit('epoch/n', token(0, 1)), acquire('epoch/n');
SAVEPOINT s;
SELECT new_epoch('kept');
RELEASE s;
SELECT show(fencing.epoch_start()), commit('epoch/n', token(0, 1)), commit('epoch/n', token(0, 1), step => 'b'), acquire('epoch/n');
COMMIT;
SELECT show(fencing.epoch_start()), commit('epoch/n', token(0, 1)), commit('epoch/n', token(0, 1), step => 'b'), acquire('epoch/n');
-- after a commit in the same transaction, which stays
BEGIN;
SELECT acquire('epoch/o'), commit('epoch/o', token(1, 1), step => 'a');
SELECT new_epoch('own'), commit('epoch/o', token(1, 1), step => 'a'), commit('epoch/o', token(1, 1), step => 'b');
COMMIT;
SELECT commit('epoch/o', token(1, 1), step => 'a'), commit('epoch/o', token(1, 1), step => 'b');
-- two at once, and an error after it
BEGIN;
SELECT new_epoch('first'), new_epoch('second'), acquire('epoch/o');
SELECT 1/0;
ROLLBACK;
SELECT show(fencing.epoch_start()), acquire('epoch/o');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT new_epoch('repeatable read'), acquire('epoch/o');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT new_epoch('serializable'), acquire('epoch/o');
COMMIT;
SELECT show(fencing.epoch_start());
-- what is purged in a new epoch
SELECT commit('epoch/o', token(4, 1));
UPDATE fencing.receipts SET committed_at = committed_at - interval '2 hours' WHERE job_key IN ('epoch/a', 'epoch/o');
SELECT job_key, show(token) FROM fencing.receipts WHERE job_key IN ('epoch/a', 'epoch/o') ORDER BY 1, 2;
-- not the current token's, be it of a former epoch
SELECT purged FROM fencing_purge('receipts', '1 hour');
SELECT job_key, show(token) FROM fencing.receipts WHERE job_key IN ('epoch/a', 'epoch/o') ORDER BY 1, 2;
SELECT commit('epoch/a', token(0, 1)), commit('epoch/o', token(1, 1), step => 'a'), commit('epoch/o', token(1, 1), step => 'b'),
	commit('epoch/o', token(4, 1));

--
-- The floor that fencing_forget() leaves
--
:back
\c -
\set VERBOSITY sqlstate
SET client_min_messages = error;
SET search_path = regress_epoch, public;
SELECT acquire('epoch/f', ttl => '1 microsecond') FROM generate_series(1, 3);
SELECT acquire('epoch/g', ttl => '1 microsecond') FROM generate_series(1, 2);
SELECT fencing_forget('epoch/f');
SELECT * FROM floors;
-- counts for new jobs, and for those that there are
SELECT acquire('epoch/f', ttl => '1 microsecond'), acquire('epoch/n', ttl => '1 microsecond'), acquire('epoch/g', ttl => '1 microsecond');
-- a lower one does not lower it; undone, it does not count
SELECT acquire('epoch/f', ttl => '1 microsecond'), acquire('epoch/f', ttl => '1 microsecond');
BEGIN;
SELECT fencing_forget('epoch/f');
SELECT * FROM floors;
ROLLBACK;
SELECT fencing_forget('epoch/n');
SELECT * FROM floors;
UPDATE fencing.floor SET floor = token(0, 100);
SELECT fencing_forget('epoch/f');
SELECT * FROM floors;
-- a floor judges nobody: only what is issued must be above it
SELECT commit('epoch/g', token(0, 4)), commit('epoch/g', token(0, 3)), commit('epoch/g', token(0, 5)), commit('epoch/f', token(0, 100)), commit('epoch/f', token(0, 101));
-- forgotten in a former epoch, or in this one
SELECT new_epoch('test'), acquire('epoch/g', ttl => '1 microsecond'), acquire('epoch/h', ttl => '1 microsecond'), acquire('epoch/h', ttl => '1 microsecond');
SELECT fencing_forget('epoch/h');
SELECT * FROM floors;
SELECT commit('epoch/h', token(1, 2)), commit('epoch/h', token(1, 3)), acquire('epoch/h'), acquire('epoch/i');
SELECT new_epoch('test');
SELECT * FROM floors;
SELECT acquire('epoch/h'), acquire('epoch/i'), acquire('epoch/k');
SELECT fencing_forget('epoch/g');
SELECT commit('epoch/g', token(0, 4)), commit('epoch/g', token(1, 3)), acquire('epoch/g');
-- one whose lease of a former epoch others are waiting for may not be forgotten
SELECT acquire('epoch/l'), new_epoch('test');
SELECT fencing_forget('epoch/l');
SELECT show(fencing_revoke('epoch/l', 'test'));
SELECT fencing_forget('epoch/l');
SELECT acquire('epoch/l');

--
-- How the epoch is computed.  What another timeline, a restore or a copy leave in
-- fencing.floor is put there by hand; each time by a new connection.
--
CREATE PROCEDURE has_been(epoch bigint, tli int, floor bigint DEFAULT 0) LANGUAGE sql AS $$
DELETE FROM fencing.floor;
INSERT INTO fencing.floor
SELECT system_identifier, d.oid, 'fencing.floor'::regclass, has_been.tli, has_been.epoch + a.epoch, has_been.floor
FROM pg_control_system(), pg_database d, at_start a WHERE d.datname = current_database();
$$;
CREATE PROCEDURE came_from(epoch bigint, what text) LANGUAGE sql AS $$
INSERT INTO fencing.floor
SELECT system_identifier + (what = 'cluster')::int, CASE what WHEN 'database' THEN 1 ELSE d.oid END,
	CASE what WHEN 'table' THEN 1 ELSE 'fencing.floor'::regclass::oid END, 1, came_from.epoch + a.epoch, 50
FROM pg_control_system(), pg_database d, at_start a WHERE d.datname = current_database();
$$;
-- (t - 1), which a cluster that was never promoted does not have
CREATE FUNCTION show_from(token bigint, own_tli int) RETURNS text LANGUAGE sql AS $$ SELECT show(token - ((own_tli - 1)::bigint << 36)) $$;
DELETE FROM fencing.fences WHERE job_key LIKE 'epoch/%';
DELETE FROM fencing.leases WHERE job_key LIKE 'epoch/%';
DELETE FROM fencing.receipts WHERE job_key LIKE 'epoch/%';

CREATE VIEW status AS SELECT timeline - (SELECT tli FROM own_tli) AS timeline, epoch - (SELECT epoch FROM at_start) AS epoch,
	show(epoch_start) AS epoch_start, since BETWEEN now() - interval '1 hour' AND clock_timestamp() AS since,
	epochs_left + epoch AS epochs, new_epoch_needed AS needed, show(floor) AS floor, other_identities AS others,
	highest_other_epoch - (SELECT epoch FROM at_start) AS highest FROM fencing.epoch_status;
CREATE VIEW state AS SELECT epoch - (SELECT epoch FROM at_start) AS epoch, show(floor) AS floor, reloid = 'fencing.floor'::regclass
	AND dboid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND sysid = (SELECT system_identifier FROM pg_control_system()) AS own,
	tli = (SELECT tli FROM own_tli) AS own_tli FROM fencing.floor ORDER BY 3, 1;
CREATE PROCEDURE forget_all() LANGUAGE sql AS $$
DELETE FROM fencing.leases WHERE job_key LIKE 'epoch/%';
DELETE FROM fencing.fences WHERE job_key LIKE 'epoch/%';
DELETE FROM fencing.receipts WHERE job_key LIKE 'epoch/%';
$$;

-- On its own timeline: as it stands.
CALL forget_all();
CALL has_been(3, :own_tli, 5);
\c -
\set VERBOSITY sqlstate
SET client_min_messages = error;
SET search_path = regress_epoch, public;
SELECT show(fencing.epoch_start()), acquire('epoch/a'), commit('epoch/a', token(3, 1));
SELECT * FROM state;
-- A row one timeline behind, as after a promotion: one epoch up, at once; the
-- first who issues a token writes it down, and the floor is kept.
CALL has_been(3, :own_tli - 1, 5);
\c -
\set VERBOSITY sqlstate
SET client_min_messages = error;
SET search_path = regress_epoch, public;
SELECT show(fencing.epoch_start()), commit('epoch/a', token(3, 1)), commit('epoch/a', token(3, 1), step => 'b'), commit('epoch/a', token(3, 2)), commit('epoch/never', token(3, 2));
SELECT live FROM fencing.lease_status WHERE job_key = 'epoch/a';
SELECT * FROM state;
-- nothing has been issued in it
SELECT * FROM status;
SELECT acquire('epoch/a'), acquire('epoch/n');
SELECT * FROM state;
SELECT * FROM status;
\c -
\set VERBOSITY sqlstate
SET client_min_messages = error;
SET search_path = regress_epoch, public;
SELECT show(fencing.epoch_start());
-- A new epoch goes on from there.
CALL has_been(3, :own_tli - 1, 5);
\c -
\set VERBOSITY sqlstate
SET client_min_messages = error;
SET search_path = regress_epoch, public;
SELECT new_epoch('promoted');
SELECT * FROM state;

-- A row ahead of the timeline: the database has gone back behind itself, and
-- nothing is issued or accepted; receipts are read as ever.
CALL forget_all();
CALL has_been(3, :own_tli, 5);
\c -
\set VERBOSITY sqlstate
SET client_min_messages = error;
SET search_path = regress_epoch, public;
SELECT acquire('epoch/a'), commit('epoch/a', token(3, 1));
SELECT outcome FROM fencing_advance('epoch/x', 1);
CALL has_been(3, :own_tli + 1, 5);
\c -
\set VERBOSITY sqlstate
SET client_min_messages = error;
SET search_path = regress_epoch, public;
SELECT acquire('epoch/a'), acquire('epoch/a', 'B'), acquire('epoch/n');
SELECT commit('epoch/a', token(3, 1)) AS replay, commit('epoch/a', token(3, 1), '2') AS conflict, commit('epoch/a', token(3, 1), step => 'b') AS new_step,
	commit('epoch/never', token(3, 1)) AS no_job;
SELECT count(*) FROM fencing_receipt('epoch/a', token(3, 1));
SELECT fencing_revoke('epoch/a', 'test');
SELECT fencing_renew('epoch/a', md5('A')::uuid, token(3, 1));
SELECT show(fencing.epoch_start());
-- what an operator looks at answers all the same
SELECT job_key, live FROM fencing.lease_status WHERE job_key LIKE 'epoch/%';
SELECT * FROM status;
SELECT * FROM state;
SELECT new_epoch('restored') > '3:' AS done;
SELECT * FROM state;
SELECT acquire('epoch/a') = 'acquired ' || show(fencing.epoch_start() + 1) AS next, commit('epoch/a', token(3, 1)), commit('epoch/a', token(3, 1), step => 'b');

-- Rows of another table, database or cluster, with an epoch as high as its own or
-- higher, as a restore or a copy brings them: 1024 epochs above the highest.
CALL has_been(3, :own_tli, 5);
CALL came_from(3, 'table');
\c -
\set VERBOSITY sqlstate
SET client_min_messages = error;
SET search_path = regress_epoch, public;
SELECT show_from(fencing.epoch_start(), :own_tli);
CALL has_been(3, :own_tli, 5);
CALL came_from(7, 'database');
\c -
\set VERBOSITY sqlstate
SET client_min_messages = error;
SET search_path = regress_epoch, public;
SELECT show_from(fencing.epoch_start(), :own_tli);
CALL has_been(3, :own_tli, 5);
CALL came_from(7, 'cluster');
CALL came_from(9, 'table');
CALL came_from(8, 'database');
\c -
\set VERBOSITY sqlstate
SET client_min_messages = error;
SET search_path = regress_epoch, public;
SELECT show_from(fencing.epoch_start(), :own_tli), commit('epoch/a', token(9, 1)), commit('epoch/never', token(500, 1));
-- written by the first issuer, once; the others' rows stay
SELECT acquire('epoch/a') = 'acquired ' || show(fencing.epoch_start() + 1) AS next;
SELECT epoch - CASE WHEN own THEN :own_tli - 1 ELSE 0 END AS epoch, floor, own, own_tli OR NOT own AS own_tli FROM state;
SELECT since, needed, others, highest FROM status;
\c -
\set VERBOSITY sqlstate
SET client_min_messages = error;
SET search_path = regress_epoch, public;
SELECT show_from(fencing.epoch_start(), :own_tli);
-- a lower one counts for nothing
CALL has_been(3, :own_tli, 5);
CALL came_from(2, 'cluster');
\c -
\set VERBOSITY sqlstate
SET client_min_messages = error;
SET search_path = regress_epoch, public;
SELECT show(fencing.epoch_start());
-- no row of its own
CALL has_been(3, :own_tli, 5);
CALL came_from(7, 'cluster');
DELETE FROM fencing.floor WHERE reloid = 'fencing.floor'::regclass AND sysid = (SELECT system_identifier FROM pg_control_system());
\c -
\set VERBOSITY sqlstate
SET client_min_messages = error;
SET search_path = regress_epoch, public;
SELECT show_from(fencing.epoch_start(), :own_tli);
SELECT acquire('epoch/n') = 'acquired ' || show(fencing.epoch_start() + 1) AS next;
SELECT epoch - CASE WHEN own THEN :own_tli - 1 ELSE 0 END AS epoch, floor, own FROM state;
-- no row at all
CALL forget_all();
DELETE FROM fencing.floor;
\c -
\set VERBOSITY sqlstate
SET client_min_messages = error;
SET search_path = regress_epoch, public;
SELECT (fencing.epoch_start() >> 36) - (:own_tli - 1) AS epoch;
SELECT acquire('epoch/n') = 'acquired ' || show(fencing.epoch_start() + 1) AS next;
SELECT own, own_tli FROM state;
-- a new epoch in such a database
CALL has_been(3, :own_tli, 5);
CALL came_from(7, 'cluster');
\c -
\set VERBOSITY sqlstate
SET client_min_messages = error;
SET search_path = regress_epoch, public;
SELECT show_from(fencing_new_epoch('copied'), :own_tli);
CALL has_been(3, :own_tli, 5);
CALL came_from(7, 'cluster');
DELETE FROM fencing.floor WHERE reloid = 'fencing.floor'::regclass AND sysid = (SELECT system_identifier FROM pg_control_system());
\c -
\set VERBOSITY sqlstate
SET client_min_messages = error;
SET search_path = regress_epoch, public;
SELECT show_from(fencing_new_epoch('copied'), :own_tli);
SELECT epoch - CASE WHEN own THEN :own_tli - 1 ELSE 0 END AS epoch, own FROM state;

-- Everything back for those who come after.
CALL has_been(0, :own_tli);
:back
\c -
\set VERBOSITY sqlstate
SET client_min_messages = error;
SET search_path = regress_epoch, public;
SELECT show(fencing.epoch_start());
SELECT * FROM state;
DROP SCHEMA regress_epoch CASCADE;
DROP ROLE regress_epoch;
