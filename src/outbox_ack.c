/*-------------------------------------------------------------------------
 *
 * outbox_ack.c
 *	  Events that are done, or set aside.
 *
 * Acknowledgements are compacted: (era, xid) of a consumer is where all
 * events before are done and no transaction is left that could write one
 * there.  xids mean nothing after a restore, so the era, the epoch of
 * epoch.c, stands before them: in a new one everything old is before
 * everything new.
 *
 * Under SERIALIZABLE the consumer's row stands for all that is acknowledged:
 * a call that reads events takes a predicate lock on it, one that
 * acknowledges some is taken as writing it.
 *
 * Locks: the fence of the consumer, then its row in fencing.outbox_consumers,
 * waiting.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "outbox.h"
#include "storage/predicate.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/varlena.h"
#include "utils/xid8.h"

/* How the ids of an acknowledgement stand. */
typedef struct AckCounts
{
	int64		known;			/* there is such an event */
	int64		pending;
	int64		up_to_last;		/* pending up to the last id of each aggregate */
} AckCounts;

static void begin_ack(RelayCall *call, FunctionCallInfo fcinfo, const char *function);
static void arg_ids(RelayCall *call, ArrayType *ids);
static int	compare_ids(const void *a, const void *b);
static int	compare_events(const ListCell *a, const ListCell *b);
static int	compare_texts(const text *a, const text *b);
static void lock_consumer(RelayCall *call);
static bool look_consumer(void *arg, Snapshot snapshot);
static void count(RelayCall *call, AckCounts *counts);
static void count_as_of(RelayCall *call, Snapshot snapshot, AckCounts *counts);
static bool ack_locked(void *arg);
static Datum pending_numbers(RelayCall *call);
static void write_consumer(RelayCall *call);
static void compact(RelayCall *call);
static FullTransactionId oldest_running(Snapshot snapshot);
static void forget_acks_before(RelayCall *call, int64 era, FullTransactionId xid);
static bool park_locked(void *arg);

PG_FUNCTION_INFO_V1(fencing_outbox_ack);
PG_FUNCTION_INFO_V1(fencing_outbox_park);

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

	args_refuse_null(fcinfo, 2, "ids");
	arg_ids(&call, PG_GETARG_ARRAYTYPE_P(2));

	begin_ack(&call, fcinfo, "fencing_outbox_ack()");
	outcome = job_with_token(&call.job, false, ack_locked, &call);
	if (outcome == FENCING_STALE)
	{
		AckCounts	counts;

		/* done before the takeover, and the reply was lost */
		count(&call, &counts);
		if (call.nids > 0 && counts.known == call.nids && counts.pending == 0)
			outcome = FENCING_REPLAYED;
	}
	outbox_end_relay(&call);
	if (outcome == FENCING_REPLAYED || outcome == FENCING_CONFLICT)
		durable_wait_for_standbys();
	acked = Int32GetDatum(call.affected);
	return args_answer(fcinfo, outcome, &acked, &isnull);
}

/*
 * fencing_outbox_park(consumer text, token bigint, id uuid, reason text) → outcome
 */
Datum
fencing_outbox_park(PG_FUNCTION_ARGS)
{
	RelayCall	call = {0};
	pg_uuid_t  *id;
	FencingOutcome outcome;

	args_refuse_null(fcinfo, 2, "id");
	id = PG_GETARG_UUID_P(2);
	call.ids = &id;
	call.nids = 1;
	call.reason = PG_ARGISNULL(3) ? NULL : args_reason(fcinfo, 3, "reason");

	begin_ack(&call, fcinfo, "fencing_outbox_park()");
	outcome = job_with_token(&call.job, false, park_locked, &call);
	outbox_end_relay(&call);
	return args_answer(fcinfo, outcome, NULL, NULL);
}

/* Opens what ack and park need beside the tables of a relay. */
static void
begin_ack(RelayCall *call, FunctionCallInfo fcinfo, const char *function)
{
	outbox_begin_relay(call, fcinfo, function);
	call->outbox = store_table_open(STORE_OUTBOX, AccessShareLock);
	call->acks = store_table_open(STORE_OUTBOX_ACKS, RowExclusiveLock);
}

