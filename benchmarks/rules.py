"""Cost of the rules: judged steps per second, memory, and overhead of the training.

A generated run has 200 tensors (50 layers with weights, gradients, updates and outputs) with all
statistics that the default rules need, and an improving loss with labels and predictions. All rules
judge it in a separate process, with statistics at their default interval and at each step. The
memory must not grow with the length of the run.

Then small trainings are timed in turn, with and without the capture that the default rules need.

python -m benchmarks.rules [--directory DIR] [--steps 2500,10000] [--rounds N] [--no-training]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.long_run import peak_memory
from benchmarks.measure import table
from benchmarks.overhead import RULES_ARM, measure
from benchmarks.store_content import timed
from vinedresser.objects import LocalStorage
from vinedresser.rules.base import capture_for
from vinedresser.rules.judge import judge
from vinedresser.rules.registry import RULES
from vinedresser.store.reading.reader import open_run
from vinedresser.store.step_record import StepRecord
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import end_run, host_tensor, start_run

LAYERS = 50
# Values of a healthy training, so that no rule fires.
_HEALTHY = {
    "abs_mean": 0.02,
    "abs_max": 0.5,
    "l1": 80.0,
    "l2": 1.5,
    "max": 0.5,
    "mean": 0.01,
    "min": -0.5,
    "std": 0.03,
    "sum": 40.0,
    "variance": 0.001,
    "zero_share": 0.2,
    "nonfinite": 0.0,
    "unit_similarity": 0.05,
}
_ARMS = ("plain", "plain again", "hook idle", "losses every step", RULES_ARM)
_CLASSES = 10
_ROWS = 64
# Steps per second of the simulated training, and so per segment.
_PACE = 20
# Update size relative to the weights in a healthy training.
_UPDATE = 1e-3


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--steps", default="2500,10000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-training", action="store_true", help="judge generated runs only")
    parser.add_argument("--judge", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.judge:
        print(json.dumps(judged(arguments.judge)))
        return
    lengths = [int(word) for word in arguments.steps.split(",")]
    print(f"{len(RULES)} rules over {4 * LAYERS} tensors; {arguments.rounds} rounds, medians")
    print(_made_runs(lengths, arguments.rounds, arguments.directory))
    if not arguments.no_training:
        # Short blocks average out the load of the machine; those of the MLP contain one check each.
        for model, rounds, steps in (("mlp", 40, 20), ("resnet", 16, 5)):
            print(f"\n{measure(model, _ARMS, rounds, steps, arguments.directory)}")


def _made_runs(lengths: list[int], rounds: int, directory: Path | None) -> str:
    rows: list[list[Any]] = []
    for every in (20, 1):
        for length in lengths:
            with tempfile.TemporaryDirectory(dir=directory) as name:
                write(Path(name, "run"), length, every)
                found = [_judged_elsewhere(Path(name, "run")) for _ in range(rounds)]
            seconds = median(one["seconds"] for one in found)
            memory = median(one["MB"] for one in found)
            findings = int(found[0]["findings"])
            rows.append([every, length, f"{length / seconds:.0f}", f"{memory:.0f}", str(findings)])
    return table(rows, ["statistics every", "steps", "steps/s", "memory, MB", "findings"])


def write(folder: Path, steps: int, every: int) -> None:
    """Write a run of some steps, with statistics every ``every`` steps."""
    asked = _asked()
    generator = np.random.default_rng(0)
    labels = generator.integers(0, _CLASSES, _ROWS)
    statistics = {
        f"{kind}/layers.{layer}{suffix}": _figures(kind, asked[kind])
        for kind, suffix in (
            ("weights", ".weight"),
            ("gradients", ".weight"),
            ("updates", ".weight"),
            ("outputs", ""),
        )
        for layer in range(LAYERS)
        if asked[kind]
    }
    modules = {f"layers.{layer}": ["ReLU", "relu"] for layer in range(LAYERS)}
    start_run(folder, total_steps=steps, modules=modules, framework="torch")
    writer = RunWriter(LocalStorage(folder))
    for step in range(steps):
        due = step % every == 0
        loss = 2.3 * float(np.exp(-4 * step / steps)) + 0.02 * generator.standard_normal()
        writer.add(
            StepRecord(
                "train",
                step,
                1e9 + step / _PACE,
                _compared(labels, loss, generator) if step % 5 == 0 else {},
                {"losses/CrossEntropyLoss": loss},
                {name: dict(one) for name, one in statistics.items()} if due else {},
            )
        )
        if step % _PACE == _PACE - 1:
            writer.flush()
    writer.close()
    end_run(folder)


def _asked() -> dict[str, set[str]]:
    """Return the statistics that the default rules need, by collection."""
    config = capture_for([kind() for kind in RULES.values()])
    kinds = ("weights", "gradients", "updates", "outputs")
    ask = {kind: config.asks(f"{kind}/layers.0", 0, "train").reductions for kind in kinds}
    ask["outputs"] |= {
        word
        for collection in config.collections.values()
        if collection.name == "activations"
        for save in collection.saves
        for word in save.reductions
    }
    return {kind: {word for word in words if word in _HEALTHY} for kind, words in ask.items()}


def _figures(kind: str, words: set[str]) -> dict[str, float]:
    scale = _UPDATE if kind == "updates" else 1.0
    sizes = {"zero_share", "nonfinite", "unit_similarity"}
    return {word: _HEALTHY[word] * (1.0 if word in sizes else scale) for word in sorted(words)}


def _compared(labels: Any, loss: float, generator: np.random.Generator) -> dict[str, Any]:
    """Return labels and predictions whose errors decrease with the loss."""
    scores = generator.standard_normal((_ROWS, _CLASSES)).astype(np.float32)
    right = generator.random(_ROWS) > loss / 2.5
    scores[right, labels[right]] += 5
    return {
        "labels/CrossEntropyLoss": host_tensor(labels),
        "predictions/CrossEntropyLoss": host_tensor(scores),
    }


def judged(folder: Path) -> dict[str, float]:
    """Judge a run in this process with all rules; return seconds, MB used, number of findings."""
    rules = [kind() for kind in RULES.values()]
    run = open_run(folder)
    before = peak_memory()
    findings: list[Any] = []
    seconds = timed(lambda: findings.extend(judge(run, rules)))
    return {"seconds": seconds, "MB": peak_memory() - before, "findings": len(findings)}


def _judged_elsewhere(folder: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.rules", "--judge", str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    main()
