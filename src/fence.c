/*-------------------------------------------------------------------------
 *
 * fence.c
 *	  Fences: the highest token of a job, and who may move it.
 *
 * fencing.fences has the highest token issued per job; it is for ever, and
 * written only when the token moves.  A job's tokens are issued by its leases
 * (lease.c), or elsewhere and announced here; never both.
 *
 * What is said in lease.c about data, clock and locks holds here too.
 *
 * Locks, in this order: key lock, fence, lease, floor.
 *	  revoke: the fence, waiting
 *	  advance: the key lock (to make the row) or the fence, waiting
 *	  forget: all without waiting, busy is an error; but the floor waiting
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "job.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

/* what fencing_with_token() does when the token is current */
typedef struct TokenWork
{
	FencingJob *job;
	bool		expect_write;
	FencingWork work;
	void	   *arg;
} TokenWork;

static bool look_revoke(void *arg, Snapshot snapshot);
static bool revoke_locked(void *arg);
static bool look_advance(void *arg, Snapshot snapshot);
static bool advance_locked(void *arg);
static bool advance_new(void *arg, Snapshot snapshot);
static void find_lease(FencingJob *job, Snapshot snapshot);
static bool look_token(void *arg, Snapshot snapshot);
static void refuse_unknown(const FencingJob *job);
pg_noreturn static void job_busy(const FencingJob *job);

PG_FUNCTION_INFO_V1(fencing_revoke);
PG_FUNCTION_INFO_V1(fencing_advance);
PG_FUNCTION_INFO_V1(fencing_forget);

/*
 * fencing_revoke(job_key text, reason text) → token bigint
 */
Datum
fencing_revoke(PG_FUNCTION_ARGS)
{
	FencingJob	job = {0};

	job.job_key = fencing_arg_key(fcinfo, 0, "job_key");
	job.reason = fencing_arg_reason(fcinfo, 1, "reason");

	fencing_begin_job(&job, "fencing_revoke()");
	store_until_decided(look_revoke, &job);
	fencing_end_job(&job);

	PG_RETURN_INT64(job.new_token);
}

static bool
look_revoke(void *arg, Snapshot snapshot)
{
	FencingJob *job = (FencingJob *) arg;

	fencing_look_job(job, snapshot);
	refuse_unknown(job);
	return fencing_with_row_lock(job->fences, job->fence.tuple, snapshot, true,
								 revoke_locked, job);
}

static bool
revoke_locked(void *arg)
{
	FencingJob *job = (FencingJob *) arg;

	fencing_require_visible(job->fences, job->fence.tuple);
	fencing_write_fence(job, fencing_next_token(job->fence.number, job->fence.external),
				job->fence.external);
	fencing_record_revocation(job->job_key, job->new_token, job->reason);
	return true;
}

/*
 * fencing_advance(job_key text, token bigint) → outcome, fence bigint
 */
Datum
fencing_advance(PG_FUNCTION_ARGS)
{
	FencingJob	job = {0};
	Datum		fence;
	bool		isnull = false;

	job.job_key = fencing_arg_key(fcinfo, 0, "job_key");
	job.token = fencing_arg_token(fcinfo, 1, "token");

	fencing_begin_job(&job, "fencing_advance()");
	store_until_decided(look_advance, &job);
	fencing_end_job(&job);
	if (job.outcome == FENCING_CURRENT)
		fencing_wait_for_standbys();

	fence = Int64GetDatum(job.wrote ? job.new_token : job.fence.number);
	return fencing_answer(fcinfo, job.outcome, &fence, &isnull);
}

static bool
look_advance(void *arg, Snapshot snapshot)
{
	FencingJob *job = (FencingJob *) arg;
	Datum		key = PointerGetDatum(job->job_key);

	fencing_look_job(job, snapshot);
	if (!job->fence.found)
		return key_lock_make(job->fences, 1, &key, true, advance_new, job) == FENCING_LOCKED;
	if (!job->fence.external)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("tokens of job \"%s\" are issued by leases",
						text_to_cstring(job->job_key)),
				 errhint("Use another job_key for tokens that are issued elsewhere.")));

	/* the fence only goes up, so these two need no lock */
	job->outcome = job->token < job->fence.number ? FENCING_STALE : FENCING_CURRENT;
	return job->token <= job->fence.number ||
		fencing_with_row_lock(job->fences, job->fence.tuple, snapshot, true,
							  advance_locked, job);
}

static bool
advance_locked(void *arg)
{
	FencingJob *job = (FencingJob *) arg;

	fencing_require_visible(job->fences, job->fence.tuple);
	job->outcome = FENCING_ADVANCED;
	fencing_write_fence(job, job->token, true);
	return true;
}

/* The first token of an external job: its row is made under the key lock. */
static bool
advance_new(void *arg, Snapshot snapshot)
{
	FencingJob *job = (FencingJob *) arg;

	fencing_look_job(job, snapshot);
	if (job->fence.found)
		return false;
	fencing_require_same_fence(job);
	job->outcome = FENCING_ADVANCED;
	fencing_write_fence(job, job->token, true);
	return true;
}

