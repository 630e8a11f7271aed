--
-- What a call wrote is seen by the next one in the same command, before the
-- executor has counted on.
--
SET client_min_messages = error;
CREATE FUNCTION pg_temp.who(text) RETURNS uuid LANGUAGE sql AS $$ SELECT md5($1)::uuid $$;
CREATE TABLE regress_one_command (n int);
SELECT (fencing_acquire('one_command', pg_temp.who('a'))).token AS t \gset

-- a lease and its fence
SELECT a.outcome, b.outcome, c.outcome, d.outcome, e.outcome, f.outcome, f.token - :t AS token, g.outcome, h AS released
FROM fencing_acquire('one_command', pg_temp.who('a')) a, fencing_renew('one_command', pg_temp.who('a'), a.token) b,
	fencing_acquire('one_command', pg_temp.who('b')) c,
	fencing_release('one_command', pg_temp.who('a'), b.token) d, fencing_renew('one_command', pg_temp.who('a'), b.token) e,
	fencing_acquire('one_command', pg_temp.who('b')) f, fencing_acquire('one_command', pg_temp.who('c')) g,
	fencing_release('one_command', pg_temp.who('b'), f.token) h;
-- receipts
SELECT a.outcome, b.outcome, c.outcome, d.outcome, e.outcome
FROM fencing_acquire('one_command', pg_temp.who('a')) a,
	fencing_commit('one_command', a.token, '1', 'INSERT INTO regress_one_command VALUES (1)') b,
	fencing_commit('one_command', a.token, '1', 'INSERT INTO regress_one_command VALUES (2)') c,
	fencing_commit('one_command', a.token, '2', 'INSERT INTO regress_one_command VALUES (3)') d,
	fencing_commit('one_command', a.token, '1', 'INSERT INTO regress_one_command VALUES (4)', 'next') e;
-- revoked, forgotten, made again
SELECT r > :t AS revoked, a.outcome, x AS forgotten, c.outcome, c.token > r AS higher, d.outcome
FROM fencing_revoke('one_command', 'test') r, fencing_renew('one_command', pg_temp.who('a'), r - 1) a,
	fencing_forget('one_command') x, fencing_acquire('one_command', pg_temp.who('a')) c,
	fencing_commit('one_command', c.token, '1', 'SELECT 1') d;
-- its receipts are gone with it
SELECT a.outcome AS committed, b AS released, c AS forgotten, d.outcome
FROM fencing_acquire('one_command/y', pg_temp.who('a')) l, fencing_commit('one_command/y', l.token, '1', 'SELECT 1') a,
	fencing_release('one_command/y', pg_temp.who('a'), l.token) b, fencing_forget('one_command/y') c,
	fencing_commit('one_command/y', l.token, '1', 'SELECT 1') d;
SELECT a.outcome, b.outcome, c.outcome
FROM fencing_advance('one_command/x', 5) a, fencing_advance('one_command/x', 5) b, fencing_advance('one_command/x', 4) c;
-- documents and targets
SELECT a.outcome, b.outcome, c.outcome, d.version, f.outcome, g.outcome
FROM fencing_publish('one_command', 0, '1') a, fencing_publish('one_command', 0, '1') b, fencing_publish('one_command', 0, '2') c,
	fencing_publish('one_command', 1, '2') d, fencing_target_desire('one_command', 't') e,
	fencing_apply('one_command', 't', 2, fencing_digest('2'), statement => 'SELECT 1') f,
	fencing_apply('one_command', 't', 1, fencing_digest('1'), statement => 'SELECT 1') g;
SELECT * FROM regress_one_command ORDER BY n;
DROP TABLE regress_one_command;

\getenv folder PG_ABS_SRCDIR
\set clean_up :folder '/sql/clean_up.psql'
\i :clean_up
