"""What a constraint adds to a denoising step: the same canvas written freely and under a schema of
20 fields, in turns.

python benchmarks/constrained_step.py [--size 100m] [--block-length 32]

The model has random weights and a vocabulary of 126,464 tokens, made up as in constraints.py. A
step's time is its median; `choosing` is the programme with its weights, on the CPU; `allowed` is
which tokens may stand at each mask; what is left of the difference is the larger readout.

The second table is the pass that scores the finished answer and reports on each token: plain, and
among the tokens that may stand in its place. `naive` finds them by trying each token of the
vocabulary at a position, byte by byte to the end of the text, as a test would: from one position.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from command import Parser, head, row
from constraints import EXPRESSIONS, Words
from random_checkpoints import RANDOM_100M, Size, write

from dise_core import LLM, SamplingParams
from dise_core.constraints.block import ValidBlock
from dise_core.constraints.tokens import TokenAutomaton
from dise_core.scoring.restricted import allowed_in
from dise_core.scoring.sequence_scorer import SequenceScorer
from dise_core.sequence import TokenSequence

SIZES = {"100m": replace(RANDOM_100M, vocabulary=126_464), "tiny": Size(32, 64, 1, 2, 600)}
OF_JSON = [b'{"', b'", "', b', "', b'": "', b'": ', b'"}', b"field", b"_0", b"_1", b"true", b"red"]
"""Words as other vocabularies have them."""

R = TypeVar("R")


class Lap:
    """The times of a function's calls, in milliseconds."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def around(self, function: Callable[..., R]) -> Callable[..., R]:
        """Return the function, timed."""

        def timed(*args: Any, **kwargs: Any) -> R:
            begun = time.perf_counter()
            answer = function(*args, **kwargs)
            self.times.append((time.perf_counter() - begun) * 1e3)
            return answer

        return timed

    @property
    def median(self) -> float:
        """The median, 0 of none."""
        return statistics.median(self.times) if self.times else 0.0


def main() -> None:
    """Print the table."""
    parser = Parser(__doc__)
    parser.add_argument("--size", choices=SIZES, default="100m")
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--block-length", type=int, default=32)
    parser.add_argument("--tokens-per-step", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--folder", type=Path, help="where the checkpoint is, or is to be written")
    args = parser.options(size="tiny", rounds=1, tokens_per_step=64)
    size = SIZES[args.size]
    folder = args.folder or Path(tempfile.mkdtemp())
    llm = LLM(write(folder, size, torch.float32, 2**30), max_num_seqs=1)
    words = llm.predictor.tokenizer = Words(size.vocabulary - 258)
    words.words[-len(OF_JSON) :] = OF_JSON
    free = SamplingParams(
        max_tokens=args.max_tokens, block_length=args.block_length, logprobs=None, seed=0,
        tokens_per_step=args.tokens_per_step, temperature=args.temperature,
    )  # fmt: skip
    regex = {"regex": EXPRESSIONS["20 fields of five types"]}
    bound = free.model_copy(update={"constraint": "regex", "constraint_settings": regex})
    _ = llm.planner.resolver.prepared(bound).constraint
    passes, choosing, allowed = (Lap(), Lap()), Lap(), Lap()
    read = llm.predictor.read
    ValidBlock.chosen = choosing.around(ValidBlock.chosen)  # type: ignore[method-assign]
    ValidBlock.allowed = allowed.around(ValidBlock.allowed)  # type: ignore[method-assign]
    for _ in range(args.rounds):
        for lap, params in zip(passes, (free, bound), strict=True):
            llm.predictor.read = lap.around(read)  # type: ignore[method-assign]
            [answer] = llm.generate([[1, 2, 3]], params)
    plain, larger, chosen = passes[0].median, passes[1].median, choosing.median
    head("step", "free, ms", "bound, ms", "of it choosing, ms", "first, ms", "allowed, ms", "added")
    step = larger + chosen + allowed.median
    row(f"blocks of {args.block_length}, at {args.temperature:g}", f"{plain:.1f}", f"{step:.1f}",
        f"{chosen:.1f}", f"{choosing.times[0]:.1f}", f"{allowed.median:.1f}",
        f"{step / plain - 1:.1%}")  # fmt: skip
    llm.predictor.read = read  # type: ignore[method-assign]
    print()
    scoring(llm, bound, answer.outputs[0].token_ids, args.rounds)


def scoring(llm: LLM, bound: SamplingParams, response: tuple[int, ...], rounds: int) -> None:
    """Print what it costs to score an answer among the tokens that its constraint allows."""
    info, laps = llm.predictor.info, (Lap(), Lap(), Lap())
    rule = llm.planner.resolver.prepared(bound).constraint
    assert rule is not None
    plain = TokenSequence.of([1, 2, 3], response, info.special, 32)
    bound_text = replace(plain, rule=rule)
    scorer = SequenceScorer(llm.catalog.scorer("dise"), llm.catalog.selector("response"))
    for _ in range(2 * rounds):
        for lap, text in zip(laps, (plain, bound_text), strict=False):
            lap.around(lambda text=text: [*llm.run([scorer.evaluate(text)])])()
        laps[2].around(allowed_in)(bound_text, rule)
    every, told, found = (lap.median for lap in laps)
    begun = time.perf_counter()
    naive(rule.tokens, plain, len(response) // 2)
    slow = (time.perf_counter() - begun) * 1e3 * len(response)
    head("scoring pass", "plain, ms", "told, ms", "of it allowed, ms", "added", "naive, ms")
    row(f"{len(response)} tokens", f"{every:.1f}", f"{told:.1f}", f"{2 * found:.1f}",
        f"{told / every - 1:.1%}", f"{slow:.0f}")  # fmt: skip


def naive(tokens: TokenAutomaton, text: TokenSequence, index: int) -> list[int]:
    """Return the tokens with which the text is valid, by trying each."""
    automaton, before, rest = tokens.automaton, b"", b""
    for at, token in enumerate(text.response.tolist()):
        piece = tokens._bytes(token)
        before, rest = (before + piece, rest) if at < index else (before, rest + piece)
    rest = rest[len(tokens._bytes(int(text.response[index]))) :]
    state = automaton.run(before)
    found = []
    for token in range(text.special.masking_id):
        behind = automaton.run(tokens._bytes(token), state)
        if behind != automaton.dead and automaton.run(rest, behind) != automaton.dead:
            found.append(token)
    return found


if __name__ == "__main__":
    main()
