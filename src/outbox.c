/*-------------------------------------------------------------------------
 *
 * outbox.c
 *	  Events that are written with what they tell of, and delivered at least once.
 *
 * An event takes its number under the lock of its aggregate, which is held to
 * the end of the transaction: the numbers of one aggregate are in the order of
 * the commits.  Numbers of different aggregates are not; so delivery is tracked
 * per event and consumer, never by a position in the numbers, and an event of a
 * slow transaction is not passed over.
 *
 * Acknowledgements are compacted: (era, xid) of a consumer is where all events
 * before are done and no transaction is left that could write one there.  xids
 * mean nothing after a restore, so the era, the epoch of epoch.c, stands before
 * them: in a new one everything old is before everything new.
 *
 * A consumer is a job; its relays take turns by its lease, and what they
 * acknowledge is fenced by its token.
 *
 * Locks: emit: the aggregate's lock, waiting.  ack, park: the fence of the
 * consumer, then its row in fencing.outbox_consumers, waiting.  read: none.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/async.h"
#include "fencing.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/xid8.h"

#define CHANNEL				"fencing_outbox"

/* One call of a relay. */
typedef struct RelayCall
{
	FencingJob	job;
	Datum		ids;			/* of ack */
	Datum		id;				/* of park */
	text	   *reason;			/* of park; NULL: take it back */
	int64		after_no;		/* events up to this number are done */
	int64		affected;
} RelayCall;

/* All int64, in the order of the query's columns. */
typedef struct AckCounts
{
	int64		given;			/* different ids */
	int64		known;
	int64		pending;
	int64		up_to_last;		/* pending up to the last id of each aggregate */
} AckCounts;

static void begin_relay(RelayCall *call, FunctionCallInfo fcinfo, const char *function);
static void count_for_ack(RelayCall *call, AckCounts *counts);
static void count_afresh(const char *query, Oid *argtypes, Datum *args, int nargs,
						 int64 *counts, int ncounts);
static bool ack_locked(void *arg);
static bool park_locked(void *arg);
static void compact(RelayCall *call);
static void require_subscribed(RelayCall *call, bool lock);
static bool is_any_prepared(void);
static void make_mark(Datum *no, Datum *xid);
static void forget_acks(Datum consumer);
static void put_events(SPITupleTable *rows, uint64 count, void *arg);

PG_FUNCTION_INFO_V1(fencing_outbox_emit);
PG_FUNCTION_INFO_V1(fencing_outbox_subscribe);
PG_FUNCTION_INFO_V1(fencing_outbox_unsubscribe);
PG_FUNCTION_INFO_V1(fencing_outbox_read);
PG_FUNCTION_INFO_V1(fencing_outbox_ack);
PG_FUNCTION_INFO_V1(fencing_outbox_park);

bool		fencing_outbox_notify;

/*
 * fencing_outbox_emit(aggregate_type text, aggregate_id text, type text, payload jsonb)
 *	→ uuid
 */
Datum
fencing_outbox_emit(PG_FUNCTION_ARGS)
{
	text	   *aggregate_type = fencing_arg_key(fcinfo, 0, "aggregate_type");
	text	   *aggregate_id = fencing_arg_key(fcinfo, 1, "aggregate_id");
	text	   *type = fencing_arg_key(fcinfo, 2, "type");

	fencing_refuse_null(fcinfo, 3, "payload");
	PreventCommandIfReadOnly("fencing_outbox_emit()");
	PreventCommandIfParallelMode("fencing_outbox_emit()");
	fencing_lock_aggregate(aggregate_type, aggregate_id);
	PG_RETURN_UUID_P(fencing_emit(aggregate_type, aggregate_id, type, PG_GETARG_JSONB_P(3)));
}

/*
 * Writes an event in this transaction and returns its id.  The caller has locked
 * the aggregate, or the one thing that it is about, to the transaction's end.
 */
