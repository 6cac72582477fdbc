"""How often `lobench audit` accuses honest bundles, names tampered ones, and what a bundle costs.

Usage:
  python benchmarks/audit_rates.py honest [--count 200]
  python benchmarks/audit_rates.py tampered [--count 200]
  python benchmarks/audit_rates.py isa [--count 100] [--runs FOLDER]
  python benchmarks/audit_rates.py size [--count 10000]
  python benchmarks/audit_rates.py site [--count 50]

`honest`: each bundle is of a run of its own, of two subjects on two tiny cases in four blocks: every 20 runs in another
process, the first of every 40 with two workers beside it, the order of the subjects changed. Half of the processes
evaluate checkpoints, half optimizers without theta. Each is audited in full, in one warm process. `tampered`: copies of
a store of two checkpoints, each changed in one of the ways of `tests/tampered.py` by somebody who makes a new root; all
are audited in full. Then as many bundles of 80 evaluations, 8 of them with a changed value, are audited by a draw of
5%, and the share that is caught is held against the hypergeometric rate. `isa`: as `honest` on two networks, made with
`XLA_FLAGS=--xla_cpu_max_isa=SSE4_2` (and AVX), which know no fused multiply-add, and audited without it, four of the
eight evaluations each. `size`: a store of so many evaluations, made of values of a log-normal law, as a bundle: seconds
and bytes, beside gzip of its curves. `site`: so many bundles of four methods on five cases as a site, and Chromium that
opens its first page and the page of a bundle.
"""

from __future__ import annotations

import argparse
import collections
import gzip
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from audit_varied import evaluated_here
from tiny import GIN, make_run, make_suite, watch

_GIN = """
import lobench.inner.tasks.digits
Case.num_inner_steps = 30
Case.num_seeds = 4
Case.seed_block = 2
Case.eval_every = 10
Case.eval_batches = 2
a/Case.task = @DigitsMLP()
a/DigitsMLP.hidden_sizes = (8,)
b/Case.task = @DigitsMLP()
b/DigitsMLP.hidden_sizes = (16, 16)
b/Case.num_inner_steps = 20
"""
_TINY = GIN.replace("Case.num_seeds = 2", "Case.num_seeds = 4\nCase.seed_block = 2")
_AT_ONCE = 20  # runs of a process


def make_runs(folder: Path, suite: Path, first: int, count: int) -> None:
    """Makes stores of runs in this process, or with workers beside it: what `--make` does."""
    from lobench.api.evaluate import evaluate_into

    for number in range(first, first + count):
        logs = np.random.default_rng(number).uniform(-3.5, -0.5, 2)
        if number // _AT_ONCE % 2:
            names = zip(("adam", "sgd"), 10**logs, strict=True)
            subjects = [f"{name}(); {name}.learning_rate = {rate:.4g}" for name, rate in names]
        else:
            run = make_run(folder / f"run{number}", *(logs * np.log(10)))
            subjects = [str(run / f"theta_{n}.npz") for n in (1, 2)]
        if number % 2:
            subjects.reverse()
        is_pool = number % (2 * _AT_ONCE) == 0
        executor = {"executor": "local", "workers": 2} if is_pool else {"executor": "inline"}
        evaluate_into(folder / f"store{number}", subjects, suite, **executor)


def _made(folder: Path, suite: Path, count: int, flags: list[str]) -> None:
    for index, first in enumerate(range(0, count, _AT_ONCE)):
        limit = flags[index % len(flags)]
        environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(folder / f"cache-{limit}")}
        environment |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
        if limit:
            environment["XLA_FLAGS"] = f"--xla_cpu_max_isa={limit}"
        command = [sys.executable, __file__, "--make", str(folder), str(suite), str(first)]
        command.append(str(min(_AT_ONCE, count - first)))
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        print(f"{min(first + _AT_ONCE, count)} runs made {limit}", flush=True)


def _bits(curves: Any) -> bytes:
    return b"".join(np.asarray(values).tobytes() for _, values in sorted(curves.metrics.items()))


