/*-------------------------------------------------------------------------
 *
 * target.c
 *	  Targets: what each should have, and how one outside this database gets it.
 *
 * A target that cannot write conditionally is written by whoever has its lease:
 * begin hands out a version, observe says whether to write it, and after the
 * write what was read back from the target.  Nothing counts as applied without
 * that.  A writer that was paused can still overwrite such a target; then the
 * next observation finds it below its watermark, and it is repaired.
 *
 * The lease of a target is that of a job whose key is made of both ids.
 *
 * A target that is retired keeps its row, so that it does not begin anew below
 * what it has had when it is desired again.
 *
 * Locks: desire: the key lock of the target (to make the row) or the row in
 * fencing.targets, waiting; reject, forget: the row, waiting.  begin: fence and
 * lease of the job, then the row, without waiting; observe: the fence, then the
 * row, waiting.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "fencing.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* every number up to it is exact in JavaScript, too */
#define MAX_VERSION		((INT64CONST(1) << 53) - 1)

/* One call about a target: its arguments, what it sees, its answer. */
typedef struct TargetCall
{
	FencingJob	job;			/* of begin and observe */
	FencingTarget target;
	Relation	targets;
	Relation	revisions;
	int64		version;		/* argument, or what is handed out; 0: none */
	bytea	   *digest;			/* of observe */
	text	   *reason;			/* of reject and forget */
	bool		of_retired;		/* of desire and forget: it may be retired */
	FencingRevision revision;	/* looked at last */
	FencingOutcome outcome;
	bool		wrote;
} TargetCall;

static void begin_call(TargetCall *call, FunctionCallInfo fcinfo, const char *function);
static void end_call(TargetCall *call);
static void look(TargetCall *call, Snapshot snapshot);
static void with_target(TargetCall *call, FencingWork work);
static bool write_target(TargetCall *call);
static void desire_new(TargetCall *call);
static bool is_desired(TargetCall *call);
static bool desire_locked(void *arg);
static void check_desired(TargetCall *call);
static int64 require_published(TargetCall *call);
static bool retire_locked(void *arg);
static void refuse_live(TargetCall *call);
static bool needs_no_mark(TargetCall *call);
static bool reject_locked(void *arg);
static bool choose_version(TargetCall *call, Snapshot snapshot);
static bool hand_out(void *arg);
static Datum begin_answer(FunctionCallInfo fcinfo, TargetCall *call);
static bool observe_locked(void *arg);
static bool record_observation(void *arg);
static bool has_digest(TargetCall *call, int64 version, const bytea *digest);
static text *observed_text(TargetCall *call, const char *what, int64 expected);
static int64 get_bigint(const FencingTarget *target, int column);
static void set_column(FencingTarget *target, int column, Datum value);
static void set_error(FencingTarget *target, text *error);

PG_FUNCTION_INFO_V1(fencing_target_desire);
PG_FUNCTION_INFO_V1(fencing_target_forget);
PG_FUNCTION_INFO_V1(fencing_apply_begin);
PG_FUNCTION_INFO_V1(fencing_apply_observe);
PG_FUNCTION_INFO_V1(fencing_apply_reject);

/* Both keys of a target.  Raises 22004, 22023, 54000. */
void
fencing_arg_target(FunctionCallInfo fcinfo, FencingTarget *target)
{
	target->document_id = fencing_arg_key(fcinfo, 0, "document_id");
	target->target_id = fencing_arg_key(fcinfo, 1, "target_id");
}

/*
 * A version that somebody wants to apply: from 1 up, and not so high that no
 * other could ever follow.  Raises 22004, 22023.
 */
int64
fencing_arg_version(FunctionCallInfo fcinfo, int argno, const char *name)
{
	int64		version = fencing_arg_token(fcinfo, argno, name);

	if (version > MAX_VERSION)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be greater than %lld, not %lld", name,
						(long long) MAX_VERSION, (long long) version),
				 errdetail("Versions are numbered 1, 2, 3, ... by those who publish.")));
	return version;
}

/* Finds the target's row, or not, as the snapshot sees it. */
void
fencing_find_target(Relation targets, FencingTarget *target, Snapshot snapshot)
{
	Datum		key[2] = {PointerGetDatum(target->document_id), PointerGetDatum(target->target_id)};

	fencing_read_target(targets, target, fencing_find(targets, 2, key, snapshot));
}

