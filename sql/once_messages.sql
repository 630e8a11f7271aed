--
-- What a mistake is told: each message as the person sees it who made the mistake.
-- It names the thing, what was expected and what was found; of a request the
-- field and the type, never a value.
--
SET client_min_messages = warning;
CREATE SCHEMA regress_messages;
SET search_path = regress_messages, public;
CREATE FUNCTION may(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS boolean LANGUAGE sql STABLE AS 'SELECT true';
SELECT fencing_define_operation('messages/pay', 'may(text,text,jsonb,jsonb)');
SELECT fencing_define_request('messages/pay', 1, '{"type": "object", "required": ["amount"], "properties": {
	"amount": {"type": "number"}, "count": {"type": "integer"}, "due": {"type": "string", "format": "date-time"}, "day": {"type": ["string", "null"], "format": "date"}, "to": {"type": "string", "format": "uuid"}, "note": {"type": "string", "nullable": true},
	"items": {"type": "array", "items": {"type": "object", "required": ["sku"], "properties": {"sku": {"type": "string"}, "price": {"type": "number"}, "tags": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}}}}}, "address": {"type": "object", "properties": {"city": {"type": "string"}}}, "any": {}}}');
CREATE FUNCTION told(command text, OUT state text, OUT message text, OUT detail text, OUT hint text) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE command;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
END $$;
\pset format unaligned
\pset fieldsep '\n    '
\pset tuples_only on

--
-- Requests: the field by its path, its type, and what is allowed
--
CREATE FUNCTION requested(request jsonb) RETURNS text LANGUAGE sql AS $$
SELECT concat_ws(E'\n    ', left(replace(request::text, U&'\00E9', 'e'), 100), CASE WHEN message = 'request does not match hash_version 1 of operation "messages/pay"' THEN state ELSE state || ' ' || message END, replace(detail, U&'\00E9', 'e'), hint) FROM told(format('SELECT fencing_once(''t'', ''messages/pay'', ''k'', %L, ''SELECT 1'')', request))
$$;
SELECT requested(request) FROM (VALUES
	(1, '[]'::jsonb), (2, 'null'), (3, '"{\"amount\": 1}"'), (4, '7'), (5, '{}'), (6, '{"amount": null}'), (7, '{"amount": "S3CR3T"}'), (8, '{"amount": 1, "count": 1.5}'), (9, '{"amount": 1, "count": "1"}'), (10, '{"amount": 1, "count": true}'),
	(11, '{"amount": 1, "due": "S3CR3T"}'), (12, '{"amount": 1, "due": 1767225600}'), (13, '{"amount": 1, "day": "2026-02-30"}'), (14, '{"amount": 1, "day": 20260101}'), (15, '{"amount": 1, "to": "S3CR3T"}'), (16, '{"amount": 1, "note": 1}'), (17, '{"amount": 1, "ammount": 1}'), (18, '{"amount": 1, "items": {}}'),
	(19, '{"amount": 1, "items": [{"sku": "a"}, {}]}'), (20, '{"amount": 1, "items": [{"sku": "a"}, {"sku": "b"}, {"sku": "c", "price": "1.50"}]}'), (21, '{"amount": 1, "items": [{"sku": "a", "tags": [[], ["a", "b"], ["c", 7]]}]}'), (22, '{"amount": 1, "items": [{"sku": "a", "Price": 1}]}'), (23, '{"amount": 1, "items": ["a"]}'),
	(24, '{"amount": 1, "address": {"city": {"name": "S3CR3T"}}}'), (25, '{"amount": 1, "address": {"street": "x"}}'), (26, '{"amount": 1, "address": "x"}'), (27, '{"amount": 1, "": 1}'), (28, jsonb_build_object('amount', 1, repeat('x', 100000), 1)), (29, jsonb_build_object('amount', 1, repeat(U&'\00E9', 60), 1)), (30, '{"amount": 1, "any": {"a": [1, {"b": null}]}, "other": 1}')) v (n, request) ORDER BY n;
-- the same of the functions that look into it
SELECT concat_ws(E'\n    ', command, state, message, detail, hint) FROM unnest(ARRAY['SELECT fencing_request_hash(''messages/pay'', 1, ''{"amount": "x"}'')', 'SELECT fencing_request_canonical(''messages/pay'', 1, ''{"amount": 1, "b": 1}'')', 'SELECT fencing_request_hash(''messages/pay'', 2, ''{}'')', 'SELECT fencing_request_hash(''messages/pya'', 1, ''{}'')']) command, told(command);

