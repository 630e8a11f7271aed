/*-------------------------------------------------------------------------
 *
 * gate.c
 *	  The protocol, once: (scope, number, content) in, an outcome out.
 *
 * Every part keeps a fence per scope, the highest number accepted or issued,
 * and a receipt per number with the digest of its content.  The receipt is
 * looked up before the fence: whoever was accepted is told so also after the
 * fence has moved on.
 *
 * First both are looked at without a lock, with one fresh snapshot.  A receipt,
 * or a fence above the number, decides at once: neither ever goes away while it
 * matters, and nothing has been locked or written.  Only a number that is
 * current takes the lock of the fence.  Under the lock the receipt is looked
 * for again with a snapshot newer than the lock; then the content is accepted,
 * the caller's statement runs, and the receipt is inserted once, with the
 * result.  The lock is held to the end of the transaction: it serializes those
 * who commit in one scope and keeps the fence from moving.
 *
 * Under REPEATABLE READ and SERIALIZABLE the decision is made from fresh data
 * too, but an answer that the transaction's own snapshot does not bear out is a
 * serialization failure: the transaction could not explain it by what it sees.
 *
 * What may differ between the parts is in GateKind: a kind without fences takes
 * each number as a slot, once; one without tokens knows no epochs; and one that
 * jumps accepts any number above the fence.
 *
 * Locks: of tokens fencing.floor (RowShareLock); then the fence row, or the key
 * lock of the slot.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "fencing.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"
#include "tcop/pquery.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

static const PlannedStmt *calling_plan(FunctionCallInfo fcinfo);
static const PlannedStmt *plan_in_portal(FunctionCallInfo fcinfo);
pg_noreturn static void refuse_alone(const Gate *gate);
static void refuse_reentry(const Gate *gate);
static void decide(Gate *gate);
static bool decide_again(void *arg);
static void decide_slot(Gate *gate);
static bool judge(Gate *gate);
static FencingOutcome judge_receipt(Gate *gate);
static void check_transaction_snapshot(Gate *gate);
static void accept(Gate *gate);
static bool lock_slot(const Gate *gate, bool wait);
static void unlock_slot(const Gate *gate);
static void add_context(void *arg);

/* what to do about an outcome that strict does not let pass */
static const char *const next_steps[FENCING_AGAIN + 1] = {
	[FENCING_CONFLICT] = gettext_noop("It was accepted before with another content: do not repeat it, but find out which content is right."),
	[FENCING_STALE] = gettext_noop("A higher number has come since: stop, the work is no longer this attempt's."),
	[FENCING_PRUNED] = gettext_noop("Nobody can tell any more whether it was accepted: do not repeat it, but look at the business data."),
	[FENCING_HELD] = gettext_noop("Another attempt is in progress: try again later."),
	[FENCING_UNDESIRED] = gettext_noop("The target is pinned below this version, or has rejected it: do not write it."),
	[FENCING_DENIED] = gettext_noop("The authorize function of the operation did not return true; if it could not be asked, the server log says why.")
};

/* innermost first; its statement is running */
static Gate *in_progress = NULL;

/*
 * Passes the gate: fills the answer, and on FENCING_COMMITTED has run the
 * statement and inserted the receipt.  Raises LF001, LF002, 25006, 25P01,
 * 40001, 54000, 55006, 57014, and what the statement raises.
 */
void
fencing_gate(Gate *gate)
{
	gate->result_null = true;
	gate->in_epoch = false;

	refuse_reentry(gate);
	if (gate->kind->find_fence != NULL)
		decide(gate);
	else
		decide_slot(gate);

	if (gate->outcome == FENCING_COMMITTED && gate->alone)
		refuse_alone(gate);
	if (gate->outcome == FENCING_COMMITTED)
		accept(gate);
	else if (gate->in_epoch)
		fencing_leave_epoch();
	if (gate->outcome == FENCING_REPLAYED || gate->outcome == FENCING_CONFLICT)
		fencing_wait_for_standbys();
}

/* Raises 22023 for options that exclude each other. */
void
fencing_check_options(bool report_errors, bool strict)
{
	if (strict && report_errors)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("strict and report_errors exclude each other")));
}

/*
 * Fills what all parts answer: result, committed_at and error, each NULL where
 * the outcome has none.  An error that was reported makes the outcome "failed".
 */
