/*-------------------------------------------------------------------------
 *
 * outbox_attempt.c
 *	  How often events have been delivered.
 *
 * Nearly all events are delivered once.  So what is kept of a consumer is one
 * row for all up to the highest number that it has been given, with one
 * attempt, and a row for each that it was given again.  An event of a slow
 * transaction that appears below that number is given for the first time and
 * counts as given again: the count may be one too high, and is never too
 * low but for what is said next.
 *
 * A count is worth no waiting.  The rows of a consumer are written by who has
 * their lock, which is taken without waiting and kept to the end of the
 * transaction; who does not get it delivers without counting.  Nobody needs
 * that lock for anything else: a relay that stopped in mid-transaction after
 * it has read keeps its successor from counting, and from nothing else.
 *
 * Locks: one of the consumer's attempts, without waiting.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "outbox.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

static bool lock_attempts(Relation rel, const text *consumer);
static HeapTuple find(const OutboxAttempts *attempts, int64 event_no, Snapshot snapshot);
static int64 count_of(const OutboxAttempts *attempts, HeapTuple row);
static void keep(const OutboxAttempts *attempts);
static void write_row(const OutboxAttempts *attempts, HeapTuple old, int64 event_no,
					  int64 through_no, int64 count);
static void forget_through(const OutboxAttempts *attempts, int64 after_no);

/* Looks at what has been delivered to the consumer before. */
void
outbox_attempt_begin(OutboxAttempts *attempts, const OutboxConsumer *consumer)
{
	HeapTuple	all;

	attempts->rel = store_table_open(STORE_OUTBOX_ATTEMPTS, RowExclusiveLock);
	attempts->consumer = consumer;
	attempts->snapshot = store_fresh_snapshot();
	attempts->again = NIL;
	all = find(attempts, 0, attempts->snapshot);
	attempts->through_no = all == NULL ? 0 :
		DatumGetInt64(store_get(attempts->rel, all, Anum_outbox_attempts_through_no));
	attempts->last_no = attempts->through_no;
}

/* The event is delivered; returns how often it has been, with this time. */
int64
outbox_attempt_next(OutboxAttempts *attempts, int64 event_no)
{
	int64	   *no;

	if (event_no > attempts->through_no)
	{
		attempts->last_no = Max(attempts->last_no, event_no);
		return 1;
	}
	no = (int64 *) palloc(sizeof(int64));
	*no = event_no;
	attempts->again = lappend(attempts->again, no);
	return count_of(attempts, find(attempts, event_no, attempts->snapshot)) + 1;
}

/* Keeps it, unless somebody else is just doing so. */
void
outbox_attempt_end(OutboxAttempts *attempts)
{
	bool		wrote = (attempts->last_no > attempts->through_no || attempts->again != NIL) &&
		lock_attempts(attempts->rel, attempts->consumer->consumer);

	if (wrote)
		keep(attempts);
	UnregisterSnapshot(attempts->snapshot);
	table_close(attempts->rel, wrote ? NoLock : RowExclusiveLock);
}

/*
 * The events of the call are acknowledged: their rows go, unless somebody
 * else is just counting.  Then they go when everything up to them is done.
 */
void
outbox_attempt_forget(const RelayCall *call)
{
	OutboxAttempts attempts = {.consumer = &call->consumer};
	Snapshot	snapshot;
	ListCell   *lc;

	attempts.rel = store_table_open(STORE_OUTBOX_ATTEMPTS, RowExclusiveLock);
	snapshot = store_fresh_snapshot();
	if (outbox_scan_next_attempt(attempts.rel, attempts.consumer, 0, snapshot) != NULL &&
		lock_attempts(attempts.rel, attempts.consumer->consumer))
	{
		UnregisterSnapshot(snapshot);
		snapshot = store_fresh_snapshot();
		foreach(lc, call->pending)
		{
			HeapTuple	row = find(&attempts, ((OutboxEvent *) lfirst(lc))->no, snapshot);

			if (row != NULL)
				store_delete(attempts.rel, row);
		}
	}
	UnregisterSnapshot(snapshot);
	table_close(attempts.rel, NoLock);
}

