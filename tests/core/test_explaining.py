"""Why a score is what it is: the same for every scorer, a guest's too, and without changing any."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dise_core import (
    LLM,
    AsyncLLM,
    BlockCausal,
    CompletionOutput,
    Explanation,
    Plan,
    PlanError,
    Read,
    Reading,
    SamplingParams,
    Score,
    Scorer,
    ScoringParams,
    Selector,
    TokenLogProbs,
    TokenSequence,
)
from dise_core.arrays import Ids
from dise_core.testing import ToyPredictor
from dise_core.testing.toy_model import END, MASK
from tests.core.test_judge import Judge, PairTokenizer
from tests.guests import with_guests

PROMPT, RESPONSE = [1, 2, 3], [4, 5, 6, 7, 8]
SETTINGS: dict[str, dict[str, Any]] = {"mc": {"num_samples": 4}}
OF_GIVEN = ("dise", "interleaved", "shadow", "mc")


def given(
    scorer: str = "dise", llm: LLM | None = None, explain: bool = True, **params: Any
) -> CompletionOutput:
    scoring = ScoringParams(scorer=scorer, scorer_settings=SETTINGS.get(scorer, {}), **params)
    llm = llm or LLM(ToyPredictor())
    [answer] = llm.score([PROMPT], [RESPONSE], scoring, finished=True, explain=explain)
    return answer.outputs[0]


def written(scorer: str = "dise", explain: bool = True, **params: Any) -> CompletionOutput:
    sampling = SamplingParams(
        max_tokens=8, temperature=0.9, seed=1, scorer=scorer,
        scorer_settings=SETTINGS.get(scorer, {}), **params,
    )  # fmt: skip
    [answer] = LLM(ToyPredictor()).generate(PROMPT, sampling, explain=explain)
    return answer.outputs[0]


def explanation_of(output: CompletionOutput) -> Explanation:
    assert output.explanation is not None
    return output.explanation


@pytest.mark.parametrize("scorer", OF_GIVEN)
def test_a_score_is_the_same_to_the_bit_with_its_explanation(scorer: str) -> None:
    for output_of in (given, written):
        with_it, without = output_of(scorer), output_of(scorer, explain=False)
        assert with_it.explanation is not None
        assert without.explanation is None
        assert "explanation" not in without.to_dict()
        record = with_it.to_dict()
        assert record.pop("explanation") == with_it.explanation.to_dict()
        assert record == without.to_dict()


def test_its_reads_are_those_of_the_pass_and_no_others() -> None:
    toy = ToyPredictor()
    given("interleaved", LLM(toy), logprobs=None, selector="response")
    read, positions = [ids.tolist() for ids in toy.batches[0]], [3, 4, 5, 6, 7]
    reads = explanation_of(given("interleaved", selector="response")).reads
    assert [read.positions for read in reads] == [(3, 5, 7), (4, 6)]
    for ids, explained in zip(read, reads, strict=True):
        assert explained.masked == tuple(at for at, token in enumerate(ids) if token == MASK)
        assert explained.num_tokens == len(ids) == 9
    assert sorted(at for read in reads for at in read.positions) == positions


def test_the_mean_of_what_the_model_told_of_the_tokens_is_the_value() -> None:
    output = given(selector="last-3")
    whole = [*PROMPT, *RESPONSE, END]
    logits = ToyPredictor().logits(np.array(whole))
    logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    expected = [logprobs[at, whole[at]] for at in (5, 6, 7)]
    explained = explanation_of(output)
    told = [token.logprob for token in explained.tokens if token.counts]
    assert told == pytest.approx(expected, abs=1e-5)
    mean = f"{np.mean(expected):.4f}"
    assert explained.formula == f"value = mean of the log-probabilities of 3 tokens = {mean}"


def test_what_is_read_behind_a_text_is_named_and_counts_nowhere() -> None:
    explained = explanation_of(given(selector="response"))
    [behind] = [token for token in explained.tokens if token.position == 8]
    assert (behind.text, behind.counts) == ("<end>", False)
    assert behind.why == "after the response, never selected"
    assert (
        "The model also reads an end token after the text, <end>, which is never selected."
        in explained.notes
    )
    [answer] = LLM(ToyPredictor()).score([PROMPT], [RESPONSE], finished=False, explain=True)
    unfinished = explanation_of(answer.outputs[0])
    assert [token.text for token in unfinished.tokens] == list("efghi")
    assert any(note.startswith("The model reads no end token") for note in unfinished.notes)


def test_a_written_text_tells_each_tokens_step_and_a_given_one_none() -> None:
    output = written("written", selector="response")
    explained, writing = explanation_of(output), output.writing
    assert writing is not None
    assert explained.reads == ()
    for token in explained.tokens:
        assert token.step == writing.steps[token.position]
        assert token.written == writing.logprobs[token.position]
    assert ", each at its step = " in explained.formula
    assert {token.step for token in explanation_of(given()).tokens} == {None}


def test_each_token_says_why_it_counts_or_does_not() -> None:
    explained = explanation_of(given(selector="last-2"))
    reasons = {token.text: token.why for token in explained.tokens}
    assert reasons["i"] == reasons["h"] == "selected"
    assert reasons["e"] == "not selected"
    prompt = explanation_of(given(selector="prompt-last-1+last-1"))
    assert [token.text for token in prompt.tokens if token.counts] == ["d", "i"]


def test_a_sum_of_scores_tells_its_parts() -> None:
    output = written("dise+written")
    parts = [written(name, selector="response-text").score.value for name in ("dise", "written")]
    formula = explanation_of(output).formula
    assert formula.startswith(f"value = 1 x {parts[0]:.4f} (dise) + 1 x {parts[1]:.4f} (written)")
    assert f"{output.score.value:.4f}" in formula
    assert output.score.value == sum(parts)


def test_an_estimate_says_so_and_tells_the_masks_of_each_read() -> None:
    explained = explanation_of(given("mc"))
    assert "an estimate, computed by the scorer from 4 Reads" in explained.formula
    assert explained.about.startswith("Estimates log p(selected")
    assert all(read.positions == read.masked for read in explained.reads)
    for token in explained.tokens:
        asked = [read for read in explained.reads if token.position in read.positions]
        values = [read.logprobs[read.positions.index(token.position)] for read in asked]
        assert len(token.reads) == len(asked)
        assert token.logprob == (pytest.approx(np.mean(values)) if asked else None)


def test_what_passes_of_the_writing_had_told_is_known() -> None:
    toy = ToyPredictor(attention=BlockCausal(4))
    params = SamplingParams(max_tokens=9, seed=0, selector="response")
    [answer] = LLM(toy).generate(PROMPT, params, explain=True)
    explained = explanation_of(answer.outputs[0])
    [read] = explained.reads
    assert 0 < read.num_known <= len(read.positions)
    assert any(
        str(read.num_known) in note and "from the passes" in note for note in explained.notes
    )
    [scored] = LLM(toy).score([PROMPT], [answer.outputs[0].token_ids], explain=True)
    assert explanation_of(scored.outputs[0]).reads[0].num_known == 0


def test_a_token_that_a_constraint_forced_is_left_out() -> None:
    params = SamplingParams(
        max_tokens=6, seed=0, constraint="regex", constraint_settings={"regex": "abc[de]"}
    )
    [answer] = LLM(ToyPredictor()).generate(PROMPT, params, explain=True)
    explained = explanation_of(answer.outputs[0])
    by_text = {token.text: token for token in explained.tokens[:4]}
    forced, free = by_text["b"], explained.tokens[3]
    assert free.why == "selected"
    assert forced.why == "left out: forced by the constraint"
    assert not forced.counts
    assert "The score leaves out the tokens that the constraint forced." in explained.notes


def test_of_a_gap_the_suffix_is_read_and_never_selected() -> None:
    llm = LLM(ToyPredictor())
    planner = replace(llm.planner, explains=True)
    plan = planner.fill([1, 2], [3, 4, 5], SamplingParams(max_tokens=3, seed=0))
    [outcome] = llm.run([plan])
    explained = explanation_of(outcome.unwrap().outputs[0])
    assert [token.text for token in explained.tokens[-3:]] == list("def")
    assert {token.why for token in explained.tokens[-3:]} == {"after the response, never selected"}
    assert (
        "The model also reads the suffix after the gap (3 tokens), which is never selected."
        in explained.notes
    )


class Spelling(PairTokenizer):
    """Names its own ids."""

    def decode(self, ids: Ids) -> str:
        return super().decode(ids[ids >= 100] - 100)

    def token_text(self, token_id: int) -> str:
        return "<begin>" if token_id < 100 else super().token_text(token_id - 100)


def test_a_judges_reads_are_told_in_its_own_tokens() -> None:
    judge = Judge(has_template=False)
    judge.tokenizer = Spelling(has_template=False)
    llm = LLM(ToyPredictor(), judge=judge)
    output = given("ar-perplexity", llm)
    [read] = explanation_of(output).reads
    tokens = explanation_of(output).tokens
    assert read.model == "judge"
    assert [token.id for token in tokens if token.counts] == [104, 105, 106, 107, 108]
    assert [token.text for token in tokens if token.counts] == list("efghi")


class Odd(Scorer):
    """Minus the number of its Reads. It asks for what no other scorer does."""

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        positions = np.flatnonzero(selector.select(sequence))
        other = np.array([1, 2, 9, 9, 9, 9, 9, 9, 9, 9, 9])
        targets = TokenLogProbs(np.full(len(positions), 2))
        try:
            yield [Read(other, positions, targets), Read(sequence.ids, positions, targets)]
        except PlanError:
            return Score.empty()
        return Score(-2.0, positions)


def test_a_guests_scorer_is_explained_by_what_it_asked() -> None:
    explained = explanation_of(
        given("odd", LLM(ToyPredictor(), catalog=with_guests(scorers={"odd": Odd})))
    )
    assert explained.about == "Minus the number of its Reads."
    assert explained.formula == "value = -2.0000, computed by the scorer from 2 Reads"
    assert [read.asks for read in explained.reads] == ["other tokens"] * 2
    assert [read.batch for read in explained.reads] == [1, 1]
    assert {token.logprob for token in explained.tokens} == {None}


class Failing(ToyPredictor):
    def read(self, reads: Sequence[Read]) -> list[Reading]:
        raise ValueError("no pass")


def test_the_async_entry_point_explains_too() -> None:
    async def explained() -> Explanation:
        async with AsyncLLM(ToyPredictor()) as llm:
            [answer] = await llm.score([PROMPT], [RESPONSE], explain=True)
            return explanation_of(answer.outputs[0])

    [answer] = LLM(ToyPredictor()).score([PROMPT], [RESPONSE], explain=True)
    assert asyncio.run(explained()) == answer.outputs[0].explanation


def test_an_error_of_a_pass_reaches_the_scorer_as_ever() -> None:
    llm = LLM(Failing(), catalog=with_guests(scorers={"odd": Odd}))
    output = given("odd", llm, logprobs=None)
    assert explanation_of(output).formula == "no token is selected, so there is no score"
    with pytest.raises(PlanError, match="no pass"):
        given("dise", llm)
