"""`lobench history`: a case over revisions, with the revisions at which its score changed."""

COMMANDS = {
    "history": ("lobench.tools.history.command:history", "A case over revisions, with change points."),
}
