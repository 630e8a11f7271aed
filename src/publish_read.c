/*-------------------------------------------------------------------------
 *
 * publish_read.c
 *	  What is published: the current version of a document, and any revision.
 *
 * As any SELECT would read it, at the isolation level of the transaction.
 *
 * Locks: none on rows.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "publish.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

static void put_revision(SPITupleTable *rows, uint64 count, void *arg);

PG_FUNCTION_INFO_V1(fencing_publish_current);
PG_FUNCTION_INFO_V1(fencing_publish_revision);

/*
 * fencing_publish_current(document_id text)
 *	→ SETOF version, content, digest, digest_version, kind, source_version, revision,
 *	  note, actor, committed_at
 */
Datum
fencing_publish_current(PG_FUNCTION_ARGS)
{
	text	   *document_id = args_key(fcinfo, 0, "document_id");
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Relation	documents;
	Relation	revisions;
	Datum		key[2] = {PointerGetDatum(document_id)};
	HeapTuple	row;

	InitMaterializedSRF(fcinfo, 0);

	documents = store_table_open(STORE_DOCUMENTS, AccessShareLock);
	revisions = store_table_open(STORE_REVISIONS, AccessShareLock);
	row = store_select(documents, 1, key, GetActiveSnapshot());
	if (row != NULL)
	{
		key[1] = store_get(documents, row, Anum_documents_version);
		row = store_select(revisions, 2, key, GetActiveSnapshot());
	}
	if (row != NULL)
	{
		static const int columns[] = {
			Anum_revisions_version, Anum_revisions_content, Anum_revisions_digest,
			Anum_revisions_digest_version, Anum_revisions_kind, Anum_revisions_source_version,
			Anum_revisions_revision, Anum_revisions_note, Anum_revisions_actor,
			Anum_revisions_committed_at
		};
		Datum		values[lengthof(columns)];
		bool		nulls[lengthof(columns)];

		for (size_t i = 0; i < lengthof(columns); i++)
			values[i] = heap_getattr(row, columns[i], RelationGetDescr(revisions), &nulls[i]);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	table_close(revisions, AccessShareLock);
	table_close(documents, AccessShareLock);
	return (Datum) 0;
}

/*
 * fencing_publish_revision(revision uuid)
 *	→ SETOF document_id, version, content, digest, digest_version, kind, source_version,
 *	  note, actor, committed_at
 */
Datum
fencing_publish_revision(PG_FUNCTION_ARGS)
{
	static const char query[] =
		"SELECT r.document_id, r.version, r.content, r.digest, r.digest_version, r.kind,"
		" r.source_version, r.note, r.actor, r.committed_at"
		" FROM fencing.revisions r WHERE r.revision OPERATOR(pg_catalog.=) $1";
	Oid			argtypes[] = {UUIDOID};
	Datum		args[lengthof(argtypes)];

	args_refuse_null(fcinfo, 0, "revision");
	args[0] = PG_GETARG_DATUM(0);
	InitMaterializedSRF(fcinfo, 0);
	owner_query_run(query, lengthof(args), argtypes, args, NULL, GetActiveSnapshot(),
					put_revision, fcinfo);
	return (Datum) 0;
}

/* One row, or none. */
static void
put_revision(SPITupleTable *rows, uint64 count, void *arg)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) ((FunctionCallInfo) arg)->resultinfo;

	for (uint64 i = 0; i < count; i++)
		tuplestore_puttuple(rsinfo->setResult, rows->vals[i]);
}
