"""Evaluating a case in a process: the room where gin's bindings, theta and the inner program meet."""
