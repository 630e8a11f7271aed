# Every name in a query of the extension is qualified, in the code and in the
# views: that is one guard against objects that a caller puts in the way, and the
# search_path that the queries run with is the other, which hides mistakes here.

use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

my $root = "$FindBin::RealBin/../..";

# what looks like a function and is a word of the grammar
my $words = join '|', qw(SELECT FROM WHERE AND OR ON IN AS ANY ALL ARRAY EXISTS COALESCE GREATEST LEAST NULLIF
	CASE WHEN THEN ELSE CAST VALUES USING LATERAL FILTER OVER CONFLICT OPERATOR INTO DISTINCT BY NOT RETURNING LIMIT EXTRACT
	MATERIALIZED UNION SET ROW);

# What is not qualified.  Names of columns stand after tables and aliases.
sub unqualified
{
	my ($query) = @_;
	my @found;

	$query =~ s/'[^']*'/''/g;
	$query =~ s/OPERATOR\(pg_catalog\.[^)]+\)//g;
	# lists of columns, aliases with columns, assignments
	$query =~ s/(?:INTO|CONFLICT) (?:fencing\.\w+ )?\([^)]*\)//g;
	$query =~ s/\) \w+\((?=\w+(?:, \w+)*\))/) (/g;
	$query =~ s/(?:SET|,) \w+ = / /g;
	push @found, "$1()" while $query =~ /(?<![\w.])(?!(?:$words)\b)(\w+)\(/gi;
	push @found, $1 while $query =~ /\s((?:[<>=!~]|\|\||[-+*\/%](?=\s))+)\s/g;
	push @found, "::$1" while $query =~ /::(?!pg_catalog\.|timestamptz\b|bigint\b|integer\b|interval\b|boolean\b)(\w+)/g;
	return @found;
}

my $queries = 0;

foreach my $file (sort glob "$root/src/*.c")
{
	my $code = slurp_file($file) =~ s{/\*.*?\*/}{}gsr;
	my ($name) = $file =~ /(\w+\.c)$/;

	while ($code =~ /((?:"(?:[^"\\]|\\.)*"\s*)+)/g)
	{
		my $query = join '', $1 =~ /"((?:[^"\\]|\\.)*)"/g;
		next if $query !~ /^\s*(?:SELECT|INSERT|UPDATE|DELETE|WITH) .*(?:fencing|pg_catalog)\./;
		$queries++;
		is(join(' ', unqualified($query)), '', "$name: " . substr($query, 0, 60));
	}
}
cmp_ok($queries, '>', 15, 'queries were found');

# The test can fail.
is(join(' ', unqualified('SELECT count(*) FROM fencing.outbox e WHERE e.no < $1')), 'count() <', 'what it would find');

done_testing();
