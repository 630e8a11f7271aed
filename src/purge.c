/*-------------------------------------------------------------------------
 *
 * purge.c
 *	  Removing what has been kept long enough, in batches, beside live
 *	  traffic.
 *
 * A receipt that was removed must never look like one that has not been
 * written yet, so the fence of its job remembers up to which token receipts
 * may be gone.  Both are written in one transaction, and a call that judges
 * reads both with one snapshot.  A job's current token may still be committed
 * with, so its receipts stay until the job is forgotten with everything.
 *
 * Locks: rows, and fencing.request_schemas (ShareRowExclusiveLock), never
 * waiting: what is not free is passed over.
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
#include "commands/trigger.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "outbox.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* a page seldom has ten times as many */
#define RECEIPTS_PER_PAGE	8

/*
 * What can be purged.  Each query takes $1, a time before which things are
 * old enough, and $2, how many to take, and returns how many are gone, and
 * how many it chose: another purge may have been faster with some of those.
 */
typedef struct Purge
{
	const char *kind;
	const char *query;			/* NULL: it takes more than that */
	void		(*then) (void); /* what else goes with it, or NULL */
} Purge;

/*
 * The receipts on some pages ($2 <= ctid < $3), at most $4 of them: those
 * whose fences are free, which are locked one by one.  A job that is committing
 * is left for later, with those of its receipts that the query comes to
 * meanwhile, and does not count: so newer receipts of a job may go while older
 * ones stay.  That does no harm, since a receipt that is there is found before
 * purged_through is looked at.  Under READ COMMITTED the locked row has the
 * last word on what is superseded.
 */
static const char receipts_query[] =
"WITH purgeable AS MATERIALIZED ("
" SELECT r.ctid AS tid, r.job_key, r.token"
" FROM fencing.receipts r"
" JOIN fencing.fences f ON f.job_key OPERATOR(pg_catalog.=) r.job_key"
" WHERE r.ctid OPERATOR(pg_catalog.>=) $2 AND r.ctid OPERATOR(pg_catalog.<) $3"
" AND r.committed_at OPERATOR(pg_catalog.<) $1"
" AND r.token OPERATOR(pg_catalog.<) f.token"
" ORDER BY r.ctid"
" LIMIT $4"
" FOR NO KEY UPDATE OF f SKIP LOCKED"
"), raised AS ("
" UPDATE fencing.fences f"
" SET purged_through = GREATEST(f.purged_through, p.token)"
" FROM (SELECT job_key, pg_catalog.max(token) AS token FROM purgeable GROUP BY job_key) p"
" WHERE f.job_key OPERATOR(pg_catalog.=) p.job_key"
"), purged AS ("
" DELETE FROM fencing.receipts r"
" WHERE r.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT p.tid FROM purgeable p))"
" RETURNING 1"
")"
" SELECT (SELECT pg_catalog.count(*) FROM purged), p.n, p.last"
" FROM (SELECT pg_catalog.count(*) AS n, pg_catalog.max(tid) AS last FROM purgeable) p";

/*
 * Records become tombstones after the retention of their operation,
 * tombstones go after its forget_after.  One request schema of an operation
 * after the other, the one with the oldest record first: so an index has the
 * records in order, and a batch costs the same however many there are.
 */
