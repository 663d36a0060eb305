"""A running training answers queries, and is the same training."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.capture.live.live_training import Client, LiveTraining
from tests.waiting import until
from vinedresser.capture import Hook
from vinedresser.errors import AgentAway, ConfigError
from vinedresser.queries.answer import Answer
from vinedresser.queries.live.client import agent_status, ask_live, flush_live
from vinedresser.queries.live.place import agent_folder, agent_name, opened_folder
from vinedresser.queries.query import Query
from vinedresser.store.reading.reader import open_run


class OldStyle(torch.optim.Optimizer):
    """Gradient descent that changes gradients unnoticed, as many did before torch 1.5."""

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for one in self.param_groups[0]["params"]:
            one.grad.data.mul_(7)
            one.data.add_(one.grad.data, alpha=-0.001)


def stored_norms(path: Path, names: list[str], answer: Answer) -> float:
    run = open_run(path)
    arrays = [run.tensor(name).value(answer.step).astype(np.float64) for name in names]
    return float(np.sqrt(sum((array**2).sum() for array in arrays)))


@pytest.mark.thorough
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, OldStyle])
def test_answers_are_those_of_the_stored_tensors(tmp_path: Path, optimizer: Any) -> None:
    path = tmp_path / "run"
    training = LiveTraining(path, optimizer=optimizer, stored=("gradients", "weights", "outputs"))
    asked = {
        "norm(gradients)": [f"gradients/{n}.{k}" for n in (0, 2) for k in ("weight", "bias")],
        "norm(weights)": ["weights/0.weight", "weights/2.weight"],
        # The activation overwrites it.
        "norm(outputs/0)": ["outputs/0"],
    }
    clients = {text: Client(path, text, limit=5) for text in asked}
    training.until(lambda: all(client.done() for client in clients.values()))
    training.hook.close()
    for text, names in asked.items():
        assert len(clients[text].answers) == 5
        for answer in clients[text].answers:
            assert answer.value == pytest.approx(stored_norms(path, names, answer), rel=1e-6)
    assert training.hook.problems == []


@pytest.mark.thorough
def test_each_kind_of_value_is_offered(tmp_path: Path) -> None:
    path = tmp_path / "run"
    training = LiveTraining(path)
    texts = {
        "loss": "step", "lr": "step", "step_seconds": "step", "epoch": "epoch",
        "mean(inputs)": "step", "mean((predictions - labels)**2)": "step",
        "mean(scores)": "validated", "max(saved/latent)": "step", "mean(outputs)": "evaluation",
    }  # fmt: skip
    clients = {text: Client(path, text, every) for text, every in texts.items()}

    def between() -> None:
        training.hook.save("latent", torch.tensor([1.0, 5.0]))
        if training.steps % 5 == 0:
            with training.hook.mode("eval"), torch.no_grad():
                training.model(torch.ones(4, 8))
            training.hook.event("validated", scores=lambda: np.arange(4.0))
            training.hook.event("epoch")

    training.until(lambda: all(one.done() for one in clients.values()), between)
    training.hook.close()
    values = {text: [answer.value for answer in client.answers] for text, client in clients.items()}
    assert values["mean(scores)"] == [1.5] * 3
    assert values["max(saved/latent)"] == [5.0] * 3
    assert values["lr"] == [0.01] * 3
    assert np.diff(values["epoch"]).tolist() == [1, 1]
    assert all(0 < one < 60 for one in values["step_seconds"])
    errors = dict(
        zip((answer.step for answer in clients["loss"].answers), values["loss"], strict=True)
    )
    squares = clients["mean((predictions - labels)**2)"].answers
    for square in squares:
        if square.step in errors:
            assert square.value == pytest.approx(errors[square.step], rel=1e-5)
    assert {answer.mode for answer in clients["mean(outputs)"].answers} == {"eval"}
    # What is only asked for is not stored.
    run = open_run(path)
    assert sorted(run.scalar_names()) == ["losses/MSELoss"]
    assert "outputs/0" not in run.tensor_names()


def test_the_training_computes_the_same(tmp_path: Path) -> None:
    alone = LiveTraining(tmp_path / "alone", live=False)
    watched = LiveTraining(tmp_path / "watched")
    texts = ("norm(gradients) by layer", "histogram(outputs, 8)", "top(weights, 3)", "std(labels)")
    clients = [Client(tmp_path / "watched", text, limit=4) for text in texts for _ in range(2)]
    watched.until(lambda: all(client.done() for client in clients))
    torch.manual_seed(0)
    again = LiveTraining(tmp_path / "again", live=False)
    for _ in range(watched.steps):
        again.step()
    # Digests include the state of the generator, which both trainings begin anew.
    torch.manual_seed(1)
    assert watched.digest() == again.digest()
    for training in (alone, watched, again):
        training.hook.close()


def test_a_rate_leaves_windows_out_and_counts_them(tmp_path: Path) -> None:
    path = tmp_path / "run"
    training = LiveTraining(path)
    client = Client(path, "norm(gradients)", limit=4, rate=20.0)
    captured, begun = [], {}

    def between() -> None:
        # The next step has just begun; whether it keeps to the rate is decided.
        begun[training.steps] = time.monotonic()
        captured.append(training.hook._session.recorder._train_due.asked is not None)

    training.until(client.done, between)
    training.hook.close()
    first, *rest = client.answers
    for before, after in zip(client.answers, rest, strict=False):
        assert after.window - before.window == 1 + after.dropped
        assert after.step - before.step == 1 + after.dropped
        assert begun[after.step] - begun[before.step] > 0.03
    # Nothing is captured for windows that are left out.
    assert sum(captured) <= 4 + 3
    assert first.dropped == 0


def test_windows_that_the_client_closes(tmp_path: Path) -> None:
    path = tmp_path / "run"
    training = LiveTraining(path)
    client = Client(path, "count(loss > -1)", "flush", limit=2)
    table = training.hook._agent.observer.table  # type: ignore[union-attr]
    until(lambda: len(table))
    for _ in range(2):
        for _ in range(10):
            training.step()
        flush_live(str(path), Query.parse("count(loss > -1)", "flush").normalised)
    training.until(client.done)
    training.hook.close()
    assert [answer.events for answer in client.answers][1] == 10


def test_equal_queries_are_computed_once(tmp_path: Path) -> None:
    path = tmp_path / "run"
    training = LiveTraining(path)
    clients = [Client(path, "mean( loss )", limit=None), Client(path, "mean(loss)", limit=None)]
    agent = training.hook._agent
    assert agent is not None
    training.until(lambda: all(len(client.answers) > 3 for client in clients))
    assert len(agent.observer.table) == 1
    training.hook.close()
    for client in clients:
        until(client.done)
        assert client.error is None


def test_bad_questions_get_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "run"
    training = LiveTraining(path)
    with pytest.raises(ConfigError, match=r"must begin with the kind .* gradients/\*"):
        next(ask_live(str(path), Query.parse("norm(module/*)")))
    wrong = Client(path, "norm(gradiants)", limit=1)
    training.until(wrong.done)
    assert "did you mean gradients" in (wrong.answers[0].error or "")
    training.hook.close()
    with pytest.raises(AgentAway, match="no agent listens"):
        next(ask_live(str(path), Query.parse("loss")))
    with LiveTraining(tmp_path / "quiet", live=False).hook, pytest.raises(AgentAway):
        agent_status(str(tmp_path / "quiet"))


def test_the_status_has_names_and_no_values(tmp_path: Path) -> None:
    path = tmp_path / "run"
    training = LiveTraining(path)
    client = Client(path, "norm(gradients)")
    training.until(client.done)
    training.hook.event("epoch")
    found = agent_status(str(path))
    training.hook.close()
    assert found["names"]["gradients/0.weight"] == "float32 [16, 8]"
    assert "weights/2.weight" in found["names"]
    assert found["events"]["epoch"] == 1
    assert found["step"] == training.steps


def open_descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_nothing_is_left_after_the_end(tmp_path: Path) -> None:
    before, threads = open_descriptors(), threading.active_count()
    training = LiveTraining(tmp_path / "run")
    client = Client(tmp_path / "run", "loss", limit=None)
    training.until(lambda: len(client.answers) > 2)
    training.hook.close()
    until(client.done)
    assert client.error is None
    assert client.answers[-1].step <= training.steps
    until(lambda: open_descriptors() <= before, "descriptors are closed", 10)
    assert threading.active_count() == threads
    assert not (agent_folder() / agent_name(str(tmp_path / "run"), 0)).exists()


@pytest.mark.thorough
def test_a_stream_ends_soon_after_its_client_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "run"
    training = LiveTraining(path)
    command = [sys.executable, "-m", "vinedresser", "ask", str(path), "loss", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        table = training.hook._agent.observer.table  # type: ignore[union-attr]
        training.until(lambda: len(table))
        training.until(lambda: training.steps > 20)
        assert client.stdout is not None
        assert Answer.from_json(client.stdout.readline()).kind == "scalar"
        client.kill()
        until(lambda: not len(table), "the stream ends", 2)
    training.hook.close()


@pytest.mark.thorough
def test_a_stalled_client_is_told_over_the_socket_what_it_lost(tmp_path: Path) -> None:
    path = tmp_path / "run"
    found: list[Answer] = []
    resumes = threading.Event()

    def read() -> None:
        for answer in ask_live(str(path), Query.parse("x", "tick"), rate=None):
            found.append(answer)
            resumes.wait(60)

    reader = threading.Thread(target=read)
    with Hook(path, live=True) as hook:
        reader.start()
        table = hook._agent.observer.table  # type: ignore[union-attr]
        until(lambda: len(table))
        for number in range(20_000):
            hook.event("tick", x=float(number))
        resumes.set()
    reader.join(60)
    # Those before the first one may be lost, too.
    assert found[0].window == found[0].dropped
    for before, after in pairwise(found):
        assert after.window - before.window == 1 + after.dropped
    assert found[-1].window == 19_999
    assert sum(one.dropped for one in found) > 0


def connected(path: Path) -> socket.socket:
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with opened_folder() as folder:
            # With a timeout, it would be refused while many others wait to be accepted.
            found.connect(f"{folder}/{agent_name(str(path), 0)}")
        found.settimeout(5)
    except OSError:
        found.close()
        raise
    return found


def response(path: Path, request: bytes) -> bytes:
    with connected(path) as connection:
        connection.sendall(request)
        return connection.recv(1 << 16)


def test_web_pages_and_large_requests_get_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run"
    training = LiveTraining(path)
    good = b"Host: localhost\r\n"
    assert response(path, b"GET /status HTTP/1.1\r\n" + good + b"\r\n").startswith(b"HTTP/1.1 200")
    for bad, status in (
        (b"Host: evil.example\r\n", b"403"),
        (good + b"Origin: http://evil.example\r\n", b"403"),
        (good + b"Sec-Fetch-Site: cross-site\r\n", b"403"),
        (good + b"Content-Length: 5\r\n", b"413"),
        (good + b"X: " + b"x" * 20_000 + b"\r\n", b"413"),
    ):
        found = response(path, b"GET /status HTTP/1.1\r\n" + bad + b"\r\n")
        assert found.startswith(b"HTTP/1.1 " + status)
    training.hook.close()


@pytest.mark.thorough
def test_noise_on_the_socket_harms_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run"
    training = LiveTraining(path)
    random_ = random.Random(0)
    starts = (b"", b"GET /ask?query=", b"GET /status HTTP/1.1\r\nHost: localhost\r\n", b"POST ")
    for _ in range(150):
        with connected(path) as connection:
            connection.sendall(random_.choice(starts) + random_.randbytes(random_.randint(1, 200)))
        training.step()
    client = Client(path, "loss")
    training.until(client.done)
    training.hook.close()
    assert client.error is None
    assert training.hook.problems == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_gets_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run"
    training = LiveTraining(path)
    place = str(agent_folder() / agent_name(str(path), 0))
    program = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
        "s.sendall(b'GET /status HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n'); print(s.recv(999))"
    )

    def attempt() -> str:
        command = ["/usr/bin/env", "-i", sys.executable, "-I", "-c", program, place]
        nobody: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []}
        found = subprocess.run(command, check=False, capture_output=True, text=True, **nobody)
        return str(found.stdout)

    assert attempt() == ""
    # Even if somebody has opened the folders: the agent looks at who asks.
    opened = [Path(place), *list(Path(place).parents)[:-1]]
    modes = {one: one.stat().st_mode for one in opened}
    try:
        for one in opened:
            one.chmod(0o777)
        assert "200 OK" not in attempt()
        with pytest.raises(AgentAway, match="no agent listens"):
            agent_status(str(path))
    finally:
        for one, mode in modes.items():
            one.chmod(mode)
    training.hook.close()


def test_a_hook_says_which_package_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vinedresser.capture.live import agent
    from vinedresser.errors import MissingDependency

    monkeypatch.setattr(agent, "find_spec", lambda _: None)
    with pytest.raises(MissingDependency, match=r"pip install 'vinedresser\[live\]'"):
        Hook(tmp_path / "run", live=True)
