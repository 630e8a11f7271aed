/*-------------------------------------------------------------------------
 *
 * once_operation.c
 *	  Idempotent operations: their definition, and the versions of their
 *	  schemas.
 *
 * A version is frozen once it is defined, because records keep hashes by it.
 * Compiled schemas are cached per backend until fencing.request_schemas
 * changes.
 *
 * Locks: on the table that is written one that excludes itself, so that two
 * definitions do not meet in a unique index.  On fencing.request_schemas that
 * is ShareUpdateExclusiveLock: calls with a new key go on beside it.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_proc.h"
#include "digest.h"
#include "miscadmin.h"
#include "once.h"
#include "store.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/xid8.h"

typedef struct CachedSchema
{
	char	   *operation;
	int			hash_version;
	OnceSchema *schema;
} CachedSchema;

static int	arg_hash_version(FunctionCallInfo fcinfo, int argno);
static void end_schemas(Relation schemas, bool is_done);
static HeapTuple find_operation(Relation operations, const text *name);
static void require_operation(const text *name);
static Jsonb *project_argument(FunctionCallInfo fcinfo);
static void renew_cache(Relation schemas);
static OnceSchema *get_schema(Relation schemas, const text *operation, int hash_version,
							  HeapTuple row);
static void forget_schemas(Datum arg, Oid relid);

PG_FUNCTION_INFO_V1(fencing_define_operation);
PG_FUNCTION_INFO_V1(fencing_define_request);
PG_FUNCTION_INFO_V1(fencing_retire_request);
PG_FUNCTION_INFO_V1(fencing_request_canonical);
PG_FUNCTION_INFO_V1(fencing_request_hash);

static MemoryContext cache_context = NULL;
static List *cache = NIL;
static Oid	cached_relid = InvalidOid;
static bool cache_valid = false;

/*
 * fencing_define_operation(operation text, authorize regprocedure,
 *							retention interval, forget_after interval) → void
 */
Datum
fencing_define_operation(PG_FUNCTION_ARGS)
{
	text	   *name = args_key(fcinfo, 0, "operation");
	int64		retention;
	int64		forget_after;
	Relation	operations;
	HeapTuple	tuple;
	HeapTuple	row;
	Form_pg_proc proc;
	NameData	schema;
	NameData	function;
	NameData	owner;
	Datum		values[Natts_operations];
	bool		nulls[Natts_operations] = {false};

	args_refuse_null(fcinfo, 1, "authorize");
	retention = args_retention(fcinfo, 2, "retention");
	forget_after = args_retention(fcinfo, 3, "forget_after");
	if (forget_after < retention)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("forget_after must not be less than retention"),
				 errdetail("forget_after is \"%s\" and retention is \"%s\", where a month is 31 days and a year 12 months.",
						   DatumGetCString(DirectFunctionCall1(interval_out, PG_GETARG_DATUM(3))),
						   DatumGetCString(DirectFunctionCall1(interval_out, PG_GETARG_DATUM(2))))));
	once_authorize_check(PG_GETARG_OID(1));
	store_begin_write("fencing_define_operation()");

	/* by names, which a dump and restore keeps */
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(PG_GETARG_OID(1)));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", PG_GETARG_OID(1));
	proc = (Form_pg_proc) GETSTRUCT(tuple);
	namestrcpy(&schema, get_namespace_name(proc->pronamespace));
	function = proc->proname;
	namestrcpy(&owner, GetUserNameFromId(proc->proowner, false));
	ReleaseSysCache(tuple);

	values[Anum_operations_operation - 1] = PointerGetDatum(name);
	values[Anum_operations_authorize_schema - 1] = NameGetDatum(&schema);
	values[Anum_operations_authorize_name - 1] = NameGetDatum(&function);
	values[Anum_operations_authorize_owner - 1] = NameGetDatum(&owner);
	values[Anum_operations_retention - 1] = PG_GETARG_DATUM(2);
	values[Anum_operations_forget_after - 1] = PG_GETARG_DATUM(3);

	operations = store_table_open(STORE_OPERATIONS, ShareRowExclusiveLock);
	row = find_operation(operations, name);
	if (row == NULL)
		store_insert(operations, values, nulls);
	else
	{
		store_require_visible(operations, row);
		store_update(operations, row, values, nulls);
	}
	table_close(operations, NoLock);
	ForceSyncCommit();
	PG_RETURN_VOID();
}

