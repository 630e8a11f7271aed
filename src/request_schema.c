/*-------------------------------------------------------------------------
 *
 * request_schema.c
 *	  Which part of a request identifies it, as defined: a subset of JSON Schema.
 *
 * A schema is compiled into a tree once per backend and version; by that
 * request_projection.c projects requests.
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

/* deeper than any request, and far from the stack's end */
#define MAX_SCHEMA_DEPTH	64

static RequestSchema *compile(const JsonbValue *definition, int depth);
static void compile_keyword(RequestSchema *schema, const JsonbValue *keyword,
							const JsonbValue *value, int depth);
static void compile_properties(RequestSchema *schema, const JsonbValue *value, int depth);
static void compile_required(RequestSchema *schema, const JsonbValue *value);
static void add_type(RequestSchema *schema, const JsonbValue *value);
static void refuse_ignore(const RequestSchema *schema);
static bool keyword_is(const JsonbValue *keyword, const char *name);
static void refuse_definition(const JsonbValue *keyword, const char *expected);

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

	fencing_root_value(definition, &value);
	schema = compile(&value, 0);
	refuse_ignore(schema);
	return schema;
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
	else if (keyword_is(keyword, "readOnly"))
		schema->read_only = value->type == jbvBool && value->val.boolean;
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
	schema->properties = (RequestProperty *)
		palloc0(sizeof(RequestProperty) * Max(JsonContainerSize(value->val.binary.data), 1));
	it = JsonbIteratorInit(value->val.binary.data);
	(void) JsonbIteratorNext(&it, &name, true);
	while (JsonbIteratorNext(&it, &name, true) == WJB_KEY)
	{
		RequestProperty *property = &schema->properties[schema->nproperties++];

		(void) JsonbIteratorNext(&it, &definition, true);
		property->name = pnstrdup(name.val.string.val, name.val.string.len);
		property->length = name.val.string.len;
		property->schema = compile(&definition, depth + 1);
	}
}

/*
 * What is left out of the hash is not asked for, nor what OpenAPI 3.0 requires of
 * responses only.
 */
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
		RequestProperty *property = NULL;

		if (name.type == jbvString)
			property = fencing_find_property(schema, name.val.string.val, name.val.string.len);
		if (property == NULL && !(schema->open && name.type == jbvString))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("required in request_schema names a property that is not listed")));
		if (property != NULL)
			property->required = !property->schema->read_only;
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

RequestProperty *
fencing_find_property(const RequestSchema *schema, const char *name, int length)
{
	for (int i = 0; i < schema->nproperties; i++)
	{
		RequestProperty *property = &schema->properties[i];

		if (property->length == length && memcmp(property->name, name, length) == 0)
			return property;
	}
	return NULL;
}
