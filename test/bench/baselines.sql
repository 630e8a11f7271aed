-- What the extension is measured against: the same ideas, written by hand by
-- somebody who tries to win.  Everything is in schema bench; test/bench/calls has
-- the statements.  The tables have the columns of the extension's, and the
-- indexes that the hand-written code needs.
--
--   psql -v jobs=1000 -f baselines.sql      how many jobs there are

SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS fencing CASCADE;
CREATE SCHEMA bench;
SET search_path = bench, public;

-- business tables: what a job, a request or a version writes
CREATE TABLE report (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, day date NOT NULL, total numeric NOT NULL);
CREATE TABLE setting (document_id text COLLATE "C" PRIMARY KEY, content jsonb NOT NULL) WITH (fillfactor = 70);
CREATE TABLE members (tenant text, name text, PRIMARY KEY (tenant, name));
INSERT INTO members VALUES ('acme', 'ann');

--
-- Jobs
--
CREATE TABLE fences (job_key text COLLATE "C" PRIMARY KEY, token bigint NOT NULL) WITH (fillfactor = 80);
CREATE TABLE leases (
	job_key text COLLATE "C" PRIMARY KEY,
	owner uuid NOT NULL,
	token bigint NOT NULL,
	lease_until timestamptz NOT NULL
) WITH (fillfactor = 70);
CREATE TABLE receipts (
	job_key text COLLATE "C" NOT NULL,
	token bigint NOT NULL,
	step text COLLATE "C" NOT NULL,
	digest bytea NOT NULL,
	digest_version integer NOT NULL,
	result jsonb,
	committed_at timestamptz NOT NULL,
	PRIMARY KEY (job_key, token, step)
);

