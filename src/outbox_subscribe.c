/*-------------------------------------------------------------------------
 *
 * outbox_subscribe.c
 *	  Who gets the events, and into how many parts a consumer is divided.
 *
 * A part of a consumer is a consumer by itself: it has a job of its own,
 * CONSUMER/1 and so on, and a row of its own that says how far it is.  It gets
 * the events of those aggregates whose hash falls to it, each in order.
 *
 * When the number of parts changes, what has been done stays done: the events
 * above the number up to which every part is done are gone through, and what
 * the part that an event was for has said of it is written for the part that
 * it is for now.  Parts that are acknowledging are waited for, and find other
 * rows then.
 *
 * Locks: the consumer by its name, which stands for all of its parts, then
 * their rows in the order of their numbers; all waiting, to the end of the
 * transaction.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "outbox.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#define MAX_PARTS			1000

/* A call: the consumer by its name, and its parts as they are. */
typedef struct Subscription
{
	text	   *consumer;
	LOCKTAG		tag;
	LockAcquireResult result;
	Relation	consumers;
	Relation	outbox;
	Relation	acks;
	List	   *rows;			/* OutboxConsumer, in the order of the parts */
} Subscription;

/* A part whose row is to be locked. */
typedef struct LockedPart
{
	Relation	consumers;
	OutboxConsumer *part;
} LockedPart;

/* What a part is going to say of events: they are done, or one is parked. */
typedef struct Said
{
	int64		event_no;
	int64		through_no;
	Datum		reason;
	bool		parked;
} Said;

/* A part that is being made. */
typedef struct NewPart
{
	text	   *consumer;
	int64		after_no;
	bool		open;			/* it has something that is not done */
	Said	   *run;			/* of events that are done; NULL: none */
	List	   *said;			/* Said, ascending */
} NewPart;

static int	arg_parts(FunctionCallInfo fcinfo, int argno);
static void begin(Subscription *subscription, FunctionCallInfo fcinfo, const char *function);
static void end(Subscription *subscription, bool wrote);
static text *family_of(const text *consumer);
static void find_parts(Subscription *subscription);
static int	compare_parts(const ListCell *a, const ListCell *b);
static text *name_of(const OutboxConsumer *part);
static text *name_part(const text *consumer, int part, int parts);
static void subscribe(const Subscription *subscription, bool from_start, int parts);
static text *free_name(const Subscription *subscription, int part, int parts);
static void lock_parts(Subscription *subscription);
static bool look_part(void *arg, Snapshot snapshot);
static void remove_parts(const Subscription *subscription);
static void forget_said(const text *consumer);
static void divide(Subscription *subscription, int parts);
static void carry_over(const Subscription *subscription, NewPart *new_parts, int parts,
					   int64 settled_no, Snapshot snapshot);
static void carry_event(NewPart *part, const OutboxEvent *event, const OutboxAck *ack, bool done,
						int64 settled_no, Relation acks);
static void keep_run(NewPart *part);
static void write_part(const Subscription *subscription, const NewPart *new_part, int part,
					   int parts, int64 settled_no);

PG_FUNCTION_INFO_V1(fencing_outbox_subscribe);
PG_FUNCTION_INFO_V1(fencing_outbox_unsubscribe);

/*
 * fencing_outbox_subscribe(consumer text, from_start boolean, parts int) → void
 */
Datum
fencing_outbox_subscribe(PG_FUNCTION_ARGS)
{
	Subscription subscription = {0};
	bool		from_start = args_bool(fcinfo, 1, "from_start");
	int			parts = arg_parts(fcinfo, 2);
	bool		wrote = true;

	begin(&subscription, fcinfo, "fencing_outbox_subscribe()");
	find_parts(&subscription);
	if (subscription.rows == NIL)
		subscribe(&subscription, from_start, Max(parts, 1));
	else if (parts > 0 && parts != list_length(subscription.rows))
		divide(&subscription, parts);
	else
		wrote = false;
	end(&subscription, wrote);
	PG_RETURN_VOID();
}

