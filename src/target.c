/*-------------------------------------------------------------------------
 *
 * target.c
 *	  Targets: what each should have.
 *
 * The lease of a target is that of a job whose key is made of both ids.
 *
 * A target that is retired keeps its row, so that it does not begin anew
 * below what it has had when it is desired again.
 *
 * Locks: desire: the key lock of the target (to make the row) or the row in
 * fencing.targets, waiting; reject, forget: the row, waiting.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "digest.h"
#include "miscadmin.h"
#include "publish.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* every number up to it is exact in JavaScript, too */
#define MAX_VERSION		((INT64CONST(1) << 53) - 1)

/* rejected versions that are told apart; each rejection rewrites them */
#define MAX_REJECTIONS	1000

static void refuse_in_apply(const TargetCall *call, const char *function);
static void desire_new(TargetCall *call);
static bool is_desired(TargetCall *call);
static bool desire_locked(void *arg);
static void check_desired(TargetCall *call);
static int64 require_published(TargetCall *call);
static bool retire_locked(void *arg);
static void refuse_live(TargetCall *call);
static bool is_rejected(const Target *target, int64 version);
static const int64 *rejected_versions(const Target *target, int *count);
static bool has_rejections(const Target *target);
static bool needs_no_mark(TargetCall *call);
static bool shows_another(TargetCall *call);
static bool reject_locked(void *arg);
static void add_rejection(Target *target, int64 version);

PG_FUNCTION_INFO_V1(fencing_target_desire);
PG_FUNCTION_INFO_V1(fencing_target_forget);
PG_FUNCTION_INFO_V1(fencing_apply_reject);

/* Both keys of a target.  Raises 22004, 22023, 54000. */
void
target_args(FunctionCallInfo fcinfo, Target *target)
{
	target->document_id = args_key(fcinfo, 0, "document_id");
	target->target_id = args_key(fcinfo, 1, "target_id");
}

/*
 * A version that somebody wants to apply: from 1 up, and not so high that no
 * other could ever follow.  Raises 22004, 22023.
 */
int64
target_arg_version(FunctionCallInfo fcinfo, int argno, const char *name)
{
	int64		version = args_token(fcinfo, argno, name);

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
target_find(Relation targets, Target *target, Snapshot snapshot)
{
	Datum		key[2] = {PointerGetDatum(target->document_id), PointerGetDatum(target->target_id)};

	target_read(targets, target, store_find(targets, 2, key, snapshot));
}

/* Reads this version of the row, NULL if there is none. */
void
target_read(Relation targets, Target *target, HeapTuple tuple)
{
	target->tuple = tuple;
	target->found = tuple != NULL;
	target->applied = PUBLISH_NO_VERSION;
	target->applied_digest = NULL;
	if (!target->found)
		return;

	store_read_row(targets, tuple, target->values, target->nulls);
	target->desired = target->nulls[Anum_targets_desired - 1] ? TARGET_LATEST :
		DatumGetInt64(target->values[Anum_targets_desired - 1]);
	target->applied = DatumGetInt64(target->values[Anum_targets_applied - 1]);
	if (!target->nulls[Anum_targets_applied_digest - 1])
		target->applied_digest = DatumGetByteaP(target->values[Anum_targets_applied_digest - 1]);
	target->rejected = DatumGetInt64(target->values[Anum_targets_rejected - 1]);
	target->rejections = DatumGetArrayTypeP(target->values[Anum_targets_rejections - 1]);
	target->diverged = DatumGetBool(target->values[Anum_targets_diverged - 1]);
	target->retired = DatumGetBool(target->values[Anum_targets_retired - 1]);
}

/*
 * The job whose lease the target's writer has: both keys with their lengths.
 */
text *
target_job_key(const Target *target)
{
	const char *document_id = text_to_cstring(target->document_id);
	const char *target_id = text_to_cstring(target->target_id);
	char	   *name = psprintf("%d:%s%d:%s", (int) strlen(document_id), document_id,
								(int) strlen(target_id), target_id);
	Datum		hex = DirectFunctionCall2(binary_encode,
										  PointerGetDatum(digest_sha256(name, strlen(name))),
										  CStringGetTextDatum("hex"));

	return cstring_to_text(psprintf("apply/%s", TextDatumGetCString(hex)));
}

/* Raises LF001; the target is not there, or is retired. */
void
target_never_desired(const Target *target)
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
 * Whether nobody is to write this version, which is above the applied one:
 * the target is pinned to a lower one, or has rejected it.
 */
bool
target_is_undesired(const Target *target, int64 version)
{
	return (target->desired != TARGET_LATEST && version > target->desired) || is_rejected(target, version);
}

/* Has the target rejected this version? */
static bool
is_rejected(const Target *target, int64 version)
{
	int			count;
	const int64 *rejected = rejected_versions(target, &count);

	/* which of the lowest were rejected is not known any more: better not */
	if (count == MAX_REJECTIONS && version < rejected[0])
		return true;
	for (int i = 0; i < count; i++)
	{
		if (rejected[i] == version)
			return true;
	}
	return false;
}

/*
 * They are not null, and of a type that is aligned as the array's data are.
 */
static const int64 *
rejected_versions(const Target *target, int *count)
{
	*count = ArrayGetNItems(ARR_NDIM(target->rejections), ARR_DIMS(target->rejections));
	return (const int64 *) ARR_DATA_PTR(target->rejections);
}

/* Another version is the applied one now; write the row then. */
void
target_set_applied(Target *target, int64 version, bytea *digest, int digest_version,
				   TimestampTz applied_at)
{
	target_set(target, Anum_targets_applications,
			   Int64GetDatum(target_get_bigint(target, Anum_targets_applications) + 1));
	target_set(target, Anum_targets_superseded,
			   Int64GetDatum(target_get_bigint(target, Anum_targets_superseded) + version - target->applied - 1));
	target_set(target, Anum_targets_applied, Int64GetDatum(version));
	target_set(target, Anum_targets_applied_digest, PointerGetDatum(digest));
	target_set(target, Anum_targets_applied_digest_version, Int32GetDatum(digest_version));
	target_set(target, Anum_targets_applied_at, TimestampTzGetDatum(applied_at));
	target->nulls[Anum_targets_result - 1] = true;
	target_set(target, Anum_targets_diverged, BoolGetDatum(false));
	target_set_error(target, NULL);
	target->applied = version;
	target->applied_digest = digest;
	target->diverged = false;
}

/* Reads the keys and opens the tables, for a call that may write. */
void
target_begin(TargetCall *call, FunctionCallInfo fcinfo, const char *function)
{
	target_args(fcinfo, &call->target);
	store_begin_write(function);
	call->targets = store_table_open(STORE_TARGETS, RowExclusiveLock);
	refuse_in_apply(call, function);
	call->revisions = store_table_open(STORE_REVISIONS, AccessShareLock);
}

/*
 * Nothing but the call itself writes the target's row while its statement
 * runs.  Raises 55006.
 */
static void
refuse_in_apply(const TargetCall *call, const char *function)
{
	Datum		key[2] = {PointerGetDatum(call->target.document_id),
	PointerGetDatum(call->target.target_id)};

	if (gate_holds(call->targets, key, 2))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("%s was called by the statement that applies to the same target",
						function)));
}

