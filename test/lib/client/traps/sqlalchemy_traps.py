# Traps of SQLAlchemy.  argv[1] is a job whose token 1 is current.
import sys

from sqlalchemy import create_engine, text

job = sys.argv[1]
engine = create_engine("postgresql+psycopg2://")


def attempt(what, sql, **values):
    try:
        with engine.begin() as db:
            print(f"{what}:", *db.execute(text(sql), values).one())
    except Exception as error:
        print(f"{what}:", getattr(getattr(error, "orig", None), "pgcode", None) or type(error).__name__)


attempt(":: behind a parameter", "SELECT outcome FROM fencing_commit(:job, 1, :p::jsonb, 'SELECT 1 AS a', 'cast')", job=job, p="{}")
attempt("CAST", "SELECT outcome FROM fencing_commit(:job, 1, CAST(:p AS jsonb), 'SELECT 1 AS a', 'cast')", job=job, p="{}")
attempt("colon inline", "SELECT outcome FROM fencing_commit(:job, 1, '{}', 'SELECT '':x'' AS a', 'inline')", job=job)
attempt("colon as a value", "SELECT outcome, result ->> 'a' FROM fencing_commit(:job, 1, '{}', :s, 'value')", job=job, s="SELECT ':x' AS a")

with engine.connect() as db:
    print("connect:", *db.execute(text("SELECT outcome FROM fencing_commit(:job, 1, '{}', 'SELECT 1 AS a', 'connect')"), {"job": job}).one())
attempt("connect, receipts", "SELECT count(*) FROM fencing_receipt(:job, 1, 'connect')", job=job)
