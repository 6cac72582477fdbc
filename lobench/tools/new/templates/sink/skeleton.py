"""A sink: it takes every result, in order. This one writes a table of SQLite into the store; write yours instead.

After a crash the same deliveries come again, so taking one twice must equal taking it once: here a delivery's number is
its row. What `deliver` took is there when it returns, whatever happens then.
"""

import sqlite3

from lobench.hookspecs import EvaluationFinished


class Skeleton:
    """Final training losses, a row for each evaluation.

    Args:
      context: Has the `store`'s folder, and the `argument` that followed `--sink skeleton:`.
    """

    def __init__(self, context):
        # Another thread delivers than the one that makes a sink; there is one at a time.
        self.db = sqlite3.connect(context.store / "skeleton.sqlite", check_same_thread=False)
        self.db.execute(
            "CREATE TABLE IF NOT EXISTS losses (number INTEGER PRIMARY KEY, subject TEXT, suite TEXT, name TEXT, "
            "first_seed INTEGER, outcome TEXT, loss REAL)"
        )

    def deliver(self, deliveries):
        rows = [self.row(each) for each in deliveries if isinstance(each.event, EvaluationFinished)]
        with self.db:  # one transaction
            self.db.executemany("INSERT OR REPLACE INTO losses VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def close(self):
        self.db.close()

    def row(self, delivery):
        event = delivery.event
        losses = event.curves.final("train/loss") if event.curves is not None else []  # a value a seed
        loss = sum(losses) / len(losses) if len(losses) else None
        case, seed = event.case, event.seed_block.start
        return delivery.sequence, event.subject.label, case.suite, case.name, seed, str(event.outcome), loss
