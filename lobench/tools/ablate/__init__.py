"""`lobench ablate`: which of the settings that two optimizers differ in matter, and what each is worth."""

COMMANDS = {
    "ablate": ("lobench.tools.ablate.command:ablate", "Find the settings that matter between A and B."),
}
