# Applying, with backends that are killed and servers that crash: first at each
# point between content and watermark, then 8 workers with 20 targets and 50
# versions in random order, some more than once.  Every target ends at the last
# version, none ever goes down, and no version is written twice.

use strict;
use warnings;

use FindBin;
use IPC::Run;
use lib "$FindBin::RealBin/../lib/perl";
use FencingTest;
use List::Util qw(shuffle sum0);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

# What a client was told must survive with synchronous_commit off, too.
my $node = new_node('main', <<'EOT', allows_streaming => 1);
restart_after_crash = on
synchronous_commit = off
wal_writer_delay = 10s
checkpoint_timeout = 1h
max_connections = 30
EOT

$node->safe_psql('postgres', q{
CREATE TABLE running (document text, target text, version bigint, content jsonb, PRIMARY KEY (document, target));
CREATE TABLE written (n bigserial, document text, target text, version bigint, content jsonb);
CREATE TABLE message (version bigint, digest bytea, content jsonb);
CREATE TABLE plain (a int);
CREATE FUNCTION write(document text, target text, version bigint, content jsonb) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO running VALUES ($1, $2, $3, $4)
	ON CONFLICT ON CONSTRAINT running_pkey DO UPDATE SET version = $3, content = $4;
	INSERT INTO written (document, target, version, content) VALUES ($1, $2, $3, $4);
	RETURN $3;
END $$;
-- waits with the content written
CREATE FUNCTION write_and_wait(document text, target text, version bigint, content jsonb) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	PERFORM write(document, target, version, content);
	LOCK TABLE plain;
	RETURN version;
END $$;
-- content {"n": 1}, {"n": 2}, ...
CREATE FUNCTION publish_to(document text, last bigint) RETURNS void LANGUAGE sql AS $$
SELECT FROM generate_series((SELECT coalesce(max(version), 0) FROM fencing_publish_current(document)) + 1, last) n,
	LATERAL fencing_publish(document, n - 1, jsonb_build_object('n', n))
$$;
CREATE FUNCTION apply(target text, version bigint, statement text DEFAULT 'SELECT write($1, $2, $3, $5)') RETURNS text LANGUAGE sql AS $$
SELECT concat_ws(' ', outcome, applied_version)
FROM fencing_apply('doc', target, version, fencing_digest(jsonb_build_object('n', version)), statement => statement)
$$;
-- content, watermark, and everything that was ever written
CREATE FUNCTION state(t text) RETURNS text LANGUAGE sql AS $$
SELECT concat_ws(' ', coalesce((SELECT version FROM running WHERE target = t), 0), applied_version, applications,
	(SELECT string_agg(version::text, ',' ORDER BY n) FROM written WHERE target = t))
FROM fencing.rollout_status WHERE target_id = t
$$;
SELECT publish_to('doc', 3);
});

sub sql
{
	my ($sql) = @_;
	return $node->safe_psql('postgres', $sql);
}

sub desire
{
	my ($target) = @_;
	return sql("SELECT fencing_target_desire('doc', '$target')");
}

sub kill_backend
{
	my ($pid) = @_;
	return PostgreSQL::Test::Utils::system_log('pg_ctl', 'kill', 'KILL', $pid);
}

# A lock that only the end of its session or a restart takes away, and a look
# whether it is gone.
sub lock_plain
{
	my $session = open_session($node);
	$session->ask('BEGIN');
	$session->ask('LOCK TABLE plain');
	return $session;
}

sub await_restart
{
	my ($name) = @_;
	return await_true($node, q{SELECT NOT EXISTS (SELECT FROM pg_locks WHERE relation = 'plain'::regclass)}, "$name: the server has restarted");
}

#
# Killed between content and watermark.  Each time nothing is there, and the
# delivery that comes again is a first one, once.
#
my %points = (
	# the watermark, and then the content: not yet, and already
	'gate alone, nothing written' => [ q{SELECT apply('T', 2, NULL)} ],
	'gate alone, content written' => [ q{SELECT apply('T', 2, NULL)}, q{SELECT write('doc', 'T', 2, '{"n": 2}')} ],
	# the content by a statement, before the call has ended
	'statement, content written' => [ q{SELECT apply('T', 2, 'SELECT write_and_wait($1, $2, $3, $5)')} ],
	'statement and more' => [ q{SELECT apply('T', 1)}, q{SELECT apply('T', 2)}, q{INSERT INTO plain VALUES (1)} ]);
