"""`lobench budget`: expected best score after k trials of each search, who leads at which budget, optima on an edge."""

COMMANDS = {
    "budget": ("lobench.tools.budget.command:budget", "Compare searches after the same number of trials."),
}
