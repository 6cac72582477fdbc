"""`lobench budget`: expected best score of each search after k trials, the leader per budget, optima on an edge."""

COMMANDS = {
    "budget": ("lobench.tools.budget.command:budget", "Compare searches after the same number of trials."),
}
