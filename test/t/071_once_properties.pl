# What a request schema promises, for thousands of random requests: another
# order of keys, another spelling of a number, another offset of a date-time,
# another case of a uuid, a default omitted or given and any field that is left
# out make no difference, so the retry replays; any change of a listed field does,
# so it conflicts.  The canonical texts are those that the rules give when they
# are followed by hand.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/digest", "$FindBin::RealBin/../lib/perl";
use FencingTest;
use POSIX qw(strftime);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use RandomJson;
use Test::More;

my $seed = $ENV{FENCING_SEED} // 638;
my $pairs = 5200;
note "seed $seed";
my $random = RandomJson->new($seed, max_digits => 25, max_exponent => 40);

#
# The schema, as a tree that makes values, spells them and writes itself down.
# A value is a tree of RandomJson, or ['time', seconds, microseconds],
# ['uuid', hex], ['day', days] and ['map', { name => value }].
#
my $line = node('object', fields => {
		sku => node('string', required => 1),
		qty => node('integer', default => [ 'num', '', '1', 1 ]),
		price => node('number'),
		when => node('date-time', nullable => 1),
		tag => node('any', ignore => 1) });
my $schema = node('object', extra => 1, fields => {
		id => node('uuid', required => 1),
		at => node('date-time'),
		day => node('date'),
		amount => node('number', required => 1),
		currency => node('string', default => [ 'str', 'EUR' ]),
		count => node('integer'),
		note => node('string', nullable => 1),
		flag => node('boolean', default => ['false']),
		nothing => node('string', nullable => 1, default => ['null']),
		anything => node('any'),
		trace => node('any', ignore => 1),
		exact => node('exact'),
		lines => node('array', items => $line, default => ['arr']),
		grid => node('array', items => node('array', items => node('integer'))),
		address => node('object', default => [ 'map', {} ], fields => {
				country => node('string', default => [ 'str', 'DE' ]),
				since => node('date-time', default => [ 'time', 0, 0 ]),
				street => node('string') }) });

sub node
{
	my ($type, %options) = @_;
	return { type => $type, %options };
}

sub schema_tree
{
	my ($node) = @_;
	my $type = $node->{type};
	my @members;

	if ($type eq 'object')
	{
		my %fields = %{ $node->{fields} };
		my @required = grep { $fields{$_}{required} } sort keys %fields;

		push @members, [ 'type', [ 'str', 'object' ] ], [ 'properties', [ 'obj', map { [ $_, schema_tree($fields{$_}) ] } sort keys %fields ] ];
		push @members, [ 'required', [ 'arr', map { [ 'str', $_ ] } @required ] ] if @required;
		push @members, [ 'additionalProperties', ['true'] ] if $node->{extra};
	}
	elsif ($type eq 'array')
	{
		push @members, [ 'type', [ 'str', 'array' ] ], [ 'items', schema_tree($node->{items}) ];
	}
	elsif ($type =~ /^(?:date-time|date|uuid|exact)$/)
	{
		push @members, [ 'type', [ 'str', 'string' ] ], [ 'format', [ 'str', $type eq 'exact' ? 'date-time' : $type ] ];
		push @members, [ 'x-fencing', [ 'str', 'exact' ] ] if $type eq 'exact';
	}
	elsif ($type ne 'any')
	{
		push @members, [ 'type', [ 'str', $type ] ];
	}
	push @members, [ 'nullable', ['true'] ] if $node->{nullable};
	push @members, [ 'x-fencing', [ 'str', 'ignore' ] ] if $node->{ignore};
	push @members, [ 'default', sent($node, $node->{default}, 1) ] if $node->{default};
	push @members, [ 'title', [ 'str', "a $type" ] ] if $random->below(3) == 0;
	return [ 'obj', @members ];
}

