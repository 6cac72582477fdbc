"""`lobench race`: the best of several methods, from as few trainings as tell it."""

COMMANDS = {
    "race": ("lobench.tools.race.command:race", "Which method is best, from as few trainings as tell it?"),
}
