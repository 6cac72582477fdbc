"""`lobench merge`: several stores merged into one."""

COMMANDS = {
    "merge": ("lobench.tools.merge.command:merge", "Merge several stores into one; list conflicts."),
}
