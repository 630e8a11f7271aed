/*-------------------------------------------------------------------------
 *
 * epoch.c
 *	  What this database may have issued before, though it cannot know.
 *
 * A token must never go down, also after a failover to a standby that had not
 * received the last tokens.  So tokens have an epoch in their upper bits,
 * which rises with every event that may have lost some: a new WAL timeline
 * (promotion, point-in-time recovery) by one, a new identity of the database
 * (restore, pg_upgrade, CREATE DATABASE ... TEMPLATE) by 1024.  Tokens at and
 * below epoch_start are of the past.  External jobs are exempt: their tokens
 * are issued, and kept, elsewhere.
 *
 * fencing.floor has a row per identity; everybody computes the same epoch
 * from all rows, and an issuer writes the result down when it can do so
 * without waiting.  The table has a handful of rows and is read on each call:
 * a cache could not be told of rows that a restore copies in.
 *
 * Locks: RowShareLock on fencing.floor from judging by the epoch to the end
 * of a transaction that wrote.  A new epoch takes ExclusiveLock, so that
 * nobody is left who judges by an old one; those who only read (pg_dump,
 * views) are not in its way, nor it in theirs.  The row is locked last of
 * all.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "job.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"

#define EPOCH_BITS			36
#define EPOCH_MASK			((INT64CONST(1) << EPOCH_BITS) - 1)
#define MAX_EPOCH			(PG_INT64_MAX >> EPOCH_BITS)

/*
 * how far a new identity goes up: more promotions than any cluster has had
 */
#define NEW_IDENTITY_EPOCHS 1024

/*
 * How long a new epoch stands in line, and all who come after it behind it.
 */
#define FIRST_SLICE_MS		100
#define LAST_SLICE_MS		1000

/* what a look at fencing.floor found */
typedef struct Identity
{
	HeapTuple	own;			/* our row, or NULL */
	TimeLineID	own_tli;
	int64		own_epoch;
	int64		own_floor;
	TimestampTz own_since;
	int			nforeign;		/* rows of other identities */
	int64		foreign_epoch;	/* their highest, or -1 */
} Identity;

/* what epoch_raise_floor() looks at */
typedef struct RaiseFloor
{
	Relation	rel;
	Identity	identity;
	int64		token;
} RaiseFloor;

static void lock_floor(void);
static bool lock_within_slice(void *arg);
static void tell_lockers(const LOCKTAG *tag);
static void notice_lockers(SPITupleTable *rows, uint64 count, void *arg);
static void advance_sequences(void);
static bool is_behind(const Identity *identity, TimeLineID tli);
static void require_not_behind(const Identity *identity, TimeLineID tli);
static TimeLineID current_timeline(void);
static int64 compute_epoch(const Identity *identity, TimeLineID tli);
static void check_epoch(int64 epoch);
static void look(Relation rel, Snapshot snapshot, Identity *identity);
static void look_afresh(Relation rel, Identity *identity);
static void identity_key(Datum *key);
static void write_row(Relation rel, const Identity *identity, TimeLineID tli, int64 epoch,
					  int64 floor);
static void write_down(void);
static bool write_epoch(void *arg, Snapshot snapshot);
static bool look_floor(void *arg, Snapshot snapshot);
static bool make_floor(void *arg, Snapshot snapshot);
static bool raise_floor(void *arg);

PG_FUNCTION_INFO_V1(fencing_epoch_start);
PG_FUNCTION_INFO_V1(fencing_read_epoch);
PG_FUNCTION_INFO_V1(fencing_new_epoch);

/* As of the last epoch_enter(). */
static int64 current_epoch;
static TimeLineID current_tli;
static bool current_written;	/* our row says so already */

/*
 * fencing.epoch_start() → bigint.  Reads, and so waits for nobody.
 */
