# The published vectors of RFC 8785, and ten thousand numbers in the shortest
# form of ECMAScript.  They are read where they are and not part of this
# project; without them there is nothing to do.

use strict;
use warnings;

use Digest::SHA qw(sha256_hex);
use File::Basename;
use FindBin;
use lib "$FindBin::RealBin/../lib/digest";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use RandomJson;
use Test::More;

my $vectors =
  ($ENV{FENCING_VECTORS} || "$FindBin::RealBin/../../../shared/vectors") . '/jcs';
plan skip_all => "no test vectors in $vectors (set FENCING_VECTORS)"
  if !-d $vectors;

# The one place where exact numbers and JCS part: a number that was written
# with more digits than its double can tell apart.
my %exact = ('values.json' => [ '333333333.3333333,', '333333333.33333329,' ]);

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(extra => [ '--encoding=UTF8', '--locale=C' ]);
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION fencing CASCADE');

sub octets
{
	my ($file) = @_;
	open my $handle, '<:raw', $file or die "could not read $file: $!";
	local $/;
	my $content = <$handle>;
	close $handle;
	return $content;
}

# Documents go in by COPY, so that nothing else has to quote them.
sub load
{
	my ($table, @lines) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . "/$table.copy";
	RandomJson::write_file($file, @lines);
	$node->safe_psql('postgres',
		"\\copy $table FROM '$file' WITH (ENCODING 'UTF8')");
	return;
}

#
# Documents
#
my @inputs = sort glob("$vectors/input/*.json");
cmp_ok(scalar @inputs, '>=', 6, 'there are documents');

$node->safe_psql('postgres',
	'CREATE TABLE documents (name text, document jsonb)');
my @lines;
foreach my $input (@inputs)
{
	my $text = octets($input);
	utf8::decode($text) or die "$input is not UTF-8";
	push @lines, RandomJson::copy_line(basename($input), $text);
}
load('documents', @lines);

foreach my $input (@inputs)
{
	my $name = basename($input);
	my $expected = octets("$vectors/output/$name");
	(my $stem = $name) =~ s/\.json$//;
	(my $hex = octets("$vectors/outhex/$stem.txt")) =~ s/\s+//g;
	is($hex, unpack('H*', $expected), "$name: the two forms of the vector agree");

	if (my $difference = $exact{$name})
	{
		my ($jcs, $ours) = @$difference;
		is($expected =~ s/\Q$jcs\E/$ours/g, 1, "$name: the known difference is there once");
	}
	my $got = $node->safe_psql('postgres',
		"SELECT encode(convert_to(fencing_canonical(document), 'UTF8'), 'hex'), encode(fencing_digest(document), 'hex')
		 FROM documents WHERE name = '$name'");
	$got =~ s/\s+//g;
	is($got, unpack('H*', $expected) . '|' . sha256_hex($expected), "$name: canonical text and digest");
}

#
# Numbers
#
foreach my $size ('1k', '10k')
{
	my $count = 1000 * ($size =~ s/k//r);
	my $file = "$vectors/es6testfile$size.txt";
  SKIP:
	{
		skip "no file $file", 3 if !-e $file;

		# hexadecimal double, comma, text; a double that is no number has no JSON
		my (@numbers, $not_finite);
		foreach my $line (split /\n/, octets($file))
		{
			my (undef, $text) = split /,/, $line;
			if ($text =~ /NaN|Infinity/)
			{
				$not_finite++;
				next;
			}
			push @numbers, $text;
		}
		note sprintf('%d lines left out because they are not finite', $not_finite // 0);
		is(@numbers + ($not_finite // 0), $count, "$size: all lines are read");

		$node->safe_psql('postgres',
			"CREATE TABLE numbers_$size (n int, es6 text, document jsonb)");
		my $n = 0;
		load("numbers_$size",
			map { RandomJson::copy_line(++$n, $_, $_) } @numbers);

		is( $node->safe_psql('postgres',
				"SELECT n, es6, fencing_canonical(document) FROM numbers_$size
				 WHERE fencing_canonical(document) <> es6 ORDER BY n LIMIT 20"),
			'',
			"$size: the shortest form comes out as it went in");
		is( $node->safe_psql('postgres',
				"SELECT count(*), count(*) FILTER (WHERE fencing_digest(document) = sha256(convert_to(es6, 'UTF8')))
				 FROM numbers_$size"),
			@numbers . '|' . @numbers,
			"$size: digests");
	}
}

$node->stop;
done_testing();
