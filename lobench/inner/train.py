"""The inner-training program: a seed block of one case, compiled once, theta an argument.

One program does everything: its first call makes initial parameters, then it runs inner steps and evaluations
between, up to a step that is an argument too. A long run is a few calls of that program, so that progress shows and a
deadline can end it, and the calls' lengths change no bit: the loop body is compiled once.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lobench.core.case import Case, SeedBlock
from lobench.core.result import Curves
from lobench.inner.adapters.stepper import Stepper
from lobench.inner.backend import compiler_options
from lobench.inner.block import OF_LANES, OF_THETAS, Carry, Trained, curves_of, of_theta
from lobench.inner.data import (
    INIT,
    LOSS,
    OPTIMIZER,
    Lane,
    draw_ahead,
    draw_evaluation,
    fits_ahead,
    key_of,
    per_lane,
    present_splits,
    steps_ahead,
    stream,
    train_batch,
)
from lobench.inner.feed import FIRST_CHUNK, ITERATOR_CHUNK, Feed, empty, next_chunk
from lobench.inner.optimizer import PyTree, Theta
from lobench.inner.parallel_sessions import inner_step, members, num_lanes, with_copies
from lobench.inner.recorder import Recorder, named_values
from lobench.inner.spread import num_parts, place, spread
from lobench.inner.task import ArrayDataset, Task, TaskFamily

__all__ = ["Program"]

_FAMILY_SEED = 0x10BE  # tasks of a family hang on their index alone


class _Layout(NamedTuple):
    """What a program starts from; over how many devices, and by which axes of its first arguments, it is spread."""

    carry_shape: PyTree
    parts: int
    axes: tuple[int | None, ...]


class Program:
    """Trains one seed block of a case, again and again, for any theta.

    Args:
      case: With task (or family) built.
      task: `case.task` as a Task or TaskFamily.
      make_stepper: theta -> Stepper; theta may be traced.
      num_seeds: Seeds of the block; the width is part of what fixes the bits.
    """

    def __init__(
        self,
        case: Case,
        task: Task | TaskFamily,
        make_stepper: Callable[[Theta], Stepper],
        num_seeds: int,
    ) -> None:
        self._case, self._task, self._num_seeds = case, task, num_seeds
        self._make_stepper: Callable[[Theta], Stepper] = lambda theta: with_copies(make_stepper(theta), case)
        self._tasks_per_seed = case.num_tasks if isinstance(task, TaskFamily) else 1
        self._recorder = Recorder(case)
        # Without evaluations nothing reads the other splits.
        self._datasets = {
            split: dataset for split, dataset in present_splits(task).items() if case.eval_batches or split == "train"
        }
        self._arrays = {
            split: dataset.arrays for split, dataset in self._datasets.items() if isinstance(dataset, ArrayDataset)
        }
        self._compiled: dict[int, tuple[Any, _Layout]] = {}  # by the number of thetas

    def run(
        self,
        theta: Theta,
        block: SeedBlock,
        *,
        on_progress: Callable[[int], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> Curves | None:
        """Trains the block.

        Args:
          theta: In the optimizer's own structure and dtypes.
          block: As many seeds as the program is wide.
          on_progress: Told the inner steps done, after each chunk.
          should_stop: Asked after each chunk; True ends the run.
        Returns:
          Curves, metrics float32[num_seeds, num_evals]; None where it was stopped.
        """
        trained = self._train(theta, 0, block, on_progress, should_stop)
        return self._curves(trained.carry, trained, block) if trained is not None else None

    def run_many(
        self,
        thetas: Sequence[Theta],
        block: SeedBlock,
        *,
        on_progress: Callable[[int], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> list[Curves] | None:
        """Trains the block once for each theta, all in one program.

        Seeds, batches and initial parameters are common to all thetas and are computed once; what one theta does
        changes nothing of another. The number of thetas changes bits in the last place, as the width of a block does.

        Args:
          thetas: All of one structure, their leaves of equal shapes.
          block, on_progress, should_stop: As for `run`.
        Returns:
          Curves of each theta, in order, its seconds a share of the program's; None where it was stopped.
        """
        stacked = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *thetas)
        trained = self._train(stacked, len(thetas), block, on_progress, should_stop)
        if trained is None:
            return None
        carry = jax.tree.map(np.asarray, trained.carry)
        return [self._curves(of_theta(carry, index), trained, block) for index in range(len(thetas))]

    def _train(
        self,
        theta: Theta,
        num_thetas: int,
        block: SeedBlock,
        on_progress: Callable[[int], None] | None,
        should_stop: Callable[[], bool] | None,
    ) -> Trained | None:
        assert block.size == self._num_seeds, (block, self._num_seeds)
        lanes = self._lanes(block)
        theta = jax.tree.map(jnp.asarray, theta)
        feed = Feed(self._datasets, block, self._tasks_per_seed, self._case)
        program, layout, compile_seconds = self._compile(theta, num_thetas, lanes, feed)
        fixed = place((theta, lanes, self._arrays, feed.eval_batches), layout.parts, layout.axes)
        carry = jax.tree.map(empty, layout.carry_shape)
        started, used = time.perf_counter(), time.process_time()
        step, chunk = 0, FIRST_CHUNK
        while step < self._case.num_inner_steps:
            chunk_started = time.perf_counter()
            stop = min(step + (ITERATOR_CHUNK if feed.feeds_training else chunk), self._case.num_inner_steps)
            carry = program(*fixed, feed.next_chunk(), carry, step, stop)
            carry.step.block_until_ready()
            step = stop
            chunk = next_chunk(chunk, time.perf_counter() - chunk_started)
            if on_progress is not None:
                on_progress(step)
            if should_stop is not None and step < self._case.num_inner_steps and should_stop():
                return None
        share = max(num_thetas, 1)
        wall_seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - used
        return Trained(carry, compile_seconds / share, wall_seconds / share, cpu_seconds / share)

    def _curves(self, carry: Carry, trained: Trained, block: SeedBlock) -> Curves:
        return curves_of(
            carry,
            trained,
            block,
            tasks_per_seed=self._tasks_per_seed,
            eval_steps=self._recorder.eval_steps,
            log_steps=self._recorder.log_steps,
        )

    def _lanes(self, block: SeedBlock) -> Lane:
        seeds = np.repeat(np.asarray(block.seeds, np.uint32) * num_lanes(self._case), self._tasks_per_seed)
        tasks = np.tile(np.arange(self._tasks_per_seed, dtype=np.uint32), self._num_seeds)
        return Lane(seeds, tasks) if seeds.size > 1 else Lane(seeds[0], tasks[0])

    def _compile(self, theta: Theta, num_thetas: int, lanes: Lane, feed: Feed) -> tuple[Any, _Layout, float]:
        """Compiles at the first call for so many thetas (0: one, without an axis).

        Returns:
          The program, its layout, and the seconds that compiling took (0 where it was there).
        """
        if num_thetas in self._compiled:
            return *self._compiled[num_thetas], 0.0
        started = time.perf_counter()
        lowered, layout = self._lower(theta, num_thetas, lanes, feed)
        program = lowered.compile(compiler_options())
        self._compiled[num_thetas] = program, layout
        return program, layout, time.perf_counter() - started

    def _lower(self, theta: Theta, num_thetas: int, lanes: Lane, feed: Feed) -> tuple[Any, _Layout]:
        """Returns the program as XLA takes it."""
        initial, advance = self._initial, self._advance
        width = lanes.seed.size
        axes: tuple[Any, ...] = (None, 0, None, 0, 1, OF_LANES, None, None)
        if num_thetas:
            width, axes = num_thetas, (0, None, None, None, None, OF_THETAS, None, None)
            initial = jax.vmap(initial, in_axes=axes[:5], out_axes=OF_THETAS)
            advance = jax.vmap(advance, in_axes=axes, out_axes=OF_THETAS)
        arguments = (theta, lanes, self._arrays, feed.eval_batches, feed.example_chunk)
        carry_shape = jax.eval_shape(initial, *arguments)
        parts = num_parts(self._case, width)
        advance = spread(advance, parts, axes, axes[5])
        lowered = jax.jit(advance, donate_argnums=5).lower(*arguments, carry_shape, 0, 1)
        return lowered, _Layout(carry_shape, parts, axes[:4])

    # What follows is traced.

    def _task_of(self, lane: Lane) -> Task:
        if isinstance(self._task, TaskFamily):
            key = jax.random.fold_in(key_of(_FAMILY_SEED), lane.task)
            return self._task.task_fn(self._task.sample(key))
        return self._task

    def _initial(self, theta: Theta, lanes: Lane, arrays: PyTree, eval_batches: PyTree, chunk: PyTree) -> Carry:
        stepper = self._make_stepper(theta)

        def one(lane: Lane) -> tuple[PyTree, PyTree, PyTree]:
            params, model_state = self._task_of(lane).init_with_state(stream(lane, INIT))
            params = stepper.initial_params(params)
            return stepper.init(params, model_state, stream(lane, OPTIMIZER)), params, model_state

        opt_state, params, model_state = per_lane(one, lanes)(lanes)

        def of_batch() -> PyTree:
            def one(lane: Lane, drawn: PyTree, params: PyTree, state: PyTree) -> dict[str, jax.Array]:
                return self._batch_loss(lane, arrays, drawn, jnp.int32(0), state)(params)[1][1]

            return per_lane(one, lanes)(lanes, self._first_drawn(lanes, chunk), params, model_state)

        def of_evaluation() -> PyTree:
            evaluation = self._evaluation(lanes, arrays, eval_batches)
            return self._evaluate(stepper, lanes, evaluation, opt_state, params, model_state)

        return Carry(
            opt_state=opt_state,
            params=params,
            model_state=model_state,
            diverged_at=jnp.full(lanes.seed.shape, -1, jnp.int32),
            step=jnp.int32(0),
            num_evals=jnp.int32(0),
            **self._recorder.empty(lanes.seed.shape, of_batch, of_evaluation),
        )

    def _evaluation(self, lanes: Lane, arrays: PyTree, eval_batches: PyTree) -> PyTree:
        """Returns what every evaluation computes on, by split, leaves [(num_lanes,) num_splits, num_batches, ...]."""

        def one(lane: Lane, fed: PyTree) -> PyTree:
            return draw_evaluation(self._datasets, arrays, fed, lane, self._case.eval_batches)

        return per_lane(one, lanes)(lanes, eval_batches)

    def _evaluate(
        self, stepper: Stepper, lanes: Lane, evaluation: PyTree, opt_state: PyTree, params: PyTree, model_state: PyTree
    ) -> dict[str, jax.Array]:
        """Returns each metric, float32[(num_lanes)]: the mean over the evaluation's batches."""

        def one(
            lane: Lane, evaluation: PyTree, opt_state: PyTree, params: PyTree, model_state: PyTree
        ) -> dict[str, Any]:
            task = self._task_of(lane)
            at = stepper.eval_params(opt_state, params)

            def batch_metrics(key: jax.Array, data: PyTree) -> dict[str, jax.Array]:
                loss, aux = task.eval_loss_with_aux(at, model_state, key, data)
                named = named_values(task, loss, aux)
                return {name: jnp.asarray(value, jnp.float32) for name, value in named.items()}

            metrics: dict[str, jax.Array] = {}
            for splits, (keys, batches) in evaluation.items():
                values = jax.vmap(jax.vmap(batch_metrics))(keys, batches)
                for index, split in enumerate(splits.split(",")):
                    metrics.update({f"{split}/{name}": value[index].mean() for name, value in values.items()})
            return metrics

        return per_lane(one, lanes)(lanes, evaluation, opt_state, params, model_state)

    def _advance(
        self,
        theta: Theta,
        lanes: Lane,
        arrays: PyTree,
        eval_batches: PyTree,
        chunk: PyTree,
        carry: Carry,
        start: jax.Array,
        stop: jax.Array,
    ) -> Carry:
        """Runs inner steps `start` .. `stop-1` and the evaluations that are due, the one at the very end included."""
        case, stepper, dataset = self._case, self._make_stepper(theta), self._datasets["train"]
        arguments = (theta, lanes, arrays, eval_batches, chunk)
        carry = jax.lax.cond(start == 0, lambda: self._initial(*arguments), lambda: carry)
        draw = functools.partial(self._evaluation, lanes, arrays, eval_batches)
        kept = draw() if case.eval_batches and fits_ahead(jax.eval_shape(draw)) else None

        def evaluate(carry: Carry) -> Carry:
            def values() -> dict[str, jax.Array]:
                evaluation = draw() if kept is None else kept
                return self._evaluate(stepper, lanes, evaluation, carry.opt_state, carry.params, carry.model_state)

            return self._recorder.evaluated(carry, values)

        def step(index: jax.Array, carry: Carry, drawn: PyTree) -> Carry:
            opt_state, params, model_state, values = self._step(stepper, lanes, arrays, drawn, index, carry)
            carry = carry._replace(opt_state=opt_state, params=params, model_state=model_state)
            return self._recorder.stepped(carry, index, values)

        def segment(carry: Carry, drawn: PyTree, drawn_at: jax.Array, last: jax.Array) -> Carry:
            due = (carry.step % case.eval_every == 0) | (carry.step == case.num_inner_steps)
            carry = jax.lax.cond(due, evaluate, lambda carry: carry, carry)
            until = jnp.minimum(last, (carry.step // case.eval_every + 1) * case.eval_every)

            def body(index: jax.Array, carry: Carry) -> Carry:
                return step(index, carry, jax.tree.map(lambda leaf: leaf[index - drawn_at], drawn))

            return jax.lax.fori_loop(carry.step, until, body, carry)._replace(step=until)

        def more(carry: Carry, until: jax.Array) -> jax.Array:
            last_eval_due = (carry.step == case.num_inner_steps) & (carry.num_evals < len(self._recorder.eval_steps))
            return (carry.step < until) | last_eval_due

        def segments(carry: Carry, drawn: PyTree, drawn_at: jax.Array, until: jax.Array) -> Carry:
            return jax.lax.while_loop(
                lambda carry: more(carry, until), lambda carry: segment(carry, drawn, drawn_at, until), carry
            )

        if not isinstance(dataset, ArrayDataset):
            return segments(carry, chunk, start, stop)
        readers = members(lanes, num_lanes(case))
        ahead = steps_ahead(dataset, readers.seed.size)

        def stretch(carry: Carry) -> Carry:
            drawn = draw_ahead(dataset, readers, carry.step, ahead)
            return segments(carry, drawn, carry.step, jnp.minimum(stop, carry.step + ahead))

        return jax.lax.while_loop(lambda carry: more(carry, stop), stretch, carry)

    def _step(
        self, stepper: Stepper, lanes: Lane, arrays: PyTree, drawn: PyTree, index: jax.Array, carry: Carry
    ) -> tuple[PyTree, PyTree, PyTree, dict[str, jax.Array]]:
        """One inner step of every lane; the values are the batch's before the update, float32[(num_lanes)]."""

        def loss_of(lane: Lane, drawn: PyTree, model_state: PyTree) -> Any:
            return self._batch_loss(lane, arrays, drawn, index, model_state)

        def one(lane: Lane, drawn: PyTree, *state: PyTree) -> tuple[PyTree, PyTree, PyTree, dict[str, jax.Array]]:
            return inner_step(self._case, stepper, loss_of, lane, drawn, index, (state[0], state[1], state[2]))

        return per_lane(one, lanes)(lanes, drawn, carry.opt_state, carry.params, carry.model_state)

    def _batch_loss(
        self, lane: Lane, arrays: PyTree, drawn: PyTree, index: jax.Array, model_state: PyTree
    ) -> Callable[[PyTree], tuple[jax.Array, tuple[PyTree, dict[str, jax.Array]]]]:
        """Returns params -> (loss, (model state, named values)) of a step's batch; no values where none are kept."""
        task = self._task_of(lane)
        data = train_batch(self._datasets["train"], arrays.get("train"), lane, index, drawn)

        def loss_fn(params: PyTree) -> tuple[jax.Array, tuple[PyTree, dict[str, jax.Array]]]:
            key = jax.random.fold_in(stream(lane, LOSS), index)
            loss, state, aux = task.loss_with_state_and_aux(params, model_state, key, data)
            if not self._recorder.keeps_batches:
                return loss, (state, {})
            named = named_values(task, loss, aux if isinstance(aux, Mapping) else {})
            return loss, (state, {name: jnp.asarray(value, jnp.float32).mean() for name, value in named.items()})

        return loss_fn

    def _first_drawn(self, lanes: Lane, chunk: PyTree) -> PyTree:
        """Returns what the batches of step 0 are made from."""
        dataset = self._datasets["train"]
        if isinstance(dataset, ArrayDataset):
            return draw_ahead(dataset, lanes, jnp.int32(0), 1)[0]
        first = (0,) + (slice(None),) * lanes.seed.ndim + (0,) * (num_lanes(self._case) > 1)  # of a round's lanes
        return jax.tree.map(lambda leaf: leaf[first], chunk)
