"""Options and output of `lobench compare`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from lobench.api.settings import CompareSettings
from lobench.cli.exit_codes import ExitCode
from lobench.cli.options import evaluation_options, options_of
from lobench.cli.output import call_with_progress, emit, emit_text, format_option, show
from lobench.core.errors import UsageError

__all__ = ["compare"]

_RACE_OPTIONS = {"seeds": 24, "block": 2}  # options of races, and their defaults
_FLAG_BY_OPTION = {"metrics": "metric", "cases": "case"}
_NO_RACE_OPTIONS = ("metrics", "cases", "target", "until_step", "strict", "independent_cases", "seed_means", "details")
_RULE_OPTIONS = ("subjects", "store", "target", "strict", "rule", "output_format")


@click.command(
    epilog="""\b
A, B and C are:
  a store, or a run's folder with one store below it: its last checkpoint
  STORE@NAME, or with --store NAME alone: a label, a scope of its experiment,
    the gin text of an optimizer, the path of a checkpoint or its end, an
    outer step, or the start of a sha256. The methods of the last experiment
    come first, with the numbers of its table.
  with --suite, a subject to evaluate now: a checkpoint, a NAME, or an
    optimizer ('adam(); adam.learning_rate = 0.01'). Its own gin bindings
    follow a semicolon: 'celo.msgpack; Case.learned_optimizer = @Celo()'

\b
Examples:
  lobench compare runs/yesterday/lobench_results/quick runs/today/lobench_results/quick
  lobench compare 100 200 --store runs/today/lobench_results/quick
  lobench compare SGD 'Adam, tuned' --store .lobench/experiment
  lobench compare muon soap --store runs/imported --target val/loss=3.28
  lobench compare muon --store runs/imported --rule track3
  lobench compare dm.npz dm_cl.npz --suite suites/digits --gin-param 'Case.learned_optimizer = @L2ODM()'
  lobench compare 'adam()' 'adam(); adam.learning_rate = 0.01' 'sgd()' --suite quick --race

