"""Contract of import formats: a plugin's test module subclasses `ImportFormatContract` and writes a file of the format.

class TestTriples(ImportFormatContract):
    factory = "mypackage.formats:triples"
    names = ("seed",)

    def write(self, folder, curves):
        path = folder / "adam.triples"
        lines = [f"{seed} {step} {value}" for (_, _, seed, _), curve in curves.items() for step, value in curve]
        path.write_text("\\n".join(lines))
        return path
"""

from __future__ import annotations

import functools
import itertools
import math
import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import numpy as np
import pytest

from lobench.core.errors import LobenchError
from lobench.core.lazy import loaded
from lobench.engine.store.ledger import Ledger
from lobench.testing.watches import NAME, plugins_with
from lobench.tools.curve_import.file_kind import FileKind
from lobench.tools.curve_import.formats import kinds
from lobench.tools.curve_import.imports import import_curves
from lobench.tools.curve_import.points import CurveRequest

__all__ = ["ImportFormatContract", "sample_runs"]

CurvePoints = Sequence[tuple[int, float]]  # (inner step, value)
_DEFAULT_FIELDS = {"method": "adam", "case": "bowl", "seed": "0"}
CurveKey = tuple[str, str, str, str]  # method, case, seed, metric


def sample_runs(names: Sequence[str]) -> dict[CurveKey, CurvePoints]:
    """Returns curves by method, case, seed and metric, for a format with these `names`. One of them diverges to NaN.

    Args:
      names: Parts of the key that vary: `method`, `case`, `seed` and `metric`. The others are "adam", "bowl", "0" and
        "train/loss".
    """
    values = {
        "method": ("adam", "sgd"),
        "case": ("bowl", "valley"),
        "seed": tuple(map(str, (0, 1, 2, 10, 11, 12))),
        "metric": ("train/loss", "test/loss"),
    }
    random = np.random.default_rng(0)
    value_lists = [values[name] if name in names else values[name][:1] for name in values]
    curves: dict[CurveKey, CurvePoints] = {}
    for index, (method, case, seed, metric) in enumerate(itertools.product(*value_lists)):
        steps = (0, 9, 10, 100, 1_000_000)
        losses = [float(np.float32(value)) for value in random.lognormal(0.0, 3.0, len(steps))]
        if index == 1:
            losses[3:] = [math.nan, math.nan]
        curves[method, case, seed, metric] = list(zip(steps, losses, strict=True))
    return curves


