/* fencing--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION fencing CASCADE" to load this file. \quit

--
-- Every answer of every part is a word of this type, so that a misspelt word
-- in an application is an error and not a branch that is never taken.
--
CREATE TYPE fencing_outcome AS ENUM (
	'committed', 'replayed', 'conflict', 'stale', 'pruned', 'denied', 'failed',
	'acquired', 'renewed', 'held', 'lost', 'released',
	'advanced', 'current',
	'done', 'recorded', 'write', 'ahead', 'diverged', 'undesired');

COMMENT ON TYPE fencing_outcome IS
'the closed set of answers that the fencing functions give; an answer is not an error, the transaction stays usable';

--
-- State.  The schema must be new: CREATE SCHEMA fails if somebody prepared one
-- of that name with objects in it.  No application role gets any
-- privilege on a table here; the functions reach them by the table access
-- method, or as their owner.  "USING heap" because they do rely on heap.
--
CREATE SCHEMA fencing;

COMMENT ON SCHEMA fencing IS
'state of the extension fencing, and its views for people and monitoring; applications use the functions fencing_* only';

--
-- Canonical form and digests: canonical.c, digest.c
--
CREATE FUNCTION fencing_canonical(payload jsonb, digest_version integer DEFAULT 1)
RETURNS text
AS 'MODULE_PATHNAME', 'fencing_canonical'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION fencing_canonical(jsonb, integer) IS
'canonical text of a document: RFC 8785 (JCS) with numbers kept exact. Equal as
jsonb means equal text.
Errors: LF002 unknown version, 54000 nested deeper than 512, 22023 not a
finite number, 0A000 database not in UTF8';

CREATE FUNCTION fencing_digest(payload jsonb, digest_version integer DEFAULT 1)
RETURNS bytea
AS 'MODULE_PATHNAME', 'fencing_digest'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION fencing_digest(jsonb, integer) IS
'SHA-256 over the canonical text of a document, 32 bytes. Errors as
fencing_canonical()';

--
-- Epochs, and the floor of forgotten jobs: epoch.c
--
CREATE TABLE fencing.floor (
	sysid bigint NOT NULL,
	dboid oid NOT NULL,
	reloid oid NOT NULL,
	tli bigint NOT NULL,
	epoch bigint NOT NULL,
	floor bigint NOT NULL,
	since timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	PRIMARY KEY (sysid, dboid, reloid)
) USING heap WITH (fillfactor = 50, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);

COMMENT ON TABLE fencing.floor IS
'where this database has been: one row per identity (system identifier, database, this table) with the epoch that it reached and the floor below which no token is issued again';
COMMENT ON COLUMN fencing.floor.sysid IS 'system identifier of the cluster that wrote the row';
COMMENT ON COLUMN fencing.floor.dboid IS 'OID of the database that wrote the row';
COMMENT ON COLUMN fencing.floor.reloid IS 'OID of fencing.floor itself when the row was written';
COMMENT ON COLUMN fencing.floor.tli IS 'WAL timeline on which the epoch was reached';
COMMENT ON COLUMN fencing.floor.epoch IS 'epoch; tokens up to epoch * 2^36 are of the past';
COMMENT ON COLUMN fencing.floor.floor IS 'highest token of a forgotten job';
COMMENT ON COLUMN fencing.floor.since IS 'when the epoch was written down';

SELECT pg_catalog.pg_extension_config_dump('fencing.floor', '');

-- The one row that the script may insert: its key is this installation's
-- identity, so the rows of a restored dump never collide with it.  The WAL
-- insertion timeline comes from the name of the WAL file: pg_control lags.
INSERT INTO fencing.floor (sysid, dboid, reloid, tli, epoch, floor)
SELECT s.system_identifier, d.oid, 'fencing.floor'::pg_catalog.regclass,
	('x' OPERATOR(pg_catalog.||) pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint,
	0, 0
FROM pg_catalog.pg_control_system() s, pg_catalog.pg_database d
WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database();

CREATE FUNCTION fencing_new_epoch(reason text, above bigint DEFAULT NULL,
	OUT epoch_start bigint)
AS 'MODULE_PATHNAME', 'fencing_new_epoch'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_new_epoch(text, bigint) IS
'begins a new epoch, before a database is used whose tokens may have been lost
in a way that it cannot see. For administrators. All leases end for their
owners (others wait until the end that was promised); every next token is
above all that were issued, and above the given one. Waits for commits in
flight, beside which others go on, and names them in a NOTICE. Moves the
sequences above what the tables hold. Returns the token at and below which all
are of the past.
Errors: 22004, 22023, 25006, 40001, 40P01, 54000, 55P03';

CREATE FUNCTION fencing.epoch_start()
RETURNS bigint
AS 'MODULE_PATHNAME', 'fencing_epoch_start'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing.epoch_start() IS
'the token at and below which every token of a job with leases is of a former
epoch.
Errors: 55000 the database is behind its own timeline';

CREATE FUNCTION fencing.read_epoch(OUT timeline bigint, OUT epoch bigint, OUT epoch_start bigint,
	OUT since timestamptz, OUT epochs_left bigint, OUT new_epoch_needed boolean, OUT floor bigint,
	OUT other_identities integer, OUT highest_other_epoch bigint)
AS 'MODULE_PATHNAME', 'fencing_read_epoch'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing.read_epoch() IS
'where this database is, for fencing.epoch_status; answers also when
fencing.epoch_start() raises 55000';

CREATE VIEW fencing.epoch_status AS
SELECT e.timeline, e.epoch, e.epoch_start, e.since, e.epochs_left, e.new_epoch_needed, e.floor,
	e.other_identities, e.highest_other_epoch
FROM fencing.read_epoch() e;

COMMENT ON VIEW fencing.epoch_status IS 'the epoch of this database, and whether an administrator has to begin another; readable by pg_monitor';
COMMENT ON COLUMN fencing.epoch_status.timeline IS 'WAL timeline that the server is on';
COMMENT ON COLUMN fencing.epoch_status.epoch IS 'the epoch; if a new one is needed, the last that is known';
COMMENT ON COLUMN fencing.epoch_status.epoch_start IS 'tokens up to this one are of a former epoch';
COMMENT ON COLUMN fencing.epoch_status.since IS 'when the first token of the epoch was issued, or fencing_new_epoch() was called; NULL: none has been issued';
COMMENT ON COLUMN fencing.epoch_status.epochs_left IS 'how many more there can be';
COMMENT ON COLUMN fencing.epoch_status.new_epoch_needed IS 'whether every call fails with 55000 until fencing_new_epoch() is called: the server is on a timeline before the one that it has been on';
COMMENT ON COLUMN fencing.epoch_status.floor IS 'highest token of a forgotten job';
COMMENT ON COLUMN fencing.epoch_status.other_identities IS 'how many other databases this one is a copy of, or has been copied to and back';
COMMENT ON COLUMN fencing.epoch_status.highest_other_epoch IS 'highest epoch of those; NULL: there are none';

--
-- Fences and leases: job.c, lease.c
--
CREATE TABLE fencing.fences (
	job_key text COLLATE "C" NOT NULL PRIMARY KEY,
	token bigint NOT NULL,
	purged_through bigint NOT NULL,
	external boolean NOT NULL
) USING heap WITH (fillfactor = 80);

COMMENT ON TABLE fencing.fences IS 'the highest token issued per job; for ever, heartbeats do not touch it';
COMMENT ON COLUMN fencing.fences.job_key IS 'the job, 1 to 512 bytes, compared byte by byte';
COMMENT ON COLUMN fencing.fences.token IS 'the highest token issued (external job: announced)';
COMMENT ON COLUMN fencing.fences.purged_through IS 'receipts of tokens up to this one may have been purged';
COMMENT ON COLUMN fencing.fences.external IS 'whether the tokens are issued elsewhere and announced by fencing_advance()';

-- Nothing but the key is indexed, so that renewals stay heap-only updates.
CREATE TABLE fencing.leases (
	job_key text COLLATE "C" NOT NULL PRIMARY KEY,
	owner uuid NOT NULL,
	token bigint NOT NULL,
	lease_until timestamptz NOT NULL,
	acquired_at timestamptz NOT NULL,
	application_name text NOT NULL,
	client_addr inet
) USING heap WITH (fillfactor = 70, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0.05);

COMMENT ON TABLE fencing.leases IS 'the part of a job that heartbeats rewrite: who holds it, and until when';
COMMENT ON COLUMN fencing.leases.job_key IS 'the job';
COMMENT ON COLUMN fencing.leases.owner IS 'one execution of a worker, not a host';
COMMENT ON COLUMN fencing.leases.token IS 'the token that was issued with the lease';
COMMENT ON COLUMN fencing.leases.lease_until IS 'end of the lease by the clock of the server; -infinity when released';
COMMENT ON COLUMN fencing.leases.acquired_at IS 'when the token was issued, by the clock of the server';
COMMENT ON COLUMN fencing.leases.application_name IS 'application_name of the session that acquired it';
COMMENT ON COLUMN fencing.leases.client_addr IS 'address of the client that acquired it; NULL for a Unix-domain socket';

CREATE TABLE fencing.revocations (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	job_key text COLLATE "C",
	token bigint NOT NULL,
	reason text NOT NULL,
	revoked_by name NOT NULL,
	client_addr inet,
	revoked_at timestamptz NOT NULL
) USING heap;

COMMENT ON TABLE fencing.revocations IS 'who stopped which execution, or all of them by a new epoch, and why; readable by pg_monitor';
COMMENT ON COLUMN fencing.revocations.id IS 'number of the entry; gaps are possible';
COMMENT ON COLUMN fencing.revocations.job_key IS 'the job; NULL for a new epoch, which ends all';
COMMENT ON COLUMN fencing.revocations.token IS 'the fence after the revocation: every lower token is stale; of a new epoch its start';
COMMENT ON COLUMN fencing.revocations.reason IS 'as given to fencing_revoke() or fencing_new_epoch()';
COMMENT ON COLUMN fencing.revocations.revoked_by IS 'session_user';
COMMENT ON COLUMN fencing.revocations.client_addr IS 'address of the client, NULL for a Unix-domain socket';
COMMENT ON COLUMN fencing.revocations.revoked_at IS 'clock of the server under the lock of the fence';

COMMENT ON SEQUENCE fencing.revocations_id_seq IS 'numbers of fencing.revocations';

SELECT pg_catalog.pg_extension_config_dump('fencing.fences', '');
SELECT pg_catalog.pg_extension_config_dump('fencing.leases', '');
SELECT pg_catalog.pg_extension_config_dump('fencing.revocations', '');
SELECT pg_catalog.pg_extension_config_dump('fencing.revocations_id_seq', '');

CREATE TYPE fencing_lease_answer AS (
	outcome fencing_outcome,
	token bigint,
	lease_until timestamptz,
	safe_for_ms bigint,
	retry_after_ms bigint);

COMMENT ON TYPE fencing_lease_answer IS 'answer of fencing_acquire() and fencing_renew()';
COMMENT ON COLUMN fencing_lease_answer.outcome IS 'acquired, renewed, held or lost';
COMMENT ON COLUMN fencing_lease_answer.token IS 'the fencing token; NULL for held and lost';
COMMENT ON COLUMN fencing_lease_answer.lease_until IS 'end of the lease by the clock of the server, for held that of the holder; NULL for lost, and while somebody is just taking the job';
COMMENT ON COLUMN fencing_lease_answer.safe_for_ms IS 'milliseconds for which the holder may act, counted from just before it sent the call; NULL for held and lost';
COMMENT ON COLUMN fencing_lease_answer.retry_after_ms IS 'milliseconds after which to try again; only for held';

CREATE FUNCTION fencing_acquire(job_key text, owner uuid, ttl interval DEFAULT '30 seconds')
RETURNS fencing_lease_answer
AS 'MODULE_PATHNAME', 'fencing_acquire'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_acquire(text, uuid, interval) IS
'takes the lease of a job.
Answers: acquired (a new, higher token), renewed (the same owner has it
already: the same token) or held (somebody else has it, or it is busy; try
again after retry_after_ms). Never waits. Count safe_for_ms, in milliseconds,
from just before the call was sent. The token counts once the transaction has
committed.
Errors: 22004, 22023, 54000, 25006, 40001, 55000';

CREATE FUNCTION fencing_renew(job_key text, owner uuid, token bigint, ttl interval DEFAULT '30 seconds')
RETURNS fencing_lease_answer
AS 'MODULE_PATHNAME', 'fencing_renew'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_renew(text, uuid, bigint, interval) IS
'heartbeat: renewed if the lease is this owner''s with this token and nobody
has superseded or released it, also when it has expired; otherwise lost, and
nothing is changed. Does not wait for a commit. Call it in a transaction of
its own.
Errors: 22004, 22023, 54000, 25006, 40001, 55000';

CREATE FUNCTION fencing_release(job_key text, owner uuid, token bigint,
	OUT outcome fencing_outcome)
AS 'MODULE_PATHNAME', 'fencing_release'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_release(text, uuid, bigint) IS
'ends the lease now: released (also the second time, and also one of a former
epoch, for which others would wait) or lost (it is not this owner''s any
more). The fence stays: the next token is higher.
Errors: 22004, 22023, 54000, 25006, 40001, 55000';

CREATE FUNCTION fencing_revoke(job_key text, reason text,
	OUT token bigint)
AS 'MODULE_PATHNAME', 'fencing_revoke'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_revoke(text, text) IS
'for administrators: moves the fence of a job, so that its holder is stale at
once, records who did it and why, and returns the fence. Waits for a commit in
flight. Stops an execution, not an owner, who may acquire again.
Errors: 22004, 22023, 54000, 25006, 40001, 55000, LF001 unknown job';

CREATE FUNCTION fencing_advance(job_key text, token bigint,
	OUT outcome fencing_outcome, OUT fence bigint)
AS 'MODULE_PATHNAME', 'fencing_advance'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_advance(text, bigint) IS
'announces a token that another service issued (an etcd revision, a ZooKeeper
zxid, a Consul LockIndex): advanced, current (known already) or stale (the
fence is higher); the fence never goes down. Not for a key that was forgotten
as an internal job''s.
Errors: 22004, 22023 also for a job with leases, 54000, 25006, 40001, 55000';

CREATE FUNCTION fencing_forget(job_key text)
RETURNS void
AS 'MODULE_PATHNAME', 'fencing_forget'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_forget(text) IS
'removes an ended job with its fence, lease and receipts. For administrators.
Raises the floor to its last token: an old token is pruned afterwards, a new
one higher. The key must never become an external job''s, which would begin
anew.
Errors: 22004, 22023 external job, 54000, 25006, 40001, 55000, 55006 live or
busy, LF001 unknown job';

CREATE VIEW fencing.lease_status AS
SELECT l.job_key, l.token, l.owner, CASE WHEN l.lease_until OPERATOR(pg_catalog.>) '-infinity'::timestamptz THEN l.lease_until END AS lease_until, s.live,
	CASE WHEN s.live THEN l.lease_until OPERATOR(pg_catalog.-) c.now END AS remaining,
	l.token OPERATOR(pg_catalog.<=) c.epoch_start AS former_epoch,
	l.acquired_at, l.application_name, l.client_addr
FROM (SELECT pg_catalog.clock_timestamp() AS now, e.epoch_start FROM fencing.read_epoch() e OFFSET 0) c
CROSS JOIN fencing.leases l
LEFT JOIN fencing.fences f ON f.job_key OPERATOR(pg_catalog.=) l.job_key
CROSS JOIN LATERAL (SELECT COALESCE(c.now OPERATOR(pg_catalog.<) l.lease_until
	AND l.token OPERATOR(pg_catalog.=) f.token, false) AS live) s;

COMMENT ON VIEW fencing.lease_status IS 'who holds which job, and for how long; readable by pg_monitor';
COMMENT ON COLUMN fencing.lease_status.job_key IS 'the job';
COMMENT ON COLUMN fencing.lease_status.token IS 'the token that was issued with the lease';
COMMENT ON COLUMN fencing.lease_status.owner IS 'the execution that holds or held it';
COMMENT ON COLUMN fencing.lease_status.lease_until IS 'end of the lease; NULL when released';
COMMENT ON COLUMN fencing.lease_status.live IS 'not ended and not superseded: others are told held';
COMMENT ON COLUMN fencing.lease_status.remaining IS 'rest of a live lease';
COMMENT ON COLUMN fencing.lease_status.former_epoch IS 'whether the token is of a former epoch: for its owner it is over, others wait until it ends';
COMMENT ON COLUMN fencing.lease_status.acquired_at IS 'since when, by the clock of the server';
COMMENT ON COLUMN fencing.lease_status.application_name IS 'application_name of the session that acquired it';
COMMENT ON COLUMN fencing.lease_status.client_addr IS 'address of the client that acquired it; NULL for a Unix-domain socket';

--
-- The fenced commit: commit.c, statement.c
--
CREATE TABLE fencing.receipts (
	job_key text COLLATE "C" NOT NULL,
	token bigint NOT NULL,
	step text COLLATE "C" NOT NULL,
	digest bytea NOT NULL,
	digest_version integer NOT NULL,
	result jsonb,
	committed_at timestamptz NOT NULL,
	PRIMARY KEY (job_key, token, step)
) USING heap;

COMMENT ON TABLE fencing.receipts IS 'what has been committed under which token: never updated, deleted by purge and forget only';
COMMENT ON COLUMN fencing.receipts.job_key IS 'the job';
COMMENT ON COLUMN fencing.receipts.token IS 'the token it was committed with';
COMMENT ON COLUMN fencing.receipts.step IS 'name of the chunk for jobs that commit in several';
COMMENT ON COLUMN fencing.receipts.digest IS 'digest of the payload';
COMMENT ON COLUMN fencing.receipts.digest_version IS 'version of the canonical form and hash that made the digest';
COMMENT ON COLUMN fencing.receipts.result IS 'first row that the statement returned';
COMMENT ON COLUMN fencing.receipts.committed_at IS 'clock of the server under the lock of the fence';

SELECT pg_catalog.pg_extension_config_dump('fencing.receipts', '');

CREATE TYPE fencing_commit_answer AS (
	outcome fencing_outcome,
	result jsonb,
	committed_at timestamptz,
	fence bigint,
	error jsonb);

COMMENT ON TYPE fencing_commit_answer IS 'answer of fencing_commit()';
COMMENT ON COLUMN fencing_commit_answer.outcome IS 'committed, replayed, conflict, stale, pruned or failed';
COMMENT ON COLUMN fencing_commit_answer.result IS 'first row of the statement; for replayed what it was then';
COMMENT ON COLUMN fencing_commit_answer.committed_at IS 'clock of the server under the lock of the fence; for replayed and conflict what it was then';
COMMENT ON COLUMN fencing_commit_answer.fence IS 'the highest token issued, or announced';
COMMENT ON COLUMN fencing_commit_answer.error IS 'for failed: sqlstate, message, detail, hint, context';

CREATE FUNCTION fencing_commit(job_key text, token bigint, payload jsonb,
	statement text DEFAULT NULL, step text DEFAULT '',
	report_errors boolean DEFAULT false, strict boolean DEFAULT false)
RETURNS fencing_commit_answer
AS 'MODULE_PATHNAME', 'fencing_commit'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_commit(text, bigint, jsonb, text, text, boolean, boolean) IS
'commits work under a fencing token, once per token and step.
Answers: committed (receipt and business write are in this transaction, COMMIT
now), replayed (done before with the same payload, its result is returned),
conflict (done before with another payload), stale (somebody else owns the
job), pruned (too old to tell), failed (only with report_errors).
statement is one SELECT, INSERT, UPDATE, DELETE or MERGE that runs as the
caller with $1 job_key, $2 token, $3 payload; its first row is the result;
without it write afterwards in the same transaction.
Errors: 22004, 22023, 54000, 0A000, 21000, 42701, 25006, 25P01 without a
statement outside a transaction block, 40001, 55000, 55006, LF001 token never
issued, LF002, LF005 with strict, and those of the statement';

CREATE FUNCTION fencing_receipt(job_key text, token bigint, step text DEFAULT '',
	OUT digest bytea, OUT digest_version integer, OUT result jsonb, OUT committed_at timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'fencing_receipt'
LANGUAGE C STABLE PARALLEL SAFE ROWS 1;

COMMENT ON FUNCTION fencing_receipt(text, bigint, text) IS
'the receipt of a commit, or no row; reads with the snapshot of the calling
query.
Errors: 22004, 22023, 54000';

CREATE FUNCTION fencing_statement_cache(OUT capacity integer, OUT entries integer,
	OUT max_bytes bigint, OUT bytes bigint, OUT hits bigint, OUT misses bigint,
	OUT evictions bigint, OUT unkept bigint)
AS 'MODULE_PATHNAME', 'fencing_statement_cache'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION fencing_statement_cache() IS
'how the plans kept for the statements of this backend do: places and places in
use, bytes and bytes in use, look-ups that found a plan, that did not, plans
that gave way to another, and plans that were not kept because they are large
or have a literal whose value depends on time or settings';

CREATE VIEW fencing.receipt_log AS
SELECT r.job_key, r.token, r.step, r.digest_version, r.committed_at
FROM fencing.receipts r;

COMMENT ON VIEW fencing.receipt_log IS 'what has been committed, without contents; readable by pg_monitor';
COMMENT ON COLUMN fencing.receipt_log.job_key IS 'the job';
COMMENT ON COLUMN fencing.receipt_log.token IS 'the token it was committed with';
COMMENT ON COLUMN fencing.receipt_log.step IS 'name of the chunk';
COMMENT ON COLUMN fencing.receipt_log.digest_version IS 'version of the canonical form and hash';
COMMENT ON COLUMN fencing.receipt_log.committed_at IS 'clock of the server under the lock of the fence';

--
-- Idempotent operations: once.c and once_*.c
--
-- The function is kept by its names: an OID does not survive a restore.
CREATE TABLE fencing.operations (
	operation text COLLATE "C" NOT NULL PRIMARY KEY,
	authorize_schema name NOT NULL,
	authorize_name name NOT NULL,
	authorize_owner name NOT NULL,
	retention interval NOT NULL,
	forget_after interval NOT NULL
) USING heap;

COMMENT ON TABLE fencing.operations IS 'idempotent operations, as defined by fencing_define_operation()';
COMMENT ON COLUMN fencing.operations.operation IS 'name of the operation';
COMMENT ON COLUMN fencing.operations.authorize_schema IS 'schema of the authorize function';
COMMENT ON COLUMN fencing.operations.authorize_name IS 'name of the authorize function';
COMMENT ON COLUMN fencing.operations.authorize_owner IS 'owner that the authorize function had; another''s is not asked';
COMMENT ON COLUMN fencing.operations.retention IS 'how long a record is kept with its result; a month is 31 days';
COMMENT ON COLUMN fencing.operations.forget_after IS 'how long the fact that there was a record is kept; a month is 31 days';

CREATE TABLE fencing.request_schemas (
	operation text COLLATE "C" NOT NULL,
	hash_version integer NOT NULL,
	request_schema jsonb NOT NULL,
	retired_by xid8 NOT NULL,
	PRIMARY KEY (operation, hash_version)
) USING heap;

COMMENT ON TABLE fencing.request_schemas IS 'versions of what identifies a request; frozen, because records have been hashed by them';
COMMENT ON COLUMN fencing.request_schemas.operation IS 'the operation';
COMMENT ON COLUMN fencing.request_schemas.hash_version IS 'the version';
COMMENT ON COLUMN fencing.request_schemas.request_schema IS 'subset of JSON Schema';
COMMENT ON COLUMN fencing.request_schemas.retired_by IS 'transaction that retired the version, 0 if it is in force';

CREATE TABLE fencing.records (
	tenant_id text COLLATE "C" NOT NULL,
	operation text COLLATE "C" NOT NULL,
	key text COLLATE "C" NOT NULL,
	hash bytea NOT NULL,
	hash_version integer NOT NULL,
	digest_version integer NOT NULL,
	result jsonb,
	responded boolean NOT NULL,
	purged boolean NOT NULL,
	committed_at timestamptz NOT NULL,
	PRIMARY KEY (tenant_id, operation, key)
) USING heap WITH (fillfactor = 90);

-- for fencing_purge(), which goes from the oldest of a schema on, and asks whether
-- there is any
CREATE INDEX records_schema_idx ON fencing.records (operation, hash_version, purged, committed_at);

COMMENT ON TABLE fencing.records IS 'idempotency keys that have been used, and the results; after its retention a record is a tombstone';
COMMENT ON COLUMN fencing.records.tenant_id IS 'whose key it is';
COMMENT ON COLUMN fencing.records.operation IS 'the operation';
COMMENT ON COLUMN fencing.records.key IS 'the idempotency key';
COMMENT ON COLUMN fencing.records.hash IS 'digest of the request, projected by its schema';
COMMENT ON COLUMN fencing.records.hash_version IS 'version of the request schema that made the hash';
COMMENT ON COLUMN fencing.records.digest_version IS 'version of the canonical form and hash that made it';
COMMENT ON COLUMN fencing.records.result IS 'result of the first call';
COMMENT ON COLUMN fencing.records.responded IS 'false only inside the transaction that has claimed the key';
COMMENT ON COLUMN fencing.records.purged IS 'whether only the tombstone is left';
COMMENT ON COLUMN fencing.records.committed_at IS 'clock of the server under the lock of the key';

SELECT pg_catalog.pg_extension_config_dump('fencing.operations', '');
SELECT pg_catalog.pg_extension_config_dump('fencing.request_schemas', '');
SELECT pg_catalog.pg_extension_config_dump('fencing.records', '');

CREATE FUNCTION fencing_define_operation(operation text, authorize regprocedure,
	retention interval DEFAULT '7 days', forget_after interval DEFAULT '90 days')
RETURNS void
AS 'MODULE_PATHNAME', 'fencing_define_operation'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_define_operation(text, regprocedure, interval, interval) IS
'defines an operation, or changes it: the function (tenant_id text, operation
text, request jsonb, auth jsonb) returns boolean that is asked on every call,
how long results are kept, and how long the fact that a key was used (a month
is 31 days, a year 12 of them).
Errors: 22004, 22023, 54000, 25006';

CREATE FUNCTION fencing_define_request(operation text, hash_version integer, request_schema jsonb)
RETURNS void
AS 'MODULE_PATHNAME', 'fencing_define_request'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_define_request(text, integer, jsonb) IS
'defines, in a subset of JSON Schema, what identifies a request of an
operation. A version is frozen: the same again is accepted, another is 22023.
A NOTICE names the keywords that have no effect.
Errors: 22004, 22023, 54000, 0A000 a keyword that is not supported, 25006';

CREATE FUNCTION fencing_retire_request(operation text, hash_version integer)
RETURNS void
AS 'MODULE_PATHNAME', 'fencing_retire_request'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_retire_request(text, integer) IS
'lets no call that begins after the commit use a version for a new key; records
keep it.
Errors: 22004, 22023, 54000, 25006, LF002';

CREATE TYPE fencing_once_answer AS (
	outcome fencing_outcome,
	result jsonb,
	committed_at timestamptz,
	hash_version integer,
	error jsonb);

COMMENT ON TYPE fencing_once_answer IS 'answer of fencing_once()';
COMMENT ON COLUMN fencing_once_answer.outcome IS 'committed, replayed, conflict, pruned, denied, held or failed';
COMMENT ON COLUMN fencing_once_answer.result IS 'first row of the statement; for replayed what it was then';
COMMENT ON COLUMN fencing_once_answer.committed_at IS 'clock of the server under the lock of the key; for replayed and conflict what it was then';
COMMENT ON COLUMN fencing_once_answer.hash_version IS 'version of the request schema that identifies the request';
COMMENT ON COLUMN fencing_once_answer.error IS 'for failed: sqlstate, message, detail, hint, context';

CREATE FUNCTION fencing_once(tenant_id text, operation text, key text, request jsonb,
	statement text DEFAULT NULL, auth jsonb DEFAULT NULL,
	report_errors boolean DEFAULT false, strict boolean DEFAULT false, wait boolean DEFAULT true)
RETURNS fencing_once_answer
AS 'MODULE_PATHNAME', 'fencing_once'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_once(text, text, text, jsonb, text, jsonb, boolean, boolean, boolean) IS
'executes an operation once per key.
Answers: committed (record and business write are in this transaction, COMMIT
now), replayed (done before with the same request, its result is returned),
conflict (done before with another request), denied (the authorize function
did not say true, whether or not the key exists), pruned (too old to tell),
held (only with wait => false: the key is in progress), failed (only with
report_errors).
statement is one SELECT, INSERT, UPDATE, DELETE or MERGE that runs as the
caller with $1 tenant_id, $2 operation, $3 key, $4 request, $5 auth; without
it write afterwards in the same transaction, and call fencing_once_respond().
Errors: 22004, 22023, 54000, 0A000, 21000, 42701, 25006, 25P01 without a
statement outside a transaction block, 40001, 55000, 55006, LF002, LF005 with
strict, and those of the statement';

CREATE FUNCTION fencing_once_respond(tenant_id text, operation text, key text, result jsonb)
RETURNS void
AS 'MODULE_PATHNAME', 'fencing_once_respond'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_once_respond(text, text, text, jsonb) IS
'gives the result of a key that this transaction claimed by fencing_once()
without a statement; COMMIT is refused (55000) until then.
Errors: 22004, 22023, 54000, 25006, 55000';

CREATE FUNCTION fencing_request_canonical(operation text, hash_version integer, request jsonb)
RETURNS text
AS 'MODULE_PATHNAME', 'fencing_request_canonical'
LANGUAGE C STABLE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_request_canonical(text, integer, jsonb) IS
'canonical text of what identifies a request, for looking into a conflict.
Errors: 22004, 22023, 54000, 0A000, LF002';

CREATE FUNCTION fencing_request_hash(operation text, hash_version integer, request jsonb)
RETURNS bytea
AS 'MODULE_PATHNAME', 'fencing_request_hash'
LANGUAGE C STABLE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_request_hash(text, integer, jsonb) IS
'SHA-256 over fencing_request_canonical(), 32 bytes. Errors as there';

CREATE VIEW fencing.operation_status AS
SELECT o.operation, s.hash_version, s.retired_by OPERATOR(pg_catalog.<>) '0'::xid8 AS retired,
	o.retention, o.forget_after,
	pg_catalog.count(r.key) FILTER (WHERE NOT r.purged) AS records,
	pg_catalog.count(r.key) FILTER (WHERE r.purged) AS tombstones,
	pg_catalog.min(r.committed_at) AS oldest
FROM fencing.operations o
LEFT JOIN fencing.request_schemas s ON s.operation OPERATOR(pg_catalog.=) o.operation
LEFT JOIN fencing.records r ON r.operation OPERATOR(pg_catalog.=) s.operation
	AND r.hash_version OPERATOR(pg_catalog.=) s.hash_version
GROUP BY o.operation, s.hash_version, s.retired_by, o.retention, o.forget_after;

COMMENT ON VIEW fencing.operation_status IS 'operations, their versions, and how many records each has; readable by pg_monitor';
COMMENT ON COLUMN fencing.operation_status.operation IS 'the operation';
COMMENT ON COLUMN fencing.operation_status.hash_version IS 'version of its request schema';
COMMENT ON COLUMN fencing.operation_status.retired IS 'whether new keys do not use it any more';
COMMENT ON COLUMN fencing.operation_status.retention IS 'how long records are kept';
COMMENT ON COLUMN fencing.operation_status.forget_after IS 'how long tombstones are kept';
COMMENT ON COLUMN fencing.operation_status.records IS 'records with their results';
COMMENT ON COLUMN fencing.operation_status.tombstones IS 'records of which only the fact is left';
COMMENT ON COLUMN fencing.operation_status.oldest IS 'when the oldest was committed';

--
-- The outbox: outbox.c, outbox_ack.c, outbox_scan.c
--
-- The columns that Debezium's outbox event router takes have its names.
CREATE TABLE fencing.outbox (
	no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	id uuid NOT NULL UNIQUE,
	aggregatetype text COLLATE "C" NOT NULL,
	aggregateid text COLLATE "C" NOT NULL,
	type text NOT NULL,
	payload jsonb NOT NULL,
	created_at timestamptz NOT NULL,
	era bigint NOT NULL,
	xid xid8 NOT NULL
) USING heap;

CREATE INDEX outbox_aggregate_idx ON fencing.outbox (aggregatetype, aggregateid, no);

COMMENT ON TABLE fencing.outbox IS 'events, written with what they tell of; immutable, deleted by fencing_purge() only';
COMMENT ON COLUMN fencing.outbox.no IS 'order within an aggregate; drawn under the aggregate''s lock';
COMMENT ON COLUMN fencing.outbox.id IS 'the event';
COMMENT ON COLUMN fencing.outbox.aggregatetype IS 'kind of thing that the event is about';
COMMENT ON COLUMN fencing.outbox.aggregateid IS 'the thing; events of one are delivered in order';
COMMENT ON COLUMN fencing.outbox.type IS 'kind of event';
COMMENT ON COLUMN fencing.outbox.payload IS 'what happened';
COMMENT ON COLUMN fencing.outbox.created_at IS 'clock of the server under the aggregate''s lock';
COMMENT ON COLUMN fencing.outbox.era IS 'epoch of the database in which xid was assigned';
COMMENT ON COLUMN fencing.outbox.xid IS 'transaction that wrote the event';

CREATE TABLE fencing.outbox_consumers (
	consumer text COLLATE "C" NOT NULL PRIMARY KEY,
	since pg_snapshot,
	since_era bigint NOT NULL,
	since_xid xid8 NOT NULL,
	after_no bigint NOT NULL,
	settled_no bigint NOT NULL,
	part integer NOT NULL,
	parts integer NOT NULL
) USING heap WITH (fillfactor = 50);

COMMENT ON TABLE fencing.outbox_consumers IS 'who gets the events, and how far they are done for each';
COMMENT ON COLUMN fencing.outbox_consumers.consumer IS 'job_key under which the relays of the consumer, or of a part of it, take turns';
COMMENT ON COLUMN fencing.outbox_consumers.since IS 'snapshot of the subscription: events that it sees are not delivered; NULL: all are';
COMMENT ON COLUMN fencing.outbox_consumers.since_era IS 'epoch of the database at the subscription';
COMMENT ON COLUMN fencing.outbox_consumers.since_xid IS 'transaction of the subscription, whose own events are delivered';
COMMENT ON COLUMN fencing.outbox_consumers.after_no IS 'all events up to this number are done';
COMMENT ON COLUMN fencing.outbox_consumers.settled_no IS 'rows of fencing.outbox_acks up to this number are joined';
COMMENT ON COLUMN fencing.outbox_consumers.part IS 'which part of the consumer it is, from 1';
COMMENT ON COLUMN fencing.outbox_consumers.parts IS 'into how many the consumer is divided';

-- Events above after_no of the consumer.  Neighbours are joined, up to the number
-- up to which no event will appear between them.
CREATE TABLE fencing.outbox_acks (
	consumer text COLLATE "C" NOT NULL,
	event_no bigint NOT NULL,
	through_no bigint NOT NULL,
	acked_at timestamptz,
	reason text,
	PRIMARY KEY (consumer, event_no)
) USING heap WITH (fillfactor = 80);

COMMENT ON TABLE fencing.outbox_acks IS 'events above after_no of the consumer that are done, in ranges, or parked';
COMMENT ON COLUMN fencing.outbox_acks.consumer IS 'the consumer';
COMMENT ON COLUMN fencing.outbox_acks.event_no IS 'the first event of the range, or the parked one';
COMMENT ON COLUMN fencing.outbox_acks.through_no IS 'the last one';
COMMENT ON COLUMN fencing.outbox_acks.acked_at IS 'when one of them was done last, by the clock of the server; NULL for a parked event';
COMMENT ON COLUMN fencing.outbox_acks.reason IS 'why the event is parked';

-- How often events have been delivered to a consumer: up to the highest number
-- once, but for those that have a row of their own.
CREATE TABLE fencing.outbox_attempts (
	consumer text COLLATE "C" NOT NULL,
	event_no bigint NOT NULL,
	through_no bigint NOT NULL,
	attempts bigint NOT NULL,
	last_at timestamptz NOT NULL,
	PRIMARY KEY (consumer, event_no)
) USING heap WITH (fillfactor = 50);

COMMENT ON TABLE fencing.outbox_attempts IS 'how often events have been delivered to a consumer';
COMMENT ON COLUMN fencing.outbox_attempts.consumer IS 'the consumer';
COMMENT ON COLUMN fencing.outbox_attempts.event_no IS 'an event that was delivered again; 0: all that were delivered';
COMMENT ON COLUMN fencing.outbox_attempts.through_no IS 'the same; of the row for all the highest of them';
COMMENT ON COLUMN fencing.outbox_attempts.attempts IS 'how often; 1 in the row for all';
COMMENT ON COLUMN fencing.outbox_attempts.last_at IS 'when it was delivered last, by the clock of the server';

-- Registers of outbox_settle.c, and no identities: not dumped, because they tell of
-- transactions that are not in a dump.
CREATE SEQUENCE fencing.outbox_turn MINVALUE 0 START 0;
CREATE SEQUENCE fencing.outbox_turn_no MINVALUE 0 START 0;
CREATE SEQUENCE fencing.outbox_settled_no MINVALUE 0 START 0;

COMMENT ON SEQUENCE fencing.outbox_turn IS 'how often all who emitted events have been seen to end';
COMMENT ON SEQUENCE fencing.outbox_turn_no IS 'the last number of fencing.outbox drawn when the turn began';
COMMENT ON SEQUENCE fencing.outbox_settled_no IS 'up to this number of fencing.outbox no event will appear any more';
COMMENT ON SEQUENCE fencing.outbox_no_seq IS 'numbers of fencing.outbox';

SELECT pg_catalog.pg_extension_config_dump('fencing.outbox', '');
SELECT pg_catalog.pg_extension_config_dump('fencing.outbox_no_seq', '');
SELECT pg_catalog.pg_extension_config_dump('fencing.outbox_consumers', '');
SELECT pg_catalog.pg_extension_config_dump('fencing.outbox_acks', '');
SELECT pg_catalog.pg_extension_config_dump('fencing.outbox_attempts', '');

CREATE FUNCTION fencing_outbox_emit(aggregate_type text, aggregate_id text, type text, payload jsonb)
RETURNS uuid
AS 'MODULE_PATHNAME', 'fencing_outbox_emit'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_outbox_emit(text, text, text, jsonb) IS
'writes an event in this transaction and returns its id. Waits for other
transactions that have emitted for the aggregate, so that its events are in
order; emit for several in the order of (type, id).
Errors: 22004, 22023 also the reserved types document and tag, 54000 also for
too many aggregates in one transaction, 25006, 40P01, 55000';

CREATE FUNCTION fencing_outbox_subscribe(consumer text, from_start boolean, parts integer DEFAULT NULL)
RETURNS void
AS 'MODULE_PATHNAME', 'fencing_outbox_subscribe'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_outbox_subscribe(text, boolean, integer) IS
'delivers events to a consumer from now on: those that commit later, or with
from_start all that are there too. With parts from 2 to 1000 as many relays
share the aggregates, each under a job of its own: consumer/1 and so on. Again:
no change, or another number of parts, for which acknowledgements in flight are
waited for; nothing that is done is delivered again, and nothing else is left
out. parts NULL: as many as there are, or one.
Errors: 22004, 22023 also for a name that is taken, 54000, 25006, 40001, 55000';

CREATE FUNCTION fencing_outbox_unsubscribe(consumer text)
RETURNS void
AS 'MODULE_PATHNAME', 'fencing_outbox_unsubscribe'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_outbox_unsubscribe(text) IS
'delivers no more events to a consumer, and forgets what it has done. Waits for
acknowledgements in flight.
Errors: 22004, 22023 also for a part of a consumer, 54000, 25006, 40001';

CREATE FUNCTION fencing_outbox_read(consumer text, token bigint, max_rows integer DEFAULT 100,
	OUT outcome fencing_outcome, OUT id uuid, OUT aggregate_type text, OUT aggregate_id text,
	OUT type text, OUT payload jsonb, OUT created_at timestamptz, OUT attempts bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'fencing_outbox_read'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_outbox_read(text, bigint, integer) IS
'events that the consumer has not acknowledged, in order, with outcome current;
of an aggregate with a parked event none after that. attempts: how often the
consumer has been given the event, this time included; one too many for one of
a transaction that was slower than others. A relay whose token is not current
gets one row stale.
Errors: 22004, 22023 also for a consumer that is not subscribed, 54000, 25006,
55000, LF001';

CREATE FUNCTION fencing_outbox_ack(consumer text, token bigint, ids uuid[],
	OUT outcome fencing_outcome, OUT acked integer)
AS 'MODULE_PATHNAME', 'fencing_outbox_ack'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_outbox_ack(text, bigint, uuid[]) IS
'acknowledges events: committed, replayed (all were already: roll back what you
did beside it), conflict (some were already, are unknown, or come after one
that is open; none is acknowledged) or stale. In the transaction of the effect
and before it, an exactly-once gate.
Errors: 22004, 22023, 54000, 25006, 40001, 55000, LF001';

CREATE FUNCTION fencing_outbox_park(consumer text, token bigint, id uuid, reason text,
	OUT outcome fencing_outcome)
AS 'MODULE_PATHNAME', 'fencing_outbox_park'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_outbox_park(text, bigint, uuid, text) IS
'sets an event aside that cannot be handled, and with it the later ones of its
aggregate; reason NULL takes it back. committed, stale, or conflict
(acknowledged already, or unknown).
Errors: 22004, 22023, 54000, 25006, 40001, 55000, LF001';

-- Which events are for a consumer: as the functions have it, for the view.
CREATE FUNCTION fencing.outbox_wants(since pg_snapshot, since_era bigint, since_xid xid8, part integer, parts integer,
	era bigint, xid xid8, aggregatetype text, aggregateid text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'fencing_outbox_wants'
LANGUAGE C IMMUTABLE PARALLEL SAFE;

COMMENT ON FUNCTION fencing.outbox_wants(pg_snapshot, bigint, xid8, integer, integer, bigint, xid8, text, text) IS
'whether an event of an aggregate that transaction xid of an era wrote is for
that part of a consumer with such a subscription';

-- What is not done, for people.
CREATE VIEW fencing.outbox_pending AS
SELECT c.consumer, e.no, e.id, e.aggregatetype, e.aggregateid, e.type, e.created_at,
	COALESCE(k.acked_at IS NULL AND k.event_no OPERATOR(pg_catalog.=) e.no, false) AS parked,
	COALESCE(a.attempts, CASE WHEN e.no OPERATOR(pg_catalog.<=) d.through_no THEN 1 ELSE 0 END) AS attempts,
	a.last_at AS repeated_at
FROM fencing.outbox_consumers c
JOIN fencing.outbox e ON e.no OPERATOR(pg_catalog.>) c.after_no
LEFT JOIN LATERAL (SELECT k.event_no, k.through_no, k.acked_at
	FROM fencing.outbox_acks k
	WHERE k.consumer OPERATOR(pg_catalog.=) c.consumer
	AND k.event_no OPERATOR(pg_catalog.<=) e.no
	ORDER BY k.event_no DESC LIMIT 1) k ON true
LEFT JOIN fencing.outbox_attempts d ON d.consumer OPERATOR(pg_catalog.=) c.consumer
	AND d.event_no OPERATOR(pg_catalog.=) 0
LEFT JOIN fencing.outbox_attempts a ON a.consumer OPERATOR(pg_catalog.=) c.consumer
	AND a.event_no OPERATOR(pg_catalog.=) e.no
WHERE fencing.outbox_wants(c.since, c.since_era, c.since_xid, c.part, c.parts, e.era, e.xid,
	e.aggregatetype, e.aggregateid)
	AND NOT COALESCE(k.acked_at IS NOT NULL AND k.through_no OPERATOR(pg_catalog.>=) e.no, false);

COMMENT ON VIEW fencing.outbox_pending IS 'events that are not done, per consumer; readable by pg_monitor';
COMMENT ON COLUMN fencing.outbox_pending.consumer IS 'the consumer, or part of one';
COMMENT ON COLUMN fencing.outbox_pending.no IS 'order within the aggregate';
COMMENT ON COLUMN fencing.outbox_pending.id IS 'the event';
COMMENT ON COLUMN fencing.outbox_pending.aggregatetype IS 'kind of thing that the event is about';
COMMENT ON COLUMN fencing.outbox_pending.aggregateid IS 'the thing';
COMMENT ON COLUMN fencing.outbox_pending.type IS 'kind of event';
COMMENT ON COLUMN fencing.outbox_pending.created_at IS 'when it was written';
COMMENT ON COLUMN fencing.outbox_pending.parked IS 'whether it is parked';
COMMENT ON COLUMN fencing.outbox_pending.attempts IS 'how often it has been delivered';
COMMENT ON COLUMN fencing.outbox_pending.repeated_at IS 'when it was delivered again; NULL: it was not';

--
-- What has happened cannot be changed: not by an owner's UPDATE either.
--
CREATE FUNCTION fencing_immutable()
RETURNS trigger
AS 'MODULE_PATHNAME', 'fencing_immutable'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_immutable() IS
'trigger of fencing.outbox and fencing.revisions.
Errors: 42501, 39P01 if not used as a trigger';

CREATE TRIGGER immutable BEFORE UPDATE OR DELETE ON fencing.outbox
FOR EACH ROW EXECUTE FUNCTION fencing_immutable();

CREATE TRIGGER immutable_truncate BEFORE TRUNCATE ON fencing.outbox
FOR EACH STATEMENT EXECUTE FUNCTION fencing_immutable();

CREATE VIEW fencing.outbox_status AS
SELECT c.consumer, pg_catalog.count(p.no) AS pending, pg_catalog.min(p.created_at) AS oldest,
	(SELECT pg_catalog.count(*) FROM fencing.outbox_acks k
		WHERE k.consumer OPERATOR(pg_catalog.=) c.consumer AND k.acked_at IS NULL) AS parked,
	c.after_no AS done_through,
	CASE WHEN s.is_called THEN s.last_value OPERATOR(pg_catalog.-) c.after_no ELSE 0 END AS held,
	pg_catalog.max(p.attempts) AS most_attempts
FROM fencing.outbox_consumers c
CROSS JOIN fencing.outbox_no_seq s
LEFT JOIN fencing.outbox_pending p ON p.consumer OPERATOR(pg_catalog.=) c.consumer
GROUP BY c.consumer, c.after_no, s.is_called, s.last_value;

COMMENT ON VIEW fencing.outbox_status IS 'how far the consumers of the outbox are; readable by pg_monitor';
COMMENT ON COLUMN fencing.outbox_status.consumer IS 'the consumer';
COMMENT ON COLUMN fencing.outbox_status.pending IS 'events that are not acknowledged, parked ones included';
COMMENT ON COLUMN fencing.outbox_status.oldest IS 'when the oldest of them was written';
COMMENT ON COLUMN fencing.outbox_status.parked IS 'events that are parked';
COMMENT ON COLUMN fencing.outbox_status.done_through IS 'number up to which everything is done';
COMMENT ON COLUMN fencing.outbox_status.most_attempts IS 'how often one of the pending events has been delivered';
COMMENT ON COLUMN fencing.outbox_status.held IS 'how many numbers have been drawn since: the consumer with most of them is what fencing_purge() waits for';

CREATE VIEW fencing.outbox_parked AS
SELECT k.consumer, e.id, e.aggregatetype, e.aggregateid, e.type, e.created_at, k.reason
FROM fencing.outbox_acks k
JOIN fencing.outbox e ON e.no OPERATOR(pg_catalog.=) k.event_no
WHERE k.acked_at IS NULL;

COMMENT ON VIEW fencing.outbox_parked IS 'events that are parked, the dead letters; readable by pg_monitor';
COMMENT ON COLUMN fencing.outbox_parked.consumer IS 'the consumer that cannot handle it';
COMMENT ON COLUMN fencing.outbox_parked.id IS 'the event';
COMMENT ON COLUMN fencing.outbox_parked.aggregatetype IS 'kind of thing that the event is about';
COMMENT ON COLUMN fencing.outbox_parked.aggregateid IS 'the thing, whose later events are held back';
COMMENT ON COLUMN fencing.outbox_parked.type IS 'kind of event';
COMMENT ON COLUMN fencing.outbox_parked.created_at IS 'when it was written';
COMMENT ON COLUMN fencing.outbox_parked.reason IS 'as given to fencing_outbox_park()';

--
-- Publishing: publish.c
--
-- The latest version of a document: what publishers of one document lock.
CREATE TABLE fencing.documents (
	document_id text COLLATE "C" NOT NULL PRIMARY KEY,
	version bigint NOT NULL
) USING heap WITH (fillfactor = 80);

COMMENT ON TABLE fencing.documents IS 'the latest version per document; for ever';
COMMENT ON COLUMN fencing.documents.document_id IS 'the document, 1 to 512 bytes, compared byte by byte';
COMMENT ON COLUMN fencing.documents.version IS 'its latest version';

CREATE TABLE fencing.revisions (
	document_id text COLLATE "C" NOT NULL,
	version bigint NOT NULL,
	revision uuid NOT NULL UNIQUE,
	source_version bigint,
	kind text COLLATE "C" NOT NULL,
	content jsonb,
	digest bytea NOT NULL,
	digest_version integer NOT NULL,
	note text,
	actor name NOT NULL,
	committed_at timestamptz NOT NULL,
	PRIMARY KEY (document_id, version)
) USING heap;

COMMENT ON TABLE fencing.revisions IS 'every version of every document; immutable, never purged';
COMMENT ON COLUMN fencing.revisions.document_id IS 'the document';
COMMENT ON COLUMN fencing.revisions.version IS '1, 2, 3, ... without gaps';
COMMENT ON COLUMN fencing.revisions.revision IS 'where events point to: the argument of fencing_publish_revision()';
COMMENT ON COLUMN fencing.revisions.source_version IS 'of a rollback the version whose content it published again';
COMMENT ON COLUMN fencing.revisions.kind IS 'publish, rollback, delete or force';
COMMENT ON COLUMN fencing.revisions.content IS 'the document; NULL: it was deleted';
COMMENT ON COLUMN fencing.revisions.digest IS 'digest of the content; of a deletion that of no text at all';
COMMENT ON COLUMN fencing.revisions.digest_version IS 'version of the canonical form and hash that made the digest';
COMMENT ON COLUMN fencing.revisions.note IS 'as given by the publisher; of a force the reason';
COMMENT ON COLUMN fencing.revisions.actor IS 'session_user';
COMMENT ON COLUMN fencing.revisions.committed_at IS 'clock of the server under the lock of the document';

SELECT pg_catalog.pg_extension_config_dump('fencing.documents', '');
SELECT pg_catalog.pg_extension_config_dump('fencing.revisions', '');

CREATE TRIGGER immutable BEFORE UPDATE OR DELETE ON fencing.revisions
FOR EACH ROW EXECUTE FUNCTION fencing_immutable();

CREATE TRIGGER immutable_truncate BEFORE TRUNCATE ON fencing.revisions
FOR EACH STATEMENT EXECUTE FUNCTION fencing_immutable();

CREATE FUNCTION fencing_publish(document_id text, expected_version bigint, content jsonb, note text DEFAULT NULL,
	OUT outcome fencing_outcome, OUT version bigint, OUT digest bytea, OUT digest_version integer,
	OUT committed_at timestamptz, OUT latest_version bigint, OUT latest_digest bytea)
AS 'MODULE_PATHNAME', 'fencing_publish'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_publish(text, bigint, jsonb, text) IS
'publishes version expected_version + 1 of a document (0: a new one), with its
event.
Answers: committed, replayed (that version has this content), conflict (it has
another; latest_version and latest_digest say where the document is: read
again and redo).
Errors: 22004, 22023, 54000, 0A000, 25006, 40001, 55000, LF001
expected_version is above the latest, LF002';

CREATE FUNCTION fencing_publish_rollback(document_id text, expected_version bigint, source_version bigint, note text DEFAULT NULL,
	OUT outcome fencing_outcome, OUT version bigint, OUT digest bytea, OUT digest_version integer,
	OUT committed_at timestamptz, OUT latest_version bigint, OUT latest_digest bytea)
AS 'MODULE_PATHNAME', 'fencing_publish_rollback'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_publish_rollback(text, bigint, bigint, text) IS
'publishes the content of an older version again, as version expected_version +
1. Outcomes as fencing_publish().
Errors: as there, also 22023 source_version is a deletion or above
expected_version, LF001 it was never published';

CREATE FUNCTION fencing_publish_delete(document_id text, expected_version bigint, note text DEFAULT NULL,
	OUT outcome fencing_outcome, OUT version bigint, OUT digest bytea, OUT digest_version integer,
	OUT committed_at timestamptz, OUT latest_version bigint, OUT latest_digest bytea)
AS 'MODULE_PATHNAME', 'fencing_publish_delete'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_publish_delete(text, bigint, text) IS
'deletes a document: version expected_version + 1 has no content. It may be
published again above that. Outcomes as fencing_publish().
Errors: as there';

CREATE FUNCTION fencing_publish_force(document_id text, content jsonb, reason text,
	OUT outcome fencing_outcome, OUT version bigint, OUT digest bytea, OUT digest_version integer,
	OUT committed_at timestamptz, OUT latest_version bigint, OUT latest_digest bytea)
AS 'MODULE_PATHNAME', 'fencing_publish_force'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_publish_force(text, jsonb, text) IS
'for administrators: publishes above whatever the latest version is, and is
recorded as such with the reason; each call makes a version. committed.
Errors: 22004, 22023, 54000, 0A000, 25006, 40001, 55000, LF002';

CREATE FUNCTION fencing_publish_current(document_id text,
	OUT version bigint, OUT content jsonb, OUT digest bytea, OUT digest_version integer, OUT kind text,
	OUT source_version bigint, OUT revision uuid, OUT note text, OUT actor name, OUT committed_at timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'fencing_publish_current'
LANGUAGE C STABLE PARALLEL SAFE ROWS 1;

COMMENT ON FUNCTION fencing_publish_current(text) IS
'the latest version of a document, with content NULL if it is deleted, or no
row; reads with the snapshot of the calling query.
Errors: 22004, 22023, 54000';

CREATE FUNCTION fencing_publish_revision(revision uuid,
	OUT document_id text,
	OUT version bigint, OUT content jsonb, OUT digest bytea, OUT digest_version integer, OUT kind text,
	OUT source_version bigint, OUT note text, OUT actor name, OUT committed_at timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'fencing_publish_revision'
LANGUAGE C STABLE PARALLEL UNSAFE ROWS 1;

COMMENT ON FUNCTION fencing_publish_revision(uuid) IS
'the version that the "revision" of an event points to, or no row.
Errors: 22004';

CREATE VIEW fencing.revision_history AS
SELECT r.document_id, r.version, r.kind, r.source_version, r.revision, r.digest_version, r.note, r.actor,
	r.committed_at, r.version OPERATOR(pg_catalog.=) d.version AS latest
FROM fencing.revisions r
JOIN fencing.documents d ON d.document_id OPERATOR(pg_catalog.=) r.document_id;

COMMENT ON VIEW fencing.revision_history IS 'who published what, and when, without contents; readable by pg_monitor';
COMMENT ON COLUMN fencing.revision_history.document_id IS 'the document';
COMMENT ON COLUMN fencing.revision_history.version IS 'its version';
COMMENT ON COLUMN fencing.revision_history.kind IS 'publish, rollback, delete or force';
COMMENT ON COLUMN fencing.revision_history.source_version IS 'of a rollback the version whose content it has';
COMMENT ON COLUMN fencing.revision_history.revision IS 'argument of fencing_publish_revision()';
COMMENT ON COLUMN fencing.revision_history.digest_version IS 'version of the canonical form and hash';
COMMENT ON COLUMN fencing.revision_history.note IS 'as given by the publisher; of a force the reason';
COMMENT ON COLUMN fencing.revision_history.actor IS 'session_user';
COMMENT ON COLUMN fencing.revision_history.committed_at IS 'clock of the server under the lock of the document';
COMMENT ON COLUMN fencing.revision_history.latest IS 'whether it is the latest version';

--
-- Targets, and applying to them: target.c, apply.c, apply_external.c
--
CREATE TABLE fencing.targets (
	document_id text COLLATE "C" NOT NULL,
	target_id text COLLATE "C" NOT NULL,
	desired bigint,
	applied bigint NOT NULL,
	applied_digest bytea,
	applied_digest_version integer,
	applied_at timestamptz,
	result jsonb,
	applications bigint NOT NULL,
	superseded bigint NOT NULL,
	attempted bigint NOT NULL,
	attempt_token bigint NOT NULL,
	attempted_at timestamptz,
	repair bigint NOT NULL,
	diverged boolean NOT NULL,
	observed bigint,
	observed_at timestamptz,
	rejected bigint NOT NULL,
	rejections bigint[] NOT NULL,
	rejected_reason text,
	rejected_at timestamptz,
	last_error text,
	last_error_at timestamptz,
	retired boolean NOT NULL,
	retired_by name,
	retired_reason text,
	retired_at timestamptz,
	PRIMARY KEY (document_id, target_id)
) USING heap WITH (fillfactor = 70);

COMMENT ON TABLE fencing.targets IS 'where documents go: what each target should have, what was tried, and what it has';
COMMENT ON COLUMN fencing.targets.document_id IS 'the document';
COMMENT ON COLUMN fencing.targets.target_id IS 'the target';
COMMENT ON COLUMN fencing.targets.desired IS 'version that it should have; NULL: the latest';
COMMENT ON COLUMN fencing.targets.applied IS 'version that it has; 0 if none. Never goes down';
COMMENT ON COLUMN fencing.targets.applied_digest IS 'digest of that version';
COMMENT ON COLUMN fencing.targets.applied_digest_version IS 'version of the canonical form and hash that made the digest';
COMMENT ON COLUMN fencing.targets.applied_at IS 'when it was applied, or first observed';
COMMENT ON COLUMN fencing.targets.result IS 'result of the statement that applied it';
COMMENT ON COLUMN fencing.targets.applications IS 'how often another version became the applied one';
COMMENT ON COLUMN fencing.targets.superseded IS 'versions that were passed over';
COMMENT ON COLUMN fencing.targets.attempted IS 'version that fencing_apply_begin() handed out last; 0 if none';
COMMENT ON COLUMN fencing.targets.attempt_token IS 'token that it was handed out with';
COMMENT ON COLUMN fencing.targets.attempted_at IS 'when it was handed out';
COMMENT ON COLUMN fencing.targets.repair IS 'how often the target was found diverged; part of the idempotency key';
COMMENT ON COLUMN fencing.targets.diverged IS 'whether the target was read back with something else than it should have';
COMMENT ON COLUMN fencing.targets.observed IS 'version that was read back last; NULL: none';
COMMENT ON COLUMN fencing.targets.observed_at IS 'when that was';
COMMENT ON COLUMN fencing.targets.rejected IS 'version whose rejection is shown, the desired one''s if that was rejected; 0 if none';
COMMENT ON COLUMN fencing.targets.rejections IS 'all versions above the applied one that were rejected since the target was desired, ascending; when there are 1000, lower ones count as rejected too';
COMMENT ON COLUMN fencing.targets.rejected_reason IS 'why';
COMMENT ON COLUMN fencing.targets.rejected_at IS 'when that was';
COMMENT ON COLUMN fencing.targets.last_error IS 'what the last observation found wrong; NULL when nothing, or a version has been applied since';
COMMENT ON COLUMN fencing.targets.last_error_at IS 'when that was';
COMMENT ON COLUMN fencing.targets.retired IS 'whether it gets no more versions; the row stays, because what is applied never goes down';
COMMENT ON COLUMN fencing.targets.retired_by IS 'session_user of the last fencing_target_forget(); NULL: never';
COMMENT ON COLUMN fencing.targets.retired_reason IS 'as given there';
COMMENT ON COLUMN fencing.targets.retired_at IS 'when that was';

SELECT pg_catalog.pg_extension_config_dump('fencing.targets', '');

CREATE FUNCTION fencing_target_desire(document_id text, target_id text, version bigint DEFAULT NULL)
RETURNS void
AS 'MODULE_PATHNAME', 'fencing_target_desire'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_target_desire(text, text, bigint) IS
'registers a target of a document, and says which version it should have; NULL:
always the latest. Takes a rejection back, whichever version is named, and
brings a target back that was retired.
Errors: 22004, 22023 also a version below the applied one, 54000, 25006,
40001, 55006 called by the statement that applies to the target, LF001 a
version above the latest of a document that is published here';

CREATE FUNCTION fencing_target_forget(document_id text, target_id text, reason text)
RETURNS void
AS 'MODULE_PATHNAME', 'fencing_target_forget'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_target_forget(text, text, text) IS
'retires a target, and records who did it and why: nothing is handed out or
applied any more (LF001) until it is desired again, and then above what it
had. Again: no change.
Errors: 22004, 22023, 54000, 25006, 40001, 55000, 55006 a writer has its
lease, or called by the statement that applies to it, LF001 a target never
desired';

CREATE FUNCTION fencing_apply(document_id text, target_id text, version bigint, digest bytea,
	content jsonb DEFAULT NULL, statement text DEFAULT NULL,
	report_errors boolean DEFAULT false, strict boolean DEFAULT false,
	OUT outcome fencing_outcome, OUT result jsonb, OUT applied_version bigint, OUT applied_digest bytea,
	OUT error jsonb)
AS 'MODULE_PATHNAME', 'fencing_apply'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_apply(text, text, bigint, bytea, jsonb, text, boolean, boolean) IS
'applies a version of a document to a target in this database.
Answers: committed (content, digest and applied version are in this
transaction, COMMIT now), replayed (that version is the applied one), conflict
(it has another digest), stale (a higher version is applied), undesired (above
the version that the target is pinned to, or rejected; nothing is written),
failed (only with report_errors). content NULL: that of the revision published
here; else it is checked against the digest.
statement is one SELECT, INSERT, UPDATE, DELETE or MERGE that runs as the
caller with $1 document_id, $2 target_id, $3 version, $4 digest, $5 content,
NULL for a deletion; without it write afterwards in the same transaction.
Errors: 22004, 22023 also content that does not match the digest, 54000,
0A000, 21000, 42701, 25006, 25P01 without a statement outside a transaction
block, 40001, 55006, LF001 a target never desired or retired, or a version
never published, LF002, LF005 with strict, and those of the statement';

CREATE FUNCTION fencing_apply_begin(document_id text, target_id text, owner uuid, ttl interval DEFAULT '30 seconds',
	OUT outcome fencing_outcome, OUT job_key text, OUT token bigint, OUT lease_until timestamptz,
	OUT version bigint, OUT content jsonb, OUT digest bytea, OUT idempotency_key text)
AS 'MODULE_PATHNAME', 'fencing_apply_begin'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_apply_begin(text, text, uuid, interval) IS
'takes the lease of a target outside this database, and hands out the version
to write.
Answers: acquired or renewed (observe the target, and write if that says so),
held (somebody else is at it), done (nothing to write; version and digest are
the applied ones). Never waits.
Errors: 22004, 22023, 54000, 25006, 40001, 55000, 55006 called by the
statement that applies to the target, LF001';

CREATE FUNCTION fencing_apply_observe(document_id text, target_id text, token bigint, version bigint, digest bytea,
	OUT outcome fencing_outcome)
AS 'MODULE_PATHNAME', 'fencing_apply_observe'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_apply_observe(text, text, bigint, bigint, bytea) IS
'records what was read back from a target; version and digest are NULL if it is
empty.
Answers: recorded (it has what it should have, or what an earlier holder was
handed out and wrote after all, and that counts as applied), write (write the
version handed out, then observe again), ahead (it has a higher version than
the last that was handed out, or that of an earlier holder with other
content), diverged (it has fallen back, or has other content; begin again to
repair it), stale (the token is not current).
Errors: 22004, 22023, 54000, 25006, 40001, 55000, 55006 called by the
statement that applies to the target, LF001';

CREATE FUNCTION fencing_apply_reject(document_id text, target_id text, version bigint, reason text,
	OUT outcome fencing_outcome)
AS 'MODULE_PATHNAME', 'fencing_apply_reject'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_apply_reject(text, text, bigint, text) IS
'gives a version up for a target, that one only, so that fencing_apply_begin()
hands it out no more: recorded, or stale (it or a higher one is applied).
Errors: 22004, 22023, 54000, 25006, 40001, 55006 called by the statement that
applies to the target, LF001';

CREATE VIEW fencing.rollout_status AS
SELECT t.document_id, t.target_id, CASE WHEN NOT t.retired THEN s.desired END AS desired_version,
	t.attempted AS attempted_version, t.applied AS applied_version,
	CASE WHEN t.retired THEN NULL
		WHEN s.desired OPERATOR(pg_catalog.>) t.applied THEN s.desired OPERATOR(pg_catalog.-) t.applied
		WHEN s.desired IS NOT NULL THEN 0 END AS lag,
	t.diverged, t.observed AS observed_version, t.observed_at, t.applied_at, t.applications, t.superseded,
	CASE WHEN s.rejected THEN t.rejected END AS rejected_version,
	CASE WHEN t.last_error IS NOT NULL THEN t.last_error
		WHEN s.rejected THEN t.rejected_reason END AS last_error,
	CASE WHEN t.last_error IS NOT NULL THEN t.last_error_at
		WHEN s.rejected THEN t.rejected_at END AS last_error_at,
	CASE WHEN t.retired THEN t.retired_at END AS retired_at,
	CASE WHEN t.retired THEN t.retired_by END AS retired_by,
	CASE WHEN t.retired THEN t.retired_reason END AS retired_reason
FROM fencing.targets t
LEFT JOIN fencing.documents d ON d.document_id OPERATOR(pg_catalog.=) t.document_id
CROSS JOIN LATERAL (SELECT COALESCE(t.desired, d.version) AS desired,
	t.rejected OPERATOR(pg_catalog.>) t.applied AS rejected) s;

COMMENT ON VIEW fencing.rollout_status IS 'what each target should have, what was tried, and what it has; readable by pg_monitor';
COMMENT ON COLUMN fencing.rollout_status.document_id IS 'the document';
COMMENT ON COLUMN fencing.rollout_status.target_id IS 'the target';
COMMENT ON COLUMN fencing.rollout_status.desired_version IS 'what it should have; NULL: the latest of a document that is published elsewhere, or nothing any more';
COMMENT ON COLUMN fencing.rollout_status.attempted_version IS 'what fencing_apply_begin() handed out last; 0 if nothing';
COMMENT ON COLUMN fencing.rollout_status.applied_version IS 'what it has; 0 if nothing';
COMMENT ON COLUMN fencing.rollout_status.lag IS 'by how many versions it is behind';
COMMENT ON COLUMN fencing.rollout_status.diverged IS 'whether it was read back with something else';
COMMENT ON COLUMN fencing.rollout_status.observed_version IS 'version that was read back last; NULL: none';
COMMENT ON COLUMN fencing.rollout_status.observed_at IS 'when that was';
COMMENT ON COLUMN fencing.rollout_status.applied_at IS 'since when it has the applied version';
COMMENT ON COLUMN fencing.rollout_status.applications IS 'how often another version became the applied one';
COMMENT ON COLUMN fencing.rollout_status.superseded IS 'versions that it never had because a higher one came first';
COMMENT ON COLUMN fencing.rollout_status.rejected_version IS 'version above the applied one that was given up';
COMMENT ON COLUMN fencing.rollout_status.last_error IS 'what the last observation found wrong, else why the version was given up; NULL when another version has been applied since';
COMMENT ON COLUMN fencing.rollout_status.last_error_at IS 'when that was';
COMMENT ON COLUMN fencing.rollout_status.retired_at IS 'since when it gets no more versions; NULL: it does';
COMMENT ON COLUMN fencing.rollout_status.retired_by IS 'session_user of fencing_target_forget()';
COMMENT ON COLUMN fencing.rollout_status.retired_reason IS 'as given there';

--
-- Tags: tag.c and tag_*.c
--
-- What is in force has until_no, or undone_no, 9223372036854775807, so that
-- plain indexes lead to it past everything that is over.
CREATE TABLE fencing.tags (
	vocabulary text COLLATE "C" NOT NULL,
	tag_id uuid NOT NULL,
	name text COLLATE "C" NOT NULL,
	root uuid NOT NULL,
	members integer NOT NULL,
	version bigint NOT NULL,
	migration_kind text COLLATE "C",
	created_no bigint NOT NULL,
	PRIMARY KEY (vocabulary, tag_id)
) USING heap WITH (fillfactor = 90);

CREATE INDEX tags_root_idx ON fencing.tags (vocabulary, root);

COMMENT ON TABLE fencing.tags IS 'tags, merged ones too; a tag is never deleted';
COMMENT ON COLUMN fencing.tags.vocabulary IS 'the set of tags whose names are distinct, 1 to 512 bytes';
COMMENT ON COLUMN fencing.tags.tag_id IS 'the tag, for ever';
COMMENT ON COLUMN fencing.tags.name IS 'its current name; of a merged tag the one that it had';
COMMENT ON COLUMN fencing.tags.root IS 'where the merges in force lead from it; itself if it is not merged';
COMMENT ON COLUMN fencing.tags.members IS 'of a root: how many tags have it as root, with itself';
COMMENT ON COLUMN fencing.tags.version IS 'migration_version: number of the last migration of its name or its tree; 0 for none';
COMMENT ON COLUMN fencing.tags.migration_kind IS 'kind of that migration: rename, merge, undo; NULL for none';
COMMENT ON COLUMN fencing.tags.created_no IS 'number of the event that made it';

CREATE TABLE fencing.tag_names (
	vocabulary text COLLATE "C" NOT NULL,
	name text COLLATE "C" NOT NULL,
	tag_id uuid NOT NULL,
	alias boolean NOT NULL,
	since_no bigint NOT NULL,
	PRIMARY KEY (vocabulary, name)
) USING heap;

COMMENT ON TABLE fencing.tag_names IS 'every name that a tag has or had, and every alias; a row goes only by fencing_tag_release_name()';
COMMENT ON COLUMN fencing.tag_names.vocabulary IS 'the vocabulary';
COMMENT ON COLUMN fencing.tag_names.name IS 'the name, compared byte by byte';
COMMENT ON COLUMN fencing.tag_names.tag_id IS 'the tag that owns it';
COMMENT ON COLUMN fencing.tag_names.alias IS 'whether it was given by fencing_tag_alias()';
COMMENT ON COLUMN fencing.tag_names.since_no IS 'number of the event that made it';

CREATE TABLE fencing.tag_events (
	vocabulary text COLLATE "C" NOT NULL,
	event_id uuid NOT NULL,
	event_no bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
	kind text COLLATE "C" NOT NULL,
	reference text COLLATE "C" NOT NULL,
	owner uuid NOT NULL,
	tag_id uuid NOT NULL,
	subject text COLLATE "C",
	name text COLLATE "C",
	target_reference text COLLATE "C",
	target uuid,
	migration uuid,
	reason text,
	actor name NOT NULL,
	digest bytea NOT NULL,
	digest_version integer NOT NULL,
	committed_at timestamptz NOT NULL,
	PRIMARY KEY (vocabulary, event_id)
) USING heap;

CREATE UNIQUE INDEX tag_events_event_no_idx ON fencing.tag_events (event_no);
-- for release and reconcile: what was submitted by a reference
CREATE INDEX tag_events_owner_idx ON fencing.tag_events (vocabulary, owner, reference, subject);
CREATE INDEX tag_events_subject_idx ON fencing.tag_events (vocabulary, subject, event_no);

COMMENT ON TABLE fencing.tag_events IS 'what happened to tags, the one truth: everything else follows from it; immutable, never purged';
COMMENT ON COLUMN fencing.tag_events.vocabulary IS 'the vocabulary';
COMMENT ON COLUMN fencing.tag_events.event_id IS 'the event, named by who submitted it';
COMMENT ON COLUMN fencing.tag_events.event_no IS 'order of the events; drawn with everything locked that it is about; gaps are possible';
COMMENT ON COLUMN fencing.tag_events.kind IS 'create, alias, rename, merge, undo, assign, unassign, subscribe, unsubscribe or release';
COMMENT ON COLUMN fencing.tag_events.reference IS 'id, name or alias as submitted; of undo the migration';
COMMENT ON COLUMN fencing.tag_events.owner IS 'the tag that the reference named';
COMMENT ON COLUMN fencing.tag_events.tag_id IS 'the root of that tag, after the event';
COMMENT ON COLUMN fencing.tag_events.subject IS 'subject or subscriber';
COMMENT ON COLUMN fencing.tag_events.name IS 'name that was given, or released';
COMMENT ON COLUMN fencing.tag_events.target_reference IS 'of merge: the target as submitted';
COMMENT ON COLUMN fencing.tag_events.target IS 'of merge: the tag that it named';
COMMENT ON COLUMN fencing.tag_events.migration IS 'of undo: event_id of the migration';
COMMENT ON COLUMN fencing.tag_events.reason IS 'of release: as given';
COMMENT ON COLUMN fencing.tag_events.actor IS 'session_user';
COMMENT ON COLUMN fencing.tag_events.digest IS 'digest of what was submitted';
COMMENT ON COLUMN fencing.tag_events.digest_version IS 'version of the canonical form and hash that made the digest';
COMMENT ON COLUMN fencing.tag_events.committed_at IS 'clock of the server under the locks';

COMMENT ON SEQUENCE fencing.tag_events_event_no_seq IS 'numbers of fencing.tag_events';

CREATE TRIGGER immutable BEFORE UPDATE OR DELETE ON fencing.tag_events
FOR EACH ROW EXECUTE FUNCTION fencing_immutable();

CREATE TRIGGER immutable_truncate BEFORE TRUNCATE ON fencing.tag_events
FOR EACH STATEMENT EXECUTE FUNCTION fencing_immutable();

CREATE TABLE fencing.tag_migrations (
	vocabulary text COLLATE "C" NOT NULL,
	event_id uuid NOT NULL,
	event_no bigint NOT NULL,
	kind text COLLATE "C" NOT NULL,
	tag_id uuid NOT NULL,
	target uuid,
	name text COLLATE "C",
	former_name text COLLATE "C",
	undone_no bigint NOT NULL,
	completed_at timestamptz,
	reconciled boolean NOT NULL,
	checked bigint NOT NULL,
	problems bigint NOT NULL,
	cursor_tag uuid,
	cursor_part integer NOT NULL,
	cursor_key text COLLATE "C",
	cursor_subject text COLLATE "C",
	PRIMARY KEY (vocabulary, event_id)
) USING heap WITH (fillfactor = 80);

CREATE INDEX tag_migrations_tag_id_idx ON fencing.tag_migrations (vocabulary, tag_id, undone_no, event_no);

COMMENT ON TABLE fencing.tag_migrations IS 'renames and merges, and how far each is reconciled';
COMMENT ON COLUMN fencing.tag_migrations.vocabulary IS 'the vocabulary';
COMMENT ON COLUMN fencing.tag_migrations.event_id IS 'the migration: its event';
COMMENT ON COLUMN fencing.tag_migrations.event_no IS 'the number from which on it is effective';
COMMENT ON COLUMN fencing.tag_migrations.kind IS 'rename or merge';
COMMENT ON COLUMN fencing.tag_migrations.tag_id IS 'the tag that was renamed, or merged into another';
COMMENT ON COLUMN fencing.tag_migrations.target IS 'of merge: the other';
COMMENT ON COLUMN fencing.tag_migrations.name IS 'of rename: the new name';
COMMENT ON COLUMN fencing.tag_migrations.former_name IS 'of rename: the name before';
COMMENT ON COLUMN fencing.tag_migrations.undone_no IS 'number of the undo; 9223372036854775807 if it is in force';
COMMENT ON COLUMN fencing.tag_migrations.completed_at IS 'when it was completed; NULL: it can be undone';
COMMENT ON COLUMN fencing.tag_migrations.reconciled IS 'whether all rows of the tags concerned have been compared';
COMMENT ON COLUMN fencing.tag_migrations.checked IS 'how many have been';
COMMENT ON COLUMN fencing.tag_migrations.problems IS 'how many of them differ from their events';
COMMENT ON COLUMN fencing.tag_migrations.cursor_tag IS 'how far fencing_tag_reconcile() is: the tag';
COMMENT ON COLUMN fencing.tag_migrations.cursor_part IS 'the part of its rows: 0 associations, 1 subscriptions, 2 events';
COMMENT ON COLUMN fencing.tag_migrations.cursor_key IS 'first key within the part';
COMMENT ON COLUMN fencing.tag_migrations.cursor_subject IS 'second key within the part';

CREATE TABLE fencing.tag_merges (
	vocabulary text COLLATE "C" NOT NULL,
	source uuid NOT NULL,
	undone_no bigint NOT NULL,
	target uuid NOT NULL,
	made_no bigint NOT NULL,
	PRIMARY KEY (vocabulary, source, undone_no)
) USING heap;

CREATE INDEX tag_merges_target_idx ON fencing.tag_merges (vocabulary, target, undone_no);

COMMENT ON TABLE fencing.tag_merges IS 'edges of the forest of merged tags, in force and undone';
COMMENT ON COLUMN fencing.tag_merges.vocabulary IS 'the vocabulary';
COMMENT ON COLUMN fencing.tag_merges.source IS 'the tag that was merged';
COMMENT ON COLUMN fencing.tag_merges.undone_no IS 'number of the undo; 9223372036854775807 if it is in force';
COMMENT ON COLUMN fencing.tag_merges.target IS 'the tag that the target reference named';
COMMENT ON COLUMN fencing.tag_merges.made_no IS 'number of the merge';

CREATE TABLE fencing.tag_links (
	vocabulary text COLLATE "C" NOT NULL,
	subject text COLLATE "C" NOT NULL,
	until_no bigint NOT NULL,
	tag_id uuid NOT NULL,
	from_no bigint NOT NULL,
	PRIMARY KEY (vocabulary, subject, until_no, tag_id)
) USING heap;

CREATE INDEX tag_links_tag_id_idx ON fencing.tag_links (vocabulary, tag_id, until_no, subject) INCLUDE (from_no);

COMMENT ON TABLE fencing.tag_links IS 'which tag was assigned to which subject, from which event to which';
COMMENT ON COLUMN fencing.tag_links.vocabulary IS 'the vocabulary';
COMMENT ON COLUMN fencing.tag_links.subject IS 'the subject';
COMMENT ON COLUMN fencing.tag_links.until_no IS 'number of the event that ended it; 9223372036854775807 if it is in force';
COMMENT ON COLUMN fencing.tag_links.tag_id IS 'the tag that the reference named, which may be merged into another';
COMMENT ON COLUMN fencing.tag_links.from_no IS 'number of the event that began it';

CREATE TABLE fencing.tag_follows (
	vocabulary text COLLATE "C" NOT NULL,
	subscriber text COLLATE "C" NOT NULL,
	until_no bigint NOT NULL,
	tag_id uuid NOT NULL,
	from_no bigint NOT NULL,
	following boolean NOT NULL,
	PRIMARY KEY (vocabulary, subscriber, until_no, tag_id)
) USING heap;

CREATE INDEX tag_follows_current_idx ON fencing.tag_follows (vocabulary, tag_id, until_no, subscriber) INCLUDE (from_no, following);
CREATE INDEX tag_follows_tag_id_idx ON fencing.tag_follows (vocabulary, tag_id, subscriber, until_no) INCLUDE (from_no, following);

COMMENT ON TABLE fencing.tag_follows IS 'decisions of subscribers: to follow a tag, or to leave it';
COMMENT ON COLUMN fencing.tag_follows.vocabulary IS 'the vocabulary';
COMMENT ON COLUMN fencing.tag_follows.subscriber IS 'the subscriber';
COMMENT ON COLUMN fencing.tag_follows.until_no IS 'number of the next decision at the tag; 9223372036854775807 if it is the latest';
COMMENT ON COLUMN fencing.tag_follows.tag_id IS 'the tag at which it was made, which may be merged into another';
COMMENT ON COLUMN fencing.tag_follows.from_no IS 'number of its event';
COMMENT ON COLUMN fencing.tag_follows.following IS 'whether the subscriber follows, or has left';

SELECT pg_catalog.pg_extension_config_dump('fencing.tags', '');
SELECT pg_catalog.pg_extension_config_dump('fencing.tag_names', '');
SELECT pg_catalog.pg_extension_config_dump('fencing.tag_events', '');
SELECT pg_catalog.pg_extension_config_dump('fencing.tag_events_event_no_seq', '');
SELECT pg_catalog.pg_extension_config_dump('fencing.tag_migrations', '');
SELECT pg_catalog.pg_extension_config_dump('fencing.tag_merges', '');
SELECT pg_catalog.pg_extension_config_dump('fencing.tag_links', '');
SELECT pg_catalog.pg_extension_config_dump('fencing.tag_follows', '');

CREATE FUNCTION fencing_tag_create(vocabulary text, event_id uuid, name text,
	OUT outcome fencing_outcome, OUT event_no bigint, OUT tag_id uuid, OUT name text, OUT matched text,
	OUT migration_version bigint, OUT migration_kind text)
AS 'MODULE_PATHNAME', 'fencing_tag_create'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_tag_create(text, uuid, text) IS
'makes a tag with a new id and this name.
Answers: committed; replayed (this event took effect before; the columns but
event_no are as of now); conflict (the name leads to a tag already, which is
returned, and nothing is made; or, with event_no, the event_id was used for
something else). Names are compared byte by byte: fold before calling.
Errors: 22004, 22023 also a name in the form of a UUID, 54000, 25006, 40001,
40P01, 55000';

CREATE FUNCTION fencing_tag_alias(vocabulary text, event_id uuid, reference text, name text,
	OUT outcome fencing_outcome, OUT event_no bigint, OUT tag_id uuid, OUT name text, OUT matched text,
	OUT migration_version bigint, OUT migration_kind text)
AS 'MODULE_PATHNAME', 'fencing_tag_alias'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_tag_alias(text, uuid, text, text) IS
'gives a tag another name that leads to it, such as a slug or an old address.
Answers: committed, replayed, conflict (the event_id was used for something
else).
Errors: as fencing_tag_create(), LF001 unknown reference, LF004 the name leads
to another tag';

CREATE FUNCTION fencing_tag_rename(vocabulary text, event_id uuid, reference text, name text, expected_version bigint,
	OUT outcome fencing_outcome, OUT event_no bigint, OUT tag_id uuid, OUT name text, OUT matched text,
	OUT migration_version bigint, OUT migration_kind text)
AS 'MODULE_PATHNAME', 'fencing_tag_rename'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_tag_rename(text, uuid, text, text, bigint) IS
'gives a tag another current name; the former one leads to it for ever.
expected_version is the migration_version that the caller has seen, 0 for a
tag that never had a migration.
Answers: committed, replayed, conflict (another migration_version, or the
reference is one of a merged tag; the tag is returned as it is; or, with
event_no, the event_id was used for something else). Waits for transactions
that write to the tag.
Errors: 22004, 22023 also the current name, or one in the form of a UUID,
54000, 25006, 40001, 40P01, 55000, 55P03, LF001 unknown reference, LF004 the
name leads to another tag';

CREATE FUNCTION fencing_tag_merge(vocabulary text, event_id uuid, source text, target text, expected_version bigint,
	expected_target_version bigint DEFAULT NULL,
	OUT outcome fencing_outcome, OUT event_no bigint, OUT tag_id uuid, OUT name text, OUT matched text,
	OUT migration_version bigint, OUT migration_kind text)
AS 'MODULE_PATHNAME', 'fencing_tag_merge'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_tag_merge(text, uuid, text, text, bigint, bigint) IS
'merges a tag into another: from now on every reference to it leads to the
target, and what it has counts there. No row moves. expected_version is the
migration_version of the source, expected_target_version, if not NULL, that
of the target.
Answers: committed, replayed, conflict (another migration_version, or the
source is a reference of a merged tag; the source is returned as it is; or,
with event_no, the event_id was used for something else). Waits for transactions that write to the two.
Errors: 22004, 22023 also a tag and itself, or one that is merged into the
source, 54000, 25006, 40001, 40P01, 55000, 55P03, LF001 unknown reference';

CREATE FUNCTION fencing_tag_undo(vocabulary text, event_id uuid, migration uuid,
	OUT outcome fencing_outcome, OUT event_no bigint, OUT tag_id uuid, OUT name text, OUT matched text,
	OUT migration_version bigint, OUT migration_kind text)
AS 'MODULE_PATHNAME', 'fencing_tag_undo'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_tag_undo(text, uuid, uuid) IS
'takes a rename or merge back, which is named by its event_id. What was
submitted since by a reference of the source is the source''s again.
Answers: committed, replayed, conflict (the event_id was used for something
else).
Errors: 22004, 22023, 54000, 25006, 40001, 40P01, 55000 complete, undone
already, or a rename that is not the latest or whose tag is merged, 55P03,
LF001 unknown migration';

CREATE FUNCTION fencing_tag_complete(vocabulary text, migration uuid,
	OUT outcome fencing_outcome, OUT event_no bigint, OUT tag_id uuid, OUT name text, OUT matched text,
	OUT migration_version bigint, OUT migration_kind text)
AS 'MODULE_PATHNAME', 'fencing_tag_complete'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_tag_complete(text, uuid) IS
'ends the time in which a migration can be undone, once
fencing_tag_reconcile() is done and has found no problem.
Answers: committed, replayed (it is complete already).
Errors: 22004, 22023, 54000, 25006, 40001, 55000 not reconciled, problems, or
undone, LF001 unknown migration';

CREATE FUNCTION fencing_tag_release_name(vocabulary text, event_id uuid, name text, reason text,
	OUT outcome fencing_outcome, OUT event_no bigint, OUT tag_id uuid, OUT name text, OUT matched text,
	OUT migration_version bigint, OUT migration_kind text)
AS 'MODULE_PATHNAME', 'fencing_tag_release_name'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_tag_release_name(text, uuid, text, text) IS
'for administrators: takes a former name or an alias from its tag, so that
another can have it; records who did it and why.
Answers: committed, replayed, conflict (the event_id was used for something
else).
Errors: 22004, 22023, 54000, 25006, 40001, 40P01, 55000 a current name, one of
a merged tag or of a rename that is not complete, or one by which something
was submitted, 55P03, LF001 unknown name';

CREATE FUNCTION fencing_tag_assign(vocabulary text, event_id uuid, reference text, subject text,
	OUT outcome fencing_outcome, OUT event_no bigint, OUT tag_id uuid, OUT name text, OUT matched text,
	OUT migration_version bigint, OUT migration_kind text)
AS 'MODULE_PATHNAME', 'fencing_tag_assign'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_tag_assign(text, uuid, text, text) IS
'assigns a tag to a subject. The association stays with the tag that the
reference names, also when a merge is undone.
Answers: committed, replayed, conflict (the event_id was used for something
else). name is the current name of the tag that the reference leads to.
Errors: 22004, 22023, 54000 also too many in one transaction, 25006, 40001,
40P01, 55000, LF001 unknown reference';

CREATE FUNCTION fencing_tag_unassign(vocabulary text, event_id uuid, reference text, subject text,
	OUT outcome fencing_outcome, OUT event_no bigint, OUT tag_id uuid, OUT name text, OUT matched text,
	OUT migration_version bigint, OUT migration_kind text)
AS 'MODULE_PATHNAME', 'fencing_tag_unassign'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_tag_unassign(text, uuid, text, text) IS
'takes a tag from a subject, with what tags that are merged into it contribute.
If the subject does not have it, only the event is recorded.
Answers: committed, replayed, conflict (the event_id was used for something
else). name is the current name of the tag that the reference leads to.
Errors: 22004, 22023, 54000 also too many in one transaction, 25006, 40001,
40P01, 55000, LF001 unknown reference';

CREATE FUNCTION fencing_tag_subscribe(vocabulary text, event_id uuid, reference text, subscriber text,
	OUT outcome fencing_outcome, OUT event_no bigint, OUT tag_id uuid, OUT name text, OUT matched text,
	OUT migration_version bigint, OUT migration_kind text)
AS 'MODULE_PATHNAME', 'fencing_tag_subscribe'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_tag_subscribe(text, uuid, text, text) IS
'makes a subscriber follow a tag. Event numbers decide: it wins over an earlier
fencing_tag_unsubscribe().
Answers: committed, replayed, conflict (the event_id was used for something
else). name is the current name of the tag that the reference leads to.
Errors: 22004, 22023, 54000 also too many in one transaction, 25006, 40001,
40P01, 55000, LF001 unknown reference';

CREATE FUNCTION fencing_tag_unsubscribe(vocabulary text, event_id uuid, reference text, subscriber text,
	OUT outcome fencing_outcome, OUT event_no bigint, OUT tag_id uuid, OUT name text, OUT matched text,
	OUT migration_version bigint, OUT migration_kind text)
AS 'MODULE_PATHNAME', 'fencing_tag_unsubscribe'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_tag_unsubscribe(text, uuid, text, text) IS
'makes a subscriber leave a tag, and remembers it also if there was nothing to
leave: no later merge carries the subscriber in.
Answers: committed, replayed, conflict (the event_id was used for something
else). name is the current name of the tag that the reference leads to.
Errors: 22004, 22023, 54000 also too many in one transaction, 25006, 40001,
40P01, 55000, LF001 unknown reference';

CREATE FUNCTION fencing_tag_resolve(vocabulary text, reference text,
	OUT tag_id uuid, OUT name text, OUT matched text, OUT migration_version bigint, OUT migration_kind text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'fencing_tag_resolve'
LANGUAGE C STABLE PARALLEL SAFE ROWS 1;

COMMENT ON FUNCTION fencing_tag_resolve(text, text) IS
'the tag that a reference, which is an id, a name or an alias, leads to now, or
no row; matched says how: id, current, former (an old name), alias, or merged
(the reference is one of a tag that was merged into it). Reads with the
snapshot of the calling query.
Errors: 22004, 22023, 54000';

CREATE FUNCTION fencing_tags_of(vocabulary text, subject text,
	OUT tag_id uuid, OUT name text, OUT migration_version bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'fencing_tags_of'
LANGUAGE C STABLE PARALLEL SAFE ROWS 10;

COMMENT ON FUNCTION fencing_tags_of(text, text) IS
'the tags that a subject has now, each once, by name. Reads with the snapshot
of the calling query.
Errors: 22004, 22023, 54000';

CREATE FUNCTION fencing_tag_subjects(vocabulary text, reference text, event_no bigint DEFAULT NULL,
	after text DEFAULT NULL, max_rows integer DEFAULT 100)
RETURNS SETOF text
AS 'MODULE_PATHNAME', 'fencing_tag_subjects'
LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100;

COMMENT ON FUNCTION fencing_tag_subjects(text, text, bigint, text, integer) IS
'the subjects that have a tag, in their order, at most max_rows of those after
one. event_no NULL: now, with the snapshot of the calling query. Else as of
the event of that number, the reference too; that waits for transactions that
have written to the vocabulary and have not ended.
Errors: 22004, 22023 also a number that was never drawn, 54000, 25006 as of a
number on a standby, LF001 unknown reference';

CREATE FUNCTION fencing_tag_subscribers(vocabulary text, reference text, event_no bigint DEFAULT NULL,
	after text DEFAULT NULL, max_rows integer DEFAULT 100)
RETURNS SETOF text
AS 'MODULE_PATHNAME', 'fencing_tag_subscribers'
LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100;

COMMENT ON FUNCTION fencing_tag_subscribers(text, text, bigint, text, integer) IS
'the subscribers of a tag: with event_no those who are to be told of that
event. Arguments and errors as fencing_tag_subjects()';

CREATE FUNCTION fencing_tag_statistics(vocabulary text, event_no bigint DEFAULT NULL, reference text DEFAULT NULL,
	OUT tag_id uuid, OUT name text, OUT subjects bigint, OUT subscribers bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'fencing_tag_statistics'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_tag_statistics(text, bigint, text) IS
'how many subjects and subscribers each tag has that is not merged, or the one
that a reference leads to. event_no NULL: now; else as of the event of that
number, by the tags and names of then. Nothing is counted beforehand: the cost
is that of the associations.
Errors: as fencing_tag_subjects()';

CREATE FUNCTION fencing_tag_reconcile(vocabulary text, migration uuid, max_rows integer DEFAULT 10000,
	OUT done boolean, OUT checked bigint, OUT problems bigint)
AS 'MODULE_PATHNAME', 'fencing_tag_reconcile'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_tag_reconcile(text, uuid, integer) IS
'compares rows of the tags concerned by a migration with their events, at most
max_rows in this call, from where the last call ended; nothing is moved. Call
it until done. checked and problems count all calls; with problems the next
call after done begins anew.
Errors: 22004, 22023, 54000, 25006, 40001, 55000 undone, LF001 unknown
migration';

CREATE FUNCTION fencing_tag_check(vocabulary text)
RETURNS SETOF text
AS 'MODULE_PATHNAME', 'fencing_tag_check'
LANGUAGE C STABLE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_tag_check(text) IS
'computes everything about a vocabulary from its events, and returns a line for
each difference from what is kept; no row: it is consistent.
Errors: 22004, 22023, 54000';

CREATE FUNCTION fencing.tag_reached(vocabulary text, tag_id uuid, made_before bigint, event_no bigint)
RETURNS uuid
AS 'MODULE_PATHNAME', 'fencing_tag_reached'
LANGUAGE C STABLE STRICT PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing.tag_reached(text, uuid, bigint, bigint) IS
'the tag that is reached from one along the merges that were made before a
number, and in force at another';

CREATE FUNCTION fencing.tag_decides(vocabulary text, tag_ids uuid[], event_nos bigint[], following boolean[], event_no bigint)
RETURNS boolean
AS 'MODULE_PATHNAME', 'fencing_tag_decides'
LANGUAGE C STABLE STRICT PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing.tag_decides(text, uuid[], bigint[], boolean[], bigint) IS
'whether a subscriber with these decisions at tags of one tree follows its
root, as of a number';

-- What the events say the associations and subscriptions are, with the
-- columns of the tables, for comparison with them.
CREATE VIEW fencing.tag_links_by_events AS
SELECT c.vocabulary, c.subject, c.until_no, c.tag_id, c.from_no
FROM (SELECT d.vocabulary, d.subject, d.tag_id, d.assigned, d.event_no AS from_no,
		pg_catalog.lead(d.event_no, 1, 9223372036854775807) OVER (PARTITION BY d.vocabulary, d.tag_id, d.subject ORDER BY d.event_no) AS until_no
	FROM (SELECT x.vocabulary, x.subject, x.tag_id, x.event_no, x.assigned,
			pg_catalog.lag(x.assigned, 1, false) OVER (PARTITION BY x.vocabulary, x.tag_id, x.subject ORDER BY x.event_no) AS before
		FROM (SELECT e.vocabulary, e.subject, e.owner AS tag_id, e.event_no, true AS assigned
			FROM fencing.tag_events e
			WHERE e.kind OPERATOR(pg_catalog.=) 'assign'
			UNION ALL
			SELECT a.vocabulary, a.subject, a.owner, e.event_no, false
			FROM (SELECT DISTINCT e.vocabulary, e.subject, e.owner FROM fencing.tag_events e
				WHERE e.kind OPERATOR(pg_catalog.=) 'assign') a
			JOIN fencing.tag_events e ON e.vocabulary OPERATOR(pg_catalog.=) a.vocabulary
				AND e.subject OPERATOR(pg_catalog.=) a.subject
			WHERE e.kind OPERATOR(pg_catalog.=) 'unassign'
				AND fencing.tag_reached(e.vocabulary, a.owner, 9223372036854775807, e.event_no) OPERATOR(pg_catalog.=) e.tag_id) x) d
	WHERE d.assigned OPERATOR(pg_catalog.<>) d.before) c
WHERE c.assigned;

COMMENT ON VIEW fencing.tag_links_by_events IS 'what fencing.tag_links has to be';
COMMENT ON COLUMN fencing.tag_links_by_events.vocabulary IS 'the vocabulary';
COMMENT ON COLUMN fencing.tag_links_by_events.subject IS 'the subject';
COMMENT ON COLUMN fencing.tag_links_by_events.until_no IS 'number of the event that ended the association';
COMMENT ON COLUMN fencing.tag_links_by_events.tag_id IS 'the tag that the reference named';
COMMENT ON COLUMN fencing.tag_links_by_events.from_no IS 'number of the event that began it';

CREATE VIEW fencing.tag_follows_by_events AS
SELECT d.vocabulary, d.subscriber,
	pg_catalog.lead(d.from_no, 1, 9223372036854775807) OVER (PARTITION BY d.vocabulary, d.tag_id, d.subscriber ORDER BY d.from_no) AS until_no,
	d.tag_id, d.from_no, d.following
FROM (SELECT e.vocabulary, e.subject AS subscriber, e.owner AS tag_id, e.event_no AS from_no, true AS following
	FROM fencing.tag_events e
	WHERE e.kind OPERATOR(pg_catalog.=) 'subscribe'
	UNION ALL
	SELECT t.vocabulary, t.subject, t.tag_id, e.event_no, false
	FROM (SELECT o.vocabulary, o.subject, o.tag_id, pg_catalog.min(o.event_no) AS first_no
		FROM (SELECT e.vocabulary, e.subject, e.owner AS tag_id, e.event_no FROM fencing.tag_events e
			WHERE e.kind OPERATOR(pg_catalog.=) ANY ('{subscribe,unsubscribe}'::text[])
			UNION ALL
			SELECT e.vocabulary, e.subject, e.tag_id, e.event_no FROM fencing.tag_events e
			WHERE e.kind OPERATOR(pg_catalog.=) 'unsubscribe') o
		GROUP BY o.vocabulary, o.subject, o.tag_id) t
	JOIN fencing.tag_events e ON e.vocabulary OPERATOR(pg_catalog.=) t.vocabulary
		AND e.subject OPERATOR(pg_catalog.=) t.subject
		AND e.event_no OPERATOR(pg_catalog.>=) t.first_no
	WHERE e.kind OPERATOR(pg_catalog.=) 'unsubscribe'
		AND (t.tag_id OPERATOR(pg_catalog.=) e.owner
			OR fencing.tag_reached(e.vocabulary, t.tag_id, 9223372036854775807, e.event_no) OPERATOR(pg_catalog.=) e.tag_id)) d;

COMMENT ON VIEW fencing.tag_follows_by_events IS 'what fencing.tag_follows has to be';
COMMENT ON COLUMN fencing.tag_follows_by_events.vocabulary IS 'the vocabulary';
COMMENT ON COLUMN fencing.tag_follows_by_events.subscriber IS 'the subscriber';
COMMENT ON COLUMN fencing.tag_follows_by_events.until_no IS 'number of the next decision at the tag';
COMMENT ON COLUMN fencing.tag_follows_by_events.tag_id IS 'the tag at which it was made';
COMMENT ON COLUMN fencing.tag_follows_by_events.from_no IS 'number of its event';
COMMENT ON COLUMN fencing.tag_follows_by_events.following IS 'whether the subscriber follows, or has left';

CREATE VIEW fencing.tag_export AS
SELECT x.vocabulary, x.reference,
	CASE WHEN r.tag_id OPERATOR(pg_catalog.<>) x.tag_id THEN 'merged'
		WHEN x.kind OPERATOR(pg_catalog.=) 'id' THEN 'id'
		WHEN x.reference OPERATOR(pg_catalog.=) r.name THEN 'current'
		ELSE x.kind END AS matched,
	r.tag_id, r.name, r.version AS migration_version, r.migration_kind
FROM (SELECT t.vocabulary, t.tag_id::text COLLATE "C" AS reference, t.tag_id, 'id' AS kind
	FROM fencing.tags t
	UNION ALL
	SELECT n.vocabulary, n.name, n.tag_id, CASE WHEN n.alias THEN 'alias' ELSE 'former' END
	FROM fencing.tag_names n) x
JOIN fencing.tags t ON t.vocabulary OPERATOR(pg_catalog.=) x.vocabulary AND t.tag_id OPERATOR(pg_catalog.=) x.tag_id
JOIN fencing.tags r ON r.vocabulary OPERATOR(pg_catalog.=) t.vocabulary AND r.tag_id OPERATOR(pg_catalog.=) t.root;

COMMENT ON VIEW fencing.tag_export IS 'every reference and what it resolves to, for other systems: those matched id, by tag_id, are the tags; readable by pg_monitor';
COMMENT ON COLUMN fencing.tag_export.vocabulary IS 'the vocabulary';
COMMENT ON COLUMN fencing.tag_export.reference IS 'an id, a name or an alias';
COMMENT ON COLUMN fencing.tag_export.matched IS 'how it leads to the tag: id, current, former, alias, or merged';
COMMENT ON COLUMN fencing.tag_export.tag_id IS 'the tag that it leads to';
COMMENT ON COLUMN fencing.tag_export.name IS 'the current name of that tag';
COMMENT ON COLUMN fencing.tag_export.migration_version IS 'number of the last migration of its name or its tree; 0 for none';
COMMENT ON COLUMN fencing.tag_export.migration_kind IS 'kind of that migration: rename, merge, undo; NULL for none';

--
-- Protected tables: protect.c, pass.c
--
CREATE FUNCTION fencing_protect(relation regclass, job_key_column name DEFAULT NULL, job_key text DEFAULT NULL)
RETURNS void
AS 'MODULE_PATHNAME', 'fencing_protect'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_protect(regclass, name, text) IS
'refuses writes to a table (LF003) unless the transaction was answered
committed for the job of the row, which is in a column, or one and the same
for the table. Exactly one of the two is given. Partitions are protected with
their table; after adding or detaching one, protect again. The caller must own
the table; writers must neither own it nor have the TRIGGER privilege on it.
Errors: 22004, 22023, 42501, 42P01, 42703, 2BP01 a partition of a protected
table, 42710 a trigger of that name, 42809, 0A000 inheritance, a virtual
column, a foreign partition, a table of the extension itself or a temporary
one of another session, 54000';

CREATE FUNCTION fencing_unprotect(relation regclass)
RETURNS void
AS 'MODULE_PATHNAME', 'fencing_unprotect'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_unprotect(regclass) IS
'ends what fencing_protect() began; the caller must own the table.
Errors: 22004, 2BP01 a partition of a protected table, 42501, 42P01, 42809,
0A000 a table of the extension itself or a temporary one of another session';

CREATE FUNCTION fencing_guard_row()
RETURNS trigger
AS 'MODULE_PATHNAME', 'fencing_guard_row'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_guard_row() IS
'trigger of fencing_protect(), fired after each row.
Errors: LF003, 42703 and 22023 if the key column is not there or not text any
more, 39P01 if not used as fencing_protect() does';

CREATE FUNCTION fencing_guard_truncate()
RETURNS trigger
AS 'MODULE_PATHNAME', 'fencing_guard_truncate'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_guard_truncate() IS
'trigger of fencing_protect(), fired before TRUNCATE.
Errors: LF003, 42703, 22023, 39P01';

CREATE VIEW fencing.protected_tables AS
SELECT g.tgrelid::regclass AS relation,
	CASE WHEN NOT g.by_row THEN 'rows are not guarded: it was detached from a partitioned table'
		WHEN NOT g.by_truncate THEN 'TRUNCATE is not guarded: it became a partition later'
		WHEN g.disabled THEN 'a trigger is disabled'
		END AS problem
FROM (SELECT t.tgrelid,
		pg_catalog.bool_or(t.tgfoid OPERATOR(pg_catalog.=) 'fencing_guard_row()'::regprocedure) AS by_row,
		pg_catalog.bool_or(t.tgfoid OPERATOR(pg_catalog.=) 'fencing_guard_truncate()'::regprocedure) AS by_truncate,
		pg_catalog.bool_or(t.tgenabled OPERATOR(pg_catalog.=) ANY ('{D,R}'::"char"[])) AS disabled
	FROM pg_catalog.pg_trigger t
	WHERE t.tgfoid OPERATOR(pg_catalog.=) ANY (ARRAY['fencing_guard_row()'::regprocedure::oid, 'fencing_guard_truncate()'::regprocedure::oid])
	GROUP BY t.tgrelid) g;

COMMENT ON VIEW fencing.protected_tables IS 'tables that fencing_protect() guards, partitions included; readable by pg_monitor';
COMMENT ON COLUMN fencing.protected_tables.relation IS 'the table';
COMMENT ON COLUMN fencing.protected_tables.problem IS 'why it is not guarded as it should be: protect the partitioned table again, or unprotect the one that was detached; NULL: it is';

--
-- Retention: purge.c
--
-- Registers, not dumped.
CREATE SEQUENCE fencing.purge_jobs_position MINVALUE 0 START 0;
CREATE SEQUENCE fencing.purge_receipts_position MINVALUE 0 START 0;

COMMENT ON SEQUENCE fencing.purge_receipts_position IS 'row of fencing.receipts from which fencing_purge() of receipts goes on';
COMMENT ON SEQUENCE fencing.purge_jobs_position IS 'row of fencing.leases from which fencing_purge() of jobs goes on';

CREATE FUNCTION fencing_purge(kind text, older_than interval, max_rows integer DEFAULT 10000,
	OUT purged bigint, OUT more boolean)
AS 'MODULE_PATHNAME', 'fencing_purge'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_purge(text, interval, integer) IS
'removes at most max_rows of what is older than an interval. For
administrators. receipts: none of a job''s current token, and none of a job that
is just committing; each call looks at a part of all receipts. records: those that are older than the retention
of their operation become tombstones, those older than its forget_after go, the
oldest first.
events: none that a subscribed consumer has not acknowledged. jobs: those whose
lease ended, and which committed last, before that time, as fencing_forget()
does; each call looks at a part of all jobs. What was purged is answered pruned
afterwards. more says whether to call again.
Errors: 22004, 22023, 25006, 40001';

CREATE VIEW fencing.retention_status AS
SELECT 'events' AS kind, s.consumer AS name, s.oldest AS since, s.held,
	'the consumer has not acknowledged them: is a relay running? fencing_outbox_unsubscribe(), if it is gone for good' AS remedy
FROM fencing.outbox_status s
WHERE s.pending OPERATOR(pg_catalog.>) 0
UNION ALL
SELECT 'request schema', pg_catalog.format('%s version %s', o.operation, o.hash_version), o.oldest,
	o.records OPERATOR(pg_catalog.+) o.tombstones,
	'it is retired, but records need it: fencing_purge() of records takes it with the last of them'
FROM fencing.operation_status o
WHERE o.retired AND o.records OPERATOR(pg_catalog.+) o.tombstones OPERATOR(pg_catalog.>) 0
UNION ALL
SELECT 'protected table', t.relation::text, NULL, NULL, t.problem
FROM fencing.protected_tables t
WHERE t.problem IS NOT NULL;

COMMENT ON VIEW fencing.retention_status IS 'what is kept, or guarded, because of something that may be forgotten; readable by pg_monitor';
COMMENT ON COLUMN fencing.retention_status.kind IS 'events, request schema or protected table';
COMMENT ON COLUMN fencing.retention_status.name IS 'the consumer; the operation and its version; the table';
COMMENT ON COLUMN fencing.retention_status.since IS 'when the oldest of what is kept was written';
COMMENT ON COLUMN fencing.retention_status.held IS 'how much is kept: numbers of events, records';
COMMENT ON COLUMN fencing.retention_status.remedy IS 'what to do';

CREATE FUNCTION fencing.before(kept interval)
RETURNS timestamptz
AS 'MODULE_PATHNAME', 'fencing_before'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION fencing.before(interval) IS
'for fencing_purge(): the time before which things have been kept for so long.
A month is 31 days';

--
-- Access: access.c
--
-- By name, not OID: it must survive a restore, and an upgrade grants from it.
CREATE TABLE fencing.grants (
	role name NOT NULL,
	access text COLLATE "C" NOT NULL,
	PRIMARY KEY (role, access)
) USING heap;

COMMENT ON TABLE fencing.grants IS 'which role has which kind of access; written by fencing_grant() and fencing_ungrant()';
COMMENT ON COLUMN fencing.grants.role IS 'name of the role';
COMMENT ON COLUMN fencing.grants.access IS 'kind of access, as in fencing_grant()';

SELECT pg_catalog.pg_extension_config_dump('fencing.grants', '');

CREATE FUNCTION fencing_grant(role regrole, access text)
RETURNS void
AS 'MODULE_PATHNAME', 'fencing_grant'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_grant(regrole, text) IS
'lets a role use the functions of one kind of access: client, relay, target,
publisher, external or admin; or, with cdc, read the table fencing.outbox, as
a connector for change data capture does.
Errors: 22004, 22023';

CREATE FUNCTION fencing_ungrant(role regrole, access text)
RETURNS void
AS 'MODULE_PATHNAME', 'fencing_ungrant'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION fencing_ungrant(regrole, text) IS
'takes back what fencing_grant() gave; functions that another kind of access
gives the role too stay.
Errors: 22004, 22023';

--
-- Privileges.  Tokens and receipts decide what happens to business data, so
-- nobody but the owner has any, on anything, to begin with: neither PUBLIC nor
-- those to whom ALTER DEFAULT PRIVILEGES gave some on what was made above.
-- (Every operator is qualified: this runs as superuser, and others may be able
-- to create operators in the schema where the extension goes.)
--
DO $$
DECLARE
	command text;
BEGIN
	FOR command IN
		SELECT DISTINCT pg_catalog.format('REVOKE ALL ON %s FROM %s CASCADE', o.object,
			CASE WHEN a.grantee OPERATOR(pg_catalog.=) 0::pg_catalog.oid THEN 'PUBLIC'
				ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(a.grantee)) END)
		FROM (
			SELECT 'SCHEMA fencing' AS object, n.nspowner AS owner, n.nspacl AS acl
			FROM pg_catalog.pg_namespace n
			WHERE n.nspname OPERATOR(pg_catalog.=) 'fencing'
			UNION ALL
			SELECT pg_catalog.format('%s fencing.%I',
					CASE WHEN c.relkind OPERATOR(pg_catalog.=) 'S'::"char" THEN 'SEQUENCE' ELSE 'TABLE' END, c.relname),
				c.relowner, c.relacl
			FROM pg_catalog.pg_class c
			JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
			WHERE n.nspname OPERATOR(pg_catalog.=) 'fencing'
				AND c.relkind OPERATOR(pg_catalog.=) ANY ('{r,v,S}'::"char"[])
			UNION ALL
			SELECT pg_catalog.format('FUNCTION %s', p.oid::pg_catalog.regprocedure), p.proowner,
				COALESCE(p.proacl, pg_catalog.acldefault('f', p.proowner))
			FROM pg_catalog.pg_proc p
			JOIN pg_catalog.pg_depend d ON d.objid OPERATOR(pg_catalog.=) p.oid
			JOIN pg_catalog.pg_extension e ON e.oid OPERATOR(pg_catalog.=) d.refobjid
			WHERE d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass
				AND d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_extension'::pg_catalog.regclass
				AND d.deptype OPERATOR(pg_catalog.=) 'e'
				AND e.extname OPERATOR(pg_catalog.=) 'fencing'
		) o
		CROSS JOIN LATERAL pg_catalog.aclexplode(o.acl) a
		WHERE a.grantee OPERATOR(pg_catalog.<>) o.owner
	LOOP
		EXECUTE command;
	END LOOP;
END
$$;

-- A role that may create functions beside these can make one of the same name that suits a
-- call better, and have it run as the caller.  The owners of schema and database
-- could do worse.
DO $$
DECLARE
	strangers text;
BEGIN
	SELECT pg_catalog.string_agg(DISTINCT CASE WHEN a.grantee OPERATOR(pg_catalog.=) 0::pg_catalog.oid THEN 'PUBLIC'
		ELSE pg_catalog.quote_ident(r.rolname) END, ', ')
	INTO strangers
	FROM pg_catalog.pg_namespace n
	CROSS JOIN LATERAL pg_catalog.aclexplode(n.nspacl) a
	LEFT JOIN pg_catalog.pg_roles r ON r.oid OPERATOR(pg_catalog.=) a.grantee
	WHERE n.oid OPERATOR(pg_catalog.=) '@extschema@'::pg_catalog.regnamespace::pg_catalog.oid
		AND a.privilege_type OPERATOR(pg_catalog.=) 'CREATE'
		AND a.grantee OPERATOR(pg_catalog.<>) n.nspowner
		AND r.rolsuper IS NOT TRUE
		AND r.rolname IS DISTINCT FROM 'pg_database_owner'
		AND NOT EXISTS (SELECT FROM pg_catalog.pg_database d
			WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
			AND d.datdba OPERATOR(pg_catalog.=) a.grantee);
	IF strangers IS NOT NULL THEN
		RAISE WARNING USING
			MESSAGE = pg_catalog.format('functions of fencing can be overloaded by others in schema %s', '@extschema@'),
			DETAIL = pg_catalog.format('%s may create functions there, which calls may find instead of the extension''s.', strangers),
			HINT = pg_catalog.format('REVOKE CREATE ON SCHEMA %s FROM %s, or create the extension in a schema of its own.', '@extschema@', strangers);
	END IF;
END
$$;

-- the pure functions are for everybody
GRANT EXECUTE ON FUNCTION fencing_canonical(jsonb, integer), fencing_digest(jsonb, integer),
	fencing.outbox_wants(pg_snapshot, bigint, xid8, integer, integer, bigint, xid8, text, text) TO PUBLIC;

-- and the triggers of protected tables, which do nothing but refuse: a table's
-- owner needs the privilege to make a partition, no matter which role has protected it
GRANT EXECUTE ON FUNCTION fencing_guard_row(), fencing_guard_truncate() TO PUBLIC;

-- counters of the caller's own connection; it is not in schema fencing, to which
-- no application role has any privilege
GRANT EXECUTE ON FUNCTION fencing_statement_cache() TO PUBLIC;

GRANT USAGE ON SCHEMA fencing TO pg_monitor;
GRANT SELECT ON fencing.lease_status, fencing.receipt_log, fencing.operation_status,
	fencing.outbox_status, fencing.outbox_pending, fencing.outbox_parked, fencing.revision_history, fencing.rollout_status,
	fencing.epoch_status, fencing.tag_export, fencing.revocations, fencing.protected_tables,
	fencing.retention_status TO pg_monitor;
GRANT EXECUTE ON FUNCTION fencing.epoch_start(), fencing.read_epoch() TO pg_monitor;
