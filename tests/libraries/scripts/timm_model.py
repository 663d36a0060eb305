"""An image model of timm, with its optimizer, schedule and loss."""

from __future__ import annotations

import timm
import torch
from timm.loss import LabelSmoothingCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler

from tests.libraries.scripts.printed import printed

STEPS = 60


def main() -> None:
    torch.manual_seed(0)
    model = timm.create_model("resnet10t", pretrained=False, num_classes=4, in_chans=1)
    labels = torch.arange(256) % 4
    images = torch.rand(4, 1, 32, 32)[labels] + 0.3 * torch.randn(256, 1, 32, 32)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3)
    schedule = CosineLRScheduler(optimizer, t_initial=STEPS, warmup_t=5, warmup_lr_init=1e-5)
    loss_fn = LabelSmoothingCrossEntropy(0.1)
    losses = []
    for step in range(STEPS):
        chosen = torch.randperm(256)[:16]
        loss = loss_fn(model(images[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step_update(step)
        schedule.step(step)
        losses.append(loss.item())
    torch.save(model.state_dict(), "saved.pt")
    printed(model, losses, "saved.pt")


if __name__ == "__main__":
    main()