/* Reads this version of the row, NULL if there is none. */
void
fencing_read_target(Relation targets, FencingTarget *target, HeapTuple tuple)
{
	target->tuple = tuple;
	target->found = tuple != NULL;
	target->applied = 0;
	target->applied_digest = NULL;
	if (!target->found)
		return;

	fencing_read_row(targets, tuple, target->values, target->nulls);
	target->desired = target->nulls[Anum_targets_desired - 1] ? 0 :
		DatumGetInt64(target->values[Anum_targets_desired - 1]);
	target->applied = DatumGetInt64(target->values[Anum_targets_applied - 1]);
	if (!target->nulls[Anum_targets_applied_digest - 1])
		target->applied_digest = DatumGetByteaP(target->values[Anum_targets_applied_digest - 1]);
	target->rejected = DatumGetInt64(target->values[Anum_targets_rejected - 1]);
	target->diverged = DatumGetBool(target->values[Anum_targets_diverged - 1]);
	target->retired = DatumGetBool(target->values[Anum_targets_retired - 1]);
}

/* The job whose lease the target's writer has: both keys with their lengths. */
text *
fencing_target_job_key(const FencingTarget *target)
{
	const char *document_id = text_to_cstring(target->document_id);
	const char *target_id = text_to_cstring(target->target_id);
	char	   *name = psprintf("%d:%s%d:%s", (int) strlen(document_id), document_id,
								(int) strlen(target_id), target_id);
	Datum		hex = DirectFunctionCall2(binary_encode,
										  PointerGetDatum(fencing_sha256(name, strlen(name))),
										  CStringGetTextDatum("hex"));

	return cstring_to_text(psprintf("apply/%s", TextDatumGetCString(hex)));
}

/* Raises LF001; the target is not there, or is retired. */
void
fencing_never_desired(const FencingTarget *target)
{
	const char *document_id = text_to_cstring(target->document_id);
	const char *target_id = text_to_cstring(target->target_id);

	if (!target->found)
		ereport(ERROR,
				(errcode(ERRCODE_FENCING_NEVER_ISSUED),
				 errmsg("document \"%s\" has no target \"%s\"", document_id, target_id),
				 errhint("Register it by fencing_target_desire().")));
	ereport(ERROR,
			(errcode(ERRCODE_FENCING_NEVER_ISSUED),
			 errmsg("target \"%s\" of document \"%s\" is retired", target_id, document_id),
			 errdetail("It was retired by %s at %s: %s",
					   NameStr(*DatumGetName(target->values[Anum_targets_retired_by - 1])),
					   timestamptz_to_str(DatumGetTimestampTz(target->values[Anum_targets_retired_at - 1])),
					   TextDatumGetCString(target->values[Anum_targets_retired_reason - 1])),
			 errhint("If it is to have versions again, call fencing_target_desire().")));
}

/*
 * Whether nobody is to write this version, which is above the applied one: the
 * target is pinned to a lower one, or has rejected it.
 */
bool
fencing_is_undesired(const FencingTarget *target, int64 version)
{
	return (target->desired != 0 && version > target->desired) || version == target->rejected;
}

/* Another version is the applied one now; write the row then. */
void
fencing_set_applied(FencingTarget *target, int64 version, bytea *digest, int digest_version,
					TimestampTz applied_at)
{
	set_column(target, Anum_targets_applications,
			   Int64GetDatum(get_bigint(target, Anum_targets_applications) + 1));
	set_column(target, Anum_targets_superseded,
			   Int64GetDatum(get_bigint(target, Anum_targets_superseded) + version - target->applied - 1));
	set_column(target, Anum_targets_applied, Int64GetDatum(version));
	set_column(target, Anum_targets_applied_digest, PointerGetDatum(digest));
	set_column(target, Anum_targets_applied_digest_version, Int32GetDatum(digest_version));
	set_column(target, Anum_targets_applied_at, TimestampTzGetDatum(applied_at));
	target->nulls[Anum_targets_result - 1] = true;
	set_column(target, Anum_targets_diverged, BoolGetDatum(false));
	set_error(target, NULL);
	target->applied = version;
	target->applied_digest = digest;
	target->diverged = false;
}

static void
begin_call(TargetCall *call, FunctionCallInfo fcinfo, const char *function)
{
	fencing_arg_target(fcinfo, &call->target);
	PreventCommandIfReadOnly(function);
	PreventCommandIfParallelMode(function);
	fencing_refuse_in_apply(&call->target, function);
	call->targets = fencing_open(FENCING_TARGETS, RowExclusiveLock);
	call->revisions = fencing_open(FENCING_REVISIONS, AccessShareLock);
}

static void
end_call(TargetCall *call)
{
	table_close(call->revisions, AccessShareLock);
	table_close(call->targets, call->wrote ? NoLock : RowExclusiveLock);
}

