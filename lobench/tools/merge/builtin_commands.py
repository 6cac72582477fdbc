"""Declaration of `lobench merge`; `--help` imports no command."""

COMMANDS = {
    "merge": ("lobench.tools.merge.command:merge", "Put several stores into one; conflicts are named."),
}


def lobench_cli_commands() -> list[object]:
    from lobench.hookspecs import Declaration

    return [Declaration(name=name, factory=factory, summary=said) for name, (factory, said) in COMMANDS.items()]
