"""`lobench audit`: claims of a bundle, checked and evaluated again."""

COMMANDS = {
    "audit": ("lobench.tools.audit.command:audit", "Check a bundle: evaluate again what a beacon draws."),
}
