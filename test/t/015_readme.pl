# The examples of README.md, as they stand there, one after the other.  One with
# a placeholder in it is for reading only.

use strict;
use warnings;

use FindBin qw($RealBin);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $readme = slurp_file("$RealBin/../../README.md");
my @examples = $readme =~ /^```sql\n(.*?)^```$/msg;

my $node = PostgreSQL::Test::Cluster->new('readme');
$node->init(extra => [ '--encoding=UTF8', '--locale=C' ]);
$node->start;

# what the examples take for granted
$node->safe_psql('postgres', <<'EOT');
CREATE ROLE my_app LOGIN;
CREATE TABLE members (tenant text, name text);
INSERT INTO members VALUES ('acme', 'ann');
CREATE TABLE payments (id bigint GENERATED ALWAYS AS IDENTITY, tenant text, amount numeric);
CREATE TABLE report_line (job_key text, amount numeric);
CREATE TABLE exchange_rate (currency text, rate numeric);
EOT

my $executed = 0;
my $out = '';
foreach my $example (@examples)
{
	# a parameter of the client, or something to fill in
	next if $example =~ /…|\$\d::|\$\d \/\*/;
	my ($ret, $stdout, $stderr) = $node->psql('postgres', $example, on_error_die => 0);
	is($ret, 0, (split /\n/, $example)[0]) or diag $stderr;
	unlike($stderr, qr/ERROR/, 'without an error');
	$out .= "$stdout\n";
	$executed++;
}
cmp_ok($executed, '>=', 5, 'most examples were executed');
like($out, qr/^acquired\|1\|29700\|$/m, 'the lease is acquired');
like($out, qr/^committed\|\{"rows": 2\}\|/m, 'the report is committed');
like($out, qr/^committed\|\{"id": 1\}$/m, 'the payment is committed');
like($out, qr/^committed\|3$/m, 'the rollback is version 3');

done_testing();
