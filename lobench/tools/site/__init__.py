"""`lobench site`: a static page set of many bundles, in groups of methods that are not told apart."""

COMMANDS = {
    "site": ("lobench.tools.site.command:site", "Pages of many bundles: groups instead of ranks."),
}
