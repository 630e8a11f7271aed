/*-------------------------------------------------------------------------
 *
 * store.c
 *	  The state tables: look up, lock, write.
 *
 * The hot tables are reached through the table access method and their
 * primary keys, without planner or executor: a probe costs about a
 * microsecond, no plan can be pinned to a sequential scan, and no name is
 * ever resolved through search_path.  The tables carry no triggers and no
 * constraints but NOT NULL and the primary key, which store_table.c makes
 * sure of, so nothing is passed over.
 *
 * Rows are searched with SnapshotAny and judged one by one against an MVCC
 * snapshot.  An index scan with the MVCC snapshot itself would, under
 * SERIALIZABLE, take predicate locks on index pages, and transactions on
 * different keys of one page would fail each other.  Where a predicate lock
 * is needed it is taken on the row (store_visible_to_transaction).
 *
 * A row is locked FOR NO KEY UPDATE in the version that was looked at.
 * Getting that lock means that nothing has moved since; otherwise the caller
 * looks again.  The snapshot that found the row must stay registered until
 * then, or its line pointer could be used again.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/relscan.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "store.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

/* the columns of a sequence */
#define SEQUENCE_LAST_VALUE	1
#define SEQUENCE_IS_CALLED	3

typedef struct StoreScan
{
	Relation	rel;
	Relation	index;
	IndexScanDesc scan;
	TupleTableSlot *slot;
	Snapshot	snapshot;
} StoreScan;

/* a row to wait for, and what to do when it is locked */
typedef struct RowLockWait
{
	Relation	rel;
	HeapTuple	tuple;
	StoreWork	work;
	void	   *arg;
	bool		moved;
} RowLockWait;

static HeapTuple find(Relation rel, int nkeys, const Datum *keys, Snapshot snapshot,
					  Snapshot scan_snapshot);
static List *find_all(Relation rel, int nkeys, const Datum *keys, Snapshot snapshot,
					  Snapshot scan_snapshot);
static void scan_begin(StoreScan *scan, Relation rel, int nkeys, const Datum *keys,
					   Snapshot snapshot, Snapshot scan_snapshot);
static bool scan_next(StoreScan *scan);
static void scan_end(StoreScan *scan);
static uint64 count_ended(void);
static bool wait_and_work(void *arg);
static bool had_locker(HeapTuple tuple, Snapshot snapshot);
static HeapTuple form_tuple(Relation rel, const Datum *values, const bool *nulls);

/*
 * The snapshot of the last look, and what count_ended() was then; see
 * store_is_unchanged().  A look within a look takes its place: then the outer
 * one does not know.
 */
static Snapshot look_snapshot;
static uint64 ended_at_look;
static bool unchanged;

/*
 * A registered snapshot of what is committed now, at every isolation level.
 * (A parallel worker may not take one; it cannot get past the gate anyway.)
 */
Snapshot
store_fresh_snapshot(void)
{
	return RegisterSnapshot(IsInParallelMode() ? GetTransactionSnapshot() : GetLatestSnapshot());
}

/*
 * Calls look, each time with a fresh snapshot, until it says that all is
 * decided.  The snapshot stays registered while look locks what it has found.
 */
void
store_until_decided(StoreLook look, void *arg)
{
	bool		decided = false;

	while (!decided)
	{
		uint64		count = count_ended();
		Snapshot	snapshot = store_fresh_snapshot();

		CHECK_FOR_INTERRUPTS();
		look_snapshot = snapshot;
		ended_at_look = count;
		decided = look(arg, snapshot);
		UnregisterSnapshot(snapshot);
	}
}

/*
 * Under a lock that was had without waiting: whether what the look has seen is
 * still all that there is, because no transaction has ended since.  Then there
 * is no need to look again.
 *
 * Who had the lock before us and wrote has ended, and is counted, before the
 * lock could be ours: the count goes up with the transaction's end in the list
 * of running ones (ProcArrayEndTransaction() in procarray.c), and we have the
 * row because that list says so.
 */
bool
store_is_unchanged(void)
{
	return unchanged;
}

/*
 * Calls make under the lock for making a row.  Nobody is left who may have made
 * it: key_lock_absent() has looked at those in progress, and the others count.
 */
