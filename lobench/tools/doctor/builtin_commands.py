"""Declaration of `lobench doctor`; `--help` imports no command."""

COMMANDS = {
    "doctor": ("lobench.tools.doctor.command:doctor", "Check devices, store, plugins and configuration."),
}


def lobench_cli_commands() -> list[object]:
    from lobench.hookspecs import Declaration

    return [Declaration(name=name, factory=factory, summary=said) for name, (factory, said) in COMMANDS.items()]
