"""Scoring by a transformers module in memory, beside our own family on its weights.

python benchmarks/in_memory.py [--vocabulary 8192 126464] [--rounds 15]

Texts of 64 to 128 tokens, the last 32 of which are read, by a Qwen3 of Tiny-A2D with full
attention, random and small. Both take turns, and must give the same scores.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path

import numpy as np
from command import Parser, head, ratios, row, settled, spread, take_turns
from random_checkpoints import SHAPES, dense, write
from safetensors.torch import load_file
from transformers import Qwen3Config, Qwen3ForCausalLM

from dise_app.terminal.heap import keep_freed_memory
from dise_core import LLM, ScoringParams


def module_of(folder: Path) -> Qwen3ForCausalLM:
    """Return a checkpoint as a module of transformers, every token of which sees all."""
    fields = json.loads((folder / "config.json").read_text())
    del fields["architectures"], fields["model_type"]
    module = Qwen3ForCausalLM(Qwen3Config(**fields, is_causal=False)).float()
    for layer in module.model.layers:
        layer.self_attn.is_causal = False
    module.load_state_dict(load_file(next(folder.glob("*.safetensors"))))
    return module


def compare(folder: Path, vocabulary: int, rounds: int) -> None:
    """Time both ways and print a row of the table."""
    write(folder, dense(vocabulary, *SHAPES[1], is_a2d=True))
    own = LLM(folder, dtype="float32", block_size=0)
    held = settled(LLM.from_model(module_of(folder), own.predictor.tokenizer))
    random = np.random.default_rng(0)
    texts = [random.integers(0, vocabulary - 2, n).tolist() for n in random.integers(64, 129, 16)]
    parts = [ids[:-32] for ids in texts], [ids[-32:] for ids in texts]
    params = ScoringParams(selector="response", logprobs=None)

    def scores(llm: LLM) -> list[float]:
        return [answer.outputs[0].score.value for answer in llm.score(*parts, params)]

    times, results = take_turns({"own": lambda: scores(own), "held": lambda: scores(held)}, rounds)
    furthest = np.abs(np.subtract(results["own"], results["held"])).max()
    medians = [f"{statistics.median(seconds):.3f}" for seconds in times.values()]
    row(vocabulary, *medians, spread(ratios(times, "held", "own")), f"{furthest:.0e}")


def main() -> None:
    """Print a row for each vocabulary."""
    parser = Parser(__doc__)
    parser.add_argument("--vocabulary", type=int, nargs="*", default=[8192, 126464])
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.options(vocabulary=[512], rounds=1)
    keep_freed_memory()
    head("vocabulary", "own family, s", "from_model, s", "ratio, median (range)", "furthest, nats")
    for vocabulary in args.vocabulary:
        with tempfile.TemporaryDirectory() as folder:
            compare(Path(folder), vocabulary, args.rounds)


if __name__ == "__main__":
    main()
