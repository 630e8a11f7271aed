/*-------------------------------------------------------------------------
 *
 * tag_name.c
 *	  Names of tags: create, alias, release.
 *
 * A name belongs to one tag from the event that made it on, and leads to it
 * for ever: neither a rename nor a merge takes it away.  Only an
 * administrator releases one, and only if nothing but create, rename or alias
 * was ever submitted by it; so no recorded reference changes its meaning.
 *
 * Locks: the key lock of a name that is not there yet; then as tag_lock.c.
 * release: the owner's root against all others, and the row of the name.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "tag.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

static FencingOutcome judge_create(TagCall *call);
static void apply_create(TagCall *call);
static FencingOutcome judge_alias(TagCall *call);
static void apply_alias(TagCall *call);
static FencingOutcome judge_release(TagCall *call);
static void require_unused(TagCall *call);
static void apply_release(TagCall *call);
static bool find_name(TagCall *call, TagReference *name);

PG_FUNCTION_INFO_V1(fencing_tag_create);
PG_FUNCTION_INFO_V1(fencing_tag_alias);
PG_FUNCTION_INFO_V1(fencing_tag_release_name);

static const TagOperation create = {"fencing_tag_create()", "create", judge_create, apply_create};
static const TagOperation alias = {"fencing_tag_alias()", "alias", judge_alias, apply_alias};
static const TagOperation release = {"fencing_tag_release_name()", "release", judge_release, apply_release};

/*
 * fencing_tag_create(vocabulary text, event_id uuid, name text)
 *	→ outcome, event_no, tag_id, name, matched, migration_version, migration_kind
 */
Datum
fencing_tag_create(PG_FUNCTION_ARGS)
{
	TagCall		call = {0};

	tag_event_begin(&call, fcinfo, &create);
	call.name = tag_arg_name(fcinfo, 2, "name");
	call.reference.reference = call.name;
	return tag_event_run(fcinfo, &call);
}

/*
 * fencing_tag_alias(vocabulary text, event_id uuid, reference text, name text)
 *	→ as fencing_tag_create()
 */
Datum
fencing_tag_alias(PG_FUNCTION_ARGS)
{
	TagCall		call = {0};

	tag_event_begin(&call, fcinfo, &alias);
	call.reference.reference = args_key(fcinfo, 2, "reference");
	call.name = tag_arg_name(fcinfo, 3, "name");
	return tag_event_run(fcinfo, &call);
}

/*
 * fencing_tag_release_name(vocabulary text, event_id uuid, name text, reason text)
 *	→ as fencing_tag_create()
 */
Datum
fencing_tag_release_name(PG_FUNCTION_ARGS)
{
	TagCall		call = {0};

	tag_event_begin(&call, fcinfo, &release);
	call.name = args_key(fcinfo, 2, "name");
	call.reference.reference = call.name;
	call.reference.argument = "name";
	call.reason = args_reason(fcinfo, 3, "reason");
	return tag_event_run(fcinfo, &call);
}

/*
 * Whether the name is ours to make; if not, name says whose it is.  Waits for
 * somebody who is just making it.  Raises 40001.
 */
bool
tag_name_claim(TagCall *call, TagReference *name)
{
	name->reference = call->name;
	while (!find_name(call, name))
	{
		tag_lock_name(call);
		if (!find_name(call, name))
			return true;
		tag_lock_give_name_back(call);
	}
	return false;
}

/* With a fresh snapshot.  Raises 40001 if the transaction's says otherwise. */
static bool
find_name(TagCall *call, TagReference *name)
{
	Snapshot	snapshot = store_fresh_snapshot();
	bool		found;

	tag_find(&call->tables, call->vocabulary, name, snapshot);
	UnregisterSnapshot(snapshot);
	found = name->found;
	if (!IsolationUsesXactSnapshot())
		return found;
	if (found)
		tag_require_visible(call, name);
	else
	{
		/* one that has been released since */
		tag_find(&call->tables, call->vocabulary, name, GetTransactionSnapshot());
		if (name->found)
			store_serialization_failure();
	}
	return found;
}

/* Makes the name that was claimed. */
void
tag_name_insert(TagCall *call, const pg_uuid_t *owner, bool alias_name)
{
	Datum		values[Natts_tag_names];
	bool		nulls[Natts_tag_names] = {false};

	values[Anum_tag_names_vocabulary - 1] = PointerGetDatum(call->vocabulary);
	values[Anum_tag_names_name - 1] = PointerGetDatum(call->name);
	values[Anum_tag_names_tag_id - 1] = UUIDPGetDatum(owner);
	values[Anum_tag_names_alias - 1] = BoolGetDatum(alias_name);
	values[Anum_tag_names_since_no - 1] = Int64GetDatum(call->event_no);
	store_insert(call->tables.names, values, nulls);
	tag_lock_give_name_back(call);
}

/* Raises LF004, and says whose name it is. */
void
tag_name_reserved(const TagReference *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_FENCING_NAME_RESERVED),
			 errmsg("name \"%s\" belongs to another tag", text_to_cstring(name->reference)),
			 errdetail("It leads to tag %s, whose name is \"%s\".",
					   tag_id_to_cstring(&name->root.id), text_to_cstring(name->root.name)),
			 errhint("A name leads to its tag for ever, unless an administrator releases it with fencing_tag_release_name().")));
}

/* A name that leads to a tag makes no second one. */
static FencingOutcome
judge_create(TagCall *call)
{
	if (!tag_name_claim(call, &call->reference))
	{
		call->reference.reference = call->name;
		return FENCING_CONFLICT;
	}
	tag_lock_vocabulary(call);
	return FENCING_COMMITTED;
}

