"""gin: syntax, binding, reach, isolation, layers; suites and their files."""