/* Reads the row.  Raises LF001 if there is none, or the target is retired. */
static void
look(TargetCall *call, Snapshot snapshot)
{
	fencing_find_target(call->targets, &call->target, snapshot);
	if (!call->target.found || (call->target.retired && !call->of_retired))
		fencing_never_desired(&call->target);
}

/*
 * Calls work with the row locked, waiting if need be, and looked at in the
 * version that is locked.
 */
static void
with_target(TargetCall *call, FencingWork work)
{
	bool		locked = false;

	while (!locked)
	{
		Snapshot	snapshot = fencing_fresh_snapshot();

		CHECK_FOR_INTERRUPTS();
		look(call, snapshot);
		locked = fencing_with_row_lock(call->targets, call->target.tuple, snapshot, true,
									   work, call);
		UnregisterSnapshot(snapshot);
	}
}

/* The row is locked. */
static bool
write_target(TargetCall *call)
{
	FencingTarget *target = &call->target;

	fencing_require_visible(call->targets, target->tuple);
	fencing_update(call->targets, target->tuple, target->values, target->nulls);
	ForceSyncCommit();
	call->wrote = true;
	return true;
}

/*
 * fencing_target_desire(document_id text, target_id text, version bigint) → void
 *
 * Asking again for a version takes a rejection back, and a retirement.
 */
Datum
fencing_target_desire(PG_FUNCTION_ARGS)
{
	TargetCall	call = {0};
	Snapshot	snapshot;

	call.version = PG_ARGISNULL(2) ? 0 : fencing_arg_version(fcinfo, 2, "version");
	call.of_retired = true;
	begin_call(&call, fcinfo, "fencing_target_desire()");

	snapshot = fencing_fresh_snapshot();
	fencing_find_target(call.targets, &call.target, snapshot);
	UnregisterSnapshot(snapshot);
	if (!call.target.found)
		desire_new(&call);
	if (call.target.found && !is_desired(&call))
		with_target(&call, desire_locked);
	end_call(&call);
	PG_RETURN_VOID();
}

/* Makes the row under the key lock, unless somebody else has made it. */
static void
desire_new(TargetCall *call)
{
	FencingTarget *target = &call->target;
	Datum		key[2] = {PointerGetDatum(target->document_id), PointerGetDatum(target->target_id)};
	Snapshot	snapshot;

	(void) fencing_lock_absent(call->targets, 2, key, true);
	snapshot = fencing_fresh_snapshot();
	fencing_find_target(call->targets, target, snapshot);
	UnregisterSnapshot(snapshot);
	if (target->found)
	{
		fencing_unlock_absent(call->targets, 2, key);
		return;
	}

	check_desired(call);
	memset(target->values, 0, sizeof(target->values));
	memset(target->nulls, true, sizeof(target->nulls));
	set_column(target, Anum_targets_document_id, PointerGetDatum(target->document_id));
	set_column(target, Anum_targets_target_id, PointerGetDatum(target->target_id));
	if (call->version != 0)
		set_column(target, Anum_targets_desired, Int64GetDatum(call->version));
	set_column(target, Anum_targets_applied, Int64GetDatum(0));
	set_column(target, Anum_targets_applications, Int64GetDatum(0));
	set_column(target, Anum_targets_superseded, Int64GetDatum(0));
	set_column(target, Anum_targets_attempted, Int64GetDatum(0));
	set_column(target, Anum_targets_attempt_token, Int64GetDatum(0));
	set_column(target, Anum_targets_repair, Int64GetDatum(0));
	set_column(target, Anum_targets_diverged, BoolGetDatum(false));
	set_column(target, Anum_targets_rejected, Int64GetDatum(0));
	set_column(target, Anum_targets_retired, BoolGetDatum(false));
	fencing_insert(call->targets, target->values, target->nulls);
	fencing_unlock_absent(call->targets, 2, key);
	ForceSyncCommit();
	call->wrote = true;
}

/* Whether nothing is to be changed. */
static bool
is_desired(TargetCall *call)
{
	check_desired(call);
	return call->version == call->target.desired && !call->target.retired &&
		call->target.rejected <= call->target.applied;
}

static bool
desire_locked(void *arg)
{
	TargetCall *call = (TargetCall *) arg;
	FencingTarget *target = &call->target;

	if (is_desired(call))
		return false;
	if (call->version != 0)
		set_column(target, Anum_targets_desired, Int64GetDatum(call->version));
	else
		target->nulls[Anum_targets_desired - 1] = true;
	set_column(target, Anum_targets_rejected, Int64GetDatum(0));
	set_column(target, Anum_targets_retired, BoolGetDatum(false));
	return write_target(call);
}

