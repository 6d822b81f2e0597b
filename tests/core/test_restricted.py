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
from dise_core.constraints import constrained
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
        targets, among = read.readout.targets, read.readout.among
        assert among is not None
        told = [
            math.log(row[target] / sum(row[among.sets[number]]))
            for row, target, number in zip(
                shares(self.toy, read), targets.tolist(), among.which.tolist(), strict=True
            )
        ]
        return Reading(targets, np.array(told))  # type: ignore[arg-type]


def expected(toy: ToyPredictor, naive: NaiveTexts, read: Read, text: TokenSequence) -> list[float]:
    """Return the mean over a Read's positions by enumeration."""
    own, values = text.response.tolist(), list[float]()
    for position, row in zip(read.positions.tolist(), shares(toy, read), strict=True):
        index = position - text.prompt_length
        allowed = naive.allowed(own, index)
        values.append(math.log(row[own[index]] / sum(row[token] for token in allowed)))
    return values


class Stranger(Scorer):
    """The least log-probability, as a third party may write it."""

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        positions = np.flatnonzero(selector.select(sequence))
        targets = TokenLogProbs(sequence.ids[positions])
        [reading] = yield [Read(sequence.ids, positions, targets)]
        return Score(float(reading.logprobs.min()), positions)


@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize("name", ["dise", "shadow", "interleaved", "stranger"])
def test_scores_are_those_of_enumeration(name: str, expression: str) -> None:
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
        values = [value for read in exactly.reads for value in expected(toy, naive, read, text)]
        whole = min(values) if name == "stranger" else sum(values) / len(values)
        assert score.value == pytest.approx(whole, abs=1e-9)
        assert score.under == "among allowed tokens"
        num_texts += 1
    assert num_texts >= 2


@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize("rate", [1, 2])
def test_written_is_told_among_what_some_valid_text_has_given_all_that_is_written(
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
        index, own = position - 2, ids[2:].tolist()
        canvas = np.where(steps < steps[position], ids, MASK)
        options = [range(END + 1) if token == MASK else [token] for token in canvas[2:].tolist()]
        texts = (text for text in itertools.product(*options) if naive.is_valid(text))
        allowed = {own[index]} if naive.is_certain(own, index) else {text[index] for text in texts}
        read = Read(canvas, np.array([position]), TokenLogProbs(ids[position : position + 1]))
        row = shares(toy, read)[0]
        value = math.log(row[own[index]] / sum(row[token] for token in allowed))
        assert writing.logprobs[position] == pytest.approx(value, abs=2e-6)
        assert writing.forced[position] == naive.is_certain(own, index)
    assert not writing.forced[: len(PROMPT)].any()


@pytest.mark.parametrize("scorer", ["dise", "written", "shadow", "interleaved"])
def test_a_constraint_of_one_text_scores_nothing_but_0(scorer: str) -> None:
    params = SamplingParams(max_tokens=6, scorer=scorer, selector="response", seed=0, **ONE_TEXT)
    [answer] = LLM(ToyPredictor()).generate([list(PROMPT)], params)
    [output] = answer.outputs
    assert output.score.value == 0
    assert output.score.num_positions == 6
    assert [token.logprob for token in output.tokens if token.logprob is not None][:6] in (
        [0.0] * 6, []
    )  # fmt: skip
    record = output.to_dict()["score"]
    assert isinstance(record, dict)
    assert record["constraint"] == "among allowed tokens"


class Summary(ToyPredictor):
    """A toy that tells no sums over sets of tokens, as a server does."""

    abilities = frozenset({"two-stream", "shadow"})


@pytest.mark.parametrize("scorer", ["dise", "written", "shadow", "interleaved"])
def test_where_no_sum_can_be_had_forced_tokens_are_left_out(scorer: str) -> None:
    asked = {"scorer": scorer, "selector": "response", "max_tokens": 4, "logprobs": 0, "seed": 0}
    params = SamplingParams.model_validate({**asked, **regex("ab[cd]")})
    [answer] = LLM(Summary()).generate([list(PROMPT)], params)
    [output] = answer.outputs
    # The last token ends a text that cannot go on.
    assert output.score.positions.tolist() == [4]
    assert output.score.under == "forced tokens left out"
    if scorer != "interleaved":
        assert output.score.value < -0.1
    free = SamplingParams.model_validate({**asked, "scorer": "dise"})
    [plain] = LLM(ToyPredictor()).score([list(PROMPT)], [list(output.token_ids)], free)
    if scorer == "dise":
        assert output.score.value == pytest.approx(plain.outputs[0].tokens[2].logprob, abs=1e-5)
    params = SamplingParams.model_validate({**asked, **ONE_TEXT})
    [nothing] = LLM(Summary()).generate([list(PROMPT)], params)
    assert nothing.outputs[0].score.value == -math.inf


def test_where_telling_would_hold_up_others_forced_tokens_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rule = rule_of(ToyPredictor(), "ab[cd]")
    ways = rule.tokens.ways
    assert rule.is_told
    assert ways is not None
    for bound in ("MAX_TOLD", "MAX_STEP"):
        monkeypatch.setattr(constrained, bound, 8 * len(ways) - 1)
        assert not rule.is_told
        monkeypatch.setattr(constrained, bound, 8 * len(ways))
        assert rule.is_told


def test_a_likelihood_stays_one() -> None:
    toy, params = ToyPredictor(), {"scorer": "mc", "max_tokens": 4, "seed": 0}
    [bound] = LLM(toy).generate([list(PROMPT)], SamplingParams(**params, **regex("ab[cd]")))
    [output] = bound.outputs
    given = SamplingParams(**params)
    [plain] = LLM(toy).score([list(PROMPT)], [list(output.token_ids)], given)
    assert output.score.value == pytest.approx(plain.outputs[0].score.value, abs=1e-5)
    assert output.score.under is None


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