bool
store_under_lock(StoreLook make, void *arg, Snapshot snapshot)
{
	bool		made;

	unchanged = ended_at_look != 0 && count_ended() == ended_at_look;
	made = make(arg, snapshot);
	unchanged = false;
	return made;
}

/*
 * How many transactions that wrote something have ended; 0: unknown, as for
 * those who see by the snapshot of their transaction.
 */
static uint64
count_ended(void)
{
	return IsInParallelMode() || IsolationUsesXactSnapshot() ? 0 :
		GetLatestSnapshot()->snapXactCompletionCount;
}

/*
 * Raises 25006 or 25000 where nothing can be written, before the first lock.
 */
void
store_begin_write(const char *function)
{
	PreventCommandIfReadOnly(function);
	PreventCommandIfParallelMode(function);
}

/*
 * The row with this primary key that the snapshot sees, copied with its
 * position, or NULL.  keys has the leading nkeys columns of the primary key.
 */
HeapTuple
store_find(Relation rel, int nkeys, const Datum *keys, Snapshot snapshot)
{
	return find(rel, nkeys, keys, snapshot, SnapshotAny);
}

/* The same as any SELECT would do it, with its predicate locks. */
HeapTuple
store_select(Relation rel, int nkeys, const Datum *keys, Snapshot snapshot)
{
	return find(rel, nkeys, keys, snapshot, snapshot);
}

/*
 * scan_snapshot decides about predicate locks, snapshot about what is seen.
 */
static HeapTuple
find(Relation rel, int nkeys, const Datum *keys, Snapshot snapshot, Snapshot scan_snapshot)
{
	StoreScan	scan;
	HeapTuple	tuple = NULL;

	scan_begin(&scan, rel, nkeys, keys, snapshot, scan_snapshot);
	if (scan_next(&scan))
		tuple = ExecCopySlotHeapTuple(scan.slot);
	scan_end(&scan);
	return tuple;
}

/* The rows with these leading columns of the primary key, in its order. */
List *
store_find_all(Relation rel, int nkeys, const Datum *keys, Snapshot snapshot)
{
	return find_all(rel, nkeys, keys, snapshot, SnapshotAny);
}

/* The same as any SELECT would do it, with its predicate locks. */
List *
store_select_all(Relation rel, int nkeys, const Datum *keys, Snapshot snapshot)
{
	return find_all(rel, nkeys, keys, snapshot, snapshot);
}

/* As find(), all of them. */
static List *
find_all(Relation rel, int nkeys, const Datum *keys, Snapshot snapshot, Snapshot scan_snapshot)
{
	StoreScan	scan;
	List	   *rows = NIL;

	scan_begin(&scan, rel, nkeys, keys, snapshot, scan_snapshot);
	while (scan_next(&scan))
		rows = lappend(rows, ExecCopySlotHeapTuple(scan.slot));
	scan_end(&scan);
	return rows;
}

/*
 * The transaction that has made the row with this primary key and has not
 * ended; invalid if there is none but our own.
 */
TransactionId
store_find_maker(Relation rel, int nkeys, const Datum *keys)
{
	StoreScan	scan;
	SnapshotData dirty;
	TransactionId maker = InvalidTransactionId;

	/* it says of each row that it returns whose end it depends on */
	InitDirtySnapshot(dirty);
	scan_begin(&scan, rel, nkeys, keys, &dirty, &dirty);
	while (!TransactionIdIsValid(maker) &&
		   index_getnext_slot(scan.scan, ForwardScanDirection, scan.slot))
		maker = dirty.xmin;
	scan_end(&scan);
	return maker;
}

/* All rows of a small table that the snapshot sees, copied. */
List *
store_scan_all(Relation rel, Snapshot snapshot)
{
	TableScanDesc scan = table_beginscan(rel, SnapshotAny, 0, NULL);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	List	   *rows = NIL;

	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		if (table_tuple_satisfies_snapshot(rel, slot, snapshot))
			rows = lappend(rows, ExecCopySlotHeapTuple(slot));
	}
	ExecDropSingleTupleTableSlot(slot);
	table_endscan(scan);
	return rows;
}

