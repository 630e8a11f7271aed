/*-------------------------------------------------------------------------
 *
 * statement.h
 *	  The caller's statement.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef STATEMENT_H
#define STATEMENT_H

/* nobody else's symbols: PostgreSQL 15 loads libraries with global ones */
#pragma GCC visibility push(hidden)

#define STATEMENT_MAX_ARGS	5

typedef struct Statement
{
	const char *text;			/* NULL: there is none */
	int			nargs;
	const Oid  *argtypes;		/* one array per part: plans are found by its
								 * address */
	Datum		args[STATEMENT_MAX_ARGS];
	bool		nulls[STATEMENT_MAX_ARGS];
} Statement;

extern Datum statement_run(const Statement *statement, bool *isnull);

#pragma GCC visibility pop

#endif							/* STATEMENT_H */
