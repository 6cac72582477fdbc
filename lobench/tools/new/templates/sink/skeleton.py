"""A sink receives every result, in order. This one writes an SQLite table into the store; write yours instead.

After a crash the same deliveries come again, so receiving one twice must have the same effect as once: here each seed
of a delivery is a row. When `deliver` returns, its deliveries must be stored durably.
"""

import sqlite3

from lobench.hookspecs import EvaluationFinished

COLUMNS = "sequence, seed, run, generation, step, subject, suite, case_name, outcome, loss"


class Skeleton:
    """Final training losses, a row for each seed of an evaluation.

    Args:
      context: Has the folder of the `store`, and the `argument` after `--sink skeleton:`.
    """

    def __init__(self, context):
        # `deliver` is called in another thread than this, by one thread at a time.
        self.db = sqlite3.connect(context.store / "skeleton.sqlite", check_same_thread=False)
        self.db.execute(f"CREATE TABLE IF NOT EXISTS losses ({COLUMNS}, PRIMARY KEY (sequence, seed))")

    def deliver(self, deliveries):
        results = [delivery for delivery in deliveries if isinstance(delivery.event, EvaluationFinished)]
        rows = [row for result in results for row in self.rows(result)]
        with self.db:  # one transaction
            self.db.executemany(f"INSERT OR REPLACE INTO losses VALUES ({', '.join('?' * 10)})", rows)

    def close(self):
        self.db.close()

    def rows(self, delivery):
        event = delivery.event
        subject, case = event.subject, event.case
        place = (delivery.run, subject.generation, subject.outer_step, subject.label, case.suite, case.name)
        losses = event.curves.final("train/loss") if event.curves is not None else [None] * event.seed_block.size
        seeds = event.curves.seeds if event.curves is not None else event.seed_block.seeds
        for seed, loss in zip(seeds, losses, strict=True):
            # As text, because SQLite turns NaN into NULL, which here means that there is no result.
            yield delivery.sequence, seed, *place, str(event.outcome), None if loss is None else repr(loss)
