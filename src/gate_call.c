/*-------------------------------------------------------------------------
 *
 * gate_call.c
 *	  The frame of the SQL functions that go through the gate.
 *
 * Their options are the same: a statement, report_errors, strict.  So are
 * what happens around the gate, most columns of the answer, and the refusal
 * of a gate that is alone in its transaction.
 *
 * Locks: those of the gate.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/prepare.h"
#include "gate.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "nodes/nodeFuncs.h"
#include "nodes/plannodes.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/plancache.h"
#include "utils/portal.h"
#include "utils/syscache.h"

typedef struct GateAttempt
{
	FunctionCallInfo fcinfo;
	Gate	   *gate;
} GateAttempt;

/* How the client's own command calls a function. */
typedef enum Caller
{
	CALLER_OTHER,				/* it does not, but maybe a function that it
								 * calls */
	CALLER_READS,				/* in a query that writes nothing */
	CALLER_WRITES
} Caller;

static bool attempt(void *arg);
static void read_statement(Gate *gate, FunctionCallInfo fcinfo);
static void report(Gate *gate, const ErrorData *error, Datum *values, bool *nulls);
static void require_accepted(const Gate *gate);
static bool is_called_alone(FunctionCallInfo fcinfo);
static Caller caller(FunctionCallInfo fcinfo);
static Caller plan_caller(const PlannedStmt *plan);
static const PlannedStmt *plan_in_portal(FunctionCallInfo fcinfo);
static bool is_within_command(void);
static Caller utility_caller(const PlannedStmt *portal_plan, FunctionCallInfo fcinfo);
static Node *copied_query(const PlannedStmt *copy);
static const Query *explained_query(const ExplainStmt *explain);
static bool query_calls(Node *node, void *function);
static bool raw_query_calls(Node *node, void *name);
static bool has_modifying_cte(const SelectStmt *query);
static ErrorData *attempt_reporting(GateAttempt *call);
static bool must_propagate(const ErrorData *error);
static Datum error_to_jsonb(const ErrorData *error);
static void push_member(JsonbParseState **state, const char *key, const char *value);

/* what to do about an outcome that strict does not let pass */
static const char *const next_steps[FENCING_AGAIN + 1] = {
	[FENCING_CONFLICT] = gettext_noop("It was accepted before with another content: do not repeat it, but find out which content is right."),
	[FENCING_STALE] = gettext_noop("A higher number has come since: stop, the work is no longer this attempt's."),
	[FENCING_PRUNED] = gettext_noop("Nobody can tell any more whether it was accepted: do not repeat it, but look at the business data."),
	[FENCING_HELD] = gettext_noop("Another attempt is in progress: try again later."),
	[FENCING_UNDESIRED] = gettext_noop("The target is pinned below this version, or has rejected it: do not write it."),
	[FENCING_DENIED] = gettext_noop("The authorize function of the operation did not return true; if it could not be asked, the server log says why.")
};

/*
 * Runs an SQL function with the arguments of gate->kind, and returns its
 * answer.  Raises what the gate does, 22023, and with strict LF005.
 */
Datum
gate_call(FunctionCallInfo fcinfo, Gate *gate)
{
	const GateKind *kind = gate->kind;
	bool		report_errors = args_bool(fcinfo, kind->report_errors_arg, "report_errors");
	bool		strict = args_bool(fcinfo, kind->strict_arg, "strict");
	GateAttempt call = {fcinfo, gate};
	ErrorData  *error = NULL;
	Datum		values[GATE_NCOLUMNS] = {0};
	bool		nulls[GATE_NCOLUMNS] = {true, true, true, true};

	if (strict && report_errors)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("strict and report_errors exclude each other")));
	if (kind->wait_arg != GATE_NO_ARGUMENT)
		gate->no_wait = !args_bool(fcinfo, kind->wait_arg, "wait");

	/*
	 * to be asked before a subtransaction is begun, which looks like a block
	 */
	gate->alone = PG_ARGISNULL(kind->statement_arg) && is_called_alone(fcinfo);

	if (report_errors)
		error = attempt_reporting(&call);
	else
		(void) attempt(&call);

	report(gate, error, values, nulls);
	if (strict)
		require_accepted(gate);
	return args_answer(fcinfo, gate->outcome, values, nulls);
}

