--
-- A consumer in parts: relays share the aggregates, and another number of
-- parts loses and doubles nothing.  And how often an event has been delivered.
--
CREATE SCHEMA regress_outbox_parts;
GRANT USAGE ON SCHEMA regress_outbox_parts TO PUBLIC;
SET search_path = regress_outbox_parts, public;
\pset null -
SELECT FROM fencing_purge('events', '1 microsecond', 1000000);

CREATE FUNCTION who(text) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$ SELECT md5($1)::uuid $$;
CREATE FUNCTION attempt(call text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE answer text; message text; hint text; detail text;
BEGIN
	EXECUTE 'SELECT (SELECT x::text FROM ' || call || ' AS x LIMIT 1)' INTO answer;
	RETURN answer;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT, detail = PG_EXCEPTION_DETAIL;
	RETURN sqlstate || ' ' || concat_ws(' | ', message, nullif(detail, ''), nullif(hint, ''));
END $$;
CREATE FUNCTION token(c text) RETURNS bigint LANGUAGE sql AS $$ SELECT token FROM fencing_acquire(c, who('relay'), '1 day') $$;
-- every event is written down with the part that delivered it
CREATE TABLE delivered (no serial, consumer text, part text, aggregate_id text, n int);
CREATE FUNCTION relay(c text, most int DEFAULT 1000000) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE t bigint := token(c); ids uuid[];
BEGIN
	WITH r AS (SELECT * FROM fencing_outbox_read(c, t, most)),
	i AS (INSERT INTO delivered (consumer, part, aggregate_id, n)
		SELECT split_part(c, '/', 1), c, aggregate_id, (payload->>'n')::int FROM r)
	SELECT coalesce(array_agg(id), '{}') INTO ids FROM r;
	IF ids <> '{}' AND (SELECT outcome FROM fencing_outbox_ack(c, t, ids)) <> 'committed' THEN
		RAISE EXCEPTION 'not acknowledged';
	END IF;
	RETURN cardinality(ids);
END $$;
CREATE FUNCTION emit(first int, last int) RETURNS bigint LANGUAGE sql AS $$
SELECT count(fencing_outbox_emit('thing', (n % 13)::text, 'made', jsonb_build_object('n', n))) FROM generate_series(first, last) n
$$;
-- what went wrong: an event lost or delivered twice, or one of an aggregate before an earlier one
CREATE FUNCTION wrong(c text, last int) RETURNS TABLE (what text, n int) LANGUAGE sql AS $$
SELECT 'times ' || count(d.n), g FROM generate_series(1, last) g LEFT JOIN delivered d ON d.n = g AND d.consumer = c GROUP BY g HAVING count(d.n) <> 1
UNION ALL SELECT 'order', n FROM (SELECT n, lag(n) OVER (PARTITION BY aggregate_id ORDER BY no) AS before FROM delivered WHERE consumer = c) o WHERE before > n
$$;

-- three parts, from the start: each has some, and an aggregate is of one part
SELECT emit(1, 100);
SELECT fencing_outbox_subscribe('mail', from_start => true, parts => 3);
SELECT consumer, after_no, part, parts FROM fencing.outbox_consumers WHERE consumer LIKE 'mail%' ORDER BY part;
SELECT p.part, relay('mail/' || p.part) > 0 AS some FROM generate_series(1, 3) p (part);
SELECT count(DISTINCT part) AS parts, count(*) AS events FROM delivered;
SELECT aggregate_id FROM delivered GROUP BY aggregate_id HAVING count(DISTINCT part) > 1;
SELECT * FROM wrong('mail', 100);

-- the hash is for ever: by these aggregates it can be seen to have changed
SELECT p, string_agg(DISTINCT d.aggregate_id, ' ') FROM (SELECT part AS p, aggregate_id FROM delivered) d GROUP BY p ORDER BY p;

-- the consumer itself is nobody then; again is no change; from_start does not count any more
SELECT attempt('fencing_acquire(''mail'', who(''relay''))') LIKE '(acquired,%' AS acquired;
SELECT c, attempt(format(c, (SELECT token FROM fencing.fences WHERE job_key = 'mail'))) FROM (VALUES
	('fencing_outbox_read(''mail'', %s)'),
	('fencing_outbox_ack(''mail'', %s, ''{}'')'),
	('fencing_outbox_park(''mail'', %s, who(''x''), ''bad'')')) calls(c);
SELECT fencing_outbox_subscribe('mail', from_start => false), fencing_outbox_subscribe('mail', true, 3);
SELECT consumer, parts FROM fencing.outbox_consumers WHERE consumer LIKE 'mail%' ORDER BY part;

-- an event of another part is not this one's: not pending, and not done either
SELECT emit(101, 101);
SELECT id, CASE WHEN (SELECT count(*) FROM fencing_outbox_read('mail/1', token('mail/1'))) > 0 THEN 'mail/2' ELSE 'mail/1' END AS other
FROM fencing.outbox ORDER BY no DESC LIMIT 1 \gset
SELECT outcome, acked FROM fencing_outbox_ack(:'other', token(:'other'), ARRAY[:'id'::uuid]);
SELECT outcome FROM fencing_outbox_park(:'other', token(:'other'), :'id', 'bad');
SELECT sum(relay('mail/' || p.part)) FROM generate_series(1, 3) p (part);

--
-- another number of parts, with all kinds of things under way
--
SELECT emit(102, 300);
-- the first has done some, the second all, the third nothing but its last aggregate, and parked one
SELECT relay('mail/1', 20), relay('mail/2') > 20 AS all_of_it;
SELECT count(*) AS aggregates, max(aggregate_id) AS last FROM (SELECT DISTINCT aggregate_id FROM fencing_outbox_read('mail/3', token('mail/3'))) r \gset
SELECT outcome FROM fencing_outbox_ack('mail/3', token('mail/3'), ARRAY(SELECT id FROM fencing_outbox_read('mail/3', token('mail/3')) WHERE aggregate_id = :'last'));
INSERT INTO delivered (consumer, part, aggregate_id, n) SELECT 'mail', 'mail/3', aggregateid, (payload->>'n')::int
FROM fencing.outbox WHERE aggregateid = :'last' AND (payload->>'n')::int > 101 ORDER BY no;
SELECT id AS parked, (payload->>'n')::int AS parked_n FROM fencing_outbox_read('mail/3', token('mail/3'), 1) \gset
SELECT outcome FROM fencing_outbox_park('mail/3', token('mail/3'), :'parked', 'cannot be read');
CREATE TABLE before AS SELECT id FROM fencing.outbox_pending WHERE consumer LIKE 'mail/%';

SELECT fencing_outbox_subscribe('mail', true, parts => 5);
SELECT consumer, part, parts FROM fencing.outbox_consumers WHERE consumer LIKE 'mail%' ORDER BY part;
SELECT count(*) AS differ FROM before FULL JOIN (SELECT id FROM fencing.outbox_pending WHERE consumer LIKE 'mail/%') p USING (id) WHERE before.id IS NULL OR p.id IS NULL;
SELECT id = :'parked' AS the_one, reason FROM fencing.outbox_parked WHERE consumer LIKE 'mail/%';
SELECT emit(301, 400);
SELECT relay('mail/' || p.part) IS NOT NULL AS relayed FROM generate_series(1, 5) p (part);
-- all but the parked one, and those after it
SELECT what, count(*), min(n) = :parked_n AS from_parked FROM wrong('mail', 400) GROUP BY what;
SELECT consumer AS holder FROM fencing.outbox_parked WHERE consumer LIKE 'mail/%' \gset
SELECT outcome FROM fencing_outbox_park(:'holder', token(:'holder'), :'parked', NULL);
SELECT relay(:'holder') > 1 AS the_rest;
SELECT * FROM wrong('mail', 400);

-- nothing is kept of what all have done
SELECT count(*) FROM fencing.outbox_acks WHERE consumer LIKE 'mail/%';

-- fewer, one, and many, with events in between
SELECT emit(401, 450);
SELECT relay('mail/2') > 0 AS some;
SELECT fencing_outbox_subscribe('mail', true, parts => 2);
SELECT emit(451, 500), relay('mail/1') > 0 AS some;
SELECT fencing_outbox_subscribe('mail', true, parts => 1);
SELECT consumer, part, parts FROM fencing.outbox_consumers WHERE consumer LIKE 'mail%';
SELECT attempt(format('fencing_outbox_read(''mail/1'', %s)', token('mail/1')));
SELECT emit(501, 550), relay('mail', 30);
SELECT fencing_outbox_subscribe('mail', true, parts => 40);
SELECT sum(relay('mail/' || p.part, 1)) > 5 AS some FROM generate_series(1, 40) p (part);
SELECT fencing_outbox_subscribe('mail', true, parts => 7);
SELECT sum(relay('mail/' || p.part)) > 0 AS some FROM generate_series(1, 7) p (part);
SELECT * FROM wrong('mail', 550);
SELECT consumer, attempts FROM fencing.outbox_pending WHERE consumer LIKE 'mail%';

-- from now on, and then in parts: what was before stays out
SELECT fencing_outbox_subscribe('late', from_start => false, parts => 2);
SELECT count(*) FROM fencing.outbox_pending WHERE consumer LIKE 'late/%';
SELECT fencing_outbox_subscribe('late', from_start => true, parts => 3);
SELECT count(*) FROM fencing.outbox_pending WHERE consumer LIKE 'late/%';
SELECT emit(551, 560);
SELECT count(*) FROM fencing.outbox_pending WHERE consumer LIKE 'late/%';
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT fencing_outbox_subscribe('late', from_start => true, parts => 2);
COMMIT;
SELECT count(*) FROM fencing.outbox_pending WHERE consumer LIKE 'late/%';

-- names that are taken, and what is no number of parts
SELECT fencing_outbox_subscribe('own/2', true), fencing_outbox_subscribe('own/x', true);
SELECT c, attempt(c) FROM (VALUES
	('fencing_outbox_subscribe(''own'', true, 2)'),
	('fencing_outbox_subscribe(''own'', true, 1)'),
	('fencing_outbox_subscribe(''own'', true, 2)'),
	('fencing_outbox_subscribe(''mail/3'', true)'),
	('fencing_outbox_subscribe(''mail/3'', true, 2)'),
	('fencing_outbox_unsubscribe(''mail/3'')'),
	('fencing_outbox_subscribe(''mail'', true, 0)'),
	('fencing_outbox_subscribe(''mail'', true, -1)'),
	('fencing_outbox_subscribe(''mail'', true, 1001)'),
	('fencing_outbox_subscribe(repeat(''x'', 510), true, 10)'),
	('fencing_outbox_unsubscribe(''nobody'')')) calls(c);
SELECT count(*) FROM fencing.outbox_consumers WHERE consumer LIKE 'x%';

-- a part has no parts; a consumer that looks like one has
SELECT fencing_outbox_subscribe('deep/2', true, 2);
SELECT consumer FROM fencing.outbox_consumers WHERE consumer LIKE 'deep%' ORDER BY 1;
SELECT attempt('fencing_outbox_subscribe(''deep'', true, 2)');
SELECT fencing_outbox_unsubscribe('deep/2');
SELECT consumer FROM fencing.outbox_consumers WHERE consumer LIKE 'deep%' ORDER BY 1;

--
-- a part that gets few events does not look at those of others for ever
--
SELECT fencing_outbox_subscribe('few', true, 2);
CREATE TEMP TABLE lone AS SELECT aggregateid, consumer FROM fencing.outbox_pending WHERE consumer LIKE 'few/%' AND aggregatetype = 'thing' ORDER BY no LIMIT 1;
SELECT consumer AS busy, CASE consumer WHEN 'few/1' THEN 'few/2' ELSE 'few/1' END AS idle FROM lone \gset
SELECT relay('few/1') > 0 AS some, relay('few/2') > 0 AS others;
SELECT count(fencing_outbox_emit('thing', (SELECT aggregateid FROM lone), 'made', '{"n": 0}')) FROM generate_series(1, 1500);
SELECT after_no AS idle_no FROM fencing.outbox_consumers WHERE consumer = :'idle' \gset
SELECT count(*) FROM fencing_outbox_read(:'idle', token(:'idle'));
SELECT after_no = (SELECT max(no) FROM fencing.outbox) AS caught_up FROM fencing.outbox_consumers WHERE consumer = :'idle';
-- not while it has something to do: then that is acknowledged
SELECT count(*) FROM fencing_outbox_read(:'busy', token(:'busy'), 3);
SELECT count(*) FROM fencing.outbox_acks WHERE consumer = :'idle';

-- with one of its own parked before, a range stands for the others'
SELECT id AS own FROM fencing.outbox_pending p WHERE false \gset
WITH RECURSIVE tries AS (SELECT 0 AS i, fencing_outbox_emit('own', '0', 'made', '{"n": 0}') AS id
	UNION ALL SELECT i + 1, fencing_outbox_emit('own', (i + 1)::text, 'made', '{"n": 0}') FROM tries WHERE i < 20)
SELECT count(*) FROM tries;
SELECT id AS own FROM fencing_outbox_read(:'idle', token(:'idle'), 1) \gset
SELECT outcome FROM fencing_outbox_park(:'idle', token(:'idle'), :'own', 'bad');
SELECT relay(:'idle') > 0 AS the_rest;
SELECT count(fencing_outbox_emit('thing', (SELECT aggregateid FROM lone), 'made', '{"n": 0}')) FROM generate_series(1, 1500);
SELECT count(*) FROM fencing_outbox_read(:'idle', token(:'idle'));
SELECT through_no = (SELECT max(no) FROM fencing.outbox) AS through_all FROM fencing.outbox_acks WHERE consumer = :'idle' AND acked_at IS NOT NULL;
SELECT count(*) FROM fencing.outbox_acks WHERE consumer = :'idle';

--
-- attempts
--
SELECT fencing_outbox_subscribe('tries', true);
SELECT (token('tries')) AS t \gset
CREATE TEMP TABLE firsts AS SELECT id, row_number() OVER () AS place FROM fencing_outbox_read('tries', :t, 5);
SELECT place, attempts FROM fencing_outbox_read('tries', :t, 7) r LEFT JOIN firsts USING (id) ORDER BY place;
SELECT place, attempts FROM fencing_outbox_read('tries', :t, 2) r LEFT JOIN firsts USING (id) ORDER BY place;
SELECT place, attempts FROM fencing.outbox_pending p LEFT JOIN firsts USING (id) WHERE consumer = 'tries' AND attempts > 0 ORDER BY place;
SELECT pending = (SELECT count(*) FROM fencing.outbox) AS all_pending, most_attempts FROM fencing.outbox_status WHERE consumer = 'tries';
-- rolled back it was not delivered; nor by one who is stale, or parked
BEGIN;
SELECT attempts FROM fencing_outbox_read('tries', :t, 1);
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT attempts FROM fencing_outbox_read('tries', :t, 1);
ROLLBACK TO s;
SELECT attempts FROM fencing_outbox_read('tries', :t, 1);
COMMIT;
SELECT outcome FROM fencing_outbox_park('tries', :t, (SELECT id FROM firsts WHERE place = 2), 'bad');
SELECT count(*) FROM fencing_outbox_read('tries', :t, 1000);
SELECT place, attempts, parked FROM fencing.outbox_pending p JOIN firsts USING (id) WHERE consumer = 'tries' ORDER BY place;
-- at any isolation level
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT attempts FROM fencing_outbox_read('tries', :t, 1);
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT attempts FROM fencing_outbox_read('tries', :t, 1);
COMMIT;
-- what is acknowledged need not be counted any more
SELECT outcome FROM fencing_outbox_park('tries', :t, (SELECT id FROM firsts WHERE place = 2), NULL);
SELECT outcome FROM fencing_outbox_ack('tries', :t, ARRAY(SELECT id FROM firsts WHERE place < 4));
SELECT event_no = 0 AS for_all, count(*) > 0 AS rows, max(attempts) AS most FROM fencing.outbox_attempts WHERE consumer = 'tries' GROUP BY 1 ORDER BY 1;
SELECT outcome FROM fencing_outbox_ack('tries', :t, ARRAY(SELECT id FROM fencing_outbox_read('tries', :t, 1000000)));
SELECT event_no, attempts FROM fencing.outbox_attempts WHERE consumer = 'tries';
SELECT fencing_outbox_unsubscribe('tries');
SELECT count(*) FROM fencing.outbox_attempts WHERE consumer = 'tries';

--
-- park and unpark many: one call for each, in one transaction
--
SELECT fencing_outbox_subscribe('many', true);
SELECT token('many') AS t \gset
SELECT p.outcome, count(*) FROM (SELECT id FROM fencing_outbox_read('many', :t, 1000) OFFSET 0) r
CROSS JOIN LATERAL fencing_outbox_park('many', :t, r.id, 'no room') p GROUP BY p.outcome;
SELECT parked FROM fencing.outbox_status WHERE consumer = 'many';
SELECT u.outcome, count(*) FROM fencing.outbox_pending p
CROSS JOIN LATERAL fencing_outbox_park(p.consumer, :t, p.id, NULL) u
WHERE p.consumer = 'many' AND p.parked GROUP BY u.outcome;
SELECT parked FROM fencing.outbox_status WHERE consumer = 'many';

SELECT FROM fencing.outbox_consumers c, fencing_outbox_unsubscribe(regexp_replace(c.consumer, CASE WHEN c.parts > 1 THEN '/\d+$' ELSE '$' END, '')) WHERE c.part = 1;
SELECT count(*) FROM fencing.outbox_consumers;
SELECT count(*) FROM fencing.outbox_acks;
DROP SCHEMA regress_outbox_parts CASCADE;

\getenv folder PG_ABS_SRCDIR
\set clean_up :folder '/sql/clean_up.psql'
\i :clean_up