/* A call that wrote nothing leaves no lock. */
void
target_end(TargetCall *call)
{
	table_close(call->revisions, AccessShareLock);
	table_close(call->targets, call->wrote ? NoLock : RowExclusiveLock);
}

/* Reads the row.  Raises LF001 if there is none, or the target is retired. */
void
target_look(TargetCall *call, Snapshot snapshot)
{
	target_find(call->targets, &call->target, snapshot);
	if (!call->target.found || (call->target.retired && !call->of_retired))
		target_never_desired(&call->target);
}

/*
 * Calls work with the row locked, waiting if need be, and looked at in the
 * version that is locked.
 */
void
target_with_row(TargetCall *call, StoreWork work)
{
	bool		locked = false;

	while (!locked)
	{
		Snapshot	snapshot = store_fresh_snapshot();

		CHECK_FOR_INTERRUPTS();
		target_look(call, snapshot);
		locked = store_with_row_lock(call->targets, call->target.tuple, snapshot, true,
									 work, call);
		UnregisterSnapshot(snapshot);
	}
}

/* The row is locked. */
bool
target_write(TargetCall *call)
{
	Target	   *target = &call->target;

	store_require_visible(call->targets, target->tuple);
	store_update(call->targets, target->tuple, target->values, target->nulls);
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

	call.version = PG_ARGISNULL(2) ? TARGET_LATEST : target_arg_version(fcinfo, 2, "version");
	call.of_retired = true;
	target_begin(&call, fcinfo, "fencing_target_desire()");

	snapshot = store_fresh_snapshot();
	target_find(call.targets, &call.target, snapshot);
	UnregisterSnapshot(snapshot);
	if (!call.target.found)
		desire_new(&call);
	if (call.target.found && !is_desired(&call))
		target_with_row(&call, desire_locked);
	target_end(&call);
	if (!call.wrote)
		durable_wait_for_standbys();
	PG_RETURN_VOID();
}

