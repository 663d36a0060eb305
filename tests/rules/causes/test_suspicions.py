"""Suspicions of rules, before the outcome of the training is known."""

from __future__ import annotations

from pathlib import Path

from vinedresser.rules.base import Rule
from vinedresser.rules.causes.suspicions import SuspicionWriter, read_suspicions
from vinedresser.rules.judge import judge
from vinedresser.rules.need import Need
from vinedresser.rules.symptom import Symptom, SymptomRule
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import Run
from vinedresser.store.reading.step import Step
from vinedresser.store.records import suspicions_key
from vinedresser.store.step_record import StepRecord
from vinedresser.testing.runs import make_run, step_record


class HighLoss(SymptomRule):
    """A loss above 5 in a training with a poor outcome."""

    def __init__(self) -> None:
        super().__init__(patience=2)
        self.needs = (Need("losses"),)

    def detect(self, step: Step) -> Symptom | None:
        """See `SymptomRule.detect`."""
        loss = step.scalars["losses/loss"]
        return Symptom("loss", "loss", loss, 5.0, 0.5, f"{loss:g}", "", "") if loss > 5 else None

    def is_checked(self, step: Step) -> bool:
        """See `SymptomRule.is_checked`."""
        return step.mode == "train"


class Hint(HighLoss):
    """The same as a warning."""

    severity = "warning"


class Unsure(Rule):
    """Fails in `suspicion`."""

    needs = (Need("losses"),)

    def update(self, step: Step) -> Finding | None:
        """See `Rule.update`."""
        return None

    def suspicion(self) -> Finding | None:
        """See `Rule.suspicion`."""
        raise LookupError("no idea")


def recorded(folder: Path) -> Run:
    """Return a run of three epochs of two steps, with a high loss in the second."""
    records: list[StepRecord] = []
    for step, loss in enumerate((1.0, 1.0, 9.0, 8.0, 1.0, 2.0)):
        records.append(step_record(step, scalars={"losses/loss": loss}))
        if step % 2:
            found = {"metrics/accuracy": 0.5, "losses/loss": 0.1}
            records.append(step_record(step, mode="eval", scalars=found))
    return make_run(folder, records)


def suspected(run: Run, rules: list[Rule]) -> tuple[list[tuple[int, list[str]]], list[Finding]]:
    """Return the contents of the file after each change, and all findings."""
    writer = SuspicionWriter(
        run.storage, "all", "accuracy", "eval", lambda finding: finding.severity == "stop"
    )
    seen: list[tuple[int, list[str]]] = []

    def look(step: Step, engine: object) -> None:
        writer.take(step, engine)  # type: ignore[arg-type]
        found = read_suspicions(run.storage, "all")
        now = None if found is None else (found[0], [f"{one.rule} {one.seen}" for one in found[1]])
        if now is not None and (not seen or seen[-1] != now):
            seen.append(now)

    return seen, judge(run, rules, on_step=look)


def test_a_symptom_is_suspected_while_it_lasts_and_is_no_finding(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run")
    assert read_suspicions(run.storage, "all") is None
    seen, findings = suspected(run, [HighLoss(), Hint()])
    # Only one of the rules could end the run.
    assert seen == [(1, []), (3, ["high_loss 8"]), (5, [])]
    assert [finding for finding in findings if finding.rule in ("high_loss", "hint")] == []
    assert run.storage.exists(suspicions_key("all"))


def test_a_rule_that_fails_in_suspicion_is_disabled_and_reported(tmp_path: Path) -> None:
    seen, findings = suspected(recorded(tmp_path / "run"), [Unsure(), HighLoss()])
    assert seen == [(1, []), (3, ["high_loss 8"]), (5, [])]
    failed = [finding for finding in findings if finding.rule == "unsure"]
    assert [one.seen for one in failed] == ["the rule itself failed: LookupError: no idea"]
