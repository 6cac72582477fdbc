"""`lobench publish`: a store, with all that its results hang on, in one file that others can check."""

COMMANDS = {
    "publish": ("lobench.tools.publish.command:publish", "A store in one file that others can check."),
}
