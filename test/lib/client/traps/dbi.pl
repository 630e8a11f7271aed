# Traps of DBI.  $ARGV[0] is a job whose token 1 is current.
use strict;
use warnings;
use DBI;

my $job = $ARGV[0];
my $owner = '00000000-0000-4000-8000-00000000000a';
my $db = DBI->connect('dbi:Pg:', undef, undef, { RaiseError => 1, PrintError => 0 });

sub attempt
{
	my ($what, $sql, @values) = @_;
	my @row = eval { $db->selectrow_array($sql, undef, @values) };
	print "$what: ", $@ ? $db->state || 'lost' : join(' ', map { $_ // 'undef' } @row), "\n";
}

my $commit = "SELECT outcome, result ->> 'a' FROM fencing_commit(?, 1, ?, ?, ?, ?)";
attempt('statement in single quotes', $commit, $job, '{"a": 1}', q{SELECT $3 ->> 'a' AS a}, 'single', 'f');
{
	no warnings;
	attempt('statement in double quotes', $commit, $job, '{"a": 1}', "SELECT $3 ->> 'a' AS a", 'double', 'f');
}
attempt('false', $commit, $job, '{}', 'SELECT 1 AS a', 'false', !!0);
attempt('0', $commit, $job, '{}', 'SELECT 1 AS a', 'false', 0);
$| = 1;
if (!fork)
{
	# ends like any program, with the connection of the parent
	exit;
}
wait;
attempt('after a fork', 'SELECT 1');
$db = DBI->connect('dbi:Pg:', undef, undef, { RaiseError => 1, PrintError => 0 });
my $other = DBI->connect('dbi:Pg:', undef, undef, { AutoCommit => 0, RaiseError => 1, PrintError => 0 });
$other->do(q{SELECT fencing_acquire(?, ?, '1 hour')}, undef, "$job 2", $owner);
$other->disconnect;
attempt('without commit', q{SELECT outcome, token FROM fencing_acquire(?, ?, '1 hour')}, "$job 2", '00000000-0000-4000-8000-00000000000b');
