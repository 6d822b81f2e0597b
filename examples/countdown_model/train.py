"""Train the embedded model on a CPU or GPU and write it as a LLaDA checkpoint.

python examples/countdown_model/train.py --output adapters/dise_adapters/families/countdown

README.md has the two commands that made the model that ships.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import tokenizer as countdown_tokenizer
import torch
from problems import Problem, draw_problem, solution, written
from safetensors.torch import load_file, save_file
from tokenizer import ASSISTANT, END, MASK, SPECIAL, USER, VOCABULARY
from torch import Tensor
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

CONFIG = {
    "architectures": ["LLaDAModelLM"],
    "model_type": "llada",
    "block_type": "llama",
    "activation_type": "silu",
    "layer_norm_type": "rms",
    "d_model": 192,
    "n_layers": 4,
    "n_heads": 6,
    "n_kv_heads": 6,
    "mlp_hidden_size": 512,
    "vocab_size": len(VOCABULARY),
    "embedding_size": 32,
    "max_sequence_length": 512,
    "rope": True,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5,
    "weight_tying": False,
    "include_bias": False,
    "include_qkv_bias": False,
    "alibi": False,
    "attention_layer_norm": False,
    "scale_logits": False,
    "input_emb_norm": False,
    "mask_token_id": VOCABULARY[MASK],
    "eos_token_id": VOCABULARY[END],
    "pad_token_id": VOCABULARY[END],
    "torch_dtype": "bfloat16",
}

WIDTHS = "48:12,64:5,144:1"
"""Tokens in a row, and how often a batch is that wide. End tokens fill a row, as in LLaDA's
fine-tuning.
"""

FINISHED_WEIGHT = 1.0
"""How much a token of a finished text counts beside the tokens of a masked one, whose expected
weight is 1.
"""

TOKENIZER = countdown_tokenizer.build()

NUM_NUMBERS = {2: 1, 3: 26, 4: 3}
"""Numbers in a problem, and how often one is drawn. A text that is longer than its row is drawn
again, so that four numbers and bracketed products appear in the wider rows only.
"""

BLOCK_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ff_norm",
    "self_attn.q_proj": "q_proj",
    "self_attn.k_proj": "k_proj",
    "self_attn.v_proj": "v_proj",
    "self_attn.o_proj": "attn_out",
    "mlp.gate_proj": "ff_proj",
    "mlp.up_proj": "up_proj",
    "mlp.down_proj": "ff_out",
}
"""Llama's names within a layer and LLaDA's."""


def build_model() -> LlamaForCausalLM:
    """Return a bidirectional Llama of CONFIG's shape with random weights."""
    config = LlamaConfig(
        hidden_size=CONFIG["d_model"],
        num_hidden_layers=CONFIG["n_layers"],
        num_attention_heads=CONFIG["n_heads"],
        num_key_value_heads=CONFIG["n_kv_heads"],
        intermediate_size=CONFIG["mlp_hidden_size"],
        vocab_size=CONFIG["embedding_size"],
        max_position_embeddings=CONFIG["max_sequence_length"],
        rope_parameters={"rope_type": "default", "rope_theta": CONFIG["rope_theta"]},
        rms_norm_eps=CONFIG["rms_norm_eps"],
        tie_word_embeddings=False,
        is_causal=False,
        use_cache=False,
    )
    return LlamaForCausalLM(config)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows to learn from: true ids [B, W], which of them are the response (with its end tokens),
    and what is shown.

    `shown` differs from `ids` in the last rows only, the finished texts with mistakes, whose number
    is `num_finished`.
    """

    ids: Tensor
    is_response: Tensor
    shown: Tensor
    num_finished: int


def draw_batch(random: Random, size: int, widths: dict[int, int], num_finished: int) -> Batch:
    """Return a batch of `size` rows of one width."""
    width = random.choices(list(widths), widths.values())[0]
    ids = torch.full((size, width), VOCABULARY[END])
    is_response = torch.ones(size, width, dtype=torch.bool)
    shown = ids.clone()
    row = 0
    while row < size:
        problem = draw_problem(random, random.choices(list(NUM_NUMBERS), NUM_NUMBERS.values())[0])
        prompt, response = (
            tokens(f"{USER}{problem.prompt}{ASSISTANT}"),
            tokens(str(solution(problem))),
        )
        if len(prompt) + len(response) <= width:
            end = len(prompt) + len(response)
            ids[row, :end] = torch.tensor(prompt + response)
            is_response[row, : len(prompt)] = False
            shown[row] = ids[row]
            if row >= size - num_finished:
                shown[row, len(prompt) : end] = torch.tensor(
                    with_mistakes(random, problem, response)
                )
            row += 1
    return Batch(ids, is_response, shown, num_finished)


def with_mistakes(random: Random, problem: Problem, response: list[int]) -> list[int]:
    """Return a response of the same length: as it is, with random tokens, or the answer to a
    problem that was misread.
    """
    kind = random.choice(("right", "random", "random", "misread"))
    if kind == "misread":
        for _ in range(20):
            other = tokens(misread(random, problem))
            if len(other) == len(response) and other != response:
                return other
    if kind == "right":
        return response
    rate = random.uniform(0, 0.3)
    return [another(random, token) if random.random() < rate else token for token in response]


def another(random: Random, token: int) -> int:
    """Return a random token: a digit for a digit, else any that is not special."""
    return random.randrange(10) if token < 10 else random.randrange(len(VOCABULARY) - len(SPECIAL))


def misread(random: Random, problem: Problem) -> str:
    """Return an answer with one digit misread or other signs: consistent in itself, and not what
    was asked.
    """
    numbers = list(problem.numbers)
    random.shuffle(numbers)
    if random.random() < 0.5:
        place = random.randrange(len(numbers))
        digits = list(str(numbers[place]))
        digits[random.randrange(len(digits))] = str(random.randrange(10))
        numbers[place] = int("".join(digits))
    signs = sorted(random.choices("+-", k=len(numbers) - 1))
    return written(numbers, signs)


def tokens(text: str) -> list[int]:
    """Return the ids of a text."""
    ids: list[int] = TOKENIZER.encode(text).ids
    return ids


def loss_of(model: LlamaForCausalLM, batch: Batch, device: str) -> Tensor:
    """Return LLaDA's fine-tuning loss: response tokens masked with probability t, cross-entropy
    weighted by 1/t.

    t is uniform; a batch takes evenly spaced values with one random offset, which lowers the
    variance. In the finished texts nothing is masked and each response token has the weight
    FINISHED_WEIGHT: what should stand here, given a text that may be wrong?
    """
    size, is_response = len(batch.ids), batch.is_response.to(device)
    is_finished = torch.arange(size, device=device)[:, None] >= size - batch.num_finished
    t = (
        ((torch.arange(size) + torch.rand(1)) / size)[torch.randperm(size), None]
        .clamp(min=1e-3)
        .to(device)
    )
    is_masked = (torch.rand(is_response.shape, device=device) < t) & is_response & ~is_finished
    weights = torch.where(is_finished, FINISHED_WEIGHT * is_response, is_masked / t)
    ids = batch.ids.to(device)
    with torch.autocast(device, dtype=torch.bfloat16):
        logits = model(
            torch.where(is_masked, CONFIG["mask_token_id"], batch.shown.to(device))
        ).logits
    losses = functional.cross_entropy(
        logits.float().flatten(0, 1), ids.flatten(), reduction="none"
    ).view_as(ids)
    return (losses * weights / is_response.sum(1, keepdim=True)).sum() / size


def make_optimizers(model: LlamaForCausalLM) -> list[torch.optim.Optimizer]:
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


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run is made of. `peak` is the share of the full learning rate that it climbs to."""

    num_steps: int
    batch_size: int
    peak: float
    widths: dict[int, int]
    num_finished: int
    seed: int
    device: str


