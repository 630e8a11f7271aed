--
-- Protected tables: a row is written for a job only by a transaction that was
-- answered `committed` for that job.  PREPARE TRANSACTION, which ends a pass
-- too, needs another server setting: see test/t.
--
\set VERBOSITY sqlstate
SET client_min_messages = error;

CREATE SCHEMA regress_protect;
SET search_path = regress_protect, public;

-- Jobs a, b and c, with their tokens where everybody can read them.
CREATE TABLE tokens (job text, token bigint);
INSERT INTO tokens
SELECT 'protect/' || j, (fencing_acquire('protect/' || j, md5('A')::uuid, '1 day')).token FROM unnest('{a,b,c}'::text[]) j;
CREATE SEQUENCE steps;

-- A gate alone, with a step of its own.
CREATE FUNCTION gate(job text) RETURNS fencing_outcome LANGUAGE plpgsql AS $$
BEGIN
	RETURN (SELECT outcome FROM fencing_commit(gate.job, (SELECT t.token FROM tokens t WHERE t.job = gate.job),
		'{}', step => nextval('steps')::text));
END $$;

-- Runs a command after the gates of some jobs: its rows or its SQLSTATE.  What
-- it did is undone, and so are the passes.
CREATE FUNCTION try(command text, VARIADIC jobs text[] DEFAULT '{}') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	job text;
	n bigint;
BEGIN
	FOREACH job IN ARRAY jobs LOOP
		ASSERT gate('protect/' || job) = 'committed';
	END LOOP;
	EXECUTE command;
	GET DIAGNOSTICS n = ROW_COUNT;
	RAISE EXCEPTION USING ERRCODE = 'UNDO1';
EXCEPTION
	WHEN SQLSTATE 'UNDO1' THEN RETURN 'ok ' || n;
	WHEN OTHERS THEN RETURN SQLSTATE;
END $$;

-- The same command without a pass, with a's, with b's, with both.
CREATE FUNCTION tries(command text, OUT without text, OUT a text, OUT b text, OUT a_and_b text) LANGUAGE sql AS $$
SELECT try(command), try(command, 'a'), try(command, 'b'), try(command, 'a', 'b')
$$;

-- The triggers of a table and its partitions.
CREATE FUNCTION guards(relation regclass, OUT partition regclass, OUT triggers text) RETURNS SETOF record LANGUAGE sql AS $$
SELECT r.relid, string_agg(tgname, ' ' ORDER BY tgname COLLATE "C")
FROM (SELECT relid FROM pg_partition_tree(relation) UNION SELECT relation) r
LEFT JOIN pg_trigger t ON tgrelid = r.relid AND NOT tgisinternal AND tgname LIKE 'fencing%'
GROUP BY 1 ORDER BY r.relid::text COLLATE "C"
$$;

--
-- Every kind of write, to a table with the job in a column
--
CREATE TABLE t (id int PRIMARY KEY, job text, n int DEFAULT 0);
INSERT INTO t VALUES (1, 'protect/a'), (2, 'protect/b'), (3, NULL);
CREATE TABLE source (id int, job text);
INSERT INTO source VALUES (1, 'protect/b'), (2, 'protect/a'), (7, 'protect/a');
CREATE VIEW through AS SELECT * FROM t;
SELECT fencing_protect('t', 'job');
SELECT * FROM guards('t');

SELECT w.command, r.* FROM (VALUES
	(10, $$INSERT INTO t VALUES (4, 'protect/a')$$),
	(11, $$INSERT INTO t VALUES (4, 'protect/b')$$),
	(12, $$INSERT INTO t VALUES (4, 'protect/a'), (5, 'protect/b')$$),
	(13, $$INSERT INTO t SELECT 9, 'protect/a' WHERE false$$),
	(14, $$INSERT INTO through VALUES (4, 'protect/a')$$),
	-- old and new key
	(20, $$UPDATE t SET n = 1 WHERE id = 1$$),
	(21, $$UPDATE t SET n = n WHERE id = 1$$),
	(22, $$UPDATE t SET job = 'protect/b' WHERE id = 1$$),
	(23, $$UPDATE t SET job = 'protect/a' WHERE id = 2$$),
	(24, $$UPDATE t SET n = 1 WHERE id <= 2$$),
	(25, $$UPDATE t SET n = 1 WHERE id = 9$$),
	(26, $$UPDATE ONLY t SET n = s.id FROM source s WHERE t.id = 1 AND s.id = 7$$),
	(27, $$UPDATE through SET job = 'protect/b' WHERE id = 1$$),
	(30, $$DELETE FROM t WHERE id = 1$$),
	(31, $$DELETE FROM t WHERE id <= 2$$),
	(32, $$DELETE FROM t WHERE id = 9$$),
	-- NULL and empty: nobody can have a pass
	(40, $$INSERT INTO t VALUES (4, NULL)$$),
	(41, $$INSERT INTO t VALUES (4, '')$$),
	(42, $$INSERT INTO t (id) VALUES (4)$$),
	(43, $$UPDATE t SET job = NULL WHERE id = 1$$),
	(44, $$UPDATE t SET job = 'protect/a' WHERE id = 3$$),
	(45, $$UPDATE t SET n = 1 WHERE id = 3$$),
	(46, $$DELETE FROM t WHERE id = 3$$),
	(50, $$TRUNCATE t$$),
	(51, $$TRUNCATE source, t$$),
	-- what becomes of the row decides, not what was meant
	(60, $$INSERT INTO t VALUES (1, 'protect/b') ON CONFLICT DO NOTHING$$),
	(61, $$INSERT INTO t VALUES (4, 'protect/b') ON CONFLICT DO NOTHING$$),
	(62, $$INSERT INTO t VALUES (1, 'protect/b') ON CONFLICT (id) DO UPDATE SET n = 1$$),
	(63, $$INSERT INTO t VALUES (1, 'protect/b') ON CONFLICT (id) DO UPDATE SET job = EXCLUDED.job$$),
	(64, $$INSERT INTO t VALUES (1, 'protect/b') ON CONFLICT (id) DO UPDATE SET n = 1 WHERE false$$),
	(70, $$MERGE INTO t USING source s ON t.id = s.id AND s.id = 7 WHEN NOT MATCHED AND s.id = 7 THEN INSERT VALUES (s.id, s.job)$$),
	(71, $$MERGE INTO t USING source s ON t.id = s.id WHEN MATCHED AND s.id = 1 THEN UPDATE SET n = 1$$),
	(72, $$MERGE INTO t USING source s ON t.id = s.id WHEN MATCHED AND s.id = 1 THEN UPDATE SET job = s.job$$),
	(73, $$MERGE INTO t USING source s ON t.id = s.id WHEN MATCHED AND s.id = 1 THEN DELETE$$),
	(74, $$MERGE INTO t USING source s ON t.id = s.id WHEN MATCHED AND s.id = 1 THEN UPDATE SET n = 1 WHEN MATCHED AND s.id = 2 THEN DELETE$$),
	(75, $$MERGE INTO t USING source s ON t.id = s.id WHEN MATCHED THEN DO NOTHING$$),
	(80, $$WITH w AS (UPDATE t SET n = 1 WHERE id = 1 RETURNING *) SELECT * FROM w$$),
	(81, $$WITH w AS (DELETE FROM t WHERE id = 1) INSERT INTO t VALUES (4, 'protect/b')$$),
	-- no writes
	(90, $$SELECT * FROM t FOR UPDATE$$),
	(91, $$LOCK TABLE t$$)) w (n, command), LATERAL tries(w.command) r ORDER BY w.n;
SELECT * FROM t ORDER BY id;

-- COPY writes many rows at a time
COPY t (id, job) FROM STDIN;
10	protect/a
\.
BEGIN;
SELECT gate('protect/a');
COPY t (id, job) FROM STDIN;
10	protect/a
11	protect/a
\.
COMMIT;
BEGIN;
SELECT gate('protect/a');
COPY t (id, job) FROM STDIN;
12	protect/a
13	protect/b
14	protect/a
\.
COMMIT;
SELECT * FROM t ORDER BY id;

--
-- The job of a whole table
--
CREATE TABLE whole (id int PRIMARY KEY, job text);
INSERT INTO whole VALUES (1, 'protect/b');
SELECT fencing_protect('whole', job_key => 'protect/a');
SELECT * FROM guards('whole');
SELECT w.command, r.* FROM (VALUES
	(1, $$INSERT INTO whole VALUES (2, 'protect/b')$$),
	(2, $$INSERT INTO whole VALUES (2, NULL)$$),
	(3, $$INSERT INTO whole SELECT 2 WHERE false$$),
	(4, $$UPDATE whole SET job = NULL$$),
	(5, $$DELETE FROM whole$$),
	(6, $$TRUNCATE whole$$),
	(7, $$TRUNCATE whole, source$$)) w (n, command), LATERAL tries(w.command) r ORDER BY w.n;

--
-- What gives a pass
--
-- The answers: one and the same call, and an INSERT after it in the same transaction.
CREATE FUNCTION after_answer(job text, token bigint, payload jsonb, statement text DEFAULT NULL, report boolean DEFAULT false,
	strict boolean DEFAULT false, OUT answer text, OUT after text) LANGUAGE plpgsql AS $$
BEGIN
	BEGIN
		answer := (fencing_commit(job, token, payload, statement, 'answer', report, strict)).outcome;
	EXCEPTION WHEN OTHERS THEN
		answer := SQLSTATE;
	END;
	after := try(format('INSERT INTO t VALUES (20, %L)', job));
