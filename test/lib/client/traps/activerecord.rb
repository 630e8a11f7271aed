# Traps of ActiveRecord.  ARGV[0] is a job whose token 1 is current.
require "active_record"

JOB = ARGV[0]
OWNER = "00000000-0000-4000-8000-00000000000a"
ActiveRecord::Base.establish_connection(ENV.fetch("DATABASE_URL"))

def sql(*parts)
  ActiveRecord::Base.sanitize_sql(parts)
end

def attempt(what)
  puts "#{what}: #{yield}"
rescue ActiveRecord::ActiveRecordError => error
  puts "#{what}: #{error.class}"
end

db = ActiveRecord::Base.connection
attempt("? inline") { db.select_value(sql("SELECT outcome FROM fencing_commit(?, 1, '{}', 'SELECT ''{}''::jsonb ? ''a'' AS a', 'inline')", JOB)) }
attempt(":x inline") { db.select_value(sql("SELECT outcome FROM fencing_commit(:job, 1, '{}', 'SELECT '':x'' AS a', 'inline')", { job: JOB })) }
attempt("as a value") { db.select_value(sql("SELECT outcome FROM fencing_commit(?, 1, '{}', ?, 'value')", JOB, "SELECT '{}'::jsonb ? 'a' AS a, ':x' AS x")) }

# as in a request of Rails
ActiveRecord::Base.cache do
  renew = sql("SELECT outcome FROM fencing_renew(?, ?, 1)", JOB, OWNER)
  attempt("heartbeat") { db.select_value(renew) }
  Thread.new { ActiveRecord::Base.connection.execute(sql("SELECT fencing_release(?, ?, 1)", JOB, OWNER)) }.join
  attempt("heartbeat after the release, cached") { db.select_value(renew) }
  attempt("heartbeat after the release, uncached") { ActiveRecord::Base.uncached { db.select_value(renew) } }
end
