--
-- Tags: every outcome of every function, with every column.
--
\set VERBOSITY sqlstate
CREATE FUNCTION id(text) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$ SELECT md5($1)::uuid $$;
-- the columns, with names for ids and "+" for numbers
CREATE FUNCTION told(call text) RETURNS TABLE (outcome fencing_outcome, event_no text, tag text, name text, matched text, version text, kind text) LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY EXECUTE 'SELECT outcome, CASE WHEN event_no > 0 THEN ''+'' END, (SELECT e.reference FROM fencing.tag_events e WHERE e.kind = ''create'' AND e.owner = f.tag_id),'
		|| ' name, matched, CASE WHEN migration_version > 0 THEN ''+'' ELSE migration_version::text END, migration_kind FROM fencing_tag_' || call || ' f';
END $$;

--
-- create
--
SELECT * FROM told($$create('tag', id('London'), 'London')$$);
-- the retry; another event; another content
SELECT * FROM told($$create('tag', id('London'), 'London')$$);
SELECT * FROM told($$create('tag', id('again'), 'London')$$);
SELECT * FROM told($$create('tag', id('London'), 'Paris')$$);
-- the conflict about the name has kept nothing: the event may be used
SELECT * FROM told($$create('tag', id('again'), 'Paris')$$);
-- another vocabulary is another world: of names, and of events
SELECT * FROM told($$create('tag 2', id('London'), 'London')$$);
SELECT count(DISTINCT tag_id) FROM fencing.tag_names WHERE name = 'London';
-- no name looks like an id
SELECT fencing_tag_create('tag', id('u'), '123e4567-e89b-12d3-a456-426614174000');
SELECT fencing_tag_create('tag', id('u'), '123E4567E89B12D3A456426614174000');
SELECT fencing_tag_create('tag', id('u'), '{123e4567-e89b-12d3-a456-426614174000}');
SELECT fencing_tag_create('tag', id('u'), '123e-4567-e89b-12d3-a456-4266-1417-4000');
-- these do not
SELECT * FROM told($$create('tag', id('u1'), '123e4567-e89b-12d3-a456-42661417400')$$);
SELECT * FROM told($$create('tag', id('u2'), '123e4567-e89b-12d3-a456-426614174000 ')$$);
SELECT * FROM told($$create('tag', id('u3'), '123e4567--e89b-12d3-a456-426614174000')$$);

--
-- alias
--
SELECT * FROM told($$alias('tag', id('alias 1'), 'London', 'londres')$$);
SELECT * FROM told($$alias('tag', id('alias 1'), 'London', 'londres')$$);
SELECT * FROM told($$alias('tag', id('alias 1'), 'London', 'londra')$$);
-- its own, once more; another's; by an alias
SELECT * FROM told($$alias('tag', id('alias 2'), 'London', 'londres')$$);
SELECT * FROM told($$alias('tag', id('alias 3'), 'London', 'London')$$);
SELECT fencing_tag_alias('tag', id('alias 4'), 'Paris', 'londres');
SELECT * FROM told($$alias('tag', id('alias 5'), 'londres', 'london')$$);
SELECT fencing_tag_alias('tag', id('alias 6'), 'nowhere', 'new');
\set VERBOSITY terse
SELECT fencing_tag_alias('tag', id('alias 7'), 'Paris', 'London');
\set VERBOSITY sqlstate

