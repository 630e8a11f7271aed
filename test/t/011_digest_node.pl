# Comparison with an implementation of RFC 8785 by others: the npm package
# canonicalize.  Numbers are those on which both must agree, that is decimals
# that are the shortest form of their double, in every spelling; strings and
# keys are of all planes.  Needs node, npm and the npm registry.

use strict;
use warnings;

use FindBin;
use IPC::Run;
use MIME::Base64;
use lib "$FindBin::RealBin/../lib/digest";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use RandomJson;
use Test::More;

# A fixed version: the comparison must not change by itself.
my $package = 'canonicalize@2.1.0';
my $seed = 20260803;
my $count = 5000;
my $script = "$FindBin::RealBin/../lib/digest/canonicalize.js";

my $folder = PostgreSQL::Test::Utils::tempdir();

# Runs a program in the temporary folder.  Gives whether its exit status was
# zero, its output and its errors; a program that is not there is a failure.
sub run_program
{
	my ($command, $input) = @_;
	my ($out, $err) = ('', '');
	my $ok = eval {
		IPC::Run::run($command, '<', \($input // ''), '>', \$out, '2>', \$err,
			init => sub { chdir $folder },
			IPC::Run::timeout(180));
	};
	return ($ok, $out, $err . ($@ || ''));
}

foreach my $program ('node', 'npm')
{
	my ($ok) = run_program([ $program, '--version' ]);
	plan skip_all => "$program is not installed" if !$ok;
}

{
	# npm installs where it finds this, and not with --prefix: that would also
	# move the place of the machine's settings, which may be needed to reach
	# the registry.
	append_to_file("$folder/package.json", '{"private": true}');

	# The cache too goes to the temporary folder: the home folder may not be
	# ours, and what it holds should not decide what is tested.
	local %ENV = (
		%ENV,
		npm_config_cache => "$folder/npm-cache",
		npm_config_update_notifier => 'false',
		npm_config_fetch_retries => 1,
		npm_config_fetch_retry_mintimeout => 1000,
		npm_config_fetch_timeout => 30000);
	my ($ok, undef, $err) = run_program(
		[ 'npm', 'install', '--ignore-scripts', '--no-audit', '--no-fund', '--no-save', $package ]);
	my ($reason) = $err =~ /^npm (?:ERR!|error) (?:code )?(\S.*)$/m;
	plan skip_all => "npm could not install $package: " . ($reason // $err)
	  if !$ok;
}

note "seed $seed";
my ($ok, $out, $err) = run_program([ 'node', $script, 'numbers', $seed, 20000 ]);
ok($ok, 'shortest forms of random doubles') or diag $err;
my @numbers = split /\n/, $out;
is(scalar @numbers, 20000, 'all of them');

# Up to 15 digits every decimal is the shortest form of its double.
my $random = RandomJson->new($seed,
	numbers => \@numbers, max_digits => 15, max_exponent => 290);
my @documents = map { $random->document } 1 .. $count;
# and each of the numbers at least once
push @documents, [ 'arr', map { RandomJson::parse_number($_) } splice(@numbers, 0, 100) ]
  while @numbers;

my @texts = map { $random->spell($_) } @documents;
my $input = '';
foreach my $text (@texts)
{
	utf8::encode(my $octets = $text);
	$input .= encode_base64($octets, '') . "\n";
}
($ok, $out, $err) = run_program([ 'node', $script, 'canonical', $folder ], $input);
ok($ok, "the package takes the documents") or diag $err;
my @theirs = map { my $text = decode_base64($_); utf8::decode($text); $text } split /\n/, $out;
is(scalar @theirs, scalar @documents, 'and answers all of them');

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(extra => [ '--encoding=UTF8', '--locale=C' ]);
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION fencing CASCADE;
	CREATE TABLE documents (n int, document jsonb, theirs text);
});
my $file = "$folder/documents.copy";
RandomJson::write_file($file,
	map { RandomJson::copy_line($_, $texts[$_], $theirs[$_]) } 0 .. $#texts);
$node->safe_psql('postgres', "\\copy documents FROM '$file' WITH (ENCODING 'UTF8')");

is( $node->safe_psql('postgres',
		q{SELECT n, document, fencing_canonical(document), theirs FROM documents
		  WHERE fencing_canonical(document) <> theirs ORDER BY length(theirs) LIMIT 5}),
	'',
	'the same canonical text');
is( $node->safe_psql('postgres',
		q{SELECT count(*), count(*) FILTER (WHERE fencing_digest(document) = sha256(convert_to(theirs, 'UTF8')))
		  FROM documents}),
	@documents . '|' . @documents,
	'the same digest');

# A comparison without the hard places would prove little.
my ($orders, $supplementary) = split /\|/, $node->safe_psql('postgres', q{
	SELECT count(*) FILTER (WHERE theirs ~ U&'[\E000-\FFFF][^"]*":.*[\+010000-\+10FFFF][^"]*":'
			OR theirs ~ U&'[\+010000-\+10FFFF][^"]*":.*[\E000-\FFFF][^"]*":'),
		count(*) FILTER (WHERE theirs ~ U&'[\+010000-\+10FFFF]')
	FROM documents});
cmp_ok($orders, '>', 500, 'many documents have keys at both sides of the surrogates');
cmp_ok($supplementary, '>', 1500, 'many documents have supplementary characters');

$node->stop;
done_testing();
