"""What is refused before the first forward pass: lengths, scorers without their model, answers that
nobody can grade.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from dise_adapters.embedded import CountdownPredictor
from dise_core import LLM, InputError, Read, Reading, SamplingParams
from dise_core.errors import TooLongError
from dise_eval.datasets.dataset import Problem
from dise_eval.datasets.own import dataset_of
from dise_eval.datasets.questions import ProblemSet
from dise_eval.experiments.run import run
from dise_eval.experiments.ways import Compared
from dise_eval.experiments.waysfile import Way
from tests.ascii_model import AsciiPredictor
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
            f"eval uncertainty {FEW} --max-tokens 501",
            "countdown-2: a prompt of 13 tokens with max_tokens=501 is longer than the model's "
            "limit of 512 tokens. No prompt is longer, so --max-tokens up to 499 fits",
        ),
        (f"eval ranks {FEW} --max-tokens 501", "so --max-tokens up to 499 fits"),
        (f"eval uncertainty {FEW} --score ar-perplexity", "needs an auto-regressive judge"),
        (f"eval likelihood {CHOICES} --score ar-perplexity", "name one with"),
        (f"eval uncertainty {CHOICES}", "its answers are ranked, not graded"),
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
            f"eval coherence {FEW} --texts {texts} --max-tokens 12",
            "countdown-2: a text of 61",
            "Shorten the response of countdown-2 in --texts",
        ),
    ):
        run = dise(*line.split(), "--output", tmp_path / "run")
        assert run.code == 2
        assert all(message in run.err for message in messages)


def experiment(longest: int, *prompts: str) -> tuple[Compared, AsciiPredictor]:
    model = AsciiPredictor(max_length=60)
    items = tuple(
        Problem(f"q{number}", prompt, [[1, 2], 3]) for number, prompt in enumerate(prompts)
    )
    loaded = ProblemSet(dataset_of("countdown-short"), "here", items)
    short = SamplingParams(
        max_tokens=longest - 4, block_length=8, tokens_per_step=8, logprobs=None, seed=0
    )
    flexible = {"length": "dise-flexible", "length_settings": {"max_iterations": 4}}
    ways = [
        Way("short", short),
        Way("flexible", short.model_copy(update=flexible), beside="short"),
        Way("long", short.model_copy(update={"max_tokens": longest}), beside="short"),
    ]
    return Compared(LLM(model), loaded, ways, "robust"), model


def test_the_length_that_the_error_names_fits_and_the_next_one_does_not(tmp_path: Path) -> None:
    """60 tokens, less 25 of the longest prompt, are 35."""
    prompts = ("a" * 7, "b" * 25, "c" * 11)
    too_long, model = experiment(36, *prompts)
    with pytest.raises(
        TooLongError, match=r"^long \| q1: a prompt of 25 tokens .* so max_tokens up to 35 fits"
    ):
        run(too_long, tmp_path / "refused", lambda count: None)
    assert not model.batches
    assert not (tmp_path / "refused").exists()
    fits, model = experiment(35, *prompts)
    assert len(run(fits, tmp_path / "fits", lambda count: None)) == 9
    assert model.batches


@pytest.mark.parametrize(
    ("longest", "prompts", "message"),
    [
        (5, ["a" * 60], "No length fits the longest prompt: give fewer --shots"),
        (12, ["a" * 20, " "], "the prompt is empty"),
    ],
)
def test_every_prompt_is_checked(
    tmp_path: Path, longest: int, prompts: list[str], message: str
) -> None:
    bad, model = experiment(longest, *prompts)
    with pytest.raises(InputError, match=message):
        run(bad, tmp_path, lambda count: None)
    assert not model.batches


@pytest.mark.parametrize(
    "line",
    [
        "eval uncertainty --dataset gsm8k --output {0}/run --model {0}/none",
        "eval given --dataset countdown-answers --data {0}/none --output {0}/run",
        "eval likelihood --dataset arc-challenge --data {0}/none --output {0}/run",
        "eval correctness --dataset gsm8k --output {0}/run --model {0}/none",
        "calibrate {0}/none --output {0}/calibration.json",
    ],
)
def test_a_scorer_is_known_before_a_model_or_a_file_is_read(
    dise: Dise, tmp_path: Path, line: str
) -> None:
    refused = dise(*line.format(tmp_path).split(), "--score", "dise:full", "--score", "dize")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("dise: unknown scorer 'dize'. Did you mean 'dise'?")


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("generate --input {0} --output {1} --max-tokens 4 --block-length 4", 1, "line 2: is not"),
        ("score --input {0} --output {1}", 1, "line 2: is not JSON"),
        ("rank --input {0} --output {1}", 1, "line 2: is not JSON"),
        ("decide --input {0} --output {1} --layout cloze --choice 12=3,4", 1, "line 2: is not"),
        ("score --input {0} --output {1} --shard 1/1", 0, "2 rows, of which 1 failed"),
        ("eval uncertainty --dataset {0} --grader text --output {1}", 2, "line 2 is not JSON"),
        ("eval given --dataset {0} --grader text --output {1}", 2, "line 2 is not JSON"),
        (f"eval ranks {FEW} --texts {{0}} --output {{1}}", 2, "line 2 of"),
        ("calibrate {0} --output {1}", 2, "line 2 is not JSON"),
    ],
)
def test_a_bad_row_ends_a_verb_as_the_page_says(
    dise: Dise, tmp_path: Path, line: str, code: int, message: str
) -> None:
    """docs/evaluation.md: 2 where a figure is of all rows, else 1 unless the row is kept."""
    texts = {"prompt": "1,2 -> 3", "input": "1,2 -> 3", "response": "1+2=3", "answer": "3"}
    row = {"id": "countdown-0", "candidates": ["1+2=3"], "score": -0.1, "label": True, **texts}
    output = tmp_path / ("folder" if "shard" in line or "eval" in line else "output.jsonl")
    asked = line.format(written(tmp_path / "rows.jsonl", row, "{no"), output).split()
    run = dise(*asked)
    assert (run.code, message in run.err) == (code, True), run.err
    assert output.exists() == (code < 2)