/* Different ids, in any order.  Raises 22004, 22023. */
static void
arg_ids(RelayCall *call, ArrayType *ids)
{
	Datum	   *values;
	int			count;

	if (array_contains_nulls(ids))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("ids must not contain nulls")));
	deconstruct_array(ids, UUIDOID, UUID_LEN, false, TYPALIGN_CHAR, &values, NULL, &count);
	call->ids = (pg_uuid_t **) palloc(Max(count, 1) * sizeof(pg_uuid_t *));
	for (int i = 0; i < count; i++)
		call->ids[i] = DatumGetUUIDP(values[i]);
	qsort(call->ids, count, sizeof(pg_uuid_t *), compare_ids);
	for (int i = 0; i < count; i++)
	{
		if (i == 0 || compare_ids(&call->ids[i], &call->ids[call->nids - 1]) != 0)
			call->ids[call->nids++] = call->ids[i];
	}
}

/* Byte by byte. */
static int
compare_ids(const void *a, const void *b)
{
	return memcmp(*(pg_uuid_t *const *) a, *(pg_uuid_t *const *) b, UUID_LEN);
}

/*
 * Locks the consumer's row: it stays, and nobody else moves it.  Under
 * REPEATABLE READ and SERIALIZABLE raises 40001 if the transaction does not
 * see it.
 */
static void
lock_consumer(RelayCall *call)
{
	store_until_decided(look_consumer, call);
	store_require_visible(call->consumers, call->consumer.tuple);
}

/* Locks the consumer's row in the version that is looked at. */
static bool
look_consumer(void *arg, Snapshot snapshot)
{
	RelayCall  *call = (RelayCall *) arg;

	outbox_scan_find_consumer(call->consumers, &call->consumer, snapshot);
	if (!call->consumer.found)
		outbox_not_subscribed(call);
	return store_lock_row(call->consumers, call->consumer.tuple, LockWaitBlock) == STORE_LOCKED;
}

/*
 * With fresh data.  Under REPEATABLE READ and SERIALIZABLE raises 40001 if
 * the transaction's own snapshot would give other numbers.
 */
static void
count(RelayCall *call, AckCounts *counts)
{
	Snapshot	snapshot;

	if (IsolationUsesXactSnapshot())
	{
		AckCounts	own;

		snapshot = RegisterSnapshot(GetTransactionSnapshot());
		count_as_of(call, snapshot, &own);
		UnregisterSnapshot(snapshot);
		snapshot = store_fresh_snapshot();
		count_as_of(call, snapshot, counts);
		if (memcmp(&own, counts, sizeof(own)) != 0)
			store_serialization_failure();
	}
	else
	{
		snapshot = store_fresh_snapshot();
		count_as_of(call, snapshot, counts);
	}
	UnregisterSnapshot(snapshot);
}

/*
 * One is acknowledged already if it is not pending although there is such an
 * event.  If an aggregate has more pending events up to its last one among
 * the ids than are given, one was left out.
 */
static void
count_as_of(RelayCall *call, Snapshot snapshot, AckCounts *counts)
{
	OutboxConsumer *consumer = &call->consumer;
	const OutboxEvent *last = NULL;
	ListCell   *lc;

	outbox_scan_find_consumer(call->consumers, consumer, snapshot);
	if (!consumer->found)
		outbox_not_subscribed(call);

	memset(counts, 0, sizeof(*counts));
	call->pending = NIL;
	outbox_scan_begin_acks(consumer, call->acks);
	for (int i = 0; i < call->nids; i++)
	{
		OutboxEvent *event = (OutboxEvent *) palloc(sizeof(OutboxEvent));

		CHECK_FOR_INTERRUPTS();
		if (!outbox_scan_find_event(call->outbox, call->ids[i], snapshot, event))
			continue;
		counts->known++;
		if (outbox_scan_is_pending(consumer, event, snapshot))
			call->pending = lappend(call->pending, event);
	}
	counts->pending = list_length(call->pending);

	/* the last one of each aggregate comes just before the next aggregate */
	list_sort(call->pending, compare_events);
	foreach(lc, call->pending)
	{
		const OutboxEvent *event = (const OutboxEvent *) lfirst(lc);

		if (last != NULL && !(args_same_text(last->aggregate_type, event->aggregate_type) &&
							  args_same_text(last->aggregate_id, event->aggregate_id)))
			counts->up_to_last += outbox_scan_count_pending(consumer, call->outbox, last, snapshot);
		last = event;
	}
	if (last != NULL)
		counts->up_to_last += outbox_scan_count_pending(consumer, call->outbox, last, snapshot);
	outbox_scan_end_acks(consumer);
}

