/*-------------------------------------------------------------------------
 *
 * outbox.h
 *	  What the files of the outbox share.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCING_OUTBOX_H
#define FENCING_OUTBOX_H

#include "access/genam.h"
#include "access/skey.h"
#include "access/transam.h"
#include "executor/tuptable.h"
#include "job.h"
#include "utils/array.h"

/* nobody else's symbols: PostgreSQL 15 loads libraries with global ones */
#pragma GCC visibility push(hidden)

/* A scan by an index. */
typedef struct OutboxScan
{
	Relation	rel;
	Relation	index;
	IndexScanDesc scan;
	TupleTableSlot *slot;
	Snapshot	scan_snapshot;
	ScanDirection direction;
	ScanKeyData keys[3];
	int			nkeys;
} OutboxScan;

/*
 * An index that the script has made: its name, and the columns that are keys.
 */
typedef struct OutboxIndex
{
	const char *name;
	int			nkeys;
	AttrNumber	keys[3];
} OutboxIndex;

/* A consumer as a snapshot sees it. */
typedef struct OutboxConsumer
{
	text	   *consumer;
	bool		found;
	HeapTuple	tuple;
	Datum		values[Natts_outbox_consumers];
	bool		nulls[Natts_outbox_consumers];
	int64		after_no;
	int			part;			/* from 1, of parts */
	int			parts;
} OutboxConsumer;

typedef struct OutboxEvent
{
	int64		no;
	int64		era;
	FullTransactionId xid;
	uint32		hash;			/* of its aggregate */
	text	   *aggregate_type;
	text	   *aggregate_id;
	bool		parked;
} OutboxEvent;

/* What a consumer has said of a range of numbers. */
typedef struct OutboxAck
{
	bool		found;
	HeapTuple	row;
	int64		event_no;
	int64		through_no;
	bool		parked;			/* else acknowledged */
} OutboxAck;

/* Through what a consumer has said, beside ascending numbers of events. */
typedef struct OutboxAckCursor
{
	OutboxScan	scan;
	Snapshot	snapshot;
	OutboxAck	ack;			/* the first that does not end before */
} OutboxAckCursor;

/* Through the pending events of a consumer, in the order of their numbers. */
typedef struct OutboxWalk
{
	const OutboxConsumer *consumer;
	Snapshot	snapshot;
	OutboxScan	events;
	OutboxAckCursor acks;
	const int64 *done;			/* these are acknowledged as well */
	int			ndone;
	int64		passed;			/* events that were not pending */
	int64		most_passed;	/* then it ends; 0: never */
} OutboxWalk;

/* How often a consumer's events have been delivered. */
typedef struct OutboxAttempts
{
	Relation	rel;
	const OutboxConsumer *consumer;
	Snapshot	snapshot;
	int64		through_no;		/* the highest that has been delivered */
	int64		last_no;		/* now as well */
	List	   *again;			/* numbers below that are delivered again */
} OutboxAttempts;

/* One call of a relay. */
typedef struct RelayCall
{
	Job			job;
	OutboxConsumer consumer;
	Relation	consumers;
	Relation	outbox;			/* this and the next: of ack and park */
	Relation	acks;
	pg_uuid_t **ids;			/* different ones */
	int			nids;
	text	   *reason;			/* of park; NULL: take it back */
	List	   *pending;		/* OutboxEvent: those of ids that are */
	int			affected;
} RelayCall;

/*
 * outbox.c: events
 */
extern bool outbox_notify;		/* setting */
extern pg_uuid_t *outbox_emit(text *aggregate_type, text *aggregate_id, text *type,
							  Jsonb *payload);
extern pg_uuid_t *outbox_new_uuid(void);
extern void outbox_begin_relay(RelayCall *call, FunctionCallInfo fcinfo, const char *function);
extern void outbox_end_relay(RelayCall *call);
pg_noreturn extern void outbox_not_subscribed(const RelayCall *call);

/*
 * outbox_settle.c: up to which number every event is there
 */
extern void outbox_settle_enter(void);
extern int64 outbox_settle(void);
extern int64 outbox_settle_last_no(void);

/*
 * outbox_scan.c: consumers, events and acknowledgements, found without
 * predicate locks
 */
extern void outbox_scan_find_consumer(Relation consumers, OutboxConsumer *consumer, Snapshot snapshot);
extern bool outbox_scan_is_pending(const OutboxConsumer *consumer, Relation acks,
								   const OutboxEvent *event, Snapshot snapshot);
extern bool outbox_scan_is_of_part(const OutboxConsumer *consumer, const OutboxEvent *event);
extern bool outbox_scan_is_pending_at(const OutboxConsumer *consumer, OutboxAckCursor *cursor,
									  OutboxEvent *event);
extern List *outbox_scan_find_events(Relation outbox, pg_uuid_t *const *ids, int nids,
									 Snapshot snapshot);
extern void outbox_scan_find_ack(Relation acks, const OutboxConsumer *consumer, int64 event_no,
								 Snapshot snapshot, OutboxAck *ack);
extern void outbox_scan_next_ack(Relation acks, const OutboxConsumer *consumer, int64 event_no,
								 Snapshot snapshot, OutboxAck *ack);
extern HeapTuple outbox_scan_next_attempt(Relation attempts, const OutboxConsumer *consumer,
										  int64 event_no, Snapshot snapshot);
extern void outbox_scan_walk(OutboxWalk *walk, const OutboxConsumer *consumer, Relation outbox,
							 Relation acks, int64 after_no, Snapshot snapshot,
							 Snapshot scan_snapshot);
extern void outbox_scan_walk_aggregate(OutboxWalk *walk, const OutboxConsumer *consumer,
									   Relation outbox, Relation acks, const OutboxEvent *event,
									   Snapshot snapshot);
extern bool outbox_scan_walk_next(OutboxWalk *walk, OutboxEvent *event);
extern void outbox_scan_walk_end(OutboxWalk *walk);
extern void outbox_scan_acks(OutboxAckCursor *cursor, Relation acks, const text *consumer,
							 int64 after_no, Snapshot snapshot);
extern const OutboxAck *outbox_scan_ack_of(OutboxAckCursor *cursor, int64 no);
extern void outbox_scan_acks_end(OutboxAckCursor *cursor);
extern bool outbox_scan_wants(const OutboxConsumer *consumer, const OutboxEvent *event);
extern void outbox_scan_events(OutboxScan *scan, Relation outbox, int64 after_no);
extern bool outbox_scan_next_event(OutboxScan *scan, Snapshot snapshot, OutboxEvent *event);
extern void outbox_scan_jump(OutboxScan *scan, int64 number);
extern void outbox_scan_events_end(OutboxScan *scan);
extern Datum outbox_scan_get(OutboxScan *scan, int attnum);

/*
 * outbox_compact.c: what is kept of events that are done
 */
extern void outbox_compact(RelayCall *call);

/*
 * outbox_attempt.c: how often events have been delivered
 */
extern void outbox_attempt_begin(OutboxAttempts *attempts, const OutboxConsumer *consumer);
extern int64 outbox_attempt_next(OutboxAttempts *attempts, int64 event_no);
extern void outbox_attempt_end(OutboxAttempts *attempts);
extern void outbox_attempt_forget(const RelayCall *call);
extern void outbox_attempt_forget_all(const text *consumer);

/*
 * outbox_purge.c: events that are done for all
 */
extern Datum outbox_purge(TimestampTz before, int max_rows, int *count);

#pragma GCC visibility pop

#endif							/* FENCING_OUTBOX_H */
