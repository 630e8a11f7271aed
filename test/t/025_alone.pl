# A gate without a statement outside a transaction block, as drivers send it: in
# the simple and the extended protocol, prepared, and in pipelines.  (What plain
# SQL can show is in sql/alone.sql.)

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use FencingTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main');
$node->safe_psql('postgres', q{
	CREATE TABLE written (line text);
	SELECT fencing_acquire('job', '00000000-0000-0000-0000-00000000000a', '1 hour')});

# What pgbench says of one run of a script.
sub run
{
	my ($name, $mode, $script) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . "/script.sql";

	open(my $handle, '>', $file) or die;
	print $handle $script =~ s/STEP/step => '$name'/gr;
	close $handle;
	my ($out, $err) = run_command([
		'pgbench', '-n', '-c', 1, '-t', 1, '-M', $mode, '-f', $file, '-h', $node->host, '-p', $node->port, 'postgres' ]);
	return $err;
}

sub receipts
{
	my ($name) = @_;

	return $node->safe_psql('postgres', "SELECT count(*) FROM fencing.receipts WHERE step = '$name'");
}

my $gate = q{SELECT outcome FROM fencing_commit('job', 1, '{}', STEP)};
foreach my $mode (qw(simple extended prepared))
{
	my $name = "alone, $mode";
	like(run($name, $mode, "$gate;\n"), qr/without a statement must be called in a transaction block/, "$name: refused");
	is(receipts($name), 0, "$name: no receipt");

	$name = "block, $mode";
	unlike(run($name, $mode, "BEGIN;\n$gate;\nINSERT INTO written VALUES ('$name');\nCOMMIT;\n"), qr/ERROR/, "$name: passes");
	is(receipts($name), 1, "$name: receipt");
}
foreach my $mode (qw(extended prepared))
{
	my $name = "pipeline, $mode";
	like(run($name, $mode, "\\startpipeline\n$gate;\nINSERT INTO written VALUES ('$name');\n\\endpipeline\n"),
		qr/without a statement must be called in a transaction block/, "$name without BEGIN: refused");
	is(receipts($name), 0, "$name without BEGIN: no receipt");

	$name = "pipeline with BEGIN, $mode";
	unlike(run($name, $mode, "\\startpipeline\nBEGIN;\n$gate;\nINSERT INTO written VALUES ('$name');\nCOMMIT;\n\\endpipeline\n"),
		qr/ERROR/, "$name: passes");
	is(receipts($name), 1, "$name: receipt");
}
is($node->safe_psql('postgres', q{SELECT count(*) FROM written}), $node->safe_psql('postgres', q{SELECT count(*) FROM fencing.receipts}),
	'a receipt where the write is');

done_testing();
