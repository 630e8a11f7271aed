/*-------------------------------------------------------------------------
 *
 * commit.c
 *	  The fenced commit: (job, token and step, payload) through the gate.
 *
 * The fence is the job's row in fencing.fences, the receipts are those of
 * fencing.receipts.  Locks: see gate.c.
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
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/plannodes.h"
#include "tcop/pquery.h"
#include "utils/builtins.h"
#include "utils/portal.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

typedef struct CommitGate
{
	Gate		gate;			/* first, so that the one is the other */
	text	   *job_key;
	text	   *step;
	Relation	receipts;
} CommitGate;

typedef struct CommitCall
{
	FunctionCallInfo fcinfo;
	CommitGate	commit;
	FencingStatement statement;
	Datum		args[3];
} CommitCall;

static bool attempt(void *arg);
pg_noreturn static void refuse_outcome(const CommitGate *commit);
static bool must_propagate(const ErrorData *error);
static void warn_outside_transaction(Oid function);
static bool same_commit(const Gate *a, const Gate *b);
static void find_commit_receipt(Gate *gate, Snapshot snapshot);
static void read_receipt(Relation receipts, HeapTuple row, GateReceipt *receipt);
static void find_commit_fence(Gate *gate, Snapshot snapshot);
static void commit_accepted(const Gate *gate);
static void keep_commit_receipt(Gate *gate);
pg_noreturn static void token_never_issued(const Gate *gate);
static char *describe_commit(const Gate *gate);

PG_FUNCTION_INFO_V1(fencing_commit);
PG_FUNCTION_INFO_V1(fencing_receipt);

static const GateKind commit_kind = {
	.function = "fencing_commit()",
	.same = same_commit,
	.find_receipt = find_commit_receipt,
	.find_fence = find_commit_fence,
	.accepted = commit_accepted,
	.keep_receipt = keep_commit_receipt,
	.never_issued = token_never_issued,
	.describe = describe_commit
};

/* $1 job_key, $2 token, $3 payload */
static const Oid statement_argtypes[] = {TEXTOID, INT8OID, JSONBOID};

/*
 * fencing_commit(job_key text, token bigint, payload jsonb, statement text,
 *				  step text, report_errors boolean, strict boolean)
 *	→ outcome, result jsonb, committed_at timestamptz, fence bigint, error jsonb
 */
Datum
fencing_commit(PG_FUNCTION_ARGS)
{
	bool		report_errors = fencing_arg_bool(fcinfo, 5, "report_errors");
	bool		strict = fencing_arg_bool(fcinfo, 6, "strict");
	CommitCall	call = {.fcinfo = fcinfo};
	CommitGate *commit = &call.commit;
	Gate	   *gate = &commit->gate;
	ErrorData  *error = NULL;
	Datum		values[4] = {0};
	bool		nulls[4] = {true, true, true, true};

	if (strict && report_errors)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("strict and report_errors exclude each other")));

	gate->kind = &commit_kind;
	if (!report_errors)
		(void) attempt(&call);
	else
	{
		(void) fencing_subtransaction(attempt, &call, &error);
		if (error != NULL && must_propagate(error))
			ReThrowError(error);
	}

	if (error != NULL)
	{
		gate->outcome = FENCING_FAILED;
		values[3] = fencing_error_to_jsonb(error);
		nulls[3] = false;
	}

	switch (gate->outcome)
	{
		case FENCING_COMMITTED:
		case FENCING_REPLAYED:
			values[0] = gate->result;
			nulls[0] = gate->result_null;
			/* FALLTHROUGH */
		case FENCING_CONFLICT:
			values[1] = TimestampTzGetDatum(gate->committed_at);
			nulls[1] = false;
			break;
		default:
			break;
	}
	if (gate->fence.found)
	{
		values[2] = Int64GetDatum(gate->fence.number);
		nulls[2] = false;
	}

	if (strict && gate->outcome != FENCING_COMMITTED && gate->outcome != FENCING_REPLAYED)
		refuse_outcome(commit);
	if (gate->outcome == FENCING_COMMITTED && gate->statement == NULL)
		warn_outside_transaction(fcinfo->flinfo->fn_oid);
	return fencing_answer(fcinfo, gate->outcome, values, nulls);
}

/*
 * Reads the arguments and passes the gate.  Returns whether the receipt was
 * written: if not, nothing is worth keeping.
 */
