"""Rendering of computed numbers: charts, tables, the page, live lines."""
