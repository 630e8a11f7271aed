/*-------------------------------------------------------------------------
 *
 * apply_external.c
 *	  Applying to a target outside this database.
 *
 * A target that cannot write conditionally is written by whoever has its lease:
 * begin hands out a version, observe says whether to write it, and after the
 * write what was read back from the target.  Nothing counts as applied without
 * that.  A writer that was paused can still overwrite such a target; then the
 * next observation finds it below its watermark, and it is repaired.
 *
 * Locks: begin: fence and lease of the job, then the row in fencing.targets,
 * without waiting; observe: the fence, then the row, waiting.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "target.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

static bool choose_version(TargetCall *call, Snapshot snapshot);
static bool hand_out(void *arg);
static Datum begin_answer(FunctionCallInfo fcinfo, TargetCall *call);
static bool observe_locked(void *arg);
static bool record_observation(void *arg);
static bool has_digest(TargetCall *call, int64 version, const bytea *digest);
static text *observed_text(TargetCall *call, const char *what, int64 expected);

PG_FUNCTION_INFO_V1(fencing_apply_begin);
PG_FUNCTION_INFO_V1(fencing_apply_observe);

/*
 * fencing_apply_begin(document_id text, target_id text, owner uuid, ttl interval)
 *	→ outcome, job_key, token, lease_until, version, content, digest, idempotency_key
 */
Datum
fencing_apply_begin(PG_FUNCTION_ARGS)
{
	TargetCall	call = {0};
	Datum		answer;

	fencing_refuse_null(fcinfo, 2, "owner");
	call.job.owner = *PG_GETARG_UUID_P(2);
	call.job.ttl = fencing_arg_ttl(fcinfo, 3, "ttl");
	target_begin(&call, fcinfo, "fencing_apply_begin()");
	call.job.job_key = fencing_target_job_key(&call.target);

	fencing_begin_job(&call.job, "fencing_apply_begin()");
	do
	{
		Snapshot	snapshot = fencing_fresh_snapshot();

		CHECK_FOR_INTERRUPTS();
		call.outcome = FENCING_DONE;
		if (choose_version(&call, snapshot))
			(void) fencing_subtransaction(hand_out, &call, NULL);
		UnregisterSnapshot(snapshot);
	} while (call.outcome == FENCING_AGAIN);

	answer = begin_answer(fcinfo, &call);
	call.job.wrote = call.wrote;
	fencing_end_job(&call.job);
	target_end(&call);
	return answer;
}

/*
 * Whether there is something to write, and what: the desired version if it is
 * above the applied one, else, if the target has lost that, the applied one
 * again.
 */
static bool
choose_version(TargetCall *call, Snapshot snapshot)
{
	FencingTarget *target = &call->target;
	int64		desired;

	target_look(call, snapshot);
	desired = target->desired != 0 ? target->desired :
		fencing_latest_version(target->document_id, snapshot);
	if (desired > target->applied && desired != target->rejected)
		call->version = desired;
	else if (target->diverged && target->applied > 0)
		call->version = target->applied;
	else
		call->version = 0;

	if (call->version > 0)
	{
		fencing_find_revision(call->revisions, target->document_id, call->version, snapshot,
							  &call->revision);
		if (!call->revision.found)
			fencing_never_published(target->document_id, call->version,
									fencing_latest_version(target->document_id, snapshot),
									_("Where a document is not published, fencing_apply() takes its content."));
	}
	return call->version > 0;
}

/*
 * Takes the lease and writes down what is handed out.  Runs in a subtransaction:
 * a lease without anything to write is given back.
 */