my $number = 0;
foreach my $point (sort keys %points)
{
	foreach my $how ('terminated', 'killed')
	{
		my $target = 't' . ++$number;
		my ($session, $locker) = (open_session($node), lock_plain());
		my @calls = map { s/'T'/'$target'/r } @{ $points{$point} };
		my $last = pop @calls;
		my $name = "$point, $how";

		desire($target);
		$session->ask('BEGIN');
		isnt($session->ask($_), '', "$name: $_") foreach @calls;
		if ($last =~ /wait|plain/)
		{
			$session->start($last);
			await_lock($node, $session->pid, "$name: waits");
		}
		else
		{
			like($session->ask($last), qr/committed 2|^2$/, "$name: $last");
		}
		is(sql("SELECT state('$target')"), '0 0 0', "$name: nobody sees anything of it");
		if ($how eq 'killed')
		{
			is(kill_backend($session->pid), 0, "$name: kill");
			await_restart($name);
		}
		else
		{
			is(sql('SELECT pg_terminate_backend(' . $session->pid . ')'), 't', "$name: terminate");
			$locker->ask('ROLLBACK');
		}
		$_->close foreach $session, $locker;
		is(sql("SELECT state('$target')"), '0 0 0', "$name: neither content nor watermark");
		is(sql("SELECT apply('$target', 2)"), 'committed 2', "$name: it comes again");
		is(sql("SELECT apply('$target', 2)"), 'replayed 2', "$name: and again");
		is(sql("SELECT apply('$target', 1)"), 'stale 2', "$name: a lower one");
		is(sql("SELECT apply('$target', 3)"), 'committed 3', "$name: the next one is not held up");
		is(sql("SELECT state('$target')"), '3 3 2 2,3', "$name: each once");
	}
}

#
# Committed, and the reply never comes: the session waits for a standby that
# does not exist.  Content and watermark are there, and the delivery that comes
# again is told so.
#
desire('reply');
my $locker = lock_plain();
sql(q{ALTER SYSTEM SET synchronous_standby_names = 'nobody'});
$node->reload;
# It counts when the checkpointer has seen it.
my ($probe, $waits);
foreach my $try (1 .. 200)
{
	$probe->close if $probe;
	$probe = open_session($node);
	$probe->ask('SET synchronous_commit = on');
	$probe->start('CREATE TEMP TABLE t ()');
	# it has ended, or it waits
	$node->poll_query_until('postgres', q{SELECT state = 'idle' AND query LIKE 'CREATE TEMP%' OR wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = } . $probe->pid);
	$waits = sql('SELECT state FROM pg_stat_activity WHERE pid = ' . $probe->pid) eq 'active';
	last if $waits;
}
ok($waits, 'reply lost: commits wait');
my $session = open_session($node);
$session->ask('SET synchronous_commit = on');
$session->start(q{SELECT apply('reply', 2)});
await_true($node, q{SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = } . $session->pid, 'reply lost: waits');
is(sql(q{SELECT state('reply')}), '0 0 0', 'reply lost: nobody sees anything of it yet');
kill_backend($session->pid);
await_restart('reply lost');
sql('ALTER SYSTEM RESET synchronous_standby_names');
$node->reload;
unlike($session->{psql}{stdout}, qr/committed/, 'reply lost: indeed');
$_->close foreach $session, $probe, $locker;
is(sql(q{SELECT state('reply')}), '2 2 1 2', 'reply lost: content and watermark are there');
is(sql(q{SELECT apply('reply', 2), apply('reply', 1), apply('reply', 3), state('reply')}), 'replayed 2|stale 2|committed 3|3 3 2 2,3', 'reply lost: it comes again');

#
# A crash right after the answer, with synchronous_commit off
#
my $digest = q{fencing_digest('{"n": 3}')};
desire($_) foreach 'crash', 'gate', 'observed';
foreach my $crash (
	[ q{SELECT fencing_target_desire('doc', 'desired', 2)}, '', q{SELECT desired_version FROM fencing.rollout_status WHERE target_id = 'desired'}, '2' ],
	[ q{SELECT fencing_apply_reject('doc', 'desired', 2, 'bad')}, 'recorded', q{SELECT rejected_version, last_error FROM fencing.rollout_status WHERE target_id = 'desired'}, '2|bad' ],
	[ q{SELECT apply('crash', 3)}, 'committed 3', q{SELECT state('crash')}, '3 3 1 3' ],
	[ q{BEGIN; SELECT apply('gate', 3, NULL); SELECT write('doc', 'gate', 3, '{"n": 3}'); COMMIT}, "committed 3\n3", q{SELECT state('gate')}, '3 3 1 3' ],
	[ qq{SELECT outcome, token, version FROM fencing_apply_begin('doc', 'observed', '00000000-0000-0000-0000-00000000000a', '1 hour')}, 'acquired|1|3',
		q{SELECT outcome FROM fencing_apply_begin('doc', 'observed', '00000000-0000-0000-0000-00000000000b', '1 hour')}, 'held' ],
	[ qq{SELECT fencing_apply_observe('doc', 'observed', 1, 3, $digest)}, 'recorded', q{SELECT applied_version FROM fencing.rollout_status WHERE target_id = 'observed'}, '3' ])
{
	my ($call, $told, $look, $there) = @$crash;

	is(sql($call), $told, "crash: $call");
	$node->stop('immediate');
	$node->start;
	is(sql($look), $there, 'crash: it is there');
}
is(sql(q{SELECT apply('crash', 3), apply('crash', 2), apply('gate', 3)}), 'replayed 3|stale 3|replayed 3', 'crash: and told so');

