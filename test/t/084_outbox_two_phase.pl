# Two-phase commit beside the outbox and purges: what is prepared is neither there
# nor gone.  A division waits for a prepared acknowledgement and takes it as it ends,
# a prepared event is delivered once by the part that it is for then, a prepared
# read keeps nobody from working, and a job that has prepared a commit is not purged.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use FencingTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', "max_prepared_transactions = 20\n");
my $owner = owner(10);
$node->safe_psql('postgres', qq{
CREATE TABLE effects (n int);
CREATE FUNCTION token(c text) RETURNS bigint LANGUAGE sql AS 'SELECT token FROM fencing.leases WHERE job_key = c';
CREATE FUNCTION id(n int) RETURNS uuid LANGUAGE sql AS 'SELECT id FROM fencing.outbox WHERE payload = to_jsonb(n)';
-- the part that has an event to do
CREATE FUNCTION part(n int) RETURNS text LANGUAGE sql AS 'SELECT consumer FROM fencing.outbox_pending WHERE id = id(n)';
CREATE FUNCTION pending() RETURNS text LANGUAGE sql AS 'SELECT string_agg(n::text, '' '' ORDER BY n) FROM generate_series(1, 20) n WHERE part(n) IS NOT NULL';
SELECT fencing_outbox_emit('thing', n::text, 'made', to_jsonb(n)) FROM generate_series(1, 8) n;
SELECT fencing_outbox_subscribe('c', true, 2);
SELECT fencing_acquire('c/' || i, $owner, '1 day') FROM generate_series(1, 4) i});
my ($relay, $other) = map { open_session($node) } 1 .. 2;

# an acknowledgement that is prepared, and how it ends
foreach my $case ([ 'COMMIT', 1, 3, '2 3 4 5 6 7 8' ], [ 'ROLLBACK', 2, 4, '2 3 4 5 6 7 8' ])
{
	my ($end, $n, $parts, $left) = @$case;

	is($relay->ask("BEGIN;\nINSERT INTO effects VALUES ($n);\nSELECT outcome FROM fencing_outbox_ack(part($n), token(part($n)), ARRAY[id($n)])"), 'committed', "$end: an acknowledgement");
	$relay->ask("PREPARE TRANSACTION 'ack'");
	$other->start("SELECT fencing_outbox_subscribe('c', true, $parts)");
	await_lock($node, $other->pid);
	is(answer($node, q{SELECT count(*) FROM fencing.outbox_consumers}), $parts - 1, "$end: the division waits");
	$node->safe_psql('postgres', "$end PREPARED 'ack'");
	$other->finish;
	is(answer($node, q{SELECT count(*) FROM fencing.outbox_consumers}), $parts, "$end: and goes on");
	is(answer($node, 'SELECT pending()'), $left, "$end: what is done is done");
	is(answer($node, 'SELECT string_agg(n::text, \' \') FROM effects'), '1', "$end: and nothing else");
}

# an event that is prepared before the division, and committed after it
$relay->ask("BEGIN;\nSELECT fencing_outbox_emit('thing', '9', 'made', '9')");
$relay->ask("PREPARE TRANSACTION 'emit'");
is(answer($node, q{SELECT sum(a.acked) FROM fencing.outbox_consumers c, fencing_outbox_ack(c.consumer, token(c.consumer), ARRAY(SELECT id FROM fencing_outbox_read(c.consumer, token(c.consumer)))) a}),
	7, 'all that is there is acknowledged');
$node->safe_psql('postgres', q{SELECT fencing_outbox_emit('thing', '10', 'made', '10')});
is(answer($node, q{SELECT fencing_outbox_subscribe('c', true, 2)}), '', 'a division does not wait for an event');
$node->safe_psql('postgres', q{COMMIT PREPARED 'emit'});
is(answer($node, 'SELECT pending()'), '9 10', 'it is not passed over');
is(answer($node, q{SELECT string_agg(r.payload::text, ' ' ORDER BY r.payload) FROM fencing.outbox_consumers c, fencing_outbox_read(c.consumer, token(c.consumer)) r}),
	'9 10', 'and delivered by one part');

# a read that is prepared has counted, and nobody waits for it
is($relay->ask(q{BEGIN;
SELECT attempts FROM fencing_outbox_read(part(9), token(part(9))) WHERE id = id(9)}), '2', 'a read');
$relay->ask("PREPARE TRANSACTION 'read'");
is(answer($node, q{SELECT attempts FROM fencing_outbox_read(part(9), token(part(9))) WHERE id = id(9)}), '2', 'another one is not counted');
is(answer($node, q{SELECT outcome FROM fencing_outbox_ack(part(10), token(part(10)), ARRAY[id(10)])}), 'committed', 'nor does an acknowledgement wait');
$node->safe_psql('postgres', q{COMMIT PREPARED 'read'});
is(answer($node, q{SELECT attempts FROM fencing_outbox_read(part(9), token(part(9))) WHERE id = id(9)}), '3', 'what was prepared counts');

# a job that is old, but for a commit that is open or prepared
foreach my $how ('open', 'prepared')
{
	my $t = answer($node, "SELECT token FROM fencing_acquire('$how', $owner, '1 day')");
	is($relay->ask("BEGIN;\nSELECT outcome FROM fencing_commit('$how', $t, '1')"), 'committed', "$how: a commit");
	$relay->ask("PREPARE TRANSACTION 'commit'") if $how eq 'prepared';
	$node->safe_psql('postgres', "UPDATE fencing.leases SET lease_until = '-infinity' WHERE job_key = '$how'");
	is(answer($node, q{SELECT max(purged) FROM generate_series(1, 3), fencing_purge('jobs', '1 microsecond')}), '0', "$how: the job stays");
	$how eq 'prepared' ? $node->safe_psql('postgres', q{COMMIT PREPARED 'commit'}) : $relay->ask('COMMIT');
	is(answer($node, "SELECT outcome FROM fencing_commit('$how', $t, '1', 'SELECT 1')"), 'replayed', "$how: and its receipt replays");
	is(answer($node, q{SELECT max(purged) FROM generate_series(1, 3), fencing_purge('jobs', '1 hour')}), '0', "$how: a young one");
	is(answer($node, q{SELECT max(purged) FROM generate_series(1, 3), fencing_purge('jobs', '1 microsecond')}), '1', "$how: then it goes");
	is(answer($node, "SELECT outcome FROM fencing_commit('$how', $t, '1', 'SELECT 1')"), 'pruned', "$how: and says so");
}

$_->close foreach $relay, $other;
$node->stop;
done_testing();
