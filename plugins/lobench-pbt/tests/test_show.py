"""What `lobench pbt status` and `replay` print of a store."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from lobench_pbt.service import Service
from lobench_pbt.show import show_export, show_replay, show_status
from lobench_pbt.transitions import Completion
from pbt_simulation import PLUGINS, Simulation, make_study
from programs import document

from lobench import UsageError


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
    show_status(tmp_path, "", tree=True, kind="json")
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
    with pytest.raises(UsageError, match=f"there is no such trial; got {trial}"):
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
    assert capsys.readouterr().out.count("study sim: 1 active") == 2


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
