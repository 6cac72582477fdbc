"""trackio as a sink of lobench's results."""
