--
-- The key of a row is something read from the table: an error shows it only to
-- those who may read it, and both roles count, the one that runs the command and
-- the one that gets the error.
--
SET client_min_messages = error;
CREATE SCHEMA regress_key_detail;
CREATE ROLE regress_key_owner;
CREATE ROLE regress_key_blind;
CREATE ROLE regress_key_reader;
GRANT ALL ON SCHEMA regress_key_detail TO PUBLIC;
SET search_path = regress_key_detail, public;
SELECT fencing_grant('regress_key_owner', 'admin');

SET ROLE regress_key_owner;
CREATE TABLE parent (id int PRIMARY KEY);
CREATE TABLE child (id int REFERENCES parent ON DELETE CASCADE ON UPDATE CASCADE, job text);
INSERT INTO parent VALUES (1);
INSERT INTO child VALUES (1, 'a secret job');
SELECT fencing_protect('child', 'job');
GRANT SELECT, UPDATE, DELETE ON parent TO regress_key_blind, regress_key_reader;
GRANT INSERT, DELETE ON child TO regress_key_blind, regress_key_reader;
GRANT SELECT (id) ON child TO regress_key_blind;
GRANT SELECT (job) ON child TO regress_key_reader;
RESET ROLE;

CREATE FUNCTION detail(command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	detail text;
BEGIN
	EXECUTE command;
	RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
	RETURN SQLSTATE || ' ' || detail;
END $$;
-- a command as somebody else
CREATE FUNCTION as_blind() RETURNS void LANGUAGE sql SECURITY DEFINER AS $$ INSERT INTO regress_key_detail.child VALUES (1, 'another secret') $$;
ALTER FUNCTION as_blind() OWNER TO regress_key_blind;
CREATE FUNCTION as_reader() RETURNS void LANGUAGE sql SECURITY DEFINER AS $$ INSERT INTO regress_key_detail.child VALUES (1, 'another secret') $$;
ALTER FUNCTION as_reader() OWNER TO regress_key_reader;

-- without the key: a cascade runs as the owner, but the error goes to this role
SET ROLE regress_key_blind;
SELECT detail('DELETE FROM parent') AS cascade, detail('UPDATE parent SET id = 2') AS cascaded_update;
SELECT detail($$INSERT INTO child VALUES (1, 'its own')$$) AS insert, detail('SELECT as_reader()') AS as_reader;
-- with it
SET ROLE regress_key_reader;
SELECT detail('DELETE FROM parent') AS cascade, detail('UPDATE parent SET id = 2') AS cascaded_update;
SELECT detail($$INSERT INTO child VALUES (1, 'its own')$$) AS insert;
-- without: the role that runs the command may not read it
SELECT detail('SELECT as_blind()') AS as_blind;
SET ROLE regress_key_owner;
SELECT detail('DELETE FROM parent') AS cascade;
RESET ROLE;

DROP FUNCTION as_blind, as_reader;
SET client_min_messages = error;
DROP SCHEMA regress_key_detail CASCADE;
DROP OWNED BY regress_key_owner, regress_key_blind, regress_key_reader;
DELETE FROM fencing.grants;
DROP ROLE regress_key_owner, regress_key_blind, regress_key_reader;
