/*-------------------------------------------------------------------------
 *
 * publish.h
 *	  Documents, their revisions and their targets.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PUBLISH_H
#define PUBLISH_H

#include "job.h"
#include "utils/array.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

/* nobody else's symbols: PostgreSQL 15 loads libraries with global ones */
#pragma GCC visibility push(hidden)

/* instead of a version, which is 1 or more */
#define PUBLISH_NO_VERSION	0
#define TARGET_LATEST		0	/* what an unpinned target is to have */

/*
 * publish.c, publish_read.c: documents and their revisions
 */
typedef struct Revision
{
	bool		found;
	HeapTuple	tuple;
	bytea	   *digest;
	int			digest_version;
	TimestampTz committed_at;
} Revision;

extern int64 publish_latest_version(const text *document_id, Snapshot snapshot);
extern void publish_find_revision(Relation revisions, const text *document_id, int64 version,
								  Snapshot snapshot, Revision *revision);
extern Jsonb *publish_revision_content(Relation revisions, const Revision *revision);
pg_noreturn extern void publish_never_published(const text *document_id, int64 version, int64 latest,
												const char *hint);

/*
 * target.c: where documents go
 */
typedef struct Target
{
	text	   *document_id;
	text	   *target_id;
	bool		found;
	HeapTuple	tuple;
	Datum		values[Natts_targets];	/* all columns, for writing it anew */
	bool		nulls[Natts_targets];
	int64		desired;		/* or TARGET_LATEST */
	int64		applied;
	bytea	   *applied_digest; /* NULL: nothing is applied */
	int64		rejected;		/* whose rejection is shown */
	ArrayType  *rejections;		/* ascending; all above applied, and maybe
								 * others */
	bool		diverged;
	bool		retired;
} Target;

extern void target_args(FunctionCallInfo fcinfo, Target *target);
extern int64 target_arg_version(FunctionCallInfo fcinfo, int argno, const char *name);
extern void target_find(Relation targets, Target *target, Snapshot snapshot);
extern void target_read(Relation targets, Target *target, HeapTuple tuple);
extern text *target_job_key(const Target *target);
pg_noreturn extern void target_never_desired(const Target *target);
extern bool target_is_undesired(const Target *target, int64 version);
extern void target_set_applied(Target *target, int64 version, bytea *digest,
							   int digest_version, TimestampTz applied_at);

/* One call about a target: its arguments, what it sees, its answer. */
typedef struct TargetCall
{
	Job			job;			/* of begin and observe */
	Target		target;
	Relation	targets;
	Relation	revisions;
	int64		version;		/* argument, or what is handed out; or
								 * PUBLISH_NO_VERSION */
	bytea	   *digest;			/* of observe */
	text	   *reason;			/* of reject and forget */
	bool		of_retired;		/* of desire and forget: it may be retired */
	Revision	revision;		/* looked at last */
	FencingOutcome outcome;
	bool		wrote;
} TargetCall;

extern void target_begin(TargetCall *call, FunctionCallInfo fcinfo, const char *function);
extern void target_end(TargetCall *call);
extern void target_look(TargetCall *call, Snapshot snapshot);
extern void target_with_row(TargetCall *call, StoreWork work);
extern bool target_write(TargetCall *call);
extern int64 target_get_bigint(const Target *target, int column);
extern void target_set(Target *target, int column, Datum value);
extern void target_set_error(Target *target, text *error);

#pragma GCC visibility pop

#endif							/* PUBLISH_H */
