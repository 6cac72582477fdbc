"""The ledger, its copy on a network file system, merging, delivery to sinks."""
