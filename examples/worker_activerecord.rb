# A worker with ActiveRecord, and the business write by a model: the gate without a
# statement, at the beginning of the transaction.
#
#   DATABASE_URL=postgresql://app@localhost/... ruby examples/worker_activerecord.rb [JOB]

require "active_record"
require "io/wait"
require "json"
require "securerandom"

JOB = ARGV[0] || "daily-report/2026-08-03"
OWNER = SecureRandom.uuid # one per execution, not per host

ActiveRecord::Base.establish_connection(ENV.fetch("DATABASE_URL"))

class Report < ActiveRecord::Base
  self.table_name = "report"
end

# Every transaction of these may be repeated until COMMIT has returned: the same owner
# gets the same token, and the same content has its effect once.  requires_new would
# only make a savepoint: do not call this inside another transaction.
def repeat(&work)
  pauses = [0.2, 1, 5, 20]
  begin
    ActiveRecord::Base.transaction(joinable: false, &work)
  rescue ActiveRecord::StatementInvalid, ActiveRecord::ConnectionNotEstablished, PG::Error
    # errors of the server leave the connection as it is
    raise if pauses.empty? || ActiveRecord::Base.connected? && ActiveRecord::Base.connection.active?
    puts "connection lost"
    replace_connection
    sleep pauses.shift
    retry
  end
end

# ActiveRecord goes on with a dead connection until it is taken out of its pool.
def replace_connection
  pool = ActiveRecord::Base.connection_pool
  pool.remove(ActiveRecord::Base.connection) if pool.active_connection?
  pool.release_connection
end

# uncached: within a request or a job of Rails the same SELECT would be answered from
# the query cache, and a heartbeat would hear "renewed" for ever.
def ask(sql, *values)
  ActiveRecord::Base.uncached { ActiveRecord::Base.connection.select_one(ActiveRecord::Base.sanitize_sql([sql, *values])) }
end

def commit(token, payload, step = "")
  repeat do
    outcome = ask("SELECT outcome FROM fencing_commit(?, ?, ?, step => ?)", JOB, token, JSON.generate(payload), step)["outcome"]
    # write only after "committed": "replayed" means that it is written already
    Report.create!(job: JOB, **payload) if outcome == "committed"
    outcome
  end
end

def acquire(owner)
  repeat { ask("SELECT outcome, token FROM fencing_acquire(?, ?, '30 seconds')", JOB, owner) }
end

def release(owner, token)
  repeat { ask("SELECT outcome FROM fencing_release(?, ?, ?)", JOB, owner, token)["outcome"] }
end

# At once, then every 10 seconds.  Every thread has a connection of its own.
def heartbeat(token, stop)
  loop do
    outcome = repeat { ask("SELECT outcome FROM fencing_renew(?, ?, ?, '30 seconds')", JOB, OWNER, token)["outcome"] }
    # lost: somebody else has the job; stop what has effects elsewhere
    return outcome if outcome == "lost" || stop.wait_readable(10)
  end
end

$stdout.sync = true
lease = acquire(OWNER)
puts "#{lease["outcome"]} #{lease["token"]}"
exit 1 if lease["outcome"] == "held" # somebody else is at it

stopped, stop = IO.pipe
heart = Thread.new { heartbeat(lease["token"], stopped) }

payload = { day: "2026-08-03", total: 16.5 } # nothing in it changes between attempts
puts commit(lease["token"], payload)
puts commit(lease["token"], payload) # asked again: it is done already

stop.close
puts heart.value
puts release(OWNER, lease["token"])

# Another worker takes over.  What the first one still wants to write is refused.
other = SecureRandom.uuid
taken = acquire(other)
puts "#{taken["outcome"]} #{taken["token"]}"
puts commit(lease["token"], payload, "late")
puts release(other, taken["token"])
