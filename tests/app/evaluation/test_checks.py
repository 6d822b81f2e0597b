"""What is refused before the first forward pass: lengths, scorers without their model, answers that
nobody can grade.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dise_adapters.embedded import CountdownPredictor
from dise_app.evaluation import questions
from dise_app.evaluation.experiments import Lengths, Sampled
from dise_app.evaluation.questions import DATASETS, Question, Questions
from dise_app.evaluation.run import run
from dise_app.evaluation.scoring import Contenders
from dise_core import LLM, InputError, Read, Reading, SamplingParams
from dise_core.errors import TooLongError
from dise_core.testing import ToyPredictor
from tests.app.conftest import Run

Dise = Callable[..., Run]

LONG = 10**130
FEW = ("--dataset", "countdown-short", "--limit", 3)


@pytest.fixture
def no_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no forward pass through."""

    def refused(self: CountdownPredictor, reads: Sequence[Read]) -> list[Reading]:
        raise AssertionError("a forward pass before the refusal")

    monkeypatch.setattr(CountdownPredictor, "read", refused)


@pytest.mark.usefixtures("no_passes")
@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ("eval", "length", *FEW, "--base-length", 16, "--base-length", 495),
            "dise: fixed, 505 | countdown-2: a prompt of 13 tokens with max_tokens=505 is longer "
            "than the model's limit "
            "of 512 tokens. No prompt is longer, so --base-length up to 489 fits with "
            "--max-iterations 10",
        ),
        (
            ("eval", "uncertainty", *FEW, "--max-tokens", 501),
            "countdown-2: a prompt of 13 tokens with max_tokens=501 is longer than the model's "
            "limit of 512 tokens. "
            "No prompt is longer, so --max-tokens up to 499 fits",
        ),
        (("eval", "best-of-n", *FEW, "--max-tokens", 501), "so --max-tokens up to 499 fits"),
        (("analyze", "ranks", *FEW, "--max-tokens", 501), "so --max-tokens up to 499 fits"),
        (("analyze", "correctness", *FEW, "--max-tokens", 501), "so --max-tokens up to 499 fits"),
        (
            ("eval", "uncertainty", *FEW, "--score", "ar-perplexity"),
            "'ar-perplexity' needs an auto-regressive judge",
        ),
        (
            (
                "eval",
                "likelihood",
                "--dataset",
                "countdown-choice",
                "--limit",
                3,
                "--score",
                "ar-perplexity",
            ),
            "name one with",
        ),
        (
            ("eval", "uncertainty", "--dataset", "countdown-choice", "--limit", 40),
            "its answers are ranked, not graded",
        ),
        (
            ("eval", "length", "--dataset", "countdown-choice", "--limit", 40),
            "its answers are ranked, not graded",
        ),
        (
            ("eval", "length", *FEW, "--base-length", 2049, "--no-daedal"),
            "with max_tokens=2059 is longer",
        ),
    ],
)
def test_what_could_not_run_is_refused_before_any_pass_and_leaves_no_folder(
    dise: Dise, tmp_path: Path, args: tuple[object, ...], message: str
) -> None:
    refused = dise(*args, "--output", tmp_path / "run")
    assert (refused.code, refused.out) == (2, "")
    assert message in refused.err
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("no_passes")
def test_candidates_and_given_texts_that_are_too_long_are_refused_before_any_pass(
    dise: Dise, tmp_path: Path
) -> None:
    data = tmp_path / "data.jsonl"
    rows = [{"input": "3,1,1", "output": "5"}, {"input": f"{LONG},1,1", "output": str(LONG + 2)}]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = dise(
        "eval",
        "likelihood",
        "--dataset",
        "countdown-choice",
        "--data",
        data,
        "--output",
        tmp_path / "run",
    )
    assert run.code == 2
    assert "countdown-1: candidate 1: a text of " in run.err
    assert (
        "longer than the model's limit of 512 tokens. Give fewer --shots, leave countdown-1 out "
        "of --data" in run.err
    )
    texts = tmp_path / "texts.jsonl"
    texts.write_text(json.dumps({"id": "countdown-2", "response": "1" * 600}) + "\n")
    run = dise(
        "analyze",
        "coherence",
        *FEW,
        "--texts",
        texts,
        "--output",
        tmp_path / "run",
        "--max-tokens",
        12,
    )
    assert run.code == 2
    assert "countdown-2: a text of 61" in run.err
    assert "Shorten the response of countdown-2 in --texts" in run.err


def test_default_base_lengths_are_those_that_fit_and_the_others_are_named(
    dise: Dise, tmp_path: Path
) -> None:
    few = (
        "--dataset",
        "countdown-short",
        "--limit",
        1,
        "--patience",
        1,
        "--max-iterations",
        2,
        "--tokens-per-step",
        32,
    )
    run = dise("eval", "length", *few, "--no-daedal", "--output", tmp_path, "--json")
    assert run.code == 0, run.err
    figures = json.loads(run.out)["figures"]
    assert [name for name in figures if name.startswith("fixed")] == [
        "fixed, 128",
        "fixed, 130",
        "fixed, 256",
        "fixed, 258",
    ]
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
        Question(f"q{number}", prompt, [[1, 2], 3]) for number, prompt in enumerate(prompts)
    )
    loaded = Questions(DATASETS["countdown-short"], "here", items)
    common: dict[str, Any] = {"block_length": 8, "tokens_per_step": 8, "logprobs": None}
    settings = {"max_iterations": max_iterations}
    variants = {
        "short": SamplingParams(max_tokens=base, **common),
        "flexible": SamplingParams(
            max_tokens=base, length="dise-flexible", length_settings=settings, **common
        ),
        "long": SamplingParams(max_tokens=base + max_iterations, **common),
    }
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


def test_a_prompt_that_leaves_no_room_is_said_to(tmp_path: Path) -> None:
    too_long, _ = experiment(1, 4, "a" * 58)
    with pytest.raises(TooLongError, match="No length fits the longest prompt: give fewer --shots"):
        run(too_long, tmp_path, lambda count: None)


def test_every_prompt_is_checked_not_only_the_longest(tmp_path: Path) -> None:
    bad, model = experiment(8, 4, "a" * 20, " ")
    with pytest.raises(InputError, match="the prompt is empty"):
        run(bad, tmp_path, lambda count: None)
    assert model.num_passes == 0


def test_one_scorer_of_several_that_lacks_its_model_is_named(tmp_path: Path) -> None:
    llm = LLM("countdown")
    contenders = Contenders.of(["dise:full", "ar-perplexity:response-text"], llm.catalog)
    params = SamplingParams(max_tokens=8, block_length=8, temperature=1.0, n=2, seed=0)
    sampled = Sampled(llm, questions.load("countdown-short", limit=1), contenders, params, "robust")
    with pytest.raises(
        InputError, match="scorer 'ar-perplexity:response-text' needs an auto-regressive judge"
    ):
        run(sampled, tmp_path, lambda count: None)