/*
 * fencing_forget(job_key text) → void
 */
Datum
fencing_forget(PG_FUNCTION_ARGS)
{
	FencingJob	job = {0};
	Snapshot	snapshot;
	Relation	receipts;
	Datum		key;

	job.job_key = fencing_arg_key(fcinfo, 0, "job_key");
	key = PointerGetDatum(job.job_key);

	fencing_begin_job(&job, "fencing_forget()");
	if (gate_holds(job.fences, &key, 1) ||
		!fencing_lock_absent(job.fences, 1, &key, false))
		job_busy(&job);

	/* nobody makes the row while it is seen, and who does not see it, sees the floor */
	fencing_unlock_absent(job.fences, 1, &key);

	snapshot = fencing_fresh_snapshot();
	fencing_look_job(&job, snapshot);
	refuse_unknown(&job);
	fencing_refuse_external(&job);
	if (fencing_lock_row(job.fences, job.fence.tuple, LockWaitSkip) != FENCING_LOCKED ||
		(job.lease.found &&
		 fencing_lock_row(job.leases, job.lease.tuple, LockWaitSkip) != FENCING_LOCKED))
		job_busy(&job);
	UnregisterSnapshot(snapshot);

	if (fencing_is_live(&job, GetCurrentTimestamp()))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("job \"%s\" has a live lease", text_to_cstring(job.job_key)),
				 errhint("Release or revoke it first.")));

	fencing_require_visible(job.fences, job.fence.tuple);
	if (job.lease.found)
		fencing_require_visible(job.leases, job.lease.tuple);

	fencing_raise_floor(job.fence.number);
	fencing_delete(job.fences, job.fence.tuple);
	if (job.lease.found)
		fencing_delete(job.leases, job.lease.tuple);

	/* the fence is locked: no receipt can come after this snapshot */
	snapshot = fencing_fresh_snapshot();
	receipts = fencing_open(FENCING_RECEIPTS, RowExclusiveLock);
	fencing_delete_all(receipts, 1, &key, snapshot);
	table_close(receipts, NoLock);
	UnregisterSnapshot(snapshot);

	ForceSyncCommit();
	job.wrote = true;
	fencing_end_job(&job);
	PG_RETURN_VOID();
}

/* Opens the tables and enters the epoch, for a call that may write. */
void
fencing_begin_job(FencingJob *job, const char *function)
{
	store_begin_write(function);
	job->fences = fencing_open(FENCING_FENCES, RowExclusiveLock);
	job->leases = fencing_open(FENCING_LEASES, RowExclusiveLock);
	job->epoch_start = fencing_enter_epoch();
}

/* A call that wrote nothing leaves no lock. */
void
fencing_end_job(FencingJob *job)
{
	LOCKMODE	lockmode = job->wrote ? NoLock : RowExclusiveLock;

	if (!job->wrote)
		fencing_leave_epoch();
	table_close(job->leases, lockmode);
	table_close(job->fences, lockmode);
}

/* Reads fence and lease of the job, as the snapshot sees them. */
void
fencing_look_job(FencingJob *job, Snapshot snapshot)
{
	fencing_find_fence(job->fences, job->job_key, snapshot, &job->fence);
	find_lease(job, snapshot);
}

/* Reads the fence of a job, as the snapshot sees it. */
void
fencing_find_fence(Relation fences, const text *job_key, Snapshot snapshot, GateFence *fence)
{
	Datum		key = PointerGetDatum(job_key);

	memset(fence, 0, sizeof(*fence));
	fence->tuple = fencing_find(fences, 1, &key, snapshot);
	fence->found = fence->tuple != NULL;
	if (!fence->found)
		return;
	fence->number = DatumGetInt64(fencing_get(fences, fence->tuple, Anum_fences_token));
	fence->purged_through = DatumGetInt64(fencing_get(fences, fence->tuple,
													  Anum_fences_purged_through));
	fence->external = DatumGetBool(fencing_get(fences, fence->tuple, Anum_fences_external));
}

static void
find_lease(FencingJob *job, Snapshot snapshot)
{
	FencingLease	   *lease = &job->lease;
	Datum		key = PointerGetDatum(job->job_key);

	lease->tuple = fencing_find(job->leases, 1, &key, snapshot);
	lease->found = lease->tuple != NULL;
	if (!lease->found)
		return;
	lease->owner = *DatumGetUUIDP(fencing_get(job->leases, lease->tuple, Anum_leases_owner));
	lease->token = DatumGetInt64(fencing_get(job->leases, lease->tuple, Anum_leases_token));
	lease->until = DatumGetTimestampTz(fencing_get(job->leases, lease->tuple,
												   Anum_leases_lease_until));
}

/*
 * By this clock, does anybody hold the job?  For others; to its owner a lease of a
 * former epoch is over.
 */
