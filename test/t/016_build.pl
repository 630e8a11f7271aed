# The build from a folder of its own (VPATH, as Debian's tools call it), with its
# suites; and what is said where files of PostgreSQL are missing: Debian's client
# package brings pg_config and pgxs.mk, but nothing to build against.

use strict;
use warnings;

use Cwd qw(abs_path);
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $root = abs_path("$FindBin::RealBin/../..");
my $folder = PostgreSQL::Test::Utils::tempdir();
my $source = "$folder/source";

# this test is run by make itself
delete @ENV{ 'MAKEFLAGS', 'MFLAGS', 'MAKELEVEL', 'MAKEOVERRIDES', 'PG_CONFIG', 'PROVE_TESTS', 'REGRESS', 'ISOLATION' };

# A source folder in which nothing has been built: make would find that.
mkdir $source or die $!;
system_or_bail('cp', '-r', (map { "$root/$_" } 'Makefile', 'fencing.control', 'src', 'sql', 'expected', 'test'),
	glob("$root/fencing--*.sql"), $source);
system_or_bail('find', "$source/src", '-not', '-name', '*.[ch]', '-type', 'f', '-delete');

# A folder with programs that do as they are told here.
sub programs
{
	my ($name, %script) = @_;

	mkdir "$folder/$name" or die $!;
	foreach my $program (keys %script)
	{
		append_to_file("$folder/$name/$program", "#!/bin/sh\n$script{$program}\n");
		chmod 0755, "$folder/$name/$program" or die $!;
	}
	return "$folder/$name";
}

sub make_in
{
	my ($build, @arguments) = @_;
	mkdir "$folder/$build";
	my ($stdout, $stderr) = run_command([ 'make', '-s', '-C', "$folder/$build", '-f', "$source/Makefile", @arguments ]);
	return "$stdout\n$stderr";
}

sub made
{
	my ($build, @arguments) = @_;
	return system_log('make', '-s', '-C', "$folder/$build", '-f', "$source/Makefile", @arguments) == 0;
}

# The version is said in the control file; what repeats it agrees.
my ($version) = slurp_file("$root/fencing.control") =~ /^default_version = '(.*)'$/m;
my @versions = slurp_file("$root/META.json") =~ /^\t+"version": "(.*)",?$/mg;
is_deeply([ @versions[0, 1] ], [ ("$version.0") x 2 ], 'META.json has the version of the control file');

my $node = PostgreSQL::Test::Cluster->new('build');
$node->init(extra => [ '--encoding=UTF8', '--no-locale' ]);
$node->start;

foreach my $by ('', "VPATH=$source")
{
	my $build = 'build' . length $by;
	my @by = grep { length } $by;

	mkdir "$folder/$build" or die $!;
	ok(made($build, @by), "VPATH build ($by)");
	ok(-e "$folder/$build/src/fencing.o", 'the objects are in its folder');
	ok(made($build, @by, "DESTDIR=$folder/$build/installed", 'install'), 'install');
	my ($installed) = run_command([ 'find', "$folder/$build/installed", '-type', 'f', '-name', 'fencing*', '-printf', '%f ' ]);
	is(join(' ', grep { !/\.bc$/ } sort split ' ', $installed),
		'fencing--1.0.sql fencing.control fencing.so', 'all that it has is installed');
	local @ENV{ 'PGHOST', 'PGPORT', 'PGDATABASE' } = ($node->host, $node->port, 'postgres');
	ok(made($build, @by, 'REGRESS=lease one_command', 'ISOLATION=renew', 'PROVE_TESTS=', 'installcheck'), 'installcheck');
	like(make_in($build, @by, '-n', 'installcheck'),
		qr/ access .* lease .*\n.* advance .* renew .*\n.* test\/t\/016_build\.pl /s, 'of all tests');
	ok(made($build, @by, 'clean'), 'clean');
	ok(!-e "$folder/$build/fencing.so", 'all is removed');
}

my ($pgxs) = run_command([ 'pg_config', '--pgxs' ]);
my $client = programs('client', sudo => 'exit 1', pg_config => <<"EOT");
case \$1 in
	--version) echo 'PostgreSQL 17.2 (Debian 17.2-1)' ;;
	--pgxs) echo '$pgxs' ;;
	*) echo $folder/nowhere ;;
esac
EOT
like(make_in('none', "PG_CONFIG=$client/pg_config"), qr/Please install postgresql-server-dev-17,/,
	'make names the package that is missing');
like(make_in('none', "PG_CONFIG=$folder/nowhere"), qr/there is no \S+nowhere\).  Please install postgresql-server-dev-/,
	'also without any pg_config');

{
	local $ENV{PATH} = "$client:$ENV{PATH}";
	local $ENV{PG_CONFIG} = "$client/pg_config";
	my ($stdout, $stderr) = run_command([ 'bash', "$source/test/run", 'demo' ]);
	like($stderr, qr/install .*postgresql-17 postgresql-server-dev-17/, 'test/run names all packages');
}

done_testing();
