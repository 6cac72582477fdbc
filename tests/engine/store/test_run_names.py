"""Runs of sinks: each subject has one, and no two share a name."""

from __future__ import annotations

from lobench.core.checkpoint import Checkpoint
from lobench.core.subject import Subject, Variant
from lobench.engine.store.run_names import RunNames


def names(*subjects: Subject, is_experiment: bool = True) -> list[str]:
    runs = RunNames()
    for position, subject in enumerate(subjects):
        runs.add(position, subject, is_experiment=is_experiment)
    return list(runs.names.values())


def checkpoint(uri: str, sha256: str = "0", *, label: str = "", run: str = "") -> Subject:
    return Subject.of_checkpoint(Checkpoint(uri=uri, sha256=sha256, outer_step=3, run=run), label=label)


def test_a_watch_has_the_runs_of_its_folder() -> None:
    found = [checkpoint("today/theta_1.npz"), checkpoint("today/trial_3/theta_1.npz", run="trial_3")]
    assert names(*found, is_experiment=False) == ["", "trial_3"]


def test_methods_and_sessions_have_their_labels_even_where_these_are_names_of_files() -> None:
    sessions = [checkpoint(f"/s/commands/mine-1f/{one}/theta.npz", str(one), label=f"mine-{one}") for one in (0, 1)]
    assert names(*sessions, checkpoint("a.npz"), Subject.of_optimizer("adam()", label="Adam")) == [
        "mine-0",
        "mine-1",
        "a.npz",
        "Adam",
    ]


def test_checkpoints_of_a_session_are_one_run_and_those_of_a_changed_command_another() -> None:
    first, second = (
        checkpoint(f"/s/commands/mine-1f/0/theta_{step}.npz", str(step), label="mine-0") for step in (1, 2)
    )
    changed = checkpoint("/s/commands/mine-2e/0/theta_1.npz", "3", label="mine-0")
    found = names(first, second, changed, second)
    assert found[:2] == ["mine-0", "mine-0"] and found[2].startswith("mine-0 ") and found[3] == "mine-0"


def test_a_changed_method_or_one_of_other_capitals_has_a_run_of_its_own() -> None:
    found = names(
        *(Subject.of_optimizer(text, label=label) for text, label in (("a()", "A"), ("b()", "A"), ("c()", "a")))
    )
    assert found[0] == "A" and len({one.casefold() for one in found}) == 3
    bound = Subject.of_checkpoint(checkpoint("a.npz").checkpoint, Variant(bindings=("x.y = 1",)), label="A")
    assert len(set(names(bound, checkpoint("a.npz", label="A")))) == 2
