"""`lobench convert`: weights that others have published, under the names that lobench's optimizers have for them."""

COMMANDS = {
    "convert": ("lobench.tools.convert.command:convert", "Convert published weights to a checkpoint."),
}
