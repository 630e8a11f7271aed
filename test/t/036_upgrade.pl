# pg_upgrade keeps all state, and is a move: the system identifier is new, so the
# next tokens are 1024 epochs up.  Always within this version of PostgreSQL; and
# from an older one if FENCING_UPGRADE_FROM names its pg_config (see test/upgrade).

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use FencingTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $source = "$FindBin::RealBin/../..";
my ($owner_a, $owner_b) = map { owner($_) } 10 .. 11;

sub acquire
{
	my ($job, $owner) = @_;
	return "SELECT outcome, token FROM fencing_acquire('$job', $owner, '1 day')";
}

sub commit
{
	my ($job, $token, $content, $step) = @_;
	return sprintf q{SELECT outcome, result FROM fencing_commit('%s', %s, '{"n": %s}', 'INSERT INTO report VALUES ($1, $2) RETURNING token', '%s')}, $job, $token, $content, $step // '';
}

# A copy of another PostgreSQL with the extension in it.  It finds its files
# relative to its programs, so these are real copies and all else is links.
sub install_older
{
	my ($pg_config) = @_;
	my $folder = PostgreSQL::Test::Utils::tempdir();
	my %at;

	foreach my $what ('bindir', 'pkglibdir', 'sharedir')
	{
		($at{$what}) = run_command([ $pg_config, "--$what" ]);
		system_or_bail('mkdir', '-p', "$folder$at{$what}");
	}
	system_or_bail('cp', '-asT', $at{$_}, "$folder$at{$_}") foreach 'pkglibdir', 'sharedir';
	system_or_bail('find', "$folder$at{pkglibdir}", "$folder$at{sharedir}", '-name', 'fencing*', '-prune', '-exec', 'rm', '-rf', '{}', '+');
	system_or_bail('cp', '-LT', '-r', $at{bindir}, "$folder$at{bindir}");

	system_or_bail('mkdir', "$folder/src");
	system_or_bail('cp', '-r', (map { "$source/$_" } 'Makefile', 'fencing.control', 'src'), glob("$source/fencing--*.sql"), "$folder/src");
	foreach my $target ('clean', 'all', 'install')
	{
		system_or_bail('make', '-s', '-C', "$folder/src", "PG_CONFIG=$pg_config", "DESTDIR=$folder", $target);
	}
	return "$folder$at{bindir}" =~ s{/bin\z}{}r;
}

# Through a promotion, so that the old server is on timeline 2 and the new one,
# which begins on timeline 1, is not.
sub make_old
{
	my ($name, $install_path) = @_;
	my $old = PostgreSQL::Test::Cluster->new($name, install_path => $install_path);

	$old->init(extra => [ '--encoding=UTF8', '--no-locale' ], allows_streaming => 1);
	$old->append_conf('postgresql.conf', 'autovacuum = off');
	# set by the test module of 18 for servers that do not know it, too
	$old->adjust_conf('postgresql.conf', 'autovacuum_worker_slots', undef);
	$old->start;
	$old->safe_psql('postgres', qq{
CREATE ROLE app LOGIN;
CREATE ROLE nobody_else;
CREATE DATABASE shop;
\\connect shop
CREATE EXTENSION fencing CASCADE;
CREATE TABLE report (job text, token bigint) PARTITION BY LIST (job);
CREATE TABLE report_rest PARTITION OF report DEFAULT;
SELECT fencing_protect('report', 'job');
SELECT fencing_grant('app', 'client');
GRANT SELECT, INSERT ON report TO app;
SELECT fencing_acquire('job', $owner_a, '1 day');
SELECT fencing_commit('job', 1, '{"n": 1.50}', 'INSERT INTO report VALUES (\$1, \$2) RETURNING token');
SELECT fencing_revoke('job', 'test');
SELECT fencing_acquire('forgotten', $owner_a, '1 day');
SELECT fencing_revoke('forgotten', 'test');
SELECT fencing_forget('forgotten');
SELECT fencing_advance('external', 500)});
	$old->stop;
	$old->set_standby_mode;
	$old->start;
	$old->promote;
	is_answers($old, 'shop', "$name: old server",
		[ 'version', q{SELECT current_setting('server_version_num')::int / 10000}, int($old->pg_version) ],
		[ 'token', acquire('job', $owner_a), 'acquired|' . token_of(1, 1) ],
		[ 'commit', commit('job', token_of(1, 1), 1), 'committed|{"token": ' . token_of(1, 1) . '}' ],
		[ 'holder', acquire('holder', $owner_a), 'acquired|' . token_of(1, 1) ],
		[ 'where', 'SELECT tli, epoch, floor FROM fencing.floor', '2|1|2' ]);
	return $old;
}

my $tables = join ';', map { "SELECT t.* FROM fencing.$_ t ORDER BY t::text" } 'fences', 'leases', 'receipts', 'revocations', 'grants', 'floor';
# Row types of tables are members by themselves since 17.
my $catalog = q{SELECT pg_describe_object(classid, objid, objsubid) FROM pg_depend
	WHERE refclassid = 'pg_extension'::regclass AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'fencing') AND deptype = 'e'
	AND (classid <> 'pg_type'::regclass OR objid = 'fencing_outcome'::regtype) ORDER BY 1};