#
# Prepared transactions: a watermark that has no session, and outlives a crash
#
$node->append_conf('postgresql.conf', 'max_prepared_transactions = 5');
$node->restart;
desire('prepared');
sql(q{BEGIN; SELECT apply('prepared', 2); PREPARE TRANSACTION 'two'});
is(sql(q{SELECT outcome FROM fencing_apply_begin('doc', 'prepared', '00000000-0000-0000-0000-00000000000a')}), 'held', 'prepared: begin is held');
$node->stop('immediate');
$node->start;
is(answer($node, q{SET lock_timeout = '100ms'; SELECT apply('prepared', 3)}), '55P03', 'prepared: the next version waits');
is(sql(q{SELECT apply('crash', 3)}), 'replayed 3', 'prepared: other targets do not');
sql(q{COMMIT PREPARED 'two'});
is(sql(q{SELECT apply('prepared', 1), apply('prepared', 2), state('prepared')}), 'stale 2|replayed 2|2 2 1 2', 'prepared: committed');
sql(q{BEGIN; SELECT apply('prepared', 3); PREPARE TRANSACTION 'three'});
sql(q{ROLLBACK PREPARED 'three'});
is(sql(q{SELECT apply('prepared', 3), state('prepared')}), 'committed 3|3 3 2 2,3', 'prepared: rolled back');

#
# A standby, which knows too little to refuse, and its promotion
#
desire('moved');
sql(q{SELECT outcome FROM fencing_apply_begin('doc', 'moved', '00000000-0000-0000-0000-00000000000a', '1 hour')});
my $standby = standby_of($node, 'standby');
is_answers($standby, 'postgres', 'standby',
	[ 'replayed', q{SELECT apply('crash', 3)}, 'replayed 3' ],
	[ 'conflict', q{SELECT outcome, applied_version FROM fencing_apply('doc', 'crash', 3, '\x00')}, 'conflict|3' ],
	[ 'stale', q{SELECT apply('crash', 2)}, '25006' ],
	[ 'committed', q{SELECT apply('moved', 2)}, '25006' ],
	[ 'begin', q{SELECT outcome FROM fencing_apply_begin('doc', 'moved', '00000000-0000-0000-0000-00000000000a')}, '25006' ],
	[ 'observe', q{SELECT fencing_apply_observe('doc', 'moved', 1, NULL, NULL)}, '25006' ],
	[ 'reject', q{SELECT fencing_apply_reject('doc', 'moved', 3, 'bad')}, '25006' ],
	[ 'desire', q{SELECT fencing_target_desire('doc', 'moved', 3)}, '25006' ],
	[ 'status', q{SELECT applied_version, lag FROM fencing.rollout_status WHERE target_id IN ('crash', 'moved') ORDER BY target_id}, "3|0\n0|3" ]);
$standby->promote;
is_answers($standby, 'postgres', 'promoted',
	[ 'what is applied', q{SELECT apply('crash', 3), apply('crash', 2)}, 'replayed 3|stale 3' ],
	[ 'a token of before', qq{SELECT fencing_apply_observe('doc', 'moved', 1, 3, $digest)}, 'stale' ],
	[ 'whose owner begins again', q{SELECT outcome, token > 1::bigint << 36, version FROM fencing_apply_begin('doc', 'moved', '00000000-0000-0000-0000-00000000000a', '1 hour')}, 'acquired|t|3' ],
	[ 'and applies', qq{SELECT fencing_apply_observe('doc', 'moved', token, 3, $digest) FROM fencing.lease_status WHERE job_key = (SELECT job_key FROM fencing_apply_begin('doc', 'moved', '00000000-0000-0000-0000-00000000000b'))}, 'recorded' ]);
$standby->stop;

