"""`lobench new`: templates of a task, an optimizer, a suite, a sink, a plugin."""

COMMANDS = {
    "new": ("lobench.tools.new.command:new", "Write a new suite, task, optimizer, sink or plugin."),
}
