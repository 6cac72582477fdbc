"""Contracts of plugins as test classes. Subclass one for each kind of object that your plugin provides."""