pg_uuid_t *
fencing_emit(text *aggregate_type, text *aggregate_id, text *type, Jsonb *payload)
{
	static const char query[] =
		"INSERT INTO fencing.outbox"
		" (id, aggregatetype, aggregateid, type, payload, created_at, era, xid)"
		" VALUES ($1, $2, $3, $4, $5, $6, $7, pg_catalog.pg_current_xact_id())";
	Oid			argtypes[] = {UUIDOID, TEXTOID, TEXTOID, TEXTOID, JSONBOID, TIMESTAMPTZOID, INT8OID};
	pg_uuid_t  *id = fencing_new_uuid();
	Datum		args[lengthof(argtypes)];

	(void) fencing_enter_epoch();

	/* before the number is drawn: see above */
	(void) GetTopFullTransactionId();

	args[0] = UUIDPGetDatum(id);
	args[1] = PointerGetDatum(aggregate_type);
	args[2] = PointerGetDatum(aggregate_id);
	args[3] = PointerGetDatum(type);
	args[4] = JsonbPGetDatum(payload);
	args[5] = TimestampTzGetDatum(GetCurrentTimestamp());
	args[6] = Int64GetDatum(fencing_current_epoch());
	fencing_query_as_owner(query, lengthof(args), argtypes, args, NULL, NULL, NULL, NULL);

	ForceSyncCommit();
	if (fencing_outbox_notify)
		Async_Notify(CHANNEL, "");
	return id;
}