--
-- Schemas: the keyword by its path
--
CREATE FUNCTION defined(schema jsonb) RETURNS text LANGUAGE sql AS $$
SELECT concat_ws(E'\n    ', left(schema::text, 150), state || ' ' || message, detail, hint) FROM told(format('SELECT fencing_define_request(''messages/pay'', 2, %L)', schema))
$$;
SELECT defined(schema) FROM (VALUES
	(1, '[]'::jsonb), (2, '"{\"type\": \"object\"}"'), (3, 'null'), (4, 'false'), (5, '{"type": "objekt"}'), (6, '{"properties": {"amount": {"type": "decimal"}}}'), (7, '{"properties": {"amount": {"type": ["number", "nil"]}}}'), (8, '{"properties": {"amount": {"type": []}}}'), (9, '{"properties": {"amount": {"type": {"number": true}}}}'), (10, '{"type": null}'),
	(11, '{"properties": ["amount"]}'), (12, '{"properties": {"amount": "number"}}'), (13, '{"properties": {"amount": false}}'), (14, '{"properties": {"a": {"properties": {"b": {"items": {"properties": {"c": 1}}}}}}}'), (15, '{"properties": {"amount": {}}, "required": ["amount", "to"]}'), (16, '{"properties": {"amount": {"required": true}}}'), (17, '{"required": "amount"}'), (18, '{"properties": {"a": {}}, "required": [["a"]]}'),
	(19, '{"additionalProperties": "yes"}'), (20, '{"properties": {"map": {"additionalProperties": {"type": "string"}}}}'), (21, '{"properties": {"list": {"items": [{"type": "string"}]}}}'), (22, '{"properties": {"list": {"items": "string"}}}'), (23, '{"properties": {"pay": {"oneOf": [{}, {}]}}}'), (24, '{"properties": {"pay": {"$ref": "#/definitions/pay"}}}'),
	(25, '{"properties": {"due": {"format": ["date"]}}}'), (26, '{"properties": {"note": {"nullable": "true"}}}'), (27, '{"properties": {"id": {"readOnly": 1}}}'), (28, '{"properties": {"trace": {"x-fencing": "ignored"}}}'), (29, '{"properties": {"trace": {"x-fencing": true}}}'), (30, '{"x-fencing": "ignore"}'), (31, '{"properties": {"l": {"items": {"x-fencing": "ignore"}}}}'),
	(32, '{"properties": {"currency": {"type": "string", "default": 978}}}'), (33, '{"properties": {"o": {"type": "object", "default": {"b": 1}, "properties": {"a": {}}}}}'), (34, '{"properties": {"day": {"type": "string", "format": "date", "default": "today"}}}'), (35, '{"properties": {"l": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}, "default": [{"n": 1}, {"n": 1.5}]}}}'),
	(36, jsonb_build_object('type', repeat('x', 1000))), (37, (repeat('{"items":', 70) || '{}' || repeat('}', 70))::jsonb), (38, '{"items": {"type": "strnig"}}')) v (n, schema) ORDER BY n;
SELECT fencing_define_request('messages/pay', 3, '{"properties": {"a": {}}}');
SELECT concat_ws(E'\n    ', command, state, message, detail, hint) FROM unnest(ARRAY['SELECT fencing_define_request(''messages/pay'', 3, ''{}'')', 'SELECT fencing_define_request(''messages/pya'', 1, ''{}'')', 'SELECT fencing_define_request(''messages/pay'', 0, ''{}'')', 'SELECT fencing_define_request(''messages/pay'', 1, NULL)', 'SELECT fencing_retire_request(''messages/pay'', 9)', 'SELECT fencing_retire_request(''messages/pya'', 1)']) command, told(command);

--
-- Keywords that have no effect: accepted, and a NOTICE names them
--
SET client_min_messages = notice;
SELECT fencing_define_request('messages/pay', 4, '{"title": "Payment", "description": "POST /payments", "type": "object", "minProperties": 1, "$schema": "https://json-schema.org/draft/2020-12/schema", "x-internal": true, "properties": {
	"amount": {"type": "number", "minimum": 0, "exclusiveMaximum": 1000000, "description": "how much", "example": 4.5}, "currency": {"type": "string", "enum": ["EUR"], "maxLength": 3, "pattern": "^[A-Z]"}, "mail": {"type": "string", "format": "email"}, "count": {"type": "integer", "format": "int32"},
	"lines": {"type": "array", "minItems": 1, "items": {"type": "object", "properties": {"sku": {"const": "a", "deprecated": true}}}}, "due": {"type": "string", "format": "date-time"}}}');
-- also those that are not known; and again where the definition is there already
SELECT fencing_define_request('messages/pay', 5, '{"type": "object", "requird": ["amount"], "properties": {"amount": {"type": "number", "minimun": 0, "defualt": 0}}}');
SELECT fencing_define_request('messages/pay', 5, '{"type": "object", "requird": ["amount"], "properties": {"amount": {"type": "number", "minimun": 0, "defualt": 0}}}');
SELECT fencing_define_request('messages/pay', 6, '{"propertys": {"amount": {}}, "maximum": 1}');
-- what data has in it is no keyword; a refusal has no NOTICE; a call has none
SELECT fencing_define_request('messages/pay', 7, '{"properties": {"minimum": {"default": {"pattern": "x"}, "examples": [{"enum": 1}]}, "propertys": true}, "definitions": {"a": {"maximum": 1}}}');
SELECT fencing_define_request('messages/pay', 8, '{"properties": {"a": {"minimum": 1, "type": "nmuber"}}}');
SELECT outcome, hash_version FROM fencing_once('t', 'messages/pay', 'notice', '{}', 'SELECT 1');
-- they are not enforced
SELECT fencing_request_canonical('messages/pay', 4, '{"amount": -1, "currency": "dollar", "mail": "nobody", "lines": []}');
SET client_min_messages = warning;

