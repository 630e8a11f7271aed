# Tags under eight writers: associations and subscriptions by old and new
# references, while tags are renamed, merged, undone and completed, transactions
# are rolled back, and sessions are killed.  Afterwards everything is what the
# events say, by the extension's own check and by a model; each event of the
# outbox was told to those who followed then, once.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl", "$FindBin::RealBin/../lib/tag";
use FencingTest ();
use IPC::Run;
use List::Util qw(shuffle);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use TagModel;
use Test::More;
use Time::HiRes qw(usleep);

my $writers = 8;
my $seconds = $ENV{FENCING_TAG_STRESS_SECONDS} // 12;

my $node = PostgreSQL::Test::Cluster->new('tags_stress');
$node->init(extra => [ '--encoding=UTF8', '--no-locale' ]);
$node->append_conf('postgresql.conf', "fsync = off\ndeadlock_timeout = 200ms\nlog_statement = none\n");
$node->start;
$node->safe_psql('postgres', q{
CREATE EXTENSION fencing CASCADE;
CREATE TABLE answer (writer int, kind text, answer text, n bigint, PRIMARY KEY (writer, kind, answer));
CREATE TABLE delivered (event_id uuid, subscriber text, PRIMARY KEY (event_id, subscriber));
CREATE TABLE stop ();
SELECT fencing_tag_create('v', gen_random_uuid(), 'n' || i) FROM generate_series(1, 8) i;

CREATE FUNCTION some_reference() RETURNS text LANGUAGE sql VOLATILE AS $$
SELECT reference FROM fencing.tag_export WHERE vocabulary = 'v' ORDER BY random() LIMIT 1
$$;
-- one call; what it was answered
CREATE FUNCTION one(kind text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	r text := some_reference();
	id uuid := gen_random_uuid();
	a text;
	m uuid;
BEGIN
	IF kind IN ('assign', 'unassign') THEN
		EXECUTE format('SELECT outcome FROM fencing_tag_%s($1, $2, $3, $4)', kind) INTO a USING 'v', id, r, 's' || floor(random() * 12);
	ELSIF kind IN ('subscribe', 'unsubscribe') THEN
		EXECUTE format('SELECT outcome FROM fencing_tag_%s($1, $2, $3, $4)', kind) INTO a USING 'v', id, r, 'u' || floor(random() * 10);
	ELSIF kind = 'rename' THEN
		SELECT outcome INTO a FROM fencing_tag_rename('v', id, r, 'n' || floor(random() * 40), (SELECT migration_version FROM fencing_tag_resolve('v', r)));
	ELSIF kind = 'merge' THEN
		SELECT outcome INTO a FROM fencing_tag_merge('v', id, r, some_reference(), (SELECT migration_version FROM fencing_tag_resolve('v', r)));
	ELSE
		SELECT event_id INTO m FROM fencing.tag_migrations WHERE vocabulary = 'v' AND undone_no = 9223372036854775807 AND completed_at IS NULL ORDER BY random() LIMIT 1;
		IF kind = 'undo' THEN
			SELECT outcome INTO a FROM fencing_tag_undo('v', id, m);
		ELSIF kind = 'complete' THEN
			WHILE NOT (SELECT done FROM fencing_tag_reconcile('v', m, 50)) LOOP
			END LOOP;
			SELECT outcome INTO a FROM fencing_tag_complete('v', m);
		END IF;
	END IF;
	-- the reply is lost, and the call comes again
	IF kind = 'assign' AND random() < 0.1 THEN
		RETURN a || '+' || (SELECT outcome FROM fencing_tag_assign('v', id, r, (SELECT subject FROM fencing.tag_events WHERE event_id = id)));
	END IF;
	RETURN a;
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
CREATE PROCEDURE writer(w int, migrates boolean) LANGUAGE plpgsql AS $$
DECLARE
	what text;
	a text;
	dice float;
BEGIN
	LOOP
		FOR i IN 1 .. 1 + floor(random() * 2)::int LOOP
			dice := random();
			what := CASE WHEN migrates AND dice < 0.12 THEN 'merge' WHEN migrates AND dice < 0.24 THEN 'undo' WHEN migrates AND dice < 0.3 THEN 'rename'
				WHEN migrates AND dice < 0.33 THEN 'complete' WHEN dice < 0.6 THEN 'assign' WHEN dice < 0.75 THEN 'unassign' WHEN dice < 0.9 THEN 'subscribe' ELSE 'unsubscribe' END;
			a := one(what);
			INSERT INTO answer VALUES (w, what, coalesce(a, 'none'), 1) ON CONFLICT (writer, kind, answer) DO UPDATE SET n = answer.n + 1;
		END LOOP;
		IF random() < 0.1 THEN ROLLBACK; ELSE COMMIT; END IF;
		EXIT WHEN EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'stop'::regclass AND attname = 'now');
	END LOOP;
END $$;
CREATE PROCEDURE relay() LANGUAGE plpgsql AS $$
DECLARE
	t bigint;
	n int;
	e record;
	ids uuid[];
BEGIN
	LOOP
		SELECT token INTO t FROM fencing_acquire('relay', md5('relay')::uuid, '1 hour');
		COMMIT;
		ids := '{}';
		FOR e IN SELECT * FROM fencing_outbox_read('relay', t, 50) LOOP
			ids := ids || e.id;
			IF e.type IN ('tag.assigned', 'tag.unassigned') THEN
				INSERT INTO delivered SELECT (e.payload->>'event_id')::uuid, s
				FROM fencing_tag_subscribers('v', e.payload->>'tag_id', (e.payload->>'event_no')::bigint) s;
			END IF;
		END LOOP;
		IF ids <> '{}' AND (SELECT outcome FROM fencing_outbox_ack('relay', t, ids)) <> 'committed' THEN
			RAISE EXCEPTION 'not acknowledged';
		END IF;
		n := cardinality(ids);
		COMMIT;
		EXIT WHEN n = 0 AND EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'stop'::regclass AND attname = 'now');
	END LOOP;
END $$;
SELECT fencing_outbox_subscribe('relay', from_start => true);
});

