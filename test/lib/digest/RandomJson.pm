# Random documents for the tests of the canonical form.
#
# A document is made as a tree of values, not as text.  That makes three things
# possible that text does not: to spell one document in many ways, to change
# one place of it and know that the value has changed, and to write down its
# canonical text without asking the extension.
#
# The generator is a small one of its own: the same seed gives the same
# documents everywhere, whatever else uses rand().
#
# Values are ['null'], ['true'], ['false'], ['str', characters],
# ['num', sign, digits, n] for sign 0.digits * 10**n (zero has no digits),
# ['arr', value...] and ['obj', [key, value]...].

package RandomJson;

use strict;
use warnings;

# options: max_digits and max_exponent of made-up numbers, and numbers => [...],
# texts of numbers to be used beside those
sub new
{
	my ($class, $seed, %options) = @_;
	my $self = {
		state => $seed,
		max_digits => 40,
		max_exponent => 2000,
		%options
	};
	$self->{pool} = [ map { parse_number($_) } @{ $options{numbers} || [] } ];
	bless $self, $class;
	$self->below(2) for 1 .. 20;    # a small seed needs some turns
	return $self;
}

# an integer from 0 to $n - 1 (xorshift, 32 bits)
sub below
{
	my ($self, $n) = @_;
	my $s = $self->{state};
	$s ^= ($s << 13) & 0xFFFFFFFF;
	$s ^= $s >> 17;
	$s ^= ($s << 5) & 0xFFFFFFFF;
	$self->{state} = $s;
	return $s % $n;
}

sub one_of
{
	my ($self, @choices) = @_;
	return $choices[ $self->below(scalar @choices) ];
}

