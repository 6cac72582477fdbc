"""Subjects: what makes two of them one, and what an optimizer's text means."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from shown import texts_of

from lobench.core.checkpoint import Checkpoint
from lobench.core.subject import Subject, Variant, optimizer_bindings, optimizer_sha256

SHOWN = texts_of("core")

THETA = Checkpoint(uri="runs/a/checkpoint_100.npz", sha256="ab" * 32, outer_step=100, generation=2, run="a")


def of_theta(**variant: Any) -> Subject:
    return Subject.of_checkpoint(THETA, Variant(**variant))


def test_a_checkpoint_keeps_where_it_stands() -> None:
    subject = Subject.of_checkpoint(THETA)
    assert (subject.kind, subject.is_optimizer, subject.label) == ("checkpoint", False, "checkpoint_100.npz")
    assert subject.checkpoint == THETA
    assert subject.variant == Variant() and subject.variant.key == ""


def test_one_theta_with_other_bindings_is_another_subject() -> None:
    plain, celo = Subject.of_checkpoint(THETA), of_theta(bindings=("Case.learned_optimizer = @Celo()",))
    assert plain.key != celo.key
    assert celo.label == SHOWN["checkpoint-100-npz-case-learned"]
    elsewhere = Checkpoint(uri="copy.npz", sha256=THETA.sha256, outer_step=7)
    assert Subject.of_checkpoint(elsewhere, label="ours").key == plain.key  # neither place nor label counts
    assert of_theta(trainer_config="A.b = 1").key != plain.key
    assert of_theta(trainer_config="").key != plain.key  # none is not the run's


def test_an_optimizer_has_the_hash_of_its_text_as_stores_have_it() -> None:
    subject = Subject.of_optimizer("adam();  adam.learning_rate = 0.1")
    assert subject.kind == "optimizer" and subject.label == subject.uri == "adam();  adam.learning_rate = 0.1"
    assert subject.sha256 == hashlib.sha256(b"adam()\nadam.learning_rate = 0.1").hexdigest()
    assert subject.key == Subject.of_optimizer("adam(); adam.learning_rate = 0.1", label="Adam").key
    assert subject.variant.trainer_config == ""  # no checkpoint, and so no config.gin beside one
    assert optimizer_sha256("adam()\nadam.b1 = 0.8") == optimizer_sha256("adam(); adam.b1 = 0.8")


@pytest.mark.parametrize(
    ("text", "bindings"),
    [
        ("adam()", ("Case.optimizer = @adam()",)),
        ("@adam()", ("Case.optimizer = @adam()",)),
        ("adam(); adam.b1 = 0.8;", ("Case.optimizer = @adam()", "adam.b1 = 0.8")),
        ("adam.b1 = 0.8\nadam()", ("adam.b1 = 0.8", "Case.optimizer = @adam()")),
        ("Case.optimizer = @sgd()", ("Case.optimizer = @sgd()",)),
        ("tuned.gin", ("include 'tuned.gin'",)),
    ],
)
def test_an_optimizers_text_means_statements_of_gin(text: str, bindings: tuple[str, ...]) -> None:
    assert optimizer_bindings(text) == bindings


def test_the_key_of_a_variant_parts_what_it_is_made_of() -> None:
    variants = [
        Variant(),
        Variant(trainer_config=""),
        Variant(trainer_config="a"),
        Variant(bindings=("a",)),
        Variant(bindings=("a", "b")),
        Variant(bindings=("a",), trainer_config="b"),
    ]
    assert len({variant.key for variant in variants}) == len(variants)
