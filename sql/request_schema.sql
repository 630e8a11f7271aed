--
-- Request schemas: what of a request identifies it.  The canonical texts and
-- hashes of the operations below were made outside of the server, by hand and
-- by another program, from the rules alone.  They are for ever.
--
\set VERBOSITY sqlstate
SET client_min_messages = warning;
CREATE SCHEMA regress_request_schema;
SET search_path = regress_request_schema, public;

CREATE FUNCTION yes(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS boolean LANGUAGE sql STABLE AS 'SELECT true';
CREATE FUNCTION operation(name text) RETURNS text LANGUAGE sql AS
$$ SELECT 'schema/' || name FROM fencing_define_operation('schema/' || name, 'yes(text,text,jsonb,jsonb)') $$;
SELECT operation(o) FROM unnest('{try,order,payment,refund,subscription,upload}'::text[]) o;
CREATE SEQUENCE version;

-- 'defined', or why not.  Each under a version of its own.
CREATE FUNCTION define(schema jsonb) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fencing_define_request('schema/try', nextval('version')::int, schema);
	RETURN 'defined';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
-- what is left of a request, or the SQLSTATE
CREATE FUNCTION canonical(version int, request jsonb, operation text DEFAULT 'schema/try') RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	RETURN fencing_request_canonical(operation, version, request);
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
-- both: a schema, and requests one after another
CREATE FUNCTION project(schema jsonb, VARIADIC requests text[], OUT request text, OUT canonical text) RETURNS SETOF record LANGUAGE plpgsql AS $$
DECLARE
	v int := nextval('version');
BEGIN
	PERFORM fencing_define_request('schema/try', v, schema);
	FOREACH request IN ARRAY requests LOOP
		canonical := canonical(v, request::jsonb);
		RETURN NEXT;
	END LOOP;
EXCEPTION WHEN OTHERS THEN
	request := 'define';
	canonical := SQLSTATE;
	RETURN NEXT;
END $$;
-- nothing but ASCII, so that the output is the same in every encoding
CREATE FUNCTION plain(t text) RETURNS text LANGUAGE sql AS $$
SELECT string_agg(CASE WHEN ascii(c) < 128 THEN c ELSE '<' || to_hex(ascii(c)) || '>' END, '' ORDER BY n) FROM regexp_split_to_table(t, '') WITH ORDINALITY u (c, n)
$$;

--
-- Operations as an API has them
--
SELECT fencing_define_request('schema/order', 1, '{
	"title": "NewOrder", "description": "POST /orders", "type": "object", "required": ["customer_id", "items"],
	"properties": {
		"customer_id": {"type": "string", "format": "uuid", "description": "who buys"},
		"currency": {"type": "string", "default": "EUR", "enum": ["EUR", "USD"], "minLength": 3, "maxLength": 3},
		"items": {"type": "array", "minItems": 1, "items": {"type": "object", "required": ["sku", "quantity"], "properties": {
			"sku": {"type": "string", "pattern": "^[A-Z]"},
			"quantity": {"type": "integer", "format": "int32", "minimum": 1},
			"unit_price": {"type": "number", "format": "double", "example": 4.5},
			"options": {"type": "object", "properties": {
				"gift": {"type": "boolean", "default": false},
				"note": {"type": "string", "nullable": true}}}}}},
		"shipping": {"type": "object", "default": {}, "properties": {
			"method": {"type": "string", "default": "standard"},
			"address": {"type": "object", "required": ["country"], "properties": {
				"country": {"type": "string"}, "city": {"type": "string"}, "lines": {"type": "array", "items": {"type": "string"}}}}}},
		"requested_at": {"type": "string", "format": "date-time"},
		"trace": {"x-fencing": "ignore", "description": "differs from attempt to attempt"}}}');
SELECT fencing_define_request('schema/payment', 1, '{
	"type": "object", "required": ["amount", "source"], "additionalProperties": true,
	"properties": {
		"amount": {"type": "object", "additionalProperties": false, "required": ["value", "currency"], "properties": {
			"value": {"type": "number", "exclusiveMinimum": 0}, "currency": {"type": "string"}}},
		"source": {"type": "object", "properties": {"type": {"type": "string"}, "token": {"type": "string", "writeOnly": true}}},
		"capture": {"type": "boolean", "default": true},
		"metadata": {},
		"statement_descriptor": {"type": "string", "maxLength": 22}}}');
SELECT fencing_define_request('schema/refund', 1, '{
	"type": "object", "required": ["payment_id"],
	"properties": {
		"payment_id": {"type": "string"},
		"amount": {"type": "number"},
		"reason": {"type": ["string", "null"]},
		"lines": {"type": "array", "uniqueItems": true, "items": {"type": "object", "properties": {
			"line": {"type": "integer"},
			"tax": {"type": "object", "default": {}, "properties": {
				"rate": {"type": "number", "default": 0}, "code": {"type": "string", "default": "none"}}}}}},
		"notify": {"type": "array", "items": {"type": "string", "format": "email"}}}}');
SELECT fencing_define_request('schema/subscription', 1, '{
	"type": "object", "required": ["plan"],
	"properties": {
		"plan": {"type": "string"},
		"quantity": {"type": "integer", "default": 1},
		"start_at": {"type": "string", "format": "date-time"},
		"trial_end": {"type": "string", "format": "date"},
		"addons": {"type": "array", "default": [], "items": {"type": "string"}},
		"billing": {"type": "object", "properties": {
			"collection": {"type": "string", "default": "automatic"}, "anchor": {"type": "string", "format": "date"}}},
		"cancel_at": {"type": "string", "format": "date-time", "nullable": true}}}');
SELECT fencing_define_request('schema/upload', 1, '{
	"type": "object", "required": ["name", "size"],
	"properties": {
		"name": {"type": "string"},
		"size": {"type": "integer", "format": "int64"},
		"content_type": {"type": "string", "default": "application/octet-stream"},
		"checksums": {"type": "object", "properties": {"sha256": {"type": "string"}, "etag": {"type": "string"}}},
		"regions": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
		"upload_id": {"type": "string", "format": "uuid", "x-fencing": "exact"},
		"expires_on": {"type": "string", "format": "date"},
		"client": {"type": "object", "x-fencing": "ignore", "properties": {"version": {"type": "string"}}},
		"labels": {"type": "object", "additionalProperties": true, "properties": {}, "x-fencing": "ignore"}}}');

-- as it is sent the first time, and by a retry that spells it otherwise
CREATE TABLE golden (operation text, request jsonb, retry jsonb, hash text);
INSERT INTO golden VALUES
('order', '{"customer_id": "0b6f5a2c-9e1d-4c3b-8a7f-1234567890ab", "trace": "t-1",
	"items": [{"sku": "A-1", "quantity": 2, "unit_price": 4.5, "options": {"gift": false, "note": null}}, {"sku": "B/2", "quantity": 1, "unit_price": 0.1}],
	"shipping": {"address": {"country": "DE", "city": "K\u00f6ln", "lines": ["Domkloster 4"]}}, "requested_at": "2026-03-29T02:30:00.25+02:00"}',
 '{"shipping": {"method": "standard", "address": {"lines": ["Domkloster 4"], "city": "K\u00f6ln", "country": "DE"}}, "trace": {"attempt": 2}, "currency": "EUR",
	"requested_at": "2026-03-28t19:30:00.250000-05:00", "customer_id": "0B6F5A2C-9E1D-4C3B-8A7F-1234567890AB",
	"items": [{"options": {"note": null}, "quantity": 2.0, "unit_price": 4.500, "sku": "A-1"}, {"quantity": 1e0, "sku": "B\/2", "unit_price": 1e-1}]}',
 '4238368eb4b3cb4d65d1201592c773365d46c936ec1cba81845383c514682992'),
