"""`lobench bisect`: change-point search for a case along a run's checkpoints."""

COMMANDS = {
    "bisect": ("lobench.tools.bisect.command:bisect", "Find the outer step of a run at which a case broke."),
}
