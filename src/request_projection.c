/*-------------------------------------------------------------------------
 *
 * request_projection.c
 *	  What a compiled request schema makes of a request.
 *
 * A request is projected into the document that is hashed: the listed properties
 * are the whitelist, absent ones take their defaults, some formats are
 * normalized.  Nothing here depends on settings of the session.
 *
 * "Later" schemas are those of higher versions of the same operation.  A client
 * that has been upgraded sends fields that only they list; such a field may be
 * left out if it has the value that an absent one would have there.
 *
 * "Shown" is the schema by which the authorize function was shown the request.
 * What it saw must count in the comparison: a caller could show his own resource
 * there, and another's key to the look-up.
 *
 * Copyright (c) 2026, the fencing authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fencing.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "utils/builtins.h"

/* One projection. */
typedef struct Projection
{
	JsonbParseState *state;
	JsonbValue *root;			/* the finished array or object */
	bool		raw;			/* only leave out: no check, default or format */
	char	   *refusal;
} Projection;

/* The other schemas at the same place. */
typedef struct Others
{
	List	   *later;
	const RequestSchema *shown; /* NULL: was not shown, or it is ours */
} Others;

/* Where all of a value is taken as it is. */
static const RequestSchema whole = {.kinds = KIND_ANY};

static Jsonb *run_projection(Projection *projection, const RequestSchema *schema,
							 const Others *others, Jsonb *request);
static bool project(Projection *projection, const RequestSchema *schema, const Others *others,
					JsonbValue *value, JsonbIteratorToken token);
static bool project_object(Projection *projection, const RequestSchema *schema,
						   const Others *others, JsonbContainer *container);
static bool check_field(Projection *projection, const RequestSchema *schema,
						const Others *others, const JsonbValue *key, JsonbValue *value);
static bool project_array(Projection *projection, const RequestSchema *schema,
						  const Others *others, JsonbContainer *container);
static bool project_scalar(Projection *projection, const RequestSchema *schema,
						   JsonbValue *value, JsonbIteratorToken token);
static Others others_at_property(const Others *others, const char *name, int length);
static Others others_at_items(const Others *others);
static const RequestSchema *shown_at_property(const RequestSchema *shown, const char *name,
											  int length);
static bool may_leave_out(List *later, const JsonbValue *key, JsonbValue *value);
static bool is_default(const RequestSchema *schema, JsonbValue *value);
static bool has_kind(const RequestSchema *schema, const JsonbValue *value);
static bool refuse(Projection *projection, const char *message, const char *name, int length);

/*
 * The document that identifies the request.  later and shown are the other
 * schemas that have a say (see above), NIL and NULL for none.  NULL if the
 * request is refused; then refusal says why, naming no value.
 */
Jsonb *
fencing_project_request(const RequestSchema *schema, List *later, const RequestSchema *shown,
						Jsonb *request, char **refusal)
{
	Projection	projection = {0};
	Others		others = {later, shown == schema ? NULL : shown};
	Jsonb	   *result = run_projection(&projection, schema, &others, request);

	*refusal = projection.refusal;
	return result;
}

/*
 * The request without what the schema leaves out of the hash, and otherwise as
 * it is.
 */
Jsonb *
fencing_visible_request(const RequestSchema *schema, Jsonb *request)
{
	Projection	projection = {.raw = true};
	Others		others = {NIL, NULL};

	return run_projection(&projection, schema, &others, request);
}

static Jsonb *
run_projection(Projection *projection, const RequestSchema *schema, const Others *others,
			   Jsonb *request)
{
	JsonbValue	value;

	fencing_root_value(request, &value);
	if (!project(projection, schema, others, &value, WJB_DONE))
		return NULL;
	return JsonbValueToJsonb(projection->root);
}

/*
 * Appends the projection of a value to the document being built, as token says:
 * WJB_VALUE, WJB_ELEM, or WJB_DONE for the root.  False if it is refused.
 */
