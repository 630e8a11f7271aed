/*-------------------------------------------------------------------------
 *
 * lease.c
 *	  Leases and fences: who may work on a job, and with which token.
 *
 * fencing.fences has the highest token issued per job; it is for ever and
 * written only when the token moves.  fencing.leases is what heartbeats
 * rewrite.  A lease is live while the clock has not reached its end, its token
 * is the fence's, and that token is of this epoch.  So whoever moves the fence
 * need not touch the lease, and a heartbeat need not wait for a commit.
 *
 * Everything is decided from fresh data, at every isolation level; only a row
 * that is to be written must be one that the transaction's snapshot sees.  The
 * clock is the server's, read under the lock that decides.  Answers that change
 * nothing are given without a lock.
 *
 * Locks, in this order: key lock, fence, lease, floor.
 *	  acquire: all without waiting; busy means held
 *	  renew, release: the lease, waiting
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
#include "fencing.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

/* what to wait before another try when nobody knows how long it will be busy */
#define BUSY_RETRY_MS		100

/* less than the ttl by this: a client's clock may run fast, and it has to act */
#define SAFETY_MIN_USECS	5000
#define SAFETY_FRACTION		100

typedef struct Lease
{
	bool		found;
	HeapTuple	tuple;
	pg_uuid_t	owner;
	int64		token;
	TimestampTz until;
} Lease;

/* One call: its arguments, what it sees, its answer. */
typedef struct LeaseCall
{
	/* arguments, as far as the function has them */
	text	   *job_key;
	pg_uuid_t	owner;
	int64		token;
	int64		ttl;			/* microseconds */
	text	   *reason;

	/* state */
	Relation	fences;
	Relation	leases;
	int64		epoch_start;
	GateFence	fence;
	Lease		lease;

	/* answer */
	FencingOutcome outcome;
	bool		wrote;
	bool		moved;			/* no answer yet: look again */
	int64		new_token;
	TimestampTz until;
	int64		retry_after_ms;
} LeaseCall;

static void begin_call(LeaseCall *call, const char *function);
static void end_call(LeaseCall *call);
static void look(LeaseCall *call, Snapshot snapshot);
static void find_lease(LeaseCall *call, Snapshot snapshot);
static Datum lease_answer(FunctionCallInfo fcinfo, LeaseCall *call);
static bool is_live(const LeaseCall *call, TimestampTz now);
static bool is_callers(const LeaseCall *call);
static bool is_unsuperseded(const LeaseCall *call);
static bool still_unsuperseded(LeaseCall *call);
static void answer_held(LeaseCall *call, TimestampTz now);
static void answer_busy(LeaseCall *call);
static void acquire_new(LeaseCall *call);
static bool acquire_existing(void *arg);
static bool lock_or_give_up(LeaseCall *call, Relation rel, HeapTuple tuple);
static bool renew_locked(void *arg);
static bool release_locked(void *arg);
static bool revoke_locked(void *arg);
static bool advance_locked(void *arg);
static void advance_new(LeaseCall *call);
static void require_absent(LeaseCall *call);
static void write_fence(LeaseCall *call, int64 token, bool external);
static void write_lease(LeaseCall *call, int64 token, TimestampTz until);
static void refuse_external(const LeaseCall *call);
static void refuse_unknown(const LeaseCall *call);
pg_noreturn static void job_busy(const LeaseCall *call);

PG_FUNCTION_INFO_V1(fencing_acquire);
PG_FUNCTION_INFO_V1(fencing_renew);
PG_FUNCTION_INFO_V1(fencing_release);
PG_FUNCTION_INFO_V1(fencing_revoke);
PG_FUNCTION_INFO_V1(fencing_advance);
PG_FUNCTION_INFO_V1(fencing_forget);

/*
 * fencing_acquire(job_key text, owner uuid, ttl interval)
 *	→ outcome, token, lease_until, safe_for_ms, retry_after_ms
 */
