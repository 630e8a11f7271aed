/*-------------------------------------------------------------------------
 *
 * apply.c
 *	  Applying to a target in this database: (document and target, version) and
 *	  digest through the gate.
 *
 * The fence is the version that the target has, in fencing.targets; any higher
 * one may be applied, those between are superseded.  Only the last receipt is
 * kept, in the same row: so a version that was applied once and passed since is
 * stale as well.
 *
 * If the version is published here, its revision must have the digest; else its
 * content must be given.  Revisions are immutable, so it does not matter when
 * they are read.
 *
 * Locks: the row in fencing.targets.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "fencing.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#define NARGS	5

typedef struct ApplyGate
{
	Gate		gate;			/* first, so that the one is the other */
	FencingTarget target;		/* as seen last */
	bytea	   *digest;
	Jsonb	   *content;		/* NULL: not given */
	Relation	revisions;
	FencingStatement statement;
	Datum		args[NARGS];
	char		nulls[NARGS + 1];
} ApplyGate;

typedef struct ApplyCall
{
	FunctionCallInfo fcinfo;
	ApplyGate	apply;
} ApplyCall;

static bool attempt(void *arg);
static void check_content(ApplyGate *apply);
static bool same_apply(const Gate *a, const Gate *b);
static void find_applied(Gate *gate, Snapshot snapshot);
static void find_watermark(Gate *gate, Snapshot snapshot);
static bytea *given_digest(Gate *gate);
static void apply_accepted(Gate *gate);
static void keep_applied(Gate *gate);
static void never_desired_or_published(const Gate *gate);
static char *describe_apply(const Gate *gate);

PG_FUNCTION_INFO_V1(fencing_apply);

static const GateKind apply_kind = {
	.function = "fencing_apply()",
	.tokens = false,
	.jumps = true,
	.same = same_apply,
	.find_receipt = find_applied,
	.find_fence = find_watermark,
	.make_digest = given_digest,
	.accepted = apply_accepted,
	.keep_receipt = keep_applied,
	.never_issued = never_desired_or_published,
	.describe = describe_apply
};

/* $1 document_id, $2 target_id, $3 version, $4 digest, $5 content */
static const Oid statement_argtypes[NARGS] = {TEXTOID, TEXTOID, INT8OID, BYTEAOID, JSONBOID};

/*
 * fencing_apply(document_id text, target_id text, version bigint, digest bytea,
 *				 content jsonb, statement text, report_errors boolean, strict boolean)
 *	→ outcome, result jsonb, applied_version bigint, applied_digest bytea, error jsonb
 */
Datum
fencing_apply(PG_FUNCTION_ARGS)
{
	bool		report_errors = fencing_arg_bool(fcinfo, 6, "report_errors");
	bool		strict = fencing_arg_bool(fcinfo, 7, "strict");
	ApplyCall	call = {.fcinfo = fcinfo};
	ApplyGate  *apply = &call.apply;
	Gate	   *gate = &apply->gate;
	ErrorData  *error;
	Datum		values[4] = {0};
	bool		nulls[4] = {true, true, true, true};
	Datum		committed_at;
	bool		committed_at_null;

	fencing_check_options(report_errors, strict);
	gate->kind = &apply_kind;
	gate->alone = PG_ARGISNULL(5) && fencing_called_alone(fcinfo);
	(void) fencing_attempt(attempt, &call, report_errors, &error);

	fencing_gate_answer(gate, error, &values[0], &nulls[0], &committed_at, &committed_at_null,
						&values[3], &nulls[3]);
	if (gate->outcome == FENCING_COMMITTED)
	{
		values[1] = Int64GetDatum(gate->number);
		values[2] = PointerGetDatum(apply->digest);
		nulls[1] = nulls[2] = false;
	}
	else if (apply->target.found)
	{
		values[1] = Int64GetDatum(apply->target.applied);
		values[2] = PointerGetDatum(apply->target.applied_digest);
		nulls[1] = false;
		nulls[2] = apply->target.applied_digest == NULL;
	}

	if (strict)
		fencing_require_accepted(gate);
	return fencing_answer(fcinfo, gate->outcome, values, nulls);
}

/*
 * Reads the arguments and passes the gate.  Returns whether the version was
 * applied: if not, nothing is worth keeping.
 */
