"""`lobench budget`: expected best score after k trials of each search, who leads at which budget, optima on an edge."""

COMMANDS = {
    "budget": ("lobench.tools.budget.command:budget", "Which method is best after how many trials of tuning?"),
}