-- The fenced commit.  Two queries if it is new: whoever holds the fence's row
-- is the only one who inserts, so that nothing is looked up before.
CREATE FUNCTION commit(the_job text, the_token bigint, payload jsonb, the_step text,
	OUT outcome text, OUT result jsonb, OUT committed_at timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
	the_digest bytea := digest(payload::text, 'sha256');
	fence bigint;
	old_digest bytea;
BEGIN
	SELECT f.token INTO fence FROM bench.fences f WHERE f.job_key = the_job FOR NO KEY UPDATE;
	IF fence = the_token THEN
		INSERT INTO bench.receipts AS r VALUES (the_job, the_token, the_step, the_digest, 1, NULL, clock_timestamp())
		ON CONFLICT DO NOTHING
		RETURNING r.committed_at INTO committed_at;
		IF FOUND THEN
			outcome := 'committed';
			RETURN;
		END IF;
	ELSIF fence IS NULL OR the_token > fence THEN
		RAISE EXCEPTION 'token % of "%" was never issued', the_token, the_job;
	END IF;
	SELECT r.digest, r.result, r.committed_at INTO old_digest, result, committed_at
	FROM bench.receipts r
	WHERE r.job_key = the_job AND r.token = the_token AND r.step = the_step;
	IF NOT FOUND THEN
		outcome := 'stale';
	ELSIF old_digest = the_digest THEN
		outcome := 'replayed';
	ELSE
		outcome := 'conflict';
		result := NULL;
	END IF;
END $$;

-- The order of the extension: the receipt first, without a lock.  A replay costs
-- less, a commit more.
CREATE FUNCTION replay(the_job text, the_token bigint, payload jsonb, the_step text,
	OUT outcome text, OUT result jsonb, OUT committed_at timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
	old_digest bytea;
BEGIN
	SELECT r.digest, r.result, r.committed_at INTO old_digest, result, committed_at
	FROM bench.receipts r
	WHERE r.job_key = the_job AND r.token = the_token AND r.step = the_step;
	IF NOT FOUND THEN
		SELECT c.outcome, c.result, c.committed_at INTO outcome, result, committed_at
		FROM bench.commit(the_job, the_token, payload, the_step) c;
	ELSIF old_digest = digest(payload::text, 'sha256') THEN
		outcome := 'replayed';
	ELSE
		outcome := 'conflict';
		result := NULL;
	END IF;
END $$;

-- The same with the business write between gate and receipt.
CREATE FUNCTION commit_report(the_job text, the_token bigint, payload jsonb, the_step text,
	OUT outcome text, OUT result jsonb, OUT committed_at timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
	fence bigint;
	report_id bigint;
BEGIN
	SELECT f.token INTO fence FROM bench.fences f WHERE f.job_key = the_job FOR NO KEY UPDATE;
	IF fence = the_token THEN
		PERFORM FROM bench.receipts r WHERE r.job_key = the_job AND r.token = the_token AND r.step = the_step;
		IF NOT FOUND THEN
			INSERT INTO bench.report (day, total) VALUES ((payload ->> 'day')::date, (payload ->> 'total')::numeric)
			RETURNING id INTO report_id;
			committed_at := clock_timestamp();
			result := jsonb_build_object('id', report_id);
			INSERT INTO bench.receipts VALUES (the_job, the_token, the_step, digest(payload::text, 'sha256'), 1, result, committed_at);
			outcome := 'committed';
			RETURN;
		END IF;
	END IF;
	SELECT c.outcome, c.result, c.committed_at INTO outcome, result, committed_at
	FROM bench.commit(the_job, the_token, payload, the_step) c;
END $$;

-- Heartbeat and takeover, which are one UPDATE and one upsert within.
CREATE FUNCTION renew(the_job text, the_owner uuid, the_token bigint, OUT outcome text, OUT lease_until timestamptz)
LANGUAGE plpgsql AS $$
BEGIN
	UPDATE bench.leases l SET lease_until = greatest(l.lease_until, clock_timestamp() + '30 seconds')
	WHERE l.job_key = the_job AND l.owner = the_owner AND l.token = the_token
	RETURNING l.lease_until INTO lease_until;
	outcome := CASE WHEN FOUND THEN 'renewed' ELSE 'lost' END;
END $$;

CREATE FUNCTION acquire(the_job text, the_owner uuid, ttl interval, OUT outcome text, OUT token bigint, OUT lease_until timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
	held bench.leases;
BEGIN
	SELECT * INTO held FROM bench.leases l WHERE l.job_key = the_job FOR NO KEY UPDATE SKIP LOCKED;
	lease_until := clock_timestamp() + ttl;
	IF NOT FOUND THEN
		-- new, or busy
		INSERT INTO bench.leases VALUES (the_job, the_owner, 1, lease_until) ON CONFLICT DO NOTHING;
		IF FOUND THEN
			token := 1;
			INSERT INTO bench.fences VALUES (the_job, token);
		END IF;
	ELSIF held.lease_until <= clock_timestamp() THEN
		UPDATE bench.fences f SET token = f.token + 1 WHERE f.job_key = the_job RETURNING f.token INTO token;
		UPDATE bench.leases l SET owner = the_owner, token = acquire.token, lease_until = acquire.lease_until WHERE l.job_key = the_job;
	ELSIF held.owner = the_owner THEN
		UPDATE bench.leases l SET lease_until = acquire.lease_until WHERE l.job_key = the_job;
		token := held.token;
		outcome := 'renewed';
		RETURN;
	END IF;
	outcome := CASE WHEN token IS NULL THEN 'held' ELSE 'acquired' END;
END $$;

--
-- Idempotent operations
--
CREATE TABLE records (
	tenant_id text COLLATE "C" NOT NULL,
	operation text COLLATE "C" NOT NULL,
	key text COLLATE "C" NOT NULL,
	hash bytea NOT NULL,
	result jsonb,
	committed_at timestamptz NOT NULL,
	PRIMARY KEY (tenant_id, operation, key)
);

-- Asked by both.  PL/pgSQL keeps its plan, a function in SQL does not.
CREATE FUNCTION may_pay(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
	PERFORM FROM bench.members m WHERE m.tenant = tenant_id AND m.name = auth ->> 'user';
	RETURN FOUND;
END $$;

CREATE FUNCTION once(the_tenant text, the_operation text, the_key text, request jsonb, auth jsonb,
	OUT outcome text, OUT result jsonb, OUT committed_at timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
	old_hash bytea;
	the_hash bytea;
	report_id bigint;
BEGIN
	IF NOT bench.may_pay(the_tenant, the_operation, request, auth) THEN
		outcome := 'denied';
		RETURN;
	END IF;
	the_hash := digest(jsonb_build_object('amount', request -> 'amount', 'to', lower(request ->> 'to'),
		'currency', COALESCE(request ->> 'currency', 'EUR'))::text, 'sha256');
	FOR attempt IN 1 .. 2 LOOP
		SELECT r.hash, r.result, r.committed_at INTO old_hash, result, committed_at
		FROM bench.records r
		WHERE r.tenant_id = the_tenant AND r.operation = the_operation AND r.key = the_key;
		IF FOUND THEN
			outcome := CASE WHEN old_hash = the_hash THEN 'replayed' ELSE 'conflict' END;
			RETURN;
		END IF;
		EXIT WHEN attempt = 2;
		PERFORM pg_advisory_xact_lock(hashtextextended(the_tenant || the_operation || the_key, 0));
	END LOOP;
	INSERT INTO bench.report (day, total) VALUES ('2026-08-03', (request ->> 'amount')::numeric) RETURNING id INTO report_id;
	committed_at := clock_timestamp();
	result := jsonb_build_object('id', report_id);
	INSERT INTO bench.records VALUES (the_tenant, the_operation, the_key, the_hash, result, committed_at);
	outcome := 'committed';
END $$;

SELECT fencing_define_operation('payment', 'bench.may_pay(text, text, jsonb, jsonb)');
SELECT fencing_define_request('payment', 1, '{"type": "object", "required": ["amount", "to"], "properties": {
	"amount": {"type": "number"}, "to": {"type": "string", "format": "uuid"},
	"currency": {"type": "string", "default": "EUR"}}}');

--
-- Publishing: a target that only moves upwards
--
CREATE TABLE targets (
	document_id text COLLATE "C" NOT NULL,
	target_id text COLLATE "C" NOT NULL,
	applied bigint NOT NULL,
	applied_digest bytea,
	applied_at timestamptz,
	PRIMARY KEY (document_id, target_id)
) WITH (fillfactor = 70);

CREATE FUNCTION apply(the_document text, the_target text, the_version bigint, the_digest bytea, content jsonb, OUT outcome text)
LANGUAGE plpgsql AS $$
DECLARE
	t bench.targets;
BEGIN
	IF digest(content::text, 'sha256') <> the_digest THEN
		RAISE EXCEPTION 'the content does not have this digest';
	END IF;
	SELECT * INTO t FROM bench.targets WHERE document_id = the_document AND target_id = the_target FOR NO KEY UPDATE;
	IF t.applied < the_version THEN
		INSERT INTO bench.setting AS s VALUES (the_document, content)
		ON CONFLICT (document_id) DO UPDATE SET content = EXCLUDED.content;
		UPDATE bench.targets SET applied = the_version, applied_digest = the_digest, applied_at = clock_timestamp()
		WHERE document_id = the_document AND target_id = the_target;
		outcome := 'committed';
	ELSIF t.applied > the_version THEN
		outcome := 'stale';
	ELSE
		outcome := CASE WHEN t.applied_digest = the_digest THEN 'replayed' ELSE 'conflict' END;
	END IF;
END $$;

INSERT INTO targets SELECT 'document ' || i, 'target', 0 FROM generate_series(0, 999) i;
SELECT count(fencing_target_desire('document ' || i, 'target')) FROM generate_series(0, 999) i;

--
-- The outbox.  Readers go by transaction id and stop at the oldest that runs, so
-- that nothing is passed over and a consumer is one cursor.
--
CREATE TABLE outbox (
	no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	id uuid NOT NULL UNIQUE,
	aggregatetype text COLLATE "C" NOT NULL,
	aggregateid text COLLATE "C" NOT NULL,
	type text NOT NULL,
	payload jsonb NOT NULL,
	created_at timestamptz NOT NULL,
	xid xid8 NOT NULL
);
CREATE INDEX ON outbox (xid, no);
CREATE TABLE consumers (consumer text COLLATE "C" PRIMARY KEY, token bigint NOT NULL, xid xid8 NOT NULL, no bigint NOT NULL) WITH (fillfactor = 50);

CREATE FUNCTION emit(the_aggregate text, the_id text, the_type text, payload jsonb) RETURNS uuid
LANGUAGE plpgsql AS $$
DECLARE
	event uuid := gen_random_uuid();
BEGIN
	PERFORM pg_advisory_xact_lock(hashtextextended(the_aggregate || the_id, 0));
	INSERT INTO bench.outbox (id, aggregatetype, aggregateid, type, payload, created_at, xid)
	VALUES (event, the_aggregate, the_id, the_type, payload, clock_timestamp(), pg_current_xact_id());
	RETURN event;
END $$;

CREATE FUNCTION read(the_consumer text, the_token bigint, max_rows int)
RETURNS TABLE (id uuid, aggregate_type text, aggregate_id text, type text, payload jsonb, created_at timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
	c bench.consumers;
BEGIN
	SELECT * INTO c FROM bench.consumers WHERE consumer = the_consumer;
	IF c.token = the_token THEN
		RETURN QUERY SELECT o.id, o.aggregatetype, o.aggregateid, o.type, o.payload, o.created_at
		FROM bench.outbox o
		WHERE (o.xid, o.no) > (c.xid, c.no) AND o.xid < pg_snapshot_xmin(pg_current_snapshot())
		ORDER BY o.xid, o.no LIMIT max_rows;
	END IF;
END $$;

-- As events come in order, the last one tells how far the consumer is.
CREATE FUNCTION ack(the_consumer text, the_token bigint, ids uuid[], OUT outcome text)
LANGUAGE plpgsql AS $$
BEGIN
	UPDATE bench.consumers c SET xid = o.xid, no = o.no
	FROM bench.outbox o
	WHERE c.consumer = the_consumer AND c.token = the_token AND o.id = ids[array_upper(ids, 1)] AND (o.xid, o.no) > (c.xid, c.no);
	outcome := CASE WHEN FOUND THEN 'committed' ELSE 'stale' END;
END $$;

--
-- Tags: names that lead to tags, tags that lead to others
--
CREATE TABLE tags (tag_id uuid PRIMARY KEY, name text COLLATE "C" NOT NULL, root uuid NOT NULL, version bigint NOT NULL);
CREATE TABLE tag_names (vocabulary text COLLATE "C", name text COLLATE "C", tag_id uuid NOT NULL REFERENCES tags, PRIMARY KEY (vocabulary, name));
CREATE TABLE tag_links (tag_id uuid NOT NULL, subject text COLLATE "C" NOT NULL, PRIMARY KEY (subject, tag_id));
CREATE TABLE tag_events (
	event_no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	event_id uuid NOT NULL UNIQUE,
	kind text NOT NULL,
	reference text NOT NULL,
	tag_id uuid NOT NULL,
	subject text NOT NULL,
	digest bytea NOT NULL,
	committed_at timestamptz NOT NULL
);

CREATE FUNCTION tag_resolve(the_vocabulary text, reference text, OUT tag_id uuid, OUT name text, OUT version bigint)
LANGUAGE plpgsql STABLE AS $$
BEGIN
	SELECT r.tag_id, r.name, r.version INTO tag_id, name, version
	FROM bench.tag_names n
	JOIN bench.tags t ON t.tag_id = n.tag_id
	JOIN bench.tags r ON r.tag_id = t.root
	WHERE n.vocabulary = the_vocabulary AND n.name = reference;
END $$;

CREATE FUNCTION tag_assign(the_vocabulary text, the_event uuid, the_reference text, the_subject text, OUT outcome text, OUT number bigint)
LANGUAGE plpgsql AS $$
DECLARE
	the_digest bytea := digest(jsonb_build_array('assign', the_reference, the_subject)::text, 'sha256');
	old_digest bytea;
	the_tag uuid;
	the_root uuid;
BEGIN
	SELECT t.tag_id, t.root INTO the_tag, the_root
	FROM bench.tag_names n JOIN bench.tags t ON t.tag_id = n.tag_id
	WHERE n.vocabulary = the_vocabulary AND n.name = the_reference
	FOR KEY SHARE OF t;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'there is no tag "%"', the_reference;
	END IF;
	INSERT INTO bench.tag_events (event_id, kind, reference, tag_id, subject, digest, committed_at)
	VALUES (the_event, 'assign', the_reference, the_tag, the_subject, the_digest, clock_timestamp())
	ON CONFLICT (event_id) DO NOTHING
	RETURNING event_no INTO number;
	IF NOT FOUND THEN
		SELECT e.digest, e.event_no INTO old_digest, number FROM bench.tag_events e WHERE e.event_id = the_event;
		outcome := CASE WHEN old_digest = the_digest THEN 'replayed' ELSE 'conflict' END;
		RETURN;
	END IF;
	INSERT INTO bench.tag_links VALUES (the_tag, the_subject) ON CONFLICT DO NOTHING;
	IF FOUND THEN
		PERFORM bench.emit('tag', the_root::text, 'assign', jsonb_build_object('subject', the_subject, 'event_no', number));
	END IF;
	outcome := 'committed';
END $$;

INSERT INTO tags SELECT lpad(to_hex(i), 32, '0')::uuid, 'tag ' || i, lpad(to_hex(i), 32, '0')::uuid, 0 FROM generate_series(0, 999) i;
INSERT INTO tag_names SELECT 'bench', 'tag ' || i, lpad(to_hex(i), 32, '0')::uuid FROM generate_series(0, 999) i;
SELECT count(*) FROM generate_series(0, 999) i, fencing_tag_create('bench', gen_random_uuid(), 'tag ' || i);

--
-- A document of 10 kB, and its digest over and over
--
CREATE FUNCTION document() RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_object_agg('region_' || i, jsonb_build_object('total', i * 1.25, 'name', 'Region number ' || i, 'open', i % 2 = 0, 'days', jsonb_build_array(i, i + 1, i + 2)))
	FROM generate_series(1, 105) i $$;

CREATE FUNCTION digests(n int) RETURNS bytea LANGUAGE plpgsql AS $$
DECLARE
	d jsonb := bench.document();
	answer bytea;
BEGIN
	FOR i IN 1 .. n LOOP
		answer := fencing_digest(d);
	END LOOP;
	RETURN answer;
END $$;

CREATE FUNCTION plain_digests(n int) RETURNS bytea LANGUAGE plpgsql AS $$
DECLARE
	d jsonb := bench.document();
	answer bytea;
BEGIN
	FOR i IN 1 .. n LOOP
		answer := digest(d::text, 'sha256');
	END LOOP;
	RETURN answer;
END $$;

--
-- Jobs and what is there before the first call.  One statement per job: a
-- transaction cannot hold the locks of all.
--
CREATE PROCEDURE prepare(jobs int) LANGUAGE plpgsql AS $$
DECLARE
	holder CONSTANT uuid := '0f7f2d0a-9b1e-4c55-8f0e-3c2a5d1b7e44';
	job text;
BEGIN
	FOR i IN 0 .. jobs - 1 LOOP
		-- held for long
		job := 100000000000000000 + i;
		PERFORM FROM fencing_acquire(job, holder, '1 day');
		PERFORM FROM fencing_commit(job, 1, '{"day": "2026-08-03", "total": 4.50}', step => 'old');
		INSERT INTO bench.fences VALUES (job, 1);
		INSERT INTO bench.leases VALUES (job, holder, 1, clock_timestamp() + '1 day');
		INSERT INTO bench.receipts SELECT job_key, token, step, digest('{"day": "2026-08-03", "total": 4.50}'::jsonb::text, 'sha256'), digest_version, result, r.committed_at FROM fencing.receipts r WHERE job_key = job;
		-- given up
		job := 200000000000000000 + i;
		PERFORM FROM fencing_acquire(job, holder, '1 microsecond');
		INSERT INTO bench.fences VALUES (job, 1);
		INSERT INTO bench.leases VALUES (job, holder, 1, clock_timestamp());
		-- used keys
		PERFORM FROM fencing_once('acme', 'payment', 'old ' || i, '{"amount": 12.50, "to": "0b5e0f34-4f0f-4d7c-8a77-0d1f2f7a1c11"}',
			$statement$INSERT INTO bench.report (day, total) VALUES ('2026-08-03', ($4 ->> 'amount')::numeric) RETURNING id$statement$, auth => '{"user": "ann"}');
		PERFORM bench.once('acme', 'payment', 'old ' || i, '{"amount": 12.50, "to": "0b5e0f34-4f0f-4d7c-8a77-0d1f2f7a1c11"}', '{"user": "ann"}');
		COMMIT;
	END LOOP;
END $$;

-- Events to be read and acknowledged, and who does that.
CREATE PROCEDURE prepare_events(events int) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fencing_outbox_subscribe('consumer', from_start => false);
	PERFORM fencing_acquire('consumer', '0f7f2d0a-9b1e-4c55-8f0e-3c2a5d1b7e44', '1 day');
	INSERT INTO bench.consumers VALUES ('consumer', 1, '0', 0);
	COMMIT;
	FOR i IN 1 .. events LOOP
		PERFORM fencing_outbox_emit('order', (i % 100)::text, 'paid', '{"amount": 12.50}');
		PERFORM bench.emit('order', (i % 100)::text, 'paid', '{"amount": 12.50}');
		COMMIT;
	END LOOP;
END $$;

CALL prepare(:jobs);