/*
 * Reads the arguments and passes the gate.  Returns whether the receipt was
 * written: if not, nothing is worth keeping.
 */
static bool
attempt(void *arg)
{
	GateAttempt *call = (GateAttempt *) arg;

	call->gate->kind->read_arguments(call->gate, call->fcinfo);
	read_statement(call->gate, call->fcinfo);
	gate_call_pass(call->gate);
	return call->gate->outcome == FENCING_COMMITTED;
}

/* The statement, if there is one; its arguments are in place. */
static void
read_statement(Gate *gate, FunctionCallInfo fcinfo)
{
	const GateKind *kind = gate->kind;

	gate->statement.nargs = kind->nargs;
	gate->statement.argtypes = kind->argtypes;
	if (!PG_ARGISNULL(kind->statement_arg))
		gate->statement.text = text_to_cstring(PG_GETARG_TEXT_PP(kind->statement_arg));
}

/*
 * Passes the gate with its tables open, again and again if it says so.  A
 * call that wrote nothing leaves no lock on them.
 */
void
gate_call_pass(Gate *gate)
{
	const GateKind *kind = gate->kind;

	do
	{
		CHECK_FOR_INTERRUPTS();
		if (kind->admit != NULL && !kind->admit(gate))
		{
			gate->outcome = FENCING_DENIED;
			return;
		}
		kind->open(gate);
		gate_enter(gate);
		kind->close(gate, gate->outcome == FENCING_COMMITTED ? NoLock : RowExclusiveLock);
	} while (gate->outcome == FENCING_AGAIN);
}

/*
 * Fills the answer: result, committed_at and error, each NULL where the
 * outcome has none, and what is the part's own.
 */
static void
report(Gate *gate, const ErrorData *error, Datum *values, bool *nulls)
{
	bool		accepted;

	if (error != NULL)
	{
		gate->outcome = FENCING_FAILED;
		values[GATE_ERROR] = error_to_jsonb(error);
		nulls[GATE_ERROR] = false;
	}

	accepted = gate->outcome == FENCING_COMMITTED || gate->outcome == FENCING_REPLAYED;
	values[GATE_RESULT] = gate->result;
	nulls[GATE_RESULT] = !accepted || gate->result_null;
	values[GATE_COMMITTED_AT] = TimestampTzGetDatum(gate->committed_at);
	nulls[GATE_COMMITTED_AT] = !accepted && gate->outcome != FENCING_CONFLICT;
	gate->kind->answer(gate, values, nulls);
}

/* With strict, for callers who would forget to look: raises LF005. */
static void
require_accepted(const Gate *gate)
{
	if (gate->outcome != FENCING_COMMITTED && gate->outcome != FENCING_REPLAYED)
		ereport(ERROR,
				(errcode(ERRCODE_FENCING_NOT_ACCEPTED),
				 errmsg("attempt was not accepted: %s", gate->kind->describe(gate)),
				 errdetail("The outcome is \"%s\".", args_outcome_name(gate->outcome)),
				 next_steps[gate->outcome] != NULL ?
				 errhint("%s", _(next_steps[gate->outcome])) : 0));
}

/*
 * Is the function called by the client's own command, a plain query outside a
 * transaction block?  A gate without a statement is alone then: nothing else
 * can be written in its transaction.  A call from inside another function, or
 * in a query that also writes, may well be right.
 */
static bool
is_called_alone(FunctionCallInfo fcinfo)
{
	/* the statement of another gate is a write beside it */
	if (gate_in_statement() || IsTransactionBlock())
		return false;
	return caller(fcinfo) == CALLER_READS;
}

/* Does the client's own command call the function, not another function? */
bool
gate_call_by_client(FunctionCallInfo fcinfo)
{
	return caller(fcinfo) != CALLER_OTHER;
}

