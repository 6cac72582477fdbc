"""Declarations of the commands of this room; a tool or a plugin declares its own. `--help` imports no command."""

COMMANDS = {
    "watch": ("lobench.cli.watch:watch", "Evaluate every new checkpoint of a run."),
    "results": ("lobench.cli.results:results", "Show or export what a store holds."),
    "compare": ("lobench.cli.compare:compare", "Is B better than A, on which cases, by how much?"),
    "report": ("lobench.cli.report:report", "Write a report: a web page, a LaTeX table, figures."),
    "list": ("lobench.cli.inventory:list_things", "List tasks, optimizers, suites, readers, sinks, ..."),
    "plugins": ("lobench.cli.inventory:plugins", "Show plugins, their hooks, and those that do not import."),
    "schema": ("lobench.cli.schema:schema", "Show the JSON Schema of what --format json prints."),
}


def lobench_cli_commands() -> list[object]:
    from lobench.cli.group import own_commands
    from lobench.hookspecs import Declaration

    return [Declaration(name=name, factory=factory, summary=line) for name, (factory, line) in own_commands().items()]
