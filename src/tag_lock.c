/*-------------------------------------------------------------------------
 *
 * tag_lock.c
 *	  What a write to tags locks, to the end of its transaction.
 *
 * Lock order: event id, names, vocabulary, roots, subject or subscriber, and
 * then the number is drawn.  So every lower number of what is locked has
 * been committed or rolled back.
 *
 * An event shares its root with others; a migration excludes them.  These are
 * key locks and no row locks: a row that many share has a list of them, which
 * is dear on hot tags.  Only roots are locked: who waits for one resolves
 * again when it is there, and starts over if it is not the root any more.
 *
 * Every event has its vocabulary's lock in RowExclusiveLock, which keeps
 * nobody out, but can be waited for: who reads as of a number waits until
 * nobody is left who may have drawn a lower one.  A migration has it in
 * ShareUpdateExclusiveLock: there is one at a time.
 *
 * A migration takes its locks all at once or none.  If it had one and waited
 * in line for another, everybody who uses the first would stand behind it, for
 * as long as somebody has the other.  So it waits beside the line, for those
 * who have the lock now, and tries again.  On a tag that is never free it
 * stands in line now and then, for a moment and without any other lock.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "tag.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"

/* a migration stands in line after so many attempts, and for so long */
#define ATTEMPTS_BESIDE		20
#define IN_LINE_MS			100

/* A wait must be long enough for deadlocks to be found. */
#define BEYOND_DEADLOCK_MS	500

typedef enum Attempt
{
	ATTEMPT_LOCKED,
	ATTEMPT_BUSY,				/* somebody has one of the locks */
	ATTEMPT_MOVED				/* a root was not one any more */
} Attempt;

/* A lock that a migration waits for. */
typedef struct Wait
{
	LOCKTAG		tag;
	LOCKMODE	lockmode;
	LockAcquireResult result;
	int			ms;
} Wait;

static void root_tag(const TagCall *call, LOCKTAG *tag, const pg_uuid_t *root);
static bool take(TagCall *call, const LOCKTAG *tag, LOCKMODE lockmode, bool wait);
static void give_back_to(TagCall *call, int nlocks);
static void hand_over(TagCall *call, const Wait *awaited);
static Attempt attempt(TagCall *call, TagReference **references, int nreferences, Wait *busy);
static bool lock_roots(TagCall *call, const pg_uuid_t *roots, int nroots, Wait *busy);
static int	sorted_roots(TagReference **references, int nreferences, pg_uuid_t *roots);
static bool wait_for(Wait *busy, bool in_line, TimestampTz since);
static bool wait_beside(void *arg);
static bool stand_in_line(void *arg);
static void set_lock_timeout(int ms);
pg_noreturn static void refuse_busy(const Wait *busy);
static void copy_lockers(SPITupleTable *rows, uint64 count, void *arg);

/* Nobody is kept out by it. */
void
tag_lock_vocabulary(TagCall *call)
{
	Datum		key = PointerGetDatum(call->vocabulary);
	LOCKTAG		tag;

	key_lock_prefix_tag(&tag, tag_relation(call, STORE_TAG_EVENTS), 1, &key);
	(void) take(call, &tag, RowExclusiveLock, true);
}

/*
 * Resolves the reference, and shares the lock of its root.  Raises LF001,
 * 40001, 54000.
 */
void
tag_lock_root(TagCall *call, TagReference *reference)
{
	int			nlocks = call->nlocks;
	pg_uuid_t	root;
	LOCKTAG		tag;

	tag_refresh(call, reference);
	do
	{
		give_back_to(call, nlocks);
		root = reference->root.id;
		root_tag(call, &tag, &root);
		(void) take(call, &tag, ShareLock, true);
		tag_refresh(call, reference);
	} while (!tag_same_id(&reference->root.id, &root));
	tag_require_visible(call, reference);
}

/*
 * Resolves the references, and locks their roots against all others.  Raises
 * LF001, 40001, 40P01, 54000, 55P03.
 */
void
tag_lock_for_migration(TagCall *call, TagReference **references, int nreferences)
{
	TimestampTz since = GetCurrentTimestamp();
	int			nlocks = call->nlocks;
	Wait		busy = {0};
	bool		ours = false;	/* the lock that we have waited for */

	for (int attempts = 1;; attempts++)
	{
		Wait		awaited = busy;
		Attempt		result;

		CHECK_FOR_INTERRUPTS();
		result = attempt(call, references, nreferences, &busy);

		if (ours)
			hand_over(call, &awaited);
		ours = false;
		if (result == ATTEMPT_LOCKED)
			break;
		give_back_to(call, nlocks);
		if (result == ATTEMPT_BUSY)
			ours = wait_for(&busy, attempts % ATTEMPTS_BESIDE == 0, since);
	}
	for (int i = 0; i < nreferences; i++)
		tag_require_visible(call, references[i]);
}

