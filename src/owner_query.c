/*-------------------------------------------------------------------------
 *
 * owner_query.c
 *	  The extension's own queries: run as the owner of the state tables,
 *	  and with settings of their own.
 *
 * For what is not hot, or is a question about sets.  Every name and operator
 * in a query is qualified, so that no search_path has a say.
 *
 * Locks: those of the queries.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "jit/jit.h"
#include "lib/ilist.h"
#include "miscadmin.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/paths.h"
#include "optimizer/planmain.h"
#include "store.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/plancache.h"
#include "utils/rel.h"

/*
 * What own queries are planned and run with, whatever the caller has set for
 * those of the application.
 */
typedef struct Setting
{
	const char *name;
	const char *value;
	const bool *boolean;		/* the variable, of one of these types */
	const int  *integer;
	const double *real;
	double		number;			/* value, to compare with it */
} Setting;

#define ON(name)			{#name, "on", .boolean = &name, .number = true}
#define INTEGER(name, n)	{#name, #n, .integer = &name, .number = n}
#define REAL(name, n)		{#name, #n, .real = &name, .number = n}

static const Setting settings[] = {
	ON(enable_bitmapscan),
	ON(enable_hashagg),
	ON(enable_hashjoin),
	ON(enable_incremental_sort),
	ON(enable_indexonlyscan),
	ON(enable_indexscan),
	ON(enable_material),
	ON(enable_memoize),
	ON(enable_mergejoin),
	ON(enable_nestloop),
	ON(enable_seqscan),
	ON(enable_sort),
	ON(enable_tidscan),
	REAL(seq_page_cost, 1),
	REAL(random_page_cost, 4),
	REAL(cpu_tuple_cost, 0.01),
	REAL(cpu_index_tuple_cost, 0.005),
	REAL(cpu_operator_cost, 0.0025),
	REAL(hash_mem_multiplier, 2),
	INTEGER(effective_cache_size, 524288),
	INTEGER(from_collapse_limit, 8),
	INTEGER(geqo_threshold, 12),
	INTEGER(join_collapse_limit, 8),
	INTEGER(work_mem, 4096),
	/* for a few rows neither is worth its start */
	INTEGER(max_parallel_workers_per_gather, 0),
	{"jit", "off",.boolean = &jit_enabled,.number = false}
};

/*
 * Where there is a choice: a plan made for a small table would stay for ever.
 */
static const Setting plan_each_time = {"plan_cache_mode", "force_custom_plan",
	.integer = &plan_cache_mode,.number = PLAN_CACHE_MODE_FORCE_CUSTOM_PLAN
};
static const Setting keep_plan = {"plan_cache_mode", "auto",
	.integer = &plan_cache_mode,.number = PLAN_CACHE_MODE_AUTO
};

/* an own query, analyzed */
typedef struct KeptQuery
{
	slist_node	node;
	const char *query;
	SPIPlanPtr	plan;
	bool		reads_tables;
} KeptQuery;

typedef struct Bigints
{
	int			count;
	int64	   *values;
} Bigints;

static const KeptQuery *get_query(const char *query, int nargs, Oid *argtypes);
static bool reads_tables(SPIPlanPtr plan);
static void use_safe_path(void);
static void use_own_settings(const KeptQuery *kept);
static void use_setting(const Setting *setting);
static void read_bigints(SPITupleTable *rows, uint64 count, void *arg);

/* As many as there are queries. */
static slist_head kept_queries = SLIST_STATIC_INIT(kept_queries);

/*
 * Executes an own query as the owner of the state tables.  Names and
 * operators in it are qualified.  The security context is read here, not
 * earlier: the caller's statement may have changed the role meanwhile.  After
 * an error the abort of the (sub)transaction restores it.
 *
 * What parsing makes of the query, a constant of which only the address
 * counts, is kept.  One that reads tables is planned each time, as they are
 * then.  Planner and executor have the settings above, under which no code of
 * a user runs.
 *
 * nulls may be NULL: then no argument is; snapshot is what the query sees,
 * NULL for what any query at this isolation level would.  The result is given
 * to handle, if there is one, as the caller again; it runs in SPI's memory.
 */