class ImportFormatContract:
    """Tests that every import format must pass.

    Attributes:
      factory: "module:attribute", as in the format's declaration.
      names: Parts of a curve's key that files of the format contain: `method`, `case`, `seed` and `metric`. The others
        come from the options `--method`, `--case` and `--seed`, or the file's name.
    """

    factory: ClassVar[str]
    names: ClassVar[tuple[str, ...]] = ("method", "case", "seed", "metric")

    @abstractmethod
    def write(self, folder: Path, curves: Mapping[CurveKey, CurvePoints]) -> Path:
        """Writes the curves in the format of the other program, and returns the path of the file or folder."""

    def file_kind(self) -> FileKind:
        file_kind: FileKind = loaded(self.factory)()
        return file_kind

    def request(self, **options: Any) -> CurveRequest:
        """Returns a user's options for a file that does not name its method, case and seed."""
        unnamed: dict[str, Any] = {name: value for name, value in _DEFAULT_FIELDS.items() if name not in self.names}
        return replace(CurveRequest(**unnamed), **options)

    def read(self, path: Path, request: CurveRequest | None = None) -> dict[CurveKey, CurvePoints]:
        """Returns the curves of a file, in order of their steps."""
        curves: dict[CurveKey, dict[int, float]] = {}
        for points in self.file_kind().read(path, request or self.request(), []):
            rows = zip(
                points.run.tolist(), points.metric.tolist(), points.step.tolist(), points.value.tolist(), strict=True
            )
            for run, metric, step, value in rows:
                origin = points.runs[run]
                key = (origin.method, origin.case, origin.seed, points.metrics[metric])
                curve = curves.setdefault(key, {})
                assert step not in curve or self.file_kind().last_counts, f"step {step} of {key} comes twice"
                curve[step] = value
        return {key: sorted(curve.items()) for key, curve in curves.items()}

    def test_the_factory_returns_a_kind_that_says_what_it_reads(self) -> None:
        assert isinstance(self.file_kind(), FileKind)
        assert self.file_kind().about and "\n" not in self.file_kind().about

    def test_it_recognises_its_own_files_and_no_others(self, tmp_path: Path) -> None:
        kind = self.file_kind()
        assert kind.recognises(self.write(tmp_path, sample_runs(self.names))) is True
        (tmp_path / "others").mkdir()
        for name, content in {
            "curves.csv": b"method,case,seed,step,train/loss\nadam,bowl,0,0,1.0\n",
            "log.txt": b"step 1 loss 2\n",
            "picture.png": b"\x89PNG\r\n\x1a\n" + bytes(range(256)),
            "empty": b"",
            "results.json": b"[]",
        }.items():
            (tmp_path / "others" / name).write_bytes(content)
            assert not kind.recognises(tmp_path / "others" / name), f"{name} is taken for one"
        assert not kind.recognises(tmp_path / "others"), "any folder is taken for one"

    def test_known_curves_are_read(self, tmp_path: Path) -> None:
        curves = sample_runs(self.names)
        _assert_equal(self.read(self.write(tmp_path, curves)), curves)

    @pytest.mark.parametrize("name", ["method", "case", "seed"])
    def test_options_supply_names_that_the_file_lacks(self, tmp_path: Path, name: str) -> None:
        if name in self.names:
            pytest.skip(f"the file contains its {name}")
        path = self.write(tmp_path, sample_runs(self.names))
        curves = self.read(path, self.request(**{name: "77"}))
        index = ("method", "case", "seed").index(name)
        assert {key[index] for key in curves} == {"77"}, f"--{name} is ignored"

    def test_cut_off_it_is_an_error_or_a_part_and_never_other_values(self, tmp_path: Path) -> None:
        curves = sample_runs(self.names)
        path = self.write(tmp_path, curves)
        for file in [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]:
            content = file.read_bytes()
            for size in (0, len(content) // 3, len(content) // 2):
                os.truncate(file, size)
                try:
                    read_curves = self.read(path)
                except LobenchError as error:
                    assert "\n" not in str(error)
                else:
                    # A truncated number is another number, which formats without an end mark cannot detect.
                    wrong = sum(
                        repr(point) not in map(repr, curves.get(key, ()))
                        for key in read_curves
                        for point in read_curves[key]
                    )
                    assert wrong <= 1, "values that were never written"
                file.write_bytes(content)

    def test_another_file_is_one_clear_error(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, sample_runs(self.names))
        if path.is_dir():
            pytest.skip("the format is a folder")
        path.write_bytes(b"\xff\xfe\x00 no such thing\n" * 20)
        with pytest.raises(LobenchError) as error:
            assert not self.read(path)
            raise LobenchError("a file without curves")  # the caller of a format would report this
        assert "\n" not in str(error.value)

    def test_an_import_stores_each_run_and_its_final_values(self, tmp_path: Path) -> None:
        curves = sample_runs(self.names)
        path = self.write(tmp_path, curves)
        options: dict[str, Any] = {name: value for name, value in _DEFAULT_FIELDS.items() if name not in self.names}
        with _register_format(self.factory):
            import_counts = import_curves(path, store=tmp_path / "store", metrics=("train/loss",), kind=NAME, **options)
        runs = {key[:3] for key in curves}
        assert (import_counts.num_new, set(import_counts.methods), len(import_counts.cases)) == (
            len(runs),
            {method for method, _, _ in runs},
            len({case for _, case, _ in runs}),
        )
        with Ledger.open(tmp_path / "store", read_only=True) as ledger:
            finals = sorted(
                value for row in ledger.evaluations() if row.curves for value in row.curves.final("train/loss")
            )
        expected = sorted(curve[-1][1] for key, curve in curves.items() if key[3] == "train/loss")
        np.testing.assert_allclose(sorted(finals, key=repr), sorted(expected, key=repr), rtol=1e-6)


def _assert_equal(curves: Mapping[CurveKey, CurvePoints], expected: Mapping[CurveKey, CurvePoints]) -> None:
    assert set(curves) == set(expected), "other methods, cases, seeds or metrics"
    for key, curve in expected.items():
        assert [step for step, _ in curves[key]] == [step for step, _ in curve], f"steps of {key}"
        np.testing.assert_allclose(
            [value for _, value in curves[key]], [value for _, value in curve], rtol=1e-6, err_msg=str(key)
        )


@contextmanager
def _register_format(factory: str) -> Iterator[None]:
    """Makes the format known to `lobench import` as "contract"."""

    manager = functools.cache(functools.partial(plugins_with, "lobench_import_formats", factory))
    kinds.formats_by_name.cache_clear()
    try:
        with mock.patch.object(kinds, "load_plugins", manager):
            yield
    finally:
        kinds.formats_by_name.cache_clear()
