--
-- The outbox: every outcome of emit, subscribe, read, ack, park and purge, and
-- the order of delivery.
--
-- Events are called by their type here, which no two share: a1, a2, ... are of
-- the aggregate a, in this order.
--
UPDATE fencing.floor SET floor = 0;
SET client_min_messages = warning;
CREATE SCHEMA regress_outbox;
SET search_path = regress_outbox, public;

-- what other tests have left
DELETE FROM fencing.outbox_consumers;
SELECT FROM fencing_purge('events', '1 microsecond', 1000000);
SELECT (SELECT count(*) FROM fencing.outbox) AS events, (SELECT count(*) FROM fencing.outbox_consumers) AS consumers,
	(SELECT count(*) FROM fencing.outbox_acks) AS acks;

CREATE TABLE event (n serial, name text, id uuid);
CREATE FUNCTION emit(names text) RETURNS void LANGUAGE sql AS $$
INSERT INTO event (name, id)
SELECT name, fencing_outbox_emit('letter', left(name, 1), name, to_jsonb(name))
FROM (SELECT name FROM string_to_table(names, ' ') WITH ORDINALITY t(name, i) ORDER BY i OFFSET 0) x
$$;
-- a name without an event is an id without an event
CREATE FUNCTION id(event_name text) RETURNS uuid LANGUAGE sql AS
$$ SELECT coalesce((SELECT id FROM event WHERE name = event_name ORDER BY n DESC LIMIT 1), md5(event_name)::uuid) $$;
-- The order is one of each aggregate: answers are sorted by aggregate.
CREATE FUNCTION read(consumer text, token bigint, max_rows int DEFAULT 100) RETURNS text LANGUAGE sql AS $$
SELECT string_agg(answer, ', ' ORDER BY answer)
FROM (SELECT string_agg(CASE WHEN outcome = 'current' THEN type ELSE outcome::text END, ' ' ORDER BY ordinality) AS answer
	FROM fencing_outbox_read(consumer, token, max_rows) WITH ORDINALITY
	GROUP BY aggregate_id) a
