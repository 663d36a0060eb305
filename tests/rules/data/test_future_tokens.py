"""Language models that see the tokens that they should predict, on real trainings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from vinedresser.capture.hook.hook import Hook
from vinedresser.rules.base import capture_for
from vinedresser.rules.data.leakage.target_leakage import TargetLeakage
from vinedresser.rules.judge import judge
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run

_KINDS, _LENGTH, _PAD = 12, 9, 0
_generator = torch.Generator()


class Reader(nn.Module):
    """A recurrent language model, which reads forwards only or in both directions."""

    def __init__(self, *, both: bool) -> None:
        super().__init__()
        self.tokens = nn.Embedding(_KINDS, 16)
        self.rows = nn.GRU(16, 32, batch_first=True, bidirectional=both)
        self.out = nn.Linear(64 if both else 32, _KINDS)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits, [rows, positions, tokens]."""
        logits: Tensor = self.out(self.rows(self.tokens(tokens))[0])
        return logits


def noise(rows: int) -> Tensor:
    """Return independent tokens, of which nothing can be predicted."""
    return torch.randint(1, _KINDS, (rows, _LENGTH), generator=_generator)


def counting(rows: int) -> Tensor:
    """Return tokens that count up from a random one."""
    first = torch.randint(0, _KINDS, (rows, 1), generator=_generator)
    return (first + torch.arange(_LENGTH)) % _KINDS


def questions(rows: int) -> Tensor:
    """Return a fixed text with a random answer as the last token."""
    text = torch.arange(_LENGTH - 1).repeat(rows, 1) + 1
    return torch.cat([text, torch.randint(1, _KINDS, (rows, 1), generator=_generator)], 1)


def padded(rows: int) -> Tensor:
    """Return counting rows of random lengths, followed by padding."""
    lengths = torch.randint(4, _LENGTH, (rows, 1), generator=_generator)
    tokens = 1 + (counting(rows) % (_KINDS - 1))
    return torch.where(torch.arange(_LENGTH) < lengths, tokens, _PAD)


def judged(
    folder: Path, text: Callable[[int], Tensor], *, both: bool, ignored: int = -100, rows: int = 16
) -> list[Finding]:
    """Train a language model, and judge its run."""
    rule = TargetLeakage()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    _generator.manual_seed(0)
    model = Reader(both=both)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    loss = nn.CrossEntropyLoss(ignore_index=ignored)
    with Hook(folder, collections=capture_for([rule]).collections) as hook:
        hook.watch(model, loss=loss, optimizer=optimizer)
        for _ in range(180):
            tokens = text(rows)
            optimizer.zero_grad()
            logits = model(tokens[:, :-1])
            loss(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
            optimizer.step()
    return judge(open_run(folder), [rule])


@pytest.mark.thorough
@pytest.mark.parametrize("rows", [16, 64])
def test_a_model_that_looks_ahead_is_found(rows: int, tmp_path: Path) -> None:
    (finding,) = judged(tmp_path / "run", noise, both=True, rows=rows)
    assert (finding.fault, finding.severity) == ("data_leakage", "warning")
    assert "causal mask" in finding.cause
    # Nothing is known of the last token; the others are copied.
    assert finding.evidence["last"] < 0.4
    assert finding.evidence["rest"] > 0.5


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("text", "ignored"), [(noise, -100), (counting, -100), (questions, -100), (padded, _PAD)]
)
def test_models_that_see_the_past_only_are_no_alarm(
    text: Callable[[int], Tensor], ignored: int, tmp_path: Path
) -> None:
    assert [
        one.seen
        for one in judged(tmp_path / "run", text, both=False, ignored=ignored)
        if one.severity != "info"
    ] == []
