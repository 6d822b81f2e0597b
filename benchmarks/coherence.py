"""Measure decisions: how coherent each reading is, by JevBench, and how often it is right.

make jevbench ARGUMENTS="[--model random] [--suite jevbench-mini] [--readings menu:1 each:1]"

Starts `dise serve`, and asks it with each reading and orders JevBench's questions and those of
judged.jsonl, which have answers. A model that answers uniformly scores 89.4: read coherence beside
the share of right answers, never alone. "random" is a tiny LLaDA with random weights, which reads
bytes, and in one token what judged.jsonl repeats; any other model is a name, a folder or a file.
The random model is right by chance.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import jevbench
from command import Parser, head, row, server
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tests import byte_checkpoints, reference_llada

JUDGED = Path(__file__).with_name("judged.jsonl")
READINGS = ["menu:1", "menu:cyclic", "each:1", "each:cyclic", "each-negated:1",
            "each-negated:cyclic"]  # fmt: skip
DIMENSIONS = ("REP", "BAT", "MEA", "LOG", "CHO")
TOKENS = 1024
"""Of the random model."""

Json = dict[str, object]


class Client:
    """Asks a server, and counts the questions, the passes and the seconds that they took."""

    def __init__(self, url: str, settings: Json) -> None:
        self.url, self.settings, self.counts = url, settings, Counter[str]()

    def ask(self, state: object, questions: dict[str, Json]) -> dict[str, Json]:
        """Return the answers to System One's questions, by name."""
        started = time.perf_counter()
        given = {name: without_none(question) for name, question in questions.items()}
        body = {"state": state, "questions": given, **self.settings}
        reply = httpx.post(f"{self.url}/v1/systemone", json=body, timeout=600)
        answer = reply.raise_for_status().json()
        self.counts["questions"] += len(questions)
        self.counts["passes"] += answer["dise"]["nfe"]
        self.counts["microseconds"] += int(1e6 * (time.perf_counter() - started))
        answers: dict[str, Json] = answer["answers"]
        return answers


def without_none(question: Json) -> Json:
    """Return the question without a null, which JevBench sends for "none"."""
    return {name: value for name, value in question.items() if value is not None}


def write_random(folder: Path) -> str:
    """Write a tiny LLaDA with random weights, and a tokenizer of bytes and what JUDGED repeats of
    them; return its folder.
    """
    config = reference_llada.default_config(
        vocab_size=TOKENS, embedding_size=TOKENS, max_sequence_length=2048,
        mask_token_id=TOKENS - 1, eos_token_id=TOKENS - 2, pad_token_id=TOKENS - 2,
    )  # fmt: skip
    weights = reference_llada.random_weights(config)
    reference_llada.write_checkpoint(folder, config, weights)
    byte_checkpoints.write_tokenizer(folder, "<|endoftext|>", "<|mdm_mask|>")
    file = str(folder / "tokenizer.json")
    tokenizer = Tokenizer.from_file(file)
    tokenizer.model, alphabet = models.BPE(), pre_tokenizers.ByteLevel.alphabet()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=TOKENS - 2, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train([str(JUDGED)], trainer)
    assert tokenizer.get_vocab_size(with_added_tokens=False) == TOKENS - 2
    tokenizer.add_special_tokens(["<|endoftext|>", "<|mdm_mask|>"])
    tokenizer.save(file)
    return str(folder)


def right(client: Client, rows: list[Json]) -> list[str]:
    """Return the shares of right answers to the yes/no questions and to the choices."""
    rights, totals = Counter[object](), Counter[object]()
    for given, its in groupby(rows, lambda judged: judged["input"]):
        asked = {str(number): judged for number, judged in enumerate(its)}
        answers = client.ask(given, {name: question(judged) for name, judged in asked.items()})
        for name, judged in asked.items():
            told = answers[name].get("choice", float(str(answers[name].get("noul", 0))) > 0.5)
            totals[judged["type"]] += 1
            rights[judged["type"]] += told == judged["answer"]
    return [f"{100 * rights[kind] / totals[kind]:.0f}" for kind in ("predicate", "choice")]


def question(judged: Json) -> Json:
    """Return a row of JUDGED as System One asks."""
    asked: Json = {"type": "noul", "instructions": judged["instructions"]}
    choices = judged.get("choices")
    if isinstance(choices, list):
        asked |= {"type": "choice", "criteria": {choice: choice for choice in choices}}
    return asked


def measure(url: str, suite: str, reading: str, rows: list[Json]) -> dict[str, float]:
    """Print a row: JevBench's scores in per cent, the shares that are right, and the cost. Return
    the scores of JevBench's groups.
    """
    name, orders = reading.split(":")
    client = Client(url, {"reading": name, "orders": int(orders) if orders == "1" else orders})
    asked = jevbench.from_callable(client.ask, name=None)
    report = jevbench.evaluate(asked, suite=suite, cache=":memory:")
    assert not report.errors, report.errors[0]
    counts = client.counts.copy()
    row(
        reading,
        "" if report.overall is None else f"{100 * report.overall:.1f}",
        *(f"{100 * report.dimensions[name]:.1f}" for name in DIMENSIONS),
        *right(client, rows),
        f"{counts['passes'] / counts['questions']:.2f}",
        f"{counts['microseconds'] / 1e3 / counts['questions']:.1f}",
    )
    groups: dict[str, float] = report.groups
    return groups


def main() -> None:
    """Run the benchmark."""
    parser = Parser(__doc__)
    parser.add_argument("--model", default="random")
    parser.add_argument("--suite", default="jevbench-mini", help="examples: 43 requests")
    parser.add_argument("--readings", nargs="+", default=READINGS, help="READING:ORDERS")
    options = parser.options(suite="examples", readings=["menu:1"])
    rows = [json.loads(line) for line in JUDGED.read_text().splitlines()]
    head("reading:orders", "overall", *DIMENSIONS, "right, yes/no", "right, choice",
         "passes a question", "ms a question")  # fmt: skip
    with TemporaryDirectory() as folder:
        model = options.model
        if model == "random":
            model = write_random(Path(folder))
        with server("--model", model) as (url, _):
            jevbench.check(jevbench.from_callable(Client(url, {}).ask, name=None))
            found = [measure(url, options.suite, one, rows) for one in options.readings]
    print()
    head("group", *options.readings)
    for group in found[0]:
        row(group, *(f"{100 * groups[group]:.1f}" for groups in found))


if __name__ == "__main__":
    main()
