/*-------------------------------------------------------------------------
 *
 * notify.c
 *	  Notifications that are sent when the transaction commits.
 *
 * Not by Async_Notify() at once: a transaction that has done so cannot be
 * prepared.  One that is prepared sends nothing, neither then nor when it
 * commits.  Who waits for a notification must look from time to time all the
 * same.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/async.h"
#include "fencing.h"
#include "nodes/pg_list.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

/* What is to be sent. */
typedef struct Notification
{
	const char *channel;
	char	   *payload;
	int			level;			/* of the subtransaction that said so */
} Notification;

static void send_at_commit(XactEvent event, void *arg);
static void follow_subtransaction(SubXactEvent event, SubTransactionId id,
								  SubTransactionId parent, void *arg);

/*
 * Notification, in TopTransactionContext.  Levels ascend: what a
 * subtransaction said is its parent's when it has ended, or is gone.
 */
static List *notifications = NIL;

/*
 * Sends the payload, NULL for none, on the channel if this subtransaction and
 * all around it commit.  The channel is a constant.  What is said twice is
 * sent once.
 */
void
notify_at_commit(const char *channel, const text *payload)
{
	static bool registered = false;
	MemoryContext context;
	Notification *notification;

	if (!registered)
	{
		RegisterXactCallback(send_at_commit, NULL);
		RegisterSubXactCallback(follow_subtransaction, NULL);
		registered = true;
	}
	if (payload == NULL && notifications != NIL &&
		strcmp(((Notification *) llast(notifications))->channel, channel) == 0)
		return;					/* a transaction may emit many events */

	context = MemoryContextSwitchTo(TopTransactionContext);
	notification = (Notification *) palloc(sizeof(Notification));
	notification->channel = channel;
	notification->payload = payload == NULL ? pstrdup("") : text_to_cstring(payload);
	notification->level = GetCurrentTransactionNestLevel();
	notifications = lappend(notifications, notification);
	MemoryContextSwitchTo(context);
}

/* Queues them as the last thing before COMMIT. */
static void
send_at_commit(XactEvent event, void *arg)
{
	ListCell   *lc;

	if (event == XACT_EVENT_PRE_COMMIT)
	{
		foreach(lc, notifications)
		{
			Notification *notification = (Notification *) lfirst(lc);

			Async_Notify(notification->channel, notification->payload);
		}
	}
	notifications = NIL;
}

/* What a subtransaction said is its parent's now, or was not said. */
static void
follow_subtransaction(SubXactEvent event, SubTransactionId id, SubTransactionId parent, void *arg)
{
	int			level = GetCurrentTransactionNestLevel();

	if (event != SUBXACT_EVENT_COMMIT_SUB && event != SUBXACT_EVENT_ABORT_SUB)
		return;
	for (int i = list_length(notifications) - 1; i >= 0; i--)
	{
		Notification *notification = (Notification *) list_nth(notifications, i);

		if (notification->level < level)
			break;
		if (event == SUBXACT_EVENT_COMMIT_SUB)
			notification->level = level - 1;
		else
			notifications = list_delete_last(notifications);
	}
}
