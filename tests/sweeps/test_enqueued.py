"""Configurations that are added to a sweep."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from tests.sweeps.studies import FINISHED, begin, run, study
from vinedresser.errors import ConfigError
from vinedresser.infra.configuration import build
from vinedresser.objects import LocalStorage
from vinedresser.store.records import read_record, write_record
from vinedresser.sweeps.settings import SweepTable
from vinedresser.sweeps.space import Space
from vinedresser.sweeps.spec import PointRecord, SweepRecord, point_key
from vinedresser.tasks.sweeping.enqueueing import enqueue

SPACE = Space.parse({"layers": {"int": [1, 32]}, "size": ["16", "32"]}, "space")
TABLE = {"metric": "accuracy", "direction": "maximize", "trials": 30}


def made(folder: Path) -> Path:
    """Return the folder of a sweep without a trial."""
    study(folder / "journal.log", space=SPACE, sampler="random", pruner="none").close()
    record = SweepRecord(
        name="search",
        space=SPACE.to_json(),
        command=["python"],
        parameters={},
        objectives=[asdict(goal) for goal in build(SweepTable, TABLE, "sweep").goals],
        epochs=None,
        created=1.0,
        tracking_uri="",
        experiment_id="",
        id="a" * 32,
    )
    write_record(LocalStorage(folder), record)
    return folder


def test_a_value_has_the_type_of_its_hyperparameter(tmp_path: Path) -> None:
    folder = made(tmp_path)
    # The text "16" is a choice of the other one.
    enqueue(folder, ["layers=16", "size=16"])
    stored = read_record(LocalStorage(folder), PointRecord, key=point_key(0))
    assert stored is not None
    assert stored.parameters == {"layers": 16, "size": "16"}


@pytest.mark.parametrize("given", ["layers=[16]", "layers=NaN", "layers=1e999", "layers=true"])
def test_another_type_is_refused(tmp_path: Path, given: str) -> None:
    with pytest.raises(ConfigError, match=r"enqueue\.layers: must be an integer from 1 to 32"):
        enqueue(made(tmp_path), [given])


def test_an_incomplete_configuration_that_is_added_twice_is_tried_twice(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    sweep = study(path, space=SPACE, sampler="random", pruner="none", trials=1)
    run(sweep, [0.5])
    assert sweep.ask() is None
    for _ in range(2):
        sweep.enqueue({"layers": 7})
    sweep.enqueue({"layers": 3, "size": "16"})
    sweep.enqueue({"layers": 3, "size": "16"})
    sweep.tell(begin(sweep).number, FINISHED, [0.5])
    sweep.close()
    resumed = study(path, space=SPACE, sampler="random", pruner="none", trials=1)
    for _ in range(2):
        resumed.enqueue({"layers": 7})
    resumed.enqueue({"layers": 3, "size": "16"})
    resumed.enqueue({"layers": 3, "size": "16"})
    while (proposal := resumed.ask()) is not None:
        resumed.tell(proposal.number, FINISHED, [0.5])
    tried = [(one.parameters["layers"], one.parameters["size"]) for one in resumed.trials()[1:]]
    resumed.close()
    assert sorted(tried[:2]) == [(7, "16"), (7, "32")]
    assert tried[2:] == [(3, "16")]