END $$;
SELECT token AS a FROM tokens WHERE job = 'protect/a' \gset
SELECT * FROM after_answer('protect/a', :a, '1');
SELECT * FROM after_answer('protect/a', :a, '1');
SELECT * FROM after_answer('protect/a', :a, '2');
SELECT * FROM after_answer('protect/a', :a, '1', strict => true);
SELECT * FROM after_answer('protect/a', :a, '2', strict => true);
SELECT * FROM after_answer('protect/a', :a + 1, '1');
SELECT * FROM after_answer('protect/none', 1, '1');
SELECT r.* FROM tokens, after_answer('protect/c', token, '1', 'SELECT 1/0', true) r WHERE job = 'protect/c';
SELECT r.* FROM tokens, after_answer('protect/c', token, '1', 'SELECT 1/0') r WHERE job = 'protect/c';
SELECT r.* FROM tokens, after_answer('protect/c', token, '1', strict => true) r WHERE job = 'protect/c';
-- stale and pruned
SELECT outcome FROM fencing_acquire('protect/s', md5('A')::uuid, '1 microsecond');
SELECT outcome FROM fencing_acquire('protect/s', md5('B')::uuid, '1 microsecond');
SELECT r.* FROM fencing.fences, after_answer('protect/s', token - 1, '1') r WHERE job_key = 'protect/s';
UPDATE fencing.fences SET purged_through = token - 1 WHERE job_key = 'protect/s';
SELECT r.* FROM fencing.fences, after_answer('protect/s', token - 1, '1') r WHERE job_key = 'protect/s';
-- an external job
SELECT outcome FROM fencing_advance('protect/x', 5);
SELECT * FROM after_answer('protect/x', 5, '1');
SELECT * FROM after_answer('protect/x', 5, '1');
-- Having the lease is not enough, nor is a look at the receipt.
BEGIN;
SELECT outcome FROM fencing_acquire('protect/a', md5('A')::uuid);
SELECT outcome FROM fencing_renew('protect/a', md5('A')::uuid, :a);
SELECT count(*) FROM fencing_receipt('protect/a', :a, 'answer');
SELECT try($$INSERT INTO t VALUES (20, 'protect/a')$$);
ROLLBACK;

-- The statement of the call itself, also within a function
SELECT outcome FROM fencing_commit('protect/a', :a, '{"id": 30}', 'INSERT INTO t VALUES (($3->>''id'')::int, $1)', 'statement');
SELECT outcome FROM fencing_commit('protect/a', :a, '{"id": 30}', 'INSERT INTO t VALUES (($3->>''id'')::int, $1)', 'statement');
CREATE FUNCTION deep(id int, job text) RETURNS int LANGUAGE plpgsql SECURITY DEFINER SET search_path = regress_protect AS $$
BEGIN
	INSERT INTO t VALUES (id, job);
	RETURN id;
END $$;
SELECT outcome, result FROM fencing_commit('protect/a', :a, '1', 'SELECT deep(31, $1)', 'function');
-- a row of somebody else's in it: the receipt goes too
SELECT outcome FROM fencing_commit('protect/a', :a, '1', $$INSERT INTO t VALUES (32, $1), (33, 'protect/b')$$, 'other');
SELECT outcome, error->>'sqlstate' AS sqlstate
FROM fencing_commit('protect/a', :a, '1', $$INSERT INTO t VALUES (32, $1), (33, 'protect/b')$$, 'other', report_errors => true);
SELECT count(*) FROM fencing_receipt('protect/a', :a, 'other');
SELECT * FROM t WHERE id >= 30 ORDER BY id;
-- the pass of an outer call serves its statement, that of an inner call the outer one
SELECT outcome, result FROM fencing_commit('protect/a', :a, '1',
	$$INSERT INTO t SELECT 34, 'protect/a' FROM (SELECT gate('protect/b') OFFSET 0) g RETURNING try('INSERT INTO t VALUES (35, ''protect/b'')') AS b, try('INSERT INTO t VALUES (35, ''protect/c'')') AS c$$, 'nested');
-- The gate alone, and writes afterwards
BEGIN;
SELECT gate('protect/a');
INSERT INTO t VALUES (40, 'protect/a');
UPDATE t SET n = 1 WHERE id = 40;
SELECT deep(41, 'protect/a');
COMMIT;
SELECT * FROM t WHERE id >= 40 ORDER BY id;
-- in one message of several statements, too
SELECT gate('protect/a')\; DELETE FROM t WHERE id >= 40;
SELECT * FROM t WHERE id >= 40;
-- whatever the isolation level
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT try($$INSERT INTO t VALUES (40, 'protect/a')$$), gate('protect/a');
SELECT try($$INSERT INTO t VALUES (40, 'protect/a')$$);
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT try($$INSERT INTO t VALUES (40, 'protect/a')$$), gate('protect/a');
SELECT try($$INSERT INTO t VALUES (40, 'protect/a')$$);
COMMIT;
-- by another role that the session takes on
CREATE ROLE regress_protect_writer;
GRANT USAGE ON SCHEMA regress_protect TO regress_protect_writer;
GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON t TO regress_protect_writer;
BEGIN;
SELECT gate('protect/a');
SET LOCAL ROLE regress_protect_writer;
INSERT INTO t VALUES (40, 'protect/a');
INSERT INTO t VALUES (41, 'protect/b');
ROLLBACK;

-- Two jobs in one transaction, and many
BEGIN;
SELECT gate('protect/a');
INSERT INTO t VALUES (40, 'protect/a');
SELECT gate('protect/b');
UPDATE t SET job = 'protect/b' WHERE id = 40;
SELECT try($$UPDATE t SET job = 'protect/c' WHERE id = 40$$);
SELECT try($$INSERT INTO t VALUES (41, 'protect/ab')$$), try($$INSERT INTO t VALUES (41, 'protect/')$$),
	try($$INSERT INTO t VALUES (41, 'protect/A')$$), try($$INSERT INTO t VALUES (41, 'protect/a ')$$),
	try($$INSERT INTO t VALUES (41, ' protect/a')$$), try($$INSERT INTO t VALUES (41, repeat('protect/a', 30000))$$);
ROLLBACK;
BEGIN;
SELECT count(*) FROM generate_series(1, 500) i, LATERAL fencing_acquire('protect/many/' || i, md5('A')::uuid) a,
	LATERAL fencing_commit('protect/many/' || i, a.token, '{}') c WHERE c.outcome = 'committed';
INSERT INTO t SELECT 1000 + i, 'protect/many/' || i FROM generate_series(1, 500) i;
SELECT try($$INSERT INTO t VALUES (2000, 'protect/many/501')$$), try($$INSERT INTO t VALUES (2000, 'protect/many/50')$$);
SELECT count(*) FROM t WHERE id > 1000;
ROLLBACK;

--
-- Where a pass ends
--
-- COMMIT and ROLLBACK, in the same session
BEGIN;
SELECT gate('protect/a');
COMMIT;
SELECT try($$INSERT INTO t VALUES (50, 'protect/a')$$);
BEGIN;
SELECT gate('protect/a');
ROLLBACK;
SELECT try($$INSERT INTO t VALUES (50, 'protect/a')$$);
-- a failed COMMIT
CREATE TABLE unique_later (id int UNIQUE DEFERRABLE INITIALLY DEFERRED);
BEGIN;
SELECT gate('protect/a');
INSERT INTO unique_later VALUES (1), (1);
COMMIT;
SELECT try($$INSERT INTO t VALUES (50, 'protect/a')$$);
-- an error
BEGIN;
SELECT gate('protect/a');
SELECT 1/0;
COMMIT;
SELECT try($$INSERT INTO t VALUES (50, 'protect/a')$$);
-- chained
BEGIN;
SELECT gate('protect/a');
COMMIT AND CHAIN;
SELECT try($$INSERT INTO t VALUES (50, 'protect/a')$$);
ROLLBACK AND CHAIN;
SELECT try($$INSERT INTO t VALUES (50, 'protect/a')$$);
COMMIT;
-- without a transaction block
SELECT gate('protect/a');
SELECT try($$INSERT INTO t VALUES (50, 'protect/a')$$);
-- in a procedure
DO $$
DECLARE
	answers text;
BEGIN
	PERFORM gate('protect/a');
	answers := try($c$INSERT INTO t VALUES (50, 'protect/a')$c$);
	COMMIT;
	answers := concat_ws(', ', answers, try($c$INSERT INTO t VALUES (50, 'protect/a')$c$));
	PERFORM gate('protect/a');
	ROLLBACK;
	answers := concat_ws(', ', answers, try($c$INSERT INTO t VALUES (50, 'protect/a')$c$));
	PERFORM set_config('regress.answers', answers, false);
END $$;
SELECT current_setting('regress.answers');

