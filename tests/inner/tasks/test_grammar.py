import hashlib
import re

import numpy as np
import pytest

from lobench.inner.tasks.grammar import GRAMMARS, alphabet, examples


def text_of(grammar, count=300, seed=0):
    rng = np.random.default_rng(seed)
    return [GRAMMARS[grammar](rng) for _ in range(count)]


def test_arithmetic_is_right():
    for line in text_of("arithmetic"):
        expression, value = re.fullmatch(rb"([0-9()+*]+)=(\d);", line).groups()
        assert eval(expression) % 10 == int(value)


def test_brackets_balance():
    closing = {")": "(", "]": "[", "}": "{"}
    for line in text_of("brackets"):
        stack = []
        for symbol in line.decode().removesuffix(" "):
            if symbol in closing:
                assert stack.pop() == closing[symbol]
            else:
                stack.append(symbol)
                assert len(stack) <= 6
        assert not stack
        assert len(line) >= 3


def test_words_are_sentences():
    for line in text_of("words"):
        assert re.fullmatch(rb"(the|a) ([a-z]+ )?[a-z]+ [a-z]+s (the|a) ([a-z]+ )?[a-z]+\. ", line), line


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_alphabet_is_exactly_what_is_produced(grammar):
    assert set(b"".join(text_of(grammar, count=1000))) == set(alphabet(grammar))
    assert len(set(alphabet(grammar))) == len(alphabet(grammar))


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_examples_are_the_text_in_ids(grammar):
    windows = examples(grammar, 20, 9, 3)
    assert windows.shape == (20, 9)
    assert windows.dtype == np.int32
    text = bytes(alphabet(grammar)[symbol] for symbol in windows.ravel())
    rng = np.random.default_rng(3)
    expected = b""
    while len(expected) < 180:
        expected += GRAMMARS[grammar](rng)
    assert text == expected[:180]
    assert not np.array_equal(windows, examples(grammar, 20, 9, 4))
    with pytest.raises(ValueError, match="read-only"):
        windows[0, 0] = 1


# Cases compare over years: a text that changes silently would move every curve.
PINNED = {"arithmetic": "618050e4a359fd5f", "brackets": "10856219b15f10fe", "words": "2854b9c2dc1a0166"}


@pytest.mark.parametrize("grammar", PINNED)
def test_texts_stay_as_they_are(grammar):
    digest = hashlib.sha256(examples(grammar, 100, 25, 1).astype("<i4").tobytes()).hexdigest()
    assert digest[:16] == PINNED[grammar]
