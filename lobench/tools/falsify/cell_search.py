"""Search for a grid cell on which one side loses, and for the simplest such cell. Depends only on the evaluator.

A cell is evaluated in two stages. A gap on a few seeds is only a suspicion; a test on fresh seeds decides. Each test
has its own seeds, so the choice of a cell may depend on all earlier tests. The level of a test is alpha divided by the
allowed number of tests, so the chance of confirming any cell that does not lose is at most alpha.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

import numpy as np

from lobench.tools.falsify.falsify_settings import SearchRules

__all__ = ["CellEvaluator", "CellIndex", "CellSearch", "CellTest", "GridAxis", "search_cells"]

CellIndex: TypeAlias = tuple[int, ...]  # index on each axis
StopReason: TypeAlias = Literal["smallest", "budget", "nothing"]

_RETEST_FACTOR = 3  # factor of seeds for a second test, if the mean is beyond the margin but not significant
_TESTS_OF_A_WAVE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class GridAxis:
    """Axis of the grid of cells, along which one setting of the case varies.

    Attributes:
      name: Name of the axis.
      size: Number of values, which are ordered.
      home_index: Index of the case's own value.
      simplest_index: Index of the simplest value.
      is_searched: Whether the axis varies in the search for a first cell. Otherwise it varies only in simplification.
    """

    name: str
    size: int
    home_index: int
    simplest_index: int
    is_searched: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CellTest:
    """Test of a cell on fresh seeds.

    Attributes:
      cell: The cell.
      number: Number of the test, from 0.
      factor: Number of seeds relative to the usual number.
      gap: Mean gap of the cell.
      p_value: P-value of the hypothesis that the gap is at most the margin.
      is_confirmed: Whether the p-value is at most the level.
    """

    __test__ = False  # pytest collects classes of this name

    cell: CellIndex
    number: int
    factor: int
    gap: float
    p_value: float
    is_confirmed: bool


class CellEvaluator(Protocol):
    """Evaluator of cells. Equal calls return equal values."""

    def gaps(self, cells: Sequence[CellIndex]) -> Sequence[float]:
        """Returns the gap of each cell on the few seeds of the screening; NaN if unknown."""

    def test(self, cell: CellIndex, number: int, factor: int) -> tuple[float, float]:
        """Returns the mean gap and its p-value, on `factor` times the usual number of seeds, used by this test only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSearch:
    """Result of the search for a cell on which the checkpoint loses.

    Attributes:
      first: Test of the first confirmed cell. None: no cell is lost.
      smallest: Test of the simplest confirmed cell.
      stop_reason: "smallest": no cell one step simpler on an axis is confirmed. "budget": the cells or tests are used
        up. "nothing": no cell is lost.
      gaps: Gap of each screened cell.
      tests: All tests in order.
    """

    first: CellTest | None
    smallest: CellTest | None
    stop_reason: StopReason
    gaps: dict[CellIndex, float]
    tests: tuple[CellTest, ...]


class _OverBudgetError(Exception):
    """The search has used up its cells or tests."""


def search_cells(axes: Sequence[GridAxis], evaluator: CellEvaluator, rules: SearchRules) -> CellSearch:
    """Searches for a lost cell, and for the simplest one.

    Equal axes, rules and answers give equal searches.
    """
    search = _Search(axes=axes, evaluator=evaluator, rules=rules)
    first_loss = smallest_loss = None
    stop_reason: StopReason = "nothing"
    try:
        first_loss = smallest_loss = search.find_first()
        if first_loss is not None:
            for smallest_loss in search.simplify(first_loss):  # noqa: B007
                pass
            stop_reason = "smallest"
    except _OverBudgetError:
        stop_reason = "budget"
        confirmed_tests = [test for test in search.tests if test.is_confirmed]
        first_loss, smallest_loss = (confirmed_tests[0], confirmed_tests[-1]) if confirmed_tests else (None, None)
    return CellSearch(
        first=first_loss,
        smallest=smallest_loss,
        stop_reason=stop_reason,
        gaps=search.gaps_by_cell,
        tests=tuple(search.tests),
    )


