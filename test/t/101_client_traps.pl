# What docs/clients.md says of each client: the mistakes that are easy to make
# with it, what comes of them, and that the way shown beside works.  Clients that
# are not here are skipped.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use ClientTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $root = "$FindBin::RealBin/../..";
my $traps = "$FindBin::RealBin/../lib/client/traps";

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(extra => [ '--encoding=UTF8', '--no-locale' ]);
$node->start;
$node->psql('postgres', slurp_file("$root/examples/setup.sql"), on_error_die => 1);

# some need TCP
my $tcp = start_proxy($node, 'nothing');
my %file = (
	bash => 'psql.sh', psycopg3 => 'psycopg3_traps.py', psycopg2 => 'psycopg2_traps.py', sqlalchemy => 'sqlalchemy_traps.py',
	pg => 'pg.js', postgres_js => 'postgres.js', knex => 'knex.js', sequelize => 'sequelize.js', jdbc => 'Traps.java',
	pq => 'pq.go', ruby_pg => 'pg.rb', activerecord => 'activerecord.rb', pdo => 'pdo.php', dbi => 'dbi.pl');

foreach my $client (sort keys %file)
{
	my $file = "$traps/$file{$client}";
	my ($command, $why, %env) = client_command($client, $file);
	if (!$command)
	{
		SKIP: { skip "$client: $why", 1 }
		next;
	}
	$node->safe_psql('postgres', "SELECT fencing_acquire('$client', '00000000-0000-4000-8000-00000000000a', '1 hour')");
	my ($ok, $out) = run_program([ @$command, $client ], environment('127.0.0.1', $tcp->{port}), %env);
	ok($ok, "$client: ends well");
	is($out, slurp_file("$file.out"), "$client: what comes of it");
}
stop_proxy($tcp);

$node->stop;
done_testing();