/* The tag and its name. */
static void
apply_create(TagCall *call)
{
	Datum		values[Natts_tags] = {0};
	bool		nulls[Natts_tags] = {false};

	call->owner = call->tag_id = *outbox_new_uuid();
	call->changed_tags = true;
	values[Anum_tags_vocabulary - 1] = PointerGetDatum(call->vocabulary);
	values[Anum_tags_tag_id - 1] = UUIDPGetDatum(&call->tag_id);
	values[Anum_tags_name - 1] = PointerGetDatum(call->name);
	values[Anum_tags_root - 1] = UUIDPGetDatum(&call->tag_id);
	values[Anum_tags_members - 1] = Int32GetDatum(1);
	values[Anum_tags_version - 1] = Int64GetDatum(0);
	nulls[Anum_tags_migration_kind - 1] = true;
	values[Anum_tags_created_no - 1] = Int64GetDatum(call->event_no);
	store_insert(call->tables.tags, values, nulls);
	tag_name_insert(call, &call->tag_id, false);
}

/*
 * The name must be free, or the tag's own.  An own name stays while the root
 * is locked, but may have gone before.
 */
static FencingOutcome
judge_alias(TagCall *call)
{
	TagReference name = {.argument = "name"};
	bool		settled = false;

	while (!settled)
	{
		bool		ours = tag_name_claim(call, &name);

		if (call->nlocks == 0)
		{
			tag_lock_vocabulary(call);
			tag_lock_root(call, &call->reference);
		}
		settled = ours || find_name(call, &name);
	}
	if (!call->makes_name && !tag_same_id(&name.owner.id, &call->reference.owner.id))
		tag_name_reserved(&name);
	call->owner = call->reference.owner.id;
	call->tag_id = call->reference.root.id;
	return FENCING_COMMITTED;
}

/* A name that is the tag's own stays what it is. */
static void
apply_alias(TagCall *call)
{
	if (call->makes_name)
		tag_name_insert(call, &call->owner, true);
}

/* Raises 55000 if the name is in use. */
static FencingOutcome
judge_release(TagCall *call)
{
	TagReference *references[] = {&call->reference};
	const char *matched;

	tag_lock_for_migration(call, references, 1);
	matched = tag_matched(&call->reference);
	if (call->reference.name_row == NULL)
		tag_unknown(call->vocabulary, &call->reference);
	if (strcmp(matched, "current") == 0 || strcmp(matched, "merged") == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 strcmp(matched, "current") == 0 ?
				 errmsg("name \"%s\" is the current name of its tag", text_to_cstring(call->name)) :
				 errmsg("name \"%s\" belongs to a merged tag", text_to_cstring(call->name)),
				 errdetail("It leads to tag %s.", tag_id_to_cstring(&call->reference.root.id)),
				 errhint("Only former names and aliases of tags that are not merged can be released.")));
	require_unused(call);
	call->owner = call->tag_id = call->reference.root.id;
	return FENCING_COMMITTED;
}

/* Raises 55000.  With the root locked nobody is just using it. */
static void
require_unused(TagCall *call)
{
	static const char query[] =
		"SELECT CASE WHEN EXISTS (SELECT FROM fencing.tag_migrations m"
		"  WHERE m.vocabulary OPERATOR(pg_catalog.=) $1 AND m.tag_id OPERATOR(pg_catalog.=) $2"
		"  AND m.undone_no OPERATOR(pg_catalog.=) 9223372036854775807"
		"  AND m.kind OPERATOR(pg_catalog.=) 'rename' AND m.completed_at IS NULL"
		"  AND (m.name OPERATOR(pg_catalog.=) $3 OR m.former_name OPERATOR(pg_catalog.=) $3)) THEN 1"
		" WHEN EXISTS (SELECT FROM fencing.tag_events e"
		"  WHERE e.vocabulary OPERATOR(pg_catalog.=) $1 AND e.owner OPERATOR(pg_catalog.=) $2"
		"  AND e.reference OPERATOR(pg_catalog.=) $3"
		"  AND e.kind OPERATOR(pg_catalog.<>) ALL ('{create,alias,rename,release}'::pg_catalog.text[])) THEN 2"
		" WHEN EXISTS (SELECT FROM fencing.tag_merges g JOIN fencing.tag_events e"
		"  ON e.vocabulary OPERATOR(pg_catalog.=) g.vocabulary AND e.event_no OPERATOR(pg_catalog.=) g.made_no"
		"  WHERE g.vocabulary OPERATOR(pg_catalog.=) $1 AND g.target OPERATOR(pg_catalog.=) $2"
		"  AND e.target_reference OPERATOR(pg_catalog.=) $3) THEN 2"
		" ELSE 0 END::pg_catalog.int8";
	Oid			argtypes[] = {TEXTOID, UUIDOID, TEXTOID};
	Datum		args[] = {PointerGetDatum(call->vocabulary),
	UUIDPGetDatum(&call->reference.root.id), PointerGetDatum(call->name)};
	Snapshot	snapshot = store_fresh_snapshot();
	int64		use;

	owner_query_bigints(query, lengthof(args), argtypes, args, NULL, snapshot, 1, &use);
	UnregisterSnapshot(snapshot);
	if (use == 1)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("name \"%s\" is part of a rename that is not complete",
						text_to_cstring(call->name)),
				 errhint("Complete the rename, or undo it.")));
	if (use == 2)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("something was submitted by name \"%s\"", text_to_cstring(call->name)),
				 errdetail("What was submitted by a name keeps leading to its tag."),
				 errhint("Use another name for the other tag.")));
}

/* The row goes; the event stays. */
static void
apply_release(TagCall *call)
{
	call->changed_tags = true;
	store_delete(call->tables.names, call->reference.name_row);
}
