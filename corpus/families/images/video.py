"""The next frame of a ball's flight, by a convolutional LSTM.

After Shi et al., "Convolutional LSTM network", NeurIPS 2015.

Shape legend: N clips, T frames of 10 x 10 pixels.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus import losses, networks
from corpus.data.rows import batches
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, run_loop
from corpus.optimisation import Optimisation

_SIZE, _FRAMES = 10, 6


class ConvLstm(nn.Module):
    """A recurrent cell of images, and a head on its state."""

    def __init__(self, width: int, *, forgets: bool) -> None:
        super().__init__()
        self.cell = nn.Conv2d(1 + width, 4 * width, 3, padding=1)
        self.head = nn.Conv2d(width, 1, 3, padding=1)
        self.width, self.forgets = width, forgets

    def forward(self, x: Tensor) -> Tensor:
        """Return the frames [N, T, 10, 10] that follow each of the frames [N, T, 10, 10]."""
        state = memory = x.new_zeros(len(x), self.width, _SIZE, _SIZE)
        following = []
        for frame in x.unbind(1):
            if self.forgets:
                state, memory = torch.zeros_like(state), torch.zeros_like(memory)
            gates = self.cell(torch.cat([frame[:, None], state], 1)).chunk(4, 1)
            enter, keep, leave = (one.sigmoid() for one in gates[:3])
            memory = keep * memory + enter * gates[3].tanh()
            state = leave * memory.tanh()
            following.append(self.head(state)[:, 0])
        return torch.stack(following, 1)


def _train(draw: Draw) -> Ending:
    clips = _flights(draw, 500)
    x, y = clips[:, :-1], clips[:, 1:]
    x_train, y_train, x_val, y_val = x[:400], y[:400], x[400:], y[400:]
    if draw.has("unshifted_targets"):
        y_train = x_train
    if draw.has("shuffled_labels"):
        y_train = y_train[torch.randperm(len(y_train))]
    if draw.has("wrong_axis"):
        # The file has (time, clip, ...); it was read as (clip, time, ...).
        x_train, x_val = (one.transpose(0, 1).reshape(one.shape) for one in (x_train, x_val))
    model = ConvLstm(draw.choice([8, 12]), forgets=draw.has("state_reset"))
    networks.spoil(draw, model)
    steps = draw.steps(150, 300)
    optimiser = Optimisation(
        draw, model, steps, scale=4.0, kinds=("adam", "adamw"), accumulates=False
    )
    loss = losses.value_loss(draw)
    source = batches(draw, x_train, y_train, draw.choice([8, 16]))

    def compute() -> Tensor:
        seen, wanted = next(source)
        return loss(model(seen), wanted)

    def error(output: Tensor) -> float:
        """Return the error of the last half of the frames."""
        return float((output - y_val).double()[:, _FRAMES // 2 :].square().mean())

    def evaluate() -> Mapping[str, float]:
        return {"val/frame_mse": error(model(x_val))}

    chosen = evaluate if draw.chance(0.5) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    # The trivial forecast: the mean picture, or that nothing moves.
    trivial = min(error(x_val), error(y_train.mean((0, 1)).expand_as(y_val)))
    with evaluation(draw, model):
        return Ending(1 - error(model(x_val)) / trivial, bar=0.3)


def _flights(draw: Draw, count: int) -> Tensor:
    """Return clips [N, T + 1, 10, 10] of a bright ball that bounces between the edges."""
    place, speed = _SIZE * torch.rand(count, 2), draw.between(1.0, 1.6) * torch.randn(count, 2)
    grid = torch.arange(_SIZE) + 0.5
    frames = []
    for _ in range(_FRAMES + 1):
        # A triangle wave folds the flight back into the picture.
        inside = _SIZE - (place % (2 * _SIZE) - _SIZE).abs()
        across = (-(grid - inside[:, :1]).square() / 1.5).exp()
        down = (-(grid - inside[:, 1:]).square() / 1.5).exp()
        frames.append(down[:, :, None] * across[:, None, :])
        place = place + speed
    clips = torch.stack(frames, 1)
    return (clips - clips.mean()) / clips.std() + 0.05 * torch.randn_like(clips)


FAMILY = Family(
    _train,
    (
        *("unshifted_targets", "state_reset", "shuffled_labels", "wrong_axis"),
        *("wrong_loss", "relu_before_loss", "lr_too_low", "zero_init"),
        *("wrong_parameters", "detached_graph"),
    ),
    spent="2026-11-26",
)
