/*-------------------------------------------------------------------------
 *
 * outbox.c
 *	  Events that are written with what they tell of, and delivered at
 *	  least once.
 *
 * An event takes its number under the lock of its aggregate, which is held to
 * the end of the transaction: the numbers of one aggregate are in the order
 * of the commits.  Numbers of different aggregates are not; so delivery is
 * tracked per event and consumer, never by a position in the numbers, and an
 * event of a slow transaction is not passed over.
 *
 * A consumer is a job; its relays take turns by its lease, and what they
 * acknowledge is fenced by its token.
 *
 * Locks: emit: the aggregate's lock, waiting.  read: none that another relay
 * waits for, but for what is said at tidy_up().
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "outbox.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/hsearch.h"
#include "utils/snapmgr.h"
#include "utils/xid8.h"

/* a read that passes over more events, and finds none, makes sure that the
 * next one does not */
#define PASSED_IN_VAIN		1000

/* An aggregate with a parked event. */
typedef struct BlockedAggregate
{
	text	   *key;
} BlockedAggregate;

static void refuse_reserved(const text *aggregate_type);
static void put_pending(RelayCall *call, ReturnSetInfo *rsinfo, int max_rows);
static void tidy_up(RelayCall *call);
static HTAB *make_blocked(void);
static text *make_aggregate_key(const text *type, const text *id);
static void block(HTAB *blocked, OutboxScan *event);
static bool is_blocked(HTAB *blocked, OutboxScan *event);
static text *aggregate_key(OutboxScan *event);
static uint32 hash_blocked(const void *key, Size keysize);
static int	match_blocked(const void *a, const void *b, Size keysize);
static void put_row(ReturnSetInfo *rsinfo, FencingOutcome outcome, OutboxScan *event,
					int64 attempts);

PG_FUNCTION_INFO_V1(fencing_outbox_emit);
PG_FUNCTION_INFO_V1(fencing_outbox_read);

/*
 * Aggregates whose events are written by other functions only: who could
 * write more of them could tell of what has not happened, and hold their
 * locks.
 */
static const char *const reserved_types[] = {"document", "tag"};

bool		outbox_notify;

/*
 * fencing_outbox_emit(aggregate_type text, aggregate_id text, type text, payload jsonb)
 *	→ uuid
 */
Datum
fencing_outbox_emit(PG_FUNCTION_ARGS)
{
	text	   *aggregate_type = args_key(fcinfo, 0, "aggregate_type");
	text	   *aggregate_id = args_key(fcinfo, 1, "aggregate_id");
	text	   *type = args_key(fcinfo, 2, "type");

	args_refuse_null(fcinfo, 3, "payload");
	refuse_reserved(aggregate_type);
	store_begin_write("fencing_outbox_emit()");
	key_lock_aggregate(aggregate_type, aggregate_id);
	PG_RETURN_UUID_P(outbox_emit(aggregate_type, aggregate_id, type, PG_GETARG_JSONB_P(3)));
}

/* Raises 22023. */
static void
refuse_reserved(const text *aggregate_type)
{
	char	   *type = text_to_cstring(aggregate_type);

	for (size_t i = 0; i < lengthof(reserved_types); i++)
	{
		if (strcmp(type, reserved_types[i]) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("aggregate_type \"%s\" is reserved", type),
					 errdetail("Events of this type are written by the functions of the extension."),
					 errhint("Use another aggregate_type.")));
	}
}

/*
 * Writes an event in this transaction and returns its id.  The caller has
 * locked the aggregate, or the one thing that it is about, to the
 * transaction's end.
 */
pg_uuid_t *
outbox_emit(text *aggregate_type, text *aggregate_id, text *type, Jsonb *payload)
{
	static const char query[] =
		"INSERT INTO fencing.outbox"
		" (id, aggregatetype, aggregateid, type, payload, created_at, era, xid)"
		" VALUES ($1, $2, $3, $4, $5, $6, $7, pg_catalog.pg_current_xact_id())";
	Oid			argtypes[] = {UUIDOID, TEXTOID, TEXTOID, TEXTOID, JSONBOID, TIMESTAMPTZOID, INT8OID};
	pg_uuid_t  *id = outbox_new_uuid();
	Datum		args[lengthof(argtypes)];

	(void) epoch_enter();
	outbox_settle_enter();

	args[0] = UUIDPGetDatum(id);
	args[1] = PointerGetDatum(aggregate_type);
	args[2] = PointerGetDatum(aggregate_id);
	args[3] = PointerGetDatum(type);
	args[4] = JsonbPGetDatum(payload);
	args[5] = TimestampTzGetDatum(GetCurrentTimestamp());
	args[6] = Int64GetDatum(epoch_current());
	owner_query_run(query, lengthof(args), argtypes, args, NULL, NULL, NULL, NULL);

	ForceSyncCommit();
	if (outbox_notify)
		notify_at_commit(NOTIFY_OUTBOX, NULL);
	return id;
}

