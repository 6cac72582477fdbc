"""Options and output of `lobench evolve`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from lobench.extend import emit, format_option

__all__ = ["evolve"]


@click.command(
    epilog="""\b
Examples:
  lobench evolve examples/evolve/digits_es.gin --store runs/digits --workers 2
  lobench watch runs/digits/checkpoints --suite suites/quick
  lobench evolve examples/evolve/digits_es.gin --store runs/study --seeds 10 --cases permuted --cases wide
  lobench evolve examples/evolve/digits_es.gin --store runs/study --seeds 10 --shard 3/20

The same command again resumes a killed run. With a larger Evolve.num_generations, --extend goes on with a run of
evolution strategies in STORE/extended_to_N, where the rate falls along a cosine over the added generations.

A store holds checkpoints/ (the elite, or theta), for a genetic
algorithm best/ (the best of the population), evolve.sqlite and logs/."""
)
@click.argument("config", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="CONFIG.gin")
@click.option("--store", required=True, type=click.Path(path_type=Path), help="Folder of the run, or of all runs.")
@click.option("--executor", default="local", show_default=True, help="local, inline, or a plugin's, such as ray.")
@click.option("--ray-address", default="auto", show_default=True, help="For --executor ray: auto, HOST:PORT or local.")
@click.option("--insecure", is_flag=True, help="Use a Ray cluster without authentication.")
@click.option(
    "--workers",
    default=0,
    type=click.IntRange(min=0),
    help="Workers per run; 0: as many as this machine has cores, also if the workers are on other machines.",
)
@click.option(
    "--seed",
    default=0,
    show_default=True,
    type=click.IntRange(min=0),
    help="Seed of the run, or the first seed of many runs.",
)
@click.option("--seeds", default=0, type=click.IntRange(min=0), help="Many runs: number of seeds for each of --cases.")
@click.option(
    "--cases",
    multiple=True,
    help="Many runs: one for each of these cases; repeatable. Without it, one run on all cases.",
)
@click.option("--case", "scopes", multiple=True, help="One run on only these cases of the file; repeatable.")
@click.option(
    "--parallel", default=1, show_default=True, type=click.IntRange(min=1), help="Many runs: how many at a time."
)
@click.option("--shard", default="", metavar="I/N", help="Many runs: the Ith of N shares, from 0; for job arrays.")
@click.option(
    "--extend",
    is_flag=True,
    help="Go on with a run that has ended, over the generations that Evolve.num_generations has more now, in a branch "
    "of its store.",
)
@click.option("--gin-param", "gin_params", multiple=True, help="gin binding that overrides the file's.")
@format_option("text", "json", name="output_format", prints={"evolve": "lobench_evolve.experiments:EvolveRecord"})
def evolve(output_format: str, executor: str, ray_address: str, insecure: bool, **options: object) -> None:
    """Meta-train theta by a genetic algorithm or evolution strategies, and write checkpoints for `lobench watch`."""
    from lobench_evolve.experiments import EvolveCommand, run_command
    from lobench_evolve.run import ExecutorOptions

    executor_options = ExecutorOptions(executor=executor, address=ray_address, insecure=insecure)
    outcome = run_command(EvolveCommand(executor_options=executor_options, **options))  # type: ignore[arg-type]  # click's values, checked by click
    if output_format == "json":
        emit("evolve", outcome)
    sys.exit(outcome.exit_code)
