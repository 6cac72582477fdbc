"""Declarations of the commands in this package. Tools and plugins declare their own. `--help` imports no command."""

COMMANDS = {
    "watch": ("lobench.cli.watch:watch", "Evaluate every new checkpoint of a run."),
    "results": ("lobench.cli.results:results", "Show or export the content of a store."),
    "compare": ("lobench.cli.compare:compare", "Compare subjects on each case, with a verdict."),
    "report": ("lobench.cli.report:report", "Write a report: a web page, a LaTeX table, figures."),
    "list": ("lobench.cli.inventory:list_things", "List tasks, optimizers, suites, readers, sinks, ..."),
    "plugins": ("lobench.cli.inventory:plugins", "List plugins, their hooks, and import errors."),
    "schema": ("lobench.cli.schema:schema", "Print the JSON Schema of a command's JSON output."),
}


def lobench_cli_commands() -> list[object]:
    from lobench.cli.group import own_commands
    from lobench.hookspecs import Declaration

    return [Declaration(name=name, factory=factory, summary=line) for name, (factory, line) in own_commands().items()]
