"""`lobench doctor`: capabilities of this machine and installation."""

COMMANDS = {
    "doctor": ("lobench.tools.doctor.command:doctor", "Check devices, store, plugins and configuration."),
}
