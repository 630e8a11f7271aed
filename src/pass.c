/*-------------------------------------------------------------------------
 *
 * pass.c
 *	  Passes: the jobs that the transaction was answered "committed" for.
 *
 * A pass belongs to the subtransaction in which it was given: it is handed up
 * when that commits, and gone when it is rolled back or when the transaction
 * ends, PREPARE included.  The passes are a stack: those of the innermost
 * subtransaction are on top.  Beside it a hash table has their keys, to find
 * one among many.
 *
 * Locks: none.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/hashfn.h"
#include "job.h"
#include "utils/memutils.h"

typedef struct Pass
{
	text	   *job_key;
	int			level;			/* nesting level of its subtransaction */
} Pass;

typedef struct PassEntry
{
	const text *job_key;		/* the stack's */
	uint32		hash;
	char		status;
} PassEntry;

static void pass_xact_callback(XactEvent event, void *arg);
static void pass_subxact_callback(SubXactEvent event, SubTransactionId mySubid,
								  SubTransactionId parentSubid, void *arg);
static void drop_last_pass(void);
static uint32 hash_key(const text *job_key);

#define SH_PREFIX			pass
#define SH_ELEMENT_TYPE		PassEntry
#define SH_KEY_TYPE			const text *
#define SH_KEY				job_key
#define SH_HASH_KEY(tb, key)	hash_key(key)
#define SH_EQUAL(tb, a, b)	args_same_text(a, b)
#define SH_STORE_HASH
#define SH_GET_HASH(tb, a)	(a)->hash
#define SH_SCOPE			static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

#define MIN_PASSES			8

/* In TopTransactionContext; every key of the stack is in the table, once. */
static Pass *passes = NULL;
static int	npasses = 0;
static int	max_passes = 0;
static pass_hash * pass_table = NULL;

/*
 * Gives the current subtransaction a pass for the job.
 */
void
pass_give(const text *job_key)
{
	static bool registered = false;
	MemoryContext context;
	bool		found;

	if (!registered)
	{
		RegisterXactCallback(pass_xact_callback, NULL);
		RegisterSubXactCallback(pass_subxact_callback, NULL);
		registered = true;
	}

	/* one that is there already is of an outer level, or of this one */
	if (pass_has(job_key))
		return;

	context = MemoryContextSwitchTo(TopTransactionContext);
	if (passes == NULL)
	{
		pass_table = pass_create(TopTransactionContext, MIN_PASSES, NULL);
		max_passes = MIN_PASSES;
		passes = (Pass *) palloc(max_passes * sizeof(Pass));
	}
	else if (npasses == max_passes)
	{
		passes = (Pass *) repalloc_huge(passes, 2 * max_passes * sizeof(Pass));
		max_passes *= 2;
	}
	passes[npasses].job_key = (text *) PG_DETOAST_DATUM_COPY(PointerGetDatum(job_key));
	passes[npasses].level = GetCurrentTransactionNestLevel();
	/* the last thing that can fail: then it is in neither */
	(void) pass_insert(pass_table, passes[npasses].job_key, &found);
	npasses++;
	MemoryContextSwitchTo(context);
}

/* A pass ends with its transaction, also when that is prepared. */
static void
pass_xact_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
			break;
		default:
			passes = NULL;
			npasses = 0;
			pass_table = NULL;
			break;
	}
}

/* Passes of a subtransaction are its parent's, or gone with it. */
static void
pass_subxact_callback(SubXactEvent event, SubTransactionId mySubid,
					  SubTransactionId parentSubid, void *arg)
{
	int			level = GetCurrentTransactionNestLevel();

	switch (event)
	{
		case SUBXACT_EVENT_ABORT_SUB:
			while (npasses > 0 && passes[npasses - 1].level >= level)
				drop_last_pass();
			break;
		case SUBXACT_EVENT_COMMIT_SUB:
			for (int i = npasses; i > 0 && passes[i - 1].level >= level; i--)
				passes[i - 1].level = level - 1;
			break;
		default:
			break;
	}
}

/* Its key goes too: a transaction may see many attempts fail. */
static void
drop_last_pass(void)
{
	text	   *job_key = passes[--npasses].job_key;

	(void) pass_delete(pass_table, job_key);
	pfree(job_key);
}

/* Of the bytes. */
static uint32
hash_key(const text *job_key)
{
	return hash_bytes((const unsigned char *) VARDATA_ANY(job_key), VARSIZE_ANY_EXHDR(job_key));
}

/* Whether the transaction may write for the job. */
bool
pass_has(const text *job_key)
{
	return npasses > 0 && pass_lookup(pass_table, job_key) != NULL;
}