static bool
project(Projection *projection, const RequestSchema *schema, const Others *others,
		JsonbValue *value, JsonbIteratorToken token)
{
	JsonbContainer *container;

	check_stack_depth();
	CHECK_FOR_INTERRUPTS();

	if (!projection->raw && !has_kind(schema, value))
		return refuse(projection, "a value has a type that the schema does not allow", NULL, 0);
	if (value->type != jbvBinary)
		return project_scalar(projection, schema, value, token);

	container = value->val.binary.data;
	if (JsonContainerIsObject(container) && schema->whitelist)
		return project_object(projection, schema, others, container);
	if (JsonContainerIsArray(container) && (schema->items != NULL || token == WJB_DONE))
		return project_array(projection, schema, others, container);
	if (token == WJB_DONE)
		projection->root = value;	/* whole, as it is */
	else
		(void) pushJsonbValue(&projection->state, token, value);
	return true;
}

static bool
project_object(Projection *projection, const RequestSchema *schema, const Others *others,
			   JsonbContainer *container)
{
	JsonbIterator *it = JsonbIteratorInit(container);
	JsonbValue	key;
	JsonbValue	value;

	(void) JsonbIteratorNext(&it, &key, true);
	while (!projection->raw && JsonbIteratorNext(&it, &key, true) == WJB_KEY)
	{
		(void) JsonbIteratorNext(&it, &value, true);
		if (!check_field(projection, schema, others, &key, &value))
			return false;
	}

	(void) pushJsonbValue(&projection->state, WJB_BEGIN_OBJECT, NULL);
	for (int i = 0; i < schema->nproperties; i++)
	{
		const RequestProperty *property = &schema->properties[i];
		Others		inner = others_at_property(others, property->name, property->length);
		JsonbValue *found;
		JsonbValue	fallback;

		if (property->schema->ignore)
			continue;
		found = getKeyJsonValueFromContainer(container, property->name, property->length, NULL);
		if (found == NULL && projection->raw)
			continue;
		if (found == NULL && property->required)
			return refuse(projection, "required field \"%s\" is missing",
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
			fencing_root_value(property->schema->default_value, &fallback);
			(void) pushJsonbValue(&projection->state, WJB_VALUE, &fallback);
		}
		else if (!project(projection, property->schema, &inner, found, WJB_VALUE))
			return false;
	}
	projection->root = pushJsonbValue(&projection->state, WJB_END_OBJECT, NULL);
	return true;
}

/* No field is left out silently. */
static bool
check_field(Projection *projection, const RequestSchema *schema, const Others *others,
			const JsonbValue *key, JsonbValue *value)
{
	const char *name = key->val.string.val;
	int			length = key->val.string.len;
	const RequestProperty *property = fencing_find_property(schema, name, length);
	const RequestSchema *shown = shown_at_property(others->shown, name, length);

	if (property != NULL && !property->schema->ignore)
		return true;
	if (property == NULL && !schema->open && !may_leave_out(others->later, key, value))
		return refuse(projection, "field \"%s\" is not listed in the schema", name, length);
	if (shown != NULL && !is_default(shown, value))
		return refuse(projection, "field \"%s\" was shown to authorize and does not count here",
					  name, length);
	return true;
}

static bool
project_array(Projection *projection, const RequestSchema *schema, const Others *others,
			  JsonbContainer *container)
{
	JsonbIterator *it = JsonbIteratorInit(container);
	JsonbValue	element;
	Others		inner = others_at_items(others);

	(void) pushJsonbValue(&projection->state, WJB_BEGIN_ARRAY, NULL);
	(void) JsonbIteratorNext(&it, &element, true);
	while (JsonbIteratorNext(&it, &element, true) == WJB_ELEM)
	{
		if (schema->items == NULL)
			(void) pushJsonbValue(&projection->state, WJB_ELEM, &element);
		else if (!project(projection, schema->items, &inner, &element, WJB_ELEM))
			return false;
	}
	projection->root = pushJsonbValue(&projection->state, WJB_END_ARRAY, NULL);
	return true;
}

static bool
project_scalar(Projection *projection, const RequestSchema *schema, JsonbValue *value,
			   JsonbIteratorToken token)
{
	JsonbValue *result = (JsonbValue *) palloc(sizeof(JsonbValue));

	*result = *value;
	if (value->type == jbvString && schema->format != FORMAT_NONE && !projection->raw)
	{
		char	   *normalized = fencing_normalize(schema->format, value->val.string.val,
										   value->val.string.len);

		if (normalized == NULL)
			return refuse(projection, "a value does not have the format of its schema", NULL, 0);
		result->val.string.val = normalized;
		result->val.string.len = strlen(normalized);
	}

	if (token == WJB_DONE)
		projection->root = result;
	else
		(void) pushJsonbValue(&projection->state, token, result);
	return true;
}

