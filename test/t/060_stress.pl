# The nemesis run: workers that crash, freeze and lose replies, a server that
# crashes, and that is lost with its last WAL.  Everybody writes down what he was
# told; test/stress/check.pl proves from that and from the database that it was
# all true.
#
# A minute of it is part of every test; "make stress" runs it as long as you like.
#
#   FENCING_STRESS_SECONDS   how long; 60 if not set, 0 for not at all
#   FENCING_STRESS_SEED      which faults, in which order

use strict;
use warnings;

use File::Path qw(rmtree);
use FindBin qw($RealBin);
use lib "$RealBin/../stress";

use IPC::Run;
use Nemesis;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'needs the processes in /proc' if !-e '/proc/self/stat';

my $seconds = length($ENV{FENCING_STRESS_SECONDS} // '') ? $ENV{FENCING_STRESS_SECONDS} : 60;
plan skip_all => 'FENCING_STRESS_SECONDS is 0' if !$seconds;

my $seed = $ENV{FENCING_STRESS_SEED} || time ^ $$;
diag "nemesis run, FENCING_STRESS_SECONDS=$seconds FENCING_STRESS_SEED=$seed";

my $folder = "$PostgreSQL::Test::Utils::tmp_check/stress";
rmtree($folder);
mkdir $folder or die "$folder: $!\n";

$SIG{INT} = $SIG{TERM} = sub { die "asked to stop\n" };
my $nemesis = Nemesis->new(folder => $folder, seconds => $seconds, seed => $seed);
my $done = eval { $nemesis->run; 1 };
my $error = $@;
my @alarms = $nemesis->alarms;
undef $nemesis;
ok($done, 'the run came to its end') or diag $error;
is_deeply(\@alarms, [], 'no server failed by itself');

my $checked = IPC::Run::run([ $^X, "$RealBin/../stress/check.pl", glob "$folder/*.log" ],
	'>', \my $output, '2>&1');
my @complaints = grep { !/^count / } split /\n/, $output;
my %count = map { /^count (\S+) (\d+)$/ ? ($1 => $2) : () } split /\n/, $output;
ok($checked, 'the checker has nothing to complain about')
  or diag join "\n", @complaints[ 0 .. ($#complaints < 40 ? $#complaints : 40) ];

# A run in which nothing happened would prove nothing.
my %least = (
	'answer:acquired' => 100,
	'answer:committed' => 200,
	'answer:replayed' => 30,
	'answer:conflict' => 10,
	'answer:stale' => 30,
	'answer:pruned' => 3,
	'answer:lost' => 20,
	'error:LF003' => 1,
	'fault:freeze' => 10,
	'fault:kill_worker' => 4,
	'fault:terminate_backends' => 4,
	'fault:crash' => 3,
	'fault:kill_server' => 2,
	'fault:kill_backend' => 2,
	'fault:promotion' => 2,
	'lost:promotions' => 2,
	'lost:commits' => 10,
	'lost:tokens' => 4,
	'zombies' => 2,
	'zombies:last' => 1,
	'zombies:lost' => 1,
	'receipts' => 20,
	'purged' => 20);
cmp_ok($count{$_} // 0, '>=', $least{$_}, "enough happened: $_") foreach sort keys %least;
diag join ', ', map { "$_ $count{$_}" } sort keys %count;

done_testing();
