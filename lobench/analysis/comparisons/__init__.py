"""Comparisons of several subjects: effects by metric, gates, histories and summaries."""
