# A worker with Ruby's pg.  It takes a job, computes, writes the result once,
# whatever happens to its connection, and is kept out when it is late.
#
#   PGHOST=... PGDATABASE=... PGUSER=app ruby examples/worker_pg.rb [JOB]

require "io/wait"
require "json"
require "pg"
require "securerandom"

JOB = ARGV[0] || "daily-report/2026-08-03"
OWNER = SecureRandom.uuid # one per execution, not per host

# The business write.  It is passed as a value like all others, and sees the job
# as $1, the token as $2 and the payload as $3.
WRITE_REPORT = <<~'SQL'
  INSERT INTO report
  SELECT $1, ($3 ->> 'day')::date, ($3 ->> 'total')::numeric RETURNING total
SQL

# A connection that is made anew when it is lost.
class Session
  # Every call may be sent again until it is answered: the same owner gets the same
  # token, and the same content has its effect once.
  def ask(sql, *values)
    pauses = [0.2, 1, 5, 20]
    begin
      @db ||= PG.connect(connect_timeout: 5)
      @db.exec_params(sql, values).first
    rescue PG::Error
      # errors of the server leave the connection as it is
      raise if pauses.empty? || @db&.status == PG::CONNECTION_OK
      puts "connection lost"
      @db = nil
      sleep pauses.shift
      retry
    end
  end

  def acquire(owner)
    ask("SELECT outcome, token FROM fencing_acquire($1, $2, '30 seconds')", JOB, owner)
  end

  # The payload as text, serialized once.  Every column comes back as text, too: a
  # token is handed on as it is.
  def commit(token, payload, step = "")
    ask("SELECT outcome, result FROM fencing_commit($1, $2, $3, $4, $5)",
        JOB, token, JSON.generate(payload), WRITE_REPORT, step)["outcome"]
  end

  def release(owner, token)
    ask("SELECT outcome FROM fencing_release($1, $2, $3)", JOB, owner, token)["outcome"]
  end
end

# On a session of its own: at once, then every 10 seconds.
def heartbeat(token, stop)
  session = Session.new
  loop do
    outcome = session.ask("SELECT outcome FROM fencing_renew($1, $2, $3, '30 seconds')", JOB, OWNER, token)["outcome"]
    # lost: somebody else has the job; stop what has effects elsewhere
    return outcome if outcome == "lost" || stop.wait_readable(10)
  end
end

$stdout.sync = true
session = Session.new
lease = session.acquire(OWNER)
puts "#{lease["outcome"]} #{lease["token"]}"
exit 1 if lease["outcome"] == "held" # somebody else is at it

stopped, stop = IO.pipe
heart = Thread.new { heartbeat(lease["token"], stopped) }

payload = { day: "2026-08-03", total: 16.5 } # nothing in it changes between attempts
puts session.commit(lease["token"], payload)
puts session.commit(lease["token"], payload) # asked again: it is done already

stop.close
puts heart.value
puts session.release(OWNER, lease["token"])

# Another worker takes over.  What the first one still wants to write is refused.
other = SecureRandom.uuid
taken = session.acquire(other)
puts "#{taken["outcome"]} #{taken["token"]}"
puts session.commit(lease["token"], payload, "late")
puts session.release(other, taken["token"])