/* By the primary key, or leading columns of it. */
static void
scan_begin(StoreScan *scan, Relation rel, int nkeys, const Datum *keys,
		   Snapshot snapshot, Snapshot scan_snapshot)
{
	ScanKeyData skeys[INDEX_MAX_KEYS];

	scan->rel = rel;
	scan->snapshot = snapshot;
	scan->index = index_open(compat_primary_key(rel), AccessShareLock);
	for (int i = 0; i < nkeys; i++)
	{
		RegProcedure equal = InvalidOid;

		AttrNumber	column = scan->index->rd_index->indkey.values[i];

		switch (TupleDescAttr(RelationGetDescr(rel), column - 1)->atttypid)
		{
			case TEXTOID:
				equal = F_TEXTEQ;
				break;
			case INT8OID:
				equal = F_INT8EQ;
				break;
			case INT4OID:
				equal = F_INT4EQ;
				break;
			case OIDOID:
				equal = F_OIDEQ;
				break;
			case NAMEOID:
				equal = F_NAMEEQ;
				break;
			case UUIDOID:
				equal = F_UUID_EQ;
				break;
			default:
				elog(ERROR, "unexpected key type in index \"%s\"",
					 RelationGetRelationName(scan->index));
		}
		/* this sets collation "C", which the columns have */
		ScanKeyInit(&skeys[i], i + 1, BTEqualStrategyNumber, equal, keys[i]);
	}
	scan->scan = compat_index_beginscan(rel, scan->index, scan_snapshot, nkeys);
	index_rescan(scan->scan, skeys, nkeys, NULL, 0);
	scan->slot = table_slot_create(rel, NULL);
}

/* Whether there is another row that the snapshot sees. */
static bool
scan_next(StoreScan *scan)
{
	while (index_getnext_slot(scan->scan, ForwardScanDirection, scan->slot))
	{
		if (table_tuple_satisfies_snapshot(scan->rel, scan->slot, scan->snapshot))
			return true;
	}
	return false;
}

static void
scan_end(StoreScan *scan)
{
	ExecDropSingleTupleTableSlot(scan->slot);
	index_endscan(scan->scan);
	index_close(scan->index, AccessShareLock);
}

/* A column that cannot be NULL; it points into the tuple. */
Datum
store_get(Relation rel, HeapTuple tuple, int attnum)
{
	bool		isnull;
	Datum		value = heap_getattr(tuple, attnum, RelationGetDescr(rel), &isnull);

	if (isnull)
		elog(ERROR, "unexpected null in column %d of relation \"%s\"",
			 attnum, RelationGetRelationName(rel));
	return value;
}

/*
 * Whether the transaction's own snapshot sees this row version.  Under
 * SERIALIZABLE this also takes the predicate lock on the row.
 */
bool
store_visible_to_transaction(Relation rel, HeapTuple tuple)
{
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	Snapshot	snapshot = RegisterSnapshot(GetTransactionSnapshot());
	bool		visible;

	visible = table_tuple_fetch_row_version(rel, &tuple->t_self, snapshot, slot);
	UnregisterSnapshot(snapshot);
	ExecDropSingleTupleTableSlot(slot);
	return visible;
}

/*
 * Before a row is written: under REPEATABLE READ and SERIALIZABLE it must be
 * one that the transaction sees, as for any UPDATE.
 */
void
store_require_visible(Relation rel, HeapTuple tuple)
{
	if (IsolationUsesXactSnapshot() && !store_visible_to_transaction(rel, tuple))
		store_serialization_failure();
}

/* Raises 40001. */
void
store_serialization_failure(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not serialize access due to concurrent update"),
			 errhint("The transaction might succeed if retried.")));
}

/*
 * Locks this version of a row FOR NO KEY UPDATE, until the end of the current
 * (sub)transaction.  LockWaitBlock waits, LockWaitSkip does not.
 */
