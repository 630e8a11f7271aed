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
	ScanKeyData keys[3];
	ScanKeyData from[2];		/* of a row comparison */
	int			nkeys;
} OutboxScan;

/*
 * An index that the script has made: its name, and the columns that are keys.
 */
typedef struct OutboxIndex
{
	const char *name;
	int			nkeys;
	AttrNumber	keys[4];
} OutboxIndex;

/* A consumer as a snapshot sees it. */
typedef struct OutboxConsumer
{
	text	   *consumer;
	bool		found;
	HeapTuple	tuple;
	Datum		values[Natts_outbox_consumers];
	bool		nulls[Natts_outbox_consumers];
	OutboxScan	acks;			/* of one event and another */
} OutboxConsumer;

typedef struct OutboxEvent
{
	int64		no;
	int64		era;
	FullTransactionId xid;
	text	   *aggregate_type;
	text	   *aggregate_id;
} OutboxEvent;

/* how a consumer stands to an event */
typedef enum OutboxState
{
	OUTBOX_OPEN,
	OUTBOX_PARKED,
	OUTBOX_ACKED
} OutboxState;

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
extern bool outbox_any_prepared(void);
extern void outbox_make_mark(Datum *no, Datum *xid);

/*
 * outbox_scan.c: consumers, events and acknowledgements, found without
 * predicate locks
 */
extern const OutboxIndex outbox_by_no;
extern const OutboxIndex outbox_acks_by_no;

extern void outbox_scan_find_consumer(Relation consumers, OutboxConsumer *consumer, Snapshot snapshot);
extern void outbox_scan_begin_acks(OutboxConsumer *consumer, Relation acks);
extern void outbox_scan_end_acks(OutboxConsumer *consumer);
extern bool outbox_scan_concerns(const OutboxConsumer *consumer, const OutboxEvent *event);
extern bool outbox_scan_is_pending(OutboxConsumer *consumer, const OutboxEvent *event,
								   Snapshot snapshot);
extern bool outbox_scan_precedes(int64 era1, FullTransactionId xid1,
								 int64 era2, FullTransactionId xid2);
extern bool outbox_scan_find_event(Relation outbox, const pg_uuid_t *id, Snapshot snapshot,
								   OutboxEvent *event);
extern bool outbox_scan_first_pending(OutboxConsumer *consumer, Relation outbox, Snapshot snapshot,
									  OutboxEvent *event);
extern int64 outbox_scan_count_pending(OutboxConsumer *consumer, Relation outbox,
									   const OutboxEvent *last, Snapshot snapshot);
extern void outbox_scan_begin(OutboxScan *scan, Relation rel, const OutboxIndex *index,
							  Snapshot scan_snapshot);
extern void outbox_scan_equal(OutboxScan *scan, RegProcedure equal, Datum value);
extern void outbox_scan_above(OutboxScan *scan, int64 number);

extern void outbox_scan_again(OutboxScan *scan);
extern bool outbox_scan_next(OutboxScan *scan, Snapshot snapshot);
extern Datum outbox_scan_get(OutboxScan *scan, int attnum);
extern void outbox_scan_event(OutboxScan *scan, OutboxEvent *event);
extern OutboxState outbox_scan_state(OutboxScan *acks);
extern void outbox_scan_end(OutboxScan *scan);

#pragma GCC visibility pop

#endif							/* FENCING_OUTBOX_H */
