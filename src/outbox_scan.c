/*-------------------------------------------------------------------------
 *
 * outbox_scan.c
 *	  Which events are pending for a consumer.
 *
 * What a relay acknowledges concerns its own consumer only, and it holds that
 * consumer's fence.  Under SERIALIZABLE a query would take predicate locks on
 * pages that the relays of all consumers write, and they would fail each
 * other.  So rows are searched here as store.c does it: with SnapshotAny,
 * judged one by one against an MVCC snapshot.
 *
 * Locks: none.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relscan.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/pg_am.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_index.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "outbox.h"
#include "port/pg_crc32c.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/xid8.h"

/*
 * how many epochs a restore puts between a database and its copy; see epoch.c
 */
#define ERAS_OF_RESTORE		1024

static void scan_begin(OutboxScan *scan, Relation rel, const OutboxIndex *index,
					   Snapshot scan_snapshot);
static void scan_equal(OutboxScan *scan, RegProcedure equal, Datum value);
static void scan_again(OutboxScan *scan, RegProcedure equal, Datum value);
static int	compare_numbers(const ListCell *a, const ListCell *b);
static void scan_from(OutboxScan *scan, StrategyNumber strategy, RegProcedure function, int64 number);
static bool scan_next(OutboxScan *scan, Snapshot snapshot);
static void scan_end(OutboxScan *scan);
static void add_key(OutboxScan *scan, StrategyNumber strategy, RegProcedure function, Datum value);
static bool has_all_rows(Relation index, Relation rel, const OutboxIndex *wanted);
static void read_event(OutboxScan *scan, OutboxEvent *event);
static void find_ack(Relation acks, const OutboxConsumer *consumer, StrategyNumber strategy,
					 RegProcedure function, int64 event_no, Snapshot snapshot, OutboxAck *ack);
static void read_ack(OutboxScan *scan, OutboxAck *ack);
static bool is_done_as_well(const OutboxWalk *walk, int64 no);
static bool concerns(const OutboxConsumer *consumer, const OutboxEvent *event);
static bool wants(bool all, Datum since, int64 since_era, FullTransactionId since_xid,
				  int64 era, FullTransactionId xid);
static uint32 hash_aggregate(const text *type, const text *id);
static bool is_of_part(uint32 hash, int part, int parts);

PG_FUNCTION_INFO_V1(fencing_outbox_wants);

static const OutboxIndex by_no = {"outbox_pkey", 1, {Anum_outbox_no}};
static const OutboxIndex by_id = {"outbox_id_key", 1, {Anum_outbox_id}};
static const OutboxIndex by_aggregate = {"outbox_aggregate_idx", 3,
	{Anum_outbox_aggregatetype, Anum_outbox_aggregateid, Anum_outbox_no}
};
static const OutboxIndex acks_by_no = {"outbox_acks_pkey", 2,
	{Anum_outbox_acks_consumer, Anum_outbox_acks_event_no}
};
static const OutboxIndex attempts_by_no = {"outbox_attempts_pkey", 2,
	{Anum_outbox_attempts_consumer, Anum_outbox_attempts_event_no}
};

/* Reads the consumer's row; found or not. */
void
outbox_scan_find_consumer(Relation consumers, OutboxConsumer *consumer, Snapshot snapshot)
{
	Datum		key = PointerGetDatum(consumer->consumer);

	consumer->tuple = store_find(consumers, 1, &key, snapshot);
	consumer->found = consumer->tuple != NULL;
	if (!consumer->found)
		return;
	store_read_row(consumers, consumer->tuple, consumer->values, consumer->nulls);
	consumer->after_no = DatumGetInt64(consumer->values[Anum_outbox_consumers_after_no - 1]);
	consumer->part = DatumGetInt32(consumer->values[Anum_outbox_consumers_part - 1]);
	consumer->parts = DatumGetInt32(consumer->values[Anum_outbox_consumers_parts - 1]);

	/*
	 * asked about each event: then it need not be unpacked, and kept, each
	 * time
	 */
	if (!consumer->nulls[Anum_outbox_consumers_since - 1])
	{
		Datum	   *since = &consumer->values[Anum_outbox_consumers_since - 1];

		*since = PointerGetDatum(PG_DETOAST_DATUM(*since));
	}
}

