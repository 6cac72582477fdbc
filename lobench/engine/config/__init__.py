"""gin: syntax, binding, layers, isolation, search spaces; suites and their files."""
