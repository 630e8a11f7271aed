/*-------------------------------------------------------------------------
 *
 * once_projection.c
 *	  What a compiled request schema makes of a request.
 *
 * A request is projected into the document that is hashed: the listed
 * properties are the whitelist, absent ones take their defaults, some formats
 * are normalized.  Nothing here depends on settings of the session.
 *
 * "Later" schemas are those of higher versions of the same operation.  A
 * client that has been upgraded sends fields that only they list; such a
 * field may be left out if it has the value that an absent one would have
 * there.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "once.h"
#include "utils/builtins.h"

/* One projection. */
typedef struct Projection
{
	JsonbParseState *state;
	JsonbValue *root;			/* the finished array or object */
	bool		raw;			/* only leave out: no check, default or format */
	const OncePath *path;		/* of the value that is looked at */
	char	   *refusal;
} Projection;

static Jsonb *run_projection(Projection *projection, const OnceSchema *schema, List *later,
							 Jsonb *request);
static bool project_inner(Projection *projection, OncePath *path, const OnceSchema *schema,
						  List *later, JsonbValue *value, JsonbIteratorToken token);
static bool project(Projection *projection, const OnceSchema *schema, List *later,
					JsonbValue *value, JsonbIteratorToken token);
static bool project_object(Projection *projection, const OnceSchema *schema, List *later,
						   JsonbContainer *container);
static bool project_array(Projection *projection, const OnceSchema *schema, List *later,
						  JsonbContainer *container);
static bool project_scalar(Projection *projection, const OnceSchema *schema,
						   JsonbValue *value, JsonbIteratorToken token);
static List *later_properties(List *later, const char *name, int length);
static List *later_items(List *later);
static bool may_leave_out(List *later, const JsonbValue *key, JsonbValue *value);
static bool is_default(const OnceSchema *schema, JsonbValue *value);
static bool has_kind(const OnceSchema *schema, const JsonbValue *value);
static int	kind_of(const JsonbValue *value);
static bool refuse_kind(Projection *projection, const OnceSchema *schema,
						const JsonbValue *value);
static bool refuse_format(Projection *projection, OnceFormat format);
static bool refuse_field(Projection *projection, const char *message, const char *name,
						 int length);

/*
 * The document that identifies the request.  NULL if the schema refuses it;
 * then refusal says why, in a sentence that names the field and no value.
 */
Jsonb *
once_projection_make(const OnceSchema *schema, List *later, Jsonb *request,
					 char **refusal)
{
	Projection	projection = {0};
	Jsonb	   *result = run_projection(&projection, schema, later, request);

	*refusal = projection.refusal;
	return result;
}

/*
 * The request without what the schema leaves out of the hash, and otherwise
 * as it is.
 */
Jsonb *
once_projection_visible(const OnceSchema *schema, Jsonb *request)
{
	Projection	projection = {.raw = true};

	return run_projection(&projection, schema, NIL, request);
}

/* Of the whole request.  NULL: it is refused. */
static Jsonb *
run_projection(Projection *projection, const OnceSchema *schema, List *later, Jsonb *request)
{
	JsonbValue	value;

	once_value_root(request, &value);
	if (!project(projection, schema, later, &value, WJB_DONE))
		return NULL;
	return JsonbValueToJsonb(projection->root);
}

/* A field or an element of what is being projected. */
static bool
project_inner(Projection *projection, OncePath *path, const OnceSchema *schema, List *later,
			  JsonbValue *value, JsonbIteratorToken token)
{
	bool		accepted;

	path->outer = projection->path;
	projection->path = path;
	accepted = project(projection, schema, later, value, token);
	projection->path = path->outer;
	return accepted;
}

/*
 * Appends the projection of a value to the document being built, as token
 * says: WJB_VALUE, WJB_ELEM, or WJB_DONE for the root.  False if it is
 * refused.
 */
