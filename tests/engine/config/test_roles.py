"""`Suite.role` says what cases are to whom they evaluate; it changes no identity."""

from __future__ import annotations

from pathlib import Path

import pytest
from shown import texts_of
from tiny import make_suite

from lobench.core.errors import ConfigError
from lobench.engine.config.bound import BoundCase, bind_case
from lobench.engine.config.layers import Layers
from lobench.engine.config.suite import specs_in

SHOWN = texts_of("config")

CELO, ADAM = "lobench.Case.learned_optimizer = @Celo()", "lobench.Case.optimizer = @adam()"
MODULES = ("lobench.inner.optimizers",)


def bound(folder: Path, extra: str, optimizer: str = CELO) -> list[BoundCase]:
    if not (folder / "tiny").is_dir():
        make_suite(folder)
    text = (folder / "tiny" / "tiny.gin").read_text().partition("#")[0]
    (folder / "tiny" / "tiny.gin").write_text(f"{text}#\n{extra}")
    layers = Layers(gin_modules=MODULES, gin_params=(optimizer,))
    return [bind_case(spec, layers, build=False) for spec in specs_in(folder / "tiny" / "tiny.gin")]


def test_a_role_is_the_suites_or_the_cases_or_the_optimizers(tmp_path: Path) -> None:
    text = 'Suite.role = "meta_test"\nb/Suite.role = "meta_valid"\nb/Suite.roles = {"Celo": "meta_train"}\n'
    assert [one.info.role for one in bound(tmp_path, text)] == ["meta_test", "meta_train"]
    assert [one.info.role for one in bound(tmp_path, text, ADAM)] == ["meta_test", "meta_valid"]
    assert [one.info.role for one in bound(tmp_path, "")] == ["", ""]


def test_a_role_and_a_headline_are_part_of_no_identity_and_of_no_program(tmp_path: Path) -> None:
    plain = bound(tmp_path, "")
    output = bound(tmp_path, 'Suite.role = "meta_test"\nSuite.headline = "speedup"\n')
    for one, other in zip(plain, output, strict=True):
        assert (one.info.identity, one.info.optimizer_hash, one.info.problem) == (
            other.info.identity,
            other.info.optimizer_hash,
            other.info.problem,
        )
        assert one.settings.program_hash == other.settings.program_hash
    assert {one.info.headline for one in output} == {"speedup"}


@pytest.mark.parametrize(
    ("text", "output"),
    [
        (
            'Suite.role = "meta_tst"',
            SHOWN["got-meta-tst-expected-meta"],
        ),
        ("Suite.role = 3", SHOWN["suite-role-got-3"]),
        (
            'Suite.roles = "meta_test"',
            SHOWN["suite-roles-got-meta-test"],
        ),
        ('Suite.roles = {"Celo": "train"}', SHOWN["suite-role-got-train"]),
        ('Suite.headline = "iqm"', SHOWN["suite-headline-got-iqm-expected"]),
    ],
)
def test_what_is_none_is_told_in_a_line(tmp_path: Path, text: str, output: str) -> None:
    with pytest.raises(ConfigError) as caught:
        bound(tmp_path, text)
    assert output in str(caught.value) and "\n" not in str(caught.value)
