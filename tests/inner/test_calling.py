"""Which of the arguments that there are a foreign function is called with."""

from __future__ import annotations

import functools
from typing import Any

import jax
import pytest
from shown import texts_of

from lobench.inner.extra_inputs.calling import call_with_accepted

SHOWN = texts_of("inner")


def _step(grads: Any, state: Any, *, value: Any = None) -> tuple[str, ...]:
    return tuple(name for name, given in {"value": value}.items() if given is not None)


class _Object:
    def update(self, grads: Any, state: Any, key: Any = None) -> tuple[str, ...]:
        return ("key",) * (key is not None)


@functools.wraps(_step)
def _wrapper(*args: Any, **kwargs: Any) -> tuple[str, ...]:
    return _step(*args, **kwargs)


@functools.wraps(lambda *args, **extra: None)
def _narrower(grads: Any, state: Any) -> tuple[str, ...]:
    return ()


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (_step, ("value",)),
        (lambda grads, state, **extra: tuple(sorted(extra)), ("grad", "key", "value")),
        (lambda grad, state, **extra: tuple(sorted(extra)), ("key", "value")),  # given by its place already
        (lambda grads, state: (), ()),
        (_Object().update, ("key",)),
        (functools.partial(_step), ("value",)),
        (_wrapper, ("value",)),
        (_narrower, ()),
        (jax.jit(lambda grads, state, key: {"key": key}), {"key": 2}),
    ],
)
def test_a_function_gets_what_its_signature_takes(function: Any, expected: Any) -> None:
    assert call_with_accepted(function, 0, 0, value=1, key=2, grad=3) == expected


def test_an_error_of_the_users_own_code_is_raised_and_nothing_is_called_twice() -> None:
    calls = []

    def update(grads: Any, state: Any, **extra: Any) -> Any:
        calls.append(extra)
        return _step(grads, state, key=extra["key"])  # type: ignore[call-arg]

    with pytest.raises(TypeError, match=SHOWN["unexpected-keyword-argument-key"]):
        call_with_accepted(update, 0, 0, value=1, key=2)
    assert len(calls) == 1


def test_what_a_method_hands_to_its_base_class_is_what_that_takes() -> None:
    class Base:
        def init(self, params: int, num_steps: int = 0) -> tuple[int, int]:
            return params, num_steps

    class Wrapper(Base):
        def init(self, params: int, **kwargs: int) -> tuple[int, int]:
            return super().init(params, **kwargs)

    class Open(Base):
        def init(self, params: int, **extra: int) -> tuple[int, int]:
            return params, extra["key"]

    assert call_with_accepted(Wrapper().init, 1, num_steps=5, key=7) == (1, 5)
    assert call_with_accepted(Open().init, 1, num_steps=5, key=7) == (1, 7)