static bool
project(Projection *projection, const OnceSchema *schema, List *later,
		JsonbValue *value, JsonbIteratorToken token)
{
	JsonbContainer *container;

	check_stack_depth();
	CHECK_FOR_INTERRUPTS();

	if (!projection->raw && !has_kind(schema, value))
		return refuse_kind(projection, schema, value);
	if (value->type != jbvBinary)
		return project_scalar(projection, schema, value, token);

	container = value->val.binary.data;
	if (JsonContainerIsObject(container) && schema->whitelist)
		return project_object(projection, schema, later, container);
	if (JsonContainerIsArray(container) && (schema->items != NULL || token == WJB_DONE))
		return project_array(projection, schema, later, container);
	if (token == WJB_DONE)
		projection->root = value;	/* whole, as it is */
	else
		(void) pushJsonbValue(&projection->state, token, value);
	return true;
}

/* The properties of the schema, each once. */
static bool
project_object(Projection *projection, const OnceSchema *schema, List *later,
			   JsonbContainer *container)
{
	JsonbIterator *it = JsonbIteratorInit(container);
	JsonbValue	key;
	JsonbValue	value;

	/* no field is left out silently */
	(void) JsonbIteratorNext(&it, &key, true);
	while (!projection->raw && JsonbIteratorNext(&it, &key, true) == WJB_KEY)
	{
		(void) JsonbIteratorNext(&it, &value, true);
		if (!schema->open &&
			once_value_property(schema, key.val.string.val, key.val.string.len) == NULL &&
			!may_leave_out(later, &key, &value))
			return refuse_field(projection, _("Field \"%s\" is not listed in the schema."),
								key.val.string.val, key.val.string.len);
	}

	(void) pushJsonbValue(&projection->state, WJB_BEGIN_OBJECT, NULL);
	for (int i = 0; i < schema->nproperties; i++)
	{
		const OnceProperty *property = &schema->properties[i];
		OncePath	path = {.name = property->name,.length = property->length};
		JsonbValue *found;
		JsonbValue	fallback;

		if (property->schema->ignore)
			continue;
		found = getKeyJsonValueFromContainer(container, property->name, property->length, NULL);
		if (found == NULL && projection->raw)
			continue;
		if (found == NULL && property->required)
			return refuse_field(projection, _("Required field \"%s\" is missing."),
								property->name, property->length);
		if (found == NULL && property->schema->default_value == NULL)
			continue;

		key.type = jbvString;
		key.val.string.val = unconstify(char *, property->name);
		key.val.string.len = property->length;
		(void) pushJsonbValue(&projection->state, WJB_KEY, &key);
		if (found == NULL)
		{
			/* it has been projected */
			once_value_root(property->schema->default_value, &fallback);
			(void) pushJsonbValue(&projection->state, WJB_VALUE, &fallback);
		}
		else if (!project_inner(projection, &path, property->schema,
								later_properties(later, property->name, property->length),
								found, WJB_VALUE))
			return false;
	}
	projection->root = pushJsonbValue(&projection->state, WJB_END_OBJECT, NULL);
	return true;
}

/* Each item by the schema of items. */
static bool
project_array(Projection *projection, const OnceSchema *schema, List *later,
			  JsonbContainer *container)
{
	JsonbIterator *it = JsonbIteratorInit(container);
	JsonbValue	element;
	List	   *inner = later_items(later);
	OncePath	path = {0};

	(void) pushJsonbValue(&projection->state, WJB_BEGIN_ARRAY, NULL);
	(void) JsonbIteratorNext(&it, &element, true);
	while (JsonbIteratorNext(&it, &element, true) == WJB_ELEM)
	{
		if (schema->items == NULL)
			(void) pushJsonbValue(&projection->state, WJB_ELEM, &element);
		else if (!project_inner(projection, &path, schema->items, inner, &element, WJB_ELEM))
			return false;
		path.index++;
	}
	projection->root = pushJsonbValue(&projection->state, WJB_END_ARRAY, NULL);
	return true;
}

/* A value, in the form that its format asks for. */
static bool
project_scalar(Projection *projection, const OnceSchema *schema, JsonbValue *value,
			   JsonbIteratorToken token)
{
	JsonbValue *result = (JsonbValue *) palloc(sizeof(JsonbValue));

	*result = *value;
	if (value->type == jbvString && schema->format != ONCE_FORMAT_NONE && !schema->exact &&
		!projection->raw)
	{
		char	   *normalized = once_format_normalize(schema->format, value->val.string.val,
													   value->val.string.len);

		if (normalized == NULL)
			return refuse_format(projection, schema->format);
		result->val.string.val = normalized;
		result->val.string.len = strlen(normalized);
	}

	if (token == WJB_DONE)
		projection->root = result;
	else
		(void) pushJsonbValue(&projection->state, token, result);
	return true;
}

