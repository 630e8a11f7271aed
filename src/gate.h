/*-------------------------------------------------------------------------
 *
 * gate.h
 *	  The protocol, and the frame of the SQL functions that go through it.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef GATE_H
#define GATE_H

#include "statement.h"
#include "store.h"
#include "utils/jsonb.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"
#include "utils/timestamp.h"

/* nobody else's symbols: PostgreSQL 15 loads libraries with global ones */
#pragma GCC visibility push(hidden)

#define GATE_MAX_SCOPE	3		/* columns of a primary key */
#define GATE_NO_ARGUMENT (-1)	/* the function has no such argument */

/* the columns of an answer, after the outcome */
#define GATE_RESULT			0
#define GATE_COMMITTED_AT	1
#define GATE_OWN			2	/* the part's own */
#define GATE_ERROR			3
#define GATE_NCOLUMNS		4

typedef struct Gate Gate;

/* What the numbers of a part are. */
typedef enum GateNumbers
{
	GATE_TOKENS,				/* former epochs and the floor of forgotten
								 * jobs count */
	GATE_VERSIONS,				/* the next one only is accepted */
	GATE_JUMPS,					/* any one above the fence is */
	GATE_SLOT					/* there is one, taken once: no fence */
} GateNumbers;

/* What differs between the parts that go through the gate. */
typedef struct GateKind
{
	const char *function;		/* for messages, as "fencing_commit()" */
	GateNumbers numbers;

	/*
	 * The protocol
	 */

	/*
	 * Of two gates with one scope: is it the same number?  NULL: it always
	 * is.
	 */
	bool		(*same_number) (const Gate *a, const Gate *b);

	/* Fills gate->receipt; found or not, as the snapshot sees it. */
	void		(*find_receipt) (Gate *gate, Snapshot snapshot);

	/* Fills gate->fence; found or not.  Not of a slot. */
	void		(*find_fence) (Gate *gate, Snapshot snapshot);

	/*
	 * The digest of the content, by the version that made the receipt's if
	 * there is one.  NULL: by that version it can be no such content, or,
	 * with gate->again, a slot's call must begin anew.  Of a purged receipt
	 * it does not count.
	 */
	bytea	   *(*make_digest) (Gate *gate);

	/*
	 * Of a slot without a receipt: locks what the content is about and says
	 * FENCING_COMMITTED, or says what else it is and leaves no lock.  NULL:
	 * every content is accepted.
	 */
	FencingOutcome (*judge_content) (Gate *gate);

	/* The number is accepted, its statement comes next.  May be NULL. */
	void		(*accepted) (Gate *gate);

	/* Inserts the receipt of gate->answer. */
	void		(*keep_receipt) (Gate *gate);

	/* Raises LF001: the number was never issued here.  Not of a slot. */
	void		(*never_issued) (const Gate *gate);

	/* Names the attempt in the CONTEXT of an error of its statement. */
	char	   *(*describe) (const Gate *gate);

	/*
	 * The call
	 */

	/* Where the arguments of an SQL function that gate_call() runs are. */
	int			statement_arg;
	int			report_errors_arg;
	int			strict_arg;
	int			wait_arg;		/* or GATE_NO_ARGUMENT */

	/* $1, $2, ... of the statement */
	int			nargs;
	const Oid  *argtypes;

	/*
	 * Reads the other arguments: scope, number, content; fills those of the
	 * statement.
	 */
	void		(*read_arguments) (Gate *gate, FunctionCallInfo fcinfo);

	/* May the caller do it?  NULL: who may call the function may. */
	bool		(*admit) (Gate *gate);

	/* Opens the tables, the one of the scope among them, and closes them. */
	void		(*open) (Gate *gate);
	void		(*close) (Gate *gate, LOCKMODE lockmode);

	/*
	 * Fills the part's own column of the answer, or others instead of those
	 * that are filled already.  gate->outcome may be FENCING_FAILED.
	 */
	void		(*answer) (const Gate *gate, Datum *values, bool *nulls);
} GateKind;

typedef struct GateReceipt
{
	bool		found;
	bytea	   *digest;
	int			digest_version;
	bool		purged;			/* only the fact is left */
	Datum		result;
	bool		result_null;
	TimestampTz committed_at;
} GateReceipt;

typedef struct GateFence
{
	bool		found;
	HeapTuple	tuple;
	int64		number;			/* the highest number accepted or issued; or
								 * to come next */
	int64		purged_through; /* receipts up to here may be gone */
	bool		external;		/* of tokens: issued elsewhere, so epochs do
								 * not apply */

	/* of the gate's number, for a kind that jumps */
	bool		unissued;		/* it was never issued */
	bool		undesired;		/* it is not to be accepted */
} GateFence;

/* Where a number without a receipt stands. */
typedef struct GateVerdict
{
	FencingOutcome outcome;
	bool		issued;			/* it has been given out, as far as we know */
	bool		certain;		/* the outcome holds without the lock of the
								 * fence */
} GateVerdict;

struct Gate
{
	/* set by the part */
	const GateKind *kind;
	int64		number;
	Relation	scope_rel;		/* the table with the row of the scope */
	int			nscope;
	Datum		scope[GATE_MAX_SCOPE];	/* its primary key */
	bool		no_wait;		/* a busy slot is FENCING_HELD */

	/* set by gate_call(), or by the part that does without */
	Statement	statement;		/* without text: the gate alone */
	bool		alone;			/* no statement, and nobody else who could
								 * write */

	/* the answer */
	FencingOutcome outcome;
	Datum		result;
	bool		result_null;
	TimestampTz committed_at;	/* of committed, replayed and conflict */

	/* what the gate saw last */
	GateReceipt receipt;
	GateFence	fence;
	GateVerdict verdict;
	bytea	   *digest;			/* of the content, by the current version */
	int64		epoch_start;
	bool		in_epoch;		/* fencing.floor is locked, epoch_start valid;
								 * only of tokens */
	bool		maker_awaited;	/* who was making the row of the scope has
								 * ended */
	bool		again;			/* by make_digest: a slot's call must begin
								 * anew */
	Gate	   *outer;			/* the gate whose statement is calling us */
};

/*
 * gate.c: the protocol, once
 */
extern void gate_enter(Gate *gate);
extern bool gate_holds(Relation scope_rel, const Datum *scope, int nscope);
extern bool gate_in_statement(void);
extern GateVerdict gate_judge_number(GateNumbers numbers, const GateFence *fence, int64 number,
									 int64 epoch_start);
extern bool gate_same_fence(const GateFence *a, const GateFence *b, int64 number);

/*
 * gate_call.c: the frame of a call
 */
extern Datum gate_call(FunctionCallInfo fcinfo, Gate *gate);
extern void gate_call_pass(Gate *gate);
extern bool gate_call_by_client(FunctionCallInfo fcinfo);

#pragma GCC visibility pop

#endif							/* GATE_H */
