"""Queries that are typed into the page of a run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.capture.live.live_training import LiveTraining
from tests.waiting import until
from tests.watching.test_watch import watching
from vinedresser import ask
from vinedresser.testing.runs import make_run, step_record

NASTY = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("panels") / "run"
    records = [
        step_record(
            step,
            scalars={"losses/loss": 1.0 / (step + 1), f"metrics/{NASTY}": 1.0, "metrics/b": 2.0},
            reductions={f"gradients/{name}.weight": {"l2": step + size} for name, size in SIZES},
        )
        for step in range(20)
    ]
    make_run(place, records, name="run")
    return place


SIZES = [("first", 1.0), ("second", 0.1)]


@pytest.fixture(scope="module")
def page(run: Path) -> Iterator[httpx.Client]:
    with watching(run) as (address, client, _):
        client.get(address)
        yield client


def panel(client: httpx.Client, query: str, until_holds: str = "answer") -> str:
    """Return a panel once it contains a text."""
    found = ""

    def ready() -> bool:
        nonlocal found
        found = client.get("/run/run/panel", params={"query": query}).json()["html"]
        return until_holds in found

    until(ready, f"{until_holds} in the panel of {query}")
    return found


@pytest.mark.thorough
def test_a_panel_has_the_answers_of_the_store(page: httpx.Client, run: Path) -> None:
    query = "norm(gradients) by layer every 5 steps"
    html = panel(page, query, "complete")
    assert 'data-form="line"' in html
    assert "from what is stored" in html
    newest = [*ask(run, query)][-1]
    shown = dict(re.findall(r'data-name="(\w+)" data-last="([^"]+)"', html))
    assert {name: float(text) for name, text in shown.items()} == newest.value


@pytest.mark.thorough
def test_a_panel_is_sent_once(page: httpx.Client) -> None:
    panel(page, "loss", "complete")
    version = page.get("/run/run/panel", params={"query": "loss"}).json()["version"]
    again = page.get("/run/run/panel", params={"query": "loss", "seen": version})
    assert again.status_code == 204


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("nrm(loss)", "nrm: no such function; did you mean norm?"),
        ("", "there is no expression"),
        ("loss by lyer", "did you mean layer?"),
        ("__import__(loss)", "'__import__' is not part of the language"),
        ("x" * 2_001, "2,000"),
    ],
)
def test_a_wrong_query_has_one_clear_line(page: httpx.Client, query: str, told: str) -> None:
    answer = page.get("/run/run/panel", params={"query": query})
    assert answer.status_code == 400
    assert answer.headers["content-type"].startswith("text/plain")
    assert told in answer.text
    assert "\n" not in answer.text


def test_an_unknown_name_is_said_in_the_panel(page: httpx.Client) -> None:
    assert "did you mean gradients?" in panel(page, "norm(gradiants)", "gradiants")


def test_text_of_the_run_stays_text(page: httpx.Client) -> None:
    html = panel(page, "metrics every 5 steps", "complete")
    assert "alert(1)" in html
    assert "<script" not in html


@pytest.mark.thorough
def test_a_rank_is_asked_by_its_number(tmp_path: Path) -> None:
    ranks = [
        [step_record(step, scalars={"losses/loss": float(10 * rank + step)}) for step in range(3)]
        for rank in range(2)
    ]
    make_run(tmp_path / "run", *ranks, name="run")
    with watching(tmp_path / "run") as (address, client, _):
        client.get(address)
        for query, last in [("loss", 2.0), ("rank 0: loss", 2.0), (" rank 1 :loss", 12.0)]:
            html = panel(client, query, "complete")
            assert f'data-last="{last}"' in html
        assert "has the ranks 0 to 1" in panel(client, "rank 2: loss", "rank 2")
        assert client.get("/run/run/panel", params={"query": "rank 1:"}).status_code == 400


@pytest.mark.thorough
def test_a_rank_without_records_is_said(tmp_path: Path) -> None:
    records = [step_record(0, scalars={"losses/loss": 1.0})]
    make_run(tmp_path / "run", records, [], name="run")
    with watching(tmp_path / "run") as (address, client, _):
        client.get(address)
        panel(client, "rank 1: loss", "has stored nothing of it")


def test_queries_need_the_cookie(page: httpx.Client) -> None:
    answer = httpx.get(page.base_url.join("/run/run/panel"), params={"query": "loss"})
    assert answer.status_code == 403


@pytest.mark.thorough
def test_a_running_training_is_asked(tmp_path: Path) -> None:
    training = LiveTraining(tmp_path / "run")
    with watching(tmp_path / "run") as (address, client, _):
        client.get(address)
        fields = {"query": "norm(gradients) by tensor"}
        html = ""

        def shown() -> bool:
            nonlocal html
            html = client.get("/run/run/panel", params=fields).json()["html"]
            return 'data-form="line"' in html

        training.until(shown)
    assert "asked live" in html
    assert set(re.findall(r'data-name="([^"]+)"', html)) == {
        "0.weight", "0.bias", "2.weight", "2.bias"
    }  # fmt: skip
    training.hook.close()
