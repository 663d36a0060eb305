"""A loop with accelerate that sums the gradients of two batches."""

from __future__ import annotations

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader

from tests.libraries.scripts.printed import printed
from tests.libraries.scripts.tokens import Sequences


def main() -> None:
    set_seed(0)
    model = nn.Sequential(
        nn.Embedding(40, 16), nn.Flatten(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 3)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loader = DataLoader(Sequences(512, 1), batch_size=16, shuffle=True)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for _ in range(4):
        for batch in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(batch["input_ids"]), batch["labels"])
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            losses.append(loss.item())
    accelerator.save_model(model, "saved")
    printed(accelerator.unwrap_model(model), losses, "saved/model.safetensors")


if __name__ == "__main__":
    main()
