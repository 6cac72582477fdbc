"""`lobench --help` shows each command once, in the section that says what it is for."""

from __future__ import annotations

from commands import lobench

from lobench.cli.group import own_commands


def test_help_lists_each_command_in_one_section() -> None:
    output = lobench("--help").stdout
    listed = [line.split()[0] for line in output.splitlines() if line[:2] == "  " != line[:3]]
    titles = [line.rstrip(":") for line in output.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["Options", "Run", "Look", "Ask", "Share", "Set up"]
    assert sorted(set(own_commands()) & set(listed)) == sorted(own_commands())
    assert all(listed.count(name) == 1 for name in own_commands())
