/*-------------------------------------------------------------------------
 *
 * lease.c
 *	  Leases: who may work on a job, and for how long.
 *
 * fencing.leases is what heartbeats rewrite.  A lease is live while the clock
 * has not reached its end and its token is the fence's.  A call that moves
 * the fence need not touch the lease, and a heartbeat need not wait for a
 * commit.
 *
 * A lease of a former epoch has two sides.  Its owner was promised the time
 * until its end, and may still be at work: others wait for that, or revoke
 * it.  But for the owner it is over: no renewal, no commit, and the next
 * acquire gives a new token at once.  It may be released, so that the others
 * need not wait.
 *
 * Everything is decided from fresh data, at every isolation level; only a row
 * that is to be written must be one that the transaction's snapshot sees.
 * The clock is the server's, read under the lock that decides.  Answers that
 * change nothing are given without a lock.
 *
 * Locks, in this order: key lock, fence, lease, floor.
 *	  acquire: all without waiting; busy means held
 *	  renew, release: the lease, waiting
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
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"

/*
 * what to wait before another try when nobody knows how long it will be busy
 */
#define BUSY_RETRY_MS		100

/*
 * less than the ttl by this: a client's clock may run fast, and it has to act
 */
#define SAFETY_MIN_USECS	5000
#define SAFETY_FRACTION		100

static bool look_take(void *arg, Snapshot snapshot);
static bool look_renew(void *arg, Snapshot snapshot);
static bool look_release(void *arg, Snapshot snapshot);
static Datum lease_answer(FunctionCallInfo fcinfo, Job *job);
static bool is_callers(const Job *job);
static bool is_others(const Job *job, TimestampTz now);
static bool is_extendable(const Job *job, TimestampTz now);
static bool is_unsuperseded(const Job *job);
static bool is_renewable(const Job *job);
static bool still_unsuperseded(Job *job);
static void answer_held(Job *job, TimestampTz now);
static void answer_busy(Job *job);
static bool acquire_new(void *arg, Snapshot snapshot);
static bool acquire_existing(void *arg);
static bool lock_or_give_up(Job *job, Relation rel, HeapTuple tuple);
static bool renew_locked(void *arg);
static bool release_locked(void *arg);
static void write_lease(Job *job, int64 token, TimestampTz until);

bool		lease_notify;

PG_FUNCTION_INFO_V1(fencing_acquire);
PG_FUNCTION_INFO_V1(fencing_renew);
PG_FUNCTION_INFO_V1(fencing_release);

/*
 * fencing_acquire(job_key text, owner uuid, ttl interval)
 *	→ outcome, token, lease_until, safe_for_ms, retry_after_ms
 */
Datum
fencing_acquire(PG_FUNCTION_ARGS)
{
	Job			job = {0};

	job.job_key = args_key(fcinfo, 0, "job_key");
	args_refuse_null(fcinfo, 1, "owner");
	job.owner = *PG_GETARG_UUID_P(1);
	job.ttl = args_ttl(fcinfo, 2, "ttl");

	job_begin(&job, "fencing_acquire()");
	lease_take(&job);
	job_end(&job);

	return lease_answer(fcinfo, &job);
}

/*
 * Takes the lease for the owner and ttl of the call: acquired, renewed or
 * held.  job_begin() has been called.  Never waits.
 */
void
lease_take(Job *job)
{
	store_until_decided(look_take, job);
}

/* Takes the lease if it is free, as it is now. */
static bool
look_take(void *arg, Snapshot snapshot)
{
	Job		   *job = (Job *) arg;
	Datum		key = PointerGetDatum(job->job_key);
	TimestampTz now;

	job_look(job, snapshot);
	now = GetCurrentTimestamp();
	if (!job->fence.found)
	{
		StoreLock	lock = key_lock_make(job->fences, 1, &key, false, acquire_new, job);

		if (lock == STORE_BUSY)
			answer_busy(job);
		return lock != STORE_MOVED;
	}

	job_refuse_external(job);
	job->moved = false;
	if (is_others(job, now))
		answer_held(job, now);
	else
		(void) store_subtransaction(acquire_existing, job, NULL);
	return !job->moved;
}

/*
 * fencing_renew(job_key text, owner uuid, token bigint, ttl interval)
 *	→ outcome, token, lease_until, safe_for_ms, retry_after_ms
 */
Datum
fencing_renew(PG_FUNCTION_ARGS)
{
	Job			job = {0};

	job.job_key = args_key(fcinfo, 0, "job_key");
	args_refuse_null(fcinfo, 1, "owner");
	job.owner = *PG_GETARG_UUID_P(1);
	job.token = args_token(fcinfo, 2, "token");
	job.ttl = args_ttl(fcinfo, 3, "ttl");

	job_begin(&job, "fencing_renew()");
	store_until_decided(look_renew, &job);
	job_end(&job);

	return lease_answer(fcinfo, &job);
}