void
owner_query_run(const char *query, int nargs, Oid *argtypes, Datum *args,
				const bool *nulls, Snapshot snapshot,
				OwnerQueryHandler handle, void *arg)
{
	Relation	rel = store_table_open(STORE_FENCES, AccessShareLock);
	Oid			owner = rel->rd_rel->relowner;
	Oid			saved_user;
	int			saved_context;
	int			saved_settings;
	const KeptQuery *kept;
	int			result;
	char	   *spi_nulls = NULL;
	static Oid	unused_type = INT4OID;
	static Datum unused_argument = (Datum) 0;

	table_close(rel, AccessShareLock);

	/* of a query without arguments PostgreSQL would keep the plan */
	if (nargs == 0)
	{
		nargs = 1;
		argtypes = &unused_type;
		args = &unused_argument;
	}

	if (nulls != NULL)
	{
		spi_nulls = (char *) palloc(nargs);
		for (int i = 0; i < nargs; i++)
			spi_nulls[i] = nulls[i] ? 'n' : ' ';
	}

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");

	GetUserIdAndSecContext(&saved_user, &saved_context);
	SetUserIdAndSecContext(owner, saved_context | SECURITY_LOCAL_USERID_CHANGE |
						   SECURITY_NOFORCE_RLS);
	saved_settings = NewGUCNestLevel();
	use_safe_path();
	kept = get_query(query, nargs, argtypes);
	use_own_settings(kept);
	store_table_verify_plan(kept->plan);
	if (snapshot == NULL)
		result = SPI_execute_plan(kept->plan, args, spi_nulls, false, 0);
	else
		result = SPI_execute_snapshot(kept->plan, args, spi_nulls, snapshot, InvalidSnapshot,
									  false, true, 0);
	AtEOXact_GUC(false, saved_settings);
	SetUserIdAndSecContext(saved_user, saved_context);

	if (result < 0)
		elog(ERROR, "SPI_execute_plan returned %s for query: %s",
			 SPI_result_code_string(result), query);
	if (handle != NULL)
		handle(SPI_tuptable, SPI_processed, arg);
	SPI_finish();
}

/* PostgreSQL analyzes the query again if that is needed. */
static const KeptQuery *
get_query(const char *query, int nargs, Oid *argtypes)
{
	SPIPlanPtr	plan;
	KeptQuery  *kept;
	slist_iter	iter;

	slist_foreach(iter, &kept_queries)
	{
		kept = slist_container(KeptQuery, node, iter.cur);
		if (kept->query == query)
			return kept;
	}

	plan = SPI_prepare(query, nargs, argtypes);
	if (plan == NULL)
		elog(ERROR, "SPI_prepare returned %s for query: %s",
			 SPI_result_code_string(SPI_result), query);
	kept = (KeptQuery *) MemoryContextAlloc(TopMemoryContext, sizeof(KeptQuery));
	kept->query = query;
	kept->plan = plan;
	kept->reads_tables = reads_tables(plan);

	/* from here on nothing can fail */
	if (SPI_keepplan(plan) != 0)
		elog(ERROR, "SPI_keepplan failed");
	slist_push_head(&kept_queries, &kept->node);
	return kept;
}

/* Whether it has more than the table that it writes, if it writes one. */
static bool
reads_tables(SPIPlanPtr plan)
{
	CachedPlanSource *source = (CachedPlanSource *) linitial(SPI_plan_get_plan_sources(plan));
	Query	   *query = linitial_node(Query, source->query_list);

	return query->hasSubLinks ||
		list_length(query->rtable) > (query->resultRelation > 0 ? 1 : 0);
}

/*
 * All names are qualified; should one be forgotten, it must not find what a
 * caller has put there.  Temporary objects come first unless they are named.
 */
static void
use_safe_path(void)
{
	static const char path[] = "pg_catalog, pg_temp";

	if (strcmp(namespace_search_path, path) != 0)
		(void) set_config_option("search_path", path, PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, 0, false);
}

/*
 * Until AtEOXact_GUC().  Only what differs is set: by default two or three.
 */
static void
use_own_settings(const KeptQuery *kept)
{
	for (size_t i = 0; i < lengthof(settings); i++)
		use_setting(&settings[i]);
	use_setting(kept->reads_tables ? &plan_each_time : &keep_plan);
}

/* Only if it differs: setting is dear. */
static void
use_setting(const Setting *setting)
{
	bool		is_set;

	if (setting->boolean != NULL)
		is_set = *setting->boolean == (setting->number != 0);
	else if (setting->integer != NULL)
		is_set = *setting->integer == setting->number;
	else
		is_set = *setting->real == setting->number;

	if (!is_set)
		(void) set_config_option(setting->name, setting->value, PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, 0, false);
}

/*
 * The same for a query that returns one row of nresults columns of type
 * bigint, none of them NULL, or nothing at all.
 */
void
owner_query_bigints(const char *query, int nargs, Oid *argtypes, Datum *args,
					const bool *nulls, Snapshot snapshot, int nresults, int64 *results)
{
	Bigints		bigints = {nresults, results};

	owner_query_run(query, nargs, argtypes, args, nulls, snapshot, read_bigints, &bigints);
}

/* No row: the results stay as they are. */
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

/*
 * A value of variable length, not null, that outlives the handler: with a long
 * header, in the memory of who runs the query.
 */
Datum
owner_query_copy(SPITupleTable *rows, uint64 row, int column)
{
	bool		isnull;
	Datum		value = SPI_getbinval(rows->vals[row], rows->tupdesc, column, &isnull);

	return SPI_datumTransfer(PointerGetDatum(PG_DETOAST_DATUM(value)), false, -1);
}