Datum
fencing_epoch_start(PG_FUNCTION_ARGS)
{
	Relation	rel = store_table_open(STORE_FLOOR, AccessShareLock);
	TimeLineID	tli = current_timeline();
	Identity	identity;
	int64		epoch;

	look_afresh(rel, &identity);
	require_not_behind(&identity, tli);
	epoch = compute_epoch(&identity, tli);
	check_epoch(epoch);
	table_close(rel, AccessShareLock);
	PG_RETURN_INT64(epoch << EPOCH_BITS);
}

/*
 * fencing.read_epoch()
 *	→ timeline bigint, epoch bigint, epoch_start bigint, since timestamptz,
 *	  epochs_left bigint, new_epoch_needed boolean, floor bigint,
 *	  other_identities int, highest_other_epoch bigint
 *
 * For the view, which must answer also when nothing else does: it raises
 * nothing.
 */
Datum
fencing_read_epoch(PG_FUNCTION_ARGS)
{
	Relation	rel = store_table_open(STORE_FLOOR, AccessShareLock);
	TimeLineID	tli = current_timeline();
	Identity	identity;
	bool		behind;
	int64		epoch;
	TupleDesc	tupdesc;
	Datum		values[9];
	bool		nulls[9] = {false};

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");

	look_afresh(rel, &identity);
	table_close(rel, AccessShareLock);
	behind = is_behind(&identity, tli);
	epoch = compute_epoch(&identity, behind ? identity.own_tli : tli);

	values[0] = Int64GetDatum(tli);
	values[1] = Int64GetDatum(epoch);
	values[2] = Int64GetDatum(Min(epoch, MAX_EPOCH) << EPOCH_BITS);
	values[3] = TimestampTzGetDatum(identity.own_since);
	nulls[3] = epoch != identity.own_epoch;
	values[4] = Int64GetDatum(Max(MAX_EPOCH - epoch, 0));
	values[5] = BoolGetDatum(behind);
	values[6] = Int64GetDatum(identity.own_floor);
	values[7] = Int32GetDatum(identity.nforeign);
	values[8] = Int64GetDatum(identity.foreign_epoch);
	nulls[8] = identity.nforeign == 0;
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc), values, nulls)));
}

/*
 * fencing_new_epoch(reason text, above bigint) → epoch_start bigint
 *
 * Waits for everybody who judges by the old epoch to end the transaction, and
 * keeps new ones waiting until this one has ended.
 */
Datum
fencing_new_epoch(PG_FUNCTION_ARGS)
{
	text	   *reason = args_reason(fcinfo, 0, "reason");
	int64		above = PG_ARGISNULL(1) ? 0 : args_token(fcinfo, 1, "above");
	Relation	rel;
	Identity	identity;
	TimeLineID	tli;
	int64		epoch;

	store_begin_write("fencing_new_epoch()");

	lock_floor();
	rel = store_table_open(STORE_FLOOR, NoLock);
	look_afresh(rel, &identity);
	if (identity.own != NULL)
		store_require_visible(rel, identity.own);
	advance_sequences();

	/*
	 * a timeline before the one we know is what this function is called for
	 */
	tli = GetWALInsertionTimeLine();
	epoch = compute_epoch(&identity, Max(tli, identity.own_tli)) + 1;
	epoch = Max(epoch, (above >> EPOCH_BITS) + ((above & EPOCH_MASK) != 0 ? 1 : 0));
	check_epoch(epoch);

	/*
	 * inserted anew: a logical subscriber that lacks the row would skip an
	 * update
	 */
	if (identity.own != NULL)
		store_delete(rel, identity.own);
	identity.own = NULL;
	write_row(rel, &identity, tli, epoch, identity.own_floor);
	epoch_record_revocation(NULL, epoch << EPOCH_BITS, reason);
	ForceSyncCommit();
	table_close(rel, NoLock);
	PG_RETURN_INT64(epoch << EPOCH_BITS);
}