sub value
{
	my ($node) = @_;
	my $type = $node->{type};

	return ['null'] if $node->{nullable} && $random->below(4) == 0;
	return [ $random->one_of('true', 'false') ] if $type eq 'boolean';
	return [ 'str', $random->one_of('', 'EUR', 'DE', '1', 'null', $random->string) ] if $type eq 'string';
	return [ 'str', $random->one_of('2026-01-01T00:00:00Z', '2026-01-01T01:00:00+01:00', 'tomorrow') ] if $type eq 'exact';
	return $random->below(3) ? $random->leaf : $random->document if $type eq 'any';
	return $random->number if $type eq 'number';
	return [ 'num', $random->one_of('', '-'), 1 + $random->below(9) . join('', map { $random->below(10) } 1 .. $random->below(22)) . '7', 40 ] if $type eq 'integer' && $random->below(4) == 0;
	return integer($random->below(2000) - 1000) if $type eq 'integer';
	return [ 'uuid', join '', map { sprintf '%04x', $random->below(65536) } 1 .. 8 ] if $type eq 'uuid';
	return [ 'day', $random->below(60000) - 20000 ] if $type eq 'date';
	return [ 'time', $random->below(2000000000) - 500000000 + 86400 * $random->below(20000), $random->one_of(0, 0, 500000, 120000, $random->below(1000000)) ] if $type eq 'date-time';
	return [ 'arr', map { value($node->{items}) } 1 .. $random->below(4) ] if $type eq 'array';

	my %fields;
	foreach my $name (sort keys %{ $node->{fields} })
	{
		my $field = $node->{fields}{$name};

		next if $field->{ignore};
		if ($field->{required} || $random->below(2))
		{
			$fields{$name} = value($field);
		}
		elsif ($field->{default})
		{
			$fields{$name} = $field->{default};
		}
	}
	return [ 'map', \%fields ];
}

sub integer
{
	my ($n) = @_;
	return ['num', '', '', 0] if $n == 0;
	my ($sign, $digits) = "$n" =~ /^(-?)(\d+)$/;
	my $places = length $digits;
	$digits =~ s/0+$//;
	return [ 'num', $sign, $digits, $places ];
}

sub time_text
{
	my ($seconds, $micros, $offset) = @_;
	my $text = strftime('%Y-%m-%dT%H:%M:%S', gmtime($seconds + 60 * $offset));

	$text .= sprintf('.%06d', $micros) =~ s/0+$//r if $micros;
	return $text;
}

