"""`lobench score`: AlgoPerf's and VeLO's published scores, from curves."""

COMMANDS = {
    "score": ("lobench.tools.score.command:score", "AlgoPerf score from logs of evaluations."),
}