/*
 * Takes ExclusiveLock on fencing.floor to the end of the transaction.
 * Callers who come while we stand in line wait behind us, so we do that for a
 * moment only; for those who have the lock for longer we wait beside the
 * line.  Raises 40P01, 55P03 and the like, as any lock.
 */
static void
lock_floor(void)
{
	int			slice = FIRST_SLICE_MS;
	LOCKTAG		tag;
	ErrorData  *error;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, store_table_oid(STORE_FLOOR));
	while (!store_subtransaction(lock_within_slice, &slice, &error))
	{
		if (error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
			ReThrowError(error);
		tell_lockers(&tag);
		WaitForLockers(tag, ExclusiveLock, false);
		slice = Min(slice * 2, LAST_SLICE_MS);
	}
}

/* In a subtransaction.  Raises 55P03 when the time is up. */
static bool
lock_within_slice(void *arg)
{
	int			slice = *(int *) arg;
	int			level = NewGUCNestLevel();

	if (LockTimeout > 0)
		slice = Min(slice, LockTimeout);
	(void) set_config_option("lock_timeout", psprintf("%d", slice), PGC_USERSET,
							 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	LockRelationOid(store_table_oid(STORE_FLOOR), ExclusiveLock);
	AtEOXact_GUC(true, level);
	return true;
}

/* Names those for whom we wait, if they are still there. */
static void
tell_lockers(const LOCKTAG *tag)
{
	static const char query[] =
		"SELECT pg_catalog.count(*)::integer,"
		" pg_catalog.string_agg(COALESCE(l.pid::pg_catalog.text, 'prepared transaction'), ', ' ORDER BY l.pid)"
		" FROM (SELECT DISTINCT l.virtualtransaction, l.pid FROM pg_catalog.pg_locks l"
		"  WHERE l.locktype OPERATOR(pg_catalog.=) 'relation'"
		"  AND l.database OPERATOR(pg_catalog.=) $1 AND l.relation OPERATOR(pg_catalog.=) $2"
		"  AND l.granted AND l.mode OPERATOR(pg_catalog.<>) 'AccessShareLock'"
		"  AND COALESCE(l.pid OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid(), true)) l";
	Oid			argtypes[] = {OIDOID, OIDOID};
	Datum		args[] = {ObjectIdGetDatum(tag->locktag_field1),
	ObjectIdGetDatum(tag->locktag_field2)};

	owner_query_run(query, lengthof(args), argtypes, args, NULL, NULL, notice_lockers, NULL);
}

/* Tells the administrator whom the new epoch waits for. */
static void
notice_lockers(SPITupleTable *rows, uint64 count, void *arg)
{
	bool		isnull;
	int			lockers = DatumGetInt32(SPI_getbinval(rows->vals[0], rows->tupdesc, 1, &isnull));

	if (lockers > 0)
		ereport(NOTICE,
				(errmsg_plural("waiting for %d transaction that judges by the old epoch",
							   "waiting for %d transactions that judge by the old epoch",
							   lockers, lockers),
				 errdetail("Processes: %s.", SPI_getvalue(rows->vals[0], rows->tupdesc, 2))));
}

/*
 * Moves every sequence of the extension above what its table holds, or held:
 * logical replication copies rows and no sequences.  With fencing.floor
 * locked nobody draws a number, so none goes down.  Of events what consumers
 * know counts too: a number that they take for done would never be delivered.
 */
static void
advance_sequences(void)
{
	static const char *const queries[] = {
		"SELECT pg_catalog.setval('fencing.revocations_id_seq', x.no)"
		" FROM fencing.revocations_id_seq s,"
		" (SELECT pg_catalog.max(r.id) AS no FROM fencing.revocations r) x"
		" WHERE x.no OPERATOR(pg_catalog.>=) s.last_value",

		"SELECT pg_catalog.setval('fencing.outbox_no_seq', x.no)"
		" FROM fencing.outbox_no_seq s,"
		" (SELECT GREATEST((SELECT pg_catalog.max(e.no) FROM fencing.outbox e),"
		"  (SELECT pg_catalog.max(c.after_no) FROM fencing.outbox_consumers c),"
		"  (SELECT pg_catalog.max(a.through_no) FROM fencing.outbox_acks a),"
		"  (SELECT t.last_value FROM fencing.outbox_turn_no t),"
		"  (SELECT t.last_value FROM fencing.outbox_settled_no t)) AS no) x"
		" WHERE x.no OPERATOR(pg_catalog.>=) s.last_value",

		"SELECT pg_catalog.setval('fencing.tag_events_event_no_seq', x.no)"
		" FROM fencing.tag_events_event_no_seq s,"
		" (SELECT pg_catalog.max(e.event_no) AS no FROM fencing.tag_events e) x"
		" WHERE x.no OPERATOR(pg_catalog.>=) s.last_value"
	};
	Snapshot	snapshot = store_fresh_snapshot();

	for (size_t i = 0; i < lengthof(queries); i++)
		owner_query_run(queries[i], 0, NULL, NULL, NULL, snapshot, NULL, NULL);
	UnregisterSnapshot(snapshot);
}

/*
 * The token at and below which tokens are of a former epoch.  Leaves
 * fencing.floor locked; give that back by epoch_leave() unless
 * something was written.  Raises 55000 if the database is behind the timeline
 * that it was on, 54000 if no epochs are left.
 */
int64
epoch_enter(void)
{
	Relation	rel = store_table_open(STORE_FLOOR, RowShareLock);
	Identity	identity;

	look_afresh(rel, &identity);
	current_tli = current_timeline();
	require_not_behind(&identity, current_tli);
	current_epoch = compute_epoch(&identity, current_tli);
	check_epoch(current_epoch);
	current_written = identity.own != NULL && identity.own_tli == current_tli &&
		identity.own_epoch == current_epoch;

	table_close(rel, NoLock);
	return current_epoch << EPOCH_BITS;
}

/* Gives the lock of epoch_enter() back; nothing has been written. */
void
epoch_leave(void)
{
	UnlockRelationOid(store_table_oid(STORE_FLOOR), RowShareLock);
}

/*
 * The timeline that is written, or on a standby replayed, now; pg_control
 * lags.
 */
static TimeLineID
current_timeline(void)
{
	TimeLineID	tli;

	if (!RecoveryInProgress())
		return GetWALInsertionTimeLine();
	(void) GetXLogReplayRecPtr(&tli);
	return tli;
}

/* Whether the database is on a timeline before the one that it was on. */
static bool
is_behind(const Identity *identity, TimeLineID tli)
{
	return identity->own != NULL && tli < identity->own_tli;
}

/* Raises 55000. */
static void
require_not_behind(const Identity *identity, TimeLineID tli)
{
	if (is_behind(identity, tli))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the database is on timeline %u, but has been on timeline %u before",
						tli, identity->own_tli),
				 errdetail("Tokens of that timeline could be issued again."),
				 errhint("An administrator has to call fencing_new_epoch() before the database is used.")));
}

