# Programs of all kinds of clients, for the tests with examples/: where a client
# is found, what its environment is, and the proxy that loses replies.

package ClientTest;

use strict;
use warnings;

use Exporter qw(import);
use File::Basename qw(basename dirname);
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(run_program start_proxy stop_proxy environment client_command try_traps);

my $proxy = dirname(__FILE__) . '/../client/proxy.pl';
# not before the first call: where it is to be is not known while modules are loaded
my $folder;
my %client;
our $patience = 180;

# Whether it succeeds, and what it says on both ways.
sub run_program
{
	my ($command, %env) = @_;
	my $out = '';

	$folder //= PostgreSQL::Test::Utils::tempdir();
	local %ENV = (%ENV, %env);
	my $ok = eval {
		IPC::Run::run($command, '<', \undef, '>', \$out, '2>&1', init => sub { chdir $folder }, IPC::Run::timeout($patience));
	};
	return ($ok, $out . ($@ || ''));
}

# Starts a proxy; gives it with its port.
sub start_proxy
{
	my ($node, $mode, @options) = @_;
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

# The first program of the candidates that can do it: [ program, argument... ] each.
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
# The clients.  Each gives the command of a program, or why there is none, and what
# its environment must have.
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

# Of Debian, or else from npm: modules with their versions.
sub node_js
{
	my (%version) = @_;
	return sub {
		my ($file) = @_;
		# not from the folder where it is run
		my $probe = join '', map { "require('module').createRequire('/')('$_');" } keys %version;

		first_that_runs([ 'node', '--version' ]) or return (undef, 'no node');
		foreach my $path ('/usr/share/nodejs', "$folder/node_modules")
		{
			my ($ok) = run_program([ 'node', '-e', $probe ], NODE_PATH => $path);
			return ([ 'node', $file ], undef, NODE_PATH => $path) if $ok;
			next if $path ne '/usr/share/nodejs';
			my @missing = map { "$_\@$version{$_}" } grep { !-e "$folder/node_modules/$_" } sort keys %version;
			my $why = @missing ? npm_install(@missing) : undef;
			return (undef, $why) if $why;
		}
		return (undef, join(' ', 'node without', sort keys %version));
	};
}

# Nothing, or why not.
sub npm_install
{
	my (@packages) = @_;
	append_to_file("$folder/package.json", '{"private": true}') if !-e "$folder/package.json";
	my ($ok, $err) = run_program(
		[ 'npm', 'install', '--ignore-scripts', '--no-audit', '--no-fund', @packages ],
		npm_config_cache => "$folder/npm-cache", npm_config_update_notifier => 'false', npm_config_fetch_retries => 1,
		npm_config_fetch_retry_mintimeout => 1000, npm_config_fetch_timeout => 30000);
	return if $ok;
	my ($reason) = $err =~ /^npm (?:ERR!|error) (?:code )?(\S.*)$/m;
	return "npm could not install @packages: " . ($reason // $err);
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
	return ([ 'java', '-cp', "$folder:$jar", basename($file) =~ s/\.java$//r ]);
}

# Those of packages that the tests install by themselves.
my %always = map { $_ => 1 } qw(bash psycopg3 psycopg2 ruby_pg pdo dbi);

# With the crates of Debian alone.
sub rust
{
	my ($file) = @_;
	my $name = basename($file) =~ s/\.rs$//r;
	my $crates = '/usr/share/cargo/registry';

	return (undef, 'no cargo, or no crate tokio-postgres (Debian: cargo librust-tokio-postgres-dev librust-tokio-dev)')
	  if !-x '/usr/bin/cargo' || !glob "$crates/tokio-postgres-*";
	mkdir "$folder/.cargo";
	append_to_file("$folder/.cargo/config.toml", qq{[source.crates-io]\nreplace-with = "debian"\n[source.debian]\ndirectory = "$crates"\n})
	  if !-e "$folder/.cargo/config.toml";
	unlink "$folder/Cargo.toml";
	append_to_file("$folder/Cargo.toml", qq{[package]\nname = "$name"\nversion = "0.1.0"\nedition = "2021"\n}
		  . qq{[[bin]]\nname = "$name"\npath = "$file"\n[dependencies]\ntokio-postgres = "0.7"\n}
		  . qq{tokio = { version = "1", features = ["rt-multi-thread", "time"] }\n});
	local $patience = 900;
	my ($ok, $said) = run_program([ '/usr/bin/cargo', 'build', '--offline', '--quiet' ],
		CARGO_HOME => "$folder/cargo", RUSTC => '/usr/bin/rustc');
	die "$file: $said" if !$ok;
	return (["$folder/target/debug/$name"]);
}

sub make_clients
{
	$folder //= PostgreSQL::Test::Utils::tempdir();
	%client = (
		bash => sub { return ([ 'bash', $_[0] ]) },
		psycopg3 => python('psycopg', 'python3-psycopg'),
		psycopg2 => python('psycopg2', 'python3-psycopg2'),
		asyncpg => python('asyncpg', 'python3-asyncpg'),
		sqlalchemy => python('sqlalchemy, psycopg2', 'python3-sqlalchemy'),
		django => python('django, psycopg2', 'python3-django'),
		pg => node_js('pg', '8.13.1'),
		postgres_js => node_js('postgres', '3.4.5'),
		knex => node_js('knex', '3.1.0', 'pg', '8.13.1'),
		sequelize => node_js('sequelize', '6.37.5', 'pg', '8.13.1'),
		jdbc => \&java,
		pq => go('golang-github-lib-pq-dev'),
		pgx => go('golang-github-jackc-pgx-v4-dev'),
		ruby_pg => interpreter('ruby-pg', 'ruby', '-e', 'require "pg"'),
		activerecord => interpreter('ruby-activerecord', 'ruby', '-e', 'require "active_record"; require "pg"'),
		pdo => interpreter('php-cli php-pgsql', 'php', '-r', 'exit(extension_loaded("pdo_pgsql") ? 0 : 1);'),
		dbi => interpreter('libdbd-pg-perl', 'perl', '-MDBD::Pg', '-e', '1'),
		rust => \&rust,
		libpq => compiler('libpq-dev', [ 'cc', '--version' ], sub { return ('cc', '-pthread', '-I/usr/include/postgresql', '-o', @_, '-lpq') }));
	return;
}

# Command, reason, environment.  What the tests install by themselves must be
# there where they are run for a release.
sub client_command
{
	my ($name, $file) = @_;

	make_clients() if !%client;
	my ($command, $why, %env) = $client{$name}->($file);

	die $why if !$command && $ENV{CI} && $always{$name};
	return ($command, $why, %env);
}

# A program with the mistakes that one makes with a client says what comes of
# them.  Through a proxy, as some need TCP.
sub try_traps
{
	my ($node, $client, $name, $tcp) = @_;
	my $file = dirname(__FILE__) . "/../client/traps/$name";
	my ($command, $why, %env) = client_command($client, $file);

	SKIP:
	{
		skip "$client: $why", 2 if !$command;
		$node->safe_psql('postgres', "SELECT fencing_acquire('$client', '00000000-0000-4000-8000-00000000000a', '1 hour')");
		my ($ok, $out) = run_program([ @$command, $client ], environment('127.0.0.1', $tcp->{port}), %env);
		ok($ok, "$client: ends well");

		# mistakes may go away with other versions
		local $TODO = slurp_file('/etc/os-release') =~ /^VERSION_ID="?12"?$/m ? undef : 'the clients are those of Debian 12';
		is($out, slurp_file("$file.out"), "$client: what comes of it");
	}
	return;
}

1;
