/*-------------------------------------------------------------------------
 *
 * key_lock.c
 *	  Locks on rows that are not there yet, and on what has no row.
 *
 * A row that does not exist cannot be locked.  So who is going to make one
 * takes an advisory lock, of a class of its own, and gives it back as soon as
 * the row is there: from then on the row, which nobody sees before the
 * transaction ends, stands for it.  A transaction that makes many thousands
 * of rows has one lock at a time, and the lock table of the cluster, which
 * all share, does not fill.
 *
 * An aggregate of events has no row; a subject of tags has many, and may get
 * more; a tag has one, but its row would be locked by all who use it, and
 * their lists are dear.  These locks are kept to the end of the transaction,
 * and one transaction may have only so many of them.
 *
 * What a lock is called is seen by everybody, in pg_locks.  The name is a
 * keyed hash of what is locked, so that nobody can tell which key it is, or
 * call something else by that name; the table and the lengths are part of it,
 * so that no key of one part is one of another.  The secret is the one that
 * the cluster has for mock authentication, made by initdb and shown by no
 * function: it needs no table, is the same on a standby, and never changes
 * while the server runs.  Two keys of one name would only wait for each
 * other.
 *
 * Lock order: before the rows; an aggregate after its document.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/subtrans.h"
#include "access/twophase.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_control.h"
#include "catalog/pg_type.h"
#include "common/hmac.h"
#include "common/sha2.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/procarray.h"
#include "store.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

/*
 * Fourth field of our advisory lock tags.  pg_advisory_lock() and its kin use
 * 1 and 2, so no application can take one of these.
 */
#define KEY_LOCK_CLASS		0xFE

/* enough for all keys but the longest ones */
#define KEPT_NAME			256

/* one transaction may keep locks in this part of the lock table */
#define LOCK_TABLE_FRACTION	4
#define MIN_KEPT			64

/*
 * locks that a (sub)transaction keeps, without those of its subtransactions
 */
typedef struct KeptCount
{
	int			nest_level;
	int			count;
	struct KeptCount *outer;
} KeptCount;

static void row_tag(LOCKTAG *tag, Relation rel, int nkeys, const Datum *keys);
static void wait_for_end(TransactionId xid);
static void append_text(StringInfo name, const text *value);
static void make_tag(LOCKTAG *tag, const StringInfo name);
static void hash_name(LOCKTAG *tag, const StringInfo name);
static void count_kept(void);
static void forget_kept(XactEvent event, void *arg);
static void merge_kept(SubXactEvent event, SubTransactionId id, SubTransactionId parent,
					   void *arg);

/* Innermost first, in TopTransactionContext. */
static KeptCount *kept_counts = NULL;
static int	nkept = 0;

/*
 * The lock for making the row with this primary key; give it back by
 * key_lock_release() when the row has been inserted, or is not going to be.
 * Somebody else may have made it before: look with a fresh snapshot.  If
 * somebody is just making it: with wait, waits for the end of that
 * transaction; else returns false.  keys has all columns of the primary key.
 */
bool
key_lock_absent(Relation rel, int nkeys, const Datum *keys, bool wait)
{
	LOCKTAG		tag;

	row_tag(&tag, rel, nkeys, keys);
	for (;;)
	{
		TransactionId maker;

		CHECK_FOR_INTERRUPTS();
		if (LockAcquire(&tag, ExclusiveLock, false, !wait) == LOCKACQUIRE_NOT_AVAIL)
			return false;
		maker = store_find_maker(rel, nkeys, keys);
		if (!TransactionIdIsValid(maker))
			return true;
		LockRelease(&tag, ExclusiveLock, false);
		if (!wait)
			return false;
		wait_for_end(maker);
	}
}

/* Gives the lock of key_lock_absent() back. */
void
key_lock_release(Relation rel, int nkeys, const Datum *keys)
{
	LOCKTAG		tag;

	row_tag(&tag, rel, nkeys, keys);
	LockRelease(&tag, ExclusiveLock, false);
}

/*
 * Makes a row under its lock: make is called with a snapshot newer than the
 * lock (see also store_is_unchanged()), and returns whether it has inserted
 * the row.  STORE_MOVED: it has
 * not, because somebody else had been faster.  STORE_BUSY: without wait,
 * somebody is just making it.
 */
