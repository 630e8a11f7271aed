/*-------------------------------------------------------------------------
 *
 * once_authorize.c
 *	  May the caller do this?  Asked before anything else, by the user's
 *	  function.
 *
 * The function runs as the caller, with a pinned search_path, in a read-only
 * subtransaction that is always rolled back.  It is found by the names that
 * it had when the operation was defined: one that is gone, belongs to
 * somebody else or returns something else now denies.  So does one that
 * raises an error.
 *
 * Temporary tables are the caller's own, and pg_temp cannot be kept from
 * being searched for a table that is found nowhere else.  So queries that
 * read one are refused while authorize runs.
 *
 * The log says why a call is denied, but has nothing of the request or of
 * "auth" in it, as the message of an error may: only messages that name no
 * more than an object of the catalog or a command are logged, and of others
 * the SQLSTATE.
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
#include "executor/executor.h"
#include "miscadmin.h"
#include "once.h"
#include "store.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/varlena.h"

/* The client hears "denied" and no more; why is for the log. */
#define LOG_DENIAL(...) \
	ereport(LOG_SERVER_ONLY, \
			(errmsg(__VA_ARGS__), errhidestmt(true), errhidecontext(true)))

typedef struct AuthorizeCall
{
	Oid			function;
	text	   *tenant_id;
	text	   *operation;
	Jsonb	   *request;
	Jsonb	   *auth;
	bool		allowed;
	const char *remark;			/* for the log, a format; NULL: none */
} AuthorizeCall;

static const Oid argtypes[] = {TEXTOID, TEXTOID, JSONBOID, JSONBOID};

static Oid	find_function(const char *schema, const char *name, const char *owner);
static bool has_signature(Form_pg_proc proc);
static bool path_is_pinned(HeapTuple function);
static bool ask(void *arg);
static bool call_function(AuthorizeCall *call);
static void refuse_temporary(QueryDesc *query, int eflags);
static void log_error(const text *operation, const char *function, const ErrorData *error);

/* whether an authorize function is running */
static bool asking = false;
static ExecutorStart_hook_type next_executor_start = NULL;

/*
 * Whether the function says true.  Serialization failures, deadlocks and
 * cancellation go on as errors; all other errors are a no.
 *
 * An error may quote auth, and so may the statement that the server would log
 * beside a message: neither leaves this function.
 */
bool
once_authorize(text *tenant_id, text *operation, Jsonb *request, Jsonb *auth,
			   const char *schema, const char *name, const char *owner)
{
	AuthorizeCall call = {0};
	const char *function = quote_qualified_identifier(schema, name);
	ErrorData  *error;

	call.function = find_function(schema, name, owner);
	if (!OidIsValid(call.function))
	{
		LOG_DENIAL("operation \"%s\" denied: its authorize function %s is not there or not the one it was",
				   text_to_cstring(operation), function);
		return false;
	}
	if (compat_may_execute(call.function, GetUserId()) != ACLCHECK_OK)
	{
		LOG_DENIAL("operation \"%s\" denied: role \"%s\" has no EXECUTE on its authorize function %s",
				   text_to_cstring(operation), GetUserNameFromId(GetUserId(), false), function);
		return false;
	}

	call.tenant_id = tenant_id;
	call.operation = operation;
	call.request = request;
	call.auth = auth;
	(void) store_subtransaction(ask, &call, &error);
	if (error != NULL)
	{
		int			category = ERRCODE_TO_CATEGORY(error->sqlerrcode);

		if (category == MAKE_SQLSTATE('4', '0', '0', '0', '0') ||
			category == MAKE_SQLSTATE('5', '7', '0', '0', '0'))
			ereport(ERROR,
					(errcode(error->sqlerrcode),
					 errmsg("authorization of operation \"%s\" was interrupted",
							text_to_cstring(operation)),
					 errhidestmt(true),
					 errhidecontext(true)));
		log_error(operation, function, error);
		FreeErrorData(error);
		return false;
	}
	if (call.remark != NULL)
		LOG_DENIAL(call.remark, text_to_cstring(operation), function);
	return call.allowed;
}

/*
 * Raises 22023 unless the function has the signature (tenant_id text,
 * operation text, request jsonb, auth jsonb) returns boolean, is not
 * temporary, and has a search_path, if it sets one, that ends with pg_temp.
 */
void
once_authorize_check(Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Form_pg_proc proc;

	if (!HeapTupleIsValid(tuple))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("authorize must be a function: there is none with OID %u", function)));
	proc = (Form_pg_proc) GETSTRUCT(tuple);
	if (!has_signature(proc))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("function %s cannot authorize an operation", format_procedure(function)),
				 proc->prorettype == BOOLOID && !proc->proretset ?
				 errdetail("It must be a function (tenant_id text, operation text, request jsonb, auth jsonb) that returns boolean.") :
				 errdetail("It must be a function (tenant_id text, operation text, request jsonb, auth jsonb) that returns boolean, not %s%s.",
						   proc->proretset ? "SETOF " : "", format_type_be(proc->prorettype))));
	if (isAnyTempNamespace(proc->pronamespace))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("function %s cannot authorize an operation", format_procedure(function)),
				 errdetail("It is temporary: other sessions do not have it, and it goes with this one."),
				 errhint("Create it in a schema of its own or of the application.")));
	if (!path_is_pinned(tuple))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("function %s cannot authorize an operation", format_procedure(function)),
				 errdetail("Temporary objects of its callers come first in the search_path that it sets."),
				 errhint("Let that search_path end with pg_temp.")));
	ReleaseSysCache(tuple);
}

