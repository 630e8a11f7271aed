/*-------------------------------------------------------------------------
 *
 * statement.c
 *	  The caller's statement: check, keep its plan, run it, convert the
 *	  result.
 *
 * Everything here happens as the caller, with its privileges and search_path:
 * no part of it may be called from inside a switch to the owner.
 *
 * A plan is kept per role, argument types, text and the settings by which the
 * text was read, up to a number of them and of bytes; the one not used for
 * the longest time gives way, and one that is large by itself is not kept.
 * The role belongs to the key because the right to use a schema is checked
 * when names are looked up, not when the plan runs.  A changed search_path is
 * the plan cache's business: it analyzes the text again.
 *
 * A statement does what its text would do as a plain statement now.  Analysis
 * turns literals into values, and for some types that value depends on when
 * and under which settings: 'now', a timestamp without zone, '02/01/2026',
 * money.  A statement with such a value is not kept.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "lib/ilist.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "parser/parse_expr.h"
#include "parser/parser.h"
#include "statement.h"
#include "tcop/utility.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/plancache.h"
#include "utils/syscache.h"

/* statements kept per backend: more than an application has, in a few MB */
#define CACHE_CAPACITY		128
#define CACHE_MAX_BYTES		(8 * 1024 * 1024)

/*
 * an application's statement takes 7 to 100 kB; a larger one is a bulk load's
 */
#define ENTRY_MAX_BYTES		(512 * 1024)

/* what a plan is found by, beside the text */
typedef struct StatementKey
{
	uint32		hash;			/* of the text */
	Oid			role;
	int			settings;		/* see parse_settings() */
	uint32		enum_changes;	/* labels may have been renamed since */
	const Oid  *argtypes;		/* one array per part, so its address will do */
} StatementKey;

typedef struct CachedStatement
{
	dlist_node	node;			/* in entries */
	StatementKey key;
	SPIPlanPtr	plan;
	CachedPlanSource *source;	/* the only one of plan */
	Size		bytes;			/* as they are counted in nbytes */
	int			uses;			/* runs in progress: may not be dropped */
} CachedStatement;

static void execute(const Statement *statement);
static void execute_kept(CachedStatement *entry, const Statement *statement);
static void end_run(CachedStatement *entry);
static void execute_plan(SPIPlanPtr plan, const Statement *statement);
static void make_key(StatementKey *key, const Statement *statement);
static int	parse_settings(void);
static void count_enum_change(Datum arg, int cacheid, uint32 hashvalue);
static CachedStatement *find_entry(const StatementKey *key, const char *text);
static CachedStatement *keep(SPIPlanPtr plan, const StatementKey *key);
static void count_bytes(CachedStatement *entry);
static void make_room(void);
static void drop(CachedStatement *entry);
static bool has_unsteady_literal(Node *node, void *context);
static void plan_for_inlining(CachedPlanSource *source);
static bool calls_users_sql(Node *node, void *context);
static bool is_users_sql(Oid function, void *context);
static bool is_steady(Oid type);
static SPIPlanPtr prepare(const Statement *statement);
static void check_command(const char *text);
static const char *command_name(RawStmt *command);
static void parse_error_context(void *arg);
static void refuse_duplicate_columns(TupleDesc tupdesc);
static Datum first_row(bool *isnull);
static Datum row_to_jsonb(HeapTuple tuple, TupleDesc tupdesc);

PG_FUNCTION_INFO_V1(fencing_statement_cache);

/* the cache, last used first */
static dlist_head entries = DLIST_STATIC_INIT(entries);
static int	nentries = 0;
static Size nbytes = 0;
static int64 hits = 0;
static int64 misses = 0;
static int64 evictions = 0;
static int64 unkept = 0;

/* how often pg_enum has changed, as far as this backend has heard */
static uint32 enum_changes = 0;

/*
 * fencing_statement_cache() → capacity, entries, max_bytes, bytes, hits, misses,
 *	evictions, unkept
 */