/* A random UUID (RFC 4122, version 4). */
pg_uuid_t *
fencing_new_uuid(void)
{
	pg_uuid_t  *id = (pg_uuid_t *) palloc(sizeof(pg_uuid_t));

	if (!pg_strong_random(id, sizeof(pg_uuid_t)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random values")));
	id->data[6] = (id->data[6] & 0x0f) | 0x40;
	id->data[8] = (id->data[8] & 0x3f) | 0x80;
	return id;
}

/*
 * fencing_outbox_subscribe(consumer text, from_start boolean) → void
 */
Datum
fencing_outbox_subscribe(PG_FUNCTION_ARGS)
{
	static const char query[] =
		"WITH i AS (INSERT INTO fencing.outbox_consumers"
		" (consumer, since, since_era, since_xid, era, xid, after_no, mark_era, mark_xid, mark_no)"
		" SELECT $1, CASE WHEN NOT $2 THEN s.snapshot END, $3, s.xid,"
		" CASE WHEN $6 THEN (-1)::bigint ELSE $3 END,"
		" CASE WHEN $6 THEN '0'::pg_catalog.xid8 ELSE pg_catalog.pg_snapshot_xmin(s.snapshot) END,"
		" 0, $3, $5, $4"
		" FROM (SELECT pg_catalog.pg_current_xact_id() AS xid,"
		"  pg_catalog.pg_current_snapshot() AS snapshot) s"
		" ON CONFLICT (consumer) DO NOTHING RETURNING 1)"
		" SELECT pg_catalog.count(*) FROM i";
	Oid			argtypes[] = {TEXTOID, BOOLOID, INT8OID, INT8OID, XID8OID, BOOLOID};
	bool		from_start = fencing_arg_bool(fcinfo, 1, "from_start");
	Datum		args[lengthof(argtypes)];
	int64		subscribed;

	args[0] = PointerGetDatum(fencing_arg_key(fcinfo, 0, "consumer"));
	args[1] = BoolGetDatum(from_start);
	PreventCommandIfReadOnly("fencing_outbox_subscribe()");
	PreventCommandIfParallelMode("fencing_outbox_subscribe()");

	(void) fencing_enter_epoch();
	args[2] = Int64GetDatum(fencing_current_epoch());
	make_mark(&args[3], &args[4]);

	/*
	 * One that was prepared in a former era when the snapshot was taken may yet
	 * commit, or has: then all events are looked at, until they are compacted.
	 */
	args[5] = BoolGetDatum(from_start || IsolationUsesXactSnapshot() || is_any_prepared());
	fencing_execute_as_owner(query, lengthof(args), argtypes, args, NULL, NULL, 1, &subscribed);
	if (subscribed > 0)
		forget_acks(args[0]);
	ForceSyncCommit();
	PG_RETURN_VOID();
}

/*
 * fencing_outbox_unsubscribe(consumer text) → void
 */
Datum
fencing_outbox_unsubscribe(PG_FUNCTION_ARGS)
{
	static const char query[] =
		"DELETE FROM fencing.outbox_consumers WHERE consumer OPERATOR(pg_catalog.=) $1";
	Oid			argtypes[] = {TEXTOID};
	Datum		args[lengthof(argtypes)];

	args[0] = PointerGetDatum(fencing_arg_key(fcinfo, 0, "consumer"));
	PreventCommandIfReadOnly("fencing_outbox_unsubscribe()");
	PreventCommandIfParallelMode("fencing_outbox_unsubscribe()");

	/* waits for an acknowledgement in flight; then its rows are seen */
	fencing_query_as_owner(query, lengthof(args), argtypes, args, NULL, NULL, NULL, NULL);
	forget_acks(args[0]);
	ForceSyncCommit();
	PG_RETURN_VOID();
}

/*
 * Whether a transaction is prepared in this database.  That is not read from a
 * snapshot: if the answer is no, later snapshots see what has become of those
 * that were.
 */
static bool
is_any_prepared(void)
{
	static const char query[] =
		"SELECT pg_catalog.count(*) FROM pg_catalog.pg_prepared_xacts t"
		" WHERE t.database OPERATOR(pg_catalog.=) pg_catalog.current_database()";
	int64		prepared;

	fencing_execute_as_owner(query, 0, NULL, NULL, NULL, NULL, 1, &prepared);
	return prepared > 0;
}

/* The last number drawn, and the first transaction that had not begun then. */
static void
make_mark(Datum *no, Datum *xid)
{
	static const char query[] =
		"SELECT CASE WHEN s.is_called THEN s.last_value ELSE 0 END FROM fencing.outbox_no_seq s";
	int64		last_no;

	fencing_execute_as_owner(query, 0, NULL, NULL, NULL, NULL, 1, &last_no);
	*no = Int64GetDatum(last_no);
	*xid = FullTransactionIdGetDatum(ReadNextFullTransactionId());
}

static void
forget_acks(Datum consumer)
{
	static const char query[] =
		"DELETE FROM fencing.outbox_acks WHERE consumer OPERATOR(pg_catalog.=) $1";
	Oid			argtypes[] = {TEXTOID};

	fencing_query_as_owner(query, 1, argtypes, &consumer, NULL, NULL, NULL, NULL);
}

/*
 * fencing_outbox_read(consumer text, token bigint, max_rows int)
 *	→ SETOF outcome, id, aggregate_type, aggregate_id, type, payload, created_at
 *
 * In the order of the numbers every event of an aggregate comes after its
 * earlier ones; those that are not in this answer have been acknowledged, or
 * are parked, and then the later ones are left out.
 */
Datum
fencing_outbox_read(PG_FUNCTION_ARGS)
{
	static const char query[] =
		"WITH parked AS MATERIALIZED ("
		" SELECT e.aggregatetype, e.aggregateid, pg_catalog.min(e.no) AS no"
		" FROM fencing.outbox_acks a"
		" JOIN fencing.outbox e ON e.no OPERATOR(pg_catalog.=) a.event_no"
		" WHERE a.consumer OPERATOR(pg_catalog.=) $1 AND a.acked_at IS NULL"
		" GROUP BY e.aggregatetype, e.aggregateid"
		")"
		" SELECT p.id, p.aggregatetype, p.aggregateid, p.type, p.payload, p.created_at"
		" FROM fencing.outbox_pending p"
		" LEFT JOIN parked b ON b.aggregatetype OPERATOR(pg_catalog.=) p.aggregatetype"
		"  AND b.aggregateid OPERATOR(pg_catalog.=) p.aggregateid"
		" WHERE p.consumer OPERATOR(pg_catalog.=) $1 AND p.no OPERATOR(pg_catalog.>) $3"
		" AND (b.no IS NULL OR p.no OPERATOR(pg_catalog.<) b.no)"
		" ORDER BY p.no"
		" LIMIT $2";
	Oid			argtypes[] = {TEXTOID, INT4OID, INT8OID};
	RelayCall	call = {0};
	int			max_rows;
	Snapshot	snapshot;
	bool		current;

	fencing_refuse_null(fcinfo, 2, "max_rows");
	max_rows = PG_GETARG_INT32(2);
	if (max_rows < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("max_rows must be greater than zero")));

	begin_relay(&call, fcinfo, "fencing_outbox_read()");
	snapshot = fencing_fresh_snapshot();
	current = fencing_is_current(&call.job, snapshot);
	UnregisterSnapshot(snapshot);
	fencing_end_job(&call.job);

	InitMaterializedSRF(fcinfo, 0);
	if (!current)
	{
		ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
		Datum		values[7] = {0};
		bool		nulls[7] = {false, true, true, true, true, true, true};

		values[0] = fencing_outcome_datum(TupleDescAttr(rsinfo->setDesc, 0)->atttypid,
										  FENCING_STALE);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	else
	{
		Datum		args[] = {PointerGetDatum(call.job.job_key), Int32GetDatum(max_rows),
		Int64GetDatum(call.after_no)};

		fencing_query_as_owner(query, lengthof(args), argtypes, args, NULL, NULL, put_events, fcinfo);
	}
	return (Datum) 0;
}

static void
put_events(SPITupleTable *rows, uint64 count, void *arg)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) ((FunctionCallInfo) arg)->resultinfo;
	Datum		values[7];
	bool		nulls[7] = {false};

	values[0] = fencing_outcome_datum(TupleDescAttr(rsinfo->setDesc, 0)->atttypid,
									  FENCING_CURRENT);
	for (uint64 i = 0; i < count; i++)
	{
		for (int j = 1; j < 7; j++)
			values[j] = SPI_getbinval(rows->vals[i], rows->tupdesc, j, &nulls[j]);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
}

/*
 * fencing_outbox_ack(consumer text, token bigint, ids uuid[]) → outcome, acked int
 */
Datum
fencing_outbox_ack(PG_FUNCTION_ARGS)
{
	RelayCall	call = {0};
	FencingOutcome outcome;
	Datum		acked;
	bool		isnull = false;

	fencing_refuse_null(fcinfo, 2, "ids");
	call.ids = PG_GETARG_DATUM(2);
	if (array_contains_nulls(PG_GETARG_ARRAYTYPE_P(2)))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("ids must not contain nulls")));

	begin_relay(&call, fcinfo, "fencing_outbox_ack()");
	outcome = fencing_with_token(&call.job, false, ack_locked, &call);
	if (outcome == FENCING_STALE)
	{
		AckCounts	counts;

		/* done before the takeover, and the reply was lost */
		count_for_ack(&call, &counts);
		if (counts.given > 0 && counts.known == counts.given && counts.pending == 0)
			outcome = FENCING_REPLAYED;
	}
	acked = Int32GetDatum((int32) call.affected);
	return fencing_answer(fcinfo, outcome, &acked, &isnull);
}

