"""Pairs of trainings: registered with known classes, and the same for the same seed."""

from __future__ import annotations

import pytest

from benchmarks.world.cases import carried, draw_cases, every_case, only
from benchmarks.world.pairing import compatible, paired
from corpus.loader import load
from vinedresser.errors import ConfigError

FAMILIES, RECIPES, SEALED = load("families"), load("recipes"), load("sealed")


def test_faults_are_drawn_in_turn_and_every_family_is_used() -> None:
    choices = carried(FAMILIES)
    faults = {fault for _, fault in choices}
    cases = draw_cases(choices, 4 * len(faults), seed=1)
    assert cases == draw_cases(choices, 4 * len(faults), seed=1)
    assert len({case.id for case in cases}) == 8 * len(faults)
    assert [case.fault for case in cases[::2]].count("lr_too_high") == 4
    assert {case.family for case in cases} == set(FAMILIES)


def test_sealed_families_have_other_kinds_of_models_but_known_faults() -> None:
    assert len(SEALED) >= 20
    seen = {fault for family in FAMILIES.values() for fault in family.faults}
    for name, family in SEALED.items():
        assert len(family.faults) >= 6, name
        assert set(family.faults) & seen, name
    assert {fault for family in SEALED.values() for fault in family.faults} - seen


def test_every_recipe_is_trained_with_three_faults_of_its_own() -> None:
    cases = every_case(carried(RECIPES), seed=5)
    assert cases[1::2] == [case.twin for case in cases[::2]]
    assert len({case.id for case in cases}) == len(cases) == 6 * len(RECIPES)
    assert {(case.family, case.fault) for case in cases} == carried(RECIPES)
    assert {case.seed for case in cases} == {5}
    for name, family in RECIPES.items():
        assert len(family.faults) == 3, name


def test_twins_share_all_choices_and_pairs_share_none() -> None:
    healthy, faulty, other, _ = draw_cases({("plateaus", "zero_init")}, 2, seed=0)
    assert (healthy.faulty, faulty.faulty, healthy.twin) == (False, True, faulty)
    assert healthy.random_seed == faulty.random_seed != other.random_seed


def test_a_choice_of_nothing_is_an_error() -> None:
    assert only(carried(FAMILIES), ["plateaus/zero_init"]) == {("plateaus", "zero_init")}
    with pytest.raises(ConfigError, match="plateau"):
        only(carried(FAMILIES), ["plateau"])


def test_two_faults_go_together_only_if_neither_hides_the_other() -> None:
    assert compatible("off_by_one", "not_in_optimizer") is False
    assert compatible("off_by_one", "frozen_layers")
    assert compatible("single_label", "not_in_optimizer"), "the labels show it all the same"
    assert not compatible("lr_too_high", "lr_too_low"), "there is one learning rate"
    assert not compatible("lr_too_low", "zero_init"), "each hides the other"
    assert not compatible("collapse", "lr_too_high"), "a fault of one kind of training"
    every = {fault for family in [*FAMILIES.values(), *SEALED.values()] for fault in family.faults}
    for one in every:
        for other in every:
            assert compatible(one, other) == compatible(other, one)


def test_two_faults_are_drawn_from_families_in_turn() -> None:
    two = paired(carried(FAMILIES))
    # No two of their faults go together.
    with_two = set(FAMILIES) - {
        *("deliveries", "federated", "grains", "kalman", "keras_mushrooms", "keras_sensors"),
        *("keras_tickets", "keypoints", "lightning_prototypes", "logged_bandit", "meta_learning"),
        *("optical_flow", "point_process", "rotations", "signals", "steering", "triplets"),
    }
    assert {family for family, _ in two} == with_two
    cases = draw_cases(two, 2 * len(with_two), seed=3)
    families = [case.family for case in cases[::2]]
    assert all(families.count(name) == 2 for name in with_two)
    for case in cases:
        assert len(case.faults) == 2
        assert set(case.faults) <= set(FAMILIES[case.family].faults)
    assert only(two, ["plateaus/frozen_layers+zero_init"]) == {
        ("plateaus", "frozen_layers+zero_init")
    }
    # One of two faults is a pattern, too.
    assert ("digits_cnn", "bn_momentum+class_imbalance") in only(two, ["bn_momentum"])
