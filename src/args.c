/*-------------------------------------------------------------------------
 *
 * args.c
 *	  Arguments in, answers out: what all SQL functions share.
 *
 * The functions are not STRICT: a NULL is an error that names the argument,
 * and not a NULL answer that a client takes for "not acquired".
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "catalog/pg_enum.h"
#include "catalog/pg_type.h"
#include "common/int.h"
#include "fencing.h"
#include "funcapi.h"
#include "nodes/execnodes.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

static text *arg_name(FunctionCallInfo fcinfo, int argno, const char *name, bool may_be_empty);
static char *interval_to_cstring(const Interval *interval);
static TupleDesc row_of_function_scan(FunctionCallInfo fcinfo);

static const char *const outcome_names[] = {
	[FENCING_COMMITTED] = "committed",
	[FENCING_REPLAYED] = "replayed",
	[FENCING_CONFLICT] = "conflict",
	[FENCING_STALE] = "stale",
	[FENCING_PRUNED] = "pruned",
	[FENCING_FAILED] = "failed",
	[FENCING_ACQUIRED] = "acquired",
	[FENCING_RENEWED] = "renewed",
	[FENCING_HELD] = "held",
	[FENCING_LOST] = "lost",
	[FENCING_RELEASED] = "released",
	[FENCING_ADVANCED] = "advanced",
	[FENCING_CURRENT] = "current",
	[FENCING_DENIED] = "denied",
	[FENCING_DONE] = "done",
	[FENCING_RECORDED] = "recorded",
	[FENCING_WRITE] = "write",
	[FENCING_AHEAD] = "ahead",
	[FENCING_DIVERGED] = "diverged",
	[FENCING_UNDESIRED] = "undesired"
};

/*
 * Raises 22004 if the argument is NULL.  Many drivers make that of a
 * structure of the client's language that they cannot send as JSON.
 */
void
args_refuse_null(FunctionCallInfo fcinfo, int argno, const char *name)
{
	if (PG_ARGISNULL(argno))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", name),
				 get_fn_expr_argtype(fcinfo->flinfo, argno) == JSONBOID ?
				 errhint("If the client gave an array or an object, its driver sent that as NULL: give it as JSON text. A JSON null is the text \"null\".") : 0));
}

/* A key: 1 to 512 bytes.  Raises 22004, 22023, 54000. */
text *
args_key(FunctionCallInfo fcinfo, int argno, const char *name)
{
	return arg_name(fcinfo, argno, name, false);
}

/* The name of a step: 0 to 512 bytes.  Raises 22004, 54000. */
text *
args_step(FunctionCallInfo fcinfo, int argno, const char *name)
{
	return arg_name(fcinfo, argno, name, true);
}

/* A text that is a key, or a part of one. */
static text *
arg_name(FunctionCallInfo fcinfo, int argno, const char *name, bool may_be_empty)
{
	text	   *value;
	Size		length;

	args_refuse_null(fcinfo, argno, name);

	/* the raw size: a huge value need not be decompressed to say no */
	length = toast_raw_datum_size(PG_GETARG_DATUM(argno)) - VARHDRSZ;
	if (length > ARGS_MAX_KEY)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("%s is too long", name),
				 errdetail("It has %zu bytes, and the limit is %d.", length, ARGS_MAX_KEY)));

	/* without a short header: these are index keys and compared as a whole */
	value = PG_GETARG_TEXT_P(argno);
	if (length == 0 && !may_be_empty)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be empty", name)));
	return value;
}

/* The reason of an administrator: not empty.  Raises 22004, 22023. */
text *
args_reason(FunctionCallInfo fcinfo, int argno, const char *name)
{
	text	   *value;

	args_refuse_null(fcinfo, argno, name);
	value = PG_GETARG_TEXT_PP(argno);
	if (VARSIZE_ANY_EXHDR(value) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be empty", name)));
	return value;
}

/* A token: from 1 up.  Raises 22004, 22023. */
int64
args_token(FunctionCallInfo fcinfo, int argno, const char *name)
{
	int64		value;

	args_refuse_null(fcinfo, argno, name);
	value = PG_GETARG_INT64(argno);
	if (value < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be greater than zero", name),
				 errdetail("It is %lld.", (long long) value)));
	return value;
}

/* A UUID.  Raises 22004. */
pg_uuid_t *
args_uuid(FunctionCallInfo fcinfo, int argno, const char *name)
{
	args_refuse_null(fcinfo, argno, name);
	return PG_GETARG_UUID_P(argno);
}

/* The most rows of one call: from 1 up.  Raises 22004, 22023. */
int
args_max_rows(FunctionCallInfo fcinfo, int argno)
{
	int			max_rows;

	args_refuse_null(fcinfo, argno, "max_rows");
	max_rows = PG_GETARG_INT32(argno);
	if (max_rows < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("max_rows must be greater than zero, not %d", max_rows)));
	return max_rows;
}

/* An option.  Raises 22004. */
bool
args_bool(FunctionCallInfo fcinfo, int argno, const char *name)
{
	args_refuse_null(fcinfo, argno, name);
	return PG_GETARG_BOOL(argno);
}

/*
 * A time to live, in microseconds: finite, greater than zero, at most
 * fencing.max_ttl.  Raises 22004, 22023.
 */
