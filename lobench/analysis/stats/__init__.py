"""Statistical functions on arrays: tests, intervals and aggregates.

To add a test, add a module here and call it in `location.py`.
"""
