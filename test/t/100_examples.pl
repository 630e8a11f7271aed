# Every program of examples/ with its real client.  The workers run three times:
# with a connection that is cut between COMMIT and its answer, with one that is
# cut before the call arrives, and undisturbed.  Each prints the same lines, has
# written its report once, and sends its heartbeats on a second connection.
# Clients that are not here are skipped.

use strict;
use warnings;

use FindBin;
use File::Basename qw(basename);
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $root = "$FindBin::RealBin/../..";
my $examples = "$root/examples";
my $proxy = "$FindBin::RealBin/../lib/client/proxy.pl";
my $folder = PostgreSQL::Test::Utils::tempdir();
my %tried;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(extra => [ '--encoding=UTF8', '--no-locale' ]);
# who calls what
$node->append_conf('postgresql.conf', "log_statement = all\nlog_line_prefix = '[%p] '");
$node->start;
$node->psql('postgres', slurp_file("$examples/setup.sql"), on_error_die => 1);

#
# Programs and servers for them
#

# Whether it succeeds, and what it says on both ways.
sub run_program
{
	my ($command, %env) = @_;
	my $out = '';
	local %ENV = (%ENV, %env);
	my $ok = eval {
		IPC::Run::run($command, '<', \undef, '>', \$out, '2>&1', init => sub { chdir $folder }, IPC::Run::timeout(180));
	};
	return ($ok, $out . ($@ || ''));
}

# Starts a proxy; gives it with its port.
sub start_proxy
{
	my ($mode, @options) = @_;
	my %started = (in => '', out => '');

	$started{run} = IPC::Run::start([ $^X, $proxy, $node->host . '/.s.PGSQL.' . $node->port, $mode, @options ],
		'<', \$started{in}, '>', \$started{out}, IPC::Run::timeout(180));
	$started{run}->pump until $started{out} =~ s/^(\d+)\n//;
	$started{port} = $1;
	return \%started;
}

# Ends it; gives what it has done.
sub stop_proxy
{
	my ($started) = @_;
	$started->{run}->finish;
	return $started->{out};
}

# Where a client finds its server: in the environment that its ecosystem uses.
sub environment
{
	my ($host, $port) = @_;
	my $where = $host =~ m{^/} ? "/postgres?host=$host&port=$port" : "$host:$port/postgres";

	return (PGHOST => $host, PGPORT => $port, PGDATABASE => 'postgres', PGUSER => 'app',
		DATABASE_URL => 'postgresql://app@' . $where);
}

# The n-th of the candidates that can do it: [ program, argument... ] each.
sub first_that_runs
{
	foreach my $command (@_)
	{
		my ($ok) = run_program($command);
		return $command->[0] if $ok;
	}
	return;
}

#
# The clients.  Each gives the command of an example, or why there is none.
#

# The python3 that Debian's package is for need not be the first of the path.
sub python
{
	my ($module, $package) = @_;
	return sub {
		my ($file) = @_;
		my $python = first_that_runs(map { [ $_, '-c', "import $module" ] } 'python3', '/usr/bin/python3')
		  or return (undef, "python3 without $module (Debian: $package)");
		return ([ $python, $file ]);
	};
}

# Of Debian, or else from npm.
sub node_js
{
	my ($module, $version) = @_;
	return sub {
		my ($file) = @_;
		first_that_runs([ 'node', '--version' ]) or return (undef, 'no node');
		foreach my $path ("/usr/share/nodejs", "$folder/node_modules")
		{
			local $ENV{NODE_PATH} = $path;
			my ($ok) = run_program([ 'node', '-e', "require('$module')" ]);
			return ([ 'node', $file ], undef, NODE_PATH => $path) if $ok;
			my $why = npm_install("$module\@$version") if $path eq '/usr/share/nodejs';
			return (undef, $why) if $why;
		}
		return (undef, "node without $module");
	};
}

