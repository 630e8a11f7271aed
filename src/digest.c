/*-------------------------------------------------------------------------
 *
 * digest.c
 *	  Digests of documents: SHA-256 over the canonical text, by pgcrypto.
 *
 * pgcrypto's function is found as a member of that extension, wherever it is
 * installed, and never through search_path.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/dependency.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "digest.h"
#include "utils/builtins.h"
#include "utils/catcache.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

static FmgrInfo *pgcrypto_digest(void);
static Oid	find_pgcrypto_digest(void);
static void count_function_change(Datum arg, int cacheid, uint32 hashvalue);

PG_FUNCTION_INFO_V1(fencing_digest);

/* Valid until a function is changed, also while it is looked up. */
static FmgrInfo digest_function;
static uint64 digest_function_as_of = 0;	/* function_changes when it was
											 * looked up */
static uint64 function_changes = 1;

/*
 * fencing_digest(payload jsonb, digest_version int) → bytea
 */
Datum
fencing_digest(PG_FUNCTION_ARGS)
{
	PG_RETURN_BYTEA_P(digest_make(PG_GETARG_JSONB_P(0), PG_GETARG_INT32(1)));
}

/*
 * The digest of a document, 32 bytes; of none (NULL) that of the empty text,
 * which no document has.  Raises what canonical_append() does.
 */
bytea *
digest_make(Jsonb *document, int digest_version)
{
	StringInfoData canonical;
	bytea	   *digest;

	canonical_require_version(digest_version);
	initStringInfo(&canonical);
	if (document != NULL)
		canonical_append(document, digest_version, &canonical);
	digest = digest_sha256(canonical.data, canonical.len);
	pfree(canonical.data);
	return digest;
}

/* SHA-256 (FIPS 180-4), 32 bytes. */
bytea *
digest_sha256(const char *data, int length)
{
	Datum		input = PointerGetDatum(cstring_to_text_with_len(data, length));

	return DatumGetByteaP(FunctionCall2(pgcrypto_digest(), input,
										PointerGetDatum(cstring_to_text("sha256"))));
}

/* digest(bytea, text) of pgcrypto. */
static FmgrInfo *
pgcrypto_digest(void)
{
	static bool registered = false;
	uint64		as_of = function_changes;

	if (!registered)
	{
		CacheRegisterSyscacheCallback(PROCOID, count_function_change, (Datum) 0);
		registered = true;
	}

	if (digest_function_as_of != as_of)
	{
		digest_function_as_of = 0;
		fmgr_info_cxt(find_pgcrypto_digest(), &digest_function, TopMemoryContext);
		digest_function_as_of = as_of;
	}
	return &digest_function;
}

/* The function digest(bytea, text) among the members of pgcrypto. */
static Oid
find_pgcrypto_digest(void)
{
	Oid			extension = get_extension_oid("pgcrypto", false);
	CatCList   *candidates = SearchSysCacheList1(PROCNAMEARGSNSP, CStringGetDatum("digest"));
	Oid			found = InvalidOid;

	for (int i = 0; i < candidates->n_members; i++)
	{
		Form_pg_proc proc = (Form_pg_proc) GETSTRUCT(&candidates->members[i]->tuple);

		if (proc->pronargs == 2 &&
			proc->proargtypes.values[0] == BYTEAOID &&
			proc->proargtypes.values[1] == TEXTOID &&
			getExtensionOfObject(ProcedureRelationId, proc->oid) == extension)
			found = proc->oid;
	}
	ReleaseSysCacheList(candidates);

	if (!OidIsValid(found))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("function digest(bytea, text) of extension pgcrypto does not exist"),
				 errhint("Create the extension pgcrypto again.")));
	return found;
}

/* A function of any name may have been replaced. */
static void
count_function_change(Datum arg, int cacheid, uint32 hashvalue)
{
	function_changes++;
}