Exit codes: 0, 1 one of B, C, ... regressed against A (with --strict: or it is undecided), 2 usage, 3 nothing was
compared: one of B, C, ... has no seed with results in common with A. Of --race: 0, also
where several are in at the end; 2 usage, or an evaluation gave no result. Of --rule track3: 0, 1 a result is not
accepted (with --strict: or B, C, ... is not shown to beat A), 2 usage."""
)
@click.argument("subjects", nargs=-1, required=True, metavar="A B [C ...]")
@click.option(
    "--store",
    type=click.Path(path_type=Path),
    help="Store to look up A, B, ...; with --suite, store for the evaluations (default: .lobench/compare/SUITE).",
)
@click.option("--suite", "suites", multiple=True, help="Evaluate checkpoints and optimizers on this suite; repeatable.")
@click.option(
    "--baseline",
    "baselines",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="Suite or file of baselines that sets 1 on the scale (default: that of --suite, or of the stores' suites).",
)
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    help="Metric to compare; repeatable (default: the primary metric, train/loss and test/loss).",
)
@click.option(
    "--case", "cases", multiple=True, help="Only this case: relu32, quick/relu32 or digits.relu32; repeatable."
)
@options_of(CompareSettings)
@click.option("--strict", is_flag=True, help="Exit with 1 for an undecided gate too.")
@click.option(
    "--race",
    is_flag=True,
    help="With --suite: find the best method. Train block after block of seeds, and stop training methods that are "
    "shown to be worse.",
)
@click.option(
    "--rule",
    type=click.Choice(["track3"]),
    help="Judge one or more stored results by a benchmark's own rule. track3 (modded-nanogpt) tests whether the mean "
    "loss of the runs is below --target (default: 3.28), and whether B beats A.",
)
@click.option(
    "--seeds", type=click.IntRange(min=1), help="With --race: largest number of seeds per case (default: 24)."
)
@click.option("--block", type=click.IntRange(min=1), help="With --race: seeds per round (default: 2).")
@format_option(
    "table",
    "json",
    "markdown",
    name="output_format",
    help="json: one document on standard output, see `lobench schema`; markdown: a comment of a pull request.",
    prints={
        "compare": "lobench.report.tables.comparison:ComparisonRecords",
        "compare.race": "lobench.report.tables.race_output:RaceRecord",
        "compare.track3": "lobench.report.tables.track3:Track3Record",
    },
)
@click.option(
    "--details", is_flag=True, help="Add costs, values at equal time, gate margins, effect sizes and all notes."
)
@evaluation_options
def compare(
    subjects: tuple[str, ...], strict: bool, race: bool, rule: str | None, output_format: str, **options: Any
) -> None:
    """Compare B, C, ... with A: the verdict, then the difference on each case. The exit code is the gate's verdict.

    With --race, find the best of all methods with few trainings. A round trains one more block of seeds of every
    remaining method. You may look after every round and stop at any time: --alpha holds for the whole race. The same
    command continues a stopped race.
    """
    if output_format == "markdown":
        _refuse_options(
            [*(["--rule"] if rule is not None else []), *(["--race"] if race else [])], "not for --format markdown"
        )
    if rule is not None:
        _judge_by_track3(subjects, options["store"], options["target"], strict=strict, output_format=output_format)
        return
    if race:
        _run_race(subjects, {"strict": strict, **options}, output_format)
        return
    _refuse_options([f"--{name}" for name in _RACE_OPTIONS if options.pop(name) is not None], "of --race alone")
    from lobench.api.compare import compare as compare_subjects
    from lobench.report.tables.comparison import comparison_records
    from lobench.report.tables.comparison_text import comparison_text

    details = options.pop("details")
    if details and output_format != "table":
        raise UsageError("--details is of --format table", got=f"--format {output_format}")
    comparisons = call_with_progress(compare_subjects, *subjects, **options)
    if output_format == "json":
        emit(
            "compare",
            comparison_records(
                comparisons.pairs, scale=comparisons.scale, steps=comparisons.steps, costs=comparisons.costs
            ),
        )
    elif output_format == "markdown":
        from lobench.report.tables.comparison_markdown import comparison_markdown

        emit_text(comparison_markdown(comparisons.pairs, scale=comparisons.scale, steps=comparisons.steps))
    else:
        show(
            comparison_text(
                comparisons.pairs,
                scale=comparisons.scale,
                steps=comparisons.steps,
                costs=comparisons.costs,
                details=details,
            )
        )
    failing_verdicts = {"REGRESSED", "INCONCLUSIVE"} if strict else {"REGRESSED"}
    subjects_without_pairs = comparisons.compared_nothing()
    if subjects_without_pairs:
        first_pair = comparisons.pairs[0]
        reason = (
            f"no {first_pair.replicate} has results of {first_pair.a.label} and of {', '.join(subjects_without_pairs)}"
        )
        click.echo(f"nothing was compared: {reason}", err=True)
    if failing_verdicts.intersection(comparisons.verdicts()):
        sys.exit(ExitCode.VERDICT)
    sys.exit(ExitCode.ERROR if subjects_without_pairs else ExitCode.OK)


def _run_race(methods: tuple[str, ...], options: dict[str, Any], output_format: str) -> None:
    from lobench.api.race import race
    from lobench.report.tables.race_output import race_record, race_text

    flags = {name: _FLAG_BY_OPTION.get(name) or name.replace("_", "-") for name in _NO_RACE_OPTIONS}
    unusable_options = [f"--{flags[name]}" for name in _NO_RACE_OPTIONS if options.pop(name)]
    unusable_options += ["--max-diverged"] if options.pop("max_diverged") < 1 else []
    _refuse_options(unusable_options, "of no race, which has no A and no verdict")
    options |= {name: options[name] or default for name, default in _RACE_OPTIONS.items()}
    options["margin"] = options["margin"] or 0.0
    race_result = call_with_progress(race, *methods, **options)
    if output_format == "json":
        emit("compare.race", race_record(race_result, options["alpha"]))
    else:
        show(race_text(race_result, options["alpha"], options["margin"]))


def _judge_by_track3(
    names: tuple[str, ...], store: Path | None, target: str | None, *, strict: bool, output_format: str
) -> None:
    from lobench.analysis.comparisons.steps_to_target import parse_target
    from lobench.analysis.comparisons.track3 import judge_results
    from lobench.api.resolve import find_stored_subject
    from lobench.report.tables.track3 import track3_record, track3_text

    context = click.get_current_context()
    given_options = [
        param for param in context.params if context.get_parameter_source(param) is ParameterSource.COMMANDLINE
    ]
    flags = {param.name: param.opts[0] for param in context.command.params}
    refused_flags = [flags[name] for name in given_options if name not in _RULE_OPTIONS]
    _refuse_options(refused_flags, "not of --rule, which defines all but the target")
    parsed_target = parse_target(target) if target is not None else None
    verdicts = judge_results([find_stored_subject(name, store).subject for name in names], parsed_target)
    if output_format == "json":
        emit("compare.track3", track3_record(verdicts))
    else:
        show(track3_text(verdicts))
    tests = [result.test for result in verdicts.results] + [pair.test for pair in verdicts.pairs if strict]
    sys.exit(ExitCode.OK if all(test.is_passed for test in tests) else ExitCode.VERDICT)


def _refuse_options(flags: list[str], reason: str) -> None:
    if flags:
        raise UsageError(f"{flags[0]} is {reason}")
