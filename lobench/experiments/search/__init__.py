"""Searches of an experiment's methods: one setting of a method is a trial."""
