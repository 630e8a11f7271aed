/*-------------------------------------------------------------------------
 *
 * request_schema.c
 *	  Which part of a request identifies it: a subset of JSON Schema.
 *
 * A schema is compiled into a tree once per backend and version.  A request is
 * projected by it into the document that is hashed: the listed properties are
 * the whitelist, absent ones take their defaults, some formats are normalized.
 * Nothing here depends on settings of the session.
 *
 * "Later" schemas are those of higher versions of the same operation.  A client
 * that has been upgraded sends fields that only they list; such a field may be
 * left out if it has the value that an absent one would have there.
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

/* kinds of JSON value, as bits; a schema without "type" accepts all */
#define KIND_NULL		(1 << 0)
#define KIND_BOOLEAN	(1 << 1)
#define KIND_INTEGER	(1 << 2)	/* a number without fraction */
#define KIND_NUMBER		(1 << 3)
#define KIND_STRING		(1 << 4)
#define KIND_ARRAY		(1 << 5)
#define KIND_OBJECT		(1 << 6)
#define KIND_ANY		0x7F

/* deeper than any request, and far from the stack's end */
#define MAX_SCHEMA_DEPTH	64

typedef struct Property
{
	const char *name;
	int			length;
	bool		required;
	struct RequestSchema *schema;
} Property;

struct RequestSchema
{
	int			kinds;
	RequestFormat format;
	bool		ignore;			/* left out of the hash */
	bool		exact;			/* no format */
	bool		whitelist;		/* of an object only the properties count */
	bool		open;			/* additionalProperties: others are left out */
	Property   *properties;
	int			nproperties;
	RequestSchema *items;		/* NULL: anything, as it is */
	Jsonb	   *default_value;	/* projected; NULL: none */
};

/* One projection. */
typedef struct Projection
{
	JsonbParseState *state;
	JsonbValue *root;			/* the finished array or object */
	bool		raw;			/* only leave out: no check, default or format */
	char	   *refusal;
} Projection;

static RequestSchema *compile(const JsonbValue *definition, int depth);
static void compile_keyword(RequestSchema *schema, const JsonbValue *keyword,
							const JsonbValue *value, int depth);
static void compile_properties(RequestSchema *schema, const JsonbValue *value, int depth);
static void compile_required(RequestSchema *schema, const JsonbValue *value);
static void add_type(RequestSchema *schema, const JsonbValue *value);
static void refuse_ignore(const RequestSchema *schema);
static bool keyword_is(const JsonbValue *keyword, const char *name);
static void refuse_definition(const JsonbValue *keyword, const char *expected);
static Property *find_property(const RequestSchema *schema, const char *name, int length);
static List *later_properties(List *later, const char *name, int length);
static Jsonb *run_projection(Projection *projection, const RequestSchema *schema, List *later,
							 Jsonb *request);
static bool project(Projection *projection, const RequestSchema *schema, List *later,
					JsonbValue *value, JsonbIteratorToken token);
static bool project_object(Projection *projection, const RequestSchema *schema, List *later,
						   JsonbContainer *container);
static bool project_array(Projection *projection, const RequestSchema *schema, List *later,
						  JsonbContainer *container);
static bool project_scalar(Projection *projection, const RequestSchema *schema,
						   JsonbValue *value, JsonbIteratorToken token);
static bool may_leave_out(List *later, const JsonbValue *key, JsonbValue *value);
static bool has_kind(const RequestSchema *schema, const JsonbValue *value);
static bool refuse(Projection *projection, const char *message, const char *name, int length);
static void root_value(Jsonb *document, JsonbValue *value);

/*
 * Keywords that describe the shape in a way this subset cannot follow.  All
 * others that it does not know are annotations.
 */
static const char *const unsupported_keywords[] = {
	"$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not",
	"if", "then", "else", "patternProperties", "unevaluatedProperties",
	"unevaluatedItems", "prefixItems", "additionalItems", "dependencies",
	"dependentSchemas"
};

static const struct
{
	const char *name;
	int			kinds;
}			type_names[] = {
	{"null", KIND_NULL},
	{"boolean", KIND_BOOLEAN},
	{"integer", KIND_INTEGER},
	{"number", KIND_NUMBER | KIND_INTEGER},
	{"string", KIND_STRING},
	{"array", KIND_ARRAY},
	{"object", KIND_OBJECT}
};

