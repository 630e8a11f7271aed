/*-------------------------------------------------------------------------
 *
 * outbox_settle.c
 *	  Up to which number every event is there that will ever be.
 *
 * Numbers are drawn before their transactions commit, so a lower one may
 * appear after a higher one has been seen.  The settled number is one up to
 * which nobody can write an event any more.  It depends on transactions that
 * emit, and on no others, however old they are; prepared ones count like any.
 *
 * Time goes in turns, which are counted.  Who emits first takes, to the end of
 * the transaction, one of two locks in shared mode: the one of the present
 * turn, which alternate.  The next turn begins when nobody has the lock of the
 * previous one any more.  So in turn t all have ended who took a lock in turn
 * t - 2 or before, and the last number drawn when turn t - 1 began is settled:
 * they were the only ones who may have drawn it or a lower one.
 *
 * The turn, the number at its beginning and the settled number are the values
 * of three sequences, for these are seen by all at once, also of a
 * transaction that goes on or is rolled back, and survive a crash in the
 * order in which they were set: the settled number first, which rests on
 * what has been before; then the turn; the number last, so that a crash in
 * between leaves one that is too low.  They say nothing in another database,
 * so they are not dumped: a copy begins at zero, and has caught up after two
 * turns.
 *
 * Locks: of who emits the lock of a turn, shared, to the end of the
 * transaction; of who begins a turn the other one, exclusive, without waiting,
 * and only for a moment.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_type.h"
#include "outbox.h"
#include "utils/rel.h"

static void turn_tag(LOCKTAG *tag, int64 turn);
static bool begin_turn(int64 last_no);

/*
 * This transaction is going to draw a number.  It has an id, and holds the
 * lock of its turn from here on.
 */
void
outbox_settle_enter(void)
{
	LOCKTAG		tags[2];

	turn_tag(&tags[0], 0);
	turn_tag(&tags[1], 1);
	if (compat_lock_held(&tags[0], RowExclusiveLock) || compat_lock_held(&tags[1], RowExclusiveLock))
		return;

	for (;;)
	{
		int64		turn = store_read_sequence("outbox_turn");

		(void) LockAcquire(&tags[turn % 2], RowExclusiveLock, false, false);

		/*
		 * with the lock of the present turn the one after the next cannot
		 * begin
		 */
		if (store_read_sequence("outbox_turn") == turn)
			break;
		LockRelease(&tags[turn % 2], RowExclusiveLock, false);
	}
}

/*
 * The settled number.  Moves it on if it can: where nobody is emitting two
 * turns settle all that there is.  Take the snapshot that is to see it
 * afterwards.
 */
int64
outbox_settle(void)
{
	int64		last_no = outbox_settle_last_no();
	int64		settled_no = store_read_sequence("outbox_settled_no");

	for (int i = 0; i < 2 && settled_no < last_no && begin_turn(last_no); i++)
		settled_no = store_read_sequence("outbox_settled_no");
	return settled_no;
}

/* The last number drawn, 0 if there is none. */
int64
outbox_settle_last_no(void)
{
	return store_read_sequence("outbox_no_seq");
}

/*
 * Begins the next turn, if nobody is left in the previous one; last_no was
 * drawn last, a moment ago.  Our own transaction counts, too.
 */
static bool
begin_turn(int64 last_no)
{
	static const char query[] =
		"SELECT pg_catalog.setval('fencing.outbox_settled_no', $1),"
		" pg_catalog.setval('fencing.outbox_turn', $2),"
		" pg_catalog.setval('fencing.outbox_turn_no', $3)";
	Oid			argtypes[] = {INT8OID, INT8OID, INT8OID};
	int64		turn = store_read_sequence("outbox_turn");
	bool		begun = false;
	LOCKTAG		tag;

	turn_tag(&tag, turn + 1);
	if (compat_lock_held(&tag, RowExclusiveLock) ||
		LockAcquire(&tag, ExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
		return false;

	/* who was faster has held the same lock */
	if (store_read_sequence("outbox_turn") == turn)
	{
		Datum		args[] = {Int64GetDatum(store_read_sequence("outbox_turn_no")),
		Int64GetDatum(turn + 1), Int64GetDatum(last_no)};

		owner_query_run(query, lengthof(args), argtypes, args, NULL, NULL, NULL, NULL);
		begun = true;
	}
	LockRelease(&tag, ExclusiveLock, false);
	return begun;
}

/* The name of the lock of a turn. */
static void
turn_tag(LOCKTAG *tag, int64 turn)
{
	Relation	outbox = store_table_open(STORE_OUTBOX, AccessShareLock);
	Datum		slot = Int64GetDatum(turn % 2);

	/* as that of an event, of which none is ever locked so */
	key_lock_prefix_tag(tag, outbox, 1, &slot);
	table_close(outbox, AccessShareLock);
}
