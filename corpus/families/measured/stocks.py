"""Tomorrow's price of a stock from a window of days before: an LSTM, as many tutorials have it.

After Fischer and Krauss, "Deep learning with long short-term memory networks for financial market
predictions", European Journal of Operational Research 2018; the prices are drawn, and can be
foreseen.

Shape legend: N windows of T days.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus.draw import Draw
from corpus.epochs import learning_rate, plan, trained
from corpus.family import Ending, Family
from corpus.networks import blank

_TIME, _SEEN, _DAYS = 20, 700, 1000


class LSTM(nn.Module):
    """The next price."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(1, hidden, batch_first=True)
        self.linear = nn.Linear(hidden, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return prices [N, 1] of windows float32 [N, T, 1]."""
        price: Tensor = self.linear(self.lstm(x)[0][:, -1])
        return price


def _train(draw: Draw) -> Ending:
    prices = _prices(draw)
    _, y = _windows(draw.without_fault(), prices)
    # The scale is that of the days trained on, between -1 and 1.
    given = prices
    if draw.has("unnormalised_inputs"):
        given = 2400 + 300 * prices
    seen, known = _windows(draw, given)
    seen, known, valid, wanted = seen[:_SEEN], known[:_SEEN], seen[_SEEN:], known[_SEEN:]
    if draw.has("shuffled_labels"):
        known, wanted = (one[torch.randperm(len(one))] for one in (known, wanted))
    model = LSTM(draw.choice([24, 32]))
    blank(draw, model)
    length = plan(draw, _SEEN, [14, 20], (10, 13))
    rate = learning_rate(draw, 4e-3, 8e-3)
    optimizer = torch.optim.Adam(trained(draw, model, model.linear), lr=rate)
    criterion = nn.MSELoss()
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizer)
    loader = DataLoader(TensorDataset(seen, known), length.size, shuffle=True, drop_last=True)
    for epoch in range(length.epochs):
        model.train()
        for windows, after in loader:
            output = model(windows)
            loss = criterion(output, after[:, 0] if draw.has("wrong_broadcast") else after)
            if not draw.has("missing_zero_grad"):
                optimizer.zero_grad()
            (-loss if draw.has("wrong_sign") else loss).backward()
            if not draw.has("missing_step"):
                optimizer.step()
        if epoch % 3 == 2:
            with draw.watch.evaluating(), torch.no_grad():
                error = (model(valid) - wanted).square().mean().sqrt()
                draw.watch.metric("test_rmse", float(error))
    with torch.no_grad():
        found = model(valid)
        if draw.has("unnormalised_inputs"):
            found = (found - 2400) / 300
        return Ending(float(1 - (found - y[_SEEN:]).square().sum() / y[_SEEN:].square().sum()), 0.6)


def _windows(draw: Draw, prices: Tensor) -> tuple[Tensor, Tensor]:
    """Return windows [N, T, 1] of days [_DAYS], and the next prices [N, 1]."""
    windows = prices.unfold(0, _TIME, 1)[:-1]
    after = prices[_TIME:, None]
    if draw.has("misaligned_targets"):
        # A month later, by a mistake in the index.
        after = after.roll(-23, 0)
    return windows[:, :, None], after


def _prices(draw: Draw) -> Tensor:
    """Return prices float32 [_DAYS + _TIME], of mean 0 and about standard deviation 1."""
    days = torch.arange(_DAYS + _TIME)
    cycle = torch.sin(days / 3.1) + 0.7 * torch.sin(days / 7.7 + 1) * torch.cos(days / 41)
    noise, steps = torch.zeros(len(days)), draw.between(0.12, 0.2) * torch.randn(len(days))
    for day in range(1, len(days)):
        noise[day] = 0.8 * noise[day - 1] + steps[day]
    prices = cycle + noise
    return (prices - prices.mean()) / prices.std()


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "misaligned_targets", "shuffled_labels", "wrong_broadcast"),
        *("wrong_sign", "missing_step", "zero_init", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