/*
 * fencing_outbox_unsubscribe(consumer text) → void
 */
Datum
fencing_outbox_unsubscribe(PG_FUNCTION_ARGS)
{
	Subscription subscription = {0};

	begin(&subscription, fcinfo, "fencing_outbox_unsubscribe()");
	find_parts(&subscription);
	lock_parts(&subscription);
	remove_parts(&subscription);
	end(&subscription, subscription.rows != NIL);
	PG_RETURN_VOID();
}

/* 0: as many as there are.  Raises 22023. */
static int
arg_parts(FunctionCallInfo fcinfo, int argno)
{
	int			parts;

	if (PG_ARGISNULL(argno))
		return 0;
	parts = PG_GETARG_INT32(argno);
	if (parts < 1 || parts > MAX_PARTS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("parts must be from 1 to %d, not %d", MAX_PARTS, parts)));
	return parts;
}

/* Opens the tables and locks the consumer. */
static void
begin(Subscription *subscription, FunctionCallInfo fcinfo, const char *function)
{
	Datum		family;

	subscription->consumer = args_key(fcinfo, 0, "consumer");
	store_begin_write(function);
	subscription->consumers = store_table_open(STORE_OUTBOX_CONSUMERS, RowExclusiveLock);
	subscription->outbox = store_table_open(STORE_OUTBOX, AccessShareLock);
	subscription->acks = store_table_open(STORE_OUTBOX_ACKS, RowExclusiveLock);

	family = PointerGetDatum(family_of(subscription->consumer));
	key_lock_prefix_tag(&subscription->tag, subscription->consumers, 1, &family);
	subscription->result = key_lock_keep(&subscription->tag, ExclusiveLock, true);
}

/* A call that wrote nothing leaves no lock on the consumer. */
static void
end(Subscription *subscription, bool wrote)
{
	if (wrote)
		ForceSyncCommit();
	else
	{
		key_lock_give_back(&subscription->tag, ExclusiveLock, subscription->result);
		durable_wait_for_standbys();
	}
	table_close(subscription->acks, wrote ? NoLock : RowExclusiveLock);
	table_close(subscription->outbox, wrote ? NoLock : AccessShareLock);
	table_close(subscription->consumers, wrote ? NoLock : RowExclusiveLock);
}

/*
 * The name without numbers at its end: all whose parts might have the name of
 * another share it.
 */
static text *
family_of(const text *consumer)
{
	char	   *name = text_to_cstring(consumer);

	for (;;)
	{
		char	   *slash = strrchr(name, '/');

		if (slash == NULL || slash[1] == '\0' || strspn(slash + 1, "0123456789") != strlen(slash + 1))
			return cstring_to_text(name);
		*slash = '\0';
	}
}

/*
 * The parts of the consumer, or none if it is not subscribed.  Raises 22023
 * if it is itself a part.
 */
static void
find_parts(Subscription *subscription)
{
	Snapshot	snapshot = store_fresh_snapshot();
	ListCell   *lc;

	foreach(lc, store_scan_all(subscription->consumers, snapshot))
	{
		OutboxConsumer *part = (OutboxConsumer *) palloc0(sizeof(OutboxConsumer));

		part->consumer = DatumGetTextPCopy(store_get(subscription->consumers, (HeapTuple) lfirst(lc),
													 Anum_outbox_consumers_consumer));
		outbox_scan_find_consumer(subscription->consumers, part, snapshot);
		if (args_same_text(name_of(part), subscription->consumer))
			subscription->rows = lappend(subscription->rows, part);
		else if (args_same_text(part->consumer, subscription->consumer))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("\"%s\" is a part of consumer \"%s\"",
							text_to_cstring(part->consumer), text_to_cstring(name_of(part))),
					 errhint("Name the consumer, or choose another name.")));
	}
	list_sort(subscription->rows, compare_parts);
	UnregisterSnapshot(snapshot);
}

