"""Scores: scales, tuned baselines, mean scores, AlgoPerf's score."""
