"""The ledger and its migrations, its copy on a network file system, merging, delivery to sinks."""
