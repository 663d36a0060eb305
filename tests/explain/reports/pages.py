"""Synthetic runs, and reports parsed as a browser does, for the tests of reports."""

from __future__ import annotations

import base64
import io
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vinedresser.objects import LocalStorage
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.records import (
    ExitRecord,
    RunRecord,
    StopRecord,
    findings_key,
    write_record,
)
from vinedresser.store.step_record import StepRecord
from vinedresser.store.writing.writer import RunWriter

__all__ = [
    "Page",
    "START",
    "attribute",
    "axis_value",
    "finding",
    "make_run",
    "stopped_run",
    "train",
]

START = 1_700_000_000.0


def finding(**changes: Any) -> Finding:
    """Return a finding of the vanishing gradient rule, with some fields changed."""
    fields: dict[str, Any] = {
        "rule": "vanishing_gradient",
        "severity": "stop",
        "step": 24,
        "since": 16,
        "mode": "train",
        "rank": 0,
        "tensor": "gradients/first.weight",
        "statistic": "abs_mean",
        "value": 4e-8,
        "threshold": 1e-4,
        "confidence": 0.94,
        "seen": "Gradients of first.weight are 1.3e-06 of those of last.weight.",
        "cause": "eleven sigmoid layers",
        "remedy": "relu, or batch normalisation after each layer",
        "evidence": {"ratio": 1.3e-6},
    }
    return Finding(**fields | changes)


def make_run(
    directory: Path,
    records: Iterable[StepRecord] = (),
    *,
    findings: Sequence[Finding] | None = None,
    exit_record: ExitRecord | None = None,
    **info: Any,
) -> Run:
    """Write a run as a hook, a judge and a supervisor do, and open it."""
    storage = LocalStorage(directory)
    fields: dict[str, Any] = {"id": "3f2a9c", "name": "digits", "created": START}
    write_record(storage, RunRecord(**fields | info))
    writer = RunWriter(storage)
    for record in records:
        writer.add(record)
    assert writer.close(30)
    if findings is not None:
        lines = "".join(json.dumps(entry.to_json()) + "\n" for entry in findings)
        storage.put(findings_key("default"), [lines.encode()])
    if exit_record is not None:
        write_record(storage, exit_record)
    return open_run(directory)


def train(step: int, loss: float = 1.0, **gradients: float) -> StepRecord:
    """Return the record of a train step with a loss and gradient norms."""
    return StepRecord(
        "train",
        step,
        START + step,
        scalars={"losses/CrossEntropyLoss": loss},
        reductions={f"gradients/{name}": {"l2": value} for name, value in gradients.items()},
    )


class Page(HTMLParser):
    """A parsed report: its tags, visible text, and figures as XML."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.html = path.read_text(encoding="utf-8")
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._style = False
        self.feed(self.html)
        self.figures = [ET.fromstring(svg) for svg in re.findall(r"<svg .*?</svg>", self.html)]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._style = tag == "style"

    def handle_data(self, data: str) -> None:
        if not self._style:
            self.words.append(data)

    @property
    def text(self) -> str:
        """Return all visible text in one line."""
        return " ".join(" ".join(self.words).split())

    def charts(self) -> list[ET.Element]:
        """Return the line charts."""
        return [svg for svg in self.figures if svg.get("class") == "chart"]

    def all_figures(self, kind: str) -> list[ET.Element]:
        """Return the figures of a class, such as "chart layers"."""
        return [svg for svg in self.figures if svg.get("class") == kind]

    def figure(self, kind: str) -> ET.Element:
        """Return the only figure of a class."""
        (figure,) = self.all_figures(kind)
        return figure

    def figure_texts(self, kind: str) -> list[ET.Element]:
        """Return the text elements of the figures of a class."""
        return [text for figure in self.all_figures(kind) for text in figure.iter("text")]

    def heat(self) -> ET.Element:
        """Return the heat map."""
        return self.figure("chart heat")

    def cells(self) -> NDArray[np.uint8]:
        """Return the heat map's palette indices as a picture viewer decodes them, [L, C]."""
        (image,) = self.heat().iter("image")
        href = image.get("href")
        assert href is not None
        with Image.open(io.BytesIO(base64.b64decode(href.partition(",")[2]))) as picture:
            return np.array(picture)

    def colour_ends(self) -> tuple[float, float]:
        """Return the logarithms at the ends of the colour scale."""
        (scale,) = [svg for svg in self.figures if svg.get("data-low")]
        return float(scale.get("data-low", "")), float(scale.get("data-high", ""))


def attribute(node: ET.Element, name: str) -> float:
    """Return a number from an attribute."""
    return float(node.get(name, "nan"))


def axis_value(chart: ET.Element, axis: str, pixel: float) -> float:
    """Return the value at a pixel, read off the labelled ticks of a linear axis."""
    ticks = [node for node in chart.iter("text") if node.get("class") == f"tick {axis}"]
    places = [attribute(node, axis) - (3.5 if axis == "y" else 0) for node in ticks]
    values = [
        float((node.text or "").replace(",", "").replace("\N{MINUS SIGN}", "-")) for node in ticks
    ]
    slope, offset = np.polyfit(places, values, 1)
    return float(slope * pixel + offset)


def stopped_run(directory: Path) -> Run:
    """Return a run that a rule stopped at step 24 of 100."""
    records = [
        train(step, 2.3 - 0.01 * step, **{"first.weight": 1e-8, "last.weight": 0.1})
        for step in range(25)
    ]
    records.append(
        StepRecord(
            "eval",
            20,
            START + 20,
            scalars={"losses/CrossEntropyLoss": 2.2, "metrics/accuracy": 0.25},
        )
    )
    warning = finding(rule="loss_not_decreasing", severity="warning", step=10, since=4)
    reason = "gradients of first.weight vanish"
    stop = StopRecord(by="rule", reason=reason, time=START + 25, rule="vanishing_gradient", step=24)
    ended = ExitRecord("stopped", reason, START + 90, code=0, last_step=24, stop=stop)
    run = make_run(
        directory,
        records,
        findings=[warning, finding()],
        exit_record=ended,
        total_steps=100,
        parameters={"lr": 0.1, "optimizer": {"name": "SGD"}},
        command=["python", "train.py", "--note", "a b"],
    )
    write_record(run.storage, stop)
    return run