('payment', '{"amount": {"value": 1234567890123456789.01, "currency": "JPY"}, "source": {"type": "card", "token": "tok_1"},
	"metadata": {"z": [1, {"b": 1e-7, "a": null}], "\ud83d\ude00": "x", "\ufb33": 1}, "statement_descriptor": "A\"B\\C\nD/E\u001f"}',
 '{"capture": true, "unheard": "of", "source": {"token": "tok_1", "type": "card"}, "amount": {"currency": "JPY", "value": 1.23456789012345678901e18},
	"statement_descriptor": "A\u0022B\u005cC\u000aD\/E\u001F", "metadata": {"\ufb33": 1.0, "z": [1.00, {"a": null, "b": 0.00000010}], "\ud83d\ude00": "\u0078"}}',
 '04860495fc98bdc5d6d85c9270df12a77df4e51b40f60a49fce4f9834ef69739'),
('refund', '{"payment_id": "pay_42", "amount": -0.000001, "reason": null, "lines": [{"line": 1, "tax": {"rate": 0.19, "code": "DE"}}, {"line": 2}],
	"notify": ["a@example.org", "b@example.org"]}',
 '{"notify": ["a@example.org", "b@example.org"], "reason": null, "lines": [{"tax": {"code": "DE", "rate": 0.190}, "line": 1.0}, {"line": 2, "tax": {"rate": -0.0}}],
	"amount": -1e-6, "payment_id": "pay_42"}',
 '33e762f66491f5f3271c499bdd9c371e4aa7d9419de1f208773acd3f54a51cd7'),
('subscription', '{"plan": "pro", "start_at": "2026-01-01T00:30:00+01:00", "trial_end": "2026-02-28", "billing": {"anchor": "2026-01-01"}, "cancel_at": null}',
 '{"cancel_at": null, "billing": {"collection": "automatic", "anchor": "2026-01-01"}, "addons": [], "quantity": 10e-1, "plan": "pro", "trial_end": "2026-02-28", "start_at": "2025-12-31T23:30:00.000z"}',
 'e5a0f2d6abfe85d864fb59526084e69c9a8aeb8969b62a2c548b6f83d30ce3b9'),
('upload', '{"name": "\u00dcbersicht 2026.pdf", "size": 9007199254740993, "checksums": {"sha256": "E3B0C4", "etag": "AbC"}, "regions": [["eu", "de"], ["us"]],
	"upload_id": "6F9619FF-8B86-D011-B42D-00C04FC964FF", "expires_on": "2024-02-29", "client": {"version": "1"}}',
 '{"size": 9007199254740993.0, "name": "\u00dcbersicht 2026.pdf", "content_type": "application/octet-stream", "regions": [["eu", "de"], ["us"]], "labels": {"any": ["thing"]},
	"expires_on": "2024-02-29", "upload_id": "6F9619FF-8B86-D011-B42D-00C04FC964FF", "checksums": {"etag": "AbC", "sha256": "E3B0C4"}}',
 '77c754cfea8816974c14cd124fafe61e7021844622208f2b82046d042ed1ecb2');
SELECT operation, plain(fencing_request_canonical('schema/' || operation, 1, request)) AS canonical FROM golden ORDER BY 1;
SELECT operation, encode(fencing_request_hash('schema/' || operation, 1, request), 'hex') = hash AS hash,
	fencing_request_hash('schema/' || operation, 1, request) = sha256(convert_to(fencing_request_canonical('schema/' || operation, 1, request), 'UTF8')) AS of_text,
	encode(fencing_request_hash('schema/' || operation, 1, retry), 'hex') = hash AS retry
FROM golden ORDER BY 1;

-- whatever the session has set
CREATE FUNCTION under(settings text[]) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	s text;
	n bigint;
BEGIN
	FOREACH s IN ARRAY settings LOOP
		PERFORM set_config(split_part(s, '=', 1), split_part(s, '=', 2), true);
	END LOOP;
	SELECT count(*) INTO n FROM regress_request_schema.golden g
	WHERE encode(public.fencing_request_hash('schema/' || g.operation, 1, g.request), 'hex') = g.hash
		AND encode(public.fencing_request_hash('schema/' || g.operation, 1, g.retry), 'hex') = g.hash;
	RETURN n;