-- Savepoints: undone by ROLLBACK TO
BEGIN;
SAVEPOINT s;
SELECT gate('protect/a');
SELECT try($$INSERT INTO t VALUES (50, 'protect/a')$$) AS within;
ROLLBACK TO s;
SELECT try($$INSERT INTO t VALUES (50, 'protect/a')$$) AS undone;
-- again, at the same depth
SELECT gate('protect/a');
SELECT try($$INSERT INTO t VALUES (50, 'protect/a')$$) AS within;
ROLLBACK TO s;
SELECT try($$INSERT INTO t VALUES (50, 'protect/a')$$) AS undone;
COMMIT;
-- kept by RELEASE
BEGIN;
SAVEPOINT s;
SELECT gate('protect/a');
RELEASE s;
SELECT try($$INSERT INTO t VALUES (50, 'protect/a')$$) AS kept;
SAVEPOINT s;
ROLLBACK TO s;
SELECT try($$INSERT INTO t VALUES (50, 'protect/a')$$) AS kept;
COMMIT;
-- three levels: it falls with the level to which it was released
BEGIN;
SAVEPOINT s1;
SAVEPOINT s2;
SAVEPOINT s3;
SELECT gate('protect/a');
RELEASE s3;
SELECT try($$INSERT INTO t VALUES (50, 'protect/a')$$) AS in_s2;
ROLLBACK TO s2;
SELECT try($$INSERT INTO t VALUES (50, 'protect/a')$$) AS undone;
SAVEPOINT s3;
SELECT gate('protect/a');
RELEASE s2;
SELECT try($$INSERT INTO t VALUES (50, 'protect/a')$$) AS in_s1;
SAVEPOINT s2;
SAVEPOINT s3;
ROLLBACK TO s2;
SELECT try($$INSERT INTO t VALUES (50, 'protect/a')$$) AS in_s1;
ROLLBACK TO s1;
SELECT try($$INSERT INTO t VALUES (50, 'protect/a')$$) AS undone;
SELECT gate('protect/a');
RELEASE s1;
SELECT try($$INSERT INTO t VALUES (50, 'protect/a')$$) AS on_top;
COMMIT;
-- a pass on each level; the gate passed twice
BEGIN;
SELECT gate('protect/c');
SAVEPOINT s1;
SELECT gate('protect/a');
SAVEPOINT s2;
SELECT gate('protect/b');
SELECT gate('protect/a');
SELECT j, try(format('INSERT INTO t VALUES (50, %L)', 'protect/' || j)) FROM unnest('{a,b,c}'::text[]) j;
ROLLBACK TO s2;
SELECT j, try(format('INSERT INTO t VALUES (50, %L)', 'protect/' || j)) FROM unnest('{a,b,c}'::text[]) j;
ROLLBACK TO s1;
SELECT j, try(format('INSERT INTO t VALUES (50, %L)', 'protect/' || j)) FROM unnest('{a,b,c}'::text[]) j;
COMMIT;
-- a refused write undone by a savepoint leaves the pass that was there
BEGIN;
SELECT gate('protect/a');
SAVEPOINT s;
INSERT INTO t VALUES (50, 'protect/b');
ROLLBACK TO s;
INSERT INTO t VALUES (50, 'protect/a');
DELETE FROM t WHERE id = 50;
COMMIT;
-- many at a time: those of the inner levels fall, the others stay
INSERT INTO tokens
SELECT 'protect/m' || i, (fencing_acquire('protect/m' || i, md5('A')::uuid, '1 day')).token FROM generate_series(1, 300) i;
CREATE VIEW passes AS SELECT count(*), min(i), max(i) FROM generate_series(1, 300) i
WHERE try(format('INSERT INTO t VALUES (50, %L)', 'protect/m' || i)) = 'ok 1';
BEGIN;
SELECT count(gate('protect/m' || i)) FROM generate_series(1, 100) i;
SAVEPOINT s1;
SELECT count(gate('protect/m' || i)) FROM generate_series(51, 200) i;
SAVEPOINT s2;
SELECT count(gate('protect/m' || i)) FROM generate_series(151, 300) i;
SELECT * FROM passes;
ROLLBACK TO s2;
SELECT * FROM passes;
SELECT count(gate('protect/m' || i)) FROM generate_series(201, 250) i;
RELEASE s2;
SELECT * FROM passes;
ROLLBACK TO s1;
SELECT * FROM passes;
SELECT count(gate('protect/m' || i)) FROM generate_series(101, 300) i;
SELECT * FROM passes;
COMMIT;
SELECT * FROM passes;
-- An exception block around a commit that fails
DO $$
DECLARE
	answers text;
BEGIN
	BEGIN
		PERFORM gate('protect/a');
		answers := try($c$INSERT INTO t VALUES (50, 'protect/a')$c$);
		PERFORM 1/0;
	EXCEPTION WHEN division_by_zero THEN
		answers := concat_ws(', ', answers, try($c$INSERT INTO t VALUES (50, 'protect/a')$c$));
	END;
	BEGIN
		PERFORM fencing_commit('protect/a', token, '{}', 'SELECT 1/0', 'fails') FROM tokens WHERE job = 'protect/a';
	EXCEPTION WHEN division_by_zero THEN
		answers := concat_ws(', ', answers, try($c$INSERT INTO t VALUES (50, 'protect/a')$c$));
	END;
	BEGIN
		PERFORM gate('protect/a');
	EXCEPTION WHEN OTHERS THEN
		RAISE;
	END;
	answers := concat_ws(', ', answers, try($c$INSERT INTO t VALUES (50, 'protect/a')$c$));
	PERFORM set_config('regress.answers', answers, false);
END $$;
SELECT current_setting('regress.answers');

-- A batch: the item that fails is without row and pass, the others are accepted.
BEGIN;
SELECT i.job, c.outcome, c.error->>'sqlstate' AS sqlstate
FROM (SELECT job, token, payload::jsonb FROM tokens JOIN (VALUES ('protect/a', '60'), ('protect/b', '60'), ('protect/c', '61')) p (job, payload)
		USING (job) ORDER BY job COLLATE "C" OFFSET 0) i,
	LATERAL fencing_commit(i.job, i.token, i.payload, 'INSERT INTO t VALUES ($3::int, $1)', 'batch', report_errors => true) c;
SELECT j, try(format('INSERT INTO t VALUES (62, %L)', 'protect/' || j)) FROM unnest('{a,b,c}'::text[]) j;
COMMIT;
SELECT * FROM t WHERE id >= 60 ORDER BY id;

-- Deferred triggers of the user write at COMMIT, when the pass is still there.
CREATE TABLE queue (id int, job text);
CREATE FUNCTION write_later() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO t VALUES (NEW.id, NEW.job);
	RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER later AFTER INSERT ON queue DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION write_later();
BEGIN;
INSERT INTO queue VALUES (70, 'protect/a');
SELECT gate('protect/a');
SELECT count(*) FROM t WHERE id = 70;
COMMIT;
SELECT * FROM t WHERE id = 70;
BEGIN;
INSERT INTO queue VALUES (71, 'protect/a');
COMMIT;
BEGIN;
INSERT INTO queue VALUES (71, 'protect/a');
SAVEPOINT s;
SELECT gate('protect/a');
ROLLBACK TO s;
COMMIT;
BEGIN;
SELECT gate('protect/a');
INSERT INTO queue VALUES (71, 'protect/b');
COMMIT;
SELECT * FROM t WHERE id = 71;
-- The guard itself cannot be put off.
BEGIN;
SET CONSTRAINTS ALL DEFERRED;
INSERT INTO t VALUES (71, 'protect/a');
ROLLBACK;

--
-- Triggers and foreign keys beside it
--
-- BEFORE triggers that rewrite the key, whatever their name
CREATE TABLE rewritten (id int PRIMARY KEY, job text, wish text);
SELECT fencing_protect('rewritten', 'job');
CREATE FUNCTION grant_wish() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.wish = 'nothing' THEN
		RETURN NULL;
	END IF;
	NEW.job := COALESCE(NEW.wish, NEW.job);
	RETURN NEW;
END $$;
CREATE TRIGGER aaa BEFORE INSERT OR UPDATE ON rewritten FOR EACH ROW EXECUTE FUNCTION grant_wish();
CREATE VIEW rewrites (n, command) AS VALUES
	(1, $$INSERT INTO rewritten VALUES (1, 'protect/a', 'protect/b')$$),
	(2, $$INSERT INTO rewritten VALUES (1, 'protect/b', 'protect/a')$$),
	(3, $$INSERT INTO rewritten VALUES (1, 'protect/a', 'nothing')$$),
	(4, $$INSERT INTO rewritten VALUES (1, NULL, 'protect/a')$$),
	(5, $$WITH x AS (SELECT 1) INSERT INTO rewritten VALUES (2, 'protect/a') ON CONFLICT (id) DO UPDATE SET wish = 'protect/b'$$),
	(6, $$UPDATE rewritten SET wish = 'protect/b' WHERE id = 2$$),
	(7, $$UPDATE rewritten SET job = 'protect/b', wish = 'protect/a' WHERE id = 2$$),
	(8, $$UPDATE rewritten SET job = 'protect/b', wish = 'nothing' WHERE id = 2$$);
BEGIN;
SELECT gate('protect/a');
INSERT INTO rewritten VALUES (2, 'protect/a');
COMMIT;
SELECT w.command, r.* FROM rewrites w, LATERAL tries(w.command) r ORDER BY w.n;
ALTER TRIGGER aaa ON rewritten RENAME TO zzz;
SELECT w.n, r.* FROM rewrites w, LATERAL tries(w.command) r ORDER BY w.n;

-- Stored generated keys are judged as they are stored.
CREATE TABLE generated (tenant text, id int, job text GENERATED ALWAYS AS ('protect/' || tenant) STORED);
INSERT INTO generated VALUES ('a', 1), ('b', 2), (NULL, 3);
SELECT fencing_protect('generated', 'job');
SELECT w.command, r.* FROM (VALUES
	(1, $$INSERT INTO generated VALUES ('a', 4)$$),
	(2, $$INSERT INTO generated VALUES (NULL, 4)$$),
	(3, $$UPDATE generated SET tenant = 'b' WHERE id = 1$$),
	(4, $$UPDATE generated SET id = 4 WHERE id = 2$$),
	(5, $$UPDATE generated SET id = 4 WHERE id = 3$$),
	(6, $$DELETE FROM generated WHERE id = 2$$)) w (n, command), LATERAL tries(w.command) r ORDER BY w.n;
-- Virtual ones are not stored: refused.  They exist since PostgreSQL 18.
DO $$
DECLARE
	answer text := '0A000, none left';
	later text := 'closed';
BEGIN
	IF current_setting('server_version_num')::int >= 180000 THEN
		EXECUTE 'CREATE TABLE virtual (tenant text, job text GENERATED ALWAYS AS (''protect/'' || tenant) VIRTUAL)';
		BEGIN
			PERFORM fencing_protect('virtual', 'job');
			answer := 'protected';
		EXCEPTION WHEN OTHERS THEN
			answer := SQLSTATE || ', none left';
		END;
		IF EXISTS (SELECT FROM pg_trigger WHERE tgrelid = 'virtual'::regclass) THEN
			answer := 'triggers left';
		END IF;
		-- nor can the key become one
		CREATE TABLE turned (tenant text, job text);
		PERFORM fencing_protect('turned', 'job');
		ALTER TABLE turned DROP COLUMN job;
		EXECUTE 'ALTER TABLE turned ADD COLUMN job text GENERATED ALWAYS AS (''protect/'' || tenant) VIRTUAL';
		IF try('INSERT INTO turned VALUES (''a'')') LIKE 'ok%' OR try('INSERT INTO turned VALUES (''a'')', 'a') LIKE 'ok%' THEN
			later := 'open';
		END IF;
	END IF;
	PERFORM set_config('regress.answers', concat_ws(', ', answer, later), false);
END $$;
SELECT current_setting('regress.answers') AS virtual;