StoreLock
store_lock_row(Relation rel, HeapTuple tuple, LockWaitPolicy policy)
{
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TM_FailureData failure;
	TM_Result	result;

	result = table_tuple_lock(rel, &tuple->t_self, SnapshotAny, slot,
							  GetCurrentCommandId(false), LockTupleNoKeyExclusive,
							  policy, 0, &failure);
	ExecDropSingleTupleTableSlot(slot);

	switch (result)
	{
		case TM_Ok:
			return STORE_LOCKED;
		case TM_WouldBlock:
			return STORE_BUSY;
		case TM_Updated:
		case TM_Deleted:
			return STORE_MOVED;
		default:
			elog(ERROR, "unexpected table_tuple_lock status: %u", result);
			return STORE_MOVED; /* keep compiler quiet */
	}
}

/*
 * Locks the row, waiting if need be, and calls work under the lock.  work
 * returns whether it wants to keep the lock, that is whether it wrote or the
 * caller will.  Returns false if the row had moved: then look again.
 *
 * With expect_write a row that nobody held when the snapshot was taken is
 * locked without further ado.  Else, and for a wait, a subtransaction lets go
 * of a lock that is not kept.  (What is left: somebody who came after the
 * snapshot, and has committed before our lock.  Then a call that does not
 * write leaves the lock to the end of its transaction.)
 */
bool
store_with_row_lock(Relation rel, HeapTuple tuple, Snapshot snapshot, bool expect_write,
					StoreWork work, void *arg)
{
	RowLockWait wait = {rel, tuple, work, arg, false};

	if (expect_write && !had_locker(tuple, snapshot))
	{
		switch (store_lock_row(rel, tuple, LockWaitSkip))
		{
			case STORE_LOCKED:
				unchanged = snapshot == look_snapshot && ended_at_look != 0 &&
					count_ended() == ended_at_look;
				(void) work(arg);
				unchanged = false;
				return true;
			case STORE_MOVED:
				return false;
			case STORE_BUSY:
				break;
		}
	}
	(void) store_subtransaction(wait_and_work, &wait, NULL);
	return !wait.moved;
}

/* In a subtransaction, which is rolled back unless the lock is to be kept. */
static bool
wait_and_work(void *arg)
{
	RowLockWait *wait = (RowLockWait *) arg;

	wait->moved = store_lock_row(wait->rel, wait->tuple, LockWaitBlock) != STORE_LOCKED;
	return !wait->moved && wait->work(wait->arg);
}

/*
 * Whether, as the snapshot has it, another transaction holds the row.  It may
 * have ended since; what it did must be looked at then.  (A multixact may be
 * over, or our own; then we only take the longer way.)
 */
static bool
had_locker(HeapTuple tuple, Snapshot snapshot)
{
	TransactionId xmax = HeapTupleHeaderGetRawXmax(tuple->t_data);

	if (tuple->t_data->t_infomask & HEAP_XMAX_INVALID)
		return false;

	/*
	 * first: the numbers of multixacts begin where those of transactions do
	 * not
	 */
	if (tuple->t_data->t_infomask & HEAP_XMAX_IS_MULTI)
		return true;
	if (!TransactionIdIsNormal(xmax))
		return false;
	return !TransactionIdIsCurrentTransactionId(xmax) && XidInMVCCSnapshot(xmax, snapshot);
}

/*
 * Calls work in an internal subtransaction, which is kept if work returns
 * true and rolled back, with its locks, if it returns false or raises an
 * error.  The error is raised again, or, if the caller wants it, given to it
 * instead.  Memory is the caller's context throughout.
 */
bool
store_subtransaction(StoreWork work, void *arg, ErrorData **error)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	volatile bool keep = false;

	if (error != NULL)
		*error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		keep = work(arg);
		if (keep)
			ReleaseCurrentSubTransaction();
		else
			RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
	}
	PG_CATCH();
	{
		ErrorData  *edata;

		MemoryContextSwitchTo(context);
		edata = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;

		if (error == NULL)
			ReThrowError(edata);
		*error = edata;
		keep = false;
	}
	PG_END_TRY();

	return keep;
}

/* Inserts a row; later commands of the transaction see it. */
void
store_insert(Relation rel, const Datum *values, const bool *nulls)
{
	HeapTuple	tuple = form_tuple(rel, values, nulls);
	CatalogIndexState indexes = CatalogOpenIndexes(rel);

	CatalogTupleInsertWithInfo(rel, tuple, indexes);
	CatalogCloseIndexes(indexes);
	heap_freetuple(tuple);
	CommandCounterIncrement();
}

