"""The benchmark of public scripts runs its recipes, alone and watched."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.public import recipes
from benchmarks.public.__main__ import RECIPES, measure

# Modules that several recipes use.
SHARED = {"__init__", "cart", "data", "journal"}


def test_every_recipe_is_in_the_table() -> None:
    modules = {path.stem for path in Path(recipes.__file__).parent.glob("*.py")}
    assert modules - SHARED == set(RECIPES)


@pytest.mark.slow
def test_a_recipe_computes_the_same_and_its_losses_are_captured() -> None:
    name, equal, losses, *_ = measure("cnn", 1, 25)
    assert (name, equal, losses) == ("cnn", "yes", "100%")
