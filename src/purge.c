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
 * Chooses the oldest receipts whose fences are free, and locks those as it
 * goes: a job that is committing is left for later and does not count.  Under
 * READ COMMITTED the locked row has the last word on what is superseded.
 */
static const char receipts_query[] =
"WITH purgeable AS MATERIALIZED ("
" SELECT r.ctid AS tid, r.job_key, r.token"
" FROM fencing.receipts r"
" JOIN fencing.fences f ON f.job_key OPERATOR(pg_catalog.=) r.job_key"
" WHERE r.committed_at OPERATOR(pg_catalog.<) $1"
" AND r.token OPERATOR(pg_catalog.<) f.token"
" ORDER BY r.committed_at"
" LIMIT $2"
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
" SELECT (SELECT pg_catalog.count(*) FROM purged),"
" (SELECT pg_catalog.count(*) FROM purgeable)";

/*
 * Records become tombstones after the retention of their operation,
 * tombstones go after its forget_after.  One operation after the other, the
 * one with the oldest record first: so an index has the records in order, and
 * a batch costs the same however many there are.
 */
static const char records_query[] =
"WITH operations AS MATERIALIZED ("
" SELECT o.operation,"
" LEAST($1, fencing.before(o.retention)) AS expired_before,"
" LEAST($1, fencing.before(o.forget_after)) AS ended_before"
" FROM fencing.operations o"
" ORDER BY (SELECT pg_catalog.min(r.committed_at) FROM fencing.records r"
"  WHERE r.operation OPERATOR(pg_catalog.=) o.operation AND NOT r.purged)"
"), expired AS MATERIALIZED ("
" SELECT r.tid"
" FROM operations o"
" CROSS JOIN LATERAL (SELECT r.ctid AS tid"
"  FROM fencing.records r"
"  WHERE r.operation OPERATOR(pg_catalog.=) o.operation"
"  AND NOT r.purged"
"  AND r.committed_at OPERATOR(pg_catalog.<) o.expired_before"
"  AND r.committed_at OPERATOR(pg_catalog.>=) o.ended_before"
"  ORDER BY r.committed_at"
"  LIMIT $2"
"  FOR UPDATE SKIP LOCKED) r"
" LIMIT $2"
"), ended AS MATERIALIZED ("
" SELECT r.tid"
" FROM operations o"
" CROSS JOIN (VALUES (false), (true)) p (purged)"
" CROSS JOIN LATERAL (SELECT r.ctid AS tid"
"  FROM fencing.records r"
"  WHERE r.operation OPERATOR(pg_catalog.=) o.operation"
"  AND r.purged OPERATOR(pg_catalog.=) p.purged"
"  AND r.committed_at OPERATOR(pg_catalog.<) o.ended_before"
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
 * A retired schema goes when no record is left that needs it.  The delete
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
	" AND NOT EXISTS (SELECT 1 FROM fencing.records r" \
	"  WHERE r.operation OPERATOR(pg_catalog.=) s.operation" \
	"  AND r.hash_version OPERATOR(pg_catalog.=) s.hash_version)"

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

static void purge_events(TimestampTz before, int max_rows, int64 *counts);
static void purge_schemas(void);

static const Purge purges[] = {
	{"receipts", receipts_query, NULL},
	{"records", records_query, purge_schemas},
	{"events", NULL, NULL},
	{"jobs", NULL, NULL}
};

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
