/*-------------------------------------------------------------------------
 *
 * gate.c
 *	  The protocol, once: (scope, number, content) in, an outcome out.
 *
 * Every part keeps a fence per scope, the highest number accepted or issued,
 * and a receipt per number with the digest of its content.  The receipt is
 * looked up before the fence: an attempt that was accepted is told so also
 * after the fence has moved on.
 *
 * First both are looked at without a lock, with one fresh snapshot.  A
 * receipt, or a fence above the number, decides at once: neither ever goes
 * away while it matters, and nothing has been locked or written.  Only a
 * number that is current takes the lock of the fence.  Under the lock the
 * receipt is looked for again with a snapshot newer than the lock; then the
 * content is accepted, the caller's statement runs, and the receipt is
 * inserted once, with the result.  The lock is held to the end of the
 * transaction: it serializes those who commit in one scope and keeps the
 * fence from moving.
 *
 * Under REPEATABLE READ and SERIALIZABLE the decision is made from fresh data
 * too, but an answer that the transaction's own snapshot does not bear out is
 * a serialization failure: the transaction could not explain it by what it
 * sees.
 *
 * What may differ between the parts is in GateKind (gate.h).
 *
 * Locks: of tokens fencing.floor (RowShareLock); then the fence row, or the
 * key lock of the slot.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "digest.h"
#include "job.h"
#include "utils/datum.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

pg_noreturn static void refuse_alone(const Gate *gate);
static bool has_scope(const Gate *gate, Relation scope_rel, const Datum *scope, int nscope);
static void refuse_reentry(const Gate *gate);
static void decide(Gate *gate);
static bool look(void *arg, Snapshot snapshot);
static bool decide_again(void *arg);
static void decide_slot(Gate *gate);
static void judge(Gate *gate);
static FencingOutcome judge_receipt(Gate *gate);
static void check_transaction_snapshot(Gate *gate);
static void accept(Gate *gate);
static bool lock_slot(const Gate *gate, bool wait);
static void unlock_slot(const Gate *gate);
static void add_context(void *arg);

/* innermost first; its statement is running */
static Gate *in_progress = NULL;

/*
 * Passes the gate: fills the answer, and on FENCING_COMMITTED has run the
 * statement and inserted the receipt.  Raises LF001, LF002, 25006, 25P01,
 * 40001, 54000, 55006, 57014, and what the statement raises.
 */