Datum
fencing_statement_cache(PG_FUNCTION_ARGS)
{
	TupleDesc	tupdesc;
	Datum		values[8];
	bool		nulls[8] = {false};

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	values[0] = Int32GetDatum(CACHE_CAPACITY);
	values[1] = Int32GetDatum(nentries);
	values[2] = Int64GetDatum(CACHE_MAX_BYTES);
	values[3] = Int64GetDatum(nbytes);
	values[4] = Int64GetDatum(hits);
	values[5] = Int64GetDatum(misses);
	values[6] = Int64GetDatum(evictions);
	values[7] = Int64GetDatum(unkept);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc), values, nulls)));
}

/*
 * Runs the statement and returns its first row as a jsonb Datum in the
 * current memory context, NULL if there is none.  Raises 0A000 before
 * anything runs if it is not exactly one SELECT, INSERT, UPDATE, DELETE or
 * MERGE, 21000 if it returns more than one row, 42701 if two columns of that
 * have one name, and whatever it raises itself.
 */
Datum
statement_run(const Statement *statement, bool *isnull)
{
	MemoryContext context = CurrentMemoryContext;
	Datum		result = (Datum) 0;

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");

	execute(statement);

	*isnull = true;
	if (SPI_tuptable != NULL && SPI_processed > 1)
		ereport(ERROR,
				(errcode(ERRCODE_CARDINALITY_VIOLATION),
				 errmsg("statement returned more than one row"),
				 errhint("Return one row with what a retry needs to know, or none.")));
	if (SPI_tuptable != NULL)
		refuse_duplicate_columns(SPI_tuptable->tupdesc);
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

/* Runs the statement by the plan that is kept for it, or by one made now. */
static void
execute(const Statement *statement)
{
	StatementKey key;
	CachedStatement *entry;
	SPIPlanPtr	plan = NULL;

	make_key(&key, statement);
	entry = find_entry(&key, statement->text);
	if (entry != NULL)
		hits++;
	else
	{
		misses++;
		plan = prepare(statement);
		entry = keep(plan, &key);
	}
	if (entry != NULL)
		execute_kept(entry, statement);
	else
		execute_plan(plan, statement);	/* which goes with SPI's memory */
}

/*
 * Runs a kept plan, which nobody may drop meanwhile.  It may have grown by
 * that, also if it fails: a plan for any arguments is made at the sixth run.
 */
static void
execute_kept(CachedStatement *entry, const Statement *statement)
{
	entry->uses++;
	PG_TRY();
	{
		execute_plan(entry->plan, statement);
	}
	PG_CATCH();
	{
		end_run(entry);
		PG_RE_THROW();
	}
	PG_END_TRY();
	end_run(entry);
}

/* Fails at nothing: an error may be under way. */
static void
end_run(CachedStatement *entry)
{
	entry->uses--;
	count_bytes(entry);
	make_room();
}

/* Leaves the result in SPI_tuptable. */
static void
execute_plan(SPIPlanPtr plan, const Statement *statement)
{
	char		nulls[STATEMENT_MAX_ARGS] = {0};
	int			code;

	for (int i = 0; i < statement->nargs; i++)
		nulls[i] = statement->nulls[i] ? 'n' : ' ';

	/* two rows are enough to know that there is more than one */
	code = SPI_execute_plan(plan, unconstify(Datum *, &statement->args[0]), nulls, false, 2);
	if (code < 0)
		elog(ERROR, "SPI_execute_plan returned %s", SPI_result_code_string(code));
}

/* What the plan is found by. */
static void
make_key(StatementKey *key, const Statement *statement)
{
	static bool registered = false;

	if (!registered)
	{
		CacheRegisterSyscacheCallback(ENUMOID, count_enum_change, (Datum) 0);
		registered = true;
	}
	key->hash = hash_bytes((const unsigned char *) statement->text, strlen(statement->text));
	key->role = GetUserId();
	key->settings = parse_settings();
	key->enum_changes = enum_changes;
	key->argtypes = statement->argtypes;
}

/* The settings that decide what a text means to the parser, as one number. */
static int
parse_settings(void)
{
	return (standard_conforming_strings ? 1 : 0) | (Transform_null_equals ? 2 : 0) |
		(Array_nulls ? 4 : 0) | (backslash_quote << 3);
}

/* Some enum has another label now. */
static void
count_enum_change(Datum arg, int cacheid, uint32 hashvalue)
{
	enum_changes++;
}

/*
 * The kept statement, or NULL.  PostgreSQL analyzes a text again when what it
 * names has changed, and then a literal may have become another type's.
 */
static CachedStatement *
find_entry(const StatementKey *key, const char *text)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &entries)
	{
		CachedStatement *entry = dlist_container(CachedStatement, node, iter.cur);

		if (entry->key.hash != key->hash || entry->key.role != key->role ||
			entry->key.settings != key->settings ||
			entry->key.enum_changes != key->enum_changes ||
			entry->key.argtypes != key->argtypes ||
			strcmp(entry->source->query_string, text) != 0)
			continue;
		if (!has_unsteady_literal((Node *) entry->source->query_list, NULL))
		{
			plan_for_inlining(entry->source);
			dlist_move_head(&entries, &entry->node);
			return entry;
		}
		if (entry->uses == 0)
			drop(entry);
	}
	return NULL;
}

