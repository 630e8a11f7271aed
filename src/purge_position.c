/*-------------------------------------------------------------------------
 *
 * purge_position.c
 *	  Where a purge goes on that goes through a table page by page.
 *
 * The position is the value of a sequence: that need be neither exact nor
 * dumped, and nobody waits for it.  What a purge that was rolled back has
 * passed over is found in the next round.
 *
 * Locks: none.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "storage/bufmgr.h"
#include "store.h"
#include "utils/builtins.h"

static int64 to_number(const ItemPointerData *tid);

/*
 * From the position that the sequence has, as far as npages pages: position
 * first up to, and without, end.
 */
void
purge_position_begin(PagePosition *position, const char *sequence, Relation rel, int64 npages)
{
	int64		in_all = RelationGetNumberOfBlocks(rel);
	int64		number = store_read_sequence(sequence);

	position->sequence = sequence;
	if (number >= in_all << 16)
		number = 0;
	ItemPointerSet(&position->first, (BlockNumber) (number >> 16), (OffsetNumber) (number & 0xFFFF));
	npages = Min((number >> 16) + npages, in_all);
	ItemPointerSet(&position->end, (BlockNumber) npages, 0);
	position->at_end = npages == in_all;
}

/*
 * The next purge goes on from the row, which is one that has been looked at,
 * or with the next round.
 */
void
purge_position_keep(const PagePosition *position, const ItemPointerData *next)
{
	Oid			argtypes[] = {TEXTOID, INT8OID};
	bool		over = position->at_end && to_number(&position->end) == to_number(next);
	Datum		args[] = {CStringGetTextDatum(position->sequence),
	Int64GetDatum(over ? 0 : to_number(next))};

	owner_query_run("SELECT pg_catalog.setval(('fencing.' OPERATOR(pg_catalog.||) $1)::pg_catalog.regclass, $2)",
					lengthof(args), argtypes, args, NULL, NULL, NULL, NULL);
}

/* In the order of the rows. */
static int64
to_number(const ItemPointerData *tid)
{
	return ((int64) ItemPointerGetBlockNumberNoCheck(tid) << 16) |
		ItemPointerGetOffsetNumberNoCheck(tid);
}
