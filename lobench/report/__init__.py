"""Rendering of given numbers: charts, tables, the page, live lines."""
