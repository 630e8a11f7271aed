# What the rules of tags say, followed by hand and without any short cut: from
# the events alone, in the order of their numbers.  Nothing is kept; each
# question is answered by going through all events.

package TagModel;

use strict;
use warnings;

# Each event: no, kind, owner, tag_id, subject, target, migration, event_id, name
sub new
{
	my ($class, @events) = @_;
	return bless { events => [ sort { $a->{no} <=> $b->{no} } @events ] }, $class;
}

# Events up to a number.
sub until
{
	my ($self, $number) = @_;
	return grep { $_->{no} <= $number } @{ $self->{events} };
}

# The edges in force as of a number: source => [target, number of the merge].
sub edges
{
	my ($self, $number) = @_;

	unless ($self->{edges}{$number})
	{
		my (%edges, %of);

		for my $e ($self->until($number))
		{
			if ($e->{kind} eq 'merge')
			{
				$edges{ $e->{owner} } = [ $e->{target}, $e->{no} ];
				$of{ $e->{event_id} } = $e->{owner};
			}
			delete $edges{ $of{ $e->{migration} } } if $e->{kind} eq 'undo' and $of{ $e->{migration} };
		}
		$self->{edges}{$number} = \%edges;
	}
	return $self->{edges}{$number};
}

# Where the edges lead that were made before a number.
sub reached
{
	my ($self, $tag, $number, $before) = @_;
	my $edges = $self->edges($number);

	while (my $edge = $edges->{$tag})
	{
		last if defined $before and $edge->[1] >= $before;
		$tag = $edge->[0];
	}
	return $tag;
}

sub tags
{
	my ($self, $number) = @_;
	return map { $_->{owner} } grep { $_->{kind} eq 'create' } $self->until($number);
}

sub roots
{
	my ($self, $number) = @_;
	return grep { $self->reached($_, $number) eq $_ } $self->tags($number);
}

# The current name of a tag as of a number.
sub name
{
	my ($self, $tag, $number) = @_;
	my @names;

	for my $e ($self->until($number))
	{
		push @names, [ $e->{event_id}, $e->{name} ] if $e->{owner} eq $tag and $e->{kind} =~ /^(create|rename)$/;
		@names = grep { $_->[0] ne $e->{migration} } @names if $e->{kind} eq 'undo';
	}
	return $names[-1][1];
}

# The subjects of a root.
sub subjects
{
	my ($self, $root, $number) = @_;
	my (%has, %subjects);

	for my $e ($self->until($number))
	{
		$has{ $e->{subject} }{ $e->{owner} } = 1 if $e->{kind} eq 'assign';
		next unless $e->{kind} eq 'unassign';
		for my $tag (keys %{ $has{ $e->{subject} } })
		{
			delete $has{ $e->{subject} }{$tag}
			  if $self->reached($tag, $e->{no}) eq $self->reached($e->{owner}, $e->{no});
		}
	}
	for my $subject (keys %has)
	{
		$subjects{$subject} = 1 for grep { $self->reached($_, $number) eq $root } keys %{ $has{$subject} };
	}
	return sort keys %subjects;
}

# The decisions of a subscriber: [tag, number, follows].
sub decisions
{
	my ($self, $subscriber, $number) = @_;
	my @decisions;

	for my $e (grep { $_->{kind} =~ /subscribe$/ and $_->{subject} eq $subscriber } $self->until($number))
	{
		my %at = ($e->{owner} => 1);

		if ($e->{kind} eq 'unsubscribe')
		{
			my $root = $self->reached($e->{owner}, $e->{no});

			$at{$root} = 1;
			$at{$_} = 1 for grep { $self->reached($_, $e->{no}) eq $root } map { $_->[0] } @decisions;
		}
		push @decisions, map { [ $_, $e->{no}, $e->{kind} eq 'subscribe' ] } keys %at;
	}
	return @decisions;
}

# undef: nothing is known; else whether the subscriber follows the tag.
sub value
{
	my ($self, $tag, $number, @decisions) = @_;
	my @here = sort { $a->[1] <=> $b->[1] }
	  grep { $self->reached($_->[0], $number, $_->[1]) eq $tag } @decisions;
	my $edges = $self->edges($number);
	my @carried;

	return $here[-1][2] if @here;
	@carried = grep { defined } map { $self->value($_, $number, @decisions) }
	  grep { $edges->{$_}[0] eq $tag } keys %$edges;
	return undef unless @carried;
	return !grep { !$_ } @carried;
}

# The subscribers of a root.
sub subscribers
{
	my ($self, $root, $number) = @_;
	my %all = map { $_->{subject} => 1 } grep { $_->{kind} =~ /subscribe$/ } $self->until($number);

	return sort grep { $self->value($root, $number, $self->decisions($_, $number)) } keys %all;
}

# fencing_tag_statistics() as of a number: lines.
sub statistics
{
	my ($self, $number, $prefix) = @_;

	return join "\n", map { ($prefix // '') . join '|', $_, $self->name($_, $number), scalar(my @s = $self->subjects($_, $number)),
		scalar(my @u = $self->subscribers($_, $number)) } sort $self->roots($number);
}

1;