/* The plan has the function among the objects that it depends on. */
static Caller
caller(FunctionCallInfo fcinfo)
{
	Oid			function = fcinfo->flinfo->fn_oid;
	const PlannedStmt *plan;
	uint32		hash;
	ListCell   *lc;

	if (ActivePortal == NULL || list_length(ActivePortal->stmts) != 1 || is_within_command())
		return CALLER_OTHER;

	plan = linitial_node(PlannedStmt, ActivePortal->stmts);
	if (plan->commandType == CMD_UTILITY)
		return utility_caller(plan, fcinfo);

	hash = GetSysCacheHashValue1(PROCOID, ObjectIdGetDatum(function));
	foreach(lc, plan->invalItems)
	{
		PlanInvalItem *item = (PlanInvalItem *) lfirst(lc);

		if (item->cacheId == PROCOID && item->hashValue == hash)
			return plan_caller(plan);
	}
	return CALLER_OTHER;
}

/*
 * Has the active portal been made by the client's command?  The cursor of a
 * loop in a function is one, and is shown in pg_cursors; that of EXECUTE is
 * not, and stands for the command itself.
 */
static bool
is_within_command(void)
{
	Portal		client = GetPortalByName("");
	const PlannedStmt *plan;

	if (!PortalIsValid(client) || client->status != PORTAL_ACTIVE || client == ActivePortal)
		return false;
	plan = list_length(client->stmts) == 1 ? linitial_node(PlannedStmt, client->stmts) : NULL;
	return ActivePortal->visible || plan == NULL || plan->commandType != CMD_UTILITY ||
		!IsA(plan->utilityStmt, ExecuteStmt);
}

/* The plan calls the function: does it write as well? */
static Caller
plan_caller(const PlannedStmt *plan)
{
	return plan->commandType == CMD_SELECT && !plan->hasModifyingCTE ?
		CALLER_READS : CALLER_WRITES;
}

/*
 * The plan whose FROM calls the function, if its text is the client's: so
 * also through a view.
 */
static const PlannedStmt *
plan_in_portal(FunctionCallInfo fcinfo)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	EState	   *estate = rsinfo != NULL && IsA(rsinfo, ReturnSetInfo) ?
		rsinfo->econtext->ecxt_estate : NULL;

	/* it is not copied on the way, so that the address will do */
	return estate != NULL && estate->es_sourceText == ActivePortal->sourceText ?
		estate->es_plannedstmt : NULL;
}

/*
 * Commands that run a query of theirs, without a portal: EXPLAIN and COPY TO.
 */
static Caller
utility_caller(const PlannedStmt *portal_plan, FunctionCallInfo fcinfo)
{
	Oid			function = fcinfo->flinfo->fn_oid;
	Node	   *command = portal_plan->utilityStmt;
	const PlannedStmt *plan;

	if (IsA(command, ExplainStmt))
	{
		const Query *query = explained_query((ExplainStmt *) command);

		if (query == NULL)
			return CALLER_OTHER;
		if (query_calls((Node *) query, &function))
			return query->commandType == CMD_SELECT && !query->hasModifyingCTE ?
				CALLER_READS : CALLER_WRITES;
	}
	else if (IsA(command, CopyStmt))
	{
		Node	   *query = copied_query(portal_plan);

		if (raw_query_calls(query, get_func_name(function)))
			return IsA(query, SelectStmt) && !has_modifying_cte((SelectStmt *) query) ?
				CALLER_READS : CALLER_WRITES;
	}
	else
		return CALLER_OTHER;
	plan = plan_in_portal(fcinfo);
	return plan != NULL ? plan_caller(plan) : CALLER_OTHER;
}

/* Of EXPLAIN EXECUTE the prepared one; NULL: it is another command. */
static const Query *
explained_query(const ExplainStmt *explain)
{
	Query	   *query = castNode(Query, explain->query);
	PreparedStatement *prepared;

	if (query->commandType != CMD_UTILITY)
		return query;
	if (!IsA(query->utilityStmt, ExecuteStmt))
		return NULL;
	prepared = FetchPreparedStatement(((ExecuteStmt *) query->utilityStmt)->name, false);
	if (prepared == NULL || list_length(prepared->plansource->query_list) != 1)
		return NULL;
	return linitial_node(Query, prepared->plansource->query_list);
}

/*
 * The query of COPY, parsed again: analysis has changed the one that the
 * command has, in part.  NULL: it copies a table.
 */