/*
 * How the ids of an acknowledgement stand.  One is acknowledged already if it is
 * not pending although there is such an event.  If an aggregate has more pending
 * events up to its last one among the ids than are given, one was left out.
 */
static void
count_for_ack(RelayCall *call, AckCounts *counts)
{
	static const char query[] =
		"WITH i AS MATERIALIZED (SELECT DISTINCT u.id FROM pg_catalog.unnest($2) u(id)),"
		" p AS MATERIALIZED (SELECT p.no, p.aggregatetype, p.aggregateid FROM i"
		"  JOIN fencing.outbox_pending p ON p.id OPERATOR(pg_catalog.=) i.id"
		"   AND p.consumer OPERATOR(pg_catalog.=) $1),"
		" last AS MATERIALIZED (SELECT p.aggregatetype, p.aggregateid, pg_catalog.max(p.no) AS no"
		"  FROM p GROUP BY p.aggregatetype, p.aggregateid)"
		" SELECT (SELECT pg_catalog.count(*) FROM i),"
		" (SELECT pg_catalog.count(*) FROM i JOIN fencing.outbox e ON e.id OPERATOR(pg_catalog.=) i.id),"
		" (SELECT pg_catalog.count(*) FROM p),"
		" (SELECT COALESCE(pg_catalog.sum((SELECT pg_catalog.count(*) FROM fencing.outbox_pending b"
		"   WHERE b.consumer OPERATOR(pg_catalog.=) $1"
		"   AND b.aggregatetype OPERATOR(pg_catalog.=) l.aggregatetype"
		"   AND b.aggregateid OPERATOR(pg_catalog.=) l.aggregateid"
		"   AND b.no OPERATOR(pg_catalog.<=) l.no)), 0)::bigint FROM last l)";
	Oid			argtypes[] = {TEXTOID, UUIDARRAYOID};
	Datum		args[] = {PointerGetDatum(call->job.job_key), call->ids};

	count_afresh(query, argtypes, args, lengthof(args), (int64 *) counts,
				 sizeof(AckCounts) / sizeof(int64));
}

/*
 * Counts with fresh data.  Under REPEATABLE READ and SERIALIZABLE raises 40001 if
 * the transaction's own snapshot would give other numbers.
 */
static void
count_afresh(const char *query, Oid *argtypes, Datum *args, int nargs,
			 int64 *counts, int ncounts)
{
	int64		own[4];

	if (IsolationUsesXactSnapshot())
	{
		Snapshot	snapshot = fencing_fresh_snapshot();

		fencing_execute_as_owner(query, nargs, argtypes, args, NULL, snapshot, ncounts, counts);
		UnregisterSnapshot(snapshot);
		Assert(ncounts <= (int) lengthof(own));
		fencing_execute_as_owner(query, nargs, argtypes, args, NULL, NULL, ncounts, own);
		if (memcmp(own, counts, ncounts * sizeof(int64)) != 0)
			fencing_serialization_failure();
	}
	else
		fencing_execute_as_owner(query, nargs, argtypes, args, NULL, NULL, ncounts, counts);
}

