"""Experiment files: methods, their bindings, bindings that methods must not have, and Pythons of other environments."""