/*
 * Puts the plan into the cache, unless it is one that may not be kept: NULL.
 */
static CachedStatement *
keep(SPIPlanPtr plan, const StatementKey *key)
{
	CachedPlanSource *source = (CachedPlanSource *) linitial(SPI_plan_get_plan_sources(plan));
	CachedStatement *entry;

	if (MemoryContextMemAllocated(source->context, true) > ENTRY_MAX_BYTES ||
		has_unsteady_literal((Node *) source->query_list, NULL))
	{
		unkept++;
		return NULL;
	}

	plan_for_inlining(source);
	entry = (CachedStatement *) MemoryContextAllocZero(TopMemoryContext, sizeof(CachedStatement));
	entry->key = *key;
	entry->source = source;

	/* from here on nothing can fail */
	if (SPI_keepplan(plan) != 0)
		elog(ERROR, "SPI_keepplan failed");
	entry->plan = plan;
	dlist_push_head(&entries, &entry->node);
	nentries++;
	count_bytes(entry);
	return entry;
}

/* Counts what the statement takes now. */
static void
count_bytes(CachedStatement *entry)
{
	nbytes -= entry->bytes;
	entry->bytes = MemoryContextMemAllocated(entry->source->context, true);
	if (entry->source->gplan != NULL)
		entry->bytes += MemoryContextMemAllocated(entry->source->gplan->context, true);
	nbytes += entry->bytes;
}

/*
 * Drops what is too large by itself, and from the end as many statements as
 * are too many.  One whose run called us stays; with more of those than there
 * is room for the cache grows for the time being.
 */
static void
make_room(void)
{
	dlist_node *node = dlist_tail_node(&entries);

	while (node != NULL)
	{
		CachedStatement *entry = dlist_container(CachedStatement, node, node);

		node = dlist_has_prev(&entries, node) ? dlist_prev_node(&entries, node) : NULL;
		if (entry->uses == 0 &&
			(nentries > CACHE_CAPACITY || nbytes > CACHE_MAX_BYTES ||
			 entry->bytes > ENTRY_MAX_BYTES))
		{
			drop(entry);
			evictions++;
		}
	}
}

/* Not while it runs. */
static void
drop(CachedStatement *entry)
{
	dlist_delete(&entry->node);
	nentries--;
	nbytes -= entry->bytes;
	SPI_freeplan(entry->plan);
	pfree(entry);
}

/*
 * Is there a literal in the query whose value another time or other settings
 * would have made another one?  Values without a place in the text come from
 * the catalog, of a view or a default: a plain statement finds the same.
 */