/* Raises 22023 for a way back, LF001 for a version that was not published. */
static void
check_desired(TargetCall *call)
{
	if (call->version == 0)
		return;
	if (call->version < call->target.applied)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("target \"%s\" of document \"%s\" has a higher version already",
						text_to_cstring(call->target.target_id),
						text_to_cstring(call->target.document_id)),
				 errdetail("The applied version is %lld.", (long long) call->target.applied),
				 errhint("Publish the old content again by fencing_publish_rollback().")));
	(void) require_published(call);
}

/* The latest version, 0 of a document that is published elsewhere: any may be. */
static int64
require_published(TargetCall *call)
{
	Snapshot	snapshot = fencing_fresh_snapshot();
	int64		latest = fencing_latest_version(call->target.document_id, snapshot);

	UnregisterSnapshot(snapshot);
	if (latest > 0 && call->version > latest)
		fencing_never_published(call->target.document_id, call->version, latest);
	return latest;
}

/*
 * fencing_target_forget(document_id text, target_id text, reason text) → void
 */
Datum
fencing_target_forget(PG_FUNCTION_ARGS)
{
	TargetCall	call = {0};

	call.reason = fencing_arg_reason(fcinfo, 2, "reason");
	call.of_retired = true;
	begin_call(&call, fcinfo, "fencing_target_forget()");
	call.job.job_key = fencing_target_job_key(&call.target);

	fencing_begin_job(&call.job, "fencing_target_forget()");
	with_target(&call, retire_locked);
	call.job.wrote = call.wrote;
	fencing_end_job(&call.job);
	end_call(&call);
	PG_RETURN_VOID();
}

/* With the row locked nobody can begin to write the target. */
static bool
retire_locked(void *arg)
{
	TargetCall *call = (TargetCall *) arg;
	FencingTarget *target = &call->target;
	NameData	actor;

	if (target->retired)
	{
		fencing_require_visible(call->targets, target->tuple);
		return false;
	}
	refuse_live(call);
	namestrcpy(&actor, GetUserNameFromId(GetSessionUserId(), false));
	set_column(target, Anum_targets_retired, BoolGetDatum(true));
	set_column(target, Anum_targets_retired_by, NameGetDatum(&actor));
	set_column(target, Anum_targets_retired_reason, PointerGetDatum(call->reason));
	set_column(target, Anum_targets_retired_at, TimestampTzGetDatum(GetCurrentTimestamp()));
	return write_target(call);
}

/* Raises 55006. */
static void
refuse_live(TargetCall *call)
{
	Snapshot	snapshot = fencing_fresh_snapshot();

	fencing_look_job(&call->job, snapshot);
	UnregisterSnapshot(snapshot);
	if (fencing_is_live(&call->job, GetCurrentTimestamp()))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("target \"%s\" of document \"%s\" is being written",
						text_to_cstring(call->target.target_id),
						text_to_cstring(call->target.document_id)),
				 errdetail("Job \"%s\" has a live lease.", text_to_cstring(call->job.job_key)),
				 errhint("Release or revoke it first.")));
}

/*
 * fencing_apply_reject(document_id text, target_id text, version bigint, reason text)
 *	→ outcome
 */
Datum
fencing_apply_reject(PG_FUNCTION_ARGS)
{
	TargetCall	call = {0};
	Snapshot	snapshot;

	call.version = fencing_arg_version(fcinfo, 2, "version");
	call.reason = fencing_arg_reason(fcinfo, 3, "reason");
	begin_call(&call, fcinfo, "fencing_apply_reject()");

	snapshot = fencing_fresh_snapshot();
	look(&call, snapshot);
	UnregisterSnapshot(snapshot);
	if (!needs_no_mark(&call))
		with_target(&call, reject_locked);
	end_call(&call);
	return fencing_answer(fcinfo, call.outcome, NULL, NULL);
}

/*
 * Whether nothing is to be written: the version is too old to be rejected, or the
 * desired one is rejected already, and one that comes late does not take that back.
 */
static bool
needs_no_mark(TargetCall *call)
{
	FencingTarget *target = &call->target;

	if (call->version <= target->applied)
		call->outcome = FENCING_STALE;
	else
	{
		int64		latest = require_published(call);
		int64		desired = target->desired != 0 ? target->desired : latest;

		call->outcome = FENCING_RECORDED;
		if (desired == 0 || target->rejected != desired || call->version == desired)
			return false;
	}
	fencing_require_visible(call->targets, target->tuple);
	return true;
}