/*
 * fencing_define_request(operation text, hash_version int, request_schema jsonb) → void
 */
Datum
fencing_define_request(PG_FUNCTION_ARGS)
{
	text	   *name = args_key(fcinfo, 0, "operation");
	int			hash_version = arg_hash_version(fcinfo, 1);
	Jsonb	   *definition;
	Relation	schemas;
	Snapshot	snapshot;
	HeapTuple	row;
	bool		is_done;
	Datum		values[Natts_request_schemas];
	bool		nulls[Natts_request_schemas] = {false};

	args_refuse_null(fcinfo, 2, "request_schema");
	definition = PG_GETARG_JSONB_P(2);
	once_schema_check(definition);
	store_begin_write("fencing_define_request()");
	require_operation(name);

	values[Anum_request_schemas_operation - 1] = PointerGetDatum(name);
	values[Anum_request_schemas_hash_version - 1] = Int32GetDatum(hash_version);
	values[Anum_request_schemas_request_schema - 1] = JsonbPGetDatum(definition);
	values[Anum_request_schemas_retired_by - 1] = FullTransactionIdGetDatum(InvalidFullTransactionId);

	schemas = store_table_open(STORE_REQUEST_SCHEMAS, ShareUpdateExclusiveLock);
	snapshot = store_fresh_snapshot();
	row = store_find(schemas, 2, values, snapshot);
	is_done = row != NULL;
	if (!is_done)
	{
		CacheInvalidateRelcache(schemas);
		store_insert(schemas, values, nulls);
	}
	else
	{
		Jsonb	   *existing = DatumGetJsonbP(store_get(schemas, row,
														Anum_request_schemas_request_schema));

		if (compareJsonbContainers(&existing->root, &definition->root) != 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("hash_version %d of operation \"%s\" is defined already",
							hash_version, text_to_cstring(name)),
					 errdetail("A version is frozen, because records have been hashed by it."),
					 errhint("Define another version.")));
	}
	UnregisterSnapshot(snapshot);
	end_schemas(schemas, is_done);
	PG_RETURN_VOID();
}

/*
 * fencing_retire_request(operation text, hash_version int) → void
 *
 * Keeps the transaction that did it: a schema may go when no older
 * transaction is left that could still make a record by it.
 */
Datum
fencing_retire_request(PG_FUNCTION_ARGS)
{
	text	   *name = args_key(fcinfo, 0, "operation");
	int			hash_version = arg_hash_version(fcinfo, 1);
	Datum		key[2] = {PointerGetDatum(name), Int32GetDatum(hash_version)};
	Relation	schemas;
	Snapshot	snapshot;
	HeapTuple	row;
	bool		is_done;
	Datum		values[Natts_request_schemas];
	bool		nulls[Natts_request_schemas];

	store_begin_write("fencing_retire_request()");

	schemas = store_table_open(STORE_REQUEST_SCHEMAS, ShareUpdateExclusiveLock);
	snapshot = store_fresh_snapshot();
	row = store_find(schemas, 2, key, snapshot);
	if (row == NULL)
		once_operation_unknown_version(name, hash_version);
	store_read_row(schemas, row, values, nulls);
	is_done = FullTransactionIdIsValid(DatumGetFullTransactionId(values[Anum_request_schemas_retired_by - 1]));
	if (!is_done)
	{
		store_require_visible(schemas, row);
		values[Anum_request_schemas_retired_by - 1] =
			FullTransactionIdGetDatum(GetTopFullTransactionId());
		CacheInvalidateRelcache(schemas);
		store_update(schemas, row, values, nulls);
	}
	UnregisterSnapshot(snapshot);
	end_schemas(schemas, is_done);
	PG_RETURN_VOID();
}

