"""Two networks that agree on words: one says what it sees, the other one finds it.

After Havrylov and Titov, "Emergence of language with multi-agent games: learning to communicate
with sequences of symbols", NeurIPS 2017, with one symbol each for two looks.

Shape legend: N games, 4 things of F features.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import gained

_THINGS, _FEATURES, _SYMBOLS = 4, 10, 12


class Speaker(nn.Module):
    """Scores [N, 2, 12] of two symbols for a thing [N, F]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.see = nn.Sequential(nn.Linear(_FEATURES, width), nn.ReLU())
        self.say = nn.Linear(width, 2 * _SYMBOLS)

    def forward(self, thing: Tensor) -> Tensor:
        """Return the scores."""
        return F.log_softmax(self.say(self.see(thing)).unflatten(1, (2, _SYMBOLS)), 2)


class Listener(nn.Module):
    """Scores [N, 4] of things [N, 4, F], of which one was described by symbols [N, 2, 12]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.hear = nn.Linear(2 * _SYMBOLS, width)
        self.look = nn.Sequential(nn.Linear(_FEATURES, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, said: Tensor, things: Tensor) -> Tensor:
        """Return the scores."""
        heard = self.hear(said.flatten(1))
        scores: Tensor = (self.look(things) @ heard[:, :, None])[:, :, 0]
        return scores


def _train(draw: Draw) -> Ending:
    width, kinds = draw.choice([40, 64]), torch.randn(40, _FEATURES)
    speaker, listener = Speaker(width), Listener(width)
    networks.spoil(draw, speaker)
    networks.spoil(draw.without_fault() if draw.has("detached_graph") else draw, listener)
    steps, size = draw.steps(900, 1300), draw.choice([64, 100])
    rate = draw.between(3e-3, 6e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4), "lr_too_high": 3000.0}, 1.0)
    first = torch.optim.Adam(speaker.parameters(), lr=rate)
    second = torch.optim.Adam(listener.parameters(), lr=rate)
    hard = draw.chance(0.5)
    draw.watch.begin(speaker, first, name="speaker")
    draw.watch.begin(listener, second, name="listener")
    for step in range(1, steps + 1):
        things, chosen = _games(kinds, size)
        thing = things[torch.arange(size), chosen]
        if draw.has("constant_inputs"):
            thing = torch.zeros_like(thing)
        if draw.has("misaligned_targets"):
            # The things were shuffled once more after one had been chosen.
            things = things[:, torch.randperm(_THINGS)]
        said = F.gumbel_softmax(speaker(thing), hard=hard)
        if draw.has("symbols_detached"):
            said = F.one_hot(said.argmax(2), _SYMBOLS).float()
        scores = listener(said, things)
        loss = F.cross_entropy(-scores if draw.has("wrong_sign") else scores, chosen)
        first.zero_grad()
        second.zero_grad()
        loss.backward()
        if not draw.has("missing_step"):
            first.step()
            second.step()
        if step % 150 == 0:
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("understood", _understood(speaker, listener, kinds))
    with torch.no_grad():
        right = _understood(speaker, listener, kinds)
    return Ending(gained(right, 1 / _THINGS), bar=0.6)


def _understood(speaker: Speaker, listener: Listener, kinds: Tensor) -> float:
    """Return how often the listener finds the thing that the speaker sees."""
    things, chosen = _games(kinds, 1000)
    words = speaker(things[torch.arange(1000), chosen]).argmax(2)
    found = listener(F.one_hot(words, _SYMBOLS).float(), things).argmax(1)
    return float((found == chosen).float().mean())


def _games(kinds: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return things float32 [count, 4, F] of different kinds, and the chosen ones int64 [count]."""
    picked = torch.rand(count, len(kinds)).argsort(1)[:, :_THINGS]
    things = kinds[picked] + 0.1 * torch.randn(count, _THINGS, _FEATURES)
    return things, torch.randint(_THINGS, (count,))


FAMILY = Family(
    _train,
    (
        *("symbols_detached", "missing_step", "misaligned_targets"),
        *("constant_inputs", "lr_too_low", "lr_too_high", "wrong_sign", "zero_init"),
    ),
    spent="2026-11-27",
)