-- What a foreign key does to a protected child
CREATE TABLE parent (id int PRIMARY KEY);
CREATE TABLE child (id int REFERENCES parent ON DELETE CASCADE ON UPDATE CASCADE, job text);
CREATE TABLE job_parent (job text PRIMARY KEY);
CREATE TABLE job_child (job text DEFAULT 'protect/b' REFERENCES job_parent ON DELETE SET NULL ON UPDATE CASCADE);
CREATE TABLE default_child (job text DEFAULT 'protect/b' REFERENCES job_parent ON DELETE SET DEFAULT);
INSERT INTO parent VALUES (1), (2), (3);
INSERT INTO child VALUES (1, 'protect/a'), (2, 'protect/b');
INSERT INTO job_parent VALUES ('protect/a'), ('protect/b'), ('protect/d');
INSERT INTO job_child VALUES ('protect/a');
INSERT INTO default_child VALUES ('protect/d');
SELECT fencing_protect('child', 'job');
SELECT fencing_protect('job_child', 'job');
SELECT fencing_protect('default_child', job_key => 'protect/a');
SELECT w.command, r.* FROM (VALUES
	(1, $$DELETE FROM parent WHERE id = 1$$),
	(2, $$DELETE FROM parent$$),
	(3, $$DELETE FROM parent WHERE id = 3$$),
	(4, $$UPDATE parent SET id = 4 WHERE id = 1$$),
	(5, $$TRUNCATE parent CASCADE$$),
	(6, $$UPDATE job_parent SET job = 'protect/new' WHERE job = 'protect/a'$$),
	(7, $$DELETE FROM job_parent WHERE job = 'protect/a'$$),
	(8, $$DELETE FROM job_parent WHERE job = 'protect/d'$$)) w (n, command), LATERAL tries(w.command) r ORDER BY w.n;
-- the job that the key is changed to: with passes for both
BEGIN;
SELECT gate('protect/a');
SELECT gate('protect/c');
UPDATE job_parent SET job = 'protect/c' WHERE job = 'protect/a';
SELECT * FROM job_child;
ROLLBACK;
-- ON DELETE CASCADE along partitions
CREATE TABLE tree_parent (id int PRIMARY KEY);
CREATE TABLE tree_child (id int REFERENCES tree_parent ON DELETE CASCADE, job text) PARTITION BY LIST (id);
CREATE TABLE tree_child_1 PARTITION OF tree_child FOR VALUES IN (1);
INSERT INTO tree_parent VALUES (1);
INSERT INTO tree_child VALUES (1, 'protect/a');
SELECT fencing_protect('tree_child', 'job');
SELECT * FROM tries('DELETE FROM tree_parent');

--
-- Replica mode bypasses it: the documented limit.
--
BEGIN;
SET LOCAL session_replication_role = replica;
SELECT try($$INSERT INTO t VALUES (80, 'protect/a')$$), try('TRUNCATE t');
SET LOCAL session_replication_role = origin;
SELECT try($$INSERT INTO t VALUES (80, 'protect/a')$$), try('TRUNCATE t');
SET LOCAL session_replication_role = local;
SELECT try($$INSERT INTO t VALUES (80, 'protect/a')$$), try('TRUNCATE t');
ROLLBACK;

