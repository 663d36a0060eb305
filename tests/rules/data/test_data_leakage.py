"""The rule about evaluated training rows."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.rules.data.trainings import found_in, network
from tests.rules.trainings import Data, batches, digits
from vinedresser.capture import Hook, open_run
from vinedresser.rules.base import capture_for
from vinedresser.rules.data.leakage.data_leakage import DataLeakage
from vinedresser.rules.judge import judge


def leaking(data: Data, rows: int) -> Data:
    """Return digits with some training rows among the evaluated rows."""
    x = torch.cat([data.x[:rows], data.x_eval[: 64 - rows]])
    return replace(data, x_eval=x, y_eval=torch.cat([data.y[:rows], data.y_eval[: 64 - rows]]))


@pytest.mark.thorough
@pytest.mark.parametrize("rows", [64, 24])
def test_evaluated_training_rows_are_found(rows: int, tmp_path: Path) -> None:
    data = leaking(digits(), rows)
    (finding,) = found_in(tmp_path, [DataLeakage()], data, network(), batch=64, every=50)
    assert (finding.fault, finding.severity) == ("data_leakage", "warning")
    assert finding.evidence["found"] <= rows
    assert finding.value > 0.1


def test_split_rows_are_no_leak(tmp_path: Path) -> None:
    assert found_in(tmp_path, [DataLeakage()], digits(), network(), batch=64, every=50) == []


@pytest.mark.thorough
def test_extra_evaluations_of_training_rows_are_ignored(tmp_path: Path) -> None:
    data = digits()
    found = found_in(
        tmp_path,
        [DataLeakage()],
        data,
        network(),
        batch=64,
        every=30,
        evaluations=lambda number: leaking(data, 64) if number % 2 else data,
    )
    assert found == []


@pytest.mark.thorough
@pytest.mark.parametrize(("measured", "severity"), [(True, "warning"), (False, "info")])
def test_references_of_an_evaluation_are_a_hint(
    measured: bool, severity: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    data, model = digits(), network()()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with Hook(tmp_path / "run", collections=capture_for([DataLeakage()]).collections) as hook:
        hook.watch(model, optimizer=optimizer)
        for number, rows in enumerate(itertools.islice(batches(len(data.x), 64), 200)):
            model.train()
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(data.x[rows]), data.y[rows]).backward()
            optimizer.step()
            if number % 50 == 49:
                model.eval()
                with torch.no_grad():
                    known, outputs = model(data.x[:600]), model(data.x_eval)
                nearest = torch.cdist(outputs, known).argmin(1)
                if measured:
                    hook.metric("accuracy", (data.y[nearest] == data.y_eval).float().mean())
    (finding,) = judge(open_run(tmp_path / "run"), [DataLeakage()])
    assert finding.severity == severity


def test_common_rows_are_no_leak(tmp_path: Path) -> None:
    # Four binary features: at most sixteen distinct rows.
    data, columns = digits(), [20, 28, 36, 44]
    data = replace(
        data,
        x=(data.x[:, columns] > 0.5).float(),
        x_eval=(data.x_eval[:, columns] > 0.5).float(),
    )
    found = found_in(tmp_path, [DataLeakage()], data, network(4), batch=64, every=50)
    assert found == []


@pytest.mark.thorough
def test_a_truth_table_has_no_other_rows(tmp_path: Path) -> None:
    # Parity of seven bits, evaluated on all of them while most are trained on.
    bits = (torch.arange(128)[:, None] >> torch.arange(7)) & 1
    x, y = bits.float(), bits.sum(1) % 2
    data = Data(x[:120], y[:120], x, y)
    assert found_in(tmp_path, [DataLeakage()], data, network(7, 2), batch=40, every=50) == []


@pytest.mark.parametrize(("rows", "severity"), [(1000, "warning"), (40, "info")])
def test_the_only_rows_are_no_result_unless_they_are_a_handful(
    rows: int, severity: str, tmp_path: Path
) -> None:
    """Each step has all rows, and so has each evaluation."""
    torch.manual_seed(0)
    data, model = digits(), network()()
    x, y = data.x[:rows], data.y[:rows]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with Hook(tmp_path / "run", collections=capture_for([DataLeakage()]).collections) as hook:
        hook.watch(model, optimizer=optimizer)
        for step in range(40):
            model.train()
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            if step % 10 == 9:
                model.eval()
                with torch.no_grad():
                    nn.functional.cross_entropy(model(x), y)
    (finding,) = judge(open_run(tmp_path / "run"), [DataLeakage()])
    assert finding.severity == severity
