# The outbox as a log-based reader sees it: logical decoding with the output
# plugins that connectors use shows the events in the order of the commits, with
# the columns of an outbox event router, and the same events as
# fencing_outbox_read(); never an update.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(allows_streaming => 'logical', extra => [ '--encoding=UTF8', '--no-locale' ]);
$node->append_conf('postgresql.conf', 'autovacuum = off');
$node->start;
$node->safe_psql('postgres', q{
CREATE EXTENSION fencing CASCADE;
CREATE PUBLICATION outbox FOR TABLE fencing.outbox;
SELECT fencing_outbox_subscribe('c', true);
SELECT fencing_acquire('c', md5('A')::uuid, '1 hour');
CREATE TABLE business (line text);
-- not a superuser: what the connector is, and what it is granted
CREATE ROLE connector LOGIN REPLICATION;
});
my @connector = (extra_params => [ '-U', 'connector' ]);
my (undef, undef, $refused) = $node->psql('postgres', 'SELECT * FROM fencing.outbox', @connector);
like($refused, qr/permission denied for schema fencing/, 'without a grant the connector reads nothing');
$node->safe_psql('postgres', q{SELECT fencing_grant('connector', 'cdc')});
$node->safe_psql('postgres', q{SELECT pg_create_logical_replication_slot('pgoutput', 'pgoutput')}, @connector);

chomp(my $library = `pg_config --pkglibdir`);
my $wal2json = -e "$library/wal2json.so";
if ($wal2json)
{
	# later minor versions let in only what is named here
	if ($node->safe_psql('postgres', q{SELECT count(*) FROM pg_settings WHERE name = 'output_plugin_libraries'}))
	{
		$node->append_conf('postgresql.conf', q{output_plugin_libraries = 'pgoutput, wal2json'});
		$node->reload;
		$node->poll_query_until('postgres', q{SELECT setting LIKE '%wal2json%' FROM pg_settings WHERE name = 'output_plugin_libraries'})
		  or die 'output_plugin_libraries';
	}
	$node->safe_psql('postgres', q{SELECT pg_create_logical_replication_slot('wal2json', 'wal2json')}, @connector);
}

# A slow transaction that is overtaken, two of one aggregate, a savepoint that
# is rolled back, a whole transaction that is, and events out of both gates.
my $slow = $node->background_psql('postgres');
my $fast = $node->background_psql('postgres');
$slow->query_safe($_) foreach 'BEGIN', q{SELECT fencing_outbox_emit('order', 'a', 'a1', '{"n": 1.50}')};
$node->safe_psql('postgres', q{SELECT fencing_outbox_emit('order', 'b', 'b1', '"ä"')});
$fast->query_safe($_) foreach 'BEGIN', q{SELECT fencing_outbox_emit('order', 'c', 'c1', 'null')},
	'SAVEPOINT s', q{SELECT fencing_outbox_emit('order', 'c', 'never', 'null')}, 'ROLLBACK TO s',
	q{SELECT fencing_outbox_emit('order', 'd', 'd1', '[]')}, 'COMMIT';
$slow->query_safe($_) foreach q{SELECT fencing_outbox_emit('order', 'e', 'e1', '{}')}, 'COMMIT';
$fast->query_safe($_) foreach 'BEGIN', q{SELECT fencing_outbox_emit('order', 'a', 'never', '1')}, 'ROLLBACK';
$node->safe_psql('postgres', q{
SELECT fencing_acquire('job', md5('A')::uuid);
SELECT outcome FROM fencing_commit('job', 1, '{"n": 2}',
	'WITH b AS (INSERT INTO business VALUES ($1) RETURNING line) SELECT fencing_outbox_emit(''order'', ''a'', ''a2'', $3) FROM b');
SELECT outcome FROM fencing_commit('job', 1, '{"n": 2}', 'SELECT 1');
SELECT fencing_outbox_emit('order', 'b', 'b2', '2');
});
$_->quit foreach $slow, $fast;

my @commit_order = qw(b1 c1 d1 a1 e1 a2 b2);
my @columns = qw(aggregateid aggregatetype id payload type);
my $table = $node->safe_psql('postgres', qq{SELECT @{[ join ', ', @columns ]} FROM fencing.outbox});
my %row = map { my @values = split /\|/; ($values[4] => { map { $columns[$_] => $values[$_] } 0 .. 4 }) } split /\n/, $table;
is(join(' ', sort keys %row), join(' ', sort @commit_order), 'the events that were committed');

# The connector's initial snapshot is all of it, and nothing else of the state.
is($node->safe_psql('postgres', qq{BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT @{[ join ', ', @columns ]} FROM fencing.outbox}, @connector),
	$table, 'the initial snapshot');
foreach my $other (qw(outbox_acks outbox_consumers outbox_status revisions receipts))
{
	(undef, undef, $refused) = $node->psql('postgres', "SELECT * FROM fencing.$other", @connector);
	like($refused, qr/permission denied for (table|view) $other/, "not $other");
}

