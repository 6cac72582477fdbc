"""Statistics: arrays in, numbers out; tests, intervals, aggregates. A test is one file here."""
