# The part of test/mutants that runs in the private copy: see there.
#
#   perl mutants.pl FOLDER [--list | --verbose] [NAME...]

use strict;
use warnings;

use File::Basename qw(basename);

my $src = shift;
my $list = @ARGV && $ARGV[0] eq '--list' ? shift : undef;
my $verbose = @ARGV && $ARGV[0] eq '--verbose' ? shift : undef;
my @patterns = @ARGV;

# a test that takes longer hangs, and that is noticed too
my $limit = 300;

# who waits for what never comes shall not do so for the three minutes that PostgreSQL gives it
$ENV{PG_TEST_TIMEOUT_DEFAULT} = 20;

my @mutants = map { read_mutants($_) } sort glob "$src/test/mutants.d/*.mutants";
my @chosen = @patterns ? grep { is_chosen($_->{name}) } @mutants : @mutants;
die "no mutant has such a name\n" if !@chosen;

if ($list)
{
	print "$_->{name}\t$_->{file}\t@{$_->{by}}\n" foreach @chosen;
	exit;
}

$| = 1;
my $has_assertions = `$ENV{PG_CONFIG} --configure` =~ /enable-cassert/;
foreach my $mutant (@chosen)
{
	die "$mutant->{name}: there is no test $_\n" foreach grep { !-e test_file($_) } @{ $mutant->{by} };
}

my %score;
my %killers;
my $started = time;

foreach my $mutant (@chosen)
{
	my $begun = time;
	my $verdict = try_mutant($mutant);

	printf "%-44s %s (%d s)\n", $mutant->{name}, $verdict, time - $begun;
	$score{ $verdict =~ /^(killed|survived|does not \w+|needs \w+)/ ? $1 : $verdict }++;
}

