--
-- NULL and bad input in every argument of every function: a clear error that
-- names the argument, nothing written, and the next call works.
--
UPDATE fencing.floor SET floor = 0;
CREATE SCHEMA regress_arguments;
SET search_path = regress_arguments, public;

CREATE TEMP TABLE attempt (n serial, call text, answer text);
CREATE FUNCTION attempt(call text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE answer text;
BEGIN
	EXECUTE call INTO answer;
	RETURN coalesce(answer, 'no row');
EXCEPTION WHEN OTHERS THEN
	-- the CONTEXT is somebody else's business
	RETURN SQLSTATE || ': ' || SQLERRM;
END $$;
-- calls one after another, each with what came of it
CREATE PROCEDURE attempt_all(prefix text, arguments text[]) LANGUAGE plpgsql AS $$
DECLARE a text;
BEGIN
	FOREACH a IN ARRAY arguments LOOP
		INSERT INTO attempt (call, answer) VALUES (a, attempt(format('SELECT %s(%s)', prefix, a)));
	END LOOP;
END $$;
-- short names for what is too long to print: an owner, long keys
CREATE FUNCTION o() RETURNS uuid LANGUAGE sql AS $$ SELECT md5('A')::uuid $$;
CREATE FUNCTION ascii(n int) RETURNS text LANGUAGE sql AS $$ SELECT rpad('arguments/', n, 'k') $$;
-- n bytes whose last character is two bytes long, so that a cut would split it
CREATE FUNCTION two_bytes(n int) RETURNS text LANGUAGE sql AS $$ SELECT repeat('k', n % 2) || repeat(U&'\00E9', n / 2) $$;
-- likewise four bytes
CREATE FUNCTION four_bytes(n int) RETURNS text LANGUAGE sql AS $$ SELECT repeat('k', n % 4) || repeat(U&'\+01F600', n / 4) $$;
CREATE FUNCTION deep(n int) RETURNS jsonb LANGUAGE sql AS $$ SELECT (repeat('[', n) || repeat(']', n))::jsonb $$;
CREATE FUNCTION deep_object(n int) RETURNS jsonb LANGUAGE sql AS $$ SELECT (repeat('{"a":', n) || '0' || repeat('}', n))::jsonb $$;

-- everything there is, row versions included
CREATE FUNCTION state() RETURNS text LANGUAGE sql AS $$
SELECT md5(concat_ws('|',
	(SELECT string_agg(f.ctid::text || f::text, ',' ORDER BY f.job_key) FROM fencing.fences f),
	(SELECT string_agg(l.ctid::text || l::text, ',' ORDER BY l.job_key) FROM fencing.leases l),
	(SELECT string_agg(r.ctid::text || r::text, ',' ORDER BY r.job_key, r.step) FROM fencing.receipts r),
	(SELECT string_agg(v::text, ',' ORDER BY v.id) FROM fencing.revocations v),
	(SELECT string_agg(g::text, ',' ORDER BY g.role, g.access) FROM fencing.grants g),
	(SELECT string_agg(e::text, ',' ORDER BY e.event_no) FROM fencing.tag_events e),
	(SELECT string_agg(t::text, ',' ORDER BY t.name) FROM fencing.tags t),
	(SELECT string_agg(n::text, ',' ORDER BY n.name) FROM fencing.tag_names n),
	(SELECT string_agg(f::text, ',') FROM fencing.floor f)))
$$;

CREATE ROLE regress_fencing_args;
SELECT outcome, token FROM fencing_acquire('arguments/a', o(), '1 hour');
SELECT outcome, fence FROM fencing_advance('arguments/x', 5);
SELECT outcome FROM fencing_commit('arguments/a', 1, '1', 'SELECT 1');
SELECT outcome FROM fencing_tag_create('arguments', o(), 'tag');
SELECT state() AS before \gset

--
-- acquire
--
CALL attempt_all('fencing_acquire', ARRAY[
	'NULL, o()', '''arguments/n'', NULL', '''arguments/n'', o(), NULL', 'NULL, NULL, NULL',
	''''', o()', 'ascii(513), o()', 'ascii(100000), o()', 'two_bytes(513), o()', 'two_bytes(514), o()', 'four_bytes(513), o()', 'four_bytes(516), o()',
	'''arguments/n'', o(), ''0''', '''arguments/n'', o(), ''-1 microsecond''', '''arguments/n'', o(), ''-30 seconds''', '''arguments/n'', o(), ''1 day -24:00:00''',
	'''arguments/n'', o(), ''1 day 1 microsecond''', '''arguments/n'', o(), ''25 hours''', '''arguments/n'', o(), ''2 days''', '''arguments/n'', o(), ''1 month''',
	'''arguments/n'', o(), ''1 year''', '''arguments/n'', o(), ''178000000 years''', '''arguments/n'', o(), ''-178000000 years''',
	'''arguments/n'', o(), make_interval(days => 2147483647)', '''arguments/n'', o(), make_interval(days => -2147483648)',
	'''arguments/n'', o(), make_interval(months => 2147483647, days => 2147483647, hours => 2147483647)',
	'''arguments/n'', o(), make_interval(months => 2147483647, days => -2147483648)',
	'''arguments/n'', ''not a uuid''']);

--
-- renew
--
CALL attempt_all('fencing_renew', ARRAY[
	'NULL, o(), 1', '''arguments/a'', NULL, 1', '''arguments/a'', o(), NULL', '''arguments/a'', o(), 1, NULL',
	''''', o(), 1', 'ascii(513), o(), 1', 'two_bytes(513), o(), 1', 'four_bytes(513), o(), 1',
	'''arguments/a'', o(), 0', '''arguments/a'', o(), -1', '''arguments/a'', o(), (-9223372036854775808)::bigint', '''arguments/a'', o(), 9223372036854775808',
	'''arguments/a'', o(), 1, ''0''', '''arguments/a'', o(), 1, ''-1 s''', '''arguments/a'', o(), 1, ''25 hours''', '''arguments/a'', o(), 1, ''1 day 1 microsecond''',
	'''arguments/a'', o(), 1, ''178000000 years''', '''arguments/a'', o(), 1, ''-178000000 years''',
	'''arguments/a'', o(), 1, make_interval(months => 2147483647, days => 2147483647, hours => 2147483647)']);

--
-- release
--
CALL attempt_all('fencing_release', ARRAY[
	'NULL, o(), 1', '''arguments/a'', NULL, 1', '''arguments/a'', o(), NULL',
	''''', o(), 1', 'ascii(513), o(), 1', 'two_bytes(513), o(), 1', 'four_bytes(513), o(), 1',
	'''arguments/a'', o(), 0', '''arguments/a'', o(), -1', '''arguments/a'', o(), (-9223372036854775808)::bigint']);

--
-- revoke
--
CALL attempt_all('fencing_revoke', ARRAY[
	'NULL, ''why''', '''arguments/a'', NULL', ''''', ''why''', '''arguments/a'', ''''',
	'ascii(513), ''why''', 'two_bytes(513), ''why''', 'four_bytes(513), ''why''']);

--
-- advance
--
CALL attempt_all('fencing_advance', ARRAY[
	'NULL, 6', '''arguments/x'', NULL', ''''', 6', 'ascii(513), 6', 'two_bytes(513), 6', 'four_bytes(513), 6',
	'''arguments/x'', 0', '''arguments/x'', -1', '''arguments/x'', (-9223372036854775808)::bigint', '''arguments/n'', 0']);

--
-- forget
--
CALL attempt_all('fencing_forget', ARRAY['NULL', '''''', 'ascii(513)', 'two_bytes(513)', 'four_bytes(513)']);

--
-- commit.  A statement may be NULL; the kinds of statements are a file of their own.
--
CALL attempt_all('fencing_commit', ARRAY[
	'NULL, 1, ''1'', ''SELECT 1'', ''s''', '''arguments/a'', NULL, ''1'', ''SELECT 1'', ''s''', '''arguments/a'', 1, NULL, ''SELECT 1'', ''s''',
	'''arguments/a'', 1, ''1'', ''SELECT 1'', NULL', '''arguments/a'', 1, ''1'', ''SELECT 1'', ''s'', NULL', '''arguments/a'', 1, ''1'', ''SELECT 1'', ''s'', false, NULL',
	'''arguments/a'', 1, ''1'', ''SELECT 1'', ''s'', true, true', '''arguments/a'', 1, ''1'', ''SELECT 1'', '''', true, true',
	''''', 1, ''1''', 'ascii(513), 1, ''1''', 'two_bytes(513), 1, ''1''', 'four_bytes(513), 1, ''1''',
	'''arguments/a'', 0, ''1''', '''arguments/a'', -1, ''1''', '''arguments/a'', (-9223372036854775808)::bigint, ''1''', '''arguments/a'', 9223372036854775807, ''1''',
	'''arguments/a'', 1, ''1'', NULL, ascii(513)', '''arguments/a'', 1, ''1'', NULL, two_bytes(513)', '''arguments/a'', 1, ''1'', NULL, four_bytes(513)',
	'''arguments/a'', 1, deep(513), NULL, ''s''', '''arguments/a'', 1, deep_object(513), NULL, ''s''', '''arguments/a'', 1, jsonb_build_array(1, deep(512)), NULL, ''s''',
	'''arguments/a'', 1, deep(5000), NULL, ''s''', '''arguments/a'', 1, ''not json''',
	'''arguments/a'', 1, ''1'', '''', ''s''', '''arguments/a'', 1, ''1'', ''  '', ''s''',
	'''arguments/n'', 1, ''1''']);
-- over-deep payloads are all an error, also against a receipt that is there
CALL attempt_all('fencing_commit', ARRAY['''arguments/a'', 1, deep(513)', '''arguments/a'', 1, deep(514)']);

--
-- receipt
--
CALL attempt_all('fencing_receipt', ARRAY[
	'NULL, 1', '''arguments/a'', NULL', '''arguments/a'', 1, NULL', ''''', 1', 'ascii(513), 1', 'two_bytes(513), 1', 'four_bytes(513), 1',
	'''arguments/a'', 0', '''arguments/a'', -1', '''arguments/a'', (-9223372036854775808)::bigint', '''arguments/a'', 1, ascii(513)', '''arguments/a'', 1, two_bytes(513)',
	'''arguments/a'', 9223372036854775807', '''arguments/n'', 1', '''arguments/a'', 1, ''none''']);

--
-- grant and ungrant
--
CALL attempt_all('fencing_grant', ARRAY[
	'NULL, ''client''', '''regress_fencing_args'', NULL', '''regress_fencing_args'', ''''', '''regress_fencing_args'', ''superuser''',
	'''regress_fencing_args'', ''Client''', '''regress_fencing_args'', ''client ''', '''regress_fencing_nobody'', ''client''']);
CALL attempt_all('fencing_ungrant', ARRAY[
	'NULL, ''client''', '''regress_fencing_args'', NULL', '''regress_fencing_args'', ''''', '''regress_fencing_args'', ''superuser''',
	'''regress_fencing_nobody'', ''client''']);

--
-- tags
--
CALL attempt_all('fencing_tag_create', ARRAY[
	'NULL, o(), ''n''', '''arguments'', NULL, ''n''', '''arguments'', o(), NULL', ''''', o(), ''n''', '''arguments'', o(), ''''',
	'ascii(513), o(), ''n''', '''arguments'', gen_random_uuid(), two_bytes(514)', '''arguments'', gen_random_uuid(), o()::text', '''arguments'', gen_random_uuid(), ''{'' || upper(o()::text) || ''}''',
	'''arguments'', gen_random_uuid(), replace(o()::text, ''-'', '''')']);
CALL attempt_all('fencing_tag_alias', ARRAY[
	'NULL, o(), ''tag'', ''n''', '''arguments'', NULL, ''tag'', ''n''', '''arguments'', gen_random_uuid(), NULL, ''n''', '''arguments'', gen_random_uuid(), ''tag'', NULL',
	'''arguments'', gen_random_uuid(), '''', ''n''', '''arguments'', gen_random_uuid(), ''tag'', ''''', '''arguments'', gen_random_uuid(), ''unknown'', ''n''', '''arguments'', gen_random_uuid(), ''tag'', o()::text']);
CALL attempt_all('fencing_tag_rename', ARRAY[
	'NULL, o(), ''tag'', ''n'', 0', '''arguments'', NULL, ''tag'', ''n'', 0', '''arguments'', gen_random_uuid(), NULL, ''n'', 0', '''arguments'', gen_random_uuid(), ''tag'', NULL, 0',
	'''arguments'', gen_random_uuid(), ''tag'', ''n'', NULL', '''arguments'', gen_random_uuid(), ''tag'', ''n'', -1', '''arguments'', gen_random_uuid(), ''tag'', ''tag'', 0', '''arguments'', gen_random_uuid(), ''tag'', ascii(513), 0']);
CALL attempt_all('fencing_tag_merge', ARRAY[
	'NULL, o(), ''tag'', ''n'', 0', '''arguments'', NULL, ''tag'', ''n'', 0', '''arguments'', gen_random_uuid(), NULL, ''n'', 0', '''arguments'', gen_random_uuid(), ''tag'', NULL, 0',
	'''arguments'', gen_random_uuid(), ''tag'', ''n'', NULL', '''arguments'', gen_random_uuid(), ''tag'', ''n'', -1', '''arguments'', gen_random_uuid(), ''tag'', ''tag'', 0, -1', '''arguments'', gen_random_uuid(), ''tag'', ''tag'', 0',
	'''arguments'', gen_random_uuid(), ''tag'', ''unknown'', 0', '''arguments'', gen_random_uuid(), ''unknown'', ''tag'', 0']);
CALL attempt_all('fencing_tag_undo', ARRAY['NULL, o(), o()', '''arguments'', NULL, o()', '''arguments'', gen_random_uuid(), NULL', '''arguments'', gen_random_uuid(), o()']);
CALL attempt_all('fencing_tag_complete', ARRAY['NULL, o()', '''arguments'', NULL', '''arguments'', o()', ''''', o()']);
CALL attempt_all('fencing_tag_reconcile', ARRAY['NULL, o()', '''arguments'', NULL', '''arguments'', o()', '''arguments'', o(), NULL', '''arguments'', o(), 0', '''arguments'', o(), -1']);
CALL attempt_all('fencing_tag_release_name', ARRAY[
	'NULL, o(), ''tag'', ''r''', '''arguments'', NULL, ''tag'', ''r''', '''arguments'', gen_random_uuid(), NULL, ''r''', '''arguments'', gen_random_uuid(), ''tag'', NULL', '''arguments'', gen_random_uuid(), ''tag'', ''''',
	'''arguments'', gen_random_uuid(), ''tag'', ''r''', '''arguments'', gen_random_uuid(), ''unknown'', ''r''']);
CALL attempt_all('fencing_tag_assign', ARRAY[
	'NULL, o(), ''tag'', ''s''', '''arguments'', NULL, ''tag'', ''s''', '''arguments'', gen_random_uuid(), NULL, ''s''', '''arguments'', gen_random_uuid(), ''tag'', NULL', '''arguments'', gen_random_uuid(), ''tag'', ''''',
	'''arguments'', gen_random_uuid(), ''tag'', four_bytes(516)', '''arguments'', gen_random_uuid(), ''TAG'', ''s''', '''elsewhere'', gen_random_uuid(), ''tag'', ''s''', '''arguments'', gen_random_uuid(), upper(o()::text), ''s''', '''arguments'', o(), ''tag'', ''s''']);
CALL attempt_all('fencing_tag_unassign', ARRAY['NULL, o(), ''tag'', ''s''', '''arguments'', NULL, ''tag'', ''s''', '''arguments'', gen_random_uuid(), NULL, ''s''', '''arguments'', gen_random_uuid(), ''tag'', NULL']);
CALL attempt_all('fencing_tag_subscribe', ARRAY['NULL, o(), ''tag'', ''s''', '''arguments'', NULL, ''tag'', ''s''', '''arguments'', gen_random_uuid(), NULL, ''s''', '''arguments'', gen_random_uuid(), ''tag'', NULL']);
CALL attempt_all('fencing_tag_unsubscribe', ARRAY['NULL, o(), ''tag'', ''s''', '''arguments'', NULL, ''tag'', ''s''', '''arguments'', gen_random_uuid(), NULL, ''s''', '''arguments'', gen_random_uuid(), ''tag'', NULL']);
CALL attempt_all('fencing_tag_resolve', ARRAY['NULL, ''tag''', '''arguments'', NULL', ''''', ''tag''', '''arguments'', ascii(513)', '''arguments'', ''unknown''']);
CALL attempt_all('fencing_tags_of', ARRAY['NULL, ''s''', '''arguments'', NULL', '''arguments'', ''''', '''arguments'', ''nobody''']);
CALL attempt_all('fencing_tag_subjects', ARRAY['NULL, ''tag''', '''arguments'', NULL', '''arguments'', ''unknown''', '''arguments'', ''tag'', 0', '''arguments'', ''tag'', -1', '''arguments'', ''tag'', 9223372036854775807', '''arguments'', ''tag'', NULL, NULL, 0', '''arguments'', ''tag'', NULL, NULL, NULL']);
CALL attempt_all('fencing_tag_subscribers', ARRAY['NULL, ''tag''', '''arguments'', NULL', '''arguments'', ''unknown''', '''arguments'', ''tag'', 0', '''arguments'', ''tag'', NULL, NULL, 0']);
CALL attempt_all('fencing_tag_statistics', ARRAY['NULL', '''arguments'', 0', '''arguments'', NULL, ''unknown''', '''nowhere''']);
CALL attempt_all('fencing_tag_check', ARRAY['NULL', '''''', '''arguments''', '''nowhere''']);
UPDATE attempt SET answer = regexp_replace(answer, '[0-9a-f]{8}-[0-9a-f-]{27}', 'UUID') WHERE call LIKE '%gen_random_uuid()%';

SELECT call, answer FROM attempt ORDER BY n;
-- nothing of all that has left a trace
SELECT state() = :'before' AS unchanged;

-- an infinite ttl: it came with 17, and there is none to be refused before; and
-- one that the type itself refuses, in words that differ between versions
DO $$
DECLARE
	call text;
	answer text;
BEGIN
	answer := attempt($x$SELECT fencing_acquire('arguments/n', md5('A')::uuid, '1000000000 years')$x$);
	IF answer !~ '^(22008|22015): ' THEN
		RAISE EXCEPTION '%', answer;
	END IF;
	IF current_setting('server_version_num')::int >= 170000 THEN
		FOREACH call IN ARRAY ARRAY[
			$x$SELECT fencing_acquire('arguments/n', md5('A')::uuid, 'infinity')$x$, $x$SELECT fencing_acquire('arguments/n', md5('A')::uuid, '-infinity')$x$,
			$x$SELECT fencing_renew('arguments/a', md5('A')::uuid, 1, 'infinity')$x$, $x$SELECT fencing_renew('arguments/a', md5('A')::uuid, 1, '-infinity')$x$]
		LOOP
			answer := attempt(call);
			IF answer NOT LIKE '22023: %ttl%' THEN
				RAISE EXCEPTION '% gave %', call, answer;
			END IF;
		END LOOP;
	END IF;
END $$;
SELECT state() = :'before' AS unchanged;

-- at top level, where an error ends the transaction, and after it all is well
SELECT * FROM fencing_acquire(NULL, o());
\echo :SQLSTATE
SELECT * FROM fencing_acquire('arguments/n', o(), '0');
\echo :SQLSTATE
SELECT * FROM fencing_commit('arguments/a', 1, NULL);
\echo :SQLSTATE
SELECT * FROM fencing_commit('arguments/a', 0, '2');
\echo :SQLSTATE
SELECT * FROM fencing_commit('arguments/a', 1, deep(513), 'SELECT 1', 's');
\echo :SQLSTATE
SELECT * FROM fencing_commit(repeat('x', 513), 1, '2');
\echo :SQLSTATE
SELECT * FROM fencing_receipt(NULL, 1);
\echo :SQLSTATE
SELECT state() = :'before' AS unchanged;
SELECT outcome, token FROM fencing_renew('arguments/a', o(), 1);
SELECT outcome, fence FROM fencing_commit('arguments/a', 1, '1.0', 'SELECT 1');

--
-- What is just within the limits
--
SELECT k.n, octet_length(k.k) AS bytes, char_length(k.k) AS chars, a.outcome, r.outcome AS renew, c.outcome AS commit, x.outcome AS release
FROM (VALUES (1, ascii(512)), (2, two_bytes(512)), (3, four_bytes(512)), (4, four_bytes(511)), (5, 'k'), (6, U&'\00E9')) AS k (n, k),
	LATERAL fencing_acquire(k, o(), '1 day') a,
	LATERAL fencing_renew(k, o(), a.token, '1 microsecond') r,
	LATERAL fencing_commit(k, r.token, '1', 'SELECT 1', step => k) c,
	LATERAL fencing_release(k, o(), r.token) x
ORDER BY n;
SELECT k.n, digest_version FROM (VALUES (1, ascii(512)), (2, two_bytes(512)), (3, four_bytes(512)), (4, four_bytes(511)), (5, 'k'), (6, U&'\00E9')) AS k (n, k),
	LATERAL fencing_receipt(k, 1, k) ORDER BY n;
SELECT k.n, fencing_revoke(k, 'r') AS revoke, fencing_forget(k) IS NOT NULL AS forget
FROM (VALUES (1, ascii(512)), (2, two_bytes(512)), (3, four_bytes(512)), (4, four_bytes(511)), (5, 'k'), (6, U&'\00E9')) AS k (n, k) ORDER BY n;
UPDATE fencing.floor SET floor = 0;
SELECT * FROM fencing_advance(two_bytes(512), 9223372036854775807);
SELECT * FROM fencing_renew('arguments/a', o(), 9223372036854775807);
SELECT * FROM fencing_release('arguments/a', o(), 9223372036854775807);
SELECT fencing_revoke('arguments/x', repeat('why ', 100000));
SELECT outcome, result FROM fencing_commit('arguments/a', 1, deep(512), 'SELECT 1 AS n', 'deep');
SELECT outcome, result FROM fencing_commit('arguments/a', 1, deep_object(512), 'SELECT 1 AS n', 'deep object');
SELECT outcome FROM fencing_commit('arguments/a', 1, deep(511), 'SELECT 1 AS n', 'deep');
SELECT outcome FROM fencing_commit('arguments/a', 1, deep(512), 'SELECT 1 AS n', 'deep');
-- JSON null is a payload, as every scalar is
SELECT p, outcome, result FROM unnest(ARRAY['null', 'true', '0', '""', '[]', '{}']) p, LATERAL fencing_commit('arguments/a', 1, p::jsonb, 'SELECT $3', 'scalar ' || p);

-- 50 MB, as one string and as many
SELECT outcome, result FROM fencing_commit('arguments/a', 1, to_jsonb(repeat('0123456789', 5242880)), 'SELECT length($3#>>''{}'') AS n', 'big');
SELECT outcome, result FROM fencing_commit('arguments/a', 1, to_jsonb(repeat('0123456789', 5242880)), 'SELECT 0', 'big');
SELECT outcome, result FROM fencing_commit('arguments/a', 1, to_jsonb(repeat('0123456789', 5242880) || 'x'), 'SELECT 0', 'big');
SELECT outcome, result FROM fencing_commit('arguments/a', 1,
	(SELECT jsonb_object_agg(i, repeat('0123456789', 1000)) FROM generate_series(1, 5000) i), 'SELECT count(*) AS n FROM jsonb_object_keys($3)', 'many');
SELECT outcome, result FROM fencing_commit('arguments/a', 1,
	(SELECT jsonb_object_agg(5001 - i, repeat('0123456789', 1000)) FROM generate_series(1, 5000) i), 'SELECT 0', 'many');
-- and as a result
SELECT outcome, length(result->>'s') FROM fencing_commit('arguments/a', 1, '1', 'SELECT repeat(''0123456789'', 1000000) AS s', 'big result');
SELECT outcome, length(result->>'s') FROM fencing_commit('arguments/a', 1, '1', 'SELECT 0', 'big result');
-- a long statement
SELECT outcome, result FROM fencing_commit('arguments/a', 1, '1', 'SELECT 1 AS n' || repeat(' ', 1000000), 'long statement');

-- every function was asked with NULL: nothing of the extension was left out
SELECT p.proname, p.proisstrict FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.deptype = 'e' AND d.classid = 'pg_proc'::regclass
	JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'fencing'
WHERE p.pronargs > 0 AND NOT p.proisstrict ORDER BY p.proname;

SET session_replication_role = replica;
DELETE FROM fencing.tag_events;
RESET session_replication_role;
DELETE FROM fencing.tag_names;
DELETE FROM fencing.tags;
DELETE FROM fencing.receipts;
DELETE FROM fencing.leases;
DELETE FROM fencing.fences;
DELETE FROM fencing.revocations;
SET client_min_messages = warning;
DROP SCHEMA regress_arguments CASCADE;
DROP ROLE regress_fencing_args;