sub shuffle
{
	my ($self, @list) = @_;
	for my $i (reverse 1 .. $#list)
	{
		my $j = $self->below($i + 1);
		@list[ $i, $j ] = @list[ $j, $i ];
	}
	return @list;
}

#
# Making documents
#

sub document
{
	my ($self) = @_;
	my $kind = $self->below(10);
	return $self->leaf if $kind == 0;
	return $self->container($kind < 7 ? 'obj' : 'arr', 0);
}

sub value
{
	my ($self, $depth) = @_;
	return $self->leaf if $depth > 5 || $self->below(10) < 7;
	return $self->container($self->one_of('obj', 'arr'), $depth);
}

sub leaf
{
	my ($self) = @_;
	my $kind = $self->below(10);
	return $self->number if $kind < 5;
	return [ 'str', $self->string ] if $kind < 8;
	return [ $self->one_of('null', 'true', 'false') ];
}

sub container
{
	my ($self, $kind, $depth) = @_;
	my $size = $self->below($depth == 0 ? 7 : 4);
	return [ 'arr', map { $self->value($depth + 1) } 1 .. $size ]
	  if $kind eq 'arr';
	my %seen;
	return [
		'obj',
		map { [ $_, $self->value($depth + 1) ] }
		  grep { !$seen{$_}++ }
		  map { $self->key } 1 .. $size
	];
}

# Keys are short and of few letters, so that many share a prefix, and of every
# region where the orders by length, by UTF-8 and by UTF-16 disagree.
sub key
{
	my ($self) = @_;
	return $self->string if $self->below(4) == 0;
	my @letters = (
		'a', 'b', 'Z', "\x{e9}", "\x{d7ff}", "\x{e000}",
		"\x{fb33}", "\x{fffd}", "\x{ffff}", "\x{10000}", "\x{1f602}",
		"\x{10ffff}");
	return join('', map { $self->one_of(@letters) } 1 .. $self->below(4));
}

sub string
{
	my ($self) = @_;
	my $length = $self->below(20) == 0 ? $self->below(80) : $self->below(7);
	return join('', map { $self->character } 1 .. $length);
}

sub character
{
	my ($self) = @_;
	my $kind = $self->below(12);
	return chr(32 + $self->below(95)) if $kind < 4;
	return chr(1 + $self->below(31)) if $kind == 4;
	return $self->one_of('"', '\\', '/', "\x7f", "\n") if $kind == 5;
	return chr(0x80 + $self->below(0x780)) if $kind == 6;
	return chr(0x800 + $self->below(0xd800 - 0x800)) if $kind == 7;
	return chr(0xe000 + $self->below(0x2000)) if $kind == 8;
	return chr(0x10000 + $self->below(0x100000)) if $kind == 9;
	return $self->one_of("\x{2028}", "\x{2029}", "\x{feff}", "\x{fffe}",
		"\x{ffff}", "\x{d7ff}", "\x{10000}", "\x{10ffff}")
	  if $kind == 10;
	return $self->one_of("\x{e9}", "e\x{301}", "\x{c5}", "A\x{30a}");
}

sub number
{
	my ($self) = @_;
	my $kind = $self->below(10);

	if ($kind < 3 && @{ $self->{pool} })
	{
		return [ @{ $self->one_of(@{ $self->{pool} }) } ];
	}
	return [ 'num', '', '', 0 ] if $kind == 3;

	my $sign = $self->one_of('', '-');
	my $k = 1 + $self->below($kind < 7 ? 5 : $self->{max_digits});
	my $digits = join('', map { $self->one_of(0 .. 9, 0, 0, 9) } 1 .. $k);
	$digits =~ s/^0/1/;
	$digits =~ s/0$/5/;
	# mostly about the places where the notation changes
	my $range = $kind < 9 ? 25 : $self->{max_exponent};
	my $n = $self->below(2 * $range) - $range + 5;
	return [ 'num', $sign, $digits, $n ];
}

sub parse_number
{
	my ($text) = @_;
	$text =~ /^(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([-+]?[0-9]+))?$/
	  or die "not a number: $text";
	my ($sign, $whole, $fraction, $exponent) = ($1, $2, $3 // '', $4 // 0);
	my $digits = $whole . $fraction;
	my $n = length($whole) + $exponent;
	$n -= length($1) if $digits =~ s/^(0+)//;
	$digits =~ s/0+$//;
	return $digits eq '' ? [ 'num', '', '', 0 ] : [ 'num', $sign, $digits, $n ];
}

#
# Spelling one document in one of its many ways
#

sub spell
{
	my ($self, $value) = @_;
	my ($kind, @rest) = @$value;
	my $text;
	if ($kind eq 'num')
	{
		$text = $self->spell_number(@rest);
	}
	elsif ($kind eq 'str')
	{
		$text = $self->spell_string(@rest);
	}
	elsif ($kind eq 'arr')
	{
		$text = '[' . (@rest ? join(',', map { $self->spell($_) } @rest) : $self->space) . ']';
	}
	elsif ($kind eq 'obj')
	{
		my @members = map {
			$self->space . $self->spell_string($_->[0]) . $self->space . ':' . $self->spell($_->[1])
		} $self->shuffle(@rest);
		# of two members with one key, the last counts
		unshift @members, $self->spell_string($rest[0]->[0]) . ':' . $self->spell($self->leaf)
		  if @rest && $self->below(12) == 0;
		$text = '{' . (@members ? join(',', @members) : $self->space) . '}';
	}
	else
	{
		$text = $kind;
	}
	return $self->space . $text . $self->space;
}

sub space
{
	my ($self) = @_;
	return $self->below(6) == 0
	  ? join('', map { $self->one_of(' ', "\t", "\n", "\r") } 1 .. 1 + $self->below(2))
	  : '';
}

sub spell_number
{
	my ($self, $sign, $digits, $n) = @_;

	return $self->one_of('0', '-0', '0.0', '-0.000', '0e5', '-0E-7', '0.00e+3', '0E0')
	  if $digits eq '';

	# as many more zeros at the end as one likes
	$digits .= '0' x $self->below(6) if $self->below(2);
	# the point may stand anywhere if the exponent makes up for it
	my $point = $self->below(2) && abs($n) <= 40 ? $n : $self->below(length($digits) + 6) - 3;
	my $exponent = $n - $point;

	my $text;
	if ($point <= 0)
	{
		$text = '0.' . '0' x -$point . $digits;
	}
	elsif ($point >= length($digits))
	{
		$text = $digits . '0' x ($point - length($digits));
		$text .= '.' . '0' x (1 + $self->below(3)) if $self->below(4) == 0;
	}
	else
	{
		$text = substr($digits, 0, $point) . '.' . substr($digits, $point);
	}
	if ($exponent != 0 || $self->below(6) == 0)
	{
		$text .= $self->one_of('e', 'E')
		  . ($exponent < 0 ? '-' : $exponent == 0 ? $self->one_of('', '+', '-') : $self->one_of('', '+'))
		  . ($self->below(5) == 0 ? '0' : '')
		  . abs($exponent);
	}
	return $sign . $text;
}

my %short = ("\b" => '\b', "\t" => '\t', "\n" => '\n', "\f" => '\f', "\r" => '\r',
	'"' => '\"', '\\' => '\\\\', '/' => '\/');

sub spell_string
{
	my ($self, $string) = @_;
	my $escapes = $self->below(3);    # none but the needed, some, most
	my $text = '';
	foreach my $c (split //, $string)
	{
		my $must = ord($c) < 32 || $c eq '"' || $c eq '\\';
		if (!$must && ($escapes == 0 || $self->below(3) >= $escapes))
		{
			$text .= $c;
		}
		elsif (exists $short{$c} && $self->below(2))
		{
			$text .= $short{$c};
		}
		else
		{
			my $format = $self->one_of('\u%04x', '\u%04X');
			$text .= join('', map { sprintf($format, $_) } utf16($c));
		}
	}
	return qq{"$text"};
}

sub utf16
{
	my ($string) = @_;
	return map {
		$_ < 0x10000 ? $_ : (0xd800 + (($_ - 0x10000) >> 10), 0xdc00 + (($_ - 0x10000) & 0x3ff))
	} map { ord } split //, $string;
}

#
# The canonical text, by the letter of the rules
#

sub canonical
{
	my ($value) = @_;
	my ($kind, @rest) = @$value;
	return canonical_number(@rest) if $kind eq 'num';
	return canonical_string(@rest) if $kind eq 'str';
	return '[' . join(',', map { canonical($_) } @rest) . ']' if $kind eq 'arr';
	return '{'
	  . join(',',
		map { canonical_string($_->[0]) . ':' . canonical($_->[1]) }
		sort { pack('n*', utf16($a->[0])) cmp pack('n*', utf16($b->[0])) } @rest) . '}'
	  if $kind eq 'obj';
	return $kind;
}

sub canonical_number
{
	my ($sign, $digits, $n) = @_;
	my $k = length($digits);
	return '0' if $k == 0;
	return $sign . $digits . '0' x ($n - $k) if $k <= $n && $n <= 21;
	return $sign . substr($digits, 0, $n) . '.' . substr($digits, $n) if 0 < $n && $n <= 21;
	return $sign . '0.' . '0' x -$n . $digits if -6 < $n && $n <= 0;
	return
	    $sign
	  . substr($digits, 0, 1)
	  . ($k > 1 ? '.' . substr($digits, 1) : '') . 'e'
	  . ($n - 1 < 0 ? '-' : '+')
	  . abs($n - 1);
}

sub canonical_string
{
	my ($string) = @_;
	$string =~ s{(["\\\x01-\x1f])}{ $short{$1} // sprintf('\u%04x', ord($1)) }ge;
	return qq{"$string"};
}

#
# Near misses
#

# a copy of $document that differs from it in one place
sub near_miss
{
	my ($self, $document) = @_;
	my $before = canonical($document);
	while (1)
	{
		my $copy = copy($document);
		my @places = places($copy);
		my $place = $self->one_of(@places);
		@$place = @{ $self->change($place) };
		return $copy if canonical($copy) ne $before;
	}
}

sub copy
{
	my ($value) = @_;
	return ref $value ? [ map { copy($_) } @$value ] : $value;
}

sub places
{
	my ($value) = @_;
	my ($kind, @rest) = @$value;
	return ($value, map { places($_) } @rest) if $kind eq 'arr';
	return ($value, map { places($_->[1]) } @rest) if $kind eq 'obj';
	return $value;
}

sub change
{
	my ($self, $value) = @_;
	my ($kind, @rest) = @$value;
	my $how = $self->below(6);

	# at any place: another type that looks alike, or one more container
	return [ 'arr', [ @$value ] ] if $self->below(20) == 0;
	return [ 'str', canonical($value) ] if $kind !~ /^(str|arr|obj)$/ && $self->below(10) == 0;

	if ($kind eq 'num')
	{
		my ($sign, $digits, $n) = @rest;
		return [ 'num', $self->one_of('', '-'), '1', $self->one_of(-30, -6, 0, 1) ] if $digits eq '';
		return [ 'num', $sign ? '' : '-', $digits, $n ] if $how == 0;
		return [ 'num', $sign, $digits, $n + $self->one_of(-1, 1, 4, -4) ] if $how == 1;
		return [ 'num', $sign, $digits . '0' x $self->below(20) . '1', $n ] if $how == 2;
		# the last digit, one up or one down
		my $last = substr($digits, -1);
		return [ 'num', $sign, substr($digits, 0, -1) . ($last == 9 ? 8 : $last + 1), $n ];
	}
	if ($kind eq 'str')
	{
		return [ 'str', $self->change_string($rest[0]) ];
	}
	if ($kind eq 'arr')
	{
		return [ 'arr', $self->shuffle(@rest) ] if @rest > 1 && $how < 4;
		return [ 'arr', @rest[ 1 .. $#rest ] ] if @rest && $how == 4;
		return [ 'arr', @rest, $self->one_of([ 'null' ], [ 'arr' ], [ 'obj' ]) ];
	}
	if ($kind eq 'obj')
	{
		my %taken = map { $_->[0] => 1 } @rest;
		if (@rest && $how < 3)
		{
			my ($member, @others) = $self->shuffle(@rest);
			my $key = $self->change_string($member->[0]);
			return [ 'obj', @others, [ $key, $member->[1] ] ] if !$taken{$key};
		}
		if (@rest > 1 && $how == 3)
		{
			my ($one, $two, @others) = $self->shuffle(@rest);
			return [ 'obj', [ $one->[0], $two->[1] ], [ $two->[0], $one->[1] ], @others ];
		}
		return [ 'obj', @rest[ 1 .. $#rest ] ] if @rest && $how == 4;
		my $key = $self->key;
		# absent is not null
		return [ 'obj', @rest, [ $key, [ 'null' ] ] ] if !$taken{$key};
		return $value;
	}
	return [ $self->one_of('null', 'true', 'false') ];
}

sub change_string
{
	my ($self, $string) = @_;
	my $how = $self->below(6);
	return $string . $self->one_of(' ', "\x{e000}", "\x{10000}", 'a', '0', '"', '\\') if $how < 2 || $string eq '';
	my $at = $self->below(length $string);
	my $c = substr($string, $at, 1);
	my %looks_alike = (
		"\x{e9}" => "e\x{301}", "\x{c5}" => "A\x{30a}", "\x{fffd}" => "\x{1fffd}",
		"\x{e000}" => "\x{10000}", "\x{ffff}" => "\x{10ffff}", '\\' => '\\\\',
		"\n" => '\n', "\x{1f602}" => "\x{f602}");
	substr($string, $at, 1) =
	    $how == 2            ? ''
	  : $how == 3            ? lc($c) ne $c ? lc($c) : uc($c)
	  : $looks_alike{$c}     ? $looks_alike{$c}
	  : ord($c) == 1         ? chr(2)
	  : ord($c) == 0xe000    ? chr(0xe001)
	  :                        chr(ord($c) - 1);
	return $string;
}

#
# Files
#

# one line of COPY's text format, encoded
sub copy_line
{
	my @fields = @_;
	my %escape = ('\\' => '\\\\', "\t" => '\t', "\n" => '\n', "\r" => '\r');
	s/([\\\t\n\r])/$escape{$1}/g for @fields;
	my $line = join("\t", @fields) . "\n";
	utf8::encode($line);
	return $line;
}

sub write_file
{
	my ($file, @lines) = @_;
	open my $handle, '>:raw', $file or die "could not write $file: $!";
	print $handle @lines;
	close $handle or die "could not write $file: $!";
	return;
}

1;
