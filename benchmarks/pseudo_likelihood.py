"""Pseudo-log-likelihoods of sentences, beside a loop of one forward pass a token.

python benchmarks/pseudo_likelihood.py [--model FOLDER] [--texts FILE] [--rounds 5]

By a masked language model in a folder, without one a random BERT of two layers, 128 wide, with
30,522 tokens. FILE: a sentence a line, or lines of JSON whose `sentence_good` is one; without one
200 random ones. Both ways take turns, and so does minicons where it is installed; all must give
the same sums.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from command import Parser, head, ratios, row, spread, take_turns
from transformers import AutoModelForMaskedLM, AutoTokenizer, BertConfig, BertForMaskedLM
from transformers import BertTokenizer as WordPieces

from dise_app.terminal.heap import keep_freed_memory
from dise_core import LLM, ScoringParams

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PLL = ScoringParams(
    scorer="interleaved", scorer_settings={"k": 1000}, selector="full", logprobs=None
)

Sums = list[float]


def words(count: int) -> list[str]:
    """Return that many words of letters."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    return ["".join(letters[n // 26**place % 26] for place in range(4)) for n in range(count)]


def write_random(folder: Path, vocabulary: int) -> None:
    """Write a random BERT, whose tokens are words."""
    names = [*SPECIAL, *words(vocabulary - len(SPECIAL))]
    WordPieces(vocab={name: i for i, name in enumerate(names)}).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = BertConfig(vocab_size=vocabulary, intermediate_size=512, **sizes)
    BertForMaskedLM(config).save_pretrained(folder)


def sentences(path: Path | None, count: int, vocabulary: int) -> list[str]:
    """Return sentences of a file, of as many parts of it as it takes; or random ones."""
    if path is None:
        random, known = np.random.default_rng(0), words(vocabulary - len(SPECIAL))
        return [" ".join(random.choice(known, size)) for size in random.integers(6, 14, count)]
    lines = path.read_text().splitlines()
    lines = lines[:: max(1, len(lines) // count)][:count]
    return [json.loads(line)["sentence_good"] if line.startswith("{") else line for line in lines]


def by_a_loop(folder: Path) -> Callable[[Sequence[str]], Sums]:
    """Return what asks transformers' class about one token at a time."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForMaskedLM.from_pretrained(folder).eval()

    @torch.inference_mode()
    def sums(texts: Sequence[str]) -> Sums:
        values = []
        for text in texts:
            ids = tokenizer(text, return_tensors="pt")["input_ids"]
            total = 0.0
            for place in range(1, ids.shape[1] - 1):
                masked = ids.clone()
                masked[0, place] = tokenizer.mask_token_id
                logits = model(masked).logits[0, place]
                total += float(logits.log_softmax(-1)[ids[0, place]])
            values.append(total)
        return values

    return sums


def by_minicons(folder: Path) -> Callable[[Sequence[str]], Sums]:
    """Return what asks minicons, in batches of 32 sentences."""
    from minicons.scorer import MaskedLMScorer

    scorer = MaskedLMScorer(str(folder), "cpu")
    scorer.tokenizer.batch_encode_plus = scorer.tokenizer  # which transformers 5 no longer has

    def sums(texts: Sequence[str]) -> Sums:
        values = []
        for start in range(0, len(texts), 32):
            batch = list(texts[start : start + 32])
            values += scorer.sequence_score(batch, reduction=lambda scores: scores.sum().item())
        return values

    return sums


def by_dise(folder: Path) -> Callable[[Sequence[str]], Sums]:
    """Return what asks DiSE."""
    llm = LLM(folder, dtype="float32")

    def sums(texts: Sequence[str]) -> Sums:
        scores = [answer.outputs[0].score for answer in llm.score([""] * len(texts), texts, PLL)]
        return [score.value * score.num_positions for score in scores]

    return sums


def compare(folder: Path, texts: Sequence[str], rounds: int) -> None:
    """Time each way and print a row of the table for it."""
    ways = {"a loop": by_a_loop(folder), "DiSE": by_dise(folder)}
    if find_spec("minicons") is not None:
        ways["minicons"] = by_minicons(folder)
    times, results = take_turns(
        {name: (lambda way=way: way(texts)) for name, way in ways.items()}, rounds
    )
    head("way", "s", "times as fast as the loop, median (range)", "furthest, nats")
    for name, seconds in times.items():
        furthest = np.abs(np.subtract(results[name], results["a loop"])).max()
        faster = spread(ratios(times, "a loop", name))
        row(name, f"{statistics.median(seconds):.3f}", faster, f"{furthest:.0e}")


def main() -> None:
    """Print a row for each way."""
    parser = Parser(__doc__)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--vocabulary", type=int, default=30522)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.options(number=8, vocabulary=512, rounds=1)
    keep_freed_memory()
    with tempfile.TemporaryDirectory() as folder:
        if args.model is None:
            write_random(Path(folder), args.vocabulary)
        texts = sentences(args.texts, args.number, args.vocabulary)
        compare(args.model or Path(folder), texts, args.rounds)


if __name__ == "__main__":
    main()