sub check_upgraded
{
	my ($name, $new) = @_;

	is_answers($new, 'shop', $name,
		[ 'epoch', 'SELECT fencing.epoch_start()', token_of(1025, 0) ],
		[ 'all leases are of a former epoch', 'SELECT bool_and(former_epoch) FROM fencing.lease_status', 't' ],
		[ 'first receipt', commit('job', 1, 1.5), 'replayed|{"token": 1}' ],
		[ 'last receipt', commit('job', token_of(1, 1), 1), 'replayed|{"token": ' . token_of(1, 1) . '}' ],
		[ 'conflict', commit('job', token_of(1, 1), 2), 'conflict|' ],
		[ 'the holder', commit('holder', token_of(1, 1), 1), 'stale|' ],
		[ 'his heartbeat', "SELECT outcome FROM fencing_renew('holder', $owner_a, @{[ token_of(1, 1) ]})", 'lost' ],
		[ 'a forgotten job', commit('forgotten', 1, 1), 'pruned|' ],
		[ 'an external job', q{SELECT outcome, fence FROM fencing_commit('external', 500, '{}', 'SELECT 1')}, 'committed|500' ],
		[ 'next token', acquire('job', $owner_a), 'acquired|' . token_of(1025, 1) ],
		[ 'a new job', acquire('new', $owner_a), 'acquired|' . token_of(1025, 1) ],
		[ 'protected', q{INSERT INTO report VALUES ('job', 0)}, 'LF003' ],
		[ 'protected partition', q{INSERT INTO report_rest VALUES ('job', 0)}, 'LF003' ],
		[ 'protected from TRUNCATE', 'TRUNCATE report', 'LF003' ],
		[ 'role', 'SET ROLE app', '' ],
		[ 'a client commits', commit('job', token_of(1025, 1), 1), 'committed|{"token": ' . token_of(1025, 1) . '}' ],
		[ 'and purges nothing', q{SELECT fencing_purge('receipts', '1 day')}, '42501' ],
		[ 'nor looks', 'SELECT FROM fencing.receipts', '42501' ],
		[ 'another role', "RESET ROLE;\nSET ROLE nobody_else;\n" . acquire('job', $owner_b), '42501' ],
		[ 'superuser', 'RESET ROLE', '' ],
		[ 'revoke', q{SELECT fencing_revoke('job', 'test')}, token_of(1025, 2) ],
		[ 'purge', q{SELECT purged FROM fencing_purge('receipts', '1 microsecond') WHERE purged >= 2}, '3' ],
		[ 'pruned', commit('job', 1, 1.5), 'pruned|' ],
		[ 'forget', q{SELECT fencing_forget('job')}, '' ],
		[ 'after that', acquire('job', $owner_b), 'acquired|' . token_of(1025, 3) ],
		[ 'rows', 'SELECT token FROM report ORDER BY token', join("\n", 1, token_of(1, 1), token_of(1025, 1)) ]);
	return;
}

sub upgrade
{
	my ($name, $install_path) = @_;
	my $old = make_old("${name}_old", $install_path);
	my $new = PostgreSQL::Test::Cluster->new("${name}_new");
	my $before = $old->safe_psql('shop', $tables);
	my $objects = $old->safe_psql('shop', $catalog);

	# checksums must be as in the old cluster, and are on by default since 18
	my $checksums = $old->safe_psql('postgres', 'SHOW data_checksums') eq 'on';
	$new->init(extra => [ '--encoding=UTF8', '--no-locale',
			$checksums ? '--data-checksums' : int($new->pg_version) >= 18 ? '--no-data-checksums' : () ]);
	$new->append_conf('postgresql.conf', 'autovacuum = off');

	# by way of a dump, first
	$new->start;
	my $dump = $new->basedir . '/shop.dump';
	$new->safe_psql('postgres', 'CREATE ROLE app LOGIN; CREATE ROLE nobody_else; CREATE DATABASE shop');
	$new->command_ok([ 'pg_dump', '--format=custom', "--file=$dump", '--dbname', $old->connstr('shop') ], "$name: pg_dump");
	$new->command_ok([ 'pg_restore', '--exit-on-error', '--dbname=shop', $dump ], "$name: pg_restore");
	check_upgraded("$name: dump and restore", $new);
	$new->safe_psql('postgres', 'DROP DATABASE shop; DROP ROLE app; DROP ROLE nobody_else');
	$new->stop;
	$old->stop;

	my @command = ('pg_upgrade', '--no-sync', '--old-datadir', $old->data_dir, '--new-datadir', $new->data_dir,
		'--old-bindir', $old->config_data('--bindir'), '--new-bindir', $new->config_data('--bindir'),
		'--socketdir', $new->host, '--old-port', $old->port, '--new-port', $new->port);
	# it leaves files in the folder where it is started
	my $folder = PostgreSQL::Test::Utils::tempdir();
	chdir $folder or die;
	command_ok([ @command, '--check' ], "$name: pg_upgrade --check");
	command_ok(\@command, "$name: pg_upgrade");
	chdir $source or die;

	$new->start;
	is($new->safe_psql('shop', $tables), $before, "$name: all rows arrived");
	is($new->safe_psql('shop', $catalog), $objects, "$name: and all objects");
	check_upgraded("$name: pg_upgrade", $new);
	$new->stop;
	return;
}

upgrade('same');
SKIP:
{
	skip 'FENCING_UPGRADE_FROM is not set', 1 if !$ENV{FENCING_UPGRADE_FROM};
	upgrade('older', install_older($ENV{FENCING_UPGRADE_FROM}));
}

done_testing();
