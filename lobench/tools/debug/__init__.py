"""`lobench debug`: diagnosis of one replayed training."""

COMMANDS = {
    "debug": ("lobench.tools.debug.command:debug", "Replay one training, and find what went wrong in it."),
}