/*
 * Compiles a schema in the current memory context.  Raises 0A000 for a keyword
 * that is not supported, 22023 for one that is used in a wrong way, 54000 if it
 * is nested too deep.
 */
RequestSchema *
fencing_compile_schema(Jsonb *definition)
{
	JsonbValue	value;
	RequestSchema *schema;

	root_value(definition, &value);
	schema = compile(&value, 0);
	refuse_ignore(schema);
	return schema;
}

/*
 * The document that identifies the request.  NULL if the schema refuses it; then
 * refusal says why, naming no value.
 */
Jsonb *
fencing_project_request(const RequestSchema *schema, List *later, Jsonb *request,
						char **refusal)
{
	Projection	projection = {0};
	Jsonb	   *result = run_projection(&projection, schema, later, request);

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

	return run_projection(&projection, schema, NIL, request);
}

static Jsonb *
run_projection(Projection *projection, const RequestSchema *schema, List *later, Jsonb *request)
{
	JsonbValue	value;

	root_value(request, &value);
	if (!project(projection, schema, later, &value, WJB_DONE))
		return NULL;
	return JsonbValueToJsonb(projection->root);
}

static RequestSchema *
compile(const JsonbValue *definition, int depth)
{
	RequestSchema *schema = (RequestSchema *) palloc0(sizeof(RequestSchema));
	JsonbIterator *it;
	JsonbValue	keyword;
	JsonbValue	value;
	JsonbValue *found;
	bool		nullable = false;

	if (depth > MAX_SCHEMA_DEPTH)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("request_schema is nested too deep"),
				 errdetail("The limit is %d schemas in each other.", MAX_SCHEMA_DEPTH)));

	/* "true" accepts anything */
	if (definition->type == jbvBool && definition->val.boolean)
	{
		schema->kinds = KIND_ANY;
		return schema;
	}
	if (definition->type != jbvBinary || !JsonContainerIsObject(definition->val.binary.data))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("request_schema must be an object, and so must every schema in it")));

	it = JsonbIteratorInit(definition->val.binary.data);
	(void) JsonbIteratorNext(&it, &keyword, true);
	while (JsonbIteratorNext(&it, &keyword, true) == WJB_KEY)
	{
		(void) JsonbIteratorNext(&it, &value, true);
		if (keyword_is(&keyword, "nullable"))
		{
			if (value.type != jbvBool)
				refuse_definition(&keyword, "true or false");
			nullable = value.val.boolean;
		}
		else
			compile_keyword(schema, &keyword, &value, depth);
	}

	if (schema->kinds == 0)
		schema->kinds = KIND_ANY;
	else
	{
		schema->whitelist = schema->whitelist || (schema->kinds & KIND_OBJECT) != 0;
		if (nullable)			/* as OpenAPI 3.0 has it */
			schema->kinds |= KIND_NULL;
	}

	/* these refer to what stands beside them, the default to all of it */
	found = getKeyJsonValueFromContainer(definition->val.binary.data, "required", 8, NULL);
	if (found != NULL)
		compile_required(schema, found);
	found = getKeyJsonValueFromContainer(definition->val.binary.data, "default", 7, NULL);
	if (found != NULL)
	{
		char	   *refusal;

		schema->default_value = fencing_project_request(schema, NIL, JsonbValueToJsonb(found),
														&refusal);
		if (schema->default_value == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("a default in request_schema does not match its own schema"),
					 errdetail("In the default %s.", refusal)));
	}
	return schema;
}

