# The official JSON-Schema-Test-Suite (draft 2020-12), as far as its schemas keep to
# the subset of request schemas.  It is read where it is and not part of this
# project; without it there is nothing to do.
#
# Each schema becomes the one property "x" of an object.  A request that the
# suite calls valid must be accepted, and any other refused.  Where the two part
# on purpose, the case stands below by name, with the reason: a difference that is
# not there, or one there that is none any more, is a failure.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/digest";
use lib "$FindBin::RealBin/../lib/perl";
use FencingTest;
use PostgreSQL::Test::Utils;
use RandomJson;
use Test::More;

my $suite = ($ENV{FENCING_VECTORS} || "$FindBin::RealBin/../../../shared/vectors") . '/jsonschema';
plan skip_all => "no JSON-Schema-Test-Suite in $suite (set FENCING_VECTORS)" if !-d $suite;

my $node = new_node('main', '');
my $dir = PostgreSQL::Test::Utils::tempdir();
my @lines;
foreach my $file (sort glob("$suite/*.json"), glob("$suite/optional/*.json"))
{
	my $text = slurp_file($file);
	utf8::decode($text) or die "$file is not UTF-8";

	# jsonb has no such character: another one that has no place in a date
	$text =~ s/\\u0000/\\u0001/g;
	push @lines, RandomJson::copy_line($file =~ s/^\Q$suite\E\/(.*)\.json$/$1/r, $text);
}
RandomJson::write_file("$dir/suite.copy", @lines);
$node->safe_psql('postgres', 'CREATE TABLE files (file text, content jsonb)');
$node->safe_psql('postgres', "\\copy files FROM '$dir/suite.copy' WITH (ENCODING 'UTF8')");
$node->safe_psql('postgres', q{
	CREATE FUNCTION yes(tenant_id text, operation text, request jsonb, auth jsonb) RETURNS boolean LANGUAGE sql AS 'SELECT true';
	SELECT fencing_define_operation('suite', 'yes(text,text,jsonb,jsonb)');
	CREATE TABLE groups (version int GENERATED ALWAYS AS IDENTITY, file text, name text, schema jsonb, tests jsonb, refused text);
	INSERT INTO groups (file, name, schema, tests) SELECT file, g ->> 'description', g -> 'schema', g -> 'tests' FROM files, jsonb_array_elements(content) g;
	CREATE FUNCTION told(command text) RETURNS text LANGUAGE plpgsql AS $$
	BEGIN
		EXECUTE command;
		RETURN NULL;
	EXCEPTION WHEN OTHERS THEN
		RETURN SQLSTATE;
	END $$;
	UPDATE groups SET refused = told(format('SELECT fencing_define_request(''suite'', %s, %L)', version, format('{"type": "object", "properties": {"x": %s}}', schema)));
	CREATE VIEW cases AS SELECT file, name, t ->> 'description' AS test, (t ->> 'valid')::boolean AS valid,
		told(format('SELECT fencing_request_hash(''suite'', %s, %L)', version, format('{"x": %s}', t -> 'data'))) AS refused
	FROM groups, jsonb_array_elements(tests) t WHERE groups.refused IS NULL});

# Schemas that are refused at definition.
my %refused = (
	# they have another shape than a list of fields: an error says so
	'additionalProperties: additionalProperties being false does not allow other properties' => '0A000',
	'additionalProperties: non-ASCII pattern with additionalProperties' => '0A000',
	'additionalProperties: additionalProperties with schema' => '0A000',
	'additionalProperties: additionalProperties can exist by itself' => '0A000',
	'additionalProperties: additionalProperties does not look in applicators' => '0A000',
	'additionalProperties: additionalProperties with null valued instance properties' => '0A000',
	'additionalProperties: additionalProperties with propertyNames' => '0A000',
	'additionalProperties: dependentSchemas with additionalProperties' => '0A000',
	'items: items does not look in applicators, valid case' => '0A000',
	'items: prefixItems validation adjusts the starting index for items' => '0A000',
	'properties: properties, patternProperties, additionalProperties interaction' => '0A000',
	# or a place where nothing may stand: the schema "false"
	'items: items with boolean schema (false)' => '22023',
	'items: items and subitems' => '22023',
	'items: prefixItems with no additional items allowed' => '22023',
	'items: items with heterogeneous array' => '22023',
	'properties: properties with boolean schema' => '22023',
	# a default counts, so it must match its own schema
	'default: invalid type for default' => '22023',
	# what is required must be listed
	'required: required with escaped characters' => '22023',
	'required: required properties whose names are Javascript object property names' => '22023');

# Cases that we answer otherwise.
my %different = (
	# unlisted properties are refused, and not allowed by default
	'additionalProperties: additionalProperties are allowed by default: additional properties are allowed' => 'refused',
	'properties: object properties validation: doesn\'t invalidate other properties' => 'refused',
	'type: type: array or object: object is valid' => 'refused',
	'type: type: array, object or null: object is valid' => 'refused',
	# these formats are enforced, and not annotations by default
	'format: date format: invalid date string is only an annotation by default' => 'refused',
	'format: date-time format: invalid date-time string is only an annotation by default' => 'refused',
	'format: uuid format: invalid uuid string is only an annotation by default' => 'refused',
	# a timestamp has no leap seconds, and no more than six digits
	'optional/date-time: validation of date-time strings: a valid date-time with a leap second, UTC' => 'refused',
	'optional/date-time: validation of date-time strings: a valid date-time with a leap second, with minus offset' => 'refused',
	'optional/date-time: validation of date-time strings: a second fraction of fifteen nines is valid' => 'refused',
	# not in the subset: a NOTICE says that "maximum" is not enforced
	'default: the default keyword does not do anything if the property is missing: an explicit property value is checked against maximum (failing)' => 'accepted');

sub rows
{
	my ($query) = @_;
	return { map { split /=(?=[^=]*$)/ } split /\n/, answer($node, $query) };
}

is_deeply(rows(q{SELECT format('%s: %s=%s', file, name, refused) FROM groups WHERE refused IS NOT NULL}),
	\%refused, 'the schemas that are refused');
is_deeply(rows(q{SELECT format('%s: %s: %s=%s', file, name, test, CASE WHEN refused IS NULL THEN 'accepted' ELSE 'refused' END) FROM cases WHERE valid <> (refused IS NULL)}),
	\%different, 'the cases that are answered otherwise');
is(answer($node, q{SELECT count(*) FROM cases WHERE refused <> '22023'}), '0', 'a refusal is 22023');

# so many agree that the rest of the suite has been read
my ($groups, $cases) = split /\|/, answer($node, q{SELECT (SELECT count(*) FROM groups WHERE refused IS NULL), (SELECT count(*) FROM cases WHERE valid = (refused IS NULL))});
cmp_ok($groups, '>=', 47, 'schemas that are defined');
cmp_ok($cases, '>=', 385, 'cases that agree');

$node->stop;
done_testing();