static bool
hand_out(void *arg)
{
	TargetCall *call = (TargetCall *) arg;
	FencingTarget *target = &call->target;
	Snapshot	snapshot;
	bool		chosen;
	FencingLock lock;

	fencing_take_lease(&call->job);
	call->outcome = call->job.outcome;
	if (call->outcome == FENCING_HELD)
		return false;

	/* whoever had it before may have written it */
	snapshot = fencing_fresh_snapshot();
	chosen = choose_version(call, snapshot);
	lock = fencing_lock_row(call->targets, target->tuple, LockWaitSkip);
	UnregisterSnapshot(snapshot);
	if (lock != FENCING_LOCKED)
	{
		call->outcome = lock == FENCING_BUSY ? FENCING_HELD : FENCING_AGAIN;
		call->job.until = 0;
		return false;
	}
	if (!chosen)
	{
		call->outcome = FENCING_DONE;
		return false;
	}

	target_set(target, Anum_targets_attempted, Int64GetDatum(call->version));
	target_set(target, Anum_targets_attempt_token, Int64GetDatum(call->job.new_token));
	target_set(target, Anum_targets_attempted_at, TimestampTzGetDatum(GetCurrentTimestamp()));
	return target_write(call);
}

static Datum
begin_answer(FunctionCallInfo fcinfo, TargetCall *call)
{
	FencingTarget *target = &call->target;
	Jsonb	   *content;
	Datum		values[7] = {0};
	bool		nulls[7] = {false, true, true, true, true, true, true};

	values[0] = PointerGetDatum(call->job.job_key);
	if (call->outcome == FENCING_DONE)
	{
		values[3] = Int64GetDatum(target->applied);
		nulls[3] = target->applied == 0;
		values[5] = PointerGetDatum(target->applied_digest);
		nulls[5] = target->applied_digest == NULL;
	}
	else if (call->outcome == FENCING_HELD)
	{
		values[2] = TimestampTzGetDatum(call->job.until);
		nulls[2] = call->job.until == 0;
	}
	else
	{
		content = fencing_revision_content(call->revisions, &call->revision);
		values[1] = Int64GetDatum(call->job.new_token);
		values[2] = TimestampTzGetDatum(call->job.until);
		values[3] = Int64GetDatum(call->version);
		values[4] = PointerGetDatum(content);
		values[5] = PointerGetDatum(call->revision.digest);
		values[6] = CStringGetTextDatum(psprintf("%s/%lld/%lld", text_to_cstring(call->job.job_key),
												 (long long) call->version,
												 (long long) target_get_bigint(target, Anum_targets_repair)));
		memset(nulls, false, sizeof(nulls));
		nulls[4] = content == NULL;
	}
	return fencing_answer(fcinfo, call->outcome, values, nulls);
}

/*
 * fencing_apply_observe(document_id text, target_id text, token bigint, version bigint,
 *						 digest bytea) → outcome
 */
Datum
fencing_apply_observe(PG_FUNCTION_ARGS)
{
	TargetCall	call = {0};
	Snapshot	snapshot;

	call.job.token = fencing_arg_token(fcinfo, 2, "token");
	call.version = PG_ARGISNULL(3) ? 0 : fencing_arg_token(fcinfo, 3, "version");
	if (PG_ARGISNULL(3) != PG_ARGISNULL(4))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", PG_ARGISNULL(3) ? "version" : "digest"),
				 errhint("Give version and digest as they were read back, both null if the target is empty.")));
	call.digest = call.version > 0 ? PG_GETARG_BYTEA_P(4) :
		fencing_make_digest(NULL, FENCING_DIGEST_VERSION);

	target_begin(&call, fcinfo, "fencing_apply_observe()");
	call.job.job_key = fencing_target_job_key(&call.target);
	snapshot = fencing_fresh_snapshot();
	target_look(&call, snapshot);
	UnregisterSnapshot(snapshot);
	fencing_begin_job(&call.job, "fencing_apply_observe()");
	call.outcome = fencing_with_token(&call.job, true, observe_locked, &call);
	target_end(&call);
	return fencing_answer(fcinfo, call.outcome, NULL, NULL);
}

