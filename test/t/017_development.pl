# docs/development.md tells where everything is: it names each file of src/ and
# each test, and none that is not there.

use strict;
use warnings;

use FindBin;
use File::Basename qw(basename);
use PostgreSQL::Test::Utils;
use Test::More;

my $root = "$FindBin::RealBin/../..";
my $page = slurp_file("$root/docs/development.md");

sub names
{
	my ($glob) = @_;
	return [ sort map { basename($_) =~ s/\.(sql|spec|pl)$//r } glob("$root/$glob") ];
}

sub named
{
	my ($text, $pattern) = @_;
	my %seen;
	return [ sort grep { !$seen{$_}++ } $text =~ /$pattern/g ];
}

my ($map) = $page =~ /^## The map$(.*?)^## /ms;
is_deeply(named($map, qr/`(\w+\.[ch])`/), names('src/*.[ch]'), 'the files');

foreach ([ 'sql/', 'sql/*.sql' ], [ 'test/isolation/specs/', 'test/isolation/specs/*.spec' ], [ 'test/t/', 'test/t/*.pl' ])
{
	my ($title, $glob) = @$_;
	my ($index) = $page =~ m{^### [^\n]*: \Q$title\E$(.*?)(?=^###|\z)}ms;
	is_deeply(named($index, qr/^\| `(\w+)` \|/m), names($glob), "the tests of $title");
}

done_testing();