bool
fencing_is_live(const FencingJob *job, TimestampTz now)
{
	return job->lease.found && job->fence.found &&
		now < job->lease.until &&
		job->lease.token == job->fence.number;
}

/* Moves the fence, or makes it; what is told must survive a crash. */
void
fencing_write_fence(FencingJob *job, int64 token, bool external)
{
	Datum		values[Natts_fences];
	bool		nulls[Natts_fences] = {false};
	int64		purged_through = job->fence.purged_through;

	/* what an earlier job of this key had is gone */
	if (!job->fence.found)
		purged_through = external ? 0 : token - 1;

	values[Anum_fences_job_key - 1] = PointerGetDatum(job->job_key);
	values[Anum_fences_token - 1] = Int64GetDatum(token);
	values[Anum_fences_purged_through - 1] = Int64GetDatum(purged_through);
	values[Anum_fences_external - 1] = BoolGetDatum(external);
	if (job->fence.found)
		fencing_update(job->fences, job->fence.tuple, values, nulls);
	else
		fencing_insert(job->fences, values, nulls);

	ForceSyncCommit();
	job->new_token = token;
	job->wrote = true;
}

/* Raises 22023 if the tokens of the job are issued elsewhere. */
void
fencing_refuse_external(const FencingJob *job)
{
	if (job->fence.found && job->fence.external)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("tokens of job \"%s\" are issued elsewhere",
						text_to_cstring(job->job_key)),
				 errhint("Use another job_key for leases.")));
}

static void
refuse_unknown(const FencingJob *job)
{
	if (!job->fence.found)
		ereport(ERROR,
				(errcode(ERRCODE_FENCING_NEVER_ISSUED),
				 errmsg("job \"%s\" does not exist", text_to_cstring(job->job_key))));
}

static void
job_busy(const FencingJob *job)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_IN_USE),
			 errmsg("job \"%s\" is in use", text_to_cstring(job->job_key))));
}

/*
 * Whether the token is the job's current one, as the snapshot sees it, without a
 * lock.  Raises LF001 if it was never issued.
 */
bool
fencing_is_current(FencingJob *job, Snapshot snapshot)
{
	GateVerdict verdict;

	fencing_look_job(job, snapshot);
	verdict = gate_judge_number(GATE_TOKENS, &job->fence, job->token, job->epoch_start);
	if (!verdict.issued)
		fencing_never_issued(job->job_key, job->token, &job->fence);
	return verdict.outcome == FENCING_COMMITTED;
}

/* Raises LF001. */
void
fencing_never_issued(const text *job_key, int64 token, const GateFence *fence)
{
	ereport(ERROR,
			(errcode(ERRCODE_FENCING_NEVER_ISSUED),
			 errmsg("token %lld of job \"%s\" was never issued here", (long long) token,
					text_to_cstring(job_key)),
			 fence->found ?
			 errdetail("The highest token of the job is %lld.", (long long) fence->number) :
			 errdetail("There is no such job."),
			 fence->found && fence->external ?
			 errhint("Announce a token by fencing_advance() before it is used.") :
			 errhint("A token counts once the transaction that called fencing_acquire() has committed. If that one has, the token is of another history of this database, as an old primary or a backup has it: call fencing_new_epoch() with above, and acquire again.")));
}

/*
 * Calls work with the fence locked, as a commit has it, if the token of the call
 * is current; else the answer is "stale".  work sets the outcome, and returns
 * whether it wrote; expect_write is for work that always does.
 * fencing_begin_job() has been called.
 */
FencingOutcome
fencing_with_token(FencingJob *job, bool expect_write, FencingWork work, void *arg)
{
	TokenWork	token_work = {job, expect_write, work, arg};

	store_until_decided(look_token, &token_work);
	if (job->outcome == FENCING_STALE)
		fencing_require_same_fence(job);
	fencing_end_job(job);
	return job->outcome;
}

static bool
look_token(void *arg, Snapshot snapshot)
{
	TokenWork  *token_work = (TokenWork *) arg;
	FencingJob *job = token_work->job;

	job->outcome = FENCING_STALE;
	return !fencing_is_current(job, snapshot) ||
		fencing_with_row_lock(job->fences, job->fence.tuple, snapshot,
							  token_work->expect_write, token_work->work, token_work->arg);
}

/*
 * Under REPEATABLE READ and SERIALIZABLE the transaction must see the token that
 * decides, or that there is none; else raises 40001.
 */
void
fencing_require_same_fence(const FencingJob *job)
{
	Snapshot	snapshot;
	GateFence	fence;

	if (!IsolationUsesXactSnapshot())
		return;
	snapshot = RegisterSnapshot(GetTransactionSnapshot());
	fencing_find_fence(job->fences, job->job_key, snapshot, &fence);
	UnregisterSnapshot(snapshot);
	if (!gate_same_fence(&fence, &job->fence, PG_INT64_MAX))
		fencing_serialization_failure();
}
