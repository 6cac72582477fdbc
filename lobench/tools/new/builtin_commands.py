"""Declaration of `lobench new`; `--help` imports no command."""

COMMANDS = {
    "new": ("lobench.tools.new.command:new", "Begin a suite, a task, an optimizer, a sink or a plugin."),
}


def lobench_cli_commands() -> list[object]:
    from lobench.hookspecs import Declaration

    return [Declaration(name=name, factory=factory, summary=said) for name, (factory, said) in COMMANDS.items()]