static bool
reject_locked(void *arg)
{
	TargetCall *call = (TargetCall *) arg;
	FencingTarget *target = &call->target;

	if (needs_no_mark(call))
		return false;
	set_column(target, Anum_targets_rejected, Int64GetDatum(call->version));
	set_column(target, Anum_targets_rejected_reason, PointerGetDatum(call->reason));
	set_column(target, Anum_targets_rejected_at, TimestampTzGetDatum(GetCurrentTimestamp()));
	return write_target(call);
}

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
	begin_call(&call, fcinfo, "fencing_apply_begin()");
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
	end_call(&call);
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

	look(call, snapshot);
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
									fencing_latest_version(target->document_id, snapshot));
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

	set_column(target, Anum_targets_attempted, Int64GetDatum(call->version));
	set_column(target, Anum_targets_attempt_token, Int64GetDatum(call->job.new_token));
	set_column(target, Anum_targets_attempted_at, TimestampTzGetDatum(GetCurrentTimestamp()));
	return write_target(call);
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
												 (long long) get_bigint(target, Anum_targets_repair)));
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
	if (call.version > 0)
		fencing_refuse_null(fcinfo, 4, "digest");
	else if (!PG_ARGISNULL(4))
		fencing_refuse_null(fcinfo, 3, "version");
	call.digest = call.version > 0 ? PG_GETARG_BYTEA_P(4) :
		fencing_make_digest(NULL, FENCING_DIGEST_VERSION);

	begin_call(&call, fcinfo, "fencing_apply_observe()");
	call.job.job_key = fencing_target_job_key(&call.target);
	snapshot = fencing_fresh_snapshot();
	look(&call, snapshot);
	UnregisterSnapshot(snapshot);
	fencing_begin_job(&call.job, "fencing_apply_observe()");
	call.outcome = fencing_with_token(&call.job, true, observe_locked, &call);
	end_call(&call);
	return fencing_answer(fcinfo, call.outcome, NULL, NULL);
}

/* The fence is locked: the token stays current. */
static bool
observe_locked(void *arg)
{
	TargetCall *call = (TargetCall *) arg;

	fencing_require_same_fence(&call->job);
	with_target(call, record_observation);
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
	bool		handed_out = get_bigint(target, Anum_targets_attempt_token) == call->job.token;
	int64		attempted = get_bigint(target, Anum_targets_attempted);
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

	set_column(target, Anum_targets_observed, Int64GetDatum(call->version));
	target->nulls[Anum_targets_observed - 1] = call->version == 0;
	set_column(target, Anum_targets_observed_at, TimestampTzGetDatum(GetCurrentTimestamp()));

	if (found > expected)
	{
		set_error(target, observed_text(call, "ahead", expected));
		call->job.outcome = FENCING_AHEAD;
	}
	else if (found < target->applied || (found > 0 && !has_digest(call, found, call->digest)))
	{
		if (handed_out && target->diverged && !given_up)
			call->job.outcome = FENCING_WRITE;	/* the repair */
		else
		{
			/* what was handed out before is not the repair */
			set_column(target, Anum_targets_attempt_token, Int64GetDatum(0));
			if (!target->diverged)
				set_column(target, Anum_targets_repair,
						   Int64GetDatum(get_bigint(target, Anum_targets_repair) + 1));
			set_column(target, Anum_targets_diverged, BoolGetDatum(true));
			set_error(target, observed_text(call, "diverged", expected));
			call->job.outcome = FENCING_DIVERGED;
		}
	}
	else
	{
		if (found > target->applied)
			fencing_set_applied(target, found, call->revision.digest,
								call->revision.digest_version, GetCurrentTimestamp());
		if (target->diverged || found == expected || given_up)
			set_error(target, NULL);
		set_column(target, Anum_targets_diverged, BoolGetDatum(false));
		call->job.outcome = found == expected || given_up ? FENCING_RECORDED : FENCING_WRITE;
	}
	return write_target(call);
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

static int64
get_bigint(const FencingTarget *target, int column)
{
	return DatumGetInt64(target->values[column - 1]);
}

static void
set_column(FencingTarget *target, int column, Datum value)
{
	target->values[column - 1] = value;
	target->nulls[column - 1] = false;
}

/* What an observation found wrong; NULL: nothing. */
static void
set_error(FencingTarget *target, text *error)
{
	if (error != NULL)
	{
		set_column(target, Anum_targets_last_error, PointerGetDatum(error));
		set_column(target, Anum_targets_last_error_at, TimestampTzGetDatum(GetCurrentTimestamp()));
	}
	else
		target->nulls[Anum_targets_last_error - 1] =
			target->nulls[Anum_targets_last_error_at - 1] = true;
}