static bool
attempt(void *arg)
{
	CommitCall *call = (CommitCall *) arg;
	FunctionCallInfo fcinfo = call->fcinfo;
	CommitGate *commit = &call->commit;
	Gate	   *gate = &commit->gate;
	bool		committed;

	commit->job_key = fencing_arg_key(fcinfo, 0, "job_key");
	gate->slot_key = commit->job_key;
	gate->number = fencing_arg_token(fcinfo, 1, "token");
	fencing_refuse_null(fcinfo, 2, "payload");
	gate->content = PG_GETARG_JSONB_P(2);
	commit->step = fencing_arg_step(fcinfo, 4, "step");

	if (PG_ARGISNULL(3))
		gate->statement = NULL;
	else
	{
		call->args[0] = PointerGetDatum(commit->job_key);
		call->args[1] = Int64GetDatum(gate->number);
		call->args[2] = JsonbPGetDatum(gate->content);
		call->statement.text = text_to_cstring(PG_GETARG_TEXT_PP(3));
		call->statement.nargs = lengthof(statement_argtypes);
		call->statement.argtypes = statement_argtypes;
		call->statement.args = call->args;
		gate->statement = &call->statement;
	}

	gate->fence_rel = fencing_open(FENCING_FENCES, RowExclusiveLock);
	commit->receipts = fencing_open(FENCING_RECEIPTS, RowExclusiveLock);
	fencing_gate(gate);
	committed = gate->outcome == FENCING_COMMITTED;
	table_close(commit->receipts, committed ? NoLock : RowExclusiveLock);
	table_close(gate->fence_rel, committed ? NoLock : RowExclusiveLock);
	return committed;
}

/* With strict, for callers who would forget to look at the outcome. */
static void
refuse_outcome(const CommitGate *commit)
{
	ereport(ERROR,
			(errcode(ERRCODE_FENCING_NOT_ACCEPTED),
			 errmsg("commit of %s was not accepted", describe_commit(&commit->gate)),
			 errdetail("The outcome is \"%s\".", fencing_outcome_name(commit->gate.outcome))));
}

/*
 * Errors that are not the item's own but the transaction's or the server's:
 * with report_errors they are raised all the same.
 */
static bool
must_propagate(const ErrorData *error)
{
	if (error->sqlerrcode == ERRCODE_READ_ONLY_SQL_TRANSACTION ||
		error->sqlerrcode == ERRCODE_INSUFFICIENT_PRIVILEGE)
		return true;

	switch (ERRCODE_TO_CATEGORY(error->sqlerrcode))
	{
		case MAKE_SQLSTATE('4', '0', '0', '0', '0'):	/* transaction rollback */
		case MAKE_SQLSTATE('5', '3', '0', '0', '0'):	/* insufficient resources */
		case MAKE_SQLSTATE('5', '7', '0', '0', '0'):	/* operator intervention */
		case MAKE_SQLSTATE('X', 'X', '0', '0', '0'):	/* internal error */
			return true;
		default:
			return false;
	}
}

/*
 * The gate alone, as the only command of its transaction, commits a receipt
 * without a business write.  That is so if there is no transaction block and
 * the client's command is a plain query that itself calls the function: the
 * plan then has the function among the objects that it depends on.  A call
 * from inside another function, or in a query that also writes, may well be
 * right.  Warns as SET LOCAL does.
 */
static void
warn_outside_transaction(Oid function)
{
	PlannedStmt *plan;
	uint32		hash = GetSysCacheHashValue1(PROCOID, ObjectIdGetDatum(function));
	ListCell   *lc;

	/* the statement of another commit is a write beside it */
	if (fencing_gates_in_progress() != NULL)
		return;

	if (IsTransactionBlock() || ActivePortal == NULL || list_length(ActivePortal->stmts) != 1)
		return;

	plan = linitial_node(PlannedStmt, ActivePortal->stmts);
	if (plan->commandType != CMD_SELECT || plan->hasModifyingCTE)
		return;

	foreach(lc, plan->invalItems)
	{
		PlanInvalItem *item = (PlanInvalItem *) lfirst(lc);

		if (item->cacheId == PROCOID && item->hashValue == hash)
		{
			ereport(WARNING,
					(errcode(ERRCODE_NO_ACTIVE_SQL_TRANSACTION),
					 errmsg("%s without a statement can only be used in transaction blocks",
							commit_kind.function),
					 errdetail("A receipt without a business write will be committed.")));
			return;
		}
	}
}

/*
 * fencing_receipt(job_key text, token bigint, step text)
 *	→ SETOF digest bytea, digest_version int, result jsonb, committed_at timestamptz
 */
