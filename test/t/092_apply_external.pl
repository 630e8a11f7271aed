# Targets outside the database of the document.  A file that is replaced as a
# whole but cannot be written conditionally, kept by real processes that are
# killed and paused at each point; and a database in another cluster, which is
# given the content.

use strict;
use warnings;

use FindBin;
use IPC::Run;
use lib "$FindBin::RealBin/../lib/perl";
use FencingTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $lib = "$FindBin::RealBin/../lib/target";

# The python3 that Debian's package is for need not be the first of the path.
my ($python) = grep { system("$_ -c 'import psycopg2' 2>/dev/null") == 0 } 'python3', '/usr/bin/python3';
if (!defined $python)
{
	die 'python3 with psycopg2 is not installed' if $ENV{CI};
	plan skip_all => 'python3 with psycopg2 is not installed';
}

my $node = new_node('main');
$node->safe_psql('postgres', q{
CREATE ROLE agent LOGIN;
-- beside client: the agent releases its lease, and takes one to look
SELECT fencing_grant('agent', 'target'), fencing_grant('agent', 'client');
-- content {"n": 1.10}, {"n": 2.10}, ...
CREATE FUNCTION publish(document text, count int DEFAULT 1) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	latest bigint := coalesce((SELECT version FROM fencing_publish_current(document)), 0);
BEGIN
	FOR n IN latest + 1 .. latest + count LOOP
		ASSERT (SELECT outcome = 'committed' FROM fencing_publish(document, n - 1, format('{"n": %s.10}', n)::jsonb));
	END LOOP;
	RETURN latest + count;
END $$;
CREATE FUNCTION status(document text, target text) RETURNS text LANGUAGE sql AS $$
SELECT format('desired %s, applied %s%s%s%s', desired_version, applied_version, CASE WHEN diverged THEN ', diverged' END,
	', rejected ' || rejected_version, CASE WHEN last_error IS NOT NULL THEN ', error' END)
FROM fencing.rollout_status WHERE (document_id, target_id) = ($1, $2)
$$;
});

sub sql
{
	my ($sql) = @_;
	return $node->safe_psql('postgres', $sql);
}

