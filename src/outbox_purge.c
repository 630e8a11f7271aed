/*-------------------------------------------------------------------------
 *
 * outbox_purge.c
 *	  Which events are done for every consumer.
 *
 * The events are gone through in the order of their numbers, run by run: what
 * a consumer has done reaches up to after_no, or to the end of a range; and
 * what it has not done, to the beginning of the next range.  So a consumer that
 * is gone costs nothing but the space that it holds.
 *
 * Locks: none.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_type.h"
#include "outbox.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* The tables, as one snapshot has them. */
typedef struct OutboxPurge
{
	Relation	consumers;
	Relation	outbox;
	Relation	acks;
	Snapshot	snapshot;
	List	   *all;			/* OutboxConsumer */
} OutboxPurge;

static void read_consumers(OutboxPurge *purge);
static bool is_done(const OutboxPurge *purge, const OutboxConsumer *consumer,
					const OutboxEvent *event, int64 *through_no);
static int64 next_done(const OutboxPurge *purge, const OutboxConsumer *consumer, int64 event_no);
static bool run_through(const OutboxPurge *purge, const OutboxEvent *event, int64 *through_no);

/*
 * The numbers of events that were written before, at most max_rows of them,
 * a bigint[]; count is how many.
 */
Datum
outbox_purge(TimestampTz before, int max_rows, int *count)
{
	OutboxPurge purge = {0};
	OutboxScan	events;
	OutboxEvent event;
	Datum	   *numbers = (Datum *) palloc(max_rows * sizeof(Datum));
	int64		through_no = 0;
	int			younger = 0;
	bool		done = true;
	Datum		array;

	purge.consumers = store_table_open(STORE_OUTBOX_CONSUMERS, AccessShareLock);
	purge.outbox = store_table_open(STORE_OUTBOX, AccessShareLock);
	purge.acks = store_table_open(STORE_OUTBOX_ACKS, AccessShareLock);
	purge.snapshot = store_fresh_snapshot();
	read_consumers(&purge);

	*count = 0;
	outbox_scan_events(&events, purge.outbox, 0);
	while (*count < max_rows && younger < max_rows &&
		   outbox_scan_next_event(&events, purge.snapshot, &event))
	{
		if (event.no > through_no)
			done = run_through(&purge, &event, &through_no);
		if (!done && through_no == PG_INT64_MAX)
			break;
		if (!done)
			outbox_scan_jump(&events, through_no);
		else if (DatumGetTimestampTz(outbox_scan_get(&events, Anum_outbox_created_at)) < before)
			numbers[(*count)++] = Int64GetDatum(event.no);
		else
			younger++;
	}
	outbox_scan_events_end(&events);
	UnregisterSnapshot(purge.snapshot);
	table_close(purge.acks, AccessShareLock);
	table_close(purge.outbox, AccessShareLock);
	table_close(purge.consumers, AccessShareLock);
	array = PointerGetDatum(construct_array(numbers, *count, INT8OID, sizeof(int64),
											FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
	return array;
}

/* There are few. */
static void
read_consumers(OutboxPurge *purge)
{
	ListCell   *lc;

	foreach(lc, store_scan_all(purge->consumers, purge->snapshot))
	{
		OutboxConsumer *consumer = (OutboxConsumer *) palloc0(sizeof(OutboxConsumer));

		consumer->consumer = DatumGetTextP(store_get(purge->consumers, (HeapTuple) lfirst(lc),
													 Anum_outbox_consumers_consumer));
		outbox_scan_find_consumer(purge->consumers, consumer, purge->snapshot);
		purge->all = lappend(purge->all, consumer);
	}
}

/*
 * Whether the event is done for all.  If so, all others up to through_no are
 * too; if not, none up to it is.
 */
static bool
run_through(const OutboxPurge *purge, const OutboxEvent *event, int64 *through_no)
{
	int64		done_no = PG_INT64_MAX;
	int64		open_no = 0;
	ListCell   *lc;

	foreach(lc, purge->all)
	{
		const OutboxConsumer *consumer = (const OutboxConsumer *) lfirst(lc);
		int64		no;

		if (is_done(purge, consumer, event, &no))
			done_no = Min(done_no, no);
		else
			open_no = Max(open_no, next_done(purge, consumer, event->no) - 1);
	}
	*through_no = open_no > 0 ? open_no : done_no;
	if (open_no == PG_INT64_MAX - 1)
		*through_no = PG_INT64_MAX;
	return open_no == 0;
}

/* Whether a consumer has done it; and through which number it has. */
static bool
is_done(const OutboxPurge *purge, const OutboxConsumer *consumer, const OutboxEvent *event,
		int64 *through_no)
{
	OutboxAck	ack;

	*through_no = consumer->after_no;
	if (event->no <= consumer->after_no)
		return true;
	outbox_scan_find_ack(purge->acks, consumer, event->no, purge->snapshot, &ack);
	*through_no = ack.through_no;
	if (ack.found && !ack.parked && event->no <= ack.through_no)
		return true;
	*through_no = event->no;
	return !outbox_scan_is_pending(consumer, purge->acks, event, purge->snapshot);
}

/* The first number above that it has done, or PG_INT64_MAX. */
static int64
next_done(const OutboxPurge *purge, const OutboxConsumer *consumer, int64 event_no)
{
	OutboxAck	ack;

	do
	{
		outbox_scan_next_ack(purge->acks, consumer, event_no, purge->snapshot, &ack);
		event_no = ack.event_no;
	} while (ack.found && ack.parked);
	return ack.found ? ack.event_no : PG_INT64_MAX;
}
