"""A spool that is removed while its store cannot be reached."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.waiting import until
from vinedresser.errors import RunRemoved
from vinedresser.infra.supervise.relay.relay import Relay
from vinedresser.objects import open_storage
from vinedresser.processes import this_process
from vinedresser.store.records import ExitRecord
from vinedresser.store.spool import adopt_spool, read_target
from vinedresser.testing.runs import end_run, make_run, step_record

# No server answers there.
NOWHERE = {
    "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
}


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in NOWHERE.items():
        monkeypatch.setenv(name, value)


def make_spool(folder: Path, rank: int | None = None) -> None:
    """Make the spool of a run that is over."""
    make_run(folder, [step_record(0)])
    end_run(folder)
    owner = asdict(this_process())
    os.close(adopt_spool(folder, "s3://bucket/run", rank=rank, owner=owner))


def relay_of(folder: Path, said: list[str]) -> Relay:
    target = read_target(folder)
    assert target is not None
    return Relay(folder, target, open_storage(target.url), said.append)


@pytest.mark.thorough
@pytest.mark.parametrize("over", [True, False])
def test_a_relay_whose_spool_is_removed_during_an_outage_says_so_and_ends(
    tmp_path: Path, over: bool
) -> None:
    folder = tmp_path / "spool"
    make_spool(folder)
    if not over:
        (folder / ExitRecord.KEY).unlink()
    said: list[str] = []
    relay = relay_of(folder, said)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(relay.run)
        until(lambda: said, "the outage to be reported")
        shutil.rmtree(folder)
        with pytest.raises(RunRemoved, match="was removed before all of it was uploaded to s3://"):
            running.result(timeout=60)
    assert len(said) == 1
    assert not folder.exists()


def test_the_relay_of_a_rank_whose_owner_lives_ends_with_its_spool(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    make_spool(folder, rank=1)
    relay = relay_of(folder, [])
    shutil.rmtree(folder)
    with pytest.raises(RunRemoved):
        relay.run()
