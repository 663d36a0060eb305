"""A class that is not learned is boosted in mid-training, and the boost is taken back."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.rules.actions.test_judge import finding
from tests.rules.actions.test_trainer import ask
from vinedresser.capture import Hook, SaveConfig, open_run
from vinedresser.capture.live.settings import LiveSettings
from vinedresser.data import Mixture
from vinedresser.errors import ConfigError
from vinedresser.objects import LocalStorage
from vinedresser.rules.actions.base import ActionContext
from vinedresser.rules.actions.plan import ActionPlan
from vinedresser.rules.actions.settings import BoostSettings
from vinedresser.rules.actions.trainer import BoostAction
from vinedresser.rules.base import capture_for
from vinedresser.rules.data.class_imbalance import ClassImbalance
from vinedresser.rules.judge import judge
from vinedresser.store.finding import CAUGHT_UP, MISSED, Finding

SIZES = {"cat": 300, "dog": 300, "eel": 10}


@pytest.fixture
def data(tmp_path: Path) -> Mixture:
    """Return a mixture of three classes, each around a point of its own."""
    torch.manual_seed(0)
    for label, (name, size) in enumerate(SIZES.items()):
        points = torch.randn(size, 3) * 0.3 + torch.eye(3)[label]
        lines = [json.dumps(one) for one in points.tolist()]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    return Mixture(
        {name: tmp_path / f"{name}.jsonl" for name in SIZES},
        batch_size=32,
        decode=lambda point, name: (torch.tensor(point), [*SIZES].index(name)),
    )


class Training:
    """A linear model that learns the classes of a mixture."""

    def __init__(self, path: Path, data: Mixture, **options: Any) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(1)
        self.data = data
        self.model = torch.nn.Linear(3, 3)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.loss = torch.nn.CrossEntropyLoss()
        self.hook = Hook(path, tunable={"boost": data}, **options)
        self.hook.watch(self.model, loss=self.loss, optimizer=self.optimizer)
        self.steps = 0

    def run(self, *, until: Any) -> None:
        while True:
            for batch in self.data:
                points, labels = zip(*batch.values, strict=True)
                self.optimizer.zero_grad()
                self.loss(self.model(torch.stack(points)), torch.tensor(labels)).backward()
                self.optimizer.step()
                self.steps += 1
                if until():
                    return


def missed(**evidence: Any) -> Finding:
    found = finding("class_imbalance", "warning")
    found.evidence.update(evidence)
    return found


def taken(path: Path, identity: str, found: Finding, training: Training) -> tuple[str, str]:
    """Take the action while the training runs; return its result."""
    action = BoostAction(BoostSettings(factor=8.0))
    context = ActionContext(identity, found, LocalStorage(path), {}, threading.Event())
    results = []
    thread = threading.Thread(target=lambda: results.append(action.take(context)))
    thread.start()
    training.run(until=lambda: not thread.is_alive())
    return results[0]


@pytest.mark.thorough
def test_the_weights_of_a_running_training_change(data: Mixture, tmp_path: Path) -> None:
    path = tmp_path / "run"
    training = Training(path, data)
    wrong, high = (
        ask(path, "adjust", parameter="boost.el", value=2.0),
        ask(path, "adjust", parameter="boost.eel", value=101.0),
    )
    with training.hook:
        training.run(until=lambda: wrong() and high())
        boosted = taken(path, "a", missed(**{MISSED: {"2": 0.9}}), training)
        assert data.boosts == {"cat": 1.0, "dog": 1.0, "eel": 8.0}
        end = training.steps + 120
        training.run(until=lambda: training.steps >= end)
        # A judge that is restarted takes it again, and nothing changes.
        assert taken(path, "a", missed(**{MISSED: {"2": 0.9}}), training) == boosted
        over = taken(path, "b", missed(**{CAUGHT_UP: {"2": 0.1, "0": 0.1}}), training)
        assert data.boosts == {"cat": 1.0, "dog": 1.0, "eel": 1.0}
        unknown = taken(path, "c", missed(**{MISSED: {"3": 0.9}}), training)
        assert taken(path, "d", missed(), training)[0] == "refused"
    assert "did you mean boost.eel" in wrong().refused  # type: ignore[union-attr]
    assert "101, which is not within 0 and 100" in high().refused  # type: ignore[union-attr]
    assert boosted[0] == "done"
    assert boosted[1].startswith("boost.eel: from 1 to 8 as of step ")
    assert over[1].startswith("boost.eel: from 8 to 1 as of step ")
    assert "boost.cat" not in over[1]
    assert unknown[0] == "refused"
    run = open_run(path)
    assert run.info.classes == ["cat", "dog", "eel"]
    changes = [(control.parameter, control.new) for control in run.controls()]
    assert changes == [("boost.eel", [8.0]), ("boost.eel", [1.0])]
    shares = [float(one) for one in run.scalars("saved/fed/eel").to_pandas()["value"]]
    natural = 10 / 610
    assert shares[0] == pytest.approx(natural, abs=0.002)
    assert max(shares) == pytest.approx(8 * natural / (1 + 7 * natural), abs=0.005)

    # The same changes at the same steps give the same training.
    again = Mixture(
        {name: tmp_path / f"{name}.jsonl" for name in SIZES}, batch_size=32, decode=data._decode
    )
    replayed = Training(tmp_path / "again", again, live=LiveSettings(replay=str(path)))
    with replayed.hook:
        replayed.run(until=lambda: replayed.steps == training.steps)
    assert torch.equal(replayed.model.weight, training.model.weight)


@pytest.mark.thorough
def test_the_rule_finds_a_class_that_is_not_learned_and_its_catching_up(
    data: Mixture, tmp_path: Path
) -> None:
    rule = ClassImbalance()
    every = capture_for([rule]).collections
    training = Training(tmp_path / "run", data, collections=every)
    training.optimizer.param_groups[0]["lr"] = 0.02

    def until() -> bool:
        if training.steps == 500:
            data.boost({"eel": 30})
        return training.steps == 1500

    with training.hook:
        training.run(until=until)
    first, second = judge(open_run(tmp_path / "run"), [rule])
    assert (first.severity, second.severity, second.fault) == ("warning", "info", "")
    assert "eel (1.6% of the labels" in first.seen
    assert 300 <= first.step <= 500 < second.step
    assert set(first.evidence[MISSED]) == set(second.evidence[CAUGHT_UP]) == {"2"}
    plan = ActionPlan.from_tables(
        {"boost": {"factor": 3.0}, "on_info": ["tag"]},
        {"class_imbalance": {"actions": ["boost", "stop", "checkpoint"]}},
    )
    assert plan.of(first) == ("checkpoint", "boost", "stop")
    assert plan.of(second) == ("tag", "boost")


@pytest.mark.thorough
def test_a_class_that_is_lost_again_is_boosted_again_and_at_last_for_good(
    data: Mixture, tmp_path: Path
) -> None:
    rule = ClassImbalance()
    every: Any = {
        "collections": dict.fromkeys(
            {need.collection for need in rule.all_needs}, SaveConfig(every=1)
        )
    }
    learned = False

    def decode(point: list[float], name: str) -> Any:
        # The model never changes: it is right, unless points lie where those of others are.
        label = [*SIZES].index(name)
        return torch.eye(3)[label if learned or name != "eel" else 0] * 9, label

    def train(name: str, data: Mixture, steps: int, begin: int = 300, turn: int = 150) -> Any:
        """Train; from a step on, the class is learned and lost in turns."""
        training = Training(tmp_path / name, data, **every)
        training.optimizer.param_groups[0]["lr"] = 0.0
        with torch.no_grad():
            training.model.weight.copy_(torch.eye(3))

        def until() -> bool:
            nonlocal learned
            before = learned
            learned = training.steps > begin and (training.steps - begin) // turn % 2 == 0
            if learned != before:
                data.boost({"eel": 4 if learned else 1})
            return training.steps == steps

        with training.hook:
            training.run(until=until)
        run = open_run(tmp_path / name)
        return run, judge(run, [rule])

    def mixture() -> Mixture:
        return Mixture(
            {name: tmp_path / f"{name}.jsonl" for name in SIZES},
            batch_size=32,
            weights=SIZES | {"eel": 25},
            decode=decode,
        )

    data = mixture()
    _, found = train("run", data, 1200)
    assert [one.severity for one in found] == ["warning", "info"] * 2 + ["warning"]
    assert [max(one.step - 300, 0) // 150 for one in found] == [0, 0, 1, 2, 3]
    assert all({*one.evidence[MISSED]} == {"2"} for one in found[::2])

    # A training that is resumed when the boost was in force, and one when it was taken back.
    state = data.state_dict()
    for boost, times, begin, first in ((4.0, 2, -1, "info"), (1.0, 2, 200, "warning")):
        changes = state["weights"][: 2 * times + (boost == 1.0)]
        resumed = mixture()
        resumed.load_state_dict({**state, "weights": changes})
        assert resumed.boosts["eel"] == boost
        run, found = train(first, resumed, 200, begin=begin, turn=1000)
        assert run.info.boosted == {"eel": [boost, times]}
        assert [one.severity for one in found] == [first]
        assert found[0].step < 200
    resumed.load_state_dict({**state, "weights": state["weights"][:2]})
    training = Training(tmp_path / "taken", resumed)
    with training.hook:
        training.run(until=lambda: True)
        over = missed(**{CAUGHT_UP: {"2": 0.1}})
        assert taken(tmp_path / "taken", "a", over, training)[0] == "done"
    assert resumed.boosts["eel"] == 1


def test_what_is_no_mixture_is_named(data: Mixture, tmp_path: Path) -> None:
    with Hook(tmp_path / "run", collections={"losses": SaveConfig(every=1)}) as hook:
        with pytest.raises(ConfigError, match=r"'boost', …\): not supported by a builtins.dict"):
            hook.tunable("boost", {})
        with pytest.raises(ConfigError, match="min = 3 and max = 2 are no bounds"):
            hook.tunable("boost", data, min=3, max=2)
