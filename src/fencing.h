/*-------------------------------------------------------------------------
 *
 * fencing.h
 *	  What every file needs: version shims, SQLSTATEs, outcomes, arguments.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCING_H
#define FENCING_H

#include "fmgr.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

/* nobody else's symbols: PostgreSQL 15 loads libraries with global ones */
#pragma GCC visibility push(hidden)

/*
 * Version shims: PostgreSQL 15 to 18
 */
#if PG_VERSION_NUM >= 180000
#define compat_index_beginscan(heap, index, snapshot, nkeys) \
	index_beginscan(heap, index, snapshot, NULL, nkeys, 0)
#define compat_primary_key(rel) RelationGetPrimaryKeyIndex(rel, false)
#else
#define compat_index_beginscan(heap, index, snapshot, nkeys) \
	index_beginscan(heap, index, snapshot, nkeys, 0)
#define compat_primary_key(rel) RelationGetPrimaryKeyIndex(rel)
#endif

#if PG_VERSION_NUM >= 170000
#define compat_lock_held(tag, lockmode) LockHeldByMe(tag, lockmode, false)
#else
#define compat_lock_held(tag, lockmode) LockHeldByMe(tag, lockmode)
#endif

#if PG_VERSION_NUM >= 160000
#define compat_may_execute(function, roleid) \
	object_aclcheck(ProcedureRelationId, function, roleid, ACL_EXECUTE)
#define compat_owns_relation(relid, roleid) \
	object_ownercheck(RelationRelationId, relid, roleid)
#else
#define compat_may_execute(function, roleid) \
	pg_proc_aclcheck(function, roleid, ACL_EXECUTE)
#define compat_owns_relation(relid, roleid) pg_class_ownercheck(relid, roleid)
#endif

#ifndef ATTRIBUTE_GENERATED_VIRTUAL
#define ATTRIBUTE_GENERATED_VIRTUAL 'v' /* no such column before 18 */
#endif

#ifndef INTERVAL_NOT_FINITE
#define INTERVAL_NOT_FINITE(i) false	/* no such value before 17 */
#endif

#ifndef pg_noreturn
#define pg_noreturn pg_attribute_noreturn() /* before 18 */
#endif

/* SQLSTATEs of our own */
#define ERRCODE_FENCING_NEVER_ISSUED	MAKE_SQLSTATE('L', 'F', '0', '0', '1')
#define ERRCODE_FENCING_UNKNOWN_VERSION MAKE_SQLSTATE('L', 'F', '0', '0', '2')
#define ERRCODE_FENCING_OUTSIDE_GATE	MAKE_SQLSTATE('L', 'F', '0', '0', '3')
#define ERRCODE_FENCING_NAME_RESERVED	MAKE_SQLSTATE('L', 'F', '0', '0', '4')
#define ERRCODE_FENCING_NOT_ACCEPTED	MAKE_SQLSTATE('L', 'F', '0', '0', '5')

/* bytes in a key, and in the name of a step */
#define ARGS_MAX_KEY			512

/* in the order of the names in args.c */
typedef enum FencingOutcome
{
	FENCING_COMMITTED,
	FENCING_REPLAYED,
	FENCING_CONFLICT,
	FENCING_STALE,
	FENCING_PRUNED,
	FENCING_FAILED,
	FENCING_ACQUIRED,
	FENCING_RENEWED,
	FENCING_HELD,
	FENCING_LOST,
	FENCING_RELEASED,
	FENCING_ADVANCED,
	FENCING_CURRENT,
	FENCING_DENIED,
	FENCING_DONE,
	FENCING_RECORDED,
	FENCING_WRITE,
	FENCING_AHEAD,
	FENCING_DIVERGED,
	FENCING_UNDESIRED,
	FENCING_AGAIN				/* internal: begin again */
} FencingOutcome;

/*
 * fencing.c: settings
 */
extern int	fencing_max_ttl;	/* seconds */

/*
 * args.c: arguments in, answers out
 */
extern void args_refuse_null(FunctionCallInfo fcinfo, int argno, const char *name);
extern text *args_key(FunctionCallInfo fcinfo, int argno, const char *name);
extern text *args_step(FunctionCallInfo fcinfo, int argno, const char *name);
extern text *args_reason(FunctionCallInfo fcinfo, int argno, const char *name);
extern int64 args_token(FunctionCallInfo fcinfo, int argno, const char *name);
extern pg_uuid_t *args_uuid(FunctionCallInfo fcinfo, int argno, const char *name);
extern int	args_max_rows(FunctionCallInfo fcinfo, int argno);
extern bool args_bool(FunctionCallInfo fcinfo, int argno, const char *name);
extern int64 args_ttl(FunctionCallInfo fcinfo, int argno, const char *name);
extern int64 args_retention(FunctionCallInfo fcinfo, int argno, const char *name);
extern int64 args_interval_usecs(const Interval *interval);
extern bool args_same_text(const text *a, const text *b);
extern const char *args_outcome_name(FencingOutcome outcome);
extern Datum args_outcome_datum(Oid enumtype, FencingOutcome outcome);
extern Datum args_answer(FunctionCallInfo fcinfo, FencingOutcome outcome,
						 const Datum *values, const bool *nulls);

/*
 * notify.c: notifications that are sent when the transaction commits
 */
#define NOTIFY_LEASE			"fencing_lease"
#define NOTIFY_OUTBOX			"fencing_outbox"

extern void notify_at_commit(const char *channel, const text *payload);

#pragma GCC visibility pop

#endif							/* FENCING_H */
