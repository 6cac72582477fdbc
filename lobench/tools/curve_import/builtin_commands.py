"""Declaration of `lobench import`; `--help` imports no command."""

COMMANDS = {
    "import": (
        "lobench.tools.curve_import.command:import_curves",
        "Take curves that were made elsewhere into a store.",
    ),
}


def lobench_cli_commands() -> list[object]:
    from lobench.hookspecs import Declaration

    return [Declaration(name=name, factory=factory, summary=said) for name, (factory, said) in COMMANDS.items()]