/* By aggregate, in any order, and then by number. */
static int
compare_events(const ListCell *a, const ListCell *b)
{
	const OutboxEvent *ea = (const OutboxEvent *) lfirst(a);
	const OutboxEvent *eb = (const OutboxEvent *) lfirst(b);
	int			order = compare_texts(ea->aggregate_type, eb->aggregate_type);

	if (order == 0)
		order = compare_texts(ea->aggregate_id, eb->aggregate_id);
	if (order == 0)
		order = ea->no < eb->no ? -1 : ea->no > eb->no;
	return order;
}

/* Byte by byte. */
static int
compare_texts(const text *a, const text *b)
{
	return varstr_cmp(VARDATA_ANY(a), VARSIZE_ANY_EXHDR(a), VARDATA_ANY(b), VARSIZE_ANY_EXHDR(b),
					  C_COLLATION_OID);
}

/* The fence is locked, and the token is current. */
static bool
ack_locked(void *arg)
{
	static const char query[] =
		"INSERT INTO fencing.outbox_acks (consumer, event_no, acked_at)"
		" SELECT $1, u.no, $3 FROM pg_catalog.unnest($2) u(no)"
		" ON CONFLICT (consumer, event_no) DO UPDATE SET acked_at = EXCLUDED.acked_at, reason = NULL";
	Oid			argtypes[] = {TEXTOID, INT8ARRAYOID, TIMESTAMPTZOID};
	RelayCall  *call = (RelayCall *) arg;
	Datum		args[lengthof(argtypes)];
	AckCounts	counts;

	job_require_same_fence(&call->job);
	lock_consumer(call);
	count(call, &counts);
	if (counts.known == call->nids && counts.pending == 0)
		call->job.outcome = FENCING_REPLAYED;
	else if (counts.pending < call->nids || counts.up_to_last > counts.pending)
		call->job.outcome = FENCING_CONFLICT;
	else
	{
		args[0] = PointerGetDatum(call->consumer.consumer);
		args[1] = pending_numbers(call);
		args[2] = TimestampTzGetDatum(GetCurrentTimestamp());
		write_consumer(call);
		owner_query_run(query, lengthof(args), argtypes, args, NULL, NULL, NULL, NULL);
		compact(call);
		ForceSyncCommit();
		call->affected = call->nids;
		call->job.outcome = FENCING_COMMITTED;
		call->job.wrote = true;
	}
	return call->job.wrote;
}

/* A bigint[]. */
static Datum
pending_numbers(RelayCall *call)
{
	Datum	   *numbers = (Datum *) palloc(list_length(call->pending) * sizeof(Datum));
	int			count = 0;
	ListCell   *lc;

	foreach(lc, call->pending)
		numbers[count++] = Int64GetDatum(((OutboxEvent *) lfirst(lc))->no);
	return PointerGetDatum(construct_array(numbers, count, INT8OID, sizeof(int64), FLOAT8PASSBYVAL,
										   TYPALIGN_DOUBLE));
}

/*
 * For SERIALIZABLE: what is acknowledged changes, and so does the consumer.
 */
static void
write_consumer(RelayCall *call)
{
	ItemPointer tid = &call->consumer.tuple->t_self;

	CheckForSerializableConflictIn(call->consumers, tid, ItemPointerGetBlockNumber(tid));
}

/*
 * Moves (era, xid) of the consumer up to its first pending event, but not
 * past a transaction that may still write one, and forgets the
 * acknowledgements below.  While a transaction is prepared nothing is moved:
 * it may be of a former era, and all others of those have ended.
 */
