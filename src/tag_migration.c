/*-------------------------------------------------------------------------
 *
 * tag_migration.c
 *	  Renames and merges, and what becomes of them.
 *
 * A migration takes effect with its event, in one transaction that writes
 * tags and moves no rows: a merge is an edge from a root to the tag that the
 * target's reference named, and associations and subscriptions are combined
 * along the edges when they are read.  So undoing one takes away that edge,
 * also from the middle of a chain, and what was submitted meanwhile by
 * references of the source is the source's again.
 *
 * Until it is complete a migration can be undone: of the renames of a tag the
 * latest, of merges any.
 *
 * Locks: of undo and complete the migration's row; then tag_lock.c.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "tag.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

static int64 arg_version(FunctionCallInfo fcinfo, int argno, const char *name);
static FencingOutcome judge_rename(TagCall *call);
static void apply_rename(TagCall *call);
static FencingOutcome judge_merge(TagCall *call);
static void apply_merge(TagCall *call);
static FencingOutcome judge_undo(TagCall *call);
static void require_latest_rename(TagCall *call);
static char *later_rename(const TagMigration *migration);
static void copy_first(SPITupleTable *rows, uint64 count, void *arg);
static void apply_undo(TagCall *call);
static void undo_rename(TagCall *call, TagMigration *migration);
static void undo_merge(TagCall *call, TagMigration *migration);
static bool is_outdated(TagCall *call, const TagReference *reference, int64 expected_version);
static void insert_migration(TagCall *call, const char *kind, const text *former_name);
static void change_root(TagCall *call, const pg_uuid_t *id, int members, const char *kind,
						text *name);

PG_FUNCTION_INFO_V1(fencing_tag_rename);
PG_FUNCTION_INFO_V1(fencing_tag_merge);
PG_FUNCTION_INFO_V1(fencing_tag_undo);
PG_FUNCTION_INFO_V1(fencing_tag_complete);

static const TagOperation rename_operation = {"fencing_tag_rename()", "rename", judge_rename, apply_rename};
static const TagOperation merge_operation = {"fencing_tag_merge()", "merge", judge_merge, apply_merge};
static const TagOperation undo_operation = {"fencing_tag_undo()", "undo", judge_undo, apply_undo};

/*
 * fencing_tag_rename(vocabulary text, event_id uuid, reference text, name text,
 *					  expected_version bigint)
 *	→ outcome, event_no, tag_id, name, matched, migration_version, migration_kind
 */
Datum
fencing_tag_rename(PG_FUNCTION_ARGS)
{
	TagCall		call = {0};

	tag_event_begin(&call, fcinfo, &rename_operation);
	call.reference.reference = args_key(fcinfo, 2, "reference");
	call.name = tag_arg_name(fcinfo, 3, "name");
	call.expected_version = arg_version(fcinfo, 4, "expected_version");
	return tag_event_run(fcinfo, &call);
}

/*
 * fencing_tag_merge(vocabulary text, event_id uuid, source text, target text,
 *					 expected_version bigint, expected_target_version bigint)
 *	→ as fencing_tag_rename()
 */
Datum
fencing_tag_merge(PG_FUNCTION_ARGS)
{
	TagCall		call = {0};

	tag_event_begin(&call, fcinfo, &merge_operation);
	call.reference.reference = args_key(fcinfo, 2, "source");
	call.reference.argument = "source";
	call.target.reference = args_key(fcinfo, 3, "target");
	call.expected_version = arg_version(fcinfo, 4, "expected_version");
	if (!PG_ARGISNULL(5))
		call.expected_target_version = arg_version(fcinfo, 5, "expected_target_version");
	return tag_event_run(fcinfo, &call);
}

/*
 * fencing_tag_undo(vocabulary text, event_id uuid, migration uuid)
 *	→ as fencing_tag_rename()
 */
Datum
fencing_tag_undo(PG_FUNCTION_ARGS)
{
	TagCall		call = {0};

	tag_event_begin(&call, fcinfo, &undo_operation);
	call.migration = args_uuid(fcinfo, 2, "migration");
	call.reference.reference = cstring_to_text(tag_id_to_cstring(call.migration));
	return tag_event_run(fcinfo, &call);
}

/*
 * fencing_tag_complete(vocabulary text, migration uuid)
 *	→ as fencing_tag_rename()
 */