/* Makes the row under the key lock, unless somebody else has made it. */
static void
desire_new(TargetCall *call)
{
	Target	   *target = &call->target;
	Datum		key[2] = {PointerGetDatum(target->document_id), PointerGetDatum(target->target_id)};
	Snapshot	snapshot;

	(void) key_lock_absent(call->targets, 2, key, true);
	snapshot = store_fresh_snapshot();
	target_find(call->targets, target, snapshot);
	UnregisterSnapshot(snapshot);
	if (target->found)
	{
		key_lock_release(call->targets, 2, key);
		return;
	}

	check_desired(call);
	memset(target->values, 0, sizeof(target->values));
	memset(target->nulls, true, sizeof(target->nulls));
	target_set(target, Anum_targets_document_id, PointerGetDatum(target->document_id));
	target_set(target, Anum_targets_target_id, PointerGetDatum(target->target_id));
	if (call->version != TARGET_LATEST)
		target_set(target, Anum_targets_desired, Int64GetDatum(call->version));
	target_set(target, Anum_targets_applied, Int64GetDatum(PUBLISH_NO_VERSION));
	target_set(target, Anum_targets_applications, Int64GetDatum(0));
	target_set(target, Anum_targets_superseded, Int64GetDatum(0));
	target_set(target, Anum_targets_attempted, Int64GetDatum(PUBLISH_NO_VERSION));
	target_set(target, Anum_targets_attempt_token, Int64GetDatum(0));
	target_set(target, Anum_targets_repair, Int64GetDatum(0));
	target_set(target, Anum_targets_diverged, BoolGetDatum(false));
	target_set(target, Anum_targets_rejected, Int64GetDatum(PUBLISH_NO_VERSION));
	target_set(target, Anum_targets_rejections, PointerGetDatum(construct_empty_array(INT8OID)));
	target_set(target, Anum_targets_retired, BoolGetDatum(false));
	store_insert(call->targets, target->values, target->nulls);
	key_lock_release(call->targets, 2, key);
	ForceSyncCommit();
	call->wrote = true;
}

/* Whether nothing is to be changed. */
static bool
is_desired(TargetCall *call)
{
	check_desired(call);
	return call->version == call->target.desired && !call->target.retired &&
		!has_rejections(&call->target);
}

/* Those that count: above the applied version. */
static bool
has_rejections(const Target *target)
{
	int			count;
	const int64 *rejected = rejected_versions(target, &count);

	return count > 0 && rejected[count - 1] > target->applied;
}

/* The row is locked. */
static bool
desire_locked(void *arg)
{
	TargetCall *call = (TargetCall *) arg;
	Target	   *target = &call->target;

	if (is_desired(call))
		return false;
	if (call->version != TARGET_LATEST)
		target_set(target, Anum_targets_desired, Int64GetDatum(call->version));
	else
		target->nulls[Anum_targets_desired - 1] = true;
	target_set(target, Anum_targets_rejected, Int64GetDatum(PUBLISH_NO_VERSION));
	target_set(target, Anum_targets_rejections, PointerGetDatum(construct_empty_array(INT8OID)));
	target_set(target, Anum_targets_retired, BoolGetDatum(false));
	return target_write(call);
}

