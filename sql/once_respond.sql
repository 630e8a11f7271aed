--
-- The gate alone: fencing_once() without a statement, the business write, and
-- fencing_once_respond(), in one transaction.  A forgotten response is refused
-- at COMMIT.
--
\set VERBOSITY sqlstate
SET client_min_messages = error;
CREATE SCHEMA regress_respond;
SET search_path = regress_respond, public;
CREATE TABLE payment (key text, amount int);
CREATE FUNCTION may(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS boolean LANGUAGE sql AS $$ SELECT auth IS NULL OR auth = '"ann"' $$;
SELECT fencing_define_operation('respond/pay', 'may(text,text,jsonb,jsonb)'), fencing_define_request('respond/pay', 1, '{"properties": {"amount": {"type": "integer"}}}');
CREATE VIEW state AS SELECT key, result, responded, purged, (SELECT count(*) FROM payment p WHERE p.key = r.key) AS rows FROM fencing.records r WHERE operation = 'respond/pay';
-- what a call says, or its SQLSTATE
CREATE FUNCTION once(key text, request jsonb DEFAULT '{"amount": 1}', auth jsonb DEFAULT NULL, statement text DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	o record;
BEGIN
	SELECT * INTO o FROM fencing_once('t', 'respond/pay', key, request, statement, auth);
	RETURN concat_ws(' ', o.outcome, o.result, o.hash_version);
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
CREATE FUNCTION respond(key text, result jsonb DEFAULT '{"ok": true}', tenant text DEFAULT 't', operation text DEFAULT 'respond/pay') RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fencing_once_respond(tenant, operation, key, result);
	RETURN 'responded';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;

--
-- Claim, write, respond
--
BEGIN;
SELECT outcome, result, committed_at BETWEEN now() AND clock_timestamp() AS by_clock, hash_version, error FROM fencing_once('t', 'respond/pay', 'a', '{"amount": 1}');
INSERT INTO payment VALUES ('a', 1);
SELECT fencing_once_respond('t', 'respond/pay', 'a', '{"id": 4.50}');
COMMIT;
SELECT * FROM state;
SELECT once('a'), once('a', '{"amount": 1.0}') AS spelt, once('a', '{"amount": 2}') AS other, once('a', auth => '"eve"') AS eve, once('a', statement => 'SELECT 1') AS with_statement;
-- within the same transaction, before the response: 55006 for every content, denied for whom it is not; after it a replay
BEGIN;
SELECT once('b');
SELECT once('b'), once('b', '{"amount": 2}') AS other, once('b', auth => '"eve"') AS eve, once('b', statement => 'SELECT 1') AS with_statement, once('b2', statement => 'SELECT 1') AS other_key;
SELECT outcome, result FROM fencing_once('t', 'respond/pay', 'b3', '{"amount": 1}', 'SELECT regress_respond.once(''b'') AS nested');
SELECT respond('b');
SELECT once('b'), once('b', '{"amount": 2}') AS other;
COMMIT;
SELECT once('b');
-- responses are what they are
SELECT r, once('r' || n) || ' ' || respond('r' || n, r) AS answer FROM unnest('{"null",false,0,"\"\"","[]","{}","{\"a\": [1.0, null]}"}'::jsonb[]) WITH ORDINALITY u (r, n) ORDER BY n;
SELECT key, result, once(key) FROM state WHERE key LIKE 'r%' ORDER BY 1;

--
-- Forgotten: 55000 at COMMIT, and nothing is kept; alone: 25P01 at the call (see alone)
--
SELECT fencing_once('t', 'respond/pay', 'f', '{"amount": 1}');
SELECT * FROM state WHERE key = 'f';
BEGIN;
SELECT once('f');
INSERT INTO payment VALUES ('f', 1);
COMMIT;
SELECT count(*) FROM payment WHERE key = 'f';
SELECT * FROM state WHERE key = 'f';
-- one of two
BEGIN;
SELECT once('f1'), once('f2');
SELECT respond('f1');
COMMIT;
SELECT * FROM state WHERE key LIKE 'f%';
-- in a chain; the next transaction of it is not concerned
BEGIN;
SELECT once('f');
COMMIT AND CHAIN;
SELECT pg_current_xact_id_if_assigned() IS NULL AS outside;
BEGIN;
SELECT once('f');
ROLLBACK AND CHAIN;
COMMIT;
-- in a procedure that commits
CREATE PROCEDURE forget() LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fencing_once('t', 'respond/pay', 'f', '{"amount": 1}');
	COMMIT;
	INSERT INTO payment VALUES ('f', 2);
END $$;
CALL forget();
CREATE PROCEDURE remember() LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fencing_once('t', 'respond/pay', 'p1', '{"amount": 1}');
	PERFORM fencing_once_respond('t', 'respond/pay', 'p1', '1');
	COMMIT;
	PERFORM fencing_once('t', 'respond/pay', 'p2', '{"amount": 1}');
	ROLLBACK;
	PERFORM fencing_once('t', 'respond/pay', 'p3', '{"amount": 1}');
	PERFORM fencing_once_respond('t', 'respond/pay', 'p3', '3');
END $$;
CALL remember();
SELECT * FROM state WHERE key LIKE 'f%' OR key LIKE 'p%' ORDER BY key;
-- in a statement that fails, and is retried: a first call
SELECT once('f') || respond('f', '"late"');
SELECT * FROM state WHERE key = 'f';
-- not forgotten by a transaction that rolls back, that writes nothing, or that only replays
BEGIN;
SELECT once('a'), once('a', '{"amount": 2}');
COMMIT;

--
-- Savepoints
--
-- the claim is rolled back, and with it the duty
BEGIN;
SAVEPOINT s;
SELECT once('s1');
ROLLBACK TO s;
SELECT respond('s1');
COMMIT;
SELECT * FROM state WHERE key = 's1';
-- claimed again after that
BEGIN;
SAVEPOINT s;
SELECT once('s1');
ROLLBACK TO s;
SELECT once('s1', '{"amount": 2}');
SELECT respond('s1', '"second"');
COMMIT;
SELECT once('s1'), once('s1', '{"amount": 2}');
-- the response is rolled back, the claim is not: it is owed again
BEGIN;
SELECT once('s2');
SAVEPOINT s;
SELECT respond('s2', '"taken back"');
SELECT once('s2');
ROLLBACK TO s;
SELECT once('s2');
SELECT respond('s2', '"kept"');
COMMIT;
SELECT once('s2');
BEGIN;
SELECT once('s3');
SAVEPOINT s;
SELECT respond('s3');
ROLLBACK TO s;
COMMIT;
SELECT * FROM state WHERE key = 's3';
-- released savepoints: claim and response in different ones
BEGIN;
SAVEPOINT s;
SELECT once('s4');
RELEASE s;
SAVEPOINT t;
SAVEPOINT u;
SELECT respond('s4');
RELEASE u;
RELEASE t;
COMMIT;
SELECT * FROM state WHERE key = 's4';
-- an exception block of PL/pgSQL is one
CREATE FUNCTION caught() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fencing_once('t', 'respond/pay', 's5', '{"amount": 1}');
	PERFORM 1 / 0;
EXCEPTION WHEN division_by_zero THEN
	RETURN 'caught';
END $$;
SELECT caught();
SELECT * FROM state WHERE key = 's5';
-- report_errors is one that succeeds
BEGIN;
SELECT outcome FROM fencing_once('t', 'respond/pay', 's6', '{"amount": 1}', report_errors => true);
COMMIT;
BEGIN;
SELECT outcome FROM fencing_once('t', 'respond/pay', 's6', '{"amount": 1}', report_errors => true);
SELECT respond('s6');
COMMIT;
SELECT * FROM state WHERE key = 's6';
-- many in one transaction, every other one rolled back
CREATE FUNCTION many(n int) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. n LOOP
		BEGIN
			PERFORM fencing_once('t', 'respond/pay', 'm' || i, '{"amount": 1}');
			IF i % 2 = 0 THEN
				RAISE EXCEPTION USING errcode = 'ZZ000';
			END IF;
		EXCEPTION WHEN SQLSTATE 'ZZ000' THEN
			NULL;
		END;
	END LOOP;
	RETURN (SELECT count(fencing_once_respond('t', 'respond/pay', key, to_jsonb(key))) FROM fencing.records WHERE key LIKE 'm%' AND operation = 'respond/pay');
END $$;
SELECT many(200);
SELECT count(*), count(*) FILTER (WHERE responded AND result = to_jsonb(key)) FROM state WHERE key LIKE 'm%';

--
-- Who may not respond: 55000
--
SELECT respond('never'), respond('a') AS done, respond('a', tenant => 'u') AS tenant, respond('a', operation => 'respond/none') AS operation;
-- twice
BEGIN;
SELECT once('w1');
SELECT respond('w1', '1'), respond('w1', '1') AS same, respond('w1', '2') AS other;
COMMIT;
SELECT once('w1');
-- what a statement has answered already
BEGIN;
SELECT once('w2', statement => 'SELECT 5 AS n');
SELECT respond('w2');
COMMIT;
SELECT once('w2');
-- what was replayed, in conflict, or denied
BEGIN;
SELECT once('w2'), respond('w2');
SELECT once('w2', '{"amount": 2}'), respond('w2');
SELECT once('w3', auth => '"eve"'), respond('w3');
COMMIT;
-- another tenant's key of the same name
BEGIN;
SELECT once('w4');
SELECT respond('w4', tenant => 'u'), respond('w4', operation => 'respond/other'), respond('W4'), respond('w4 ');
SELECT respond('w4');
COMMIT;
SELECT * FROM state WHERE key LIKE 'w%' ORDER BY key;
-- Read-only: a claim is 25006, so is a response.
BEGIN READ ONLY;
SELECT once('x'), respond('x'), respond('a');
COMMIT;
BEGIN;
SELECT once('x');
SET TRANSACTION READ ONLY;
SELECT respond('x');
COMMIT;
SELECT * FROM state WHERE key = 'x';

--
-- Other ways to respond
--
-- a deferred trigger, at COMMIT
CREATE FUNCTION respond_at_commit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fencing_once_respond('t', 'respond/pay', NEW.key, to_jsonb(NEW));
	RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER respond AFTER INSERT ON payment DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.amount = 99) EXECUTE FUNCTION respond_at_commit();
BEGIN;
SELECT once('d1');
INSERT INTO payment VALUES ('d1', 99);
COMMIT;
SELECT once('d1');
-- a deferred trigger that claims, at COMMIT: refused like any other
CREATE FUNCTION claim_at_commit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fencing_once('t', 'respond/pay', 'd2', '{"amount": 1}');
	RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER claim AFTER INSERT ON payment DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.amount = 98) EXECUTE FUNCTION claim_at_commit();
