"""Experiments, from file to store: `lobench run`, `tune` and `baseline`; methods x cases x sessions."""

COMMANDS = {
    "run": ("lobench.experiments.command:run", "Run an experiment: methods x cases x sessions."),
    "tune": (
        "lobench.experiments.tune_command:tune",
        "Tune an optimizer: an experiment with one method, printed as gin.",
    ),
    "baseline": (
        "lobench.experiments.baseline_command:baseline",
        "Tune baselines and keep them in the suite's folder.",
    ),
}
