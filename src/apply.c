/*-------------------------------------------------------------------------
 *
 * apply.c
 *	  Applying to a target in this database: (document and target,
 *	  version) and digest through the gate.
 *
 * The fence is the version that the target has, in fencing.targets; any
 * higher one may be applied, those between are superseded.  Only the last
 * receipt is kept, in the same row: so a version that was applied once and
 * passed since is stale as well.
 *
 * If the version is published here, its revision must have the digest; else
 * its content must be given.  Revisions are immutable, so it does not matter
 * when they are read.
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
#include "digest.h"
#include "publish.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* columns of the answer */
#define APPLIED_VERSION		GATE_COMMITTED_AT
#define APPLIED_DIGEST		GATE_OWN

typedef struct ApplyGate
{
	Gate		gate;			/* first, so that the one is the other */
	Target		target;			/* as seen last */
	bytea	   *digest;
	Jsonb	   *content;		/* NULL: not given */
	Relation	revisions;
} ApplyGate;

static void read_apply_arguments(Gate *gate, FunctionCallInfo fcinfo);
static void open_apply(Gate *gate);
static void close_apply(Gate *gate, LOCKMODE lockmode);
static void put_applied(const Gate *gate, Datum *values, bool *nulls);
static void check_content(ApplyGate *apply);
static void find_applied(Gate *gate, Snapshot snapshot);
static void find_watermark(Gate *gate, Snapshot snapshot);
static bytea *given_digest(Gate *gate);
static void apply_accepted(Gate *gate);
static void keep_applied(Gate *gate);
static void never_desired_or_published(const Gate *gate);
static char *describe_apply(const Gate *gate);

PG_FUNCTION_INFO_V1(fencing_apply);

/* $1 document_id, $2 target_id, $3 version, $4 digest, $5 content */
static const Oid statement_argtypes[] = {TEXTOID, TEXTOID, INT8OID, BYTEAOID, JSONBOID};

static const GateKind apply_kind = {
	.function = "fencing_apply()",
	.numbers = GATE_JUMPS,
	.find_receipt = find_applied,
	.find_fence = find_watermark,
	.make_digest = given_digest,
	.accepted = apply_accepted,
	.keep_receipt = keep_applied,
	.never_issued = never_desired_or_published,
	.describe = describe_apply,
	.statement_arg = 5,
	.report_errors_arg = 6,
	.strict_arg = 7,
	.wait_arg = GATE_NO_ARGUMENT,
	.nargs = lengthof(statement_argtypes),
	.argtypes = statement_argtypes,
	.read_arguments = read_apply_arguments,
	.open = open_apply,
	.close = close_apply,
	.answer = put_applied
};

/*
 * fencing_apply(document_id text, target_id text, version bigint, digest bytea,
 *				 content jsonb, statement text, report_errors boolean, strict boolean)
 *	→ outcome, result jsonb, applied_version bigint, applied_digest bytea, error jsonb
 */
Datum
fencing_apply(PG_FUNCTION_ARGS)
{
	ApplyGate	apply = {.gate = {.kind = &apply_kind}};

	return gate_call(fcinfo, &apply.gate);
}

/* Raises 22004, 22023, 54000, LF002. */
static void
read_apply_arguments(Gate *gate, FunctionCallInfo fcinfo)
{
	ApplyGate  *apply = (ApplyGate *) gate;

	target_args(fcinfo, &apply->target);
	gate->number = target_arg_version(fcinfo, 2, "version");
	args_refuse_null(fcinfo, 3, "digest");
	apply->digest = PG_GETARG_BYTEA_P(3);
	apply->content = PG_ARGISNULL(4) ? NULL : PG_GETARG_JSONB_P(4);

	/* the content may have to be found first */
	gate->statement.args[0] = PointerGetDatum(apply->target.document_id);
	gate->statement.args[1] = PointerGetDatum(apply->target.target_id);
	gate->statement.args[2] = Int64GetDatum(gate->number);
	gate->statement.args[3] = PointerGetDatum(apply->digest);

	if (apply->content != NULL)
		check_content(apply);
}

/* The scope is the target. */
static void
open_apply(Gate *gate)
{
	ApplyGate  *apply = (ApplyGate *) gate;

	gate->scope_rel = store_table_open(STORE_TARGETS, RowExclusiveLock);
	gate->nscope = 2;
	gate->scope[0] = PointerGetDatum(apply->target.document_id);
	gate->scope[1] = PointerGetDatum(apply->target.target_id);
	apply->revisions = store_table_open(STORE_REVISIONS, AccessShareLock);
}

/* What the gate saw last is what the answer tells. */
static void
close_apply(Gate *gate, LOCKMODE lockmode)
{
	ApplyGate  *apply = (ApplyGate *) gate;

	target_read(gate->scope_rel, &apply->target, gate->fence.tuple);
	table_close(apply->revisions, AccessShareLock);
	table_close(gate->scope_rel, lockmode);
}

/*
 * The columns applied_version and applied_digest, the first instead of
 * committed_at.
 */
static void
put_applied(const Gate *gate, Datum *values, bool *nulls)
{
	const ApplyGate *apply = (const ApplyGate *) gate;
	bool		committed = gate->outcome == FENCING_COMMITTED;
	int64		version = committed ? gate->number : apply->target.applied;
	bytea	   *digest = committed ? apply->digest : apply->target.applied_digest;

	values[APPLIED_VERSION] = Int64GetDatum(version);
	nulls[APPLIED_VERSION] = !committed && !apply->target.found;
	values[APPLIED_DIGEST] = PointerGetDatum(digest);
	nulls[APPLIED_DIGEST] = digest == NULL;
}

