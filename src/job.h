/*-------------------------------------------------------------------------
 *
 * job.h
 *	  Fences and leases.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef JOB_H
#define JOB_H

#include "gate.h"

/* nobody else's symbols: PostgreSQL 15 loads libraries with global ones */
#pragma GCC visibility push(hidden)

/*
 * fence.c: fences, and what lease.c shares with it
 */
typedef struct FencingLease
{
	bool		found;
	HeapTuple	tuple;
	pg_uuid_t	owner;
	int64		token;
	TimestampTz until;
} FencingLease;

/* One call about a job: its arguments, what it sees, its answer. */
typedef struct FencingJob
{
	/* arguments, as far as the function has them */
	text	   *job_key;
	pg_uuid_t	owner;
	int64		token;
	int64		ttl;			/* microseconds */
	text	   *reason;

	/* state */
	Relation	fences;
	Relation	leases;
	int64		epoch_start;
	GateFence	fence;
	FencingLease lease;

	/* answer */
	FencingOutcome outcome;
	bool		wrote;
	bool		moved;			/* no answer yet: look again */
	int64		new_token;
	TimestampTz until;			/* of the lease; 0 if that is not known */
	int64		retry_after_ms;
} FencingJob;

extern void fencing_find_fence(Relation fences, const text *job_key, Snapshot snapshot,
							   GateFence *fence);
extern void fencing_begin_job(FencingJob *job, const char *function);
extern void fencing_end_job(FencingJob *job);
extern void fencing_look_job(FencingJob *job, Snapshot snapshot);
extern bool fencing_is_live(const FencingJob *job, TimestampTz now);
extern void fencing_refuse_external(const FencingJob *job);
extern void fencing_write_fence(FencingJob *job, int64 token, bool external);
extern bool fencing_is_current(FencingJob *job, Snapshot snapshot);
pg_noreturn extern void fencing_never_issued(const text *job_key, int64 token,
											 const GateFence *fence);
extern FencingOutcome fencing_with_token(FencingJob *job, bool expect_write, FencingWork work,
										 void *arg);
extern void fencing_require_same_fence(const FencingJob *job);

/*
 * lease.c: leases
 */
extern void fencing_take_lease(FencingJob *job);

#pragma GCC visibility pop

#endif							/* JOB_H */