static bool
has_unsteady_literal(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, has_unsteady_literal, context, 0);
	if (IsA(node, Const))
	{
		Const	   *literal = (Const *) node;

		/* the plan cache watches a relation that is named so as any other */
		return literal->location >= 0 && !literal->constisnull &&
			literal->consttype != REGCLASSOID && !is_steady(literal->consttype);
	}
	return expression_tree_walker(node, has_unsteady_literal, context);
}

/*
 * The planner puts the body of a function in SQL into the plan, and with it
 * what its literals mean at that moment: then the plan is not kept, only the
 * analysis.
 */
static void
plan_for_inlining(CachedPlanSource *source)
{
	if (calls_users_sql((Node *) source->query_list, NULL))
		source->cursor_options |= CURSOR_OPT_CUSTOM_PLAN;
	else
		source->cursor_options &= ~CURSOR_OPT_CUSTOM_PLAN;
}

/* Does it call a function in SQL that is not PostgreSQL's own? */
static bool
calls_users_sql(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, calls_users_sql, context, 0);
	return check_functions_in_node(node, is_users_sql, context) ||
		expression_tree_walker(node, calls_users_sql, context);
}

/* Those of PostgreSQL itself have no literals that depend on anything. */
static bool
is_users_sql(Oid function, void *context)
{
	HeapTuple	tuple;
	bool		result;

	if (function < FirstNormalObjectId)
		return false;
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	result = HeapTupleIsValid(tuple) &&
		((Form_pg_proc) GETSTRUCT(tuple))->prolang == SQLlanguageId;
	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return result;
}

/*
 * Does a text always give the same value of this type?  So says the label of
 * its input function.  That of a container is "stable" for the sake of its
 * elements, and that of an enum because of its labels, which the cache
 * watches.
 */
static bool
is_steady(Oid type)
{
	Oid			element = get_element_type(type);
	Oid			input;
	Oid			ioparam;

	if (!OidIsValid(element))
		element = get_range_subtype(type);
	if (!OidIsValid(element))
		element = get_multirange_range(type);
	if (OidIsValid(element))
		return is_steady(element);
	if (type_is_enum(type))
		return true;
	getTypeInputInfo(type, &input, &ioparam);
	return func_volatile(input) == PROVOLATILE_IMMUTABLE;
}

/* Checks and plans a statement. */
static SPIPlanPtr
prepare(const Statement *statement)
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
				 list_length(commands) != 1 ?
				 errdetail("It has %d commands.", list_length(commands)) :
				 errdetail("The command is %s.", command_name(linitial_node(RawStmt, commands))),
				 errhint("Put several commands into a function and call it by SELECT.")));
}

/* For the message. */
static const char *
command_name(RawStmt *command)
{
	/* its tag is that of SELECT, and any other SELECT would have passed */
	return IsA(command->stmt, SelectStmt) ? "SELECT INTO" : CreateCommandName(command->stmt);
}

/*
 * Makes a syntax error point into the statement, not into the client's query.
 */
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

/*
 * Raises 42701: of two members of one name an object keeps the last, and the
 * value of the other would be missing from the receipt.
 */
static void
refuse_duplicate_columns(TupleDesc tupdesc)
{
	for (int i = 1; i < tupdesc->natts; i++)
	{
		const char *name = NameStr(TupleDescAttr(tupdesc, i)->attname);

		for (int j = 0; j < i; j++)
		{
			if (strcmp(NameStr(TupleDescAttr(tupdesc, j)->attname), name) == 0)
				ereport(ERROR,
						(errcode(ERRCODE_DUPLICATE_COLUMN),
						 errmsg("statement returns more than one column \"%s\"", name),
						 errdetail("The row becomes a JSON object, which has a value per name."),
						 errhint("Give each column a name of its own with AS.")));
		}
	}
}

/*
 * to_jsonb(record), which takes the type of its argument from the expression.
 */
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
