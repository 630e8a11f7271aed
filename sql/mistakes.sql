--
-- Mistakes that people make at first, and what they read.
--
CREATE SCHEMA regress_fencing_mistakes;
SET search_path = regress_fencing_mistakes, public;
\set owner '''00000000-0000-0000-0000-00000000000a'''
SELECT outcome FROM fencing_acquire('mistakes/job', :owner, '1 hour');
SELECT outcome FROM fencing_advance('mistakes/external', 5);
SELECT fencing_outbox_subscribe('mistakes/job', true);

--
-- Arguments: named, with what was found and what is allowed.
--
SELECT * FROM fencing_acquire(NULL, :owner);
SELECT * FROM fencing_acquire('', :owner);
SELECT * FROM fencing_acquire(repeat('ü', 300), :owner);
SELECT * FROM fencing_acquire('mistakes/job', NULL);
SELECT * FROM fencing_acquire('mistakes/job', :owner, '2 days');
SELECT * FROM fencing_acquire('mistakes/job', :owner, '0');
SELECT * FROM fencing_acquire('mistakes/job', :owner, '-1 second');
SELECT * FROM fencing_acquire('mistakes/job', :owner, '178000000 years');
SELECT * FROM fencing_renew('mistakes/job', :owner, NULL);
SELECT * FROM fencing_renew('mistakes/job', :owner, 0);
SELECT * FROM fencing_release('mistakes/job', :owner, -1);
SELECT * FROM fencing_receipt('mistakes/job', 1, repeat('x', 513));
SELECT * FROM fencing_commit('mistakes/job', 1, '{}', 'SELECT 1', NULL);
SELECT * FROM fencing_commit('mistakes/job', 1, '{}', 'SELECT 1', strict => NULL);
SELECT * FROM fencing_commit('mistakes/job', 1, '{}', 'SELECT 1', report_errors => true, strict => true);
SELECT * FROM fencing_revoke('mistakes/job', '');
-- an array or an object that the driver sent as NULL, wherever JSON is expected
SELECT * FROM fencing_commit('mistakes/job', 1, NULL, 'SELECT 1');
SELECT * FROM fencing_once('t', 'o', 'k', NULL, 'SELECT 1');
SELECT * FROM fencing_publish('mistakes', 0, NULL);
SELECT fencing_outbox_emit('order', '1', 'made', NULL);

--
-- Tokens.
--
SELECT * FROM fencing_commit('mistakes/none', 1, '{}', 'SELECT 1');
SELECT * FROM fencing_commit('mistakes/job', 2, '{}', 'SELECT 1');
SELECT * FROM fencing_outbox_read('mistakes/job', 2);
SELECT * FROM fencing_outbox_ack('mistakes/job', 2, '{}');
SELECT * FROM fencing_commit('mistakes/external', 6, '{}', 'SELECT 1');
SELECT error FROM fencing_commit('mistakes/external', 6, '{}', 'SELECT 1', report_errors => true);
SELECT * FROM fencing_acquire('mistakes/external', :owner);
SELECT * FROM fencing_advance('mistakes/job', 5);
SELECT * FROM fencing_revoke('mistakes/none', 'test');
SELECT * FROM fencing_forget('mistakes/job');

--
-- The statement.
--
SELECT * FROM fencing_commit('mistakes/job', 1, '{}');
SELECT * FROM fencing_commit('mistakes/job', 1, '{}', '');
SELECT * FROM fencing_commit('mistakes/job', 1, '{}', 'SELECT 1; SELECT 2');
SELECT * FROM fencing_commit('mistakes/job', 1, '{}', 'CALL f()');
SELECT * FROM fencing_commit('mistakes/job', 1, '{}', 'SELECT 1 INTO t');
SELECT * FROM fencing_commit('mistakes/job', 1, '{}', 'SELECT generate_series(1, 2)');
SELECT * FROM fencing_commit('mistakes/job', 1, '{}', 'SELECT 1 AS a, 2 AS b, 3 AS a');
SELECT * FROM fencing_commit('mistakes/job', 1, '{}', 'SELECT 1, 2 WHERE false');
SELECT * FROM fencing_commit('mistakes/job', 1, '{}', 'SELECT $4');

--
-- strict: each outcome with the next step.
--
CREATE FUNCTION may(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS boolean LANGUAGE sql AS 'SELECT auth IS NOT NULL';
SELECT fencing_define_operation('mistakes/pay', 'regress_fencing_mistakes.may(text, text, jsonb, jsonb)');
SELECT fencing_define_request('mistakes/pay', 1, '{}');
SELECT outcome FROM fencing_commit('mistakes/job', 1, '{}', 'SELECT 1', 'done');
SELECT * FROM fencing_commit('mistakes/job', 1, '[]', 'SELECT 1', 'done', strict => true);
SELECT fencing_revoke('mistakes/job', 'test');
SELECT * FROM fencing_commit('mistakes/job', 1, '{}', 'SELECT 1', 'late', strict => true);
UPDATE fencing.fences SET purged_through = 1 WHERE job_key = 'mistakes/job';
SELECT * FROM fencing_commit('mistakes/job', 1, '{}', 'SELECT 1', 'late', strict => true);
SELECT * FROM fencing_once('t', 'mistakes/pay', 'k', '{}', 'SELECT 1', strict => true);

SELECT fencing_outbox_unsubscribe('mistakes/job');
DELETE FROM fencing.receipts WHERE job_key LIKE 'mistakes/%';
DELETE FROM fencing.leases WHERE job_key LIKE 'mistakes/%';
DELETE FROM fencing.fences WHERE job_key LIKE 'mistakes/%';
DELETE FROM fencing.revocations WHERE job_key LIKE 'mistakes/%';
DELETE FROM fencing.request_schemas WHERE operation LIKE 'mistakes/%';
DELETE FROM fencing.operations WHERE operation LIKE 'mistakes/%';
SET client_min_messages = warning;
DROP SCHEMA regress_fencing_mistakes CASCADE;
