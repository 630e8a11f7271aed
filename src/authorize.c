/*-------------------------------------------------------------------------
 *
 * authorize.c
 *	  May the caller do this?  Asked before anything else, by the user's function.
 *
 * The function runs as the caller, with a pinned search_path, in a read-only
 * subtransaction that is always rolled back.  It is found by the names that it
 * had when the operation was defined: one that is gone, belongs to somebody else
 * or returns something else now denies.  So does one that raises an error; only
 * its SQLSTATE is logged, as the message may have something of the request or
 * of "auth" in it.
 *
 * Locks: none.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "fencing.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/varlena.h"

typedef struct AuthorizeCall
{
	Oid			function;
	text	   *tenant_id;
	text	   *operation;
	Jsonb	   *request;
	Jsonb	   *auth;
	bool		allowed;
} AuthorizeCall;

static const Oid argtypes[] = {TEXTOID, TEXTOID, JSONBOID, JSONBOID};

static Oid	find_function(const char *schema, const char *name, const char *owner);
static bool path_is_pinned(HeapTuple function);
static bool may_execute(Oid function);
static bool ask(void *arg);

/*
 * Whether the function says true.  Serialization failures, deadlocks and
 * cancellation go on as errors; all other errors are a no.
 *
 * An error may quote auth, and so may the statement that the server would log
 * beside a message: only the SQLSTATE leaves this function.
 */
bool
fencing_authorize(text *tenant_id, text *operation, Jsonb *request, Jsonb *auth,
				  const char *schema, const char *name, const char *owner)
{
	AuthorizeCall call = {0};
	ErrorData  *error;

	call.function = find_function(schema, name, owner);
	if (!OidIsValid(call.function) || !may_execute(call.function))
	{
		ereport(LOG_SERVER_ONLY,
				(errmsg("operation \"%s\" denied: its authorize function is not there or not the one it was",
						text_to_cstring(operation)),
				 errhidestmt(true),
				 errhidecontext(true)));
		return false;
	}

	call.tenant_id = tenant_id;
	call.operation = operation;
	call.request = request;
	call.auth = auth;
	(void) fencing_subtransaction(ask, &call, &error);
	if (error != NULL)
	{
		int			sqlerrcode = error->sqlerrcode;
		int			category = ERRCODE_TO_CATEGORY(sqlerrcode);

		FreeErrorData(error);
		if (category == MAKE_SQLSTATE('4', '0', '0', '0', '0') ||
			category == MAKE_SQLSTATE('5', '7', '0', '0', '0'))
			ereport(ERROR,
					(errcode(sqlerrcode),
					 errmsg("authorization of operation \"%s\" was interrupted",
							text_to_cstring(operation)),
					 errhidestmt(true),
					 errhidecontext(true)));
		ereport(LOG_SERVER_ONLY,
				(errmsg("operation \"%s\" denied: its authorize function raised an error with SQLSTATE %s",
						text_to_cstring(operation), unpack_sql_state(sqlerrcode)),
				 errhidestmt(true),
				 errhidecontext(true)));
		return false;
	}
	return call.allowed;
}

/*
 * Raises 22023 unless the function has the signature (tenant_id text, operation
 * text, request jsonb, auth jsonb) returns boolean, and a search_path, if it sets
 * one, that ends with pg_temp.
 */
void
fencing_check_authorize(Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Form_pg_proc proc;

	if (!HeapTupleIsValid(tuple))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("function with OID %u does not exist", function)));
	proc = (Form_pg_proc) GETSTRUCT(tuple);
	if (proc->prokind != PROKIND_FUNCTION || proc->proretset || proc->prorettype != BOOLOID ||
		proc->pronargs != lengthof(argtypes) ||
		memcmp(proc->proargtypes.values, argtypes, sizeof(argtypes)) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("function \"%s\" cannot authorize an operation", NameStr(proc->proname)),
				 errdetail("Its arguments must be (tenant_id text, operation text, request jsonb, auth jsonb), its result boolean.")));
	if (!path_is_pinned(tuple))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("function \"%s\" cannot authorize an operation", NameStr(proc->proname)),
				 errdetail("Temporary tables of its callers come first in the search_path that it sets."),
				 errhint("Let that search_path end with pg_temp.")));
	ReleaseSysCache(tuple);
}