/* Raises 22023 for a way back, LF001 for a version that was not published. */
static void
check_desired(TargetCall *call)
{
	if (call->version == TARGET_LATEST)
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

/*
 * The latest version; none of a document that is published elsewhere: any may
 * be.
 */
static int64
require_published(TargetCall *call)
{
	Snapshot	snapshot = store_fresh_snapshot();
	int64		latest = publish_latest_version(call->target.document_id, snapshot);

	UnregisterSnapshot(snapshot);
	if (latest != PUBLISH_NO_VERSION && call->version > latest)
		publish_never_published(call->target.document_id, call->version, latest, NULL);
	return latest;
}

/*
 * fencing_target_forget(document_id text, target_id text, reason text) → void
 */
Datum
fencing_target_forget(PG_FUNCTION_ARGS)
{
	TargetCall	call = {0};

	call.reason = args_reason(fcinfo, 2, "reason");
	call.of_retired = true;
	target_begin(&call, fcinfo, "fencing_target_forget()");
	call.job.job_key = target_job_key(&call.target);

	job_begin(&call.job, "fencing_target_forget()");
	target_with_row(&call, retire_locked);
	call.job.wrote = call.wrote;
	job_end(&call.job);
	target_end(&call);
	if (!call.wrote)
		durable_wait_for_standbys();
	PG_RETURN_VOID();
}

/* With the row locked nobody can begin to write the target. */
static bool
retire_locked(void *arg)
{
	TargetCall *call = (TargetCall *) arg;
	Target	   *target = &call->target;
	NameData	actor;

	if (target->retired)
	{
		store_require_visible(call->targets, target->tuple);
		return false;
	}
	refuse_live(call);
	namestrcpy(&actor, GetUserNameFromId(GetSessionUserId(), false));
	target_set(target, Anum_targets_retired, BoolGetDatum(true));
	target_set(target, Anum_targets_retired_by, NameGetDatum(&actor));
	target_set(target, Anum_targets_retired_reason, PointerGetDatum(call->reason));
	target_set(target, Anum_targets_retired_at, TimestampTzGetDatum(GetCurrentTimestamp()));
	return target_write(call);
}

/* Raises 55006. */
static void
refuse_live(TargetCall *call)
{
	Snapshot	snapshot = store_fresh_snapshot();

	job_look(&call->job, snapshot);
	UnregisterSnapshot(snapshot);
	if (job_is_live(&call->job, GetCurrentTimestamp()))
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

	call.version = target_arg_version(fcinfo, 2, "version");
	call.reason = args_reason(fcinfo, 3, "reason");
	target_begin(&call, fcinfo, "fencing_apply_reject()");

	snapshot = store_fresh_snapshot();
	target_look(&call, snapshot);
	UnregisterSnapshot(snapshot);
	if (!needs_no_mark(&call))
		target_with_row(&call, reject_locked);
	target_end(&call);
	if (call.outcome == FENCING_RECORDED && !call.wrote)
		durable_wait_for_standbys();
	return args_answer(fcinfo, call.outcome, NULL, NULL);
}

/*
 * Whether nothing is to be written: the version is too old, or rejected
 * already.
 */
static bool
needs_no_mark(TargetCall *call)
{
	Target	   *target = &call->target;

	if (call->version <= target->applied)
		call->outcome = FENCING_STALE;
	else
	{
		(void) require_published(call);
		call->outcome = FENCING_RECORDED;
		if (!is_rejected(target, call->version) || !shows_another(call))
			return false;
	}
	store_require_visible(call->targets, target->tuple);
	return true;
}

/* The rejection of the desired version is shown, not one that comes late. */
static bool
shows_another(TargetCall *call)
{
	Target	   *target = &call->target;
	int64		desired = target->desired != TARGET_LATEST ? target->desired : require_published(call);

	return desired != PUBLISH_NO_VERSION && target->rejected == desired && call->version != desired;
}

/* The row is locked. */
static bool
reject_locked(void *arg)
{
	TargetCall *call = (TargetCall *) arg;
	Target	   *target = &call->target;

	if (needs_no_mark(call))
		return false;
	add_rejection(target, call->version);
	if (!shows_another(call))
	{
		target_set(target, Anum_targets_rejected, Int64GetDatum(call->version));
		target_set(target, Anum_targets_rejected_reason, PointerGetDatum(call->reason));
		target_set(target, Anum_targets_rejected_at, TimestampTzGetDatum(GetCurrentTimestamp()));
	}
	return target_write(call);
}

/*
 * In its place among those above the applied version.  Of too many the lowest
 * goes: then all below the others count as rejected.
 */
static void
add_rejection(Target *target, int64 version)
{
	int			count;
	const int64 *old = rejected_versions(target, &count);
	Datum	   *rejected = (Datum *) palloc((count + 1) * sizeof(Datum));
	int			kept = 0;
	int			i = 0;

	if (is_rejected(target, version))
		return;
	for (; i < count && old[i] < version; i++)
	{
		if (old[i] > target->applied)
			rejected[kept++] = Int64GetDatum(old[i]);
	}
	rejected[kept++] = Int64GetDatum(version);
	for (; i < count; i++)
		rejected[kept++] = Int64GetDatum(old[i]);
	if (kept > MAX_REJECTIONS)
		memmove(rejected, rejected + 1, --kept * sizeof(Datum));
	target_set(target, Anum_targets_rejections,
			   PointerGetDatum(construct_array(rejected, kept, INT8OID, sizeof(int64),
											   FLOAT8PASSBYVAL, TYPALIGN_DOUBLE)));
}

/* A column of the row that was read; not null. */
int64
target_get_bigint(const Target *target, int column)
{
	return DatumGetInt64(target->values[column - 1]);
}

/* A column of the row to be written. */
void
target_set(Target *target, int column, Datum value)
{
	target->values[column - 1] = value;
	target->nulls[column - 1] = false;
}

/* What an observation found wrong; NULL: nothing. */
void
target_set_error(Target *target, text *error)
{
	if (error != NULL)
	{
		target_set(target, Anum_targets_last_error, PointerGetDatum(error));
		target_set(target, Anum_targets_last_error_at, TimestampTzGetDatum(GetCurrentTimestamp()));
	}
	else
		target->nulls[Anum_targets_last_error - 1] =
			target->nulls[Anum_targets_last_error_at - 1] = true;
}
