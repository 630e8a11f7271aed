/*-------------------------------------------------------------------------
 *
 * tag.c
 *	  References to tags, and where they lead.
 *
 * A tag has an id for ever, a current name, and the names and aliases that
 * led to it before.  Merges are edges of a forest; each tag keeps the root
 * that the edges in force lead to, so that a reference is resolved by three
 * look-ups at most: name, owner, root.
 *
 * Tags are renamed and merged only with the root locked (tag_lock.c), and
 * every write resolves again under that lock.  So what a cached page or an old
 * link submits is never written back as the current name, and never makes a
 * new tag.
 *
 * Locks: none here.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "funcapi.h"
#include "tag.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#define CANONICAL_LENGTH	36	/* of a UUID as text */

static bool has_uuid_form(const char *text);
static bool parse_id(const text *reference, pg_uuid_t *id);
static HeapTuple find_row(const TagTables *tables, Relation rel, const Datum *key,
						  Snapshot snapshot);
static void read_tag(Relation tags, HeapTuple row, Tag *tag);

PG_FUNCTION_INFO_V1(fencing_tag_resolve);

/*
 * fencing_tag_resolve(vocabulary text, reference text)
 *	→ SETOF tag_id, name, matched, migration_version, migration_kind
 */
Datum
fencing_tag_resolve(PG_FUNCTION_ARGS)
{
	text	   *vocabulary = args_key(fcinfo, 0, "vocabulary");
	TagReference reference = {.reference = args_key(fcinfo, 1, "reference")};
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	TagTables	tables;

	InitMaterializedSRF(fcinfo, 0);
	tag_open(&tables, AccessShareLock);
	tables.by_select = true;
	tag_find(&tables, vocabulary, &reference, GetActiveSnapshot());
	tag_close(&tables, AccessShareLock);
	if (reference.found)
	{
		Datum		values[5];
		bool		nulls[5] = {false};

		values[0] = UUIDPGetDatum(&reference.root.id);
		values[1] = PointerGetDatum(reference.root.name);
		values[2] = CStringGetTextDatum(tag_matched(&reference));
		values[3] = Int64GetDatum(reference.root.version);
		values[4] = PointerGetDatum(reference.root.kind);
		nulls[4] = reference.root.kind == NULL;
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* Opens the tables that references are resolved by. */
void
tag_open(TagTables *tables, LOCKMODE lockmode)
{
	tables->tags = store_table_open(STORE_TAGS, lockmode);
	tables->names = store_table_open(STORE_TAG_NAMES, lockmode);
	tables->by_select = false;
}

/* Closes them. */
void
tag_close(TagTables *tables, LOCKMODE lockmode)
{
	table_close(tables->names, lockmode);
	table_close(tables->tags, lockmode);
}

/* The row of one of the two tables. */
static HeapTuple
find_row(const TagTables *tables, Relation rel, const Datum *key, Snapshot snapshot)
{
	return tables->by_select ? store_select(rel, 2, key, snapshot) :
		store_find(rel, 2, key, snapshot);
}

/* Fills the tag with this id; returns whether the snapshot sees it. */
bool
tag_find_id(const TagTables *tables, text *vocabulary, const pg_uuid_t *id, Snapshot snapshot,
			Tag *tag)
{
	Datum		key[2] = {PointerGetDatum(vocabulary), UUIDPGetDatum(id)};
	HeapTuple	row = find_row(tables, tables->tags, key, snapshot);

	if (row == NULL)
		return false;
	read_tag(tables->tags, row, tag);
	return true;
}

/* The columns. */
static void
read_tag(Relation tags, HeapTuple row, Tag *tag)
{
	Datum		values[Natts_tags];
	bool		nulls[Natts_tags];

	store_read_row(tags, row, values, nulls);
	tag->row = row;
	tag->id = *DatumGetUUIDP(values[Anum_tags_tag_id - 1]);
	tag->name = DatumGetTextP(values[Anum_tags_name - 1]);
	tag->root = *DatumGetUUIDP(values[Anum_tags_root - 1]);
	tag->members = DatumGetInt32(values[Anum_tags_members - 1]);
	tag->version = DatumGetInt64(values[Anum_tags_version - 1]);
	tag->kind = nulls[Anum_tags_migration_kind - 1] ? NULL :
		DatumGetTextP(values[Anum_tags_migration_kind - 1]);
	tag->created_no = DatumGetInt64(values[Anum_tags_created_no - 1]);
}

/*
 * Resolves a reference as the snapshot sees it: an id, in its canonical text,
 * first; no name has that form.
 */
void
tag_find(const TagTables *tables, text *vocabulary, TagReference *reference, Snapshot snapshot)
{
	Datum		key[2] = {PointerGetDatum(vocabulary), PointerGetDatum(reference->reference)};
	pg_uuid_t	owner;

	reference->found = false;
	reference->name_row = NULL;
	if (!parse_id(reference->reference, &owner))
	{
		HeapTuple	row = find_row(tables, tables->names, key, snapshot);

		if (row == NULL)
			return;
		reference->name_row = row;
		reference->alias = DatumGetBool(store_get(tables->names, row, Anum_tag_names_alias));
		reference->since_no = DatumGetInt64(store_get(tables->names, row, Anum_tag_names_since_no));
		owner = *DatumGetUUIDP(store_get(tables->names, row, Anum_tag_names_tag_id));
	}
	reference->found = tag_find_id(tables, vocabulary, &owner, snapshot, &reference->owner);
	if (reference->found)
	{
		reference->root = reference->owner;
		if (!tag_same_id(&reference->owner.root, &reference->owner.id) &&
			!tag_find_id(tables, vocabulary, &reference->owner.root, snapshot, &reference->root))
			elog(ERROR, "tag %s is not there", tag_id_to_cstring(&reference->owner.root));
	}
}

/*
 * The same of a tag that a reference named once.  The reference may have been
 * released since, and even lead to another tag: then it names nothing.
 */
void
tag_find_owner(const TagTables *tables, text *vocabulary, const pg_uuid_t *owner,
			   TagReference *reference, Snapshot snapshot)
{
	if (reference->reference != NULL)
	{
		tag_find(tables, vocabulary, reference, snapshot);
		if (reference->found && tag_same_id(&reference->owner.id, owner))
			return;
	}
	reference->reference = NULL;
	reference->found = tag_find_id(tables, vocabulary, owner, snapshot, &reference->owner) &&
		tag_find_id(tables, vocabulary, &reference->owner.root, snapshot, &reference->root);
	if (!reference->found)
		elog(ERROR, "tag %s is not there", tag_id_to_cstring(owner));
}

/* A table that the call needs, opened once. */
Relation
tag_relation(TagCall *call, StoreTable table)
{
	if (call->relations[table] == NULL)
		call->relations[table] = store_table_open(table, RowExclusiveLock);
	return call->relations[table];
}

/*
 * Resolves the reference anew.  Raises LF001, or 40001 if the transaction's
 * snapshot knows it.
 */
void
tag_refresh(TagCall *call, TagReference *reference)
{
	Snapshot	snapshot = store_fresh_snapshot();

	tag_find(&call->tables, call->vocabulary, reference, snapshot);
	UnregisterSnapshot(snapshot);
	if (reference->found)
		return;
	if (IsolationUsesXactSnapshot())
	{
		tag_find(&call->tables, call->vocabulary, reference, GetTransactionSnapshot());
		if (reference->found)
			store_serialization_failure();
	}
	tag_unknown(call->vocabulary, reference);
}

/* Raises 40001 unless the transaction sees the rows that decided. */
void
tag_require_visible(TagCall *call, const TagReference *reference)
{
	store_require_visible(call->tables.tags, reference->owner.row);
	store_require_visible(call->tables.tags, reference->root.row);
	if (reference->name_row != NULL)
		store_require_visible(call->tables.names, reference->name_row);
}

/* How a reference that was found leads to the tag; NULL: it does not. */
const char *
tag_matched(const TagReference *reference)
{
	if (reference->reference == NULL)
		return NULL;
	if (!tag_same_id(&reference->owner.id, &reference->root.id))
		return "merged";
	if (reference->name_row == NULL)
		return "id";
	if (args_same_text(reference->reference, reference->root.name))
		return "current";
	return reference->alias ? "alias" : "former";
}

/* Raises LF001. */
void
tag_unknown(text *vocabulary, const TagReference *reference)
{
	ereport(ERROR,
			(errcode(ERRCODE_FENCING_NEVER_ISSUED),
			 errmsg("%s \"%s\" leads to no tag of vocabulary \"%s\"", reference->argument,
					text_to_cstring(reference->reference), text_to_cstring(vocabulary)),
			 errhint("A reference is the id of a tag in lower case, a name, or an alias.")));
}

/*
 * A name for a tag: 1 to 512 bytes, and in no form of a UUID.  Raises 22004,
 * 22023, 54000.
 */
text *
tag_arg_name(FunctionCallInfo fcinfo, int argno, const char *name)
{
	text	   *value = args_key(fcinfo, argno, name);

	if (has_uuid_form(text_to_cstring(value)))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not have the form of a UUID, as \"%s\" has", name,
						text_to_cstring(value)),
				 errhint("References in that form are ids of tags.")));
	return value;
}

