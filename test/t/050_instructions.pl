# What calls cost: instructions of the backend as a ratio to plain statements, which
# is not more than a tenth above what it was when it was written down, in
# test/bench/instructions.MAJOR ("test/bench/instructions.sh --record" does that).
# Instructions do not depend on what else the machine does.

use strict;
use warnings;

use FindBin;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;

my $bench = "$FindBin::RealBin/../bench";
my ($major) = `pg_config --version` =~ /^PostgreSQL (\d+)/;

plan skip_all => 'needs valgrind' if system('valgrind --version >/dev/null 2>&1') || !-e '/usr/include/valgrind/callgrind.h';
plan skip_all => "there are no figures of PostgreSQL $major" if !-e "$bench/instructions.$major";
plan skip_all => 'a server with assertions costs more' if `pg_config --configure` =~ /--enable-cassert/;

# no server of its own, but inside test/run or as "make installcheck"
local $ENV{FENCING_WORK} = $ENV{FENCING_WORK} // $PostgreSQL::Test::Utils::tmp_check;
local $ENV{TMPDIR} = $ENV{TMPDIR} // '/tmp';
local $ENV{CALLS} = 100;

sub figures
{
	my ($text) = @_;
	return map { /^(\w+ \w+) ([\d.]+)$/ ? ($1 => $2) : () } split /\n/, $text;
}

my %recorded = figures(slurp_file("$bench/instructions.$major"));
my $done = IPC::Run::run([ 'bash', "$bench/instructions.sh", '--figures' ], '<', \undef, '>', \my $output, '2>', \my $errors);
ok($done, 'the calls were counted') or diag $errors;
my %now = figures($output);

is_deeply([ sort keys %now ], [ sort keys %recorded ], 'the calls that are written down');
foreach (sort keys %recorded)
{
	my ($call, $baseline) = split / /;
	cmp_ok($now{$_} // 'inf', '<=', 1.1 * $recorded{$_}, "$call against $baseline: it was $recorded{$_}");
	diag "$_: $now{$_}; if it stays so low, test/bench/instructions.sh --record" if defined $now{$_} && $now{$_} < 0.9 * $recorded{$_};
}

done_testing();