/* The number of the epoch; epoch_enter() has been called. */
int64
epoch_current(void)
{
	return current_epoch;
}

/*
 * The epoch of a database on this timeline.  A row of another identity with
 * an epoch not below its own is from a database of which this one is a copy,
 * or that is a copy of this one: then we go above all of them.
 */
static int64
compute_epoch(const Identity *identity, TimeLineID tli)
{
	if (identity->own != NULL && identity->foreign_epoch < identity->own_epoch)
		return identity->own_epoch + (tli - identity->own_tli);
	return Max(Max(identity->own_epoch, identity->foreign_epoch), 0) +
		NEW_IDENTITY_EPOCHS + (tli - 1);
}

/* Raises 54000 if no epochs are left. */
static void
check_epoch(int64 epoch)
{
	if (epoch > MAX_EPOCH)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("there are no epochs left")));
}

/* With a snapshot of its own. */
static void
look_afresh(Relation rel, Identity *identity)
{
	Snapshot	snapshot = store_fresh_snapshot();

	look(rel, snapshot, identity);
	UnregisterSnapshot(snapshot);
}

/* Reads fencing.floor, as the snapshot sees it. */
static void
look(Relation rel, Snapshot snapshot, Identity *identity)
{
	Datum		key[3];
	ListCell   *lc;

	memset(identity, 0, sizeof(*identity));
	identity->own_epoch = -1;
	identity->foreign_epoch = -1;
	identity_key(key);

	foreach(lc, store_scan_all(rel, snapshot))
	{
		HeapTuple	row = (HeapTuple) lfirst(lc);
		int64		epoch = DatumGetInt64(store_get(rel, row, Anum_floor_epoch));

		if (DatumGetInt64(store_get(rel, row, Anum_floor_sysid)) == DatumGetInt64(key[0]) &&
			DatumGetObjectId(store_get(rel, row, Anum_floor_dboid)) == DatumGetObjectId(key[1]) &&
			DatumGetObjectId(store_get(rel, row, Anum_floor_reloid)) == DatumGetObjectId(key[2]))
		{
			identity->own = row;
			identity->own_tli = DatumGetInt64(store_get(rel, row, Anum_floor_tli));
			identity->own_epoch = epoch;
			identity->own_floor = DatumGetInt64(store_get(rel, row, Anum_floor_floor));
			identity->own_since = DatumGetTimestampTz(store_get(rel, row, Anum_floor_since));
		}
		else
		{
			identity->nforeign++;
			identity->foreign_epoch = Max(identity->foreign_epoch, epoch);
		}
	}
}