StoreLock
key_lock_make(Relation rel, int nkeys, const Datum *keys, bool wait, StoreLook make, void *arg)
{
	Snapshot	snapshot;
	bool		made;

	if (!key_lock_absent(rel, nkeys, keys, wait))
		return STORE_BUSY;
	snapshot = store_fresh_snapshot();
	made = store_under_lock(make, arg, snapshot);
	UnregisterSnapshot(snapshot);
	key_lock_release(rel, nkeys, keys);
	return made ? STORE_LOCKED : STORE_MOVED;
}

/*
 * Waits until the row of a (sub)transaction is there or not.
 * XactLockTableWait() would wait for the whole transaction when a
 * subtransaction has been committed to its parent, though the parent may be
 * rolled back to a savepoint.
 */
static void
wait_for_end(TransactionId xid)
{
	while (TransactionIdIsInProgress(xid))
	{
		LOCKTAG		tag;

		SET_LOCKTAG_TRANSACTION(tag, xid);
		(void) LockAcquire(&tag, ShareLock, false, false);
		LockRelease(&tag, ShareLock, false);
		if (TransactionIdIsInProgress(xid))
		{
			TransactionId parent = SubTransGetParent(xid);

			if (TransactionIdIsValid(parent))
				xid = parent;
		}
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * Waits for other transactions that have emitted events for the aggregate,
 * and makes later ones wait until this one has ended.  Raises 54000.
 */
void
key_lock_aggregate(const text *type, const text *id)
{
	Oid			no_table = InvalidOid;
	StringInfoData name;
	LOCKTAG		tag;

	initStringInfo(&name);
	appendBinaryStringInfo(&name, (char *) &no_table, sizeof(no_table));
	append_text(&name, type);
	append_text(&name, id);
	make_tag(&tag, &name);
	(void) key_lock_keep(&tag, ExclusiveLock, true);
}

/*
 * The lock on all rows with these leading columns of the primary key, those
 * that are there and those to come.
 */
void
key_lock_prefix_tag(LOCKTAG *tag, Relation rel, int nkeys, const Datum *keys)
{
	row_tag(tag, rel, nkeys, keys);
}

/*
 * Takes a lock to the end of the transaction.  Without wait it may not be
 * available.  Raises 54000.
 */
LockAcquireResult
key_lock_keep(const LOCKTAG *tag, LOCKMODE lockmode, bool wait)
{
	ResourceOwner owner = CurrentResourceOwner;
	LockAcquireResult result;

	/* it may be given back by a query that is not the one that took it */
	CurrentResourceOwner = CurTransactionResourceOwner;
	result = LockAcquire(tag, lockmode, false, !wait);
	CurrentResourceOwner = owner;
	if (result == LOCKACQUIRE_OK)
		count_kept();
	return result;
}

/*
 * A call that wrote nothing gives back what key_lock_keep() has returned
 * result for.
 */
void
key_lock_give_back(const LOCKTAG *tag, LOCKMODE lockmode, LockAcquireResult result)
{
	ResourceOwner owner = CurrentResourceOwner;

	CurrentResourceOwner = CurTransactionResourceOwner;
	LockRelease(tag, lockmode, false);
	CurrentResourceOwner = owner;
	if (result == LOCKACQUIRE_OK)
	{
		kept_counts->count--;
		nkept--;
	}
}

/* The name of the lock on a row. */
static void
row_tag(LOCKTAG *tag, Relation rel, int nkeys, const Datum *keys)
{
	Oid			relid = RelationGetRelid(rel);
	StringInfoData name;

	initStringInfo(&name);
	appendBinaryStringInfo(&name, (char *) &relid, sizeof(relid));
	for (int i = 0; i < nkeys; i++)
	{
		/* the primary key is the first columns: store_table.c has looked */
		Form_pg_attribute column = TupleDescAttr(RelationGetDescr(rel), i);

		if (column->attlen == -1)
			append_text(&name, DatumGetTextPP(keys[i]));
		else if (column->attbyval)
			appendBinaryStringInfo(&name, (char *) &keys[i], sizeof(Datum));
		else
			appendBinaryStringInfo(&name, DatumGetPointer(keys[i]), column->attlen);
	}
	make_tag(tag, &name);
	pfree(name.data);
}

/* With its length, so that no two lists of keys have one name. */
static void
append_text(StringInfo name, const text *value)
{
	int			length = VARSIZE_ANY_EXHDR(value);

	appendBinaryStringInfo(name, (char *) &length, sizeof(length));
	appendBinaryStringInfo(name, VARDATA_ANY(value), length);
}

/*
 * A keyed hash of the name.  The last one is kept: who gives a lock back has
 * just taken it.
 */
static void
make_tag(LOCKTAG *tag, const StringInfo name)
{
	static char last_name[KEPT_NAME];
	static int	last_length = -1;
	static LOCKTAG last_tag;

	if (name->len == last_length && memcmp(name->data, last_name, last_length) == 0)
	{
		*tag = last_tag;
		return;
	}
	hash_name(tag, name);
	if (name->len > KEPT_NAME)
		return;
	last_length = name->len;
	memcpy(last_name, name->data, name->len);
	last_tag = *tag;
}

/* Raises 53200. */
static void
hash_name(LOCKTAG *tag, const StringInfo name)
{
	pg_hmac_ctx *hmac = pg_hmac_create(PG_SHA256);
	uint8		digest[PG_SHA256_DIGEST_LENGTH];
	uint32		halves[2];

	if (hmac == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory")));
	if (pg_hmac_init(hmac, (uint8 *) GetMockAuthenticationNonce(), MOCK_AUTH_NONCE_LEN) < 0 ||
		pg_hmac_update(hmac, (uint8 *) &MyDatabaseId, sizeof(MyDatabaseId)) < 0 ||
		pg_hmac_update(hmac, (uint8 *) name->data, name->len) < 0 ||
		pg_hmac_final(hmac, digest, sizeof(digest)) < 0)
		elog(ERROR, "could not compute the name of a lock: %s", pg_hmac_error(hmac));
	pg_hmac_free(hmac);

	memcpy(halves, digest, sizeof(halves));
	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId, halves[0], halves[1], KEY_LOCK_CLASS);
}

/* One more is locked.  Raises 54000 long before others run out of locks. */
static void
count_kept(void)
{
	static bool registered = false;
	int			nest_level = GetCurrentTransactionNestLevel();
	int			limit = Max(max_locks_per_xact * (MaxBackends + max_prepared_xacts) / LOCK_TABLE_FRACTION,
							MIN_KEPT);

	if (nkept >= limit)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many aggregates, tags and subjects in one transaction"),
				 errdetail("Each is locked until the transaction ends. The limit is %d, a quarter of the locks that all sessions share.", limit),
				 errhint("Use several transactions, or increase max_locks_per_transaction.")));

	if (!registered)
	{
		RegisterXactCallback(forget_kept, NULL);
		RegisterSubXactCallback(merge_kept, NULL);
		registered = true;
	}
	if (kept_counts == NULL || kept_counts->nest_level != nest_level)
	{
		KeptCount  *counts = MemoryContextAllocZero(TopTransactionContext, sizeof(*counts));

		counts->nest_level = nest_level;
		counts->outer = kept_counts;
		kept_counts = counts;
	}
	kept_counts->count++;
	nkept++;
}

/* The transaction has ended, or is prepared, and its locks with it. */
static void
forget_kept(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
	{
		kept_counts = NULL;
		nkept = 0;
	}
}

/*
 * What a subtransaction has locked is its parent's then, or not locked any
 * more.
 */
static void
merge_kept(SubXactEvent event, SubTransactionId id, SubTransactionId parent, void *arg)
{
	int			nest_level = GetCurrentTransactionNestLevel();
	KeptCount  *counts = kept_counts;

	if (counts == NULL || counts->nest_level != nest_level)
		return;
	if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		nkept -= counts->count;
		kept_counts = counts->outer;
		pfree(counts);
	}
	else if (event == SUBXACT_EVENT_COMMIT_SUB)
	{
		if (counts->outer != NULL && counts->outer->nest_level == nest_level - 1)
		{
			counts->outer->count += counts->count;
			kept_counts = counts->outer;
			pfree(counts);
		}
		else
			counts->nest_level--;
	}
}