static bool
ack_locked(void *arg)
{
	static const char ack_query[] =
		"INSERT INTO fencing.outbox_acks (consumer, event_no, acked_at)"
		" SELECT $1, e.no, $3 FROM fencing.outbox e"
		" WHERE e.id OPERATOR(pg_catalog.=) ANY ($2)"
		" ON CONFLICT (consumer, event_no) DO UPDATE SET acked_at = EXCLUDED.acked_at, reason = NULL";
	Oid			argtypes[] = {TEXTOID, UUIDARRAYOID, TIMESTAMPTZOID};
	RelayCall  *call = (RelayCall *) arg;
	Datum		args[] = {PointerGetDatum(call->job.job_key), call->ids,
		TimestampTzGetDatum(GetCurrentTimestamp())};
	AckCounts	counts;

	fencing_require_same_fence(&call->job);
	require_subscribed(call, true);
	count_for_ack(call, &counts);
	if (counts.known == counts.given && counts.pending == 0)
		call->job.outcome = FENCING_REPLAYED;
	else if (counts.pending < counts.given || counts.up_to_last > counts.pending)
		call->job.outcome = FENCING_CONFLICT;
	else
	{
		fencing_query_as_owner(ack_query, lengthof(args), argtypes, args, NULL, NULL, NULL, NULL);
		compact(call);
		ForceSyncCommit();
		call->affected = counts.given;
		call->job.outcome = FENCING_COMMITTED;
		call->job.wrote = true;
	}
	return call->job.wrote;
}

/*
 * Moves (era, xid) of the consumer up to its first pending event, but not past
 * a transaction that may still write one, and forgets the acknowledgements
 * below.  While a transaction is prepared nothing is moved: it may be of a former
 * era, and all others of those have ended.
 */
static void
compact(RelayCall *call)
{
	static const char query[] =
		"WITH h AS MATERIALIZED ("
		" SELECT x.era, x.xid FROM ("
		"  (SELECT p.era, p.xid FROM fencing.outbox_pending p"
		"   WHERE p.consumer OPERATOR(pg_catalog.=) $1 ORDER BY p.era, p.xid LIMIT 1)"
		"  UNION ALL"
		"  SELECT $2, pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())"
		" ) x ORDER BY x.era, x.xid LIMIT 1"
		"), moved AS ("
		" UPDATE fencing.outbox_consumers c SET era = h.era, xid = h.xid,"
		"  after_no = CASE WHEN r.reached THEN c.mark_no ELSE c.after_no END,"
		"  mark_era = CASE WHEN r.reached THEN $2 ELSE c.mark_era END,"
		"  mark_xid = CASE WHEN r.reached THEN $4 ELSE c.mark_xid END,"
		"  mark_no = CASE WHEN r.reached THEN $3 ELSE c.mark_no END"
		" FROM h, fencing.outbox_consumers o"
		" CROSS JOIN LATERAL (SELECT ROW(h.era, h.xid) OPERATOR(pg_catalog.>=)"
		"  ROW(o.mark_era, o.mark_xid) AS reached) r"
		" WHERE c.consumer OPERATOR(pg_catalog.=) $1 AND o.consumer OPERATOR(pg_catalog.=) $1"
		" AND ROW(h.era, h.xid) OPERATOR(pg_catalog.>) ROW(c.era, c.xid)"
		" RETURNING h.era, h.xid"
		")"
		" DELETE FROM fencing.outbox_acks a USING moved m"
		" WHERE a.consumer OPERATOR(pg_catalog.=) $1"
		" AND (SELECT ROW(e.era, e.xid) OPERATOR(pg_catalog.<) ROW(m.era, m.xid)"
		"  FROM fencing.outbox e WHERE e.no OPERATOR(pg_catalog.=) a.event_no)";
	Oid			argtypes[] = {TEXTOID, INT8OID, INT8OID, XID8OID};
	Datum		args[lengthof(argtypes)];
	Snapshot	snapshot;

	if (is_any_prepared())
		return;

	args[0] = PointerGetDatum(call->job.job_key);
	args[1] = Int64GetDatum(fencing_current_epoch());
	make_mark(&args[2], &args[3]);

	/* newer than that look, and than any snapshot of the transaction */
	snapshot = fencing_fresh_snapshot();
	fencing_query_as_owner(query, lengthof(args), argtypes, args, NULL, snapshot, NULL, NULL);
	UnregisterSnapshot(snapshot);
}