Datum
fencing_tag_complete(PG_FUNCTION_ARGS)
{
	TagMigration migration = {.vocabulary = args_key(fcinfo, 0, "vocabulary"),
	.id = args_uuid(fcinfo, 1, "migration")};
	FencingOutcome outcome = FENCING_REPLAYED;
	TagReference reference = {0};
	TagTables	tables;
	Snapshot	snapshot;

	migration.function = "fencing_tag_complete()";
	migration.rel = store_table_open(STORE_TAG_MIGRATIONS, RowExclusiveLock);
	tag_reconcile_lock(&migration);
	if (!migration.completed)
	{
		tag_reconcile_require_done(&migration);
		migration.values[Anum_tag_migrations_completed_at - 1] = TimestampTzGetDatum(GetCurrentTimestamp());
		migration.nulls[Anum_tag_migrations_completed_at - 1] = false;
		store_update(migration.rel, migration.row, migration.values, migration.nulls);
		ForceSyncCommit();
		outcome = FENCING_COMMITTED;
	}
	else
		durable_wait_for_standbys();

	tag_open(&tables, AccessShareLock);
	snapshot = store_fresh_snapshot();
	tag_find_owner(&tables, migration.vocabulary, &migration.tag_id, &reference, snapshot);
	UnregisterSnapshot(snapshot);
	tag_close(&tables, AccessShareLock);
	table_close(migration.rel, NoLock);
	return tag_event_answer(fcinfo, outcome, migration.event_no, &reference);
}

/* A migration_version: from 0 up.  Raises 22004, 22023. */
static int64
arg_version(FunctionCallInfo fcinfo, int argno, const char *name)
{
	int64		version;

	if (PG_ARGISNULL(argno))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", name),
				 errhint("It is the migration_version that the caller has seen, 0 for a tag that never had a migration.")));
	version = PG_GETARG_INT64(argno);
	if (version < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be negative, but is %lld", name, (long long) version),
				 errhint("It is the migration_version that the caller has seen, 0 for a tag that never had a migration.")));
	return version;
}

/*
 * Whether the caller has seen another state than this: the tag is merged by
 * now, or had a migration.
 */
static bool
is_outdated(TagCall *call, const TagReference *reference, int64 expected_version)
{
	if (expected_version != TAG_ANY_VERSION && reference->root.version != expected_version)
		return true;
	return reference == &call->reference &&
		!tag_same_id(&reference->owner.id, &reference->root.id);
}

/* The name must be free, or the tag's own. */
static FencingOutcome
judge_rename(TagCall *call)
{
	TagReference *references[] = {&call->reference};
	TagReference name = {.argument = "name"};
	bool		ours = tag_name_claim(call, &name);

	tag_lock_for_migration(call, references, 1);
	if (is_outdated(call, &call->reference, call->expected_version))
		return FENCING_CONFLICT;
	if (args_same_text(call->name, call->reference.root.name))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the name of the tag is \"%s\" already", text_to_cstring(call->name))));

	/* while we waited an own name may have been released, or a free one made */
	if (!ours && !tag_name_claim(call, &name) &&
		!tag_same_id(&name.owner.id, &call->reference.root.id))
		tag_name_reserved(&name);
	call->owner = call->tag_id = call->reference.root.id;
	return FENCING_COMMITTED;
}

/* The tag has the name, and no other loses it. */
static void
apply_rename(TagCall *call)
{
	text	   *former_name = call->reference.root.name;

	if (call->makes_name)
		tag_name_insert(call, &call->owner, false);
	change_root(call, &call->owner, call->reference.root.members, "rename", call->name);
	insert_migration(call, "rename", former_name);
	call->reference.root.name = call->name;
	tag_event_emit(call, "tag.renamed", false, "former_name", text_to_cstring(former_name));
}

/* The source must be a root, and not the target's. */
static FencingOutcome
judge_merge(TagCall *call)
{
	TagReference *source = &call->reference;
	TagReference *target = &call->target;
	TagReference *references[] = {source, target};

	tag_lock_for_migration(call, references, 2);
	if (is_outdated(call, source, call->expected_version) ||
		is_outdated(call, target, call->expected_target_version))
		return FENCING_CONFLICT;
	if (tag_same_id(&source->root.id, &target->root.id))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 tag_same_id(&source->root.id, &target->owner.id) ?
				 errmsg("tag \"%s\" cannot be merged into itself", text_to_cstring(source->root.name)) :
				 errmsg("tag \"%s\" cannot be merged into a tag that is merged into it",
						text_to_cstring(source->root.name)),
				 errdetail("Source and target lead to tag %s.", tag_id_to_cstring(&source->root.id))));
	call->owner = source->root.id;
	call->tag_id = target->root.id;
	return FENCING_COMMITTED;
}