# Nothing, or why not.
sub npm_install
{
	my ($package) = @_;
	append_to_file("$folder/package.json", '{"private": true}') if !-e "$folder/package.json";
	my ($ok, $err) = run_program(
		[ 'npm', 'install', '--ignore-scripts', '--no-audit', '--no-fund', '--no-save', $package ],
		npm_config_cache => "$folder/npm-cache", npm_config_update_notifier => 'false', npm_config_fetch_retries => 1,
		npm_config_fetch_retry_mintimeout => 1000, npm_config_fetch_timeout => 30000);
	return if $ok;
	my ($reason) = $err =~ /^npm (?:ERR!|error) (?:code )?(\S.*)$/m;
	return "npm could not install $package: " . ($reason // $err);
}

# An interpreter with a library, by a program that needs both.
sub interpreter
{
	my ($package, @probe) = @_;
	return sub {
		my ($file) = @_;
		first_that_runs(\@probe) or return (undef, "no $probe[0] with its library for PostgreSQL (Debian: $package)");
		return ([ $probe[0], $file ]);
	};
}

# What has to be compiled first, into the temporary folder.
sub compiler
{
	my ($package, $probe, $build, %env) = @_;
	return sub {
		my ($file) = @_;
		my ($program) = ("$folder/" . basename($file) =~ s/\.\w+$//r);
		first_that_runs($probe) or return (undef, "no $probe->[0] (Debian: $package)");
		my ($ok, $said) = run_program([ $build->($program, $file) ], %env);
		return ([$program], undef, PGSSLMODE => 'disable') if $ok;
		return (undef, "its library is missing (Debian: $package)") if $said =~ /cannot find package|No such file/;
		die "$file: $said";
	};
}

sub go
{
	my ($package) = @_;
	return compiler("golang-go $package", [ 'go', 'version' ], sub { return ('go', 'build', '-o', @_) },
		GO111MODULE => 'off', GOPATH => '/usr/share/gocode', GOCACHE => "$folder/go-cache");
}

sub java
{
	my ($file) = @_;
	my $jar = '/usr/share/java/postgresql.jar';
	my ($ok) = run_program([ 'javac', '-version' ]);
	return (undef, 'no javac, or no JDBC driver (Debian: default-jdk-headless libpostgresql-jdbc-java)') if !$ok || !-e $jar;
	my ($built, $said) = run_program([ 'javac', '-d', $folder, '-cp', $jar, $file ]);
	die "$file: $said" if !$built;
	return ([ 'java', '-cp', "$folder:$jar", 'Worker' ]);
}

my %client = (
	bash => sub { return ([ 'bash', $_[0] ]) },
	psycopg3 => python('psycopg', 'python3-psycopg'),
	pg => node_js('pg', '8.13.1'),
	jdbc => \&java,
	pq => go('golang-github-lib-pq-dev'),
	ruby_pg => interpreter('ruby-pg', 'ruby', '-e', 'require "pg"'),
	pdo => interpreter('php-cli php-pgsql', 'php', '-r', 'exit(extension_loaded("pdo_pgsql") ? 0 : 1);'),
	dbi => interpreter('libdbd-pg-perl', 'perl', '-MDBD::Pg', '-e', '1'),
	libpq => compiler('libpq-dev', [ 'cc', '--version' ], sub { return ('cc', '-pthread', '-I/usr/include/postgresql', '-o', @_, '-lpq') }));

# Those of packages that the tests install by themselves.
my %always = map { $_ => 1 } qw(bash psycopg3 ruby_pg pdo dbi);

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
	my ($command, $why, %env) = $client{$client}->("$examples/$name");
	if (!$command)
	{
		die $why if $ENV{CI} && $always{$client};
		SKIP: { skip "$name: $why", 1 }
		return;
	}

	my $log_start = -s $node->logfile;
	my @runs;
	foreach my $mode (sort keys %expected)
	{
		my $job = "$name/$mode";
		my $cut = start_proxy($mode);
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
try_worker('worker_pg.js', 'pg');
try_worker('Worker.java', 'jdbc', tcp => 1);
# database/sql is a pool, and sends a call again by itself
try_worker('worker_pq.go', 'pq', quiet => 1, pool => 1);
try_worker('worker_pg.rb', 'ruby_pg');
try_worker('worker_pdo.php', 'pdo');
try_worker('worker_dbi.pl', 'dbi');
try_worker('worker_libpq.c', 'libpq');

is_deeply([ grep { !$tried{$_} } map { basename($_) } glob "$examples/*" ], ['setup.sql'], 'all examples were tried');

$node->stop;
done_testing();
