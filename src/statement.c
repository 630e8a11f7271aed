/*-------------------------------------------------------------------------
 *
 * statement.c
 *	  The caller's statement: check, keep its plan, run it, convert the result.
 *
 * Everything here happens as the caller, with his privileges and search_path:
 * no part of it may be called from inside a switch to the owner.
 *
 * A plan is kept per role, argument types and text, up to a number of them;
 * the one not used for the longest time gives way.  The role belongs to the
 * key because the right to use a schema is checked when names are looked up,
 * not when the plan runs.  A changed search_path is the plan cache's business:
 * it analyzes the text again.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "executor/spi.h"
#include "fencing.h"
#include "funcapi.h"
#include "lib/ilist.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "parser/parser.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/plancache.h"

/* statements kept per backend: more than an application has, in a few MB */
#define CACHE_CAPACITY		128

typedef struct CachedStatement
{
	dlist_node	node;			/* in entries */
	uint32		hash;
	Oid			role;
	const Oid  *argtypes;		/* one array per part, so its address will do */
	char	   *text;
	SPIPlanPtr	plan;
	int			uses;			/* runs in progress: may not be dropped */
} CachedStatement;

static void execute(CachedStatement *entry, Datum *args, const char *nulls);
static CachedStatement *get_statement(const FencingStatement *statement);
static void make_room(void);
static SPIPlanPtr prepare(const FencingStatement *statement);
static void check_command(const char *text);
static void parse_error_context(void *arg);
static Datum first_row(bool *isnull);
static Datum row_to_jsonb(HeapTuple tuple, TupleDesc tupdesc);
static bool must_propagate(const ErrorData *error);
static void push_member(JsonbParseState **state, const char *key, const char *value);

PG_FUNCTION_INFO_V1(fencing_statement_cache);

/* the cache, last used first */
static dlist_head entries = DLIST_STATIC_INIT(entries);
static int	nentries = 0;
static int64 hits = 0;
static int64 misses = 0;
static int64 evictions = 0;

/*
 * fencing.statement_cache() → capacity, entries, hits, misses, evictions
 */
Datum
fencing_statement_cache(PG_FUNCTION_ARGS)
{
	TupleDesc	tupdesc;
	Datum		values[5];
	bool		nulls[5] = {false};

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	values[0] = Int32GetDatum(CACHE_CAPACITY);
	values[1] = Int32GetDatum(nentries);
	values[2] = Int64GetDatum(hits);
	values[3] = Int64GetDatum(misses);
	values[4] = Int64GetDatum(evictions);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc), values, nulls)));
}

/*
 * Runs the statement and returns its first row as a jsonb Datum in the current
 * memory context, NULL if there is none.  Raises 0A000 before anything runs if
 * it is not exactly one SELECT, INSERT, UPDATE, DELETE or MERGE, 21000 if it
 * returns more than one row, and whatever it raises itself.
 */
Datum
fencing_run_statement(const FencingStatement *statement, bool *isnull)
{
	MemoryContext context = CurrentMemoryContext;
	Datum		result = (Datum) 0;

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");

	execute(get_statement(statement), statement->args, statement->nulls);

	*isnull = true;
	if (SPI_tuptable != NULL && SPI_processed > 1)
		ereport(ERROR,
				(errcode(ERRCODE_CARDINALITY_VIOLATION),
				 errmsg("statement returned more than one row"),
				 errhint("Return one row with what a retry needs to know, or none.")));
	if (SPI_tuptable != NULL && SPI_processed == 1)
	{
		result = first_row(isnull);
		if (!*isnull)
		{
			MemoryContext spi_context = MemoryContextSwitchTo(context);

			result = datumCopy(result, false, -1);
			MemoryContextSwitchTo(spi_context);
		}
	}
	SPI_finish();
	return result;
}

/* Runs the plan, which nobody may drop meanwhile. */
static void
execute(CachedStatement *entry, Datum *args, const char *nulls)
{
	entry->uses++;
	PG_TRY();
	{
		/* two rows are enough to know that there is more than one */
		int			code = SPI_execute_plan(entry->plan, args, nulls, false, 2);

		if (code < 0)
			elog(ERROR, "SPI_execute_plan returned %s", SPI_result_code_string(code));
	}
	PG_FINALLY();
	{
		entry->uses--;
	}
	PG_END_TRY();
}

/* The cached statement; its plan is made first if it is not there. */
static CachedStatement *
get_statement(const FencingStatement *statement)
{
	Oid			role = GetUserId();
	uint32		hash = hash_bytes((const unsigned char *) statement->text,
								  strlen(statement->text));
	SPIPlanPtr	plan;
	CachedStatement *entry;
	dlist_iter	iter;

	dlist_foreach(iter, &entries)
	{
		entry = dlist_container(CachedStatement, node, iter.cur);
		if (entry->hash == hash && entry->role == role &&
			entry->argtypes == statement->argtypes &&
			strcmp(entry->text, statement->text) == 0)
		{
			dlist_move_head(&entries, &entry->node);
			hits++;
			return entry;
		}
	}

	misses++;
	plan = prepare(statement);
	make_room();
	entry = (CachedStatement *) MemoryContextAllocZero(TopMemoryContext, sizeof(CachedStatement));
	entry->text = MemoryContextStrdup(TopMemoryContext, statement->text);
	entry->hash = hash;
	entry->role = role;
	entry->argtypes = statement->argtypes;

	/* from here on nothing can fail */
	if (SPI_keepplan(plan) != 0)
		elog(ERROR, "SPI_keepplan failed");
	entry->plan = plan;
	dlist_push_head(&entries, &entry->node);
	nentries++;
	return entry;
}

