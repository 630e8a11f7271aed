--
-- Old links work: every reference that a tag ever had leads to it, or to what
-- it was merged into, through renames, merges, their undoing, and release.
--
\set VERBOSITY terse
CREATE FUNCTION id(text) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$ SELECT md5($1)::uuid $$;
CREATE FUNCTION at_version(reference text) RETURNS bigint LANGUAGE sql AS $$ SELECT migration_version FROM fencing_tag_resolve('r', reference) $$;
CREATE FUNCTION event() RETURNS uuid LANGUAGE sql AS $$ SELECT gen_random_uuid() $$;
-- tags by the name that they were created with
CREATE VIEW made AS SELECT owner AS tag_id, name AS made FROM fencing.tag_events WHERE vocabulary = 'r' AND kind = 'create';
-- everything that was ever a reference, as submitted or given, and ids; and where it leads
CREATE FUNCTION links() RETURNS TABLE (reference text, made text, name text, matched text) LANGUAGE sql AS $$
SELECT CASE WHEN m.tag_id::text = x.reference THEN 'id of ' || m.made ELSE x.reference END, t.made, r.name, r.matched
FROM (SELECT e.name AS reference FROM fencing.tag_events e WHERE e.vocabulary = 'r' AND e.name IS NOT NULL
	UNION SELECT e.owner::text FROM fencing.tag_events e WHERE e.vocabulary = 'r') x
LEFT JOIN fencing_tag_resolve('r', x.reference) r ON true
LEFT JOIN made t ON t.tag_id = r.tag_id
LEFT JOIN made m ON m.tag_id::text = x.reference
ORDER BY 1
$$;
-- the export is the same, for every row
CREATE FUNCTION export_differs() RETURNS bigint LANGUAGE sql AS $$
SELECT count(*) FROM (SELECT reference, matched, tag_id, name, migration_version, migration_kind FROM fencing.tag_export WHERE vocabulary = 'r') x
LEFT JOIN fencing_tag_resolve('r', x.reference) r ON true
WHERE ROW(x.matched, x.tag_id, x.name, x.migration_version, x.migration_kind) IS DISTINCT FROM ROW(r.matched, r.tag_id, r.name, r.migration_version, r.migration_kind)
$$;

SELECT outcome FROM unnest('{A,B,C,D}'::text[]) n, fencing_tag_create('r', id(n), n);
SELECT outcome FROM fencing_tag_alias('r', event(), 'A', 'a-slug');
SELECT outcome FROM fencing_tag_alias('r', event(), 'B', 'b-slug');

-- renamed twice, the second time by the old name; and back to a name of its own
SELECT outcome, name FROM fencing_tag_rename('r', id('A2'), 'A', 'A2', 0);
SELECT outcome, name, matched FROM fencing_tag_rename('r', id('A3'), 'A', 'A3', at_version('a-slug'));
SELECT outcome, name, matched FROM fencing_tag_rename('r', id('A2 again'), 'a-slug', 'A2', at_version('A'));
SELECT * FROM links();
SELECT export_differs();

-- a chain A → B → C
SELECT outcome, name FROM fencing_tag_merge('r', id('A B'), 'A3', 'b-slug', at_version('A'));
SELECT outcome, name FROM fencing_tag_merge('r', id('B C'), 'B', 'C', at_version('B'));
SELECT * FROM links();
SELECT export_differs();
-- into an old name, which has been merged itself
SELECT outcome, name FROM fencing_tag_merge('r', id('D A'), 'D', 'A', 0);
SELECT * FROM links() WHERE made <> reference;
-- undone from the middle: what was merged into B's old name goes with it
SELECT outcome, name FROM fencing_tag_undo('r', event(), id('B C'));
SELECT * FROM links();
SELECT export_differs();
SELECT outcome, name FROM fencing_tag_undo('r', event(), id('A B'));
SELECT * FROM links() WHERE reference ~ 'id|slug';
SELECT outcome, name FROM fencing_tag_undo('r', event(), id('D A'));
SELECT export_differs(), fencing_tag_check('r');

-- a tag is made again by its old name: none is made, and the right one is named
SELECT outcome, name, matched FROM fencing_tag_create('r', event(), 'A');
SELECT outcome, name, matched FROM fencing_tag_create('r', event(), 'a-slug');
SELECT fencing_tag_rename('r', event(), 'C', 'A', at_version('C'));
SELECT fencing_tag_alias('r', event(), 'C', 'A3');
SELECT count(*) FROM fencing.tags WHERE vocabulary = 'r';
-- a page that was cached before the merge is submitted: nothing outdated is written as current
SELECT tag_id AS cached_id, name AS cached_name FROM fencing_tag_resolve('r', 'A') \gset
SELECT outcome FROM fencing_tag_merge('r', id('A B 2'), 'A', 'B', at_version('A'));
SELECT outcome, name, matched, tag_id = :'cached_id' AS outdated FROM fencing_tag_assign('r', event(), :'cached_id', 'page');
SELECT outcome, name, matched, tag_id = :'cached_id' AS outdated FROM fencing_tag_assign('r', event(), :'cached_name', 'page');
SELECT outcome, name, matched FROM fencing_tag_subscribe('r', event(), :'cached_id', 'reader');
SELECT name FROM fencing_tags_of('r', 'page');
SELECT DISTINCT payload->>'name' AS name, payload->>'tag_id' = :'cached_id' AS outdated FROM fencing.outbox WHERE type LIKE 'tag.%assigned';
SELECT name FROM fencing_tag_resolve('r', 'B');

-- complete: names of merged tags stay as they are
SELECT done, problems FROM fencing_tag_reconcile('r', id('A B 2'));
SELECT outcome FROM fencing_tag_complete('r', id('A B 2'));
SELECT fencing_tag_rename('r', event(), 'B', 'A2', at_version('B'));
SELECT * FROM links() WHERE made = 'B';

-- released, and taken again
SELECT outcome FROM fencing_tag_alias('r', event(), 'C', 'free');
SELECT outcome FROM fencing_tag_release_name('r', event(), 'free', 'a test');
SELECT * FROM links() WHERE reference = 'free';
SELECT fencing_tag_assign('r', event(), 'free', 'x');
SELECT outcome FROM fencing_tag_create('r', event(), 'free');
SELECT outcome, name, matched FROM fencing_tag_assign('r', event(), 'free', 'x');
SELECT fencing_tag_rename('r', event(), 'C', 'free', at_version('C'));
SELECT * FROM links() WHERE reference ~ 'free';
SELECT export_differs(), fencing_tag_check('r');

-- what looks alike is another tag: case, spaces, NFC and NFD
SELECT outcome, name = n AS same FROM unnest(ARRAY['Café', 'café', 'CAFÉ', 'Café ', ' Café', 'Ca fé', U&'Cafe\0301', 'Cafe']) n, fencing_tag_create('r', event(), n);
SELECT count(DISTINCT tag_id) FROM fencing.tag_names WHERE vocabulary = 'r' AND lower(name) ~ 'ca ?f';
-- who wants them to be one folds them before calling
CREATE FUNCTION fold(text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT lower(btrim(normalize($1, NFKC))) $$;
SELECT outcome, name FROM unnest(ARRAY['Thé', ' thé', U&'THE\0301', 'thé ']) n, fencing_tag_create('r', event(), fold(n));

SELECT reference, matched FROM fencing.tag_export WHERE vocabulary = 'elsewhere';
DROP FUNCTION export_differs, links, fold, event, at_version, id;
DROP VIEW made;
\getenv folder PG_ABS_SRCDIR
\set clean_up :folder '/sql/clean_up.psql'
\i :clean_up
