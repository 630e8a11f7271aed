<?php
// Traps of PDO.  $argv[1] is a job whose token 1 is current.
$job = $argv[1];
$owner = '00000000-0000-4000-8000-00000000000a';

function attempt(PDO $db, string $what, string $sql, ...$values)
{
    try {
        $call = $db->prepare($sql);
        $call->execute($values);
        echo "$what: ", json_encode($call->fetch()), "\n";
    } catch (PDOException $error) {
        echo "$what: ", $error->getCode(), "\n";
    }
}

$db = new PDO('pgsql:', null, null, [PDO::ATTR_DEFAULT_FETCH_MODE => PDO::FETCH_NUM]);
attempt($db, '? inline, between $$', "SELECT outcome FROM fencing_commit(?, 1, '{}', $$ SELECT '{}'::jsonb ? 'a' AS a $$, 'inline')", $job);
attempt($db, '? as a value', "SELECT outcome FROM fencing_commit(?, 1, '{}', ?, 'value')", $job, "SELECT '{}'::jsonb ? 'a' AS a");
$commit = "SELECT outcome FROM fencing_commit(?, 1, ?, 'SELECT 1 AS a', ?, ?)";
attempt($db, 'false', $commit, $job, '{}', 'false', false);
attempt($db, "'false'", $commit, $job, '{}', 'false', 'false');
$call = $db->prepare($commit);
foreach ([$job, '{}', 'false', false] as $n => $value) {
    $call->bindValue($n + 1, $value, is_bool($value) ? PDO::PARAM_BOOL : PDO::PARAM_STR);
}
$call->execute();
echo 'false, PARAM_BOOL: ', json_encode($call->fetch()), "\n";
attempt($db, 'json_encode failed', $commit, $job, json_encode(['a' => "\xff"]), 'encode', 'false');
attempt($db, 'empty array', "SELECT outcome, result ->> 't' FROM fencing_commit(?, 1, ?, 'SELECT jsonb_typeof($3) AS t', 'array')", $job, json_encode([]));
attempt($db, 'ttl number', 'SELECT outcome, safe_for_ms FROM fencing_acquire(?, ?, ?)', $job, $owner, 7200);
$silent = new PDO('pgsql:', null, null, [PDO::ATTR_ERRMODE => PDO::ERRMODE_SILENT]);
attempt($silent, 'an error, ERRMODE_SILENT', 'SELECT outcome FROM fencing_commit(?, 99, ?)', $job, '{}');
