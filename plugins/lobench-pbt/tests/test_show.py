"""What `lobench pbt status` and `replay` print of a store."""

from __future__ import annotations

import math
import os
import re
import tempfile
from pathlib import Path

import pytest
from lobench_pbt.service import Service
from lobench_pbt.show import show_export, show_replay, show_status
from lobench_pbt.transitions import Completion
from pbt_simulation import PLUGINS, Simulation, make_study, write_theta
from programs import document
from shown import texts_of

from lobench import UsageError
from lobench.extend import Direction, Objective

SHOWN = texts_of("pbt")


def test_the_reason_of_a_trial_is_shown_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Brackets and colons are what error messages are made of."""
    reasons = ("bad shape [w]", "cannot read [/data/x]", "relu:x:loss")
    service = Service(tmp_path, clock=lambda: 0.0, plugins=PLUGINS)
    service.create_study(make_study(parameters=()))
    for reason in reasons:
        trial = service.suggest("", "worker").trial
        assert trial is not None
        service.complete("", trial.id, Completion(attempt=0, reason=reason))
    service.close()
    show_status(tmp_path, "", tree=True)
    shown = capsys.readouterr().out
    assert [reason for reason in reasons if reason not in shown] == []


def test_a_study_is_told_to_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = Service(tmp_path, clock=lambda: 0.0, plugins=PLUGINS)
    service.create_study(make_study(parameters=()))
    trial = service.suggest("", "worker").trial
    assert trial is not None
    service.complete("", trial.id, Completion(attempt=0, reason="bad"))
    service.close()
    show_status(tmp_path, "", tree=True, output_format="json")
    status = document(capsys.readouterr().out)
    assert [(one["id"], one["note"]) for one in status["trials"]] == [(trial.id, "bad")] and status["best"] is None
    show_export(tmp_path, "")
    assert len(document(capsys.readouterr().out)["trials"]) == 1
    show_replay(tmp_path, "", trial.id, from_step=0, to_step=None)
    assert document(capsys.readouterr().out)["trial"] == trial.id


@pytest.mark.parametrize("trial", [99, 2**63, -(2**70)])
def test_a_trial_that_is_not_there_is_named_whatever_its_number(tmp_path: Path, trial: int) -> None:
    service = Service(tmp_path, clock=lambda: 0.0, plugins=PLUGINS)
    service.create_study(make_study(parameters=()))
    service.close()
    with pytest.raises(UsageError, match=SHOWN["no-such-trial-got"].format(trial=trial)):
        show_replay(tmp_path, "", trial, from_step=0, to_step=None)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not write a folder")
@pytest.mark.parametrize("is_served", [True, False])
def test_a_study_is_shown_to_who_may_not_write_its_store(is_served: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own are closed to others
        Path(folder).chmod(0o755)
        service = Service(Path(folder) / "store", clock=lambda: 0.0, plugins=PLUGINS)
        service.create_study(make_study(parameters=()))
        service.suggest("", "worker")
        show_status(Path(folder) / "store", "", tree=True)  # what is imported when it is used, is
        if not is_served:
            service.close()
        os.seteuid(65534)
        try:
            show_status(Path(folder) / "store", "", tree=False)
        finally:
            os.seteuid(0)
        service.close()
    assert capsys.readouterr().out.count(SHOWN["study-sim-1-active"]) == 2


def test_the_lineage_has_each_trial_below_the_one_it_began_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = make_study()
    trials = {trial.id: trial for trial in Simulation(tmp_path, study, 1).run()}
    show_status(tmp_path, "", tree=True)
    lines = capsys.readouterr().out.splitlines()
    above: list[int] = []
    shown = []
    for line in lines[lines.index("from scratch") + 1 :]:
        id, depth = int(line.split()[0]), (len(line) - len(line.lstrip())) // 2
        above[depth - 1 :] = [id]
        assert trials[id].parent_ids[:1] == tuple(above[-2:-1]), line
        shown.append(id)
    assert sorted(shown) == sorted(trials)
    assert sum(line.endswith("  *best*") for line in lines) == 1


def two_objectives(store: Path, values: list[tuple[float, float]]) -> None:
    """A study of one generation whose trials end with these losses and seconds, in this order."""
    objectives = tuple(Objective(metric=name, direction=Direction.MIN) for name in ("loss", "seconds"))
    study = make_study(objectives=objectives, strategy="pareto", population=len(values), generations=0, parameters=())
    service = Service(store, clock=lambda: 0.0, plugins=PLUGINS)
    service.create_study(study)
    for loss, seconds in values:
        trial = service.suggest("", "worker").trial
        assert trial is not None
        checkpoint = write_theta(store / f"theta_{trial.id}.npz", trial.id)
        metrics = {"loss": loss, "seconds": seconds}
        service.complete("", trial.id, Completion(attempt=0, checkpoint=checkpoint, metrics=metrics, n_steps=5))
    service.close()


def test_several_objectives_have_a_front_and_no_best_trial(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_objectives(tmp_path, [(3.0, 3.0), (1.0, 5.0), (2.0, 2.0), (2.0, 4.0), (math.nan, 0.1)])
    show_status(tmp_path, "", tree=True, output_format="json")
    status = document(capsys.readouterr().out)
    assert (status["best"], status["front"]) == (None, [2, 3])
    dominated = {one["id"]: one["dominated"] for one in status["trials"]}
    assert dominated == {
        1: {"by": 3, "at": 3, "was_of_front": True},
        2: None,
        3: None,
        4: {"by": 3, "at": 4, "was_of_front": False},
        5: None,
    }
    assert [one["ended_as_number"] for one in status["trials"]] == [1, 2, 3, 4, 5]
    show_status(tmp_path, "", tree=True)
    text = capsys.readouterr().out
    show_status(tmp_path, "", tree=True, output_format="html")
    page = capsys.readouterr().out
    for shown in (text, page):
        assert "*best*" not in shown and shown.count("*front*") == 2
        assert SHOWN["front-of-loss-min-and"] in shown
    lines = [re.split("  +", line.strip()) for line in text.splitlines()]
    assert ["2", "0", "1", "5", "2 of 5", "2"] in lines and ["3", "0", "2", "2", "3 of 5", "3"] in lines
    assert ["1", "0", "3", "3", "1 of 5", "trial 3", SHOWN["of-5-had-ended"], "1"] in lines
    assert page.count("<svg") == 1 and ">trial 3</td>" in page and "<script" not in page