/*
 * Whether the event is one of those that the consumer has not done with for
 * good.
 */
static bool
concerns(const OutboxConsumer *consumer, const OutboxEvent *event)
{
	return event->no > consumer->after_no && outbox_scan_is_of_part(consumer, event) &&
		outbox_scan_wants(consumer, event);
}

/* Whether the subscription is for it, be it of this part or of another. */
bool
outbox_scan_wants(const OutboxConsumer *consumer, const OutboxEvent *event)
{
	const Datum *values = consumer->values;

	return wants(consumer->nulls[Anum_outbox_consumers_since - 1],
				 values[Anum_outbox_consumers_since - 1],
				 DatumGetInt64(values[Anum_outbox_consumers_since_era - 1]),
				 DatumGetFullTransactionId(values[Anum_outbox_consumers_since_xid - 1]),
				 event->era, event->xid);
}

/* Whether the event's aggregate is one of this part of the consumer. */
bool
outbox_scan_is_of_part(const OutboxConsumer *consumer, const OutboxEvent *event)
{
	return is_of_part(event->hash, consumer->part, consumer->parts);
}

/* Whether it is to be delivered, or is parked. */
bool
outbox_scan_is_pending(const OutboxConsumer *consumer, Relation acks, const OutboxEvent *event,
					   Snapshot snapshot)
{
	OutboxAck	ack;

	if (!concerns(consumer, event))
		return false;
	outbox_scan_find_ack(acks, consumer, event->no, snapshot, &ack);
	return !ack.found || ack.parked || ack.through_no < event->no;
}

/*
 * The same of events in ascending order, beside a cursor; says whether it is
 * parked.
 */
bool
outbox_scan_is_pending_at(const OutboxConsumer *consumer, OutboxAckCursor *cursor,
						  OutboxEvent *event)
{
	const OutboxAck *ack;

	if (!concerns(consumer, event))
		return false;
	ack = outbox_scan_ack_of(cursor, event->no);
	event->parked = ack != NULL && ack->parked;
	return ack == NULL || ack->parked;
}

/* The last that begins at the number or before; found or not. */
void
outbox_scan_find_ack(Relation acks, const OutboxConsumer *consumer, int64 event_no,
					 Snapshot snapshot, OutboxAck *ack)
{
	find_ack(acks, consumer, BTLessEqualStrategyNumber, F_INT8LE, event_no, snapshot, ack);
}

/* The first that begins after the number; found or not. */
void
outbox_scan_next_ack(Relation acks, const OutboxConsumer *consumer, int64 event_no,
					 Snapshot snapshot, OutboxAck *ack)
{
	find_ack(acks, consumer, BTGreaterStrategyNumber, F_INT8GT, event_no, snapshot, ack);
}

/* The nearest in that direction. */
static void
find_ack(Relation acks, const OutboxConsumer *consumer, StrategyNumber strategy,
		 RegProcedure function, int64 event_no, Snapshot snapshot, OutboxAck *ack)
{
	OutboxScan	scan;

	scan_begin(&scan, acks, &acks_by_no, SnapshotAny);
	scan_equal(&scan, F_TEXTEQ, PointerGetDatum(consumer->consumer));
	scan_from(&scan, strategy, function, event_no);
	if (strategy == BTLessEqualStrategyNumber)
		scan.direction = BackwardScanDirection;
	ack->found = scan_next(&scan, snapshot);
	if (ack->found)
	{
		read_ack(&scan, ack);
		if (ack->row == NULL)
			ack->row = ExecCopySlotHeapTuple(scan.slot);
	}
	scan_end(&scan);
}