/* With nothing to be done the lock goes, and what was read must be durable. */
static void
end_schemas(Relation schemas, bool is_done)
{
	table_close(schemas, is_done ? ShareUpdateExclusiveLock : NoLock);
	if (is_done)
		durable_wait_for_standbys();
	else
		ForceSyncCommit();
}

/*
 * fencing_request_canonical(operation text, hash_version int, request jsonb) → text
 */
Datum
fencing_request_canonical(PG_FUNCTION_ARGS)
{
	StringInfoData out;

	initStringInfo(&out);
	canonical_append(project_argument(fcinfo), DIGEST_VERSION, &out);
	PG_RETURN_TEXT_P(cstring_to_text_with_len(out.data, out.len));
}

/*
 * fencing_request_hash(operation text, hash_version int, request jsonb) → bytea
 */
Datum
fencing_request_hash(PG_FUNCTION_ARGS)
{
	PG_RETURN_BYTEA_P(digest_make(project_argument(fcinfo), DIGEST_VERSION));
}

/* The document that is hashed, for those two. */
static Jsonb *
project_argument(FunctionCallInfo fcinfo)
{
	text	   *name = args_key(fcinfo, 0, "operation");
	int			hash_version = arg_hash_version(fcinfo, 1);
	OnceOperation operation;
	const OnceVersion *version;
	Jsonb	   *projected;
	char	   *refusal;

	args_refuse_null(fcinfo, 2, "request");
	once_operation_load(name, &operation);
	version = once_operation_version(operation.versions, hash_version);
	if (version == NULL)
		once_operation_unknown_version(name, hash_version);
	projected = once_projection_make(version->schema, NIL, PG_GETARG_JSONB_P(2), &refusal);
	if (projected == NULL)
		once_operation_refuse_request(name, hash_version, refusal);
	return projected;
}

/* Raises 22004, 22023. */
static int
arg_hash_version(FunctionCallInfo fcinfo, int argno)
{
	int			value;

	args_refuse_null(fcinfo, argno, "hash_version");
	value = PG_GETARG_INT32(argno);
	if (value < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("hash_version must be greater than zero, not %d", value)));
	return value;
}

/*
 * Reads an operation with all its versions, as they are now.  Raises 22023 if
 * it is not defined.
 */
void
once_operation_load(const text *name, OnceOperation *operation)
{
	Relation	operations = store_table_open(STORE_OPERATIONS, AccessShareLock);
	Relation	schemas;
	HeapTuple	row = find_operation(operations, name);
	Snapshot	snapshot;
	Datum		key = PointerGetDatum(name);
	ListCell   *lc;

	if (row == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("operation \"%s\" is not defined", text_to_cstring(name)),
				 errhint("Define it by fencing_define_operation().")));
	operation->authorize_schema =
		NameStr(*DatumGetName(store_get(operations, row, Anum_operations_authorize_schema)));
	operation->authorize_name =
		NameStr(*DatumGetName(store_get(operations, row, Anum_operations_authorize_name)));
	operation->authorize_owner =
		NameStr(*DatumGetName(store_get(operations, row, Anum_operations_authorize_owner)));
	operation->versions = NIL;
	table_close(operations, AccessShareLock);

	schemas = store_table_open(STORE_REQUEST_SCHEMAS, AccessShareLock);
	renew_cache(schemas);
	snapshot = store_fresh_snapshot();
	foreach(lc, store_find_all(schemas, 1, &key, snapshot))
	{
		HeapTuple	schema = (HeapTuple) lfirst(lc);
		OnceVersion *version = (OnceVersion *) palloc(sizeof(OnceVersion));

		version->hash_version = DatumGetInt32(store_get(schemas, schema,
														Anum_request_schemas_hash_version));
		version->retired = FullTransactionIdIsValid(
													DatumGetFullTransactionId(store_get(schemas, schema,
																						Anum_request_schemas_retired_by)));
		version->schema = get_schema(schemas, name, version->hash_version, schema);
		operation->versions = lappend(operation->versions, version);
	}
	UnregisterSnapshot(snapshot);
	table_close(schemas, AccessShareLock);
}

