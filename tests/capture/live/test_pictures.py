"""A running training shows its batch: images with labels and predictions."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import torch
from torch import nn

from tests.capture.live.live_training import Client
from tests.waiting import until
from vinedresser.capture import Hook


def test_the_last_batch_is_shown_with_its_predictions(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    loss, optimizer = nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.1)
    hook = Hook(tmp_path / "run", live=True)
    hook.watch(model, loss=loss, optimizer=optimizer)
    text = "examples(inputs, labels, predictions, 3)"
    client = Client(tmp_path / "run", text, limit=2)
    points = Client(tmp_path / "run", "scatter(labels, argmax(predictions))", limit=1)
    batches = []

    def step() -> bool:
        x, y = torch.rand(8, 1, 4, 4), torch.randint(0, 3, (8,))
        optimizer.zero_grad()
        scores = model(x)
        loss(scores, y).backward()
        optimizer.step()
        batches.append((x.numpy(), y.tolist(), scores.argmax(1).tolist()))
        return client.done() and points.done()

    until(step, "two answers", 60)
    hook.close()
    assert hook.problems == []
    for answer in client.answers:
        x, labels, guesses = batches[answer.step]
        assert [one["label"] for one in answer.value] == labels[:3]
        assert [one["prediction"] for one in answer.value] == guesses[:3]
        shown = x[:3].astype(np.float64)
        expected = np.round(255 * (shown - shown.min()) / (shown.max() - shown.min()))
        for place, one in enumerate(answer.value):
            octets = base64.b64decode(one["image"]["data"])
            assert list(octets) == expected[place].reshape(-1).tolist()
    (answer,) = points.answers
    assert answer.value == {
        "x": [float(one) for one in batches[answer.step][1]],
        "y": [float(one) for one in batches[answer.step][2]],
    }