static bool
attempt(void *arg)
{
	ApplyCall  *call = (ApplyCall *) arg;
	FunctionCallInfo fcinfo = call->fcinfo;
	ApplyGate  *apply = &call->apply;
	Gate	   *gate = &apply->gate;
	LOCKMODE	unlock;

	fencing_arg_target(fcinfo, &apply->target);
	gate->number = fencing_arg_version(fcinfo, 2, "version");
	fencing_refuse_null(fcinfo, 3, "digest");
	apply->digest = PG_GETARG_BYTEA_P(3);
	apply->content = PG_ARGISNULL(4) ? NULL : PG_GETARG_JSONB_P(4);

	if (PG_ARGISNULL(5))
		gate->statement = NULL;
	else
	{
		apply->args[0] = PointerGetDatum(apply->target.document_id);
		apply->args[1] = PointerGetDatum(apply->target.target_id);
		apply->args[2] = Int64GetDatum(gate->number);
		apply->args[3] = PointerGetDatum(apply->digest);
		apply->statement.text = text_to_cstring(PG_GETARG_TEXT_PP(5));
		apply->statement.nargs = NARGS;
		apply->statement.argtypes = statement_argtypes;
		apply->statement.args = apply->args;
		apply->statement.nulls = apply->nulls;
		gate->statement = &apply->statement;
	}

	if (apply->content != NULL)
		check_content(apply);

	gate->fence_rel = fencing_open(FENCING_TARGETS, RowExclusiveLock);
	apply->revisions = fencing_open(FENCING_REVISIONS, AccessShareLock);
	fencing_gate(gate);
	fencing_read_target(gate->fence_rel, &apply->target, gate->fence.tuple);
	unlock = gate->outcome == FENCING_COMMITTED ? NoLock : RowExclusiveLock;
	table_close(apply->revisions, AccessShareLock);
	table_close(gate->fence_rel, unlock);
	return gate->outcome == FENCING_COMMITTED;
}

/* Raises 22023. */
static void
check_content(ApplyGate *apply)
{
	bytea	   *digest = fencing_make_digest(apply->content, FENCING_DIGEST_VERSION);
	int			expected = VARSIZE_ANY_EXHDR(digest);
	int			given = VARSIZE_ANY_EXHDR(apply->digest);

	if (fencing_same_text(apply->digest, digest))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("content of version %lld of document \"%s\" does not match digest",
					(long long) apply->gate.number, text_to_cstring(apply->target.document_id)),
			 given != expected ?
			 errdetail("A digest has %d bytes, the given one has %d.", expected, given) :
			 errdetail("The digest must be the one that fencing_digest() gives."),
			 given == 2 * expected ?
			 errhint("Pass hexadecimal digits with \\x before them, or through decode().") : 0));
}

static bool
same_apply(const Gate *a, const Gate *b)
{
	const FencingTarget *ta = &((const ApplyGate *) a)->target;
	const FencingTarget *tb = &((const ApplyGate *) b)->target;

	return fencing_same_text(ta->document_id, tb->document_id) &&
		fencing_same_text(ta->target_id, tb->target_id);
}

/*
 * The receipt of the applied version.  A higher version that is published here
 * with another digest, or one that cannot be judged, is compared with its revision.
 */
static void
find_applied(Gate *gate, Snapshot snapshot)
{
	ApplyGate  *apply = (ApplyGate *) gate;
	FencingTarget *target = &apply->target;
	GateReceipt *receipt = &gate->receipt;
	FencingRevision revision;

	receipt->found = false;
	receipt->purged = false;
	receipt->result_null = true;

	fencing_find_target(gate->fence_rel, target, snapshot);
	if (!target->found)
		return;
	if (target->applied == gate->number)
	{
		receipt->found = true;
		receipt->digest = target->applied_digest;
		receipt->digest_version =
			DatumGetInt32(target->values[Anum_targets_applied_digest_version - 1]);
		receipt->result_null = target->nulls[Anum_targets_result - 1];
		if (!receipt->result_null)
			receipt->result = JsonbPGetDatum(DatumGetJsonbP(target->values[Anum_targets_result - 1]));
		receipt->committed_at = DatumGetTimestampTz(target->values[Anum_targets_applied_at - 1]);
	}
	else if (target->applied < gate->number && !target->retired)
	{
		fencing_find_revision(apply->revisions, target->document_id, gate->number, snapshot,
							  &revision);
		if (revision.found && !(fencing_known_digest_version(revision.digest_version) &&
								fencing_same_text(revision.digest, apply->digest)))
		{
			receipt->found = true;
			receipt->digest = revision.digest;
			receipt->digest_version = revision.digest_version;
			receipt->committed_at = revision.committed_at;
		}
	}
}