/* Extends the lease if it is still the caller's. */
static bool
look_renew(void *arg, Snapshot snapshot)
{
	Job		   *job = (Job *) arg;

	job_look(job, snapshot);
	job_refuse_external(job);
	job->outcome = FENCING_LOST;
	return !is_renewable(job) ||
		store_with_row_lock(job->leases, job->lease.tuple, snapshot, true, renew_locked, job);
}

/* The lease is locked. */
static bool
renew_locked(void *arg)
{
	Job		   *job = (Job *) arg;

	if (!still_unsuperseded(job))
		return false;
	store_require_visible(job->leases, job->lease.tuple);
	job->outcome = FENCING_RENEWED;
	write_lease(job, job->lease.token,
				Max(job->lease.until, GetCurrentTimestamp() + job->ttl));
	return true;
}

/*
 * fencing_release(job_key text, owner uuid, token bigint) → outcome
 */
Datum
fencing_release(PG_FUNCTION_ARGS)
{
	Job			job = {0};

	job.job_key = args_key(fcinfo, 0, "job_key");
	args_refuse_null(fcinfo, 1, "owner");
	job.owner = *PG_GETARG_UUID_P(1);
	job.token = args_token(fcinfo, 2, "token");

	job_begin(&job, "fencing_release()");
	store_until_decided(look_release, &job);
	job_end(&job);
	if (job.outcome == FENCING_RELEASED && !job.wrote)
		durable_wait_for_standbys();
	if (job.wrote && lease_notify)
		notify_at_commit(NOTIFY_LEASE, job.job_key);

	return args_answer(fcinfo, job.outcome, NULL, NULL);
}

/* Ends the lease if it is still the caller's. */
static bool
look_release(void *arg, Snapshot snapshot)
{
	Job		   *job = (Job *) arg;

	job_look(job, snapshot);
	job_refuse_external(job);
	job->outcome = FENCING_LOST;
	if (!is_unsuperseded(job))
		return true;
	job->outcome = FENCING_RELEASED;
	return job->lease.until == DT_NOBEGIN ||
		store_with_row_lock(job->leases, job->lease.tuple, snapshot, true, release_locked, job);
}

/* The lease is locked. */
static bool
release_locked(void *arg)
{
	Job		   *job = (Job *) arg;

	if (!still_unsuperseded(job))
		return false;
	store_require_visible(job->leases, job->lease.tuple);
	job->outcome = FENCING_RELEASED;
	/* not "now": a heartbeat that is late revives an expired lease */
	write_lease(job, job->lease.token, DT_NOBEGIN);
	return true;
}

/* The answer of acquire and renew. */
static Datum
lease_answer(FunctionCallInfo fcinfo, Job *job)
{
	Datum		values[4];
	bool		nulls[4] = {true, true, true, true};

	if (job->outcome == FENCING_ACQUIRED || job->outcome == FENCING_RENEWED)
	{
		int64		safe = job->ttl - Max(SAFETY_MIN_USECS, job->ttl / SAFETY_FRACTION);

		values[0] = Int64GetDatum(job->new_token);
		values[1] = TimestampTzGetDatum(job->until);
		values[2] = Int64GetDatum(Max(safe, 0) / 1000);
		nulls[0] = nulls[1] = nulls[2] = false;
	}
	else if (job->outcome == FENCING_HELD)
	{
		values[1] = TimestampTzGetDatum(job->until);
		nulls[1] = job->until == LEASE_UNTIL_UNKNOWN;
		values[3] = Int64GetDatum(job->retry_after_ms);
		nulls[3] = false;
	}
	return args_answer(fcinfo, job->outcome, values, nulls);
}

/* Is the lease the caller's, by its owner? */
static bool
is_callers(const Job *job)
{
	return job->lease.found &&
		memcmp(&job->lease.owner, &job->owner, sizeof(pg_uuid_t)) == 0;
}

/* Somebody else was promised the job until later than now. */
static bool
is_others(const Job *job, TimestampTz now)
{
	return job_is_live(job, now) && !is_callers(job);
}

/* The caller has it already, by a token that still counts. */
static bool
is_extendable(const Job *job, TimestampTz now)
{
	return job_is_live(job, now) && is_callers(job) &&
		job->lease.token > job->epoch_start;
}

/*
 * The caller's owner and token are the lease's, and nobody has a later token.
 */
static bool
is_unsuperseded(const Job *job)
{
	return job->fence.found && is_callers(job) &&
		job->lease.token == job->token &&
		job->fence.number == job->token;
}

/*
 * The same, and it has not ended for its owner by a release or a new epoch.
 */
static bool
is_renewable(const Job *job)
{
	return is_unsuperseded(job) && job->lease.until != DT_NOBEGIN &&
		job->token > job->epoch_start;
}

/*
 * The same under the lock of the lease: a revocation moves the fence without
 * it, maybe while we waited.
 */
