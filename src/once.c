/*-------------------------------------------------------------------------
 *
 * once.c
 *	  Idempotent operations: (tenant, operation, key) and request through
 *	  the gate.
 *
 * Each key is a slot that is taken once.  A record keeps the hash of the
 * request, projected by a version of the operation's schema, and the result.
 * Business rows, record and events are one transaction, so nothing can get
 * stuck half way: what was not committed never was.
 *
 * Authorization comes first, before look-up, wait and validation, and again
 * after a wait.  What a caller without permission hears does not depend on
 * the key.
 *
 * A gate without a statement leaves the record open until
 * fencing_once_respond(); a transaction that forgot it cannot commit.
 *
 * Locks, for a new key: fencing.request_schemas (RowExclusiveLock), then the
 * key lock of the slot.
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
#include "gate.h"
#include "once.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

typedef struct OnceGate
{
	Gate		gate;			/* first, so that the one is the other */
	text	   *tenant_id;
	text	   *operation;
	text	   *key;
	Jsonb	   *request;
	Jsonb	   *auth;			/* NULL: none */
	Relation	schemas;		/* opened for a new key, else NULL */
	List	   *versions;		/* of the operation, from the oldest on */
	bool		open;			/* the record found waits for its response */
	int			hash_version;	/* of the record, or for a new one */
	int			shown_version;	/* by which authorize was shown the request;
								 * 0: none yet */
} OnceGate;

/* A record of this transaction that has to be responded to. */
typedef struct Claim
{
	text	   *tenant_id;
	text	   *operation;
	text	   *key;
	int			level;			/* nesting level of its subtransaction */
} Claim;

static void read_once_arguments(Gate *gate, FunctionCallInfo fcinfo);
static bool is_authorized(Gate *gate);
static void open_once(Gate *gate);
static void close_once(Gate *gate, LOCKMODE lockmode);
static void put_hash_version(const Gate *gate, Datum *values, bool *nulls);
static const OnceVersion *version_in_force(List *versions);
static bool was_shown(OnceGate *once, const OnceVersion *version);
static void find_record(Gate *gate, Snapshot snapshot);
static bytea *make_request_digest(Gate *gate);
static bytea *hash_by_record(OnceGate *once);
static bytea *hash_by_current(OnceGate *once);
static void keep_record(Gate *gate);
static char *describe_once(const Gate *gate);
static void add_claim(const OnceGate *once);
static void claim_xact_callback(XactEvent event, void *arg);
static void claim_subxact_callback(SubXactEvent event, SubTransactionId mySubid,
								   SubTransactionId parentSubid, void *arg);
static void drop_last_claim(void);
static void check_claims(void);
static HeapTuple find_own_record(Relation records, const text *tenant_id, const text *operation,
								 const text *key);

PG_FUNCTION_INFO_V1(fencing_once);
PG_FUNCTION_INFO_V1(fencing_once_respond);

/* $1 tenant_id, $2 operation, $3 key, $4 request, $5 auth */
static const Oid statement_argtypes[] = {TEXTOID, TEXTOID, TEXTOID, JSONBOID, JSONBOID};

static const GateKind once_kind = {
	.function = "fencing_once()",
	.numbers = GATE_SLOT,
	.find_receipt = find_record,
	.make_digest = make_request_digest,
	.keep_receipt = keep_record,
	.describe = describe_once,
	.statement_arg = 4,
	.report_errors_arg = 6,
	.strict_arg = 7,
	.wait_arg = 8,
	.nargs = lengthof(statement_argtypes),
	.argtypes = statement_argtypes,
	.read_arguments = read_once_arguments,
	.admit = is_authorized,
	.open = open_once,
	.close = close_once,
	.answer = put_hash_version
};

/*
 * In TopTransactionContext; those of the innermost subtransaction come last.
 */
static List *claims = NIL;

/*
 * fencing_once(tenant_id text, operation text, key text, request jsonb,
 *				statement text, auth jsonb, report_errors boolean, strict boolean,
 *				wait boolean)
 *	→ outcome, result jsonb, committed_at timestamptz, hash_version int, error jsonb
 */
Datum
fencing_once(PG_FUNCTION_ARGS)
{
	OnceGate	once = {.gate = {.kind = &once_kind}};

	return gate_call(fcinfo, &once.gate);
}