/* What the others have at a property that ours lists too. */
static Others
others_at_property(const Others *others, const char *name, int length)
{
	Others		result = {NIL, shown_at_property(others->shown, name, length)};
	ListCell   *lc;

	foreach(lc, others->later)
	{
		RequestProperty *property = fencing_find_property((RequestSchema *) lfirst(lc), name,
														  length);

		if (property != NULL)
			result.later = lappend(result.later, property->schema);
	}
	return result;
}

static Others
others_at_items(const Others *others)
{
	Others		result = {NIL, NULL};
	ListCell   *lc;

	foreach(lc, others->later)
	{
		RequestSchema *items = ((RequestSchema *) lfirst(lc))->items;

		if (items != NULL)
			result.later = lappend(result.later, items);
	}
	if (others->shown != NULL)
		result.shown = others->shown->items != NULL ? others->shown->items : &whole;
	return result;
}

/* NULL: it was not shown. */
static const RequestSchema *
shown_at_property(const RequestSchema *shown, const char *name, int length)
{
	const RequestProperty *property;

	if (shown == NULL)
		return NULL;
	if (!shown->whitelist)
		return &whole;
	property = fencing_find_property(shown, name, length);
	return property == NULL || property->schema->ignore ? NULL : property->schema;
}

/*
 * Whether a field that ours does not list may be left out: a later schema lists
 * it, and it has the value that an absent one has there.
 */
static bool
may_leave_out(List *later, const JsonbValue *key, JsonbValue *value)
{
	ListCell   *lc;

	foreach(lc, later)
	{
		RequestProperty *property = fencing_find_property((RequestSchema *) lfirst(lc),
														  key->val.string.val,
														  key->val.string.len);

		if (property != NULL && (property->schema->ignore || is_default(property->schema, value)))
			return true;
	}
	return false;
}

/* Whether the value is the one that an absent field has there. */
static bool
is_default(const RequestSchema *schema, JsonbValue *value)
{
	Jsonb	   *projected;
	char	   *refusal;

	if (schema->default_value == NULL)
		return false;
	projected = fencing_project_request(schema, NIL, NULL, JsonbValueToJsonb(value), &refusal);
	return projected != NULL &&
		compareJsonbContainers(&projected->root, &schema->default_value->root) == 0;
}

static bool
has_kind(const RequestSchema *schema, const JsonbValue *value)
{
	switch (value->type)
	{
		case jbvNull:
			return (schema->kinds & KIND_NULL) != 0;
		case jbvBool:
			return (schema->kinds & KIND_BOOLEAN) != 0;
		case jbvString:
			return (schema->kinds & KIND_STRING) != 0;
		case jbvNumeric:
			if (schema->kinds & KIND_NUMBER)
				return true;
			return (schema->kinds & KIND_INTEGER) != 0 &&
				DatumGetBool(DirectFunctionCall2(numeric_eq,
												 NumericGetDatum(value->val.numeric),
												 DirectFunctionCall1(numeric_floor,
																	 NumericGetDatum(value->val.numeric))));
		default:
			return (schema->kinds & (JsonContainerIsObject(value->val.binary.data) ?
									 KIND_OBJECT : KIND_ARRAY)) != 0;
	}
}

/* Keeps the reason, with the name of a field but never a value. */
static bool
refuse(Projection *projection, const char *message, const char *name, int length)
{
	projection->refusal = name == NULL ? pstrdup(message) :
		psprintf(message, pnstrdup(name, length));
	return false;
}

/* A document as a value; of a scalar its own. */
void
fencing_root_value(Jsonb *document, JsonbValue *value)
{
	if (!JB_ROOT_IS_SCALAR(document) || !JsonbExtractScalar(&document->root, value))
	{
		value->type = jbvBinary;
		value->val.binary.data = &document->root;
		value->val.binary.len = VARSIZE_ANY_EXHDR(document);
	}
}
