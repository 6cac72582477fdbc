"""`lobench score`: AlgoPerf's and VeLO's published scores, from curves."""

COMMANDS = {
    "score": ("lobench.tools.score.command:score", "Compute AlgoPerf's or VeLO's score from logs."),
}
