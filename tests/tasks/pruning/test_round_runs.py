"""Rules that see a fault after the fine-tuning: its round does not count."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT
from tests.tasks.remedy.findings import finding
from vinedresser.objects import LocalStorage
from vinedresser.pruning.folders import TUNED, round_folder
from vinedresser.pruning.rounds.round_record import RoundRecord
from vinedresser.pruning.rounds.round_run import Refusal
from vinedresser.rules.findings_file import FindingsFile
from vinedresser.store.finding import Finding
from vinedresser.store.records import (
    ClaimRecord,
    ExitCause,
    ExitRecord,
    StopRecord,
    TrackingRecord,
    write_record,
)
from vinedresser.tasks.config.prune_file import Pruning, load_pruning
from vinedresser.tasks.places.run_place import RunPlace
from vinedresser.tasks.pruning.round_queue import RoundRuns
from vinedresser.tasks.remedy.remedy_attempts import RemedyAttempts
from vinedresser.testing.runs import make_run, step_record

MODULE = "tests.pruning.rounds.functions"
FILE = f"""
[prune]
model = "{MODULE}:network"
example = "{MODULE}:example"
train = "{MODULE}:train"
evaluate = "{MODULE}:evaluate"

[run]
name = "small"
cwd = "{ROOT}"
parameters = {{ lr = 100.0 }}

[remedy]
times = 1

