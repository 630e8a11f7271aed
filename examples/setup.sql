-- What all examples need, once, as a superuser: psql -d DATABASE -f examples/setup.sql
-- They connect as a role that owns nothing, as an application should.

CREATE EXTENSION IF NOT EXISTS fencing CASCADE;
CREATE ROLE app LOGIN;
SELECT fencing_grant('app', 'client');

-- The business table of the workers.  It has no unique key on purpose: nothing
-- but the fenced commit stands against a row that is written twice.
CREATE TABLE report (job text, day date, total numeric);
GRANT SELECT, INSERT ON report TO app;