/*
 * fencing_outbox_park(consumer text, token bigint, id uuid, reason text) → outcome
 */
Datum
fencing_outbox_park(PG_FUNCTION_ARGS)
{
	RelayCall	call = {0};

	fencing_refuse_null(fcinfo, 2, "id");
	call.id = PG_GETARG_DATUM(2);
	call.reason = PG_ARGISNULL(3) ? NULL : fencing_arg_reason(fcinfo, 3, "reason");

	begin_relay(&call, fcinfo, "fencing_outbox_park()");
	return fencing_answer(fcinfo, fencing_with_token(&call.job, false, park_locked, &call), NULL, NULL);
}

static bool
park_locked(void *arg)
{
	static const char pending_query[] =
		"SELECT pg_catalog.count(*) FROM fencing.outbox_pending p"
		" WHERE p.consumer OPERATOR(pg_catalog.=) $1 AND p.id OPERATOR(pg_catalog.=) $2";
	static const char park_query[] =
		"INSERT INTO fencing.outbox_acks (consumer, event_no, reason)"
		" SELECT $1, e.no, $3 FROM fencing.outbox e WHERE e.id OPERATOR(pg_catalog.=) $2"
		" ON CONFLICT (consumer, event_no) DO UPDATE SET reason = EXCLUDED.reason";
	static const char unpark_query[] =
		"DELETE FROM fencing.outbox_acks a USING fencing.outbox e"
		" WHERE a.consumer OPERATOR(pg_catalog.=) $1 AND e.id OPERATOR(pg_catalog.=) $2"
		" AND a.event_no OPERATOR(pg_catalog.=) e.no AND a.acked_at IS NULL";
	Oid			argtypes[] = {TEXTOID, UUIDOID, TEXTOID};
	RelayCall  *call = (RelayCall *) arg;
	Datum		args[] = {PointerGetDatum(call->job.job_key), call->id,
		PointerGetDatum(call->reason)};
	int64		pending;

	fencing_require_same_fence(&call->job);
	require_subscribed(call, true);
	count_afresh(pending_query, argtypes, args, 2, &pending, 1);
	if (pending == 0)
	{
		call->job.outcome = FENCING_CONFLICT;
		return false;
	}
	if (call->reason != NULL)
		fencing_query_as_owner(park_query, 3, argtypes, args, NULL, NULL, NULL, NULL);
	else
		fencing_query_as_owner(unpark_query, 2, argtypes, args, NULL, NULL, NULL, NULL);
	ForceSyncCommit();
	call->job.outcome = FENCING_COMMITTED;
	call->job.wrote = true;
	return true;
}

/* Reads the arguments that all relay functions begin with. */
static void
begin_relay(RelayCall *call, FunctionCallInfo fcinfo, const char *function)
{
	call->job.job_key = fencing_arg_key(fcinfo, 0, "consumer");
	call->job.token = fencing_arg_token(fcinfo, 1, "token");
	fencing_begin_job(&call->job, function);
	require_subscribed(call, false);
}

/* Raises 22023 if there is no such consumer; with lock he stays. */
static void
require_subscribed(RelayCall *call, bool lock)
{
	static const char query[] =
		"SELECT pg_catalog.count(*), COALESCE(pg_catalog.max(c.after_no), 0)"
		" FROM fencing.outbox_consumers c WHERE c.consumer OPERATOR(pg_catalog.=) $1";
	static const char lock_query[] =
		"SELECT pg_catalog.count(*), COALESCE(pg_catalog.max(c.after_no), 0)"
		" FROM (SELECT o.after_no FROM fencing.outbox_consumers o"
		"  WHERE o.consumer OPERATOR(pg_catalog.=) $1 FOR NO KEY UPDATE) c";
	Oid			argtypes[] = {TEXTOID};
	Datum		args[] = {PointerGetDatum(call->job.job_key)};
	int64		counts[2];

	fencing_execute_as_owner(lock ? lock_query : query, lengthof(args), argtypes, args,
							 NULL, NULL, lengthof(counts), counts);
	if (counts[0] == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("consumer \"%s\" is not subscribed", text_to_cstring(call->job.job_key)),
				 errhint("Call fencing_outbox_subscribe() first.")));
	call->after_no = counts[1];
}
