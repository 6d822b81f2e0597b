"""The tokens that requests which begin alike compute, with and without the reuse of keys and
values, and whether the answers are the same to the bit.

python benchmarks/prefix_reuse.py [--requests 64] [--prompt 1024] [--turns 10] [--questions 100]
    [--input 2000] [--layers 12] [--judge FILE.gguf]

Writes with a random Qwen3 of 100 million parameters with blocks of 32, float32: requests that share
a prompt, also where only two prompts are kept; and a chat. Then asks it, and the auto-regressive
model that --judge names, questions about one input. All is answered without reuse too.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from command import Parser, head, row
from random_checkpoints import dense, write
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from dise import LLM
from dise_adapters.local.decoder.batch import TextBatch
from dise_adapters.local.decoder.own import OwnBody
from dise_adapters.local.decoder.prefixes import Lease, PrefixTree
from dise_app.terminal.heap import keep_freed_memory
from dise_core import RequestOutput, SamplingParams
from dise_core.arrays import Ids
from dise_decide import ChoiceQuestion, DecisionOutput, DecisionParams

VOCABULARY, WIDTH, BLOCK, KEPT = 8192, 768, 32, 8192
OWN, WRITTEN = 16, 32
"""Tokens that each request, or turn, adds to what it shares, and that it is answered with."""

OPTIONS = (["yes", "no"], ["red", "green", "blue"], ["true", "false"])
NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
OTHERS = ["Question", "Answer", "with", "one", "of", "these", ":", ","]


@dataclass
class Counts:
    """Tokens that passes compute: all, and those of the beginning; and those that are kept."""

    computed: int = 0
    of_beginning: int = 0
    kept: int = 0


@contextmanager
def counted(beginning: int) -> Iterator[Counts]:
    """Count until the end of the context. beginning: how many tokens of a text it has."""
    counts, run, end = Counts(), OwnBody.__call__, PrefixTree.end

    def call(body: OwnBody, batch: TextBatch, rows: Ids) -> Tensor:
        is_real = np.ones(batch.input_ids.shape, bool) if batch.is_real is None else batch.is_real
        counts.computed += int(is_real.sum())
        counts.of_beginning += int((is_real & (batch.positions < beginning)).sum())
        return run(body, batch, rows)

    def keep(tree: PrefixTree, lease: Lease) -> None:
        end(tree, lease)
        counts.kept = max(counts.kept, tree.num_kept)

    OwnBody.__call__, PrefixTree.end = call, keep  # type: ignore[method-assign]
    try:
        yield counts
    finally:
        OwnBody.__call__, PrefixTree.end = run, end  # type: ignore[method-assign]


def written(answers: Sequence[RequestOutput]) -> list[object]:
    """Return all that answers tell, to compare it to the bit."""
    outputs = [output for answer in answers for output in answer.outputs]
    return [(o.token_ids, o.score.value, [token.logprob for token in o.tokens]) for o in outputs]


def decided(answer: DecisionOutput) -> list[object]:
    """Return the log-probabilities of all labels."""
    return [part.diagnostics.logprobs for part in answer.answers]


def shared_prompt(load: Callable[[int], LLM], args: argparse.Namespace) -> None:
    """Print what requests that share a prompt compute of it."""
    numbers = np.random.default_rng(0)
    prompt = numbers.integers(0, VOCABULARY - 2, args.prompt).tolist()
    ends = numbers.integers(0, VOCABULARY - 2, (args.requests, OWN)).tolist()
    params = SamplingParams(max_tokens=WRITTEN, tokens_per_step=8, length="fixed")
    head("may be kept", "kept at most", "prompt's tokens computed", "of one", "cached", "s",
         "same bits")  # fmt: skip
    before: list[object] = []
    for most in (0, KEPT, 2 * (args.prompt + OWN + WRITTEN)):
        llm, started = load(most), time.perf_counter()
        with counted(args.prompt) as counts:
            answers = llm.generate([[*prompt, *end] for end in ends], params)
        seconds, found = time.perf_counter() - started, written(answers)
        before = before or found
        cached = sum(answer.usage.cached_tokens for answer in answers)
        ratio = f"{counts.of_beginning / args.prompt:.2f}"
        cells = (counts.kept, counts.of_beginning, ratio, cached)
        row(most, *cells, f"{seconds:.1f}", found == before)


def chat(load: Callable[[int], LLM], turns: int) -> None:
    """Print what each turn of a chat computes of all that precedes its answer."""
    params = SamplingParams(max_tokens=WRITTEN, tokens_per_step=8, length="fixed")
    counts: dict[int, list[int]] = {}
    texts: dict[int, list[int]] = {}
    for kept in (0, KEPT):
        llm, text, counts[kept] = load(kept), list[int](), []
        numbers = np.random.default_rng(1)
        for _ in range(turns):
            text += numbers.integers(0, VOCABULARY - 2, 2 * OWN).tolist()
            with counted(len(text)) as of_turn:
                [answer] = llm.generate([text], params)
            counts[kept].append(of_turn.of_beginning)
            text += answer.outputs[0].token_ids
        texts[kept] = text
    print(f"\nsame tokens: {texts[0] == texts[KEPT]}")
    head("turn", "tokens before the answer", "computed without", "with reuse")
    for turn, pair in enumerate(zip(*counts.values(), strict=True)):
        row(turn + 1, turn * (2 * OWN + WRITTEN) + 2 * OWN, *pair)


def questions(
    name: str, load: Callable[[int], LLM], args: argparse.Namespace, words: Sequence[str]
) -> None:
    """Print what questions about one input compute, in both layouts."""
    numbers = [f" {one} {other}" for one in NUMBERS for other in NUMBERS]
    asked = [
        ChoiceQuestion.model_validate({"instructions": numbers[i % 100], "choices": OPTIONS[i % 3]})
        for i in range(args.questions)
    ]
    before = dict[str, list[object]]()
    for kept in (0, KEPT):
        llm = load(kept)
        for turned, layout in enumerate(("cloze", "questions")):
            # Neither text begins like any before it.
            one, text = (
                " ".join([*part[turned:], *part[:turned]]) for part in (words[::-1], words)
            )
            params = DecisionParams(layout=layout)
            with counted(args.input) as of_one:
                llm.decide(one, asked[:1], params)
            started = time.perf_counter()
            with counted(args.input) as counts:
                answer = llm.decide(text, asked, params)
            seconds, found = time.perf_counter() - started, decided(answer)
            ratio = counts.computed / of_one.computed
            of_input = counts.of_beginning / of_one.of_beginning
            cells = (counts.computed, f"{ratio:.2f}", f"{of_input:.2f}", answer.usage.cached_tokens)
            is_same = before.setdefault(layout, found) == found
            row(name, layout, kept, *cells, f"{seconds:.1f}", is_same)


def with_words(folder: Path) -> Path:
    """Give the checkpoint a tokenizer of whole words, those of the questions among them."""
    known = dict.fromkeys([word for options in OPTIONS for word in options] + NUMBERS + OTHERS)
    words = [*known, *(f"t{i}" for i in range(len(known), VOCABULARY))]
    names = {word: i for i, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(names, unk_token=words[-3]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Whitespace(), decoders.Fuse()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def main() -> None:
    """Print all tables."""
    parser = Parser(__doc__)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=1024)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--input", type=int, default=2000)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--no-blocks", dest="blocks", action="store_false")
    parser.add_argument("--judge")
    args = parser.options(requests=3, prompt=128, turns=2, questions=3, input=100, layers=1)
    keep_freed_memory()
    with tempfile.TemporaryDirectory() as folder:
        path = with_words(write(Path(folder), dense(VOCABULARY, WIDTH, args.layers, is_a2d=True)))

        def load(kept: int, block: int = BLOCK) -> LLM:
            options = {"dtype": "float32", "prefix_cache_tokens": kept}
            return (
                LLM(args.judge, **options) if not block else LLM(path, block_size=block, **options)
            )

        if args.requests:
            shared_prompt(load, args)
        if args.turns:
            chat(load, args.turns)
        print()
        names = ("model", "layout", "may be kept", "computed", "of one question")
        head(*names, "of the input of one", "cached", "s", "same bits")
        numbers = np.random.default_rng(2)
        given = [f"t{i}" for i in numbers.integers(100, VOCABULARY - 3, args.input)]
        for block in (BLOCK, 4) if args.blocks else ():
            questions(f"blocks of {block}", partial(load, block=block), args, given)
        if args.judge:
            given = [NUMBERS[i] for i in numbers.integers(0, 10, args.input)]
            questions("auto-regressive", partial(load, block=0), args, given)


if __name__ == "__main__":
    main()