Datum
fencing_acquire(PG_FUNCTION_ARGS)
{
	LeaseCall	call = {0};

	call.job_key = fencing_arg_key(fcinfo, 0, "job_key");
	fencing_refuse_null(fcinfo, 1, "owner");
	call.owner = *PG_GETARG_UUID_P(1);
	call.ttl = fencing_arg_ttl(fcinfo, 2, "ttl");

	begin_call(&call, "fencing_acquire()");
	do
	{
		Snapshot	snapshot = fencing_fresh_snapshot();
		TimestampTz now;

		CHECK_FOR_INTERRUPTS();
		call.moved = false;
		look(&call, snapshot);
		now = GetCurrentTimestamp();
		if (!call.fence.found)
			acquire_new(&call);
		else
		{
			refuse_external(&call);
			if (is_live(&call, now) && !is_callers(&call))
				answer_held(&call, now);
			else
				(void) fencing_subtransaction(acquire_existing, &call, NULL);
		}
		UnregisterSnapshot(snapshot);
	} while (call.moved);
	end_call(&call);

	return lease_answer(fcinfo, &call);
}

/*
 * fencing_renew(job_key text, owner uuid, token bigint, ttl interval)
 *	→ outcome, token, lease_until, safe_for_ms, retry_after_ms
 */
Datum
fencing_renew(PG_FUNCTION_ARGS)
{
	LeaseCall	call = {0};

	call.job_key = fencing_arg_key(fcinfo, 0, "job_key");
	fencing_refuse_null(fcinfo, 1, "owner");
	call.owner = *PG_GETARG_UUID_P(1);
	call.token = fencing_arg_token(fcinfo, 2, "token");
	call.ttl = fencing_arg_ttl(fcinfo, 3, "ttl");

	begin_call(&call, "fencing_renew()");
	do
	{
		Snapshot	snapshot = fencing_fresh_snapshot();

		CHECK_FOR_INTERRUPTS();
		look(&call, snapshot);
		refuse_external(&call);
		call.outcome = FENCING_LOST;
		call.moved = is_unsuperseded(&call) && call.lease.until != DT_NOBEGIN &&
			!fencing_with_row_lock(call.leases, call.lease.tuple, true, renew_locked, &call);
		UnregisterSnapshot(snapshot);
	} while (call.moved);
	end_call(&call);

	return lease_answer(fcinfo, &call);
}

static bool
renew_locked(void *arg)
{
	LeaseCall  *call = (LeaseCall *) arg;

	if (!still_unsuperseded(call))
		return false;
	fencing_require_visible(call->leases, call->lease.tuple);
	call->outcome = FENCING_RENEWED;
	write_lease(call, call->lease.token,
				Max(call->lease.until, GetCurrentTimestamp() + call->ttl));
	return true;
}

/*
 * fencing_release(job_key text, owner uuid, token bigint) → outcome
 */
Datum
fencing_release(PG_FUNCTION_ARGS)
{
	LeaseCall	call = {0};

	call.job_key = fencing_arg_key(fcinfo, 0, "job_key");
	fencing_refuse_null(fcinfo, 1, "owner");
	call.owner = *PG_GETARG_UUID_P(1);
	call.token = fencing_arg_token(fcinfo, 2, "token");

	begin_call(&call, "fencing_release()");
	do
	{
		Snapshot	snapshot = fencing_fresh_snapshot();

		CHECK_FOR_INTERRUPTS();
		look(&call, snapshot);
		refuse_external(&call);
		call.moved = false;
		if (!is_unsuperseded(&call))
			call.outcome = FENCING_LOST;
		else if (call.lease.until == DT_NOBEGIN)
			call.outcome = FENCING_RELEASED;
		else
			call.moved = !fencing_with_row_lock(call.leases, call.lease.tuple, true,
												release_locked, &call);
		UnregisterSnapshot(snapshot);
	} while (call.moved);
	end_call(&call);

	return fencing_answer(fcinfo, call.outcome, NULL, NULL);
}

static bool
release_locked(void *arg)
{
	LeaseCall  *call = (LeaseCall *) arg;

	if (!still_unsuperseded(call))
		return false;
	fencing_require_visible(call->leases, call->lease.tuple);
	call->outcome = FENCING_RELEASED;
	/* not "now": a heartbeat that is late revives an expired lease */
	write_lease(call, call->lease.token, DT_NOBEGIN);
	return true;
}

