"""`lobench best`: the best checkpoint of a run, on fresh seeds."""

COMMANDS = {
    "best": ("lobench.tools.best.command:best", "Find a run's best checkpoint, judged on fresh seeds."),
}
