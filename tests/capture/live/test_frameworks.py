"""Trainings of other frameworks answer from the tensors that they could store."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.ensemble import GradientBoostingClassifier

from tests.capture.lightning_.trainings import Classifier, loader, trainer
from tests.capture.live.live_training import Client
from tests.capture.torch_.parallel.ranks import started_ranks
from tests.capture.xgboost_.trainings import PROBLEMS
from tests.paths import ROOT
from tests.waiting import until
from tests.watching.test_watch import watching
from vinedresser.capture import Hook, SaveConfig
from vinedresser.errors import AgentAway
from vinedresser.queries.answer import Answer
from vinedresser.queries.asking import ask
from vinedresser.queries.live.client import agent_status
from vinedresser.store.reading.reader import open_run

GRADIENTS = {"gradients": SaveConfig(every=1)}


def asked_while(hook: Hook, path: Path, texts: list[str], train: Callable[[], object]) -> list[Any]:
    """Train once clients ask; return the answers to each query."""
    clients = [Client(path, text, limit=3) for text in texts]
    table = hook._agent.observer.table  # type: ignore[union-attr]
    until(lambda: len(table) == len(texts))
    train()
    until(
        lambda: all(
            client.done() or (client.answers and client.answers[0].error) for client in clients
        )
    )
    assert hook.problems == []
    return [client.answers for client in clients]


def check_norms(path: Path, answers: list[Answer]) -> None:
    """Check that answers are the norms of the stored gradients."""
    run = open_run(path)
    names = [name for name in run.tensor_names() if name.startswith("gradients/")]
    assert len(answers) == 3
    for answer in answers:
        squares = sum((run.tensor(name).value(answer.step) ** 2).sum() for name in names)
        assert answer.value == pytest.approx(np.sqrt(squares), rel=1e-5)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:.*does not have many workers")
@pytest.mark.filterwarnings("ignore:.*number of training batches")
@pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated")
def test_lightning(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with Hook(path, live=True, collections=GRADIENTS) as hook:
        fit = trainer(tmp_path, hook.lightning(), max_epochs=2).fit
        train = partial(fit, Classifier(), loader(1), loader(2))
        answers = asked_while(hook, path, ["norm(gradients)"], train)
    check_norms(path, answers[0])


@pytest.mark.thorough
@pytest.mark.parametrize("framework", ["xgboost", "sklearn"])
def test_boosted_trees(tmp_path: Path, framework: str) -> None:
    path = tmp_path / "run"
    everything = {name: SaveConfig(every=1) for name in ("losses", "feature_importance")}
    with Hook(path, live=True, collections=everything) as hook:
        if framework == "xgboost":
            data = PROBLEMS["binary"].make()
            train = partial(PROBLEMS["binary"].train, hook.xgboost(train=data), data=data)
        else:
            model = hook.sklearn(GradientBoostingClassifier(n_estimators=6, random_state=0))
            train = partial(model.fit, *load_wine(return_X_y=True))
        texts = ["loss", "max(feature_importance)", "norm(gradients)"]
        losses, importances, unknown = asked_while(hook, path, texts, train)
    for text, answers in (("loss", losses), ("max(feature_importance)", importances)):
        stored = {one.step: one.value for one in ask(path, text, live=False)}
        assert [answer.value for answer in answers] == pytest.approx(
            [stored[answer.step] for answer in answers]
        )
    assert unknown[0].error.startswith("gradients: no such name; the training offers ")


@pytest.mark.thorough
def test_two_ranks(tmp_path: Path) -> None:
    path, over = tmp_path / "run", tmp_path / "over"
    with started_ranks("tests.capture.live.rank_training", path, over) as ended:
        until(
            lambda: ended.done() or all(_listens(path, rank) for rank in (0, 1)),
            "the agents of both ranks",
        )
        assert not ended.done(), ended.result().stderr
        inputs: dict[int, float] = {}
        with closing(ask(path, "mean(inputs)", live=True)) as answers:
            for answer in answers:
                inputs[answer.rank] = answer.value
                if len(inputs) == 2:
                    break
        assert inputs == {0: 1.0, 1: 2.0}
        with watching(path) as (address, client, _):
            client.get(address)
            for query, value in (("mean(inputs)", "1.0"), ("rank 1: mean(inputs)", "2.0")):
                until(partial(_shows, client, query, value), f"{value} for {query} in the page")
        over.touch()
        done = ended.result(60)
        assert done.returncode == 0, done.stderr


def _shows(client: httpx.Client, query: str, value: str) -> bool:
    """Return whether the page of the run has a live panel of a query with a last value."""
    html = client.get("/run/run/panel", params={"query": query}).json()["html"]
    return f'data-last="{value}"' in html and "asked live" in html


def _listens(path: Path, rank: int) -> bool:
    try:
        return bool(agent_status(str(path), rank=rank)["step"])
    except AgentAway:
        return False


@pytest.mark.slow
def test_keras_on_torch(tmp_path: Path) -> None:
    # A process has one backend.
    code = "import sys, pathlib; from tests.capture.live.test_frameworks import check_keras; "
    command = [sys.executable, "-c", f"{code}check_keras(pathlib.Path(sys.argv[1]))", str(tmp_path)]
    environment = {**os.environ, "KERAS_BACKEND": "torch"}
    done = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.thorough
def test_keras_on_tensorflow(tmp_path: Path) -> None:
    check_keras(tmp_path)


def check_keras(tmp_path: Path) -> None:
    """Check that a training of Keras answers, with the backend of this process."""
    keras = pytest.importorskip("keras")
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    path, x = tmp_path / "run", np.random.default_rng(0).normal(size=(64, 4))
    with Hook(path, live=True, collections=GRADIENTS).watch(model) as hook:
        train = partial(model.fit, x, x.sum(1), epochs=3, batch_size=16, verbose=0)
        norms, losses = asked_while(hook, path, ["norm(gradients)", "loss"], train)
    check_norms(path, norms)
    assert losses[0].kind == "scalar"
