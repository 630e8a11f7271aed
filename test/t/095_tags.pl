# Tags against a model that follows the rules by hand: random stories of
# creating, renaming, merging, undoing, assigning and subscribing, by names that
# are current, former, aliases, of merged tags, and ids; then everything as of
# now and as of every number, and who was told of which change.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl", "$FindBin::RealBin/../lib/tag";
use FencingTest ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use TagModel;
use Test::More;

my $stories = 12;
my $steps = 140;

my $node = PostgreSQL::Test::Cluster->new('tags');
$node->init(extra => [ '--encoding=UTF8', '--no-locale' ]);
$node->append_conf('postgresql.conf', "fsync = off\nmax_prepared_transactions = 2\n");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION fencing CASCADE');

# One step of a story, drawn by the server so that a run is one session; what
# is refused is refused.
$node->safe_psql('postgres', q{
CREATE TABLE step (vocabulary text, n int, call text, answer text);
CREATE FUNCTION some_reference(v text) RETURNS text LANGUAGE sql VOLATILE AS $$
SELECT reference FROM (
	SELECT reference, matched FROM fencing.tag_export WHERE vocabulary = v
	UNION ALL SELECT 'unknown', 'unknown') r
ORDER BY random() LIMIT 1
$$;
CREATE FUNCTION some_version(v text, r text) RETURNS bigint LANGUAGE sql VOLATILE AS $$
SELECT coalesce((SELECT migration_version FROM fencing_tag_resolve(v, r)), 0) + (random() < 0.1)::int
$$;
CREATE FUNCTION some_migration(v text) RETURNS uuid LANGUAGE sql VOLATILE AS $$
SELECT coalesce((SELECT event_id FROM fencing.tag_events WHERE vocabulary = v AND kind IN ('rename', 'merge') ORDER BY random() LIMIT 1), gen_random_uuid())
$$;
CREATE PROCEDURE story(v text, steps int) LANGUAGE plpgsql AS $$
DECLARE
	r text;
	dice float;
	c text;
	a text;
BEGIN
	FOR i IN 1 .. steps LOOP
		r := some_reference(v);
		dice := random();
		c := CASE
			WHEN i <= 4 OR dice < 0.04 THEN format('create(%L, %L, %L)', v, gen_random_uuid(), 'n' || floor(random() * 30))
			WHEN dice < 0.08 THEN format('alias(%L, %L, %L, %L)', v, gen_random_uuid(), r, 'n' || floor(random() * 30))
			WHEN dice < 0.16 THEN format('rename(%L, %L, %L, %L, %s)', v, gen_random_uuid(), r,
				CASE WHEN random() < 0.4 THEN some_reference(v) ELSE 'n' || floor(random() * 30) END, some_version(v, r))
			WHEN dice < 0.28 THEN format('merge(%L, %L, %L, %L, %s)', v, gen_random_uuid(), r, some_reference(v), some_version(v, r))
			WHEN dice < 0.38 THEN format('undo(%L, %L, %L)', v, gen_random_uuid(), some_migration(v))
			WHEN dice < 0.41 THEN format('release_name(%L, %L, %L, %L)', v, gen_random_uuid(),
				coalesce((SELECT name FROM fencing.tag_names WHERE vocabulary = v AND alias ORDER BY since_no DESC LIMIT 1), r), 'model')
			WHEN dice < 0.58 THEN format('assign(%L, %L, %L, %L)', v, gen_random_uuid(), r, 's' || floor(random() * 5))
			WHEN dice < 0.68 THEN format('unassign(%L, %L, %L, %L)', v, gen_random_uuid(), r, 's' || floor(random() * 5))
			WHEN dice < 0.88 THEN format('subscribe(%L, %L, %L, %L)', v, gen_random_uuid(), r, 'u' || floor(random() * 4))
			ELSE format('unsubscribe(%L, %L, %L, %L)', v, gen_random_uuid(), r, 'u' || floor(random() * 4)) END;
		BEGIN
			EXECUTE 'SELECT outcome FROM fencing_tag_' || c INTO a;
		EXCEPTION WHEN OTHERS THEN
			a := SQLSTATE;
		END;
		INSERT INTO step VALUES (v, i, c, a);
		COMMIT;
	END LOOP;
END $$;
});

# The lines in which two texts differ.
sub differences
{
	my ($got, $expected) = map { my %lines = map { $_ => 1 } split /\n/; \%lines } @_;

	return join "\n", (map { "got $_" } grep { !$expected->{$_} } sort keys %$got),
	  map { "expected $_" } grep { !$got->{$_} } sort keys %$expected;
}

my %answers;