def runs(count: int, flags: list[str], made: Path | None, sample: str) -> None:
    from tampered import published

    from lobench.tools.audit.audit import audit

    verdicts: collections.Counter[str] = collections.Counter()
    accused, wrong, p_values = 0, 0, []
    with tempfile.TemporaryDirectory() as name, evaluated_here() as (set_suite, evaluated):
        folder = made or Path(name)
        folder, is_made = folder.resolve(), made is not None and made.is_dir()
        suite = folder / ("digits_small" if any(flags) else "tiny")
        if not is_made and any(flags):
            suite.mkdir(parents=True)
            (suite / "small.gin").write_text(_GIN)
        elif not is_made:
            make_suite(folder, _TINY)
        set_suite(suite)
        if not is_made:
            _made(folder, suite, count, flags)
        for number in range(count):
            evaluated.clear()
            bundle = published(folder / f"store{number}", folder / f"{number}.lobench", suite)
            found = audit(bundle, sample=sample, beacon=f"beacon {number}")
            verdicts.update(found.verdict_counts)
            accused += not found.is_passed
            bits = {_bits(curves) for curves in evaluated}
            alike = [_bits(one.row.curves) in bits for one in found.evaluations]
            wrong += sum(
                one.verdict == "identical"
                for one, is_alike in zip(found.evaluations, alike, strict=True)
                if not is_alike
            )
            if found.rounding_test is not None:
                p_values.append(found.rounding_test.p_value)
            if not found.is_passed:
                print(number, found.contradictions, [one.why for one in found.evaluations if one.verdict == "differs"])
            if number % 10 == 9:
                print(f"{number + 1} bundles: {accused} accused; {dict(verdicts)}", flush=True)
    tested = f"; {len(p_values)} tested, p <= .05 in {sum(p <= 0.05 for p in p_values)}" if p_values else ""
    print(
        f"{count} honest bundles: {accused} accused; evaluations {dict(verdicts)}, {wrong} identical by mistake{tested}"
    )


def tampered_bundles(count: int) -> None:
    from tampered import TAMPERINGS, published, tampered

    from lobench.tools.audit.audit import audit

    named: collections.Counter[str] = collections.Counter()
    total: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as name, evaluated_here() as (set_suite, _):
        folder = Path(name)
        suite = make_suite(folder, _TINY)
        set_suite(suite)
        for store, rates in (("store", (-3.0, -2.0)), ("many", np.linspace(-4, -1, 20).tolist())):
            run = make_run(folder / store, *rates)
            done = watch(run, suite, "--once", "--checkpoints", "all", "--store", str(folder / store))
            assert not done.returncode, done.stderr
            assert audit(published(folder / store, folder / "honest.lobench", suite)).is_passed
        for number in range(count):
            kind = list(TAMPERINGS)[number % len(TAMPERINGS)]
            with tempfile.TemporaryDirectory(dir=folder) as place:
                found = audit(tampered(kind, folder / "store", suite, Path(place), np.random.default_rng(number)))
            kinds = {one.kind for one in found.contradictions} | set(found.verdict_counts)
            total[kind] += 1
            named[kind] += bool(kinds & set(TAMPERINGS[kind]))
        for kind in total:
            print(f"{kind}: {named[kind]} of {total[kind]} named", flush=True)
        print(f"{count} tampered bundles: {sum(named.values())} named", flush=True)
        _sampled(count, folder / "many", suite, folder)


def _sampled(count: int, store: Path, suite: Path, folder: Path) -> None:
    """Audits bundles by a draw, each with other values changed, and compares how many are caught with the law."""
    from tampered import tampered

    from lobench.analysis.stats.proportions import escape_chance
    from lobench.tools.audit.audit import audit

    num_false, caught = 8, 0
    for number in range(count):
        with tempfile.TemporaryDirectory(dir=folder) as place:
            bundle = tampered("final", store, suite, Path(place), np.random.default_rng(number), count=num_false)
            found = audit(bundle, sample="5%", beacon=f"beacon {number}")
        assert not found.contradictions
        caught += not found.is_passed
    num_all, num_drawn = found.num_evaluations, len(found.evaluations)
    rate = 1 - escape_chance(num_all, num_false, num_drawn)
    error = (rate * (1 - rate) / count) ** 0.5
    print(
        f"{num_drawn} of {num_all} drawn, {num_false} false: caught {caught / count:.3f} of {count}, "
        f"hypergeometric {rate:.3f} +- {error:.3f}"
    )