/* Nobody else writes about the subject, or the subscriber. */
void
tag_lock_subject(TagCall *call, StoreTable table)
{
	Datum		key[2] = {PointerGetDatum(call->vocabulary), PointerGetDatum(call->subject)};
	LOCKTAG		tag;

	key_lock_prefix_tag(&tag, tag_relation(call, table), 2, key);
	(void) take(call, &tag, ExclusiveLock, true);
}

/*
 * The lock for making a name.  Waits for somebody who is just making it; then
 * look again.
 */
void
tag_lock_name(TagCall *call)
{
	Datum		key[2] = {PointerGetDatum(call->vocabulary), PointerGetDatum(call->name)};

	(void) key_lock_absent(call->tables.names, 2, key, true);
	call->makes_name = true;
}

/* The name is there, or is not going to be. */
void
tag_lock_give_name_back(TagCall *call)
{
	Datum		key[2] = {PointerGetDatum(call->vocabulary), PointerGetDatum(call->name)};

	if (call->makes_name)
		key_lock_release(call->tables.names, 2, key);
	call->makes_name = false;
}

/* The call has written nothing. */
void
tag_lock_give_back(TagCall *call)
{
	tag_lock_give_name_back(call);
	give_back_to(call, 0);
}

/*
 * Waits until everybody has ended who may have drawn a number of the
 * vocabulary by now.  Who comes later does not wait behind us.
 */
void
tag_lock_wait_for_events(text *vocabulary)
{
	Relation	events = store_table_open(STORE_TAG_EVENTS, AccessShareLock);
	Datum		key = PointerGetDatum(vocabulary);
	LOCKTAG		tag;

	key_lock_prefix_tag(&tag, events, 1, &key);
	WaitForLockers(tag, ShareLock, false);
	table_close(events, AccessShareLock);
}

/* The name of the lock on a root. */
static void
root_tag(const TagCall *call, LOCKTAG *tag, const pg_uuid_t *root)
{
	Datum		key[2] = {PointerGetDatum(call->vocabulary), UUIDPGetDatum(root)};

	key_lock_prefix_tag(tag, call->tables.tags, 2, key);
}

/* Takes a lock and remembers it.  Without wait returns whether it was free. */
static bool
take(TagCall *call, const LOCKTAG *tag, LOCKMODE lockmode, bool wait)
{
	LockAcquireResult result = key_lock_keep(tag, lockmode, wait);
	TagLock    *lock = &call->locks[call->nlocks];

	if (result == LOCKACQUIRE_NOT_AVAIL)
		return false;
	Assert(call->nlocks < TAG_MAX_LOCKS);
	lock->tag = *tag;
	lock->lockmode = lockmode;
	lock->result = result;
	call->nlocks++;
	return true;
}

/* All but the first nlocks. */
static void
give_back_to(TagCall *call, int nlocks)
{
	while (call->nlocks > nlocks)
	{
		TagLock    *lock = &call->locks[--call->nlocks];

		key_lock_give_back(&lock->tag, lock->lockmode, lock->result);
	}
}

/*
 * The lock that was waited for is the attempt's, which has taken it once more,
 * or nobody's.
 */
static void
hand_over(TagCall *call, const Wait *awaited)
{
	LockAcquireResult result = awaited->result;

	for (int i = 0; i < call->nlocks; i++)
	{
		if (memcmp(&call->locks[i].tag, &awaited->tag, sizeof(LOCKTAG)) == 0)
		{
			call->locks[i].result = result;
			result = LOCKACQUIRE_ALREADY_HELD;
		}
	}
	key_lock_give_back(&awaited->tag, awaited->lockmode, result);
}

/* Takes all locks without waiting; busy is the first that is not free. */
static Attempt
attempt(TagCall *call, TagReference **references, int nreferences, Wait *busy)
{
	Datum		key = PointerGetDatum(call->vocabulary);
	pg_uuid_t	roots[2];
	pg_uuid_t	again[2];
	int			nroots;

	key_lock_prefix_tag(&busy->tag, tag_relation(call, STORE_TAG_EVENTS), 1, &key);
	busy->lockmode = ShareUpdateExclusiveLock;
	if (!take(call, &busy->tag, busy->lockmode, false))
		return ATTEMPT_BUSY;

	for (int i = 0; i < nreferences; i++)
		tag_refresh(call, references[i]);
	nroots = sorted_roots(references, nreferences, roots);
	if (!lock_roots(call, roots, nroots, busy))
		return ATTEMPT_BUSY;
	for (int i = 0; i < nreferences; i++)
		tag_refresh(call, references[i]);
	if (sorted_roots(references, nreferences, again) != nroots ||
		memcmp(roots, again, nroots * sizeof(pg_uuid_t)) != 0)
		return ATTEMPT_MOVED;
	return ATTEMPT_LOCKED;
}

