/*-------------------------------------------------------------------------
 *
 * fencing.c
 *	  Module magic, initialization and settings.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "job.h"
#include "once.h"
#include "outbox.h"
#include "utils/guc.h"

#ifdef PG_MODULE_MAGIC_EXT
PG_MODULE_MAGIC_EXT(.name = "fencing",.version = "1.0");
#else
PG_MODULE_MAGIC;
#endif

PGDLLEXPORT void _PG_init(void);

int			fencing_max_ttl;

void
_PG_init(void)
{
	/*
	 * A lease keeps everybody else away from a job until it ends or an
	 * administrator revokes it.  The limit keeps a client with a unit wrong
	 * from closing a job for years; raise it for jobs that cannot send
	 * heartbeats and take longer.
	 */
	DefineCustomIntVariable("fencing.max_ttl",
							"Longest time for which a lease can be taken or renewed.",
							NULL,
							&fencing_max_ttl,
							24 * 60 * 60, 1, INT_MAX,
							PGC_SUSET,
							GUC_UNIT_S,
							NULL, NULL, NULL);

	/*
	 * A worker that was told "held" tries again after retry_after_ms.  This
	 * wakes it where a job is released or revoked before: LISTEN
	 * fencing_lease.  NOTIFY serializes commits, so it is off where nobody
	 * needs it.
	 */
	DefineCustomBoolVariable("fencing.lease_notify",
							 "Sends a notification on channel \"fencing_lease\", with the job_key, when a lease is released or revoked.",
							 NULL,
							 &lease_notify,
							 false,
							 PGC_USERSET,
							 0,
							 NULL, NULL, NULL);

	/*
	 * Relays poll the outbox; that is the contract, because a notification is
	 * lost when nobody listens.  Where the time between two polls is too
	 * long, this wakes them: LISTEN fencing_outbox.  NOTIFY serializes
	 * commits, so it is off where nobody needs it.
	 */
	DefineCustomBoolVariable("fencing.outbox_notify",
							 "Sends a notification on channel \"fencing_outbox\" with each transaction that emits events.",
							 NULL,
							 &outbox_notify,
							 false,
							 PGC_USERSET,
							 0,
							 NULL, NULL, NULL);

	MarkGUCPrefixReserved("fencing");
	once_authorize_init();
}