/* All keywords but nullable, required and default. */
static void
compile_keyword(RequestSchema *schema, const JsonbValue *keyword, const JsonbValue *value,
				int depth)
{
	if (keyword_is(keyword, "type"))
	{
		if (value->type == jbvBinary && JsonContainerIsArray(value->val.binary.data))
		{
			JsonbIterator *it = JsonbIteratorInit(value->val.binary.data);
			JsonbValue	name;

			(void) JsonbIteratorNext(&it, &name, true);
			while (JsonbIteratorNext(&it, &name, true) == WJB_ELEM)
				add_type(schema, &name);
			if (schema->kinds == 0)
				refuse_definition(keyword, "a type, or an array of types");
		}
		else
			add_type(schema, value);
	}
	else if (keyword_is(keyword, "properties"))
		compile_properties(schema, value, depth);
	else if (keyword_is(keyword, "additionalProperties"))
	{
		if (value->type != jbvBool && value->type != jbvBinary)
			refuse_definition(keyword, "true or false");
		if (value->type == jbvBinary)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("additionalProperties in request_schema must be true or false"),
					 errhint("A property with schema {} takes any value whole into the hash.")));
		schema->open = value->val.boolean;
		schema->whitelist = true;
	}
	else if (keyword_is(keyword, "items"))
	{
		if (value->type == jbvBinary && JsonContainerIsArray(value->val.binary.data))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("an array of schemas in items is not supported in request_schema")));
		schema->items = compile(value, depth + 1);
		refuse_ignore(schema->items);
	}
	else if (keyword_is(keyword, "format"))
	{
		if (value->type != jbvString)
			refuse_definition(keyword, "a string");
		if (schema->exact)
			return;
		if (keyword_is(value, "date-time"))
			schema->format = FORMAT_DATE_TIME;
		else if (keyword_is(value, "date"))
			schema->format = FORMAT_DATE;
		else if (keyword_is(value, "uuid"))
			schema->format = FORMAT_UUID;
	}
	else if (keyword_is(keyword, "x-fencing"))
	{
		if (value->type == jbvString && keyword_is(value, "exact"))
		{
			schema->exact = true;
			schema->format = FORMAT_NONE;
		}
		else if (value->type == jbvString && keyword_is(value, "ignore"))
			schema->ignore = true;
		else
			refuse_definition(keyword, "\"exact\" or \"ignore\"");
	}
	else
	{
		for (size_t i = 0; i < lengthof(unsupported_keywords); i++)
		{
			if (keyword_is(keyword, unsupported_keywords[i]))
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("keyword \"%s\" is not supported in request_schema",
								unsupported_keywords[i]),
						 errhint("Write out the properties that identify the request.")));
		}
	}
}

static void
compile_properties(RequestSchema *schema, const JsonbValue *value, int depth)
{
	JsonbIterator *it;
	JsonbValue	name;
	JsonbValue	definition;

	if (value->type != jbvBinary || !JsonContainerIsObject(value->val.binary.data))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("properties in request_schema must be an object")));

	schema->whitelist = true;
	schema->properties = (Property *)
		palloc0(sizeof(Property) * Max(JsonContainerSize(value->val.binary.data), 1));
	it = JsonbIteratorInit(value->val.binary.data);
	(void) JsonbIteratorNext(&it, &name, true);
	while (JsonbIteratorNext(&it, &name, true) == WJB_KEY)
	{
		Property   *property = &schema->properties[schema->nproperties++];

		(void) JsonbIteratorNext(&it, &definition, true);
		property->name = pnstrdup(name.val.string.val, name.val.string.len);
		property->length = name.val.string.len;
		property->schema = compile(&definition, depth + 1);
	}
}

/* A property that is required and not listed could never be there. */
static void
compile_required(RequestSchema *schema, const JsonbValue *value)
{
	JsonbIterator *it;
	JsonbValue	name;

	if (value->type != jbvBinary || !JsonContainerIsArray(value->val.binary.data))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("required in request_schema must be an array of property names")));

	it = JsonbIteratorInit(value->val.binary.data);
	(void) JsonbIteratorNext(&it, &name, true);
	while (JsonbIteratorNext(&it, &name, true) == WJB_ELEM)
	{
		Property   *property = NULL;

		if (name.type == jbvString)
			property = find_property(schema, name.val.string.val, name.val.string.len);
		if (property == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("required in request_schema names a property that is not listed")));
		property->required = true;
	}
}

static void
add_type(RequestSchema *schema, const JsonbValue *value)
{
	if (value->type == jbvString)
	{
		for (size_t i = 0; i < lengthof(type_names); i++)
		{
			if (keyword_is(value, type_names[i].name))
			{
				schema->kinds |= type_names[i].kinds;
				return;
			}
		}
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("type in request_schema is not a type of JSON Schema")));
}

/* Only a field of an object can be left out. */
static void
refuse_ignore(const RequestSchema *schema)
{
	if (schema->ignore)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"x-fencing\": \"ignore\" in request_schema must belong to a property")));
}

static bool
keyword_is(const JsonbValue *keyword, const char *name)
{
	return keyword->val.string.len == (int) strlen(name) &&
		memcmp(keyword->val.string.val, name, keyword->val.string.len) == 0;
}

