/*-------------------------------------------------------------------------
 *
 * query.c
 *	  Queries of ours: as the owner of the state tables, with kept plans.
 *
 * For what is not hot, or is a question about sets.  Every name and operator in
 * a query is qualified, so that no search_path has a say.
 *
 * Locks: those of the queries.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "executor/spi.h"
#include "fencing.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* a query of ours and its plan */
typedef struct KeptPlan
{
	const char *query;
	SPIPlanPtr	plan;
} KeptPlan;

typedef struct Bigints
{
	int			count;
	int64	   *values;
} Bigints;

static SPIPlanPtr kept_plan(const char *query, int nargs, Oid *argtypes);
static void read_bigints(SPITupleTable *rows, uint64 count, void *arg);

/* As many as there are queries. */
static List *kept_plans = NIL;

/*
 * Executes a query of ours as the owner of the state tables.  Names and
 * operators in it are qualified.  The security context is read here, not
 * earlier: the caller's statement may have changed the role meanwhile.  After
 * an error the abort of the (sub)transaction restores it.
 *
 * The plan is kept for the query, a constant of which only the address counts.
 * nulls is as for SPI_execute_plan(); snapshot is what the query sees, NULL for
 * what any query at this isolation level would.  The result is given to handle,
 * if there is one, as the caller again; it runs in SPI's memory.
 */
void
fencing_query_as_owner(const char *query, int nargs, Oid *argtypes, Datum *args,
					   const char *nulls, Snapshot snapshot,
					   FencingResultHandler handle, void *arg)
{
	Relation	rel = fencing_open(FENCING_FENCES, AccessShareLock);
	Oid			owner = rel->rd_rel->relowner;
	Oid			saved_user;
	int			saved_context;
	int			result;

	table_close(rel, AccessShareLock);

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");

	GetUserIdAndSecContext(&saved_user, &saved_context);
	SetUserIdAndSecContext(owner, saved_context | SECURITY_LOCAL_USERID_CHANGE |
						   SECURITY_NOFORCE_RLS);
	if (snapshot == NULL)
		result = SPI_execute_plan(kept_plan(query, nargs, argtypes), args, nulls, false, 0);
	else
		result = SPI_execute_snapshot(kept_plan(query, nargs, argtypes), args, nulls,
									  snapshot, InvalidSnapshot, false, false, 0);
	SetUserIdAndSecContext(saved_user, saved_context);

	if (result < 0)
		elog(ERROR, "SPI_execute_plan returned %s for query: %s",
			 SPI_result_code_string(result), query);
	if (handle != NULL)
		handle(SPI_tuptable, SPI_processed, arg);
	SPI_finish();
}

/* The plan of a query of ours; PostgreSQL plans it again if that is needed. */
static SPIPlanPtr
kept_plan(const char *query, int nargs, Oid *argtypes)
{
	KeptPlan   *kept;
	MemoryContext context;
	ListCell   *lc;

	foreach(lc, kept_plans)
	{
		kept = (KeptPlan *) lfirst(lc);
		if (kept->query == query)
			return kept->plan;
	}

	context = MemoryContextSwitchTo(TopMemoryContext);
	kept = (KeptPlan *) palloc(sizeof(KeptPlan));
	kept->query = query;
	MemoryContextSwitchTo(context);
	kept->plan = SPI_prepare(query, nargs, argtypes);
	if (kept->plan == NULL)
		elog(ERROR, "SPI_prepare returned %s for query: %s",
			 SPI_result_code_string(SPI_result), query);
	if (SPI_keepplan(kept->plan) != 0)
		elog(ERROR, "SPI_keepplan failed");
	context = MemoryContextSwitchTo(TopMemoryContext);
	kept_plans = lappend(kept_plans, kept);
	MemoryContextSwitchTo(context);
	return kept->plan;
}

/*
 * The same for a query that returns one row of nresults columns of type bigint,
 * none of them NULL, or nothing at all.
 */
void
fencing_execute_as_owner(const char *query, int nargs, Oid *argtypes, Datum *args,
						 const char *nulls, Snapshot snapshot, int nresults, int64 *results)
{
	Bigints		bigints = {nresults, results};

	fencing_query_as_owner(query, nargs, argtypes, args, nulls, snapshot, read_bigints, &bigints);
}

static void
read_bigints(SPITupleTable *rows, uint64 count, void *arg)
{
	Bigints    *bigints = (Bigints *) arg;

	for (int i = 0; i < bigints->count; i++)
	{
		bool		isnull;

		bigints->values[i] = DatumGetInt64(SPI_getbinval(rows->vals[0], rows->tupdesc,
														 i + 1, &isnull));
	}
}