$$;
CREATE FUNCTION ack(consumer text, token bigint, names text) RETURNS text LANGUAGE sql AS
$$ SELECT outcome || ' ' || acked FROM fencing_outbox_ack(consumer, token, ARRAY(SELECT id(name) FROM string_to_table(names, ' ') t(name))) $$;
CREATE FUNCTION park(consumer text, token bigint, name text, reason text) RETURNS fencing_outcome LANGUAGE sql AS
$$ SELECT fencing_outbox_park(consumer, token, id(name), reason) $$;
CREATE FUNCTION status(of text) RETURNS text LANGUAGE sql AS $$
SELECT format('pending %s, parked %s, oldest %s', pending, parked, (SELECT min(type) FROM fencing.outbox WHERE created_at = oldest))
FROM fencing.outbox_status WHERE consumer = of
$$;
CREATE FUNCTION token(job text, ttl interval DEFAULT '1 hour', owner text DEFAULT 'A') RETURNS bigint LANGUAGE sql AS
$$ SELECT token FROM fencing_acquire(job, md5(owner)::uuid, ttl) $$;
-- an answer, or the error
CREATE FUNCTION attempt(call text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE answer text;
BEGIN
	EXECUTE call INTO answer;
	RETURN coalesce(answer, 'no row');
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ': ' || SQLERRM;
END $$;
CREATE FUNCTION state() RETURNS text LANGUAGE sql AS $$
SELECT md5(concat_ws('|',
	(SELECT string_agg(e::text, ',' ORDER BY e.no) FROM fencing.outbox e),
	(SELECT string_agg(c::text, ',' ORDER BY c.consumer) FROM fencing.outbox_consumers c),
	(SELECT string_agg(a::text, ',' ORDER BY a.consumer, a.event_no) FROM fencing.outbox_acks a)))
$$;

--
-- The columns that an outbox event router takes as they are
--
SELECT attname, format_type(atttypid, atttypmod) AS type, attnotnull
FROM pg_attribute WHERE attrelid = 'fencing.outbox'::regclass
	AND attname IN ('id', 'aggregatetype', 'aggregateid', 'type', 'payload') ORDER BY attname;
-- logical replication of it needs an identity and must not lose any row
SELECT relreplident, relpersistence, relkind,
	(SELECT count(*) FROM pg_index WHERE indrelid = c.oid AND indisprimary) AS primary_keys
FROM pg_class c WHERE oid = 'fencing.outbox'::regclass;

--
-- emit
--
SELECT fencing_outbox_subscribe('outbox/all', true);
SELECT token('outbox/all') AS all \gset
SELECT clock_timestamp() AS t0 \gset
SELECT fencing_outbox_emit('order', '4711', 'order placed', '{"lines": [{"sku": "x", "n": 1.50}]}') AS id \gset
-- all of it, as it was given
SELECT id = :'id' AS same_id, aggregatetype, aggregateid, type, payload, created_at BETWEEN :'t0' AND clock_timestamp() AS at_clock
FROM fencing.outbox;
SELECT outcome, id = :'id' AS same_id, aggregate_type, aggregate_id, type, payload, created_at BETWEEN :'t0' AND clock_timestamp() AS at_clock
FROM fencing_outbox_read('outbox/all', :all);
-- ids are of no pattern and no two are equal
SELECT count(DISTINCT fencing_outbox_emit('order', '4711', 'n', to_jsonb(n))) AS ids FROM generate_series(1, 1000) n;
-- in the order of the calls, by number and by clock
SELECT count(*) FILTER (WHERE payload::int <> n) AS out_of_order, count(*) FILTER (WHERE created_at < before) AS clock_back
FROM (SELECT payload, created_at, row_number() OVER w AS n, lag(created_at) OVER w AS before
	FROM fencing_outbox_read('outbox/all', :all, 2000) WITH ORDINALITY
	WHERE type = 'n' WINDOW w AS (ORDER BY ordinality)) e;
SELECT outcome, acked FROM fencing_outbox_ack('outbox/all', :all,
	ARRAY(SELECT id FROM fencing_outbox_read('outbox/all', :all, 2000)));
SELECT read('outbox/all', :all);

-- any payload there is, also JSON's null, a scalar and 5 MB
SELECT fencing_outbox_emit('payload', p::text, 'p', p) IS NOT NULL AS emitted
FROM unnest(ARRAY['null', '0', '""', '[]', '{}', '{"a": null}', '1.50']::jsonb[]) p;
SELECT fencing_outbox_emit('payload', 'large', 'p', to_jsonb(repeat('0123456789', 500000))) IS NOT NULL AS emitted;
SELECT left(payload::text, 20) AS payload, length(payload::text)
FROM fencing_outbox_read('outbox/all', :all) WITH ORDINALITY ORDER BY ordinality;
-- keys are compared byte by byte, and one part is not taken for another: all of
-- these are aggregates of their own, so the first can be acknowledged of each
SELECT outcome, acked FROM fencing_outbox_ack('outbox/all', :all,
	ARRAY(SELECT id FROM fencing_outbox_read('outbox/all', :all, 2000)));
CREATE TABLE key (n serial, t text, i text);
INSERT INTO key (t, i) VALUES ('k', 'x'), ('K', 'x'), ('k', 'X'), ('k', 'x '), ('k ', 'x'), (' k', 'x'), ('kx', 'x'), ('k', 'xx'), ('x', 'k'),
	('k', U&'Caf\00E9'), ('k', U&'Cafe\0301'), ('k', U&'\+01F600'), (E'k\t', 'x'), ('k,', 'x'), ('k', ',x'), ('k', E'\\'), ('k', ''''),
	(rpad('k', 512, 'k'), rpad('x', 512, 'x')), (repeat(U&'\00E9', 256), repeat(U&'\+01F600', 128));
SELECT count(fencing_outbox_emit(t, i, 'first', to_jsonb(n))) FROM key;
SELECT count(fencing_outbox_emit(t, i, 'second', to_jsonb(n))) FROM key;
SELECT count(*) AS as_written FROM fencing_outbox_read('outbox/all', :all) r JOIN key ON n = payload::int AND t = aggregate_type COLLATE "C" AND i = aggregate_id COLLATE "C";
SELECT count(*) AS later_first FROM key, LATERAL fencing_outbox_ack('outbox/all', :all,
	ARRAY(SELECT id FROM fencing.outbox e WHERE e.type = 'second' AND payload::int = n)) a WHERE a.outcome <> 'conflict';
SELECT count(*) AS in_order FROM key, LATERAL fencing_outbox_ack('outbox/all', :all,
	ARRAY(SELECT id FROM fencing.outbox e WHERE e.type = 'first' AND payload::int = n)) a WHERE a.outcome = 'committed' AND a.acked = 1;
SELECT outcome, acked FROM fencing_outbox_ack('outbox/all', :all,
	ARRAY(SELECT id FROM fencing_outbox_read('outbox/all', :all, 2000)));

--
-- subscribe
--
-- what is written above, and the letters
CREATE FUNCTION from_start(consumer text, token bigint) RETURNS text LANGUAGE sql AS $$
SELECT concat_ws(', ', count(*) FILTER (WHERE aggregate_type <> 'letter'), string_agg(type, ' ' ORDER BY type) FILTER (WHERE aggregate_type = 'letter'))
FROM fencing_outbox_read(consumer, token, 10000)
$$;
SELECT emit('a1 b1');
-- from now on, or from the start; what is purged is the start's end
SELECT fencing_outbox_subscribe('outbox/new', false);
SELECT fencing_outbox_subscribe('outbox/start', true);
SELECT token('outbox/new') AS new, token('outbox/start') AS start \gset
SELECT emit('a2 c1');
SELECT read('outbox/new', :new) AS new, from_start('outbox/start', :start) AS start;
-- again, with either value: no change, neither to what is to come nor to what was done
SELECT ack('outbox/new', :new, 'a2');
SELECT fencing_outbox_subscribe('outbox/new', false);
SELECT fencing_outbox_subscribe('outbox/new', true);
SELECT fencing_outbox_subscribe('outbox/start', false);
SELECT read('outbox/new', :new) AS new, from_start('outbox/start', :start) AS start;
SELECT ack('outbox/new', :new, 'a2') AS new;
-- a subscription that is rolled back is none
BEGIN;
SELECT fencing_outbox_subscribe('outbox/back', true);
SELECT emit('a3');
ROLLBACK;
SELECT read('outbox/back', 1);
SELECT read('outbox/new', :new);
-- one that is rolled back to a savepoint neither, and one in a subtransaction is one
BEGIN;
SAVEPOINT s;
SELECT fencing_outbox_subscribe('outbox/back', true);
ROLLBACK TO s;
SELECT fencing_outbox_subscribe('outbox/sub', false);
RELEASE s;
COMMIT;
SELECT consumer FROM fencing.outbox_status ORDER BY consumer;
-- events of the transaction that subscribes: they commit later than the call
SELECT token('outbox/own') AS own \gset
BEGIN;
SELECT emit('o1');
SELECT fencing_outbox_subscribe('outbox/own', false);
SELECT emit('o2');
COMMIT;
SELECT read('outbox/own', :own);
SELECT fencing_outbox_unsubscribe('outbox/own'), fencing_outbox_unsubscribe('outbox/sub');
SELECT ack('outbox/new', :new, 'o1 o2') AS new, ack('outbox/all', :all, 'o1 o2') AS all, ack('outbox/start', :start, 'o1 o2') AS start;

-- unsubscribe: no more events, and twice is as once; nothing is left of it
SELECT fencing_outbox_unsubscribe('outbox/new');
SELECT read('outbox/new', :new);
SELECT ack('outbox/new', :new, 'c1');
SELECT park('outbox/new', :new, 'c1', 'bad');
SELECT fencing_outbox_unsubscribe('outbox/new');
SELECT fencing_outbox_unsubscribe('outbox/never was there');
SELECT count(*) FROM fencing.outbox_acks WHERE consumer = 'outbox/new';
-- and again: from now on
SELECT emit('a4');
SELECT fencing_outbox_subscribe('outbox/new', false);
SELECT read('outbox/new', :new);
SELECT emit('a5');
SELECT read('outbox/new', :new);
-- or from the start, what was acknowledged before included
SELECT fencing_outbox_unsubscribe('outbox/new');
SELECT fencing_outbox_subscribe('outbox/new', true);
SELECT from_start('outbox/new', :new);
SELECT fencing_outbox_unsubscribe('outbox/new'), fencing_outbox_unsubscribe('outbox/start');

--
-- read
--
SELECT fencing_outbox_unsubscribe('outbox/all');
-- no consumer: all is purged that is older than nothing
SELECT more FROM fencing_purge('events', '1 microsecond', 1000000);
SELECT count(*) FROM fencing.outbox;
TRUNCATE event;
SELECT fencing_outbox_subscribe('outbox/r', true);
SELECT token('outbox/r') AS r \gset
-- nothing to read is no row
SELECT read('outbox/r', :r);
SELECT emit('a1 b1 a2 c1 a3 b2');
SELECT read('outbox/r', :r);
-- it changes nothing: again the same
SELECT read('outbox/r', :r);
-- max_rows rows, of each aggregate the earliest; 100 is the default
SELECT n, (SELECT count(*) FROM fencing_outbox_read('outbox/r', :r, n)) AS rows,
	(SELECT count(*) FROM unnest(ARRAY['a1 a2 a3', 'b1 b2', 'c1']) whole, unnest(string_to_array(read('outbox/r', :r, n), ', ')) part
		WHERE starts_with(whole, part)) = (SELECT count(DISTINCT aggregate_id) FROM fencing_outbox_read('outbox/r', :r, n)) AS prefixes
FROM unnest(ARRAY[1, 2, 3, 4, 5, 6, 7, 2147483647]) n ORDER BY n;
SELECT count(fencing_outbox_emit('more', n::text, 'more', '0')) FROM generate_series(1, 100) n;
SELECT count(*) FROM fencing_outbox_read('outbox/r', :r);
SELECT outcome, acked FROM fencing_outbox_ack('outbox/r', :r, ARRAY(SELECT id FROM fencing.outbox WHERE type = 'more'));

-- expired, but not superseded: still current
UPDATE fencing.leases SET lease_until = clock_timestamp() - interval '1 s' WHERE job_key = 'outbox/r';
SELECT read('outbox/r', :r);
SELECT ack('outbox/r', :r, 'a1');
SELECT park('outbox/r', :r, 'b1', 'bad'), park('outbox/r', :r, 'b1', NULL);
-- released: likewise, as for a commit
SELECT fencing_release('outbox/r', md5('A')::uuid, :r);
SELECT read('outbox/r', :r);
-- superseded: one row, with nothing in it
SELECT token('outbox/r') AS r2 \gset
SELECT * FROM fencing_outbox_read('outbox/r', :r);
SELECT * FROM fencing_outbox_read('outbox/r', :r, 1);
SELECT read('outbox/r', :r2);
-- a number that was never issued
SELECT read('outbox/r', :r2 + 1);
\echo :SQLSTATE
SELECT ack('outbox/r', :r2 + 1, 'a2');
\echo :SQLSTATE
SELECT park('outbox/r', :r2 + 1, 'a2', 'bad');
\echo :SQLSTATE
-- of a job that was never acquired
SELECT fencing_outbox_subscribe('outbox/no job', false);
SELECT read('outbox/no job', 1);
\echo :SQLSTATE
SELECT ack('outbox/no job', 1, 'a2');
\echo :SQLSTATE
SELECT park('outbox/no job', 1, 'a2', 'bad');
\echo :SQLSTATE
SELECT fencing_outbox_unsubscribe('outbox/no job');

--
-- ack
--
-- of a stale token: stale, whatever the ids are, unless all is done already
SELECT ack('outbox/r', :r, 'a2') AS open, ack('outbox/r', :r, 'a1 a2') AS done_and_open, ack('outbox/r', :r, 'nothing') AS unknown;
SELECT read('outbox/r', :r2);
-- a reply that was lost is told what became of it, also after somebody took over
SELECT ack('outbox/r', :r, 'a1');
-- the earliest, several, all
SELECT ack('outbox/r', :r2, 'a2');
SELECT ack('outbox/r', :r2, 'a2');
SELECT ack('outbox/r', :r2, 'a3 b1 c1');
SELECT read('outbox/r', :r2);
-- replayed: all of them, in any order and number
SELECT ack('outbox/r', :r2, 'c1 a1 b1 a3 a2'), ack('outbox/r', :r2, 'a1 a1 a1'), ack('outbox/r', :r2, 'a3');
-- conflict: some of them, unknown ones, an earlier one open; nothing is acknowledged
SELECT emit('a4 a5 d1');
SELECT ack('outbox/r', :r2, 'a3 a4') AS some, ack('outbox/r', :r2, 'd1 b1') AS some_of_another,
	ack('outbox/r', :r2, 'nothing') AS unknown, ack('outbox/r', :r2, 'a4 nothing') AS unknown_too, ack('outbox/r', :r2, 'a3 nothing') AS unknown_and_done,
	ack('outbox/r', :r2, 'a5') AS later, ack('outbox/r', :r2, 'd1 a5') AS later_too;
SELECT read('outbox/r', :r2);
-- the earlier one may stand anywhere in the same call; twice is once
SELECT ack('outbox/r', :r2, 'a5 a4 a5 b2 a4 b2');
SELECT read('outbox/r', :r2);
-- an array has no shape here
SELECT emit('a6 a7 a8 a9');
SELECT outcome, acked FROM fencing_outbox_ack('outbox/r', :r2, ARRAY[ARRAY[id('a6'), id('a7')], ARRAY[id('a8'), id('a9')]]);
-- no ids: nothing is left to do
SELECT read('outbox/r', :r2), ack('outbox/r', :r2, ''), read('outbox/r', :r2);
-- it is part of its transaction, and of its subtransaction
BEGIN;
SELECT ack('outbox/r', :r2, 'd1');
SELECT read('outbox/r', :r2);
ROLLBACK;
SELECT read('outbox/r', :r2);
BEGIN;
SAVEPOINT s;
SELECT ack('outbox/r', :r2, 'd1');
ROLLBACK TO s;
SELECT read('outbox/r', :r2);
SELECT ack('outbox/r', :r2, 'd1');
SELECT ack('outbox/r', :r2, 'd1');
COMMIT;
SELECT read('outbox/r', :r2);
-- emitted and acknowledged in one transaction
BEGIN;
SELECT emit('d2');
SELECT read('outbox/r', :r2);
SELECT ack('outbox/r', :r2, 'd2');
SELECT read('outbox/r', :r2);
COMMIT;
SELECT read('outbox/r', :r2), ack('outbox/r', :r2, 'd2');
-- 10,000 ids at once
SELECT count(fencing_outbox_emit('many', (n % 7)::text, 'many', to_jsonb(n))) FROM generate_series(1, 10000) n;
SELECT outcome, acked FROM fencing_outbox_ack('outbox/r', :r2, ARRAY(SELECT id FROM fencing_outbox_read('outbox/r', :r2, 10000)));
SELECT read('outbox/r', :r2);

-- the exactly-once gate: the effect in the same transaction, after it
CREATE TABLE effect (name text);
CREATE FUNCTION handle(token bigint, names text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text := ack('outbox/r', token, names);
BEGIN
	IF answer LIKE 'committed%' THEN
		INSERT INTO effect SELECT string_to_table(names, ' ');
	END IF;
	RETURN answer;
END $$;
SELECT emit('e1 e2');
SELECT handle(:r, 'e1') AS stale, handle(:r2, 'e1') AS first, handle(:r2, 'e1') AS again, handle(:r2, 'e1 e2') AS more, handle(:r2, 'e2') AS second;
SELECT name, count(*) FROM effect GROUP BY name ORDER BY name;

--
-- park
--
SELECT emit('p1 p2 q1 p3 q2');
SELECT status('outbox/r');
SELECT park('outbox/r', :r2, 'p1', 'cannot be parsed');
-- with it the later ones of its aggregate, of now and to come, and no other
SELECT emit('p4 s1');
SELECT read('outbox/r', :r2), status('outbox/r');
-- it is open, so later ones cannot be acknowledged
SELECT ack('outbox/r', :r2, 'p2') AS later, ack('outbox/r', :r2, 'p2 q1') AS later_too;
SELECT ack('outbox/r', :r2, 'q1 s1');
SELECT read('outbox/r', :r2);
-- again, with another reason, and back, twice
SELECT park('outbox/r', :r2, 'p1', 'still not');
SELECT status('outbox/r');
SELECT park('outbox/r', :r2, 'p1', NULL), park('outbox/r', :r2, 'p1', NULL);
SELECT read('outbox/r', :r2), status('outbox/r');
-- not only the earliest
SELECT park('outbox/r', :r2, 'p3', 'later');
SELECT read('outbox/r', :r2), status('outbox/r');
SELECT ack('outbox/r', :r2, 'p1 p2');
SELECT read('outbox/r', :r2), status('outbox/r');
-- two of one aggregate: unparking one leaves the other
SELECT park('outbox/r', :r2, 'p4', 'too');
SELECT status('outbox/r');
SELECT park('outbox/r', :r2, 'p3', NULL);
SELECT read('outbox/r', :r2), status('outbox/r');
-- acknowledged by hand: done, and not parked any more
SELECT ack('outbox/r', :r2, 'p3 p4');
SELECT read('outbox/r', :r2), status('outbox/r');
-- conflict: acknowledged, unknown
SELECT park('outbox/r', :r2, 'p3', 'late') AS done, park('outbox/r', :r2, 'p3', NULL) AS done_too,
	park('outbox/r', :r2, 'nothing', 'unknown') AS unknown, park('outbox/r', :r2, 'nothing', NULL) AS unknown_too;
-- stale: whatever it is
SELECT park('outbox/r', :r, 'q2', 'stale') AS open, park('outbox/r', :r, 'q2', NULL) AS back, park('outbox/r', :r, 'nothing', 'stale') AS unknown;
SELECT read('outbox/r', :r2), status('outbox/r');
-- part of its transaction
BEGIN;
SELECT park('outbox/r', :r2, 'q2', 'bad');
SELECT read('outbox/r', :r2);
ROLLBACK;
SELECT read('outbox/r', :r2);
-- what is parked with much behind it is not in the way of others
SELECT emit('t1');
SELECT park('outbox/r', :r2, 't1', 'bad');
SELECT count(fencing_outbox_emit('letter', 't', 'behind', to_jsonb(n))) FROM generate_series(1, 300) n;
SELECT emit('u1 v1');
SELECT read('outbox/r', :r2, 3);
SELECT ack('outbox/r', :r2, 'q2 u1 v1'), read('outbox/r', :r2, 1), status('outbox/r');
-- a new subscription knows nothing of it
SELECT fencing_outbox_subscribe('outbox/r3', true);
SELECT token('outbox/r3') AS r3 \gset
SELECT count(*) FILTER (WHERE type = 't1') AS t1, count(*) FILTER (WHERE type = 'behind') AS behind
FROM fencing_outbox_read('outbox/r3', :r3, 100000);
SELECT fencing_outbox_unsubscribe('outbox/r3');

--
-- Consumers do not know of each other
--
SELECT fencing_outbox_subscribe('outbox/c1', false), fencing_outbox_subscribe('outbox/c2', false);
SELECT token('outbox/c1') AS c1, token('outbox/c2') AS c2 \gset
SELECT fencing_revoke('outbox/c2', 'count up') AS c2 \gset
SELECT emit('w1 x1 w2');
SELECT ack('outbox/c1', :c1, 'w1'), park('outbox/c2', :c2, 'w1', 'bad'), park('outbox/c1', :c1, 'x1', 'bad');
SELECT read('outbox/c1', :c1) AS c1, read('outbox/c2', :c2) AS c2;
SELECT status('outbox/c1') AS c1, status('outbox/c2') AS c2;
-- the token of one is not the token of another
SELECT read('outbox/c1', :c2);
\echo :SQLSTATE
SELECT read('outbox/c2', :c1);
SELECT fencing_outbox_unsubscribe('outbox/c2');
SELECT read('outbox/c1', :c1), status('outbox/c1');

-- A consumer whose tokens are issued elsewhere
SELECT fencing_outbox_subscribe('outbox/ext', false);
SELECT outcome, fence FROM fencing_advance('outbox/ext', 500);
SELECT emit('y1 y2');
SELECT read('outbox/ext', 500), ack('outbox/ext', 500, 'y1');
SELECT outcome, fence FROM fencing_advance('outbox/ext', 700);
SELECT read('outbox/ext', 500) AS lower, ack('outbox/ext', 500, 'y2') AS lower_ack, read('outbox/ext', 600) AS between, read('outbox/ext', 700) AS current;
SELECT ack('outbox/ext', 700, 'y2');
SELECT fencing_outbox_unsubscribe('outbox/ext');

-- A consumer whose job was forgotten: its tokens were issued, and are over; what
-- it has done stays done
SELECT fencing_outbox_subscribe('outbox/f', false);
SELECT token('outbox/f', '1 microsecond') AS f \gset
SELECT emit('f1 f2');
SELECT ack('outbox/f', :f, 'f1');
SELECT fencing_forget('outbox/f');
SELECT read('outbox/f', :f), ack('outbox/f', :f, 'f2'), park('outbox/f', :f, 'f2', 'bad');
SELECT token('outbox/f') AS f2 \gset
SELECT :f2 > :f AS higher, read('outbox/f', :f), read('outbox/f', :f2);
SELECT fencing_outbox_unsubscribe('outbox/f');

-- A token of a former epoch
SELECT fencing_outbox_subscribe('outbox/e', false);
SELECT token('outbox/e') AS e \gset
SELECT emit('g1 g2');
SELECT ack('outbox/e', :e, 'g1');
UPDATE fencing.floor SET epoch = 1;
\c -
SET client_min_messages = warning;
SET search_path = regress_outbox, public;
SELECT emit('g3');
SELECT read('outbox/e', :e), ack('outbox/e', :e, 'g2'), park('outbox/e', :e, 'g2', 'bad');
SELECT token('outbox/e') AS e2 \gset
SELECT :e2 > 2 ^ 36 AS higher, read('outbox/e', :e2);
SELECT ack('outbox/e', :e2, 'g2');
SELECT read('outbox/e', :e2), ack('outbox/e', :e2, 'g3');
SELECT read('outbox/e', :e2);
SELECT fencing_outbox_unsubscribe('outbox/e');
UPDATE fencing.floor SET epoch = 0, floor = 0;
\c -
SET client_min_messages = warning;
SET search_path = regress_outbox, public;

--
-- Inside the business function of a fenced commit, and of an operation
--
SELECT token('outbox/job') AS job \gset
SELECT outcome, jsonb_typeof(result) FROM fencing_commit('outbox/job', :job, '{"n": 1}',
	'SELECT to_jsonb(fencing_outbox_emit(''letter'', ''j'', ''j1'', $3))');
SELECT type, payload FROM fencing.outbox WHERE aggregateid = 'j';
-- said again: no second event
SELECT outcome, result = to_jsonb((SELECT id FROM fencing.outbox WHERE type = 'j1')) AS the_event FROM fencing_commit('outbox/job', :job, '{"n": 1}',
	'SELECT to_jsonb(fencing_outbox_emit(''letter'', ''j'', ''j1'', $3))');
-- conflict and stale: none
SELECT outcome FROM fencing_commit('outbox/job', :job, '{"n": 2}', 'SELECT fencing_outbox_emit(''letter'', ''j'', ''j2'', $3)');
SELECT fencing_revoke('outbox/job', 'stop') AS job2 \gset
SELECT outcome FROM fencing_commit('outbox/job', :job, '{"n": 2}', 'SELECT fencing_outbox_emit(''letter'', ''j'', ''j2'', $3)', 'other');
-- an error takes the event with it, also one that is answered
SELECT outcome FROM fencing_commit('outbox/job', :job2, '{"n": 3}', 'SELECT fencing_outbox_emit(''letter'', ''j'', ''j3'', $3), 1 / 0');
SELECT outcome, error->>'sqlstate' FROM fencing_commit('outbox/job', :job2, '{"n": 3}',
	'WITH e AS (SELECT fencing_outbox_emit(''letter'', ''j'', ''j3'', $3)) SELECT 1 / (SELECT 0 * count(*) FROM e)', report_errors => true);
SELECT outcome, error->>'sqlstate' AS sqlstate, error->>'message' AS message FROM fencing_commit('outbox/job', :job2, '{"n": 3}',
	'SELECT fencing_outbox_emit('''', ''j'', ''j3'', $3)', report_errors => true);
-- the gate alone, and the event in a later command
BEGIN;
SELECT outcome FROM fencing_commit('outbox/job', :job2, '{"n": 4}');
SELECT emit('j4');
ROLLBACK;
BEGIN;
SELECT outcome FROM fencing_commit('outbox/job', :job2, '{"n": 4}');
SELECT emit('j5');
COMMIT;
SELECT type, payload FROM fencing.outbox WHERE aggregateid = 'j' ORDER BY no;

CREATE FUNCTION may(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS boolean LANGUAGE sql AS
$$ SELECT auth->>'user' = 'alice' $$;
CREATE TABLE orders (key text, amount numeric);
SELECT fencing_define_operation('outbox/order', 'may(text, text, jsonb, jsonb)');
SELECT fencing_define_request('outbox/order', 1, '{"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]}');
CREATE FUNCTION place(key text, request jsonb, by_user text DEFAULT 'alice', report_errors boolean DEFAULT true) RETURNS text LANGUAGE sql AS $$
SELECT concat_ws(' ', outcome, error->>'sqlstate')
FROM fencing_once('t', 'outbox/order', key, request,
	'WITH o AS (INSERT INTO regress_outbox.orders VALUES ($3, ($4->>''amount'')::numeric) RETURNING amount),
		e AS (SELECT fencing_outbox_emit(''letter'', ''k'', ''k-'' || $3, $4) AS event FROM o)
	SELECT amount, event, 1 / amount AS fails FROM o, e',
	auth => jsonb_build_object('user', by_user), report_errors => report_errors)
$$;
-- one row and one event per key
SELECT place('one', '{"amount": 10}') AS first, place('one', '{"amount": 10.0}') AS again, place('one', '{"amount": 11}') AS other,
	place('one', '{"amount": 10}', 'mallory') AS denied, place('two', '{"amount": 0}') AS fails, place('three', '{}') AS invalid;
SELECT (SELECT string_agg(key || ' ' || amount, ', ') FROM orders) AS orders,
	(SELECT string_agg(type || ' ' || payload, ', ' ORDER BY no) FROM fencing.outbox WHERE aggregateid = 'k') AS events;
SELECT place('two', '{"amount": 0}', report_errors => false);
\echo :SQLSTATE
-- the key is free, and its event comes with it
SELECT place('two', '{"amount": 2}');
-- gate and response: the event between them
BEGIN;
SELECT outcome FROM fencing_once('t', 'outbox/order', 'four', '{"amount": 4}', auth => '{"user": "alice"}');
SELECT fencing_outbox_emit('letter', 'k', 'k-four', '4') IS NOT NULL AS emitted;
SELECT fencing_once_respond('t', 'outbox/order', 'four', '{"done": true}');
COMMIT;
-- forgotten: no record, no event
BEGIN;
SELECT outcome FROM fencing_once('t', 'outbox/order', 'five', '{"amount": 5}', auth => '{"user": "alice"}');
SELECT fencing_outbox_emit('letter', 'k', 'k-five', '5') IS NOT NULL AS emitted;
COMMIT;
\echo :SQLSTATE
SELECT string_agg(type, ', ' ORDER BY no) AS events FROM fencing.outbox WHERE aggregateid = 'k';

--
-- Immutable, for the owner and superuser too
--
SELECT emit('i1 i2');
SELECT state() AS before \gset
SELECT call, attempt(call) FROM unnest(ARRAY[
	'UPDATE fencing.outbox SET payload = ''{}'' WHERE type = ''i1''',
	'UPDATE fencing.outbox SET type = type',
	'UPDATE fencing.outbox SET created_at = created_at - interval ''1 year''',
	'DELETE FROM fencing.outbox WHERE type = ''i1''',
	'DELETE FROM fencing.outbox',
	'TRUNCATE fencing.outbox',
	'TRUNCATE fencing.outbox CASCADE',
	'INSERT INTO fencing.outbox SELECT * FROM fencing.outbox ON CONFLICT (no) DO UPDATE SET payload = ''{}''',
	'MERGE INTO fencing.outbox e USING (VALUES (1)) v ON e.type = ''i1'' WHEN MATCHED THEN DELETE',
	'WITH d AS (DELETE FROM fencing.outbox RETURNING 1) SELECT count(*) FROM d']) call;
-- whoever owns the tables
CREATE ROLE regress_outbox_owner;
GRANT USAGE ON SCHEMA fencing, regress_outbox TO regress_outbox_owner;
BEGIN;
ALTER TABLE fencing.outbox OWNER TO regress_outbox_owner;
SET LOCAL ROLE regress_outbox_owner;
SELECT call, attempt(call) FROM unnest(ARRAY['UPDATE fencing.outbox SET payload = ''{}''', 'DELETE FROM fencing.outbox', 'TRUNCATE fencing.outbox']) call;
ROLLBACK;
-- no setting lets it through
SELECT name FROM pg_settings WHERE name LIKE 'fencing.%' AND (name LIKE '%purge%' OR name LIKE '%immut%' OR name LIKE '%retention%');
-- a purge that passed did not leave the door open: in its transaction, after an
-- error in it
BEGIN;
SELECT more FROM fencing_purge('events', '1 hour');
SELECT attempt('DELETE FROM fencing.outbox');
COMMIT;
SELECT attempt('SELECT fencing_purge(''events'', ''0'')');
SELECT attempt('DELETE FROM fencing.outbox');
SELECT state() = :'before' AS unchanged;

--
-- purge
--
SELECT fencing_outbox_unsubscribe(consumer) FROM (SELECT consumer FROM fencing.outbox_status ORDER BY consumer OFFSET 0) s;
SELECT count(*) AS consumers FROM fencing.outbox_status;
-- no consumers: by age alone; nothing here is an hour old
SELECT purged, more FROM fencing_purge('events', '1 hour');
-- bounded: the oldest first
SELECT count(*) > 10000 AS many FROM fencing.outbox;
SELECT purged, more FROM fencing_purge('events', '1 microsecond');
SELECT more FROM fencing_purge('events', '1 microsecond', 1000000);
SELECT count(*) FROM fencing.outbox;
TRUNCATE event;
SELECT emit('a1 a2 a3 a4 a5');
SELECT purged, more FROM fencing_purge('events', '1 microsecond', 2);
SELECT string_agg(type, ' ' ORDER BY no) FROM fencing.outbox;
SELECT purged, more FROM fencing_purge('events', '1 microsecond', 1);
SELECT purged, more FROM fencing_purge('events', '1 microsecond', 5);
SELECT purged, more FROM fencing_purge('events', '1 microsecond', 5);

-- with consumers: what all of them have acknowledged
SELECT fencing_outbox_subscribe('outbox/p', true), fencing_outbox_subscribe('outbox/q', true);
SELECT token('outbox/p') AS p, token('outbox/q') AS q \gset
SELECT emit('a1 a2 a3 b1 b2 c1');
SELECT purged, more FROM fencing_purge('events', '1 microsecond');
SELECT ack('outbox/p', :p, 'a1 a2 b1 c1'), ack('outbox/q', :q, 'a1 b1');
-- parked is not acknowledged
SELECT park('outbox/q', :q, 'a2', 'bad'), park('outbox/p', :p, 'b2', 'bad');
SELECT purged, more FROM fencing_purge('events', '1 hour');
SELECT purged, more FROM fencing_purge('events', '1 microsecond', 1);
SELECT purged, more FROM fencing_purge('events', '1 microsecond', 1);
SELECT purged, more FROM fencing_purge('events', '1 microsecond', 1);
SELECT string_agg(type, ' ' ORDER BY no) FROM fencing.outbox;
-- and what is left is delivered as before
SELECT read('outbox/p', :p), read('outbox/q', :q), status('outbox/p') AS p, status('outbox/q') AS q;
SELECT ack('outbox/q', :q, 'a2 c1');
SELECT purged, more FROM fencing_purge('events', '1 microsecond');
SELECT string_agg(type, ' ' ORDER BY no) FROM fencing.outbox;
-- an id that is purged is unknown: nobody can tell any more, never committed
SELECT ack('outbox/p', :p, 'a1') AS purged, ack('outbox/p', :p, 'a1 a3') AS purged_and_open, park('outbox/p', :p, 'a1', 'late') AS park;
SELECT read('outbox/p', :p), read('outbox/q', :q);
-- a consumer that subscribed later holds nothing back that is not his
SELECT ack('outbox/p', :p, 'a3 b2'), ack('outbox/q', :q, 'a3 b2');
SELECT fencing_outbox_subscribe('outbox/later', false);
SELECT purged, more FROM fencing_purge('events', '1 microsecond');
-- but everything, if he wanted all of it
SELECT fencing_outbox_unsubscribe('outbox/later');
SELECT emit('d1');
SELECT ack('outbox/p', :p, 'd1'), ack('outbox/q', :q, 'd1');
SELECT fencing_outbox_subscribe('outbox/later', true);
SELECT purged, more FROM fencing_purge('events', '1 microsecond');
SELECT fencing_outbox_unsubscribe('outbox/later');
SELECT purged, more FROM fencing_purge('events', '1 microsecond');
-- who has gone holds nothing back
SELECT emit('e1');
SELECT ack('outbox/p', :p, 'e1');
SELECT purged, more FROM fencing_purge('events', '1 microsecond');
SELECT fencing_outbox_unsubscribe('outbox/q');
SELECT purged, more FROM fencing_purge('events', '1 microsecond');
-- an acknowledgement that is rolled back does not let an event go, a purge that
-- is rolled back neither
SELECT emit('f1');
BEGIN;
SELECT ack('outbox/p', :p, 'f1');
SELECT purged FROM fencing_purge('events', '1 microsecond');
ROLLBACK;
SELECT read('outbox/p', :p);
SELECT purged FROM fencing_purge('events', '1 microsecond');
SELECT ack('outbox/p', :p, 'f1');
SELECT purged FROM fencing_purge('events', '1 microsecond');

--
-- outbox_status
--
SELECT emit('a1 a2 b1');
SELECT fencing_outbox_subscribe('outbox/s', false);
SELECT consumer, pending, oldest IS NULL AS none, parked FROM fencing.outbox_status ORDER BY consumer;
SELECT emit('c1');
SELECT status('outbox/p') AS p, status('outbox/s') AS s;
SELECT ack('outbox/p', :p, 'a1'), park('outbox/p', :p, 'a2', 'bad'), ack('outbox/p', :p, 'b1');
SELECT status('outbox/p') AS p, status('outbox/s') AS s;
SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'fencing.outbox_status'::regclass ORDER BY attnum;
SELECT fencing_outbox_unsubscribe('outbox/p'), fencing_outbox_unsubscribe('outbox/s');

--
-- Read-only: refused, and nothing is written
--
SELECT fencing_outbox_subscribe('outbox/ro', true);
SELECT token('outbox/ro') AS ro \gset
SELECT state() AS before \gset
BEGIN READ ONLY;
SELECT attempt(call) FROM unnest(ARRAY['fencing_outbox_emit(''a'', ''i'', ''t'', ''1'')', 'fencing_outbox_subscribe(''outbox/ro2'', true)', 'fencing_outbox_unsubscribe(''outbox/ro'')',
	format('read(''outbox/ro'', %s)', :ro), format('ack(''outbox/ro'', %s, ''a1'')', :ro), format('park(''outbox/ro'', %s, ''a1'', ''bad'')', :ro),
	'fencing_purge(''events'', ''1 microsecond'')']) c, concat('SELECT ', c) call;
COMMIT;
SELECT state() = :'before' AS unchanged;

--
-- NULL and bad values in every argument
--
CREATE FUNCTION ascii(n int) RETURNS text LANGUAGE sql AS $$ SELECT rpad('outbox/', n, 'k') $$;
CREATE FUNCTION two_bytes(n int) RETURNS text LANGUAGE sql AS $$ SELECT repeat('k', n % 2) || repeat(U&'\00E9', n / 2) $$;
CREATE TABLE bad (n serial, call text);
INSERT INTO bad (call) SELECT format('fencing_outbox_emit(%s)', a) FROM unnest(ARRAY[
	'NULL, ''i'', ''t'', ''1''', '''a'', NULL, ''t'', ''1''', '''a'', ''i'', NULL, ''1''', '''a'', ''i'', ''t'', NULL', 'NULL, NULL, NULL, NULL',
	''''', ''i'', ''t'', ''1''', '''a'', '''', ''t'', ''1''', '''a'', ''i'', '''', ''1''',
	'ascii(513), ''i'', ''t'', ''1''', '''a'', ascii(513), ''t'', ''1''', '''a'', ''i'', ascii(513), ''1''', '''a'', ascii(1000000), ''t'', ''1''',
	'two_bytes(513), ''i'', ''t'', ''1''', '''a'', two_bytes(514), ''t'', ''1''', '''a'', ''i'', ''t'', ''not json''']) a;
INSERT INTO bad (call) SELECT format('fencing_outbox_subscribe(%s)', a) FROM unnest(ARRAY[
	'NULL, true', '''outbox/n'', NULL', ''''', true', 'ascii(513), true', 'two_bytes(513), true', 'two_bytes(514), false']) a;
INSERT INTO bad (call) SELECT format('fencing_outbox_unsubscribe(%s)', a) FROM unnest(ARRAY[
	'NULL', '''''', 'ascii(513)', 'two_bytes(513)']) a;
INSERT INTO bad (call) SELECT format('fencing_outbox_read(%s)', replace(a, '$', '''outbox/ro'', ' || :ro)) FROM unnest(ARRAY[
	'NULL, 1', '''outbox/ro'', NULL', '$, NULL', ''''', 1', 'ascii(513), 1', 'two_bytes(513), 1',
	'''outbox/ro'', 0', '''outbox/ro'', -1', '''outbox/ro'', (-9223372036854775808)::bigint', '''outbox/ro'', 9223372036854775807',
	'$, 0', '$, -1', '$, (-2147483648)::int', '''outbox/not subscribed'', 1']) a;
INSERT INTO bad (call) SELECT format('fencing_outbox_ack(%s)', replace(a, '$', '''outbox/ro'', ' || :ro)) FROM unnest(ARRAY[
	'NULL, 1, ''{}''', '''outbox/ro'', NULL, ''{}''', '$, NULL', ''''', 1, ''{}''', 'ascii(513), 1, ''{}''', 'two_bytes(513), 1, ''{}''',
	'''outbox/ro'', 0, ''{}''', '''outbox/ro'', -1, ''{}''', '''outbox/ro'', 9223372036854775807, ''{}''',
	'$, ''{NULL}''', '$, ARRAY[id(''a1''), NULL]', '$, ''{not a uuid}''', '''outbox/not subscribed'', 1, ''{}''']) a;
INSERT INTO bad (call) SELECT format('fencing_outbox_park(%s)', replace(a, '$', '''outbox/ro'', ' || :ro)) FROM unnest(ARRAY[
	'NULL, 1, id(''a1''), ''r''', '''outbox/ro'', NULL, id(''a1''), ''r''', '$, NULL, ''r''', '$, NULL, NULL', '$, id(''a1''), ''''',
	''''', 1, id(''a1''), ''r''', 'ascii(513), 1, id(''a1''), ''r''', 'two_bytes(513), 1, id(''a1''), ''r''',
	'''outbox/ro'', 0, id(''a1''), ''r''', '''outbox/ro'', -1, id(''a1''), NULL', '''outbox/ro'', 9223372036854775807, id(''a1''), ''r''',
	'''outbox/not subscribed'', 1, id(''a1''), ''r''']) a;
INSERT INTO bad (call) SELECT format('fencing_purge(%s)', a) FROM unnest(ARRAY[
	'NULL, ''1 s''', '''events'', NULL', '''events'', ''1 s'', NULL', '''event'', ''1 s''', ''''', ''1 s''', '''Events'', ''1 s''', '''outbox'', ''1 s''',
	'''events'', ''0''', '''events'', ''-1 microsecond''', '''events'', ''1 s'', 0', '''events'', ''1 s'', -1']) a;
SELECT call, attempt('SELECT ' || call) FROM bad ORDER BY n;
SELECT state() = :'before' AS unchanged;

-- the longest there may be, of each
SELECT fencing_outbox_subscribe(ascii(512), false), fencing_outbox_subscribe(two_bytes(512), false);
SELECT token(ascii(512)) AS long1, token(two_bytes(512)) AS long2 \gset
SELECT fencing_outbox_emit(ascii(512), two_bytes(512), two_bytes(511), '1') IS NOT NULL AS emitted;
SELECT length(aggregate_type), length(aggregate_id), length(type) FROM fencing_outbox_read(ascii(512), :long1);
SELECT fencing_outbox_park(ascii(512), :long1, id, repeat('reason ', 1000)) FROM fencing_outbox_read(ascii(512), :long1);
SELECT outcome, acked FROM fencing_outbox_read(two_bytes(512), :long2) r, LATERAL fencing_outbox_ack(two_bytes(512), :long2, ARRAY[r.id]) a (outcome_, acked);
SELECT left(consumer, 7) AS consumer, pending, parked FROM fencing.outbox_status WHERE octet_length(consumer) = 512 ORDER BY 1;
SELECT fencing_outbox_unsubscribe(ascii(512)), fencing_outbox_unsubscribe(two_bytes(512)), fencing_outbox_unsubscribe('outbox/ro');

--
-- Aggregates of the extension's own: nobody else writes their events or takes
-- their locks
--
\set VERBOSITY default
SELECT count(*) AS events FROM fencing.outbox \gset
BEGIN;
SAVEPOINT s;
SELECT fencing_outbox_emit('document', 'outbox/forged', 'publish', '{"version": 1}');
ROLLBACK TO s;
SELECT fencing_outbox_emit('tag', 'outbox/forged', 'tag.merged', '{}');
ROLLBACK TO s;
SELECT count(*) AS locks FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
COMMIT;
SELECT fencing_outbox_emit(t, 'outbox/forged', 'x', '1') IS NOT NULL AS emitted FROM unnest('{Document,documents,tags,order.tag}'::text[]) t;
SELECT outcome FROM fencing_publish('outbox/published', 0, '1');
SELECT count(*) - :events AS events, count(*) FILTER (WHERE aggregatetype = 'document' AND aggregateid LIKE 'outbox/%') AS documents FROM fencing.outbox;
\set VERBOSITY sqlstate

--
-- Wake-up: off by default, whoever emits may choose
--
SHOW fencing.outbox_notify;
SELECT context, vartype FROM pg_settings WHERE name = 'fencing.outbox_notify';

--
-- Roles
--
CREATE ROLE regress_outbox_client;
CREATE ROLE regress_outbox_relay;
CREATE ROLE regress_outbox_admin;
CREATE ROLE regress_outbox_watch IN ROLE pg_monitor;
CREATE ROLE regress_outbox_nobody;
SELECT fencing_grant('regress_outbox_client', 'client'), fencing_grant('regress_outbox_relay', 'relay'), fencing_grant('regress_outbox_admin', 'admin');
GRANT USAGE ON SCHEMA regress_outbox TO PUBLIC;
GRANT SELECT ON event TO PUBLIC;
CREATE TABLE calls (n serial, call text);
GRANT SELECT ON calls TO PUBLIC;
-- those that all can make come first, for those that may
INSERT INTO calls (call) VALUES ('SELECT fencing_outbox_subscribe(''outbox/role'', true)'),
	('SELECT fencing_outbox_emit(''role'', ''r'', ''r1'', ''1'') IS NOT NULL'),
	('SELECT outcome FROM fencing_acquire(''outbox/role'', md5(''A'')::uuid, ''1 hour'')'),
	('SELECT outcome FROM fencing_renew(''outbox/role'', md5(''A'')::uuid, 1)'),
	('SELECT count(*) > 0 FROM fencing_outbox_read(''outbox/role'', 1)'),
	('SELECT fencing_outbox_park(''outbox/role'', 1, md5(''no event'')::uuid, ''r'')'),
	('SELECT outcome FROM fencing_outbox_ack(''outbox/role'', 1, ARRAY[md5(''no event'')::uuid])'),
	('SELECT outcome FROM fencing_commit(''outbox/role'', 1, ''1'', ''SELECT 1'')'),
	('SELECT fencing_release(''outbox/role'', md5(''A'')::uuid, 1)'),
	('SELECT fencing_outbox_unsubscribe(''outbox/role'')'),
	('SELECT purged FROM fencing_purge(''events'', ''1 hour'')'),
	('SELECT count(*) >= 0 FROM fencing.outbox_status'),
	('SELECT count(*) FROM fencing.outbox'), ('SELECT count(*) FROM fencing.outbox_consumers'), ('SELECT count(*) FROM fencing.outbox_acks'),
	('SELECT count(*) FROM fencing.outbox_pending'), ('SELECT nextval(''fencing.outbox_no_seq'')'),
	('INSERT INTO fencing.outbox (type) VALUES (''x'')'), ('UPDATE fencing.outbox SET type = type'), ('DELETE FROM fencing.outbox'), ('TRUNCATE fencing.outbox'),
	('DELETE FROM fencing.outbox_acks'), ('UPDATE fencing.outbox_consumers SET since = NULL');
CREATE FUNCTION answers() RETURNS TABLE (n int, answer text) LANGUAGE plpgsql AS $$
DECLARE c record;
BEGIN
	FOR c IN SELECT * FROM calls ORDER BY calls.n LOOP
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
DELETE FROM fencing.leases WHERE job_key = 'outbox/role';
DELETE FROM fencing.fences WHERE job_key = 'outbox/role';
-- superuser first, so that the others find job and subscription, and what he unsubscribed again
SELECT * FROM answers() WHERE n <= 9;
SET ROLE regress_outbox_client;
CREATE TEMP TABLE client AS SELECT * FROM answers();
RESET ROLE;
SET ROLE regress_outbox_relay;
CREATE TEMP TABLE relay AS SELECT * FROM answers();
RESET ROLE;
SET ROLE regress_outbox_watch;
CREATE TEMP TABLE watch AS SELECT * FROM answers();
RESET ROLE;
SET ROLE regress_outbox_nobody;
CREATE TEMP TABLE nobody AS SELECT * FROM answers();
RESET ROLE;
SET ROLE regress_outbox_admin;
CREATE TEMP TABLE admin AS SELECT * FROM answers();
RESET ROLE;
SELECT regexp_replace(call, '^SELECT |\(.*| FROM fencing\.outbox$', '', 'g') AS call, client.answer AS client, relay.answer AS relay, admin.answer AS admin, watch.answer AS watch, nobody.answer AS nobody
FROM calls JOIN client USING (n) JOIN relay USING (n) JOIN admin USING (n) JOIN watch USING (n) JOIN nobody USING (n) ORDER BY n;
-- no view that people may read shows a payload
SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relnamespace = 'fencing'::regnamespace AND c.relkind = 'v' AND has_table_privilege('pg_monitor', c.oid, 'SELECT') AND a.attname = 'payload';

--
-- Against a model: many steps of two consumers, in transactions of
-- their own, so that what is done is forgotten on the way
--
SELECT more FROM fencing_purge('events', '1 microsecond', 1000000);
CREATE TABLE model (n serial PRIMARY KEY, agg text, id uuid, kept boolean DEFAULT true);
CREATE TABLE model_done (consumer text, n int, parked boolean, PRIMARY KEY (consumer, n));
CREATE TABLE difference (step int, what text, wanted text, got text);
CREATE TABLE answered (what text);
SELECT fencing_outbox_subscribe('outbox/m1', true), fencing_outbox_subscribe('outbox/m2', false);
SELECT token('outbox/m1', '1 microsecond'), token('outbox/m2', '1 microsecond');

-- what a consumer has not acknowledged
CREATE FUNCTION open_events(c text) RETURNS TABLE (n int, agg text, id uuid, parked boolean) LANGUAGE sql AS $$
SELECT m.n, m.agg, m.id, coalesce(d.parked, false) FROM model m LEFT JOIN model_done d ON d.consumer = c AND d.n = m.n
WHERE m.kept AND (d.parked IS NULL OR d.parked)
$$;
CREATE PROCEDURE check_read(step int, c text, t bigint, rows int) LANGUAGE plpgsql AS $$
DECLARE
	wanted text;
	got text;
BEGIN
	-- of each aggregate those before the first that is parked
	CREATE TEMP TABLE deliverable ON COMMIT DROP AS
	SELECT o.* FROM open_events(c) o
	WHERE NOT EXISTS (SELECT FROM open_events(c) p WHERE p.agg = o.agg AND p.parked AND p.n <= o.n);
	CREATE TEMP TABLE delivered ON COMMIT DROP AS
	SELECT m.n, r.aggregate_id AS agg, r.ordinality FROM fencing_outbox_read(c, t, rows) WITH ORDINALITY r LEFT JOIN model m ON m.id = r.id;
	SELECT least(rows, count(*))::text INTO wanted FROM deliverable;
	SELECT count(*)::text INTO got FROM delivered;
	IF wanted <> got THEN
		INSERT INTO difference VALUES (step, 'rows of ' || c, wanted, got);
	END IF;
	-- of each aggregate the first ones, in order
	SELECT string_agg(agg || ':' || ns, ' ' ORDER BY agg) INTO got FROM (SELECT agg, string_agg(n::text, ',' ORDER BY ordinality) AS ns FROM delivered GROUP BY agg) x;
	SELECT string_agg(agg || ':' || ns, ' ' ORDER BY agg) INTO wanted FROM (
		SELECT agg, string_agg(n::text, ',' ORDER BY n) AS ns
		FROM (SELECT d.agg, d.n, row_number() OVER (PARTITION BY d.agg ORDER BY d.n) AS i FROM deliverable d) x
		WHERE i <= (SELECT count(*) FROM delivered r WHERE r.agg = x.agg) GROUP BY agg) y;
	IF wanted IS DISTINCT FROM got THEN
		INSERT INTO difference VALUES (step, 'order of ' || c, wanted, got);
	END IF;
	INSERT INTO answered VALUES ('read');
END $$;
CREATE PROCEDURE check_ack(step int, c text, t bigint, current boolean) LANGUAGE plpgsql AS $$
DECLARE
	ns int[];
	ids uuid[];
	wanted text;
	got text;
	given int;
	known int;
	pending int;
	early int;
BEGIN
	-- what is to be read, what is done, or anything, purged ones too
	IF random() < 0.5 THEN
		SELECT array_agg(m.n), array_agg(m.id) INTO ns, ids FROM fencing_outbox_read(c, CASE WHEN current THEN t ELSE t + 1 END, (1 + random() * 5)::int) r JOIN model m ON m.id = r.id;
	ELSIF random() < 0.4 THEN
		SELECT array_agg(x.n), array_agg(x.id) INTO ns, ids
		FROM (SELECT m.n, m.id FROM model m JOIN model_done d ON d.n = m.n AND d.consumer = c AND NOT d.parked WHERE m.kept ORDER BY random() LIMIT 3) x;
	ELSE
		SELECT array_agg(x.n), array_agg(x.id) INTO ns, ids
		FROM (SELECT m.n, m.id FROM model m WHERE random() < 0.5 ORDER BY m.n DESC, random() LIMIT (1 + random() * 4)::int) x;
	END IF;
	IF random() < 0.1 THEN
		ids := ids || md5(random()::text)::uuid;
		ns := ns || 0;
	END IF;
	IF random() < 0.2 THEN
		ids := ids || ids;
	END IF;
	IF ids IS NULL THEN
		RETURN;
	END IF;
	SELECT count(DISTINCT x) INTO given FROM unnest(ns) x;
	SELECT count(*) INTO known FROM model WHERE n = ANY (ns) AND kept;
	SELECT count(*) INTO pending FROM open_events(c) o WHERE o.n = ANY (ns);
	SELECT count(*) INTO early FROM open_events(c) o WHERE o.n = ANY (ns) AND EXISTS (SELECT FROM open_events(c) p WHERE p.agg = o.agg AND p.n < o.n AND p.n <> ALL (ns));
	wanted := CASE
		WHEN known = given AND pending = 0 THEN 'replayed 0'
		WHEN NOT current THEN 'stale 0'
		WHEN pending < given OR early > 0 THEN 'conflict 0'
		ELSE 'committed ' || given END;
	SELECT outcome || ' ' || acked INTO got FROM fencing_outbox_ack(c, t, ids);
	IF wanted IS DISTINCT FROM got THEN
		INSERT INTO difference VALUES (step, format('ack %s %s', c, ns), wanted, got);
	END IF;
	IF got LIKE 'committed%' THEN
		INSERT INTO model_done SELECT DISTINCT c, x, false FROM unnest(ns) x
		ON CONFLICT (consumer, n) DO UPDATE SET parked = false;
	END IF;
	INSERT INTO answered VALUES ('ack ' || split_part(got, ' ', 1));
END $$;
CREATE PROCEDURE check_park(step int, c text, t bigint, current boolean) LANGUAGE plpgsql AS $$
DECLARE
	e record;
	reason text := CASE WHEN random() < 0.4 THEN 'r' END;
	wanted text;
	got text;
BEGIN
	-- one that is parked, one of the last, or any
	IF random() < 0.4 THEN
		SELECT m.* INTO e FROM model m WHERE EXISTS (SELECT FROM open_events(c) o WHERE o.n = m.n AND o.parked) ORDER BY random() LIMIT 1;
	ELSIF random() < 0.7 THEN
		SELECT m.* INTO e FROM model m ORDER BY m.n DESC OFFSET (random() * 6)::int LIMIT 1;
	ELSE
		SELECT m.* INTO e FROM model m ORDER BY random() LIMIT 1;
	END IF;
	IF NOT FOUND THEN
		RETURN;
	END IF;
	wanted := CASE WHEN NOT current THEN 'stale' WHEN EXISTS (SELECT FROM open_events(c) o WHERE o.n = e.n) THEN 'committed' ELSE 'conflict' END;
	got := fencing_outbox_park(c, t, e.id, reason);
	IF wanted IS DISTINCT FROM got THEN
		INSERT INTO difference VALUES (step, format('park %s %s', c, e.n), wanted, got);
	END IF;
	IF got = 'committed' THEN
		DELETE FROM model_done WHERE consumer = c AND n = e.n;
		INSERT INTO model_done SELECT c, e.n, true WHERE reason IS NOT NULL;
	END IF;
	INSERT INTO answered VALUES ('park ' || got);
END $$;
CREATE PROCEDURE check_purge(step int) LANGUAGE plpgsql AS $$
DECLARE
	rows int := 1 + random() * 20;
	wanted text;
	got text;
BEGIN
	CREATE TEMP TABLE purgeable ON COMMIT DROP AS
	SELECT m.n FROM model m WHERE m.kept AND NOT EXISTS (SELECT FROM unnest(ARRAY['outbox/m1', 'outbox/m2']) c, open_events(c) o WHERE o.n = m.n);
	-- "more" may be said once too often, when nothing else is left
	SELECT format('%s %s', least(count(*), rows), count(*) >= rows) INTO wanted FROM purgeable;
	SELECT format('%s %s', purged, more OR purged = rows) INTO got FROM fencing_purge('events', '1 microsecond', rows);
	IF wanted <> got THEN
		INSERT INTO difference VALUES (step, 'purge', wanted, got);
	END IF;
	UPDATE model m SET kept = false WHERE kept AND NOT EXISTS (SELECT FROM fencing.outbox e WHERE e.id = m.id);
	IF EXISTS (SELECT FROM model m WHERE NOT kept AND n NOT IN (SELECT n FROM purgeable)
		AND EXISTS (SELECT FROM unnest(ARRAY['outbox/m1', 'outbox/m2']) c WHERE NOT EXISTS (SELECT FROM model_done d WHERE d.consumer = c AND d.n = m.n AND NOT parked))) THEN
		INSERT INTO difference VALUES (step, 'purged what was open', NULL, NULL);
	END IF;
	INSERT INTO answered VALUES ('purge');
END $$;
CREATE PROCEDURE check_status(step int, c text) LANGUAGE plpgsql AS $$
DECLARE
	wanted text;
	got text;
BEGIN
	SELECT format('%s %s %s', count(*), count(*) FILTER (WHERE parked), min(e.created_at)) INTO wanted FROM open_events(c) o JOIN fencing.outbox e ON e.id = o.id;
	SELECT format('%s %s %s', pending, parked, oldest) INTO got FROM fencing.outbox_status s WHERE s.consumer = c;
	IF wanted IS DISTINCT FROM got THEN
		INSERT INTO difference VALUES (step, 'status of ' || c, wanted, got);
	END IF;
END $$;
CREATE PROCEDURE run(steps int) LANGUAGE plpgsql AS $$
DECLARE
	c text;
	t bigint;
	what float;
	current boolean;
BEGIN
	FOR step IN 1 .. steps LOOP
		c := CASE WHEN random() < 0.5 THEN 'outbox/m1' ELSE 'outbox/m2' END;
		SELECT f.token INTO t FROM fencing.fences f WHERE f.job_key = c;
		current := random() < 0.9 OR t = 1;
		IF NOT current THEN
			t := t - 1;
		END IF;
		what := random();
		IF what < 0.35 THEN
			INSERT INTO model (agg, id)
			SELECT agg, fencing_outbox_emit('model', agg, 'm', '1')
			FROM (SELECT chr(97 + (random() * 5)::int) AS agg FROM generate_series(1, (1 + random() * 3)::int) OFFSET 0) x;
		ELSIF what < 0.50 THEN
			IF current THEN
				CALL check_read(step, c, t, CASE WHEN random() < 0.5 THEN 1000 ELSE (1 + random() * 9)::int END);
			END IF;
		ELSIF what < 0.85 THEN
			CALL check_ack(step, c, t, current);
		ELSIF what < 0.92 THEN
			CALL check_park(step, c, t, current);
		ELSIF what < 0.95 THEN
			CALL check_purge(step);
		ELSIF what < 0.98 THEN
			CALL check_status(step, c);
		ELSE
			PERFORM fencing_acquire(c, gen_random_uuid(), '1 microsecond');
		END IF;
		IF random() < 0.1 THEN
			ROLLBACK;
		ELSE
			COMMIT;
		END IF;
	END LOOP;
END $$;
SELECT setseed(0.47);
CALL run(1500);
SELECT * FROM difference ORDER BY step LIMIT 20;
-- every kind of answer was among them
SELECT DISTINCT what FROM answered ORDER BY what;

--
-- Nothing is left
--
SET session_replication_role = replica;
DELETE FROM fencing.revisions WHERE document_id = 'outbox/published';
RESET session_replication_role;
DELETE FROM fencing.documents WHERE document_id = 'outbox/published';
SELECT fencing_outbox_unsubscribe('outbox/m1'), fencing_outbox_unsubscribe('outbox/m2'), fencing_outbox_unsubscribe('outbox/role');
SELECT more FROM fencing_purge('events', '1 microsecond', 1000000);
SELECT (SELECT count(*) FROM fencing.outbox) AS events, (SELECT count(*) FROM fencing.outbox_consumers) AS consumers,
	(SELECT count(*) FROM fencing.outbox_acks) AS acks;
SELECT fencing_ungrant('regress_outbox_client', 'client'), fencing_ungrant('regress_outbox_relay', 'relay'), fencing_ungrant('regress_outbox_admin', 'admin');
DROP SCHEMA regress_outbox CASCADE;
DROP TABLE client, relay, admin, watch, nobody;
REVOKE ALL ON SCHEMA fencing FROM regress_outbox_owner;
DROP ROLE regress_outbox_client, regress_outbox_relay, regress_outbox_admin, regress_outbox_watch, regress_outbox_nobody, regress_outbox_owner;
DELETE FROM fencing.records;
DELETE FROM fencing.request_schemas WHERE operation = 'outbox/order';
DELETE FROM fencing.operations WHERE operation = 'outbox/order';
DELETE FROM fencing.receipts;
DELETE FROM fencing.leases;
DELETE FROM fencing.fences;
DELETE FROM fencing.revocations;
UPDATE fencing.floor SET floor = 0;