/* The first row of attempts that begins after the number, or NULL. */
HeapTuple
outbox_scan_next_attempt(Relation attempts, const OutboxConsumer *consumer, int64 event_no,
						 Snapshot snapshot)
{
	OutboxScan	scan;
	HeapTuple	row;

	scan_begin(&scan, attempts, &attempts_by_no, SnapshotAny);
	scan_equal(&scan, F_TEXTEQ, PointerGetDatum(consumer->consumer));
	scan_from(&scan, BTGreaterStrategyNumber, F_INT8GT, event_no);
	row = scan_next(&scan, snapshot) ? ExecCopySlotHeapTuple(scan.slot) : NULL;
	scan_end(&scan);
	return row;
}

/* What the scan's row says; of a parked event the row, too. */
static void
read_ack(OutboxScan *scan, OutboxAck *ack)
{
	ack->found = true;
	ack->event_no = DatumGetInt64(outbox_scan_get(scan, Anum_outbox_acks_event_no));
	ack->through_no = DatumGetInt64(outbox_scan_get(scan, Anum_outbox_acks_through_no));
	ack->parked = slot_attisnull(scan->slot, Anum_outbox_acks_acked_at);
	ack->row = ack->parked ? ExecCopySlotHeapTuple(scan->slot) : NULL;
}

/*
 * Begins to go through the pending events above a number.  What is
 * acknowledged is jumped over range by range, so that it does not matter how
 * much it is.  Events are read as scan_snapshot has it, see scan_begin().
 */
void
outbox_scan_walk(OutboxWalk *walk, const OutboxConsumer *consumer, Relation outbox, Relation acks,
				 int64 after_no, Snapshot snapshot, Snapshot scan_snapshot)
{
	memset(walk, 0, sizeof(*walk));
	walk->consumer = consumer;
	walk->snapshot = snapshot;
	scan_begin(&walk->events, outbox, &by_no, scan_snapshot);
	scan_from(&walk->events, BTGreaterStrategyNumber, F_INT8GT, after_no);

	outbox_scan_acks(&walk->acks, acks, consumer->consumer, after_no, snapshot);
}

/* The same of one aggregate, that of the event, from the consumer's first. */
void
outbox_scan_walk_aggregate(OutboxWalk *walk, const OutboxConsumer *consumer, Relation outbox,
						   Relation acks, const OutboxEvent *event, Snapshot snapshot)
{
	outbox_scan_walk(walk, consumer, outbox, acks, consumer->after_no, snapshot, SnapshotAny);
	scan_end(&walk->events);
	scan_begin(&walk->events, outbox, &by_aggregate, SnapshotAny);
	scan_equal(&walk->events, F_TEXTEQ, PointerGetDatum(event->aggregate_type));
	scan_equal(&walk->events, F_TEXTEQ, PointerGetDatum(event->aggregate_id));
	scan_from(&walk->events, BTGreaterStrategyNumber, F_INT8GT, consumer->after_no);
}

/*
 * The next pending event, parked ones included; false if there is none, or
 * more than most_passed have been passed over, which is left to the caller
 * to see.
 */
bool
outbox_scan_walk_next(OutboxWalk *walk, OutboxEvent *event)
{
	while ((walk->most_passed == 0 || walk->passed <= walk->most_passed) &&
		   scan_next(&walk->events, walk->snapshot))
	{
		const OutboxAck *ack;

		read_event(&walk->events, event);
		ack = outbox_scan_ack_of(&walk->acks, event->no);
		if (ack != NULL && !ack->parked)
		{
			if (ack->through_no > event->no)
				outbox_scan_jump(&walk->events, ack->through_no);
			walk->passed++;
			continue;
		}
		if (!concerns(walk->consumer, event) || is_done_as_well(walk, event->no))
		{
			walk->passed++;
			continue;
		}
		event->parked = ack != NULL;
		return true;
	}
	return false;
}

/*
 * Begins to go through what a consumer has said, for numbers that are above.
 */