/* A random UUID (RFC 4122, version 4). */
pg_uuid_t *
outbox_new_uuid(void)
{
	pg_uuid_t  *id = (pg_uuid_t *) palloc(sizeof(pg_uuid_t));

	if (!pg_strong_random(id, sizeof(pg_uuid_t)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random values")));
	id->data[6] = (id->data[6] & 0x0f) | 0x40;
	id->data[8] = (id->data[8] & 0x3f) | 0x80;
	return id;
}

/*
 * fencing_outbox_read(consumer text, token bigint, max_rows int)
 *	→ SETOF outcome, id, aggregate_type, aggregate_id, type, payload, created_at, attempts
 */
Datum
fencing_outbox_read(PG_FUNCTION_ARGS)
{
	RelayCall	call = {0};
	int			max_rows = args_max_rows(fcinfo, 2);
	Snapshot	snapshot;
	bool		current;

	outbox_begin_relay(&call, fcinfo, "fencing_outbox_read()");
	snapshot = store_fresh_snapshot();
	current = job_is_current(&call.job, snapshot);
	UnregisterSnapshot(snapshot);
	job_end(&call.job);

	InitMaterializedSRF(fcinfo, 0);
	if (current)
		put_pending(&call, (ReturnSetInfo *) fcinfo->resultinfo, max_rows);
	else
		put_row((ReturnSetInfo *) fcinfo->resultinfo, FENCING_STALE, NULL, 0);
	outbox_end_relay(&call);
	return (Datum) 0;
}

/*
 * In the order of the numbers every event of an aggregate comes after its
 * earlier ones; those that are not in this answer have been acknowledged, or
 * are parked, and then the later ones are left out.
 *
 * All of it is as one snapshot has it, that of any query at this moment.
 * Events are read as any SELECT would, with its predicate locks; for what is
 * acknowledged the consumer's row is locked so, see outbox_ack.c.  What is
 * said about events comes in the same order as they do.
 */
static void
put_pending(RelayCall *call, ReturnSetInfo *rsinfo, int max_rows)
{
	OutboxConsumer *consumer = &call->consumer;
	Relation	outbox = store_table_open(STORE_OUTBOX, AccessShareLock);
	Relation	acks = store_table_open(STORE_OUTBOX_ACKS, AccessShareLock);
	Snapshot	snapshot = RegisterSnapshot(GetTransactionSnapshot());
	HTAB	   *blocked = make_blocked();
	OutboxAttempts attempts;
	OutboxWalk	walk;
	OutboxEvent event;
	int			nrows = 0;

	outbox_scan_find_consumer(call->consumers, consumer, snapshot);
	if (!consumer->found)
		outbox_not_subscribed(call);
	if (IsolationIsSerializable())
		(void) store_visible_to_transaction(call->consumers, consumer->tuple);

	outbox_attempt_begin(&attempts, consumer);
	outbox_scan_walk(&walk, consumer, outbox, acks, consumer->after_no, snapshot, snapshot);
	while (nrows < max_rows && outbox_scan_walk_next(&walk, &event))
	{
		if (event.parked)
			block(blocked, &walk.events);
		else if (!is_blocked(blocked, &walk.events))
		{
			put_row(rsinfo, FENCING_CURRENT, &walk.events, outbox_attempt_next(&attempts, event.no));
			nrows++;
		}
	}
	outbox_scan_walk_end(&walk);
	outbox_attempt_end(&attempts);
	UnregisterSnapshot(snapshot);
	table_close(acks, AccessShareLock);
	table_close(outbox, AccessShareLock);
	if (nrows == 0 && walk.passed > PASSED_IN_VAIN && !IsolationUsesXactSnapshot())
		tidy_up(call);
}

/*
 * What was passed over in vain is not looked at again: events of the other
 * parts of the consumer, of which this one may get few, or those before a
 * subscription.  An acknowledgement does the same, but there is nothing to
 * acknowledge.
 *
 * Takes the lock on the consumer's row that an acknowledgement waits for, if
 * it is free.  There is nothing to deliver, so the transaction has no reason
 * to go on.
 */
static void
tidy_up(RelayCall *call)
{
	Snapshot	snapshot = store_fresh_snapshot();

	outbox_scan_find_consumer(call->consumers, &call->consumer, snapshot);
	UnregisterSnapshot(snapshot);
	if (!call->consumer.found ||
		store_lock_row(call->consumers, call->consumer.tuple, LockWaitSkip) != STORE_LOCKED)
		return;
	call->outbox = store_table_open(STORE_OUTBOX, AccessShareLock);
	call->acks = store_table_open(STORE_OUTBOX_ACKS, RowExclusiveLock);
	outbox_compact(call);
	call->job.wrote = true;
}

/* The aggregates of parked events, by their keys. */
static HTAB *
make_blocked(void)
{
	HASHCTL		ctl = {0};

	ctl.keysize = sizeof(BlockedAggregate);
	ctl.entrysize = sizeof(BlockedAggregate);
	ctl.match = match_blocked;
	ctl.hash = hash_blocked;
	ctl.hcxt = CurrentMemoryContext;
	return hash_create("fencing outbox", 16, &ctl, HASH_ELEM | HASH_FUNCTION | HASH_COMPARE | HASH_CONTEXT);
}

/* The type with its length, so that no two aggregates have one key. */
static text *
make_aggregate_key(const text *type, const text *id)
{
	int32		type_length = VARSIZE_ANY_EXHDR(type);
	int32		id_length = VARSIZE_ANY_EXHDR(id);
	Size		size = VARHDRSZ + sizeof(type_length) + type_length + id_length;
	text	   *key = (text *) palloc(size);
	char	   *to = VARDATA(key);

	SET_VARSIZE(key, size);
	memcpy(to, &type_length, sizeof(type_length));
	memcpy(to + sizeof(type_length), VARDATA_ANY(type), type_length);
	memcpy(to + sizeof(type_length) + type_length, VARDATA_ANY(id), id_length);
	return key;
}

/* The aggregate of the scan's event is from now on. */
static void
block(HTAB *blocked, OutboxScan *event)
{
	BlockedAggregate aggregate = {aggregate_key(event)};

	(void) hash_search(blocked, &aggregate, HASH_ENTER, NULL);
}

/* Whether the aggregate of the scan's event is. */
static bool
is_blocked(HTAB *blocked, OutboxScan *event)
{
	BlockedAggregate aggregate;
	bool		found;

	if (hash_get_num_entries(blocked) == 0)
		return false;
	aggregate.key = aggregate_key(event);
	(void) hash_search(blocked, &aggregate, HASH_FIND, &found);
	pfree(aggregate.key);
	return found;
}

/* Of the scan's event. */
static text *
aggregate_key(OutboxScan *event)
{
	return make_aggregate_key(DatumGetTextPP(outbox_scan_get(event, Anum_outbox_aggregatetype)),
							  DatumGetTextPP(outbox_scan_get(event, Anum_outbox_aggregateid)));
}

/* Of the key, not of its address. */
static uint32
hash_blocked(const void *key, Size keysize)
{
	const text *name = ((const BlockedAggregate *) key)->key;

	return hash_bytes((const unsigned char *) VARDATA(name), VARSIZE(name) - VARHDRSZ);
}

/* By the key, not by its address. */
static int
match_blocked(const void *a, const void *b, Size keysize)
{
	return !args_same_text(((const BlockedAggregate *) a)->key, ((const BlockedAggregate *) b)->key);
}

/* A row of the answer; event NULL: none is there. */
static void
put_row(ReturnSetInfo *rsinfo, FencingOutcome outcome, OutboxScan *event, int64 attempts)
{
	static const int columns[] = {
		Anum_outbox_id, Anum_outbox_aggregatetype, Anum_outbox_aggregateid, Anum_outbox_type,
		Anum_outbox_payload, Anum_outbox_created_at
	};
	Datum		values[8] = {0};
	bool		nulls[8] = {false, true, true, true, true, true, true, true};

	values[0] = args_outcome_datum(TupleDescAttr(rsinfo->setDesc, 0)->atttypid, outcome);
	for (int i = 1; event != NULL && i < 7; i++)
		values[i] = slot_getattr(event->slot, columns[i - 1], &nulls[i]);
	values[7] = Int64GetDatum(attempts);
	nulls[7] = event == NULL;
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/* Reads the arguments that all relay functions begin with. */
void
outbox_begin_relay(RelayCall *call, FunctionCallInfo fcinfo, const char *function)
{
	Snapshot	snapshot;

	call->job.job_key = args_key(fcinfo, 0, "consumer");
	call->job.token = args_token(fcinfo, 1, "token");
	call->consumer.consumer = call->job.job_key;
	job_begin(&call->job, function);
	call->consumers = store_table_open(STORE_OUTBOX_CONSUMERS, RowExclusiveLock);

	snapshot = RegisterSnapshot(GetTransactionSnapshot());
	outbox_scan_find_consumer(call->consumers, &call->consumer, snapshot);
	UnregisterSnapshot(snapshot);
	if (!call->consumer.found)
		outbox_not_subscribed(call);
}

/* A call that wrote nothing leaves no lock. */
void
outbox_end_relay(RelayCall *call)
{
	LOCKMODE	lockmode = call->job.wrote ? NoLock : RowExclusiveLock;

	if (call->acks != NULL)
	{
		table_close(call->acks, lockmode);
		table_close(call->outbox, call->job.wrote ? NoLock : AccessShareLock);
	}
	table_close(call->consumers, lockmode);
}

/* Raises 22023. */
void
outbox_not_subscribed(const RelayCall *call)
{
	const char *consumer = text_to_cstring(call->job.job_key);
	OutboxConsumer part = {.consumer = cstring_to_text(psprintf("%s/1", consumer))};
	Snapshot	snapshot = store_fresh_snapshot();

	outbox_scan_find_consumer(call->consumers, &part, snapshot);
	UnregisterSnapshot(snapshot);
	if (part.found && part.parts > 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("consumer \"%s\" is divided into %d parts", consumer, part.parts),
				 errhint("Acquire and name one of them: \"%s/1\" to \"%s/%d\".", consumer, consumer,
						 part.parts)));
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("consumer \"%s\" is not subscribed", consumer),
			 errhint("Call fencing_outbox_subscribe() first.")));
}
