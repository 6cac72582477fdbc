"""Two workers of one name: the second is refused; one that comes in the place of a dead one gets its trial at once."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import lobench_pbt
import pytest
from lobench_pbt.process import Fate, process_fate, process_text, register_client, unregister_client
from lobench_pbt.server import Security
from lobench_pbt.transitions import Completion
from lobench_pbt.trial import Refusal, Refused
from pbt_served import Served, serving
from pbt_simulation import write_theta
from shown import texts_of

from lobench import LobenchError

SHOWN = texts_of("pbt")

# Takes a trial, says so, and holds it until it is killed.
HOLDER = """
import sys, lobench_pbt
with lobench_pbt.client(sys.argv[1]) as study:
    for trial in study.trials("one"):
        print(trial.id, flush=True)
        sys.stdin.read()
"""


def hold(served: Served) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLDER, served.address]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "1\n"
    return process


def test_the_second_of_one_name_is_refused_at_once_and_the_first_goes_on(served: Served) -> None:
    process = hold(served)
    try:
        with (
            lobench_pbt.client(served.address) as study,
            pytest.raises(LobenchError, match=SHOWN["one-two-workers-have-one"].format(pid=process.pid)),
        ):
            next(study.trials("one"))
        with lobench_pbt.client(served.address) as study:
            assert next(study.trials("two")).id == 2
    finally:
        process.kill()
        process.wait()


def test_a_worker_in_the_place_of_a_dead_one_has_its_trial_at_once(served: Served) -> None:
    """The clock stands still: no lease runs out."""
    process = hold(served)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with lobench_pbt.client(served.address) as study:
        session = next(study.trials("one"))
        assert (session.id, session._trial.attempt) == (1, 0)


def test_a_second_client_of_one_process_is_told_too_and_may_go_on_once_the_first_is_over(served: Served) -> None:
    first, second = (lobench_pbt.client(served.address) for _ in range(2))
    sessions = first.trials("one")
    assert next(sessions).id == 1
    with pytest.raises(LobenchError, match=SHOWN["two-workers-have-one-name"]):
        next(second.trials("one"))
    first.__exit__()
    assert next(second.trials("one")).id == 1
    second.__exit__()


def test_of_a_process_elsewhere_half_a_lease_without_a_sign_is_enough(served: Served) -> None:
    trial = served.service.suggest("", "one", process="elsewhere/1/2/3").trial
    assert trial is not None
    held = served.service.suggest("", "one", process="here/1/2/3")
    assert (held.answer, held.holder) == ("held", "elsewhere/1/2/3")
    served.now = 4.0
    served.service.heartbeat("", trial.id, 0, process="elsewhere/1/2/3")
    served.now = 8.0
    assert served.service.suggest("", "one", process="here/1/2/3").answer == "held"
    served.now = 9.5
    again = served.service.suggest("", "one", process="here/1/2/3")
    assert again.answer == "trial" and again.trial is not None and (again.trial.id, again.trial.attempt) == (1, 0)
    # The first one was only slow: what it says does not count any more.
    theta = write_theta(served.folder / "theta.npz", 1.0)
    late = Completion(attempt=0, checkpoint=theta, metrics={"loss": 1.0}, n_steps=5)
    for call in (
        lambda: served.service.heartbeat("", trial.id, 0, process="elsewhere/1/2/3"),
        lambda: served.service.complete("", trial.id, late, process="elsewhere/1/2/3"),
    ):
        with pytest.raises(Refused, match=SHOWN["another-process-of-this-name"]) as caught:
            call()
        assert caught.value.refusal is Refusal.STALE
    served.service.complete("", trial.id, late, process="here/1/2/3")
    served.service.complete("", trial.id, late, process="here/1/2/3")  # a repeat


def test_a_name_of_a_living_process_elsewhere_is_an_error_after_a_lease(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lobench_pbt.trainer._POLL_SECONDS", 0.02)
    for served in serving(tmp_path, Security(), lease_seconds=0.3):
        served.service.suggest("", "one", process="elsewhere/17/2/3")
        with lobench_pbt.client(served.address) as study:
            begun = time.monotonic()
            with pytest.raises(LobenchError, match=SHOWN["process-17-of-elsewhere-works"]):
                next(study.trials("one"))  # the clock stands still: its last sign of life stays new
            assert time.monotonic() - begun >= 0.3
    assert [message for message in caplog.messages if SHOWN["is-it-alive"] in message] == [
        SHOWN["worker-one-process-17-of"]
    ]


def test_what_is_known_of_a_process() -> None:
    name = register_client()
    assert process_fate(name) is Fate.RUNS
    unregister_client(name)
    assert process_fate(name) is Fate.OVER
    machine, pid, started, _ = name.split("/")
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert process_fate(f"{machine}/{ended.pid}/{started}/1") is Fate.OVER
    assert process_fate(f"{machine}/1/0/1") is Fate.OVER, "the number was given again"
    assert process_fate(f"other/{pid}/{started}/1") is process_fate("") is process_fate("rubbish") is Fate.ELSEWHERE
    assert process_text(name) == SHOWN["process-of-this-machine"].format(pid=pid)