int64
args_ttl(FunctionCallInfo fcinfo, int argno, const char *name)
{
	int64		ttl;

	args_refuse_null(fcinfo, argno, name);
	ttl = args_interval_usecs(PG_GETARG_INTERVAL_P(argno));
	if (ttl <= 0 || ttl > (int64) fencing_max_ttl * USECS_PER_SEC)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be greater than zero and at most %d seconds",
						name, fencing_max_ttl),
				 errdetail("It is \"%s\".",
						   DatumGetCString(DirectFunctionCall1(interval_out, PG_GETARG_DATUM(argno)))),
				 errhint("The limit is the setting %s.", "fencing.max_ttl")));
	return ttl;
}

/*
 * A time to keep something, in microseconds: finite, greater than zero, and
 * without negative months, of which 31 days would take away too much.  Raises
 * 22004, 22023.
 */
int64
args_retention(FunctionCallInfo fcinfo, int argno, const char *name)
{
	Interval   *value;
	int64		retention;

	args_refuse_null(fcinfo, argno, name);
	value = PG_GETARG_INTERVAL_P(argno);
	retention = args_interval_usecs(value);
	if (INTERVAL_NOT_FINITE(value) || retention <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be finite and greater than zero, not \"%s\"",
						name, interval_to_cstring(value))));
	if (value->month < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not have negative months, as \"%s\" has",
						name, interval_to_cstring(value)),
				 errhint("Write it in days.")));
	return retention;
}

/* As the session would show it. */
static char *
interval_to_cstring(const Interval *interval)
{
	return DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(interval)));
}

/*
 * The one conversion of all functions: a day is 24 hours, a month 31 days, a
 * year 12 of them, so that nothing that is kept goes before a calendar would
 * say so.  One that 64 bits cannot hold is as good as for ever, or before
 * ever.
 */
int64
args_interval_usecs(const Interval *interval)
{
	/* this cannot overflow: both are 32 bits wide */
	int64		days = (int64) interval->month * 31 + interval->day;
	int64		usecs;

	if (pg_mul_s64_overflow(days, USECS_PER_DAY, &usecs) ||
		pg_add_s64_overflow(usecs, interval->time, &usecs))
		return days > 0 ? PG_INT64_MAX : PG_INT64_MIN;
	return usecs;
}

/* Byte by byte, as the keys' collation "C" compares. */
bool
args_same_text(const text *a, const text *b)
{
	return VARSIZE_ANY_EXHDR(a) == VARSIZE_ANY_EXHDR(b) &&
		memcmp(VARDATA_ANY(a), VARDATA_ANY(b), VARSIZE_ANY_EXHDR(a)) == 0;
}

/* The word that clients see. */
const char *
args_outcome_name(FencingOutcome outcome)
{
	return outcome_names[outcome];
}

/*
 * What SELECT * FROM the function expects, which its caller has derived from
 * the function's result type a moment ago; that is dear.  NULL for a call that
 * stands elsewhere.
 */
static TupleDesc
row_of_function_scan(FunctionCallInfo fcinfo)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	TupleDesc	tupdesc;

	if (rsinfo == NULL || !IsA(rsinfo, ReturnSetInfo))
		return NULL;
	tupdesc = rsinfo->expectedDesc;
	return tupdesc != NULL && (tupdesc->tdtypeid != RECORDOID || tupdesc->tdtypmod >= 0) ?
		tupdesc : NULL;
}

/*
 * The value to return from an SQL function: the outcome, and after it the
 * other columns in values and nulls (which a function whose only result is
 * the outcome leaves NULL).
 */
Datum
args_answer(FunctionCallInfo fcinfo, FencingOutcome outcome,
			const Datum *values, const bool *nulls)
{
	TupleDesc	tupdesc = row_of_function_scan(fcinfo);
	Oid			rettype;
	Datum		row[8];
	bool		rownulls[8];

	if (tupdesc == NULL)
	{
		switch (get_call_result_type(fcinfo, &rettype, &tupdesc))
		{
			case TYPEFUNC_COMPOSITE:
				break;
			case TYPEFUNC_SCALAR:
				return args_outcome_datum(rettype, outcome);
			default:
				elog(ERROR, "unexpected result type of function %u", fcinfo->flinfo->fn_oid);
		}
	}

	Assert(tupdesc->natts <= (int) lengthof(row));
	row[0] = args_outcome_datum(TupleDescAttr(tupdesc, 0)->atttypid, outcome);
	rownulls[0] = false;
	memcpy(row + 1, values, (tupdesc->natts - 1) * sizeof(Datum));
	memcpy(rownulls + 1, nulls, (tupdesc->natts - 1) * sizeof(bool));
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc), row, rownulls));
}

/*
 * The value of type fencing_outcome, whose OID the caller's result type has.
 */
Datum
args_outcome_datum(Oid enumtype, FencingOutcome outcome)
{
	HeapTuple	tuple;
	Oid			value;

	tuple = SearchSysCache2(ENUMTYPOIDNAME, ObjectIdGetDatum(enumtype),
							CStringGetDatum(outcome_names[outcome]));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for outcome \"%s\"", outcome_names[outcome]);
	value = ((Form_pg_enum) GETSTRUCT(tuple))->oid;
	ReleaseSysCache(tuple);
	return ObjectIdGetDatum(value);
}
