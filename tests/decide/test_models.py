"""Typed questions to tiny checkpoints of every kind of attention, beside independent models that
read one text at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import softmax
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from dise import LLM
from dise_decide import (
    Choice,
    ChoiceQuestion,
    DecisionOutput,
    DecisionParams,
    Option,
    PredicateQuestion,
    Question,
    ScoreQuestion,
)
from tests import byte_checkpoints, reference_dream, reference_llada
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


def logprobs_of(rows: Callable[[list[int]], Tensor]) -> LogProbs:
    """Return a model's log-probabilities from its logits, [N, V]."""

    @torch.inference_mode()
    def logprobs(ids: list[int]) -> np.ndarray:
        return torch.log_softmax(rows(ids).double(), -1).numpy()

    return logprobs


def llada(folder: Path) -> LogProbs:
    return logprobs_of(ReferenceLLaDA(reference_llada.checkpoint(folder)).logits)


def dream(folder: Path) -> LogProbs:
    """A model whose row i - 1 is about token i."""
    reference_dream.write_checkpoint(folder, gain=1.0)
    return logprobs_of(ReferenceDream(folder).logits)


def causal(model: Any) -> LogProbs:
    """A model of transformers whose row i is about token i + 1."""
    return logprobs_of(lambda ids: model(torch.tensor([ids])).logits[0])


def found(decided: DecisionOutput) -> list[list[float]]:
    return [answer.shares for answer in decided.answers]


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


def test_a_judge_answers_by_its_next_tokens(checkpoint_of: Callable[[str], Path]) -> None:
    folder = checkpoint_of("llama")
    llm, logprobs = LLM(folder), causal(AutoModelForCausalLM.from_pretrained(folder).eval())
    decided = llm.decide(INPUT, QUESTIONS, CLOZE)
    tokenizer = llm.predictor.tokenizer
    for question, labels, shares in zip(QUESTIONS, LABELS, found(decided), strict=True):
        before = [*tokenizer.start_ids, *tokenizer.encode(INPUT + question.instructions)]
        means = []
        for label in labels:
            ids = [*before, *tokenizer.encode(label)]
            rows = logprobs(ids)
            means.append(np.mean([rows[i - 1][ids[i]] for i in range(len(before), len(ids))]))
        assert shares == pytest.approx(softmax(means), abs=1e-5)
    # yes, no and nope begin differently: one row for each beginning, all single tokens in one
    assert decided.usage.nfe == 1 + 4 + 3


ASK = "\n\nQuestion: {}\nAnswer with one of these: {}"
TEA = ChoiceQuestion(
    instructions="Which tea?",
    choices=[Choice(value="x", description="it is red"), "green",
             Choice(value="b", description="it is red")],
)  # fmt: skip
HOW = ScoreQuestion(instructions="How hot?", levels=["low", "high"])
IS_IT = PredicateQuestion(instructions="Is it?", yes=Option(label="yes", description="it is"))
ONE = "Which tea?\nProposed answer: {}\nIs the proposed answer "
FOR_X = "b, green, x\n   - b: it is red\n   - x: it is red"
TEXTS: dict[str, list[tuple[str, dict[str, str]]]] = {
    "menu": [(ASK.format("Which tea?", FOR_X), {"x": "0", "green": "1", "b": "2"})],
    "each": [
        (ASK.format(ONE.format("it is red") + "correct?", "yes, no"), {"yes": "02", "no": ""}),
        (ASK.format(ONE.format("green") + "correct?", "yes, no"), {"yes": "1", "no": ""}),
    ],
}


@pytest.mark.parametrize("is_judge", [False, True])
@pytest.mark.parametrize("reading", TEXTS)
def test_a_choice_is_the_naive_mean_of_the_texts_of_its_reading(
    tmp_path: Path, reading: Any, is_judge: bool
) -> None:
    model = byte_judge(tmp_path) if is_judge else byte_model(tmp_path)
    texts = TEXTS[reading]
    decided = model.decide(TEA, reading)
    shares = [
        sum(p for text, labels in texts for p in model.supports(text, labels, index))
        / sum(str(index) in "".join(labels.values()) for _, labels in texts)
        for index in range(3)
    ]
    assert found(decided)[0] == pytest.approx([s / sum(shares) for s in shares], abs=1e-5)
    told = decided.answers[0].diagnostics
    assert (told.reading, told.passes) == (reading, len(texts))
    assert is_judge or decided.usage.nfe == len(texts)


def test_a_predicate_and_a_scale_are_naively_those_of_their_texts(tmp_path: Path) -> None:
    model = byte_model(tmp_path)
    share = model.shares(ASK.format("Is it?", "yes, no\n   - yes: it is"), ["yes", "no"])[0]
    [answer] = model.decide(IS_IT, "each").answers
    assert answer.probability == pytest.approx(share, abs=1e-5)  # type: ignore[union-attr]
    share = model.shares(ASK.format("How hot?", "low, high"), ["low", "high"])[1]
    [answer] = model.decide(HOW, "menu").answers
    assert answer.score == pytest.approx(share, abs=1e-5)  # type: ignore[union-attr]


@dataclass
class ByteModel:
    """A model that reads bytes, and the same read one text at a time. is_judge: whether it is
    auto-regressive: row i is about token i + 1.
    """

    llm: LLM
    logprobs: LogProbs
    is_judge: bool = False

    def decide(self, question: Question, reading: Any) -> DecisionOutput:
        return self.llm.decide(INPUT, [question], DecisionParams(reading=reading), chat=False)

    def shares(self, text: str, labels: Sequence[str]) -> np.ndarray:
        """Return the labels' probabilities, naively."""
        encode = self.llm.predictor.tokenizer.encode
        tokens = [encode(" " + label).tolist()[1:] for label in labels]
        ids = [*encode(INPUT + text), *encode("Answer:"), *encode(" ")]
        masks = [byte_checkpoints.MASK] * max(map(len, tokens))
        means = []
        for own in tokens:
            rows = self.logprobs([*ids, *(own if self.is_judge else masks)])
            after = rows[len(ids) - self.is_judge :]
            means.append(float(np.mean([after[i][token] for i, token in enumerate(own)])))
        return np.asarray(softmax(means))

    def supports(self, text: str, labels: dict[str, str], option: int) -> list[float]:
        """Return what the text's labels give an option, each shared among those it speaks for."""
        shares = zip(self.shares(text, list(labels)), labels.values(), strict=True)
        return [share / len(of) for share, of in shares if str(option) in of]


def byte_model(folder: Path) -> ByteModel:
    byte_checkpoints.write("llada", folder)
    return ByteModel(LLM(str(folder)), logprobs_of(ReferenceLLaDA(folder).logits))


def byte_judge(folder: Path) -> ByteModel:
    torch.manual_seed(1)
    sizes = {"vocab_size": byte_checkpoints.SIZE, "hidden_size": 32, "intermediate_size": 48}
    ends = {"eos_token_id": byte_checkpoints.END, "bos_token_id": None}
    layers = {"num_hidden_layers": 2, "num_attention_heads": 2, "initializer_range": 0.3}
    model = LlamaForCausalLM(LlamaConfig(**sizes, **ends, **layers)).eval()
    model.save_pretrained(folder)
    byte_checkpoints.write_tokenizer(folder, "<|endoftext|>", "<|mdm_mask|>")
    return ByteModel(LLM(str(folder)), causal(model), is_judge=True)
