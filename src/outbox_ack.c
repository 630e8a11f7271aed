/*-------------------------------------------------------------------------
 *
 * outbox_ack.c
 *	  Events that are done, or set aside.
 *
 * Acknowledgements are compacted.  Up to after_no of a consumer everything is
 * done: it is moved to just before the first pending event, but not past the
 * settled number (outbox_settle.c), below which no event can appear any more.
 * What is done above is kept in ranges; neighbours up to the settled number
 * are joined.  So a consumer has a row for each event that is pending among
 * others that are done, and for those of transactions that are not settled
 * yet, and no more, however much it has done.
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
static int64 count_up_to(RelayCall *call, const OutboxEvent *last, Snapshot snapshot);
static bool ack_locked(void *arg);
static void write_consumer(RelayCall *call);
static int64 *done_numbers(RelayCall *call, int64 settled_no, Snapshot snapshot, int *count);
static bool is_as_good_as_done(RelayCall *call, int64 no, const int64 *done, int ndone,
							   Snapshot snapshot);
static int	compare_numbers(const void *a, const void *b);
static bool is_joined(RelayCall *call, int64 event_no, int64 next_no, const int64 *done, int ndone,
					  Snapshot snapshot);
static void keep_range(RelayCall *call, int64 first, int64 last, int64 settled_no,
					   const int64 *done, int ndone);
static void write_ack(RelayCall *call, const OutboxAck *old, int64 event_no, int64 through_no);
static void delete_ack(RelayCall *call, const OutboxAck *ack);
static void delete_acks_through(RelayCall *call, int64 after_no);
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
	const OutboxEvent *last = NULL;
	ListCell   *lc;

	outbox_scan_find_consumer(call->consumers, consumer, snapshot);
	if (!consumer->found)
		outbox_not_subscribed(call);

	memset(counts, 0, sizeof(*counts));
	call->pending = NIL;
	for (int i = 0; i < call->nids; i++)
	{
		OutboxEvent *event = (OutboxEvent *) palloc(sizeof(OutboxEvent));

		CHECK_FOR_INTERRUPTS();
		if (!outbox_scan_find_event(call->outbox, call->ids[i], snapshot, event) ||
			!outbox_scan_is_of_part(consumer, event))
			continue;
		counts->known++;
		if (outbox_scan_is_pending(consumer, call->acks, event, snapshot))
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
			counts->up_to_last += count_up_to(call, last, snapshot);
		last = event;
	}
	if (last != NULL)
		counts->up_to_last += count_up_to(call, last, snapshot);
}

/* How many events of its aggregate are pending up to this one. */
static int64
count_up_to(RelayCall *call, const OutboxEvent *last, Snapshot snapshot)
{
	OutboxWalk	walk;
	OutboxEvent event;
	int64		count = 0;

	outbox_scan_walk_aggregate(&walk, &call->consumer, call->outbox, call->acks, last, snapshot);
	while (outbox_scan_walk_next(&walk, &event) && event.no <= last->no)
		count++;
	outbox_scan_walk_end(&walk);
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
		outbox_ack_compact(call);
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

/*
 * Keeps the pending events of the call as done: moves after_no as far as it
 * goes, and keeps what is done above in as few rows as possible.  The
 * consumer's row is locked.
 */
void
outbox_ack_compact(RelayCall *call)
{
	OutboxConsumer *consumer = &call->consumer;
	int64		settled_no = outbox_settle();
	Snapshot	snapshot = store_fresh_snapshot();
	int			ndone;
	int64	   *done = done_numbers(call, settled_no, snapshot, &ndone);
	int64		after_no = consumer->after_no;
	OutboxWalk	walk;
	OutboxEvent event;
	int			first;

	outbox_scan_walk(&walk, consumer, call->outbox, call->acks, after_no, snapshot, SnapshotAny);
	walk.done = done;
	walk.ndone = ndone;
	if (outbox_scan_walk_next(&walk, &event) && event.no <= settled_no)
		after_no = event.no - 1;
	else
		after_no = Max(after_no, settled_no);
	outbox_scan_walk_end(&walk);
	delete_acks_through(call, after_no);

	consumer->values[Anum_outbox_consumers_after_no - 1] = Int64GetDatum(after_no);
	consumer->values[Anum_outbox_consumers_settled_no - 1] = Int64GetDatum(settled_no);
	store_update(call->consumers, consumer->tuple, consumer->values, consumer->nulls);

	for (first = 0; first < ndone && done[first] <= after_no; first++)
		;
	while (first < ndone)
	{
		int			last = first;

		while (last + 1 < ndone && done[last + 1] <= settled_no &&
			   is_joined(call, done[last], done[last + 1], done, ndone, snapshot))
			last++;
		keep_range(call, done[first], done[last], settled_no, done, ndone);
		first = last + 1;
	}
	UnregisterSnapshot(snapshot);
}

/*
 * The numbers that are done and not in ranges yet: those of the call, and
 * those of earlier ones that had not been settled then.  Their rows go.
 * Ascending.
 */
static int64 *
done_numbers(RelayCall *call, int64 settled_no, Snapshot snapshot, int *count)
{
	OutboxConsumer *consumer = &call->consumer;
	int			size = list_length(call->pending) + 16;
	int64	   *numbers = (int64 *) palloc(size * sizeof(int64));
	int64		position = DatumGetInt64(consumer->values[Anum_outbox_consumers_settled_no - 1]);
	ListCell   *lc;
	OutboxAck	ack;

	*count = 0;
	foreach(lc, call->pending)
	{
		int64		no = ((OutboxEvent *) lfirst(lc))->no;

		numbers[(*count)++] = no;
		outbox_scan_find_ack(call->acks, consumer, no, snapshot, &ack);
		if (ack.found && ack.event_no == no)
			delete_ack(call, &ack); /* it was parked */
	}

	outbox_scan_next_ack(call->acks, consumer, position, snapshot, &ack);
	while (ack.found && ack.through_no <= settled_no)
	{
		if (!ack.parked)
		{
			Assert(ack.event_no == ack.through_no);
			if (*count + 1 == size)
			{
				size *= 2;
				numbers = (int64 *) repalloc(numbers, size * sizeof(int64));
			}
			numbers[(*count)++] = ack.event_no;
			delete_ack(call, &ack);
		}
		outbox_scan_next_ack(call->acks, consumer, ack.event_no, snapshot, &ack);
	}
	qsort(numbers, *count, sizeof(int64), compare_numbers);
	if (is_as_good_as_done(call, settled_no, numbers, *count, snapshot))
	{
		numbers[(*count)++] = settled_no;
		qsort(numbers, *count, sizeof(int64), compare_numbers);
	}
	return numbers;
}

/*
 * Whether a number may be kept as done that is of no event of this consumer.
 * Then a range reaches up to it, and the events of other parts that are
 * before it are passed over once.
 */
static bool
is_as_good_as_done(RelayCall *call, int64 no, const int64 *done, int ndone, Snapshot snapshot)
{
	OutboxConsumer *consumer = &call->consumer;
	OutboxAck	ack;

	if ((consumer->parts == 1 && call->pending != NIL) || no <= consumer->after_no ||
		bsearch(&no, done, ndone, sizeof(int64), compare_numbers) != NULL)
		return false;
	outbox_scan_find_ack(call->acks, consumer, no, snapshot, &ack);
	return !(ack.found && ack.through_no >= no) && is_joined(call, no - 1, no, done, ndone, snapshot);
}

/* Ascending. */
static int
compare_numbers(const void *a, const void *b)
{
	int64		na = *(const int64 *) a;
	int64		nb = *(const int64 *) b;

	return na < nb ? -1 : na > nb;
}

/* Whether nothing is pending between two that are done, and settled. */
static bool
is_joined(RelayCall *call, int64 event_no, int64 next_no, const int64 *done, int ndone,
		  Snapshot snapshot)
{
	OutboxWalk	walk;
	OutboxEvent event;
	bool		joined;

	outbox_scan_walk(&walk, &call->consumer, call->outbox, call->acks, event_no, snapshot, SnapshotAny);
	walk.done = done;
	walk.ndone = ndone;
	joined = !outbox_scan_walk_next(&walk, &event) || event.no > next_no;
	outbox_scan_walk_end(&walk);
	return joined;
}

/* Keeps a range of numbers that are done, joined with its neighbours. */
static void
keep_range(RelayCall *call, int64 first, int64 last, int64 settled_no, const int64 *done, int ndone)
{
	Snapshot	snapshot = store_fresh_snapshot();
	OutboxAck	before = {0};
	OutboxAck	behind = {0};

	if (last <= settled_no)
	{
		outbox_scan_find_ack(call->acks, &call->consumer, first, snapshot, &before);
		outbox_scan_next_ack(call->acks, &call->consumer, last, snapshot, &behind);
		before.found = before.found && !before.parked &&
			is_joined(call, before.through_no, first, done, ndone, snapshot);
		behind.found = behind.found && !behind.parked && behind.through_no <= settled_no &&
			is_joined(call, last, behind.event_no, done, ndone, snapshot);
	}
	if (behind.found)
		delete_ack(call, &behind);
	write_ack(call, &before, before.found ? before.event_no : first,
			  behind.found ? behind.through_no : last);
	UnregisterSnapshot(snapshot);
}

/* Inserts a range, or writes a row anew that begins there. */
static void
write_ack(RelayCall *call, const OutboxAck *old, int64 event_no, int64 through_no)
{
	Datum		values[Natts_outbox_acks] = {0};
	bool		nulls[Natts_outbox_acks] = {false};

	values[Anum_outbox_acks_consumer - 1] = PointerGetDatum(call->consumer.consumer);
	values[Anum_outbox_acks_event_no - 1] = Int64GetDatum(event_no);
	values[Anum_outbox_acks_through_no - 1] = Int64GetDatum(through_no);
	values[Anum_outbox_acks_acked_at - 1] = TimestampTzGetDatum(GetCurrentTimestamp());
	nulls[Anum_outbox_acks_reason - 1] = true;
	if (old->found)
	{
		store_require_visible(call->acks, old->row);
		store_update(call->acks, old->row, values, nulls);
	}
	else
		store_insert(call->acks, values, nulls);
}

/* Nobody else writes it, with the consumer's row locked.  Raises 40001. */
static void
delete_ack(RelayCall *call, const OutboxAck *ack)
{
	store_require_visible(call->acks, ack->row);
	store_delete(call->acks, ack->row);
}

/* The consumer's row stands for these now; none of them is parked. */
static void
delete_acks_through(RelayCall *call, int64 after_no)
{
	Snapshot	snapshot = store_fresh_snapshot();
	OutboxAck	ack;

	outbox_scan_next_ack(call->acks, &call->consumer, call->consumer.after_no, snapshot, &ack);
	while (ack.found && ack.event_no <= after_no)
	{
		delete_ack(call, &ack);
		outbox_scan_next_ack(call->acks, &call->consumer, ack.event_no, snapshot, &ack);
	}
	UnregisterSnapshot(snapshot);
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
		delete_ack(call, &ack);
	else if (call->reason != NULL && ack.found)
		store_update(call->acks, ack.row, values, nulls);
	else if (call->reason != NULL)
		store_insert(call->acks, values, nulls);
}
