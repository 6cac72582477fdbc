"""Training loop: one run of the programs, from the start or from a saved state."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from lobench.inner.backend import device_peak_bytes
from lobench.inner.host_call import host_error
from lobench.inner.training.checkpointing import SavedState, SavePoints, Saves, StateMismatch, carry_of, state_of
from lobench.inner.training.compile_cache import Found, ProgramLayout
from lobench.inner.training.devices import place
from lobench.inner.training.prefetch import FIRST_CHUNK, Feed, empty, next_chunk, num_batches_to_read
from lobench.inner.training.recorder import Recorder
from lobench.inner.training.seed_block import Carry
from lobench.inner.training.step_clock import StepClock

__all__ = ["RunOptions", "TrainingLoop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """End of a run, and its connections to the caller.

    Attributes:
      end: Step at which the training ends (`Case.end`). None: the last step.
      on_progress: Called with the number of finished inner steps after each chunk.
      should_stop: Called after each chunk; True stops the run.
      saves: Storage from which the training continues, and into which it saves its state. None: neither.
    """

    end: int | None = None
    on_progress: Callable[[int], None] | None = None
    should_stop: Callable[[], bool] | None = None
    saves: Saves | None = None


class TrainingLoop:
    """State of a training, and the loop that runs it to its end.

    Args:
      recorder: Recorder of the training, whose case has the rules for saving states.
      feed: Batches from iterators.
      spans: Ranges of the inner steps of each phase.
      arguments: Replicas, arrays, and the batches of evaluations.
      find: Function that returns the program of a phase.
      enter: Function of (phase after the first, given values of its program, carry of the previous phase) that returns
        the initial carry of the phase.
      shape: Function that returns the shapes of the carry of a phase, without compilation.
      options: End of the run, and its connections to the caller.

    Attributes:
      carry: Present carry; None before the start.
      end: Step at which the training ends.
      resumed_at: Step of the saved state from which this run continued.
      compile_seconds: Seconds of compilation in this run.
      wall_seconds, cpu_seconds: Seconds of all runs of this training.
      clock: Clock of the steps of this run.
      layout: Layout of the program that ran last; None if none ran.
      at_once: Smallest number of trainings that a device computed at the same time, over all phases. 0: all of them.
      peak_bytes: Peak memory of the device, if its backend reports it and this run needed the most in this process;
        else None.
    """

    def __init__(
        self,
        recorder: Recorder,
        feed: Feed,
        spans: Sequence[range],
        arguments: tuple[Any, ...],
        *,
        find: Callable[[int], Found],
        enter: Callable[[int, Found, Carry], Carry],
        shape: Callable[[int], Carry],
        options: RunOptions,
    ) -> None:
        self._case = case = recorder.case
        self._recorder = recorder
        self._feed = feed
        self._spans = spans
        self._arguments = arguments
        self._find_program = find
        self._enter_phase = enter
        self._carry_shape = shape
        self._options = options
        self._saves = options.saves
        self.carry: Carry | None = None
        self.end = case.num_inner_steps if options.end is None else options.end
        self._step = self._phase = self.resumed_at = 0
        self.compile_seconds = self.wall_seconds = self.cpu_seconds = 0.0
        self._last_counted_times = time.perf_counter(), time.process_time()
        self._save_points = SavePoints(case, options.saves)
        self.clock = StepClock(recorder.eval_steps)
        self.layout: ProgramLayout | None = None
        self.at_once = 0
        self.peak_bytes: int | None = None

    def resume(self) -> None:
        """Continues from the most advanced saved state that fits, if there is one.

        States that do not fit are discarded.
        """
        saved_state = self._saves.load() if self._saves is not None else None
        if self._saves is not None and saved_state is not None:
            try:
                self._restore(SavedState(*saved_state))
            except StateMismatch as error:
                self._saves.refuse(str(error))

    def _restore(self, state: SavedState) -> None:
        header = state.header
        step = int(header["step"])
        phase = int(header["phase"])
        if phase >= len(self._spans) or not self._spans[phase].start < step <= self._spans[phase].stop:
            raise StateMismatch(f"step {step} is not in its phase {phase + 1}")
        if step < self._spans[phase].stop:
            shape = self._program(phase).layout.carry_shape
            has_same_length = header["num_inner_steps"] == self._case.num_inner_steps
            if has_same_length and header["program"] != self._program(phase).text.sha256:
                raise StateMismatch("the compiled program has changed, for example by an edit of the task or optimizer")
        else:
            shape = self._carry_shape(phase)
        recorder = self._recorder
        self.carry = carry_of(state, shape, eval_steps=recorder.eval_steps, log_steps=recorder.log_steps)
        self._feed.continue_from(step, header["positions"])
        self._step, self._phase, self.resumed_at = step, phase, step
        self.wall_seconds, self.cpu_seconds = header["wall_seconds"], header["cpu_seconds"]
        self.at_once = header.get("at_once", 0)

    def _program(self, phase: int) -> Found:
        program = self._find_program(phase)
        self.compile_seconds += program.compile_seconds
        return program

    def run(self) -> bool:
        """Runs the training to its end. Returns False if it was stopped."""
        if self._options.on_progress is not None and self.resumed_at:
            self._options.on_progress(self.resumed_at)
        if self._step < self.end:
            self._feed.read_ahead(self._stop_after(self._step) - self._step)  # while the program compiles
        initial_peak = device_peak_bytes()
        for phase in range(self._phase, len(self._spans)):
            if self._step >= self.end:
                break
            if self._step == self._spans[phase].stop:
                continue  # it was saved at the end of this phase
            program = self._program(phase)
            self._last_counted_times = time.perf_counter(), time.process_time()
            is_finished = self._run_phase(phase, program)
            self._count_seconds()
            if not is_finished:
                self._save(program)
                return False
        self.peak_bytes = current_peak if (current_peak := device_peak_bytes()) != initial_peak else None
        is_partial = self.end < self._case.num_inner_steps
        if (is_partial or self._case.keep_state) and self._saves is not None and self._step > self.resumed_at:
            self._save(program, is_final=not is_partial)
        return True

    def _run_phase(self, phase: int, program: Found) -> bool:
        on_progress = self._options.on_progress
        should_stop = self._options.should_stop
        self.layout = layout = program.layout
        self.at_once = min(filter(None, (self.at_once, layout.at_once)), default=0)
        self.clock.calls = program.text.call_seconds
        placed_arguments = place((program.given, *self._arguments), layout.parts, layout.axes)
        carry = self.carry
        span = self._spans[phase]
        chunk_size = FIRST_CHUNK
        if carry is None:
            carry = jax.tree.map(empty, layout.carry_shape)
        elif phase > self._phase:
            carry = self._enter_phase(phase, program, carry)
        self._phase = phase
        last_step = min(span.stop, self.end)
        is_first = True
        while self._step < last_step:
            chunk_started_at = time.perf_counter()
            start = self._step
            full_stop = stop = self._stop_after(start, chunk_size)
            if not is_first and not self._feed.feeds_training:
                stop = self.clock.chunk_end(start, stop)
            batches = self._feed.next_chunk(stop - start)
            if stop < self.end:
                self._feed.read_ahead(self._stop_after(stop) - stop)
            try:
                carry = self._run_timed(
                    program, placed_arguments, batches, carry, range(start, stop), is_first=is_first
                )
            except jax.errors.JaxRuntimeError as error:
                raise host_error(error) from None
            self.carry, self._step, is_first = carry, stop, False
            chunk_size = next_chunk(chunk_size, (time.perf_counter() - chunk_started_at) * chunk_size / (stop - start))
            is_single = start + 1 == stop < full_stop  # a single step, which only the step clock needs
            if on_progress is not None and not is_single:
                on_progress(stop)
            if should_stop is not None and stop < self.end and should_stop():
                return False
            if self._save_points.is_due(stop):
                self._save(program)
        return True

    def _run_timed(
        self,
        program: Found,
        placed_arguments: tuple[Any, ...],
        batches: Any,
        carry: Carry,
        steps: range,
        *,
        is_first: bool,
    ) -> Carry:
        """Runs a chunk, and measures its time except for the first chunk of a phase, which places its arguments."""
        wall = time.perf_counter()
        cpu = time.process_time()
        carry = program.program(*placed_arguments, batches, carry, steps.start, steps.stop)
        carry.step.block_until_ready()
        wall = time.perf_counter() - wall
        cpu = time.process_time() - cpu
        if not is_first:
            is_end = steps.stop == self._spans[self._phase].stop
            self.clock.record_chunk(steps.start, steps.stop, wall, cpu, evaluates_end=is_end)
            if self.clock.needs_call and not is_end and not self._feed.feeds_training:
                wall = time.perf_counter()
                carry = program.program(*placed_arguments, batches, carry, steps.stop, steps.stop)
                carry.step.block_until_ready()
                self.clock.record_call(time.perf_counter() - wall)
        return carry

    def _stop_after(self, start: int, chunk_size: int = FIRST_CHUNK) -> int:
        """Returns the step at which a chunk that starts at `start` ends."""
        span = next(span for span in self._spans if start < span.stop)
        num_steps = num_batches_to_read(start - self.resumed_at) if self._feed.feeds_training else chunk_size
        return min(start + num_steps, span.stop, self.end, self._save_points.next_stop(start))

    def _save(self, program: Found, *, is_final: bool = False) -> None:
        if self._saves is None or self._case.save_every == 0 or self.carry is None:
            return
        started_at = time.perf_counter()
        self._count_seconds()
        header = {
            "phase": self._phase,
            "num_inner_steps": self._case.num_inner_steps,
            "eval_steps": self._recorder.eval_steps,
            "program": program.text.sha256,
            "positions": self._feed.positions(),
            "at_once": self.at_once,
            "wall_seconds": self.wall_seconds,
            "cpu_seconds": self.cpu_seconds,
        }
        self._saves.save(state_of(self.carry, header), is_final=is_final)
        self._save_points.record_save(time.perf_counter() - started_at)

    def _count_seconds(self) -> None:
        last_times = self._last_counted_times
        self._last_counted_times = (time.perf_counter(), time.process_time())
        self.wall_seconds += self._last_counted_times[0] - last_times[0]
        self.cpu_seconds += self._last_counted_times[1] - last_times[1]
