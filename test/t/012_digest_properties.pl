# The property that everything else rests on: two documents have the same
# digest if and only if they are equal as jsonb.
#
# Half of the pairs are one document in two spellings (order of keys, spelling
# of numbers, escapes, white space, a key given twice), half are near misses
# (last digit, sign, exponent, one character, one key, order of an array, null
# for absent, one more container).  What the server calls equal, what was meant
# to be equal and what the digest says must be the same; and the canonical text
# must be the one that the rules give when they are followed by hand.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/digest";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use RandomJson;
use Test::More;

my $seed = $ENV{FENCING_SEED} // 8785;
my $pairs = 12000;
note "seed $seed";

my $random = RandomJson->new($seed, max_exponent => 16000);
my (@lines, %count);
for my $n (1 .. $pairs)
{
	my $equal = $n % 2;
	my $one = $random->document;
	my $two = $equal ? $one : $random->near_miss($one);
	my @text = map { $random->spell($_) } $one, $two;
	my @canonical = map { RandomJson::canonical($_) } $one, $two;
	# a pair of one spelling would show nothing; some documents have only one
	for (1 .. 20)
	{
		last if $text[0] ne $text[1];
		$text[1] = $random->spell($two);
	}

	$count{respelled}++ if $equal && $text[0] ne $text[1];
	$count{numbers}++ if $equal && numbers($text[0]) ne numbers($text[1]);
	$count{utf16}++ if order_differs($one);
	push @lines, RandomJson::copy_line($n, $equal ? 't' : 'f', @text, @canonical);
}

# the spellings of the numbers of a text, sorted since members are shuffled
sub numbers
{
	my ($text) = @_;
	$text =~ s/"(?:[^"\\]|\\.)*"//g;
	return join(' ', sort $text =~ /-?[0-9][-+.0-9eE]*/g);
}

# whether some object has keys that UTF-8 and UTF-16 put in different orders
sub order_differs
{
	my ($value) = @_;
	my ($kind, @rest) = @$value;
	return grep { order_differs($_) } @rest if $kind eq 'arr';
	return 0 if $kind ne 'obj';
	my @keys = map { $_->[0] } @rest;
	my @by_code_point = sort @keys;
	my @by_utf16 = sort { pack('n*', RandomJson::utf16($a)) cmp pack('n*', RandomJson::utf16($b)) } @keys;
	return 1 if "@by_code_point" ne "@by_utf16";
	return grep { order_differs($_->[1]) } @rest;
}

# The pairs must be worth the name.
cmp_ok($count{respelled}, '>', 0.95 * $pairs / 2, 'nearly all equal pairs have two spellings');
cmp_ok($count{numbers}, '>', 2000, 'many equal pairs have numbers in two spellings');
cmp_ok($count{utf16}, '>', 1000, 'many documents have keys that UTF-8 and UTF-16 order differently');

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(extra => [ '--encoding=UTF8', '--locale=C' ]);
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION fencing CASCADE;
	CREATE TABLE pairs (n int, equal boolean, a jsonb, b jsonb, canonical_a text, canonical_b text);
});
my $file = PostgreSQL::Test::Utils::tempdir() . '/pairs.copy';
RandomJson::write_file($file, @lines);
$node->safe_psql('postgres', "\\copy pairs FROM '$file' WITH (ENCODING 'UTF8')");

my $judged = q{
	WITH judged AS MATERIALIZED (
		SELECT n, equal, a, b,
			a = b AS jsonb_equal,
			fencing_digest(a) = fencing_digest(b) AS digest_equal,
			fencing_canonical(a) = fencing_canonical(b) AS text_equal,
			fencing_canonical(a) = canonical_a AND fencing_canonical(b) = canonical_b AS by_the_rules,
			fencing_digest(a) = sha256(convert_to(canonical_a, 'UTF8')) AS hash_of_text
		FROM pairs)};
is( $node->safe_psql('postgres', "$judged
		SELECT count(*), count(*) FILTER (WHERE jsonb_equal), count(*) FILTER (WHERE equal <> jsonb_equal),
			count(*) FILTER (WHERE digest_equal IS DISTINCT FROM jsonb_equal),
			count(*) FILTER (WHERE text_equal IS DISTINCT FROM jsonb_equal),
			count(*) FILTER (WHERE by_the_rules IS NOT TRUE),
			count(*) FILTER (WHERE hash_of_text IS NOT TRUE)
		FROM judged"),
	join('|', $pairs, $pairs / 2, 0, 0, 0, 0, 0),
	'pairs, equal ones; none where jsonb, digest, text, rules or hash disagree');

# which, if there are some
is( $node->safe_psql('postgres', "$judged
		SELECT n, equal, jsonb_equal, digest_equal, text_equal, by_the_rules, a, b,
			fencing_canonical(a), fencing_canonical(b)
		FROM judged
		WHERE NOT (equal = jsonb_equal AND digest_equal = jsonb_equal AND text_equal = jsonb_equal
			AND by_the_rules AND hash_of_text)
		ORDER BY length(a::text) LIMIT 5"),
	'',
	'no counter-example');

# Documents of one table against each other: equal digest, equal document.
is( $node->safe_psql('postgres', q{
		WITH doc AS (SELECT a AS doc FROM pairs UNION ALL SELECT b FROM pairs)
		SELECT count(DISTINCT doc) = count(DISTINCT fencing_digest(doc)) FROM doc}),
	't',
	'as many digests as documents');

$node->stop;
done_testing();
