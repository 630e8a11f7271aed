# docs/reference.md has every function with its current signature and with who may
# call it, every setting with its default, and every view with its columns; and
# nothing that is not there any more.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use FencingTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $page = slurp_file("$FindBin::RealBin/../../docs/reference.md");
my $node = new_node('main');

my (%section, %signature, %row);
while ($page =~ /^### (\S+)\n(.*?)(?=^##|\z)/msg)
{
	my ($name, $text) = ($1, $2);
	ok(!$section{$name}, "$name is there once");
	$section{$name} = $text;
}
foreach my $name (keys %section)
{
	$signature{$name} = $1 =~ s/\s+/ /gr if $section{$name} =~ /^```\n\Q$name\E(\(.*?)\n```/ms;
}
$row{$1} = $2 while $page =~ /^\| `((?:fencing\.|fencing_)\w+)(\(.*?)` \|/mg;

# As people write it: no casts, and 30 seconds.
sub plain
{
	my ($text) = @_;
	return $text =~ s/'00:00:30'::interval/'30 seconds'/gr =~ s/::(?:text|interval|jsonb|bigint|name|integer)\b//gr
	  =~ s/timestamp with time zone/timestamptz/gr;
}

# The functions
my %is_function;
foreach my $line (split /\n/, $node->safe_psql('postgres', q{
SELECT CASE WHEN n.nspname = 'fencing' THEN 'fencing.' ELSE '' END || p.proname, pg_get_function_arguments(p.oid),
	-- the columns of a row of a named type
	coalesce((SELECT string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ', ' ORDER BY a.attnum)
		FROM pg_type t JOIN pg_attribute a ON a.attrelid = t.typrelid AND a.attnum > 0 WHERE t.oid = p.prorettype),
		pg_get_function_result(p.oid))
FROM pg_proc p
JOIN pg_depend d ON (d.classid, d.objid, d.deptype) = ('pg_proc'::regclass, p.oid, 'e')
JOIN pg_extension e ON (d.refclassid, d.refobjid) = ('pg_extension'::regclass, e.oid)
JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE extname = 'fencing' ORDER BY 1}))
{
	my ($name, $arguments, $result) = split /\|/, plain($line);
	my @all = split /, (?=OUT |\w+ \w)/, $arguments;
	my @out = map { s/^OUT //r } grep { /^OUT / } @all;
	my $set = $result =~ /^SETOF / ? 'SETOF ' : '';
	my $expected = sprintf '(%s) → %s', join(', ', grep { !/^OUT / } @all), @out ? $set . join(', ', @out) : $result;

	is($signature{$name} // $row{$name}, $expected, $name);
	$is_function{$name} = 1;
}
is_deeply([ grep { !$is_function{$_} } keys %signature, keys %row ], [], 'no function that is not there');

# Who may call them
my %access;
foreach my $kind ('client', 'relay', 'target', 'publisher', 'external', 'admin', 'cdc')
{
	$node->safe_psql('postgres', "CREATE ROLE may_$kind; SELECT fencing_grant('may_$kind', '$kind')");
	push @{ $access{$_} }, "`$kind`"
	  foreach split /\n/, $node->safe_psql('postgres', qq{
SELECT proname FROM pg_proc p WHERE pronamespace = 'public'::regnamespace AND proname LIKE 'fencing\\_%'
AND has_function_privilege('may_$kind', p.oid, 'EXECUTE')
AND NOT has_function_privilege('pg_read_all_settings', p.oid, 'EXECUTE')});
}
foreach my $name (sort keys %signature)
{
	my ($who) = $section{$name} =~ /Access:\s+(.*?)\.\n/s;
	is(join(', ', sort split /,\s+/, $who // ''), join(', ', sort @{ $access{$name} // ['everybody'] }), "who may call $name");
}

# The settings, of a session in which the library is there
my %is_setting;
foreach my $line (split /\n/, $node->safe_psql('postgres', q{
DO 'BEGIN PERFORM * FROM fencing_statement_cache(); END';
SELECT name, boot_val FROM pg_settings WHERE name LIKE 'fencing.%'}))
{
	my ($name, $default) = split /\|/, $line;
	like($section{$name} // '', qr/\b\Q$default\E\b.{0,20}by default/s, "$name is $default by default");
	$is_setting{$name} = 1;
}
ok(%is_setting, 'there are settings');

# The views, and the table that may be read
my %is_view;
foreach my $line (split /\n/, $node->safe_psql('postgres', q{
SELECT 'fencing.' || c.relname, string_agg('`' || a.attname || '` | ' || format_type(a.atttypid, a.atttypmod), ', ' ORDER BY a.attnum)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
WHERE c.relnamespace = 'fencing'::regnamespace AND has_table_privilege('pg_monitor', c.oid, 'SELECT')
GROUP BY c.relname}))
{
	my ($name, $columns) = split /\|/, plain($line), 2;
	my @columns = ($section{$name} // '') =~ /^\| (`\w+` \| [^|]*?) \|/mg;
	is(join(', ', @columns), $columns, "the columns of $name");
	$is_view{$name} = 1;
}
is_deeply([ grep { /^fencing\./ && !$is_setting{$_} && !$is_view{$_} } sort keys %section ], [],
	'no setting or view that is not there');

# The outcomes
my ($outcomes) = $page =~ /^## Outcomes\n(.*?)^## /ms;
is_deeply([ sort map { /`(\w+)`/g } $outcomes =~ /^\| (`[^|]*) \|/mg ],
	[ sort split /\n/, $node->safe_psql('postgres', 'SELECT unnest(enum_range(NULL::fencing_outcome))') ], 'the outcomes');

$node->stop;
done_testing();