# The value as a client may send it.  For a default in the schema: as little of
# it as there is.
sub sent
{
	my ($node, $value, $plain) = @_;
	my ($kind, @rest) = @$value;

	if ($kind eq 'time')
	{
		my $offset = $random->one_of(0, 0, 60, -300, 345, 1439, -1439, $random->below(1440));
		my $text = time_text(@rest, $offset);

		if ($random->below(2))
		{
			my $fill = $text =~ /\.(\d+)/ ? 6 - length $1 : 6;
			my $zeros = '0' x $random->below($fill + 1);
			$text .= ($text =~ /\./ ? '' : $zeros ne '' ? '.' : '') . $zeros;
		}
		$text .= $offset == 0 && $random->below(2) ? $random->one_of('Z', 'z') : sprintf('%s%02d:%02d', $offset < 0 ? '-' : $offset > 0 ? '+' : $random->one_of('+', '-'), int(abs($offset) / 60), abs($offset) % 60);
		$text =~ s/T/t/ if $random->below(4) == 0;
		return [ 'str', $text ];
	}
	if ($kind eq 'uuid')
	{
		my $text = $rest[0] =~ s/^(.{8})(.{4})(.{4})(.{4})(.{12})$/$1-$2-$3-$4-$5/r;
		return [ 'str', join '', map { $random->below(2) ? uc : $_ } split //, $text ];
	}
	return [ 'str', strftime('%Y-%m-%d', gmtime($rest[0] * 86400)) ] if $kind eq 'day';
	return [ 'arr', map { sent($node->{items}, $_) } @rest ] if $kind eq 'arr' && $node->{type} eq 'array';
	return $value if $kind ne 'map';

	my ($fields) = @rest;
	my @members;
	foreach my $name (sort keys %{ $node->{fields} })
	{
		my $field = $node->{fields}{$name};
		my $is_default = $field->{default} && defined $fields->{$name}
		  && RandomJson::canonical(projected($field, $field->{default})) eq RandomJson::canonical(projected($field, $fields->{$name}));

		if ($field->{ignore})
		{
			push @members, [ $name, $random->leaf ] if !$plain && $random->below(3) == 0;
			next;
		}
		next if !defined $fields->{$name} || $is_default && ($plain || $random->below(2));
		push @members, [ $name, sent($field, $fields->{$name}) ];
	}
	push @members, [ 'x' . $random->below(5), $random->leaf ] if $node->{extra} && !$plain && $random->below(3) == 0;
	return [ 'obj', @members ];
}

# What is left of it, by the rules.
sub projected
{
	my ($node, $value) = @_;
	my ($kind, @rest) = @$value;

	return [ 'str', time_text(@rest, 0) . 'Z' ] if $kind eq 'time';
	return [ 'str', $rest[0] =~ s/^(.{8})(.{4})(.{4})(.{4})(.{12})$/$1-$2-$3-$4-$5/r ] if $kind eq 'uuid';
	return [ 'str', strftime('%Y-%m-%d', gmtime($rest[0] * 86400)) ] if $kind eq 'day';
	return [ 'arr', map { projected($node->{items}, $_) } @rest ] if $kind eq 'arr' && $node->{type} eq 'array';
	return $value if $kind ne 'map';

	my %fields = %{ $rest[0] };
	$fields{$_} //= $node->{fields}{$_}{default} foreach grep { $node->{fields}{$_}{default} } keys %{ $node->{fields} };
	return [ 'obj', map { [ $_, projected($node->{fields}{$_}, $fields{$_}) ] } sort keys %fields ];
}

# Another value that differs in one place.
sub changed
{
	my ($node, $value) = @_;
	my ($kind, @rest) = @$value;

	return [ 'time', $rest[0] + $random->one_of(1, -1, 60, 3600, 0), ($rest[1] + $random->one_of(1, 100000)) % 1000000 ] if $kind eq 'time';
	return [ 'day', $rest[0] + $random->one_of(1, -1, 365) ] if $kind eq 'day';
	return $random->near_miss($value) if $node->{type} eq 'any';
	if ($node->{type} eq 'number')
	{
		my $near = $random->near_miss($value);
		return $near->[0] eq 'num' ? $near : $random->number;
	}
	if ($kind eq 'arr' && $node->{type} eq 'array')
	{
		my $n = $random->below(scalar @rest + 1);
		return [ 'arr', @rest, value($node->{items}) ] if $n == @rest;
		my $how = $random->below(3);
		return [ 'arr', reverse @rest ] if $how == 0;
		return [ 'arr', map { $rest[$_] } grep { $_ != $n } 0 .. $#rest ] if $how == 1;
		return [ 'arr', map { $_ == $n ? changed($node->{items}, $rest[$_]) : $rest[$_] } 0 .. $#rest ];
	}
	if ($kind eq 'map')
	{
		my %fields = %{ $rest[0] };
		my $name = $random->one_of(grep { !$node->{fields}{$_}{ignore} } sort keys %{ $node->{fields} });
		my $field = $node->{fields}{$name};

		if (!defined $fields{$name})
		{
			$fields{$name} = value($field);
		}
		elsif (!$field->{required} && !$field->{default} && $random->below(4) == 0)
		{
			delete $fields{$name};
		}
		else
		{
			$fields{$name} = changed($field, $fields{$name});
		}
		return [ 'map', \%fields ];
	}
	return value($node);
}

my $schema_text = $random->spell(schema_tree($schema));
my (@lines, %count);
for my $n (1 .. $pairs)
{
	my $equal = $n % 2;
	my $one = value($schema);
	my $canonical = RandomJson::canonical(projected($schema, $one));
	my $two = $one;
	my $other = $canonical;

	until ($equal || $other ne $canonical)
	{
		$two = changed($schema, $one);
		$other = RandomJson::canonical(projected($schema, $two));
	}
	my @sent = map { sent($schema, $_) } $one, $two;
	my @text = map { $random->spell($_) } @sent;

	$count{respelled}++ if $equal && RandomJson::canonical($sent[0]) ne RandomJson::canonical($sent[1]);
	$count{times}++ if $equal && "@text" =~ /[0-9][-+][0-9]{2}:[0-9]{2}"/;
	push @lines, RandomJson::copy_line($n, $equal ? 't' : 'f', @text, $canonical, $other);
}
cmp_ok($count{respelled}, '>', 0.8 * $pairs / 2, 'nearly all equal pairs differ as documents');
cmp_ok($count{times}, '>', 900, 'many have a date-time with an offset');

my $node = new_node('main', "fsync = off\nlog_statement = none\n");
$node->safe_psql('postgres', q{
	CREATE TABLE pairs (n int PRIMARY KEY, equal boolean, a jsonb, b jsonb, canonical_a text, canonical_b text);
	CREATE TABLE told (n int, call text, outcome fencing_outcome, result jsonb);
	CREATE TABLE written (n int, request jsonb);
	CREATE FUNCTION yes(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS boolean LANGUAGE sql STABLE AS 'SELECT true';
	SELECT fencing_define_operation('op', 'yes(text,text,jsonb,jsonb)')});
my $base = PostgreSQL::Test::Utils::tempdir();
RandomJson::write_file("$base/pairs.copy", @lines);
RandomJson::write_file("$base/schema.copy", RandomJson::copy_line($schema_text));
$node->safe_psql('postgres', qq{CREATE TABLE schema (schema jsonb);
\\copy schema FROM '$base/schema.copy' WITH (ENCODING 'UTF8')
\\copy pairs FROM '$base/pairs.copy' WITH (ENCODING 'UTF8')
SELECT fencing_define_request('op', 1, schema) FROM schema});

# Canonical texts and hashes.
my $judged = q{
	WITH judged AS MATERIALIZED (
		SELECT *, fencing_request_canonical('op', 1, a) = canonical_a AND fencing_request_canonical('op', 1, b) = canonical_b AS by_the_rules,
			(fencing_request_hash('op', 1, a) = fencing_request_hash('op', 1, b)) = equal AS hash,
			fencing_request_hash('op', 1, a) = sha256(convert_to(canonical_a, 'UTF8')) AS hash_of_text
		FROM pairs)};
is( $node->safe_psql('postgres', "$judged SELECT count(*), count(*) FILTER (WHERE equal), count(*) FILTER (WHERE by_the_rules IS NOT TRUE),
		count(*) FILTER (WHERE hash IS NOT TRUE), count(*) FILTER (WHERE hash_of_text IS NOT TRUE) FROM judged"),
	join('|', $pairs, $pairs / 2, 0, 0, 0),
	'pairs, equal ones; none where text, hash or hash of the text are not as the rules say');
is( $node->safe_psql('postgres', "$judged SELECT n, equal, a, b, fencing_request_canonical('op', 1, a), canonical_a, fencing_request_canonical('op', 1, b), canonical_b
		FROM judged WHERE NOT (by_the_rules AND hash AND hash_of_text) ORDER BY length(a::text) LIMIT 3"),
	'', 'no counter-example');

# They do not depend on the session.
my $all = q{SELECT md5(string_agg(public.fencing_request_canonical('op', 1, a) || encode(public.fencing_request_hash('op', 1, b), 'hex'), ',' ORDER BY n)) FROM public.pairs};
my $before = $node->safe_psql('postgres', $all);
foreach my $settings (
	q{SET TimeZone = 'Asia/Kolkata'; SET DateStyle = 'SQL, DMY'; SET extra_float_digits = -15},
	q{SET TimeZone = 'America/St_Johns'; SET DateStyle = 'German'; SET IntervalStyle = 'iso_8601'; SET extra_float_digits = 3},
	q{SET search_path = ''; SET bytea_output = 'escape'; SET TimeZone = 'Pacific/Apia'},
	q{SET search_path = pg_temp, public, pg_catalog; SET standard_conforming_strings = off; SET DateStyle = 'Postgres, MDY'})
{
	is($node->safe_psql('postgres', "$settings;\n$all"), $before, "all the same with $settings");
}

# The calls themselves, a few hundred in each transaction.
$node->safe_psql('postgres', q{
	CREATE PROCEDURE call_all(which text) LANGUAGE plpgsql AS $$
	DECLARE
		p pairs;
	BEGIN
		FOR p IN SELECT * FROM pairs ORDER BY n LOOP
			INSERT INTO told SELECT p.n, which, outcome, result
			FROM fencing_once('t', 'op', p.n::text, CASE which WHEN 'first' THEN p.a ELSE p.b END, 'INSERT INTO written VALUES ($3::int, $4) RETURNING request');
			IF p.n % 200 = 0 THEN
				COMMIT;
			END IF;
		END LOOP;
	END $$;
	CALL call_all('first');
	CALL call_all('retry')});
is($node->safe_psql('postgres', q{SELECT call, equal, outcome, count(*) FROM told JOIN pairs USING (n) GROUP BY 1, 2, 3 ORDER BY 1, 2, 3}),
	join("\n", "first|f|committed|" . $pairs / 2, "first|t|committed|" . $pairs / 2, "retry|f|conflict|" . $pairs / 2, "retry|t|replayed|" . $pairs / 2),
	'first calls are committed; equal ones replay, changed ones conflict');
is($node->safe_psql('postgres', q{SELECT count(*), count(DISTINCT n) FROM written}), "$pairs|$pairs", 'one row per key');
is($node->safe_psql('postgres', q{SELECT count(*) FROM told t JOIN pairs p USING (n) WHERE result IS DISTINCT FROM CASE WHEN call = 'first' OR equal THEN p.a END}), '0', 'a replay gives the first result, a conflict none');
is($node->safe_psql('postgres', q{SELECT count(*) FROM fencing.records r JOIN pairs p ON r.key = p.n::text WHERE r.hash <> sha256(convert_to(p.canonical_a, 'UTF8')) OR r.hash_version <> 1 OR r.digest_version <> 1}), '0', 'the records have kept the hashes of the first calls');

# Among each other: as many hashes as canonical texts.
is($node->safe_psql('postgres', q{SELECT count(DISTINCT c) = count(DISTINCT fencing_request_hash('op', 1, r)) FROM (SELECT a, canonical_a FROM pairs UNION ALL SELECT b, canonical_b FROM pairs) d (r, c)}), 't', 'as many hashes as requests');

$node->stop;
done_testing();
