"""Declarations of `lobench run`, `tune` and `baseline`; `--help` imports no command."""

COMMANDS = {
    "run": ("lobench.experiments.command:run", "Run an experiment: methods x cases x sessions."),
    "tune": (
        "lobench.experiments.tune_command:tune",
        "Tune an optimizer: an experiment with one method, printed as gin.",
    ),
    "baseline": ("lobench.experiments.baseline_command:baseline", "Tune baselines on a suite and keep them beside it."),
}


def lobench_cli_commands() -> list[object]:
    from lobench.hookspecs import Declaration

    return [Declaration(name=name, factory=factory, summary=said) for name, (factory, said) in COMMANDS.items()]
