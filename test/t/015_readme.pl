# The examples of README.md, docs/tags.md and docs/clients.md, as they stand there,
# one after the other.  Nothing is prepared for them: a newcomer has nothing but
# what the page shows.  An answer that a page of docs/ shows is the answer.

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

my $for_reading = 0;
my $out = '';
foreach my $example (@examples)
{
	# 038 is with pg_cron
	next if $example =~ /\bcron\.schedule\b/;

	# parameters of the client; those of a quoted statement are not his
	if ($example =~ s/\$\$.*?\$\$//gsr =~ /\$\d/)
	{
		$for_reading++;
		next;
	}
	my ($ret, $stdout, $stderr) = $node->psql('postgres', $example, on_error_die => 0);
	is($ret, 0, (split /\n/, $example)[0]);
	unlike($stderr, qr/ERROR|WARNING/, 'without an error or a warning') or diag $stderr;
	$out .= "$stdout\n";
}
is($for_reading, 2, 'all others were executed');
like($out, qr/^acquired\|1\|29700\|$/m, 'the lease is acquired');
like($out, qr/^committed\|\{"rows": 2\}\|/m, 'the report is committed');
like($out, qr/^committed\|\{"id": 1\}$/m, 'the payment is committed');
like($out, qr/^current\|[0-9a-f-]{36}\|created\|\{"total": 12\.50\}$/m, 'the event is read');
like($out, qr/^committed\|1\ncommitted\|2\|2\ncommitted\|3$/m, 'the rollback is version 3');
is($node->safe_psql('postgres', 'SELECT * FROM shop_config'), 'shop-1|3|{"tea": 3.00}', 'the shop has it');

# Each piece up to an answer, "--  one | two".
foreach my $page ('tags', 'clients')
{
	$node->safe_psql('postgres', "CREATE DATABASE $page");
	$node->safe_psql($page, 'CREATE EXTENSION fencing CASCADE');
	foreach my $example (slurp_file("$RealBin/../../docs/$page.md") =~ /^```sql\n(.*?)^```$/msg)
	{
		my $sql = '';
		foreach my $line (split /^/, $example)
		{
			if ($line =~ /^--  (.*)$/)
			{
				my $answer = $1;
				my @got = split /\n/, $node->safe_psql($page, $sql);
				is($got[-1] =~ s/\|/ | /gr, $answer, "docs/$page.md: $answer");
				$sql = '';
			}
			else
			{
				$sql .= $line;
			}
		}
		$node->safe_psql($page, $sql) if $sql =~ /\S/;
	}
}
is($node->safe_psql('tags', "SELECT * FROM fencing_tag_check('city')"), '', 'the tags are consistent');
is($node->safe_psql('tags', "SELECT count(*) FROM fencing_outbox_read('notifier', 1)"), 5, 'the events are there');

done_testing();
