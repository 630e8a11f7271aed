--
-- Mistakes of those who begin with the outbox, with publishing and with grants:
-- what they are told.
--
SET client_min_messages = warning;
CREATE SCHEMA regress_mistakes;
SET search_path = regress_mistakes, public;
CREATE ROLE regress_mistakes;
CREATE FUNCTION told(call text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	detail text;
	hint text;
BEGIN
	EXECUTE 'SELECT ' || call;
	RETURN 'nothing';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	RETURN concat_ws(E'\n', SQLSTATE || ' ' || SQLERRM, 'D ' || nullif(detail, ''), 'H ' || nullif(hint, ''));
END $$;
SELECT count(outcome) FROM generate_series(1, 2) v, LATERAL fencing_publish('mistakes/d', v - 1, to_jsonb(v));
SELECT fencing_target_desire('mistakes/d', 't', 1), fencing_target_desire('mistakes/elsewhere', 't', 3);

SELECT call, told(call) FROM unnest(ARRAY[
	$$fencing_publish('mistakes/d', 2, NULL)$$,
	$$fencing_publish('mistakes/d', NULL, '1')$$,
	$$fencing_publish('mistakes/d', -1, '1')$$,
	$$fencing_publish('mistakes/d', 7, '1')$$,
	$$fencing_publish('mistakes/none', 7, '1')$$,
	$$fencing_publish_rollback('mistakes/d', 1, 2)$$,
	$$fencing_publish_rollback('mistakes/d', 9, 8)$$,
	$$fencing_publish_delete('mistakes/none', 1)$$,
	$$fencing_publish_force('mistakes/d', '1', '')$$,
	$$fencing_target_desire('mistakes/d', 't', 9)$$,
	$$fencing_target_desire('mistakes/d', 't', 9223372036854775807)$$,
	$$fencing_apply('mistakes/d', 'unknown', 1, fencing_digest('1'))$$,
	$$fencing_apply('mistakes/d', 't', 1, 'abcdef', '1', 'SELECT 1')$$,
	$$fencing_apply('mistakes/d', 't', 1, encode(fencing_digest('1'), 'hex')::bytea, '1', 'SELECT 1')$$,
	$$fencing_apply('mistakes/d', 't', 1, fencing_digest('2'), '1', 'SELECT 1')$$,
	$$fencing_apply('mistakes/d', 't', 7, fencing_digest('7'), '7', 'SELECT 1')$$,
	$$fencing_apply('mistakes/elsewhere', 't', 1, fencing_digest('1'), NULL, 'SELECT 1')$$,
	$$fencing_apply_begin('mistakes/elsewhere', 't', md5('A')::uuid)$$,
	$$fencing_apply_observe('mistakes/d', 't', 1, NULL, '\x00')$$,
	$$fencing_apply_observe('mistakes/d', 't', 1, 1, NULL)$$,
	$$fencing_apply_reject('mistakes/d', 't', 9, 'bad')$$,
	$$fencing_target_forget('mistakes/d', 'unknown', 'gone')$$,
	$$fencing_target_forget('mistakes/d', 't', '')$$,
	$$fencing_outbox_emit('document', 'd', 'publish', '{}')$$,
	$$fencing_outbox_emit('order', '7', 'created', NULL)$$,
	$$fencing_outbox_read('mistakes/none', 1)$$,
	$$fencing_outbox_read('mistakes/none', 1, -5)$$,
	$$fencing_outbox_ack('mistakes/none', 1, ARRAY[NULL]::uuid[])$$,
	$$fencing_outbox_park('mistakes/none', 1, md5('A')::uuid, '')$$,
	$$fencing_grant('regress_mistakes', 'reader')$$,
	$$fencing_grant('-', 'client')$$,
	$$fencing_grant(4294967294::oid::regrole, 'client')$$]) call;

SET session_replication_role = replica;
DELETE FROM fencing.revisions WHERE document_id LIKE 'mistakes/%';
RESET session_replication_role;
DELETE FROM fencing.targets WHERE document_id LIKE 'mistakes/%';
DELETE FROM fencing.documents WHERE document_id LIKE 'mistakes/%';
SELECT more FROM fencing_purge('events', '1 microsecond', 1000000);
DROP SCHEMA regress_mistakes CASCADE;
DROP ROLE regress_mistakes;
