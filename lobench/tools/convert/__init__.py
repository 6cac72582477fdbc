"""`lobench convert`: published weights as checkpoints of lobench's optimizers."""

COMMANDS = {
    "convert": ("lobench.tools.convert.command:convert", "Convert published weights to a checkpoint."),
}
