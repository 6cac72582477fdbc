"""`lobench import`: curves from other loggers and file formats as evaluations."""

COMMANDS = {
    "import": (
        "lobench.tools.curve_import.command:import_curves",
        "Import curves from other programs into a store.",
    ),
}
