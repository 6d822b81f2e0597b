"""dise generate, dise score and dise rank as a person types them, on the embedded model."""

import io
import json
import re
from pathlib import Path

import pytest

from tests.commands import Dise
from tests.jsonlines import records_of, written

PROBLEM = "83,18,75 -> 10"
ANSWER = "18+75=93,93-83=10<answer>18+75-83</answer>"
NONSENSE = "83<answer>=+18,75-93=10+93</answer>18+75-83,"
FAST = ("--max-tokens", 24, "--block-length", 12, "--tokens-per-step", 6)


def test_generate_prints_text_score_and_cost(dise: Dise) -> None:
    run = dise("generate", PROBLEM, *FAST)
    assert run.code == 0
    assert PROBLEM in run.out
    assert "(dise, last-10," in run.out
    assert re.search(r"score -\d\.\d{4}, >?\d+\.\d% a token; written >?\d+\.\d% \(", run.out)
    assert "5 forward passes" in run.out
    assert "probability of writing" not in run.out, "a legend of colours, without any"


def test_generate_json_is_one_object_and_nothing_else(dise: Dise) -> None:
    several = ["--json", "--temperature", "0.8", "--n", "2", "--best-of", "3", "--logprobs", "2"]
    run = dise("generate", PROBLEM, *FAST, *several)
    record = json.loads(run.out)
    assert (run.code, run.err) == (0, "")
    assert record["prompt"] == PROBLEM
    assert record["model"] == "countdown"
    assert len(record["outputs"]) == 2
    assert len(record["outputs"][0]["tokens"]) == 24
    assert len(record["outputs"][0]["tokens"][0]["top_logprobs"]) == 2


def test_the_seed_that_is_told_repeats_a_run(dise: Dise) -> None:
    asked = ("generate", PROBLEM, *FAST, "--temperature", 50)
    first = json.loads(dise(*asked, "--json").out)
    again = json.loads(dise(*asked, "--json", "--seed", first["seed"]).out)
    assert again["outputs"][0]["token_ids"] == first["outputs"][0]["token_ids"]
    assert re.search(r"forward passes, \d+\.\d\d s, seed \d+$", dise(*asked).out, re.MULTILINE)
    assert "seed" not in dise("generate", PROBLEM, *FAST).out


def test_a_file_keeps_order_ids_and_other_keys(dise: Dise, tmp_path: Path) -> None:
    problems = written(
        tmp_path / "in", {"prompt": PROBLEM, "id": 7}, "", {"prompt_ids": [22, 3, 23], "note": "x"}
    )
    run = dise("generate", "--input", problems, "--output", tmp_path / "out", *FAST)
    assert (run.code, run.out, run.err) == (0, "", "dise: 2 answered\n")
    first, second = records_of(tmp_path / "out")
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
    lines = written(tmp_path / "in", {"prompt": PROBLEM})
    dise("generate", "--input", lines, "--output", tmp_path / "out", *FAST)
    [answer] = records_of(tmp_path / "out")
    pair = {"prompt": PROBLEM, "response_ids": answer["outputs"][0]["token_ids"]}
    run = dise("score", "--input", written(tmp_path / "pairs", pair), "--output", "-")
    scored = json.loads(run.out)["outputs"][0]["score"]
    assert scored["value"] == pytest.approx(answer["outputs"][0]["score"]["value"], abs=1e-5)


def test_debug_shows_the_traceback(dise: Dise) -> None:
    with pytest.raises(ValueError, match="unknown scorer"):
        dise("generate", PROBLEM, "--scorer", "dize", "--debug")


@pytest.mark.parametrize("scorer", ["dise", "mc"])
def test_rank_puts_sense_before_nonsense(dise: Dise, scorer: str) -> None:
    asked = ("--scorer", scorer, "--selector", "response", "--json")
    run = dise("rank", "--prompt", PROBLEM, NONSENSE, ANSWER, *asked)
    assert (run.code, run.err) == (0, "")
    outputs = json.loads(run.out)["outputs"]
    assert [(output["index"], output["text"]) for output in outputs] == [(1, ANSWER), (0, NONSENSE)]
    assert ("log_likelihood" in outputs[0]["score"]) == (scorer == "mc")


def test_rank_takes_a_file_of_texts_and_ids(dise: Dise, tmp_path: Path) -> None:
    lines = [{"prompt": PROBLEM, "candidates": ["1+2=3", [1, 2]], "id": 5}, {"candidates": ["1"]}]
    run = dise("rank", "--input", written(tmp_path / "in", *lines), "--output", "-", "--no-chat")
    assert (run.code, run.err) == (0, "dise: 2 answered\n")
    first, last = (json.loads(line) for line in run.out.splitlines())
    assert (first["id"], first["line"], len(first["outputs"])) == (5, 1, 2)
    assert last["line"] == 2


@pytest.mark.parametrize(
    ("verb", "told"),
    [
        ("generate hi", "`dise generate` writes with a diffusion language model"),
        ("generate --input {lines}", "`dise generate` writes with a diffusion language model"),
        ("fill a{{}}b", "`dise fill` writes with a diffusion language model"),
        ("score --response hi", "scorer 'dise' asks a diffusion language model"),
        ("rank a b --prompt c --scorer mc", "scorer 'mc' asks a diffusion language model"),
        ("score --response hi --scorer ar-perplexity", None),
    ],
)
def test_a_judge_that_is_named_as_the_model_is_refused_before_it_is_loaded(
    dise: Dise, tmp_path: Path, verb: str, told: str | None
) -> None:
    """The folder holds a config.json and nothing that could be loaded; a scorer that asks a judge
    alone goes on, and misses the rest.
    """
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    lines = written(tmp_path / "in.jsonl", {"prompt": "hi"})
    run = dise(*verb.format(lines=lines).split(), "--model", tmp_path)
    if told is None:
        assert run.code == 1
        assert "auto-regressive" not in run.err
        return
    assert run.code == 2
    assert f"{str(tmp_path)!r} is an auto-regressive model, and {told}: name one with" in run.err
    assert "and this one with --judge" in run.err


def test_a_gguf_file_that_is_none_is_told_so_and_not_taken_for_a_judge(
    dise: Dise, tmp_path: Path
) -> None:
    (tmp_path / "fake.gguf").write_text("{}")
    for name, told in (("none.gguf", "there is no file"), ("fake.gguf", "it is cut off")):
        run = dise("generate", "hi", "--model", tmp_path / name)
        assert run.code != 0
        assert told in run.err
        assert "auto-regressive" not in run.err