def train(model: LlamaForCausalLM, settings: Settings) -> Iterator[tuple[int, float]]:
    """Train the model in place; yield (step, mean loss since the last) every 50 steps and at the
    end.
    """
    random = Random(settings.seed)
    compiled = torch.compile(model, dynamic=False)
    optimizers = make_optimizers(model)
    schedulers = [
        torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: settings.peak * learning_rate_factor(step, settings.num_steps)
        )
        for optimizer in optimizers
    ]
    losses: list[float] = []
    for step in range(1, settings.num_steps + 1):
        batch = draw_batch(random, settings.batch_size, settings.widths, settings.num_finished)
        loss = loss_of(compiled, batch, settings.device)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, scheduler in zip(optimizers, schedulers, strict=True):
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            scheduler.step()
        losses.append(loss.item())
        if step % 50 == 0 or step == settings.num_steps:
            yield step, sum(losses) / len(losses)
            losses.clear()


def named_weights(model: LlamaForCausalLM) -> dict[str, Tensor]:
    """Return the model's parameters by LLaDA's official names."""
    weights = {
        "model.transformer.wte.weight": model.model.embed_tokens.weight,
        "model.transformer.ln_f.weight": model.model.norm.weight,
        "model.transformer.ff_out.weight": model.lm_head.weight,
    }
    for index, layer in enumerate(model.model.layers):
        for ours, official in BLOCK_NAMES.items():
            weights[f"model.transformer.blocks.{index}.{official}.weight"] = layer.get_submodule(
                ours
            ).weight
    return weights