/* All of the consumer, unless somebody else is just counting. */
void
outbox_attempt_forget_all(const text *consumer)
{
	Datum		key = PointerGetDatum(consumer);
	Relation	rel = store_table_open(STORE_OUTBOX_ATTEMPTS, RowExclusiveLock);

	if (lock_attempts(rel, consumer))
	{
		Snapshot	snapshot = store_fresh_snapshot();

		store_delete_all(rel, 1, &key, snapshot);
		UnregisterSnapshot(snapshot);
	}
	table_close(rel, NoLock);
}

/* Whether nobody else writes the consumer's rows; to the transaction's end. */
static bool
lock_attempts(Relation rel, const text *consumer)
{
	Datum		key = PointerGetDatum(consumer);
	LOCKTAG		tag;

	key_lock_prefix_tag(&tag, rel, 1, &key);
	return key_lock_keep(&tag, ExclusiveLock, false) != LOCKACQUIRE_NOT_AVAIL;
}

/* The row that begins at the number, or NULL. */
static HeapTuple
find(const OutboxAttempts *attempts, int64 event_no, Snapshot snapshot)
{
	Datum		key[2] = {PointerGetDatum(attempts->consumer->consumer), Int64GetDatum(event_no)};

	return store_find(attempts->rel, 2, key, snapshot);
}

/* What the row says of an event; NULL: it is one of those in the first row. */
static int64
count_of(const OutboxAttempts *attempts, HeapTuple row)
{
	return row == NULL ? 1 :
		DatumGetInt64(store_get(attempts->rel, row, Anum_outbox_attempts_attempts));
}

/* Writes the rows, as they are now that they are locked. */
static void
keep(const OutboxAttempts *attempts)
{
	Snapshot	snapshot = store_fresh_snapshot();
	ListCell   *lc;

	if (attempts->last_no > attempts->through_no)
		write_row(attempts, find(attempts, 0, snapshot), 0, attempts->last_no, 1);
	foreach(lc, attempts->again)
	{
		int64		no = *(int64 *) lfirst(lc);
		HeapTuple	old = find(attempts, no, snapshot);

		write_row(attempts, old, no, no, count_of(attempts, old) + 1);
	}
	UnregisterSnapshot(snapshot);
	forget_through(attempts, attempts->consumer->after_no);
}

/* Inserts a row, or writes the one that is there anew. */
static void
write_row(const OutboxAttempts *attempts, HeapTuple old, int64 event_no, int64 through_no,
		  int64 count)
{
	Datum		values[Natts_outbox_attempts];
	bool		nulls[Natts_outbox_attempts] = {false};

	values[Anum_outbox_attempts_consumer - 1] = PointerGetDatum(attempts->consumer->consumer);
	values[Anum_outbox_attempts_event_no - 1] = Int64GetDatum(event_no);
	values[Anum_outbox_attempts_through_no - 1] = Int64GetDatum(through_no);
	values[Anum_outbox_attempts_attempts - 1] = Int64GetDatum(count);
	values[Anum_outbox_attempts_last_at - 1] = TimestampTzGetDatum(GetCurrentTimestamp());
	if (old != NULL)
		store_update(attempts->rel, old, values, nulls);
	else
		store_insert(attempts->rel, values, nulls);
}

/* The rows of events that are done go, but for the first one. */
static void
forget_through(const OutboxAttempts *attempts, int64 after_no)
{
	Snapshot	snapshot = store_fresh_snapshot();
	HeapTuple	row;

	while ((row = outbox_scan_next_attempt(attempts->rel, attempts->consumer, 0, snapshot)) != NULL &&
		   DatumGetInt64(store_get(attempts->rel, row, Anum_outbox_attempts_event_no)) <= after_no)
	{
		store_delete(attempts->rel, row);
		UnregisterSnapshot(snapshot);
		snapshot = store_fresh_snapshot();
	}
	UnregisterSnapshot(snapshot);
}
