--
-- The state is consistent: associations, subscriptions, who is told of what,
-- and both statistics, through merges and their undoing; and what is wrong is
-- found.
--
\set VERBOSITY terse
CREATE FUNCTION id(text) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$ SELECT md5($1)::uuid $$;
CREATE FUNCTION event() RETURNS uuid LANGUAGE sql AS $$ SELECT gen_random_uuid() $$;
CREATE FUNCTION no(text) RETURNS bigint LANGUAGE sql AS $$ SELECT event_no FROM fencing.tag_events WHERE vocabulary = 's' AND event_id = id($1) $$;
CREATE FUNCTION at_version(reference text) RETURNS bigint LANGUAGE sql AS $$ SELECT migration_version FROM fencing_tag_resolve('s', reference) $$;
-- as of now, or of an event
CREATE FUNCTION state(at text DEFAULT NULL) RETURNS TABLE (tag text, subjects text, subscribers text, counted text, problems text) LANGUAGE sql AS $$
SELECT s.name, (SELECT string_agg(x, ' ' ORDER BY x) FROM fencing_tag_subjects('s', s.tag_id::text, no(at)) x),
	(SELECT string_agg(x, ' ' ORDER BY x) FROM fencing_tag_subscribers('s', s.tag_id::text, no(at)) x),
	s.subjects || ' ' || s.subscribers, (SELECT string_agg(p, ', ') FROM fencing_tag_check('s') p)
FROM fencing_tag_statistics('s', no(at)) s ORDER BY s.name COLLATE "C"
$$;
CREATE FUNCTION changes() RETURNS TABLE (type text, name text, subject text, reference text, told text) LANGUAGE sql AS $$
SELECT type, payload->>'name', payload->>'subject', CASE WHEN length(payload->>'reference') = 36 THEN 'an id' ELSE payload->>'reference' END,
	(SELECT string_agg(s, ' ' ORDER BY s) FROM fencing_tag_subscribers('s', payload->>'tag_id', (payload->>'event_no')::bigint) s)
FROM fencing.outbox WHERE payload->>'vocabulary' = 's' AND type LIKE '%assigned' ORDER BY no
$$;

SELECT outcome FROM unnest('{A,B,C}'::text[]) n, fencing_tag_create('s', id(n), n);
SELECT * FROM state();

--
-- Associations: of an item that has both, one remains, and two events
--
SELECT outcome FROM fencing_tag_assign('s', event(), 'A', 'one');
SELECT outcome FROM fencing_tag_assign('s', event(), 'A', 'both');
SELECT outcome FROM fencing_tag_assign('s', event(), 'B', 'both');
SELECT outcome FROM fencing_tag_assign('s', id('before'), 'B', 'two');
SELECT outcome FROM fencing_tag_merge('s', id('merge'), 'A', 'B', 0);
SELECT * FROM state();
SELECT name FROM fencing_tags_of('s', 'both');
SELECT count(*) FROM fencing.tag_events WHERE subject = 'both';
SELECT * FROM state('before');
SELECT * FROM state('merge');
-- by the old name, the new one and the id of either; what is there already is no change
SELECT outcome, name FROM fencing_tag_assign('s', event(), 'A', 'three');
SELECT outcome, name FROM fencing_tag_assign('s', event(), 'B', 'three');
SELECT outcome, name FROM fencing_tag_assign('s', event(), (SELECT tag_id::text FROM fencing.tags WHERE name = 'A'), 'four');
SELECT outcome, name FROM fencing_tag_assign('s', event(), (SELECT tag_id::text FROM fencing.tags WHERE name = 'B'), 'five');
SELECT outcome, name FROM fencing_tag_unassign('s', event(), 'A', 'both');
SELECT outcome, name FROM fencing_tag_unassign('s', event(), 'A', 'nothing');
SELECT * FROM changes();
SELECT * FROM state();
-- after the undo: each goes with the reference that was submitted, what was taken away stays away
SELECT outcome FROM fencing_tag_undo('s', id('undo'), id('merge'));
SELECT * FROM state();
SELECT * FROM state('merge');

