"""What every sink must keep, as tests of lobench's: nothing twice, nothing lost, killed at any place."""

import sqlite3

from lobench.testing.sinks import SinkContract


class TestSkeleton(SinkContract):
    factory = "skeleton:Skeleton"
    metrics = ("train/loss",)

    def contents(self, store):
        with sqlite3.connect(store / "skeleton.sqlite") as db:
            return db.execute("SELECT * FROM losses").fetchall()

    def value_of(self, store, run, generation, step, suite, case, metric):
        place = (run, generation, step, suite, case)
        where = "run = ? AND generation = ? AND step = ? AND suite = ? AND case_name = ?"
        with sqlite3.connect(store / "skeleton.sqlite") as db:
            rows = db.execute(f"SELECT loss FROM losses WHERE {where}", place).fetchall()
        losses = [float(loss) for (loss,) in rows]
        return sum(losses) / len(losses) if losses else None
