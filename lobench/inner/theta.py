"""Conversion of checkpoints to theta: flat leaves by path, matched to the structure that the optimizer declares."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from weakref import WeakKeyDictionary

import jax
import numpy as np

from lobench.core.checkpoint import COUNTER_NAMES, WRAPPER_NAMES
from lobench.core.errors import ThetaMismatch
from lobench.core.wording import shortened_list
from lobench.inner.optimizer import LearnedOptimizer, Theta

__all__ = ["leaf_paths", "match_theta"]

_Leaves = Mapping[str, np.ndarray]
_Expected = Mapping[str, jax.ShapeDtypeStruct]

# Paths in the state of a meta-optimizer, parts of which have theta's structure, such as optax's moments.
_META_OPTIMIZER_PATH = re.compile(r"(^|/)([^/]*(opt|optim|optimizer)_state|mu|nu|trace)(/|$)")
_MAX_SHOWN = 12
_PLAIN = (bool, int, float, str, type(None), re.Pattern)

# Leaves of lobench's optimizers, by class and attributes. Each checkpoint that does not fit is compared with all.
_known_default_leaves: WeakKeyDictionary[type[LearnedOptimizer], dict[str, _Expected]] = WeakKeyDictionary()


def leaf_paths(tree: Theta) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns the leaves of a tree by path. Dict keys, indices and attribute names are joined by "/".

    >>> leaf_paths({"layers": [jnp.ones(2)]})
    {'layers/0': Array([1., 1.], dtype=float32)}
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {"/".join(_path_component(key) for key in path): leaf for path, leaf in leaves}


def _path_component(key: object) -> str:
    for attribute in ("key", "name", "idx"):
        value = getattr(key, attribute, None)
        if value is not None:
            return str(value)
    return str(key)


def match_theta(leaves: _Leaves, optimizer: LearnedOptimizer, *, where: str, part: str = "") -> Theta:
    """Gives checkpoint leaves the structure and dtypes of `optimizer.init`.

    Theta is all leaves (except for counters of steps and generations), or the one subtree that has the structure. If
    several subtrees have it, those in the state of a meta-optimizer are excluded, and one named `theta`, or else
    `params`, is chosen.

    Args:
      leaves: numpy arrays by path, as `CheckpointContent.leaves`.
      optimizer: Optimizer that declares the structure.
      where: Name of the checkpoint in error messages.
      part: Path of the subtree that holds theta (`Checkpoint.theta`). "": search everywhere.
    Raises:
      ThetaMismatch: No subtree has the structure, or several have it. In the first case the message lists each leaf
        that is missing, unexpected, or of another shape or kind.
    """
    template = _theta_shapes(optimizer)
    leaves_of_part = _leaves_below(leaves, part.strip("/"))
    if part and not leaves_of_part:
        top_names = sorted({path.split("/")[0] for path in leaves})
        raise ThetaMismatch(
            f"there is no {part!r}", where=where, got=_list_names(top_names), next_step="see Checkpoint.theta"
        )
    for expected in _expected_forms(leaf_paths(template)):
        paths = _likeliest_paths(
            [
                candidate
                for candidate in _candidate_paths(leaves_of_part, expected) or [""]
                if _fits_at(candidate, leaves_of_part, expected)
            ]
        )
        if len(paths) > 1:
            raise ThetaMismatch(
                f"several parts fit {_optimizer_name(optimizer)}",
                where=where,
                got=_list_names(paths),
                next_step=f'say which one is theta: `Checkpoint.theta = "{paths[0]}"`, in gin',
            )
        if paths:
            theta_leaves = _leaves_below(leaves_of_part, paths[0])
            arrays = [np.asarray(theta_leaves[path]).astype(leaf.dtype) for path, leaf in expected.items()]
            return jax.tree.unflatten(jax.tree.structure(template), arrays)
    raise _mismatch(leaves_of_part, optimizer, leaf_paths(template), where)


def _theta_shapes(optimizer: LearnedOptimizer) -> Theta:
    return jax.eval_shape(optimizer.init, jax.random.key(0, impl="threefry2x32"))


def _expected_forms(expected: _Expected) -> Iterator[_Expected]:
    """Yields the expected leaves as they are, and without a common top-level name.

    Readers remove a top-level name from a checkpoint, and the theta of flax modules has such a name itself.
    """
    yield expected
    for name in WRAPPER_NAMES:
        if expected and all(path.startswith(f"{name}/") for path in expected):
            yield {path.removeprefix(f"{name}/"): expected_leaf for path, expected_leaf in expected.items()}


def _leaves_below(leaves: _Leaves, parent: str) -> dict[str, np.ndarray]:
    """Returns the leaves below a path, by their paths relative to it."""
    prefix = f"{parent}/" if parent else ""
    return {path.removeprefix(prefix): leaf for path, leaf in leaves.items() if path.startswith(prefix)}


def _candidate_paths(leaves: _Leaves, expected: _Expected) -> Counter[str]:
    """Returns the paths with leaves of expected names below them, with the number of these leaves."""
    num_leaves: Counter[str] = Counter()
    for name in expected:
        for path in leaves:
            if path == name:
                num_leaves[""] += 1
            elif path.endswith(f"/{name}"):
                num_leaves[path[: -len(name) - 1]] += 1
    return num_leaves


def _fits_at(path: str, leaves: _Leaves, expected: _Expected) -> bool:
    return not _leaf_problems(_leaves_below(leaves, path), expected)


def _leaf_problems(leaves: _Leaves, expected: _Expected) -> list[str]:
    counters = [name for name in COUNTER_NAMES if name not in expected and np.size(leaves.get(name, ())) == 1]
    problems = [f"{path} is missing, expected {_describe(expected[path])}" for path in expected if path not in leaves]
    problems += [
        f"{path} {_describe(leaf)} is not expected"
        for path, leaf in leaves.items()
        if path not in expected and path not in counters
    ]
    for path, expected_leaf in expected.items():
        if path in leaves and not _leaf_fits(leaves[path], expected_leaf):
            problems.append(f"{path} is {_describe(leaves[path])}, expected {_describe(expected_leaf)}")
    return problems


def _likeliest_paths(paths: list[str]) -> list[str]:
    """Returns the path of theta as a list of one, or all candidates if the user has to choose."""
    if len(paths) > 1:
        paths = [path for path in paths if not _META_OPTIMIZER_PATH.search(path)] or paths
    if len(paths) > 1:
        for name in (*WRAPPER_NAMES, "default"):  # the last is orbax's name for an unnamed item
            same_name = [path for path in paths if path.rsplit("/", 1)[-1] == name]
            if len(same_name) == 1:
                return same_name
    return paths


def _mismatch(leaves: _Leaves, optimizer: LearnedOptimizer, expected: _Expected, where: str) -> ThetaMismatch:
    """Returns an error with the differences at the best match, and the optimizers that fit the checkpoint."""
    counts_by_path = _candidate_paths(leaves, expected)
    best_path = min(counts_by_path, key=lambda path: (-counts_by_path[path], path.count("/"), path), default="")
    theta = f"theta (at {best_path!r})" if best_path else "theta"
    fitting, similar = _find_other_optimizers(leaves)
    if fitting:
        next_step = f"it fits {_list_names(fitting)}: set Case.learned_optimizer"
    elif similar:
        next_step = (
            f"it has the leaves of {_list_names(similar)}, in other sizes: bind the sizes that it was trained with"
        )
    else:
        next_step = "is it a checkpoint of another optimizer? set Case.learned_optimizer"
    problems = _leaf_problems(_leaves_below(leaves, best_path), expected)
    num_shown = 3 if fitting else _MAX_SHOWN
    problems_text = "; ".join(problems[:num_shown]) + (
        f"; and {len(problems) - num_shown} more" if len(problems) > num_shown else ""
    )
    return ThetaMismatch(
        f"{theta} does not fit {_optimizer_name(optimizer)}: {problems_text}", where=where, next_step=next_step
    )


def _find_other_optimizers(leaves: _Leaves) -> tuple[list[str], list[str]]:
    """Returns the known optimizers, with default arguments, that fit the leaves, and those that fit by name only."""
    fitting, similar = [], []
    for cls in _subclasses(LearnedOptimizer):  # type: ignore[type-abstract]  # it is not made, its subclasses are
        try:
            expected = _default_leaves(cls)
        except Exception:  # noqa: BLE001  (an abstract class, arguments without defaults, or whatever its author wrote)
            continue
        paths = [path for path, count in _candidate_paths(leaves, expected).items() if count == len(expected)]
        if any(_fits_at(path, leaves, expected) for path in paths):
            fitting.append(cls.__name__)
        elif any(_leaves_below(leaves, path).keys() == expected.keys() for path in paths):
            similar.append(cls.__name__)
    return sorted(set(fitting)), sorted(set(similar) - set(fitting))  # sets, since gin makes a class of the same name


def _default_leaves(cls: type[LearnedOptimizer]) -> _Expected:
    """Returns the leaves of an optimizer's theta with default arguments, which gin may bind."""
    optimizer = cls()
    attributes = getattr(optimizer, "__dict__", None)
    is_lobench = cls.__module__.startswith("lobench.inner.optimizers.")
    if not is_lobench or attributes is None or not all(isinstance(value, _PLAIN) for value in attributes.values()):
        return leaf_paths(_theta_shapes(optimizer))  # the text of its attributes does not determine theta
    arguments = repr(sorted(attributes.items()))
    known_leaves = _known_default_leaves.setdefault(cls, {})
    if arguments not in known_leaves:
        known_leaves[arguments] = leaf_paths(_theta_shapes(optimizer))
    return known_leaves[arguments]


def _subclasses(cls: type[LearnedOptimizer]) -> Iterator[type[LearnedOptimizer]]:
    for child in cls.__subclasses__():
        if not child.__name__.startswith("_"):
            yield child
        yield from _subclasses(child)


def _leaf_fits(leaf: np.ndarray, expected_leaf: jax.ShapeDtypeStruct) -> bool:
    # Numbers are cast to the optimizer's own dtype; an integer leaf that would lose a fraction is not a number to cast.
    accepted_kinds = "fiub" if np.dtype(expected_leaf.dtype).kind == "f" else "iub"
    is_bfloat16 = leaf.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")
    return tuple(leaf.shape) == tuple(expected_leaf.shape) and (leaf.dtype.kind in accepted_kinds or is_bfloat16)


def _describe(leaf: object) -> str:
    shape = getattr(leaf, "shape", ())
    dtype = getattr(leaf, "dtype", "?")
    return f"{np.dtype(dtype).name}[{','.join(map(str, shape))}]"


def _optimizer_name(optimizer: LearnedOptimizer) -> str:
    return type(getattr(optimizer, "wrapped", optimizer)).__name__


def _list_names(names: list[str]) -> str:
    return shortened_list([name or "all of it" for name in names], _MAX_SHOWN)
