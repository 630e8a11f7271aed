/*-------------------------------------------------------------------------
 *
 * apply_external.c
 *	  Applying to a target outside this database.
 *
 * A target that cannot write conditionally is written by the holder of its
 * lease: begin hands out a version, observe says whether to write it, and
 * after the write what was read back from the target.  Nothing counts as
 * applied without that.  A writer that was paused can still overwrite such a
 * target; then the next observation finds it below its watermark, and it is
 * repaired.
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
#include "digest.h"
#include "miscadmin.h"
#include "publish.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

/*
 * What was read back, against what the target is asked to have and has had.
 */
typedef enum ReadBack
{
	READ_AHEAD,					/* above what it is asked to have */
	READ_LOST,					/* below what it has had, or another content */
	READ_BEHIND,				/* not yet what it is asked to have */
	READ_EXPECTED				/* that */
} ReadBack;

typedef struct Observation
{
	int64		found;			/* version, or PUBLISH_NO_VERSION */
	int64		expected;		/* what the target is asked to have */
	ReadBack	read_back;
	bool		desired;		/* it is still to have that */
	bool		repairing;		/* a repair has been handed out with this
								 * token */
} Observation;

static bool look_begin(void *arg, Snapshot snapshot);
static bool choose_version(TargetCall *call, Snapshot snapshot);
static bool hand_out(void *arg);
static Datum begin_answer(FunctionCallInfo fcinfo, TargetCall *call);
static bool observe_locked(void *arg);
static bool record_observation(void *arg);
static Observation observe(TargetCall *call);
static FencingOutcome judge_observation(const Observation *seen);
static void ask_for_repair(TargetCall *call, int64 expected);
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

	args_refuse_null(fcinfo, 2, "owner");
	call.job.owner = *PG_GETARG_UUID_P(2);
	call.job.ttl = args_ttl(fcinfo, 3, "ttl");
	target_begin(&call, fcinfo, "fencing_apply_begin()");
	call.job.job_key = target_job_key(&call.target);

	job_begin(&call.job, "fencing_apply_begin()");
	store_until_decided(look_begin, &call);
	answer = begin_answer(fcinfo, &call);
	call.job.wrote = call.wrote;
	job_end(&call.job);
	target_end(&call);
	if (call.outcome == FENCING_DONE)
		durable_wait_for_standbys();
	return answer;
}

/* Hands out what there is to write, if there is something. */
static bool
look_begin(void *arg, Snapshot snapshot)
{
	TargetCall *call = (TargetCall *) arg;

	call->outcome = FENCING_DONE;
	if (choose_version(call, snapshot))
		(void) store_subtransaction(hand_out, call, NULL);
	return call->outcome != FENCING_AGAIN;
}

/*
 * Whether there is something to write, and what: the desired version if it is
 * above the applied one, else, if the target has lost that, the applied one
 * again.
 */
static bool
choose_version(TargetCall *call, Snapshot snapshot)
{
	Target	   *target = &call->target;
	int64		desired;

	target_look(call, snapshot);
	desired = target->desired != TARGET_LATEST ? target->desired :
		publish_latest_version(target->document_id, snapshot);
	if (desired > target->applied && !target_is_undesired(target, desired))
		call->version = desired;
	else if (target->diverged && target->applied != PUBLISH_NO_VERSION)
		call->version = target->applied;
	else
		call->version = PUBLISH_NO_VERSION;

	if (call->version != PUBLISH_NO_VERSION)
	{
		publish_find_revision(call->revisions, target->document_id, call->version, snapshot,
							  &call->revision);
		if (!call->revision.found)
			publish_never_published(target->document_id, call->version,
									publish_latest_version(target->document_id, snapshot),
									_("Where a document is not published, fencing_apply() takes its content."));
	}
	return call->version != PUBLISH_NO_VERSION;
}

/*
 * Takes the lease and writes down what is handed out.  Runs in a
 * subtransaction: a lease without anything to write is given back.
 */
