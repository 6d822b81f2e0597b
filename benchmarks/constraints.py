"""What constraints cost: their automata, and a step of the programme over candidates.

python benchmarks/constraints.py [--rounds 5]

The vocabulary is made up: all bytes, and words of random letters, some with a space or a quote. A
step's candidates are random words and the completion tokens; its text begins where answers do.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable

import numpy as np
from command import Parser, head, row

from dise_core.arrays import Ids
from dise_core.constraints.building import automaton_of
from dise_core.constraints.programme import Weighted, best, drawn
from dise_core.constraints.tokens import TokenAutomaton
from dise_core.models.tokenizer import Tokenizer
from dise_core.sequence import SpecialTokens

CHARACTER = r'([^"\\\x00-\x1f\x7f-\x9f]|\\["\\/bfnrt])'
STRING, NUMBER = f'"{CHARACTER}*"', r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?"
INTEGER, CHOICE = "-?(0|[1-9][0-9]*)", '("red"|"green"|"blue")'
TYPES = [STRING, INTEGER, NUMBER, "(true|false)", CHOICE]


def fields(values: dict[str, str]) -> str:
    """Return the expression of an object of these fields."""
    return r"\{ ?" + ", ?".join(f'"{name}": ?{value}' for name, value in values.items()) + r" ?\}"


def many(value: str, least: int, most: int) -> str:
    """Return the expression of an array of so many values."""
    return rf"\[ ?{value}(, ?{value}){{{least - 1},{most - 1}}} ?\]"


LINE = fields({"id": INTEGER, "name": f'"{CHARACTER}{{0,16}}"', "tags": many(STRING, 1, 3)})
EXPRESSIONS = {
    "two fields": fields({"name": STRING, "age": INTEGER}),
    "20 fields of five types": fields({f"field_{n:02}": TYPES[n % 5] for n in range(20)}),
    "1 to 5 objects with an array": many(LINE, 1, 5),
    "a string of up to 1,000": f'"{CHARACTER}{{0,1000}}"',
    r"\w{1,50}": r"\w{1,50}",
}


class Words(Tokenizer):
    """All bytes and random words, then an end token and a mask."""

    has_chat_template = False
    start_ids = np.zeros(0, np.int64)

    def __init__(self, num_words: int) -> None:
        letters = np.random.default_rng(0).integers(97, 123, (num_words, 9), dtype=np.uint8)
        kinds = (b"", b"", b" ", b'"')
        words = [kinds[n % 4] + word[: 2 + n % 8].tobytes() for n, word in enumerate(letters)]
        self.words = [*(bytes([byte]) for byte in range(256)), *words]
        self.special = SpecialTokens(
            len(self.words) + 1, frozenset({len(self.words)}), len(self.words)
        )

    def encode(self, text: str) -> Ids:
        raise NotImplementedError

    def chat_text(self, messages: object, add_generation_prompt: bool = True) -> str:
        raise NotImplementedError

    def decode(self, ids: Ids) -> str:
        return "".join(map(self.token_text, ids.tolist()))

    def token_text(self, token_id: int) -> str:
        return (self.token_bytes(token_id) or b"").decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes | None:
        """Return the word."""
        return self.words[token_id] if token_id < len(self.words) else None


def milliseconds(function: Callable[[], object], rounds: int) -> str:
    """Return the median time of a call, and the first."""
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        function()
        times.append((time.perf_counter() - begun) * 1e3)
    return f"{statistics.median(times):.1f}"


def random_rows(
    tokens: TokenAutomaton, size: int, positions: int, candidates: int
) -> list[Weighted]:
    """Return random candidates with random weights, the completion tokens among them."""
    generator = np.random.default_rng(1)
    rows = []
    for _ in range(positions):
        others = generator.integers(0, size, max(1, candidates - len(tokens.completion)))
        ids = np.union1d(others, tokens.completion)
        rows.append((ids, generator.normal(size=len(ids)) * 4))
    return rows


def main() -> None:
    """Print the table."""
    parser = Parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--words", type=int, default=126_000)
    args = parser.options(rounds=1, words=500)
    words = Words(args.words)
    size = len(words.words)
    head("expression", "states", "edges", "built, ms", "for tokens, ms", "completion tokens",
         "best of 32 x 33, ms", "drawn", "best of 128 x 65, ms", "drawn")  # fmt: skip
    for name, expression in EXPRESSIONS.items():
        automaton = automaton_of(expression)
        tokens = TokenAutomaton(automaton, words, words.special, (), size + 2)
        # Nothing behind it makes an expression another one, so that it is built anew.
        others = (expression + "(?:)" * number for number in itertools.count(1))
        built = milliseconds(lambda: automaton_of(next(others)), args.rounds)  # noqa: B023
        made = milliseconds(
            lambda: TokenAutomaton(automaton, words, words.special, (), size + 2),  # noqa: B023
            args.rounds,
        )
        steps = []
        for positions, candidates in ((32, 33), (128, 65)):
            rows = random_rows(tokens, size, positions, candidates)
            given = (tokens, tokens.start, rows, tokens.feasible(4096))
            uniforms = np.random.default_rng(2).random(positions)
            steps.append(milliseconds(lambda: best(*given), args.rounds))  # noqa: B023
            steps.append(milliseconds(lambda: drawn(*given, uniforms), args.rounds))  # noqa: B023
        edges = int((automaton.next != automaton.dead).sum())
        row(name, automaton.num_states, edges, built, made, len(tokens.completion), *steps)


if __name__ == "__main__":
    main()