/* By number. */
static int
compare_parts(const ListCell *a, const ListCell *b)
{
	return ((const OutboxConsumer *) lfirst(a))->part - ((const OutboxConsumer *) lfirst(b))->part;
}

/* The consumer that it is a part of. */
static text *
name_of(const OutboxConsumer *part)
{
	return part->parts == 1 ? part->consumer :
		cstring_to_text_with_len(VARDATA_ANY(part->consumer), VARSIZE_ANY_EXHDR(part->consumer) -
								 strlen(psprintf("/%d", part->part)));
}

/*
 * The name of a part, which is the job_key of its relays.  Raises 54000.
 */
static text *
name_part(const text *consumer, int part, int parts)
{
	char	   *name = text_to_cstring(consumer);

	if (parts > 1)
		name = psprintf("%s/%d", name, part);
	if (strlen(name) > ARGS_MAX_KEY)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("the name of part %d of the consumer is too long: %zu bytes", part, strlen(name)),
				 errdetail("A job_key has at most %d bytes.", ARGS_MAX_KEY)));
	return cstring_to_text(name);
}

/* Nobody is subscribed by that name. */
static void
subscribe(const Subscription *subscription, bool from_start, int parts)
{
	static const char query[] =
		"INSERT INTO fencing.outbox_consumers"
		" (consumer, since, since_era, since_xid, after_no, settled_no, part, parts)"
		" SELECT n.consumer, CASE WHEN NOT $2 THEN pg_catalog.pg_current_snapshot() END, $3,"
		" pg_catalog.pg_current_xact_id(), $4, $4, n.part, $5"
		" FROM pg_catalog.unnest($1) WITH ORDINALITY n (consumer, part)";
	Oid			argtypes[] = {TEXTARRAYOID, BOOLOID, INT8OID, INT8OID, INT4OID};
	Datum	   *names = (Datum *) palloc(parts * sizeof(Datum));
	Datum		args[lengthof(argtypes)];
	Snapshot	snapshot;

	for (int i = 0; i < parts; i++)
		names[i] = PointerGetDatum(free_name(subscription, i + 1, parts));
	args[0] = PointerGetDatum(construct_array(names, parts, TEXTOID, -1, false, TYPALIGN_INT));
	args[1] = BoolGetDatum(from_start);
	(void) epoch_enter();
	args[2] = Int64GetDatum(epoch_current());

	/*
	 * A fresh snapshot sees all of those, so that none of them is delivered.
	 * One of a transaction may not see some, which are delivered then.
	 */
	args[3] = Int64GetDatum(from_start || IsolationUsesXactSnapshot() ? 0 : outbox_settle());
	args[4] = Int32GetDatum(parts);
	snapshot = IsolationUsesXactSnapshot() ? RegisterSnapshot(GetTransactionSnapshot()) :
		store_fresh_snapshot();
	owner_query_run(query, lengthof(args), argtypes, args, NULL, snapshot, NULL, NULL);
	UnregisterSnapshot(snapshot);
	for (int i = 0; i < parts; i++)
		forget_said(DatumGetTextPP(names[i]));
}

/*
 * The name of a part, which is nobody else's: neither of a consumer nor of one
 * that is divided itself.  Raises 22023.
 */
static text *
free_name(const Subscription *subscription, int part, int parts)
{
	OutboxConsumer other = {.consumer = name_part(subscription->consumer, part, parts)};
	OutboxConsumer divided = {.consumer = cstring_to_text(psprintf("%s/1", text_to_cstring(other.consumer)))};
	Snapshot	snapshot = store_fresh_snapshot();
	bool		own = false;
	ListCell   *lc;

	outbox_scan_find_consumer(subscription->consumers, &other, snapshot);
	outbox_scan_find_consumer(subscription->consumers, &divided, snapshot);
	UnregisterSnapshot(snapshot);
	foreach(lc, subscription->rows)
		own = own || args_same_text(((OutboxConsumer *) lfirst(lc))->consumer, other.consumer);
	if ((other.found && !own) || (parts > 1 && divided.found && divided.parts > 1))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("there is another consumer \"%s\"", text_to_cstring(other.consumer)),
				 errdetail("It is what part %d of consumer \"%s\" would be called.", part,
						   text_to_cstring(subscription->consumer)),
				 errhint("Choose another name, or unsubscribe the other consumer.")));
	return other.consumer;
}