static bool
hand_out(void *arg)
{
	TargetCall *call = (TargetCall *) arg;
	Target	   *target = &call->target;
	Snapshot	snapshot;
	bool		chosen;
	StoreLock	lock;

	lease_take(&call->job);
	call->outcome = call->job.outcome;
	if (call->outcome == FENCING_HELD)
		return false;

	/* its former holder may have written it */
	snapshot = store_fresh_snapshot();
	chosen = choose_version(call, snapshot);
	lock = store_lock_row(call->targets, target->tuple, LockWaitSkip);
	UnregisterSnapshot(snapshot);
	if (lock != STORE_LOCKED)
	{
		call->outcome = lock == STORE_BUSY ? FENCING_HELD : FENCING_AGAIN;
		call->job.until = LEASE_UNTIL_UNKNOWN;
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

/* What is handed out, or what the target has already. */
static Datum
begin_answer(FunctionCallInfo fcinfo, TargetCall *call)
{
	Target	   *target = &call->target;
	Jsonb	   *content;
	Datum		values[7] = {0};
	bool		nulls[7] = {false, true, true, true, true, true, true};

	values[0] = PointerGetDatum(call->job.job_key);
	if (call->outcome == FENCING_DONE)
	{
		values[3] = Int64GetDatum(target->applied);
		nulls[3] = target->applied == PUBLISH_NO_VERSION;
		values[5] = PointerGetDatum(target->applied_digest);
		nulls[5] = target->applied_digest == NULL;
	}
	else if (call->outcome == FENCING_HELD)
	{
		values[2] = TimestampTzGetDatum(call->job.until);
		nulls[2] = call->job.until == LEASE_UNTIL_UNKNOWN;
	}
	else
	{
		content = publish_revision_content(call->revisions, &call->revision);
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
	return args_answer(fcinfo, call->outcome, values, nulls);
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

	call.job.token = args_token(fcinfo, 2, "token");
	call.version = PG_ARGISNULL(3) ? PUBLISH_NO_VERSION : args_token(fcinfo, 3, "version");
	if (PG_ARGISNULL(3) != PG_ARGISNULL(4))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", PG_ARGISNULL(3) ? "version" : "digest"),
				 errhint("Give version and digest as they were read back, both null if the target is empty.")));
	call.digest = call.version != PUBLISH_NO_VERSION ? PG_GETARG_BYTEA_P(4) :
		digest_make(NULL, DIGEST_VERSION);

	target_begin(&call, fcinfo, "fencing_apply_observe()");
	call.job.job_key = target_job_key(&call.target);
	snapshot = store_fresh_snapshot();
	target_look(&call, snapshot);
	UnregisterSnapshot(snapshot);
	job_begin(&call.job, "fencing_apply_observe()");
	call.outcome = job_with_token(&call.job, true, observe_locked, &call);
	target_end(&call);
	return args_answer(fcinfo, call.outcome, NULL, NULL);
}

/* The fence is locked: the token stays current. */
static bool
observe_locked(void *arg)
{
	TargetCall *call = (TargetCall *) arg;

	job_require_same_fence(&call->job);
	target_with_row(call, record_observation);
	call->job.wrote = call->wrote;
	return call->wrote;
}

/* Writes down what was read back, and what follows from it. */
static bool
record_observation(void *arg)
{
	TargetCall *call = (TargetCall *) arg;
	Target	   *target = &call->target;
	Observation seen = observe(call);

	call->job.outcome = judge_observation(&seen);
	target_set(target, Anum_targets_observed, Int64GetDatum(call->version));
	target->nulls[Anum_targets_observed - 1] = call->version == PUBLISH_NO_VERSION;
	target_set(target, Anum_targets_observed_at, TimestampTzGetDatum(GetCurrentTimestamp()));

	switch (seen.read_back)
	{
		case READ_AHEAD:
			target_set_error(target, observed_text(call, "ahead", seen.expected));
			break;
		case READ_LOST:
			if (call->job.outcome == FENCING_DIVERGED)
				ask_for_repair(call, seen.expected);
			break;
		case READ_BEHIND:
		case READ_EXPECTED:
			if (seen.found > target->applied)
				target_set_applied(target, seen.found, call->revision.digest,
								   call->revision.digest_version, GetCurrentTimestamp());
			if (target->diverged || call->job.outcome == FENCING_RECORDED)
				target_set_error(target, NULL);
			target_set(target, Anum_targets_diverged, BoolGetDatum(false));
			break;
	}
	return target_write(call);
}

/*
 * Compares what was read back with what was handed out with this token (to an
 * observer without: what is applied), and with what is applied.
 */
static Observation
observe(TargetCall *call)
{
	Target	   *target = &call->target;
	bool		handed_out = target_get_bigint(target, Anum_targets_attempt_token) == call->job.token;
	int64		attempted = target_get_bigint(target, Anum_targets_attempted);
	Observation seen = {.found = call->version};

	/* a fencing_apply() may have passed what was handed out */
	seen.expected = Max(handed_out ? attempted : target->applied, target->applied);
	/* what an earlier holder was to write has been written, after all */
	if (seen.found > seen.expected && seen.found <= attempted &&
		has_digest(call, seen.found, call->digest))
		seen.expected = seen.found;

	/* nobody is to write a version that is not desired any more */
	seen.desired = seen.expected <= target->applied ||
		!target_is_undesired(target, seen.expected);
	seen.repairing = handed_out && target->diverged;

	/* an empty target has what a deletion asks for */
	if (seen.found == PUBLISH_NO_VERSION)
	{
		if (seen.expected == PUBLISH_NO_VERSION || has_digest(call, seen.expected, call->digest))
			seen.found = seen.expected;
		else if (target->applied != PUBLISH_NO_VERSION && has_digest(call, target->applied, call->digest))
			seen.found = target->applied;
	}

	if (seen.found > seen.expected)
		seen.read_back = READ_AHEAD;
	else if (seen.found < target->applied ||
			 (seen.found != PUBLISH_NO_VERSION && !has_digest(call, seen.found, call->digest)))
		seen.read_back = READ_LOST;
	else
		seen.read_back = seen.found == seen.expected ? READ_EXPECTED : READ_BEHIND;
	return seen;
}

/* The table in docs/publishing.md; the first line that fits. */
static FencingOutcome
judge_observation(const Observation *seen)
{
	static const struct
	{
		ReadBack	read_back;
		bool		only_repairing;
		bool		only_desired;
		FencingOutcome outcome;
	}			answers[] = {
		{READ_AHEAD, false, false, FENCING_AHEAD},
		{READ_LOST, true, true, FENCING_WRITE},
		{READ_LOST, false, false, FENCING_DIVERGED},
		{READ_BEHIND, false, true, FENCING_WRITE},
		{READ_BEHIND, false, false, FENCING_RECORDED},
		{READ_EXPECTED, false, false, FENCING_RECORDED}
	};
	size_t		i = 0;

	while (answers[i].read_back != seen->read_back ||
		   (answers[i].only_repairing && !seen->repairing) ||
		   (answers[i].only_desired && !seen->desired))
		i++;
	return answers[i].outcome;
}

/* What was handed out before is not the repair: begin hands it out anew. */
static void
ask_for_repair(TargetCall *call, int64 expected)
{
	Target	   *target = &call->target;

	target_set(target, Anum_targets_attempt_token, Int64GetDatum(0));
	if (!target->diverged)
		target_set(target, Anum_targets_repair,
				   Int64GetDatum(target_get_bigint(target, Anum_targets_repair) + 1));
	target_set(target, Anum_targets_diverged, BoolGetDatum(true));
	target_set_error(target, observed_text(call, "diverged", expected));
}

/*
 * Whether the version has this digest; if it is not the applied one, by its
 * revision.
 */
static bool
has_digest(TargetCall *call, int64 version, const bytea *digest)
{
	Target	   *target = &call->target;
	Snapshot	snapshot;

	if (version == target->applied)
		return args_same_text(target->applied_digest, digest);

	snapshot = store_fresh_snapshot();
	publish_find_revision(call->revisions, target->document_id, version, snapshot, &call->revision);
	UnregisterSnapshot(snapshot);
	return call->revision.found && args_same_text(call->revision.digest, digest);
}

/* For people: what an observation found. */
static text *
observed_text(TargetCall *call, const char *what, int64 expected)
{
	const char *found = call->version == PUBLISH_NO_VERSION ? "nothing" :
		psprintf("version %lld", (long long) call->version);

	return cstring_to_text(psprintf("%s: read back %s, expected version %lld, applied version %lld",
									what, found, (long long) expected,
									(long long) call->target.applied));
}