static Node *
copied_query(const PlannedStmt *copy)
{
	const char *text = ActivePortal->sourceText;
	List	   *commands;

	if (((CopyStmt *) copy->utilityStmt)->query == NULL)
		return NULL;
	if (copy->stmt_location > 0)
		text	  +=copy->stmt_location;

	if (copy->stmt_len > 0)
		text = pnstrdup(text, copy->stmt_len);

	commands = pg_parse_query(text);
	return castNode(CopyStmt, linitial_node(RawStmt, commands)->stmt)->query;
}

/* Does an analyzed query call the function? */
static bool
query_calls(Node *node, void *function)
{
	if (node == NULL)
		return false;
	if (IsA(node, FuncExpr) && ((FuncExpr *) node)->funcid == *(Oid *) function)
		return true;
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, query_calls, function, 0);
	return expression_tree_walker(node, query_calls, function);
}

/* Does a query as it was written?  Only the name of the function is known. */
static bool
raw_query_calls(Node *node, void *name)
{
	if (node == NULL || name == NULL)
		return false;
	if (IsA(node, FuncCall) &&
		strcmp(strVal(llast(((FuncCall *) node)->funcname)), (const char *) name) == 0)
		return true;
	return raw_expression_tree_walker(node, raw_query_calls, name);
}

/* Does it write in its WITH? */
static bool
has_modifying_cte(const SelectStmt *query)
{
	ListCell   *lc;

	if (query->withClause == NULL)
		return false;
	foreach(lc, query->withClause->ctes)
	{
		if (!IsA(lfirst_node(CommonTableExpr, lc)->ctequery, SelectStmt))
			return true;
	}
	return false;
}

/*
 * Makes the attempt in a subtransaction, which is kept only if it is worth
 * that.  Returns its error, or NULL; one that is the transaction's or the
 * server's rather than the attempt's own is raised.
 */
static ErrorData *
attempt_reporting(GateAttempt *call)
{
	ErrorData  *error = NULL;

	(void) store_subtransaction(attempt, call, &error);
	if (error != NULL && must_propagate(error))
		ReThrowError(error);
	return error;
}

/* Is it an error of the transaction or the server? */
static bool
must_propagate(const ErrorData *error)
{
	if (error->sqlerrcode == ERRCODE_READ_ONLY_SQL_TRANSACTION ||
		error->sqlerrcode == ERRCODE_NO_ACTIVE_SQL_TRANSACTION ||
		error->sqlerrcode == ERRCODE_INSUFFICIENT_PRIVILEGE)
		return true;

	switch (ERRCODE_TO_CATEGORY(error->sqlerrcode))
	{
		case MAKE_SQLSTATE('4', '0', '0', '0', '0'):	/* transaction rollback */
		case MAKE_SQLSTATE('5', '3', '0', '0', '0'):	/* insufficient
														 * resources */
		case MAKE_SQLSTATE('5', '7', '0', '0', '0'):	/* operator intervention */
		case MAKE_SQLSTATE('X', 'X', '0', '0', '0'):	/* internal error */
			return true;
		default:
			return false;
	}
}

/*
 * An error as {"sqlstate", "message", "detail", "hint", "context"}, with null
 * for what it does not have.
 */
static Datum
error_to_jsonb(const ErrorData *error)
{
	JsonbParseState *state = NULL;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	push_member(&state, "sqlstate", unpack_sql_state(error->sqlerrcode));
	push_member(&state, "message", error->message);
	push_member(&state, "detail", error->detail);
	push_member(&state, "hint", error->hint);
	push_member(&state, "context", error->context);
	return JsonbPGetDatum(JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL)));
}

/* A string, or null. */
static void
push_member(JsonbParseState **state, const char *key, const char *value)
{
	JsonbValue	item;

	item.type = jbvString;
	item.val.string.val = unconstify(char *, key);
	item.val.string.len = strlen(key);
	pushJsonbValue(state, WJB_KEY, &item);

	if (value == NULL)
		item.type = jbvNull;
	else
	{
		item.val.string.val = pstrdup(value);
		item.val.string.len = strlen(value);
	}
	pushJsonbValue(state, WJB_VALUE, &item);
}
