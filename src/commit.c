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
#include "digest.h"
#include "funcapi.h"
#include "job.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

typedef struct CommitGate
{
	Gate		gate;			/* first, so that the one is the other */
	text	   *job_key;
	text	   *step;
	Jsonb	   *payload;
	Relation	receipts;
} CommitGate;

static void read_commit_arguments(Gate *gate, FunctionCallInfo fcinfo);
static void open_commit(Gate *gate);
static void close_commit(Gate *gate, LOCKMODE lockmode);
static void put_fence(const Gate *gate, Datum *values, bool *nulls);
static bool same_token_and_step(const Gate *a, const Gate *b);
static void find_commit_receipt(Gate *gate, Snapshot snapshot);
static void read_receipt(Relation receipts, HeapTuple row, GateReceipt *receipt);
static void find_commit_fence(Gate *gate, Snapshot snapshot);
static bytea *make_commit_digest(Gate *gate);
static void commit_accepted(Gate *gate);
static void keep_commit_receipt(Gate *gate);
pg_noreturn static void token_never_issued(const Gate *gate);
static char *describe_commit(const Gate *gate);

PG_FUNCTION_INFO_V1(fencing_commit);
PG_FUNCTION_INFO_V1(fencing_receipt);

/* $1 job_key, $2 token, $3 payload */
static const Oid statement_argtypes[] = {TEXTOID, INT8OID, JSONBOID};

static const GateKind commit_kind = {
	.function = "fencing_commit()",
	.numbers = GATE_TOKENS,
	.same_number = same_token_and_step,
	.find_receipt = find_commit_receipt,
	.find_fence = find_commit_fence,
	.make_digest = make_commit_digest,
	.accepted = commit_accepted,
	.keep_receipt = keep_commit_receipt,
	.never_issued = token_never_issued,
	.describe = describe_commit,
	.statement_arg = 3,
	.report_errors_arg = 5,
	.strict_arg = 6,
	.wait_arg = GATE_NO_ARGUMENT,
	.nargs = lengthof(statement_argtypes),
	.argtypes = statement_argtypes,
	.read_arguments = read_commit_arguments,
	.open = open_commit,
	.close = close_commit,
	.answer = put_fence
};

/*
 * fencing_commit(job_key text, token bigint, payload jsonb, statement text,
 *				  step text, report_errors boolean, strict boolean)
 *	→ outcome, result jsonb, committed_at timestamptz, fence bigint, error jsonb
 */
Datum
fencing_commit(PG_FUNCTION_ARGS)
{
	CommitGate	commit = {.gate = {.kind = &commit_kind}};

	return gate_call(fcinfo, &commit.gate);
}

/* Raises 22004, 22023, 54000, LF002. */
static void
read_commit_arguments(Gate *gate, FunctionCallInfo fcinfo)
{
	CommitGate *commit = (CommitGate *) gate;

	commit->job_key = args_key(fcinfo, 0, "job_key");
	gate->number = args_token(fcinfo, 1, "token");
	args_refuse_null(fcinfo, 2, "payload");
	commit->payload = PG_GETARG_JSONB_P(2);
	commit->step = args_step(fcinfo, 4, "step");

	gate->statement.args[0] = PointerGetDatum(commit->job_key);
	gate->statement.args[1] = Int64GetDatum(gate->number);
	gate->statement.args[2] = JsonbPGetDatum(commit->payload);

	/* before any lock, because it may take long */
	gate->digest = digest_make(commit->payload, DIGEST_VERSION);
}

/* The scope is the job. */
static void
open_commit(Gate *gate)
{
	CommitGate *commit = (CommitGate *) gate;

	gate->scope_rel = store_table_open(STORE_FENCES, RowExclusiveLock);
	gate->nscope = 1;
	gate->scope[0] = PointerGetDatum(commit->job_key);
	commit->receipts = store_table_open(STORE_RECEIPTS, RowExclusiveLock);
}

/* The tables of open_commit(). */
static void
close_commit(Gate *gate, LOCKMODE lockmode)
{
	table_close(((CommitGate *) gate)->receipts, lockmode);
	table_close(gate->scope_rel, lockmode);
}

