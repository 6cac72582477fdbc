"""`lobench score`: AlgoPerf's and VeLO's published scores, from curves."""