--
-- Subscriptions
--
SELECT outcome FROM unnest('{D,E,F,G}'::text[]) n, fencing_tag_create('s', id(n), n);
-- follows D, left E; follows D, knows nothing of E; left D, follows E; left, and follows again
SELECT outcome FROM fencing_tag_subscribe('s', event(), 'D', 'left E');
SELECT outcome FROM fencing_tag_unsubscribe('s', event(), 'E', 'left E');
SELECT outcome FROM fencing_tag_subscribe('s', event(), 'D', 'carried');
SELECT outcome FROM fencing_tag_subscribe('s', event(), 'E', 'stays');
SELECT outcome FROM fencing_tag_unsubscribe('s', event(), 'D', 'stays');
SELECT outcome FROM fencing_tag_unsubscribe('s', event(), 'E', 'again');
SELECT outcome FROM fencing_tag_subscribe('s', event(), 'E', 'again');
SELECT outcome FROM fencing_tag_unsubscribe('s', event(), 'E', 'never was');
SELECT outcome FROM fencing_tag_assign('s', id('told before'), 'D', 'news');
SELECT outcome FROM fencing_tag_merge('s', id('D E'), 'D', 'E', 0);
SELECT * FROM state() WHERE tag IN ('D', 'E');
SELECT outcome FROM fencing_tag_assign('s', id('told after'), 'D', 'more news');
SELECT outcome FROM fencing_tag_assign('s', event(), 'E', 'news');
SELECT * FROM changes() WHERE subject ~ 'news';
-- left by the old name while merged: at both, and it stays so
SELECT outcome FROM fencing_tag_unsubscribe('s', event(), 'D', 'carried');
SELECT outcome FROM fencing_tag_subscribe('s', event(), 'D', 'by the old name');
SELECT outcome FROM fencing_tag_subscribe('s', event(), 'E', 'by the new name');
SELECT * FROM state() WHERE tag IN ('D', 'E');
SELECT outcome FROM fencing_tag_undo('s', event(), id('D E'));
SELECT * FROM state() WHERE tag IN ('D', 'E');
-- merged the other way, a later decision at the target wins over what is carried in
SELECT outcome FROM fencing_tag_subscribe('s', event(), 'D', 'left E');
SELECT outcome FROM fencing_tag_merge('s', id('E D'), 'E', 'D', at_version('E'));
SELECT * FROM state() WHERE tag IN ('D', 'E');
-- two merged into a third: who follows one and left the other is out
SELECT outcome FROM fencing_tag_subscribe('s', event(), 'F', 'U');
SELECT outcome FROM fencing_tag_unsubscribe('s', event(), 'G', 'U');
SELECT outcome FROM fencing_tag_subscribe('s', event(), 'F', 'V');
SELECT outcome FROM fencing_tag_merge('s', id('F C'), 'F', 'C', 0);
SELECT * FROM state() WHERE tag = 'C';
SELECT outcome FROM fencing_tag_merge('s', id('G C'), 'G', 'C', 0);
SELECT * FROM state() WHERE tag = 'C';
SELECT outcome FROM fencing_tag_subscribe('s', event(), 'F', 'U');
SELECT * FROM state() WHERE tag = 'C';
SELECT outcome FROM fencing_tag_undo('s', event(), id('G C'));
SELECT * FROM state() WHERE tag IN ('C', 'G');
SELECT * FROM state('told before');
SELECT * FROM state('told after');

--
-- Names as of then; numbers that were never drawn
--
SELECT outcome FROM fencing_tag_rename('s', id('rename'), 'B', 'Renamed', at_version('B'));
SELECT outcome FROM fencing_tag_rename('s', id('rename 2'), 'B', 'Renamed again', at_version('B'));
SELECT outcome FROM fencing_tag_undo('s', id('rename undone'), id('rename 2'));
SELECT at, (SELECT string_agg(name, ' ' ORDER BY name COLLATE "C") FROM fencing_tag_statistics('s', no(at)) WHERE name ~ 'B|Renamed') AS name
FROM unnest(ARRAY['before', 'merge', 'rename', 'rename 2', 'rename undone']) at;
SELECT fencing_tag_subjects('s', 'Renamed', no('before'));
SELECT count(*) > 0 AS subjects FROM fencing_tag_subjects('s', 'B', no('before'));
SELECT name, subjects FROM fencing_tag_statistics('s', no('B'), 'B');
SELECT name, subjects, subscribers FROM fencing_tag_statistics('s', NULL, 'B');
SELECT fencing_tag_statistics('s', 9223372036854775806);

