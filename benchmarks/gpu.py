"""Writes a page on a GPU: its tests, equal bits, memory, roofline and ratios, in ten minutes.

Usage:
  python benchmarks/gpu.py                       # writes gpu.md
  python benchmarks/gpu.py --page FILE --seconds 600
  python benchmarks/gpu.py --only memory         # sections whose name has it
  python benchmarks/gpu.py --beside CHECKOUT     # google/learned_optimization's loop too, from its checkout
  JAX_PLATFORMS=cpu python benchmarks/gpu.py --rehearse

`--rehearse` runs all of it in small sizes on whatever jax finds, a CPU too: its numbers say nothing. Without it a
machine without a GPU ends with exit code 2. A section that fails or runs out of time keeps what it has written; then
the exit code is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["main"]

_ROOT = Path(__file__).parent.parent
# What computes on the device in the process of the tests; the others ask for files, processes or a CPU's bits.
_TESTS = (
    "tests/testing/test_optimizers.py",
    "tests/testing/test_tasks.py",
    "tests/inner/test_extra_inputs.py",
    "tests/inner/test_phases.py",
    "tests/inner/test_saved.py",
)
_SMALL_TESTS = ("tests/testing/test_optimizers.py::Testadam",)
_ROWS = (
    *("digits_adam", "digits_adafac", "scan_adam", "scan_mlp", "scan_adafac", "floor_adam", "floor_adafac"),
    *("wide_adam", "wide_adafac", "bare_conv", "bare_text_transformer", "first_result_warm"),
)
_SMALL_ROWS = ("floor_adam",)
_FAR = 1e-3  # relative: a device's curves of 50 steps are as close as this to a CPU's


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """Settings of a page."""

    is_rehearsal: bool
    beside: str = ""


def _tests(run: Run) -> Iterator[str]:
    asked = _SMALL_TESTS if run.is_rehearsal else _TESTS
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-n0", "--tb=line", "--maxfail=20", "-rfE"]
    yield f"`pytest {' '.join(asked)}`"
    yield ""
    command += asked
    with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        last = ""
        for line in process.stdout:
            if line.startswith(("FAILED", "ERROR")):
                yield f"- {line.rstrip()}"
            last = line.strip() or last
    yield last
    if process.returncode:
        raise SystemExit(f"pytest ended with {process.returncode}")


_CURVES = """
import json, sys
import numpy as np
import inner
from lobench.core.case import SeedBlock
program = inner._program(inner._digits(), sys.argv[1], 50, 4)
for _ in range(2):
    curves = program.run(inner._theta(sys.argv[1]), SeedBlock(start=0, size=4)).metrics
    print(json.dumps({name: np.asarray(values).tolist() for name, values in sorted(curves.items())}))
