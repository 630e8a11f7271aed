--
-- Indexes that an administrator has put on tables of the extension: plain ones
-- are kept up to date, others are refused before anything is written.
--
SET client_min_messages = error;
\set VERBOSITY sqlstate
SELECT (fencing_acquire('foreign_indexes', md5('a')::uuid, '1 day')).token AS t \gset

CREATE INDEX foreign_plain ON fencing.receipts (token, job_key);
SELECT outcome FROM fencing_commit('foreign_indexes', :t, '1', 'SELECT 1');
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT count(*) FROM fencing.receipts WHERE token = :t AND job_key = 'foreign_indexes';
RESET enable_seqscan;
RESET enable_bitmapscan;
DROP INDEX fencing.foreign_plain;

CREATE INDEX foreign_expression ON fencing.receipts (lower(step));
SELECT outcome FROM fencing_commit('foreign_indexes', :t, '1', 'SELECT 1', 'two');
DROP INDEX fencing.foreign_expression;
CREATE INDEX foreign_partial ON fencing.receipts (token) WHERE step = '';
SELECT outcome FROM fencing_commit('foreign_indexes', :t, '1', 'SELECT 1', 'two');
DROP INDEX fencing.foreign_partial;
CREATE INDEX foreign_expression ON fencing.leases ((token + 1));
SELECT outcome FROM fencing_renew('foreign_indexes', md5('a')::uuid, :t);
DROP INDEX fencing.foreign_expression;
ALTER TABLE fencing.fences ADD CONSTRAINT foreign_exclusion EXCLUDE USING btree (job_key WITH =);
SELECT outcome FROM fencing_advance('foreign_indexes/x', 5);
ALTER TABLE fencing.fences DROP CONSTRAINT foreign_exclusion;

-- then all goes on
SELECT outcome FROM fencing_commit('foreign_indexes', :t, '1', 'SELECT 1', 'two');
SELECT outcome FROM fencing_renew('foreign_indexes', md5('a')::uuid, :t);
SELECT step FROM fencing.receipts WHERE job_key = 'foreign_indexes' ORDER BY step;

-- acks look for events by an index: one made anew under its name must find all rows
SELECT fencing_outbox_subscribe('foreign_indexes', true);
SELECT (fencing_acquire('outbox/foreign_indexes', md5('b')::uuid, '1 day')).token AS relay \gset
-- so many are pending before that the aggregate's own are looked up
SELECT count(fencing_outbox_emit('foreign', 'b', 'made', '0')) FROM generate_series(1, 200);
SELECT fencing_outbox_emit('foreign', 'a', 'made', '1') AS one, fencing_outbox_emit('foreign', 'a', 'made', '2') AS two \gset
DROP INDEX fencing.outbox_aggregate_idx;
SELECT outcome FROM fencing_outbox_ack('foreign_indexes', :relay, ARRAY[:'one'::uuid]);
CREATE INDEX outbox_aggregate_idx ON fencing.outbox (aggregatetype, aggregateid, no) WHERE false;
SELECT outcome FROM fencing_outbox_ack('foreign_indexes', :relay, ARRAY[:'one'::uuid]);
DROP INDEX fencing.outbox_aggregate_idx;
CREATE INDEX outbox_aggregate_idx ON fencing.outbox (aggregatetype, no, aggregateid);
SELECT outcome FROM fencing_outbox_ack('foreign_indexes', :relay, ARRAY[:'one'::uuid]);
DROP INDEX fencing.outbox_aggregate_idx;
CREATE INDEX outbox_aggregate_idx ON fencing.outbox (aggregatetype, aggregateid, no) INCLUDE (type);
SELECT outcome FROM fencing_outbox_ack('foreign_indexes', :relay, ARRAY[:'one'::uuid]);
DROP INDEX fencing.outbox_aggregate_idx;
CREATE INDEX outbox_aggregate_idx ON fencing.outbox (aggregatetype, aggregateid, no);
SELECT payload FROM fencing_outbox_read('foreign_indexes', :relay, 1000) WHERE aggregate_id = 'a';

\getenv folder PG_ABS_SRCDIR
\set clean_up :folder '/sql/clean_up.psql'
\i :clean_up
