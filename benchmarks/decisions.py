"""Measure decisions: requests a second at 64 at once against one at a time, in one run.

python benchmarks/decisions.py [--requests 128] [--pairs 5] [--dtype float32] [--width 512]

Asks the embedded model five questions a request through the async engine, which batches whatever
waits together. Both ways answer the same requests; the ratio is the median over the pairs. Where
other programs share the processors, compare the processor's time, which is printed too. --width
asks a LLaDA of that width and 8 layers instead, with random weights.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import random_llada

import dise_adapters.embedded
from dise_app.cli.memory import keep_freed_memory, settled
from dise_core import AsyncLLM, ChoiceQuestion, DecisionOutput, DecisionParams

AT_ONCE, LAYERS = 64, 8
CLOZE = DecisionParams(layout="cloze", joint=True)
QUESTIONS = [
    ChoiceQuestion.model_validate({"instructions": text, "choices": ["+", "-", "*", "/"]})
    for text in ("8", ",5", ",3", ",10", ",7")
]


def given(number: int) -> str:
    """Return a problem; no two of a run are alike."""
    return f"{number % 100 + 1},{number % 37 + 1},{number % 11 + 1} -> {number % 90 + 1}"


@dataclass(frozen=True)
class Took:
    """Seconds that requests took, on the clock and on the processors."""

    wall: float
    processor: float


async def ask(llm: AsyncLLM, count: int, at_once: int) -> tuple[Took, list[DecisionOutput]]:
    """Ask `count` requests, at most `at_once` at a time; return what they took, and the answers."""
    gate = asyncio.Semaphore(at_once)

    async def one(number: int) -> DecisionOutput:
        async with gate:
            return await llm.decide(given(number), QUESTIONS, CLOZE)

    started, used = time.perf_counter(), time.process_time()
    answers = await asyncio.gather(*(one(number) for number in range(count)))
    took = Took(time.perf_counter() - started, time.process_time() - used)
    return took, list(answers)


def assert_same(some: list[DecisionOutput], others: list[DecisionOutput], tolerance: float) -> None:
    """Assert that both ways gave the same log-probabilities, in one pass a request."""
    for one, other in zip(some, others, strict=True):
        assert one.usage.nfe == other.usage.nfe == 1
        for mine, theirs in zip(one.answers, other.answers, strict=True):
            for a, b in zip(mine.diagnostics.logprobs, theirs.diagnostics.logprobs, strict=True):
                assert a is not None
                assert b is not None
                assert abs(a - b) < tolerance


async def measure(options: argparse.Namespace, model: str) -> None:
    """Print the requests a second of both ways, and their ratio."""
    count = options.requests
    keep_freed_memory()
    async with settled(AsyncLLM(model, dtype=options.dtype)) as llm:
        await ask(llm, AT_ONCE, AT_ONCE)  # warm up
        ratios, used = list[float](), list[float]()
        for _ in range(options.pairs):
            alone, some = await ask(llm, count, 1)
            together, others = await ask(llm, count, AT_ONCE)
            assert_same(some, others, 1e-3 if options.dtype == "float32" else 0.5)
            ratios.append(alone.wall / together.wall)
            used.append(alone.processor / together.processor)
            print(
                f"one at a time {count / alone.wall:7.1f} a second, {AT_ONCE} at once "
                f"{count / together.wall:7.1f} a second, ratio {ratios[-1]:.2f}; processor "
                f"{1000 * alone.processor / count:.2f} and {1000 * together.processor / count:.2f} "
                f"ms a request, ratio {used[-1]:.2f}",
                flush=True,
            )
        print(
            f"median ratio {statistics.median(ratios):.2f}, of the processor's time "
            f"{statistics.median(used):.2f}, over {options.pairs} pairs"
        )


def random_model(folder: Path, width: int) -> str:
    """Write a LLaDA of that width with random weights and the embedded model's tokenizer; return
    its folder.
    """
    embedded = Path(dise_adapters.embedded.__file__).parent / "countdown"
    its = json.loads((embedded / "config.json").read_text())
    random_llada.write(folder, its["embedding_size"], width, LAYERS, its["max_sequence_length"])
    for file in embedded.iterdir():
        if file.name not in ("config.json", "model.safetensors"):
            shutil.copy(file, folder)
    config = json.loads((folder / "config.json").read_text())
    names = ("vocab_size", "mask_token_id", "eos_token_id", "pad_token_id")
    text = json.dumps(config | {name: its[name] for name in names})
    (folder / "config.json").write_text(text)
    return str(folder)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2 * AT_ONCE)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--width", type=int, help="a multiple of 64")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        model = random_model(Path(folder), options.width) if options.width else "countdown"
        asyncio.run(measure(options, model))


if __name__ == "__main__":
    main()