"""


def _curves(name: str, **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", _CURVES, name],
        cwd=Path(__file__).parent,
        env={**os.environ, **environment},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout.splitlines()


def _bits(run: Run) -> Iterator[str]:
    import numpy as np

    yield "Four seeds, 50 steps of the digits MLP; two runs of one process, another process, and a CPU's."
    yield ""
    yield "| optimizer | sha256 | equal twice | equal in another process | largest relative distance to a CPU |"
    yield "| --- | --- | --- | --- | ---: |"
    differs = []
    for name in ("adam",) if run.is_rehearsal else ("adam", "adafac", "mlp", "celo"):
        here, again = _curves(name), _curves(name)
        cpu = json.loads(_curves(name, JAX_PLATFORMS="cpu", NPROC="1")[0])
        own = {metric: np.asarray(values) for metric, values in json.loads(here[0]).items()}
        far = max(
            float(np.nanmax(np.abs(own[metric] - values) / np.maximum(np.abs(values), 1e-3)))
            for metric, values in cpu.items()
        )
        twice, other = here[0] == here[1], here == again
        digest = hashlib.sha256(here[0].encode()).hexdigest()[:12]
        yield f"| {name} | {digest} | {twice} | {other} | {far:.1e} |"
        if not (twice and other and far < _FAR):
            differs.append(name)
    if differs:
        raise SystemExit(f"other bits, or a distance of more than {_FAR:g}: {', '.join(differs)}")


def _memory(of: str, run: Run) -> Iterator[str]:
    import jax
    import numpy as np
    from inner import _digits, _program, _theta

    from lobench.core.case import SeedBlock
    from lobench.core.step_cost import StepSeconds

    num_steps = 100 if run.is_rehearsal else 500
    yield f"digits MLP, AdafacMLPLOpt, {num_steps} steps. Bytes as XLA plans them, and the most that the device held."
    yield ""
    yield f"| {of} together | planned MB | device MB | us a step of one | whole training s |"
    yield "| ---: | ---: | ---: | ---: | ---: |"
    theta = jax.tree.map(np.asarray, _theta("adafac"))
    for count in (1, 2) if run.is_rehearsal else (1, 4, 16, 64, 256):
        width = count if of == "seeds" else 1
        program, block = _program(_digits(), "adafac", num_steps, width), SeedBlock(start=0, size=width)
        train: Callable[[], Any] = functools.partial(program.run, theta, block)
        if width < count:
            train = functools.partial(_first_of_many, program, [theta] * count, block)
        first = train()
        started = time.perf_counter()
        second = train()
        seconds = time.perf_counter() - started
        ((compiled, _, _),) = program._compile_caches[0]._programs.values()
        planned = compiled.memory_analysis()
        parts = (planned.argument_size_in_bytes, planned.temp_size_in_bytes, planned.output_size_in_bytes)
        peak = first.cost.peak_bytes if first.cost is not None else None
        step = StepSeconds.of([second.cost]).median if second.cost is not None else float("nan")
        held = f"{peak / 1e6:.1f}" if peak else "not told"
        yield f"| {count} | {sum(parts) / 1e6:.2f} | {held} | {1e6 * step:.2f} | {seconds:.3f} |"


def _first_of_many(program: Any, thetas: list[Any], block: Any) -> Any:
    return program.run_many(thetas, block)[0]


def _roofline(run: Run) -> Iterator[str]:
    import roofline

    if run.is_rehearsal:
        (*update, _), (*step, _) = roofline._UPDATES[2], roofline._STEPS[1]
        yield from roofline.lines([(*update, 20)], [(*step, 20)])
    else:
        yield from roofline.lines()


def _rows(run: Run) -> Iterator[str]:
    import harness

    found, failed = [], []
    yield "`python benchmarks/run.py --quick`, one row after another"
    yield ""
    with tempfile.TemporaryDirectory() as folder:
        for name in _SMALL_ROWS if run.is_rehearsal else _ROWS:
            into = Path(folder) / "row.json"
            command = [sys.executable, str(_ROOT / "benchmarks" / "run.py"), "--quick", "--only", name]
            command += ["--json", str(into)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            rows = json.loads(into.read_text())["results"] if into.exists() else []
            into.unlink(missing_ok=True)
            if done.returncode or not rows:
                failed.append(f"{name}: {(done.stderr.strip() or 'no row').splitlines()[-1]}")
            head, rule, *table = harness.table([harness.Measurement(**row) for row in rows]).splitlines()
            yield from [] if found else [head, rule]
            yield from table
            found += rows
    if failed:
        raise SystemExit("; ".join(failed))


def _beside(run: Run) -> Iterator[str]:
    import beside

    num_steps, rounds = (20, 1) if run.is_rehearsal else (500, 5)
    if run.beside:
        sys.path.insert(0, str(Path(run.beside).absolute()))
    try:
        found = beside.rounds_of(beside.DRAWN, "adafac", num_steps, rounds, by_processor_time=False)
    except ImportError as error:
        yield (
            f"Not measured: {error}. `--beside CHECKOUT` takes google/learned_optimization from its "
            "checkout; flax, dm-haiku, chex, toolz and tqdm are to be installed."
        )
        return
    ratios = sorted(found.ratios)
    yield (
        f"digits MLP, {found.what}: its loop over lobench, both compiled: "
        f"{ratios[len(ratios) // 2]:.2f} ({ratios[0]:.2f} - {ratios[-1]:.2f} of {len(ratios)})"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Section:
    """A part of the page, written by a process of its own.

    Attributes:
      seconds: At most.
    """

    name: str
    title: str
    seconds: float
    lines: Callable[[Run], Iterator[str]]


_SECTIONS = (
    _Section(name="bits", title="Bits", seconds=120, lines=_bits),
    _Section(name="memory_of_seeds", title="Seeds together", seconds=90, lines=functools.partial(_memory, "seeds")),
    _Section(name="memory_of_thetas", title="Thetas together", seconds=90, lines=functools.partial(_memory, "thetas")),
    _Section(name="roofline", title="Roofline of an update and of an inner step", seconds=90, lines=_roofline),
    _Section(name="beside", title="Beside google/learned_optimization", seconds=90, lines=_beside),
    _Section(name="rows", title="Ratios", seconds=240, lines=_rows),
    _Section(name="tests", title="Tests on the device", seconds=240, lines=_tests),
)

_ASK = "import jax; d = jax.devices(); print(jax.default_backend()); print(f'{len(d)} x {d[0].device_kind}')"


def _devices() -> tuple[str, str]:
    """Returns platform and devices as a process of its own sees them: one that asks holds the device's memory."""
    done = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, text=True, check=False)
    if done.returncode:
        return "none", (done.stderr.strip() or "jax does not start").splitlines()[-1]
    platform, devices = done.stdout.splitlines()[-2:]
    return platform, devices


