"""`lobench keep`: keep or discard a change of a script, with one error rate over all changes that were tried."""

COMMANDS = {
    "keep": ("lobench.tools.keep.command:keep", "Keep or discard a change of a script, by paired seeds."),
}
