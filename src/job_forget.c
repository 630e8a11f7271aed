/*-------------------------------------------------------------------------
 *
 * job_forget.c
 *	  Ended jobs: removed by key, or as a purge finds them.
 *
 * A job that is forgotten leaves nothing behind but the floor, which is raised
 * to its last token first: so none of its tokens is ever issued again, and who
 * comes with one is told pruned.
 *
 * A purge goes through fencing.leases page by page, a part of it in each call,
 * from where the last one ended.  So the cost of a call depends on how many
 * rows it may look at, not on how many jobs there are, and no index has to be
 * kept that heartbeats would write.  The position is the value of a sequence,
 * since it need be neither exact nor dumped.
 *
 * Locks: key lock, fence, lease, without waiting: what is busy is an error of
 * forget, and passed over by a purge; then the floor, waiting.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "job.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* A page has no more rows of fencing.leases than this, and seldom more than half. */
#define LEASES_PER_PAGE		64

/* Job keys, out of a query. */
typedef struct Keys
{
	int			count;
	text	  **keys;
} Keys;

static bool is_free(const Job *job);
static bool lock_ended(Job *job);
static void forget(const Job *job, const text *job_key);
static bool is_old(const Job *job, TimestampTz before);
static void choose(TimestampTz before, int max_rows, Keys *keys, bool *at_end);
static void copy_keys(SPITupleTable *rows, uint64 count, void *arg);
pg_noreturn static void refuse_busy(const Job *job);

PG_FUNCTION_INFO_V1(fencing_forget);

/*
 * fencing_forget(job_key text) → void
 */
Datum
fencing_forget(PG_FUNCTION_ARGS)
{
	Job			job = {0};

	job.job_key = args_key(fcinfo, 0, "job_key");

	job_begin(&job, "fencing_forget()");
	if (!is_free(&job))
		refuse_busy(&job);
	if (!lock_ended(&job))
	{
		job_refuse_unknown(&job);
		refuse_busy(&job);
	}
	job_refuse_external(&job);
	if (job_is_live(&job, GetCurrentTimestamp()))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("job \"%s\" has a live lease", text_to_cstring(job.job_key)),
				 errhint("Release or revoke it first.")));

	store_require_visible(job.fences, job.fence.tuple);
	if (job.lease.found)
		store_require_visible(job.leases, job.lease.tuple);

	epoch_raise_floor(job.fence.number);
	forget(&job, job.job_key);
	ForceSyncCommit();
	job.wrote = true;
	job_end(&job);
	PG_RETURN_VOID();
}

/*
 * Forgets jobs whose lease ended before, and that have committed nothing
 * since.  counts: how many, and max_rows if there may be more.
 */
void
job_forget_ended(TimestampTz before, int max_rows, int64 *counts)
{
	Job		   *ended;
	Job			job = {0};
	Keys		keys = {0};
	bool		at_end;
	int			nended = 0;
	int64		floor = 0;

	choose(before, max_rows, &keys, &at_end);
	ended = (Job *) palloc(Max(keys.count, 1) * sizeof(Job));

	job_begin(&job, "fencing_purge()");
	for (int i = 0; i < keys.count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		job.job_key = keys.keys[i];
		if (!is_free(&job) || !lock_ended(&job) || !is_old(&job, before))
			continue;
		floor = Max(floor, job.fence.number);
		ended[nended++] = job;
	}
	if (nended > 0)
		epoch_raise_floor(floor);
	for (int i = 0; i < nended; i++)
		forget(&ended[i], ended[i].job_key);
	job.wrote = nended > 0;
	job_end(&job);
	counts[0] = nended;
	counts[1] = at_end ? 0 : max_rows;
}

/*
 * Whether nobody is just making the job, nor is it committing in this very
 * session.  Nobody makes the row while it is seen, and who does not see it,
 * sees the floor.
 */
static bool
is_free(const Job *job)
{
	Datum		key = PointerGetDatum(job->job_key);

	if (gate_holds(job->fences, &key, 1) || !key_lock_absent(job->fences, 1, &key, false))
		return false;
	key_lock_release(job->fences, 1, &key);
	return true;
}

/*
 * Locks fence and lease as they are now, without waiting.  Returns false if
 * the job is not there, or busy: somebody is just committing, or taking it.
 */
static bool
lock_ended(Job *job)
{
	Snapshot	snapshot = store_fresh_snapshot();
	bool		locked;

	job_look(job, snapshot);
	locked = job->fence.found &&
		store_lock_row(job->fences, job->fence.tuple, LockWaitSkip) == STORE_LOCKED &&
		(!job->lease.found ||
		 store_lock_row(job->leases, job->lease.tuple, LockWaitSkip) == STORE_LOCKED);
	UnregisterSnapshot(snapshot);
	return locked;
}

