"""lm-evaluation-harness asks our model: by its own command on local tasks, from its cache, and with
bad settings.
"""

import json
import logging
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dise_core import LLM, InputError, SamplingParams, ScoringParams

pytest.importorskip("lm_eval")
from lm_eval.api.instance import Instance
from lm_eval.tasks import TaskManager

from dise_eval.harness.main import main, with_batch_size
from dise_eval.harness.model import DiseLM
from tests.jsonlines import records_of, written

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
    rows = [dict(zip(("question", "choices", "label"), each, strict=True)) for each in QUESTIONS]
    data = written(folder / "questions.jsonl", *rows)
    (folder / "choice.yaml").write_text(CHOICE.format(data=data))
    (folder / "answer.yaml").write_text(ANSWER.format(data=data))
    line = (
        f"{sys.executable} -m dise_eval.harness.main --model dise --include_path {folder} "
        f"--tasks countdown_choice,countdown_answer --log_samples --output_path {folder / 'out'}"
    )
    inherited = ("PYTHONPATH", "OMP_NUM_THREADS", "OMP_WAIT_POLICY")
    environment = {
        "HF_HOME": str(folder / "home"),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "PATH": "/usr/bin:/bin",
        **{name: os.environ[name] for name in inherited if name in os.environ},
    }
    command, options = [*line.split(), *arguments], {"capture_output": True, "text": True}
    done = subprocess.run(command, env=environment, check=False, timeout=280, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr[-3000:]
    samples: dict[str, list[dict[str, Any]]] = {}
    for file in sorted((folder / "out").rglob("samples_*.jsonl")):
        logged = sorted(records_of(file), key=lambda row: int(row["doc_id"]))
        samples["choice" if "choice" in file.name else "answer"] = logged
    return samples


@pytest.mark.timeout(400)
def test_the_harness_gets_the_log_likelihoods_of_dise_rank_and_the_answers_of_dise_generate(
    tmp_path: Path,
) -> None:
    settings = "scorer=mc,selector=response,samples=4,block_length=16,tokens_per_step=2"
    samples = run_tasks(tmp_path, "--model_args", f"model=countdown,{settings}")
    llm = LLM("countdown")
    four = {"scorer": "mc", "scorer_settings": {"num_samples": 4}}
    params = ScoringParams(**four, selector="response", block_length=16)
    for (question, candidates, _), row in zip(QUESTIONS, samples["choice"], strict=True):
        ranked = sorted(llm.rank(question, candidates, params).outputs, key=lambda it: it.index)
        expected = [output.score.log_likelihood for output in ranked]
        assert [float(answer[0][0]) for answer in row["resps"]] == pytest.approx(expected, rel=1e-5)
    assert all(isinstance(row["resps"][0][0], str) for row in samples["answer"])
    [results] = (tmp_path / "out").rglob("results_*.json")
    assert json.loads(results.read_text())["config"]["batch_size"] == "auto"


@pytest.mark.parametrize(
    ("arguments", "yaml", "expected"),
    [
        ("run --model=dise --tasks x", "", "auto"),
        ("-M dise --tasks x", "", "auto"),
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


@pytest.mark.parametrize("role", ["model", "judge"])
def test_a_yaml_file_names_no_server_and_the_command_line_may(tmp_path: Path, role: str) -> None:
    path = tmp_path / "run.yaml"
    line = ["--model", "dise", "--config", str(path), "--tasks", "x"]
    for named in (
        f"{{{role}: 'http://127.0.0.1:9'}}",
        f"'block_length=8,{role}=http://127.0.0.1:9'",
    ):
        path.write_text(f"model_args: {named}")
        with pytest.raises(
            InputError, match=f"names a server as its {role}, .*--model_args {role}=URL"
        ):
            with_batch_size(line)
        given = [*line, "--model_args", f"{role}=http://127.0.0.1:9"]
        assert with_batch_size(given) == [*given, "--batch_size", "auto"]


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
        with pytest.raises(InputError, match="batch_size is a number from 1 on, or auto"):
            DiseLM("countdown", batch_size=bad)


PROMPT = "<|user|>83,18,75 -> 10<|assistant|>"


def request(kind: str, *arguments: Any) -> Instance:
    return Instance(request_type=kind, doc={}, arguments=arguments, idx=0)  # type: ignore[arg-type]


def generated(model: DiseLM, *settings: dict[str, Any]) -> list[str]:
    """Answers to the same prompt."""
    requests = [request("generate_until", PROMPT, each) for each in settings]
    return model.generate_until(requests, disable_tqdm=True)


def likelihoods(model: DiseLM, prompt: str, *texts: str) -> list[tuple[float, bool]]:
    requests = [request("loglikelihood", prompt, text) for text in texts]
    return model.loglikelihood(requests, disable_tqdm=True)


@pytest.fixture(scope="module")
def model() -> DiseLM:
    return DiseLM(
        "countdown", scorer="mc", selector="response", samples=2, block_length=16, batch_size="8"
    )


def test_answers_are_stopped_and_chat_is_written_by_the_template(model: DiseLM) -> None:
    assert model.apply_chat_template([{"role": "user", "content": "83,18,75 -> 10"}]) == PROMPT
    whole, stopped = generated(model, {"max_gen_toks": 48}, {"max_gen_toks": 48, "until": ["="]})
    assert stopped == whole.partition("=")[0]
    assert "=" in whole


def test_a_tasks_own_settings_come_first() -> None:
    model = DiseLM("countdown", temperature=0.8, max_tokens=20, block_length=8, seed=0)
    for task, fields in (
        ({"max_new_tokens": 40, "do_sample": False}, {"max_tokens": 40}),
        ({"until": []}, {"max_tokens": 20, "temperature": 0.8, "seed": 0}),
    ):
        params = SamplingParams(block_length=8, **fields)
        [expected] = LLM("countdown").generate(PROMPT, params, chat=False)
        assert generated(model, task) == [expected.outputs[0].text]


def test_without_a_seed_two_runs_differ_and_the_seed_that_is_told_repeats_each() -> None:
    """At this temperature two texts of 20 tokens are the same about once in 10^40 runs."""

    def run(**more: Any) -> tuple[list[str], int]:
        model = DiseLM("countdown", temperature=50.0, max_tokens=20, block_length=10, **more)
        return generated(model, {"until": []}, {"until": []}), model.get_model_info()["dise_seed"]

    runs = [run(), run()]
    texts = [text for both, _ in runs for text in both]
    assert len(set(texts)) == 4, "a repeated request is a new draw"
    for both, seed in runs:
        assert run(seed=seed) == (both, seed)


def test_each_result_goes_into_the_cache(model: DiseLM, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[tuple[str, Any, Any]] = []
    hook = SimpleNamespace(add_partial=lambda *result: kept.append(result))
    monkeypatch.setattr(model, "cache_hook", hook)
    texts = ("5+8-3=10", "8+5-3=10")
    values = likelihoods(model, "<|user|>8,3,5 -> 10<|assistant|>", *texts)
    assert sorted(result for _, _, result in kept) == sorted(values)
    assert {arguments[1] for _, arguments, _ in kept} == set(texts)


def test_a_long_context_loses_its_beginning(
    model: DiseLM, caplog: pytest.LogCaptureFixture
) -> None:
    [(value, _)] = likelihoods(model, "1," * 300 + "8,3,5 -> 10", "5+8-3=10")
    assert value < 0
    assert "cut to its last 504" in caplog.text


def test_rolling_needs_a_scorer_with_a_likelihood(model: DiseLM) -> None:
    asked = [request("loglikelihood_rolling", "5+8-3=10")]
    [value] = model.loglikelihood_rolling(asked, disable_tqdm=True)
    assert value < 0
    with pytest.raises(InputError, match="take scorer=mc"):
        DiseLM("countdown").loglikelihood_rolling(asked, disable_tqdm=True)


@pytest.fixture
def own_tasks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the harness's thousands of tasks: to list them takes ten seconds."""
    monkeypatch.setattr("lm_eval.tasks.TaskManager", partial(TaskManager, include_defaults=False))


@pytest.mark.usefixtures("own_tasks_alone")
@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ("model=nowhere --tasks t", 2, "unknown model 'nowhere'. Known: countdown"),
        ("model=countdown,stepz=1 --tasks t", 2, "there is no setting 'stepz'. Did you mean"),
        ("model=countdown,steps=x --tasks t", 2, "steps='x': Input should be a valid integer"),
        ("model=countdown --tasks nonsuch", 2, "Tasks not found: nonsuch (--debug shows where)"),
        ("model={empty} --tasks t", 2, "config.json"),
    ],
)
def test_an_error_of_the_user_is_one_line(
    arguments: str,
    code: int,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Handlers that lm_eval has made for an earlier test write to what is closed by now.
    monkeypatch.setattr(logging, "raiseExceptions", False)
    (tmp_path / "empty").mkdir()
    task = {"task": "t", "dataset_path": "json", "output_type": "multiple_choice"}
    (tmp_path / "t.yaml").write_text(json.dumps(task))
    given = arguments.format(empty=tmp_path / "empty").split()
    line = ["--model", "dise", "--include_path", str(tmp_path), "--model_args", *given]
    monkeypatch.setattr(sys, "argv", ["dise-lm-eval", *line])
    with pytest.raises(SystemExit) as exit_of:
        main()
    assert exit_of.value.code == code
    err = capsys.readouterr().err
    [said] = [part for part in err.splitlines() if part.startswith("dise-lm-eval: ")]
    assert told in said
    assert "Traceback" not in err


@pytest.mark.usefixtures("own_tasks_alone")
def test_debug_shows_where_an_error_was_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "dise-lm-eval --model dise --model_args model=countdown --tasks nonsuch --debug"
    monkeypatch.setattr(sys, "argv", line.split())
    with pytest.raises(ValueError, match="Tasks not found: nonsuch"):
        main()