/* The version, or NULL. */
const OnceVersion *
once_operation_version(List *versions, int hash_version)
{
	ListCell   *lc;

	foreach(lc, versions)
	{
		OnceVersion *version = (OnceVersion *) lfirst(lc);

		if (version->hash_version == hash_version)
			return version;
	}
	return NULL;
}

/* Raises LF002. */
void
once_operation_unknown_version(const text *operation, int hash_version)
{
	ereport(ERROR,
			(errcode(ERRCODE_FENCING_UNKNOWN_VERSION),
			 errmsg("operation \"%s\" has no request schema with hash_version %d",
					text_to_cstring(operation), hash_version)));
}

/* Raises 22023. */
void
once_operation_refuse_request(const text *operation, int hash_version, const char *refusal)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("request does not match hash_version %d of operation \"%s\"",
					hash_version, text_to_cstring(operation)),
			 errdetail_internal("%s", refusal)));
}

/* As it is now. */
static HeapTuple
find_operation(Relation operations, const text *name)
{
	Snapshot	snapshot = store_fresh_snapshot();
	Datum		key = PointerGetDatum(name);
	HeapTuple	row = store_find(operations, 1, &key, snapshot);

	UnregisterSnapshot(snapshot);
	return row;
}

/* Raises 22023. */
static void
require_operation(const text *name)
{
	OnceOperation operation;

	once_operation_load(name, &operation);
}

/*
 * Begins a new cache if the table has changed.  This comes before the rows
 * are read: if the table changes while they are, the next call begins
 * another.
 */
static void
renew_cache(Relation schemas)
{
	static bool registered = false;
	MemoryContext context;

	if (!registered)
	{
		CacheRegisterRelcacheCallback(forget_schemas, (Datum) 0);
		registered = true;
	}
	if (cache_valid)
		return;

	context = AllocSetContextCreate(TopMemoryContext, "fencing request schemas",
									ALLOCSET_DEFAULT_SIZES);
	/* a call further up may still use the old ones */
	if (cache_context != NULL)
		MemoryContextSetParent(cache_context, TopTransactionContext);
	cache_context = context;
	cache = NIL;
	cached_relid = RelationGetRelid(schemas);
	cache_valid = true;
}

/*
 * From the cache, or compiled into it; after a change since only the latter.
 */
static OnceSchema *
get_schema(Relation schemas, const text *operation, int hash_version, HeapTuple row)
{
	char	   *name = text_to_cstring(operation);
	Jsonb	   *definition;
	CachedSchema *cached;
	MemoryContext context;
	ListCell   *lc;

	foreach(lc, cache)
	{
		cached = (CachedSchema *) lfirst(lc);
		if (cache_valid && cached->hash_version == hash_version &&
			strcmp(cached->operation, name) == 0)
			return cached->schema;
	}

	definition = DatumGetJsonbP(store_get(schemas, row, Anum_request_schemas_request_schema));
	context = MemoryContextSwitchTo(cache_context);
	cached = (CachedSchema *) palloc(sizeof(CachedSchema));
	cached->operation = pstrdup(name);
	cached->hash_version = hash_version;
	cached->schema = once_schema_compile(definition);
	cache = lappend(cache, cached);
	MemoryContextSwitchTo(context);
	return cached->schema;
}

/* A version has been defined, retired or purged. */
static void
forget_schemas(Datum arg, Oid relid)
{
	if (!OidIsValid(relid) || relid == cached_relid)
		cache_valid = false;
}
