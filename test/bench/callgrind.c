/*-------------------------------------------------------------------------
 *
 * callgrind.c
 *	  Tells callgrind, from SQL, when to count.
 *
 * The server runs under "valgrind --tool=callgrind --instr-atstart=no".  A
 * backend that has warmed up calls count('start'), and count(NAME) to have
 * written, to a file of its own, what was executed since.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <valgrind/callgrind.h>

#include "fmgr.h"
#include "utils/builtins.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(count);

Datum
count(PG_FUNCTION_ARGS)
{
	const char *what = text_to_cstring(PG_GETARG_TEXT_PP(0));

	if (strcmp(what, "start") == 0)
	{
		CALLGRIND_START_INSTRUMENTATION;
		CALLGRIND_ZERO_STATS;
	}
	else if (strcmp(what, "stop") == 0)
		CALLGRIND_STOP_INSTRUMENTATION;
	else
		CALLGRIND_DUMP_STATS_AT(what);
	PG_RETURN_BOOL(RUNNING_ON_VALGRIND != 0);
}