/*
 * fencing_revoke(job_key text, reason text) → token bigint
 */
Datum
fencing_revoke(PG_FUNCTION_ARGS)
{
	LeaseCall	call = {0};

	call.job_key = fencing_arg_key(fcinfo, 0, "job_key");
	call.reason = fencing_arg_reason(fcinfo, 1, "reason");

	begin_call(&call, "fencing_revoke()");
	do
	{
		Snapshot	snapshot = fencing_fresh_snapshot();

		CHECK_FOR_INTERRUPTS();
		look(&call, snapshot);
		refuse_unknown(&call);
		call.moved = !fencing_with_row_lock(call.fences, call.fence.tuple, true,
											revoke_locked, &call);
		UnregisterSnapshot(snapshot);
	} while (call.moved);
	end_call(&call);

	PG_RETURN_INT64(call.new_token);
}

static bool
revoke_locked(void *arg)
{
	LeaseCall  *call = (LeaseCall *) arg;

	fencing_require_visible(call->fences, call->fence.tuple);
	write_fence(call, fencing_next_token(call->fence.number, call->fence.external),
				call->fence.external);
	fencing_record_revocation(call->job_key, call->new_token, call->reason);
	return true;
}

/*
 * fencing_advance(job_key text, token bigint) → outcome, fence bigint
 */
Datum
fencing_advance(PG_FUNCTION_ARGS)
{
	LeaseCall	call = {0};
	Datum		fence;
	bool		isnull = false;

	call.job_key = fencing_arg_key(fcinfo, 0, "job_key");
	call.token = fencing_arg_token(fcinfo, 1, "token");

	begin_call(&call, "fencing_advance()");
	do
	{
		Snapshot	snapshot = fencing_fresh_snapshot();

		CHECK_FOR_INTERRUPTS();
		call.moved = false;
		look(&call, snapshot);
		if (!call.fence.found)
			advance_new(&call);
		else
		{
			if (!call.fence.external)
				ereport(ERROR,
						(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						 errmsg("tokens of job \"%s\" are issued by leases",
								text_to_cstring(call.job_key)),
						 errhint("Use another job_key for tokens that are issued elsewhere.")));

			/* the fence only goes up, so these two need no lock */
			if (call.token < call.fence.number)
				call.outcome = FENCING_STALE;
			else if (call.token == call.fence.number)
				call.outcome = FENCING_CURRENT;
			else
				call.moved = !fencing_with_row_lock(call.fences, call.fence.tuple, true,
													advance_locked, &call);
		}
		UnregisterSnapshot(snapshot);
	} while (call.moved);
	end_call(&call);

	fence = Int64GetDatum(call.wrote ? call.new_token : call.fence.number);
	return fencing_answer(fcinfo, call.outcome, &fence, &isnull);
}

static bool
advance_locked(void *arg)
{
	LeaseCall  *call = (LeaseCall *) arg;

	fencing_require_visible(call->fences, call->fence.tuple);
	call->outcome = FENCING_ADVANCED;
	write_fence(call, call->token, true);
	return true;
}

/* The first token of an external job: its row is made under the key lock. */
static void
advance_new(LeaseCall *call)
{
	Snapshot	snapshot;

	(void) fencing_key_lock(call->job_key, true);
	snapshot = fencing_fresh_snapshot();
	look(call, snapshot);
	UnregisterSnapshot(snapshot);
	if (call->fence.found)
	{
		fencing_key_unlock(call->job_key);
		call->moved = true;
		return;
	}
	require_absent(call);
	call->outcome = FENCING_ADVANCED;
	write_fence(call, call->token, true);
}

/*
 * fencing_forget(job_key text) → void
 */
