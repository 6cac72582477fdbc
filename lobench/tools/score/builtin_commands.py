"""Declaration of `lobench score`; `--help` imports no command."""

COMMANDS = {
    "score": ("lobench.tools.score.command:score", "AlgoPerf score from logs of evaluations."),
}


def lobench_cli_commands() -> list[object]:
    from lobench.hookspecs import Declaration

    return [Declaration(name=name, factory=factory, summary=said) for name, (factory, said) in COMMANDS.items()]
