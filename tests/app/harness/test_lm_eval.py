"""lm-evaluation-harness asks our model: by its own command on local tasks, from its cache, and with
bad settings.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dise_core import LLM, InputError, SamplingParams, ScoringParams

pytest.importorskip("lm_eval")
from lm_eval.api.instance import Instance

from dise_app.harness.main import with_batch_size
from dise_app.harness.model import DiseLM

QUESTIONS = [
    ("83,18,75 -> 10", ["75+18-83=10", "83-75+18=26", "83+18-75=26"], 0),
    ("8,3,5 -> 10", ["8+3-5=6", "5+8-3=10", "5-3+8=11"], 1),
    ("20,2,7 -> 15", ["20-7-2=11", "20+2-7=15", "7+2-20=15"], 1),
]

CHOICE = """
task: countdown_choice
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "<|user|>{{{{question}}}}<|assistant|>"
target_delimiter: ""
doc_to_choice: choices
doc_to_target: label
metric_list: [{{metric: acc}}]
"""

ANSWER = """
task: countdown_answer
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: question
doc_to_target: "{{{{choices[label]}}}}"
generation_kwargs: {{until: ["\\n"], max_gen_toks: 32, do_sample: false}}
metric_list: [{{metric: exact_match}}]
"""


def run_tasks(folder: Path, *arguments: str) -> dict[str, list[dict[str, Any]]]:
    """Run the harness's command on both tasks; return its logged samples by task."""
    data = folder / "questions.jsonl"
    data.write_text(
        "".join(
            json.dumps({"question": q, "choices": c, "label": label}) + "\n"
            for q, c, label in QUESTIONS
        )
    )
    (folder / "choice.yaml").write_text(CHOICE.format(data=data))
    (folder / "answer.yaml").write_text(ANSWER.format(data=data))
    command = [
        sys.executable,
        "-m",
        "dise_app.harness.main",
        "--model",
        "dise",
        "--include_path",
        str(folder),
    ]
    command += [
        "--tasks",
        "countdown_choice,countdown_answer",
        "--log_samples",
        "--output_path",
        str(folder / "out"),
    ]
    environment = {
        "HF_HOME": str(folder / "home"),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "PATH": "/usr/bin:/bin",
        **{
            name: os.environ[name]
            for name in ("PYTHONPATH", "OMP_NUM_THREADS", "OMP_WAIT_POLICY")
            if name in os.environ
        },
    }
    done = subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    samples: dict[str, list[dict[str, Any]]] = {}
    for file in sorted((folder / "out").rglob("samples_*.jsonl")):
        rows = sorted(
            map(json.loads, file.read_text().splitlines()), key=lambda row: int(row["doc_id"])
        )
        samples["choice" if "choice" in file.name else "answer"] = rows
    return samples


@pytest.mark.timeout(400)
def test_the_harness_gets_the_log_likelihoods_of_dise_rank_and_the_answers_of_dise_generate(
    tmp_path: Path,
) -> None:
    settings = "scorer=mc,selector=response,samples=4,block_length=16,tokens_per_step=2"
    samples = run_tasks(tmp_path, "--model_args", f"model=countdown,{settings}")
    llm = LLM("countdown")
    params = ScoringParams(
        scorer="mc", selector="response", scorer_settings={"num_samples": 4}, block_length=16
    )
    for (question, candidates, _), row in zip(QUESTIONS, samples["choice"], strict=True):
        ranked = {
            output.index: output.score for output in llm.rank(question, candidates, params).outputs
        }
        expected = [ranked[index].log_likelihood for index in range(len(candidates))]
        assert [float(answer[0][0]) for answer in row["resps"]] == pytest.approx(expected, rel=1e-5)
    assert all(isinstance(row["resps"][0][0], str) for row in samples["answer"])
    [results] = (tmp_path / "out").rglob("results_*.json")
    assert json.loads(results.read_text())["config"]["batch_size"] == "auto"


@pytest.mark.parametrize(
    ("arguments", "yaml", "expected"),
    [
        ("--model dise --tasks x", "", "auto"),
        ("run --model=dise --tasks x", "", "auto"),
        ("-M dise --tasks x", "", "auto"),
        ("--model dise --tasks x --batch_size 3", "", "3"),
        ("--model dise --batch_size=1 --tasks x", "", "1"),
        ("--model dise -b 1 --tasks x", "", "1"),
        ("--model dise --tasks x --config {yaml}", "batch_size: 5", 5),
        ("--model dise --tasks x -C {yaml}", "batch_size: 1", 1),
        ("--config {yaml}", "{model: dise, tasks: [x]}", "auto"),
        ("--model hf --tasks x", "", 1),
        ("--model hf --config {yaml}", "{model: dise, tasks: [x]}", 1),
        ("--tasks x --model_args model=dise", "", 1),
    ],
)
def test_lm_eval_is_told_auto_where_nobody_named_a_batch_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, yaml: str, expected: object
) -> None:
    from lm_eval._cli import HarnessCLI
    from lm_eval.config.evaluate_config import EvaluatorConfig

    (tmp_path / "run.yaml").write_text(yaml)
    given = arguments.format(yaml=tmp_path / "run.yaml").split()
    monkeypatch.setattr(sys, "argv", ["dise-lm-eval", *with_batch_size(given)])
    assert EvaluatorConfig.from_cli(HarnessCLI().parse_args()).batch_size == expected