#
# The storm
#
# The python3 that Debian's package is for need not be the first of the path.
my ($python) = grep { system("$_ -c 'import psycopg2' 2>/dev/null") == 0 } 'python3', '/usr/bin/python3';
if (!defined $python)
{
	die 'python3 with psycopg2 is not installed' if $ENV{CI};
	$node->stop;
	note 'python3 with psycopg2 is not installed: no workers';
	done_testing();
	exit;
}

my ($targets, $versions, $workers) = (20, 50, 8);
my $seed = srand;
diag "apply: seed $seed";
sql(qq{
SELECT publish_to('config', $versions);
INSERT INTO message SELECT version, digest, content FROM fencing.revisions WHERE document_id = 'config';
SELECT fencing_target_desire('config', to_char(t, 'FM00')) FROM generate_series(1, $targets) t;
CREATE ROLE worker LOGIN;
SELECT fencing_grant('worker', 'target');
GRANT SELECT ON message TO worker;
GRANT SELECT, INSERT, UPDATE ON running, written TO worker;
GRANT USAGE ON SEQUENCE written_n_seq TO worker;
});
is(sql(q{SELECT DISTINCT desired_version, applied_version, lag FROM fencing.rollout_status WHERE document_id = 'config'}), "$versions|0|$versions", 'storm: desired, not applied');