void
outbox_scan_acks(OutboxAckCursor *cursor, Relation acks, const text *consumer, int64 after_no,
				 Snapshot snapshot)
{
	OutboxConsumer said = {.consumer = unconstify(text *, consumer)};

	cursor->snapshot = snapshot;
	outbox_scan_find_ack(acks, &said, after_no, snapshot, &cursor->ack);
	scan_begin(&cursor->scan, acks, &acks_by_no, SnapshotAny);
	scan_equal(&cursor->scan, F_TEXTEQ, PointerGetDatum(consumer));
	scan_from(&cursor->scan, BTGreaterStrategyNumber, F_INT8GT, after_no);
}

/*
 * What was said of the number, or NULL.  Numbers come in ascending order.
 */
const OutboxAck *
outbox_scan_ack_of(OutboxAckCursor *cursor, int64 no)
{
	OutboxAck  *ack = &cursor->ack;

	while (ack->found ? ack->through_no < no : cursor->scan.nkeys > 0)
	{
		ack->found = scan_next(&cursor->scan, cursor->snapshot);
		if (ack->found)
			read_ack(&cursor->scan, ack);
		else
			cursor->scan.nkeys = 0; /* there are no more */
	}
	return ack->found && ack->event_no <= no ? ack : NULL;
}

/* Closes what outbox_scan_acks() opened. */
void
outbox_scan_acks_end(OutboxAckCursor *cursor)
{
	scan_end(&cursor->scan);
}

/* Whether it is among those that the caller is acknowledging. */
static bool
is_done_as_well(const OutboxWalk *walk, int64 no)
{
	int			low = 0;
	int			high = walk->ndone;

	while (low < high)
	{
		int			middle = (low + high) / 2;

		if (walk->done[middle] < no)
			low = middle + 1;
		else
			high = middle;
	}
	return low < walk->ndone && walk->done[low] == no;
}

/* Closes what outbox_scan_walk() opened. */
void
outbox_scan_walk_end(OutboxWalk *walk)
{
	outbox_scan_acks_end(&walk->acks);
	scan_end(&walk->events);
}

/* The events with these ids, OutboxEvent, in the order of their numbers. */
List *
outbox_scan_find_events(Relation outbox, pg_uuid_t *const *ids, int nids, Snapshot snapshot)
{
	OutboxScan	scan;
	List	   *events = NIL;

	scan_begin(&scan, outbox, &by_id, SnapshotAny);
	for (int i = 0; i < nids; i++)
	{
		OutboxEvent *event;

		scan_again(&scan, F_UUID_EQ, UUIDPGetDatum(ids[i]));
		if (!scan_next(&scan, snapshot))
			continue;
		event = (OutboxEvent *) palloc0(sizeof(OutboxEvent));
		read_event(&scan, event);
		event->aggregate_type = DatumGetTextPCopy(outbox_scan_get(&scan, Anum_outbox_aggregatetype));
		event->aggregate_id = DatumGetTextPCopy(outbox_scan_get(&scan, Anum_outbox_aggregateid));
		events = lappend(events, event);
	}
	scan_end(&scan);
	list_sort(events, compare_numbers);
	return events;
}

/* Ascending. */
static int
compare_numbers(const ListCell *a, const ListCell *b)
{
	const OutboxEvent *ea = (const OutboxEvent *) lfirst(a);
	const OutboxEvent *eb = (const OutboxEvent *) lfirst(b);

	return ea->no < eb->no ? -1 : ea->no > eb->no;
}

/*
 * A scan by an index, whose keys follow in the order of its columns.  With
 * SnapshotAny no predicate locks are taken; what is seen is up to
 * scan_next() either way.  Raises 42704, 0A000.
 */
static void
scan_begin(OutboxScan *scan, Relation rel, const OutboxIndex *index, Snapshot scan_snapshot)
{
	Oid			oid = get_relname_relid(index->name, RelationGetNamespace(rel));

	if (!OidIsValid(oid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("index \"%s\" of table \"%s\" does not exist", index->name,
						RelationGetRelationName(rel)),
				 errhint("Make it again as the extension does.")));
	scan->rel = rel;
	scan->scan_snapshot = scan_snapshot;
	scan->index = index_open(oid, AccessShareLock);
	if (!has_all_rows(scan->index, rel, index))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("index \"%s\" of table \"%s\" is not the one that the extension has made",
						index->name, RelationGetRelationName(rel)),
				 errdetail("It is invalid or partial, or has other columns, types or collations: rows would not be found by it."),
				 errhint("Drop it, and make it again as the extension does.")));
	scan->direction = ForwardScanDirection;
	scan->scan = NULL;
	scan->slot = table_slot_create(rel, NULL);
	scan->nkeys = 0;
}

