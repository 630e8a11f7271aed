-- What the examples need, once, as a superuser: psql -d DATABASE -f examples/setup.sql
-- They connect as a role that owns nothing, as an application should.

CREATE EXTENSION IF NOT EXISTS fencing CASCADE;
CREATE ROLE app LOGIN;
SELECT fencing_grant('app', 'client'), fencing_grant('app', 'relay'), fencing_grant('app', 'target');

-- worker_*: the business table.  It has no unique key on purpose: nothing but the
-- fenced commit stands against a row that is written twice.
CREATE TABLE report (job text, day date, total numeric);
GRANT SELECT, INSERT ON report TO app;

-- queue_worker.py
CREATE TABLE todo (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, task text NOT NULL, done_at timestamptz, answer jsonb);
GRANT SELECT, UPDATE ON todo TO app;

-- http_*: who may pay for whom, the payments, and what identifies a request
CREATE TABLE members (tenant text, name text);
INSERT INTO members VALUES ('acme', 'ann');
CREATE TABLE payments (id bigint GENERATED ALWAYS AS IDENTITY, tenant text, amount numeric, currency text);
GRANT SELECT ON members TO app;
GRANT INSERT, SELECT ON payments TO app;

CREATE FUNCTION may_pay(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT EXISTS (SELECT FROM public.members m WHERE m.tenant = tenant_id AND m.name = auth ->> 'user') $$;
SELECT fencing_define_operation('payment', 'may_pay(text, text, jsonb, jsonb)');
SELECT fencing_define_request('payment', 1, '{"type": "object", "required": ["amount"], "properties": {
  "amount": {"type": "number"}, "currency": {"type": "string", "default": "EUR"}}}');

-- outbox_relay.py
SELECT fencing_outbox_subscribe('example-relay', from_start => true);

-- configuration_agent.py
SELECT outcome FROM fencing_publish('shop-settings', 0, '{"tea": 3.00}', 'first');
SELECT fencing_target_desire('shop-settings', 'example-agent');
