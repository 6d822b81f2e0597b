"""What both trainings share: the optimizers, the learning rate, the loop and the files."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Protocol

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

from . import chat


class Subject(Protocol):
    """What a model is to learn: the module texts.py of a folder."""

    TOKENIZER: Tokenizer
    WIDTHS: dict[int, int]

    def draw_text(
        self, random: Random, mistaken: bool = False
    ) -> tuple[list[int], list[int], list[int]]:
        """Return the ids of a prompt, of its answer, and of what is shown in the answer's place:
        the same, or if `mistaken` perhaps one with mistakes, of the same length.
        """
        ...


def arguments(about: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that both trainings have."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--log", type=Path, default=Path("train_log.jsonl"))
    parser.add_argument("--steps", type=int, default=4500)
    parser.add_argument("--peak", type=float, default=1.0, help="share of the full learning rate")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    return parser


def make_optimizers(model: torch.nn.Module) -> list[torch.optim.Optimizer]:
    """Return Muon for the layers' matrices and AdamW for embeddings, head and norms."""
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and ".layers." in name]
    others = [p for name, p in model.named_parameters() if p.ndim != 2 or ".layers." not in name]
    muon = torch.optim.Muon(matrices, lr=0.02, weight_decay=0.0)
    return [muon, torch.optim.AdamW(others, lr=3e-3, weight_decay=0.0)]


def learning_rate_factor(step: int, num_steps: int) -> float:
    """Return the share of the peak rate: 50 steps up, then the peak, then straight down to 0 over
    the last 70 %.
    """
    return min(1.0, (step + 1) / 50, (num_steps - step) / (0.7 * num_steps))


def train(
    model: torch.nn.Module,
    next_loss: Callable[[torch.nn.Module], Tensor],
    num_steps: int,
    peak: float,
) -> Iterator[tuple[int, float]]:
    """Train the model in place on one loss a step; yield (step, mean loss since the last) every 50
    steps and at the end. `peak` is the share of the full learning rate that it climbs to.
    """
    compiled = torch.compile(model, dynamic=False)
    optimizers = make_optimizers(model)
    schedulers = [
        torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: peak * learning_rate_factor(step, num_steps)
        )
        for optimizer in optimizers
    ]
    losses: list[float] = []
    for step in range(1, num_steps + 1):
        loss = next_loss(compiled)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, scheduler in zip(optimizers, schedulers, strict=True):
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            scheduler.step()
        losses.append(loss.item())
        if step % 50 == 0 or step == num_steps:
            yield step, sum(losses) / len(losses)
            losses.clear()


def run(
    model: torch.nn.Module,
    next_loss: Callable[[torch.nn.Module], Tensor],
    save_model: Callable[[], None],
    args: argparse.Namespace,
) -> None:
    """Train, log a JSON line every 50 steps, and save every 250 steps and at the end."""
    model.to(args.device)
    started = time.perf_counter()
    with args.log.open("w") as log:
        for step, loss in train(model, next_loss, args.steps, args.peak):
            record = {
                "step": step,
                "loss": round(loss, 4),
                "seconds": round(time.perf_counter() - started),
                "processor_seconds": round(time.process_time()),
            }
            print(json.dumps(record), file=log, flush=True)
            print(json.dumps(record), flush=True)
            if step % 250 == 0 or step == args.steps:
                save_model()


def save(
    weights: dict[str, Tensor], config: dict[str, object], tokenizer: Tokenizer, folder: Path
) -> None:
    """Write a checkpoint: weights by their official names in bfloat16, config and tokenizer."""
    rounded = {
        name: weight.detach().to("cpu", torch.bfloat16).contiguous()
        for name, weight in weights.items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_file(rounded, folder / "model.safetensors.part", metadata={"format": "pt"})
    os.replace(folder / "model.safetensors.part", folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    chat.save(tokenizer, folder)
