"""Scores under a constraint beside enumeration: over all texts of a toy's vocabulary."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dise_core import (
    LLM,
    Plan,
    Read,
    Reading,
    SamplingParams,
    Score,
    Scorer,
    Selector,
    SequenceScorer,
    TokenLogProbs,
    TokenSequence,
    drive,
)
from dise_core.constraints.constrained import Constrained
from dise_core.constraints.orders import Order
from dise_core.models.attention import BlockCausal
from dise_core.models.completion import completed
from dise_core.plugins.discovery import installed_catalog
from dise_core.plugins.kinds import CONSTRAINT
from dise_core.scoring.sequence_scorer import WholeResponse
from dise_core.testing import ToyPredictor
from dise_core.testing.toy_model import END, LETTERS, MASK
from tests.naive_texts import NaiveTexts

EXPRESSIONS = ["a[bc]{1,2}d?", "(ab|cd)c{0,2}", "[a-d]{0,3}", "ab(c|da)"]
PROMPT = (4, 5)
ONE_TEXT = {"constraint": "choice", "constraint_settings": {"choices": ["abcd"]}}


def naive_of(expression: str) -> NaiveTexts:
    return NaiveTexts(expression, LETTERS, "abcd", 5)


def regex(expression: str) -> dict[str, Any]:
    return {"constraint": "regex", "constraint_settings": {"regex": expression}}


def rule_of(toy: ToyPredictor, expression: str) -> Constrained:
    params = SamplingParams(max_tokens=8, **regex(expression))
    constraint = installed_catalog().chosen(CONSTRAINT, params)
    assert constraint is not None
    order = Order.of(constraint, params, toy)
    return Constrained(order.built(), order, params, "probability")


def shares(toy: ToyPredictor, read: Read) -> npt.NDArray[np.float64]:
    """Return what the toy predicts at a Read's positions, float64 [M, V]."""
    read = completed(read, toy.info)
    logits = toy._logits_at(read, read.token_ids, read.context_ids)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


class Exactly:
    """Answers Reads of a toy's own tokens in float64, one by one."""

    def __init__(self, toy: ToyPredictor) -> None:
        self.toy, self.reads = toy, list[Read]()

    def __call__(self, reads: Sequence[Read]) -> list[Reading]:
        self.reads += reads
        return [self._answer(read) for read in reads]

    def _answer(self, read: Read) -> Reading:
        assert isinstance(read.readout, TokenLogProbs)
        targets = read.readout.targets
        pairs = zip(shares(self.toy, read), targets.tolist(), strict=True)
        logprobs = np.array([math.log(row[target]) for row, target in pairs])
        return Reading(targets, logprobs)  # type: ignore[arg-type]


def expected(toy: ToyPredictor, read: Read, text: TokenSequence) -> list[float]:
    """Return the log-probabilities of the text's own tokens at a Read's positions."""
    pairs = zip(read.positions.tolist(), shares(toy, read), strict=True)
    return [math.log(row[text.ids[position]]) for position, row in pairs]


class Stranger(Scorer):
    """The least log-probability, as a third party may write it."""

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        positions = np.flatnonzero(selector.select(sequence))
        targets = TokenLogProbs(sequence.ids[positions])
        [reading] = yield [Read(sequence.ids, positions, targets)]
        return Score(float(reading.logprobs.min()), positions)


@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize("name", ["dise", "shadow", "interleaved", "stranger"])
def test_scores_leave_out_what_enumeration_finds_to_be_forced(name: str, expression: str) -> None:
    toy, naive = ToyPredictor(), naive_of(expression)
    scorer = Stranger() if name == "stranger" else installed_catalog().scorer(name)
    rule, exactly, num_texts = rule_of(toy, expression), Exactly(toy), 0
    for response in itertools.product((0, 1, 2, 3, END), repeat=4):
        if not naive.is_valid(response):
            continue
        text = TokenSequence.of(PROMPT, response, toy.info.special, 4)
        exactly.reads.clear()
        plan = SequenceScorer(scorer, WholeResponse(), None).score(replace(text, rule=rule))
        score = drive(plan, exactly)
        free = [2 + at for at in range(4) if not naive.is_certain([*response], at)]
        assert sorted(at for read in exactly.reads for at in read.positions.tolist()) == free
        values = [value for read in exactly.reads for value in expected(toy, read, text)]
        whole = min(values) if name == "stranger" else sum(values) / len(values)
        assert score.value == pytest.approx(whole, abs=1e-9)
        assert score.positions.tolist() == free
        assert score.under == "forced tokens left out"
        num_texts += 1
    assert num_texts >= 2


