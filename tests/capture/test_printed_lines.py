"""Metrics that several threads print."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import pytest

from vinedresser.capture.run.printed_lines import PrintedLines
from vinedresser.store.records import METRICS_VARIABLE


def test_no_line_is_lost_while_another_thread_delivers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(METRICS_VARIABLE, '{"acc": "acc: (.*)"}')
    entered, go_on, found = threading.Event(), threading.Event(), []

    def sink(values: Mapping[str, float]) -> None:
        entered.set()
        assert go_on.wait(30)
        found.append(values["acc"])

    lines = PrintedLines()
    lines.begin(listen=False)
    lines.sink = sink
    first = threading.Thread(target=lines.take, args=("acc: 0",))
    first.start()
    assert entered.wait(30)
    # As while the first hook is opened, which may import a framework: it waits longer than we do.
    others = [threading.Thread(target=lines.take, args=(f"acc: {n}",)) for n in range(1, 5)]
    for thread in others:
        thread.start()
    for thread in others:
        thread.join(30)
    assert not found
    go_on.set()
    first.join(30)
    assert found[0] == 0
    assert sorted(found) == [0, 1, 2, 3, 4]


def test_what_the_delivery_prints_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(METRICS_VARIABLE, '{"acc": "acc: (.*)"}')
    found = []

    def sink(values: Mapping[str, float]) -> None:
        found.append(values["acc"])
        lines.take("acc: 7")

    lines = PrintedLines()
    lines.begin(listen=False)
    lines.sink = sink
    lines.take("acc: 1")
    lines.take("acc: 2")
    assert found == [1, 2]