/* Raises 22004, 22023, 54000. */
static void
read_once_arguments(Gate *gate, FunctionCallInfo fcinfo)
{
	OnceGate   *once = (OnceGate *) gate;

	once->tenant_id = args_key(fcinfo, 0, "tenant_id");
	once->operation = args_key(fcinfo, 1, "operation");
	once->key = args_key(fcinfo, 2, "key");
	args_refuse_null(fcinfo, 3, "request");
	once->request = PG_GETARG_JSONB_P(3);
	once->auth = PG_ARGISNULL(5) ? NULL : PG_GETARG_JSONB_P(5);

	gate->statement.args[0] = PointerGetDatum(once->tenant_id);
	gate->statement.args[1] = PointerGetDatum(once->operation);
	gate->statement.args[2] = PointerGetDatum(once->key);
	gate->statement.args[3] = JsonbPGetDatum(once->request);
	gate->statement.args[4] = PointerGetDatum(once->auth);
	gate->statement.nulls[4] = once->auth == NULL;
}

/* The scope is the key. */
static void
open_once(Gate *gate)
{
	OnceGate   *once = (OnceGate *) gate;

	once->schemas = NULL;
	gate->scope_rel = store_table_open(STORE_RECORDS, RowExclusiveLock);
	gate->nscope = 3;
	gate->scope[0] = PointerGetDatum(once->tenant_id);
	gate->scope[1] = PointerGetDatum(once->operation);
	gate->scope[2] = PointerGetDatum(once->key);
}

/* The schemas are open if the key is a new one. */
static void
close_once(Gate *gate, LOCKMODE lockmode)
{
	OnceGate   *once = (OnceGate *) gate;

	table_close(gate->scope_rel, lockmode);
	if (once->schemas != NULL)
		table_close(once->schemas, lockmode);
}

/* The column hash_version. */
static void
put_hash_version(const Gate *gate, Datum *values, bool *nulls)
{
	values[GATE_OWN] = Int32GetDatum(((const OnceGate *) gate)->hash_version);
	nulls[GATE_OWN] = gate->outcome == FENCING_FAILED || gate->outcome == FENCING_DENIED ||
		gate->outcome == FENCING_HELD;
}

/*
 * The authorize function is shown just what is compared: a caller could show
 * its own resource in what is left out, and another's key to us, or hide what
 * counts.  Before the look-up that is the request by the version for new
 * keys, or by the newest if all are retired; if the key turns out to have
 * another version, it is asked again by that.
 */
static bool
is_authorized(Gate *gate)
{
	OnceGate   *once = (OnceGate *) gate;
	OnceOperation operation;
	const OnceVersion *shown;

	once_operation_load(once->operation, &operation);
	once->versions = operation.versions;
	if (once->versions == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("operation \"%s\" has no request schema", text_to_cstring(once->operation)),
				 errhint("Define one by fencing_define_request().")));

	shown = once_operation_version(once->versions, once->shown_version);
	if (shown == NULL)
		shown = version_in_force(once->versions);
	if (shown == NULL)
		shown = (OnceVersion *) llast(once->versions);
	once->shown_version = shown->hash_version;
	return once_authorize(once->tenant_id, once->operation,
						  once_projection_visible(shown->schema, once->request), once->auth,
						  operation.authorize_schema, operation.authorize_name,
						  operation.authorize_owner);
}

/* The highest version that is not retired, or NULL. */
static const OnceVersion *
version_in_force(List *versions)
{
	const OnceVersion *result = NULL;
	ListCell   *lc;

	foreach(lc, versions)
	{
		OnceVersion *version = (OnceVersion *) lfirst(lc);

		if (!version->retired)
			result = version;
	}
	return result;
}

/*
 * If authorize was shown the request by another version: again, by this one.
 */
static bool
was_shown(OnceGate *once, const OnceVersion *version)
{
	once->gate.again = version->hash_version != once->shown_version;
	once->shown_version = version->hash_version;
	return !once->gate.again;
}

/* The record of the key. */
static void
find_record(Gate *gate, Snapshot snapshot)
{
	OnceGate   *once = (OnceGate *) gate;
	GateReceipt *receipt = &gate->receipt;
	HeapTuple	row = store_find(gate->scope_rel, gate->nscope, gate->scope, snapshot);
	Datum		result;

	receipt->found = row != NULL;
	if (row == NULL)
		return;

	once->hash_version = DatumGetInt32(store_get(gate->scope_rel, row, Anum_records_hash_version));
	once->open = !DatumGetBool(store_get(gate->scope_rel, row, Anum_records_responded));
	receipt->digest = DatumGetByteaP(store_get(gate->scope_rel, row, Anum_records_hash));
	receipt->digest_version = DatumGetInt32(store_get(gate->scope_rel, row,
													  Anum_records_digest_version));
	receipt->purged = DatumGetBool(store_get(gate->scope_rel, row, Anum_records_purged));
	receipt->committed_at = DatumGetTimestampTz(store_get(gate->scope_rel, row,
														  Anum_records_committed_at));
	result = heap_getattr(row, Anum_records_result, RelationGetDescr(gate->scope_rel),
						  &receipt->result_null);
	receipt->result = receipt->result_null ? (Datum) 0 : JsonbPGetDatum(DatumGetJsonbP(result));
}