def test_a_batch_size_that_nobody_named_is_ours_and_one_that_is_named_wins() -> None:
    """None is what simple_evaluate passes on where its caller names none; the harness leaves it
    out.
    """
    for given, expected in ((None, 64), ("auto", 64), ("auto:4", 64), ("3", 3), (1, 1)):
        model = DiseLM.create_from_arg_string(
            "model=countdown", {"batch_size": given, "max_batch_size": None}
        )
        assert model._llm.config.max_num_seqs == expected
    assert DiseLM("countdown", batch_size=1, max_num_seqs=8)._llm.config.max_num_seqs == 8
    for bad in ("many", "0", -1):
        with pytest.raises(InputError, match="it is a number from 1 on, or auto"):
            DiseLM("countdown", batch_size=bad)


def request(kind: str, *arguments: Any) -> Instance:
    return Instance(request_type=kind, doc={}, arguments=arguments, idx=0)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def model() -> DiseLM:
    return DiseLM(
        "countdown", scorer="mc", selector="response", samples=2, block_length=16, batch_size="8"
    )


def test_answers_are_stopped_and_chat_is_written_by_the_template(model: DiseLM) -> None:
    prompt = model.apply_chat_template([{"role": "user", "content": "83,18,75 -> 10"}])
    assert prompt == "<|user|>83,18,75 -> 10<|assistant|>"
    [whole] = model.generate_until(
        [request("generate_until", prompt, {"max_gen_toks": 48})], disable_tqdm=True
    )
    stopped = [request("generate_until", prompt, {"max_gen_toks": 48, "until": ["="]})]
    assert model.generate_until(stopped, disable_tqdm=True) == [whole.partition("=")[0]]
    assert "=" in whole


def test_a_tasks_own_settings_come_first() -> None:
    model = DiseLM("countdown", temperature=0.8, max_tokens=20, block_length=8, seed=0)
    prompt = "<|user|>83,18,75 -> 10<|assistant|>"
    greedy = [request("generate_until", prompt, {"max_new_tokens": 40, "do_sample": False})]
    [text] = model.generate_until(greedy, disable_tqdm=True)
    expected = LLM("countdown").generate(
        prompt, SamplingParams(max_tokens=40, block_length=8), chat=False
    )
    assert text == expected[0].outputs[0].text
    drawn = [request("generate_until", prompt, {"until": []})]
    expected = LLM("countdown").generate(
        prompt, SamplingParams(max_tokens=20, block_length=8, temperature=0.8, seed=0), chat=False
    )
    assert model.generate_until(drawn, disable_tqdm=True) == [expected[0].outputs[0].text]


def test_without_a_seed_two_runs_differ_and_the_seed_that_is_told_repeats_each() -> None:
    """At this temperature two texts of 20 tokens are the same about once in 10^40 runs."""
    prompt = "<|user|>83,18,75 -> 10<|assistant|>"
    settings: dict[str, Any] = {"temperature": 50.0, "max_tokens": 20, "block_length": 10}

    def run(**more: Any) -> tuple[list[str], int]:
        model = DiseLM("countdown", **settings, **more)
        asked = [request("generate_until", prompt, {"until": []})] * 2
        return model.generate_until(asked, disable_tqdm=True), model.get_model_info()["dise_seed"]

    runs = [run(), run()]
    texts = [text for both, _ in runs for text in both]
    assert len(set(texts)) == 4, "a repeated request is a new draw"
    for both, seed in runs:
        assert run(seed=seed) == (both, seed)


def test_each_result_goes_into_the_cache(model: DiseLM) -> None:
    kept: list[tuple[str, Any, Any]] = []

    class Hook:
        def add_partial(self, kind: str, arguments: Any, result: Any) -> None:
            kept.append((kind, arguments, result))

    requests = [
        request("loglikelihood", "<|user|>8,3,5 -> 10<|assistant|>", text)
        for text in ("5+8-3=10", "8+5-3=10")
    ]
    before = model.cache_hook
    model.set_cache_hook(Hook())
    try:
        values = model.loglikelihood(requests, disable_tqdm=True)
    finally:
        model.set_cache_hook(before)
    assert sorted(result for _, _, result in kept) == sorted(values)
    assert {arguments[1] for _, arguments, _ in kept} == {"5+8-3=10", "8+5-3=10"}


def test_a_long_context_loses_its_beginning(
    model: DiseLM, caplog: pytest.LogCaptureFixture
) -> None:
    context = "1," * 300 + "8,3,5 -> 10"
    [(value, _)] = model.loglikelihood(
        [request("loglikelihood", context, "5+8-3=10")], disable_tqdm=True
    )
    assert value < 0
    assert "cut to its last 504" in caplog.text


def test_rolling_needs_a_scorer_with_a_likelihood(model: DiseLM) -> None:
    [value] = model.loglikelihood_rolling(
        [request("loglikelihood_rolling", "5+8-3=10")], disable_tqdm=True
    )
    assert value < 0
    with pytest.raises(InputError, match="take scorer=mc"):
        DiseLM("countdown").loglikelihood_rolling(
            [request("loglikelihood_rolling", "5+8-3=10")], disable_tqdm=True
        )


def test_unknown_settings_are_refused_before_loading() -> None:
    with pytest.raises(InputError, match="no setting 'tokens_per_stop'"):
        DiseLM("countdown", tokens_per_stop=2)