static const char records_query[] =
"WITH schemas AS MATERIALIZED ("
" SELECT s.operation, s.hash_version,"
" LEAST($1, fencing.before(o.retention)) AS expired_before,"
" LEAST($1, fencing.before(o.forget_after)) AS ended_before"
" FROM fencing.request_schemas s"
" JOIN fencing.operations o ON o.operation OPERATOR(pg_catalog.=) s.operation"
" ORDER BY (SELECT pg_catalog.min(r.committed_at) FROM fencing.records r"
"  WHERE r.operation OPERATOR(pg_catalog.=) s.operation"
"  AND r.hash_version OPERATOR(pg_catalog.=) s.hash_version AND NOT r.purged)"
"), expired AS MATERIALIZED ("
" SELECT r.tid"
" FROM schemas s"
" CROSS JOIN LATERAL (SELECT r.ctid AS tid"
"  FROM fencing.records r"
"  WHERE r.operation OPERATOR(pg_catalog.=) s.operation"
"  AND r.hash_version OPERATOR(pg_catalog.=) s.hash_version"
"  AND NOT r.purged"
"  AND r.committed_at OPERATOR(pg_catalog.<) s.expired_before"
"  AND r.committed_at OPERATOR(pg_catalog.>=) s.ended_before"
"  ORDER BY r.committed_at"
"  LIMIT $2"
"  FOR UPDATE SKIP LOCKED) r"
" LIMIT $2"
"), ended AS MATERIALIZED ("
" SELECT r.tid"
" FROM schemas s"
" CROSS JOIN (VALUES (false), (true)) p (purged)"
" CROSS JOIN LATERAL (SELECT r.ctid AS tid"
"  FROM fencing.records r"
"  WHERE r.operation OPERATOR(pg_catalog.=) s.operation"
"  AND r.hash_version OPERATOR(pg_catalog.=) s.hash_version"
"  AND r.purged OPERATOR(pg_catalog.=) p.purged"
"  AND r.committed_at OPERATOR(pg_catalog.<) s.ended_before"
"  ORDER BY r.committed_at"
"  LIMIT $2"
"  FOR UPDATE SKIP LOCKED) r"
" LIMIT $2 OPERATOR(pg_catalog.-) (SELECT pg_catalog.count(*) FROM expired)"
"), emptied AS ("
" UPDATE fencing.records r SET result = NULL, purged = true"
" WHERE r.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT e.tid FROM expired e))"
" RETURNING 1"
"), forgotten AS ("
" DELETE FROM fencing.records r"
" WHERE r.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT e.tid FROM ended e))"
" RETURNING 1"
")"
" SELECT (SELECT pg_catalog.count(*) FROM emptied)"
" OPERATOR(pg_catalog.+) (SELECT pg_catalog.count(*) FROM forgotten),"
" (SELECT pg_catalog.count(*) FROM expired)"
" OPERATOR(pg_catalog.+) (SELECT pg_catalog.count(*) FROM ended)";

/*
 * A retired schema goes when no record is left that needs it: one probe of an
 * index, with LIMIT so that it is no join with all records.  The delete
 * needs a lock that no call with a new key holds: it would make such a
 * record.  A transaction that is yet to come cannot have retired it: then it
 * was one of the cluster that a dump came from, and is over.
 */
#define SCHEMAS_TO_GO \
	" FROM fencing.request_schemas s" \
	" WHERE s.retired_by OPERATOR(pg_catalog.<>) '0'::pg_catalog.xid8" \
	" AND (s.retired_by OPERATOR(pg_catalog.<)" \
	"  pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())" \
	"  OR s.retired_by OPERATOR(pg_catalog.>=)" \
	"  pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())" \
	"  AND COALESCE(s.retired_by OPERATOR(pg_catalog.<>)" \
	"   pg_catalog.pg_current_xact_id_if_assigned(), true))" \
	" AND (SELECT 1 FROM fencing.records r" \
	"  WHERE r.operation OPERATOR(pg_catalog.=) s.operation" \
	"  AND r.hash_version OPERATOR(pg_catalog.=) s.hash_version" \
	"  LIMIT 1) IS NULL"

static const char schemas_to_go_query[] = "SELECT pg_catalog.count(*)" SCHEMAS_TO_GO;
static const char schemas_query[] = "DELETE" SCHEMAS_TO_GO;

/* Events that outbox_purge() has chosen: $1 are their numbers. */
static const char events_query[] =
"WITH done AS MATERIALIZED ("
" SELECT e.ctid AS tid"
" FROM fencing.outbox e"
" WHERE e.no OPERATOR(pg_catalog.=) ANY ($1)"
" FOR UPDATE SKIP LOCKED"
"), purged AS ("
" DELETE FROM fencing.outbox e"
" WHERE e.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT d.tid FROM done d))"
" RETURNING 1"
")"
" SELECT pg_catalog.count(*) FROM purged";

static void purge_receipts(TimestampTz before, int max_rows, int64 *counts);
static void read_receipts(SPITupleTable *rows, uint64 count, void *arg);
static void purge_events(TimestampTz before, int max_rows, int64 *counts);
static void purge_schemas(void);