END $$;
BEGIN;
SELECT s, under(s) FROM (VALUES
	('{TimeZone=Asia/Kolkata,DateStyle=SQL\, DMY}'::text[]), ('{TimeZone=America/St_Johns,DateStyle=German,IntervalStyle=iso_8601}'),
	('{TimeZone=Europe/Berlin,DateStyle=Postgres\, MDY,extra_float_digits=-15}'), ('{extra_float_digits=3,bytea_output=escape}'),
	('{search_path=}'), ('{search_path=pg_temp\, regress_request_schema\, public\, pg_catalog}'), ('{timezone_abbreviations=India}'),
	('{standard_conforming_strings=off}'), ('{lc_numeric=C,lc_time=C}'), ('{role=none}')) v (s);
ROLLBACK;
-- nor what somebody put in its way
CREATE FUNCTION digest(bytea, text) RETURNS bytea LANGUAGE sql AS $$ SELECT '\x00'::bytea $$;
CREATE FUNCTION differ(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE OPERATOR = (LEFTARG = text, RIGHTARG = text, FUNCTION = differ);
SET search_path = regress_request_schema, pg_catalog, public;
SELECT count(*) FROM golden WHERE pg_catalog.texteq(encode(fencing_request_hash('schema/' || operation, 1, request), 'hex'), hash);
SET search_path = regress_request_schema, public;
DROP OPERATOR regress_request_schema.= (text, text);
DROP FUNCTION differ(text, text), digest(bytea, text);

-- Each change of a field that is listed makes another request; each path is
-- changed in turn, or taken out.
SELECT operation, path, canonical(1, changed, 'schema/' || operation) = canonical(1, request, 'schema/' || operation) AS equal
FROM golden, LATERAL (VALUES
	('order', '{customer_id}', '"0b6f5a2c-9e1d-4c3b-8a7f-1234567890ac"'::jsonb), ('order', '{currency}', '"USD"'), ('order', '{items,0,sku}', '"a-1"'),
	('order', '{items,1,quantity}', '2'), ('order', '{items,0,unit_price}', '4.51'), ('order', '{items,0,options,gift}', 'true'),
	('order', '{items,0,options,note}', '""'), ('order', '{items,1,options}', '{}'), ('order', '{shipping,method}', '"express"'),
	('order', '{shipping,address,lines,1}', '""'), ('order', '{shipping,address,city}', '"Ko\u0308ln"'), ('order', '{requested_at}', '"2026-03-29T02:30:00.250001+02:00"'),
	('payment', '{amount,value}', '1234567890123456789.02'), ('payment', '{amount,currency}', '"jpy"'), ('payment', '{metadata,z,0}', 'true'),
	('payment', '{metadata,z,1,c}', 'null'), ('payment', '{metadata}', 'null'), ('payment', '{capture}', 'false'),
	('refund', '{reason}', '""'), ('refund', '{lines,1,tax}', '{"code": "DE"}'), ('refund', '{lines,2}', '{}'), ('refund', '{notify}', '["b@example.org", "a@example.org"]'),
	('subscription', '{addons}', '["x"]'), ('subscription', '{quantity}', '2'), ('subscription', '{cancel_at}', '"2026-01-01T00:00:00Z"'), ('subscription', '{billing,collection}', '"manual"'),
	('upload', '{size}', '9007199254740992'), ('upload', '{regions}', '[["eu"], ["de", "us"]]'), ('upload', '{upload_id}', '"6f9619ff-8b86-d011-b42d-00c04fc964ff"'), ('upload', '{expires_on}', '"2024-03-01"'))
	c (o, path, value), LATERAL (SELECT CASE WHEN path LIKE '%,2}' OR path LIKE '%lines,1}' THEN jsonb_insert(request, path::text[], value) ELSE jsonb_set(request, path::text[], value) END AS changed) s
WHERE o = operation ORDER BY 1, 2;
SELECT operation, key, canonical(1, request - key, 'schema/' || operation) = canonical(1, request, 'schema/' || operation) AS equal
FROM golden, LATERAL jsonb_object_keys(request) key ORDER BY operation, key COLLATE "C";

--
-- The whitelist
--
-- an unlisted field is refused, at every depth; with additionalProperties it is left out
SELECT * FROM project('{"type": "object", "properties": {"a": {"type": "integer"}}}', '{"a": 1}', '{}', '{"b": 1}', '{"a": 1, "b": null}', '{"a": 1, "A": 1}', '{"a": 1, "a ": 1}', '{"a": 1, "": 1}', '[]', '1', 'null', '"a"');
SELECT * FROM project('{"properties": {"a": {"properties": {"b": {}}}, "l": {"items": {"properties": {"c": {}}}}}}', '{"a": {"b": {"any": ["thing", {}]}}}', '{"a": {"c": 1}}', '{"l": [{"c": 1}, {}]}', '{"l": [{"c": 1}, {"d": 1}]}');
SELECT * FROM project('{"additionalProperties": false, "properties": {"a": {}}}', '{"a": 1}', '{"a": 1, "b": 1}');
SELECT * FROM project('{"additionalProperties": true, "properties": {"a": {}}}', '{"a": 1}', '{"a": 1, "b": {"c": [1]}}', '{"b": 1}', '{"a": {"b": 1}}');
SELECT * FROM project('{"properties": {"o": {"type": "object", "additionalProperties": true, "properties": {"a": {}}}}}', '{"o": {"b": 1}}', '{"o": {"a": 1, "b": 1}}', '{"o": {}, "b": 1}');
-- an object without properties lists none; with additionalProperties none counts
SELECT * FROM project('{"type": "object"}', '{}', '{"a": 1}', '[]');
SELECT * FROM project('{"type": "object", "additionalProperties": true}', '{}', '{"a": 1}', '[]');
SELECT * FROM project('{"additionalProperties": true}', '{}', '{"a": 1}');
-- {} and true take any value, whole
SELECT * FROM project('{}', '{"b": 2, "a": [1.0, {"c": null}]}', '1e3', '"x"', 'null', '[[]]');
SELECT * FROM project('true', '{"b": 2}', 'null');
SELECT * FROM project('{"title": "anything", "description": "really"}', '{"b": 2}');
SELECT * FROM project('{"properties": {"a": true, "b": {"description": "whole"}}}', '{"a": {"x": 1}, "b": [{"y": 2}]}', '{"a": null}');
-- names that look like keywords are names
SELECT * FROM project('{"properties": {"$ref": {"type": "string"}, "not": {"type": "integer"}, "properties": {"type": "object", "properties": {"type": {"type": "string"}}}, "": {}, "a\"\n": {}}}',
	'{"$ref": "#/x", "not": 1, "properties": {"type": "t"}, "": 0, "a\"\n": 1}', '{"not": "1"}', '{"properties": {"properties": {}}}');

-- "x-fencing": "ignore" leaves a field out, at every depth, whatever it is
SELECT * FROM project('{"properties": {"a": {}, "n": {"type": "string", "x-fencing": "ignore"}, "o": {"properties": {"m": {"x-fencing": "ignore"}, "k": {}}}}}',
	'{"a": 1}', '{"a": 1, "n": "x"}', '{"a": 1, "n": null}', '{"o": {"m": {"x": 1}, "k": 2}}', '{"o": {"m": [1]}}', '{"n": "x"}');
-- also one with a default, or one that is an object or an array
SELECT * FROM project('{"properties": {"a": {}, "n": {"type": "integer", "default": 3, "x-fencing": "ignore"}, "l": {"type": "array", "items": {"properties": {"i": {"x-fencing": "ignore"}}}}}}',
	'{}', '{"n": 4}', '{"l": [{"i": 1}, {"i": 2}, {}]}', '{"l": [{"j": 1}]}');

--
-- Types
--
SELECT t, string_agg(format('%s: %s', v, canonical), ', ' ORDER BY n) AS values
FROM unnest('{string,integer,number,boolean,"null",object,array}'::text[]) t,
	LATERAL project(jsonb_build_object('type', t), '""', '0', '1.0', '1.5', 'true', 'null', '{}', '[]', '[1, "x", null]') WITH ORDINALITY p (v, canonical, n)
GROUP BY t ORDER BY t;
-- several
SELECT * FROM project('{"type": ["integer", "null"]}', '1', 'null', '1.5', '"1"');
SELECT * FROM project('{"type": ["string", "object", "array"], "properties": {"a": {}}, "items": {"type": "integer"}}', '"x"', '{"a": 1}', '{"b": 1}', '[1]', '["x"]', '1', 'null', 'true');
SELECT * FROM project('{"type": ["integer", "number"]}', '1.5', '2');
-- nullable adds null
SELECT * FROM project('{"type": "integer", "nullable": true}', '1', 'null', '"x"');
SELECT * FROM project('{"type": "integer", "nullable": false}', '1', 'null');
SELECT * FROM project('{"type": "object", "nullable": true, "properties": {"a": {"type": "array", "nullable": true, "items": {"type": "string", "nullable": true}}}}', 'null', '{"a": null}', '{"a": ["x", null]}', '{}');
-- An integer is a number without a fraction, however long and however spelt.
SELECT * FROM project('{"type": "integer"}', '1', '1.0', '1e0', '10e-1', '1.5', '-0.0', '15e-1', '0.1e1', '9223372036854775808', '12345678901234567890123.0', '0.00001', '1e400', '1e400 ', '123e-2', '1234567890123456789012345678901234567890.5', '"1"', 'true', 'null');
SELECT * FROM project('{"type": "number"}', '1', '1.50', '-0', '1e-400', '1e400', '12345678901234567.8901234567890', '"1"', 'null', 'false');
-- Nothing is converted: text that looks like a number is text.
SELECT request, plain(canonical) AS canonical FROM project('{"type": "string"}', '"1.0"', '"1"', '" 1"', '"true"', '"null"', '"\u0065\u0301"', '"e\u0301"', '"\u00e9"');

--
-- Absent, null, default, required
--
SELECT * FROM project('{"properties": {"a": {}}}', '{}', '{"a": null}');
SELECT * FROM project('{"properties": {"a": {"type": "integer"}}}', '{}', '{"a": null}');
-- an absent field takes its default; null is not absent
SELECT * FROM project('{"properties": {"a": {"default": 1.50}}}', '{}', '{"a": 1.5}', '{"a": null}', '{"a": 2}');
SELECT * FROM project('{"properties": {"a": {"type": "integer", "nullable": true, "default": 1}}}', '{}', '{"a": 1.0}', '{"a": null}');
SELECT * FROM project('{"properties": {"a": {"default": null}}}', '{}', '{"a": null}', '{"a": 0}');
SELECT * FROM project('{"properties": {"a": {"type": "boolean", "default": false}, "b": {"type": "string", "default": ""}, "c": {"type": "array", "default": []}}}', '{}', '{"a": false, "b": "", "c": []}', '{"a": true}');
-- a default is taken as if it had been sent
SELECT * FROM project('{"properties": {"t": {"type": "string", "format": "date-time", "default": "2026-01-01T01:00:00+01:00"}, "u": {"type": "string", "format": "uuid", "default": "AAAAAAAA-BBBB-4CCC-8DDD-EEEEEEEEEEEE"}}}',
	'{}', '{"t": "2026-01-01T00:00:00Z", "u": "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"}');
SELECT * FROM project('{"properties": {"o": {"default": {}, "properties": {"x": {"default": 1}, "y": {}}}}}', '{}', '{"o": {}}', '{"o": {"x": 1}}', '{"o": {"y": 1}}', '{"o": {"x": 2}}');
SELECT * FROM project('{"properties": {"o": {"default": {"x": 3}, "properties": {"x": {"default": 1}, "n": {"x-fencing": "ignore"}}}}}', '{}', '{"o": {"x": 3, "n": 1}}', '{"o": {}}');
SELECT * FROM project('{"properties": {"l": {"type": "array", "default": [{}], "items": {"properties": {"x": {"default": 1}}}}}}', '{}', '{"l": [{}]}', '{"l": [{"x": 1}]}', '{"l": []}', '{"l": [{}, {}]}');
-- an object that is absent does not come by the defaults of its fields
SELECT * FROM project('{"properties": {"o": {"properties": {"x": {"default": 1}}}}}', '{}', '{"o": {}}', '{"o": {"x": 1}}');
-- required
SELECT * FROM project('{"required": ["a", "b"], "properties": {"a": {}, "b": {"nullable": true, "type": "string"}}}', '{"a": 1, "b": "x"}', '{"a": 1}', '{"b": null}', '{"a": null, "b": null}', '{}');
SELECT * FROM project('{"properties": {"o": {"required": ["a"], "properties": {"a": {}}}}}', '{}', '{"o": {}}', '{"o": {"a": 0}}');
SELECT * FROM project('{"properties": {"a": {}}, "required": []}', '{}');
-- what is left out is not asked for; nor what only responses must have
SELECT * FROM project('{"properties": {"a": {}}, "additionalProperties": true, "required": ["a", "b"]}', '{"a": 1}', '{"a": 1, "b": 2}', '{"b": 2}');
SELECT * FROM project('{"properties": {"id": {"type": "string", "readOnly": true}, "a": {"readOnly": false}}, "required": ["id", "a"]}', '{"a": 1}', '{"id": "x", "a": 1}', '{"id": "x"}');

-- arrays: order and length count; without items an element is taken whole
SELECT * FROM project('{"type": "array"}', '[3, 1, 2]', '[{"b": 1, "a": 2}]', '[]');
SELECT * FROM project('{"items": {"type": "object", "properties": {"a": {"default": 0}}}}', '[{"a": 1}, {}]', '[{}, {"a": 1}]', '[{"b": 1}]', '[1]', '[null]', '[]');
SELECT * FROM project('{"items": true}', '[1, {"x": [null]}]');
SELECT * FROM project('{"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}', '[[1, 2], [], [3.0]]', '[[1.5]]', '[1]', '[[[1]]]');

--
-- Formats
--
SELECT fencing_define_request('schema/try', 1000, '{"type": "string", "format": "date-time"}');
SELECT fencing_define_request('schema/try', 1001, '{"type": "string", "format": "date"}');
SELECT fencing_define_request('schema/try', 1002, '{"type": "string", "format": "uuid"}');
SELECT fencing_define_request('schema/try', 1003, '{"type": "string", "format": "date-time", "x-fencing": "exact"}');
SELECT fencing_define_request('schema/try', 1004, '{"type": "string", "format": "date", "x-fencing": "exact"}');
-- date-time as in RFC 3339: in UTC, without trailing zeros
SELECT t, canonical(1000, to_jsonb(t)) FROM unnest(ARRAY[
	'2026-01-01T00:00:00Z', '2026-01-01t00:00:00z', '2026-01-01T00:00:00+00:00', '2026-01-01T00:00:00-00:00', '2026-01-01T01:00:00+01:00', '2025-12-31T19:00:00-05:00',
	'2026-01-01T00:00:00.0Z', '2026-01-01T00:00:00.000000Z', '2026-01-01T00:00:00.1Z', '2026-01-01T00:00:00.100Z', '2026-01-01T00:00:00.123456Z', '2026-01-01T00:00:00.000001Z', '2025-12-31T23:59:59.999999Z',
	'2024-02-29T12:00:00Z', '2000-02-29T12:00:00Z', '2024-02-29T23:30:00-01:00', '2024-03-01T00:30:00+01:00', '2023-03-01T00:30:00+01:00', '2026-06-15T12:34:56+14:00', '2026-06-15T12:34:56-12:00',
	'2026-06-15T12:34:56+05:45', '2026-06-15T00:00:00+23:59', '2026-06-15T23:59:59-23:59', '2026-03-29T02:30:00+01:00', '2026-10-25T02:30:00+02:00', '1969-12-31T23:59:59.5Z', '1582-10-10T00:00:00Z', '1900-02-28T23:59:59Z',
	'0001-01-01T00:00:00Z', '9999-12-31T23:59:59.999999Z', '1700-01-01T00:00:00+00:01',
	'2026-01-01T00:00:00.0000000Z', '2026-01-01T00:00:00.1000000Z', '2026-01-01T00:00:00.123456000z', '2026-01-01T01:00:00.00000100+01:00']) WITH ORDINALITY u (t, n) ORDER BY n;
-- refused: all 22023
SELECT canonical, count(*), string_agg(quote_literal(t), ' ' ORDER BY n) FILTER (WHERE canonical <> '22023') FROM unnest(ARRAY[
	'', ' ', 'now', 'today', 'infinity', 'epoch', '2026-01-01', '2026-01-01T00:00:00', '2026-01-01 00:00:00Z', '2026-01-01T00:00Z', '2026-01-01T00Z', '2026-01-01T00:00:00 Z', ' 2026-01-01T00:00:00Z', '2026-01-01T00:00:00Z ',
	E'2026-01-01T00:00:00Z\n', '2026-01-01T00:00:00.Z', '2026-01-01T00:00:00,5Z', '2026-01-01T00:00:00.1234567Z', '2026-01-01T00:00:00.0000001Z', '2026-01-01T00:00:00.12345600000001Z', '2026-01-01T00:00:00.0000000', '2026-01-01T00:00:00.0000000.0Z', '2026-01-01T00:00:00+0100', '2026-01-01T00:00:00+01', '2026-01-01T00:00:00+1:00',
	'2026-01-01T00:00:00+01:0', '2026-01-01T00:00:00+24:00', '2026-01-01T00:00:00+01:60', '2026-01-01T00:00:00 +01:00', '2026-01-01T00:00:00+01:00:00', '2026-01-01T00:00:00UTC', '2026-01-01T00:00:00CET', '2026-01-01T00:00:00Europe/Berlin', '2026-01-01T00:00:00Z[UTC]',
	'2026-01-01T00:00:00ZZ', '2026-01-01T00:00:00Z+01:00', '2026-01-01T24:00:00Z', '2026-01-01T23:60:00Z', '2026-01-01T00:00:60Z', '2016-12-31T23:59:60Z', '2016-12-31T23:59:60.5Z', '2026-01-01T00:00:61Z', '2026-01-01T99:99:99Z', '2026-00-01T00:00:00Z', '2026-13-01T00:00:00Z',
	'2026-01-00T00:00:00Z', '2026-01-32T00:00:00Z', '2026-02-29T00:00:00Z', '1900-02-29T00:00:00Z', '2100-02-29T00:00:00Z', '2024-02-30T00:00:00Z', '2026-04-31T00:00:00Z', '26-01-01T00:00:00Z', '02026-01-01T00:00:00Z', '12026-01-01T00:00:00Z', '-2026-01-01T00:00:00Z', '+2026-01-01T00:00:00Z',
	'2026-1-01T00:00:00Z', '2026-01-1T00:00:00Z', '2026-01-01T0:00:00Z', '2026-01-01T00:0:00Z', '2026-01-01T00:00:0Z', '20260101T000000Z', '2026-W01-4T00:00:00Z', '2026-001T00:00:00Z', '2026/01/01T00:00:00Z', '01-01-2026T00:00:00Z', '2026-01-01_00:00:00Z',
	'2026-01-01T00-00-00Z', '2026-01-01T-1:00:00Z', '2026-01-01T00:00:-1Z', '2026-01-01T00:00:00.-1Z', '2026-01-01T00:00:00.1.2Z', '2026-01-01T00:00:00.1e1Z', '2026-01-01T00:00:00' || U&'\FF3A', U&'\FF12\FF10\FF12\FF16-01-01T00:00:00Z', U&'2026\201201-01T00:00:00Z', U&'2026-01-01T00:00:00\221201:00',
	'2026-01-01T00:00:00' || repeat('0', 1000), '2026-01-01T00:00:00.' || repeat('0', 10000) || '1Z', '1767225600', '2026-01-01T00:00:00J', '2026-01-01TZ', 'T00:00:00Z', '2026-01-01T00:00:00BC']) WITH ORDINALITY u (t, n), LATERAL canonical(1000, to_jsonb(t)) GROUP BY canonical;
-- however many zeros
SELECT canonical(1000, to_jsonb('2026-01-01T00:00:00.5' || repeat('0', 10000) || 'Z')), canonical(1000, to_jsonb('2026-01-01T00:00:00.' || repeat('0', 10000) || 'Z'));
-- the corners: year 0, which RFC 3339 has and which was a leap year; hour 24, which it has not; the widest offsets; t and z
SELECT t, canonical(1000, to_jsonb(t)), canonical(1001, to_jsonb(left(t, 10))) AS date FROM unnest(ARRAY['0000-01-01T00:00:00Z', '0000-02-29T00:00:00Z', '0000-02-30T00:00:00Z', '0000-12-31T23:59:59.5Z', '0000-12-31T23:59:00-00:01', '0001-01-01T00:00:00+00:01', '0000-01-01T00:00:00+00:01', '0000-01-01T23:59:00+23:59', '9999-12-31T00:00:00-23:59', '9999-12-31T00:01:00-23:59',
	'2026-01-01T24:00:00Z', '2026-01-01T24:00:00.0000000Z', '2026-01-01T23:59:59+23:59', '2026-01-01T00:00:00-23:59', '2026-01-01T00:00:00+23:60', '2026-01-01T00:00:00-24:00', '2026-01-01t01:02:03.0000000z', '2026-01-01t01:02:03.4Z', '2026-01-01T01:02:03z', '2026-01-01t01:02:03+00:00']) WITH ORDINALITY u (t, n) ORDER BY n;
-- at the ends of the calendar a text is refused or kept apart, never made equal to another
SELECT t, canonical(1000, to_jsonb(t)) IN ('22023', to_jsonb(t)::text) AS refused_or_kept FROM unnest(ARRAY['0000-01-01T00:00:00Z', '0000-02-29T00:00:00Z']) t;
SELECT count(DISTINCT c) FILTER (WHERE c <> '22023') = count(c) FILTER (WHERE c <> '22023') AS distinct FROM unnest(ARRAY['0001-01-01T00:00:00+00:01', '0000-12-31T23:59:00-00:01', '9999-12-31T23:59:59-00:01', '0000-01-01T00:00:00+00:01', '0001-01-01T00:00:00+00:02']) t,
	LATERAL canonical(1000, to_jsonb(t)) c;
-- another type than a string is none
SELECT j, canonical(1000, j) FROM (VALUES ('1767225600'::jsonb), ('null'), ('{}'), ('["2026-01-01T00:00:00Z"]')) v (j);
-- date
SELECT t, canonical(1001, to_jsonb(t)) FROM unnest(ARRAY['2026-01-01', '2024-02-29', '2000-02-29', '0001-01-01', '9999-12-31', '1582-10-10',
	'2026-02-29', '1900-02-29', '2026-00-10', '2026-13-01', '2026-04-31', '2026-01-32', '2026-1-1', '20260101', '2026-01-01T00:00:00Z', ' 2026-01-01', '2026-01-01 ', '01.02.2026', '2026/01/02', 'today', 'infinity', '', '02026-01-01', '-2026-01-01', 'Jan 1, 2026', '2026-W01', '2026-001', 'J2451187'])
	WITH ORDINALITY u (t, n) ORDER BY n;
-- uuid: in lower case
SELECT t, canonical(1002, to_jsonb(t)) FROM unnest(ARRAY['a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', 'a0eebc99-9C0B-4ef8-bb6d-6BB9bd380a11', '00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff',
	'{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}', 'a0eebc999c0b4ef8bb6d6bb9bd380a11', 'a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11', 'urn:uuid:a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a111', 'g0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11',
	' a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11 ', '', 'a0eebc99_9c0b_4ef8_bb6d_6bb9bd380a11']) WITH ORDINALITY u (t, n) ORDER BY n;
-- exact: any text, as it is
SELECT t, canonical(1003, to_jsonb(t)), canonical(1004, to_jsonb(t)) FROM unnest(ARRAY['2026-01-01T01:00:00+01:00', '2026-01-01T00:00:00.100Z', 'tomorrow', '', '2026-01-01t00:00:00z', '2026-02-30']) WITH ORDINALITY u (t, n) ORDER BY n;
SELECT canonical(1003, '1');
-- unknown formats are annotations, and formats of other types
SELECT * FROM project('{"type": "string", "format": "email"}', '"No Address"', '"A@B"');
SELECT * FROM project('{"type": "string", "format": "time"}', '"25:00"');
SELECT * FROM project('{"type": "string", "format": "Date-Time"}', '"2026-01-01T01:00:00+01:00"');
SELECT * FROM project('{"type": "integer", "format": "int32"}', '12345678901');
-- in fields, elements, and beside null
SELECT * FROM project('{"properties": {"t": {"type": "string", "format": "date-time", "nullable": true}, "l": {"items": {"type": "string", "format": "uuid"}}, "n": {"type": ["string", "null"], "format": "date"}}}',
	'{"t": null, "l": [], "n": null}', '{"t": "2026-01-01T01:00:00+01:00", "l": ["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"], "n": "2026-01-01"}', '{"l": ["x"]}', '{"l": [null]}', '{"n": ""}');

--
-- What is refused
--
-- keywords that would change the shape: 0A000, at every depth
SELECT k, string_agg(define(at), ' ' ORDER BY n) AS answers FROM (VALUES
	('$ref', '"#/definitions/x"'::jsonb), ('oneOf', '[{}]'), ('anyOf', '[{}]'), ('allOf', '[{}]'), ('not', '{}'), ('patternProperties', '{"^x": {}}'), ('if', '{}'),
	('additionalProperties', '{}'), ('additionalProperties', '{"type": "string"}'), ('items', '[{}]'), ('items', '[]'),
	('prefixItems', '[{}]'), ('then', '{}'), ('else', '{}'), ('dependentSchemas', '{"a": {}}'), ('unevaluatedProperties', 'false'), ('$dynamicRef', '"#x"')) v (k, value),
	LATERAL (VALUES (1, jsonb_build_object(k, value)), (2, jsonb_build_object('type', 'object', k, value)),
		(3, jsonb_build_object('properties', jsonb_build_object('a', jsonb_build_object(k, value)))),
		(4, jsonb_build_object('items', jsonb_build_object('properties', jsonb_build_object('a', jsonb_build_object('items', jsonb_build_object(k, value))))))) a (n, at)
GROUP BY k, value ORDER BY k, value::text;
-- data is no schema
SELECT s, define(s) FROM (VALUES ('{"example": {"$ref": "#/x", "not": {}}}'::jsonb), ('{"enum": [{"oneOf": []}]}'), ('{"properties": {"a": {"default": {"allOf": [1]}}}}'), ('{"examples": [{"if": 1}], "x-vendor": {"anyOf": 1}}'), ('{"const": {"$ref": 1}}')) v (s);
-- annotations are accepted and not enforced
SELECT * FROM project('{"type": "object", "title": "t", "description": "d", "$schema": "s", "$id": "i", "$comment": "c", "deprecated": true, "readOnly": true, "examples": [1], "externalDocs": {}, "xml": {}, "minProperties": 3, "maxProperties": 0, "properties": {
	"n": {"type": "integer", "minimum": 5, "maximum": 3, "multipleOf": 7, "enum": [1], "const": 2}, "s": {"type": "string", "minLength": 5, "pattern": "^x", "contentEncoding": "base64"}, "l": {"type": "array", "minItems": 2, "maxItems": 0, "uniqueItems": true, "items": {}}}}',
	'{"n": 100, "s": "", "l": [1, 1]}');
