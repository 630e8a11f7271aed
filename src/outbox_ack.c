/*-------------------------------------------------------------------------
 *
 * outbox_ack.c
 *	  Events that are done, or set aside.
 *
 * Under SERIALIZABLE the consumer's row stands for all that is acknowledged:
 * a call that reads events takes a predicate lock on it, one that
 * acknowledges some writes it, and one that parks is taken as writing it.
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
#include "access/xact.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "outbox.h"
#include "storage/predicate.h"
#include "utils/array.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/varlena.h"

/* how many events one walk may see before it is better to look one by one */
#define WALKED_PER_ID		4
#define WALKED_AT_LEAST		100

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
static List *pending_of(RelayCall *call, List *events, Snapshot snapshot, int64 *known);
static bool same_aggregate(const OutboxEvent *event, const text *type, const text *id);
static int64 count_by_number(RelayCall *call, List *lasts, Snapshot snapshot);
static int	compare_hashes(const ListCell *a, const ListCell *b);
static const OutboxEvent *find_last(List *lasts, OutboxScan *scan, const OutboxEvent *event);
static int64 count_by_aggregate(RelayCall *call, List *lasts, Snapshot snapshot);
static bool ack_locked(void *arg);
static void write_consumer(RelayCall *call);
static bool park_locked(void *arg);
static void write_parked(RelayCall *call, int64 event_no);

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
	List	   *events;
	List	   *lasts = NIL;

	outbox_scan_find_consumer(call->consumers, consumer, snapshot);
	if (!consumer->found)
		outbox_not_subscribed(call);

	memset(counts, 0, sizeof(*counts));
	events = outbox_scan_find_events(call->outbox, call->ids, call->nids, snapshot);
	call->pending = pending_of(call, events, snapshot, &counts->known);
	counts->pending = list_length(call->pending);

	/* the last one of each aggregate comes just before the next aggregate */
	list_sort(call->pending, compare_events);
	for (int i = 0; i < counts->pending; i++)
	{
		OutboxEvent *event = (OutboxEvent *) list_nth(call->pending, i);
		OutboxEvent *next = i + 1 < counts->pending ?
			(OutboxEvent *) list_nth(call->pending, i + 1) : NULL;

		if (next == NULL || !same_aggregate(event, next->aggregate_type, next->aggregate_id))
			lasts = lappend(lasts, event);
	}
	counts->up_to_last = count_by_number(call, lasts, snapshot);
	if (counts->up_to_last < 0)
		counts->up_to_last = count_by_aggregate(call, lasts, snapshot);
}

/* Those that are pending, of events in ascending order. */
static List *
pending_of(RelayCall *call, List *events, Snapshot snapshot, int64 *known)
{
	OutboxAckCursor cursor;
	List	   *pending = NIL;
	ListCell   *lc;

	if (events == NIL)
		return NIL;
	outbox_scan_acks(&cursor, call->acks, call->consumer.consumer,
					 ((OutboxEvent *) linitial(events))->no - 1, snapshot);
	foreach(lc, events)
	{
		OutboxEvent *event = (OutboxEvent *) lfirst(lc);

		if (!outbox_scan_is_of_part(&call->consumer, event))
			continue;
		(*known)++;
		if (outbox_scan_is_pending_at(&call->consumer, &cursor, event))
			pending = lappend(pending, event);
	}
	outbox_scan_acks_end(&cursor);
	return pending;
}

/* Whether it is the event's. */
static bool
same_aggregate(const OutboxEvent *event, const text *type, const text *id)
{
	return args_same_text(event->aggregate_type, type) && args_same_text(event->aggregate_id, id);
}

/*
 * How many events are pending up to the last one of their aggregates: by one
 * walk through all that are pending up to there, as for a relay that
 * acknowledges what it has read they are few.  -1: they are not.
 */
static int64
count_by_number(RelayCall *call, List *lasts, Snapshot snapshot)
{
	int64		limit = WALKED_PER_ID * (int64) call->nids + WALKED_AT_LEAST;
	int64		highest = 0;
	int64		nwalked = 0;
	int64		count = 0;
	OutboxWalk	walk;
	OutboxEvent event;
	ListCell   *lc;

	list_sort(lasts, compare_hashes);
	foreach(lc, lasts)
		highest = Max(highest, ((OutboxEvent *) lfirst(lc))->no);
	outbox_scan_walk(&walk, &call->consumer, call->outbox, call->acks, call->consumer.after_no,
					 snapshot, SnapshotAny);
	walk.most_passed = limit;
	while (nwalked <= limit && outbox_scan_walk_next(&walk, &event) && event.no <= highest)
	{
		const OutboxEvent *last = find_last(lasts, &walk.events, &event);

		nwalked++;
		if (last != NULL && event.no <= last->no)
			count++;
	}
	outbox_scan_walk_end(&walk);
	return nwalked > limit || walk.passed > limit ? -1 : count;
}