static void
refuse_definition(const JsonbValue *keyword, const char *expected)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("%s in request_schema must be %s",
					pnstrdup(keyword->val.string.val, keyword->val.string.len), expected)));
}

static Property *
find_property(const RequestSchema *schema, const char *name, int length)
{
	for (int i = 0; i < schema->nproperties; i++)
	{
		Property   *property = &schema->properties[i];

		if (property->length == length && memcmp(property->name, name, length) == 0)
			return property;
	}
	return NULL;
}

/* What later schemas have at a property that ours lists too. */
static List *
later_properties(List *later, const char *name, int length)
{
	List	   *result = NIL;
	ListCell   *lc;

	foreach(lc, later)
	{
		Property   *property = find_property((RequestSchema *) lfirst(lc), name, length);

		if (property != NULL)
			result = lappend(result, property->schema);
	}
	return result;
}

/*
 * Appends the projection of a value to the document being built, as token says:
 * WJB_VALUE, WJB_ELEM, or WJB_DONE for the root.  False if it is refused.
 */
static bool
project(Projection *projection, const RequestSchema *schema, List *later,
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
		return project_object(projection, schema, later, container);
	if (JsonContainerIsArray(container) && (schema->items != NULL || token == WJB_DONE))
		return project_array(projection, schema, later, container);
	if (token == WJB_DONE)
		projection->root = value;	/* whole, as it is */
	else
		(void) pushJsonbValue(&projection->state, token, value);
	return true;
}

static bool
project_object(Projection *projection, const RequestSchema *schema, List *later,
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
			find_property(schema, key.val.string.val, key.val.string.len) == NULL &&
			!may_leave_out(later, &key, &value))
			return refuse(projection, "field \"%s\" is not listed in the schema",
						  key.val.string.val, key.val.string.len);
	}

	(void) pushJsonbValue(&projection->state, WJB_BEGIN_OBJECT, NULL);
	for (int i = 0; i < schema->nproperties; i++)
	{
		const Property *property = &schema->properties[i];
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
			root_value(property->schema->default_value, &fallback);
			(void) pushJsonbValue(&projection->state, WJB_VALUE, &fallback);
		}
		else if (!project(projection, property->schema,
						  later_properties(later, property->name, property->length),
						  found, WJB_VALUE))
			return false;
	}
	projection->root = pushJsonbValue(&projection->state, WJB_END_OBJECT, NULL);
	return true;
}

static bool
project_array(Projection *projection, const RequestSchema *schema, List *later,
			  JsonbContainer *container)
{
	JsonbIterator *it = JsonbIteratorInit(container);
	JsonbValue	element;
	List	   *later_items = NIL;
	ListCell   *lc;

	foreach(lc, later)
	{
		RequestSchema *items = ((RequestSchema *) lfirst(lc))->items;

		if (items != NULL)
			later_items = lappend(later_items, items);
	}

	(void) pushJsonbValue(&projection->state, WJB_BEGIN_ARRAY, NULL);
	(void) JsonbIteratorNext(&it, &element, true);
	while (JsonbIteratorNext(&it, &element, true) == WJB_ELEM)
	{
		if (schema->items == NULL)
			(void) pushJsonbValue(&projection->state, WJB_ELEM, &element);
		else if (!project(projection, schema->items, later_items, &element, WJB_ELEM))
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
		Property   *property = find_property((RequestSchema *) lfirst(lc),
											 key->val.string.val, key->val.string.len);
		Jsonb	   *projected;
		char	   *refusal;

		if (property == NULL)
			continue;
		if (property->schema->ignore)
			return true;
		if (property->schema->default_value == NULL)
			continue;
		projected = fencing_project_request(property->schema, NIL, JsonbValueToJsonb(value),
											&refusal);
		if (projected != NULL &&
			compareJsonbContainers(&projected->root, &property->schema->default_value->root) == 0)
			return true;
	}
	return false;
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
static void
root_value(Jsonb *document, JsonbValue *value)
{
	if (!JB_ROOT_IS_SCALAR(document) || !JsonbExtractScalar(&document->root, value))
	{
		value->type = jbvBinary;
		value->val.binary.data = &document->root;
		value->val.binary.len = VARSIZE_ANY_EXHDR(document);
	}
}
