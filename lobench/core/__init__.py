"""Values and decisions, in the standard library alone: case, subject, result, metric, experiment."""