def _make_store(store: Path, cases: list[Any], first: int, num_subjects: int) -> list[bytes]:
    """Makes a store of evaluations with values of a log-normal law; returns their payloads."""
    from lobench.core.case import SeedBlock
    from lobench.core.checkpoint import Checkpoint
    from lobench.core.result import Curves, EvaluationKey, Outcome, Provenance
    from lobench.core.subject import Subject
    from lobench.engine.store.ledger import Ledger

    rng, steps, payloads = np.random.default_rng(first), tuple(range(0, 1001, 50)), []
    with Ledger.open(store) as ledger, ledger.transaction():
        for number in range(first, first + num_subjects):
            checkpoint = Checkpoint(uri=f"/run{number}/theta.npz", sha256=f"{number:064x}", outer_step=number)
            ledger.record_sighting(Subject.of_checkpoint(checkpoint))
            for case in cases:
                values = np.exp(rng.standard_normal((2, 4, len(steps)))).astype(np.float32)
                curves = Curves(
                    seeds=(0, 1, 2, 3),
                    metrics={"train/loss": memoryview(values[0]), "test/loss": memoryview(values[1])},
                    eval_steps=steps,
                    diverged_at=(-1,) * 4,
                    compile_seconds=float(rng.uniform(1, 2)),
                    wall_seconds=float(rng.uniform(1, 2)),
                    provenance=Provenance(host="here", device="cpu: x86-64-v4 x 1", versions={"jax": "0.10.2"}),
                )
                payloads.append(curves.to_payload())
                key = EvaluationKey.of(checkpoint.sha256, case, SeedBlock(start=0, size=4), "5")
                ledger.record_evaluation(key, case, Outcome.PASSED, curves=curves)
    return payloads


def size(count: int) -> None:
    from stores import case_info

    from lobench.tools.publish.publish import publish

    cases = [case_info(f"case{number}") for number in range(50)]
    with tempfile.TemporaryDirectory() as name:
        store = Path(name) / "store"
        payloads = _make_store(store, cases, 0, max(count // len(cases), 1))
        started = time.perf_counter()
        publish(store, Path(name) / "results.lobench")
        seconds = time.perf_counter() - started
        num_bytes = (Path(name) / "results.lobench").stat().st_size
        zipped = len(gzip.compress(b"".join(payloads), 6))
        print(
            f"{len(payloads)} evaluations: {seconds:.1f} s, {num_bytes / 1e6:.2f} MB, "
            f"{num_bytes / zipped:.2f} times gzip of the curves ({zipped / 1e6:.2f} MB)"
        )


def site(count: int) -> None:
    from chromium import started as browser_started
    from stores import case_info

    from lobench.tools.publish.publish import publish
    from lobench.tools.site.site import make_site

    cases = [case_info(f"case{number}") for number in range(5)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bundles = [folder / f"{number}.lobench" for number in range(count)]
        for number, bundle in enumerate(bundles):
            _make_store(folder / f"store{number}", cases, 4 * number, 4)
            publish(folder / f"store{number}", bundle)
        begun, used = time.perf_counter(), time.process_time()
        make_site(bundles, folder / "site")
        wall, processor = time.perf_counter() - begun, time.process_time() - used
        print(f"site of {count} bundles, {4 * count} methods: {wall:.1f} s, {processor:.1f} of processor")
        index = folder / "site" / "index.html"
        other = next(page for page in sorted((folder / "site").rglob("*.html")) if page != index)
        with browser_started() as browser:
            for page, what in ((index, "its first page"), (other, "a bundle's")):
                seconds = []
                for _ in range(3):
                    tab = browser.new_page()
                    begun = time.perf_counter()
                    tab.goto(page.as_uri())
                    seconds.append(time.perf_counter() - begun)
                    tab.close()
                size = page.stat().st_size / 1e6
                print(f"{what} ({size:.2f} MB) is loaded in {', '.join(f'{one:.2f}' for one in seconds)} s")


def main() -> None:
    if sys.argv[1:2] == ["--make"]:
        make_runs(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["honest", "tampered", "isa", "size", "site"])
    parser.add_argument("--count", type=int)
    parser.add_argument("--runs", type=Path, help="Folder of the runs, made if it is not there.")
    options = parser.parse_args()
    count = options.count or {"honest": 200, "tampered": 200, "isa": 100, "size": 10_000, "site": 50}[options.what]
    if options.what == "size":
        size(count)
    elif options.what == "site":
        site(count)
    elif options.what == "tampered":
        tampered_bundles(count)
    else:
        flags, sample = ([""], "100%") if options.what == "honest" else (["SSE4_2", "AVX"], "4")
        runs(count, flags, options.runs, sample)


if __name__ == "__main__":
    main()