# A test that fails without any mistake notices nothing.
build() or die "the extension does not build without a mistake\n";
foreach my $test (sort keys %killers)
{
	next if passes($test);
	print "$test fails without a mistake too: what it killed does not count: @{$killers{$test}}\n";
	$score{killed} -= @{ $killers{$test} };
	$score{'killed by nothing'} += @{ $killers{$test} };
}
print join(', ', map { "$score{$_} $_" } grep { $score{$_} } sort keys %score), sprintf(" of %d (%d s)\n", scalar @chosen, time - $started);
exit(($score{killed} // 0) == @chosen ? 0 : 1);

sub read_mutants
{
	my ($path) = @_;
	my $text = slurp($path);
	my @found;

	while ($text =~ /^mutant (\S+)\nin (\S+)\n(with assertions\n)?by ([^\n]+)\n<<<\n(.*?)^===\n(.*?)^>>>$/msg)
	{
		my ($name, $file, $assertions, $by, $old, $new) = ($1, $2, $3, $4, $5, $6);

		push @found, { name => $name, file => $file, assertions => $assertions, by => [ split ' ', $by ], old => $old, new => $new };
	}
	my $announced = () = $text =~ /^mutant /mg;
	die "$path: " . ($announced - @found) . " mutants are not well formed\n" if $announced != @found;
	return @found;
}

sub is_chosen
{
	my ($name) = @_;

	foreach (@patterns)
	{
		my $regex = join '.*', map { quotemeta } split /\*/, $_, -1;
		return 1 if $name =~ /^$regex$/;
	}
	return 0;
}

sub try_mutant
{
	my ($mutant) = @_;
	return 'needs assertions' if $mutant->{assertions} && !$has_assertions;

	my ($file, $original, $changed) = apply($mutant);
	my $verdict;

	return 'does not apply' if !defined $file;
	spew($file, $changed);
	if (!build())
	{
		$verdict = 'does not build';
	}
	else
	{
		$verdict = 'survived';
		foreach my $test (@{ $mutant->{by} })
		{
			next if passes($test);
			$verdict = "killed by $test";
			push @{ $killers{$test} }, $mutant->{name};
			last;
		}
	}
	spew($file, $original);
	return $verdict;
}

# The file, its text, and its text with the mistake; nothing if the old text is
# not there just once.
sub apply
{
	my ($mutant) = @_;
	my $old = join '\s+', map { quotemeta } split ' ', $mutant->{old};
	my @places = ("$src/$mutant->{file}", glob("$src/src/*.[ch]"), glob("$src/fencing--*.sql"));
	my $new = $mutant->{new} =~ s/\s+\z//r;

	foreach my $files ([ grep { -e } $places[0] ], [ @places[ 1 .. $#places ] ])
	{
		my @hits = map { my $file = $_; my $text = slurp($file); map { [ $file, $text ] } $text =~ /$old/g } @$files;

		next if !@hits;
		return if @hits > 1;
		my ($file, $text) = @{ $hits[0] };
		(my $changed = $text) =~ s/$old/$new/;
		return ($file, $text, $changed);
	}
	return;
}

# Only what has changed is compiled.  make goes by time in seconds or better.
sub build
{
	my $log = "$ENV{FENCING_WORK}/mutant.log";

	foreach my $target ([], [ "DESTDIR=$ENV{FENCING_WORK}/pg", 'install' ])
	{
		return 0 if run("make -s -j2 -C $src PG_CONFIG=$ENV{PG_CONFIG} COPT=-w @$target >$log 2>&1") != 0;
	}
	return 1;
}

# Where a test stands, named as suite/name.
sub test_file
{
	my ($suite, $name) = split m{/}, $_[0];
	my %files = (regress => "sql/$name.sql", isolation => "test/isolation/specs/$name.spec", tap => "test/t/$name.pl");

	return "$src/" . ($files{$suite} // "no suite $suite");
}

# The same names.
sub passes
{
	my ($test) = @_;
	my ($suite, $name) = split m{/}, $test;
	my $log = "$ENV{FENCING_WORK}/mutant_test.log";
	my %variables = (regress => "REGRESS=$name", isolation => "ISOLATION=$name", tap => "PROVE_TESTS=test/t/$name.pl");
	my $server_log = "$ENV{FENCING_WORK}/server.log";
	my $logged = -s $server_log // 0;

	# what a test that was cut off has left would be in the way of all that follow
	run(q{psql -XAtqc "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname LIKE '%regression'" postgres >/dev/null 2>&1});
	# and so would the roles that one has left which lost its server
	run(q{psql -XAtqc "SELECT format('DROP DATABASE %I;', datname) FROM pg_database WHERE datname LIKE '%regression' UNION ALL SELECT format('DROP ROLE %I;', rolname) FROM pg_roles WHERE rolname LIKE 'regress%'" postgres | psql -XAtq postgres >/dev/null 2>&1});
	my $pg_config = "$ENV{FENCING_WORK}/pg$ENV{PG_CONFIG}";
	my $code = run("timeout -k 5 $limit make -s --no-print-directory -C $src PG_CONFIG=$pg_config REGRESS= ISOLATION= PROVE_TESTS= $variables{$suite} installcheck >$log 2>&1");
	if ($verbose)
	{
		print slurp($log) if $code != 0;
		my %diffs = (regress => "$src/regression.diffs", isolation => "$src/output_iso/regression.diffs");
		print slurp($diffs{$suite}) if $code != 0 && defined $diffs{$suite} && -e $diffs{$suite};
	}
	wait_for_server();
	return 0 if $code != 0;

	# a backend that crashed, though every answer was as expected
	open my $handle, '<', $server_log or return 1;
	seek $handle, $logged, 0;
	return !grep { /terminated by signal|PANIC:|TRAP:/ } <$handle>;
}

# After a crash it takes a moment.
sub wait_for_server
{
	foreach (1 .. 60)
	{
		return if run('psql -XAtqc "SELECT 1" postgres >/dev/null 2>&1') == 0;
		select undef, undef, undef, 0.5;
	}
	die "the server does not come back\n";
}

sub run
{
	my ($command) = @_;
	my $code = system 'sh', '-c', $command;

	# interrupted
	exit 130 if $code == 2 || $code >> 8 == 130;
	return $code;
}

sub slurp
{
	my ($path) = @_;

	open my $handle, '<', $path or die "$path: $!\n";
	local $/ = undef;
	return scalar <$handle>;
}

sub spew
{
	my ($path, $text) = @_;

	open my $handle, '>', $path or die "$path: $!\n";
	print $handle $text;
	close $handle or die "$path: $!\n";
	return;
}
