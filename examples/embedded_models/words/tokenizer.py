"""The tokenizer of the model of word problems: words, parts of words, numbers and bytes."""

from __future__ import annotations

import argparse
from functools import cache
from pathlib import Path
from random import Random

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

import dise_adapters

from ..chat import SPECIAL, save
from .problems import draw_problem

SIZE = 1280
"""Tokens in the vocabulary, 256 of them bytes, so that every text has ids."""

NUM_TEXTS = 60_000
"""Problems that the parts of words are counted in."""

NUMBERS = " ".join(map(str, range(201)))
"""The numbers that are tokens. Larger ones are made of parts."""


@cache
def build() -> Tokenizer:
    """Return the shipped model's tokenizer, as `train` made it of problems of larger numbers."""
    folder = Path(dise_adapters.__file__).parent / "embedded" / "word_problems"
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def train(num_texts: int = NUM_TEXTS) -> Tokenizer:
    """Return a new one, for training from the start. A word or number begins with its space, and a
    text is given one.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Prepend(" ")
    pieces = Regex(r" ?\d+| ?\p{L}+| ?[^\s\p{L}\d]|\s+(?=\s)|\s")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pieces, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    random = Random(0)
    problems = (draw_problem(random) for _ in range(num_texts))
    texts = (f"{problem.text} {problem.answer} {NUMBERS}" for problem in problems)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def main() -> None:
    """Write a new tokenizer's files."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    save(train(), args.output)


if __name__ == "__main__":
    main()