/* The column fence. */
static void
put_fence(const Gate *gate, Datum *values, bool *nulls)
{
	values[GATE_OWN] = Int64GetDatum(gate->fence.number);
	nulls[GATE_OWN] = !gate->fence.found;
}

/*
 * fencing_receipt(job_key text, token bigint, step text)
 *	→ SETOF digest bytea, digest_version int, result jsonb, committed_at timestamptz
 */
Datum
fencing_receipt(PG_FUNCTION_ARGS)
{
	text	   *job_key = args_key(fcinfo, 0, "job_key");
	int64		token = args_token(fcinfo, 1, "token");
	text	   *step = args_step(fcinfo, 2, "step");
	Datum		key[3] = {PointerGetDatum(job_key), Int64GetDatum(token), PointerGetDatum(step)};
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Relation	receipts;
	HeapTuple	row;

	InitMaterializedSRF(fcinfo, 0);

	receipts = store_table_open(STORE_RECEIPTS, AccessShareLock);
	row = store_select(receipts, 3, key, GetActiveSnapshot());
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

/* Within one job. */
static bool
same_token_and_step(const Gate *a, const Gate *b)
{
	return a->number == b->number &&
		args_same_text(((const CommitGate *) a)->step, ((const CommitGate *) b)->step);
}

/* By job, token and step. */
static void
find_commit_receipt(Gate *gate, Snapshot snapshot)
{
	CommitGate *commit = (CommitGate *) gate;
	Datum		key[3] = {PointerGetDatum(commit->job_key), Int64GetDatum(gate->number),
	PointerGetDatum(commit->step)};
	HeapTuple	row = store_find(commit->receipts, 3, key, snapshot);

	gate->receipt.found = row != NULL;
	if (row != NULL)
		read_receipt(commit->receipts, row, &gate->receipt);
}

/*
 * Copies a receipt; a snapshot that sees it must be held, for its TOAST rows.
 */
static void
read_receipt(Relation receipts, HeapTuple row, GateReceipt *receipt)
{
	TupleDesc	tupdesc = RelationGetDescr(receipts);
	Datum		result;

	receipt->found = true;
	receipt->purged = false;
	receipt->digest = DatumGetByteaP(store_get(receipts, row, Anum_receipts_digest));
	receipt->digest_version = DatumGetInt32(store_get(receipts, row,
													  Anum_receipts_digest_version));
	receipt->committed_at = DatumGetTimestampTz(store_get(receipts, row,
														  Anum_receipts_committed_at));
	result = heap_getattr(row, Anum_receipts_result, tupdesc, &receipt->result_null);
	receipt->result = receipt->result_null ? (Datum) 0 : JsonbPGetDatum(DatumGetJsonbP(result));
}

/* The fence of the job. */
static void
find_commit_fence(Gate *gate, Snapshot snapshot)
{
	job_find_fence(gate->scope_rel, ((CommitGate *) gate)->job_key, snapshot, &gate->fence);
}

/* Another version of the digest is made only if a receipt has it. */
static bytea *
make_commit_digest(Gate *gate)
{
	if (gate->receipt.digest_version == DIGEST_VERSION)
		return gate->digest;
	return digest_make(((CommitGate *) gate)->payload, gate->receipt.digest_version);
}

/* From here on protected tables may be written for the job. */
static void
commit_accepted(Gate *gate)
{
	pass_give(((CommitGate *) gate)->job_key);
}

/* A row in fencing.receipts. */
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
	values[Anum_receipts_digest_version - 1] = Int32GetDatum(DIGEST_VERSION);
	values[Anum_receipts_result - 1] = gate->result;
	nulls[Anum_receipts_result - 1] = gate->result_null;
	values[Anum_receipts_committed_at - 1] = TimestampTzGetDatum(gate->committed_at);
	store_insert(commit->receipts, values, nulls);
}

/* Raises LF001. */
static void
token_never_issued(const Gate *gate)
{
	job_never_issued(((const CommitGate *) gate)->job_key, gate->number, &gate->fence);
}

/* The token and step, and their job. */
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