void
fencing_gate_answer(Gate *gate, const ErrorData *error, Datum *result, bool *result_null,
					Datum *committed_at, bool *committed_at_null,
					Datum *error_json, bool *error_null)
{
	bool		accepted;

	if (error != NULL)
	{
		gate->outcome = FENCING_FAILED;
		*error_json = fencing_error_to_jsonb(error);
	}
	*error_null = error == NULL;

	accepted = gate->outcome == FENCING_COMMITTED || gate->outcome == FENCING_REPLAYED;
	*result = gate->result;
	*result_null = !accepted || gate->result_null;
	*committed_at = TimestampTzGetDatum(gate->committed_at);
	*committed_at_null = !accepted && gate->outcome != FENCING_CONFLICT;
}

/* With strict, for callers who would forget to look: raises LF005. */
void
fencing_require_accepted(const Gate *gate)
{
	if (gate->outcome != FENCING_COMMITTED && gate->outcome != FENCING_REPLAYED)
		ereport(ERROR,
				(errcode(ERRCODE_FENCING_NOT_ACCEPTED),
				 errmsg("attempt was not accepted: %s", gate->kind->describe(gate)),
				 errdetail("The outcome is \"%s\".", fencing_outcome_name(gate->outcome)),
				 next_steps[gate->outcome] != NULL ?
				 errhint("%s", _(next_steps[gate->outcome])) : 0));
}

/*
 * Is the function called by the client's own command, a plain query outside a
 * transaction block?  A gate without a statement is alone then: nothing else can
 * be written in its transaction.  A call from inside another function, or in a
 * query that also writes, may well be right.
 *
 * To be asked before a subtransaction is begun, which looks like a block.
 */
bool
fencing_called_alone(FunctionCallInfo fcinfo)
{
	const PlannedStmt *plan;

	/* the statement of another gate is a write beside it */
	if (in_progress != NULL || IsTransactionBlock())
		return false;
	plan = calling_plan(fcinfo);
	return plan != NULL && plan->commandType == CMD_SELECT && !plan->hasModifyingCTE;
}

/* Does the client's own command call the function, not another function? */
bool
fencing_called_by_client(FunctionCallInfo fcinfo)
{
	return calling_plan(fcinfo) != NULL;
}

/*
 * The plan of the client's command, if that itself calls the function; else NULL.
 * It has the function among the objects that it depends on.  EXPLAIN ANALYZE and
 * COPY TO run a query of theirs, which is known where it is a FROM that calls.
 */
static const PlannedStmt *
calling_plan(FunctionCallInfo fcinfo)
{
	const PlannedStmt *plan;
	uint32		hash;
	ListCell   *lc;

	if (ActivePortal == NULL || list_length(ActivePortal->stmts) != 1)
		return NULL;

	plan = linitial_node(PlannedStmt, ActivePortal->stmts);
	if (plan->commandType == CMD_UTILITY)
		return IsA(plan->utilityStmt, ExplainStmt) || IsA(plan->utilityStmt, CopyStmt) ?
			plan_in_portal(fcinfo) : NULL;

	hash = GetSysCacheHashValue1(PROCOID, ObjectIdGetDatum(fcinfo->flinfo->fn_oid));
	foreach(lc, plan->invalItems)
	{
		PlanInvalItem *item = (PlanInvalItem *) lfirst(lc);

		if (item->cacheId == PROCOID && item->hashValue == hash)
			return plan;
	}
	return NULL;
}

/* The plan whose FROM calls the function, if its text is the client's. */
static const PlannedStmt *
plan_in_portal(FunctionCallInfo fcinfo)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	EState	   *estate = rsinfo != NULL && IsA(rsinfo, ReturnSetInfo) ?
		rsinfo->econtext->ecxt_estate : NULL;

	/* it is not copied on the way, so that the address will do */
	return estate != NULL && estate->es_sourceText == ActivePortal->sourceText ?
		estate->es_plannedstmt : NULL;
}

/* Raises 25P01, before anything is written. */
static void
refuse_alone(const Gate *gate)
{
	ereport(ERROR,
			(errcode(ERRCODE_NO_ACTIVE_SQL_TRANSACTION),
			 errmsg("%s without a statement must be called in a transaction block",
					gate->kind->function),
			 errdetail("The argument statement is NULL, so the receipt would be committed without a business write."),
			 errhint("Pass the business write as statement, or begin a transaction and write in it after this call.")));
}

/* The gates whose statements are running, innermost first, or NULL. */
const Gate *
fencing_gates_in_progress(void)
{
	return in_progress;
}

/* An attempt that comes from its own statement would be accepted twice. */
static void
refuse_reentry(const Gate *gate)
{
	for (const Gate *g = in_progress; g != NULL; g = g->outer)
	{
		if (g->kind == gate->kind && g->kind->same(g, gate))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("%s was called again by its own statement", gate->kind->function)));
	}
}

/*
 * Decides the outcome.  On FENCING_COMMITTED the fence is locked, and nothing
 * has been written yet.
 */