for my $story (1 .. $stories)
{
	my $seed = ($ENV{FENCING_SEED} // 711) + $story;
	my $vocabulary = "story $story";

	$node->safe_psql('postgres', "SELECT setseed(@{[ ($seed % 2000 - 1000) / 1000 ]}); CALL story('$vocabulary', $steps)");
	for (split /\n/, $node->safe_psql('postgres', "SELECT split_part(call, '(', 1) || ' ' || answer FROM step WHERE vocabulary = '$vocabulary'"))
	{
		$answers{$_}++;
	}

	my @events = map {
		my %event;
		@event{qw(no kind owner tag_id subject target migration event_id name)} = split /\|/, $_, -1;
		\%event;
	} split /\n/, $node->safe_psql('postgres', "SELECT event_no, kind, owner, tag_id, subject, target, migration, event_id, name FROM fencing.tag_events WHERE vocabulary = '$vocabulary'");
	my $model = TagModel->new(@events);
	my @numbers = map { $_->{no} } @{ $model->{events} };
	my $wrong = '';

	is($node->safe_psql('postgres', "SELECT * FROM fencing_tag_check('$vocabulary')"), '', "story $story (seed $seed): the check finds nothing");
	is(differences($node->safe_psql('postgres', "SELECT * FROM fencing_tag_statistics('$vocabulary')"), $model->statistics($numbers[-1])), '', 'statistics as of now');
	for my $e (@{ $model->{events} })
	{
		$wrong .= "event $e->{no} leads to $e->{tag_id}\n" if $model->reached($e->{owner}, $e->{no}) ne $e->{tag_id};
	}

	# as of every number; in one session
	my $got = $node->safe_psql('postgres', "SELECT e.event_no, s.* FROM fencing.tag_events e, fencing_tag_statistics('$vocabulary', e.event_no) s WHERE e.vocabulary = '$vocabulary' ORDER BY e.event_no, s.tag_id");
	is(differences($got, join("\n", map { $model->statistics($_, "$_|") } @numbers)), '', 'statistics as of every number');

	# who is told of each change, and that it is one
	my (%emitted, %before);
	for (split /\n/, $node->safe_psql('postgres', "SELECT o.payload->>'event_no', o.type, o.payload->>'tag_id', string_agg(s, ' ' ORDER BY s) FROM fencing.outbox o LEFT JOIN fencing_tag_subscribers('$vocabulary', o.payload->>'tag_id', (o.payload->>'event_no')::bigint) s ON true WHERE o.payload->>'vocabulary' = '$vocabulary' AND o.type IN ('tag.assigned', 'tag.unassigned') GROUP BY 1, 2, 3"))
	{
		my ($no, $type, $tag, $subscribers) = split /\|/, $_, -1;

		$emitted{$no} = $type;
		$wrong .= "subscribers of event $no: $subscribers\n" if $subscribers ne join ' ', $model->subscribers($tag, $no);
	}
	for my $e (grep { $_->{kind} =~ /assign$/ } @{ $model->{events} })
	{
		my $before = grep { $_ eq $e->{subject} } $model->subjects($e->{tag_id}, $e->{no} - 1);
		my $after = grep { $_ eq $e->{subject} } $model->subjects($e->{tag_id}, $e->{no});
		my $expected = $before == $after ? 'none' : "tag.$e->{kind}ed";

		$wrong .= "event $e->{no} $e->{kind}: " . ($emitted{ $e->{no} } // 'none') . ", not $expected\n" if ($emitted{ $e->{no} } // 'none') ne $expected;
	}

	# lists, page by page
	for my $root ($model->roots($numbers[-1]))
	{
		my $subjects = $node->safe_psql('postgres', "SELECT fencing_tag_subjects('$vocabulary', '$root')");
		my $paged = $node->safe_psql('postgres', "WITH RECURSIVE p(s, n) AS (SELECT '', 0 UNION ALL SELECT (SELECT fencing_tag_subscribers('$vocabulary', '$root', NULL, p.s, 1)), n + 1 FROM p WHERE p.s IS NOT NULL) SELECT s FROM p WHERE n > 0 AND s IS NOT NULL ORDER BY n");

		$wrong .= "subjects of $root: $subjects\n" if $subjects ne join "\n", $model->subjects($root, $numbers[-1]);
		$wrong .= "subscribers of $root: $paged\n" if $paged ne join "\n", $model->subscribers($root, $numbers[-1]);
	}
	is($wrong, '', 'events, subscribers as of each change, and lists');

	# every migration in force can be completed, and then is not undone
	is($node->safe_psql('postgres', "SELECT DISTINCT r.done, r.problems FROM fencing.tag_migrations m, fencing_tag_reconcile(m.vocabulary, m.event_id, 100000) r WHERE m.vocabulary = '$vocabulary' AND m.undone_no = 9223372036854775807"), 't|0', 'all are reconciled without problems')
	  if grep { $_->{kind} eq 'merge' } @events;
}

# the stories met everything
for (qw(create alias rename merge undo release_name assign unassign subscribe unsubscribe))
{
	ok($answers{"$_ committed"}, "$_ was committed");
}
ok($answers{$_}, $_) for ('create conflict', 'alias LF004', 'rename LF004', 'rename conflict', 'rename 22023', 'merge conflict', 'merge 22023', 'undo 55000', 'release_name 55000', 'assign LF001');

done_testing();
