# Queries of the extension itself, by their plans: the settings of the caller,
# and JIT, do not reach them, and they reach nothing of the caller's.  (That they
# use their indexes, and that settings come back, is in sql/own_queries.sql.)

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use FencingTest;
use Test::More;

my $node = new_node('main');

# Calls with settings that are bad for everything; the plans come as messages.
my ($ret, $out, $err) = $node->psql('postgres', <<'EOT');
SELECT token AS t FROM fencing_acquire('relay', '00000000-0000-4000-8000-000000000001', '1 hour') \gset
SELECT fencing_outbox_subscribe('relay', true);
SELECT count(*) FROM generate_series(1, 500) i, LATERAL fencing_outbox_emit('order', i::text, 'new', '{}');
LOAD 'auto_explain';
SET auto_explain.log_min_duration = 0;
SET auto_explain.log_nested_statements = on;
SET auto_explain.log_settings = on;
SET auto_explain.log_level = notice;
SET enable_indexscan = off;
SET enable_bitmapscan = off;
SET enable_hashjoin = off;
SET random_page_cost = 1000;
SET work_mem = '64kB';
SET plan_cache_mode = force_generic_plan;
SET parallel_setup_cost = 0;
SET min_parallel_table_scan_size = 0;
SET jit = on;
SET jit_above_cost = 0;
SELECT fencing_outbox_emit('order', 'x', 'new', '{}');
SELECT count(*) FROM fencing_outbox_read('relay', :t, 100);
SELECT outcome FROM fencing_outbox_ack('relay', :t, ARRAY(SELECT id FROM fencing_outbox_read('relay', :t, 100)));
SELECT fencing_revoke('relay', 'test');
SELECT * FROM fencing_purge('events', '1 day');
SELECT * FROM fencing_purge('records', '1 day');
SELECT * FROM fencing_purge('jobs', '1 day');
SELECT outcome FROM fencing_acquire('writer', '00000000-0000-4000-8000-000000000001', '1 hour');
SELECT outcome FROM fencing_commit('writer', 1, '{}', 'INSERT INTO business SELECT $1, max(i), $2 FROM generate_series(1, 10) i RETURNING *');
SELECT pg_jit_available();
EOT
is($ret, 0, 'all calls were answered') or diag $err;

my @plans = grep { /Query Text:/ } split /NOTICE: +duration:/, $err;
my @own = grep { /Query Text: .*\bfencing\.\w|Query Text: .*pg_prepared_xacts/ } @plans;
my @callers = grep { /Query Text: .*(?:SELECT fencing_|FROM fencing_|INTO business)/ } @plans;
cmp_ok(scalar @own, '>=', 6, 'plans of the extension are there');
cmp_ok(scalar @callers, '>=', 6, 'and plans of the caller');

is(scalar(grep { /^\s*JIT:/m } @own), 0, 'no JIT in those of the extension');
is(scalar(grep { /^\s*Settings:.*(?:enable_\w+ = 'off'|random_page_cost|work_mem|force_generic_plan)/m } @own), 0,
	'none was made with the settings of the caller');
is(scalar(grep { /Gather/ } @own), 0, 'none is parallel');
is(scalar(grep { !/^\s*Settings:.*enable_indexscan = 'off'.*work_mem = '64kB'/m } @callers), 0,
	'all of the caller were made with those');

SKIP:
{
	skip 'this server has no JIT', 1 if $out !~ /^t$/m;
	cmp_ok(scalar(grep { /^\s*JIT:/m } @callers), '>', 0, 'JIT for those of the caller');
}

$node->stop;
done_testing();
