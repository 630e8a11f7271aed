--
-- A plan is kept per role: the right to use a schema is checked when the text is
-- analyzed, so one role's plan is not good for another.
--
SET client_min_messages = error;
\set VERBOSITY sqlstate
CREATE ROLE regress_statement_in;
CREATE ROLE regress_statement_out;
SELECT fencing_grant('regress_statement_in', 'client');
SELECT fencing_grant('regress_statement_out', 'client');
CREATE SCHEMA regress_statement_roles;
CREATE TABLE regress_statement_roles.t AS SELECT 1 AS n;
GRANT SELECT ON regress_statement_roles.t TO regress_statement_in, regress_statement_out;
GRANT USAGE ON SCHEMA regress_statement_roles TO regress_statement_in;
SELECT (fencing_acquire('statement_roles', md5('a')::uuid, '1 day')).token AS t \gset

SET ROLE regress_statement_in;
SELECT outcome, result FROM fencing_commit('statement_roles', :t, '1', 'SELECT n FROM regress_statement_roles.t', 'one');
SET ROLE regress_statement_out;
SELECT outcome, result FROM fencing_commit('statement_roles', :t, '1', 'SELECT n FROM regress_statement_roles.t', 'two');
SET ROLE regress_statement_in;
SELECT outcome, result FROM fencing_commit('statement_roles', :t, '1', 'SELECT n FROM regress_statement_roles.t', 'two');
RESET ROLE;

DROP SCHEMA regress_statement_roles CASCADE;
DROP OWNED BY regress_statement_in, regress_statement_out;
DROP ROLE regress_statement_in, regress_statement_out;
DELETE FROM fencing.grants;
DELETE FROM fencing.receipts;
DELETE FROM fencing.leases;
DELETE FROM fencing.fences;
