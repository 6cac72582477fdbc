"""The `evaluate(case)` fixture, and the transport of its result on an item's report."""

from __future__ import annotations

import contextlib
import dataclasses
import operator
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from lobench.core.case import CaseInfo, CaseSpec, SeedBlock
from lobench.core.code import split_code
from lobench.core.code_origin import Origin, origin_of_file
from lobench.core.containment import contain_plugins
from lobench.core.errors import ConfigError, LobenchError, UsageError
from lobench.core.result import Curves, Outcome
from lobench.core.wording import headline
from lobench.engine.config.command_case import is_command
from lobench.engine.config.user_code import computed_fingerprints
from lobench.evaluation.request import DeadlinePassed, RewrittenCheckpoint
from lobench.evaluation.result import Result
from lobench.experiments.pytest_items import member_of
from lobench.pytest_plugin.item_cases import case_of
from lobench.pytest_plugin.item_result import CURRENT_JOB, FINISHED_BLOCKS, ISOLATION_REASON, MEASUREMENTS, ItemResult
from lobench.pytest_plugin.items import blocks_of, bound_command, case_info, runners_of, test_name, variant_of
from lobench.pytest_plugin.reuse import KEPT_CODES, OUTDATED_CODES, reused_curves, stored_case_info

__all__ = ["BLOCK_VERDICT", "attach_evaluations", "evaluate_function"]

# Outcome and message of a whole seed block, if its item tests only one of its seeds.
BLOCK_VERDICT: pytest.StashKey[tuple[Outcome, str]] = pytest.StashKey()


def evaluate_function(item: pytest.Item) -> Callable[[CaseSpec], Result]:
    """Returns the function `evaluate` for one item."""

    def evaluate_case(case: CaseSpec) -> Result:
        variant = variant_of(item)
        stored_info = stored_case_info(item, variant)
        blocks = blocks_of(item, stored_info) if stored_info is not None and case == case_of(item) else []
        stored_curves = reused_curves(item, stored_info, blocks) if stored_info is not None and blocks else None
        if stored_curves is not None:
            item.stash.setdefault(FINISHED_BLOCKS, []).extend(zip(blocks, stored_curves, strict=True))
            if is_command(case):
                return Result(stored_curves, lambda: bound_command(item, case, variant).case)
            return Result(
                stored_curves, lambda: runners_of(item.config, variant).in_process.bind(case, test_name(item)).case
            )
        if is_command(case):
            from lobench.pytest_plugin.commanded import evaluate_command

            return evaluate_command(item, case)
        from lobench.pytest_plugin.training import evaluate_by_training  # imports jax

        return evaluate_by_training(item, case)

    def evaluate(case: CaseSpec) -> Result:
        """Evaluates a case. Tracebacks of lobench's own errors end at the line of the test that called it."""
        __tracebackhide__ = operator.methodcaller("errisinstance", LobenchError)
        if not isinstance(case, CaseSpec):
            expected = "the argument `case` of a test with @lobench.cases(FILE)"
            raise UsageError("evaluate() takes a case", got=repr(case), expected=expected)
        try:
            # A worker that ends is noticed, and its job is tried again; a session would end as if it had passed.
            with contextlib.nullcontext() if CURRENT_JOB in item.config.stash else contain_plugins():
                return evaluate_case(case)
        except LobenchError as error:
            raise error.with_traceback(None)  # noqa: B904  (the same error; what caused it stays)

    return evaluate


