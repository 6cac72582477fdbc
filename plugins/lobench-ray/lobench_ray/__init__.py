"""Ray as an executor: workers on as many machines as there are."""
