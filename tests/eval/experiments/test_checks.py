"""What is refused before the first forward pass: lengths, scorers without their model, answers that
nobody can grade.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from dise_adapters.embedded import CountdownPredictor
from dise_core import LLM, InputError, Read, Reading, SamplingParams
from dise_core.errors import TooLongError
from dise_core.testing import ToyPredictor
from dise_eval.datasets.dataset import Problem
from dise_eval.datasets.own import dataset_of
from dise_eval.datasets.questions import ProblemSet
from dise_eval.experiments.run import run
from dise_eval.experiments.variants import Lengths, Variant
from tests.commands import Dise
from tests.jsonlines import written

LONG = 10**130
FEW = "--dataset countdown-short --limit 3"
CHOICES = "--dataset countdown-choice --limit 40"


@pytest.fixture
def no_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no forward pass through."""

    def refused(self: CountdownPredictor, reads: Sequence[Read]) -> list[Reading]:
        raise AssertionError("a forward pass before the refusal")

    monkeypatch.setattr(CountdownPredictor, "read", refused)


@pytest.mark.usefixtures("no_passes")
@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            f"eval length {FEW} --base-length 16 --base-length 495",
            "dise: fixed, 505 | countdown-2: a prompt of 13 tokens with max_tokens=505 is longer "
            "than the model's limit of 512 tokens. No prompt is longer, so --base-length up to 489 "
            "fits with --max-iterations 10",
        ),
        (
            f"eval uncertainty {FEW} --max-tokens 501",
            "countdown-2: a prompt of 13 tokens with max_tokens=501 is longer than the model's "
            "limit of 512 tokens. No prompt is longer, so --max-tokens up to 499 fits",
        ),
        (f"analyze ranks {FEW} --max-tokens 501", "so --max-tokens up to 499 fits"),
        (f"eval uncertainty {FEW} --score ar-perplexity", "needs an auto-regressive judge"),
        (f"eval likelihood {CHOICES} --score ar-perplexity", "name one with"),
        (f"eval uncertainty {CHOICES}", "its answers are ranked, not graded"),
        (f"eval length {CHOICES}", "its answers are ranked, not graded"),
    ],
)
def test_what_could_not_run_is_refused_before_any_pass_and_leaves_no_folder(
    dise: Dise, tmp_path: Path, line: str, message: str
) -> None:
    refused = dise(*line.split(), "--output", tmp_path / "run")
    assert (refused.code, refused.out) == (2, "")
    assert message in refused.err
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("no_passes")
def test_candidates_and_given_texts_that_are_too_long_are_refused_before_any_pass(
    dise: Dise, tmp_path: Path
) -> None:
    rows = [{"input": "3,1,1", "output": "5"}, {"input": f"{LONG},1,1", "output": str(LONG + 2)}]
    data = written(tmp_path / "data.jsonl", *rows)
    texts = written(tmp_path / "texts.jsonl", {"id": "countdown-2", "response": "1" * 600})
    for line, *messages in (
        (
            f"eval likelihood --dataset countdown-choice --data {data}",
            "countdown-1: candidate 1: a text of ",
            "longer than the model's limit of 512 tokens. Give fewer --shots, leave countdown-1 "
            "out of --data",
        ),
        (
            f"analyze coherence {FEW} --texts {texts} --max-tokens 12",
            "countdown-2: a text of 61",
            "Shorten the response of countdown-2 in --texts",
        ),
    ):
        run = dise(*line.split(), "--output", tmp_path / "run")
        assert run.code == 2
        assert all(message in run.err for message in messages)


def test_default_base_lengths_are_those_that_fit_and_the_others_are_named(
    dise: Dise, tmp_path: Path
) -> None:
    few = "--limit 1 --patience 1 --max-iterations 2 --tokens-per-step 32 --no-daedal --json"
    line = f"eval length --dataset countdown-short {few} --output {tmp_path}"
    run = dise(*line.split())
    assert run.code == 0, run.err
    lengths = [name for name in json.loads(run.out)["figures"] if name.startswith("fixed")]
    assert lengths == ["fixed, 128", "fixed, 130", "fixed, 256", "fixed, 258"]
    assert (
        "base length 512 left out: with the longest prompt, 12 tokens, and --max-iterations 2 it "
        "is longer" in run.err
    )


class Short(ToyPredictor):
    """A model of 60 tokens that reads any text, a token a character, and counts its passes."""

    def __init__(self) -> None:
        super().__init__(max_length=60)
        self.num_passes = 0
        self.tokenizer.encode = lambda text: np.array([ord(character) % 10 for character in text])  # type: ignore[method-assign]

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        self.num_passes += 1
        return list(super().read(reads))


def experiment(base: int, max_iterations: int, *prompts: str) -> tuple[Lengths, Short]:
    model = Short()
    items = tuple(
        Problem(f"q{number}", prompt, [[1, 2], 3]) for number, prompt in enumerate(prompts)
    )
    loaded = ProblemSet(dataset_of("countdown-short"), "here", items)
    short = SamplingParams(max_tokens=base, block_length=8, tokens_per_step=8, logprobs=None)
    settings = {"max_iterations": max_iterations}
    flexible = {"length": "dise-flexible", "length_settings": settings}
    variants = [
        Variant("short", short),
        Variant("flexible", short.model_copy(update=flexible)),
        Variant("long", short.model_copy(update={"max_tokens": base + max_iterations})),
    ]
    return Lengths(LLM(model), loaded, variants, "robust", max_iterations), model


def test_the_base_length_that_the_error_names_fits_and_the_next_one_does_not(
    tmp_path: Path,
) -> None:
    """60 tokens, less 25 of the longest prompt and 4 iterations, are 31."""
    prompts = ("a" * 7, "b" * 25, "c" * 11)
    too_long, model = experiment(32, 4, *prompts)
    with pytest.raises(
        TooLongError,
        match=r"^long \| q1: a prompt of 25 tokens .* --base-length up to 31 fits with",
    ):
        run(too_long, tmp_path / "refused", lambda count: None)
    assert model.num_passes == 0
    assert not (tmp_path / "refused").exists()
    fits, model = experiment(31, 4, *prompts)
    assert len(run(fits, tmp_path / "fits", lambda count: None)) == 9
    assert model.num_passes > 0


@pytest.mark.parametrize(
    ("base", "prompts", "message"),
    [
        (1, ["a" * 58], "No length fits the longest prompt: give fewer --shots"),
        (8, ["a" * 20, " "], "the prompt is empty"),
    ],
)
def test_every_prompt_is_checked(
    tmp_path: Path, base: int, prompts: list[str], message: str
) -> None:
    bad, model = experiment(base, 4, *prompts)
    with pytest.raises(InputError, match=message):
        run(bad, tmp_path, lambda count: None)
    assert model.num_passes == 0