--
-- assign, unassign, subscribe, unsubscribe
--
SELECT * FROM told($$assign('tag', id('1'), 'London', 'article 1')$$);
SELECT * FROM told($$assign('tag', id('1'), 'London', 'article 1')$$);
-- by another reference it is other content, though of the same tag
SELECT * FROM told($$assign('tag', id('1'), 'londres', 'article 1')$$);
SELECT * FROM told($$unassign('tag', id('1'), 'London', 'article 1')$$);
SELECT * FROM told($$assign('tag', id('2'), 'londres', 'article 1')$$);
SELECT * FROM told($$unassign('tag', id('3'), 'london', 'article 1')$$);
SELECT * FROM told($$unassign('tag', id('4'), 'london', 'article 1')$$);
SELECT * FROM told($$subscribe('tag', id('5'), 'London', 'anna')$$);
SELECT * FROM told($$subscribe('tag', id('5'), 'London', 'anna')$$);
SELECT * FROM told($$subscribe('tag', id('5'), 'London', 'berta')$$);
SELECT * FROM told($$unsubscribe('tag', id('6'), 'London', 'anna')$$);
SELECT * FROM told($$unsubscribe('tag', id('7'), 'London', 'never')$$);
-- an id, in lower case only
SELECT tag_id AS london, upper(tag_id::text) AS upper FROM fencing_tag_resolve('tag', 'London') \gset
SELECT outcome, matched FROM fencing_tag_assign('tag', id('8'), :'london', 'article 2');
SELECT fencing_tag_assign('tag', id('9'), :'upper', 'article 2');
SELECT fencing_tag_assign('tag', id('9'), 'Rome', 'article 2');
SELECT fencing_tag_assign('nowhere', id('9'), 'London', 'article 2');
SELECT * FROM fencing_tag_resolve('tag', :'upper');

--
-- rename
--
SELECT * FROM told($$rename('tag', id('rename 1'), 'London', 'Londinium', 0)$$);
SELECT * FROM told($$rename('tag', id('rename 1'), 'London', 'Londinium', 0)$$);
-- the version that was expected is not part of it
SELECT * FROM told($$rename('tag', id('rename 1'), 'London', 'Londinium', 99)$$);
SELECT * FROM told($$rename('tag', id('rename 1'), 'London', 'Lundenwic', 0)$$);
-- another version has been seen
SELECT * FROM told($$rename('tag', id('rename 2'), 'London', 'Lundenwic', 0)$$);
SELECT migration_version AS version FROM fencing_tag_resolve('tag', 'London') \gset
SELECT outcome, name, matched FROM fencing_tag_rename('tag', id('rename 1a'), 'London', 'LONDON', :version);
SELECT migration_version AS version FROM fencing_tag_resolve('tag', 'London') \gset
SELECT fencing_tag_rename('tag', id('rename 2'), 'London', 'LONDON', :version);
SELECT fencing_tag_rename('tag', id('rename 2'), 'London', 'Paris', :version);
-- version first
SELECT outcome FROM fencing_tag_rename('tag', id('rename 2'), 'London', 'Paris', 0);
-- an alias, and back to a name of its own
SELECT outcome, name, matched FROM fencing_tag_rename('tag', id('rename 2'), 'London', 'londres', :version);
SELECT migration_version AS version FROM fencing_tag_resolve('tag', 'London') \gset
SELECT outcome, name, matched FROM fencing_tag_rename('tag', id('rename 3'), 'London', 'London', :version);
-- the first of them, as of now
SELECT * FROM told($$rename('tag', id('rename 1'), 'London', 'Londinium', 0)$$);
SELECT * FROM told($$create('tag', id('London'), 'London')$$);

--
-- merge
--
SELECT migration_version AS version FROM fencing_tag_resolve('tag', 'London') \gset
SELECT outcome FROM fencing_tag_merge('tag', id('merge 1'), 'London', 'Paris', :version, 7);
SELECT outcome FROM fencing_tag_merge('tag', id('merge 1'), 'London', 'Paris', 0);
SELECT outcome, name, matched, migration_version > 0 AS migrated, migration_kind FROM fencing_tag_merge('tag', id('merge 1'), 'London', 'Paris', :version, 0);
SELECT * FROM told($$merge('tag', id('merge 1'), 'London', 'Paris', 0)$$);
SELECT * FROM told($$merge('tag', id('merge 1'), 'Paris', 'London', 0)$$);
-- a reference of a merged tag is no source, whatever version is expected, nor can it be renamed
SELECT migration_version AS version FROM fencing_tag_resolve('tag', 'London') \gset
SELECT outcome, name, matched FROM fencing_tag_merge('tag', id('merge 2'), 'London', '123e4567-e89b-12d3-a456-42661417400', :version);
SELECT outcome, name, matched FROM fencing_tag_rename('tag', id('rename 4'), 'London', 'new', :version);
-- itself, and a cycle; after the version
SELECT fencing_tag_merge('tag', id('merge 2'), 'Paris', 'Paris', :version);
SELECT fencing_tag_merge('tag', id('merge 2'), 'Paris', 'London', :version);
SELECT outcome FROM fencing_tag_merge('tag', id('merge 2'), 'Paris', 'London', 0);
SELECT outcome FROM fencing_tag_merge('tag', id('merge 2'), 'Paris', 'Paris', 0);
-- its names stay its own
SELECT fencing_tag_rename('tag', id('rename 4'), 'Paris', 'Londinium', :version);
SELECT fencing_tag_alias('tag', id('alias 8'), 'Paris', 'Londinium');
-- an alias for a merged tag goes with it
SELECT * FROM told($$alias('tag', id('alias 8'), 'London', 'ldn')$$);

