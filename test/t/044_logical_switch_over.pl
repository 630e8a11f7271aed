# A planned switch-over by logical replication, there and back, by exactly the
# steps of docs/durability.md: no token goes down, no number is drawn twice,
# receipts replay, events are delivered.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use FencingTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($owner_a, $owner_b) = map { owner($_) } 10 .. 11;
my $conf = "wal_retrieve_retry_interval = 100ms\n";
my $old = new_node('old', $conf, allows_streaming => 'logical');
my $new = PostgreSQL::Test::Cluster->new('new');

$new->init(extra => [ '--encoding=UTF8', '--no-locale' ], allows_streaming => 'logical');
$new->append_conf('postgresql.conf', "autovacuum = off\n$conf");
$new->start;

sub commit
{
	my ($job, $token, $step) = @_;
	return "SELECT outcome FROM fencing_commit('$job', $token, '{\"n\": 1}', 'INSERT INTO business VALUES (\$1, \$2, ''$step'')', '$step')";
}

sub acquire
{
	my ($job, $owner, $ttl) = @_;
	return "SELECT outcome, token FROM fencing_acquire('$job', $owner, '" . ($ttl // '1 hour') . "')";
}

sub once
{
	my ($key) = @_;
	return "SELECT outcome FROM fencing_once('t', 'o', '$key', '{}', 'SELECT 1')";
}

sub publish
{
	my ($version) = @_;
	return "SELECT outcome, version FROM fencing_publish('d', $version, '$version')";
}

my $emit = q{SELECT fencing_outbox_emit('a', 'b', 'c', '1') IS NOT NULL};

# A consumer's relay: whatever there is, in order, and it is done.
sub relay
{
	my ($node, $owner) = @_;
	my $session = open_session($node);
	my (undef, $token) = split /\|/, $session->ask(acquire('consumer', $owner));
	my $count = $session->ask("SELECT count(*) FROM fencing_outbox_read('consumer', $token) WHERE outcome = 'current'");

	$session->ask("SELECT fencing_outbox_ack('consumer', $token, ARRAY(SELECT id FROM fencing_outbox_read('consumer', $token)))");
	$session->ask("SELECT fencing_release('consumer', $owner, $token)");
	$session->close;
	return $count;
}

sub subscribe
{
	my ($name, $node) = @_;
	return sprintf q{CREATE SUBSCRIPTION %s CONNECTION '%s' PUBLICATION %s}, $name, $node->connstr('postgres') =~ s/'/''/gr, $name;
}

# docs/durability.md, "Move by logical replication": from, to, the first time or
# back.  The steps are numbered as there.
sub copy_to
{
	my ($from, $to) = @_;

	# 1. roles
	my $file = PostgreSQL::Test::Utils::tempdir() . '/dump';
	$from->command_ok([ 'pg_dumpall', '--roles-only', '-f', "$file.roles" ], 'roles');
	$to->psql('postgres', slurp_file("$file.roles"));

	# 2. the schema; the extension's tables come empty
	$from->command_ok([ 'pg_dump', '--schema-only', '-f', "$file.schema", 'postgres' ], 'schema');
	$to->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', 'postgres', '-f', "$file.schema" ], 'schema restored');
	is($to->safe_psql('postgres', 'SELECT (SELECT count(*) FROM fencing.grants), (SELECT count(*) FROM fencing.operations), (SELECT count(*) FROM fencing.request_schemas)'),
		'0|0|0', 'what the copy will fill is empty');

	# 3. and 4. publication and copy
	$from->safe_psql('postgres', 'CREATE PUBLICATION to_new FOR ALL TABLES');
	$to->safe_psql('postgres', subscribe('to_new', $from));
	await_true($to, q{SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel}, 'copied');
	return;
}

sub switch_over
{
	my ($from, $to, $subscription, $back) = @_;

	# 5. nobody writes any more
	$from->safe_psql('postgres', 'ALTER DATABASE postgres SET default_transaction_read_only = on');
	$from->safe_psql('postgres', q{SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
		WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()});
	# 6. all has arrived
	$from->wait_for_catchup($subscription);
	# 7. the subscription ends
	$to->safe_psql('postgres', "SET default_transaction_read_only = off; DROP SUBSCRIPTION $subscription");
	# 8. the way back begins before anything is written there
	if (defined $back)
	{
		$to->safe_psql('postgres', "CREATE PUBLICATION $back FOR ALL TABLES")
		  if $to->safe_psql('postgres', "SELECT count(*) FROM pg_publication WHERE pubname = '$back'") eq '0';
		$from->safe_psql('postgres', 
			'SET default_transaction_read_only = off; ' . subscribe($back, $to) . ' WITH (copy_data = false)');
		await_true($from, q{SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel}, 'the way back is open');
	}
	return;
}

#
# Before
#
$old->safe_psql('postgres', q{CREATE ROLE app LOGIN; SELECT fencing_grant('app', 'client'); GRANT INSERT ON business TO app;
	CREATE FUNCTION may(text, text, jsonb, jsonb) RETURNS boolean LANGUAGE sql AS 'SELECT true';
	SELECT fencing_define_operation('o', 'may(text, text, jsonb, jsonb)');
	SELECT fencing_define_request('o', 1, '{"type": "object"}');
	SELECT fencing_protect('business', job_key_column => 'job')});
is_answers($old, 'postgres', 'before',
	[ 'a', acquire('a', $owner_a), 'acquired|1' ],
	[ 'a commits', commit('a', 1, 'old'), 'committed' ],
	[ 'f', acquire('f', $owner_a, '1 microsecond'), 'acquired|1' ],
	[ 'f again', acquire('f', $owner_a, '1 microsecond'), 'acquired|2' ],
	[ 'f is forgotten', q{SELECT fencing_forget('f')}, '' ],
	[ 'r', acquire('r', $owner_a), 'acquired|3' ],
	[ 'r is revoked', q{SELECT fencing_revoke('r', 'test')}, '4' ],
	[ 'external', q{SELECT outcome FROM fencing_advance('x', 7)}, 'advanced' ],
	[ 'once', once('k'), 'committed' ],
	[ 'a consumer', q{SELECT fencing_outbox_subscribe('consumer', true)}, '' ],
	[ 'an event', $emit, 't' ],
	[ 'a document', publish(0), 'committed|1' ]);
is(relay($old, $owner_a), '2', 'before: events');

copy_to($old, $new);
is_answers($old, 'postgres', 'copied, and going on',
	[ 'a commits', commit('a', 1, 'later'), 'committed' ],
	[ 'b', acquire('b', $owner_a), 'acquired|3' ],
	[ 'once', once('l'), 'committed' ],
	[ 'an event', $emit, 't' ],
	[ 'r is revoked', q{SELECT fencing_revoke('r', 'test')}, '5' ],
	[ 'a document', publish(1), 'committed|2' ]);
switch_over($old, $new, 'to_new', 'to_old');

#
# Sequences do not come along.
#
is(answer($new, q{SELECT fencing_revoke('r', 'test')}), '23505', 'without step 9 numbers are drawn twice');

# 9. a new epoch moves them, and is above all that the old one issued; its row
# goes the way back
is(answer($new, q{SELECT fencing_new_epoch('switched over')}), token_of(1025, 0), 'new epoch');
is_answers($new, 'postgres', 'switched over',
	[ 'a replays', commit('a', 1, 'later'), 'replayed' ],
	[ 'a is over', commit('a', 1, 'late'), 'stale' ],
	[ 'others wait for it', acquire('a', $owner_b), 'held|' ],
	[ 'its owner does not', acquire('a', $owner_a), 'acquired|' . token_of(1025, 1) ],
	[ 'a commits', commit('a', token_of(1025, 1), 'new'), 'committed' ],
	[ 'what was forgotten', acquire('f', $owner_a), 'acquired|' . token_of(1025, 1) ],
	[ 'g', acquire('g', $owner_a, '1 microsecond'), 'acquired|' . token_of(1025, 1) ],
	[ 'g again', acquire('g', $owner_a, '1 microsecond'), 'acquired|' . token_of(1025, 2) ],
	[ 'g is forgotten', q{SELECT fencing_forget('g')}, '' ],
	[ 'r is revoked', q{SELECT fencing_revoke('r', 'test')}, token_of(1025, 3) ],
	[ 'external', q{SELECT outcome FROM fencing_advance('x', 6)}, 'stale' ],
	[ 'once', once('k'), 'replayed' ],
	[ 'once again', once('m'), 'committed' ],
	[ 'an event', $emit, 't' ],
	[ 'a document', publish(2), 'committed|3' ],
	[ 'a document replays', publish(1), 'replayed|2' ],
	[ 'protected', q{INSERT INTO business VALUES ('a', 1, 'zombie')}, 'LF003' ],
	[ 'the application may', 'SET ROLE app; ' . acquire('app', $owner_a), 'acquired|' . token_of(1025, 3) ]);
is(relay($new, $owner_a), '4', 'switched over: events of before and after');
is(answer($old, acquire('a', $owner_b)), '25006', 'the old one refuses');

#
# And back.
#
switch_over($new, $old, 'to_old', 'to_new');
$old->safe_psql('postgres', 'SET default_transaction_read_only = off; ALTER DATABASE postgres RESET default_transaction_read_only');
is(answer($old, q{SELECT count(*) FROM fencing.floor}), '2', 'back: the epoch of the new one is known');
is(answer($old, q{SELECT fencing_new_epoch('switched back')}), token_of(2050, 0), 'back: new epoch');
is_answers($old, 'postgres', 'back',
	[ 'a replays', commit('a', token_of(1025, 1), 'new'), 'replayed' ],
	[ 'from before', commit('a', 1, 'old'), 'replayed' ],
	[ 'a is over', commit('a', token_of(1025, 1), 'late'), 'stale' ],
	[ 'its owner', acquire('a', $owner_a), 'acquired|' . token_of(2050, 1) ],
	[ 'what was forgotten there', acquire('g', $owner_a), 'acquired|' . token_of(2050, 1) ],
	[ 'what was forgotten here', acquire('f', $owner_a), 'acquired|' . token_of(2050, 1) ],
	[ 'r is revoked', q{SELECT fencing_revoke('r', 'test')}, token_of(2050, 1) ],
	[ 'once', once('m'), 'replayed' ],
	[ 'once again', once('n'), 'committed' ],
	[ 'an event', $emit, 't' ],
	[ 'a document', publish(3), 'committed|4' ],
	[ 'epoch', 'SELECT new_epoch_needed, other_identities, highest_other_epoch FROM fencing.epoch_status', 'f|1|1025' ]);
is(relay($old, $owner_a), '2', 'back: events');
# once more, the way there is open again
$old->wait_for_catchup('to_new');
is($new->safe_psql('postgres', 'SELECT string_agg(epoch::text, \' \' ORDER BY epoch) FROM fencing.floor'), '1025 2050', 'there again: all epochs are known')
  || diag $new->safe_psql('postgres', 'TABLE fencing.floor');

$_->stop foreach $new, $old;
done_testing();
