"""dise generate and dise score as a person types them, on the embedded model."""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.app.conftest import Run

Dise = Callable[..., Run]

PROBLEM = "83,18,75 -> 10"
ANSWER = "18+75=93,93-83=10<answer>18+75-83</answer>"
FAST = ("--max-tokens", 24, "--block-length", 12, "--tokens-per-step", 6)


def write_jsonl(path: Path, *records: Any) -> Path:
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    path.write_text("\n".join(lines) + "\n")
    return path


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_generate_prints_text_score_and_cost(dise: Dise) -> None:
    run = dise("generate", PROBLEM, *FAST)
    assert run.code == 0
    assert PROBLEM in run.out
    assert "(dise, last-10," in run.out
    assert re.search(r"score -\d\.\d{4}, >?\d+\.\d% a token \(", run.out)
    assert "5 forward passes" in run.out
    assert "probability of writing" not in run.out, "a legend of colours, without any"


def test_generate_json_is_one_object_and_nothing_else(dise: Dise) -> None:
    run = dise(
        "generate",
        PROBLEM,
        *FAST,
        "--json",
        "--temperature",
        0.8,
        "--n",
        2,
        "--best-of",
        3,
        "--logprobs",
        2,
    )
    record = json.loads(run.out)
    assert (run.code, run.err) == (0, "")
    assert record["prompt"] == PROBLEM
    assert record["model"] == "countdown"
    assert len(record["outputs"]) == 2
    assert len(record["outputs"][0]["tokens"]) == 24
    assert len(record["outputs"][0]["tokens"][0]["top_logprobs"]) == 2


def test_two_runs_without_a_seed_differ_and_the_seed_that_is_told_repeats_each(dise: Dise) -> None:
    """At this temperature two texts of 24 tokens are the same about once in 10^50 runs."""
    asked = ("generate", PROBLEM, *FAST, "--temperature", 50)
    records = [json.loads(dise(*asked, "--json").out) for _ in range(2)]
    texts = [record["outputs"][0]["token_ids"] for record in records]
    assert texts[0] != texts[1]
    for record, text in zip(records, texts, strict=True):
        again = json.loads(dise(*asked, "--json", "--seed", record["seed"]).out)
        assert (again["outputs"][0]["token_ids"], again["seed"]) == (text, record["seed"])
    assert re.search(r"forward passes, \d+\.\d\d s, seed \d+$", dise(*asked).out, re.MULTILINE)
    assert "seed" not in dise("generate", PROBLEM, *FAST).out


def test_score_prefers_sense_to_nonsense(dise: Dise) -> None:
    values = []
    for response in (ANSWER, "83<answer>=+18,75-93=10+93</answer>18+75-83,"):
        run = dise(
            "score", "--prompt", PROBLEM, "--response", response, "--selector", "response", "--json"
        )
        [output] = json.loads(run.out)["outputs"]
        assert output["text"] == response
        assert output["finish_reason"] is None
        values.append(output["score"]["value"])
    assert values[0] > values[1]


def test_the_score_alone_is_the_score_beside_a_report(dise: Dise) -> None:
    asked = ("score", "--prompt", PROBLEM, "--response", ANSWER)
    records = [
        json.loads(dise(*asked, "--logprobs", each, "--json").out)["outputs"][0]
        for each in ("none", "0")
    ]
    assert records[0]["score"]["value"] == pytest.approx(records[1]["score"]["value"], abs=1e-5)
    assert [len(each["tokens"]) > 0 for each in records] == [False, True]
    run = dise(*asked, "--logprobs", "none")
    assert run.code == 0
    assert ANSWER in run.out
    assert "probability of writing" not in run.out


def test_logprobs_are_a_number_or_none(dise: Dise) -> None:
    run = dise("score", "--response", ANSWER, "--logprobs", "all")
    assert run.code == 2
    assert "'all' is neither a number nor none" in run.err


def test_score_without_a_prompt_and_with_colours(dise: Dise) -> None:
    run = dise("score", "--response", ANSWER, "--no-chat")
    assert run.code == 0
    assert ANSWER in run.out


def test_a_file_keeps_order_ids_and_other_keys(dise: Dise, tmp_path: Path) -> None:
    problems = write_jsonl(
        tmp_path / "in", {"prompt": PROBLEM, "id": 7}, "", {"prompt_ids": [22, 3, 23], "note": "x"}
    )
    run = dise("generate", "--input", problems, "--output", tmp_path / "out", *FAST)
    assert (run.code, run.out, run.err) == (0, "", "dise: 2 answered\n")
    first, second = read_jsonl(tmp_path / "out")
    assert (first["id"], first["prompt"], first["line"]) == (7, PROBLEM, 1)
    assert (second["note"], second["prompt"], second["line"]) == ("x", None, 3)
    assert second["prompt_ids"] == [22, 3, 23]


