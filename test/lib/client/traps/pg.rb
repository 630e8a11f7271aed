# Traps of Ruby's pg.  ARGV[0] is a job whose token 1 is current.
require "json"
require "pg"

JOB = ARGV[0]
OWNER = "00000000-0000-4000-8000-00000000000a"
DB = PG.connect

def attempt(what, sql, *values)
  puts "#{what}: #{DB.exec_params(sql, values).first.values.map(&:inspect).join(" ")}"
rescue PG::Error => error
  puts "#{what}: #{error.result.error_field(PG::Result::PG_DIAG_SQLSTATE)}"
end

commit = "SELECT outcome, result::text FROM fencing_commit($1, 1, $2, $3, $4)"
write = "SELECT $3 AS a"
attempt "hash", commit, JOB, { a: 1 }, write, "hash"
attempt "to_s", commit, JOB, { "a" => 1 }.to_s, write, "to_s"
attempt "array", commit, JOB, [1, 2], write, "array"
attempt "text", commit, JOB, JSON.generate([1, 2]), write, "text"
attempt "bigint", "SELECT token, safe_for_ms FROM fencing_acquire($1, $2, '1 hour')", JOB, OWNER
DB.type_map_for_results = PG::BasicTypeMapForResults.new(DB)
attempt "bigint, with a type map", "SELECT token, safe_for_ms FROM fencing_acquire($1, $2, '1 hour')", JOB, OWNER