def _driver() -> str:
    if shutil.which("nvidia-smi") is None:
        return ""
    asked = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    return "; ".join(subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split("\n")).strip("; ")


def _written(section: _Section, options: argparse.Namespace, left: float) -> tuple[str, str]:
    """Runs a section; returns its text and an error message."""
    if left <= 0:
        return "", f"left out: the {options.seconds:g} s were over"
    with tempfile.TemporaryDirectory() as folder:
        into, seconds = Path(folder) / "lines", left if options.rehearse else min(section.seconds, left)
        command = [sys.executable, __file__, "--section", section.name, "--page", str(into), "--beside", options.beside]
        environment = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} | os.environ  # two processes may share the device
        with subprocess.Popen(
            [*command, *["--rehearse"] * options.rehearse],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                _, stderr = process.communicate(timeout=seconds)
                wrong = (
                    (stderr.strip() or f"exit code {process.returncode}").splitlines()[-1] if process.returncode else ""
                )
            except subprocess.TimeoutExpired:
                wrong = f"ended after {seconds:.0f} s"
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        return into.read_text() if into.exists() else "", wrong


def main() -> int:
    """Writes the page. Returns the exit code: 2 without a GPU, 1 if a section failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, default=Path("gpu.md"), metavar="FILE", help="Where it is written.")
    parser.add_argument("--seconds", type=float, default=600, help="For all of it.")
    parser.add_argument("--only", default="", metavar="NAME", help="Part of a section's name.")
    parser.add_argument("--beside", default="", metavar="CHECKOUT", help="Of google/learned_optimization.")
    parser.add_argument("--rehearse", action="store_true", help="Small sizes, on a CPU too.")
    parser.add_argument("--section", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.section:
        (section,) = (each for each in _SECTIONS if each.name == options.section)
        with options.page.open("w") as file:
            for line in section.lines(Run(is_rehearsal=options.rehearse, beside=options.beside)):
                print(line, file=file, flush=True)
        return 0
    sections = [section for section in _SECTIONS if options.only in section.name]
    if not sections:
        parser.error(
            f"no section is named like {options.only!r}; there are {', '.join(each.name for each in _SECTIONS)}"
        )
    platform, devices = _devices()
    if platform != "gpu" and not options.rehearse:
        print(
            f"jax finds no GPU here; got {platform}: {devices}; `pip install 'lobench[cuda]'` where there is one, and "
            "--rehearse runs the same on a CPU",
            file=sys.stderr,
        )
        return 2
    return _page(sections, options, f"{platform}: {devices}")


def _page(sections: list[_Section], options: argparse.Namespace, device: str) -> int:
    from harness import machine

    until, failed = time.monotonic() + options.seconds, 0
    about = {"device": device, "driver": _driver()} | machine()
    parts = [f"# {'A rehearsal' if options.rehearse else 'lobench'} on {device}\n"]
    parts.append(", ".join(f"{key} {value}" for key, value in about.items() if value) + "\n")
    for section in sections:
        started = time.monotonic()
        text, wrong = _written(section, options, until - started)
        failed += bool(wrong)
        parts.append(f"## {section.title}\n\n{text}")
        parts.append(f"**{wrong}**\n" if wrong else "")
        options.page.write_text("\n".join(filter(None, parts)))  # after each, so that an end in between loses nothing
        print(f"{section.name}: {wrong or 'done'}, {time.monotonic() - started:.0f} s", flush=True)
    print(f"{options.page} has {len(sections)} sections; {failed} did not run through")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
