# The schedules of docs/administration.md with the real pg_cron, in both ways in which it runs
# jobs, and what becomes of a job whose role may not purge.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use FencingTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $owner = owner(10);
my ($folder) = run_command([ 'pg_config', '--pkglibdir' ]);
plan skip_all => 'pg_cron is not installed' if !-e "$folder/pg_cron.so";

my $node = new_node('main', "shared_preload_libraries = 'pg_cron'\ncron.database_name = 'postgres'\n");
$node->append_conf('postgresql.conf', "cron.host = '" . $node->host . "'");
$node->safe_psql('postgres', q{
CREATE EXTENSION pg_cron;
CREATE ROLE keeper LOGIN;
CREATE ROLE other LOGIN;
GRANT USAGE ON SCHEMA cron TO keeper, other;
SELECT fencing_grant('keeper', 'admin');
SELECT fencing_grant('other', 'client')});

# Seconds since 1.5.  Before, a job that is due at once is one for a restart.
my $seconds = answer($node, q{SELECT (regexp_match(extversion, '^\d+\.\d+'))[1]::numeric >= 1.5 FROM pg_extension WHERE extname = 'pg_cron'}) eq 't';
my $now = $seconds ? '1 seconds' : '@reboot';

# As they stand in docs/administration.md, however many there are.
my $page = slurp_file("$FindBin::RealBin/../../docs/administration.md");
my @documented = $page =~ /(SELECT\s+cron\.schedule\([^`]*?\$\$[^`]*?\$\$\s*\))/g;
cmp_ok(scalar @documented, '>', 0, 'docs/administration.md has schedules');
foreach my $statement (@documented)
{
	# The full minute may come at any time: they are not run.
	is_answers($node, 'postgres', $statement =~ s/\s+/ /gr,
		[ 'begin', 'BEGIN; SET LOCAL ROLE keeper', '' ],
		[ 'a schedule', "SELECT count(*) FROM ($statement) s(job)", '1' ],
		[ 'stopped', 'RESET ROLE; UPDATE cron.job SET active = false', '' ],
		[ 'commit', 'COMMIT', '' ]);
}
is(answer($node, q{SELECT count(*), count(*) FILTER (WHERE command LIKE '%fencing_purge(%'), string_agg(DISTINCT username, ' ') FROM cron.job}),
	join('|', (scalar @documented) x 2, 'keeper'), 'they are kept, and purge');
my @commands = map { answer($node, "SELECT quote_literal(command) FROM cron.job ORDER BY jobid OFFSET $_ LIMIT 1") } 0 .. $#documented;

# Until a job has run since, and how that ended.
sub run_job
{
	my ($role, $name, $command) = @_;
	my $since = answer($node, 'SELECT coalesce(max(runid), 0) FROM cron.job_run_details');

	is(answer($node, "SET ROLE $role; SELECT cron.schedule('$name', '$now', $command) > 0"), 't', "$name: scheduled");
	$node->restart if !$seconds;
	my $run = qq{FROM cron.job_run_details d JOIN cron.job j USING (jobid) WHERE jobname = '$name' AND runid > $since AND status IN ('succeeded', 'failed')};
	await_true($node, "SELECT EXISTS (SELECT $run)", "$name: it has run");
	my $status = answer($node, "SELECT DISTINCT d.username, status, d.command = $command $run");
	is(answer($node, "SET ROLE $role; SELECT cron.unschedule('$name')"), 't', "$name: unscheduled");
	return $status;
}

my $receipts = q{SELECT string_agg(token::text, ' ' ORDER BY token) FROM fencing.receipts WHERE job_key = '%s'};
my $commit = q{SELECT outcome FROM fencing_commit('%s', %s, '{}', 'SELECT 1')};
foreach my $workers ('off', 'on')
{
	my $job = "workers $workers";

	$node->append_conf('postgresql.conf', "cron.use_background_workers = $workers");
	$node->restart;

	# Tokens 1 to 6, a receipt each; those of 1 to 3 and of 6 are old.
	foreach my $token (1 .. 6)
	{
		$node->safe_psql('postgres', "SELECT fencing_acquire('$job', $owner, '1 day'); " . sprintf($commit, $job, $token)
			  . ($token < 6 ? "; SELECT fencing_release('$job', $owner, $token)" : ''));
	}
	$node->safe_psql('postgres', qq{UPDATE fencing.receipts SET committed_at = committed_at - interval '10 years' WHERE job_key = '$job' AND token IN (1, 2, 3, 6)});

	is(run_job('other', 'not-allowed', $_), 'other|failed|t', "$job: a role that is no administrator") foreach @commands;
	is(answer($node, sprintf $receipts, $job), '1 2 3 4 5 6', "$job: has purged nothing");
	is(run_job('keeper', 'purge-now', $_), 'keeper|succeeded|t', "$job: the job") foreach @commands;
	is(answer($node, sprintf $receipts, $job), '4 5 6', "$job: old receipts are gone, but none of the current token");
	is_answers($node, 'postgres', $job,
		[ 'a late retry', sprintf($commit, $job, 1), 'pruned' ],
		[ 'the last that was purged', sprintf($commit, $job, 3), 'pruned' ],
		[ 'one that was kept', sprintf($commit, $job, 4), 'replayed' ],
		[ 'the old one of the current token', sprintf($commit, $job, 6), 'replayed' ],
		[ 'the holder', "SELECT outcome FROM fencing_renew('$job', $owner, 6)", 'renewed' ],
		[ 'next token', "SELECT fencing_revoke('$job', 'test')", '7' ]);
}
is(answer($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}), '0', 'no lock is left');

$node->stop;
done_testing();