/*
 * Locks the rows as they are now.  Waits for acknowledgements in flight; then
 * what they say is seen.  Raises 40001 for rows that the transaction does not
 * see.
 */
static void
lock_parts(Subscription *subscription)
{
	ListCell   *lc;

	foreach(lc, subscription->rows)
	{
		LockedPart	locked = {subscription->consumers, (OutboxConsumer *) lfirst(lc)};

		store_until_decided(look_part, &locked);
		store_require_visible(subscription->consumers, locked.part->tuple);
	}
}

/* With the consumer locked its rows do not go. */
static bool
look_part(void *arg, Snapshot snapshot)
{
	LockedPart *locked = (LockedPart *) arg;

	outbox_scan_find_consumer(locked->consumers, locked->part, snapshot);
	if (!locked->part->found)
		elog(ERROR, "row of consumer \"%s\" is gone", text_to_cstring(locked->part->consumer));
	return store_lock_row(locked->consumers, locked->part->tuple, LockWaitBlock) == STORE_LOCKED;
}

/* The rows, which are locked, and all that they have said. */
static void
remove_parts(const Subscription *subscription)
{
	ListCell   *lc;

	foreach(lc, subscription->rows)
	{
		OutboxConsumer *part = (OutboxConsumer *) lfirst(lc);

		store_delete(subscription->consumers, part->tuple);
		forget_said(part->consumer);
	}
}

/*
 * All of a consumer, whose row is locked.  With that nobody else writes
 * acknowledgements; attempts are counted without it, and counts of what is
 * gone do no harm.
 */
static void
forget_said(const text *consumer)
{
	Datum		key = PointerGetDatum(consumer);
	Relation	acks = store_table_open(STORE_OUTBOX_ACKS, RowExclusiveLock);
	Snapshot	snapshot = store_fresh_snapshot();

	store_delete_all(acks, 1, &key, snapshot);
	UnregisterSnapshot(snapshot);
	table_close(acks, NoLock);
	outbox_attempt_forget_all(consumer);
}

/* Into another number of parts. */
static void
divide(Subscription *subscription, int parts)
{
	NewPart    *new_parts = (NewPart *) palloc0(parts * sizeof(NewPart));
	int64		settled_no;
	Snapshot	snapshot;

	for (int i = 0; i < parts; i++)
		new_parts[i].consumer = free_name(subscription, i + 1, parts);
	lock_parts(subscription);
	settled_no = outbox_settle();
	snapshot = store_fresh_snapshot();
	carry_over(subscription, new_parts, parts, settled_no, snapshot);
	UnregisterSnapshot(snapshot);
	remove_parts(subscription);
	for (int i = 0; i < parts; i++)
		write_part(subscription, &new_parts[i], i + 1, parts, settled_no);
}

/*
 * Goes through the events that not all parts have done, and collects what the
 * new ones are going to say of them.
 */
