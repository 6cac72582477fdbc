"""Ray executor: workers on the nodes of a Ray cluster."""
