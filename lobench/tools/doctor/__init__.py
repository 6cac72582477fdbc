"""`lobench doctor`: capabilities of this machine and installation."""
