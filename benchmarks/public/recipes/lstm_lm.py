"""A recurrent language model after PyTorch's example: its loop updates the weights itself."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.public.recipes.journal import Journal, steps
from corpus.data.bundled import characters

WIDTH, LAYERS, LENGTH, BATCH, CLIP = 192, 2, 20, 20, 0.25

State = tuple[Tensor, Tensor]


class LanguageModel(nn.Module):
    def __init__(self, alphabet: int) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.2)
        self.embedding = nn.Embedding(alphabet, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, LAYERS, dropout=0.2)
        self.decoder = nn.Linear(WIDTH, alphabet)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)

    def forward(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        output, state = self.lstm(self.dropout(self.embedding(ids)), state)
        logits = self.decoder(self.dropout(output))
        return logits.flatten(0, 1).log_softmax(1), state

    def start(self) -> State:
        return torch.zeros(LAYERS, BATCH, WIDTH), torch.zeros(LAYERS, BATCH, WIDTH)


def evaluate(model: LanguageModel, criterion: nn.Module, rows: Tensor) -> float:
    model.eval()
    state = model.start()
    losses: list[float] = []
    with torch.no_grad():
        for place in range(0, 10 * LENGTH, LENGTH):
            targets = rows[place + 1 : place + LENGTH + 1].flatten()
            output, state = model(rows[place : place + LENGTH], state)
            losses.append(criterion(output, targets).item())
    return sum(losses) / len(losses)


def main() -> None:
    torch.manual_seed(1111)
    text, alphabet = characters()
    rows = text[: len(text) // BATCH * BATCH].view(BATCH, -1).t().contiguous()
    model, criterion = LanguageModel(alphabet), nn.NLLLoss()
    rate, best = 5.0, float("inf")
    total, journal, state = steps(300), Journal(), model.start()
    for step in range(total):
        model.train()
        place = step * LENGTH
        model.zero_grad()
        state = state[0].detach(), state[1].detach()
        output, state = model(rows[place : place + LENGTH], state)
        loss = criterion(output, rows[place + 1 : place + LENGTH + 1].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        for weight in model.parameters():
            assert weight.grad is not None
            weight.data.add_(weight.grad, alpha=-rate)
        journal.step(loss=loss.item())
        if step % 100 == 99:
            found = evaluate(model, criterion, rows[-11 * LENGTH :])
            journal.evaluated(found)
            rate, best = (rate, found) if found < best else (rate / 4, best)
    journal.finish(model.state_dict().values())


if __name__ == "__main__":
    main()
