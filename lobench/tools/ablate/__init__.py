"""`lobench ablate`: which of the settings that differ between two optimizers matter, and by how much."""

COMMANDS = {
    "ablate": ("lobench.tools.ablate.command:ablate", "Find the settings that matter between A and B."),
}