# What a relay reads, aggregate by aggregate.
my $read = $node->safe_psql('postgres', q{
SELECT string_agg(type, ' ' ORDER BY ordinality) FROM fencing_outbox_read('c', 1) WITH ORDINALITY GROUP BY aggregate_id ORDER BY aggregate_id});

# Afterwards: what a relay does, and a purge.
$node->safe_psql('postgres', q{
SELECT outcome FROM fencing_outbox_ack('c', 1, ARRAY(SELECT id FROM fencing_outbox_read('c', 1, 3)));
SELECT purged FROM fencing_purge('events', '1 microsecond');
SELECT fencing_outbox_park('c', 1, (SELECT id FROM fencing_outbox_read('c', 1, 1)), 'bad');
});

sub check_events
{
	my ($plugin, @events) = @_;
	is(join(' ', map { $_->{type} } @events), "@commit_order", "$plugin: the events in the order of the commits");
	my %by_aggregate;
	push @{ $by_aggregate{ $_->{aggregateid} } }, $_->{type} foreach @events;
	is(join("\n", map { "@{ $by_aggregate{$_} }" } sort keys %by_aggregate), $read, "$plugin: of each aggregate the order in which they are read");
	foreach my $event (@events)
	{
		is_deeply({ map { $_ => $event->{$_} } @columns }, $row{ $event->{type} }, "$plugin: columns of $event->{type}");
	}
	return;
}

#
# pgoutput, what PostgreSQL's own subscriptions and most connectors use
#
sub cstring
{
	my ($bytes) = @_;
	$$bytes =~ s/\A([^\0]*)\0//s or die 'no string';
	return $1;
}

my (@events, @names, %kinds);
foreach my $line (split /\n/, $node->safe_psql('postgres', q{
	SELECT encode(data, 'hex') FROM pg_logical_slot_get_binary_changes('pgoutput', NULL, NULL, 'proto_version', '1', 'publication_names', 'outbox')}, @connector))
{
	my $bytes = pack 'H*', $line;
	my $kind = substr $bytes, 0, 1, '';
	$kinds{$kind}++;
	if ($kind eq 'R')
	{
		substr $bytes, 0, 4, '';
		is(cstring(\$bytes) . '.' . cstring(\$bytes), 'fencing.outbox', 'pgoutput: the table');
		my (undef, $count) = unpack 'a n', substr $bytes, 0, 3, '';
		@names = map { substr $bytes, 0, 1, ''; my $name = cstring(\$bytes); substr $bytes, 0, 8, ''; $name } 1 .. $count;
	}
	elsif ($kind eq 'I')
	{
		my ($relation, $new, $count) = unpack 'N a n', substr $bytes, 0, 7, '';
		my %event;
		foreach my $name (@names[ 0 .. $count - 1 ])
		{
			my $how = substr $bytes, 0, 1, '';
			next if $how ne 't';
			my $length = unpack 'N', substr $bytes, 0, 4, '';
			$event{$name} = substr $bytes, 0, $length, '';
		}
		push @events, \%event;
	}
}
check_events('pgoutput', @events);
is($kinds{U}, undef, 'pgoutput: no update, whatever relays do');
is($kinds{T}, undef, 'pgoutput: no truncate');
is($kinds{D}, 3, 'pgoutput: a purge is deletes, which a router leaves out');

#
# wal2json
#
SKIP:
{
	if (!$wal2json)
	{
		die 'wal2json is not installed' if $ENV{CI} && -e '/etc/debian_version' && $library =~ m{/usr/lib/postgresql/15/};
		skip 'wal2json is not installed', 1;
	}
	my $changes = $node->safe_psql('postgres', q{
		SELECT data::jsonb->>'action', c->>'name', replace(replace(c->>'value', E'\n', ' '), '|', ' ')
		FROM (SELECT data, ordinality FROM pg_logical_slot_get_changes('wal2json', NULL, NULL, 'format-version', '2', 'add-tables', 'fencing.outbox', 'include-transaction', 'false')
			WITH ORDINALITY t(lsn, xid, data, ordinality)) d
			LEFT JOIN LATERAL jsonb_array_elements(data::jsonb->'columns') WITH ORDINALITY e(c, i) ON true
		ORDER BY d.ordinality, i}, @connector);
	@events = ();
	my %actions;
	foreach my $line (split /\n/, $changes)
	{
		my ($action, $name, $value) = split /\|/, $line;
		if ($action ne 'I')
		{
			$actions{$action}++;
			next;
		}
		push @events, {} if !@events || exists $events[-1]{$name};
		$events[-1]{$name} = $value;
	}
	check_events('wal2json', @events);
	is(join(' ', map { "$_$actions{$_}" } sort keys %actions), 'D3', 'wal2json: nothing else but the deletes of the purge');
}

$node->stop;
done_testing();