/*
 * Drops the statement that was not used for the longest time, if the cache is
 * full.  One whose run called us stays; with more of those than there are
 * places the cache grows for the time being.
 */
static void
make_room(void)
{
	dlist_node *node;

	if (nentries < CACHE_CAPACITY)
		return;

	for (node = dlist_tail_node(&entries);; node = dlist_prev_node(&entries, node))
	{
		CachedStatement *entry = dlist_container(CachedStatement, node, node);

		if (entry->uses == 0)
		{
			dlist_delete(node);
			nentries--;
			evictions++;
			SPI_freeplan(entry->plan);
			pfree(entry->text);
			pfree(entry);
			return;
		}
		if (!dlist_has_prev(&entries, node))
			return;
	}
}

/* Checks and plans a statement. */
static SPIPlanPtr
prepare(const FencingStatement *statement)
{
	SPIPlanPtr	plan;

	check_command(statement->text);
	plan = SPI_prepare(statement->text, statement->nargs, unconstify(Oid *, statement->argtypes));
	if (plan == NULL)
		elog(ERROR, "SPI_prepare failed: %s", SPI_result_code_string(SPI_result));
	return plan;
}

/*
 * Accepts exactly one SELECT, INSERT, UPDATE, DELETE or MERGE.  This is done
 * on the parse tree because SPI runs the first of two commands before it
 * complains about the second.
 */
static void
check_command(const char *text)
{
	ErrorContextCallback context = {error_context_stack, parse_error_context, unconstify(char *, text)};
	List	   *commands;
	bool		accepted = false;

	error_context_stack = &context;
	commands = raw_parser(text, RAW_PARSE_DEFAULT);
	error_context_stack = context.previous;

	if (list_length(commands) == 1)
	{
		Node	   *command = linitial_node(RawStmt, commands)->stmt;

		switch (nodeTag(command))
		{
			case T_SelectStmt:
				{
					SelectStmt *select = (SelectStmt *) command;

					while (select->larg != NULL)
						select = select->larg;
					accepted = select->intoClause == NULL;
					break;
				}
			case T_InsertStmt:
			case T_UpdateStmt:
			case T_DeleteStmt:
			case T_MergeStmt:
				accepted = true;
				break;
			default:
				break;
		}
	}

	if (!accepted)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("statement must be exactly one SELECT, INSERT, UPDATE, DELETE or MERGE"),
				 errhint("Put several commands into a function and call it by SELECT.")));
}

/* Makes a syntax error point into the statement, not into the client's query. */
static void
parse_error_context(void *arg)
{
	const char *text = (const char *) arg;
	int			position = geterrposition();

	if (position > 0)
	{
		errposition(0);
		internalerrposition(position);
		internalerrquery(text);
	}
	else
		errcontext("SQL statement \"%s\"", text);
}

/*
 * The first row of SPI_tuptable as jsonb, in SPI's memory: a single column of
 * type json or jsonb as it is, else the row as an object.
 */
static Datum
first_row(bool *isnull)
{
	HeapTuple	tuple = SPI_tuptable->vals[0];
	TupleDesc	tupdesc = SPI_tuptable->tupdesc;

	*isnull = false;
	if (tupdesc->natts == 1)
	{
		Oid			type = getBaseType(TupleDescAttr(tupdesc, 0)->atttypid);

		if (type == JSONBOID || type == JSONOID)
		{
			Datum		value = SPI_getbinval(tuple, tupdesc, 1, isnull);

			if (*isnull)
				return (Datum) 0;
			if (type == JSONBOID)
				return JsonbPGetDatum(DatumGetJsonbP(value));
			return DirectFunctionCall1(jsonb_in, CStringGetDatum(TextDatumGetCString(value)));
		}
	}
	return row_to_jsonb(tuple, tupdesc);
}

/* to_jsonb(record), which takes the type of its argument from the expression. */
static Datum
row_to_jsonb(HeapTuple tuple, TupleDesc tupdesc)
{
	FmgrInfo	to_jsonb;
	Node	   *argument = (Node *) makeNullConst(RECORDOID, -1, InvalidOid);

	fmgr_info(F_TO_JSONB, &to_jsonb);
	fmgr_info_set_expr((Node *) makeFuncExpr(F_TO_JSONB, JSONBOID, list_make1(argument),
											 InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL),
					   &to_jsonb);
	return FunctionCall1(&to_jsonb, heap_copy_tuple_as_datum(tuple, BlessTupleDesc(tupdesc)));
}

/*
 * Calls attempt, with report_errors in a subtransaction that is kept only if it
 * returns true; an error is then given to the caller instead of raised, unless
 * it is the transaction's or the server's rather than the attempt's own.
 * Returns what attempt returned.
 */
bool
fencing_attempt(FencingWork attempt, void *arg, bool report_errors, ErrorData **error)
{
	bool		result;

	*error = NULL;
	if (!report_errors)
		return attempt(arg);
	result = fencing_subtransaction(attempt, arg, error);
	if (*error != NULL && must_propagate(*error))
		ReThrowError(*error);
	return result;
}

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
 * An error as {"sqlstate", "message", "detail", "hint", "context"}, with null
 * for what it does not have.
 */
Datum
fencing_error_to_jsonb(const ErrorData *error)
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
