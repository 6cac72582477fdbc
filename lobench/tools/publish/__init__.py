"""`lobench publish`: a store with everything that its results depend on, in one file that others can check."""

COMMANDS = {
    "publish": ("lobench.tools.publish.command:publish", "A store in one file that others can check."),
}