def attach_evaluations(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Attaches the item's evaluations to its report as plain values, so that pytest-xdist transports them."""
    has_ended = report.when == "call" or (report.when == "setup" and not report.passed)
    if not has_ended:
        return
    member = member_of(item)
    if member is not None and member.method.kind == "command":
        return
    error = call.excinfo.value if call.excinfo is not None else None
    outcome, message = outcome_and_message(report, error)
    if outcome in (Outcome.PASSED, Outcome.FAILED):
        outcome, message = item.stash.get(BLOCK_VERDICT, (outcome, message))
    finished_blocks: list[tuple[SeedBlock, Curves]] = item.stash.setdefault(FINISHED_BLOCKS, [])
    curves_by_block = dict(finished_blocks)
    item.stash[FINISHED_BLOCKS] = []
    try:
        info = stored_case_info(item, variant_of(item)) or case_info(item, variant_of(item))
        blocks = blocks_of(item, info)
        if member is not None:
            report.lobench_member = [member.method.name, member.session]  # type: ignore[attr-defined]
            if report.failed:
                method_text = f"method {member.method.name}, session {member.session} (seed block {blocks[0]})"
                report.sections.append(("lobench", method_text))
    except ConfigError:
        return  # the report has the error; without its bindings the case has no identity
    if CURRENT_JOB not in item.config.stash:
        _attach_to_report(item, report, info, finished_blocks, message)
    if info.whole and outcome is Outcome.FAILED:
        outcome, message = Outcome.PASSED, ""  # expectations are for the whole training
    blocks += [block for block in curves_by_block if block not in blocks]  # seeds that a gate added
    records = []
    kept_codes, outdated_codes = (item.config.stash.get(key, {}) for key in (KEPT_CODES, OUTDATED_CODES))
    for block in blocks:
        curves = curves_by_block.get(block)
        stored_code, _ = kept_codes.get((info.key, block), (info.code, ""))
        case_code, subject_code = split_code(stored_code)
        item_result = ItemResult(
            case=dataclasses.replace(info, case_code=case_code, subject_code=subject_code),
            seed_block=block,
            outcome=outcome,
            message="; ".join(filter(None, (message, *(curves.problems if curves is not None else ())))),
            payload=curves.to_payload() if curves is not None else b"",
        )
        records.append(item_result.to_bytes())
    # For the process that writes the ledger: parts of the case's code, its gin file, and the data files that they name.
    codes = computed_fingerprints([info])
    report.lobench_codes = {code_id: dict(code.parts) for code_id, code in codes.items()}  # type: ignore[attr-defined]
    data_files = sorted({file for code in codes.values() for file in code.data_files})
    if (spec := case_of(item)) is not None:
        report.lobench_data = [spec.path, data_files]  # type: ignore[attr-defined]
    code_changes = [
        [*codes_of_blocks[info.key, block]]
        for codes_of_blocks in (kept_codes, outdated_codes)
        for block in blocks
        if (info.key, block) in codes_of_blocks
    ]
    report.lobench_other_code = code_changes  # type: ignore[attr-defined]
    report.lobench = records  # type: ignore[attr-defined]
    report.lobench_apart = item.stash.get(ISOLATION_REASON, "")  # type: ignore[attr-defined]
    report.lobench_gate = item.stash.setdefault(MEASUREMENTS, [])  # type: ignore[attr-defined]
    item.stash[MEASUREMENTS] = []


def _attach_to_report(
    item: pytest.Item,
    report: pytest.TestReport,
    info: CaseInfo,
    finished_blocks: list[tuple[SeedBlock, Curves]],
    message: str,
) -> None:
    """Adds properties and a failure text to a report. JUnit writes an item's properties at its teardown."""
    from lobench.pytest_plugin.report_properties import failure_section, junit_properties

    if finished_blocks:
        spec = case_of(item)
        item_properties = junit_properties(spec.path if spec is not None else str(item.path), info, finished_blocks)
        item.user_properties += item_properties
        report.user_properties += item_properties
    if report.failed:
        report.sections.append(("lobench", failure_section(item, info, finished_blocks, message)))


def outcome_and_message(report: pytest.TestReport, error: BaseException | None) -> tuple[Outcome, str]:
    """Returns the outcome of an item, and one line on what went wrong."""
    if report.passed:
        return Outcome.PASSED, ""
    if report.skipped:
        if hasattr(report, "wasxfail"):
            return Outcome.SKIPPED, f"xfail: {report.wasxfail}".strip().splitlines()[0]
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        return Outcome.SKIPPED, reason.splitlines()[0] if reason else ""
    if error is None:  # a strict xfail that passed
        return Outcome.FAILED, report.longreprtext.strip().splitlines()[-1]
    message = headline(error)
    if isinstance(error, DeadlinePassed):
        return Outcome.TIMEOUT, message
    if isinstance(error, RewrittenCheckpoint):
        return Outcome.EXPIRED, message
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in message:
        return Outcome.OOM, message
    if isinstance(error, AssertionError | pytest.fail.Exception):
        return Outcome.FAILED, message
    return Outcome.ERROR, message if isinstance(error, LobenchError) else f"{message}{_user_line(error)}"


def _user_line(error: BaseException) -> str:
    """Returns the line of the user's code that an error comes from, such as " (valley.py:16)"; "" if there is none."""
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    lines = [f" ({Path(file).name}:{line})" for file, line in frames if origin_of_file(file) is Origin.USER]
    return lines[-1] if lines else ""
