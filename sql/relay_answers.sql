--
-- What a relay of the past is told of an acknowledgement: it was done, or stale;
-- never that nothing was done well.
--
SET client_min_messages = error;
SELECT fencing_outbox_subscribe('relay_answers', true);
SELECT (fencing_acquire('relay_answers', md5('old')::uuid, '1 microsecond')).token AS old \gset
SELECT fencing_outbox_emit('relay_answers', '1', 'one', '1') AS one \gset
SELECT fencing_outbox_emit('relay_answers', '1', 'two', '2') AS two \gset
SELECT fencing_outbox_ack('relay_answers', :old, ARRAY[:'one']::uuid[]);
SELECT (fencing_acquire('relay_answers', md5('new')::uuid)).token AS new \gset

SELECT fencing_outbox_ack('relay_answers', :old, '{}') AS nothing,
	fencing_outbox_ack('relay_answers', :old, ARRAY[:'one']::uuid[]) AS done,
	fencing_outbox_ack('relay_answers', :old, ARRAY[:'one', :'one']::uuid[]) AS done_twice,
	fencing_outbox_ack('relay_answers', :old, ARRAY[:'two']::uuid[]) AS open,
	fencing_outbox_ack('relay_answers', :old, ARRAY[:'one', :'two']::uuid[]) AS both,
	fencing_outbox_ack('relay_answers', :old, ARRAY[md5('three')]::uuid[]) AS unknown,
	fencing_outbox_ack('relay_answers', :old, ARRAY[:'one', md5('three')]::uuid[]) AS done_and_unknown;
-- the relay of now
SELECT fencing_outbox_ack('relay_answers', :new, '{}') AS nothing,
	fencing_outbox_ack('relay_answers', :new, ARRAY[:'one']::uuid[]) AS done,
	fencing_outbox_ack('relay_answers', :new, ARRAY[:'one', :'two']::uuid[]) AS both,
	fencing_outbox_ack('relay_answers', :new, ARRAY[:'two']::uuid[]) AS open,
	fencing_outbox_ack('relay_answers', :new, ARRAY[:'two']::uuid[]) AS again;
SELECT fencing_outbox_ack('relay_answers', :old, ARRAY[:'two', :'one']::uuid[]) AS done_meanwhile;

-- a parked event holds up its aggregate, and none whose names read alike
SELECT fencing_outbox_emit('relay_answers/a', 'b', 'three', '3') AS three \gset
SELECT fencing_outbox_emit('relay_answers/a', 'b', 'four', '4') IS NOT NULL AS emitted;
SELECT fencing_outbox_emit('relay_answers', 'a/b', 'five', '5') IS NOT NULL AS emitted;
SELECT fencing_outbox_emit('relay_answers/', 'ab', 'six', '6') IS NOT NULL AS emitted;
SELECT fencing_outbox_park('relay_answers', :new, :'three', 'bad');
SELECT type FROM fencing_outbox_read('relay_answers', :new);

SELECT fencing_outbox_unsubscribe('relay_answers');
SELECT purged >= 2 AS purged FROM fencing_purge('events', '1 microsecond');

\getenv folder PG_ABS_SRCDIR
\set clean_up :folder '/sql/clean_up.psql'
\i :clean_up
