"""`lobench new`: templates of a task, an optimizer, a suite, a sink, a plugin."""
