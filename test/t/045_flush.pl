# Every call that writes flushes by itself, also under synchronous_commit = off.
# One crash after all of them could not tell: a flush takes along what was
# written before it.  So each call is looked at alone: at its COMMIT the log has
# to be on disk up to what the call has written.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use FencingTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# nobody else flushes, or writes
my $node = new_node('main', <<'EOT');
synchronous_commit = off
wal_writer_delay = 10s
wal_writer_flush_after = 1GB
checkpoint_timeout = 1h
bgwriter_lru_maxpages = 0
wal_level = minimal
max_wal_senders = 0
EOT
my ($a, $b) = map { owner($_) } 1 .. 2;

$node->safe_psql('postgres', q{
CREATE ROLE app;
CREATE TABLE report (job text);
CREATE FUNCTION may(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION one_event() RETURNS uuid LANGUAGE sql AS 'SELECT id FROM fencing.outbox ORDER BY no LIMIT 1';
CREATE FUNCTION relay_token() RETURNS bigint LANGUAGE sql AS $$SELECT token FROM fencing.fences WHERE job_key = 'relay'$$;
CREATE FUNCTION target_token() RETURNS bigint LANGUAGE sql AS $$SELECT token FROM fencing.fences WHERE job_key LIKE 'apply/%'$$});

# In this order, as each needs what came before it.
my @calls = (
	[ 'acquire, new', "fencing_acquire('job', $a, '1 hour')" ],
	[ 'acquire, extended', "fencing_acquire('job', $a, '2 hours')" ],
	[ 'renew', "fencing_renew('job', $a, 1, '3 hours')" ],
	[ 'commit', q{fencing_commit('job', 1, '{}', 'SELECT 1')} ],
	[ 'commit, gate alone', q{fencing_commit('job', 1, '{}', step => 'next')} ],
	[ 'commit, reported', q{fencing_commit('job', 1, '{}', 'SELECT 1', 'third', report_errors => true)} ],
	[ 'release', "fencing_release('job', $a, 1)" ],
	[ 'acquire, takeover', "fencing_acquire('job', $b, '1 day')" ],
	[ 'revoke', q{fencing_revoke('job', 'test')} ],
	[ 'purge of receipts', q{fencing_purge('receipts', '1 microsecond')} ],
	[ 'advance, new', q{fencing_advance('external', 5)} ],
	[ 'advance', q{fencing_advance('external', 6)} ],
	[ 'revoke, external', q{fencing_revoke('external', 'test')} ],
	[ 'forget', q{fencing_forget('job')} ],
	[ 'define_operation', q{fencing_define_operation('op', 'may(text,text,jsonb,jsonb)', '1 second', '2 seconds')} ],
	[ 'define_operation, changed', q{fencing_define_operation('op', 'may(text,text,jsonb,jsonb)', '1 second', '3 seconds')} ],
	[ 'define_request', q{fencing_define_request('op', 1, 'true')} ],
	[ 'define_request, second', q{fencing_define_request('op', 2, '{"type": "string"}')} ],
	[ 'retire_request', q{fencing_retire_request('op', 1)} ],
	[ 'once', q{fencing_once('t', 'op', 'k', '"x"', 'SELECT 1')} ],
	[ 'once and respond', q{fencing_once('t', 'op', 'k2', '"x"'), fencing_once_respond('t', 'op', 'k2', '1')} ],
	[ 'purge of records', q{fencing_purge('records', '1 microsecond')}, q{SELECT pg_sleep(3.1)} ],
	[ 'subscribe', q{fencing_outbox_subscribe('relay', true)} ],
	[ 'emit', q{fencing_outbox_emit('a', '1', 'x', '1')} ],
	[ 'emit, once more', q{fencing_outbox_emit('a', '1', 'y', '1')} ],
	[ 'park', q{fencing_outbox_park('relay', relay_token(), one_event(), 'bad')}, "SELECT token FROM fencing_acquire('relay', $a, '1 day')" ],
	[ 'park, taken back', q{fencing_outbox_park('relay', relay_token(), one_event(), NULL)} ],
	[ 'ack', q{fencing_outbox_ack('relay', relay_token(), ARRAY[one_event()])} ],
	[ 'purge of events', q{fencing_purge('events', '1 microsecond')} ],
	[ 'unsubscribe', q{fencing_outbox_unsubscribe('relay')} ],
	[ 'publish', q{fencing_publish('doc', 0, '1')} ],
	[ 'publish_rollback', q{fencing_publish_rollback('doc', 1, 1, 'back')} ],
	[ 'publish_force', q{fencing_publish_force('doc', '3', 'test')} ],
	[ 'desire, new', q{fencing_target_desire('doc', 'target', 1)} ],
	[ 'desire', q{fencing_target_desire('doc', 'target')} ],
	[ 'apply', q{fencing_apply('doc', 'target', 1, fencing_digest('1'), statement => 'SELECT 1')} ],
	[ 'reject', q{fencing_apply_reject('doc', 'target', 2, 'bad')} ],
	[ 'apply_begin', "fencing_apply_begin('doc', 'target', $a, '1 day')" ],
	[ 'apply_observe', q{fencing_apply_observe('doc', 'target', target_token(), 3, fencing_digest('3'))} ],
	[ 'publish_delete', q{fencing_publish_delete('doc', 3, 'gone')} ],
	[ 'grant', q{fencing_grant('app', 'admin')} ],
	[ 'ungrant', q{fencing_ungrant('app', 'admin')} ],
	[ 'protect', q{fencing_protect('report', 'job')} ],
	[ 'protect, again', q{fencing_protect('report', job_key => 'external')} ],
	[ 'unprotect', q{fencing_unprotect('report')} ],
	[ 'new_epoch', q{fencing_new_epoch('test')} ],
	[ 'acquire, in the new epoch', "fencing_acquire('job', $a, '1 day')" ]);

my $session = open_session($node);
my $flushed = sub {
	my ($call) = @_;
	my $lsn = $session->ask("BEGIN;\nSELECT FROM $call;\nSELECT pg_current_wal_insert_lsn();\nCOMMIT");
	return $lsn if $lsn !~ m{/};
	return $session->ask("SELECT pg_current_wal_flush_lsn() >= '$lsn'");
};

$node->safe_psql('postgres', 'CREATE TABLE plain (n int)');
is($flushed->(q{nextval('fencing.outbox_no_seq')}), 'f', 'what does not flush by itself is seen');
foreach (@calls)
{
	my ($name, $call, $before) = @$_;

	$session->ask($before) if defined $before;
	is($flushed->($call), 't', $name);
}
# of these answers none may have been another than expected
is($session->ask(q{SELECT string_agg(kind, ' ' ORDER BY version) FROM fencing.revisions}), 'publish rollback force delete', 'everything was done: published');
is($session->ask(q{SELECT applied, observed, rejected FROM fencing.targets}), '3|3|2', 'everything was done: applied');
is($session->ask(q{SELECT count(*) FROM fencing.records}), '0', 'everything was done: purged');
is($session->ask(q{SELECT count(*) FROM fencing.outbox_consumers}), '0', 'everything was done: unsubscribed');
is($session->ask(q{SELECT count(*) FROM fencing.revocations}), '3', 'everything was done: revoked');
$session->close;

# And it really is on disk: each of these alone before a crash.
foreach my $last (
	[ 'advance', q{SELECT * FROM fencing_advance('external', 100)}, 'advanced|100', q{SELECT token FROM fencing.fences WHERE job_key = 'external'}, '100' ],
	[ 'revoke', q{SELECT fencing_revoke('external', 'test')}, '101', q{SELECT token FROM fencing.fences WHERE job_key = 'external'}, '101' ],
	[ 'new epoch', q{SELECT fencing_new_epoch('test')}, token_of(2, 0), q{SELECT fencing.epoch_start()}, token_of(2, 0) ])
{
	my ($name, $call, $answer, $query, $expected) = @$last;

	is(answer($node, $call), $answer, "crash: $name");
	$node->stop('immediate');
	$node->start;
	is(answer($node, $query), $expected, "crash: $name is there");
}
$node->stop;
done_testing();
