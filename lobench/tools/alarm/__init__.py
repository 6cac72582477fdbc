"""`lobench alarm`: alarms along a watched run, with a bound on the false alarm rate of the whole run."""

COMMANDS = {
    "alarm": ("lobench.tools.alarm.command:alarm", "Report when a watched run gets worse, overfits or stalls."),
}
OPTIONS = {"watch": "lobench.tools.alarm.watching:add_to"}
