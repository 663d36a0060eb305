"""When something is saved."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vinedresser.capture import SaveConfig
from vinedresser.errors import ConfigError
from vinedresser.store.collections.schedule import Predicate


def due_steps(save: SaveConfig, mode: str = "train", until: int = 12) -> list[int]:
    return [step for step in range(until) if save.due(step, mode)]


@pytest.mark.parametrize(
    ("save", "steps"),
    [
        (SaveConfig(every=5), [0, 5, 10]),
        (SaveConfig(every=4, start=3), [3, 7, 11]),
        (SaveConfig(every=1, start=2, stop=5), [2, 3, 4]),
        (SaveConfig(every=0, steps=(7, 1)), [1, 7]),
        (SaveConfig(every=6, stop=6, steps=(11,)), [0, 11]),
        (SaveConfig(every=0), []),
        (SaveConfig(every=1, modes=("eval",)), []),
    ],
)
def test_train_steps(save: SaveConfig, steps: list[int]) -> None:
    assert due_steps(save) == steps


@pytest.mark.parametrize(
    ("save", "steps"),
    [
        (SaveConfig(every=100), list(range(12))),
        (SaveConfig(every=100, start=3, stop=6), [3, 4, 5]),
        (SaveConfig(every=0, steps=(7,)), [7]),
        (SaveConfig(every=1, modes=("train", "predict")), []),
    ],
)
def test_every_evaluation_is_saved(save: SaveConfig, steps: list[int]) -> None:
    assert due_steps(save, "eval") == steps


@pytest.mark.parametrize(("elastic", "steps"), [(True, [1, 7]), (False, [1, 4, 7, 10])])
def test_only_elastic_configs_are_due_less_often(elastic: bool, steps: list[int]) -> None:
    save = SaveConfig(every=3, start=1, elastic=elastic)
    assert [step for step in range(12) if save.due(step, "train", 2)] == steps
    assert due_steps(save) == [1, 4, 7, 10]
    assert all(save.due(step, "eval", 2) for step in range(1, 12))


@pytest.mark.parametrize(
    ("save", "left"),
    [
        (SaveConfig(every=3, reductions=("l2",)), SaveConfig(every=3, reductions=("l2",))),
        (SaveConfig(reductions=("fingerprint", "l2")), SaveConfig(reductions=("l2",))),
        (
            SaveConfig(reductions=("fingerprint",), tensor=True, stop=9),
            SaveConfig(tensor=True, stop=9),
        ),
        (
            SaveConfig(reductions=("l2", "fingerprint"), tensor=True),
            SaveConfig(reductions=("l2",), tensor=True),
        ),
        (SaveConfig(reductions=("fingerprint",)), None),
    ],
)
def test_a_config_without_fingerprints_keeps_the_rest(
    save: SaveConfig, left: SaveConfig | None
) -> None:
    found = save.without_fingerprint()
    assert (found and (found.to_json() | {"tensor": found.wants_tensor})) == (
        left and (left.to_json() | {"tensor": left.wants_tensor})
    )


def test_the_tensor_is_kept_without_reductions() -> None:
    assert SaveConfig().wants_tensor
    assert not SaveConfig(reductions=("l2",)).wants_tensor
    assert SaveConfig(reductions=("l2",), tensor=True).wants_tensor
    assert not SaveConfig(tensor=False).wants_tensor


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"every": -1}, "every = -1: must be an integer, at least 0"),
        ({"every": True}, "every = True"),
        ({"every": 1.5}, "every = 1.5"),
        ({"every": None}, "every = None"),
        ({"start": "0"}, "start = '0'"),
        ({"start": 5, "stop": 5}, "stop = 5: must be greater than start = 5"),
        ({"steps": 3}, "steps = 3: must be a list"),
        ({"steps": [1, -2]}, "steps: -2 is not an integer"),
        ({"modes": ["trian"]}, "modes: invalid value 'trian'; did you mean train"),
        ({"modes": "train"}, "modes = 'train': must be a list"),
        ({"reductions": ["median"]}, "reductions: unknown reduction 'median'"),
        ({"reductions": [2]}, "reductions: unknown reduction 2"),
        ({"tensor": "yes"}, "tensor = 'yes': must be true or false"),
        ({"modes": ["nonsense"]}, "modes: invalid value 'nonsense'; .*: train, eval, predict"),
        ({"when": 3}, "when = 3: must be a function of step and mode"),
        ({"regx": "a"}, "regx: no such key; did you mean regex"),
        ({"evry": 3}, "evry: no such key; did you mean every"),
    ],
)
def test_what_is_wrong_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SaveConfig.from_json(arguments)


def early_evaluations(step: int, mode: str) -> bool:
    return mode == "eval" and step < 3


class OnSundays:
    """A predicate that is not a function."""

    def __call__(self, step: int, mode: str) -> bool | None:
        return None if step % 7 else True


def test_a_predicate_is_an_additional_condition() -> None:
    save = SaveConfig(every=2, steps=(7,), when=early_evaluations)
    assert due_steps(save, "eval") == [0, 1, 2, 7]
    assert due_steps(save, "train") == [7]
    assert due_steps(SaveConfig(every=1, when=OnSundays())) == [0, 7]
    assert isinstance(save.due(0, "eval"), bool)


def test_a_predicate_of_a_record_selects_no_steps() -> None:
    save = SaveConfig(every=1, steps=(7,), when="training.is_interesting")
    assert due_steps(save) == [7]
    assert SaveConfig.from_json(save.to_json()) == save


def test_a_predicate_is_recorded_by_its_name() -> None:
    document = SaveConfig(when=early_evaluations, steps=(7,), modes=("eval",)).to_json()
    assert document == {
        "every": 100,
        "start": 0,
        "stop": None,
        "steps": [7],
        "modes": ["eval"],
        "reductions": [],
        "tensor": None,
        "rows": None,
        "when": f"{__name__}.early_evaluations",
    }
    assert SaveConfig(when=OnSundays()).to_json()["when"] == f"{__name__}.OnSundays"
    method = SaveConfig(when=OnSundays().__call__).to_json()["when"]
    assert method == f"{__name__}.OnSundays.__call__"
    partly = functools.partial(early_evaluations, mode="eval")
    assert SaveConfig(when=partly).to_json()["when"] == "functools.partial"


def test_a_guarded_predicate_replaces_its_own() -> None:
    asked: list[str] = []

    def guard(what: str, predicate: Predicate) -> Predicate:
        asked.append(what)
        return lambda step, mode: not predicate(step, mode)

    save = SaveConfig(every=1, tensor=True, when=early_evaluations)
    guarded = save.guarded(guard)
    assert asked == [f"the predicate {__name__}.early_evaluations"]
    assert due_steps(guarded, "eval") == list(range(3, 12))
    assert (guarded.every, guarded.tensor) == (1, True)
    for other in (SaveConfig(every=3), SaveConfig(when="training.is_interesting")):
        assert other.guarded(guard) is other


STEPS = st.integers(0, 40)


@pytest.mark.thorough
@given(STEPS, STEPS, st.none() | STEPS, st.lists(STEPS, max_size=3), STEPS)
def test_json_round_trip_and_definition(
    every: int, start: int, length: int | None, steps: list[int], step: int
) -> None:
    stop = None if length is None else start + length + 1
    save = SaveConfig(every=every, start=start, stop=stop, steps=tuple(steps))
    assert SaveConfig.from_json(save.to_json()) == save
    regular = set(range(start, 41 if stop is None else stop, every)) if every else set()
    assert save.due(step, "train") == (step in regular | set(steps))