def test_standard_input_and_output_stand_for_files(
    dise: Dise, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = json.dumps({"prompt": PROBLEM}) + "\n" + json.dumps({"prompt": "1 -> 1"})
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    run = dise("generate", "--input", "-", *FAST)
    assert [json.loads(line)["line"] for line in run.out.splitlines()] == [1, 2]


def test_generated_answers_can_be_scored_from_the_file_with_the_same_result(
    dise: Dise, tmp_path: Path
) -> None:
    dise(
        "generate",
        "--input",
        write_jsonl(tmp_path / "in", {"prompt": PROBLEM}),
        "--output",
        tmp_path / "out",
        *FAST,
    )
    [answer] = read_jsonl(tmp_path / "out")
    pair = {"prompt": PROBLEM, "response_ids": answer["outputs"][0]["token_ids"]}
    run = dise("score", "--input", write_jsonl(tmp_path / "pairs", pair), "--output", "-")
    scored = json.loads(run.out)["outputs"][0]["score"]
    assert scored["value"] == pytest.approx(answer["outputs"][0]["score"]["value"], abs=1e-5)


def test_bad_lines_are_named_and_the_others_are_done(dise: Dise, tmp_path: Path) -> None:
    lines = write_jsonl(
        tmp_path / "in",
        {"prompt": PROBLEM},
        "{not json",
        {"text": "no prompt"},
        [1, 2],
        {"prompt_ids": [9999]},
        {"prompt": "hello"},
        {"prompt": 5},
        {"prompt_ids": ["a"]},
        {"prompt": "x", "prompt_ids": [1]},
        {"prompt": "1,2 -> 3"},
    )
    run = dise("generate", "--input", lines, "--output", tmp_path / "out", *FAST)
    assert run.code == 1
    assert [record["line"] for record in read_jsonl(tmp_path / "out")] == [1, 10]
    *errors, closing = run.err.splitlines()
    assert closing == "dise: 2 answered, 8 failed"
    assert [error.split(":")[1].strip() for error in errors] == [f"line {n}" for n in range(2, 10)]
    for error, text in zip(
        errors,
        [
            "is not JSON: Expecting property name",
            'needs either "prompt" (text) or "prompt_ids"',
            "is not a JSON object: [1, 2]",
            "token id 9999 at position 0 is outside the vocabulary",
            "the model's vocabulary has no 'h'",
            '"prompt" must be a text, not 5',
            '"prompt_ids" must be a list of integers',
            'needs either "prompt" (text) or "prompt_ids"',
        ],
        strict=True,
    ):
        assert text in error


def test_resume_goes_on_after_the_last_whole_line(dise: Dise, tmp_path: Path) -> None:
    lines = write_jsonl(tmp_path / "in", *({"prompt": f"{n},2 -> {n + 2}"} for n in range(1, 6)))
    dise("generate", "--input", lines, "--output", tmp_path / "whole", *FAST)
    whole = (tmp_path / "whole").read_bytes()
    (tmp_path / "torn").write_bytes(
        b"".join(whole.splitlines(keepends=True)[:2]) + b'{"prompt": "3,'
    )
    run = dise("generate", "--input", lines, "--output", tmp_path / "torn", "--resume", *FAST)
    assert run.code == 0
    assert [record["line"] for record in read_jsonl(tmp_path / "torn")] == [1, 2, 3, 4, 5]
    for resumed, straight in zip(
        read_jsonl(tmp_path / "torn"), read_jsonl(tmp_path / "whole"), strict=True
    ):
        assert resumed["outputs"][0]["token_ids"] == straight["outputs"][0]["token_ids"]
    assert (
        dise("generate", "--input", lines, "--output", tmp_path / "torn", "--resume", *FAST).code
        == 0
    )
    assert len(read_jsonl(tmp_path / "torn")) == 5


def test_resume_of_a_foreign_file_is_refused(dise: Dise, tmp_path: Path) -> None:
    lines = write_jsonl(tmp_path / "in", {"prompt": PROBLEM})
    foreign = write_jsonl(tmp_path / "foreign", "something else")
    run = dise("generate", "--input", lines, "--output", foreign, "--resume", *FAST)
    assert (run.code, run.out) == (2, "")
    assert f"line 1 of {foreign} is none that dise wrote" in run.err
    assert foreign.read_text() == "something else\n"


@pytest.mark.parametrize("limit", [1, 7, 64])
def test_the_batch_limit_changes_neither_tokens_nor_scores(
    dise: Dise, tmp_path: Path, limit: int
) -> None:
    prompts = [f"{n},{n + 3},{2 * n} -> {n + 1}" for n in range(1, 12)]
    lines = write_jsonl(tmp_path / "in", *({"prompt": prompt} for prompt in prompts))
    for name, num in (("one", 64), ("other", limit)):
        dise(
            "generate", "--input", lines, "--output", tmp_path / name, *FAST, "--max-num-seqs", num
        )
    for one, other in zip(
        read_jsonl(tmp_path / "one"), read_jsonl(tmp_path / "other"), strict=True
    ):
        [first], [second] = one["outputs"], other["outputs"]
        assert first["token_ids"] == second["token_ids"]
        assert first["score"]["value"] == pytest.approx(second["score"]["value"], abs=1e-5)


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("generate",), "give either prompts or --input FILE"),
        (("generate", PROBLEM, "--input", "x"), "give either prompts or --input FILE"),
        (("generate", ""), "the prompt is empty"),
        (
            ("generate", PROBLEM, "--max-tokens", 0),
            "dise: max_tokens=0: Input should be greater than or equal",
        ),
        (("generate", PROBLEM, "--max-tokens", -5), "max_tokens=-5"),
        (
            ("generate", PROBLEM, "--max-tokens", 600),
            "with max_tokens=600 is longer than the model's limit of 512 tokens",
        ),
        (
            ("generate", PROBLEM, "--steps", 4, "--tokens-per-step", 2),
            "give either --steps or --tokens-per-step",
        ),
        (
            ("generate", PROBLEM, "--steps", 2),
            "steps=2 is less than one step for each of the 4 blocks",
        ),
        (("generate", PROBLEM, "--selector", "last_10"), "Did you mean 'last-K'?"),
        (
            ("generate", PROBLEM, "--scorer", "dize"),
            "unknown scorer 'dize'. Did you mean 'dise'? Known: ar-perplexity, dise,",
        ),
        (
            ("generate", PROBLEM, "--model", "countdwn"),
            "unknown model 'countdwn'. Did you mean 'countdown'?",
        ),
        (("generate", PROBLEM, "--model", "./nowhere"), "there is no folder './nowhere'"),
        (("generate", PROBLEM, "--n", 3), "3 responses at temperature 0 would all be the same"),
        (("generate", PROBLEM, "--device", "abacus"), "device 'abacus' cannot be used"),
        (
            ("generate", "--input", "/no/such/file"),
            "cannot read --input /no/such/file: No such file or directory",
        ),
        (("generate", "--input", "-", "--resume"), "--resume needs --output FILE"),
        (("generate", "--input", "-", "--overwrite"), "--overwrite needs --output FILE"),
        (
            ("generate", "--input", "-", "--output", "x", "--resume", "--overwrite"),
            "give either --resume or --overwrite",
        ),
        (("generate", "-", "-"), "- is given twice: standard input can be read only once"),
        (("score", "--prompt", "-", "--response", "-"), "- is given twice"),
        (
            ("generate", PROBLEM, "--model", "llada"),
            "'llada' is an adapter and no model: name a model that it loads by its folder or hub "
            "id, such as GSAI-ML/LLaDA-8B-Instruct; `dise models` lists what can be named",
        ),
        (("generate", "<|mdm_mask|>1"), "the text holds the mask token <|mdm_mask|> at position 1"),
        (("score",), "give either --response TEXT (with --prompt) or --input FILE"),
        (("score", "--response", ""), "the response is empty"),
        (("score", "--response", "<|mdm_mask|>"), "the text holds the mask token"),
        (("score", "--response", "1", "--max-num-seqs", 0), "max_num_seqs=0"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(
    dise: Dise, args: tuple[object, ...], text: str
) -> None:
    run = dise(*args)
    assert run.code == 2
    assert run.out == ""
    assert text in run.err
    assert len(run.err.strip().splitlines()) == 1


def test_an_unknown_option_is_bad_usage(dise: Dise) -> None:
    run = dise("generate", PROBLEM, "--temprature", 1)
    assert run.code == 2
    assert "--temprature" in run.err


def test_an_empty_or_same_file_is_refused(dise: Dise, tmp_path: Path) -> None:
    empty = write_jsonl(tmp_path / "in", "")
    assert "holds no line" in dise("score", "--input", empty).err
    assert "are the same file" in dise("score", "--input", empty, "--output", empty).err
    assert (
        "cannot write --output"
        in dise("generate", "--input", write_jsonl(empty, "{}"), "--output", tmp_path).err
    )


def test_debug_shows_the_traceback(dise: Dise) -> None:
    with pytest.raises(ValueError, match="unknown scorer"):
        dise("generate", PROBLEM, "--scorer", "dize", "--debug")
