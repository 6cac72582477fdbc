"""`lobench merge`: several stores merged into one."""

COMMANDS = {
    "merge": ("lobench.tools.merge.command:merge", "Put several stores into one; conflicts are named."),
}
