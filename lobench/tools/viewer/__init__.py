"""`lobench view`: a store's page, served and kept current."""

COMMANDS = {
    "view": ("lobench.tools.viewer.command:view", "Serve the report as an interactive page."),
}