@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize("rate", [1, 2])
def test_written_is_what_the_model_said_of_free_tokens_and_nothing_of_forced_ones(
    expression: str, rate: int
) -> None:
    toy, naive = ToyPredictor(), naive_of(expression)
    params = SamplingParams(
        max_tokens=4, block_length=4, tokens_per_step=rate, scorer="written", seed=0,
        **regex(expression),
    )  # fmt: skip
    [answer] = LLM(toy).generate([list(PROMPT)], params)
    writing = answer.outputs[0].writing
    assert writing is not None
    ids, steps = writing.ids, writing.steps
    for position in range(2, len(ids)):
        is_forced = naive.is_certain(ids[2:].tolist(), position - 2)
        assert writing.forced[position] == is_forced
        if is_forced:
            assert np.isnan(writing.logprobs[position])
            continue
        canvas = np.where(steps < steps[position], ids, MASK)
        read = Read(canvas, np.array([position]), TokenLogProbs(ids[position : position + 1]))
        value = math.log(shares(toy, read)[0][ids[position]])
        assert writing.logprobs[position] == pytest.approx(value, abs=2e-6)
    assert not writing.forced[: len(PROMPT)].any()


@pytest.mark.parametrize("scorer", ["dise", "written", "shadow", "interleaved", "mc"])
def test_a_text_of_forced_tokens_alone_scores_0_and_says_so(scorer: str) -> None:
    params = SamplingParams(max_tokens=6, scorer=scorer, selector="response", seed=0, **ONE_TEXT)
    [answer] = LLM(ToyPredictor()).generate([list(PROMPT)], params, explain=True)
    [output] = answer.outputs
    assert (output.score.value, output.score.num_positions) == (0, 0)
    assert output.explanation is not None
    assert "the constraint forced every token" in output.explanation.formula
    record = output.to_dict()["score"]
    assert isinstance(record, dict)
    assert record["constraint"] == "forced"


@pytest.mark.parametrize("read", ["visible", "interleaved"])
def test_a_reviser_never_masks_what_the_constraint_forced(read: str) -> None:
    asked = {"max_tokens": 6, "seed": 0, "reviser": "remask", **regex("ab[cd]abc?")}
    settings = {"threshold": 1, "read": read, "rounds": 1, "accept": "always"}
    params = SamplingParams.model_validate({**asked, "reviser_settings": settings})
    [answer] = LLM(ToyPredictor()).generate([list(PROMPT)], params)
    [revision] = answer.outputs[0].revisions
    # The letter that may differ, and the end, where c or nothing may stand.
    assert [token.position for token in revision.tokens] == [2, 5]


def test_finished_blocks_tell_what_a_pass_over_the_whole_text_tells() -> None:
    toy = ToyPredictor(attention=BlockCausal(3))
    params = SamplingParams(max_tokens=7, selector="response", seed=0, **regex("[abc]{5}(d|da)"))
    [answer] = LLM(toy).generate([list(PROMPT)], params)
    [output] = answer.outputs
    text = TokenSequence.of(PROMPT, output.token_ids, toy.info.special, 3, origin="text")
    rule = rule_of(toy, "[abc]{5}(d|da)")
    scorer = SequenceScorer(installed_catalog().scorer("dise"), WholeResponse())
    evaluation = drive(scorer.evaluate(replace(text, rule=rule)), toy.read)
    assert output.score.value == pytest.approx(evaluation.score.value, abs=1e-5)
    assert evaluation.tokens is not None
    told = [token.logprob for token in output.tokens]
    assert told == pytest.approx(evaluation.tokens.logprobs.tolist(), abs=1e-5)
    [free] = LLM(toy).generate([list(PROMPT)], SamplingParams(max_tokens=7, seed=0))
    assert answer.usage.nfe == free.usage.nfe
