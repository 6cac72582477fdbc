"""`lobench ablate`: which of the settings that two optimizers differ in matter, and what each is worth."""

COMMANDS = {
    "ablate": ("lobench.tools.ablate.command:ablate", "Which of the settings that differ between A and B matter?"),
}