--
-- reconcile, complete, undo
--
SELECT fencing_tag_complete('tag', id('merge 1'));
SELECT fencing_tag_complete('tag', id('nothing'));
SELECT fencing_tag_complete('tag', id('alias 8'));
SELECT fencing_tag_complete('tag 2', id('merge 1'));
SELECT done, problems FROM fencing_tag_reconcile('tag', id('merge 1'), 1);
SELECT fencing_tag_complete('tag', id('merge 1'));
SELECT done FROM fencing_tag_reconcile('tag', id('merge 1'));
SELECT done, checked > 0 AS checked, problems FROM fencing_tag_reconcile('tag', id('merge 1'));
SELECT * FROM told($$undo('tag', id('undo 1'), id('merge 1'))$$);
SELECT * FROM told($$undo('tag', id('undo 1'), id('merge 1'))$$);
SELECT * FROM told($$undo('tag', id('undo 1'), id('rename 3'))$$);
SELECT fencing_tag_undo('tag', id('undo 2'), id('merge 1'));
SELECT fencing_tag_undo('tag', id('undo 2'), id('nothing'));
SELECT fencing_tag_reconcile('tag', id('merge 1'));
SELECT fencing_tag_complete('tag', id('merge 1'));
-- the merge, as of now; once more it is another migration
SELECT * FROM told($$merge('tag', id('merge 1'), 'London', 'Paris', 0)$$);
SELECT migration_version AS version FROM fencing_tag_resolve('tag', 'London') \gset
SELECT outcome FROM fencing_tag_merge('tag', id('merge 3'), 'London', 'Paris', :version);
SELECT done FROM fencing_tag_reconcile('tag', id('merge 3'));
SELECT * FROM told($$complete('tag', id('merge 3'))$$);
SELECT * FROM told($$complete('tag', id('merge 3'))$$);
SELECT fencing_tag_undo('tag', id('undo 2'), id('merge 3'));
SELECT done, problems FROM fencing_tag_reconcile('tag', id('merge 3'));
-- of the renames the latest in force; and of a merged tag none
SELECT fencing_tag_undo('tag', id('undo 3'), id('rename 3'));
SELECT migration_version AS version FROM fencing_tag_resolve('tag', 'Paris') \gset
SELECT outcome FROM fencing_tag_rename('tag', id('rename 5'), 'Paris', 'Lutetia', :version);
SELECT migration_version AS version FROM fencing_tag_resolve('tag', 'Paris') \gset
SELECT outcome FROM fencing_tag_rename('tag', id('rename 6'), 'Paris', 'Parisius', :version);
\set VERBOSITY default
SELECT fencing_tag_undo('tag', id('undo 3'), id('rename 5'));
\set VERBOSITY sqlstate
SELECT * FROM told($$undo('tag', id('undo 4'), id('rename 6'))$$);
SELECT * FROM told($$undo('tag', id('undo 5'), id('rename 5'))$$);
SELECT * FROM told($$create('tag', id('again'), 'Paris')$$);