/*
 * Whether a purge may take it, now that it is locked.  What the transaction
 * does not see is left to another.
 */
static bool
is_old(const Job *job, TimestampTz before)
{
	Datum		key[2] = {PointerGetDatum(job->job_key), Int64GetDatum(job->lease.token)};
	Snapshot	snapshot;
	Relation	receipts;
	bool		old = true;
	ListCell   *lc;

	if (job->fence.external || !job->lease.found || job->lease.until >= before)
		return false;
	if (IsolationUsesXactSnapshot() &&
		(!store_visible_to_transaction(job->fences, job->fence.tuple) ||
		 !store_visible_to_transaction(job->leases, job->lease.tuple)))
		return false;

	/* the fence is locked: no receipt can come after this snapshot */
	snapshot = store_fresh_snapshot();
	receipts = store_table_open(STORE_RECEIPTS, AccessShareLock);
	foreach(lc, store_find_all(receipts, 2, key, snapshot))
	{
		HeapTuple	receipt = (HeapTuple) lfirst(lc);

		if (DatumGetTimestampTz(store_get(receipts, receipt, Anum_receipts_committed_at)) >= before ||
			(IsolationUsesXactSnapshot() && !store_visible_to_transaction(receipts, receipt)))
			old = false;
	}
	table_close(receipts, AccessShareLock);
	UnregisterSnapshot(snapshot);
	return old;
}

/* Fence, lease and receipts.  The rows are locked, and the floor is raised. */
static void
forget(const Job *job, const text *job_key)
{
	Datum		key = PointerGetDatum(job_key);
	Snapshot	snapshot;
	Relation	receipts;

	store_delete(job->fences, job->fence.tuple);
	if (job->lease.found)
		store_delete(job->leases, job->lease.tuple);

	/* the fence is locked: no receipt can come after this snapshot */
	snapshot = store_fresh_snapshot();
	receipts = store_table_open(STORE_RECEIPTS, RowExclusiveLock);
	store_delete_all(receipts, 1, &key, snapshot);
	table_close(receipts, NoLock);
	UnregisterSnapshot(snapshot);
}

/*
 * Jobs that seem to be old, on the next pages of fencing.leases; at_end: it
 * was the last part of them.
 */
static void
choose(TimestampTz before, int max_rows, Keys *keys, bool *at_end)
{
	static const char query[] =
		"SELECT l.job_key FROM fencing.leases l"
		" WHERE l.ctid OPERATOR(pg_catalog.>=) $1 AND l.ctid OPERATOR(pg_catalog.<) $2"
		" AND l.lease_until OPERATOR(pg_catalog.<) $3"
		" AND NOT EXISTS (SELECT FROM fencing.receipts r"
		"  WHERE r.job_key OPERATOR(pg_catalog.=) l.job_key AND r.token OPERATOR(pg_catalog.=) l.token"
		"  AND r.committed_at OPERATOR(pg_catalog.>=) $3)";
	Oid			argtypes[] = {TIDOID, TIDOID, TIMESTAMPTZOID};
	Relation	leases = store_table_open(STORE_LEASES, AccessShareLock);
	Snapshot	snapshot = store_fresh_snapshot();
	PagePosition position;
	Datum		args[lengthof(argtypes)];

	purge_position_begin(&position, "purge_jobs_position", leases,
						 (max_rows + LEASES_PER_PAGE - 1) / LEASES_PER_PAGE);
	args[0] = PointerGetDatum(&position.first);
	args[1] = PointerGetDatum(&position.end);
	args[2] = TimestampTzGetDatum(before);
	owner_query_run(query, lengthof(args), argtypes, args, NULL, snapshot, copy_keys, keys);
	*at_end = position.at_end;
	purge_position_keep(&position, &position.end);
	UnregisterSnapshot(snapshot);
	table_close(leases, AccessShareLock);
}

/* Out of SPI's memory. */
static void
copy_keys(SPITupleTable *rows, uint64 count, void *arg)
{
	Keys	   *keys = (Keys *) arg;

	keys->count = (int) count;
	keys->keys = (text **) SPI_palloc(Max(count, 1) * sizeof(text *));
	for (uint64 i = 0; i < count; i++)
		keys->keys[i] = DatumGetTextP(owner_query_copy(rows, i, 1));
}

/* Raises 55006. */
static void
refuse_busy(const Job *job)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_IN_USE),
			 errmsg("job \"%s\" is in use", text_to_cstring(job->job_key))));
}
