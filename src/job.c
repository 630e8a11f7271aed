/*-------------------------------------------------------------------------
 *
 * job.c
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

/* what job_with_token() does when the token is current */
typedef struct TokenWork
{
	Job		   *job;
	bool		expect_write;
	StoreWork	work;
	void	   *arg;
} TokenWork;

static bool look_revoke(void *arg, Snapshot snapshot);
static bool revoke_locked(void *arg);
static bool look_advance(void *arg, Snapshot snapshot);
static bool advance_locked(void *arg);
static bool advance_new(void *arg, Snapshot snapshot);
static void find_lease(Job *job, Snapshot snapshot);
static bool look_token(void *arg, Snapshot snapshot);

PG_FUNCTION_INFO_V1(fencing_revoke);
PG_FUNCTION_INFO_V1(fencing_advance);

/*
 * fencing_revoke(job_key text, reason text) → token bigint
 */
Datum
fencing_revoke(PG_FUNCTION_ARGS)
{
	Job			job = {0};

	job.job_key = args_key(fcinfo, 0, "job_key");
	job.reason = args_reason(fcinfo, 1, "reason");

	job_begin(&job, "fencing_revoke()");
	store_until_decided(look_revoke, &job);
	job_end(&job);
	if (lease_notify && !job.fence.external)
		notify_at_commit(NOTIFY_LEASE, job.job_key);

	PG_RETURN_INT64(job.new_token);
}

/* Moves the fence as it is now. */
static bool
look_revoke(void *arg, Snapshot snapshot)
{
	Job		   *job = (Job *) arg;

	job_look(job, snapshot);
	job_refuse_unknown(job);
	return store_with_row_lock(job->fences, job->fence.tuple, snapshot, true,
							   revoke_locked, job);
}

/* The fence is locked. */
static bool
revoke_locked(void *arg)
{
	Job		   *job = (Job *) arg;

	store_require_visible(job->fences, job->fence.tuple);
	job_write_fence(job, epoch_next_token(job->fence.number, job->fence.external),
					job->fence.external);
	epoch_record_revocation(job->job_key, job->new_token, job->reason);
	return true;
}

/*
 * fencing_advance(job_key text, token bigint) → outcome, fence bigint
 */
Datum
fencing_advance(PG_FUNCTION_ARGS)
{
	Job			job = {0};
	Datum		fence;
	bool		isnull = false;

	job.job_key = args_key(fcinfo, 0, "job_key");
	job.token = args_token(fcinfo, 1, "token");

	job_begin(&job, "fencing_advance()");
	store_until_decided(look_advance, &job);
	job_end(&job);
	if (job.outcome == FENCING_CURRENT)
		durable_wait_for_standbys();

	fence = Int64GetDatum(job.wrote ? job.new_token : job.fence.number);
	return args_answer(fcinfo, job.outcome, &fence, &isnull);
}

/* Raises the fence, makes it, or says where it is. */
static bool
look_advance(void *arg, Snapshot snapshot)
{
	Job		   *job = (Job *) arg;
	Datum		key = PointerGetDatum(job->job_key);

	job_look(job, snapshot);
	if (!job->fence.found)
		return key_lock_make(job->fences, 1, &key, true, advance_new, job) == STORE_LOCKED;
	if (!job->fence.external)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("tokens of job \"%s\" are issued by leases",
						text_to_cstring(job->job_key)),
				 errhint("Use another job_key for tokens that are issued elsewhere.")));

	/* the fence only goes up, so these two need no lock */
	job->outcome = job->token < job->fence.number ? FENCING_STALE : FENCING_CURRENT;
	return job->token <= job->fence.number ||
		store_with_row_lock(job->fences, job->fence.tuple, snapshot, true,
							advance_locked, job);
}

/* The fence is locked, and below the token. */
static bool
advance_locked(void *arg)
{
	Job		   *job = (Job *) arg;

	store_require_visible(job->fences, job->fence.tuple);
	job->outcome = FENCING_ADVANCED;
	job_write_fence(job, job->token, true);
	return true;
}

/* The first token of an external job: its row is made under the key lock. */
static bool
advance_new(void *arg, Snapshot snapshot)
{
	Job		   *job = (Job *) arg;

	job_look(job, snapshot);
	if (job->fence.found)
		return false;
	job_require_same_fence(job);
	job->outcome = FENCING_ADVANCED;
	job_write_fence(job, job->token, true);
	return true;
}

/* Opens the tables and enters the epoch, for a call that may write. */
void
job_begin(Job *job, const char *function)
{
	store_begin_write(function);
	job->fences = store_table_open(STORE_FENCES, RowExclusiveLock);
	job->leases = store_table_open(STORE_LEASES, RowExclusiveLock);
	job->epoch_start = epoch_enter();
}

/* A call that wrote nothing leaves no lock. */
void
job_end(Job *job)
{
	LOCKMODE	lockmode = job->wrote ? NoLock : RowExclusiveLock;

	if (!job->wrote)
		epoch_leave();
	table_close(job->leases, lockmode);
	table_close(job->fences, lockmode);
}