/* The primary key of our row. */
static void
identity_key(Datum *key)
{
	key[0] = Int64GetDatum((int64) GetSystemIdentifier());
	key[1] = ObjectIdGetDatum(MyDatabaseId);
	key[2] = ObjectIdGetDatum(store_table_oid(STORE_FLOOR));
}

/*
 * The highest token of a forgotten job, read afresh; the caller holds the key
 * lock or the fence, so that the job cannot be forgotten meanwhile.
 */
int64
epoch_floor(void)
{
	Relation	rel = store_table_open(STORE_FLOOR, AccessShareLock);
	Snapshot	snapshot = store_fresh_snapshot();
	Datum		key[3];
	HeapTuple	own;
	int64		floor = 0;

	identity_key(key);
	own = store_find(rel, 3, key, snapshot);
	if (own != NULL)
		floor = DatumGetInt64(store_get(rel, own, Anum_floor_floor));
	UnregisterSnapshot(snapshot);
	table_close(rel, AccessShareLock);
	return floor;
}

/*
 * The token to issue after last, the job's last one or 0.  Writes the epoch
 * down if that is due.  epoch_enter() has been called, and the job is
 * locked.  Raises 54000 if no tokens are left.
 */
int64
epoch_next_token(int64 last, bool external)
{
	if (!external)
	{
		last = Max(last, Max(epoch_floor(), current_epoch << EPOCH_BITS));
		if (!current_written)
			write_down();
	}
	if (last == PG_INT64_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("there are no tokens left")));
	return last + 1;
}

/*
 * Writes the epoch into our row if nobody else is about to.  Nothing depends
 * on it but the next look, so a transaction that may not write the row (it is
 * not in its snapshot) leaves it to another.
 */
static void
write_down(void)
{
	Relation	rel = store_table_open(STORE_FLOOR, RowExclusiveLock);
	Datum		key[3];

	identity_key(key);
	(void) key_lock_make(rel, 3, key, false, write_epoch, rel);
	table_close(rel, NoLock);
}

/*
 * The key lock, without waiting, stands for the row whether it is there or
 * not.
 */