static const Purge purges[] = {
	{"receipts", NULL, NULL},
	{"records", records_query, purge_schemas},
	{"events", NULL, NULL},
	{"jobs", NULL, NULL}
};

/* What a batch of receipts has done. */
typedef struct ReceiptsPurge
{
	int64		gone;
	int64		chosen;
	ItemPointerData last;		/* the last one that was chosen */
} ReceiptsPurge;

static const Purge *arg_purge(FunctionCallInfo fcinfo, int argno);
static TimestampTz time_before(int64 usecs);
static int64 run_purge(const Purge *purge, TimestampTz before, int max_rows, bool *more);

PG_FUNCTION_INFO_V1(fencing_purge);
PG_FUNCTION_INFO_V1(fencing_before);
PG_FUNCTION_INFO_V1(fencing_immutable);

/* The trigger of the outbox lets a purge pass. */
static bool purging = false;

/*
 * fencing_purge(kind text, older_than interval, max_rows int)
 *	→ purged bigint, more boolean
 */
Datum
fencing_purge(PG_FUNCTION_ARGS)
{
	const Purge *purge = arg_purge(fcinfo, 0);
	int64		older_than = args_retention(fcinfo, 1, "older_than");
	int			max_rows = args_max_rows(fcinfo, 2);
	int64		purged;
	bool		more;
	TupleDesc	tupdesc;
	Datum		values[2];
	bool		nulls[2] = {false};

	store_begin_write("fencing_purge()");

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");

	purged = run_purge(purge, time_before(older_than), max_rows, &more);
	values[0] = Int64GetDatum(purged);
	values[1] = BoolGetDatum(more);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc), values, nulls)));
}

/* Raises 22004, 22023. */
static const Purge *
arg_purge(FunctionCallInfo fcinfo, int argno)
{
	char	   *kind;

	args_refuse_null(fcinfo, argno, "kind");
	kind = text_to_cstring(PG_GETARG_TEXT_PP(argno));
	for (size_t i = 0; i < lengthof(purges); i++)
	{
		if (strcmp(purges[i].kind, kind) == 0)
			return &purges[i];
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unrecognized kind: \"%s\"", kind),
			 errhint("Available values: receipts, records, events, jobs.")));
	return NULL;				/* keep compiler quiet */
}

/*
 * fencing.before(kept interval) → timestamptz
 *
 * The time before which things have been kept for long enough.
 */
Datum
fencing_before(PG_FUNCTION_ARGS)
{
	PG_RETURN_TIMESTAMPTZ(time_before(args_interval_usecs(PG_GETARG_INTERVAL_P(0))));
}

/* So long ago.  Longer ago than time began means nothing is that old. */
static TimestampTz
time_before(int64 usecs)
{
	TimestampTz now = GetCurrentTimestamp();

	return usecs > now - MIN_TIMESTAMP ? MIN_TIMESTAMP : now - usecs;
}

/* One batch; returns how many rows went, and whether there are more. */
static int64
run_purge(const Purge *purge, TimestampTz before, int max_rows, bool *more)
{
	Oid			argtypes[] = {TIMESTAMPTZOID, INT4OID};
	Datum		args[] = {TimestampTzGetDatum(before), Int32GetDatum(max_rows)};
	int64		counts[2];		/* gone, chosen */

	if (purge->query != NULL)
		owner_query_bigints(purge->query, lengthof(args), argtypes, args, NULL, NULL,
							lengthof(counts), counts);
	else if (strcmp(purge->kind, "receipts") == 0)
		purge_receipts(before, max_rows, counts);
	else if (strcmp(purge->kind, "events") == 0)
		purge_events(before, max_rows, counts);
	else
		job_forget_ended(before, max_rows, counts);
	if (purge->then != NULL)
		purge->then();
	ForceSyncCommit();
	*more = counts[1] == max_rows;
	return counts[0];
}

/*
 * One batch of receipts.  It goes through fencing.receipts from where the last
 * one ended; a call looks at so many pages, however many of the receipts on
 * them are to be kept, and no index has to be kept that each commit would
 * write.  counts: how many are gone, and max_rows before the end.
 */
