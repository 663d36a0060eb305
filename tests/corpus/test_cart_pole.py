"""Carts with poles, against the equations of motion written out once more."""

from __future__ import annotations

import math

import pytest
import torch

from corpus.data.cart_pole import CartPole, balanced


def test_a_push_moves_the_cart_as_its_equations_say() -> None:
    world = CartPole(3, 100, seed=0)
    before = world.state
    after, ended = world.step(torch.tensor([0, 1, 1]))
    assert not ended.any()
    for cart, move in enumerate((0, 1, 1)):
        place, speed, angle, turn = before[cart].tolist()
        force = 10.0 if move else -10.0
        # Equations 1 and 2 of Florian, "Correct equations for the dynamics of the cart-pole
        # system" (2005), without friction: masses 1 and 0.1 kg, half a length of 0.5 m.
        sin, cos = math.sin(angle), math.cos(angle)
        inside = (-force - 0.1 * 0.5 * turn**2 * sin) / 1.1
        spin = (9.8 * sin + cos * inside) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        faster = (force + 0.1 * 0.5 * (turn**2 * sin - spin * cos)) / 1.1
        wanted = [place + 0.02 * speed, speed + 0.02 * faster, angle + 0.02 * turn]
        assert after[cart].tolist() == pytest.approx([*wanted, turn + 0.02 * spin], abs=1e-5)


def test_a_pole_falls_under_pushes_to_one_side_and_stands_if_they_follow_it() -> None:
    def follow(state: torch.Tensor) -> torch.Tensor:
        return (state[:, 2] + 0.3 * state[:, 3] > 0).long()

    assert balanced(CartPole(10, 150, 1), lambda state: torch.ones(len(state)).long()) < 12
    assert balanced(CartPole(10, 150, 1), follow) == 150, "an episode ends after 150 moves"