/* By the hash of the aggregate. */
static int
compare_hashes(const ListCell *a, const ListCell *b)
{
	uint32		ha = ((const OutboxEvent *) lfirst(a))->hash;
	uint32		hb = ((const OutboxEvent *) lfirst(b))->hash;

	return ha < hb ? -1 : ha > hb;
}

/* The one of the aggregate of the scan's event, or NULL. */
static const OutboxEvent *
find_last(List *lasts, OutboxScan *scan, const OutboxEvent *event)
{
	int			low = 0;
	int			high = list_length(lasts);

	while (low < high)
	{
		int			middle = (low + high) / 2;

		if (((OutboxEvent *) list_nth(lasts, middle))->hash < event->hash)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < list_length(lasts); low++)
	{
		const OutboxEvent *last = (const OutboxEvent *) list_nth(lasts, low);

		if (last->hash != event->hash)
			break;
		if (same_aggregate(last, DatumGetTextPP(outbox_scan_get(scan, Anum_outbox_aggregatetype)),
						   DatumGetTextPP(outbox_scan_get(scan, Anum_outbox_aggregateid))))
			return last;
	}
	return NULL;
}

/* The same by the index of the aggregates, one after the other. */
static int64
count_by_aggregate(RelayCall *call, List *lasts, Snapshot snapshot)
{
	int64		count = 0;
	ListCell   *lc;

	foreach(lc, lasts)
	{
		const OutboxEvent *last = (const OutboxEvent *) lfirst(lc);
		OutboxWalk	walk;
		OutboxEvent event;

		outbox_scan_walk_aggregate(&walk, &call->consumer, call->outbox, call->acks, last, snapshot);
		while (outbox_scan_walk_next(&walk, &event) && event.no <= last->no)
			count++;
		outbox_scan_walk_end(&walk);
	}
	return count;
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
	RelayCall  *call = (RelayCall *) arg;
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
		outbox_compact(call);
		outbox_attempt_forget(call);
		ForceSyncCommit();
		call->affected = call->nids;
		call->job.outcome = FENCING_COMMITTED;
		call->job.wrote = true;
	}
	return call->job.wrote;
}

/*
 * For SERIALIZABLE: what is parked changes, and so does the consumer.
 */
static void
write_consumer(RelayCall *call)
{
	ItemPointer tid = &call->consumer.tuple->t_self;

	CheckForSerializableConflictIn(call->consumers, tid, ItemPointerGetBlockNumber(tid));
}

/* The fence is locked, and the token is current. */
static bool
park_locked(void *arg)
{
	RelayCall  *call = (RelayCall *) arg;
	AckCounts	counts;

	job_require_same_fence(&call->job);
	lock_consumer(call);
	count(call, &counts);
	if (counts.pending == 0)
	{
		call->job.outcome = FENCING_CONFLICT;
		return false;
	}

	write_consumer(call);
	write_parked(call, ((OutboxEvent *) linitial(call->pending))->no);
	ForceSyncCommit();
	call->job.outcome = FENCING_COMMITTED;
	call->job.wrote = true;
	return true;
}

/* With the reason of the call, or not any more. */
static void
write_parked(RelayCall *call, int64 event_no)
{
	Snapshot	snapshot = store_fresh_snapshot();
	Datum		values[Natts_outbox_acks] = {0};
	bool		nulls[Natts_outbox_acks] = {false};
	OutboxAck	ack;

	outbox_scan_find_ack(call->acks, &call->consumer, event_no, snapshot, &ack);
	UnregisterSnapshot(snapshot);
	ack.found = ack.found && ack.event_no == event_no;
	if (ack.found)
		store_require_visible(call->acks, ack.row);
	values[Anum_outbox_acks_consumer - 1] = PointerGetDatum(call->consumer.consumer);
	values[Anum_outbox_acks_event_no - 1] = Int64GetDatum(event_no);
	values[Anum_outbox_acks_through_no - 1] = Int64GetDatum(event_no);
	nulls[Anum_outbox_acks_acked_at - 1] = true;
	values[Anum_outbox_acks_reason - 1] = PointerGetDatum(call->reason);
	if (call->reason == NULL && ack.found)
		store_delete(call->acks, ack.row);
	else if (call->reason != NULL && ack.found)
		store_update(call->acks, ack.row, values, nulls);
	else if (call->reason != NULL)
		store_insert(call->acks, values, nulls);
}