static void
find_watermark(Gate *gate, Snapshot snapshot)
{
	FencingTarget *target = &((ApplyGate *) gate)->target;

	fencing_find_target(gate->fence_rel, target, snapshot);
	gate->fence.found = target->found && !target->retired;
	gate->fence.tuple = target->tuple;
	gate->fence.number = target->applied;
	gate->fence.purged_through = 0;
	gate->fence.external = true;
	if (gate->fence.found)
	{
		int64		latest = fencing_latest_version(target->document_id, snapshot);

		gate->fence.unissued = latest > 0 && gate->number > latest;
		gate->fence.undesired = fencing_is_undesired(target, gate->number);
	}
}

/* It has no version of its own: it is of the one that it is compared with. */
static bytea *
given_digest(Gate *gate)
{
	fencing_require_digest_version(gate->receipt.digest_version);
	return ((ApplyGate *) gate)->digest;
}

/*
 * Finds the content if it was not given.  The pass for protected tables is that
 * of the target's job.
 */
static void
apply_accepted(Gate *gate)
{
	ApplyGate  *apply = (ApplyGate *) gate;
	FencingTarget *target = &apply->target;
	Jsonb	   *content = apply->content;

	if (content == NULL)
	{
		Snapshot	snapshot = fencing_fresh_snapshot();
		int64		latest = fencing_latest_version(target->document_id, snapshot);
		FencingRevision revision;

		fencing_find_revision(apply->revisions, target->document_id, gate->number, snapshot,
							  &revision);
		if (revision.found)
		{
			fencing_require_visible(apply->revisions, revision.tuple);
			content = fencing_revision_content(apply->revisions, &revision);
		}
		/* a deletion has no content, so that of elsewhere is given already */
		else if (latest > 0 ||
				 !fencing_same_text(apply->digest,
									fencing_make_digest(NULL, FENCING_DIGEST_VERSION)))
			fencing_never_published(target->document_id, gate->number, latest,
									_("The content of a document that is published elsewhere must be given."));
		UnregisterSnapshot(snapshot);
	}
	apply->args[4] = content == NULL ? (Datum) 0 : JsonbPGetDatum(content);
	strcpy(apply->nulls, content == NULL ? "    n" : "     ");

	fencing_give_pass(fencing_target_job_key(target));
}

static void
keep_applied(Gate *gate)
{
	ApplyGate  *apply = (ApplyGate *) gate;
	FencingTarget target;

	/* the gate may have looked at what the transaction's snapshot has since */
	fencing_read_target(gate->fence_rel, &apply->target, gate->fence.tuple);
	fencing_require_visible(gate->fence_rel, apply->target.tuple);

	/* a copy: an error that is reported has applied nothing */
	target = apply->target;
	fencing_set_applied(&target, gate->number, apply->digest, FENCING_DIGEST_VERSION,
						gate->committed_at);
	target.values[Anum_targets_result - 1] = gate->result;
	target.nulls[Anum_targets_result - 1] = gate->result_null;
	fencing_update(gate->fence_rel, target.tuple, target.values, target.nulls);
}

/*
 * Nothing but the call itself writes the target's row while its statement runs.
 * Raises 55006.
 */
void
fencing_refuse_in_apply(const FencingTarget *target, const char *function)
{
	for (const Gate *gate = fencing_gates_in_progress(); gate != NULL; gate = gate->outer)
	{
		const FencingTarget *own = &((const ApplyGate *) gate)->target;

		if (gate->kind == &apply_kind &&
			fencing_same_text(own->document_id, target->document_id) &&
			fencing_same_text(own->target_id, target->target_id))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("%s was called by the statement that applies to the same target",
							function)));
	}
}

/* Raises LF001. */
static void
never_desired_or_published(const Gate *gate)
{
	const FencingTarget *target = &((const ApplyGate *) gate)->target;

	if (gate->fence.found)
	{
		Snapshot	snapshot = fencing_fresh_snapshot();

		fencing_never_published(target->document_id, gate->number,
								fencing_latest_version(target->document_id, snapshot), NULL);
	}
	fencing_never_desired(target);
}

static char *
describe_apply(const Gate *gate)
{
	const FencingTarget *target = &((const ApplyGate *) gate)->target;

	return psprintf("version %lld of document \"%s\" for target \"%s\"", (long long) gate->number,
					text_to_cstring(target->document_id), text_to_cstring(target->target_id));
}