-- what makes no sense: 22023
SELECT s, define(s) FROM (VALUES
	('null'::jsonb), ('1'), ('"object"'), ('[]'), ('[{}]'),
	('{"type": "text"}'), ('{"type": "Object"}'), ('{"type": ""}'), ('{"type": null}'), ('{"type": 1}'), ('{"type": {}}'), ('{"type": []}'), ('{"type": ["string", "text"]}'), ('{"type": ["string", 1]}'), ('{"type": [["string"]]}'),
	('{"properties": []}'), ('{"properties": null}'), ('{"properties": {"a": 1}}'), ('{"properties": {"a": null}}'), ('{"properties": {"a": "string"}}'), ('{"properties": {"a": []}}'),
	('{"items": 1}'), ('{"items": null}'), ('{"items": "string"}'),
	('{"properties": {"a": {}}, "required": ["b"]}'), ('{"required": ["a"]}'), ('{"properties": {"a": {}}, "required": "a"}'), ('{"properties": {"a": {}}, "required": [1]}'), ('{"properties": {"a": {}}, "required": {"a": true}}'), ('{"properties": {"a": {}}, "required": true}'),
	('{"additionalProperties": null}'), ('{"additionalProperties": "true"}'), ('{"additionalProperties": 1}'),
	('{"nullable": "yes", "type": "string"}'), ('{"nullable": null, "type": "string"}'), ('{"format": 1, "type": "string"}'), ('{"format": null, "type": "string"}'),
	('{"properties": {"a": {"x-fencing": "maybe"}}}'), ('{"properties": {"a": {"x-fencing": true}}}'), ('{"properties": {"a": {"x-fencing": null}}}'), ('{"properties": {"a": {"x-fencing": "Ignore"}}}'),
	('{"properties": {"a": {"type": "integer", "default": "1"}}}'), ('{"properties": {"a": {"type": "integer", "default": 1.5}}}'), ('{"properties": {"a": {"type": "integer", "default": null}}}'), ('{"properties": {"a": {"type": "string", "format": "date", "default": "today"}}}'),
	('{"properties": {"a": {"type": "object", "default": {"b": 1}, "properties": {"c": {}}}}}'), ('{"properties": {"a": {"type": "object", "default": {}, "required": ["c"], "properties": {"c": {}}}}}'), ('{"properties": {"a": {"type": "array", "default": [1], "items": {"type": "string"}}}}'), ('{"properties": {"a": {"type": "string", "format": "date-time", "default": "2016-12-31T23:59:60Z"}}}')) v (s);
