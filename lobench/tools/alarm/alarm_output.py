"""Text and record of `lobench alarm`."""

from __future__ import annotations

from typing import TypedDict

from lobench.core.json_numbers import record_from
from lobench.core.wording import counted
from lobench.hookspecs import AlarmRaised
from lobench.tools.alarm.alarm import AlarmResult
from lobench.tools.alarm.rule import Alarm

__all__ = ["AlarmsRecord", "alarms_record", "alarms_text"]


class RaisedAlarm(TypedDict):
    """An alarm. Its fields are the keys of an entry in the JSON document."""

    kind: str
    outer_step: int
    uri: str
    sha256: str
    reference_outer_step: int
    reference_uri: str
    value: float
    bound: float
    p_value: float
    level: float
    confirmation: int
    cases: list[str]
    message: str


class AlarmsRecord(TypedDict):
    """`lobench alarm`: where a watched run got worse, overfits or stalls."""

    kinds: list[str]
    num_checkpoints: int
    num_without_score: int
    num_confirmations: dict[str, int]
    rate: float
    margin: float
    seeds: int
    window: int
    least_gain: float
    alarms: list[RaisedAlarm]
    command: str


def alarms_text(alarmed: AlarmResult) -> str:
    """Returns a line for each alarm, the number of confirmations, and the command that repeats the call."""
    checkpoints = counted(alarmed.num_checkpoints, "checkpoint")
    no_alarm_text = f"no alarm in {checkpoints}"
    if alarmed.is_empty:
        is_left_out = bool(alarmed.other_code) and not alarmed.num_checkpoints
        why = alarmed.other_code if is_left_out else "no checkpoint has a score on all of its cases"
        no_alarm_text = f"nothing was compared: {why}"
    lines = [event.message for event in alarmed.events] or [no_alarm_text]
    counts_text = ", ".join(
        f"{kind}: {counted(number, 'window' if kind == 'stall' else 'confirmation')}"
        for kind, number in alarmed.num_confirmations.items()
    )
    without_score_text = f", {alarmed.num_without_score} of them without a score" if alarmed.num_without_score else ""
    lines.append(f"{checkpoints}{without_score_text}; {counts_text or 'nothing was looked at'}")
    lines.append(f"chance of a false alarm of a kind in the whole run: at most {alarmed.rules.rate:g}")
    return "\n".join([*lines, f"again: {alarmed.command}"])


def alarms_record(alarmed: AlarmResult) -> AlarmsRecord:
    """Returns the record for `--format json`."""
    alarms = [_alarm_record(*pair) for pair in zip(alarmed.alarms, alarmed.events, strict=True)]
    return record_from(AlarmsRecord, alarmed, alarmed.rules, alarms=alarms)


def _alarm_record(alarm: Alarm, event: AlarmRaised) -> RaisedAlarm:
    return record_from(
        RaisedAlarm,
        alarm,
        event,
        event.subject,
        reference_outer_step=event.reference.outer_step,
        reference_uri=event.reference.uri,
        confirmation=alarm.number,
        cases=[f"{case.suite}/{case.name}" for case in event.cases],
    )