@torch.no_grad()
def load(model: LlamaForCausalLM, folder: Path) -> None:
    """Set the model's weights to those of a checkpoint."""
    stored = load_file(folder / "model.safetensors")
    for name, weight in named_weights(model).items():
        weight.copy_(stored[name])


def save(model: LlamaForCausalLM, folder: Path) -> None:
    """Write the model in LLaDA's checkpoint format: bfloat16, official weight names."""
    rounded = {
        name: weight.detach().to("cpu", torch.bfloat16).contiguous()
        for name, weight in named_weights(model).items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_file(rounded, folder / "model.safetensors.part", metadata={"format": "pt"})
    os.replace(folder / "model.safetensors.part", folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    countdown_tokenizer.save(folder)


def main() -> None:
    """Train, log a JSON line every 50 steps, and save every 250 steps and at the end."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument(
        "--start", type=Path, help="a checkpoint to go on from, instead of random weights"
    )
    parser.add_argument("--log", type=Path, default=Path("train_log.jsonl"))
    parser.add_argument("--steps", type=int, default=4500)
    parser.add_argument("--peak", type=float, default=1.0, help="share of the full learning rate")
    parser.add_argument(
        "--widths", default=WIDTHS, help="tokens in a row, and how often a batch is that wide"
    )
    parser.add_argument(
        "--finished",
        type=int,
        default=0,
        help="rows of a batch that are finished texts with mistakes",
    )
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    widths = {
        int(width): int(weight)
        for width, weight in (pair.split(":") for pair in args.widths.split(","))
    }
    settings = Settings(
        args.steps, args.batch_size, args.peak, widths, args.finished, args.seed, args.device
    )
    torch.manual_seed(args.seed)
    model = build_model()
    if args.start is not None:
        load(model, args.start)
    model.to(args.device)
    started = time.perf_counter()
    with args.log.open("w") as log:
        for step, loss in train(model, settings):
            record = {
                "step": step,
                "loss": round(loss, 4),
                "seconds": round(time.perf_counter() - started),
            }
            print(json.dumps(record), file=log, flush=True)
            print(json.dumps(record), flush=True)
            if step % 250 == 0 or step == args.steps:
                save(model, args.output)


if __name__ == "__main__":
    main()
