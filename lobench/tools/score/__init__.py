"""`lobench score`: AlgoPerf's and VeLO's scores of curves."""
