# Traps of psql in scripts.  $1 is a job whose token 1 is current.
job=$1
try()
{
	printf '%s: ' "$1"
	shift
	"$@" 2>&1 | sed -n 's/^ERROR:  *//; 1p'
}

try 'variables in -c' psql -XAtq -v job="$job" -c "SELECT outcome FROM fencing_commit(:'job', 1, '{}', 'SELECT 1 AS a', 'c')"
try 'variables in standard input' psql -XAtq -v job="$job" <<<"SELECT outcome FROM fencing_commit(:'job', 1, '{}', 'SELECT 1 AS a', 'stdin')"

psql -XAtq <<<'SELECT nothing(); SELECT 1' >/dev/null 2>&1
echo "exit code after an error: $?"
psql -XAtq -v ON_ERROR_STOP=1 <<<'SELECT nothing(); SELECT 1' >/dev/null 2>&1
echo "exit code with ON_ERROR_STOP: $?"
psql -XAtq -v ON_ERROR_STOP=1 -h /nowhere -c 'SELECT 1' >/dev/null 2>&1
echo "exit code without a connection: $?"

set -- 'first argument'
echo "dollars in double quotes: $(echo "SELECT \$3" "| SELECT $3|" )"
write="SELECT \$3 ->> 'a' AS a"
try 'statement by -v' psql -XAtq -v job="$job" -v statement="$write" -v payload='{"a": "it'\''s 100 % :job"}' \
	<<<"SELECT outcome, result FROM fencing_commit(:'job', 1, :'payload', :'statement', 'v')"
