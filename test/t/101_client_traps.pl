# What docs/clients.md says of each client: the mistakes that are easy to make
# with it, what comes of them, and that the way shown beside works.  Clients that
# are not here are skipped; Rust's are in 100, since its crates take a minute to
# compile.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use ClientTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $root = "$FindBin::RealBin/../..";

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(extra => [ '--encoding=UTF8', '--no-locale' ]);
$node->start;
$node->psql('postgres', slurp_file("$root/examples/setup.sql"), on_error_die => 1);

# some need TCP
my $tcp = start_proxy($node, 'nothing');
my %file = (
	bash => 'psql.sh', psycopg3 => 'psycopg3_traps.py', asyncpg => 'asyncpg_traps.py', psycopg2 => 'psycopg2_traps.py', sqlalchemy => 'sqlalchemy_traps.py',
	pg => 'pg.js', postgres_js => 'postgres.js', knex => 'knex.js', sequelize => 'sequelize.js', jdbc => 'Traps.java',
	pq => 'pq.go', ruby_pg => 'pg.rb', activerecord => 'activerecord.rb', pdo => 'pdo.php', dbi => 'dbi.pl');

try_traps($node, $_, $file{$_}, $tcp) foreach sort keys %file;
stop_proxy($tcp);

$node->stop;
done_testing();