sub status
{
	my ($document, $target) = @_;
	return sql("SELECT status('$document', '" . ($target // 'file') . q{')});
}

sub start_python
{
	my ($program, @arguments) = @_;
	my %process = (in => '', out => '', err => '');

	$process{run} = IPC::Run::start([ $python, "$lib/$program", @arguments ],
		'<', \$process{in}, '>', \$process{out}, '2>', \$process{err}, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	return \%process;
}

sub wait_for_output
{
	my ($process, $pattern) = @_;
	$process->{run}->pump until $process->{out} =~ $pattern;
	return;
}

sub finish
{
	my ($process) = @_;
	$process->{run}->finish;
	is($process->{err}, '', 'no error of the process');
	return $process->{out};
}

sub go_on
{
	my ($process) = @_;
	$process->{in} .= "go\n";
	return finish($process);
}

# As by kill -9: nothing is released, nothing is said.
sub kill_process
{
	my ($process) = @_;
	$process->{run}->signal('KILL');
	eval { $process->{run}->finish };
	return;
}

my $folder = PostgreSQL::Test::Utils::tempdir();

sub start_agent
{
	my ($document, $name, @options) = @_;
	return start_python('agent.py', $node->connstr('postgres') . ' user=agent', $document, 'file', "$folder/$document", $name, @options);
}

sub run_agent
{
	my (@arguments) = @_;
	return finish(start_agent(@arguments));
}

# Stopped at a point, with what it said until then.
sub agent_held
{
	my ($document, $name, $point, @options) = @_;
	my $agent = start_agent($document, $name, @options, "hold=$point");

	wait_for_output($agent, qr/^holding $point$/m);
	return $agent;
}

# What is in the target: its version and content.
sub target
{
	my ($document) = @_;
	return 'nothing' if !-e "$folder/$document";
	my ($version, $content) = slurp_file("$folder/$document") =~ /"version": (\d+).*"n\\": ([0-9.]+)/ or die "no target of $document";
	return "$version: $content";
}

# Who wrote which version there.
sub journal
{
	my ($document) = @_;
	return join ', ', map { (split)[0] . ' ' . (split)[1] } split /\n/, slurp_file("$folder/$document.journal");
}

sub new_document
{
	my ($document, $count) = @_;
	sql("SELECT publish('$document', $count); SELECT fencing_target_desire('$document', 'file')");
	return;
}

#
# Nobody is in the way: the latest version is written once, and read back
#
new_document('plain', 2);
is(status('plain'), 'desired 2, applied 0', 'desired, not applied');
my $out = run_agent('plain', 'a');
like($out, qr/\Aacquired 2 \S+\nobserved nothing write\nobserved 2 recorded\nobserved 2 recorded\ndone\n\z/, 'plain: written and read back');
is(target('plain') . '; ' . status('plain'), '2: 2.10; desired 2, applied 2', 'plain: it is there');
$out = run_agent('plain', 'b');
is($out, "observed 2 recorded\ndone\n", 'plain: the next one only looks');
is(journal('plain'), 'a 2', 'plain: written once');
# a connection that is lost while the target is written costs nothing
sql(q{SELECT publish('plain')});
my $agent = agent_held('plain', 'c', 'before', 'ttl=1 hour');
is(status('plain'), 'desired 3, applied 2', 'plain: not applied before it is read back');
is(run_agent('plain', 'd'), "held\n", 'plain: held by another');
like(go_on($agent), qr/observed 2 write\nholding before\nobserved 3 recorded/, 'plain: written');
is(journal('plain'), 'a 2, c 3', 'plain: by the one who had it');

#
# Killed on the way.  The next one reads back what there is, and writes only if
# it has to: with the same idempotency key.
#
foreach my $case ([ 'before', 2, 'b 2' ], [ 'rename', 2, 'b 2' ], [ 'after', undef, 'a 2' ])
{
	my ($point, $again, $journal) = @$case;
	my $document = "killed-$point";

	new_document($document, 1);
	run_agent($document, 'first');
	sql("SELECT publish('$document')");
	my $killed = agent_held($document, 'a', $point);
	my ($key) = $killed->{out} =~ /^acquired 2 (\S+)$/m;
	kill_process($killed);
	is(status($document), 'desired 2, applied 1', "killed $point: not applied");
	is(target($document), $again ? '1: 1.10' : '2: 2.10', "killed $point: what is in the target");
	$out = run_agent($document, 'b', 'wait');
	my ($key2) = $out =~ /^acquired 2 (\S+)$/m;
	is($key2, $key, "killed $point: the next attempt has the key of the first");
	if ($again)
	{
		like($out, qr/^observed 1 write\nobserved 2 recorded\n/m, "killed $point: it is written");
	}
	else
	{
		like($out, qr/^acquired 2 \S+\nobserved 2 recorded\n/m, "killed $point: it is recorded, not written again");
	}
	is(target($document) . '; ' . status($document), '2: 2.10; desired 2, applied 2', "killed $point: it is there");
	is(journal($document), "first 1, $journal", "killed $point: written once");
	is(sql("SELECT applications, superseded FROM fencing.rollout_status WHERE document_id = '$document'"), '2|0', "killed $point: counted once");
}
# killed, and meanwhile there is a newer version: what was written is recorded,
# and the newer one is written
new_document('killed-newer', 1);
run_agent('killed-newer', 'first');
sql(q{SELECT publish('killed-newer')});
kill_process(agent_held('killed-newer', 'a', 'after'));
sql(q{SELECT publish('killed-newer')});
$out = run_agent('killed-newer', 'b', 'wait');
like($out, qr/^acquired 3 \S+\nobserved 2 write\nobserved 3 recorded\n/m, 'killed, newer: on from what is there');
is(sql(q{SELECT applied_version, applications, superseded FROM fencing.rollout_status WHERE document_id = 'killed-newer'}), '3|3|0', 'killed, newer: 2 was there, and counts');

#
# A paused writer, who goes on when another has long written a higher version:
# he overwrites it.  He is told that he is stale, and the next look finds it.
#
new_document('paused', 1);
run_agent('paused', 'first');
sql(q{SELECT publish('paused')});
my $paused = agent_held('paused', 'old', 'rename');
# As a virtual machine that is suspended, or a long collection of garbage.
$paused->{run}->signal('STOP');
sql(q{SELECT publish('paused')});
$out = run_agent('paused', 'new', 'wait');
like($out, qr/^acquired 3 (\S+)\nobserved 1 write\nobserved 3 recorded\n/m, 'paused: the other writes the next version');
my ($key) = $out =~ /^acquired 3 (\S+)$/m;
$paused->{run}->signal('CONT');
$out = go_on($paused);
like($out, qr/^holding rename\nobserved 2 stale\n\z/m, 'paused: it is told that it is stale');
is(target('paused') . '; ' . status('paused'), '2: 2.10; desired 3, applied 3', 'paused: and has overwritten');
my $watch = agent_held('paused', 'watch', 'before');
is(status('paused'), 'desired 3, applied 3, diverged, error', 'paused: the next look finds it, and the status says so');
$out = go_on($watch);
like($out, qr/\Aobserved 2 diverged\ndiverged\n(?:acquired|renewed) 3 \S+\nobserved 2 write\nholding before\nobserved 3 recorded\n/, 'paused: it is repaired');
my ($key2) = $out =~ /^(?:acquired|renewed) 3 (\S+)$/m;
isnt($key2, $key, 'paused: by an attempt of its own');
is(target('paused') . '; ' . status('paused'), '3: 3.10; desired 3, applied 3', 'paused: as it should be');
is(journal('paused'), 'first 1, new 3, old 2, watch 3', 'paused: who wrote what');
# the repair is killed as well: the next one goes on with it
unlink "$folder/paused" or die;
$watch = agent_held('paused', 'watch', 'rename');
like($watch->{out}, qr/\Aobserved nothing diverged\n/, 'emptied: found');
my ($key3) = $watch->{out} =~ /^(?:acquired|renewed) 3 (\S+)$/m;
kill_process($watch);
is(target('paused'), 'nothing', 'emptied: the repair is killed');
$out = run_agent('paused', 'repair', 'wait');
like($out, qr/^acquired 3 \Q$key3\E\nobserved nothing write\nobserved 3 recorded\n/m, 'emptied: and done by the next, with its key');
isnt($key3, $key2, 'emptied: not that of the last repair');
is(target('paused') . '; ' . status('paused'), '3: 3.10; desired 3, applied 3', 'emptied: as it should be');

#
# A target that is ahead: nothing is written, until one publishes above it
#
new_document('ahead', 2);
run_agent('ahead', 'first');
my $lost = slurp_file("$folder/ahead") =~ s/"version": 2/"version": 4/r =~ s/"digest": "../"digest": "00/r;
unlink "$folder/ahead";
append_to_file("$folder/ahead", $lost);
is(run_agent('ahead', 'a'), "observed 4 ahead\nahead\n", 'ahead: said so');
sql(q{SELECT publish('ahead')});
like(run_agent('ahead', 'b'), qr/\Aacquired 3 \S+\nobserved 4 ahead\n\z/, 'ahead: also with a version to write');
is(target('ahead') . '; ' . status('ahead'), '4: 2.10; desired 3, applied 2, error', 'ahead: nothing is written');
sql(q{SELECT publish('ahead')});
$out = run_agent('ahead', 'c');
like($out, qr/\Aacquired 4 (\S+)\nobserved 4 diverged\n(?:renewed|acquired) 4 (?!\1)\S+\nobserved 4 write\nobserved 4 recorded\n/,
	'the lost version is published anew: it is another one');
is(target('ahead') . '; ' . status('ahead'), '4: 4.10; desired 4, applied 4', 'and is written');

#
# A version that cannot be written is given up and does not block the next
#
new_document('reject', 1);
run_agent('reject', 'first');
sql(q{SELECT FROM fencing_publish('reject', 1, '{"n": 2, "poison": true}')});
$out = run_agent('reject', 'a');
like($out, qr/\Aacquired 2 \S+\n(?:observed 1 write\nfailed 2\n){3}rejected 2\nobserved 1 recorded\ndone\n\z/, 'reject: after three attempts');
is(target('reject') . '; ' . status('reject'), '1: 1.10; desired 2, applied 1, rejected 2, error', 'reject: the status says so');
is(run_agent('reject', 'b'), "observed 1 recorded\ndone\n", 'reject: it is not tried again');
sql(q{SELECT publish('reject')});
like(run_agent('reject', 'c'), qr/\Aacquired 3 \S+\nobserved 1 write\nobserved 3 recorded\n/, 'reject: the next one is');
is(target('reject') . '; ' . status('reject'), '3: 3.10; desired 3, applied 3', 'reject: and all is well');

#
# Deleted, and made again
#
new_document('deleted', 1);
run_agent('deleted', 'first');
sql(q{SELECT FROM fencing_publish_delete('deleted', 1)});
kill_process(agent_held('deleted', 'a', 'after'));
is(target('deleted') . '; ' . status('deleted'), 'nothing; desired 2, applied 1', 'deleted: and the writer killed');
like(run_agent('deleted', 'b', 'wait'), qr/^acquired 2 \S+\nobserved nothing recorded\n/m, 'deleted: recorded');
is(run_agent('deleted', 'c'), "observed nothing recorded\ndone\n", 'deleted: it is as it should be');
sql(q{SELECT publish('deleted')});
like(run_agent('deleted', 'd'), qr/\Aacquired 3 \S+\nobserved nothing write\nobserved 3 recorded\n/, 'deleted: made again');
is(target('deleted') . '; ' . status('deleted') . '; ' . journal('deleted'), '3: 3.10; desired 3, applied 3; first 1, a 2, d 3', 'deleted: each once');

#
# A rollback is a version like any other
#
new_document('rollback', 3);
run_agent('rollback', 'first');
sql(q{SELECT FROM fencing_publish_rollback('rollback', 3, 1, 'bad')});
like(run_agent('rollback', 'a'), qr/\Aacquired 4 \S+\nobserved 3 write\nobserved 4 recorded\n/, 'rollback: a version above');
is(target('rollback') . '; ' . status('rollback'), '4: 1.10; desired 4, applied 4', 'rollback: with the content of the older');

#
# Everything at once: three writers with short leases, who are paused and killed
# at any point, while versions are published.  What counts as applied never goes
# down, and once they are left alone all is as it should be.
#
new_document('chaos', 1);
my $seed = srand;
diag "external: seed $seed";
my (@agents, @applied, $started);
my %did = (killed => 0, paused => 0);
foreach my $round (1 .. 90)
{
	sql(q{SELECT publish('chaos')}) if $round % 3 == 0;
	push @agents, start_agent('chaos', 'chaos' . ++$started, 'ttl=200 ms', 'wait', rand() < 0.5 ? () : ('hold=' . (qw(before rename after))[ rand 3 ])) while @agents < 3;
	usleep(rand 60_000);
	foreach my $agent (@agents)
	{
		$agent->{run}->pump_nb;
		if ($agent->{out} =~ /holding/ && !$agent->{went} && rand() < 0.2)
		{
			$agent->{in} .= "go\n";
			$agent->{went} = ++$did{paused};
		}
		elsif (rand() < 0.04)
		{
			kill_process($agent);
			$agent->{killed} = ++$did{killed};
		}
	}
	foreach my $agent (grep { !$_->{killed} && !$_->{run}->pumpable } @agents)
	{
		$agent->{run}->finish;
		is($agent->{err}, '', 'chaos: no error of a writer');
	}
	@agents = grep { !$_->{killed} && $_->{run}->pumpable } @agents;
	push @applied, sql(q{SELECT applied_version FROM fencing.rollout_status WHERE document_id = 'chaos'});
}
foreach my $agent (@agents)
{
	while ($agent->{run}->pumpable)
	{
		$agent->{in} .= "go\n" if $agent->{out} =~ /holding/ && !$agent->{went}++;
		$agent->{run}->pump_nb;
		usleep(5_000);
	}
	$agent->{run}->finish;
	is($agent->{err}, '', 'chaos: no error of a writer');
}
is(join(' ', grep { $applied[$_] < $applied[ $_ - 1 ] } 1 .. $#applied), '', 'chaos: what is applied never goes down');
cmp_ok($applied[-1], '>', 1, 'chaos: they do get on');
run_agent('chaos', 'last', 'wait');
is(target('chaos') . '; ' . status('chaos'), '31: 31.10; desired 31, applied 31', 'chaos: in the end it is as it should be');
is(sql(q{SELECT applications + superseded FROM fencing.rollout_status WHERE document_id = 'chaos'}), '31', 'chaos: every version was there or was passed over');
diag sprintf 'external: %d writers, %d killed, %d paused, %d writes', $started, @did{ 'killed', 'paused' }, scalar split /\n/, slurp_file("$folder/chaos.journal");

#
# A target in another database: another cluster, where nothing is published
#
my $branch = new_node('branch', "restart_after_crash = on\nsynchronous_commit = off\nwal_writer_delay = 10s\n");
$branch->safe_psql('postgres', q{
CREATE ROLE forward LOGIN;
SELECT fencing_grant('forward', 'target');
CREATE TABLE running (document text PRIMARY KEY, version bigint, content jsonb);
CREATE TABLE written (n bigserial, document text, version bigint, content jsonb);
CREATE TABLE plain (a int);
GRANT SELECT, INSERT, UPDATE ON running, written TO forward;
GRANT USAGE ON SEQUENCE written_n_seq TO forward;
CREATE FUNCTION write(document text, target text, version bigint, content jsonb) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO running VALUES ($1, $3, $4) ON CONFLICT ON CONSTRAINT running_pkey DO UPDATE SET version = $3, content = $4;
	INSERT INTO written (document, version, content) VALUES ($1, $3, $4);
	LOCK TABLE plain IN SHARE MODE;
	RETURN $3;
END $$;
GRANT UPDATE ON plain TO forward;
SELECT fencing_target_desire('shop', 'branch');
});
sql(q{
CREATE ROLE forward LOGIN;
SELECT fencing_grant('forward', 'relay'), fencing_grant('forward', 'target');
SELECT fencing_outbox_subscribe('branch', false);
});

sub start_forward
{
	my ($name, @options) = @_;
	return start_python('forward.py', $node->connstr('postgres') . ' user=forward', $branch->connstr('postgres') . ' user=forward', 'branch', 'branch', $name, @options);
}

sub run_forward
{
	my (@arguments) = @_;
	return finish(start_forward(@arguments));
}

sub forward_held
{
	my ($name, $point) = @_;
	my $forward = start_forward($name, "hold=$point");

	wait_for_output($forward, qr/^holding $point$/m);
	return $forward;
}

# Content, watermark, how often it was written, and everything that ever was.
my $there = q{SELECT r.version || ': ' || coalesce(content ->> 'n', 'deleted') || ' ' || concat_ws(' ', applied_version, applications,
		(SELECT string_agg(version::text, ',' ORDER BY n) FROM written))
	FROM running r JOIN fencing.rollout_status ON document_id = document WHERE document = 'shop'};

is($branch->safe_psql('postgres', q{SELECT desired_version, applied_version, lag FROM fencing.rollout_status}), '|0|', 'branch: nobody knows yet what there is');
sql(q{SELECT publish('shop', 3)});
is(run_forward('a'), "committed shop 1\ncommitted shop 2\ncommitted shop 3\nidle\n", 'branch: in turn');
is($branch->safe_psql('postgres', $there), '3: 3.10 3 3 1,2,3', 'branch: as it was published');
# applied and not acknowledged: it comes again, and is told so
sql(q{SELECT publish('shop')});
kill_process(forward_held('b', 'applied'));
is(run_forward('c'), "replayed shop 4\nidle\n", 'branch: killed between the two databases');
is($branch->safe_psql('postgres', $there), '4: 4.10 4 4 1,2,3,4', 'branch: written once');
# paused with versions in its hands: they are stale when it goes on
sql(q{SELECT publish('shop', 2)});
my $forward = forward_held('d', 'read');
$forward->{run}->signal('STOP');
is(run_forward('e'), "committed shop 5\ncommitted shop 6\nidle\n", 'branch: another takes over');
$forward->{run}->signal('CONT');
$out = go_on($forward);
like($out, qr/^holding read\nstale shop 5\n/m, 'branch: the paused one applies nothing');
unlike($out, qr/committed/, 'branch: nothing at all');
is($branch->safe_psql('postgres', $there), '6: 6.10 6 6 1,2,3,4,5,6', 'branch: it stays as it was');
# killed in the other database, with the content written and before the watermark
sql(q{SELECT publish('shop')});
my $locker = open_session($branch);
$locker->ask('BEGIN');
$locker->ask('LOCK TABLE plain');
$forward = start_forward('f');
await_true($branch, q{SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE application_name = 'f'}, 'branch: content written');
my $pid = $branch->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE application_name = 'f'});
is(PostgreSQL::Test::Utils::system_log('pg_ctl', 'kill', 'KILL', $pid), 0, 'branch: killed there');
eval { $forward->{run}->finish };
unlike($forward->{out}, qr/committed/, 'branch: nothing was told');
$locker->close;
$branch->poll_query_until('postgres', q{SELECT NOT EXISTS (SELECT FROM pg_locks WHERE relation = 'plain'::regclass)});
is($branch->safe_psql('postgres', $there), '6: 6.10 6 6 1,2,3,4,5,6', 'branch: neither content nor watermark');
is(run_forward('g'), "committed shop 7\nidle\n", 'branch: it comes again');
is($branch->safe_psql('postgres', $there), '7: 7.10 7 7 1,2,3,4,5,6,7', 'branch: once');
# crashed there, with synchronous_commit off, after it was told
sql(q{SELECT publish('shop')});
$forward = forward_held('h', 'applied');
$branch->stop('immediate');
$branch->start;
is($branch->safe_psql('postgres', $there), '8: 8.10 8 8 1,2,3,4,5,6,7,8', 'branch: what was told survives a crash');
kill_process($forward);
is(run_forward('i'), "replayed shop 8\nidle\n", 'branch: and comes again');
# a rollback, a deletion, and again
sql(q{SELECT FROM fencing_publish_rollback('shop', 8, 2, 'bad'); SELECT FROM fencing_publish_delete('shop', 9)});
kill_process(forward_held('j', 'applied'));
is(run_forward('k'), "replayed shop 9\ncommitted shop 10\nidle\n", 'branch: a rollback and a deletion');
is($branch->safe_psql('postgres', $there), '10: deleted 10 10 1,2,3,4,5,6,7,8,9,10', 'branch: deleted');
sql(q{SELECT publish('shop')});
is(run_forward('l'), "committed shop 11\nidle\n", 'branch: made again');

# By hand there: it needs no revision, moves only upwards, and what it has is not
# what it should have.
is_answers($branch, 'postgres', 'branch by hand',
	[ 'desired', q{SELECT fencing_target_desire('shop', 'branch', 20)}, '' ],
	[ 'not applied', q{SELECT desired_version, applied_version, lag FROM fencing.rollout_status}, '20|11|9' ],
	[ 'content that was changed on the way', q{SELECT outcome FROM fencing_apply('shop', 'branch', 12, fencing_digest('{"n": 12.10}'), '{"n": 12.11}', 'SELECT 1')}, '22023' ],
	[ 'no content', q{SELECT outcome FROM fencing_apply('shop', 'branch', 12, fencing_digest('{"n": 12.10}'), NULL, 'SELECT 1')}, 'LF001' ],
	[ 'out of order', q{SELECT v, outcome FROM unnest(ARRAY[20, 12, 19, 20]) WITH ORDINALITY u (v, i), LATERAL fencing_apply('shop', 'branch', v, fencing_digest(to_jsonb(v)), to_jsonb(v), 'SELECT 1') ORDER BY i},
		"20|committed\n12|stale\n19|stale\n20|replayed" ],
	[ 'other content', q{SELECT outcome FROM fencing_apply('shop', 'branch', 20, fencing_digest('"x"'), '"x"', 'SELECT 1')}, 'conflict' ],
	[ 'status', q{SELECT desired_version, applied_version, lag, applications, superseded FROM fencing.rollout_status}, '20|20|0|12|8' ],
	[ 'below what is applied', q{SELECT fencing_target_desire('shop', 'branch', 19)}, '22023' ],
	[ 'no revision', q{SELECT count(*) FROM fencing.revisions}, '0' ]);

$branch->stop;
$node->stop;
done_testing();
