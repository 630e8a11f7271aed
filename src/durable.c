/*-------------------------------------------------------------------------
 *
 * durable.c
 *	  Before something is said to have taken effect: is it on the standby?
 *
 * A commit waits for a synchronous standby before others see it.  But a wait
 * that was cancelled, or cut short by a crash, leaves a commit that is seen
 * and may be nowhere else.  A call that tells a client by reading, and not by
 * writing, that something has taken effect waits here first: else a failover
 * could take back what was told.
 *
 * It does not stand in the queue of those who commit: there every position in
 * the WAL may occur only once (syncrep.c asserts it), and readers of one
 * moment share theirs.  It looks again and again instead.
 *
 * Locks: none but SyncRepLock, for a moment.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "replication/syncrep.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "store.h"
#include "utils/guc.h"
#include "utils/wait_event.h"

/* how long between two looks: as short as a standby answers, then longer */
#define FIRST_PAUSE_MS	1
#define LAST_PAUSE_MS	50

static bool is_on_standbys(XLogRecPtr lsn);
static bool are_standbys_defined(void);
static int	wait_mode(void);

/*
 * Waits until all that can be read now is as durable as the settings ask of a
 * commit; at once if it is, or if no synchronous standby is asked for.  What
 * can be read has been flushed: what writes a receipt or a fence sees to
 * that.
 */
void
durable_wait_for_standbys(void)
{
	int			pause = FIRST_PAUSE_MS;
	XLogRecPtr	lsn;

	if (!SyncRepRequested() || RecoveryInProgress())
		return;

	lsn = GetFlushRecPtr(NULL);
	while (!is_on_standbys(lsn))
	{
		CHECK_FOR_INTERRUPTS();
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, pause,
						 WAIT_EVENT_SYNC_REP);
		ResetLatch(MyLatch);

		/* the setting may be taken back because no standby will come */
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		pause = Min(pause * 2, LAST_PAUSE_MS);
	}
}

/* Or no standby is asked for, any more. */
static bool
is_on_standbys(XLogRecPtr lsn)
{
	bool		result;

	if (!are_standbys_defined())
		return true;
	LWLockAcquire(SyncRepLock, LW_SHARED);
	result = lsn <= WalSndCtl->lsn[wait_mode()];
	LWLockRelease(SyncRepLock);
	return result;
}

/*
 * By the setting.  What the checkpointer makes of it is in shared memory, but
 * a minor release changed how; an extension runs with others than it was
 * built for.
 */
static bool
are_standbys_defined(void)
{
	return SyncRepStandbyNames != NULL && SyncRepStandbyNames[0] != '\0';
}

/*
 * What synchronous_commit waits for: as syncrep.c, which keeps it to itself.
 */
static int
wait_mode(void)
{
	switch (synchronous_commit)
	{
		case SYNCHRONOUS_COMMIT_REMOTE_WRITE:
			return SYNC_REP_WAIT_WRITE;
		case SYNCHRONOUS_COMMIT_REMOTE_APPLY:
			return SYNC_REP_WAIT_APPLY;
		default:
			return SYNC_REP_WAIT_FLUSH;
	}
}