/* By the version of the record, or for a new one by the current version. */
static bytea *
make_request_digest(Gate *gate)
{
	OnceGate   *once = (OnceGate *) gate;

	return gate->receipt.found ? hash_by_record(once) : hash_by_current(once);
}

/*
 * The hash by the version that made the record's, or NULL if that version
 * refuses the request.  Of a tombstone it does not matter, but who may ask is
 * decided by its version too: nobody learns by it that a key has gone.
 */
static bytea *
hash_by_record(OnceGate *once)
{
	const OnceVersion *version;
	List	   *later = NIL;
	Jsonb	   *projected;
	char	   *refusal;
	ListCell   *lc;

	if (once->open)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("%s has been claimed by this transaction and not responded to",
						describe_once(&once->gate)),
				 errhint("Call fencing_once_respond() first.")));

	version = once_operation_version(once->versions, once->hash_version);
	if (version == NULL)
	{
		OnceOperation operation;

		/* it may have been defined while we asked for permission */
		once_operation_load(once->operation, &operation);
		once->versions = operation.versions;
		version = once_operation_version(once->versions, once->hash_version);
	}
	if (version == NULL)
	{
		ereport(WARNING,
				(errcode(ERRCODE_FENCING_UNKNOWN_VERSION),
				 errmsg("record has a hash of version %d, for which operation \"%s\" has no request schema",
						once->hash_version, text_to_cstring(once->operation))));
		once_operation_unknown_version(once->operation, once->hash_version);
	}

	if (!was_shown(once, version) || once->gate.receipt.purged)
		return NULL;

	foreach(lc, once->versions)
	{
		OnceVersion *other = (OnceVersion *) lfirst(lc);

		if (other->hash_version > version->hash_version)
			later = lappend(later, other->schema);
	}
	projected = once_projection_make(version->schema, later, once->request, &refusal);
	return projected == NULL ? NULL :
		digest_make(projected, once->gate.receipt.digest_version);
}

/*
 * The hash by the highest version in force.  Raises 22023 if that refuses the
 * request.
 */
static bytea *
hash_by_current(OnceGate *once)
{
	const OnceVersion *current;
	OnceOperation operation;
	Jsonb	   *projected;
	char	   *refusal;

	/* from here to the end a retired schema cannot be purged: read again */
	once->schemas = store_table_open(STORE_REQUEST_SCHEMAS, RowExclusiveLock);
	once_operation_load(once->operation, &operation);
	once->versions = operation.versions;
	current = version_in_force(once->versions);
	if (current == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("all request schemas of operation \"%s\" are retired",
						text_to_cstring(once->operation)),
				 errhint("Define a new one by fencing_define_request().")));

	if (!was_shown(once, current))
		return NULL;

	projected = once_projection_make(current->schema, NIL, once->request, &refusal);
	if (projected == NULL)
		once_operation_refuse_request(once->operation, current->hash_version, refusal);
	once->hash_version = current->hash_version;
	return digest_make(projected, DIGEST_VERSION);
}

/*
 * A row in fencing.records, which waits for a response if there was no
 * statement.
 */
static void
keep_record(Gate *gate)
{
	OnceGate   *once = (OnceGate *) gate;
	Datum		values[Natts_records];
	bool		nulls[Natts_records] = {false};

	values[Anum_records_tenant_id - 1] = PointerGetDatum(once->tenant_id);
	values[Anum_records_operation - 1] = PointerGetDatum(once->operation);
	values[Anum_records_key - 1] = PointerGetDatum(once->key);
	values[Anum_records_hash - 1] = PointerGetDatum(gate->digest);
	values[Anum_records_hash_version - 1] = Int32GetDatum(once->hash_version);
	values[Anum_records_digest_version - 1] = Int32GetDatum(DIGEST_VERSION);
	values[Anum_records_result - 1] = gate->result;
	nulls[Anum_records_result - 1] = gate->result_null;
	values[Anum_records_responded - 1] = BoolGetDatum(gate->statement.text !=NULL);
	values[Anum_records_purged - 1] = BoolGetDatum(false);
	values[Anum_records_committed_at - 1] = TimestampTzGetDatum(gate->committed_at);
	store_insert(gate->scope_rel, values, nulls);

	if (gate->statement.text == NULL)
		add_claim(once);
}

/* The key, its operation and tenant. */
static char *
describe_once(const Gate *gate)
{
	const OnceGate *once = (const OnceGate *) gate;

	return psprintf("key \"%s\" of operation \"%s\" of tenant \"%s\"",
					text_to_cstring(once->key), text_to_cstring(once->operation),
					text_to_cstring(once->tenant_id));
}

/*
 * fencing_once_respond(tenant_id text, operation text, key text, result jsonb) → void
 */
