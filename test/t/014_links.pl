# Every link in README.md and docs/ leads to a file that is there and, with #, to a
# heading in it.

use strict;
use warnings;

use Cwd qw(realpath);
use File::Basename qw(basename dirname);
use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

my $root = realpath("$FindBin::RealBin/../..");
my %anchors;

# Without code, in which # is a comment and [ ] an array.
sub prose
{
	my ($file) = @_;
	return slurp_file($file) =~ s/^```.*?^```$//msgr;
}

# As GitHub makes them.
sub anchors_of
{
	my ($file) = @_;
	my %seen;

	return $anchors{$file} //= {
		map { $_ => 1 }
		map { my $n = $seen{$_}++; $n ? "$_-$n" : $_ }
		map { lc($_) =~ s/\[([^]]*)\]\([^)]*\)/$1/gr =~ s/[^\w\- ]//gr =~ s/ /-/gr } prose($file) =~ /^#+ +(.*?) *$/mg
	};
}

foreach my $file ("$root/README.md", glob("$root/docs/*.md"))
{
	my $name = $file =~ s{^\Q$root\E/}{}r;
	my $text = prose($file);
	my $links = 0;

	while ($text =~ /\]\(([^)\s]+)\)/g)
	{
		my $link = $1;
		next if $link =~ /^https?:/;
		my ($path, $anchor) = $link =~ /^([^#]*)(?:#(.*))?$/;
		my $to = $path eq '' ? $file : dirname($file) . "/$path";

		$links++;
		if (!-e $to)
		{
			fail("$name: $link: there is no such file");
		}
		elsif (defined $anchor)
		{
			ok(anchors_of(realpath($to))->{$anchor}, "$name: $link");
		}
	}
	note("$name: $links links");

	# A page with contents lists each of its sections.
	my @sections = map { lc($_) =~ s/[^\w\- ]//gr =~ s/ /-/gr } $text =~ /^## +(.*?) *$/mg;
	my @contents = $text =~ /^- \[[^]]*\]\(#([^)]*)\)/mg;
	is(join(' ', @contents), join(' ', grep { $_ ne 'contents' } @sections), "$name: its contents") if @contents;
}

done_testing();
