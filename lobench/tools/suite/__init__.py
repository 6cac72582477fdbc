"""`lobench suite`: signal, noise and cost of the cases of a suite, and the smallest subset that ranks methods alike."""

COMMANDS = {
    "suite": ("lobench.tools.suite.command:suite", "Measure the worth of each case, and find a subset."),
}