--
-- release_name
--
SELECT fencing_tag_release_name('tag', id('release 1'), 'Paris', 'current');
SELECT fencing_tag_release_name('tag', id('release 1'), 'Londinium', 'of a merged tag');
SELECT fencing_tag_release_name('tag', id('release 1'), 'nowhere', 'unknown');
SELECT tag_id AS paris FROM fencing_tag_resolve('tag', 'Paris') \gset
SELECT fencing_tag_release_name('tag', id('release 1'), :'paris', 'an id');
-- a rename that is undone is not in the way, one that is in force and not complete is
SELECT * FROM told($$release_name('tag', id('release 1'), 'Parisius', 'a test')$$);
SELECT * FROM told($$release_name('tag', id('release 1'), 'Parisius', 'another reason')$$);
SELECT migration_version AS version FROM fencing_tag_resolve('tag', 'Paris') \gset
SELECT outcome FROM fencing_tag_rename('tag', id('rename 7'), 'Paris', 'Parigi', :version);
SELECT fencing_tag_release_name('tag', id('release 2'), 'Paris', 'incomplete');
SELECT done FROM fencing_tag_reconcile('tag', id('rename 7'));
SELECT outcome FROM fencing_tag_complete('tag', id('rename 7'));
-- something was merged into it by that name
SELECT fencing_tag_release_name('tag', id('release 2'), 'Paris', 'a target');
SELECT outcome FROM fencing_tag_release_name('tag', id('release 2'), 'Lutetia', 'a test');
SELECT outcome, name, matched FROM fencing_tag_assign('tag', id('10'), 'Paris', 'article 3');
SELECT * FROM told($$create('tag', id('Lutetia'), 'Lutetia')$$);
SELECT * FROM told($$rename('tag', id('rename 5'), 'Paris', 'Lutetia', 0)$$);
SELECT outcome FROM fencing_tag_alias('tag', id('alias 9'), 'Lutetia', 'used');
SELECT outcome FROM fencing_tag_unsubscribe('tag', id('11'), 'used', 'nobody');
SELECT fencing_tag_release_name('tag', id('release 3'), 'used', 'something was submitted by it');
SELECT kind, reference, name, reason, actor = session_user AS actor FROM fencing.tag_events WHERE kind = 'release' ORDER BY event_no;

--
-- Nothing is written but by these, and nothing of an event changes
--
SELECT fencing_tag_check('tag');
\set VERBOSITY default
UPDATE fencing.tag_events SET subject = 'x';
\set VERBOSITY sqlstate
DELETE FROM fencing.tag_events;
TRUNCATE fencing.tag_events;
BEGIN READ ONLY;
SELECT name FROM fencing_tag_resolve('tag', 'London');
SAVEPOINT s;
SELECT outcome FROM fencing_tag_assign('tag', id('1'), 'London', 'article 1');
SELECT fencing_tag_assign('tag', id('new'), 'London', 'article 1');
ROLLBACK TO s;
SELECT outcome FROM fencing_tag_complete('tag', id('merge 3'));
SELECT done FROM fencing_tag_reconcile('tag', id('merge 3'));
SELECT fencing_tag_reconcile('tag', id('rename 5'));
COMMIT;
-- a call that wrote nothing leaves no lock
BEGIN;
SELECT outcome FROM fencing_tag_assign('tag', id('1'), 'London', 'article 1');
SELECT outcome FROM fencing_tag_rename('tag', id('new'), 'Paris', 'new', 0);
SELECT outcome FROM fencing_tag_create('tag', id('new'), 'Paris');
SELECT outcome FROM fencing_tag_merge('tag', id('new'), 'Paris', 'Lutetia', 0);
SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND (locktype IN ('advisory', 'transactionid') OR relation::regclass::text LIKE 'fencing.tag%' AND mode <> 'AccessShareLock');
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_id;
COMMIT;
-- a savepoint that is rolled back takes the event with it
BEGIN;
SAVEPOINT s;
SELECT outcome FROM fencing_tag_assign('tag', id('12'), 'Paris', 'article 4');
ROLLBACK TO s;
SELECT outcome FROM fencing_tag_assign('tag', id('12'), 'Paris', 'article 5');
COMMIT;
SELECT fencing_tag_check('tag'), fencing_tag_check('tag 2');

\set VERBOSITY default
\getenv folder PG_ABS_SRCDIR
\set clean_up :folder '/sql/clean_up.psql'
\i :clean_up
DROP FUNCTION told, id;