/* Reads fence and lease of the job, as the snapshot sees them. */
void
job_look(Job *job, Snapshot snapshot)
{
	job_find_fence(job->fences, job->job_key, snapshot, &job->fence);
	find_lease(job, snapshot);
}

/* Reads the fence of a job, as the snapshot sees it. */
void
job_find_fence(Relation fences, const text *job_key, Snapshot snapshot, GateFence *fence)
{
	Datum		key = PointerGetDatum(job_key);

	memset(fence, 0, sizeof(*fence));
	fence->tuple = store_find(fences, 1, &key, snapshot);
	fence->found = fence->tuple != NULL;
	if (!fence->found)
		return;
	fence->number = DatumGetInt64(store_get(fences, fence->tuple, Anum_fences_token));
	fence->purged_through = DatumGetInt64(store_get(fences, fence->tuple,
													Anum_fences_purged_through));
	fence->external = DatumGetBool(store_get(fences, fence->tuple, Anum_fences_external));
}

/* Reads the lease of a job, as the snapshot sees it. */
static void
find_lease(Job *job, Snapshot snapshot)
{
	Lease	   *lease = &job->lease;
	Datum		key = PointerGetDatum(job->job_key);

	lease->tuple = store_find(job->leases, 1, &key, snapshot);
	lease->found = lease->tuple != NULL;
	if (!lease->found)
		return;
	lease->owner = *DatumGetUUIDP(store_get(job->leases, lease->tuple, Anum_leases_owner));
	lease->token = DatumGetInt64(store_get(job->leases, lease->tuple, Anum_leases_token));
	lease->until = DatumGetTimestampTz(store_get(job->leases, lease->tuple,
												 Anum_leases_lease_until));
}

/*
 * By this clock, does anybody hold the job?  For others; to its owner a lease
 * of a former epoch is over.
 */
bool
job_is_live(const Job *job, TimestampTz now)
{
	return job->lease.found && job->fence.found &&
		now < job->lease.until &&
		job->lease.token == job->fence.number;
}

/* Moves the fence, or makes it; what is told must survive a crash. */
void
job_write_fence(Job *job, int64 token, bool external)
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
		store_update(job->fences, job->fence.tuple, values, nulls);
	else
		store_insert(job->fences, values, nulls);

	ForceSyncCommit();
	job->new_token = token;
	job->wrote = true;
}

/* Raises 22023 if the tokens of the job are issued elsewhere. */
void
job_refuse_external(const Job *job)
{
	if (job->fence.found && job->fence.external)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("tokens of job \"%s\" are issued elsewhere",
						text_to_cstring(job->job_key)),
				 errhint("Use another job_key for leases.")));
}

/* Raises LF001. */
void
job_refuse_unknown(const Job *job)
{
	if (!job->fence.found)
		ereport(ERROR,
				(errcode(ERRCODE_FENCING_NEVER_ISSUED),
				 errmsg("job \"%s\" does not exist", text_to_cstring(job->job_key))));
}

/*
 * Whether the token is the job's current one, as the snapshot sees it,
 * without a lock.  Raises LF001 if it was never issued.
 */
bool
job_is_current(Job *job, Snapshot snapshot)
{
	GateVerdict verdict;

	job_look(job, snapshot);
	verdict = gate_judge_number(GATE_TOKENS, &job->fence, job->token, job->epoch_start);
	if (!verdict.issued)
		job_never_issued(job->job_key, job->token, &job->fence);
	return verdict.outcome == FENCING_COMMITTED;
}

/* Raises LF001. */
void
job_never_issued(const text *job_key, int64 token, const GateFence *fence)
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
 * Calls work with the fence locked, as a commit has it, if the token of the
 * call is current; else the answer is "stale".  work sets the outcome, and
 * returns whether it wrote; expect_write is for work that always does.
 * job_begin() has been called.
 */
FencingOutcome
job_with_token(Job *job, bool expect_write, StoreWork work, void *arg)
{
	TokenWork	token_work = {job, expect_write, work, arg};

	store_until_decided(look_token, &token_work);
	if (job->outcome == FENCING_STALE)
		job_require_same_fence(job);
	job_end(job);
	return job->outcome;
}

/* Locks the fence if the token is the current one. */
static bool
look_token(void *arg, Snapshot snapshot)
{
	TokenWork  *token_work = (TokenWork *) arg;
	Job		   *job = token_work->job;

	job->outcome = FENCING_STALE;
	return !job_is_current(job, snapshot) ||
		store_with_row_lock(job->fences, job->fence.tuple, snapshot,
							token_work->expect_write, token_work->work, token_work->arg);
}

/*
 * Under REPEATABLE READ and SERIALIZABLE the transaction must see the token
 * that decides, or that there is none; else raises 40001.
 */
void
job_require_same_fence(const Job *job)
{
	Snapshot	snapshot;
	GateFence	fence;

	if (!IsolationUsesXactSnapshot())
		return;
	snapshot = RegisterSnapshot(GetTransactionSnapshot());
	job_find_fence(job->fences, job->job_key, snapshot, &fence);
	UnregisterSnapshot(snapshot);
	if (!gate_same_fence(&fence, &job->fence, PG_INT64_MAX))
		store_serialization_failure();
}