/*
 * Writes a row anew.  The caller has locked this version, so it is the latest
 * one.  What a publication could not replicate is refused, as by any UPDATE.
 */
void
store_update(Relation rel, HeapTuple old, const Datum *values, const bool *nulls)
{
	HeapTuple	tuple = form_tuple(rel, values, nulls);
	CatalogIndexState indexes = CatalogOpenIndexes(rel);

	CheckCmdReplicaIdentity(rel, CMD_UPDATE);
	CatalogTupleUpdateWithInfo(rel, &old->t_self, tuple, indexes);
	CatalogCloseIndexes(indexes);
	heap_freetuple(tuple);
	CommandCounterIncrement();
}

/*
 * Columns that an administrator has added and dropped again stay in the
 * table's descriptor, after those that values and nulls have.
 */
static HeapTuple
form_tuple(Relation rel, const Datum *values, const bool *nulls)
{
	int			natts = RelationGetNumberOfAttributes(rel);
	int			ncolumns = store_table_ncolumns(rel);
	Datum	   *all = (Datum *) palloc0(natts * sizeof(Datum));
	bool	   *all_nulls = (bool *) palloc(natts * sizeof(bool));

	memset(all_nulls, true, natts * sizeof(bool));
	memcpy(all, values, ncolumns * sizeof(Datum));
	memcpy(all_nulls, nulls, ncolumns * sizeof(bool));
	return heap_form_tuple(RelationGetDescr(rel), all, all_nulls);
}

/* Reads all columns that the extension knows; they point into the tuple. */
void
store_read_row(Relation rel, HeapTuple tuple, Datum *values, bool *nulls)
{
	int			ncolumns = store_table_ncolumns(rel);

	for (int i = 0; i < ncolumns; i++)
		values[i] = heap_getattr(tuple, i + 1, RelationGetDescr(rel), &nulls[i]);
}

/* Deletes a row that the caller has locked. */
void
store_delete(Relation rel, HeapTuple tuple)
{
	CheckCmdReplicaIdentity(rel, CMD_DELETE);
	CatalogTupleDelete(rel, &tuple->t_self);
	CommandCounterIncrement();
}

/* Deletes all rows with these leading columns of the primary key. */
void
store_delete_all(Relation rel, int nkeys, const Datum *keys, Snapshot snapshot)
{
	StoreScan	scan;

	CheckCmdReplicaIdentity(rel, CMD_DELETE);
	scan_begin(&scan, rel, nkeys, keys, snapshot, SnapshotAny);
	while (scan_next(&scan))
	{
		HeapTuple	tuple = ExecCopySlotHeapTuple(scan.slot);

		store_require_visible(rel, tuple);
		CatalogTupleDelete(rel, &tuple->t_self);
		heap_freetuple(tuple);
	}
	scan_end(&scan);
	CommandCounterIncrement();
}

/*
 * The value of a sequence of the schema fencing, 0 if none was ever set: as it
 * is now, not as of any snapshot.  Raises 42P01.
 */
int64
store_read_sequence(const char *name)
{
	Oid			relid = get_relname_relid(name, get_namespace_oid("fencing", false));
	Relation	rel;
	TableScanDesc scan;
	TupleTableSlot *slot;
	int64		value = 0;
	bool		isnull;

	if (!OidIsValid(relid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation \"fencing.%s\" does not exist", name),
				 errhint("Create the extension fencing again.")));
	rel = relation_open(relid, AccessShareLock);
	scan = table_beginscan(rel, SnapshotAny, 0, NULL);
	slot = table_slot_create(rel, NULL);
	if (table_scan_getnextslot(scan, ForwardScanDirection, slot) &&
		DatumGetBool(slot_getattr(slot, SEQUENCE_IS_CALLED, &isnull)))
		value = DatumGetInt64(slot_getattr(slot, SEQUENCE_LAST_VALUE, &isnull));
	ExecDropSingleTupleTableSlot(slot);
	table_endscan(scan);
	relation_close(rel, AccessShareLock);
	return value;
}
