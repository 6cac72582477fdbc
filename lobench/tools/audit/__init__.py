"""`lobench audit`: checks the claims of a bundle, and repeats a sample of its evaluations."""

COMMANDS = {
    "audit": ("lobench.tools.audit.command:audit", "Check a bundle: repeat evaluations that a beacon draws."),
}
