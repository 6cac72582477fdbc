"""`lobench site`: static pages of many bundles, with groups of methods that no comparison distinguishes."""

COMMANDS = {
    "site": ("lobench.tools.site.command:site", "Pages of many bundles: groups instead of ranks."),
}
