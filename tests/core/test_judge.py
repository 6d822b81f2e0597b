"""An auto-regressive judge beside the diffusion model: the text in its own tokens, and what is
refused before any pass.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from dise_core import LLM, InputError, Read, Reading, ScoringParams
from dise_core.arrays import Ids
from dise_core.errors import TooLongError
from dise_core.models.attention import Causal
from dise_core.models.info import ModelInfo
from dise_core.records import Fields
from dise_core.sequence import SpecialTokens
from dise_core.testing.toy_model import END, LetterTokenizer, ToyPredictor

JUDGE = ScoringParams(scorer="ar-perplexity")


class PairTokenizer(LetterTokenizer):
    """Ids of its own: a letter is its index + 100, "?" the user's turn, 90 begins a text."""

    def __init__(self, has_template: bool) -> None:
        self._has_template = has_template

    @property
    def has_chat_template(self) -> bool:
        return self._has_template

    @property
    def start_ids(self) -> Ids:
        return np.array([90])

    def encode(self, text: str) -> Ids:
        return super().encode(text) + 100

    def chat_text(
        self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True
    ) -> str:
        raise NotImplementedError

    def encode_chat(self, messages: Sequence[Fields], tools: Sequence[Fields] = ()) -> Ids:
        return np.concatenate([[91], self.encode(messages[0]["content"]), [92]])


class Judge(ToyPredictor):
    """Answers log p = -position, and records what it was asked."""

    def __init__(self, has_template: bool = True, max_length: int = 40) -> None:
        super().__init__(max_length=max_length)
        special = SpecialTokens(None, frozenset())
        self.info = ModelInfo("the judge", 200, max_length, special, Causal())
        self.tokenizer = PairTokenizer(has_template)
        self.asked: list[tuple[list[int], list[int]]] = []

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        self.asked += [(read.token_ids.tolist(), read.positions.tolist()) for read in reads]
        return [Reading(read.readout.targets, -read.positions.astype(np.float32)) for read in reads]  # type: ignore[union-attr]


def test_a_text_prompt_goes_through_the_judges_chat_template() -> None:
    judge = Judge()
    [answer] = LLM(ToyPredictor(), judge=judge).score("ab", "cde", JUDGE)
    assert judge.asked == [([91, 100, 101, 92, 102, 103, 104], [4, 5, 6])]
    score = answer.outputs[0].score
    assert (score.value, score.log_likelihood, score.num_positions) == (-5, -15, 3)
    assert score.perplexity == pytest.approx(np.exp(5))
    record = answer.outputs[0].to_dict()["score"]
    assert (record["log_likelihood"], record["perplexity"]) == (-15, score.perplexity)


@pytest.mark.parametrize(
    ("prompt", "chat", "judge", "expected"),
    [
        ("ab", False, Judge(), [90, 100, 101, 102]),
        ("ab", None, Judge(has_template=False), [90, 100, 101, 102]),
        ([0, 1], None, Judge(), [90, 100, 101, 102]),
        ("", None, Judge(), [90, 102]),
    ],
)
def test_any_other_prompt_stands_before_the_response_as_text(
    prompt: str | list[int], chat: bool | None, judge: Judge, expected: list[int]
) -> None:
    llm = LLM(ToyPredictor(), judge=judge)
    llm.score([prompt], ["c"], JUDGE, chat=chat)  # type: ignore[list-item]
    assert [ids for ids, _ in judge.asked] == [expected]


def test_end_tokens_are_not_judged_and_a_response_of_them_alone_scores_nothing() -> None:
    judge = Judge()
    first, second = LLM(ToyPredictor(), judge=judge).score(
        [[0], [0]], [[2, END, 3, END], [END, END]], JUDGE
    )
    assert [ids for ids, _ in judge.asked] == [[90, 100, 102, 103]]
    assert first.outputs[0].score.positions.tolist() == [1, 3]
    assert second.outputs[0].score.value == -np.inf


def test_one_token_with_nothing_before_it_scores_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PairTokenizer, "start_ids", np.zeros(0, np.int64))
    judge = Judge()
    [answer] = LLM(ToyPredictor(), judge=judge).score("", "c", JUDGE)
    assert (answer.outputs[0].score.value, judge.asked) == (-np.inf, [])


class Deaf(PairTokenizer):
    """Has no token for anything but the letter a."""

    def encode(self, text: str) -> Ids:
        return np.full(text.count("a"), 100)


def deaf_judge() -> Judge:
    judge = Judge()
    judge.tokenizer = Deaf(has_template=True)
    return judge


@pytest.mark.parametrize(
    ("judge", "selector", "error", "message"),
    [
        (Judge(), "last-2", InputError, "takes the whole response: its selector is response-text"),
        (deaf_judge(), None, InputError, "the tokenizer of 'the judge' makes no token of the resp"),
        (Judge(max_length=6), None, TooLongError, "7 tokens is longer .* of 'the judge': 6"),
    ],
)
def test_what_cannot_be_judged_is_refused_before_any_pass(
    judge: Judge, selector: str | None, error: type[InputError], message: str
) -> None:
    toy = ToyPredictor()
    with pytest.raises(error, match=message):
        LLM(toy, judge=judge).score("ab", "cde", JUDGE.model_copy(update={"selector": selector}))
    assert (toy.batches, judge.asked) == ([], [])


def test_candidates_are_ranked_by_log_likelihood_not_by_its_mean() -> None:
    """The longer candidate has the better mean and the worse sum."""

    class Fair(Judge):
        def read(self, reads: Sequence[Read]) -> list[Reading]:
            values = [
                np.full(len(r.positions), -3.0 if len(r.positions) == 1 else -2.0, np.float32)
                for r in reads
            ]
            return [Reading(r.readout.targets, v) for r, v in zip(reads, values, strict=True)]  # type: ignore[union-attr]

    answer = LLM(ToyPredictor(), judge=Fair()).rank("ab", ["cd", "e"], JUDGE)
    assert [(output.index, output.text) for output in answer.outputs] == [(1, "e"), (0, "cd")]
    assert answer.outputs[0].finish_reason is None


def test_candidates_are_ranked_by_value_where_no_likelihood_is_known() -> None:
    toy = ToyPredictor()
    answer = LLM(toy).rank("ab", ["cde", "fgh", "iij"], ScoringParams(selector="response"))
    values = [output.score.value for output in answer.outputs]
    assert values == sorted(values, reverse=True)
    params = ScoringParams(selector="response")
    [first] = LLM(toy).score("ab", answer.outputs[0].text, params, finished=False)
    assert first.outputs[0].score.value == values[0]
    assert answer.usage.nfe == 3
