"""Evaluation of a case in a process: gin's bindings, theta and the inner program together."""
