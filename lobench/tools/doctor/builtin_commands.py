"""`lobench doctor`, declared as plugins declare theirs; nothing is imported for `--help`."""

COMMANDS = {
    "doctor": ("lobench.tools.doctor.command:doctor", "Check devices, store, plugins and configuration."),
}


def lobench_cli_commands() -> list[object]:
    from lobench.hookspecs import Declaration

    return [Declaration(name=name, factory=factory, summary=said) for name, (factory, said) in COMMANDS.items()]
