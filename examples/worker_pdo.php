<?php
// A worker with PDO.  It takes a job, computes, writes the result once, whatever
// happens to its connection, and is kept out when it is late.
//
//   PGHOST=... PGDATABASE=... PGUSER=app php examples/worker_pdo.php [JOB]

$job = $argv[1] ?? 'daily-report/2026-08-03';

// The business write.  It is passed as a value like all others, and sees the job as
// $1, the token as $2 and the payload as $3.  In single quotes, or a nowdoc as here:
// in double quotes PHP would replace $names.
const WRITE_REPORT = <<<'SQL'
    INSERT INTO report
    SELECT $1, ($3 ->> 'day')::date, ($3 ->> 'total')::numeric RETURNING total
    SQL;

// One per execution, not per host.  A UUID needs no dashes.
function new_owner(): string
{
    return bin2hex(random_bytes(16));
}

// A connection that is made anew when it is lost.
class Session
{
    private ?PDO $db = null;

    // Every call may be sent again until it is answered: the same owner gets the same
    // token, and the same content has its effect once.  ERRMODE_EXCEPTION is the
    // default since PHP 8; without it a lost connection is only a false.
    public function ask(string $sql, ...$values): array
    {
        for ($pause = 200_000; ; $pause *= 5) {
            try {
                // the rest from PGHOST, PGUSER, PGDATABASE ...
                $this->db ??= new PDO('pgsql:connect_timeout=5', null, null,
                    [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION, PDO::ATTR_DEFAULT_FETCH_MODE => PDO::FETCH_ASSOC]);
                $call = $this->db->prepare($sql);
                $call->execute($values);
                return $call->fetch();
            } catch (PDOException $error) {
                // PDO says HY000 or 08006 when the connection is gone; 57P: the server ends it
                if ($pause > 25_000_000 || !preg_match('/^(HY000|08|57P)/', $error->errorInfo[0] ?? 'HY000')) {
                    throw $error;
                }
                echo "connection lost\n";
                $this->db = null;
                usleep($pause);
            }
        }
    }

    public function commit(int $token, array $payload, string $step = ''): string
    {
        return $this->ask('SELECT outcome, result FROM fencing_commit(?, ?, ?, ?, ?)',
            $GLOBALS['job'], $token, json_encode($payload, JSON_THROW_ON_ERROR), WRITE_REPORT, $step)['outcome'];
    }
}

// On a session of its own, in a process of its own: at once, then every 10 seconds.
function heartbeat(string $owner, int $token, $stop): string
{
    $session = new Session();
    do {
        $outcome = $session->ask("SELECT outcome FROM fencing_renew(?, ?, ?, '30 seconds')", $GLOBALS['job'], $owner, $token)['outcome'];
        // lost: somebody else has the job; stop what has effects elsewhere
        $ready = [$stop];
        $none = null;
    } while ($outcome !== 'lost' && !stream_select($ready, $none, $none, 10));
    return $outcome;
}

$owner = new_owner();
if ($job === '--heartbeat') {
    [, , $job, $owner, $token] = $argv;
    exit(heartbeat($owner, (int) $token, STDIN) . "\n");
}

$session = new Session();
$lease = $session->ask("SELECT outcome, token FROM fencing_acquire(?, ?, '30 seconds')", $job, $owner);
echo "$lease[outcome] $lease[token]\n";
if ($lease['outcome'] === 'held') {
    exit(1); // somebody else is at it
}
$token = (int) $lease['token'];
$heart = proc_open([PHP_BINARY, __FILE__, '--heartbeat', $job, $owner, (string) $token], [['pipe', 'r'], ['pipe', 'w']], $pipes);

$payload = ['day' => '2026-08-03', 'total' => 16.5]; // nothing in it changes between attempts
echo $session->commit($token, $payload), "\n";
echo $session->commit($token, $payload), "\n"; // asked again: it is done already

fclose($pipes[0]);
echo stream_get_contents($pipes[1]);
proc_close($heart);
echo $session->ask('SELECT outcome FROM fencing_release(?, ?, ?)', $job, $owner, $token)['outcome'], "\n";

// Another worker takes over.  What the first one still wants to write is refused.
$other = new_owner();
$taken = $session->ask("SELECT outcome, token FROM fencing_acquire(?, ?, '30 seconds')", $job, $other);
echo "$taken[outcome] $taken[token]\n";
echo $session->commit($token, $payload, 'late'), "\n";
echo $session->ask('SELECT outcome FROM fencing_release(?, ?, ?)', $job, $other, $taken['token'])['outcome'], "\n";