static void
purge_receipts(TimestampTz before, int max_rows, int64 *counts)
{
	Oid			argtypes[] = {TIMESTAMPTZOID, TIDOID, TIDOID, INT4OID};
	Relation	receipts = store_table_open(STORE_RECEIPTS, AccessShareLock);
	PagePosition position;
	ReceiptsPurge purge = {0};
	Datum		args[lengthof(argtypes)];

	purge_position_begin(&position, "purge_receipts_position", receipts, max_rows / RECEIPTS_PER_PAGE + 1);
	args[0] = TimestampTzGetDatum(before);
	args[1] = PointerGetDatum(&position.first);
	args[2] = PointerGetDatum(&position.end);
	args[3] = Int32GetDatum(max_rows);
	owner_query_run(receipts_query, lengthof(args), argtypes, args, NULL, NULL, read_receipts, &purge);
	counts[0] = purge.gone;
	counts[1] = max_rows;
	if (purge.chosen < max_rows)
	{
		if (position.at_end)
			counts[1] = 0;
		purge_position_keep(&position, &position.end);
	}
	else
		purge_position_keep(&position, &purge.last);
	table_close(receipts, AccessShareLock);
}

/* Out of SPI's memory. */
static void
read_receipts(SPITupleTable *rows, uint64 count, void *arg)
{
	ReceiptsPurge *purge = (ReceiptsPurge *) arg;
	bool		isnull;
	Datum		last;

	purge->gone = DatumGetInt64(SPI_getbinval(rows->vals[0], rows->tupdesc, 1, &isnull));
	purge->chosen = DatumGetInt64(SPI_getbinval(rows->vals[0], rows->tupdesc, 2, &isnull));
	last = SPI_getbinval(rows->vals[0], rows->tupdesc, 3, &isnull);
	if (!isnull)
		purge->last = *(ItemPointer) DatumGetPointer(last);
}

/* One batch of events: gone, chosen. */
static void
purge_events(TimestampTz before, int max_rows, int64 *counts)
{
	Oid			argtypes[] = {INT8ARRAYOID};
	int			chosen;
	Datum		args[] = {outbox_purge(before, max_rows, &chosen)};

	purging = true;
	PG_TRY();
	{
		owner_query_bigints(events_query, lengthof(args), argtypes, args, NULL, NULL, 1, counts);
	}
	PG_FINALLY();
	{
		purging = false;
	}
	PG_END_TRY();
	counts[1] = chosen;
}

/*
 * Leaves it for another time if a call is under way.  The snapshot is taken
 * when the lock is held, at every isolation level: that of the transaction
 * would not show the record that a call has made since.
 */
static void
purge_schemas(void)
{
	Oid			relid = store_table_oid(STORE_REQUEST_SCHEMAS);
	Snapshot	snapshot = store_fresh_snapshot();
	int64		count;

	owner_query_bigints(schemas_to_go_query, 0, NULL, NULL, NULL, snapshot, 1, &count);
	UnregisterSnapshot(snapshot);
	if (count == 0 || !ConditionalLockRelationOid(relid, ShareRowExclusiveLock))
		return;

	snapshot = store_fresh_snapshot();
	owner_query_run(schemas_query, 0, NULL, NULL, NULL, snapshot, NULL, NULL);
	UnregisterSnapshot(snapshot);
	CacheInvalidateRelcacheByRelid(relid);
}

/*
 * fencing_immutable() → trigger: raises 42501.
 */
Datum
fencing_immutable(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function must be called as a trigger")));
	if (!purging)
	{
		Oid			relid = RelationGetRelid(trigger->tg_relation);
		bool		event = relid == store_table_oid(STORE_OUTBOX);
		bool		tag_event = relid == store_table_oid(STORE_TAG_EVENTS);

		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 event ? errmsg("events are immutable") :
				 tag_event ? errmsg("events of tags are immutable") :
				 errmsg("revisions are immutable"),
				 event ? errhint("Call fencing_purge() for those that are old enough to go.") :
				 tag_event ? errhint("Submit another event.") :
				 errhint("Publish another version.")));
	}
	return PointerGetDatum(trigger->tg_trigtuple);
}