Datum
fencing_forget(PG_FUNCTION_ARGS)
{
	LeaseCall	call = {0};
	Snapshot	snapshot;
	Relation	receipts;
	Datum		key;

	call.job_key = fencing_arg_key(fcinfo, 0, "job_key");
	key = PointerGetDatum(call.job_key);

	begin_call(&call, "fencing_forget()");
	if (fencing_commit_in_progress(call.job_key) || !fencing_key_lock(call.job_key, false))
		job_busy(&call);

	snapshot = fencing_fresh_snapshot();
	look(&call, snapshot);
	refuse_unknown(&call);
	refuse_external(&call);
	if (fencing_lock_row(call.fences, call.fence.tuple, LockWaitSkip) != FENCING_LOCKED ||
		(call.lease.found &&
		 fencing_lock_row(call.leases, call.lease.tuple, LockWaitSkip) != FENCING_LOCKED))
		job_busy(&call);
	UnregisterSnapshot(snapshot);

	if (is_live(&call, GetCurrentTimestamp()))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("job \"%s\" has a live lease", text_to_cstring(call.job_key)),
				 errhint("Release or revoke it first.")));

	fencing_require_visible(call.fences, call.fence.tuple);
	if (call.lease.found)
		fencing_require_visible(call.leases, call.lease.tuple);

	fencing_raise_floor(call.fence.number);
	fencing_delete(call.fences, call.fence.tuple);
	if (call.lease.found)
		fencing_delete(call.leases, call.lease.tuple);

	/* the fence is locked: no receipt can come after this snapshot */
	snapshot = fencing_fresh_snapshot();
	receipts = fencing_open(FENCING_RECEIPTS, RowExclusiveLock);
	fencing_delete_all(receipts, 1, &key, snapshot);
	table_close(receipts, NoLock);
	UnregisterSnapshot(snapshot);

	ForceSyncCommit();
	call.wrote = true;
	end_call(&call);
	PG_RETURN_VOID();
}

/* Opens the tables and enters the epoch, for a call that may write. */
static void
begin_call(LeaseCall *call, const char *function)
{
	PreventCommandIfReadOnly(function);
	PreventCommandIfParallelMode(function);
	call->fences = fencing_open(FENCING_FENCES, RowExclusiveLock);
	call->leases = fencing_open(FENCING_LEASES, RowExclusiveLock);
	call->epoch_start = fencing_enter_epoch();
}

/* A call that wrote nothing leaves no lock. */
static void
end_call(LeaseCall *call)
{
	LOCKMODE	lockmode = call->wrote ? NoLock : RowExclusiveLock;

	if (!call->wrote)
		fencing_leave_epoch();
	table_close(call->leases, lockmode);
	table_close(call->fences, lockmode);
}

/* Reads fence and lease of the job, as the snapshot sees them. */
static void
look(LeaseCall *call, Snapshot snapshot)
{
	fencing_find_fence(call->fences, call->job_key, snapshot, &call->fence);
	find_lease(call, snapshot);
}