/* (text, text, jsonb, jsonb) returns boolean, and no set. */
static bool
has_signature(Form_pg_proc proc)
{
	return proc->prokind == PROKIND_FUNCTION && !proc->proretset && proc->prorettype == BOOLOID &&
		proc->pronargs == lengthof(argtypes) &&
		memcmp(proc->proargtypes.values, argtypes, sizeof(argtypes)) == 0;
}

/*
 * By the types' OIDs: a type of the same name elsewhere is another function.
 */
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
	if (has_signature(proc) && path_is_pinned(tuple))
	{
		char	   *proowner = GetUserNameFromId(proc->proowner, true);

		if (proowner != NULL && strcmp(proowner, owner) == 0)
			result = proc->oid;
	}
	ReleaseSysCache(tuple);
	return result;
}

/*
 * Whether no temporary object of the caller comes before those that the
 * function means: pg_temp is where it is first named, or before everything.
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

/* Always false: the subtransaction is not kept. */
static bool
ask(void *arg)
{
	AuthorizeCall *call = (AuthorizeCall *) arg;
	bool		outer = asking;

	/* the end of the subtransaction restores both */
	XactReadOnly = true;
	(void) set_config_option("search_path", "pg_catalog, pg_temp",
							 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);

	/*
	 * at READ COMMITTED this is a new one: rights may just have been revoked
	 */
	PushActiveSnapshot(GetTransactionSnapshot());
	asking = true;
	PG_TRY();
	{
		call->allowed = call_function(call);
	}
	PG_FINALLY();
	{
		asking = outer;
	}
	PG_END_TRY();
	PopActiveSnapshot();
	return false;
}

/*
 * Returns what the function answers, with a remark on what may be a mistake.
 */
static bool
call_function(AuthorizeCall *call)
{
	FmgrInfo	flinfo;

	LOCAL_FCINFO(fcinfo, 4);
	Datum		result;

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

	/*
	 * a strict function has nothing to say about no auth, which is not a yes
	 */
	if (call->auth == NULL && flinfo.fn_strict)
	{
		call->remark = gettext_noop("operation \"%s\" denied: its authorize function %s is strict, and auth is null");
		return false;
	}
	result = FunctionCallInvoke(fcinfo);
	if (!fcinfo->isnull && DatumGetBool(result))
		return true;

	/* a plain no needs no explanation; these are likely to be mistakes */
	if (call->auth == NULL)
		call->remark = fcinfo->isnull ?
			gettext_noop("operation \"%s\" denied: its authorize function %s returned null, and auth is null") :
			gettext_noop("operation \"%s\" denied: its authorize function %s returned false, and auth is null");
	else if (fcinfo->isnull)
		call->remark = gettext_noop("operation \"%s\" denied: its authorize function %s returned null");
	return false;
}

/*
 * Sees to it that no query of an authorize function reads a temporary table.
 */
void
once_authorize_init(void)
{
	next_executor_start = ExecutorStart_hook;
	ExecutorStart_hook = refuse_temporary;
}

/*
 * The error is that of a table that is not there, which for authorize it is
 * not.
 */
static void
refuse_temporary(QueryDesc *query, int eflags)
{
	ListCell   *lc;

	foreach(lc, asking ? query->plannedstmt->relationOids : NIL)
	{
		if (get_rel_persistence(lfirst_oid(lc)) == RELPERSISTENCE_TEMP)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_TABLE),
					 errmsg("authorize function reads temporary table \"%s\"",
							get_rel_name(lfirst_oid(lc)))));
	}
	if (next_executor_start != NULL)
		next_executor_start(query, eflags);
	else
		standard_ExecutorStart(query, eflags);
}

/*
 * What an error says that may be logged.  Who raised it tells what the
 * message can have in it: a function may raise any SQLSTATE with anything.
 */
static void
log_error(const text *operation, const char *function, const ErrorData *error)
{
	static const char *const harmless[] = {
		"aclcheck_error", "PreventCommandIfReadOnly", "refuse_temporary"
	};
	const char *sqlstate = unpack_sql_state(error->sqlerrcode);

	for (size_t i = 0; i < lengthof(harmless); i++)
	{
		if (error->funcname != NULL && strcmp(error->funcname, harmless[i]) == 0)
		{
			LOG_DENIAL("operation \"%s\" denied: its authorize function %s raised an error with SQLSTATE %s: %s",
					   text_to_cstring(operation), function, sqlstate, error->message);
			return;
		}
	}
	switch (error->sqlerrcode)
	{
		case ERRCODE_UNDEFINED_TABLE:
		case ERRCODE_UNDEFINED_FUNCTION:
		case ERRCODE_UNDEFINED_OBJECT:
			LOG_DENIAL("operation \"%s\" denied: its authorize function %s raised an error with SQLSTATE %s: are all names in it qualified? It runs with search_path pg_catalog, pg_temp",
					   text_to_cstring(operation), function, sqlstate);
			break;
		default:
			LOG_DENIAL("operation \"%s\" denied: its authorize function %s raised an error with SQLSTATE %s",
					   text_to_cstring(operation), function, sqlstate);
	}
}