/*
 * Whether every row of the table is found by these keys: a planner would
 * look.  An administrator may have made the index anew, under its name.
 */
static bool
has_all_rows(Relation index, Relation rel, const OutboxIndex *wanted)
{
	Form_pg_index form = index->rd_index;

	if (form->indrelid != RelationGetRelid(rel) || !form->indisvalid ||
		index->rd_rel->relam != BTREE_AM_OID || form->indnkeyatts < wanted->nkeys ||
		!heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL))
		return false;
	for (int i = 0; i < wanted->nkeys; i++)
	{
		Form_pg_attribute column = TupleDescAttr(RelationGetDescr(rel), wanted->keys[i] - 1);

		if (form->indkey.values[i] != wanted->keys[i] ||
			index->rd_opcintype[i] != column->atttypid ||
			index->rd_indcollation[i] != column->attcollation)
			return false;
	}
	return true;
}

/* The next column has this value. */
static void
scan_equal(OutboxScan *scan, RegProcedure equal, Datum value)
{
	add_key(scan, BTEqualStrategyNumber, equal, value);
}

/* Begins again with another value of the only key. */
static void
scan_again(OutboxScan *scan, RegProcedure equal, Datum value)
{
	scan->nkeys = 0;
	scan_equal(scan, equal, value);
	if (scan->scan != NULL)
		index_rescan(scan->scan, scan->keys, scan->nkeys, NULL, 0);
}

/* The next column, the last key, is on this side of the number. */
static void
scan_from(OutboxScan *scan, StrategyNumber strategy, RegProcedure function, int64 number)
{
	add_key(scan, strategy, function, Int64GetDatum(number));
}

/* Goes on above the number. */
void
outbox_scan_jump(OutboxScan *scan, int64 number)
{
	scan->keys[scan->nkeys - 1].sk_argument = Int64GetDatum(number);
	if (scan->scan != NULL)
		index_rescan(scan->scan, scan->keys, scan->nkeys, NULL, 0);
}

/* A condition on the next column. */
static void
add_key(OutboxScan *scan, StrategyNumber strategy, RegProcedure function, Datum value)
{
	ScanKey		key = &scan->keys[scan->nkeys++];

	/* the columns of type text have this collation */
	ScanKeyEntryInitialize(key, 0, scan->nkeys, strategy, InvalidOid, C_COLLATION_OID, function,
						   value);
}

/* To the next row that the snapshot sees. */
static bool
scan_next(OutboxScan *scan, Snapshot snapshot)
{
	CHECK_FOR_INTERRUPTS();
	if (scan->scan == NULL)
	{
		scan->scan = compat_index_beginscan(scan->rel, scan->index, scan->scan_snapshot, scan->nkeys);
		index_rescan(scan->scan, scan->keys, scan->nkeys, NULL, 0);
	}
	while (index_getnext_slot(scan->scan, scan->direction, scan->slot))
	{
		if (table_tuple_satisfies_snapshot(scan->rel, scan->slot, snapshot))
			return true;
	}
	return false;
}

/* Begins to go through all events above, in the order of their numbers. */
void
outbox_scan_events(OutboxScan *scan, Relation outbox, int64 after_no)
{
	scan_begin(scan, outbox, &by_no, SnapshotAny);
	scan_from(scan, BTGreaterStrategyNumber, F_INT8GT, after_no);
}

/* The next one, without its aggregate; false if there is none. */
bool
outbox_scan_next_event(OutboxScan *scan, Snapshot snapshot, OutboxEvent *event)
{
	if (!scan_next(scan, snapshot))
		return false;
	read_event(scan, event);
	return true;
}