/* The edge; and all that led to the source lead to the root of the target. */
static void
apply_merge(TagCall *call)
{
	Tag		   *source = &call->reference.root;
	Tag		   *root = &call->target.root;
	int			members = source->members;

	tag_merge_insert(call, &source->id, &call->target.owner.id);
	tag_merge_move(call, &source->id, &root->id);
	change_root(call, &source->id, members, "merge", NULL);
	change_root(call, &root->id, root->members + members, "merge", NULL);
	insert_migration(call, "merge", NULL);
	call->reference.root.name = root->name;
	tag_event_emit(call, "tag.merged", false, "source_tag_id", tag_id_to_cstring(&source->id));
}

/* It must be in force, and not complete.  Raises LF001, 55000. */
static FencingOutcome
judge_undo(TagCall *call)
{
	TagMigration *migration = palloc0(sizeof(TagMigration));
	TagReference reference = {.argument = "tag"};
	TagReference *references[] = {&reference};

	call->undone = migration;
	migration->function = "fencing_tag_undo()";
	migration->vocabulary = call->vocabulary;
	migration->id = call->migration;
	migration->rel = tag_relation(call, STORE_TAG_MIGRATIONS);
	tag_reconcile_lock(migration);
	if (migration->completed)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("migration %s is complete", tag_id_to_cstring(migration->id)),
				 errhint("Migrate once more, the other way.")));

	reference.reference = cstring_to_text(tag_id_to_cstring(&migration->tag_id));
	tag_lock_for_migration(call, references, 1);
	call->owner = call->tag_id = migration->tag_id;
	call->reference.root = reference.root;
	call->reference.owner = reference.owner;
	if (!migration->is_merge)
		require_latest_rename(call);
	return FENCING_COMMITTED;
}

/* Raises 55000. */
static void
require_latest_rename(TagCall *call)
{
	const Tag  *tag = &call->reference.owner;
	char	   *later;

	if (!tag_same_id(&tag->id, &tag->root))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("tag %s is merged into another", tag_id_to_cstring(&tag->id)),
				 errhint("Undo the merge first.")));
	later = later_rename(call->undone);
	if (later != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the tag was renamed again after migration %s",
						tag_id_to_cstring(call->migration)),
				 errdetail("The later rename is migration %s.", later),
				 errhint("Undo the later one first.")));
}

/* The latest rename in force after this one; NULL: this is the latest. */
static char *
later_rename(const TagMigration *migration)
{
	static const char query[] =
		"SELECT m.event_id::pg_catalog.text FROM fencing.tag_migrations m"
		" WHERE m.vocabulary OPERATOR(pg_catalog.=) $1 AND m.tag_id OPERATOR(pg_catalog.=) $2"
		" AND m.undone_no OPERATOR(pg_catalog.=) 9223372036854775807"
		" AND m.event_no OPERATOR(pg_catalog.>) $3 AND m.kind OPERATOR(pg_catalog.=) 'rename'"
		" ORDER BY m.event_no DESC LIMIT 1";
	Oid			argtypes[] = {TEXTOID, UUIDOID, INT8OID};
	Datum		args[] = {PointerGetDatum(migration->vocabulary), UUIDPGetDatum(&migration->tag_id),
	Int64GetDatum(migration->event_no)};
	Snapshot	snapshot = store_fresh_snapshot();
	char	   *later = NULL;

	owner_query_run(query, lengthof(args), argtypes, args, NULL, snapshot, copy_first, &later);
	UnregisterSnapshot(snapshot);
	return later;
}

/* The text, if there is one, out of SPI's memory. */
static void
copy_first(SPITupleTable *rows, uint64 count, void *arg)
{
	char	   *value = count == 0 ? NULL : SPI_getvalue(rows->vals[0], rows->tupdesc, 1);

	if (value != NULL)
		*(char **) arg = strcpy((char *) SPI_palloc(strlen(value) + 1), value);
}

/* What was before, and the migration is not in force any more. */
static void
apply_undo(TagCall *call)
{
	TagMigration *migration = call->undone;

	if (migration->is_merge)
		undo_merge(call, migration);
	else
		undo_rename(call, migration);
	migration->values[Anum_tag_migrations_undone_no - 1] = Int64GetDatum(call->event_no);
	store_update(migration->rel, migration->row, migration->values, migration->nulls);
}