static void
decide(Gate *gate)
{
	bool		row_waited_for = false;
	bool		decided = false;

	while (!decided)
	{
		Snapshot	snapshot = fencing_fresh_snapshot();
		bool		was_in_epoch = gate->in_epoch || !gate->kind->tokens;
		bool		certain;

		CHECK_FOR_INTERRUPTS();
		gate->kind->find_receipt(gate, snapshot);
		gate->kind->find_fence(gate, snapshot);
		certain = judge(gate);
		if (certain)
		{
			/* entering the epoch may have taken long: then look again */
			decided = gate->receipt.found || was_in_epoch;
		}
		else if (gate->fence.found)
			decided = fencing_with_row_lock(gate->fence_rel, gate->fence.tuple, snapshot,
											gate->outcome == FENCING_COMMITTED,
											decide_again, gate);
		else if (row_waited_for)
			decided = true;
		else
		{
			/* somebody may be making the row, or have prepared it */
			(void) lock_slot(gate, true);
			unlock_slot(gate);
			row_waited_for = true;
		}
		UnregisterSnapshot(snapshot);
	}
	if (gate->outcome != FENCING_REPLAYED && gate->outcome != FENCING_CONFLICT &&
		!gate->issued)
		gate->kind->never_issued(gate);
}

/*
 * The fence is locked in the version that we have; has a receipt come while
 * we waited?  Returns whether to keep the lock.
 */
static bool
decide_again(void *arg)
{
	Gate	   *gate = (Gate *) arg;
	Snapshot	snapshot = fencing_fresh_snapshot();

	gate->kind->find_receipt(gate, snapshot);
	UnregisterSnapshot(snapshot);
	(void) judge(gate);
	return gate->outcome == FENCING_COMMITTED;
}

/*
 * The same for a kind without fences, of which each number is a slot that is
 * taken once.  The lock is the one for making the slot's row.  Whoever had to
 * wait for it looks again from his beginning: FENCING_AGAIN.  With no_wait he is
 * told FENCING_HELD instead.
 */
static void
decide_slot(Gate *gate)
{
	Snapshot	snapshot = fencing_fresh_snapshot();

	gate->kind->find_receipt(gate, snapshot);
	UnregisterSnapshot(snapshot);
	if (!gate->receipt.found)
	{
		PreventCommandIfReadOnly(gate->kind->function);
		PreventCommandIfParallelMode(gate->kind->function);

		/* before the lock, because it may take long, or refuse the content */
		gate->digest = gate->kind->make_digest(gate);

		gate->outcome = FENCING_AGAIN;
		if (gate->again)
			return;
		if (!lock_slot(gate, false))
		{
			if (gate->no_wait)
			{
				gate->outcome = FENCING_HELD;
				return;
			}
			(void) lock_slot(gate, true);
			unlock_slot(gate);
			return;
		}
		snapshot = fencing_fresh_snapshot();
		gate->kind->find_receipt(gate, snapshot);
		UnregisterSnapshot(snapshot);
		if (gate->receipt.found)
			unlock_slot(gate);
	}

	if (gate->receipt.found)
	{
		gate->outcome = judge_receipt(gate);
		gate->committed_at = gate->receipt.committed_at;
	}
	else
		gate->outcome = FENCING_COMMITTED;
	check_transaction_snapshot(gate);
}

/*
 * Derives the outcome from the receipt and the fence.  Returns whether it
 * holds without the lock of the fence.
 */
static bool
judge(Gate *gate)
{
	const GateFence *fence = &gate->fence;
	bool		former_epoch;
	bool		certain = true;

	if (gate->receipt.found)
	{
		gate->outcome = judge_receipt(gate);
		gate->committed_at = gate->receipt.committed_at;
		check_transaction_snapshot(gate);
		return true;
	}

	/* a server that may lag behind, or may not write, knows too little */
	PreventCommandIfReadOnly(gate->kind->function);
	PreventCommandIfParallelMode(gate->kind->function);

	if (gate->kind->tokens && !gate->in_epoch)
	{
		gate->epoch_start = fencing_enter_epoch();
		gate->in_epoch = true;
	}

	/*
	 * A number of a former epoch is over, but one that was prepared for
	 * two-phase commit before the epoch ended may still become committed.  Its
	 * transaction has the fence, or is just making the job.
	 */
	former_epoch = gate->kind->tokens && gate->number <= gate->epoch_start &&
		!(fence->found && fence->external);
	gate->issued = true;
	if (!fence->found)
	{
		gate->outcome = FENCING_PRUNED;
		gate->issued = former_epoch || (gate->kind->tokens && gate->number <= fencing_floor());
		certain = !former_epoch;
	}
	else if (gate->number < fence->number)
		gate->outcome = gate->number <= fence->purged_through ? FENCING_PRUNED : FENCING_STALE;
	else if (gate->number == fence->number || gate->kind->jumps)
	{
		gate->outcome = former_epoch ? FENCING_STALE :
			fence->undesired ? FENCING_UNDESIRED : FENCING_COMMITTED;
		gate->issued = !fence->unissued;
		certain = fence->undesired || fence->unissued;
	}
	else
	{
		/* one of a former epoch was issued, but this database lost it */
		gate->outcome = FENCING_STALE;
		gate->issued = former_epoch;
		certain = !former_epoch;
	}

	check_transaction_snapshot(gate);
	return certain;
}