/* What later schemas have at a property that the schema lists too. */
static List *
later_properties(List *later, const char *name, int length)
{
	List	   *result = NIL;
	ListCell   *lc;

	foreach(lc, later)
	{
		OnceProperty *property = once_value_property((OnceSchema *) lfirst(lc), name,
													 length);

		if (property != NULL)
			result = lappend(result, property->schema);
	}
	return result;
}

/* And in the elements of an array. */
static List *
later_items(List *later)
{
	List	   *result = NIL;
	ListCell   *lc;

	foreach(lc, later)
	{
		OnceSchema *items = ((OnceSchema *) lfirst(lc))->items;

		if (items != NULL)
			result = lappend(result, items);
	}
	return result;
}

/*
 * Whether a field that the schema does not list may be left out: a later
 * schema lists it, and it has the value that an absent one has there.
 */
static bool
may_leave_out(List *later, const JsonbValue *key, JsonbValue *value)
{
	ListCell   *lc;

	foreach(lc, later)
	{
		OnceProperty *property = once_value_property((OnceSchema *) lfirst(lc),
													 key->val.string.val,
													 key->val.string.len);

		if (property != NULL && (property->schema->ignore || is_default(property->schema, value)))
			return true;
	}
	return false;
}

/* Whether the value is the one that an absent field has there. */
static bool
is_default(const OnceSchema *schema, JsonbValue *value)
{
	Jsonb	   *projected;
	char	   *refusal;

	if (schema->default_value == NULL)
		return false;
	projected = once_projection_make(schema, NIL, JsonbValueToJsonb(value), &refusal);
	return projected != NULL &&
		compareJsonbContainers(&projected->root, &schema->default_value->root) == 0;
}

/* Does the schema accept a value of this kind? */
static bool
has_kind(const OnceSchema *schema, const JsonbValue *value)
{
	/* whether it is whole need not be known where any number will do */
	if (value->type == jbvNumeric && (schema->kinds & ONCE_KIND_NUMBER) != 0)
		return true;
	return (schema->kinds & kind_of(value)) != 0;
}

/* As bits of ONCE_KIND. */
static int
kind_of(const JsonbValue *value)
{
	Datum		number;

	switch (value->type)
	{
		case jbvNull:
			return ONCE_KIND_NULL;
		case jbvBool:
			return ONCE_KIND_BOOLEAN;
		case jbvString:
			return ONCE_KIND_STRING;
		case jbvNumeric:
			number = NumericGetDatum(value->val.numeric);
			return DatumGetBool(DirectFunctionCall2(numeric_eq, number,
													DirectFunctionCall1(numeric_floor, number))) ?
				ONCE_KIND_INTEGER : ONCE_KIND_NUMBER;
		default:
			return JsonContainerIsObject(value->val.binary.data) ? ONCE_KIND_OBJECT : ONCE_KIND_ARRAY;
	}
}

/* Returns false. */
static bool
refuse_kind(Projection *projection, const OnceSchema *schema, const JsonbValue *value)
{
	const char *found = once_value_kind_names(kind_of(value));
	const char *allowed = once_value_kind_names(schema->kinds);

	projection->refusal = projection->path == NULL ?
		psprintf(_("It has type %s; allowed: %s."), found, allowed) :
		psprintf(_("Field \"%s\" has type %s; allowed: %s."),
				 once_value_path_text(projection->path), found, allowed);
	return false;
}

/* Returns false. */
static bool
refuse_format(Projection *projection, OnceFormat format)
{
	const char *example = once_format_example(format);

	projection->refusal = projection->path == NULL ?
		psprintf(_("It does not have the format %s."), example) :
		psprintf(_("Field \"%s\" does not have the format %s."),
				 once_value_path_text(projection->path), example);
	return false;
}

/* The message takes the path of a field of the value that is looked at. */
static bool
refuse_field(Projection *projection, const char *message, const char *name, int length)
{
	OncePath	path = {.outer = projection->path,.name = name,.length = length};

	projection->refusal = psprintf(message, once_value_path_text(&path));
	return false;
}
