"""Statistics: arrays in, numbers out; tests, intervals. A new test is a file here, and a call in `location.py`."""