/* Compares by the version that made the digest of the receipt. */
static FencingOutcome
judge_receipt(Gate *gate)
{
	GateReceipt *receipt = &gate->receipt;
	bytea	   *digest;

	if (!receipt->purged && !fencing_known_digest_version(receipt->digest_version) && !gate->again)
		ereport(WARNING,
				(errcode(ERRCODE_FENCING_UNKNOWN_VERSION),
				 errmsg("receipt has a digest of version %d, which this installation does not know",
						receipt->digest_version)));

	digest = gate->kind->make_digest(gate);
	if (gate->again)
		return FENCING_AGAIN;
	if (receipt->purged)
		return FENCING_PRUNED;
	if (digest == NULL || !fencing_same_text(digest, receipt->digest))
		return FENCING_CONFLICT;

	gate->result = receipt->result;
	gate->result_null = receipt->result_null;
	return FENCING_REPLAYED;
}

/*
 * Raises 40001 if what decided is not what the transaction's snapshot shows:
 * the receipt, or its absence and the number of the fence, and for what is below
 * it how far receipts have been purged.  It is the numbers that count: a fence
 * that was only rewritten is the same fence.
 */
static void
check_transaction_snapshot(Gate *gate)
{
	GateReceipt receipt = gate->receipt;
	GateFence	fence = gate->fence;
	bool		same;
	Snapshot	snapshot;

	if (!IsolationUsesXactSnapshot())
		return;

	snapshot = RegisterSnapshot(GetTransactionSnapshot());
	gate->kind->find_receipt(gate, snapshot);
	same = gate->receipt.found == receipt.found &&
		(!receipt.found || gate->receipt.purged == receipt.purged);
	if (same && !receipt.found && gate->kind->find_fence != NULL)
	{
		gate->kind->find_fence(gate, snapshot);
		same = gate->fence.found == fence.found &&
			(!fence.found ||
			 (gate->fence.number == fence.number &&
			  gate->fence.unissued == fence.unissued &&
			  gate->fence.undesired == fence.undesired &&
			  (gate->number >= fence.number ||
			   gate->fence.purged_through == fence.purged_through)));

		/* reading it as any SELECT would: the predicate lock is needed */
		if (same && fence.found && IsolationIsSerializable())
			(void) fencing_visible_to_transaction(gate->fence_rel, gate->fence.tuple);
	}
	UnregisterSnapshot(snapshot);
	gate->receipt = receipt;
	gate->fence = fence;
	if (!same)
		fencing_serialization_failure();
}

/*
 * The number is accepted: runs the statement and keeps the receipt.  The fence
 * is locked.
 */
static void
accept(Gate *gate)
{
	/* what the client is told must survive a crash, whatever his settings */
	ForceSyncCommit();

	gate->committed_at = GetCurrentTimestamp();
	if (gate->kind->accepted != NULL)
		gate->kind->accepted(gate);
	if (gate->statement != NULL)
	{
		ErrorContextCallback context = {error_context_stack, add_context, gate};

		gate->outer = in_progress;
		in_progress = gate;
		PG_TRY();
		{
			/* PG_END_TRY takes it off again */
			error_context_stack = &context;
			gate->result = fencing_run_statement(gate->statement, &gate->result_null);
		}
		PG_FINALLY();
		{
			in_progress = gate->outer;
		}
		PG_END_TRY();
	}
	gate->kind->keep_receipt(gate);
	if (gate->kind->find_fence == NULL)
		unlock_slot(gate);
}

static bool
lock_slot(const Gate *gate, bool wait)
{
	return fencing_lock_absent(gate->slot_rel, gate->slot_nkeys, gate->slot_keys, wait);
}

static void
unlock_slot(const Gate *gate)
{
	fencing_unlock_absent(gate->slot_rel, gate->slot_nkeys, gate->slot_keys);
}

static void
add_context(void *arg)
{
	Gate	   *gate = (Gate *) arg;

	errcontext("statement of %s", gate->kind->describe(gate));
}