static bool
write_epoch(void *arg, Snapshot snapshot)
{
	Relation	rel = (Relation) arg;
	Identity	identity;

	look(rel, snapshot, &identity);
	if (identity.own != NULL &&
		((IsolationUsesXactSnapshot() && !store_visible_to_transaction(rel, identity.own)) ||
		 store_lock_row(rel, identity.own, LockWaitSkip) != STORE_LOCKED))
		return false;
	write_row(rel, &identity, current_tli, current_epoch, identity.own_floor);
	return true;
}

/* Inserts or updates our row. */
static void
write_row(Relation rel, const Identity *identity, TimeLineID tli, int64 epoch, int64 floor)
{
	Datum		values[Natts_floor];
	bool		nulls[Natts_floor] = {false};

	identity_key(values);
	values[Anum_floor_tli - 1] = Int64GetDatum(tli);
	values[Anum_floor_epoch - 1] = Int64GetDatum(epoch);
	values[Anum_floor_floor - 1] = Int64GetDatum(floor);
	values[Anum_floor_since - 1] = TimestampTzGetDatum(epoch == identity->own_epoch ?
													   identity->own_since : GetCurrentTimestamp());
	if (identity->own == NULL)
		store_insert(rel, values, nulls);
	else
		store_update(rel, identity->own, values, nulls);
}

/* Keeps who stopped a job, or with job_key NULL all of them, and why. */
void
epoch_record_revocation(text *job_key, int64 token, text *reason)
{
	Oid			argtypes[] = {TEXTOID, INT8OID, TEXTOID, TIMESTAMPTZOID};
	Datum		args[] = {PointerGetDatum(job_key), Int64GetDatum(token),
	PointerGetDatum(reason), TimestampTzGetDatum(GetCurrentTimestamp())};
	bool		nulls[lengthof(args)] = {job_key == NULL};

	owner_query_bigints("INSERT INTO fencing.revocations"
						" (job_key, token, reason, revoked_by, client_addr, revoked_at)"
						" VALUES ($1, $2, $3, SESSION_USER, pg_catalog.inet_client_addr(), $4)",
						lengthof(args), argtypes, args, nulls, NULL, 0, NULL);
}

/*
 * Raises the floor to token if it is lower, waiting for another that does so.
 * Forgetting a job is the only caller, and the floor is the last of its
 * locks.
 */
void
epoch_raise_floor(int64 token)
{
	RaiseFloor	raise = {.token = token};

	raise.rel = store_table_open(STORE_FLOOR, RowExclusiveLock);
	store_until_decided(look_floor, &raise);
	table_close(raise.rel, NoLock);
}

/* Raises the row of this identity, or makes it. */
static bool
look_floor(void *arg, Snapshot snapshot)
{
	RaiseFloor *raise = (RaiseFloor *) arg;
	Datum		key[3];

	look(raise->rel, snapshot, &raise->identity);
	if (raise->identity.own == NULL)
	{
		identity_key(key);
		return key_lock_make(raise->rel, 3, key, true, make_floor, raise) == STORE_LOCKED;
	}
	return raise->identity.own_floor >= raise->token ||
		store_with_row_lock(raise->rel, raise->identity.own, snapshot, true,
							raise_floor, raise);
}

/* The row of this identity is made, unless another was faster. */
static bool
make_floor(void *arg, Snapshot snapshot)
{
	RaiseFloor *raise = (RaiseFloor *) arg;

	look(raise->rel, snapshot, &raise->identity);
	return raise->identity.own == NULL && raise_floor(raise);
}

/* The row is locked, or is not there yet. */
static bool
raise_floor(void *arg)
{
	RaiseFloor *raise = (RaiseFloor *) arg;

	if (raise->identity.own != NULL)
		store_require_visible(raise->rel, raise->identity.own);
	write_row(raise->rel, &raise->identity, current_tli, current_epoch,
			  Max(raise->identity.own_floor, raise->token));
	return true;
}
