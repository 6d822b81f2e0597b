"""Candidates of ARC and GPQA against lm-evaluation-harness's own tasks: the joined text, and where
its tokens part.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dise_app.evaluation.experiments import Likelihood
from dise_app.evaluation.questions import DATASETS, Question, Questions
from dise_app.evaluation.scoring import Contenders
from dise_core import LLM
from dise_core.testing import ToyPredictor

lm_eval = pytest.importorskip("lm_eval")

TASKS = Path(lm_eval.__file__).parent / "tasks"

ARC = [
    {
        "id": "x",
        "question": "Which is a metal?",
        "choices": {"text": ["iron", "rain water", "a cat"], "label": ["A", "B", "C"]},
        "answerKey": "A",
    },
    {
        "id": "y",
        "question": "2 + 2?",
        "choices": {"text": ["5", "4"], "label": ["1", "2"]},
        "answerKey": "2",
    },
]
GPQA = {
    "Question": "What is heavier?",
    "Correct Answer": " lead [title]Pb  metal\n",
    "Incorrect Answer 1": "air ",
    "Incorrect Answer 2": "a feather",
    "Incorrect Answer 3": "light",
}


def arc_pairs(folder: Path, chat_template: Callable[..., str] | None) -> list[tuple[str, str]]:
    """Return (context, continuation) of every choice as the harness's task of ARC asks for them."""
    import yaml
    from lm_eval.api.task import ConfigurableTask

    file = folder / "arc.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ARC))
    config: dict[str, Any] = yaml.safe_load((TASKS / "arc" / "arc_easy.yaml").read_text())
    config |= {
        "dataset_path": "json",
        "dataset_name": None,
        "dataset_kwargs": {"data_files": {"test": str(file)}},
    }
    config |= {"training_split": None, "validation_split": None}
    task = ConfigurableTask(config=config)
    asked: dict[str, Any] = (
        {"apply_chat_template": True, "chat_template": chat_template} if chat_template else {}
    )
    task.build_all_requests(rank=0, world_size=1, cache_requests=False, **asked)
    return [instance.args for instance in task.instances]


def likelihood(llm: LLM, name: str, *items: Question) -> Likelihood:
    return Likelihood(
        llm, Questions(DATASETS[name], "here", items), Contenders.of(["dise:full"], llm.catalog)
    )


def plain_model() -> LLM:
    return LLM(ToyPredictor())


@pytest.mark.filterwarnings("default")
def test_arcs_texts_are_those_of_the_harness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    items = [DATASETS["arc-challenge"].question(row, number) for number, row in enumerate(ARC)]
    experiment = likelihood(plain_model(), "arc-challenge", *items)
    ours = [(item.prompt, candidate) for item in items for candidate in experiment.candidates(item)]
    assert ours == arc_pairs(tmp_path, None)
    assert ours[0] == ("Question: Which is a metal?\nAnswer:", " iron")


@pytest.mark.filterwarnings("default")
def test_in_a_conversation_a_candidate_opens_the_answer_as_in_the_harness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    items = [DATASETS["arc-challenge"].question(row, number) for number, row in enumerate(ARC)]
    llm = LLM("countdown")
    experiment = likelihood(llm, "arc-challenge", *items)
    chat = llm.predictor.tokenizer.chat_text
    ours = [(item.prompt, candidate) for item in items for candidate in experiment.candidates(item)]
    theirs = arc_pairs(tmp_path, lambda messages, **_: chat(messages))
    assert [
        (chat([{"role": "user", "content": prompt}]), candidate) for prompt, candidate in ours
    ] == theirs


def test_gpqas_texts_are_those_of_the_harness_in_our_order() -> None:
    import yaml
    from lm_eval.tasks.gpqa.zeroshot.utils import preprocess
    from lm_eval.utils import apply_template

    template = yaml.safe_load(
        (TASKS / "gpqa" / "zeroshot" / "_gpqa_zeroshot_yaml").read_text().replace("!function ", "")
    )
    texts = [GPQA["Correct Answer"], *(GPQA[f"Incorrect Answer {i}"] for i in (1, 2, 3))]
    seen = set()
    for number in range(30):
        item = DATASETS["gpqa"].question(GPQA, number)
        shown = [preprocess(text) for text in texts]
        shown.sort(key=lambda text: item.prompt.index(f") {text}"))
        choices = {f"choice{place + 1}": text for place, text in enumerate(shown)}
        assert item.prompt == apply_template(template["doc_to_text"], {**GPQA, **choices})
        assert list(item.candidates) == [f" {choice}" for choice in template["doc_to_choice"]]
        assert shown[item.right] == "lead. Pb metal"
        seen.add(item.right)
    assert seen == {0, 1, 2, 3}


def test_prompt_and_candidate_part_where_the_harness_parts_their_tokens() -> None:
    """A byte-level BPE as LLaDA's and Dream's, trained here, under which a word takes the space
    before it.
    """
    from lm_eval.api.model import TemplateLM
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    text = "Question: Answer: iron rain water (A) (B) (C) (D)\nAnswer: iron"
    tokenizer.train_from_iterator(
        [text] * 50, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet)
    )

    def encode(text: str, **_: Any) -> list[int]:
        ids: list[int] = tokenizer.encode(text).ids
        return ids

    harness = SimpleNamespace(backend="causal", tok_encode=encode)
    items = [DATASETS["arc-challenge"].question(row, 0) for row in ARC] + [
        DATASETS["gpqa"].question(GPQA, 0)
    ]
    for item in items:
        for candidate in item.candidates:
            assert TemplateLM._encode_pair(harness, item.prompt, candidate) == (
                encode(item.prompt),
                encode(candidate),
            )
    assert len(encode(" iron")) == 1


def test_countdown_choices_follow_their_prompt_as_before() -> None:
    row = {"input": "8,3,5", "output": "10"}
    item = DATASETS["countdown-choice"].question(row, 0)
    llm = LLM("countdown")
    assert likelihood(llm, "countdown-choice", item).candidates(item) == list(item.candidates)
    assert DATASETS["countdown-choice"].version == "choice-1"
    spaced = replace(item, candidates=tuple(f" {text}" for text in item.candidates))
    assert likelihood(llm, "countdown-choice", spaced).candidates(spaced) == list(item.candidates)


def test_a_worked_example_joins_its_answer_with_one_space() -> None:
    assert DATASETS["arc-challenge"].shot(ARC[0]) == "Question: Which is a metal?\nAnswer: iron"
