"""The store: the ledger in SQLite, delivery to sinks, merging, copies on network file systems."""