/* The fence is locked: the token stays current. */
static bool
observe_locked(void *arg)
{
	TargetCall *call = (TargetCall *) arg;

	fencing_require_same_fence(&call->job);
	target_with_row(call, record_observation);
	call->job.wrote = call->wrote;
	return call->wrote;
}

/*
 * Compares what was read back with what was handed out with this token (to an
 * observer without: what is applied), and with what is applied.
 */
static bool
record_observation(void *arg)
{
	TargetCall *call = (TargetCall *) arg;
	FencingTarget *target = &call->target;
	bool		handed_out = target_get_bigint(target, Anum_targets_attempt_token) == call->job.token;
	int64		attempted = target_get_bigint(target, Anum_targets_attempted);
	int64		expected = handed_out ? attempted : target->applied;
	int64		found = call->version;
	bool		given_up;

	/* a fencing_apply() may have passed what was handed out */
	expected = Max(expected, target->applied);
	/* what an earlier holder was to write has been written, after all */
	if (found > expected && found <= attempted && has_digest(call, found, call->digest))
		expected = found;

	/* nobody is to write a version that is not desired any more */
	given_up = expected > target->applied && fencing_is_undesired(target, expected);

	/* an empty target has what a deletion asks for */
	if (found == 0)
	{
		if (expected == 0 || has_digest(call, expected, call->digest))
			found = expected;
		else if (target->applied > 0 && has_digest(call, target->applied, call->digest))
			found = target->applied;
	}

	target_set(target, Anum_targets_observed, Int64GetDatum(call->version));
	target->nulls[Anum_targets_observed - 1] = call->version == 0;
	target_set(target, Anum_targets_observed_at, TimestampTzGetDatum(GetCurrentTimestamp()));

	if (found > expected)
	{
		target_set_error(target, observed_text(call, "ahead", expected));
		call->job.outcome = FENCING_AHEAD;
	}
	else if (found < target->applied || (found > 0 && !has_digest(call, found, call->digest)))
	{
		if (handed_out && target->diverged && !given_up)
			call->job.outcome = FENCING_WRITE;	/* the repair */
		else
		{
			/* what was handed out before is not the repair */
			target_set(target, Anum_targets_attempt_token, Int64GetDatum(0));
			if (!target->diverged)
				target_set(target, Anum_targets_repair,
						   Int64GetDatum(target_get_bigint(target, Anum_targets_repair) + 1));
			target_set(target, Anum_targets_diverged, BoolGetDatum(true));
			target_set_error(target, observed_text(call, "diverged", expected));
			call->job.outcome = FENCING_DIVERGED;
		}
	}
	else
	{
		if (found > target->applied)
			fencing_set_applied(target, found, call->revision.digest,
								call->revision.digest_version, GetCurrentTimestamp());
		if (target->diverged || found == expected || given_up)
			target_set_error(target, NULL);
		target_set(target, Anum_targets_diverged, BoolGetDatum(false));
		call->job.outcome = found == expected || given_up ? FENCING_RECORDED : FENCING_WRITE;
	}
	return target_write(call);
}

/* Whether the version has this digest; if it is not the applied one, by its revision. */
static bool
has_digest(TargetCall *call, int64 version, const bytea *digest)
{
	FencingTarget *target = &call->target;
	Snapshot	snapshot;

	if (version == target->applied)
		return fencing_same_text(target->applied_digest, digest);

	snapshot = fencing_fresh_snapshot();
	fencing_find_revision(call->revisions, target->document_id, version, snapshot, &call->revision);
	UnregisterSnapshot(snapshot);
	return call->revision.found && fencing_same_text(call->revision.digest, digest);
}

/* For people: what an observation found. */
static text *
observed_text(TargetCall *call, const char *what, int64 expected)
{
	const char *found = call->version == 0 ? "nothing" :
		psprintf("version %lld", (long long) call->version);

	return cstring_to_text(psprintf("%s: read back %s, expected version %lld, applied version %lld",
									what, found, (long long) expected,
									(long long) call->target.applied));
}