@dataclass(slots=True, kw_only=True)
class _Search:
    axes: Sequence[GridAxis]
    evaluator: CellEvaluator
    rules: SearchRules
    gaps_by_cell: dict[CellIndex, float] = field(default_factory=dict)
    tests: list[CellTest] = field(default_factory=list)

    def find_first(self) -> CellTest | None:
        """Returns the test of the first confirmed cell. The case itself is screened first."""
        for wave in self._waves():
            self._screen(wave)
            tested_cells = {test.cell for test in self.tests}
            suspects = [cell for cell in self.gaps_by_cell if cell not in tested_cells and self._is_suspect(cell)]
            for cell in sorted(suspects, key=lambda suspect: -self.gaps_by_cell[suspect])[:_TESTS_OF_A_WAVE]:
                if (confirmed_test := self._run_test(cell)) is not None:
                    return confirmed_test
        return None

    def simplify(self, smaller: CellTest) -> Iterator[CellTest]:
        """Yields tests of confirmed cells, each simpler than the previous one, until no simpler neighbour is lost."""
        simplest = tuple(axis.simplest_index for axis in self.axes)
        if (test := self._confirming_test(simplest)) is not None:
            yield test
            return
        yield smaller
        is_first, last_cell = True, None
        while smaller.cell != last_cell:
            last_cell = smaller.cell
            for index, axis in enumerate(self.axes):
                confirmed_index, open_index = smaller.cell[index], axis.simplest_index
                direction = 1 if open_index > confirmed_index else -1
                if confirmed_index == open_index:
                    continue
                if not is_first:  # a neighbour that was not confirmed before is rarely confirmed now
                    if (test := self._test_of_index(smaller, index, confirmed_index + direction)) is None:
                        continue
                    yield (smaller := test)
                    confirmed_index += direction
                if (
                    confirmed_index != open_index
                    and (test := self._test_of_index(smaller, index, open_index)) is not None
                ):
                    yield (smaller := test)
                    continue
                while (distance := abs(open_index - confirmed_index)) > 1:
                    middle_index = confirmed_index + direction * (distance // 2)
                    if (test := self._test_of_index(smaller, index, middle_index)) is not None:
                        yield (smaller := test)
                        confirmed_index = middle_index
                    else:
                        open_index = middle_index
            is_first = False

    def _test_of_index(self, test: CellTest, axis_index: int, index: int) -> CellTest | None:
        """Returns the test that confirms the cell of another test with one index replaced; None if none does."""
        return self._confirming_test(_with_index(test.cell, axis_index, index))

    def _confirming_test(self, cell: CellIndex) -> CellTest | None:
        """Returns the test that confirms a cell; None if it is not confirmed."""
        for test in self.tests:
            if test.cell == cell and test.is_confirmed:
                return test
        if any(test.cell == cell for test in self.tests):
            return None
        self._screen([cell])
        return self._run_test(cell) if self._is_suspect(cell) else None

    def _is_suspect(self, cell: CellIndex) -> bool:
        return self.gaps_by_cell.get(cell, math.nan) > self.rules.margin

    def _screen(self, cells: Sequence[CellIndex]) -> None:
        new_cells = [cell for cell in dict.fromkeys(cells) if cell not in self.gaps_by_cell]
        num_left = self.rules.most_cells - len(self.gaps_by_cell)
        if new_cells and num_left < 1:
            raise _OverBudgetError
        new_cells = new_cells[:num_left]
        self.gaps_by_cell |= dict(zip(new_cells, self.evaluator.gaps(new_cells), strict=True)) if new_cells else {}

    def _run_test(self, cell: CellIndex) -> CellTest | None:
        """Tests a cell, and tests it again with more seeds if the first test is undecided."""
        for factor in (1, _RETEST_FACTOR):
            number = len(self.tests)
            if number >= self.rules.most_tests:
                raise _OverBudgetError
            gap, p_value = self.evaluator.test(cell, number, factor)
            test = CellTest(
                cell=cell,
                number=number,
                factor=factor,
                gap=gap,
                p_value=p_value,
                is_confirmed=p_value <= self.rules.level,
            )
            self.tests.append(test)
            if test.is_confirmed:
                return test
            if not gap > self.rules.margin:
                return None
        return None

    def _waves(self) -> Iterator[list[CellIndex]]:
        """Yields waves of cells to screen: the case, ends of axes, corners, neighbours of the worst, random cells."""
        home_cell = tuple(axis.home_index for axis in self.axes)
        size = self.rules.wave
        rng = np.random.default_rng(0)
        searched_axes = [(index, axis) for index, axis in enumerate(self.axes) if axis.is_searched]
        yield [home_cell]
        end_cells = [
            _with_index(home_cell, axis_index, end)
            for axis_index, axis in searched_axes
            for end in (0, axis.size - 1)
            if end != axis.home_index
        ]
        yield from _batches(end_cells, size)
        corners = [self._random_cell(lambda axis: (0, axis.size - 1)[rng.integers(2)]) for _ in range(2 * size)]
        yield from _batches(list(dict.fromkeys(corners)), size)
        num_cells = math.prod(axis.size for _, axis in searched_axes)
        while len(self.gaps_by_cell) < num_cells:
            worst_cell = max(self.gaps_by_cell, key=lambda cell: np.nan_to_num(self.gaps_by_cell[cell], nan=-math.inf))
            neighbours = [
                _with_index(worst_cell, axis_index, index)
                for axis_index, axis in searched_axes
                for index in (worst_cell[axis_index] - 1, worst_cell[axis_index] + 1, 0, axis.size - 1)
                if 0 <= index < axis.size
            ]
            neighbours = [cell for cell in dict.fromkeys(neighbours) if cell not in self.gaps_by_cell]
            rng.shuffle(neighbours)
            wave = [tuple(cell) for cell in neighbours[: size // 2]]
            while len(wave) < size and len(self.gaps_by_cell) + len(wave) < num_cells:
                cell = self._random_cell(lambda axis: int(rng.integers(axis.size)))
                if cell not in self.gaps_by_cell and cell not in wave:
                    wave.append(cell)
            yield wave

    def _random_cell(self, draw_index: Callable[[GridAxis], int]) -> CellIndex:
        """Returns a cell with a drawn index on each searched axis."""
        return tuple(draw_index(axis) if axis.is_searched else axis.home_index for axis in self.axes)


def _with_index(cell: CellIndex, axis_index: int, index: int) -> CellIndex:
    return (*cell[:axis_index], index, *cell[axis_index + 1 :])


def _batches(cells: Sequence[CellIndex], size: int) -> Iterator[list[CellIndex]]:
    for start in range(0, len(cells), size):
        yield list(cells[start : start + size])
