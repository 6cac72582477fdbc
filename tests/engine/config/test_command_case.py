"""Cases that are commands: what is bound, what belongs to their identity, and what is refused."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from shown import texts_of

from lobench.core.case import COMMAND, SeedBlock
from lobench.core.errors import ConfigError
from lobench.core.subject import Variant
from lobench.engine.config.bound import BoundCase, bind_case, binds_optimizer
from lobench.engine.config.command_files import check_no_shell_syntax
from lobench.engine.config.layers import Layers
from lobench.engine.config.suite import specs_in, takes_any_checkpoint

SHOWN = texts_of("config")

GIN = """
Case.num_seeds = 3
perplexity/Case.command = "python eval.py --checkpoint {checkpoint} --batch {batch} --out {out}"
perplexity/Case.curves = "{out}/metrics.jsonl"
perplexity/Case.primary_metric = "valid/loss"
perplexity/batch = 8
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "lm").mkdir()
    (tmp_path / "lm/eval.gin").write_text(GIN)
    (tmp_path / "lm/eval.py").write_text("import helper\n")
    (tmp_path / "lm/helper.py").write_text("RATE = 1\n")
    (tmp_path / "lm/data.json").write_text("1")
    return tmp_path / "lm/eval.gin"


def bind(suite: Path, extra: str = "", **layers: object) -> BoundCase:
    suite.write_text(GIN + extra)
    (spec,) = specs_in(suite)
    return bind_case(spec, Layers(gin_modules=("no_such_module",), **layers))  # type: ignore[arg-type]


def test_command_case_is_bound_without_modules_and_has_a_block_for_each_seed(suite: Path) -> None:
    bound = bind(suite)
    assert bound.info.evaluator == COMMAND and bound.values == {"batch": "8"}
    assert bound.info.blocks() == [SeedBlock(start=seed, size=1) for seed in range(3)]
    bound.require_optimizer()  # needs none
    assert takes_any_checkpoint(suite) and not binds_optimizer(bound.spec, Layers())


def test_suite_with_a_test_file_that_cannot_be_read_is_not_one_of_commands(
    suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (suite.parent / "test_lm.py").write_text("def test_lm(checkpoint): ...\n")
    assert takes_any_checkpoint(suite.parent)
    read_text = Path.read_text

    def fail(path: Path, *arguments: str, **options: str) -> str:
        if path.name == "test_lm.py":
            raise OSError(errno.EIO, "Input/output error")
        return read_text(path, *arguments, **options)

    monkeypatch.setattr(Path, "read_text", fail)
    assert not takes_any_checkpoint(suite.parent)  # its tests may train


@pytest.mark.parametrize(
    "extra",
    [
        'perplexity/Case.command = "python eval.py {checkpoint}"\n',
        "perplexity/batch = 9\n",
        'perplexity/Case.curves = "{out}/other.jsonl"\n',
        "perplexity/expect.max_final = 3.0\n",
    ],
)
def test_command_case_with_other_text_or_bindings_is_another_case(suite: Path, extra: str) -> None:
    assert bind(suite).info.identity != bind(suite, extra).info.identity


@pytest.mark.parametrize("extra", ["Case.num_seeds = 5\n", "Case.timeout_seconds = 9.0\n", "unused = 3\n"])
def test_command_case_with_other_limits_is_the_same_case(suite: Path, extra: str) -> None:
    assert bind(suite).info.identity == bind(suite, extra).info.identity


def test_command_case_ignores_optimizers_of_subjects(suite: Path) -> None:
    variant = Variant(bindings=("Case.learned_optimizer = @Celo()",), trainer_config="import nothing_here\n")
    assert bind(suite).info == bind(suite, variant=variant).info
    assert bind(suite, gin_params=("perplexity/batch = 16",)).values == {"batch": "16"}


@pytest.mark.parametrize("name", ["eval.py", "helper.py", "data.json"])
def test_command_case_with_edited_file_has_other_code(suite: Path, name: str) -> None:
    extra = 'perplexity/Case.files = ("*.json",)\n'
    before = bind(suite, extra).info
    (suite.parent / name).write_text("RATE = 2\n")
    after = bind(suite, extra).info
    assert before.identity == after.identity and before.case_code != after.case_code


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ("perplexity/Case.curves = ''\n", SHOWN["case-curves-got"]),
        ("perplexity/Case.curves = 'metrics.json'\n", SHOWN["case-curves-another-evaluation"]),
        ("perplexity/Case.command = 'python \"'\n", SHOWN["case-command-is-not-a"]),
        ("perplexity/Case.seed_block = 2\n", SHOWN["case-seed-block-got-2"]),
        ("perplexity/Case.eval_every = 2\n", SHOWN["case-eval-every-has-no"]),
        ("perplexity/Case.files = ('*.csv',)\n", SHOWN["case-files-names-no-file"]),
        ("perplexity/Case.metric_directions = {'x': 'up'}\n", SHOWN["is-not-a-direction"]),
        ("perplexity/Case.comand = 'x'\n", SHOWN["no-parameter-comand"]),
        ("Cse.command = 'x'\n", SHOWN["unknown-name-cse"]),
    ],
)
def test_command_case_with_a_mistake_is_refused_in_one_line(suite: Path, extra: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        bind(suite, extra)
    assert "\n" not in str(refused.value)


def test_task_with_settings_of_a_command_is_refused(suite: Path) -> None:
    suite.write_text("import lobench.inner.tasks.quadratic\nx/Case.task = @Quadratic()\nCase.curves = 'a.csv'\n")
    (spec,) = specs_in(suite)
    with pytest.raises(ConfigError, match=SHOWN["case-curves-only-applies-to"]):
        bind_case(spec, Layers())


@pytest.mark.parametrize(
    "command",
    [
        r'sh -c "echo \"a && b\" > {out}/x"',
        r"python eval.py --name it\'s --token '<s>' --pattern \>",
        "python eval.py 'a;' \"it's; x\"",
        r"find . -exec echo {{}} \;",
    ],
)
def test_shell_syntax_in_quotes_is_an_argument(command: str) -> None:
    check_no_shell_syntax(command, "Case.command", "x.gin:1")


@pytest.mark.parametrize(
    ("command", "word"), [("A='b c' python x.py", "A='b c'"), ("python x.py >'my log'", ">'my log'")]
)
def test_shell_syntax_around_quotes_is_refused(command: str, word: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_no_shell_syntax(command, "Case.command", "x.gin:1")
    assert caught.value.got == repr(word)


@pytest.mark.parametrize(
    ("extra", "is_fixed"),
    [
        ("", False),  # three runs of a command that draws by itself
        ("perplexity/Case.num_seeds = 1\n", True),
        ("perplexity/Case.num_seeds = 1\nperplexity/Case.command = 'python eval.py {seed} {batch}'\n", False),
        ("perplexity/Case.replicates = 'items'\n", True),
    ],
)
def test_command_with_one_value_and_no_seed_has_no_fresh_seeds(suite: Path, extra: str, is_fixed: bool) -> None:
    assert bind(suite, extra).info.fixed_seeds == is_fixed