/* The name of before; the other stays a former one. */
static void
undo_rename(TagCall *call, TagMigration *migration)
{
	text	   *name = DatumGetTextP(migration->values[Anum_tag_migrations_former_name - 1]);
	char	   *undone = text_to_cstring(call->reference.root.name);

	change_root(call, &call->owner, call->reference.root.members, "undo", name);
	call->reference.root.name = name;
	tag_event_emit(call, "tag.undone", false, "former_name", undone);
}

/* The edge goes, and all behind it lead to the source. */
static void
undo_merge(TagCall *call, TagMigration *migration)
{
	Tag		   *root = &call->reference.root;
	int			members;

	tag_merge_end(call, &call->owner);
	members = tag_merge_move(call, &call->owner, &call->owner);
	change_root(call, &root->id, root->members - members, "undo", NULL);
	change_root(call, &call->owner, members, "undo", NULL);
	root->name = call->reference.owner.name;
	tag_event_emit(call, "tag.undone", false, "former_tag_id", tag_id_to_cstring(&root->id));
}

/* The migration, which is in force. */
static void
insert_migration(TagCall *call, const char *kind, const text *former_name)
{
	Datum		values[Natts_tag_migrations] = {0};
	bool		nulls[Natts_tag_migrations] = {false};
	bool		is_merge = former_name == NULL;

	values[Anum_tag_migrations_vocabulary - 1] = PointerGetDatum(call->vocabulary);
	values[Anum_tag_migrations_event_id - 1] = UUIDPGetDatum(call->event_id);
	values[Anum_tag_migrations_event_no - 1] = Int64GetDatum(call->event_no);
	values[Anum_tag_migrations_kind - 1] = CStringGetTextDatum(kind);
	values[Anum_tag_migrations_tag_id - 1] = UUIDPGetDatum(&call->owner);
	values[Anum_tag_migrations_target - 1] = UUIDPGetDatum(&call->target.owner.id);
	nulls[Anum_tag_migrations_target - 1] = !is_merge;
	values[Anum_tag_migrations_name - 1] = PointerGetDatum(call->name);
	values[Anum_tag_migrations_former_name - 1] = PointerGetDatum(former_name);
	nulls[Anum_tag_migrations_name - 1] = nulls[Anum_tag_migrations_former_name - 1] = is_merge;
	values[Anum_tag_migrations_undone_no - 1] = Int64GetDatum(TAG_IN_FORCE);
	nulls[Anum_tag_migrations_completed_at - 1] = true;
	values[Anum_tag_migrations_reconciled - 1] = BoolGetDatum(false);
	values[Anum_tag_migrations_checked - 1] = Int64GetDatum(0);
	values[Anum_tag_migrations_problems - 1] = Int64GetDatum(0);
	nulls[Anum_tag_migrations_cursor_tag - 1] = true;
	values[Anum_tag_migrations_cursor_part - 1] = Int32GetDatum(0);
	nulls[Anum_tag_migrations_cursor_key - 1] = true;
	nulls[Anum_tag_migrations_cursor_subject - 1] = true;
	store_insert(tag_relation(call, STORE_TAG_MIGRATIONS), values, nulls);
}

/*
 * A root whose name or tree has changed, whose lock we have.  name NULL: as it
 * was.  Raises 40001.
 */
static void
change_root(TagCall *call, const pg_uuid_t *id, int members, const char *kind, text *name)
{
	Relation	tags = call->tables.tags;
	Snapshot	snapshot = store_fresh_snapshot();
	Datum		values[Natts_tags];
	bool		nulls[Natts_tags];
	Tag			tag;

	call->changed_tags = true;
	if (!tag_find_id(&call->tables, call->vocabulary, id, snapshot, &tag))
		elog(ERROR, "tag %s is not there", tag_id_to_cstring(id));
	UnregisterSnapshot(snapshot);
	store_read_row(tags, tag.row, values, nulls);
	values[Anum_tags_members - 1] = Int32GetDatum(members);
	values[Anum_tags_version - 1] = Int64GetDatum(call->event_no);
	values[Anum_tags_migration_kind - 1] = CStringGetTextDatum(kind);
	nulls[Anum_tags_migration_kind - 1] = false;
	if (name != NULL)
		values[Anum_tags_name - 1] = PointerGetDatum(name);
	store_update(tags, tag.row, values, nulls);
}
