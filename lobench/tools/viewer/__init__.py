"""`lobench view`: server of a store's page, which is kept up to date."""

COMMANDS = {
    "view": ("lobench.tools.viewer.command:view", "Serve the report as an interactive page."),
}