/* Whether none is busy. */
static bool
lock_roots(TagCall *call, const pg_uuid_t *roots, int nroots, Wait *busy)
{
	busy->lockmode = ExclusiveLock;
	for (int i = 0; i < nroots; i++)
	{
		root_tag(call, &busy->tag, &roots[i]);
		if (!take(call, &busy->tag, busy->lockmode, false))
			return false;
	}
	return true;
}

/* The different roots of one or two references, in their order. */
static int
sorted_roots(TagReference **references, int nreferences, pg_uuid_t *roots)
{
	int			order;

	roots[0] = references[0]->root.id;
	if (nreferences == 1)
		return 1;
	roots[1] = references[1]->root.id;
	order = memcmp(&roots[0], &roots[1], sizeof(pg_uuid_t));
	if (order > 0)
	{
		roots[1] = roots[0];
		roots[0] = references[1]->root.id;
	}
	return order == 0 ? 1 : 2;
}

/*
 * Waits for those who have the lock, or in line with them, and returns whether
 * the lock is ours then.  Raises 55P03 when lock_timeout is over, counted
 * from since, and 40P01.
 */
static bool
wait_for(Wait *busy, bool in_line, TimestampTz since)
{
	int			left = INT_MAX;
	ErrorData  *error;

	if (LockTimeout > 0)
		left = LockTimeout - (int) Min(TimestampDifferenceMilliseconds(since, GetCurrentTimestamp()),
									   LockTimeout);
	if (left == 0)
		refuse_busy(busy);

	busy->ms = Min(left, in_line ? IN_LINE_MS : DeadlockTimeout + BEYOND_DEADLOCK_MS);
	if (store_subtransaction(in_line ? stand_in_line : wait_beside, busy, &error))
		return true;
	if (error != NULL && error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
		ReThrowError(error);
	return false;
}

/* In a subtransaction.  Raises 55P03 when the time is up. */
static bool
wait_beside(void *arg)
{
	Wait	   *busy = (Wait *) arg;
	int			level = NewGUCNestLevel();

	set_lock_timeout(busy->ms);
	WaitForLockers(busy->tag, busy->lockmode, false);
	AtEOXact_GUC(true, level);
	return false;
}

/* In a subtransaction, which keeps the lock.  Raises 55P03. */
static bool
stand_in_line(void *arg)
{
	Wait	   *busy = (Wait *) arg;
	int			level = NewGUCNestLevel();

	set_lock_timeout(busy->ms);
	busy->result = key_lock_keep(&busy->tag, busy->lockmode, true);
	AtEOXact_GUC(true, level);
	return true;
}

/* Until AtEOXact_GUC(). */
static void
set_lock_timeout(int ms)
{
	(void) set_config_option("lock_timeout", psprintf("%d", ms), PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
}

/* Raises 55P03, and names those who have the lock. */
static void
refuse_busy(const Wait *busy)
{
	static const char query[] =
		"SELECT pg_catalog.string_agg(COALESCE(l.pid::pg_catalog.text, 'prepared transaction'), ', ' ORDER BY l.pid)"
		" FROM (SELECT DISTINCT l.virtualtransaction, l.pid FROM pg_catalog.pg_locks l"
		"  WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory'"
		"  AND l.classid::pg_catalog.int8 OPERATOR(pg_catalog.=) $1"
		"  AND l.objid::pg_catalog.int8 OPERATOR(pg_catalog.=) $2"
		"  AND l.objsubid OPERATOR(pg_catalog.=) $3 AND l.granted"
		"  AND l.mode OPERATOR(pg_catalog.<>) 'RowExclusiveLock'"
		"  AND COALESCE(l.pid OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid(), true)) l";
	Oid			argtypes[] = {INT8OID, INT8OID, INT2OID};
	Datum		args[] = {Int64GetDatum(busy->tag.locktag_field2),
	Int64GetDatum(busy->tag.locktag_field3), Int16GetDatum(busy->tag.locktag_field4)};
	char	   *lockers = NULL;

	owner_query_run(query, lengthof(args), argtypes, args, NULL, NULL, copy_lockers, &lockers);
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("could not lock tags for a migration within lock_timeout"),
			 lockers != NULL ?
			 errdetail("They are written by: %s.", lockers) : 0,
			 errhint("Try again, or end the transactions that write to these tags.")));
}

/* Out of SPI's memory. */
static void
copy_lockers(SPITupleTable *rows, uint64 count, void *arg)
{
	char	   *value = SPI_getvalue(rows->vals[0], rows->tupdesc, 1);

	if (value != NULL)
		*(char **) arg = strcpy((char *) SPI_palloc(strlen(value) + 1), value);
}
