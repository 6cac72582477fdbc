"""Declaration of `lobench best`; `--help` imports no command."""

COMMANDS = {
    "best": ("lobench.tools.best.command:best", "Find a run's best checkpoint, on seeds that did not choose it."),
}


def lobench_cli_commands() -> list[object]:
    from lobench.hookspecs import Declaration

    return [Declaration(name=name, factory=factory, summary=said) for name, (factory, said) in COMMANDS.items()]
