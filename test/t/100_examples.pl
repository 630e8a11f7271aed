# Every program of examples/ with its real client.  The workers run three times:
# with a connection that is cut between COMMIT and its answer, with one that is
# cut before the call arrives, and undisturbed.  Each prints the same lines, has
# written its report once, and sends its heartbeats on a second connection.
# Clients that are not here are skipped.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use ClientTest;
use FencingTest;
use File::Basename qw(basename);
use HTTP::Tiny;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $root = "$FindBin::RealBin/../..";
my $examples = "$root/examples";
my $folder = PostgreSQL::Test::Utils::tempdir();
my %tried;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(extra => [ '--encoding=UTF8', '--no-locale' ]);
# who calls what
$node->append_conf('postgresql.conf', "log_statement = all\nlog_line_prefix = '[%p] '");
$node->start;
$node->psql('postgres', slurp_file("$examples/setup.sql"), on_error_die => 1);

#
# The workers
#
my $end = "replayed\nrenewed\nreleased\nacquired 2\nstale\nreleased\n";
my %expected = (
	reply => "acquired 1\nconnection lost\nreplayed\n$end",
	request => "acquired 1\nconnection lost\ncommitted\n$end",
	nothing => "acquired 1\ncommitted\n$end");

# Who called the function, by the log of the server.
sub callers
{
	my ($log, $function) = @_;
	my %pids = map { $_ => 1 } $log =~ /^\[(\d+)\] LOG: [^\n]*(?:\n\t[^\n]*)*?\b$function\(/mg;
	return sort keys %pids;
}

sub try_worker
{
	my ($name, $client, %options) = @_;

	$tried{$name} = 1;
	my ($command, $why, %env) = client_command($client, "$examples/$name");
	if (!$command)
	{
		SKIP: { skip "$name: $why", 1 }
		return;
	}

	my $log_start = -s $node->logfile;
	my @runs;
	foreach my $mode (sort keys %expected)
	{
		my $job = "$name/$mode";
		my $cut = start_proxy($node, $mode);
		my %run = (mode => $mode, job => $job, proxy => $cut, out => '', err => '');
		# the undisturbed one as everybody does it, where the client can use such a socket
		my @where = $mode eq 'nothing' && !$options{tcp} ? ($node->host, $node->port) : ('127.0.0.1', $cut->{port});
		local %ENV = (%ENV, environment(@where), %env);
		$run{run} = IPC::Run::start([ @$command, $job ], '<', \undef, '>', \$run{out}, '2>', \$run{err}, IPC::Run::timeout(180));
		push @runs, \%run;
	}
	foreach my $run (@runs)
	{
		my $what = "$name, $run->{mode}";
		my $ok = eval { $run->{run}->finish };
		ok($ok, "$what: ends well") or diag $run->{err}, $@ // '';
		my $story = $expected{ $run->{mode} };
		$story =~ s/^connection lost\n//m if $options{quiet};
		# knex says so by itself, if it notices in time
		$run->{out} =~ s/^Connection Error: .*\n//mg;
		is($run->{out}, $story, "$what: the story") or diag $run->{err};
		is(stop_proxy($run->{proxy}), $run->{mode} eq 'nothing' ? '' : "lost\n", "$what: what the proxy has done");
		is($node->safe_psql('postgres', "SELECT day, total FROM report WHERE job = '$run->{job}'"), '2026-08-03|16.5',
			"$what: the report is there once");
	}
	my $log = slurp_file($node->logfile, $log_start);
	my %commits = map { $_ => 1 } callers($log, 'fencing_commit');
	my @renewals = callers($log, 'fencing_renew');
	cmp_ok(scalar @renewals, '>=', 3, "$name: heartbeats");
	# a pool may give the next call a connection that is free again
	is(join(' ', grep { $commits{$_} } @renewals), '', "$name: on connections of their own") if !$options{pool};
	return;
}

try_worker('worker_psql.sh', 'bash');
try_worker('worker_psycopg3.py', 'psycopg3');
try_worker('worker_psycopg2.py', 'psycopg2');
try_worker('worker_asyncpg.py', 'asyncpg');
try_worker('worker_sqlalchemy.py', 'sqlalchemy', pool => 1);
try_worker('worker_django.py', 'django');
try_worker('worker_pg.js', 'pg');
try_worker('worker_postgres.mjs', 'postgres_js', pool => 1);
try_worker('worker_knex.js', 'knex', pool => 1);
try_worker('Worker.java', 'jdbc', tcp => 1);
# database/sql is a pool, and sends a call again by itself
try_worker('worker_pq.go', 'pq', quiet => 1, pool => 1);
try_worker('worker_pgx.go', 'pgx', pool => 1);
try_worker('worker_pg.rb', 'ruby_pg');
# URI has no place for a folder
try_worker('worker_activerecord.rb', 'activerecord', tcp => 1);
try_worker('worker_pdo.php', 'pdo');
try_worker('worker_dbi.pl', 'dbi');
try_worker('worker_libpq.c', 'libpq');
try_worker('worker_tokio_postgres.rs', 'rust');
my $tcp = start_proxy($node, 'nothing');
try_traps($node, 'rust', 'rust.rs', $tcp);
stop_proxy($tcp);

#
# The HTTP endpoints
#
sub try_endpoint
{
	my ($name, $client) = @_;

	$tried{$name} = 1;
	my ($command, $why, %env) = client_command($client, "$examples/$name");
	if (!$command)
	{
		SKIP: { skip "$name: $why", 1 }
		return;
	}
	my $cut = start_proxy($node, 'reply', 'fencing_once');
	my %server = (out => '', err => '');
	{
		local %ENV = (%ENV, environment('127.0.0.1', $cut->{port}), %env);
		$server{run} = IPC::Run::start([ @$command, 0 ], '<', \undef, '>', \$server{out}, '2>', \$server{err}, IPC::Run::timeout(180));
	}
	eval { $server{run}->pump until $server{out} =~ /\n/; 1 } or die "$name: $@$server{err}";
	my ($port) = $server{out} =~ /^listening on (\d+)$/;
	my $url = "http://127.0.0.1:$port/payments";
	my $post = sub {
		my ($what, $status, $key, $body, %headers) = @_;
		my $answer = HTTP::Tiny->new(timeout => 60)->request('POST', $url,
			{ content => $body, headers => { 'X-Tenant' => 'acme', 'X-User' => 'ann', (defined $key ? ('Idempotency-Key' => $key) : ()), %headers } });
		is($answer->{status}, $status, "$name: $what") or diag $answer->{content}, $server{err};
		return ($answer->{content}, $answer->{headers}{'idempotent-replayed'} // '');
	};
	my ($first, $replayed) = $post->('a payment, and the reply of the database is lost', 201, $name, '{"amount": 12.50}');
	like($first, qr/"amount": 12\.50/, "$name: the answer");
	is($replayed, 'true', "$name: it was asked again");
	is(($post->('the same request', 201, $name, '{"currency": "EUR", "amount": 12.5}'))[0], $first, "$name: the same answer");
	$post->('another request', 422, $name, '{"amount": 12.51}');
	$post->('another user', 403, $name, '{"amount": 12.50}', 'X-User' => 'bob');
	$post->('without a key', 400, undef, '{"amount": 12.50}');
	$post->('not JSON', 400, "$name 2", '{"amount": ');
	like(($post->('not as the schema says', 400, "$name 2", '{"amount": "much"}'))[0], qr/Field \\"amount\\"/, "$name: the field is named");
	is(($post->('another key', 201, "$name 2", '{"amount": 1}'))[1], '', "$name: it was free");
	is($node->safe_psql('postgres', q{SELECT string_agg(amount::text, ' ' ORDER BY id) FROM payments}), '12.50 1', "$name: two payments");
	$node->safe_psql('postgres', 'TRUNCATE payments');

	# somebody else is at it with this key
	my $other = open_session($node);
	$other->ask('BEGIN');
	$other->ask(qq{SELECT outcome FROM fencing_once('acme', 'payment', '$name 3', '{"amount": 1}', 'SELECT 1 AS id', auth => '{"user": "ann"}')});
	$post->('a key in progress', 409, "$name 3", '{"amount": 1}');
	$other->ask('COMMIT');
	$other->close;

	is(stop_proxy($cut), "lost\n", "$name: the connection was cut");
	$post->('no database', 503, "$name 4", '{"amount": 1}');
	$server{run}->kill_kill;
	return;
}

try_endpoint('http_python.py', 'psycopg3');
try_endpoint('http_node.js', 'pg');

#
# Relay, agent, queue
#

# Runs it once, with the reply to a call of the function lost; gives what it prints.
sub run_example
{
	my ($name, $function, @arguments) = @_;
	my ($command) = client_command('psycopg3', "$examples/$name");
	my $cut = start_proxy($node, 'reply', $function);
	my ($ok, $out) = run_program([ @$command, @arguments ], environment('127.0.0.1', $cut->{port}));

	ok($ok, "$name: ends well");
	stop_proxy($cut);
	return $out;
}

$tried{$_} = 1 foreach qw(outbox_relay.py configuration_agent.py queue_worker.py);
SKIP:
{
	my ($command, $why) = client_command('psycopg3', 'x');
	skip "relay, agent and queue: $why", 1 if !$command;

	$node->safe_psql('postgres', q{SELECT fencing_outbox_emit('order', a, a || n, CASE WHEN a || n = 'b2' THEN '{"poison": true}' ELSE '{}' END::jsonb)
		FROM generate_series(1, 3) n, unnest('{a,b}'::text[]) a ORDER BY n, a});
	is( run_example('outbox_relay.py', 'fencing_outbox_ack'),
		"delivered shop-settings publish\nconnection lost\nreplayed\n" . join('', map { "delivered @$_\ncommitted\n" } [ 'a', 'a1' ], [ 'b', 'b1' ], [ 'a', 'a2' ])
		  . "parked b b2\ndelivered a a3\ncommitted\n",
		'the relay delivers in order, and parks what it cannot deliver');
	is(run_example('outbox_relay.py', 'fencing_outbox_ack'), '', 'and nothing twice');
	is($node->safe_psql('postgres', 'SELECT pending, parked FROM fencing.outbox_status'), '2|1', 'what waits behind the parked one');

	my $file = "$folder/settings";
	is(run_example('configuration_agent.py', 'fencing_apply_observe', $file), "connection lost\nacquired recorded\ndone recorded\n", 'the agent writes');
	like(slurp_file($file), qr/"version": 1, .*"tea": 3\.00/, 'the file');
	is(run_example('configuration_agent.py', 'fencing_apply_begin', $file), "connection lost\ndone recorded\n", 'it is up to date');
	unlink $file;
	is(run_example('configuration_agent.py', 'fencing_apply_begin', $file), "connection lost\ndone diverged\nrenewed recorded\ndone recorded\n", 'it is repaired');
	$node->safe_psql('postgres', q{SELECT fencing_publish_delete('shop-settings', 1, '')});
	is(run_example('configuration_agent.py', 'fencing_apply_begin', $file), "connection lost\nrenewed recorded\ndone recorded\n", 'the document is deleted');
	ok(!-e $file, 'so is the file');

	# Each task once, whoever does it; a trigger counts.
	$node->safe_psql('postgres', q{
		CREATE TABLE finished (task text);
		CREATE FUNCTION count_it() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$BEGIN INSERT INTO finished VALUES (NEW.task); RETURN NULL; END$$;
		CREATE TRIGGER count_it AFTER UPDATE ON todo FOR EACH ROW EXECUTE FUNCTION count_it();
		INSERT INTO todo (task) SELECT 'task ' || i FROM generate_series(1, 100) i});
	my @workers;
	foreach my $mode ('reply', 'request', 'nothing')
	{
		my $cut = start_proxy($node, $mode, $mode eq 'reply' ? 'fencing_acquire' : 'fencing_commit');
		local %ENV = (%ENV, environment('127.0.0.1', $cut->{port}));
		my %worker = (proxy => $cut, out => '');
		$worker{run} = IPC::Run::start([ $command->[0], "$examples/queue_worker.py" ], '<', \undef, '>', \$worker{out}, IPC::Run::timeout(180));
		push @workers, \%worker;
	}
	ok($_->{run}->finish, 'queue_worker.py: ends well') && stop_proxy($_->{proxy}) foreach @workers;
	is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT task) FROM finished'), '100|100', 'each task once');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM todo WHERE answer = to_jsonb(upper(task))'), '100', 'with its answer');
	is(() = join('', map { $_->{out} } @workers) =~ /^(?:committed|replayed) task/mg, 100, 'and each was told');
}

#
# What is said about them
#
my @programs = grep { !/^(?:README\.md|setup\.sql)$/ } map { basename($_) } glob "$examples/*";
is(join(' ', grep { !$tried{$_} } @programs), '', 'all examples were tried');
my $page = slurp_file("$examples/README.md");
is(join(' ', grep { $page !~ /`\Q$_\E`/ } @programs), '', 'and are in the list');
my $code = join '', map { slurp_file("$examples/$_") } @programs;
foreach my $snippet (slurp_file("$root/docs/clients.md") =~ /^```(?!sql\n)\w+\n(.*?)^```$/msg)
{
	isnt(index($code, $snippet), -1, 'docs/clients.md: ' . (split /\n/, $snippet)[0] =~ s/^\s+//r);
}

$node->stop;
done_testing();
