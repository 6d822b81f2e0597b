"""Typed questions to tiny checkpoints of every kind of attention, beside independent models that
read one text at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from dise import LLM
from dise_decide import ChoiceQuestion, DecisionOutput, DecisionParams
from tests import reference_dream, reference_llada
from tests.reference_dream import ReferenceDream
from tests.reference_llada import ReferenceLLaDA

INPUT, CLOZE = "does it rain", DecisionParams(layout="cloze")
LABELS = [["y", "n"], ["yes", "no", "nope", "x"], ["low", "lower", "high"]]
QUESTIONS = [
    ChoiceQuestion(instructions=text, choices=labels)  # type: ignore[arg-type]
    for text, labels in zip([" here", "and there", " now"], LABELS, strict=True)
]

LogProbs = Callable[[list[int]], np.ndarray]
"""Log-probabilities [N, V] of a text, row i about token i."""


def llada(folder: Path) -> LogProbs:
    config = reference_llada.default_config()
    reference_llada.write_checkpoint(folder, config, reference_llada.random_weights(config))
    model = ReferenceLLaDA(folder)
    return lambda ids: torch.log_softmax(model.logits(ids).double(), -1).numpy()


def dream(folder: Path) -> LogProbs:
    """A model whose row i - 1 is about token i."""
    reference_dream.write_checkpoint(folder, reference_dream.default_config(), gain=1.0)
    model = ReferenceDream(folder)
    return lambda ids: torch.log_softmax(model.logits(ids).double(), -1).numpy()


def softmax(means: Sequence[float]) -> list[float]:
    weights = [math.exp(mean) for mean in means]
    return [weight / sum(weights) for weight in weights]


def found(decided: DecisionOutput) -> list[list[float]]:
    return [[each.probability for each in answer.probabilities] for answer in decided.answers]  # type: ignore[union-attr]


@pytest.mark.parametrize("is_joint", [True, False])
@pytest.mark.parametrize("build", [llada, dream])
def test_masked_models_answer_as_a_naive_softmax_over_one_text(
    tmp_path: Path, build: Callable[[Path], LogProbs], is_joint: bool
) -> None:
    logprobs = build(tmp_path)
    llm = LLM(str(tmp_path))
    params = DecisionParams(layout="cloze", joint=is_joint)
    decided = llm.decide(INPUT, QUESTIONS, params, chat=False)
    assert decided.usage.nfe == (1 if is_joint else 3)
    encode, mask = llm.predictor.tokenizer.encode, llm.predictor.info.special.mask_id
    ids, starts = encode(INPUT).tolist(), []
    before = list(ids)
    for question, labels in zip(QUESTIONS, LABELS, strict=True):
        ids = [*(ids if is_joint else before), *encode(question.instructions).tolist()]
        starts.append((len(ids), ids))
        ids += [mask] * max(len(encode(label)) for label in labels)
    for (start, text), labels, shares in zip(starts, LABELS, found(decided), strict=True):
        rows = logprobs(ids if is_joint else text)
        tokens = [encode(label).tolist() for label in labels]
        means = [
            sum(rows[start + i][token] for i, token in enumerate(label)) / len(label)
            for label in tokens
        ]
        assert shares == pytest.approx(softmax(means), abs=1e-5)


def judge(folder: Path) -> str:
    torch.manual_seed(0)
    shape = {"vocab_size": 50, "eos_token_id": 48, "bos_token_id": 40, "hidden_size": 32}
    layers = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    model = LlamaForCausalLM(LlamaConfig(**shape, **layers))
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    model.save_pretrained(folder)
    reference_llada.write_tokenizer(folder, 50)
    return str(folder)


def test_a_judge_answers_by_its_next_tokens(tmp_path: Path) -> None:
    folder = judge(tmp_path)
    llm, model = LLM(folder), AutoModelForCausalLM.from_pretrained(folder).eval()
    decided = llm.decide(INPUT, QUESTIONS, CLOZE)
    tokenizer = llm.predictor.tokenizer
    for question, labels, shares in zip(QUESTIONS, LABELS, found(decided), strict=True):
        before = [*tokenizer.start_ids, *tokenizer.encode(INPUT + question.instructions)]
        means = []
        for label in labels:
            ids = [*before, *tokenizer.encode(label)]
            with torch.inference_mode():
                rows = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), -1)
            own = [float(rows[i - 1][ids[i]]) for i in range(len(before), len(ids))]
            means.append(sum(own) / len(own))
        assert shares == pytest.approx(softmax(means), abs=1e-5)
    # yes, no and nope begin differently: one row for each beginning, all single tokens in one
    assert decided.usage.nfe == 1 + 4 + 3
