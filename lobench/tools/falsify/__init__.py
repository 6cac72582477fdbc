"""`lobench falsify`: the smallest case on which a checkpoint loses to a tuned optimizer."""

COMMANDS = {
    "falsify": ("lobench.tools.falsify.command:falsify", "Find the smallest case on which a checkpoint loses."),
}
