"""Declaration of `lobench debug`; `--help` imports no command."""

COMMANDS = {
    "debug": ("lobench.tools.debug.command:debug", "Replay one training, and say what went wrong in it."),
}


def lobench_cli_commands() -> list[object]:
    from lobench.hookspecs import Declaration

    return [Declaration(name=name, factory=factory, summary=said) for name, (factory, said) in COMMANDS.items()]