/* By the types' OIDs: a type of the same name elsewhere is another function. */
static Oid
find_function(const char *schema, const char *name, const char *owner)
{
	Oid			namespace = get_namespace_oid(schema, true);
	HeapTuple	tuple;
	Form_pg_proc proc;
	Oid			result = InvalidOid;

	if (!OidIsValid(namespace))
		return InvalidOid;
	tuple = SearchSysCache3(PROCNAMEARGSNSP, CStringGetDatum(name),
							PointerGetDatum(buildoidvector(argtypes, lengthof(argtypes))),
							ObjectIdGetDatum(namespace));
	if (!HeapTupleIsValid(tuple))
		return InvalidOid;

	proc = (Form_pg_proc) GETSTRUCT(tuple);
	if (proc->prokind == PROKIND_FUNCTION && !proc->proretset && proc->prorettype == BOOLOID &&
		path_is_pinned(tuple))
	{
		char	   *proowner = GetUserNameFromId(proc->proowner, true);

		if (proowner != NULL && strcmp(proowner, owner) == 0)
			result = proc->oid;
	}
	ReleaseSysCache(tuple);
	return result;
}

/*
 * Whether no temporary object of the caller comes before those that the function
 * means: pg_temp is where it is first named, or before everything.
 */
static bool
path_is_pinned(HeapTuple function)
{
	static const char search_path[] = "search_path=";
	bool		isnull;
	Datum		config = SysCacheGetAttr(PROCOID, function, Anum_pg_proc_proconfig, &isnull);
	Datum	   *settings;
	int			count;

	if (isnull)
		return true;

	deconstruct_array(DatumGetArrayTypeP(config), TEXTOID, -1, false, TYPALIGN_INT,
					  &settings, NULL, &count);
	for (int i = 0; i < count; i++)
	{
		char	   *setting = TextDatumGetCString(settings[i]);
		List	   *schemas;
		ListCell   *lc;

		if (strncmp(setting, search_path, strlen(search_path)) != 0)
			continue;
		if (!SplitIdentifierString(setting + strlen(search_path), ',', &schemas))
			return false;
		foreach(lc, schemas)
		{
			if (strcmp((char *) lfirst(lc), "pg_temp") == 0)
				break;
		}
		if (lc == NULL || lnext(schemas, lc) != NULL)
			return false;
	}
	return true;
}

static bool
may_execute(Oid function)
{
	return fencing_may_execute(function, GetUserId()) == ACLCHECK_OK;
}

/* Always false: the subtransaction is not kept. */
static bool
ask(void *arg)
{
	AuthorizeCall *call = (AuthorizeCall *) arg;
	FmgrInfo	flinfo;
	LOCAL_FCINFO(fcinfo, 4);
	Datum		result;

	/* the end of the subtransaction restores both */
	XactReadOnly = true;
	(void) set_config_option("search_path", "pg_catalog, pg_temp",
							 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);

	/* at READ COMMITTED this is a new one: rights may just have been revoked */
	PushActiveSnapshot(GetTransactionSnapshot());

	fmgr_info(call->function, &flinfo);
	InitFunctionCallInfoData(*fcinfo, &flinfo, lengthof(argtypes), DEFAULT_COLLATION_OID, NULL, NULL);
	fcinfo->args[0].value = PointerGetDatum(call->tenant_id);
	fcinfo->args[0].isnull = false;
	fcinfo->args[1].value = PointerGetDatum(call->operation);
	fcinfo->args[1].isnull = false;
	fcinfo->args[2].value = JsonbPGetDatum(call->request);
	fcinfo->args[2].isnull = false;
	fcinfo->args[3].value = call->auth == NULL ? (Datum) 0 : JsonbPGetDatum(call->auth);
	fcinfo->args[3].isnull = call->auth == NULL;

	/* a strict function has nothing to say about no auth, which is not a yes */
	if (call->auth != NULL || !flinfo.fn_strict)
	{
		result = FunctionCallInvoke(fcinfo);
		call->allowed = !fcinfo->isnull && DatumGetBool(result);
	}
	PopActiveSnapshot();
	return false;
}
