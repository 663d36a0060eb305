"""The rows and curves that the page of a store gets: those of the runs, and nothing else."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import vinedresser.watching
from tests.explain.reports.pages import finding
from tests.waiting import until
from tests.watching.varied_store import HOSTILE, STEPS, loss_at, varied_store
from vinedresser.objects import LocalStorage, open_storage
from vinedresser.store.reading.run_store import RunStore
from vinedresser.store.records import findings_key
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import make_run, start_run, step_record
from vinedresser.watching.access import Access
from vinedresser.watching.application import application
from vinedresser.watching.site import Site
from vinedresser.watching.watched_store import WatchedStore

PORT = 8000


class Client:
    """Asks the application of a store in this process, with the cookie.

    Args:
        folder: the store.
    """

    def __init__(self, folder: Path) -> None:
        self._access = Access(application(WatchedStore(RunStore(folder), single=False)), Site(PORT))
        self._cookies = httpx.Cookies()
        self._cookies.update(self.get(self._access.address).cookies)

    def get(self, address: str, params: dict[str, str] | None = None) -> httpx.Response:
        """Return the answer to a request."""
        return asyncio.run(self._get(address, params))

    async def _get(self, address: str, params: dict[str, str] | None) -> httpx.Response:
        transport = httpx.ASGITransport(app=self._access)
        base = f"http://127.0.0.1:{PORT}"
        async with httpx.AsyncClient(
            transport=transport, base_url=base, cookies=self._cookies
        ) as client:
            return await client.get(address, params=params)


def rows(client: Client, number: int) -> dict[str, dict[str, Any]]:
    """Return the rows by name, once there are as many."""
    found: dict[str, Any] = {}

    def ready() -> bool:
        found.update(client.get("/runs").json())
        return not found["reading"] and len(found["rows"]) == number

    until(ready, "the rows")
    return {row["name"]: row for row in found["rows"]}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Client:
    return Client(varied_store(tmp_path_factory.mktemp("varied")))


@pytest.fixture(scope="module")
def table(client: Client) -> dict[str, dict[str, Any]]:
    return rows(client, 17)


def test_a_row_has_settings_results_and_findings(table: dict[str, dict[str, Any]]) -> None:
    row = table["relu-1-1"]
    assert row["parameters"] == {"lr": 1.0, "activation": "relu", "seed": 1}
    # JSON has no NaN.
    assert row["results"]["train/loss"] == "NaN"
    assert row["results"]["eval/accuracy"] == 0.1
    assert row["kind"] == "problem"
    assert [(one["rule"], one["step"], one["cause"]) for one in row["findings"]] == [
        ("exploding_loss", 45, True)
    ]
    assert table["sigmoid-1-1"]["results"]["train/loss"] == loss_at(STEPS - 1, 1.0, 1)


def test_configurations_are_the_same_but_for_seeds(table: dict[str, dict[str, Any]]) -> None:
    groups: dict[str, set[str]] = {}
    for name, row in table.items():
        groups.setdefault(row["configuration"], set()).add(name)
    assert {"relu-0.1-1", "relu-0.1-2"} in groups.values()
    assert len(groups) == 9


def test_names_are_data(table: dict[str, dict[str, Any]]) -> None:
    row = table[HOSTILE]
    assert row["parameters"] == {HOSTILE: HOSTILE, "constructor": "own", "amp": True}
    assert row["link"].startswith("/run/%3Cimg%20src%3Dx")


def test_settings_that_differ_have_different_cells(tmp_path: Path) -> None:
    widths, text = [8] * 20, "x" * 500
    for name, last in (("one", 1), ("two", 2)):
        parameters = {
            "widths": [*widths, last],
            "eps": [1e-8 + last * 1e-14],
            "text": f"{text}{last}",
        }
        make_run(tmp_path / name, [step_record(0)], name=name, parameters=parameters)
    found = rows(Client(tmp_path), 2)
    one, two = (found[name]["parameters"] for name in ("one", "two"))
    assert all(one[name] != two[name] for name in ("widths", "eps", "text"))
    assert max(map(len, one.values())) < 250


def test_a_metric_with_a_hidden_character_has_its_curve(tmp_path: Path) -> None:
    records = [step_record(0, scalars={"metrics/up\u202edown": 1.0})]
    make_run(tmp_path / "run", records, name="run")
    client = Client(tmp_path)
    found = rows(client, 1)
    assert found["run"]["results"] == {"train/up\\u202edown": 1.0}
    answer = asked(client, found, "run", metric="train/up\\u202edown")
    assert answer["curves"][0]["values"] == [1]


def test_a_rule_whose_first_finding_is_not_the_root_cause_is_marked(tmp_path: Path) -> None:
    scalars, fault = {"losses/loss": 1.0}, "exploding_loss"
    make_run(tmp_path / "run", [step_record(s, scalars=scalars) for s in range(60)], name="run")
    both = [
        finding(rule=fault, severity="warning", step=20, since=15, fault=fault),
        finding(rule=fault, severity="warning", step=30, since=5, fault=fault),
    ]
    lines = [json.dumps(one.to_json()) + "\n" for one in both]
    LocalStorage(tmp_path / "run").put(findings_key("default"), [line.encode() for line in lines])
    client = Client(tmp_path)
    found = asked(client, rows(client, 1), "run")
    assert [mark["step"] for mark in found["curves"][0]["marks"]] == [20]


def test_only_rows_that_changed_are_sent_again(tmp_path: Path) -> None:
    make_run(tmp_path / "done", [step_record(0)], name="done")
    make_run(tmp_path / "gone", [step_record(0)], name="gone")
    start_run(tmp_path / "alive", name="alive")
    with closing(RunWriter(open_storage(tmp_path / "alive"), 0)) as writer:
        client = Client(tmp_path)
        before = rows(client, 3)
        revision = client.get("/runs").json()["revision"]
        assert all(
            row["name"] == "alive" for row in client.get(f"/runs?since={revision}").json()["rows"]
        )
        writer.add(step_record(0, scalars={"losses/loss": 0.5}))
        shutil.rmtree(tmp_path / "gone")
        now: dict[str, Any] = {}

        def changed() -> bool:
            now.update(client.get(f"/runs?since={revision}").json())
            return bool(now["removed"] and now["rows"] and now["rows"][0]["results"])

        until(changed, "the step and the removal")
        assert [(row["name"], row["results"]) for row in now["rows"]] == [
            ("alive", {"train/loss": 0.5})
        ]
        assert now["removed"] == [before["gone"]["id"]]
        assert now["listed"] == 2


def test_a_run_removed_and_made_again_is_another_one(tmp_path: Path) -> None:
    for name in "ab":
        make_run(tmp_path / name, [step_record(0, scalars={"losses/loss": 1.0})], name=name)
    client = Client(tmp_path)
    before = rows(client, 2)
    shutil.rmtree(tmp_path / "a")
    until(lambda: client.get("/runs").json()["listed"] == 1, "the removal")
    make_run(tmp_path / "a", [step_record(0, scalars={"losses/loss": 2.0})], name="a")
    after = rows(client, 2)
    assert after["a"]["id"] not in [row["id"] for row in before.values()]
    assert after["a"]["results"] == {"train/loss": 2.0}


def test_a_damaged_run_is_a_row_and_hides_no_other(tmp_path: Path) -> None:
    make_run(tmp_path / "good", [step_record(0)], name="good")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "run.json").write_text("{", encoding="utf-8")
    found = rows(Client(tmp_path), 2)
    assert (found["good"]["state"], found["bad"]["state"]) == ("finished", "unreadable")
    assert "run.json" in found["bad"]["reason"]


def test_a_store_that_was_removed_is_said(tmp_path: Path) -> None:
    make_run(tmp_path / "store" / "run", [step_record(0)], name="run")
    client = Client(tmp_path / "store")
    rows(client, 1)
    shutil.rmtree(tmp_path / "store")
    until(lambda: client.get("/runs").json()["problem"], "the problem")
    assert "no such directory" in client.get("/runs").json()["problem"]


def asked(client: Client, table: dict[str, Any], *names: str, **fields: str) -> dict[str, Any]:
    numbers = ",".join(str(table[name]["id"]) for name in names)
    answer = client.get("/curves", params={"metric": "train/loss", "runs": numbers, **fields})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_curve_has_the_values_of_the_run(client: Client, table: dict[str, Any]) -> None:
    found = asked(client, table, "sigmoid-0.1-2")
    assert found["places"] == [*range(STEPS)]
    expected = [loss_at(step, 0.1, 2) for step in range(STEPS)]
    assert np.allclose(found["curves"][0]["values"], expected, rtol=1e-6)


def test_values_that_are_not_finite_and_findings_are_marked(
    client: Client, table: dict[str, Any]
) -> None:
    found = asked(client, table, "relu-1-1", "sigmoid-1-1")
    curves = {curve["id"]: curve for curve in found["curves"]}
    curve = curves[table["relu-1-1"]["id"]]
    assert curve["values"][60:] == [""] * 60
    assert curve["broken"] == [*range(60, 120)]
    assert [(mark["rule"], mark["at"]) for mark in curve["marks"]] == [("exploding_loss", 45)]
    assert curves[table["sigmoid-1-1"]["id"]]["marks"] == []


def test_axes_are_steps_seconds_and_epochs(client: Client, table: dict[str, Any]) -> None:
    times = asked(client, table, "relu-1-1", x="time")
    assert times["places"] == [step / 2 for step in range(STEPS)]
    assert times["curves"][0]["marks"][0]["at"] == 22.5
    epochs = asked(client, table, "relu-1-1", HOSTILE, x="epoch")
    assert epochs["places"] == [0, 1, 2, 3]
    assert epochs["without"] == 1
    later = asked(client, table, "sigmoid-0.1-1", x="step", first="100", last="110")
    assert later["shown"] == [100, 110]
    assert later["places"] == [*range(99, 112)]


def test_a_run_without_epochs_is_counted(tmp_path: Path) -> None:
    make_run(tmp_path / "run", [step_record(0, scalars={"losses/loss": 1.0})], name="run")
    client = Client(tmp_path)
    found = asked(client, rows(client, 1), "run", x="epoch")
    assert (found["unplaced"], found["curves"]) == (1, [])


def test_groups_have_means_and_bands(client: Client, table: dict[str, Any]) -> None:
    one, two, other = (table[f"sigmoid-0.1-{seed}"]["id"] for seed in (1, 2, 1))
    other = table["sigmoid-1-1"]["id"]
    fields = {"metric": "train/loss", "means": "yes", "runs": f"{one},{two};{other}"}
    found = client.get("/curves", params=fields | {"band": "range"}).json()
    group = found["groups"][0]
    both = np.array([[loss_at(step, 0.1, seed) for step in range(STEPS)] for seed in (1, 2)])
    assert np.allclose(group["mean"], both.mean(axis=0), rtol=1e-6)
    assert np.allclose(group["low"], both.min(axis=0), rtol=1e-6)
    assert set(group["count"]) == {2}
    assert found["groups"][1]["mean"] == found["groups"][1]["high"]


def test_steps_of_long_trainings_are_exact(tmp_path: Path) -> None:
    steps = [*range(123_456_700, 123_456_720)]
    records = [step_record(step, scalars={"losses/loss": 1.0}) for step in steps]
    make_run(tmp_path / "run", records, name="run")
    client = Client(tmp_path)
    assert asked(client, rows(client, 1), "run")["places"] == steps


def test_long_curves_are_cut_to_what_a_screen_shows(tmp_path: Path) -> None:
    records = [step_record(s, scalars={"losses/loss": 1.0 + (s == 7777)}) for s in range(9000)]
    make_run(tmp_path / "long", records, name="long")
    client = Client(tmp_path)
    found = asked(client, rows(client, 1), "long", bins="300")
    assert len(found["places"]) == 600
    values = found["curves"][0]["values"]
    assert max(value for value in values if value is not None) == 2
    assert abs(found["places"][values.index(2)] - 7777) <= 30


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"runs": "x"}, "runs: 'x' is not a number of a run, such as 3 or 0-7"),
        ({"runs": "0-999"}, "runs: 1,000 runs; at most 200 are drawn"),
        ({"runs": "0-999999999"}, "runs: more than a million numbers"),
        ({"x": "moon"}, "x: 'moon'; give step or time or epoch"),
        ({"band": "<b>"}, "band: '<b>'; give std or range"),
        ({"smooth": "1"}, "smooth: 1; give a weight from 0 to below 1"),
        ({"first": "nan"}, "first: 'nan' is not a number"),
        ({"bins": "many"}, "bins: 'many' is not a number"),
    ],
)
def test_a_request_that_is_wrong_is_one_line(
    client: Client, fields: dict[str, str], problem: str
) -> None:
    answer = client.get("/curves", params=fields)
    assert (answer.status_code, answer.text) == (400, problem)


def test_numbers_that_no_run_has_lead_to_nothing(client: Client) -> None:
    found = client.get("/curves", params={"metric": "train/loss", "runs": "900"}).json()
    assert found["curves"] == []
    assert client.get("/runs?since=x").status_code == 400


def test_chosen_runs_are_compared_like_by_the_command(
    client: Client, table: dict[str, Any]
) -> None:
    numbers = ",".join(str(table[name]["id"]) for name in ("sigmoid-1-1", "sigmoid-0.01-1"))
    found = client.get("/differences", params={"runs": numbers}).json()
    assert found["winner"].startswith("Best: sigmoid-1-1, eval/accuracy")
    assert found["partings"][0][0] == "sigmoid-1-1 and sigmoid-0.01-1"
    assert found["partings"][0][2] == "from step 0"
    page = client.get("/compare.html", params={"runs": numbers})
    assert page.headers["content-disposition"] == 'attachment; filename="compare.html"'
    assert "sigmoid-0.01-1" in page.text
    assert "relu" not in page.text
    alone = client.get("/differences", params={"runs": str(table["relu-1-1"]["id"])})
    assert alone.status_code == 400
    assert alone.text == "a comparison needs two runs or more that can be read: choose others"


def test_assets_are_files_of_the_page_only(client: Client) -> None:
    script = client.get("/assets/uPlot.iife.min.js")
    assert script.headers["content-type"].startswith("text/javascript")
    for name in ("..%2Fassets.py", "%2e%2e", "uPlot.LICENSE", "", "store.js%00"):
        assert client.get(f"/assets/{name}").status_code == 404


def test_the_page_loads_its_own_files_with_its_nonce_only(client: Client) -> None:
    answer = client.get("/")
    policy = answer.headers["content-security-policy"]
    nonce = policy.partition("script-src 'nonce-")[2].partition("'")[0]
    tags = [
        line.strip() for line in answer.text.splitlines() if "<script" in line or "<link" in line
    ]
    assert len(tags) == 3
    assert all(f'nonce="{nonce}"' in tag and '="/assets/' in tag for tag in tags)
    assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]


def test_the_library_of_charts_is_the_one_that_was_published() -> None:
    # dist/ of the npm package uplot 1.6.32, whose licence is beside it.
    folder = Path(vinedresser.watching.__file__).parent / "page"
    sums = {
        "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
        "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
        "uPlot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
    }
    found = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in sums}
    assert found == sums
