"""Pairs of trainings: registered with known classes, and the same for the same seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.faults.classes import CLASSES
from benchmarks.world import families, sealed
from benchmarks.world.cases import draw_cases, only
from benchmarks.world.families import FAMILIES
from benchmarks.world.sealed import FAMILIES as SEALED
from vinedresser.errors import ConfigError
from vinedresser.rules.faults import FAULTS


def test_every_module_is_a_family_whose_faults_have_a_class() -> None:
    for package, registered in ((families, FAMILIES), (sealed, SEALED)):
        modules = {path.stem for path in Path(package.__path__[0]).glob("*.py")}
        assert modules - {"__init__"} == set(registered)
    assert not set(FAMILIES) & set(SEALED)
    for name, family in {**FAMILIES, **SEALED}.items():
        assert len(set(family.faults)) == len(family.faults), name
        assert set(family.faults) <= {*CLASSES, *FAULTS}, name


def test_faults_are_drawn_in_turn_and_every_family_is_used() -> None:
    choices = only(FAMILIES, [])
    faults = {fault for _, fault in choices}
    cases = draw_cases(choices, 2 * len(faults), seed=1)
    assert cases == draw_cases(choices, 2 * len(faults), seed=1)
    assert len({case.id for case in cases}) == 4 * len(faults)
    assert [case.fault for case in cases[::2]].count("lr_too_high") == 2
    assert {case.family for case in cases} == set(FAMILIES)


def test_sealed_families_have_other_kinds_of_models_but_known_faults() -> None:
    assert len(SEALED) >= 10
    seen = {fault for family in FAMILIES.values() for fault in family.faults}
    for name, family in SEALED.items():
        assert len(family.faults) >= 6, name
        assert set(family.faults) & seen, name
    assert {fault for family in SEALED.values() for fault in family.faults} - seen


def test_twins_share_all_choices_and_pairs_share_none() -> None:
    healthy, faulty, other, _ = draw_cases({("plateaus", "zero_init")}, 2, seed=0)
    assert (healthy.faulty, faulty.faulty, healthy.twin) == (False, True, faulty)
    assert healthy.random_seed == faulty.random_seed != other.random_seed


def test_a_choice_of_nothing_is_an_error() -> None:
    assert only(FAMILIES, ["plateaus/zero_init"]) == {("plateaus", "zero_init")}
    with pytest.raises(ConfigError, match="plateau"):
        only(FAMILIES, ["plateau"])
