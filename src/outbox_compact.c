/*-------------------------------------------------------------------------
 *
 * outbox_compact.c
 *	  What is kept of events that are done.
 *
 * Up to after_no of a consumer everything is done: it is moved to just before
 * the first pending event, but not past the settled number (outbox_settle.c),
 * below which no event can appear any more.  What is done above is kept in
 * ranges; neighbours up to the settled number are joined.  So a consumer has a
 * row for each event that is pending among others that are done, and for those
 * of transactions that are not settled yet, and no more, however much it has
 * done.
 *
 * Locks: none; the consumer's row is locked.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "outbox.h"
#include "utils/snapmgr.h"

static int64 next_pending(OutboxWalk *walk, int64 next_no, int64 event_no);
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

/*
 * Keeps the pending events of the call as done: moves after_no as far as it
 * goes, and keeps what is done above in as few rows as possible.  The
 * consumer's row is locked.
 */
void
outbox_compact(RelayCall *call)
{
	OutboxConsumer *consumer = &call->consumer;
	int64		settled_no = outbox_settle();
	Snapshot	snapshot = store_fresh_snapshot();
	int			ndone;
	int64	   *done = done_numbers(call, settled_no, snapshot, &ndone);
	int64		after_no = consumer->after_no;
	OutboxWalk	walk;
	int64		next_no = 0;
	int			first;

	outbox_scan_walk(&walk, consumer, call->outbox, call->acks, after_no, snapshot, SnapshotAny);
	walk.done = done;
	walk.ndone = ndone;
	next_no = next_pending(&walk, next_no, after_no);
	after_no = next_no <= settled_no ? next_no - 1 : Max(after_no, settled_no);
	delete_acks_through(call, after_no);

	consumer->values[Anum_outbox_consumers_after_no - 1] = Int64GetDatum(after_no);
	consumer->values[Anum_outbox_consumers_settled_no - 1] = Int64GetDatum(settled_no);
	store_update(call->consumers, consumer->tuple, consumer->values, consumer->nulls);

	for (first = 0; first < ndone && done[first] <= after_no; first++)
		;
	while (first < ndone)
	{
		int			last = first;

		while (last + 1 < ndone && done[last + 1] <= settled_no)
		{
			next_no = next_pending(&walk, next_no, done[last]);
			if (next_no < done[last + 1])
				break;
			last++;
		}
		keep_range(call, done[first], done[last], settled_no, done, ndone);
		first = last + 1;
	}
	outbox_scan_walk_end(&walk);
	UnregisterSnapshot(snapshot);
}

/*
 * The first pending number above event_no, or PG_INT64_MAX; next_no is what
 * this was for a lower one.
 */
static int64
next_pending(OutboxWalk *walk, int64 next_no, int64 event_no)
{
	OutboxEvent event;

	if (next_no > event_no)
		return next_no;
	outbox_scan_jump(&walk->events, event_no);
	return outbox_scan_walk_next(walk, &event) ? event.no : PG_INT64_MAX;
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
		const OutboxEvent *event = (const OutboxEvent *) lfirst(lc);

		numbers[(*count)++] = event->no;
		if (!event->parked)
			continue;
		outbox_scan_find_ack(call->acks, consumer, event->no, snapshot, &ack);
		Assert(ack.found && ack.event_no == event->no);
		delete_ack(call, &ack);
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