/* Reads the fence of a job, as the snapshot sees it. */
void
fencing_find_fence(Relation fences, const text *job_key, Snapshot snapshot, GateFence *fence)
{
	Datum		key = PointerGetDatum(job_key);

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
find_lease(LeaseCall *call, Snapshot snapshot)
{
	Lease	   *lease = &call->lease;
	Datum		key = PointerGetDatum(call->job_key);

	lease->tuple = fencing_find(call->leases, 1, &key, snapshot);
	lease->found = lease->tuple != NULL;
	if (!lease->found)
		return;
	lease->owner = *DatumGetUUIDP(fencing_get(call->leases, lease->tuple, Anum_leases_owner));
	lease->token = DatumGetInt64(fencing_get(call->leases, lease->tuple, Anum_leases_token));
	lease->until = DatumGetTimestampTz(fencing_get(call->leases, lease->tuple,
												   Anum_leases_lease_until));
}

/* The answer of acquire and renew. */
static Datum
lease_answer(FunctionCallInfo fcinfo, LeaseCall *call)
{
	Datum		values[4];
	bool		nulls[4] = {true, true, true, true};

	if (call->outcome == FENCING_ACQUIRED || call->outcome == FENCING_RENEWED)
	{
		int64		safe = call->ttl - Max(SAFETY_MIN_USECS, call->ttl / SAFETY_FRACTION);

		values[0] = Int64GetDatum(call->new_token);
		values[1] = TimestampTzGetDatum(call->until);
		values[2] = Int64GetDatum(Max(safe, 0) / 1000);
		nulls[0] = nulls[1] = nulls[2] = false;
	}
	else if (call->outcome == FENCING_HELD)
	{
		values[1] = TimestampTzGetDatum(call->until);
		nulls[1] = call->until == 0;
		values[3] = Int64GetDatum(call->retry_after_ms);
		nulls[3] = false;
	}
	return fencing_answer(fcinfo, call->outcome, values, nulls);
}

static bool
is_live(const LeaseCall *call, TimestampTz now)
{
	return call->lease.found && call->fence.found &&
		now < call->lease.until &&
		call->lease.token == call->fence.number &&
		call->lease.token > call->epoch_start;
}

static bool
is_callers(const LeaseCall *call)
{
	return call->lease.found &&
		memcmp(&call->lease.owner, &call->owner, sizeof(pg_uuid_t)) == 0;
}

/* The caller's owner and token are the lease's, and nobody has a later token. */
static bool
is_unsuperseded(const LeaseCall *call)
{
	return call->fence.found && is_callers(call) &&
		call->lease.token == call->token &&
		call->fence.number == call->token &&
		call->token > call->epoch_start;
}

/*
 * The same under the lock of the lease: a revocation moves the fence without
 * it, maybe while we waited.
 */
static bool
still_unsuperseded(LeaseCall *call)
{
	Snapshot	snapshot = fencing_fresh_snapshot();

	fencing_find_fence(call->fences, call->job_key, snapshot, &call->fence);
	UnregisterSnapshot(snapshot);
	if (is_unsuperseded(call))
		return true;
	call->outcome = FENCING_LOST;
	return false;
}

/* Somebody else has a live lease. */
static void
answer_held(LeaseCall *call, TimestampTz now)
{
	call->outcome = FENCING_HELD;
	call->until = call->lease.until;
	/* rounded up: not a millisecond too early */
	call->retry_after_ms = (call->lease.until - now + 999) / 1000;
}

/* Somebody is just taking it, or committing. */
static void
answer_busy(LeaseCall *call)
{
	call->outcome = FENCING_HELD;
	call->until = 0;
	call->retry_after_ms = BUSY_RETRY_MS;
}

/*
 * The first token of a job.  The row is made under the key lock, and the floor
 * is read under it with a fresh snapshot: the job may have been made and
 * forgotten between our look and the lock.
 */
static void
acquire_new(LeaseCall *call)
{
	Snapshot	snapshot;

	if (!fencing_key_lock(call->job_key, false))
	{
		answer_busy(call);
		return;
	}

	snapshot = fencing_fresh_snapshot();
	look(call, snapshot);
	UnregisterSnapshot(snapshot);
	if (call->fence.found)
	{
		fencing_key_unlock(call->job_key);
		call->moved = true;
		return;
	}

	require_absent(call);
	call->outcome = FENCING_ACQUIRED;
	write_fence(call, fencing_next_token(0, false), false);
	write_lease(call, call->new_token, GetCurrentTimestamp() + call->ttl);
}

/*
 * Takes over, or extends the lease that the caller has already.  Runs in a
 * subtransaction of its own: of the two locks the second may not be free, and
 * whoever is told "held" must not keep the first.
 */
static bool
acquire_existing(void *arg)
{
	LeaseCall  *call = (LeaseCall *) arg;
	bool		extend = is_live(call, GetCurrentTimestamp());
	TimestampTz now;

	/* extending is a renewal: it goes on beside a commit, which has the fence */
	if (!extend && !lock_or_give_up(call, call->fences, call->fence.tuple))
		return false;
	if (call->lease.found && !lock_or_give_up(call, call->leases, call->lease.tuple))
		return false;

	now = GetCurrentTimestamp();
	if (extend)
	{
		call->token = call->lease.token;
		call->moved = !is_live(call, now) || !still_unsuperseded(call);
	}
	else
		call->moved = is_live(call, now);	/* the clock was set back */
	if (call->moved)
		return false;

	if (call->lease.found)
		fencing_require_visible(call->leases, call->lease.tuple);
	if (extend)
	{
		call->outcome = FENCING_RENEWED;
		write_lease(call, call->lease.token, Max(call->lease.until, now + call->ttl));
	}
	else
	{
		fencing_require_visible(call->fences, call->fence.tuple);
		call->outcome = FENCING_ACQUIRED;
		write_fence(call, fencing_next_token(call->fence.number, false), false);
		write_lease(call, call->new_token, now + call->ttl);
	}
	return true;
}

/* Locks a row without waiting; if it cannot, the answer is "held", or to look again. */
static bool
lock_or_give_up(LeaseCall *call, Relation rel, HeapTuple tuple)
{
	switch (fencing_lock_row(rel, tuple, LockWaitSkip))
	{
		case FENCING_LOCKED:
			return true;
		case FENCING_BUSY:
			answer_busy(call);
			return false;
		case FENCING_MOVED:
			call->moved = true;
			return false;
	}
	return false;
}

/*
 * Before a fence row is inserted: a transaction whose snapshot still sees one
 * would have two.
 */
static void
require_absent(LeaseCall *call)
{
	Snapshot	snapshot;
	GateFence	fence;

	if (!IsolationUsesXactSnapshot())
		return;

	snapshot = RegisterSnapshot(GetTransactionSnapshot());
	fencing_find_fence(call->fences, call->job_key, snapshot, &fence);
	UnregisterSnapshot(snapshot);
	if (fence.found)
		fencing_serialization_failure();
}

/* Moves the fence, or makes it; what is told must survive a crash. */
static void
write_fence(LeaseCall *call, int64 token, bool external)
{
	Datum		values[Natts_fences];
	bool		nulls[Natts_fences] = {false};
	int64		purged_through = call->fence.purged_through;

	/* what an earlier job of this key had is gone */
	if (!call->fence.found)
		purged_through = external ? 0 : token - 1;

	values[Anum_fences_job_key - 1] = PointerGetDatum(call->job_key);
	values[Anum_fences_token - 1] = Int64GetDatum(token);
	values[Anum_fences_purged_through - 1] = Int64GetDatum(purged_through);
	values[Anum_fences_external - 1] = BoolGetDatum(external);
	if (call->fence.found)
		fencing_update(call->fences, call->fence.tuple, values);
	else
		fencing_insert(call->fences, values, nulls);

	ForceSyncCommit();
	call->new_token = token;
	call->wrote = true;
}

static void
write_lease(LeaseCall *call, int64 token, TimestampTz until)
{
	Datum		values[Natts_leases];
	bool		nulls[Natts_leases] = {false};

	values[Anum_leases_job_key - 1] = PointerGetDatum(call->job_key);
	values[Anum_leases_owner - 1] = UUIDPGetDatum(&call->owner);
	values[Anum_leases_token - 1] = Int64GetDatum(token);
	values[Anum_leases_lease_until - 1] = TimestampTzGetDatum(until);
	if (call->lease.found)
		fencing_update(call->leases, call->lease.tuple, values);
	else
		fencing_insert(call->leases, values, nulls);

	call->new_token = token;
	call->until = until;
	call->wrote = true;
}

static void
refuse_external(const LeaseCall *call)
{
	if (call->fence.found && call->fence.external)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("tokens of job \"%s\" are issued elsewhere",
						text_to_cstring(call->job_key)),
				 errhint("Use another job_key for leases.")));
}

static void
refuse_unknown(const LeaseCall *call)
{
	if (!call->fence.found)
		ereport(ERROR,
				(errcode(ERRCODE_FENCING_NEVER_ISSUED),
				 errmsg("job \"%s\" does not exist", text_to_cstring(call->job_key))));
}

static void
job_busy(const LeaseCall *call)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_IN_USE),
			 errmsg("job \"%s\" is in use", text_to_cstring(call->job_key))));
}