void
gate_enter(Gate *gate)
{
	gate->result_null = true;
	gate->in_epoch = false;

	refuse_reentry(gate);
	if (gate->kind->numbers == GATE_SLOT)
		decide_slot(gate);
	else
		decide(gate);

	if (gate->outcome == FENCING_COMMITTED && gate->alone)
		refuse_alone(gate);
	if (gate->outcome == FENCING_COMMITTED)
		accept(gate);
	else if (gate->in_epoch)
		epoch_leave();
	if (gate->outcome == FENCING_REPLAYED || gate->outcome == FENCING_CONFLICT)
		durable_wait_for_standbys();
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

/* Is a statement running for which the row of this scope has been locked? */
bool
gate_holds(Relation scope_rel, const Datum *scope, int nscope)
{
	for (const Gate *gate = in_progress; gate != NULL; gate = gate->outer)
	{
		if (has_scope(gate, scope_rel, scope, nscope))
			return true;
	}
	return false;
}

/* Is the statement of a gate running? */
bool
gate_in_statement(void)
{
	return in_progress != NULL;
}

/* Is the gate about this row of this table? */
static bool
has_scope(const Gate *gate, Relation scope_rel, const Datum *scope, int nscope)
{
	if (RelationGetRelid(gate->scope_rel) != RelationGetRelid(scope_rel))
		return false;
	for (int i = 0; i < nscope; i++)
	{
		Form_pg_attribute column = TupleDescAttr(RelationGetDescr(scope_rel), i);

		if (column->attlen == -1 ?
			!args_same_text(DatumGetTextPP(gate->scope[i]), DatumGetTextPP(scope[i])) :
			!datumIsEqual(gate->scope[i], scope[i], column->attbyval, column->attlen))
			return false;
	}
	return true;
}

/* An attempt that comes from its own statement would be accepted twice. */
static void
refuse_reentry(const Gate *gate)
{
	for (const Gate *g = in_progress; g != NULL; g = g->outer)
	{
		if (has_scope(g, gate->scope_rel, gate->scope, gate->nscope) &&
			(gate->kind->same_number == NULL || gate->kind->same_number(g, gate)))
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
	gate->maker_awaited = false;
	store_until_decided(look, gate);
	if (gate->outcome != FENCING_REPLAYED && gate->outcome != FENCING_CONFLICT &&
		!gate->verdict.issued)
		gate->kind->never_issued(gate);
}

/* One look at receipt and fence; returns whether it decided. */
static bool
look(void *arg, Snapshot snapshot)
{
	Gate	   *gate = (Gate *) arg;
	bool		was_in_epoch = gate->in_epoch || gate->kind->numbers != GATE_TOKENS;

	gate->kind->find_receipt(gate, snapshot);
	gate->kind->find_fence(gate, snapshot);
	judge(gate);
	if (gate->receipt.found)
		return true;
	/* entering the epoch may have taken long: then look again */
	if (gate->verdict.certain)
		return was_in_epoch;
	if (gate->fence.found)
		return store_with_row_lock(gate->scope_rel, gate->fence.tuple, snapshot,
								   gate->outcome == FENCING_COMMITTED, decide_again, gate);
	if (gate->maker_awaited)
		return true;

	/* somebody may be making the row, or have prepared it */
	(void) lock_slot(gate, true);
	unlock_slot(gate);
	gate->maker_awaited = true;
	return false;
}

/*
 * The fence is locked in the version that we have; has a receipt come while
 * we waited?  Returns whether to keep the lock.
 */
static bool
decide_again(void *arg)
{
	Gate	   *gate = (Gate *) arg;
	Snapshot	snapshot;

	if (store_is_unchanged())
		return gate->outcome == FENCING_COMMITTED;
	snapshot = store_fresh_snapshot();
	gate->kind->find_receipt(gate, snapshot);
	UnregisterSnapshot(snapshot);
	judge(gate);
	return gate->outcome == FENCING_COMMITTED;
}

/*
 * The same for a kind without fences, of which each number is a slot that is
 * taken once.  The lock is the one for making the slot's row.  A call that
 * had to wait for it begins anew: FENCING_AGAIN.  With no_wait it
 * is told FENCING_HELD instead.
 */
static void
decide_slot(Gate *gate)
{
	Snapshot	snapshot = store_fresh_snapshot();

	gate->kind->find_receipt(gate, snapshot);
	UnregisterSnapshot(snapshot);
	if (!gate->receipt.found)
	{
		store_begin_write(gate->kind->function);

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
		snapshot = store_fresh_snapshot();
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

	if (gate->outcome == FENCING_COMMITTED && gate->kind->judge_content != NULL)
	{
		gate->outcome = gate->kind->judge_content(gate);
		if (gate->outcome != FENCING_COMMITTED)
			unlock_slot(gate);
	}
}

/* Derives the outcome from the receipt and the fence. */
static void
judge(Gate *gate)
{
	if (gate->receipt.found)
	{
		gate->outcome = judge_receipt(gate);
		gate->committed_at = gate->receipt.committed_at;
	}
	else
	{
		/* a server that may lag behind, or may not write, knows too little */
		store_begin_write(gate->kind->function);

		if (gate->kind->numbers == GATE_TOKENS && !gate->in_epoch)
		{
			gate->epoch_start = epoch_enter();
			gate->in_epoch = true;
		}
		gate->verdict = gate_judge_number(gate->kind->numbers, &gate->fence, gate->number,
										  gate->epoch_start);
		gate->outcome = gate->verdict.outcome;
	}
	check_transaction_snapshot(gate);
}

/*
 * Judges a number that has no receipt by its fence.  epoch_start counts of
 * tokens only.
 *
 * A token of a former epoch is over, but one that was prepared for two-phase
 * commit before the epoch ended may still become committed.  Its transaction
 * has the fence, or is just making the job.
 */
GateVerdict
gate_judge_number(GateNumbers numbers, const GateFence *fence, int64 number, int64 epoch_start)
{
	bool		tokens = numbers == GATE_TOKENS;
	bool		former_epoch = tokens && number <= epoch_start && !(fence->found && fence->external);
	GateVerdict verdict = {.issued = true,.certain = true};

	if (!fence->found)
	{
		verdict.outcome = FENCING_PRUNED;
		verdict.issued = former_epoch || (tokens && number <= epoch_floor());
		verdict.certain = !former_epoch;
	}
	else if (number < fence->number)
		verdict.outcome = number <= fence->purged_through ? FENCING_PRUNED : FENCING_STALE;
	else if (number > fence->number && numbers != GATE_JUMPS)
	{
		/* one of a former epoch was issued, but this database lost it */
		verdict.outcome = FENCING_STALE;
		verdict.issued = former_epoch;
		verdict.certain = !former_epoch;
	}
	else
	{
		verdict.outcome = former_epoch ? FENCING_STALE :
			fence->undesired ? FENCING_UNDESIRED : FENCING_COMMITTED;
		verdict.issued = !fence->unissued;
		verdict.certain = fence->undesired || fence->unissued;
	}
	return verdict;
}

/* Compares by the version that made the digest of the receipt. */
static FencingOutcome
judge_receipt(Gate *gate)
{
	GateReceipt *receipt = &gate->receipt;
	bytea	   *digest;

	if (!receipt->purged && !canonical_is_known_version(receipt->digest_version) && !gate->again)
		ereport(WARNING,
				(errcode(ERRCODE_FENCING_UNKNOWN_VERSION),
				 errmsg("receipt has a digest of version %d, which this installation does not know",
						receipt->digest_version)));

	digest = gate->kind->make_digest(gate);
	if (gate->again)
		return FENCING_AGAIN;
	if (receipt->purged)
		return FENCING_PRUNED;
	if (digest == NULL || !args_same_text(digest, receipt->digest))
		return FENCING_CONFLICT;

	gate->result = receipt->result;
	gate->result_null = receipt->result_null;
	return FENCING_REPLAYED;
}

/*
 * Raises 40001 if what decided is not what the transaction's snapshot shows:
 * the receipt, or its absence and the fence.
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
	if (same && !receipt.found && gate->kind->numbers != GATE_SLOT)
	{
		gate->kind->find_fence(gate, snapshot);
		same = gate_same_fence(&gate->fence, &fence, gate->number);

		/* reading it as any SELECT would: the predicate lock is needed */
		if (same && fence.found && IsolationIsSerializable())
			(void) store_visible_to_transaction(gate->scope_rel, gate->fence.tuple);
	}
	UnregisterSnapshot(snapshot);
	gate->receipt = receipt;
	gate->fence = fence;
	if (!same)
		store_serialization_failure();
}

/*
 * Do two looks at a fence say the same of the number?  It is the numbers that
 * count, a fence that was only rewritten is the same one; and for a number
 * below it how far receipts have been purged.
 */
bool
gate_same_fence(const GateFence *a, const GateFence *b, int64 number)
{
	if (a->found != b->found)
		return false;
	return !a->found ||
		(a->number == b->number &&
		 a->unissued == b->unissued &&
		 a->undesired == b->undesired &&
		 (number >= a->number || a->purged_through == b->purged_through));
}

/*
 * The number is accepted: runs the statement and keeps the receipt.  The
 * fence is locked.
 */
static void
accept(Gate *gate)
{
	/* what the client is told must survive a crash, whatever its settings */
	ForceSyncCommit();

	gate->committed_at = GetCurrentTimestamp();
	if (gate->kind->accepted != NULL)
		gate->kind->accepted(gate);
	if (gate->statement.text !=NULL)
	{
		ErrorContextCallback context = {error_context_stack, add_context, gate};

		gate->outer = in_progress;
		in_progress = gate;
		PG_TRY();
		{
			/* PG_END_TRY takes it off again */
			error_context_stack = &context;
			gate->result = statement_run(&gate->statement, &gate->result_null);
		}
		PG_FINALLY();
		{
			in_progress = gate->outer;
		}
		PG_END_TRY();
	}
	gate->kind->keep_receipt(gate);
	if (gate->kind->numbers == GATE_SLOT)
		unlock_slot(gate);
}

/* The key lock of the scope's row. */
static bool
lock_slot(const Gate *gate, bool wait)
{
	return key_lock_absent(gate->scope_rel, gate->nscope, gate->scope, wait);
}

/* Gives the key lock back. */
static void
unlock_slot(const Gate *gate)
{
	key_lock_release(gate->scope_rel, gate->nscope, gate->scope);
}

/* The CONTEXT of an error of the statement. */
static void
add_context(void *arg)
{
	Gate	   *gate = (Gate *) arg;

	errcontext("statement of %s", gate->kind->describe(gate));
}