--
-- Operations
--
CREATE FUNCTION few(tenant_id text, operation text, request jsonb) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION json_one(tenant_id text, operation text, request json, auth json) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION words(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS text LANGUAGE sql AS 'SELECT ''yes''';
CREATE FUNCTION many(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS SETOF boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION pinned(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS boolean LANGUAGE sql SET search_path = regress_messages AS 'SELECT true';
CREATE PROCEDURE proceed(tenant_id text, operation text, request jsonb, auth jsonb) LANGUAGE sql AS '';
CREATE FUNCTION pg_temp.fleeting(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS boolean LANGUAGE sql AS 'SELECT true';
SELECT concat_ws(E'\n    ', command, state, regexp_replace(message, 'pg_temp_\d+', 'pg_temp_N'), detail, hint) FROM unnest(ARRAY['''few(text,text,jsonb)''', '''json_one(text,text,json,json)''', '''words(text,text,jsonb,jsonb)''', '''many(text,text,jsonb,jsonb)''', '''pinned(text,text,jsonb,jsonb)''', '''proceed(text,text,jsonb,jsonb)''', '''pg_temp.fleeting(text,text,jsonb,jsonb)''', '''may''', '''mya(text,text,jsonb,jsonb)''', '0', 'NULL',
	'''may(text,text,jsonb,jsonb)'', ''0''', '''may(text,text,jsonb,jsonb)'', ''-1 day''', '''may(text,text,jsonb,jsonb)'', NULL', '''may(text,text,jsonb,jsonb)'', ''1 year'', ''365 days''', '''may(text,text,jsonb,jsonb)'', ''100 days''', '''may(text,text,jsonb,jsonb)'', ''-1 mon 40 days''', '''may(text,text,jsonb,jsonb)'', forget_after => ''1 mon -31 days''']) WITH ORDINALITY u (command, n), told('SELECT fencing_define_operation(''messages/x'', ' || command || ')') ORDER BY n;

--
-- Calls
--
SELECT fencing_define_operation('messages/bare', 'may(text,text,jsonb,jsonb)'), fencing_define_operation('messages/over', 'may(text,text,jsonb,jsonb)'), fencing_define_request('messages/over', 1, '{}'), fencing_retire_request('messages/over', 1);
SELECT concat_ws(E'\n    ', command, state, message, detail, hint) FROM unnest(ARRAY['fencing_once(''t'', ''messages/pya'', ''k'', ''{}'')', 'fencing_once(''t'', ''messages/bare'', ''k'', ''{}'')', 'fencing_once(''t'', ''messages/over'', ''k'', ''{}'', ''SELECT 1'')', 'fencing_once(''t'', ''messages/pay'', NULL, ''{}'')', 'fencing_once(''t'', ''messages/pay'', '''', ''{}'')', 'fencing_once(''t'', ''messages/pay'', repeat(''k'', 513), ''{}'')',
	'fencing_once(''t'', ''messages/pay'', ''k'', ''{}'', wait => NULL)', 'fencing_once(''t'', ''messages/pay'', ''k'', ''{}'', strict => true, report_errors => true)', 'fencing_once(''t'', ''messages/pay'', ''k'', ''{}'', ''INSERT INTO nowhere VALUES (1)'')', 'fencing_once_respond(''t'', ''messages/pay'', ''typo'', ''1'')', 'fencing_once_respond(''t'', ''messages/pay'', ''k'', NULL)', 'fencing_once_respond(''t'', ''messages/pay'', ''notice'', ''1'')']) WITH ORDINALITY u (command, n), told('SELECT ' || command) ORDER BY n;
BEGIN;
SELECT outcome FROM fencing_once('t', 'messages/pay', 'forgotten', '{}');
SELECT concat_ws(E'\n    ', state, message, detail, hint) FROM told('SELECT fencing_once(''t'', ''messages/pay'', ''forgotten'', ''{}'')');
COMMIT;

\pset tuples_only off
\pset format aligned
DELETE FROM fencing.records WHERE operation LIKE 'messages/%';
DELETE FROM fencing.request_schemas WHERE operation LIKE 'messages/%';
DELETE FROM fencing.operations WHERE operation LIKE 'messages/%';
DROP SCHEMA regress_messages CASCADE;
