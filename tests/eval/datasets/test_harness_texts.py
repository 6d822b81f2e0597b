"""Candidates of ARC and GPQA against lm-evaluation-harness's own tasks: the joined text, and where
its tokens part.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dise_core import LLM
from dise_core.testing import ToyPredictor
from dise_eval.datasets.dataset import Problem
from dise_eval.datasets.own import dataset_of
from dise_eval.datasets.questions import ProblemSet
from dise_eval.experiments.experiments import Likelihood
from dise_eval.experiments.scoring import Contenders
from tests.jsonlines import written

lm_eval = pytest.importorskip("lm_eval")

TASKS = Path(lm_eval.__file__).parent / "tasks"


def arc_row(name: str, question: str, labels: str, *texts: str) -> dict[str, Any]:
    """A row of ARC whose last choice is right."""
    choices = {"text": list(texts), "label": list(labels)}
    return {"id": name, "question": question, "choices": choices, "answerKey": labels[-1]}


ARC = [
    arc_row("x", "Which is a metal?", "ABC", "rain water", "a cat", "iron"),
    arc_row("y", "2 + 2?", "12", "5", "4"),
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

    file = written(folder / "arc.jsonl", *ARC)
    config: dict[str, Any] = yaml.safe_load((TASKS / "arc" / "arc_easy.yaml").read_text())
    config |= {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(file)}}}
    config |= dict.fromkeys(("dataset_name", "training_split", "validation_split"))
    task = ConfigurableTask(config=config)
    chat = {"apply_chat_template": chat_template is not None, "chat_template": chat_template}
    task.build_all_requests(rank=0, world_size=1, cache_requests=False, **chat)
    return [instance.args for instance in task.instances]


def likelihood(llm: LLM, name: str, *items: Problem) -> Likelihood:
    return Likelihood(
        llm, ProblemSet(dataset_of(name), "here", items), Contenders.of(["dise:full"], llm.catalog)
    )


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("is_chat", [False, True])
def test_arcs_texts_are_those_of_the_harness_also_in_a_conversation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_chat: bool
) -> None:
    """In a conversation a candidate opens the answer."""
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    items = [dataset_of("arc-challenge").problem(row, number) for number, row in enumerate(ARC)]
    llm = LLM("countdown") if is_chat else LLM(ToyPredictor())
    experiment = likelihood(llm, "arc-challenge", *items)
    ours = [(item.prompt, candidate) for item in items for candidate in experiment.candidates(item)]
    if is_chat:
        chat = llm.predictor.tokenizer.chat_text
        ours = [(chat([{"role": "user", "content": prompt}]), text) for prompt, text in ours]
        assert ours == arc_pairs(tmp_path, lambda messages, **_: chat(messages))
    else:
        assert ours == arc_pairs(tmp_path, None)
        assert ours[2] == ("Question: Which is a metal?\nAnswer:", " iron")


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
        item = dataset_of("gpqa").problem(GPQA, number)
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
    items = [dataset_of("arc-challenge").problem(row, 0) for row in ARC] + [
        dataset_of("gpqa").problem(GPQA, 0)
    ]
    for item in items:
        for candidate in item.candidates:
            assert TemplateLM._encode_pair(harness, item.prompt, candidate) == (
                encode(item.prompt),
                encode(candidate),
            )
    assert len(encode(" iron")) == 1
