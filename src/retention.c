/*-------------------------------------------------------------------------
 *
 * retention.c
 *	  Removing what has been kept long enough, in batches, beside live traffic.
 *
 * A receipt that was removed must never look like one that has not been
 * written yet, so the fence of its job remembers up to which token receipts may
 * be gone.  Both are written in one transaction, and whoever judges reads both
 * with one snapshot.  A job's current token may still be committed with, so its
 * receipts stay; fencing_forget() removes an ended job with everything.
 *
 * Locks: fences FOR NO KEY UPDATE, never waiting: those that are not free are
 * passed over.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "fencing.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"

static int64 purge_receipts(TimestampTz before, int max_rows, bool *more);

PG_FUNCTION_INFO_V1(fencing_purge);

/*
 * fencing_purge(kind text, older_than interval, max_rows int)
 *	→ purged bigint, more boolean
 */
Datum
fencing_purge(PG_FUNCTION_ARGS)
{
	char	   *kind;
	int64		older_than;
	int			max_rows;
	TimestampTz now = GetCurrentTimestamp();
	TupleDesc	tupdesc;
	bool		more;
	Datum		values[2];
	bool		nulls[2] = {false};

	fencing_refuse_null(fcinfo, 0, "kind");
	kind = text_to_cstring(PG_GETARG_TEXT_PP(0));
	if (strcmp(kind, "receipts") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unrecognized kind: \"%s\"", kind),
				 errhint("Available values: receipts.")));

	older_than = fencing_arg_retention(fcinfo, 1, "older_than");
	fencing_refuse_null(fcinfo, 2, "max_rows");
	max_rows = PG_GETARG_INT32(2);
	if (max_rows < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("max_rows must be greater than zero")));

	PreventCommandIfReadOnly("fencing_purge()");
	PreventCommandIfParallelMode("fencing_purge()");

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	/* longer ago than time began means nothing is that old */
	values[0] = Int64GetDatum(purge_receipts(older_than > now - MIN_TIMESTAMP ?
											 MIN_TIMESTAMP : now - older_than,
											 max_rows, &more));
	values[1] = BoolGetDatum(more);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc), values, nulls)));
}

/*
 * Chooses the oldest receipts whose fences are free, and locks those as it goes:
 * a job that is committing is left for later and does not count.  Under READ
 * COMMITTED the locked row has the last word on what is superseded.
 */
static int64
purge_receipts(TimestampTz before, int max_rows, bool *more)
{
	Oid			argtypes[] = {TIMESTAMPTZOID, INT4OID};
	Datum		args[] = {TimestampTzGetDatum(before), Int32GetDatum(max_rows)};
	int64		purged;

	fencing_execute_as_owner(
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
							 " SELECT pg_catalog.count(*) FROM purged",
							 lengthof(args), argtypes, args, NULL, 1, &purged);

	ForceSyncCommit();
	*more = purged == max_rows;
	return purged;
}