--
-- Page by page
--
SELECT count(outcome) FROM generate_series(1, 250) i, fencing_tag_assign('s', event(), 'C', to_char(i, 'FM000'));
SELECT count(outcome) FROM generate_series(1, 250) i, fencing_tag_subscribe('s', event(), CASE i % 3 WHEN 0 THEN 'C' WHEN 1 THEN 'F' ELSE 'G' END, to_char(i, 'FM000'));
SELECT count(outcome) FROM generate_series(1, 250, 2) i, fencing_tag_unsubscribe('s', event(), 'C', to_char(i, 'FM000'));
SELECT outcome FROM fencing_tag_merge('s', id('G C 2'), 'G', 'C', at_version('G'));
SELECT count(*), min(x), max(x) FROM fencing_tag_subjects('s', 'C') x;
SELECT count(*), min(x), max(x) FROM fencing_tag_subjects('s', 'C', NULL, '100') x;
SELECT count(*), min(x), max(x) FROM fencing_tag_subjects('s', 'C', NULL, '100', 1000) x;
SELECT count(*), min(x), max(x) FROM fencing_tag_subscribers('s', 'C') x;
SELECT count(*), min(x), max(x) FROM fencing_tag_subscribers('s', 'C', NULL, '100', 7) x;
SELECT count(*), min(x), max(x) FROM fencing_tag_subscribers('s', 'C', no('G C 2'), '100', 7) x;
SELECT count(*), subscribers FROM fencing_tag_statistics('s', NULL, 'C'), fencing_tag_subscribers('s', 'C', NULL, NULL, 1000) GROUP BY subscribers;
SELECT count(*), subscribers FROM fencing_tag_statistics('s', no('G C 2'), 'C'), fencing_tag_subscribers('s', 'C', no('G C 2'), NULL, 1000) GROUP BY subscribers;
SELECT count(*) FROM fencing_tag_check('s');

--
-- What is wrong is found: by the check, by reconcile, and complete is refused
--
CREATE FUNCTION wrong(change text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	found text;
BEGIN
	BEGIN
		EXECUTE change;
		SELECT regexp_replace(string_agg(p, '; ' ORDER BY p), '[0-9a-f]{8}-[0-9a-f-]{27}|\m\d+\M', '.', 'g') INTO found FROM fencing_tag_check('s') p;
		WHILE NOT (SELECT done FROM fencing_tag_reconcile('s', id('G C 2'), 100)) LOOP
		END LOOP;
		found := concat_ws(' | ', found, (SELECT problems FROM fencing_tag_reconcile('s', id('G C 2'), 1000000)));
		PERFORM fencing_tag_complete('s', id('G C 2'));
		RAISE EXCEPTION 'complete';
	EXCEPTION WHEN OTHERS THEN
		RETURN concat_ws(' | ', found, SQLSTATE);
	END;
END $$;
\pset format unaligned
SELECT wrong('');
SELECT wrong($$DELETE FROM fencing.tag_links WHERE vocabulary = 's' AND subject = '042'$$);
SELECT wrong($$UPDATE fencing.tag_links SET until_no = 9000000 WHERE vocabulary = 's' AND subject = '042'$$);
SELECT wrong($$INSERT INTO fencing.tag_links SELECT 's', 'nobody', 9223372036854775807, tag_id, 1 FROM fencing.tags WHERE name = 'G'$$);
SELECT wrong($$DELETE FROM fencing.tag_follows WHERE vocabulary = 's' AND subscriber = '042'$$);
SELECT wrong($$UPDATE fencing.tag_follows SET following = NOT following WHERE vocabulary = 's' AND subscriber = '042'$$);
SELECT wrong($$INSERT INTO fencing.tag_follows SELECT 's', 'nobody', 9223372036854775807, tag_id, 1, true FROM fencing.tags WHERE name = 'C'$$);
SELECT wrong($$UPDATE fencing.tags SET root = tag_id WHERE name = 'G'$$);
SELECT wrong($$UPDATE fencing.tags SET members = 7 WHERE name = 'C'$$);
SELECT wrong($$UPDATE fencing.tags SET version = 7 WHERE name = 'A'$$);
SELECT wrong($$UPDATE fencing.tags SET name = 'x' WHERE name = 'A'$$);
SELECT wrong($$DELETE FROM fencing.tag_names WHERE name = 'A'$$);
SELECT wrong($$INSERT INTO fencing.tag_names SELECT 's', 'x', tag_id, false, 1 FROM fencing.tags WHERE name = 'A'$$);
SELECT wrong($$DELETE FROM fencing.tag_merges WHERE undone_no <> 9223372036854775807$$);
SELECT wrong('');
\pset format aligned

-- mended, and begun anew
DELETE FROM fencing.tag_follows WHERE vocabulary = 's' AND subscriber = '042';
SELECT done, problems FROM fencing_tag_reconcile('s', id('G C 2'), 1000000);
SELECT fencing_tag_complete('s', id('G C 2'));
INSERT INTO fencing.tag_follows SELECT * FROM fencing.tag_follows_by_events WHERE vocabulary = 's' AND subscriber = '042';
SELECT done, problems FROM fencing_tag_reconcile('s', id('G C 2'), 1);
SELECT done, problems FROM fencing_tag_reconcile('s', id('G C 2'), 1000000);
SELECT outcome FROM fencing_tag_complete('s', id('G C 2'));

DROP FUNCTION wrong, changes, state, at_version, no, event, id;
\getenv folder PG_ABS_SRCDIR
\set clean_up :folder '/sql/clean_up.psql'
\i :clean_up