sub start
{
	my ($sql) = @_;
	my ($out, $err) = ('', '');
	my $handle = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-v', 'ON_ERROR_STOP=1', '-c', $sql ], '<', \undef, '>', \$out, '2>', \$err);
	return { handle => $handle, sql => $sql, err => \$err };
}

my @running = map { start("CALL writer($_, " . ($_ <= 3 ? 'true' : 'false') . ")") } 1 .. $writers;
my $relay = start('CALL relay()');
my $end = time + $seconds;

# Kill one now and then; another takes its place.
while (time < $end)
{
	usleep(700_000);
	$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'CALL writer%' ORDER BY random() LIMIT 1");
	for my $writer (@running)
	{
		# that it has ended is known only when its output has
		$writer->{handle}->pump_nb;
		next if $writer->{handle}->pumpable;
		$writer->{handle}->finish;
		$writer = start($writer->{sql});
	}
}
$node->safe_psql('postgres', 'ALTER TABLE stop ADD COLUMN now int');
$_->{handle}->finish for @running;
is(join('', map { ${ $_->{err} } } grep { ${ $_->{err} } !~ /terminating connection/ } @running), '', 'the writers end');
$relay->{handle}->finish;
is(${ $relay->{err} }, '', 'the relay has delivered everything');

my @events = map {
	my %event;
	@event{qw(no kind owner tag_id subject target migration event_id name)} = split /\|/, $_, -1;
	\%event;
} split /\n/, $node->safe_psql('postgres', "SELECT event_no, kind, owner, tag_id, subject, target, migration, event_id, name FROM fencing.tag_events WHERE vocabulary = 'v'");
my $model = TagModel->new(@events);
my %number = map { $_->{event_id} => $_->{no} } @events;
my $last = $model->{events}[-1]{no};
my %kinds;

$kinds{ $_->{kind} }++ for @events;
note 'events: ' . join ', ', map { "$_ $kinds{$_}" } sort keys %kinds;
note 'answers: ' . join ', ', split /\n/, $node->safe_psql('postgres', "SELECT kind || ' ' || answer || ' ' || sum(n) FROM answer GROUP BY kind, answer ORDER BY kind, answer");
cmp_ok($kinds{$_} // 0, '>', 0, "$_ took place") for qw(merge undo rename assign unassign subscribe unsubscribe);
is($node->safe_psql('postgres', "SELECT string_agg(DISTINCT answer, ' ' ORDER BY answer) FROM answer WHERE answer !~ '^(committed|committed.replayed|replayed|conflict|none|40P01|22023|LF001|LF004|55000|22004)\$'"), '', 'nothing else was answered');
is($node->safe_psql('postgres', "SELECT count(*) FROM answer WHERE answer LIKE 'XX%' OR answer LIKE '23%'"), 0, 'no internal error, no violation of a key');

is($node->safe_psql('postgres', "SELECT * FROM fencing_tag_check('v')"), '', 'the state is what the events say');
is($node->safe_psql('postgres', "SELECT count(*) FROM (SELECT subject, tag_id FROM (SELECT DISTINCT subject FROM fencing.tag_links) s, fencing_tags_of('v', s.subject) GROUP BY 1, 2 HAVING count(*) > 1) x"), 0, 'each subject has a tag once');
is($node->safe_psql('postgres', "SELECT * FROM fencing_tag_statistics('v')"), $model->statistics($last), 'statistics as of now are those of the model');
for my $number ((shuffle map { $_->{no} } @events)[ 0 .. 15 ])
{
	is($node->safe_psql('postgres', "SELECT * FROM fencing_tag_statistics('v', $number)"), $model->statistics($number), "statistics as of $number");
}

# The key of fencing.delivered has seen to it that nothing was told twice.
my %delivered;
push @{ $delivered{ (split /\|/)[0] } }, (split /\|/)[1] for split /\n/, $node->safe_psql('postgres', 'SELECT * FROM delivered ORDER BY 1, 2');
my @emitted = split /\n/, $node->safe_psql('postgres', "SELECT payload->>'event_id', payload->>'tag_id' FROM fencing.outbox WHERE type IN ('tag.assigned', 'tag.unassigned')");
my $wrong = '';
my $told = 0;

for (grep { defined } (shuffle @emitted)[ 0 .. 199 ])
{
	my ($event_id, $tag_id) = split /\|/;
	my $expected = join ' ', $model->subscribers($tag_id, $number{$event_id});
	my $got = join ' ', sort @{ $delivered{$event_id} // [] };

	$told++ if $expected;
	$wrong .= "event $number{$event_id}: told $got, not $expected\n" if $got ne $expected;
}
is($wrong, '', 'who followed at a change was told of it, and nobody else');
cmp_ok($told, '>', 0, 'somebody was');

# What is told as of the event number of a change is a change.
for my $e ((shuffle grep { $_->{kind} =~ /assign$/ } @events)[ 0 .. 99 ])
{
	my $before = grep { $_ eq $e->{subject} } $model->subjects($e->{tag_id}, $e->{no} - 1);
	my $after = grep { $_ eq $e->{subject} } $model->subjects($e->{tag_id}, $e->{no});
	my $is = grep { /^$e->{event_id}\|/ } @emitted;

	$wrong .= "event $e->{no}\n" if $is != ($before != $after);
}
is($wrong, '', 'the outbox has the events that changed something, and no others');

done_testing();
