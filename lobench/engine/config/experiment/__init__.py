"""Experiment files: methods, what binds them, what a method may not bind, and Pythons of other environments."""