[rules]
preset = "none"
[rules.nonfinite]
"""


@pytest.fixture
def load(tmp_path: Path) -> Callable[[str], Pruning]:
    """Return a function that loads the pruning with more lines in its file."""

    def loaded(more: str = "") -> Pruning:
        (tmp_path / "prune.toml").write_text(FILE + more, encoding="utf-8")
        return load_pruning(tmp_path / "prune.toml")

    return loaded


def run(directory: Path, *findings: Finding, stopped: bool = False) -> Path:
    """Make a run that is over, with findings."""
    make_run(directory, [step_record(0, scalars={"losses/own": 1.0})], name=directory.name)
    storage = LocalStorage(directory)
    cause: ExitCause = "stopped" if stopped else "finished"
    stop = StopRecord("rule", "", 1.0, "nonfinite", 0, findings[0].to_json()) if stopped else None
    write_record(storage, ExitRecord(cause, "", 2.0, code=0, stop=stop))
    found = FindingsFile(storage, "default")
    for one in findings:
        found.add(one)
    return directory


def tuned(pruning: Pruning, number: int, name: str | None) -> Path:
    """Make the results of a round; return its folder.

    Args:
        pruning: the pruning.
        number: number of the round.
        name: name of the run of its record; None: the record is not written.
    """
    here = round_folder(pruning.state, number)
    (here / TUNED).mkdir(parents=True)
    (here / TUNED / "weights.safetensors").touch()
    if name is not None:
        costs: dict[str, Any] = {"parameters": 1, "macs": 1, "size": 1}
        times: dict[str, Any] = {
            "latency": 1.0,
            "original_latency": 1.0,
            "before": 1.0,
            "figure": 1.0,
        }
        record = RoundRecord(number=number, run=name, removed=1, **costs, **times)
        write_record(LocalStorage(here), record)
    return here


def remains(here: Path) -> bool:
    """Return whether a round counts."""
    parts = {(here / TUNED / "weights.safetensors").exists(), (here / "round.json").exists()}
    assert len(parts) == 1, "both, or none"
    return parts.pop()


def begun(pruning: Pruning, place: RunPlace) -> RoundRuns:
    """Return round 1, whose run is over."""
    item = RoundRuns(pruning, 1)
    spec = pruning.run_spec(1)
    tracking = TrackingRecord("sqlite:///none", "0", "id")
    item.attempts = RemedyAttempts(place, spec, pruning.experiment.remedy, tracking)
    return item


def refuse(_: RemedyAttempts) -> bool:
    """Make no other run."""
    return False


BROKEN = finding({"lr": 1.0}, rule="nonfinite")


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("additional", [False, True])
def test_a_fault_that_is_seen_late_refuses_the_round(
    stopped: bool, additional: bool, load: Callable[..., Pruning]
) -> None:
    pruning = load()
    store = pruning.state
    place = RunPlace(
        run(store / "round-1", *[BROKEN] * (stopped or not additional), stopped=stopped)
    )
    if additional:
        place.additional = [RunPlace(run(store / "round-1.2", BROKEN))]
    here = tuned(pruning, 1, "round-1")
    item = begun(pruning, place)
    proposed: list[Any] = []

    def correct(attempts: RemedyAttempts) -> bool:
        attempt = attempts.next()
        proposed.append(attempt and attempt.spec.parameters["lr"])
        return True

    end = item.end(correct)
    assert (end.again, end.record) == (True, None)
    assert proposed == [1.0]
    assert not remains(here)


@pytest.mark.parametrize("removed", [False, True])
def test_only_a_model_that_allows_no_removal_ends_a_pruning_well(
    removed: bool, load: Callable[..., Pruning]
) -> None:
    pruning = load()
    item = begun(pruning, RunPlace(run(pruning.state / "round-1")))
    here = LocalStorage(round_folder(pruning.state, 1))
    if removed:
        here.put("pruned/weights.safetensors", [b""])
    write_record(here, Refusal("no"))
    end = item.end(refuse)
    assert (end.reason, end.refused) == ("round-1: no", not removed)


def test_weights_that_are_not_finite_are_cured_if_a_rule_knows_how(
    load: Callable[..., Pruning],
) -> None:
    pruning = load()
    place = RunPlace(run(pruning.state / "round-1", BROKEN))
    crashed = ExitRecord("crashed", "left a model that is not finite", 2.0, code=1)
    write_record(LocalStorage(place.directory), crashed)
    write_record(LocalStorage(round_folder(pruning.state, 1)), Refusal(crashed.reason))
    assert begun(pruning, place).end(lambda attempts: attempts.next() is not None).again


def test_without_a_cure_it_ends_the_pruning(load: Callable[..., Pruning]) -> None:
    pruning = load()
    item = begun(pruning, RunPlace(run(pruning.state / "round-1", BROKEN)))
    tuned(pruning, 1, "round-1")
    end = item.end(refuse)
    assert (end.again, end.record, end.refused) == (False, None, False)
    assert end.reason == "round-1 is refused: nonfinite found after the training: the loss rose"


@pytest.mark.parametrize(
    "more", ["actions = ['tag']", "[actions]\non_stop = ['tag']", "severity = 'warning'"]
)
def test_what_stops_no_run_refuses_no_round(more: str, load: Callable[..., Pruning]) -> None:
    pruning = load(more)
    one = finding({}, rule="nonfinite", severity="warning" if "severity" in more else "stop")
    item = begun(pruning, RunPlace(run(pruning.state / "round-1", one)))
    here = tuned(pruning, 1, "round-1")
    end = item.end(refuse)
    assert end.record is not None
    assert remains(here)


def test_the_flow_was_killed_before_it_could_ask_the_rules(load: Callable[..., Pruning]) -> None:
    pruning = load()
    run(pruning.state / "round-1", BROKEN)
    first = tuned(pruning, 1, "round-1")
    run(pruning.state / "round-2")
    write_record(LocalStorage(run(pruning.state / "round-2.2", BROKEN)), ClaimRecord("one"))
    second = tuned(pruning, 2, "round-2")
    # Of a run that was removed nothing more can be learned.
    third = tuned(pruning, 3, "round-3")
    assert RoundRuns(pruning, 3).accepted_record() is not None
    (third / "round.json").unlink()
    third.rename(third.with_name("elsewhere"))
    assert RoundRuns(pruning, 2).accepted_record() is None
    assert not remains(second)
    # A round that another one followed was accepted, whatever the file says now.
    assert RoundRuns(pruning, 1).accepted_record() is not None
    assert remains(first)


def test_weights_of_a_stopped_run_are_not_evaluated_by_the_next(
    load: Callable[..., Pruning],
) -> None:
    pruning = load()
    run(pruning.state / "round-1")
    run(pruning.state / "round-1-2", BROKEN, stopped=True)
    here = tuned(pruning, 1, None)
    RoundRuns(pruning, 1).end_earlier()
    assert not remains(here)
