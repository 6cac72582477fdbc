"""Text from small grammars: unlimited, reproducible, and learnable in a few hundred inner steps."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np

__all__ = ["GRAMMARS", "alphabet", "examples"]

_NOUNS = (b"cat", b"dog", b"bird", b"fish", b"girl", b"boy")
_VERBS = (b"sees", b"finds", b"likes", b"calls")
_ADJECTIVES = (b"big", b"red", b"old", b"shy")


def _expression(rng: np.random.Generator, depth: int) -> tuple[bytes, int]:
    """Returns the text of a sum or product of digits and its value."""
    if depth == 0 or rng.random() < 0.4:
        digit = int(rng.integers(10))
        return b"%d" % digit, digit
    left, left_value = _expression(rng, depth - 1)
    right, right_value = _expression(rng, depth - 1)
    if rng.random() < 0.5:
        return b"(%s+%s)" % (left, right), left_value + right_value
    return b"%s*%s" % (left, right), left_value * right_value


def _arithmetic(rng: np.random.Generator) -> bytes:
    """One expression and its value modulo 10, such as `(3+4)*2=4;`."""
    text, value = _expression(rng, 2)
    return b"%s=%d;" % (text, value % 10)


def _brackets(rng: np.random.Generator) -> bytes:
    """One balanced string over three kinds of brackets, nested at most six deep, ended by a blank."""
    text = bytearray()
    open_brackets = bytearray()
    while True:
        if len(open_brackets) < 6 and rng.random() < 0.5:
            kind = int(rng.integers(3))
            text.append(b"([{"[kind])
            open_brackets.append(b")]}"[kind])
        elif open_brackets:
            text.append(open_brackets.pop())
        elif text:
            return bytes(text) + b" "


def _sentence(rng: np.random.Generator) -> bytes:
    """One sentence, such as `the shy cat sees a dog. `."""

    def pick(words: tuple[bytes, ...]) -> bytes:
        return words[int(rng.integers(len(words)))]

    def noun_phrase() -> bytes:
        adjective = pick(_ADJECTIVES) + b" " if rng.random() < 0.4 else b""
        return pick((b"the ", b"a ")) + adjective + pick(_NOUNS)

    return noun_phrase() + b" " + pick(_VERBS) + b" " + noun_phrase() + b". "


GRAMMARS: Mapping[str, Callable[[np.random.Generator], bytes]] = {
    "arithmetic": _arithmetic,
    "brackets": _brackets,
    "words": _sentence,
}
_ALPHABETS = {
    "arithmetic": b"0123456789()*+=;",
    "brackets": b"()[]{} ",
    "words": bytes(sorted(set(b" .the a" + b"".join(_NOUNS + _VERBS + _ADJECTIVES)))),
}


def alphabet(grammar: str) -> bytes:
    """Returns all bytes that the grammar can produce. The id of a symbol is its position here."""
    return _ALPHABETS[grammar]


@functools.cache
def examples(grammar: str, num_examples: int, length: int, seed: int) -> np.ndarray:
    """Returns consecutive windows of generated text as symbol ids, int32[num_examples, length]; cached, read-only.

    Args:
      grammar: Name of a grammar in GRAMMARS.
      num_examples: Number of windows.
      length: Number of symbols of a window.
      seed: Seed of the text. Different seeds give independent texts.
    """
    rng = np.random.default_rng(seed)
    text = bytearray()
    while len(text) < num_examples * length:
        text += GRAMMARS[grammar](rng)
    ids = np.full(256, -1, np.int32)
    ids[list(_ALPHABETS[grammar])] = np.arange(len(_ALPHABETS[grammar]))
    symbols = ids[np.frombuffer(bytes(text[: num_examples * length]), np.uint8)]
    windows = symbols.reshape(num_examples, length)
    windows.flags.writeable = False
    return windows
