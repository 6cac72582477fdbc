"""Declaration of `lobench bisect`; `--help` imports no command."""

COMMANDS = {
    "bisect": ("lobench.tools.bisect.command:bisect", "Find the outer step of a run at which a case broke."),
}


def lobench_cli_commands() -> list[object]:
    from lobench.hookspecs import Declaration

    return [Declaration(name=name, factory=factory, summary=said) for name, (factory, said) in COMMANDS.items()]
