/*-------------------------------------------------------------------------
 *
 * job.h
 *	  Jobs: epochs, fences, leases, and the passes of a transaction.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef JOB_H
#define JOB_H

#include "gate.h"
#include "utils/uuid.h"

/* nobody else's symbols: PostgreSQL 15 loads libraries with global ones */
#pragma GCC visibility push(hidden)

/*
 * epoch.c: what this database may have issued before
 */
extern int64 epoch_enter(void);
extern void epoch_leave(void);
extern int64 epoch_current(void);
extern int64 epoch_floor(void);
extern int64 epoch_next_token(int64 last, bool external);
extern void epoch_raise_floor(int64 token);
extern void epoch_record_revocation(text *job_key, int64 token, text *reason);

/*
 * job.c: fences, and what lease.c shares with it
 */
/* somebody is just taking it, or committing */
#define LEASE_UNTIL_UNKNOWN	0

typedef struct Lease
{
	bool		found;
	HeapTuple	tuple;
	pg_uuid_t	owner;
	int64		token;
	TimestampTz until;
} Lease;

/* One call about a job: its arguments, what it sees, its answer. */
typedef struct Job
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
	Lease		lease;

	/* answer */
	FencingOutcome outcome;
	bool		wrote;
	bool		moved;			/* no answer yet: look again */
	int64		new_token;
	TimestampTz until;			/* of the lease, or LEASE_UNTIL_UNKNOWN */
	int64		retry_after_ms;
} Job;

extern void job_find_fence(Relation fences, const text *job_key, Snapshot snapshot,
						   GateFence *fence);
extern void job_begin(Job *job, const char *function);
extern void job_end(Job *job);
extern void job_look(Job *job, Snapshot snapshot);
extern bool job_is_live(const Job *job, TimestampTz now);
extern void job_refuse_external(const Job *job);
extern void job_refuse_unknown(const Job *job);
extern void job_write_fence(Job *job, int64 token, bool external);
extern bool job_is_current(Job *job, Snapshot snapshot);
pg_noreturn extern void job_never_issued(const text *job_key, int64 token,
										 const GateFence *fence);
extern FencingOutcome job_with_token(Job *job, bool expect_write, StoreWork work,
									 void *arg);
extern void job_require_same_fence(const Job *job);

/*
 * job_forget.c: ended jobs
 */
extern void job_forget_ended(TimestampTz before, int max_rows, int64 *counts);

/*
 * lease.c: leases
 */
extern bool lease_notify;		/* setting */
extern void lease_take(Job *job);

/*
 * pass.c: the jobs that the transaction may write for
 */
extern void pass_give(const text *job_key);
extern bool pass_has(const text *job_key);

#pragma GCC visibility pop

#endif							/* JOB_H */