INSERT INTO payment VALUES ('d2', 98);
SELECT * FROM state WHERE key = 'd2';
-- by the function of a statement
BEGIN;
SELECT once('d3');
SELECT once('d4', statement => 'SELECT regress_respond.respond(''d3'', ''"by d4"'') AS done');
COMMIT;
SELECT once('d3'), once('d4');
-- the claim in the statement of another key: forgotten, answered
BEGIN;
SELECT once('d5', statement => 'SELECT regress_respond.once(''d6'') AS claim');
COMMIT;
BEGIN;
SELECT once('d5', statement => 'SELECT regress_respond.once(''d6'') AS claim');
SELECT respond('d6');
COMMIT;
SELECT once('d5'), once('d6');
-- in SERIALIZABLE and REPEATABLE READ as well
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT once('i1'), respond('i1');
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT once('i2');
COMMIT;
SELECT * FROM state WHERE key LIKE 'i%';
-- strict
BEGIN;
SELECT outcome FROM fencing_once('t', 'respond/pay', 'j', '{"amount": 1}', strict => true);
SELECT respond('j');
COMMIT;
SELECT outcome FROM fencing_once('t', 'respond/pay', 'j', '{"amount": 1}', strict => true);
SELECT outcome FROM fencing_once('t', 'respond/pay', 'j', '{"amount": 2}', strict => true);
-- by a cursor, and by a prepared statement
BEGIN;
DECLARE c CURSOR FOR SELECT once('c1'), respond('c1');
FETCH c;
COMMIT;
PREPARE claim (text) AS SELECT outcome, result FROM fencing_once('t', 'respond/pay', $1, '{"amount": 1}');
EXECUTE claim ('c2');
BEGIN;
EXECUTE claim ('c2');
SELECT respond('c2', '"prepared"');
COMMIT;
EXECUTE claim ('c2');
DEALLOCATE claim;
-- no claim outlives its transaction: no lock, no row that is not answered
SELECT count(*) AS locks FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory';
SELECT count(*) AS not_answered FROM fencing.records WHERE NOT responded;
-- a record that an administrator has deleted needs no response
BEGIN;
SELECT once('deleted');
DELETE FROM fencing.records WHERE NOT responded;
COMMIT;
-- the rows of somebody who may not see them
CREATE ROLE regress_fencing_respond;
GRANT ALL ON SCHEMA regress_respond TO regress_fencing_respond;
GRANT ALL ON payment TO regress_fencing_respond;
SELECT fencing_grant('regress_fencing_respond', 'client');
SET ROLE regress_fencing_respond;
BEGIN;
SELECT once('role'), respond('role');
COMMIT;
SELECT once('role');
BEGIN;
SELECT once('role2');
RESET ROLE;
COMMIT;
SET ROLE regress_fencing_respond;
SELECT once('role2'), respond('role2');
RESET ROLE;
SELECT fencing_ungrant('regress_fencing_respond', 'client');

DELETE FROM fencing.records WHERE operation LIKE 'respond/%';
DELETE FROM fencing.request_schemas WHERE operation LIKE 'respond/%';
DELETE FROM fencing.operations WHERE operation LIKE 'respond/%';
DROP SCHEMA regress_respond CASCADE;
DROP ROLE regress_fencing_respond;