/* Raises 22023. */
static void
check_content(ApplyGate *apply)
{
	bytea	   *digest = digest_make(apply->content, DIGEST_VERSION);
	int			expected = VARSIZE_ANY_EXHDR(digest);
	int			given = VARSIZE_ANY_EXHDR(apply->digest);

	if (args_same_text(apply->digest, digest))
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

/*
 * The receipt of the applied version.  A higher version that is published
 * here with another digest, or one that cannot be judged, is compared with
 * its revision.
 */
static void
find_applied(Gate *gate, Snapshot snapshot)
{
	ApplyGate  *apply = (ApplyGate *) gate;
	Target	   *target = &apply->target;
	GateReceipt *receipt = &gate->receipt;
	Revision	revision;

	receipt->found = false;
	receipt->purged = false;
	receipt->result_null = true;

	target_find(gate->scope_rel, target, snapshot);
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
		publish_find_revision(apply->revisions, target->document_id, gate->number, snapshot,
							  &revision);
		if (revision.found && !(canonical_is_known_version(revision.digest_version) &&
								args_same_text(revision.digest, apply->digest)))
		{
			receipt->found = true;
			receipt->digest = revision.digest;
			receipt->digest_version = revision.digest_version;
			receipt->committed_at = revision.committed_at;
		}
	}
}

/* The fence is the applied version; of a retired target there is none. */
static void
find_watermark(Gate *gate, Snapshot snapshot)
{
	Target	   *target = &((ApplyGate *) gate)->target;

	target_find(gate->scope_rel, target, snapshot);
	gate->fence.found = target->found && !target->retired;
	gate->fence.tuple = target->tuple;
	gate->fence.number = target->applied;
	gate->fence.purged_through = 0;
	if (gate->fence.found)
	{
		int64		latest = publish_latest_version(target->document_id, snapshot);

		gate->fence.unissued = latest != PUBLISH_NO_VERSION && gate->number > latest;
		gate->fence.undesired = target_is_undesired(target, gate->number);
	}
}

/* It has no version of its own: it is of the one that it is compared with. */
static bytea *
given_digest(Gate *gate)
{
	canonical_require_version(gate->receipt.digest_version);
	return ((ApplyGate *) gate)->digest;
}

/*
 * Finds the content if it was not given.  The pass for protected tables is
 * that of the target's job.
 */
static void
apply_accepted(Gate *gate)
{
	ApplyGate  *apply = (ApplyGate *) gate;
	Target	   *target = &apply->target;
	Jsonb	   *content = apply->content;

	if (content == NULL)
	{
		Snapshot	snapshot = store_fresh_snapshot();
		int64		latest = publish_latest_version(target->document_id, snapshot);
		Revision	revision;

		publish_find_revision(apply->revisions, target->document_id, gate->number, snapshot,
							  &revision);
		if (revision.found)
		{
			/* the document may have had no version at all in its snapshot */
			store_require_visible(apply->revisions, revision.tuple);
			content = publish_revision_content(apply->revisions, &revision);
		}
		/* a deletion has no content, so that of elsewhere is given already */
		else if (latest != PUBLISH_NO_VERSION ||
				 !args_same_text(apply->digest,
								 digest_make(NULL, DIGEST_VERSION)))
			publish_never_published(target->document_id, gate->number, latest,
									_("The content of a document that is published elsewhere must be given."));
		UnregisterSnapshot(snapshot);
	}
	gate->statement.args[4] = PointerGetDatum(content);
	gate->statement.nulls[4] = content == NULL;

	pass_give(target_job_key(target));
}

/* The receipt is the row of the target itself. */
static void
keep_applied(Gate *gate)
{
	ApplyGate  *apply = (ApplyGate *) gate;
	Target		target;

	/*
	 * the gate may have looked at what the transaction's snapshot has since
	 */
	target_read(gate->scope_rel, &apply->target, gate->fence.tuple);
	store_require_visible(gate->scope_rel, apply->target.tuple);

	/* a copy: an error that is reported has applied nothing */
	target = apply->target;
	target_set_applied(&target, gate->number, apply->digest, DIGEST_VERSION,
					   gate->committed_at);
	target.values[Anum_targets_result - 1] = gate->result;
	target.nulls[Anum_targets_result - 1] = gate->result_null;
	store_update(gate->scope_rel, target.tuple, target.values, target.nulls);
}

/* Raises LF001. */
static void
never_desired_or_published(const Gate *gate)
{
	const Target *target = &((const ApplyGate *) gate)->target;

	if (gate->fence.found)
	{
		Snapshot	snapshot = store_fresh_snapshot();

		publish_never_published(target->document_id, gate->number,
								publish_latest_version(target->document_id, snapshot), NULL);
	}
	target_never_desired(target);
}

/* The version, its document and the target. */
static char *
describe_apply(const Gate *gate)
{
	const Target *target = &((const ApplyGate *) gate)->target;

	return psprintf("version %lld of document \"%s\" for target \"%s\"", (long long) gate->number,
					text_to_cstring(target->document_id), text_to_cstring(target->target_id));
}