static void
carry_over(const Subscription *subscription, NewPart *new_parts, int parts, int64 settled_no,
		   Snapshot snapshot)
{
	int			nold = list_length(subscription->rows);
	OutboxAckCursor *cursors = (OutboxAckCursor *) palloc0(nold * sizeof(OutboxAckCursor));
	int64		after_no = PG_INT64_MAX;
	OutboxScan	events;
	OutboxEvent event;

	for (int i = 0; i < nold; i++)
	{
		const OutboxConsumer *old = (const OutboxConsumer *) list_nth(subscription->rows, i);

		after_no = Min(after_no, old->after_no);
		outbox_scan_acks(&cursors[i], subscription->acks, old->consumer, old->after_no, snapshot);
	}

	outbox_scan_events(&events, subscription->outbox, after_no);
	while (outbox_scan_next_event(&events, snapshot, &event))
	{
		int			part = event.hash % nold;
		const OutboxConsumer *old = (const OutboxConsumer *) list_nth(subscription->rows, part);

		if (!outbox_scan_wants(old, &event))
			continue;
		carry_event(&new_parts[event.hash % parts], &event,
					event.no > old->after_no ? outbox_scan_ack_of(&cursors[part], event.no) : NULL,
					event.no <= old->after_no, settled_no, subscription->acks);
	}
	outbox_scan_events_end(&events);

	for (int i = 0; i < nold; i++)
		outbox_scan_acks_end(&cursors[i]);
	for (int i = 0; i < parts; i++)
	{
		keep_run(&new_parts[i]);
		if (!new_parts[i].open)
			new_parts[i].after_no = Max(settled_no, after_no);
	}
}

/* One event, of the part that it is for now. */
static void
carry_event(NewPart *part, const OutboxEvent *event, const OutboxAck *ack, bool done,
			int64 settled_no, Relation acks)
{
	bool		parked = ack != NULL && ack->parked;

	done = done || (ack != NULL && !parked);
	if (!done || event->no > settled_no)
		keep_run(part);
	if (!done && !part->open)
	{
		part->open = true;
		part->after_no = Min(event->no - 1, settled_no);
	}
	if (done && part->run != NULL)
		part->run->through_no = event->no;
	else if (done || parked)
	{
		part->run = (Said *) palloc0(sizeof(Said));
		part->run->event_no = part->run->through_no = event->no;
		part->run->reason = parked ? store_get(acks, ack->row, Anum_outbox_acks_reason) : (Datum) 0;
		part->run->parked = parked;
	}
	if (parked || event->no > settled_no)
		keep_run(part);
}

/* What is done before everything that is not is said by after_no. */
static void
keep_run(NewPart *part)
{
	if (part->run != NULL)
		part->said = lappend(part->said, part->run);
	part->run = NULL;
}

/* The row of a part, and what it says. */
static void
write_part(const Subscription *subscription, const NewPart *new_part, int part, int parts,
		   int64 settled_no)
{
	OutboxConsumer *old = (OutboxConsumer *) linitial(subscription->rows);
	ListCell   *lc;

	old->values[Anum_outbox_consumers_consumer - 1] = PointerGetDatum(new_part->consumer);
	old->values[Anum_outbox_consumers_after_no - 1] = Int64GetDatum(new_part->after_no);
	old->values[Anum_outbox_consumers_settled_no - 1] = Int64GetDatum(settled_no);
	old->values[Anum_outbox_consumers_part - 1] = Int32GetDatum(part);
	old->values[Anum_outbox_consumers_parts - 1] = Int32GetDatum(parts);
	store_insert(subscription->consumers, old->values, old->nulls);

	foreach(lc, new_part->said)
	{
		const Said *said = (const Said *) lfirst(lc);
		Datum		values[Natts_outbox_acks];
		bool		nulls[Natts_outbox_acks] = {false};

		if (said->through_no <= new_part->after_no)
			continue;
		values[Anum_outbox_acks_consumer - 1] = PointerGetDatum(new_part->consumer);
		values[Anum_outbox_acks_event_no - 1] = Int64GetDatum(said->event_no);
		values[Anum_outbox_acks_through_no - 1] = Int64GetDatum(said->through_no);
		values[Anum_outbox_acks_acked_at - 1] = TimestampTzGetDatum(GetCurrentTimestamp());
		values[Anum_outbox_acks_reason - 1] = said->reason;
		nulls[Anum_outbox_acks_acked_at - 1] = said->parked;
		nulls[Anum_outbox_acks_reason - 1] = !said->parked;
		store_insert(subscription->acks, values, nulls);
	}
}