static void
compact(RelayCall *call)
{
	OutboxConsumer *consumer = &call->consumer;
	Datum	   *values = consumer->values;
	int64		era = epoch_current();
	FullTransactionId xid;
	Datum		mark_no;
	Datum		mark_xid;
	Snapshot	snapshot;
	OutboxEvent event;

	if (outbox_any_prepared())
		return;
	outbox_make_mark(&mark_no, &mark_xid);

	/* newer than that look, and than any snapshot of the transaction */
	snapshot = store_fresh_snapshot();
	xid = oldest_running(snapshot);
	outbox_scan_begin_acks(consumer, call->acks);
	if (outbox_scan_first_pending(consumer, call->outbox, snapshot, &event) &&
		outbox_scan_precedes(event.era, event.xid, era, xid))
	{
		era = event.era;
		xid = event.xid;
	}
	outbox_scan_end_acks(consumer);
	UnregisterSnapshot(snapshot);

	if (!outbox_scan_precedes(DatumGetInt64(values[Anum_outbox_consumers_era - 1]),
							  DatumGetFullTransactionId(values[Anum_outbox_consumers_xid - 1]), era, xid))
		return;
	values[Anum_outbox_consumers_era - 1] = Int64GetDatum(era);
	values[Anum_outbox_consumers_xid - 1] = FullTransactionIdGetDatum(xid);
	if (!outbox_scan_precedes(era, xid, DatumGetInt64(values[Anum_outbox_consumers_mark_era - 1]),
							  DatumGetFullTransactionId(values[Anum_outbox_consumers_mark_xid - 1])))
	{
		values[Anum_outbox_consumers_after_no - 1] = values[Anum_outbox_consumers_mark_no - 1];
		values[Anum_outbox_consumers_mark_era - 1] = Int64GetDatum(epoch_current());
		values[Anum_outbox_consumers_mark_xid - 1] = mark_xid;
		values[Anum_outbox_consumers_mark_no - 1] = mark_no;
	}
	store_update(call->consumers, consumer->tuple, values, consumer->nulls);
	forget_acks_before(call, era, xid);
}

/* The first transaction that had not ended as of the snapshot. */
static FullTransactionId
oldest_running(Snapshot snapshot)
{
	FullTransactionId next = ReadNextFullTransactionId();
	uint32		epoch = EpochFromFullTransactionId(next);

	/* it is never more than half of all numbers behind */
	if (snapshot->xmin > XidFromFullTransactionId(next))
		epoch--;
	return FullTransactionIdFromEpochAndXid(epoch, snapshot->xmin);
}

/*
 * Acknowledgements before (era, xid), which the consumer's row stands for
 * now.
 */
static void
forget_acks_before(RelayCall *call, int64 era, FullTransactionId xid)
{
	Datum		key = PointerGetDatum(call->consumer.consumer);
	Snapshot	snapshot = store_fresh_snapshot();
	OutboxScan	events;
	OutboxEvent event;
	ListCell   *lc;

	outbox_scan_begin(&events, call->outbox, &outbox_by_no, SnapshotAny);
	outbox_scan_equal(&events, F_INT8EQ, Int64GetDatum(0));
	foreach(lc, store_find_all(call->acks, 1, &key, snapshot))
	{
		HeapTuple	ack = (HeapTuple) lfirst(lc);

		events.keys[0].sk_argument = store_get(call->acks, ack, Anum_outbox_acks_event_no);
		outbox_scan_again(&events);
		if (!outbox_scan_next(&events, snapshot))
			continue;
		outbox_scan_event(&events, &event);
		/* one that a purge is deleting is left to it */
		if (outbox_scan_precedes(event.era, event.xid, era, xid) &&
			store_lock_row(call->acks, ack, LockWaitSkip) == STORE_LOCKED)
			store_delete(call->acks, ack);
	}
	outbox_scan_end(&events);
	UnregisterSnapshot(snapshot);
}

/* The fence is locked, and the token is current. */
static bool
park_locked(void *arg)
{
	static const char query[] =
		"INSERT INTO fencing.outbox_acks (consumer, event_no, reason) VALUES ($1, $2, $3)"
		" ON CONFLICT (consumer, event_no) DO UPDATE SET reason = EXCLUDED.reason";
	Oid			argtypes[] = {TEXTOID, INT8OID, TEXTOID};
	RelayCall  *call = (RelayCall *) arg;
	Datum		args[lengthof(argtypes)];
	AckCounts	counts;

	job_require_same_fence(&call->job);
	lock_consumer(call);
	count(call, &counts);
	if (counts.pending == 0)
	{
		call->job.outcome = FENCING_CONFLICT;
		return false;
	}

	args[0] = PointerGetDatum(call->consumer.consumer);
	args[1] = Int64GetDatum(((OutboxEvent *) linitial(call->pending))->no);
	args[2] = PointerGetDatum(call->reason);
	write_consumer(call);
	if (call->reason != NULL)
		owner_query_run(query, lengthof(args), argtypes, args, NULL, NULL, NULL, NULL);
	else
	{
		Snapshot	snapshot = store_fresh_snapshot();

		store_delete_all(call->acks, 2, args, snapshot);
		UnregisterSnapshot(snapshot);
	}
	ForceSyncCommit();
	call->job.outcome = FENCING_COMMITTED;
	call->job.wrote = true;
	return true;
}
