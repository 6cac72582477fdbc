"""The bits of every shipped optimizer on a tiny task, and of Adam whose settings are arguments of the program.

`python tests/golden_bits.py` prints them, `--write` keeps them.

Most of the time is compilation, which makes the same code of the same program. So `golden_texts.json` keeps with them a
hash of what the numbers follow from: the program as XLA receives it, its options, and the arguments of its first call.
With `--unless-known` an optimizer whose hash is the kept one is neither compiled nor run, except for `ALWAYS` and for
those that call LAPACK, whose numbers depend on the environment too.

They are kept by what fixes them (lobench's program version, jax, jaxlib, the CPU's instruction set). A change that
makes other numbers raises `PROGRAM_VERSION`, and then writes anew. Of seven optimizers two processors of one
instruction set gave other last bits, and a list has both: XLA's libraries for products of matrices, the task's among
them, go by the model (docs/decisions/0062-one-target.md).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

FILE = Path(__file__).with_name("golden_bits.json")
TEXTS = Path(__file__).with_name("golden_texts.json")
WITH_SETTINGS = "adam with settings"
ALWAYS = (WITH_SETTINGS, "LearnableAdam")
_SETTINGS = (0.02, 0.8, 0.95, 1e-6)


def names() -> list[str]:
    import lobench.inner.optimizers as shipped

    return sorted([*(name for name in shipped.__all__ if name != "opt_list"), WITH_SETTINGS])  # that needs a file


class _UnchangedError(Exception):
    """The numbers of a program are known."""


class _Compiled:
    """A program that is compiled at its first call, unless a hash of all that its numbers follow from is known.

    Args:
      make: Function that compiles the program.
      text: The program as XLA receives it, with XLA's options.
      known: Hash of a program and its arguments that is not to be compiled.
    """

    def __init__(self, make: Any, text: str, known: str) -> None:
        self._make, self._text, self._known = make, text, known
        self._compiled: Any = None
        self.sha256 = ""

    def __call__(self, *arguments: Any) -> Any:
        if self._compiled is None:
            self.sha256 = _hash_of(self._text, arguments)
            if self.sha256 == self._known and "lapack" not in self._text:
                raise _UnchangedError
            self._compiled = self._make()
        return self._compiled(*arguments)


def _hash_of(text: str, arguments: Any) -> str:
    import jax
    import numpy as np

    found = hashlib.sha256(text.encode())
    for path, leaf in jax.tree_util.tree_leaves_with_path(arguments):
        is_key = isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        array = np.asarray(jax.random.key_data(leaf) if is_key else leaf)
        found.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape} ".encode() + array.tobytes())
    return found.hexdigest()[:16]


def bits(known: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Returns hashes of the loss curves, and of what they follow from, by optimizer.

    They are computed in this process, which must have one thread.

    Args:
      known: Hashes of what the curves follow from. Those that have not changed are left out of the first.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np

    import lobench.inner.optimizers as shipped
    from lobench import Task
    from lobench.core.case import Case, SeedBlock
    from lobench.engine.workers.devices import set_blas_variables
    from lobench.inner.adapters import as_learned_optimizer, as_stepper, as_task
    from lobench.inner.backend import claim_backend
    from lobench.inner.training.train import TrainingProgram

    class Tiny(Task):
        """A layer with leaves of one and of two axes, which gives all that an optimizer may want."""

        num_losses = 2

        def init(self, key: jax.Array) -> dict[str, jax.Array]:
            return {"w": jnp.cos(jnp.arange(20.0)).reshape(5, 4), "b": jnp.zeros(4)}

        def inputs(self, key: jax.Array) -> jax.Array:
            return jnp.sin(jnp.arange(40.0)).reshape(8, 5)

        def loss(self, params: dict[str, jax.Array], key: jax.Array, data: object) -> jax.Array:
            inputs = self.inputs(key)
            return jnp.mean((jnp.tanh(inputs @ params["w"] + params["b"]) - jnp.sin(inputs[:, :4])) ** 2)

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

        def inputs(self, key: jax.Array) -> jax.Array:
            return jax.random.normal(key, (8, 5))

    set_blas_variables(1)
    assert claim_backend(1)
    block, found, texts = SeedBlock(start=0, size=2), {}, {}
    compile_now = jax.stages.Lowered.compile
    for name in names():
        theta, settings = {}, _SETTINGS if name == WITH_SETTINGS else ()
        task = Drawn() if settings else Tiny()
        case = Case(task=task, num_inner_steps=20, num_seeds=2, eval_every=5)
        made = getattr(shipped, name)() if not settings else None
        if made is None:
            make = lambda theta, *settings: as_stepper(shipped.adam(*settings), 20)  # noqa: E731
        elif callable(getattr(made, "opt_fn", None)):
            learned = as_learned_optimizer(made)
            theta = learned.init(jax.random.key(0))
            make = lambda theta, learned=learned: as_stepper(learned.opt_fn(theta, 20), 20)  # noqa: E731
        else:
            make = lambda theta, made=made: as_stepper(made, 20)  # noqa: E731
        made_programs: list[_Compiled] = []

        def compile_later(lowered: Any, options: Any, name: str = name, made: list[_Compiled] = made_programs) -> Any:
            text = f"{lowered.as_text()} {sorted(options.items())}"
            made.append(_Compiled(lambda: compile_now(lowered, options), text, known.get(name, "")))
            return made[-1]

        with mock.patch.object(jax.stages.Lowered, "compile", compile_later), contextlib.suppress(_UnchangedError):
            curves = None
            curves = TrainingProgram(case, as_task(task), make, 2, settings).run(theta, block, settings=settings)
        (one,) = made_programs
        texts[name] = one.sha256
        if curves is None:
            continue
        losses = np.asarray(curves.metrics["train/loss"])
        assert np.isfinite(losses).all(), name
        found[name] = hashlib.sha256(losses.tobytes()).hexdigest()[:16]
    return found, texts


def program() -> str:
    from lobench.engine.store.programs import program_here

    return str(program_here())


def kept_texts() -> dict[str, str]:
    """Returns the kept hashes of what the bits of this program version follow from."""
    texts: dict[str, dict[str, str]] = json.loads(TEXTS.read_text()) if TEXTS.is_file() else {}
    return texts.get(program(), {})


def write(now: dict[str, str], texts: dict[str, str]) -> None:
    kept = json.loads(FILE.read_text()) if FILE.is_file() else {}
    lists = {name: one for name, one in kept.get(program(), {}).items() if isinstance(one, list)}
    all_now = {**now, **{name: sorted({*lists[name], now[name]}) for name in lists}}
    of_programs = json.loads(TEXTS.read_text()) if TEXTS.is_file() else {}
    for file, found in ((FILE, {**kept, program(): all_now}), (TEXTS, {**of_programs, program(): texts})):
        file.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    os.environ.update(NPROC="1", JAX_PLATFORMS="cpu")
    known = kept_texts() if "--unless-known" in sys.argv else {}
    now, texts = bits({name: text for name, text in known.items() if name not in ALWAYS})
    print(json.dumps({"program": program(), "bits": now, "texts": texts}))
    if "--write" in sys.argv:
        write(now, texts)