-- what would have no effect
SELECT s, define(s) FROM (VALUES ('{"x-fencing": "ignore"}'::jsonb), ('{"type": "object", "x-fencing": "ignore"}'), ('{"items": {"x-fencing": "ignore"}}'), ('{"properties": {"a": {"items": {"x-fencing": "ignore"}}}}')) v (s);
-- a default that does match
SELECT s, define(s) FROM (VALUES ('{"properties": {"a": {"type": "integer", "default": 1.0}}}'::jsonb), ('{"properties": {"a": {"type": "integer", "nullable": true, "default": null}}}'), ('{"properties": {"a": {"type": ["null", "string"], "default": null}}}'),
	('{"properties": {"a": {"type": "string", "format": "date", "x-fencing": "exact", "default": "today"}}}')) v (s);
-- how deep: as deep as a request may be, and then an error, of the schema and of the request
CREATE FUNCTION deep(n int, inner_schema jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT (repeat('{"items":', n) || inner_schema || repeat('}', n))::jsonb $$;
SELECT n, define(deep(n, '{}')) FROM unnest('{10,600,3000}'::int[]) n;
SELECT fencing_define_request('schema/try', 1010, '{}');
SELECT n, left(canonical(1010, (repeat('[', n) || repeat(']', n))::jsonb), 5) AS arrays, left(canonical(1010, (repeat('{"a":', n) || '0' || repeat('}', n))::jsonb), 5) AS objects FROM unnest('{1,512,513,5000}'::int[]) n;
-- two different requests that are too deep are not one
SELECT canonical(1010, (repeat('[', 600) || '1' || repeat(']', 600))::jsonb), canonical(1010, (repeat('[', 600) || '2' || repeat(']', 600))::jsonb);

--
-- Versions
--
SELECT fencing_define_request('schema/try', 2000, '{"properties": {"a": {"type": "integer", "default": 1}}}');
-- the same again, spelt otherwise: nothing; another one: 22023, and nothing changes
SELECT xmin AS before FROM fencing.request_schemas WHERE operation = 'schema/try' AND hash_version = 2000 \gset
SELECT fencing_define_request('schema/try', 2000, '{"properties":{"a":{"default":1.0,"type":"integer"}}}');
SELECT fencing_define_request('schema/try', 2000, '{"properties": {"a": {"type": "integer", "default": 2}}}');
SELECT fencing_define_request('schema/try', 2000, '{"properties": {"a": {"type": "integer", "default": 1}}, "title": "other"}');
SELECT fencing_define_request('schema/try', 2000, '{"$ref": "x"}');
SELECT xmin = :before AS unchanged, request_schema FROM fencing.request_schemas WHERE operation = 'schema/try' AND hash_version = 2000;
SELECT canonical(2000, '{}');
-- another operation has its own
SELECT fencing_define_request('schema/order', 2000, '{"properties": {"b": {}}}');
SELECT canonical(2000, '{"b": 1}', 'schema/order'), canonical(2000, '{"b": 1}');
-- versions and operations that are not there
SELECT canonical(2001, '{}'), canonical(0, '{}'), canonical(-1, '{}'), canonical(1, '{}', 'schema/unknown'), canonical(NULL, '{}'), canonical(2000, NULL), canonical(2000, '{}', NULL), canonical(2000, '{}', '');
-- a definition that is rolled back is not kept by the backend either
BEGIN;
SELECT fencing_define_request('schema/try', 2002, '{"properties": {"a": {}}}');
SELECT canonical(2002, '{"a": 1}');
ROLLBACK;
SELECT canonical(2002, '{"a": 1}');
SELECT fencing_define_request('schema/try', 2002, '{"properties": {"b": {}}}');
SELECT canonical(2002, '{"a": 1}'), canonical(2002, '{"b": 1}');
BEGIN;
SAVEPOINT s;
SELECT fencing_define_request('schema/try', 2003, '{"properties": {"a": {}}}');
SELECT canonical(2003, '{"a": 1}');
ROLLBACK TO s;
SELECT canonical(2003, '{"a": 1}');
SELECT fencing_define_request('schema/try', 2003, '{"properties": {"b": {}}}');
COMMIT;
SELECT canonical(2003, '{"a": 1}'), canonical(2003, '{"b": 1}');
-- the functions are STABLE: read-only transactions may look into a conflict
BEGIN READ ONLY;
SELECT canonical(2000, '{"a": 7}');
ROLLBACK;
SELECT p.proname, p.provolatile, p.proisstrict FROM pg_proc p WHERE p.proname IN ('fencing_request_canonical', 'fencing_request_hash') ORDER BY 1;

DELETE FROM fencing.request_schemas WHERE operation LIKE 'schema/%';
DELETE FROM fencing.operations WHERE operation LIKE 'schema/%';
DROP SCHEMA regress_request_schema CASCADE;
