"""Declaration of `lobench view`; `--help` imports no command."""

COMMANDS = {
    "view": ("lobench.tools.viewer.command:view", "Serve the report as a page to explore, kept current."),
}


def lobench_cli_commands() -> list[object]:
    from lobench.hookspecs import Declaration

    return [Declaration(name=name, factory=factory, summary=said) for name, (factory, said) in COMMANDS.items()]
