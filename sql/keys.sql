--
-- Keys are compared byte by byte: what looks alike is another job.  Everything
-- but ASCII is written as escapes here.
--
UPDATE fencing.floor SET floor = 0;
CREATE TEMP TABLE key (n serial, what text, k text);
INSERT INTO key (what, k) VALUES
	('plain', 'keys/Report'),
	('case', 'keys/report'),
	('trailing space', 'keys/Report '),
	('two trailing spaces', 'keys/Report  '),
	('leading space', ' keys/Report'),
	('tab', E'keys/Report\t'),
	('newline', E'keys/Report\n'),
	('prefix', 'keys/Repor'),
	('longer', 'keys/Report/'),
	('NFC', U&'keys/Caf\00E9'),
	('NFD', U&'keys/Cafe\0301'),
	('sharp s', U&'keys/stra\00DFe'),
	('ss', 'keys/strasse'),
	('SS', 'keys/STRASSE'),
	('dotless i', U&'keys/\0131'),
	('dotted I', U&'keys/\0130'),
	('i', 'keys/i'),
	('I', 'keys/I'),
	('beyond the BMP', U&'keys/\+01F600'),
	('its neighbour', U&'keys/\+01F601'),
	('no-break space', U&'keys/Report\00A0'),
	('zero width joiner', U&'keys/Re\200Dport'),
	('fullwidth', U&'keys/\FF32eport'),
	('A with ring', U&'keys/\00C5'),
	('Angstrom sign', U&'keys/\212B'),
	('quote', 'keys/''"'),
	('backslash', 'keys/\'),
	('percent', 'keys/%s%_'),
	('number 1', 'keys/1'),
	('number 01', 'keys/01'),
	('one space', ' '),
	('one byte', 'k');

-- as many jobs as keys, each from its own token 1, each with its own owner
SELECT count(*) AS keys, count(DISTINCT a.outcome) AS outcomes, min(a.outcome) AS outcome, min(a.token) AS min, max(a.token) AS max
FROM key, LATERAL fencing_acquire(k, md5(n::text)::uuid, '1 hour') a;
SELECT (SELECT count(*) FROM key) AS keys, (SELECT count(*) FROM fencing.fences JOIN key ON job_key = k) AS fences,
	(SELECT count(*) FROM fencing.leases JOIN key ON job_key = k) AS leases;
-- nobody took another's
SELECT what, r.outcome FROM key, LATERAL fencing_renew(k, md5(n::text)::uuid, 1) r WHERE r.outcome <> 'renewed';
SELECT what, l.owner = md5(n::text)::uuid AS own FROM key JOIN fencing.leases l ON l.job_key = k COLLATE "C" WHERE l.owner <> md5(n::text)::uuid;
SELECT count(*) AS held FROM key, LATERAL fencing_acquire(k, md5('other')::uuid) a WHERE a.outcome = 'held';
-- receipts likewise: each key gets its own payload and replays only that
SELECT count(*) AS committed FROM key, LATERAL fencing_commit(k, 1, to_jsonb(n), 'SELECT $1 AS k') c
WHERE c.outcome = 'committed' AND c.result = jsonb_build_object('k', k);
SELECT count(*) AS replayed FROM key, LATERAL fencing_commit(k, 1, to_jsonb(n), 'SELECT 0') c
WHERE c.outcome = 'replayed' AND c.result->>'k' = k COLLATE "C";
SELECT count(*) AS conflict FROM key, LATERAL fencing_commit(k, 1, to_jsonb(n + 1), 'SELECT 0') c WHERE c.outcome = 'conflict';
SELECT count(*) AS receipts FROM key, LATERAL fencing_receipt(k, 1) r WHERE r.digest = fencing_digest(to_jsonb(n));
-- steps likewise
SELECT count(*) AS committed FROM key, LATERAL fencing_commit('k', 1, to_jsonb(n), 'SELECT 1', step => k) c WHERE c.outcome = 'committed';
SELECT count(*) AS replayed FROM key, LATERAL fencing_commit('k', 1, to_jsonb(n), 'SELECT 0', step => k) c WHERE c.outcome = 'replayed';

-- a part of the key is not taken for another part
SELECT a.outcome, a.token FROM unnest(ARRAY['keys/a', 'keys/ab', 'keys/a1']) k, LATERAL fencing_acquire(k, md5('A')::uuid, '1 hour') a;
SELECT fencing_revoke('keys/a', 'count up') FROM generate_series(1, 10);
SELECT k, t, s, c.outcome FROM (VALUES ('keys/a', 11, 'bc'), ('keys/ab', 1, 'c'), ('keys/a1', 1, 'bc'), ('keys/a', 11, 'b'), ('keys/a', 11, ''), ('keys/ab', 1, ''))
	AS v (k, t, s), LATERAL fencing_commit(k, t, '1', 'SELECT 1', step => s) c;

-- The session's collation has no say, the argument's neither.
CREATE TEMP TABLE answer (what text);
DO $$
BEGIN
	BEGIN
		CREATE COLLATION pg_temp.ignore_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
	EXCEPTION WHEN OTHERS THEN
		-- a server without ICU has no such collation to be led astray by
		INSERT INTO answer VALUES ('acquired 1'), ('held'), ('LF001'), ('no receipt');
		RETURN;
	END;
	EXECUTE $x$INSERT INTO answer SELECT outcome || ' ' || token FROM fencing_acquire('KEYS/I' COLLATE pg_temp.ignore_case, md5('A')::uuid)$x$;
	EXECUTE $x$INSERT INTO answer SELECT outcome FROM fencing_acquire('keys/I' COLLATE pg_temp.ignore_case, md5('A')::uuid)$x$;
	BEGIN
		EXECUTE $x$INSERT INTO answer SELECT outcome FROM fencing_commit('KEYS/REPORT' COLLATE pg_temp.ignore_case, 1, '1', 'SELECT 1')$x$;
	EXCEPTION WHEN SQLSTATE 'LF001' THEN
		INSERT INTO answer VALUES (SQLSTATE);
	END;
	EXECUTE $x$INSERT INTO answer SELECT CASE count(*) WHEN 0 THEN 'no receipt' END FROM fencing_receipt('KEYS/REPORT' COLLATE pg_temp.ignore_case, 1)$x$;
END $$;
SELECT * FROM answer;

-- Long keys that do not compress, of the full 512 bytes and different in the
-- last one only; the longest key with the longest step.
CREATE TEMP TABLE long AS
SELECT c, left('keys/' || string_agg(md5(i::text), '' ORDER BY i), 511) || c AS k
FROM generate_series(1, 17) i, unnest(ARRAY['x', 'y']) c GROUP BY c;
SELECT c, octet_length(k), a.outcome, a.token FROM long, LATERAL fencing_acquire(k, md5(c)::uuid, '1 hour') a ORDER BY c;
SELECT l.c, s.c AS step, r.outcome FROM long l, long s, LATERAL fencing_commit(l.k, 1, to_jsonb(l.c || s.c), 'SELECT 1', step => s.k) r ORDER BY 1, 2;
SELECT l.c, s.c AS step, r.outcome FROM long l, long s, LATERAL fencing_commit(l.k, 1, to_jsonb(l.c || s.c), 'SELECT 1', step => s.k) r ORDER BY 1, 2;
SELECT l.c, s.c AS step, r.digest = fencing_digest(to_jsonb(l.c || s.c)) AS own FROM long l, long s, LATERAL fencing_receipt(l.k, 1, s.k) r ORDER BY 1, 2;
SELECT c, r.outcome FROM long, LATERAL fencing_release(k, md5(c)::uuid, 1) r ORDER BY c;
SELECT c, fencing_forget(k) IS NOT NULL AS done FROM long ORDER BY c;

DELETE FROM fencing.receipts;
DELETE FROM fencing.leases;
DELETE FROM fencing.fences;
DELETE FROM fencing.revocations;
UPDATE fencing.floor SET floor = 0;