--
-- Keys
--
-- Compared byte by byte, at every length that is stored differently: up to 126
-- bytes with a short header, 512 is the longest key of all.
CREATE VIEW keys AS
SELECT n, rpad('protect/' || n || '/', n, 'k') AS key FROM unnest('{10,126,127,128,511,512}'::int[]) n
UNION ALL VALUES (-1, 'protect/' || repeat('ü', 252)), (-2, 'protect/%s "quoted" ''twice'' \back $1'), (-3, E'protect/\t\n\x01');
INSERT INTO tokens SELECT key, (fencing_acquire(key, md5('A')::uuid, '1 day')).token FROM keys;
CREATE FUNCTION with_key(key text, command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	ASSERT gate(key) = 'committed';
	answer := try(command);
	RAISE EXCEPTION USING ERRCODE = 'UNDO1';
EXCEPTION WHEN SQLSTATE 'UNDO1' THEN
	RETURN answer;
END $$;
SELECT n, octet_length(key) AS bytes, i.without, i.other, i.with, i.last_byte, i.longer
FROM keys, LATERAL (SELECT try(format('INSERT INTO t VALUES (90, %L)', key)) AS without,
	try(format('INSERT INTO t VALUES (90, %L)', key), 'a') AS other,
	with_key(key, format('INSERT INTO t VALUES (90, %L)', key)) AS with,
	with_key(key, format('INSERT INTO t VALUES (90, %L)', left(key, -1) || 'x')) AS last_byte,
	with_key(key, format('INSERT INTO t VALUES (90, %L)', key || 'x')) AS longer) i
ORDER BY n;
-- as the job of a whole table
CREATE TABLE whole_key (id int);
CREATE FUNCTION whole_key(key text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fencing_protect('whole_key', job_key => key);
	RETURN concat_ws(' ', try('INSERT INTO whole_key VALUES (1)', 'a'), with_key(key, 'INSERT INTO whole_key VALUES (1)'));
END $$;
SELECT n, whole_key(key) FROM keys ORDER BY n;

-- compressed, and out of line
CREATE TABLE toasted (id int PRIMARY KEY, job text, filler text);
ALTER TABLE toasted ALTER job SET STORAGE MAIN, ALTER filler SET STORAGE PLAIN;
CREATE TABLE external (id int PRIMARY KEY, job text, filler text) WITH (toast_tuple_target = 128);
ALTER TABLE external ALTER job SET STORAGE EXTERNAL, ALTER filler SET STORAGE PLAIN;
INSERT INTO toasted SELECT 1, key, repeat('f', 7000) FROM keys WHERE n = 512;
INSERT INTO external SELECT 1, key, repeat('f', 1900) FROM keys WHERE n = 512;
SELECT pg_column_compression(job) IS NOT NULL AS compressed FROM toasted;
SELECT pg_relation_size(reltoastrelid) > 0 AS out_of_line FROM pg_class WHERE oid = 'external'::regclass;
SELECT fencing_protect('toasted', 'job');
SELECT fencing_protect('external', 'job');
SELECT w.command, try(w.command), with_key(k.key, w.command), with_key(o.key, w.command) AS other
FROM keys k, keys o, LATERAL (VALUES
	(1, 'UPDATE toasted SET id = 2'),
	(2, 'DELETE FROM toasted'),
	(3, 'INSERT INTO toasted SELECT 2, job, filler FROM toasted'),
	(4, 'UPDATE external SET id = 2'),
	(5, 'DELETE FROM external'),
	(6, 'INSERT INTO external SELECT 2, job, filler FROM external'),
	(7, 'UPDATE external SET filler = NULL')) w (n, command)
WHERE k.n = 512 AND o.n = 511 ORDER BY w.n;

-- varchar, domains, and what is no text
CREATE DOMAIN key_text AS text CHECK (VALUE <> 'nothing');
CREATE DOMAIN key_varchar AS varchar(20);
CREATE DOMAIN key_domain AS key_text NOT NULL;
CREATE DOMAIN key_int AS int;
CREATE TABLE typed (id int, v varchar(20), dt key_text, dv key_varchar, dd key_domain DEFAULT 'x', vv varchar,
	i int, c char(10), nm name, j jsonb, b bytea, u uuid, e fencing_outcome, a text[], ch "char", di key_int);
CREATE FUNCTION typed(col name) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fencing_protect('typed', col);
	RETURN concat_ws(', ', try(format('INSERT INTO typed (%I) VALUES (''protect/a'')', col)),
		try(format('INSERT INTO typed (%I) VALUES (''protect/a'')', col), 'a'),
		try(format('INSERT INTO typed (%I) VALUES (''protect/a '')', col), 'a'));
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
SELECT c, typed(c) FROM unnest('{v,dt,dv,dd,vv,i,c,nm,j,b,u,e,a,ch,di,ctid,tableoid,absent,""}'::name[]) WITH ORDINALITY u (c, n) ORDER BY n;
-- a refusal changes nothing: it is the last one that was accepted
SELECT * FROM tries($$INSERT INTO typed (vv) VALUES ('protect/a')$$);
-- Equal for the column's collation is not equal.  (ICU may not be there.)
DO $$
BEGIN
	CREATE COLLATION anycase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
EXCEPTION WHEN feature_not_supported THEN
	CREATE COLLATION anycase FROM "C";
END $$;
CREATE TABLE collated (job text COLLATE anycase);
SELECT fencing_protect('collated', 'job');
SELECT try($$INSERT INTO collated VALUES ('protect/a')$$, 'a'), try($$INSERT INTO collated VALUES ('PROTECT/A')$$, 'a');

--
-- Arguments
--
CREATE TABLE plain (id int, job text, "Job ""Key""" text);
SELECT fencing_protect('plain');
SELECT fencing_protect('plain', 'job', 'protect/a');
SELECT fencing_protect(NULL, 'job');
SELECT fencing_protect('plain', job_key => '');
SELECT fencing_protect('plain', job_key => repeat('k', 513));
SELECT fencing_protect(0, 'job');
SELECT fencing_protect('no_such_table', 'job');
SELECT fencing_unprotect(NULL);
SELECT fencing_unprotect(0);
BEGIN READ ONLY;
SELECT fencing_protect('plain', 'job');
ROLLBACK;
BEGIN READ ONLY;
SELECT fencing_unprotect('plain');
ROLLBACK;
SELECT * FROM guards('plain');
-- not a table
CREATE VIEW v AS SELECT * FROM plain;
CREATE MATERIALIZED VIEW mv AS SELECT * FROM plain;
CREATE INDEX ON plain (job);
CREATE TYPE composite AS (job text);
CREATE FOREIGN DATA WRAPPER regress_protect;
CREATE SERVER regress_protect FOREIGN DATA WRAPPER regress_protect;
CREATE FOREIGN TABLE ft (job text) SERVER regress_protect;
CREATE TABLE parted_index (job text) PARTITION BY LIST (job);
CREATE INDEX ON parted_index (job);
CREATE FUNCTION answer(command text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE command;
	RETURN 'done';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
SELECT r, answer(format('SELECT fencing_protect(%L, ''job'')', r)) AS by_column,
	answer(format('SELECT fencing_protect(%L, job_key => ''protect/a'')', r)) AS whole,
	answer(format('SELECT fencing_unprotect(%L)', r)) AS unprotect
FROM unnest('{v,mv,plain_job_idx,steps,ft,composite,parted_index_job_idx}'::text[]) WITH ORDINALITY u (r, n) ORDER BY n;
-- The extension's own tables, which the gate itself writes: refused before they
-- are locked, and as partitions before anything is changed.
SELECT c.relname, answer(format('SELECT fencing_protect(%L, ''job_key'')', c.oid::regclass)) AS by_column,
	answer(format('SELECT fencing_protect(%L, job_key => ''protect/a'')', c.oid::regclass)) AS whole,
	answer(format('SELECT fencing_unprotect(%L)', c.oid::regclass)) AS unprotect
FROM pg_class c WHERE relnamespace = 'fencing'::regnamespace AND relkind IN ('r', 'v', 'S')
	AND relname IN ('floor', 'fences', 'leases', 'receipts', 'revocations', 'grants', 'records', 'outbox', 'outbox_acks', 'outbox_no_seq', 'lease_status') ORDER BY 1;
SELECT count(*) AS not_refused FROM pg_class c WHERE relnamespace = 'fencing'::regnamespace AND relkind <> 'i'
	AND answer(format('SELECT fencing_protect(%L, job_key => ''protect/a'')', c.oid::regclass)) <> '0A000';
\set VERBOSITY default
SELECT fencing_protect('fencing.receipts', 'job_key');
SELECT fencing_unprotect('fencing.receipts');
BEGIN;
SELECT answer('SELECT fencing_protect(''fencing.receipts'', ''job_key'')');
SELECT count(*) AS locks FROM pg_locks WHERE relation = 'fencing.receipts'::regclass AND pid = pg_backend_pid();
ROLLBACK;
BEGIN;
CREATE TABLE around (LIKE fencing.receipts) PARTITION BY LIST (job_key);
CREATE TABLE around_x PARTITION OF around FOR VALUES IN ('x');
ALTER TABLE around ATTACH PARTITION fencing.receipts DEFAULT;
SAVEPOINT s;
SELECT fencing_protect('around', 'job_key');
ROLLBACK TO s;
SELECT * FROM guards('around');
-- one that came later can be let go
ALTER TABLE around DETACH PARTITION fencing.receipts;
SELECT fencing_protect('around', 'job_key');
ALTER TABLE around ATTACH PARTITION fencing.receipts DEFAULT;
SELECT * FROM guards('around');
SELECT answer('SELECT fencing_protect(''around'', ''job_key'')');
SELECT fencing_unprotect('around');
SELECT * FROM guards('around');
ROLLBACK;
BEGIN;
CREATE TABLE above (job_key text COLLATE "C" NOT NULL);
ALTER TABLE fencing.fences INHERIT above;
SELECT answer('SELECT fencing_protect(''above'', ''job_key'')'), answer('SELECT fencing_protect(''fencing.fences'', ''job_key'')');
ROLLBACK;
-- a stranger's table in the extension's schema
BEGIN;
CREATE TABLE fencing.strange (job text);
SELECT answer('SELECT fencing_protect(''fencing.strange'', ''job'')');
ROLLBACK;
-- System catalogs, and what is like them
SELECT r, answer(format('SELECT fencing_protect(%L, job_key => ''protect/a'')', r)) AS protect, answer(format('SELECT fencing_unprotect(%L)', r)) AS unprotect
FROM unnest('{pg_class,pg_trigger,pg_roles,pg_database,pg_largeobject,pg_toast.pg_toast_2618}'::text[]) r;
BEGIN;
SELECT fencing_unprotect('pg_class');
ROLLBACK;

-- A foreign partition at any depth; one that comes later is named when the table
-- is protected again, and what is protected stays so.
CREATE TABLE far (id int, job text) PARTITION BY LIST (id);
CREATE TABLE far_1 PARTITION OF far FOR VALUES IN (1);
CREATE TABLE far_2 PARTITION OF far FOR VALUES IN (2) PARTITION BY LIST (job);
SELECT fencing_protect('far', 'job');
CREATE FOREIGN TABLE far_2_away PARTITION OF far_2 FOR VALUES IN ('away') SERVER regress_protect;
SELECT fencing_protect('far', 'job');
SELECT fencing_protect('far_2', job_key => 'protect/a');
SELECT fencing_protect('far_2_away', 'job');
SELECT * FROM guards('far');
SELECT fencing_unprotect('far');
SELECT * FROM guards('far');
SELECT fencing_protect('far', 'job');
SELECT * FROM guards('far');
SELECT fencing_protect('far_1', 'job');
\set VERBOSITY sqlstate
SELECT * FROM tries($$INSERT INTO far VALUES (1, 'protect/a')$$);
-- Names that need quotes
CREATE TABLE "T ""1"" %s" (LIKE plain);
SELECT fencing_protect('"T ""1"" %s"', 'Job "Key"');
SELECT try($$INSERT INTO "T ""1"" %s" VALUES (1, 'protect/a', 'protect/b')$$, 'a'), try($$INSERT INTO "T ""1"" %s" VALUES (1, 'protect/a', 'protect/b')$$, 'b');
SELECT fencing_unprotect('"T ""1"" %s"');
SELECT * FROM guards('"T ""1"" %s"');
-- temporary and unlogged
CREATE TEMP TABLE temporary (job text);
CREATE UNLOGGED TABLE unlogged (job text);
SELECT fencing_protect('temporary', 'job');
SELECT fencing_protect('unlogged', 'job');
SELECT r, tries(format('INSERT INTO %I VALUES (''protect/a'')', r)) FROM unnest('{temporary,unlogged}'::text[]) r;
DROP TABLE temporary;

-- Inheritance, from either side, before and after
CREATE TABLE ancestor (job text);
CREATE TABLE heir () INHERITS (ancestor);
SELECT fencing_protect('ancestor', 'job');
SELECT fencing_protect('heir', 'job');
SELECT fencing_protect('ancestor', job_key => 'protect/a');
SELECT fencing_protect('heir', job_key => 'protect/a');
SELECT fencing_unprotect('ancestor');
ALTER TABLE heir NO INHERIT ancestor;
SELECT fencing_protect('ancestor', 'job');
SELECT fencing_protect('heir', 'job');
ALTER TABLE heir INHERIT ancestor;
SELECT fencing_protect('ancestor', 'job');
SELECT fencing_protect('heir', 'job');
SELECT * FROM tries($$INSERT INTO heir VALUES ('protect/a')$$);
SELECT * FROM tries($$INSERT INTO ancestor VALUES ('protect/a')$$);
-- what was protected before it inherited can be let go
SELECT fencing_unprotect('ancestor');
SELECT fencing_unprotect('heir');
SELECT * FROM guards('ancestor');
SELECT * FROM guards('heir');

--
-- Again, otherwise, and no more
--
CREATE TABLE again (job text, other text);
SELECT fencing_unprotect('again');
SELECT fencing_protect('again', 'job');
SELECT fencing_protect('again', 'job');
SELECT * FROM guards('again');
CREATE VIEW again_writes (n, command) AS VALUES
	(1, $$INSERT INTO again VALUES ('protect/a', 'protect/b')$$),
	(2, 'TRUNCATE again');
SELECT w.command, r.* FROM again_writes w, LATERAL tries(w.command) r ORDER BY n;
-- another column, one job, another one, and back
SELECT fencing_protect('again', 'other');
SELECT w.command, r.* FROM again_writes w, LATERAL tries(w.command) r ORDER BY n;
SELECT fencing_protect('again', job_key => 'protect/c');
SELECT w.command, r.* FROM again_writes w, LATERAL tries(w.command) r ORDER BY n;
SELECT fencing_protect('again', job_key => 'protect/b');
SELECT w.command, r.* FROM again_writes w, LATERAL tries(w.command) r ORDER BY n;
SELECT fencing_protect('again', 'job');
SELECT w.command, r.* FROM again_writes w, LATERAL tries(w.command) r ORDER BY n;
SELECT * FROM guards('again');
-- rolled back: as before
BEGIN;
SELECT fencing_protect('again', job_key => 'protect/b');
SELECT w.command, r.* FROM again_writes w, LATERAL tries(w.command) r ORDER BY n;
ROLLBACK;
SELECT w.command, r.* FROM again_writes w, LATERAL tries(w.command) r ORDER BY n;
BEGIN;
SELECT fencing_unprotect('again');
SELECT w.command, r.* FROM again_writes w, LATERAL tries(w.command) r ORDER BY n;
ROLLBACK;
SELECT w.command, r.* FROM again_writes w, LATERAL tries(w.command) r ORDER BY n;
-- the owner may switch it off and on
ALTER TABLE again DISABLE TRIGGER USER;
SELECT w.command, r.* FROM again_writes w, LATERAL tries(w.command) r ORDER BY n;
ALTER TABLE again ENABLE TRIGGER USER;
SELECT w.command, r.* FROM again_writes w, LATERAL tries(w.command) r ORDER BY n;
-- protected again, it is on again
ALTER TABLE again DISABLE TRIGGER USER;
SELECT fencing_protect('again', 'job');
SELECT w.command, r.* FROM again_writes w, LATERAL tries(w.command) r ORDER BY n;
-- no more: twice is no error; triggers of the user stay
CREATE TRIGGER mine BEFORE INSERT ON again FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger();
ALTER TABLE again DISABLE TRIGGER mine;
SELECT fencing_unprotect('again');
SELECT fencing_unprotect('again');
SELECT w.command, r.* FROM again_writes w, LATERAL tries(w.command) r ORDER BY n;
SELECT tgname FROM pg_trigger WHERE tgrelid = 'again'::regclass;
DROP TRIGGER mine ON again;

--
-- What becomes of the table and its key afterwards.  Statements that are
-- planned already must notice.
--
CREATE TABLE changing (gone int, job text, other text DEFAULT 'protect/b');
INSERT INTO changing VALUES (1, 'protect/a');
PREPARE change AS UPDATE changing SET other = other;
SELECT fencing_protect('changing', 'job');
EXECUTE change;
-- other columns go and come, the table is renamed and moved
ALTER TABLE changing DROP COLUMN gone;
ALTER TABLE changing ADD COLUMN more text DEFAULT 'protect/c';
SELECT * FROM tries('UPDATE changing SET other = other');
ALTER TABLE changing RENAME TO changed;
CREATE SCHEMA regress_protect_moved;
ALTER TABLE changed SET SCHEMA regress_protect_moved;
SELECT * FROM tries('UPDATE regress_protect_moved.changed SET other = other');
ALTER TABLE regress_protect_moved.changed SET SCHEMA regress_protect;
ALTER TABLE changed RENAME TO changing;
-- the key's type: still text, then not
ALTER TABLE changing ALTER job TYPE varchar(30);
SELECT * FROM tries('UPDATE changing SET other = other');
ALTER TABLE changing ALTER job TYPE key_text;
SELECT * FROM tries('UPDATE changing SET other = other');
ALTER TABLE changing ALTER job TYPE char(9);
SELECT * FROM tries('UPDATE changing SET other = other');
ALTER TABLE changing ALTER job TYPE bytea USING convert_to(job::text, 'UTF8');
SELECT * FROM tries('UPDATE changing SET other = other');
ALTER TABLE changing ALTER job TYPE name USING 'protect/a';
SELECT * FROM tries('UPDATE changing SET other = other');
ALTER TABLE changing ALTER job TYPE int USING 1;
SELECT * FROM tries('UPDATE changing SET other = other');
EXECUTE change;
ALTER TABLE changing ALTER job TYPE text USING 'protect/a';
SELECT * FROM tries('UPDATE changing SET other = other');
-- renamed: never open to the one without a pass; protected again, as before
ALTER TABLE changing RENAME job TO job_key;
SELECT without, b FROM tries('UPDATE changing SET other = other');
SELECT without FROM tries('INSERT INTO changing (job_key) VALUES (NULL)');
SELECT * FROM tries('TRUNCATE changing');
SELECT fencing_protect('changing', 'job');
SELECT fencing_protect('changing', 'job_key');
SELECT * FROM tries('UPDATE changing SET other = other');
-- dropped: closed to all; a new column of that name opens it to nobody without
-- a pass
ALTER TABLE changing DROP COLUMN job_key;
SELECT * FROM tries('UPDATE changing SET other = other');
SELECT * FROM tries('INSERT INTO changing VALUES (''protect/a'', ''protect/a'')');
SELECT * FROM tries('DELETE FROM changing');
SELECT * FROM tries('TRUNCATE changing');
EXECUTE change;
ALTER TABLE changing ADD COLUMN job_key text DEFAULT 'protect/a';
SELECT without, b FROM tries('UPDATE changing SET other = other');
SELECT fencing_protect('changing', 'job_key');
SELECT * FROM tries('UPDATE changing SET other = other');
-- with a connection that knows nothing of it
ALTER TABLE changing DROP COLUMN job_key;
\c -
\set VERBOSITY sqlstate
SET client_min_messages = error;
SET search_path = regress_protect, public;
SELECT * FROM tries('UPDATE changing SET other = other');
SELECT fencing_unprotect('changing');
SELECT * FROM tries('UPDATE changing SET other = other');

--
-- Partitions: by range and list, sub-partitions, other orders of columns
--
CREATE TABLE pt (id int, job text, n int DEFAULT 0) PARTITION BY RANGE (id);
CREATE TABLE pt_1 PARTITION OF pt FOR VALUES FROM (0) TO (100);
CREATE TABLE pt_2 (dropped int, n int, filler text, job text, id int);
ALTER TABLE pt_2 DROP COLUMN dropped, DROP COLUMN filler;
ALTER TABLE pt ATTACH PARTITION pt_2 FOR VALUES FROM (100) TO (200);
CREATE TABLE pt_3 PARTITION OF pt FOR VALUES FROM (200) TO (300) PARTITION BY LIST (job);
CREATE TABLE pt_3a PARTITION OF pt_3 FOR VALUES IN ('protect/a');
CREATE TABLE pt_3b (job text, id int, n int);
ALTER TABLE pt_3 ATTACH PARTITION pt_3b FOR VALUES IN ('protect/b', NULL);
CREATE TABLE pt_3z PARTITION OF pt_3 DEFAULT PARTITION BY HASH (job);
CREATE TABLE pt_3z0 PARTITION OF pt_3z FOR VALUES WITH (MODULUS 1, REMAINDER 0);
INSERT INTO pt VALUES (1, 'protect/a'), (101, 'protect/a'), (201, 'protect/a'), (202, 'protect/b'), (203, 'protect/c');
SELECT fencing_protect('pt', 'job');
SELECT * FROM guards('pt');
CREATE VIEW partition_writes (n, command) AS VALUES
	(10, $$INSERT INTO pt VALUES (2, 'protect/a')$$),
	(11, $$INSERT INTO pt VALUES (102, 'protect/a')$$),
	(12, $$INSERT INTO pt VALUES (204, 'protect/a')$$),
	(13, $$INSERT INTO pt VALUES (204, 'protect/b')$$),
	(14, $$INSERT INTO pt VALUES (204, NULL)$$),
	(15, $$INSERT INTO pt SELECT i, 'protect/a' FROM generate_series(2, 299) i$$),
	(16, $$INSERT INTO pt SELECT i, CASE WHEN i < 299 THEN 'protect/a' ELSE 'protect/b' END FROM generate_series(2, 299) i$$),
	-- straight into a partition
	(20, $$INSERT INTO pt_1 VALUES (2, 'protect/a')$$),
	(21, $$INSERT INTO pt_2 (id, job) VALUES (102, 'protect/a')$$),
	(22, $$INSERT INTO pt_3 VALUES (204, 'protect/a')$$),
	(23, $$INSERT INTO pt_3b (id, job) VALUES (204, 'protect/b')$$),
	(24, $$INSERT INTO pt_3z0 VALUES (204, 'protect/c')$$),
	(30, $$UPDATE pt SET n = 1 WHERE id = 101$$),
	(31, $$UPDATE pt_2 SET n = 1$$),
	(32, $$UPDATE pt_3b SET n = 1$$),
	(33, $$UPDATE pt SET n = 1 WHERE id < 203$$),
	(34, $$UPDATE pt SET job = 'protect/b' WHERE id = 101$$),
	-- across partitions
	(40, $$UPDATE pt SET id = 102 WHERE id = 1$$),
	(41, $$UPDATE pt SET id = 102, job = 'protect/b' WHERE id = 1$$),
	(42, $$UPDATE pt SET id = 1 WHERE id = 202$$),
	(43, $$UPDATE pt SET job = 'protect/b' WHERE id = 201$$),
	(44, $$UPDATE pt SET job = 'protect/c' WHERE id = 201$$),
	(45, $$UPDATE pt SET job = NULL WHERE id = 201$$),
	(46, $$UPDATE pt_3 SET job = 'protect/a' WHERE id = 202$$),
	(50, $$DELETE FROM pt WHERE id = 101$$),
	(51, $$DELETE FROM pt_2$$),
	(52, $$DELETE FROM pt WHERE id <= 202$$),
	(60, $$MERGE INTO pt USING (VALUES (101), (102)) v (id) ON pt.id = v.id WHEN MATCHED THEN UPDATE SET id = 2 WHEN NOT MATCHED THEN INSERT VALUES (v.id, 'protect/b')$$),
	(61, $$MERGE INTO pt USING (VALUES (1)) v (id) ON pt.id = v.id WHEN MATCHED THEN DELETE$$),
	(70, 'TRUNCATE pt'),
	(71, 'TRUNCATE ONLY pt_1'),
	(72, 'TRUNCATE pt_2'),
	(73, 'TRUNCATE pt_3'),
	(74, 'TRUNCATE pt_3a'),
	(75, 'TRUNCATE pt_3z'),
	(76, 'TRUNCATE pt_3z0');
SELECT w.command, r.* FROM partition_writes w, LATERAL tries(w.command) r ORDER BY w.n;
SELECT tableoid::regclass, * FROM pt ORDER BY id;
COPY pt (id, job) FROM STDIN;
5	protect/a
105	protect/a
\.
BEGIN;
SELECT gate('protect/a');
COPY pt (id, job) FROM STDIN;
5	protect/a
105	protect/a
205	protect/a
\.
COPY pt (id, job) FROM STDIN;
6	protect/a
106	protect/a
206	protect/b
\.
COMMIT;
SELECT count(*) FROM pt;

-- Created and attached later: rows are guarded at once, TRUNCATE of the new
-- partition alone when the table has been protected again.
CREATE TABLE pt_4 PARTITION OF pt FOR VALUES FROM (300) TO (400);
CREATE TABLE pt_5 (n int, job text, id int);
ALTER TABLE pt ATTACH PARTITION pt_5 FOR VALUES FROM (400) TO (500);
CREATE TABLE pt_3n PARTITION OF pt_3 FOR VALUES IN ('protect/n');
CREATE TABLE pt_6 (LIKE pt) PARTITION BY RANGE (id);
CREATE TABLE pt_6_1 PARTITION OF pt_6 FOR VALUES FROM (500) TO (600);
ALTER TABLE pt ATTACH PARTITION pt_6 FOR VALUES FROM (500) TO (600);
CREATE VIEW later_writes (n, command) AS VALUES
	(10, $$INSERT INTO pt VALUES (300, 'protect/a')$$),
	(11, $$INSERT INTO pt VALUES (400, 'protect/a')$$),
	(12, $$INSERT INTO pt_5 (id, job) VALUES (400, 'protect/a')$$),
	(13, $$INSERT INTO pt_6_1 VALUES (500, 'protect/a')$$),
	(14, $$INSERT INTO pt_3n VALUES (200, 'protect/n')$$),
	(20, $$UPDATE pt SET id = 300 WHERE id = 1$$),
	(21, $$UPDATE pt SET id = 400, job = 'protect/b' WHERE id = 1$$),
	(30, 'TRUNCATE pt');
CREATE VIEW later_truncates (n, command) AS VALUES
	(1, 'TRUNCATE pt_4'), (2, 'TRUNCATE pt_5'), (3, 'TRUNCATE pt_6'), (4, 'TRUNCATE pt_6_1'), (5, 'TRUNCATE pt_3n');
SELECT w.command, r.* FROM later_writes w, LATERAL tries(w.command) r ORDER BY w.n;
SELECT fencing_protect('pt', 'job');
SELECT * FROM guards('pt');
SELECT w.command, r.* FROM later_writes w, LATERAL tries(w.command) r ORDER BY w.n;
SELECT w.command, r.* FROM later_truncates w, LATERAL tries(w.command) r ORDER BY w.n;

-- From column to job and back, with partitions
SELECT fencing_protect('pt', job_key => 'protect/b');
SELECT w.command, r.* FROM partition_writes w, LATERAL tries(w.command) r WHERE w.n IN (10, 21, 34, 40, 50, 70, 72, 76) ORDER BY w.n;
SELECT w.command, r.* FROM later_truncates w, LATERAL tries(w.command) r ORDER BY w.n;
SELECT fencing_protect('pt', 'job');
SELECT * FROM guards('pt');
SELECT w.command, r.* FROM partition_writes w, LATERAL tries(w.command) r WHERE w.n IN (10, 21, 34, 40, 50, 70, 72, 76) ORDER BY w.n;

-- Detached it is a table of its own, whose rows are open until it is protected
-- like one.
CREATE VIEW detached_writes AS SELECT * FROM partition_writes WHERE n IN (21, 31, 51, 72);
ALTER TABLE pt DETACH PARTITION pt_2;
SELECT * FROM guards('pt_2');
SELECT fencing_protect('pt_2', 'job');
SELECT * FROM guards('pt_2');
SELECT w.command, r.* FROM detached_writes w, LATERAL tries(w.command) r ORDER BY w.n;
-- With guards of its own it cannot be attached; without, the table's hold again.
ALTER TABLE pt ATTACH PARTITION pt_2 FOR VALUES FROM (100) TO (200);
SELECT fencing_unprotect('pt_2');
SELECT * FROM guards('pt_2');
SELECT w.command, r.* FROM detached_writes w, LATERAL tries(w.command) r ORDER BY w.n;
ALTER TABLE pt ATTACH PARTITION pt_2 FOR VALUES FROM (100) TO (200);
SELECT fencing_protect('pt', 'job');
SELECT w.command, r.* FROM detached_writes w, LATERAL tries(w.command) r ORDER BY w.n;
-- Straight back
ALTER TABLE pt DETACH PARTITION pt_2;
ALTER TABLE pt ATTACH PARTITION pt_2 FOR VALUES FROM (100) TO (200);
SELECT * FROM guards('pt_2');
SELECT w.command, r.* FROM detached_writes w, LATERAL tries(w.command) r ORDER BY w.n;

-- One partition for itself, then the whole table, then no more
CREATE TABLE pl (id int, job text) PARTITION BY LIST (id);
CREATE TABLE pl_1 PARTITION OF pl FOR VALUES IN (1);
CREATE TABLE pl_2 PARTITION OF pl FOR VALUES IN (2);
SELECT fencing_protect('pl_1', 'job');
CREATE VIEW list_writes (n, command) AS VALUES
	(1, $$INSERT INTO pl VALUES (1, 'protect/a')$$),
	(2, $$INSERT INTO pl VALUES (2, 'protect/a')$$),
	(3, $$INSERT INTO pl_1 VALUES (1, 'protect/a')$$),
	(4, 'TRUNCATE pl'),
	(5, 'TRUNCATE pl_1');
SELECT w.command, r.* FROM list_writes w, LATERAL tries(w.command) r ORDER BY w.n;
SELECT fencing_protect('pl', 'job');
SELECT * FROM guards('pl');
SELECT w.command, r.* FROM list_writes w, LATERAL tries(w.command) r ORDER BY w.n;
SELECT fencing_unprotect('pl');
SELECT * FROM guards('pl');
SELECT w.command, r.* FROM list_writes w, LATERAL tries(w.command) r ORDER BY w.n;
-- a partition of a protected table cannot be let go alone: it stays closed
SELECT fencing_protect('pl', 'job');
SELECT fencing_unprotect('pl_1');
SELECT w.command, r.* FROM list_writes w, LATERAL tries(w.command) r ORDER BY w.n;
-- no partitions at all
CREATE TABLE empty (id int, job text) PARTITION BY LIST (id);
SELECT fencing_protect('empty', 'job');
SELECT * FROM tries('TRUNCATE empty');
SELECT * FROM guards('empty');

--
-- Who may protect
--
CREATE ROLE regress_protect_owner;
CREATE ROLE regress_protect_admin;
CREATE ROLE regress_protect_member IN ROLE regress_protect_owner;
SELECT fencing_grant(r, 'admin') FROM unnest('{regress_protect_admin,regress_protect_owner,regress_protect_member}'::regrole[]) r;
GRANT USAGE, CREATE ON SCHEMA regress_protect TO regress_protect_owner, regress_protect_admin, regress_protect_member;
SET ROLE regress_protect_owner;
CREATE TABLE owned (id int, job text);
GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON owned TO regress_protect_admin;
CREATE TABLE owned_parted (id int, job text) PARTITION BY LIST (id);
RESET ROLE;
-- the owner of the table without admin
SELECT fencing_ungrant('regress_protect_owner', 'admin');
SET ROLE regress_protect_owner;
SELECT fencing_protect('owned', 'job');
SELECT fencing_unprotect('owned');
-- admin, with the other privileges on the table, who does not own it
SET ROLE regress_protect_admin;
SELECT fencing_protect('owned', 'job');
SELECT fencing_protect('owned', 'no_such_column');
SELECT fencing_unprotect('owned');
SELECT fencing_protect('pg_catalog.pg_class', job_key => 'protect/a');
-- both; a member of the owner; a superuser
RESET ROLE;
SELECT fencing_grant('regress_protect_owner', 'admin');
CREATE FUNCTION guard_owner() RETURNS text LANGUAGE sql AS
$$ SELECT count(*) || ' triggers' FROM pg_trigger WHERE tgrelid = 'owned'::regclass $$;
SET ROLE regress_protect_owner;
SELECT fencing_protect('owned', 'job');
SELECT guard_owner();
SELECT fencing_unprotect('owned');
SET ROLE regress_protect_member;
SELECT fencing_protect('owned', 'job');
SET ROLE regress_protect_admin;
SELECT fencing_unprotect('owned');
RESET ROLE;
SELECT guard_owner();
SELECT fencing_protect('owned', job_key => 'protect/a');
-- a writer can neither get past it nor take it off; TRIGGER, which is as good
-- as ownership here, is the one privilege that he must not have
GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES ON owned TO regress_protect_writer;
SET ROLE regress_protect_writer;
INSERT INTO owned VALUES (1, 'protect/a');
TRUNCATE owned;
ALTER TABLE owned DISABLE TRIGGER USER;
DROP TRIGGER fencing_guard_row ON owned;
CREATE OR REPLACE TRIGGER fencing_guard_row AFTER INSERT ON owned FOR EACH ROW WHEN (false) EXECUTE FUNCTION suppress_redundant_updates_trigger();
SET session_replication_role = replica;
SELECT fencing_unprotect('owned');
RESET ROLE;
SELECT fencing_unprotect('owned');
SELECT guard_owner();
-- who has it, is warned of
GRANT TRIGGER ON owned TO regress_protect_writer;
SET client_min_messages = warning;
SELECT fencing_protect('owned', 'job');
SELECT fencing_protect('owned', 'job');
REVOKE TRIGGER ON owned FROM regress_protect_writer;
SELECT fencing_protect('owned', 'job');
GRANT TRIGGER ON owned TO PUBLIC;
SELECT fencing_protect('owned', 'job');
REVOKE TRIGGER ON owned FROM PUBLIC;
SELECT fencing_unprotect('owned');
-- on a partition alone as well
CREATE TABLE owned_0 PARTITION OF owned_parted FOR VALUES IN (0) PARTITION BY LIST (id);
CREATE TABLE owned_00 PARTITION OF owned_0 FOR VALUES IN (0);
GRANT TRIGGER ON owned_00 TO regress_protect_writer;
\set VERBOSITY terse
SELECT fencing_protect('owned_parted', 'job');
REVOKE TRIGGER ON owned_00 FROM regress_protect_writer;
SELECT fencing_protect('owned_parted', 'job');
\set VERBOSITY sqlstate
SELECT fencing_unprotect('owned_parted');
DROP TABLE owned_0;
SET client_min_messages = error;
-- a partition that belongs to somebody else
SET ROLE regress_protect_admin;
CREATE TABLE owned_1 (id int, job text);
RESET ROLE;
ALTER TABLE owned_parted ATTACH PARTITION owned_1 FOR VALUES IN (1);
SET ROLE regress_protect_owner;
SELECT fencing_protect('owned_parted', 'job') IS NULL AS protected;
RESET ROLE;
SELECT * FROM guards('owned_parted');
-- protected by a superuser, it is still the owner's to make and attach
-- partitions, without a right to call anything
SELECT fencing_ungrant('regress_protect_owner', 'admin');
SELECT fencing_protect('owned_parted', 'job');
SET ROLE regress_protect_owner;
CREATE TABLE owned_2 PARTITION OF owned_parted FOR VALUES IN (2);
CREATE TABLE owned_3 (id int, job text);
ALTER TABLE owned_parted ATTACH PARTITION owned_3 FOR VALUES IN (3);
INSERT INTO owned_parted VALUES (2, 'protect/a');
INSERT INTO owned_3 VALUES (3, 'protect/a');
RESET ROLE;
SELECT * FROM guards('owned_parted');
-- the writer who has no right to call anything is guarded without it
SELECT fencing_protect('owned', 'job');
SET ROLE regress_protect_writer;
SELECT fencing_guard_row();
INSERT INTO owned VALUES (1, 'protect/a');
RESET ROLE;

--
-- The error: who may not see the key does not learn it.
--
CREATE TABLE secret (id int, tenant text, job text GENERATED ALWAYS AS ('protect/' || tenant) STORED);
INSERT INTO secret VALUES (1, 'hush');
SELECT fencing_protect('secret', 'job');
-- Which part of the error shows it
CREATE FUNCTION shown(command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	state text; message text; detail text; hint text; context text; col text; cons text; typ text; tab text; sch text;
BEGIN
	EXECUTE command;
	RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT,
		context = PG_EXCEPTION_CONTEXT, col = COLUMN_NAME, cons = CONSTRAINT_NAME, typ = PG_DATATYPE_NAME, tab = TABLE_NAME, sch = SCHEMA_NAME;
	RETURN state || CASE WHEN concat_ws(' ', message, detail, hint, replace(context, command, ''), col, cons, typ, tab, sch) ~ 'hush|secret/1'
		THEN ': shown' ELSE ': not shown' END;
END $$;
GRANT UPDATE (id), DELETE, INSERT ON secret TO regress_protect_writer;
SELECT shown('DELETE FROM secret') AS owner;
-- a key that is longer than any job's is nobody's business
SELECT shown($$INSERT INTO secret VALUES (2, 'hush' || repeat('x', 500))$$) AS as_long_as_a_job, shown($$INSERT INTO secret VALUES (2, 'hush' || repeat('x', 501))$$) AS longer;
SET ROLE regress_protect_writer;
SELECT job FROM secret;
SELECT shown('DELETE FROM secret') AS no_select, shown('UPDATE secret SET id = 2') AS no_select;
RESET ROLE;
GRANT SELECT (id, tenant) ON secret TO regress_protect_writer;
SET ROLE regress_protect_writer;
SELECT shown('DELETE FROM secret WHERE id = 1') AS other_columns;
RESET ROLE;
GRANT SELECT (job) ON secret TO regress_protect_writer;
SET ROLE regress_protect_writer;
SELECT shown('DELETE FROM secret WHERE id = 1') AS the_column;
RESET ROLE;
GRANT SELECT ON secret TO regress_protect_writer;
SET ROLE regress_protect_writer;
SELECT shown('DELETE FROM secret WHERE id = 1') AS the_table;
RESET ROLE;
-- row-level security: who is subject to it may see some rows, not others
ALTER TABLE secret ENABLE ROW LEVEL SECURITY;
CREATE POLICY see ON secret FOR SELECT USING (false);
CREATE POLICY write ON secret FOR DELETE USING (true);
CREATE POLICY add ON secret FOR INSERT WITH CHECK (true);
CREATE POLICY change ON secret FOR UPDATE USING (true);
SET ROLE regress_protect_writer;
SELECT shown('DELETE FROM secret') AS row_security;
SELECT shown('UPDATE secret SET id = DEFAULT') AS row_security;
SELECT shown('INSERT INTO secret VALUES (1, lower(''HUSH''))') AS row_security;
RESET ROLE;
-- Through a cascade, and on a partition: the same, for the table that is written
CREATE TABLE secret_parent (id int PRIMARY KEY);
CREATE TABLE secret_child (id int REFERENCES secret_parent ON DELETE CASCADE, job text) PARTITION BY LIST (id);
CREATE TABLE secret_child_1 PARTITION OF secret_child FOR VALUES IN (1);
INSERT INTO secret_parent VALUES (1);
INSERT INTO secret_child VALUES (1, 'protect/hush');
SELECT fencing_protect('secret_child', 'job');
GRANT DELETE, SELECT ON secret_parent TO regress_protect_writer;
GRANT DELETE ON secret_child TO regress_protect_writer;
SET ROLE regress_protect_writer;
SELECT shown('DELETE FROM secret_parent') AS cascade;
SELECT shown('DELETE FROM secret_child') AS partition;
RESET ROLE;
GRANT SELECT ON secret_child TO regress_protect_writer;
ALTER TABLE secret_child ENABLE ROW LEVEL SECURITY;
CREATE POLICY nothing ON secret_child FOR SELECT USING (false);
CREATE POLICY write ON secret_child FOR DELETE USING (true);
SET ROLE regress_protect_writer;
SELECT shown('DELETE FROM secret_child') AS partition;
RESET ROLE;
--
-- Hostile surroundings: look-alikes stand earlier in the search_path.
--
CREATE SCHEMA regress_protect_trap;
CREATE FUNCTION regress_protect_trap.fencing_guard_row() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE FUNCTION regress_protect_trap.fencing_guard_truncate() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE FUNCTION regress_protect_trap.never(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT false';
CREATE FUNCTION regress_protect_trap.always(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION regress_protect_trap.never(name, name) RETURNS boolean LANGUAGE sql AS 'SELECT false';
CREATE FUNCTION regress_protect_trap.never(oid, oid) RETURNS boolean LANGUAGE sql AS 'SELECT false';
CREATE OPERATOR regress_protect_trap.= (LEFTARG = text, RIGHTARG = text, FUNCTION = regress_protect_trap.always);
CREATE OPERATOR regress_protect_trap.= (LEFTARG = name, RIGHTARG = name, FUNCTION = regress_protect_trap.never);
CREATE OPERATOR regress_protect_trap.= (LEFTARG = oid, RIGHTARG = oid, FUNCTION = regress_protect_trap.never);
CREATE TYPE regress_protect_trap.text AS ENUM ('trap');
CREATE TABLE regress_protect_trap.pg_trigger (tgrelid oid, tgname name);
CREATE TABLE regress_protect_trap.guarded (id int, job pg_catalog.text);
CREATE TABLE guarded (id int, job text);
SET search_path = regress_protect_trap, pg_catalog, regress_protect, public;
SELECT public.fencing_protect('regress_protect.guarded', 'job');
SET search_path = '';
SELECT public.fencing_protect('regress_protect.guarded', 'job');
SET search_path = regress_protect_trap, pg_catalog, regress_protect, public;
INSERT INTO regress_protect.guarded VALUES (1, 'protect/a');
BEGIN;
SELECT outcome FROM public.fencing_commit('protect/a', :a, '1', step => 'trap');
INSERT INTO regress_protect.guarded VALUES (1, 'protect/a');
INSERT INTO regress_protect.guarded VALUES (1, 'protect/b');
ROLLBACK;
TRUNCATE regress_protect.guarded;
SET search_path = regress_protect, public;
SELECT tgname, tgfoid::regprocedure FROM pg_trigger WHERE tgrelid = 'guarded'::regclass ORDER BY tgname;
SET search_path = regress_protect_trap, pg_catalog, regress_protect, public;
SELECT public.fencing_unprotect('regress_protect.guarded');
SET search_path = regress_protect, public;
SELECT count(*) FROM pg_trigger WHERE tgrelid = 'guarded'::regclass;
DROP SCHEMA regress_protect_trap CASCADE;
-- A trigger of the user that has the name already is not taken for the guard.
CREATE TABLE taken (id int, job text);
CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER fencing_guard_row AFTER INSERT ON taken FOR EACH ROW EXECUTE FUNCTION nothing();
SELECT fencing_protect('taken', 'job');
SELECT fencing_unprotect('taken');
SELECT tgname, tgfoid::regproc FROM pg_trigger WHERE tgrelid = 'taken'::regclass ORDER BY tgname;
-- A guard that was renamed is a guard: replaced, and let go.
DROP TRIGGER fencing_guard_row ON taken;
SELECT fencing_protect('taken', 'job');
ALTER TRIGGER fencing_guard_row ON taken RENAME TO renamed;
SELECT * FROM tries($$INSERT INTO taken VALUES (1, 'protect/a')$$);
SELECT fencing_protect('taken', job_key => 'protect/b');
SELECT * FROM guards('taken');
ALTER TRIGGER fencing_guard_row ON taken RENAME TO renamed;
SELECT * FROM tries($$INSERT INTO taken VALUES (1, 'protect/a')$$);
SELECT fencing_unprotect('taken');
SELECT * FROM tries($$INSERT INTO taken VALUES (1, 'protect/a')$$);

-- The guards called otherwise than by fencing_protect(): an error, no crash, and
-- never a way through.
SELECT fencing_guard_row();
SELECT fencing_guard_truncate();
CREATE TABLE by_hand (id int, job text);
CREATE FUNCTION by_hand(clause text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answers text;
BEGIN
	EXECUTE 'CREATE TRIGGER by_hand ' || clause;
	answers := concat_ws(' ', try('INSERT INTO by_hand VALUES (1, ''protect/a'')'), try('TRUNCATE by_hand'),
		try('INSERT INTO by_hand VALUES (1, ''protect/a'')', 'a'));
	DROP TRIGGER by_hand ON by_hand;
	RETURN answers;
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
SELECT c, by_hand(c) FROM unnest(ARRAY[
	'AFTER INSERT ON by_hand FOR EACH ROW EXECUTE FUNCTION fencing_guard_row()',
	'AFTER INSERT ON by_hand FOR EACH ROW EXECUTE FUNCTION fencing_guard_row(''column'')',
	'AFTER INSERT ON by_hand FOR EACH ROW EXECUTE FUNCTION fencing_guard_row(''job'')',
	'AFTER INSERT ON by_hand FOR EACH ROW EXECUTE FUNCTION fencing_guard_row(''x'', ''y'', ''z'', ''1'')',
	'AFTER INSERT ON by_hand FOR EACH STATEMENT EXECUTE FUNCTION fencing_guard_row(''column'', ''job'')',
	'BEFORE INSERT ON by_hand FOR EACH ROW EXECUTE FUNCTION fencing_guard_row(''column'', ''job'')',
	'BEFORE INSERT ON by_hand FOR EACH ROW EXECUTE FUNCTION fencing_guard_truncate(''column'', ''job'')',
	'AFTER TRUNCATE ON by_hand EXECUTE FUNCTION fencing_guard_truncate(''column'', ''job'')',
	'BEFORE TRUNCATE ON by_hand EXECUTE FUNCTION fencing_guard_row(''column'', ''job'')',
	'BEFORE TRUNCATE ON by_hand EXECUTE FUNCTION fencing_guard_truncate()']) WITH ORDINALITY u (c, n) ORDER BY n;

-- The extension cannot be dropped while it guards a table.
DROP EXTENSION fencing;

SELECT fencing_ungrant(r, 'admin') FROM unnest('{regress_protect_admin,regress_protect_owner,regress_protect_member}'::regrole[]) r;
DROP SCHEMA regress_protect CASCADE;
DROP SCHEMA regress_protect_moved;
DROP FOREIGN DATA WRAPPER regress_protect CASCADE;
DROP ROLE regress_protect_writer, regress_protect_member, regress_protect_owner, regress_protect_admin;
DELETE FROM fencing.receipts WHERE job_key LIKE 'protect/%';
DELETE FROM fencing.leases WHERE job_key LIKE 'protect/%';
DELETE FROM fencing.fences WHERE job_key LIKE 'protect/%';
SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'fencing%';