Datum
fencing_receipt(PG_FUNCTION_ARGS)
{
	text	   *job_key = fencing_arg_key(fcinfo, 0, "job_key");
	int64		token = fencing_arg_token(fcinfo, 1, "token");
	text	   *step = fencing_arg_step(fcinfo, 2, "step");
	Datum		key[3] = {PointerGetDatum(job_key), Int64GetDatum(token), PointerGetDatum(step)};
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Relation	receipts;
	HeapTuple	row;

	InitMaterializedSRF(fcinfo, 0);

	receipts = fencing_open(FENCING_RECEIPTS, AccessShareLock);
	row = fencing_select(receipts, 3, key, GetActiveSnapshot());
	if (row != NULL)
	{
		GateReceipt receipt;
		Datum		values[4];
		bool		nulls[4] = {false};

		read_receipt(receipts, row, &receipt);
		values[0] = PointerGetDatum(receipt.digest);
		values[1] = Int32GetDatum(receipt.digest_version);
		values[2] = receipt.result;
		nulls[2] = receipt.result_null;
		values[3] = TimestampTzGetDatum(receipt.committed_at);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	table_close(receipts, AccessShareLock);
	return (Datum) 0;
}

/* Whether a commit of this job has its statement running in this backend. */
bool
fencing_commit_in_progress(const text *job_key)
{
	for (const Gate *gate = fencing_gates_in_progress(); gate != NULL; gate = gate->outer)
	{
		if (gate->kind == &commit_kind &&
			fencing_same_text(((const CommitGate *) gate)->job_key, job_key))
			return true;
	}
	return false;
}

static bool
same_commit(const Gate *a, const Gate *b)
{
	const CommitGate *ca = (const CommitGate *) a;
	const CommitGate *cb = (const CommitGate *) b;

	return a->number == b->number &&
		fencing_same_text(ca->job_key, cb->job_key) &&
		fencing_same_text(ca->step, cb->step);
}

static void
find_commit_receipt(Gate *gate, Snapshot snapshot)
{
	CommitGate *commit = (CommitGate *) gate;
	Datum		key[3] = {PointerGetDatum(commit->job_key), Int64GetDatum(gate->number),
	PointerGetDatum(commit->step)};
	HeapTuple	row = fencing_find(commit->receipts, 3, key, snapshot);

	gate->receipt.found = row != NULL;
	if (row != NULL)
		read_receipt(commit->receipts, row, &gate->receipt);
}

/* Copies a receipt; a snapshot that sees it must be held, for its TOAST rows. */
static void
read_receipt(Relation receipts, HeapTuple row, GateReceipt *receipt)
{
	TupleDesc	tupdesc = RelationGetDescr(receipts);
	Datum		result;

	receipt->found = true;
	receipt->digest = DatumGetByteaP(fencing_get(receipts, row, Anum_receipts_digest));
	receipt->digest_version = DatumGetInt32(fencing_get(receipts, row,
														Anum_receipts_digest_version));
	receipt->committed_at = DatumGetTimestampTz(fencing_get(receipts, row,
															Anum_receipts_committed_at));
	result = heap_getattr(row, Anum_receipts_result, tupdesc, &receipt->result_null);
	receipt->result = receipt->result_null ? (Datum) 0 : JsonbPGetDatum(DatumGetJsonbP(result));
}

static void
find_commit_fence(Gate *gate, Snapshot snapshot)
{
	fencing_find_fence(gate->fence_rel, ((CommitGate *) gate)->job_key, snapshot, &gate->fence);
}

static void
commit_accepted(const Gate *gate)
{
	fencing_give_pass(((const CommitGate *) gate)->job_key);
}

static void
keep_commit_receipt(Gate *gate)
{
	CommitGate *commit = (CommitGate *) gate;
	Datum		values[Natts_receipts];
	bool		nulls[Natts_receipts] = {false};

	values[Anum_receipts_job_key - 1] = PointerGetDatum(commit->job_key);
	values[Anum_receipts_token - 1] = Int64GetDatum(gate->number);
	values[Anum_receipts_step - 1] = PointerGetDatum(commit->step);
	values[Anum_receipts_digest - 1] = PointerGetDatum(gate->digest);
	values[Anum_receipts_digest_version - 1] = Int32GetDatum(FENCING_DIGEST_VERSION);
	values[Anum_receipts_result - 1] = gate->result;
	nulls[Anum_receipts_result - 1] = gate->result_null;
	values[Anum_receipts_committed_at - 1] = TimestampTzGetDatum(gate->committed_at);
	fencing_insert(commit->receipts, values, nulls);
}

static void
token_never_issued(const Gate *gate)
{
	ereport(ERROR,
			(errcode(ERRCODE_FENCING_NEVER_ISSUED),
			 errmsg("token %lld of job \"%s\" was never issued here", (long long) gate->number,
					text_to_cstring(((const CommitGate *) gate)->job_key)),
			 gate->fence.found ?
			 errdetail("The highest token of the job is %lld.", (long long) gate->fence.number) :
			 errdetail("There is no such job.")));
}

static char *
describe_commit(const Gate *gate)
{
	const CommitGate *commit = (const CommitGate *) gate;
	const char *job_key = text_to_cstring(commit->job_key);

	if (VARSIZE_ANY_EXHDR(commit->step) == 0)
		return psprintf("token %lld of job \"%s\"", (long long) gate->number, job_key);
	return psprintf("step \"%s\" of token %lld of job \"%s\"",
					text_to_cstring(commit->step), (long long) gate->number, job_key);
}
