"""Scores: scales, baselines, mean scores."""
