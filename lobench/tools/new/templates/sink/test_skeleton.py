"""What every sink must keep, as tests of lobench's: nothing twice, nothing lost, killed at any place."""

import sqlite3

from lobench.testing.sinks import SinkContract


class TestSkeleton(SinkContract):
    factory = "skeleton:Skeleton"

    def contents(self, store):
        with sqlite3.connect(store / "skeleton.sqlite") as db:
            return db.execute("SELECT * FROM losses").fetchall()
