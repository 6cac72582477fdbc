"""`lobench alarm`: alarms along a watched run, at a stated rate of false ones over the whole run."""

COMMANDS = {
    "alarm": ("lobench.tools.alarm.command:alarm", "Report when a watched run gets worse, overfits or stalls."),
}
OPTIONS = {"watch": "lobench.tools.alarm.watching:add_to"}
