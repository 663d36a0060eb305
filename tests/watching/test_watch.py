"""`vinedresser watch`, as its own process: who gets the pages, and whether they tell the truth."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.waiting import until
from vinedresser.objects import open_storage
from vinedresser.store.reading.reader import open_run
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import make_run, start_run, step_record
from vinedresser.watching.metrics import metrics_text

NASTY = "<script>alert(1)</script>\x1b[31m" + "x" * 10_000


@contextmanager
def watching(
    where: Path, cwd: Path | None = None, options: Sequence[str] = ()
) -> Iterator[tuple[str, httpx.Client, subprocess.Popen[str]]]:
    """Serve a place; yield the printed address, a client without the cookie, and the process."""
    command = [sys.executable, "-m", "vinedresser", "watch", str(where), "--no-browser", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=cwd)
    try:
        assert process.stdout is not None
        address = re.search(r"http://\S+", process.stdout.readline())
        assert address is not None
        with httpx.Client(base_url=address[0].partition("/?")[0], timeout=60) as client:
            yield address[0], client, process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("watched") / "runs"
    losses = np.exp(-np.arange(60) / 20)
    records = [
        step_record(
            step,
            scalars={"losses/loss": float(loss)},
            reductions={f"gradients/{name}.weight": {"l2": loss * size} for name, size in SIZES},
        )
        for step, loss in enumerate(losses)
    ]
    make_run(folder / "good", records, name="good", total_steps=60)
    make_run(folder / "nasty", [step_record(0, scalars={"losses/loss": 1.0})], name=NASTY)
    (folder / "damaged").mkdir()
    (folder / "damaged" / "run.json").write_text("{", encoding="utf-8")
    (folder.parent / "outside").mkdir()
    make_run(folder.parent / "outside" / "secret", [step_record(0)], name="secret")
    return folder


SIZES = [("first", 1.0), ("second", 0.1), ("third", 0.01)]


@pytest.fixture(scope="module")
def served(store: Path) -> Iterator[tuple[str, httpx.Client]]:
    with watching(store) as (address, client, _):
        yield address, client


@pytest.fixture
def page(served: tuple[str, httpx.Client]) -> httpx.Client:
    """Return a client that has exchanged the key for the cookie."""
    address, client = served
    client.get(address)
    return client


def view(client: httpx.Client, path: str) -> dict[str, str]:
    """Return the view of a page once it is made."""
    found: dict[str, str] = {}

    def ready() -> bool:
        found.update(client.get(f"{path}/view").json())
        return found["state"] != "reading"

    until(ready, f"view of {path}")
    return found


KEY = "a-key-of-32-letters-for-programs"


@pytest.mark.thorough
def test_a_program_reads_metrics_with_the_key_of_the_environment(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VINEDRESSER_WATCH_KEY", KEY)
    with watching(store) as (address, client, _):
        assert KEY not in address
        assert client.get("/", params={"key": KEY}).status_code == 403
        assert client.get("/health").text == "ok\n"
        for headers in ({}, {"Authorization": KEY}, {"Authorization": f"Bearer {KEY}x"}):
            assert client.get("/metrics", headers=headers).status_code == 403
        right = {"Authorization": f"Bearer {KEY}"}
        assert client.get("/metrics", headers={**right, "Host": "evil.example"}).status_code == 403
        until(lambda: client.get("/metrics", headers=right).status_code == 200, "the first reading")
        answer = client.get("/metrics", headers=right)
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        families = text_string_to_metric_families(answer.text)
        # Its key opens nothing else.
        assert client.get("/runs", headers=right).status_code == 403
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }
    states = {key[1]: value for key, value in found.items() if key[0] == "vinedresser_runs"}
    assert sum(states.values()) == 3
    assert states["unreadable"] == 1
    assert found["vinedresser_steps",] == 61
    assert found["vinedresser_store_readable",] == 1


def test_rules_are_counted_in_metrics_whatever_their_names() -> None:
    finding = {"rule": 'a"b\\c\nd', "severity": "stop"}
    row = {"state": "stopped", "rule": finding["rule"], "findings": [finding], "steps": 7}
    text = metrics_text([row | {"seconds": 1.5}, row | {"seconds": None}], "gone")
    found = {
        sample.name: (sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found == {
        "vinedresser_store_readable": ({}, 0),
        "vinedresser_runs": ({"state": "stopped"}, 2),
        "vinedresser_runs_stopped": ({"rule": finding["rule"]}, 2),
        "vinedresser_runs_with_findings": (finding, 2),
        "vinedresser_steps": ({}, 14),
        "vinedresser_run_seconds": ({}, 1.5),
    }


@pytest.mark.thorough
def test_a_key_that_can_be_guessed_is_refused(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VINEDRESSER_WATCH_KEY", "secret")
    command = [sys.executable, "-m", "vinedresser", "watch", str(store), "--no-browser"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "at least 32 letters" in done.stderr) == (2, True)
    assert "'secret'" not in done.stderr


@pytest.mark.thorough
def test_nothing_is_served_without_the_key(served: tuple[str, httpx.Client]) -> None:
    with httpx.Client(base_url=served[1].base_url) as stranger:
        paths = (
            "/",
            "/runs",
            "/metrics",
            "/curves",
            "/differences",
            "/compare.html",
            "/assets/store.js",
        )
        for path in (*paths, "/run/good", "/run/good/view", "/?key=wrong", "/nowhere"):
            answer = stranger.get(path)
            assert answer.status_code == 403
            assert "good" not in answer.text
        assert not stranger.cookies


@pytest.mark.thorough
def test_the_key_becomes_a_strict_cookie_named_after_the_port(
    served: tuple[str, httpx.Client],
) -> None:
    address, known = served
    answer = httpx.get(address)
    cookie = answer.headers["set-cookie"]
    key = address.partition("key=")[2]
    assert len(key) >= 43
    assert key not in cookie
    assert key not in answer.text
    assert f"_{known.base_url.port}=" in cookie
    assert {"HttpOnly", "SameSite=strict"} <= set(cookie.split("; "))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "evil.example:80"},
        {"host": "127.0.0.1"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_other_hosts_and_sites_get_nothing(page: httpx.Client, headers: dict[str, str]) -> None:
    assert page.get("/runs").status_code == 200
    answer = page.get("/runs", headers=headers)
    assert answer.status_code == 403
    assert "good" not in answer.text


def test_pages_only_read(page: httpx.Client) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert page.request(method, "/runs").status_code == 405


def test_the_printed_key_changes_no_training(page: httpx.Client) -> None:
    assert 'id="control"' not in page.get("/run/good").text
    origin = str(page.base_url).rstrip("/")
    for headers in (
        {"origin": origin},
        {},
        {"origin": origin, "authorization": "Bearer " + "x" * 40},
    ):
        for name in ("good", "%2e%2e", "..%2foutside%2fsecret"):
            answer = page.post(f"/run/{name}/control?kind=stop", headers=headers)
            assert answer.status_code == (405 if "%2f" in name else 403)
            assert "not running" not in answer.text
    answer = page.post("/run/good/control?kind=stop", headers={"origin": origin})
    assert "start vinedresser watch with --control" in answer.text


@pytest.mark.thorough
def test_with_control_a_change_needs_the_origin_of_the_page(store: Path) -> None:
    with watching(store, options=("--control",)) as (address, client, _):
        client.get(address)
        own, change = address.partition("/?")[0], "/run/good/control?kind=stop"
        # A token that admits nobody stands for nothing.
        for headers in ({}, {"authorization": "Bearer " + "x" * 40}):
            assert client.post(change, headers=headers).status_code == 403
        over = client.post(change, headers={"origin": own})
        assert (over.status_code, "not running" in over.text) == (400, True)
        for name, status in {"%2e%2e": 404, "..%2foutside%2fsecret": 405, "good%0a": 404}.items():
            path = f"/run/{name}/control?kind=stop"
            assert client.post(path, headers={"origin": own}).status_code == status


@pytest.mark.thorough
def test_the_printed_address_opens_the_page_also_in_a_log_line(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VINEDRESSER_LOG_FORMAT", "json")
    with watching(store) as (address, client, _):
        client.get(address)
        assert client.get("/runs").status_code == 200


def test_the_policy_allows_no_script_but_the_page_s(page: httpx.Client) -> None:
    answers = [page.get("/run/good") for _ in range(2)]
    policies = [answer.headers["content-security-policy"] for answer in answers]
    assert policies[0] != policies[1]
    nonce = re.search(r"script-src 'nonce-([^']+)'", policies[0])
    assert nonce is not None
    assert re.findall(r"<script[^>]*>", answers[0].text) == [f'<script nonce="{nonce[1]}">']
    assert "default-src 'none'" in policies[0]
    assert answers[0].headers["cache-control"] == "no-store"
    assert answers[0].headers["x-content-type-options"] == "nosniff"
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", answers[0].text)


def rows(client: httpx.Client) -> dict[str, dict[str, Any]]:
    """Return the rows of the table by name, once all are read."""
    found: dict[str, Any] = {}

    def ready() -> bool:
        found.update(client.get("/runs").json())
        return bool(found["listed"]) and len(found["rows"]) == found["listed"]

    until(ready, "the rows of the store")
    return {row["link"].rpartition("/")[2]: row for row in found["rows"]}


def test_the_table_has_each_run_of_the_store(page: httpx.Client, store: Path) -> None:
    found = rows(page)
    assert [*found] == ["damaged", "good", "nasty"]
    last = open_run(store / "good").scalars("losses")["losses/loss"].values[-1]
    assert found["good"]["results"] == {"train/loss": last}
    assert (found["good"]["steps"], found["good"]["total"]) == (60, 60)
    assert found["damaged"]["state"] == found["damaged"]["kind"] == "unreadable"
    assert "run.json" in found["damaged"]["reason"]


def test_text_of_runs_is_data(page: httpx.Client) -> None:
    html = page.get("/run/nasty").text + view(page, "/run/nasty")["html"]
    assert "<script>alert" not in html
    assert "\x1b" not in html
    # The table is JSON, which the page shows as text only.
    assert page.get("/runs").headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "name", ["secret", "%2e%2e", "..%2foutside%2fsecret", "%2e%2e%2foutside%2fsecret", "%00"]
)
def test_only_runs_that_the_store_lists_are_read(page: httpx.Client, name: str) -> None:
    answer = page.get(f"/run/{name}/view")
    assert answer.status_code == 404
    assert "secret" not in answer.text


def test_a_step_has_the_values_of_the_store(page: httpx.Client, store: Path) -> None:
    html = page.get("/run/good/moment?step=31").text
    run = open_run(store / "good")
    assert f"{run.scalars()['losses/loss'].values[31]:.4g}" in html
    shown = dict(re.findall(r'data-name="([^"]+)" data-value="([^"]+)"', html))
    norms = run.reductions("l2", "gradients")
    assert {f"gradients/{name}": float(text) for name, text in shown.items()} == {
        name: column.values[31] for name, column in norms.items()
    }
    # The past is dimmed, and the future is not there.
    frames = re.findall(r'stroke-opacity="([\d.]+)" data-step="(\d+)"', html)
    assert [int(step) for _, step in frames] == list(range(24, 32))
    assert [float(opacity) for opacity, _ in frames] == sorted(float(one) for one, _ in frames)


@pytest.mark.thorough
@pytest.mark.parametrize("step", ["", "x", "-1", "1e3", "9" * 40, "²"])
def test_a_step_that_is_none_is_refused(page: httpx.Client, step: str) -> None:
    answer = page.get("/run/good/moment", params={"step": step})
    assert answer.status_code == 400
    assert answer.text == "step: give the number of a step"


@pytest.mark.thorough
def test_a_page_follows_its_run(tmp_path: Path) -> None:
    place = tmp_path / "alive"
    start_run(place, name="alive")
    with (
        closing(RunWriter(open_storage(place), 0)) as writer,
        watching(place) as (address, client, _),
    ):
        for step in range(3):
            writer.add(step_record(step, scalars={"losses/loss": 0.5}))
        client.get(address)
        # A run in place of a store is its own front page.
        assert 'data-path="/run/alive"' in client.get("/").text
        until(lambda: "0.5" in view(client, "/run/alive")["html"], "the first steps")
        before = view(client, "/run/alive")["version"]
        writer.add(step_record(3, scalars={"losses/loss": 0.0625}))
        until(lambda: "0.0625" in view(client, "/run/alive")["html"], "the next step")
        assert view(client, "/run/alive")["version"] != before


@pytest.mark.thorough
def test_the_current_directory_may_be_the_run(store: Path) -> None:
    with watching(Path("."), store / "good") as (address, client, _):
        client.get(address)
        assert 'data-path="/run/good"' in client.get("/").text


@pytest.mark.thorough
def test_a_view_is_sent_once(page: httpx.Client) -> None:
    version = view(page, "/run/good")["version"]
    assert page.get(f"/run/good/view?seen={version}").status_code == 204


@pytest.mark.thorough
def test_ctrl_c_ends_it(store: Path) -> None:
    with watching(store) as (address, client, process):
        client.get(address)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


@pytest.mark.thorough
def test_a_place_that_does_not_exist_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "vinedresser", "watch", str(tmp_path / "none"), "--no-browser"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr == (
        f"vinedresser: {tmp_path / 'none'}: no such directory; a store is a directory of runs\n"
    )


@pytest.mark.thorough
def test_silent_connections_are_closed_and_the_page_stays(
    served: tuple[str, httpx.Client], page: httpx.Client
) -> None:
    host, port = page.base_url.host, page.base_url.port
    assert port is not None
    head = f"GET / HTTP/1.1\r\nHost: {host}:{port}\r\n"
    # Nothing; half a request; and half a request after a whole one.
    begun = [socket.create_connection((host, port)) for _ in range(3)]
    begun[1].sendall(head.encode())
    begun[2].sendall(f"{head}\r\n{head}".encode())
    deadline = time.monotonic() + 60
    for one in begun:
        with one, suppress(ConnectionResetError):
            one.settimeout(60)
            while one.recv(65_536):
                # The page asks for news meanwhile.
                assert page.get("/").status_code == 200
    assert time.monotonic() < deadline
    assert page.get("/").status_code == 200