Datum
fencing_once_respond(PG_FUNCTION_ARGS)
{
	text	   *tenant_id = args_key(fcinfo, 0, "tenant_id");
	text	   *operation = args_key(fcinfo, 1, "operation");
	text	   *key = args_key(fcinfo, 2, "key");
	Relation	records;
	HeapTuple	row;
	Datum		values[Natts_records];
	bool		nulls[Natts_records];

	args_refuse_null(fcinfo, 3, "result");
	store_begin_write("fencing_once_respond()");

	records = store_table_open(STORE_RECORDS, RowExclusiveLock);
	row = find_own_record(records, tenant_id, operation, key);
	if (row == NULL || DatumGetBool(store_get(records, row, Anum_records_responded)))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("key \"%s\" of operation \"%s\" has not been claimed by this transaction",
						text_to_cstring(key), text_to_cstring(operation)),
				 errhint("Call fencing_once() without a statement first.")));

	store_read_row(records, row, values, nulls);
	values[Anum_records_result - 1] = PG_GETARG_DATUM(3);
	nulls[Anum_records_result - 1] = false;
	values[Anum_records_responded - 1] = BoolGetDatum(true);
	store_update(records, row, values, nulls);
	table_close(records, NoLock);
	PG_RETURN_VOID();
}

/* The record has to be responded to before COMMIT. */
static void
add_claim(const OnceGate *once)
{
	static bool registered = false;
	MemoryContext context;
	Claim	   *claim;

	if (!registered)
	{
		RegisterXactCallback(claim_xact_callback, NULL);
		RegisterSubXactCallback(claim_subxact_callback, NULL);
		registered = true;
	}

	context = MemoryContextSwitchTo(TopTransactionContext);
	claim = (Claim *) palloc(sizeof(Claim));
	claim->tenant_id = (text *) PG_DETOAST_DATUM_COPY(PointerGetDatum(once->tenant_id));
	claim->operation = (text *) PG_DETOAST_DATUM_COPY(PointerGetDatum(once->operation));
	claim->key = (text *) PG_DETOAST_DATUM_COPY(PointerGetDatum(once->key));
	claim->level = GetCurrentTransactionNestLevel();
	claims = lappend(claims, claim);
	MemoryContextSwitchTo(context);
}

/* Claims are checked before COMMIT, and forgotten after the end. */
static void
claim_xact_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			if (claims != NIL)
				check_claims();
			break;
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
			break;
		default:
			claims = NIL;
			break;
	}
}

/* Claims of a subtransaction are its parent's, or gone with it. */
static void
claim_subxact_callback(SubXactEvent event, SubTransactionId mySubid,
					   SubTransactionId parentSubid, void *arg)
{
	int			level = GetCurrentTransactionNestLevel();

	switch (event)
	{
		case SUBXACT_EVENT_ABORT_SUB:
			while (claims != NIL && ((Claim *) llast(claims))->level >= level)
				drop_last_claim();
			break;
		case SUBXACT_EVENT_COMMIT_SUB:
			for (int i = list_length(claims); i > 0; i--)
			{
				Claim	   *claim = (Claim *) list_nth(claims, i - 1);

				if (claim->level < level)
					break;
				claim->level = level - 1;
			}
			break;
		default:
			break;
	}
}

/* Its memory goes too: a transaction may see many attempts fail. */
static void
drop_last_claim(void)
{
	Claim	   *claim = (Claim *) llast(claims);

	claims = list_delete_last(claims);
	pfree(claim->tenant_id);
	pfree(claim->operation);
	pfree(claim->key);
	pfree(claim);
}

/*
 * Raises 55000 if a claim has not been responded to.  The rows are read
 * again, because a savepoint may have taken a response back.
 */
static void
check_claims(void)
{
	Relation	records = store_table_open(STORE_RECORDS, AccessShareLock);
	ListCell   *lc;

	foreach(lc, claims)
	{
		Claim	   *claim = (Claim *) lfirst(lc);
		HeapTuple	row = find_own_record(records, claim->tenant_id, claim->operation, claim->key);

		if (row != NULL && !DatumGetBool(store_get(records, row, Anum_records_responded)))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("key \"%s\" of operation \"%s\" has no response",
							text_to_cstring(claim->key), text_to_cstring(claim->operation)),
					 errhint("Call fencing_once_respond() before COMMIT.")));
	}
	table_close(records, NoLock);
}

/* A record without response is seen by nobody else. */
static HeapTuple
find_own_record(Relation records, const text *tenant_id, const text *operation, const text *key)
{
	Snapshot	snapshot = store_fresh_snapshot();
	Datum		keys[3] = {PointerGetDatum(tenant_id), PointerGetDatum(operation),
	PointerGetDatum(key)};
	HeapTuple	row = store_find(records, 3, keys, snapshot);

	UnregisterSnapshot(snapshot);
	return row;
}
