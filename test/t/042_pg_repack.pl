# The real pg_repack, which copies a table by a trigger that the extension does
# not fire: calls are refused while that is there, and nothing is lost; also
# when it is killed.  VACUUM FULL is the way, beside traffic too.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use FencingTest;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $owner = owner(10);
my ($bin) = run_command([ 'pg_config', '--bindir' ]);
plan skip_all => 'pg_repack is not installed' if !-x "$bin/pg_repack";

my $node = new_node('main');
plan skip_all => 'pg_repack is not installed for this server'
  if answer($node, q{SELECT count(*) FROM pg_available_extensions WHERE name = 'pg_repack'}) ne '1';
$node->safe_psql('postgres', 'CREATE EXTENSION pg_repack');

my @tables = split /\n/, answer($node, q{SELECT relname FROM pg_class WHERE relnamespace = 'fencing'::regnamespace AND relkind = 'r' ORDER BY 1});
my $trigger = q{SELECT EXISTS (SELECT FROM pg_trigger WHERE tgname = 'repack_trigger')};
my $commit = q{SELECT outcome FROM fencing_commit('job', 1, '{}', 'INSERT INTO business VALUES ($1, $2, ''x'')', step => '%s')};

sub start_repack
{
	my ($table) = @_;
	my %repack = (out => '');

	$repack{run} = IPC::Run::start(
		[ "$bin/pg_repack", '-h', $node->host, '-p', $node->port, '-d', 'postgres', '--no-order', '--wait-timeout=600', '-t', "fencing.$table" ],
		'<', \undef, '>', \$repack{out}, '2>&1');
	return \%repack;
}

# It waits for transactions that are older than its trigger.
is(answer($node, "SELECT outcome FROM fencing_acquire('job', $owner, '1 day')"), 'acquired', 'a job');
is(answer($node, sprintf $commit, 'before'), 'committed', 'before pg_repack: committed');
my $old = open_session($node);
my $worker = open_session($node);
is($worker->ask(sprintf $commit, 'before'), 'replayed', 'a session that knows the tables');
$old->ask('BEGIN; SELECT 1');
my $repack = start_repack('receipts');
await_true($node, $trigger, 'pg_repack has made its trigger');
is($worker->ask(sprintf $commit, 'beside'), '0A000', 'refused beside it, in an old session');
like($worker->errors, qr/trigger "repack_trigger" on table "fencing.receipts".*VACUUM FULL/s, 'and told what to do');
is_answers($node, 'postgres', 'beside pg_repack',
	[ 'a commit', sprintf($commit, 'beside'), '0A000' ],
	[ 'a receipt', q{SELECT count(*) FROM fencing_receipt('job', 1, 'before')}, '1' ],
	[ 'a heartbeat', "SELECT outcome FROM fencing_renew('job', $owner, 1)", 'renewed' ]);
$old->ask('COMMIT');
$repack->{run}->finish;
is($repack->{run}->result(0), 0, 'pg_repack has ended') or diag $repack->{out};
is($worker->ask(sprintf $commit, 'before'), 'replayed', 'afterwards: replayed');
is($worker->ask(sprintf $commit, 'beside'), 'committed', 'afterwards: committed');

# Killed, it leaves its trigger behind.
$old->ask('BEGIN; SELECT 1');
$repack = start_repack('fences');
await_true($node, $trigger, 'pg_repack has made another trigger');
$repack->{run}->kill_kill;
$old->ask('COMMIT');
is($worker->ask("SELECT fencing_revoke('job', 'test')"), '0A000', 'after a kill: refused');
like($worker->errors, qr/drop the trigger that it has left behind/, 'and told what to do');
await_true($node, q{SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'pg_repack')}, 'its sessions are gone');
$node->safe_psql('postgres', 'DROP TRIGGER repack_trigger ON fencing.fences; DROP EXTENSION pg_repack CASCADE; CREATE EXTENSION pg_repack');
is($worker->ask("SELECT fencing_revoke('job', 'test')"), '2', 'without the trigger: the next token');

# Beside traffic, on every table that it can be used on, and VACUUM FULL.
$node->safe_psql('postgres', q{
CREATE TABLE issued (job text, token bigint);
CREATE TABLE told (worker int, outcome text, n bigint);
CREATE PROCEDURE traffic(worker int) LANGUAGE plpgsql AS $$
DECLARE
	committed bigint := 0;
	refused bigint := 0;
	lease record;
BEGIN
	FOR i IN 1 .. 1000000 LOOP
		BEGIN
			SELECT * INTO lease FROM fencing_acquire('job-' || worker, gen_random_uuid(), '1 hour');
			IF lease.outcome = 'acquired' THEN
				INSERT INTO issued VALUES ('job-' || worker, lease.token);
				PERFORM FROM fencing_commit('job-' || worker, lease.token, to_jsonb(i), 'INSERT INTO business VALUES ($1, $2, $3::text)');
				PERFORM fencing_revoke('job-' || worker, 'next');
			END IF;
		EXCEPTION WHEN feature_not_supported THEN
			lease := NULL;
			PERFORM pg_sleep(0.001);
		END;
		COMMIT;
		IF lease IS NULL THEN
			refused := refused + 1;
		ELSIF lease.outcome = 'acquired' THEN
			committed := committed + 1;
		END IF;
		EXIT WHEN EXISTS (SELECT FROM told WHERE told.worker = 0);
	END LOOP;
	INSERT INTO told VALUES (worker, 'committed', committed), (worker, 'refused', refused);
END
$$});
my @traffic = map { open_session($node) } 1 .. 3;
$traffic[$_]->start('CALL traffic(' . ($_ + 1) . ')') foreach 0 .. $#traffic;
await_true($node, 'SELECT count(*) > 200 FROM business', 'traffic');
foreach my $table ('receipts', 'fences', 'leases', 'revocations', 'receipts')
{
	$repack = start_repack($table);
	$repack->{run}->finish;
	is($repack->{run}->result(0), 0, "beside traffic: pg_repack of $table") or diag $repack->{out};
	my $count = answer($node, 'SELECT count(*) FROM business');
	await_true($node, "SELECT count(*) > $count + 50 FROM business", "traffic goes on");
}
$node->safe_psql('postgres', "VACUUM FULL fencing.$_") foreach @tables;
$node->safe_psql('postgres', q{INSERT INTO told VALUES (0, 'stop', 0)});
is($_->finish, '', 'a worker has stopped') foreach @traffic;

note 'told: ' . answer($node, q{SELECT string_agg(outcome || ' ' || n, ', ') FROM (SELECT outcome, sum(n) AS n FROM told GROUP BY 1) t});
is(answer($node, q{SELECT (SELECT sum(n) FROM told WHERE outcome = 'committed') = (SELECT count(*) FROM business WHERE job LIKE 'job-%')}),
	't', 'what was committed is there');
is(answer($node, q{SELECT count(*) FROM (SELECT FROM issued GROUP BY job, token HAVING count(*) > 1) d}), '0', 'no token was issued twice');
is(answer($node, q{SELECT count(*) FROM issued i WHERE NOT EXISTS (SELECT FROM fencing_receipt(i.job, i.token))}), '0', 'no receipt is missing');
is(answer($node, q{SELECT count(*) FROM fencing.fences f WHERE token < (SELECT max(token) FROM issued i WHERE i.job = f.job_key)}), '0', 'no fence has gone down');

$_->close foreach $old, $worker, @traffic;
$node->stop;
done_testing();