static bool
still_unsuperseded(Job *job)
{
	if (!store_is_unchanged())
	{
		Snapshot	snapshot = store_fresh_snapshot();

		job_find_fence(job->fences, job->job_key, snapshot, &job->fence);
		UnregisterSnapshot(snapshot);
	}
	if (is_unsuperseded(job))
		return true;
	job->outcome = FENCING_LOST;
	return false;
}

/* Somebody else has a live lease. */
static void
answer_held(Job *job, TimestampTz now)
{
	job->outcome = FENCING_HELD;
	job->until = job->lease.until;
	/* rounded up: not a millisecond too early */
	job->retry_after_ms = (job->lease.until - now + 999) / 1000;
}

/* Somebody is just taking it, or committing. */
static void
answer_busy(Job *job)
{
	job->outcome = FENCING_HELD;
	job->until = LEASE_UNTIL_UNKNOWN;
	job->retry_after_ms = BUSY_RETRY_MS;
}

/*
 * The first token of a job.  The row is made under the key lock, and the
 * floor is read under it with a fresh snapshot: the job may have been made
 * and forgotten between our look and the lock.
 */
static bool
acquire_new(void *arg, Snapshot snapshot)
{
	Job		   *job = (Job *) arg;

	if (!store_is_unchanged())
		job_look(job, snapshot);
	if (job->fence.found)
		return false;

	job_require_same_fence(job);
	job->outcome = FENCING_ACQUIRED;
	job_write_fence(job, epoch_next_token(0, false), false);
	write_lease(job, job->new_token, GetCurrentTimestamp() + job->ttl);
	return true;
}

/*
 * Takes over, or extends the lease that the caller has already.  Runs in a
 * subtransaction of its own: of the two locks the second may not be free, and
 * a call that is told "held" must not keep the first.
 */
static bool
acquire_existing(void *arg)
{
	Job		   *job = (Job *) arg;
	bool		extend = is_extendable(job, GetCurrentTimestamp());
	TimestampTz now;

	/*
	 * extending is a renewal: it goes on beside a commit, which has the fence
	 */
	if (!extend && !lock_or_give_up(job, job->fences, job->fence.tuple))
		return false;
	if (job->lease.found && !lock_or_give_up(job, job->leases, job->lease.tuple))
		return false;

	now = GetCurrentTimestamp();
	if (extend)
	{
		job->token = job->lease.token;
		job->moved = !is_extendable(job, now) || !still_unsuperseded(job);
	}
	else						/* the clock may have been set back */
		job->moved = is_others(job, now) || is_extendable(job, now);
	if (job->moved)
		return false;

	if (job->lease.found)
		store_require_visible(job->leases, job->lease.tuple);
	if (extend)
	{
		job->outcome = FENCING_RENEWED;
		write_lease(job, job->lease.token, Max(job->lease.until, now + job->ttl));
	}
	else
	{
		store_require_visible(job->fences, job->fence.tuple);
		job->outcome = FENCING_ACQUIRED;
		job_write_fence(job, epoch_next_token(job->fence.number, false), false);
		write_lease(job, job->new_token, now + job->ttl);
	}
	return true;
}

/*
 * Locks a row without waiting; if it cannot, the answer is "held", or to look
 * again.
 */
static bool
lock_or_give_up(Job *job, Relation rel, HeapTuple tuple)
{
	switch (store_lock_row(rel, tuple, LockWaitSkip))
	{
		case STORE_LOCKED:
			return true;
		case STORE_BUSY:
			answer_busy(job);
			return false;
		case STORE_MOVED:
			job->moved = true;
			return false;
	}
	return false;
}

/*
 * Writes the lease, or makes it; what is told must survive a crash.  Who
 * acquired it stays as it was where the token does.
 */
static void
write_lease(Job *job, int64 token, TimestampTz until)
{
	Datum		values[Natts_leases];
	bool		nulls[Natts_leases] = {false};

	if (job->lease.found && job->lease.token == token)
		store_read_row(job->leases, job->lease.tuple, values, nulls);
	else
	{
		LOCAL_FCINFO(fcinfo, 0);

		InitFunctionCallInfoData(*fcinfo, NULL, 0, InvalidOid, NULL, NULL);
		values[Anum_leases_acquired_at - 1] = TimestampTzGetDatum(GetCurrentTimestamp());
		values[Anum_leases_application_name - 1] = CStringGetTextDatum(application_name);
		values[Anum_leases_client_addr - 1] = inet_client_addr(fcinfo);
		nulls[Anum_leases_client_addr - 1] = fcinfo->isnull;
	}
	values[Anum_leases_job_key - 1] = PointerGetDatum(job->job_key);
	values[Anum_leases_owner - 1] = UUIDPGetDatum(&job->owner);
	values[Anum_leases_token - 1] = Int64GetDatum(token);
	values[Anum_leases_lease_until - 1] = TimestampTzGetDatum(until);
	if (job->lease.found)
		store_update(job->leases, job->lease.tuple, values, nulls);
	else
		store_insert(job->leases, values, nulls);

	ForceSyncCommit();
	job->new_token = token;
	job->until = until;
	job->wrote = true;
}