# Half of the targets get theirs in a wholly random order, half nearly in turn;
# each version comes once to three times, to different workers.
my @deliveries;
foreach my $t (1 .. $targets)
{
	foreach my $v (1 .. $versions)
	{
		push @deliveries, [ $t % 2 ? rand : 0.8 * $v / $versions + rand 0.2, sprintf "%02d $v", $t ] foreach 1 .. 1 + int rand 3;
	}
}
@deliveries = map { $_->[1] } sort { $a->[0] <=> $b->[0] } @deliveries;
my $total = @deliveries;
my @storm;
foreach my $w (1 .. $workers)
{
	my $folder = PostgreSQL::Test::Utils::tempdir();
	my %worker = (name => "worker $w", log => "$folder/told", err => '');

	append_to_file("$folder/deliveries", join '', map { "$deliveries[$_]\n" } grep { $_ % $workers == $w - 1 } 0 .. $#deliveries);
	$worker{run} = IPC::Run::start([ $python, "$FindBin::RealBin/../lib/target/deliver.py", $node->connstr('postgres') . ' user=worker', "worker $w" ],
		'<', "$folder/deliveries", '>', $worker{log}, '2>', \$worker{err});
	push @storm, \%worker;
}

# What a worker has said so far; its last line may have been cut.
sub said
{
	my ($worker) = @_;
	return slurp_file($worker->{log}) =~ /^.*\n/mg;
}

# What they were told so far: lines of outcome, target and version.
sub told
{
	return grep { !/^(?:backend|gate) / } map { said($_) } @storm;
}

# The backend of one that is between gate and COMMIT, if there is any; of none that
# has just lost it.
sub kill_one
{
	my ($pid, $between);

	foreach my $worker (shuffle @storm)
	{
		my @said = said($worker);

		next if !$worker->{run}->pumpable || !@said || $said[-1] =~ /^lost/;
		next if $between || $pid && $said[-1] !~ /^gate/;
		$between = $said[-1] =~ /^gate/;
		($pid) = map { /^backend (\d+)/ } reverse @said;
	}
	return defined $pid && kill_backend($pid) == 0;
}

sub pump
{
	$_->{run}->pump_nb foreach grep { $_->{run}->pumpable } @storm;
	return;
}

my ($killed, $crashed, $started) = (0, 0, time);
foreach my $step (1 .. 8)
{
	my $tries = 50 * $PostgreSQL::Test::Utils::timeout_default;

	while (told() < $total * $step / 10)
	{
		pump();
		die 'the workers do not get on' if !$tries-- || !grep { $_->{run}->pumpable } @storm;
		usleep(20_000);
	}
	if ($step == 4)
	{
		$node->stop('immediate');
		$node->start;
		$crashed++;
	}
	else
	{
		# some may be done, or have just lost theirs
		foreach my $try (1 .. 400)
		{
			if (kill_one())
			{
				$killed++;
				last;
			}
			pump();
			usleep(5_000);
		}
	}
}
foreach my $worker (@storm)
{
	$worker->{run}->finish;
	# libpq says there that connections end
	unlike($worker->{err}, qr/Traceback/, "storm: no error of $worker->{name}");
}
my %told;
$told{ (split)[0] }++ foreach told();
diag sprintf 'apply: %d deliveries in %.1f s, %d backends killed, %d crash: %s', $total, time - $started, $killed, $crashed,
	join ', ', map { "$told{$_} $_" } sort keys %told;
cmp_ok($killed, '>=', 3, 'storm: backends were killed');
is(join(' ', grep { !/^(?:committed|replayed|stale|lost)$/ } sort keys %told), '', 'storm: nothing else was told');
is(sum0(map { $told{$_} } grep { $_ ne 'lost' } keys %told), $total, 'storm: every delivery was answered');
cmp_ok($told{lost} // 0, '>=', $workers, 'storm: connections were lost');
cmp_ok($told{$_} // 0, '>', 0, "storm: some were $_") foreach 'committed', 'replayed', 'stale';

is(sql(q{SELECT count(*), min(desired_version), min(applied_version), max(lag) FROM fencing.rollout_status WHERE document_id = 'config'}), "$targets|$versions|$versions|0",
	'storm: every target ends at the last version');
is(sql(q{SELECT count(*), min(r.version) FROM running r JOIN message m USING (version) WHERE document = 'config' AND r.content = m.content}), "$targets|$versions",
	'storm: with its content');
is(sql(q{SELECT count(*) FROM (SELECT version, lag(version) OVER (PARTITION BY target ORDER BY n) AS before FROM written WHERE document = 'config') w WHERE version <= before}), '0',
	'storm: no target ever went down');
is(sql(q{SELECT count(*) FROM fencing.rollout_status s WHERE document_id = 'config'
		AND (applications <> (SELECT count(*) FROM written w WHERE document = 'config' AND target = target_id)
			OR applications + superseded <> desired_version)}), '0',
	'storm: each content write happened as often as recorded');
is(sql(q{SELECT count(*) FROM written w JOIN message m USING (version) WHERE document = 'config' AND w.content <> m.content}), '0', 'storm: always with the content of its version');

# What was told is what is there; what is there and was not told, was lost.
my (%committed, %lost);
foreach (told())
{
	my ($outcome, $target, $version) = split;
	$committed{"$target|$version"}++ if $outcome eq 'committed';
	$lost{"$target|$version"}++ if $outcome eq 'lost';
}
my %there = map { $_ => 1 } split /\n/, sql(q{SELECT target, version FROM written WHERE document = 'config'});
is(join(' ', grep { !$there{$_} || $committed{$_} > 1 } sort keys %committed), '', 'storm: what was told committed is there, and was told once');
is(join(' ', grep { !$committed{$_} && !$lost{$_} } sort keys %there), '', 'storm: what is there was told, or its reply was lost');
note 'written with the reply lost: ' . join ' ', grep { !$committed{$_} } sort keys %there;

#
# Into another database: what was applied stays applied
#
my $dump = $node->basedir . '/apply.dump';
$node->command_ok([ 'pg_dump', '--format=custom', "--file=$dump", 'postgres' ], 'pg_dump');
sql('CREATE DATABASE restored');
$node->command_ok([ 'pg_restore', '--exit-on-error', '--dbname=restored', $dump ], 'pg_restore');
my $status = q{SELECT * FROM fencing.rollout_status ORDER BY document_id, target_id};
is($node->safe_psql('restored', $status), sql($status), 'restored: the status');
is_answers($node, 'restored', 'restored',
	[ 'what is applied', q{SELECT apply('crash', 3), apply('crash', 2)}, 'replayed 3|stale 3' ],
	[ 'nothing to do', q{SELECT outcome, version FROM fencing_apply_begin('doc', 'observed', '00000000-0000-0000-0000-00000000000c')}, 'done|3' ],
	[ 'a token of before', qq{SELECT fencing_apply_observe('doc', 'observed', 1, 3, $digest)}, 'stale' ],
	[ 'the next version', q{SELECT publish_to('doc', 4)}, '' ],
	[ 'who had it may still write: others wait', q{SELECT outcome, token, version FROM fencing_apply_begin('doc', 'observed', '00000000-0000-0000-0000-00000000000c')}, 'held||' ],
	[ 'unless it is revoked', q{SELECT fencing_revoke(job_key, 'restored') > 1::bigint << 36 FROM fencing_apply_begin('doc', 'observed', '00000000-0000-0000-0000-00000000000c')}, 't' ],
	[ 'is handed out', q{SELECT outcome, token > 1::bigint << 36, version FROM fencing_apply_begin('doc', 'observed', '00000000-0000-0000-0000-00000000000c')}, 'acquired|t|4' ],
	[ 'and applied', q{SELECT apply('crash', 4), state('crash')}, 'committed 4|4 4 2 3,4' ]);

$node->stop;
done_testing();
