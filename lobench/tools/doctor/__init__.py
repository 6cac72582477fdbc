"""`lobench doctor`: what this machine and installation can do."""
