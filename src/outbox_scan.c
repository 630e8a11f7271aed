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

static void add_key(OutboxScan *scan, StrategyNumber strategy, RegProcedure function, Datum value);
static void scan_from(OutboxScan *scan, const OutboxConsumer *consumer);
static bool has_all_rows(Relation index, Relation rel, const OutboxIndex *wanted);
static OutboxState state_of(OutboxConsumer *consumer, int64 event_no, Snapshot snapshot);
static bool wants(bool all, Datum since, int64 since_era, FullTransactionId since_xid,
				  int64 era, FullTransactionId xid);

PG_FUNCTION_INFO_V1(fencing_outbox_wants);

const OutboxIndex outbox_by_no = {"outbox_pkey", 1, {Anum_outbox_no}};
const OutboxIndex outbox_acks_by_no = {"outbox_acks_pkey", 2,
	{Anum_outbox_acks_consumer, Anum_outbox_acks_event_no}
};
static const OutboxIndex outbox_by_id = {"outbox_id_key", 1, {Anum_outbox_id}};
static const OutboxIndex outbox_by_transaction = {"outbox_era_xid_idx", 2,
	{Anum_outbox_era, Anum_outbox_xid}
};
static const OutboxIndex outbox_by_aggregate = {"outbox_aggregate_idx", 4,
	{Anum_outbox_aggregatetype, Anum_outbox_aggregateid, Anum_outbox_era, Anum_outbox_xid}
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
 * Begins to look into what the consumer has said about events; more of them
 * are asked about one after the other.
 */
void
outbox_scan_begin_acks(OutboxConsumer *consumer, Relation acks)
{
	OutboxScan *scan = &consumer->acks;

	outbox_scan_begin(scan, acks, &outbox_acks_by_no, SnapshotAny);
	outbox_scan_equal(scan, F_TEXTEQ, PointerGetDatum(consumer->consumer));
	outbox_scan_equal(scan, F_INT8EQ, Int64GetDatum(0));
}

/* Closes what outbox_scan_begin_acks() opened. */
void
outbox_scan_end_acks(OutboxConsumer *consumer)
{
	outbox_scan_end(&consumer->acks);
}

/* What the consumer has said about an event. */
static OutboxState
state_of(OutboxConsumer *consumer, int64 event_no, Snapshot snapshot)
{
	OutboxScan *scan = &consumer->acks;

	scan->keys[1].sk_argument = Int64GetDatum(event_no);
	outbox_scan_again(scan);
	return outbox_scan_next(scan, snapshot) ? outbox_scan_state(scan) : OUTBOX_OPEN;
}

/* What a row of fencing.outbox_acks says. */
OutboxState
outbox_scan_state(OutboxScan *acks)
{
	return slot_attisnull(acks->slot, Anum_outbox_acks_acked_at) ? OUTBOX_PARKED : OUTBOX_ACKED;
}

/*
 * Whether the event is one of those that the consumer has not done with for
 * good.
 */
bool
outbox_scan_concerns(const OutboxConsumer *consumer, const OutboxEvent *event)
{
	const Datum *values = consumer->values;

	return !outbox_scan_precedes(event->era, event->xid,
								 DatumGetInt64(values[Anum_outbox_consumers_era - 1]),
								 DatumGetFullTransactionId(values[Anum_outbox_consumers_xid - 1])) &&
		wants(consumer->nulls[Anum_outbox_consumers_since - 1],
			  values[Anum_outbox_consumers_since - 1],
			  DatumGetInt64(values[Anum_outbox_consumers_since_era - 1]),
			  DatumGetFullTransactionId(values[Anum_outbox_consumers_since_xid - 1]),
			  event->era, event->xid);
}

/* Whether it is to be delivered, or is parked. */
bool
outbox_scan_is_pending(OutboxConsumer *consumer, const OutboxEvent *event, Snapshot snapshot)
{
	return outbox_scan_concerns(consumer, event) &&
		state_of(consumer, event->no, snapshot) != OUTBOX_ACKED;
}

/* By era, then by transaction. */
bool
outbox_scan_precedes(int64 era1, FullTransactionId xid1, int64 era2, FullTransactionId xid2)
{
	return era1 < era2 || (era1 == era2 && FullTransactionIdPrecedes(xid1, xid2));
}

/* Fills event, or returns false if there is none of this id. */
bool
outbox_scan_find_event(Relation outbox, const pg_uuid_t *id, Snapshot snapshot, OutboxEvent *event)
{
	OutboxScan	scan;
	bool		found;

	outbox_scan_begin(&scan, outbox, &outbox_by_id, SnapshotAny);
	outbox_scan_equal(&scan, F_UUID_EQ, UUIDPGetDatum(id));
	found = outbox_scan_next(&scan, snapshot);
	if (found)
	{
		outbox_scan_event(&scan, event);
		event->aggregate_type = DatumGetTextPCopy(outbox_scan_get(&scan, Anum_outbox_aggregatetype));
		event->aggregate_id = DatumGetTextPCopy(outbox_scan_get(&scan, Anum_outbox_aggregateid));
	}
	outbox_scan_end(&scan);
	return found;
}

/* The pending event with the lowest (era, xid), or false. */
bool
outbox_scan_first_pending(OutboxConsumer *consumer, Relation outbox, Snapshot snapshot,
						  OutboxEvent *event)
{
	OutboxScan	scan;
	bool		found = false;

	outbox_scan_begin(&scan, outbox, &outbox_by_transaction, SnapshotAny);
	scan_from(&scan, consumer);
	while (!found && outbox_scan_next(&scan, snapshot))
	{
		outbox_scan_event(&scan, event);
		found = outbox_scan_is_pending(consumer, event, snapshot);
	}
	outbox_scan_end(&scan);
	return found;
}

/* How many events of its aggregate are pending up to this one. */
int64
outbox_scan_count_pending(OutboxConsumer *consumer, Relation outbox, const OutboxEvent *last,
						  Snapshot snapshot)
{
	OutboxScan	scan;
	OutboxEvent event;
	int64		count = 0;

	outbox_scan_begin(&scan, outbox, &outbox_by_aggregate, SnapshotAny);
	outbox_scan_equal(&scan, F_TEXTEQ, PointerGetDatum(last->aggregate_type));
	outbox_scan_equal(&scan, F_TEXTEQ, PointerGetDatum(last->aggregate_id));
	scan_from(&scan, consumer);
	while (outbox_scan_next(&scan, snapshot))
	{
		outbox_scan_event(&scan, &event);
		if (event.no <= last->no && outbox_scan_is_pending(consumer, &event, snapshot))
			count++;
	}
	outbox_scan_end(&scan);
	return count;
}

/*
 * A scan by an index, whose keys follow in the order of its columns.  With
 * SnapshotAny no predicate locks are taken; what is seen is up to
 * outbox_scan_next() either way.  Raises 42704, 0A000.
 */
void
outbox_scan_begin(OutboxScan *scan, Relation rel, const OutboxIndex *index,
				  Snapshot scan_snapshot)
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
void
outbox_scan_equal(OutboxScan *scan, RegProcedure equal, Datum value)
{
	add_key(scan, BTEqualStrategyNumber, equal, value);
}

/* The next column is above the number. */
void
outbox_scan_above(OutboxScan *scan, int64 number)
{
	add_key(scan, BTGreaterStrategyNumber, F_INT8GT, Int64GetDatum(number));
}

/* ROW(era, xid) >= those of the consumer, which come next in the index. */
static void
scan_from(OutboxScan *scan, const OutboxConsumer *consumer)
{
	AttrNumber	column = scan->nkeys + 1;
	ScanKey		key = &scan->keys[scan->nkeys++];

	/*
	 * by hand: a header has no function, which ScanKeyEntryInitialize()
	 * asserts
	 */
	MemSet(key, 0, sizeof(ScanKeyData));
	key->sk_flags = SK_ROW_HEADER;
	key->sk_attno = column;
	key->sk_strategy = BTGreaterEqualStrategyNumber;
	key->sk_argument = PointerGetDatum(scan->from);
	ScanKeyEntryInitialize(&scan->from[0], SK_ROW_MEMBER, column, BTGreaterEqualStrategyNumber,
						   INT8OID, InvalidOid, F_BTINT8CMP,
						   consumer->values[Anum_outbox_consumers_era - 1]);
	ScanKeyEntryInitialize(&scan->from[1], SK_ROW_MEMBER | SK_ROW_END, column + 1,
						   BTGreaterEqualStrategyNumber, XID8OID, InvalidOid, F_XID8CMP,
						   consumer->values[Anum_outbox_consumers_xid - 1]);
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

/* From the beginning, after keys have been changed. */
void
outbox_scan_again(OutboxScan *scan)
{
	if (scan->scan != NULL)
		index_rescan(scan->scan, scan->keys, scan->nkeys, NULL, 0);
}

/* To the next row that the snapshot sees. */
bool
outbox_scan_next(OutboxScan *scan, Snapshot snapshot)
{
	CHECK_FOR_INTERRUPTS();
	if (scan->scan == NULL)
	{
		scan->scan = compat_index_beginscan(scan->rel, scan->index, scan->scan_snapshot, scan->nkeys);
		outbox_scan_again(scan);
	}
	while (index_getnext_slot(scan->scan, ForwardScanDirection, scan->slot))
	{
		if (table_tuple_satisfies_snapshot(scan->rel, scan->slot, snapshot))
			return true;
	}
	return false;
}

/* A column of that row that cannot be NULL. */
Datum
outbox_scan_get(OutboxScan *scan, int attnum)
{
	bool		isnull;

	return slot_getattr(scan->slot, attnum, &isnull);
}

/* All of an event but the aggregate. */
void
outbox_scan_event(OutboxScan *scan, OutboxEvent *event)
{
	event->no = DatumGetInt64(outbox_scan_get(scan, Anum_outbox_no));
	event->era = DatumGetInt64(outbox_scan_get(scan, Anum_outbox_era));
	event->xid = DatumGetFullTransactionId(outbox_scan_get(scan, Anum_outbox_xid));
}

/* Closes the index, too. */
void
outbox_scan_end(OutboxScan *scan)
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
 * fencing.outbox_wants(since pg_snapshot, since_era bigint, since_xid xid8, era bigint, xid xid8)
 *	→ boolean: for the view
 */
Datum
fencing_outbox_wants(PG_FUNCTION_ARGS)
{
	for (int i = 1; i < 5; i++)
	{
		if (PG_ARGISNULL(i))
			PG_RETURN_NULL();
	}
	PG_RETURN_BOOL(wants(PG_ARGISNULL(0), PG_GETARG_DATUM(0), PG_GETARG_INT64(1),
						 PG_GETARG_FULLTRANSACTIONID(2), PG_GETARG_INT64(3),
						 PG_GETARG_FULLTRANSACTIONID(4)));
}
