"""The bits of every shipped optimizer on a tiny task, and of Adam whose settings are arguments of the program.

`python tests/golden_bits.py` prints them, `--write` keeps them.

They are kept by what fixes them (lobench's program version, jax, jaxlib, the CPU's instruction set). A change that
makes other numbers raises `PROGRAM_VERSION`, and then writes anew. Of seven optimizers two processors of one
instruction set gave other last bits, and a list has both: XLA's libraries for products of matrices, the task's among
them, go by the model (docs/decisions/0062-one-target.md).
"""

from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lowered import share_contexts

FILE = Path(__file__).with_name("golden_bits.json")
WITH_SETTINGS = "adam with settings"
_SETTINGS = (0.02, 0.8, 0.95, 1e-6)


def names() -> list[str]:
    import lobench.inner.optimizers as shipped

    return sorted([*(name for name in shipped.__all__ if name != "opt_list"), WITH_SETTINGS])  # that needs a file


def bits() -> dict[str, str]:
    """Returns a hash of the loss curves of each, in this process, which must have one thread."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import lobench.inner.optimizers as shipped
    from lobench import Task
    from lobench.core.case import Case, SeedBlock
    from lobench.engine.workers.devices import set_blas_variables
    from lobench.inner.adapters import as_learned_optimizer, as_stepper, as_task
    from lobench.inner.backend import claim_backend, compiler_options
    from lobench.inner.training.train import TrainingProgram

    set_blas_variables(1)
    assert claim_backend(1)
    share_contexts()

    def waves() -> tuple[jax.Array, ...]:
        rows = jnp.sin(jnp.arange(40.0)).reshape(8, 5)
        return jnp.cos(jnp.arange(20.0)).reshape(5, 4), rows, jnp.sin(rows[:, :4])

    # Compiled once, with the options of the programs, which take a sixth longer if each makes its own.
    constants = [np.asarray(wave) for wave in jax.jit(waves).lower().compile(compiler_options())()]

    def hidden() -> list[jax.Array]:
        """Returns the waves such that XLA does not compute with constants itself, to other bits."""
        found: list[jax.Array] = jax.lax.optimization_barrier(constants)  # type: ignore[no-untyped-call]
        return found

    class Tiny(Task):
        """A layer with leaves of one and of two axes, which gives all that an optimizer may want."""

        num_losses = 2

        def init(self, key: jax.Array) -> dict[str, jax.Array]:
            return {"w": hidden()[0], "b": jnp.zeros(4)}

        def batch(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
            _, inputs, targets = hidden()
            return inputs, targets

        def loss(self, params: dict[str, jax.Array], key: jax.Array, data: object) -> jax.Array:
            inputs, targets = self.batch(key)
            return jnp.mean((jnp.tanh(inputs @ params["w"] + params["b"]) - targets) ** 2)

        def memory_loss(self, params: dict[str, jax.Array], state: object, key: jax.Array) -> jax.Array:
            return self.loss(params, key, None)

        def losses(self, params: dict[str, jax.Array], state: object, key: jax.Array, data: object) -> jax.Array:
            loss = self.loss(params, key, data)
            return jnp.stack([0.5 * loss, 1.5 * loss])

        def scale_invariant(self, params: dict[str, jax.Array]) -> dict[str, int | None]:
            return {"w": 1, "b": None}

    class Drawn(Tiny):
        """The same of random numbers, which take most of the time to compile: one optimizer has it."""

        def init(self, key: jax.Array) -> dict[str, jax.Array]:
            return {"w": jax.random.normal(key, (5, 4)), "b": jnp.zeros(4)}

        def batch(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
            inputs = jax.random.normal(key, (8, 5))
            return inputs, jnp.sin(inputs[:, :4])

    block, found = SeedBlock(start=0, size=2), {}
    for name in names():
        theta, settings = {}, _SETTINGS if name == WITH_SETTINGS else ()
        task = Drawn() if settings else Tiny()
        case = Case(task=task, num_inner_steps=20, num_seeds=2, eval_every=5)
        made = getattr(shipped, name)() if not settings else None
        if made is None:
            make = lambda theta, *settings: as_stepper(shipped.adam(*settings), 20)  # noqa: E731
        elif callable(getattr(made, "opt_fn", None)):
            learned = as_learned_optimizer(made)
            with share_draws():
                theta = learned.init(jax.random.key(0))
            make = lambda theta, learned=learned: as_stepper(learned.opt_fn(theta, 20), 20)  # noqa: E731
        else:
            make = lambda theta, made=made: as_stepper(made, 20)  # noqa: E731
        curves = TrainingProgram(case, as_task(task), make, 2, settings).run(theta, block, settings=settings)
        assert curves is not None
        losses = np.asarray(curves.metrics["train/loss"])
        assert np.isfinite(losses).all(), name
        found[name] = hashlib.sha256(losses.tobytes()).hexdigest()[:16]
    return found


@contextlib.contextmanager
def share_draws() -> Iterator[None]:
    """Draws random arrays as the beginning of longer ones, which has the same bits.

    Outside of a program jax compiles each shape; so only a few lengths are compiled.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np

    def first_of_many(draw: Callable[..., jax.Array], key: jax.Array, *given: Any) -> jax.Array:
        *limits, shape = given
        size = math.prod(shape)
        drawn = draw(key, *limits, (max(4096, 4 ** math.ceil(math.log(size, 4))),))
        return jnp.asarray(np.asarray(drawn)[:size].reshape(shape))

    kept = {name: getattr(jax.random, name) for name in ("normal", "truncated_normal")}
    try:
        for name, draw in kept.items():
            setattr(jax.random, name, functools.partial(first_of_many, draw))
        yield
    finally:
        for name, draw in kept.items():
            setattr(jax.random, name, draw)


def program() -> str:
    from lobench.engine.store.programs import program_here

    return str(program_here())


if __name__ == "__main__":
    os.environ.update(NPROC="1", JAX_PLATFORMS="cpu")
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # tracing creates many objects and little garbage
    print(json.dumps({"program": program(), "bits": (now := bits())}))
    if "--write" in sys.argv:
        kept = json.loads(FILE.read_text()) if FILE.is_file() else {}
        lists = {name: one for name, one in kept.get(program(), {}).items() if isinstance(one, list)}
        now |= {name: sorted({*lists[name], now[name]}) for name in lists}
        FILE.write_text(json.dumps({**kept, program(): now}, indent=1, sort_keys=True) + "\n")