/*
 * Every form that uuid_in() takes (src/backend/utils/adt/uuid.c): 32
 * hexadecimal digits, perhaps a hyphen after each four, perhaps in braces.
 */
static bool
has_uuid_form(const char *text)
{
	bool		braces = *text == '{';

	if (braces)
		text	  ++;

	for (int i = 0; i < UUID_LEN; i++)
	{
		if (!isxdigit((unsigned char) text[0]) || !isxdigit((unsigned char) text[1]))
			return false;
		text	  +=2;

		if (*text == '-' && i % 2 == 1 && i < UUID_LEN - 1)
			text	  ++;
	}
	if (braces && *text ++!= '}')
		return false;
	return *text == '\0';
}

/* Whether the reference is an id: a UUID as uuid_out() writes it. */
static bool
parse_id(const text *reference, pg_uuid_t *id)
{
	char	   *value;

	if (VARSIZE_ANY_EXHDR(reference) != CANONICAL_LENGTH)
		return false;
	value = text_to_cstring(reference);
	if (!has_uuid_form(value))
		return false;
	*id = *DatumGetUUIDP(DirectFunctionCall1(uuid_in, CStringGetDatum(value)));
	return strcmp(tag_id_to_cstring(id), value) == 0;
}

/* Byte by byte. */
bool
tag_same_id(const pg_uuid_t *a, const pg_uuid_t *b)
{
	return memcmp(a, b, sizeof(pg_uuid_t)) == 0;
}

/* In its canonical text. */
char *
tag_id_to_cstring(const pg_uuid_t *id)
{
	return DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(id)));
}
