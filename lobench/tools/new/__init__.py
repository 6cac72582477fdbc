"""`lobench new`: templates of a task, an optimizer, a suite, a sink, a plugin."""

COMMANDS = {
    "new": ("lobench.tools.new.command:new", "Begin a suite, a task, an optimizer, a sink or a plugin."),
}