/* Closes what outbox_scan_events() opened. */
void
outbox_scan_events_end(OutboxScan *scan)
{
	scan_end(scan);
}

/* A column of that row that cannot be NULL. */
Datum
outbox_scan_get(OutboxScan *scan, int attnum)
{
	bool		isnull;

	return slot_getattr(scan->slot, attnum, &isnull);
}

/* All of an event but the aggregate. */
static void
read_event(OutboxScan *scan, OutboxEvent *event)
{
	event->no = DatumGetInt64(outbox_scan_get(scan, Anum_outbox_no));
	event->era = DatumGetInt64(outbox_scan_get(scan, Anum_outbox_era));
	event->xid = DatumGetFullTransactionId(outbox_scan_get(scan, Anum_outbox_xid));
	event->hash = hash_aggregate(DatumGetTextPP(outbox_scan_get(scan, Anum_outbox_aggregatetype)),
								 DatumGetTextPP(outbox_scan_get(scan, Anum_outbox_aggregateid)));
}

/* Closes the index, too. */
static void
scan_end(OutboxScan *scan)
{
	ExecDropSingleTupleTableSlot(scan->slot);
	if (scan->scan != NULL)
		index_endscan(scan->scan);
	index_close(scan->index, AccessShareLock);
}

/*
 * Whether an event is for a consumer at all: one that its subscription did
 * not see, or its own transaction wrote; or all.  The numbers of transactions
 * mean nothing after a restore, but after a promotion they do.
 */
static bool
wants(bool all, Datum since, int64 since_era, FullTransactionId since_xid,
	  int64 era, FullTransactionId xid)
{
	Datum		value = FullTransactionIdGetDatum(xid);

	if (all || era > since_era || (era == since_era && FullTransactionIdEquals(xid, since_xid)))
		return true;
	if (era < since_era &&
		(era <= since_era - ERAS_OF_RESTORE ||
		 !FullTransactionIdPrecedes(xid,
									DatumGetFullTransactionId(DirectFunctionCall1(pg_snapshot_xmax, since)))))
		return false;
	return !DatumGetBool(DirectFunctionCall2(pg_visible_in_snapshot, value, since));
}

/*
 * CRC-32C of type and id, with a zero byte between them, which no text has.
 * It decides which part of a consumer an event is for, also of those that are
 * kept, so it must be the same for ever, on every machine: not one of the
 * hash functions of PostgreSQL, whose values depend on the order of bytes.
 */
static uint32
hash_aggregate(const text *type, const text *id)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, VARDATA_ANY(type), VARSIZE_ANY_EXHDR(type));
	COMP_CRC32C(crc, "", 1);
	COMP_CRC32C(crc, VARDATA_ANY(id), VARSIZE_ANY_EXHDR(id));
	FIN_CRC32C(crc);
	return crc;
}

/* Parts count from 1. */
static bool
is_of_part(uint32 hash, int part, int parts)
{
	return parts == 1 || hash % parts == (uint32) (part - 1);
}

/*
 * fencing.outbox_wants(since pg_snapshot, since_era bigint, since_xid xid8, part int, parts int,
 *	era bigint, xid xid8, aggregatetype text, aggregateid text) → boolean: for the view
 */
Datum
fencing_outbox_wants(PG_FUNCTION_ARGS)
{
	for (int i = 1; i < PG_NARGS(); i++)
	{
		if (PG_ARGISNULL(i))
			PG_RETURN_NULL();
	}
	PG_RETURN_BOOL(is_of_part(hash_aggregate(PG_GETARG_TEXT_PP(7), PG_GETARG_TEXT_PP(8)),
							  PG_GETARG_INT32(3), PG_GETARG_INT32(4)) &&
				   wants(PG_ARGISNULL(0), PG_GETARG_DATUM(0), PG_GETARG_INT64(1),
						 PG_GETARG_FULLTRANSACTIONID(2), PG_GETARG_INT64(5),
						 PG_GETARG_FULLTRANSACTIONID(6)));
}
