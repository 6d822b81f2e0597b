"""dise rank, and the settings of strategies as a person types them, on the embedded model."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.app.conftest import Run

Dise = Callable[..., Run]

PROBLEM = "83,18,75 -> 10"
ANSWER = "18+75=93,93-83=10<answer>18+75-83</answer>"
NONSENSE = "83<answer>=+18,75-93=10+93</answer>18+75-83,"
FAST = ("--max-tokens", 12, "--block-length", 12, "--tokens-per-step", 6)


@pytest.mark.parametrize("scorer", ["dise", "interleaved", "mc", "mc-llada", "mc-dream"])
def test_rank_puts_sense_before_nonsense(dise: Dise, scorer: str) -> None:
    run = dise(
        "rank",
        "--prompt",
        PROBLEM,
        NONSENSE,
        ANSWER,
        "--scorer",
        scorer,
        "--selector",
        "response",
        "--json",
    )
    assert (run.code, run.err) == (0, "")
    outputs = json.loads(run.out)["outputs"]
    assert [(output["index"], output["text"]) for output in outputs] == [(1, ANSWER), (0, NONSENSE)]
    assert ("log_likelihood" in outputs[0]["score"]) == scorer.startswith("mc")


def test_rank_shows_the_candidates_best_first(dise: Dise) -> None:
    run = dise("rank", "--prompt", PROBLEM, NONSENSE, ANSWER, "--selector", "response")
    assert run.out.index(ANSWER) < run.out.index(NONSENSE)


def test_rank_takes_a_file_of_texts_and_ids(dise: Dise, tmp_path: Path) -> None:
    lines = [
        {"prompt": PROBLEM, "candidates": ["1+2=3", [1, 2]], "id": 5},
        {"prompt": PROBLEM},
        {"prompt": PROBLEM, "candidates": []},
        {"prompt": PROBLEM, "candidates": [5]},
        {"candidates": ["1"]},
    ]
    (tmp_path / "in").write_text("\n".join(map(json.dumps, lines)))
    run = dise("rank", "--input", tmp_path / "in", "--output", "-", "--no-chat")
    assert run.code == 1
    first, last = (json.loads(line) for line in run.out.splitlines())
    assert (first["id"], first["line"], len(first["outputs"])) == (5, 1, 2)
    assert last["line"] == 5
    *problems, told = run.err.splitlines()
    assert told == "dise: 2 answered, 3 failed"
    assert [problem.split(":")[1] for problem in problems] == [" line 2", " line 3", " line 4"]
    assert 'needs "candidates", a list of texts or of token ids' in problems[0]
    assert '"candidate_ids" must be a list of integers' in problems[2]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["rank"], "give either candidates (with --prompt) or --input FILE"),
        (
            ["score", "--response", "1", "--scorer", "mc", "--samples", "0"],
            "scorer 'mc': num_samples=0: Input should be",
        ),
        (
            ["score", "--response", "1", "--scorer-setting", "k"],
            "a setting is written KEY=VALUE, not 'k'",
        ),
        (
            ["score", "--response", "1", "--scorer-setting", "k=2"],
            "scorer 'dise': there is no setting 'k'",
        ),
        (
            ["score", "--response", "1", "--samples", "2", "--scorer-setting", "num_samples=3"],
            "setting 'num_samples' is given twice",
        ),
        (
            ["score", "--response", "1", "--scorer", "ar-perplexity"],
            "needs an auto-regressive judge; name one with --judge",
        ),
        (
            ["score", "--response", "1", "--judge", "countdown"],
            "judge 'countdown' is not auto-regressive",
        ),
        (
            ["score", "--response", "1", "--judge", "no/such.gguf"],
            "there is no file 'no/such.gguf'",
        ),
        (
            ["generate", PROBLEM, "--length", "dise-flexible", "--length-setting", "patience=0"],
            "length controller 'dise-flexible': patience=0: Input should be greater than or equal",
        ),
        (
            [
                "generate",
                PROBLEM,
                "--length",
                "dise-flexible",
                "--length-setting",
                "max_iterations=0",
            ],
            "max_iterations=0: Input should be greater than or equal to 1",
        ),
        (
            ["generate", PROBLEM, "--length", "dise-flexible", "--length-setting", "mask_size=0"],
            "mask_size=0: Input should be greater than or equal to 1",
        ),
        (
            ["generate", PROBLEM, "--unmasking", "threshold", "--unmasking-setting", "threshold=2"],
            "unmasking policy 'threshold': threshold=2: Input should be less than or equal to 1",
        ),
        (["generate", PROBLEM, "--eps", "2"], "eps=2.0: Input should be less than 1"),
    ],
)
def test_bad_settings_are_one_line_and_exit_code_2(
    dise: Dise, args: list[str], message: str
) -> None:
    run = dise(*args)
    assert (run.code, run.out) == (2, "")
    assert message in run.err
    assert len(run.err.splitlines()) == 1


@pytest.mark.parametrize("length", ["dise-flexible", "daedal"])
def test_a_length_controller_shows_its_trace(dise: Dise, length: str) -> None:
    run = dise("generate", PROBLEM, *FAST, "--length", length, "--json")
    [output] = json.loads(run.out)["outputs"]
    assert output["length"]["controller"] == length
    assert output["length"]["trace"][0]["iteration"] == 1
    assert output["length"]["stopped_by"]


def test_settings_reach_their_strategies(dise: Dise) -> None:
    settings = ("--length-setting", "max_iterations=2", "--length-setting", "mask_size=3")
    run = dise("generate", PROBLEM, *FAST, "--length", "dise-flexible", *settings, "--json")
    [output] = json.loads(run.out)["outputs"]
    assert len(output["length"]["trace"]) == 2
    assert output["length"]["stopped_by"] in {"max_iterations", "patience"}


@pytest.mark.parametrize(
    "options",
    [
        ("--unmasking", "entropy", "--steps", "6", "--eps", "0.001"),
        ("--unmasking", "margin", "--unmasking-setting", "alg_temp=0.2"),
        ("--unmasking", "origin", "--temperature", "0.5"),
        ("--unmasking", "threshold", "--unmasking-setting", "threshold=0.5"),
        ("--unmasking", "factor"),
    ],
)
def test_every_unmasking_policy_writes_a_text(dise: Dise, options: tuple[str, ...]) -> None:
    run = dise("generate", PROBLEM, "--max-tokens", 12, "--block-length", 12, *options, "--json")
    assert run.code == 0, run.err
    assert len(json.loads(run.out)["outputs"][0]["token_ids"]) == 12


def test_monte_carlo_shows_its_standard_error(dise: Dise) -> None:
    run = dise(
        "score", "--prompt", PROBLEM, "--response", ANSWER, "--scorer", "mc", "--samples", "4"
    )
    assert " ± " in run.out
    assert "(mc, response," in run.out


def test_stop_texts_and_forbidden_tokens_reach_the_answer(dise: Dise) -> None:
    plain = json.loads(dise("generate", PROBLEM, *FAST, "--json").out)["outputs"][0]
    stopped = json.loads(
        dise("generate", PROBLEM, *FAST, "--json", "--stop", "=", "--stop", ",").out
    )["outputs"][0]
    assert stopped["text"] == re.split("[=,]", plain["text"])[0] != plain["text"]
    forbidden = plain["token_ids"][0]
    run = dise(
        "generate",
        PROBLEM,
        *FAST,
        "--json",
        "--forbidden-token-ids",
        forbidden,
        "--forbidden-token-ids",
        3,
    )
    assert not {forbidden, 3} & set(json.loads(run.out)["outputs"][0]["token_ids"])


def test_rank_reports_as_many_likely_tokens_as_are_asked_for(dise: Dise) -> None:
    run = dise("rank", "--prompt", PROBLEM, "18+75-83", "--logprobs", 3, "--json")
    tokens = json.loads(run.out)["outputs"][0]["tokens"]
    assert all(len(token["top_logprobs"]) == 3 for token in tokens)
