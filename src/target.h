/*-------------------------------------------------------------------------
 *
 * target.h
 *	  What the functions about targets share.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCING_TARGET_H
#define FENCING_TARGET_H

#include "job.h"

/* nobody else's symbols: PostgreSQL 15 loads libraries with global ones */
#pragma GCC visibility push(hidden)

/* One call about a target: its arguments, what it sees, its answer. */
typedef struct TargetCall
{
	FencingJob	job;			/* of begin and observe */
	FencingTarget target;
	Relation	targets;
	Relation	revisions;
	int64		version;		/* argument, or what is handed out; 0: none */
	bytea	   *digest;			/* of observe */
	text	   *reason;			/* of reject and forget */
	bool		of_retired;		/* of desire and forget: it may be retired */
	FencingRevision revision;	/* looked at last */
	FencingOutcome outcome;
	bool		wrote;
} TargetCall;

/*
 * target.c
 */
extern void target_begin(TargetCall *call, FunctionCallInfo fcinfo, const char *function);
extern void target_end(TargetCall *call);
extern void target_look(TargetCall *call, Snapshot snapshot);
extern void target_with_row(TargetCall *call, FencingWork work);
extern bool target_write(TargetCall *call);
extern int64 target_get_bigint(const FencingTarget *target, int column);
extern void target_set(FencingTarget *target, int column, Datum value);
extern void target_set_error(FencingTarget *target, text *error);

#pragma GCC visibility pop

#endif							/* FENCING_TARGET_H */
