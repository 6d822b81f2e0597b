"""Typed questions: their probabilities beside a naive softmax, what shares a pass, and what is
refused before any.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from dise import LLM, AsyncLLM
from dise_core import BlockCausal, InputError, Read, Reading, TooLongError
from dise_core.testing import ToyPredictor
from dise_core.testing.toy_model import END as TOY_END
from dise_core.testing.toy_model import MASK as TOY_MASK
from dise_core.testing.toy_model import SPECIAL, LetterTokenizer
from dise_decide import (
    Choice,
    ChoiceAnswer,
    ChoiceQuestion,
    DecisionParams,
    Option,
    PredicateAnswer,
    PredicateQuestion,
    ScoreAnswer,
    ScoreQuestion,
)
from dise_decide.params import ConfidenceName
from dise_decide.readings import asked_texts
from tests.ascii_model import MASK, AsciiPredictor

CLOZE, EACH = DecisionParams(layout="cloze"), DecisionParams(reading="each")
JOINT = DecisionParams(joint=True)
JOINT_CLOZE = DecisionParams(layout="cloze", joint=True)
SPAM = PredicateQuestion(instructions="Is it spam?", name="spam")
TONE = ChoiceQuestion(
    instructions="Which tone?",
    name="tone",
    choices=("calm", Choice(value="angry", description="it shouts"), Choice(value=True)),
)
URGENCY = ScoreQuestion(instructions="How urgent?", levels=["low", "mid", "high"])
FIVE = [SPAM, TONE, URGENCY, *(PredicateQuestion(instructions=text) for text in ("Ok?", "New?"))]


def logprobs_of(predictor: ToyPredictor, text: list[int]) -> np.ndarray:
    return np.asarray(log_softmax(predictor.logits(np.array(text)), axis=1))


def naive(
    predictor: AsciiPredictor, text: str, slot: int, labels: Sequence[str]
) -> tuple[np.ndarray, float, bool]:
    """Return the labels' probabilities, their mass, and whether the likeliest token is one of them.

    text: with a "#" for each mask, slot: which run of them. One pass, one label at a time.
    """
    ids = [MASK if letter == "#" else ord(letter) for letter in text]
    starts = [i for i, c in enumerate(text) if c == "#" and text[i - 1] != "#"]
    at = logprobs_of(predictor, ids)[starts[slot] :]
    means = [
        sum(at[i][ord(letter)] for i, letter in enumerate(label)) / len(label) for label in labels
    ]
    firsts = {ord(label[0]) for label in labels}
    mass = sum(math.exp(at[0][first]) for first in firsts)
    return np.asarray(softmax(means)), mass, int(np.argmax(at[0])) in firsts


JOINT_TEXT = """You won!

Answer each question with one of its answers, one line for each.
1. Is it spam?
   Answers: yes, no
2. Which tone?
   Answers: angry, calm, true
   - angry: it shouts
3. How urgent?
   Answers: low, mid, high1. ###
2. #####
3. ####"""

LABELS = [("yes", "no"), ("calm", "angry", "true"), ("low", "mid", "high")]


class Counted(AsciiPredictor):
    """Counts the Reads: a server takes only so many of one text."""

    num_reads = 0

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        self.num_reads += len(reads)
        return super().read(reads)


def test_questions_in_one_text_have_the_probabilities_of_a_naive_softmax() -> None:
    predictor = Counted()
    decided = LLM(predictor).decide("You won!", [SPAM, TONE, URGENCY], JOINT)
    assert (decided.is_joint, predictor.num_reads) == (True, 2)
    for slot, (answer, labels) in enumerate(zip(decided.answers, LABELS, strict=True)):
        expected, mass, is_label = naive(predictor, JOINT_TEXT, slot, labels)
        assert answer.shares == pytest.approx(expected, abs=1e-5)
        assert answer.diagnostics.label_mass == pytest.approx(mass, abs=1e-6)
        assert answer.diagnostics.argmax_is_label == is_label
    assert decided.usage.prompt_tokens == len(JOINT_TEXT.replace("#", ""))
    assert decided.usage.completion_tokens == JOINT_TEXT.count("#")


def test_an_answer_is_the_likeliest_choice_and_the_mean_level() -> None:
    predictor = AsciiPredictor()
    spam, tone, urgency = LLM(predictor).decide("You won!", [SPAM, TONE, URGENCY]).answers
    assert isinstance(spam, PredicateAnswer)
    assert isinstance(tone, ChoiceAnswer)
    assert isinstance(urgency, ScoreAnswer)
    shares = tone.shares
    assert tone.choice == ["calm", "angry", True][int(np.argmax(shares))]
    assert [each.value for each in tone.probabilities] == ["calm", "angry", True]
    assert tone.confidence == pytest.approx(max(shares) * tone.diagnostics.label_mass)
    levels = urgency.shares
    assert urgency.score == pytest.approx(levels[1] + 2 * levels[2])
    assert [(each.value, each.label) for each in urgency.probabilities] == [
        (0, "low"), (1, "mid"), (2, "high"),
    ]  # fmt: skip
    assert [spam.name, tone.name, urgency.name] == ["spam", "tone", None]


def test_a_conversation_ends_with_the_questions() -> None:
    predictor = AsciiPredictor(has_chat_template=True)
    llm, ask = LLM(predictor), "Question: Is it spam?\nAnswer with one of these: yes, no"
    user, assistant = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}
    cases = {
        f"<user>hi\n\n{ask}<assistant>Answer: ###": [user],
        f"<user>hi<assistant>yo<user>{ask}<assistant>Answer: ###": [user, assistant],
    }
    for text, messages in cases.items():
        decided = llm.decide(messages, [SPAM])
        expected, _, _ = naive(predictor, text, 0, LABELS[0])
        assert decided.answers[0].shares == pytest.approx(expected, abs=1e-5)
    decided = llm.decide("hi", [SPAM], chat=True)
    assert decided.answers[0].shares == llm.decide([user], [SPAM]).answers[0].shares


def test_a_cloze_adds_nothing_to_the_text() -> None:
    predictor = AsciiPredictor()
    sky = ChoiceQuestion(instructions=" The sky is ", choices=["blue", "red"])
    sea = PredicateQuestion(instructions=". Wet: ", yes=Option(label="ja"), no="nein")
    decided = LLM(predictor).decide("Hm.", [sky, sea], JOINT_CLOZE)
    text = "Hm. The sky is ####. Wet: ####"
    for slot, labels in enumerate([("blue", "red"), ("ja", "nein")]):
        expected, _, _ = naive(predictor, text, slot, labels)
        assert decided.answers[slot].shares == pytest.approx(expected, abs=1e-5)


def test_several_inputs_and_callers_share_batches() -> None:
    predictor = AsciiPredictor()
    texts = [f"text {number}" for number in range(8)]
    decided = LLM(predictor).decide(texts, [SPAM, TONE])
    assert len(predictor.batches) == 1
    alone = [LLM(AsciiPredictor()).decide(text, [SPAM, TONE]) for text in texts]
    assert [output.answers for output in decided] == [output.answers for output in alone]

    async def ask() -> list[object]:
        async with AsyncLLM(AsciiPredictor()) as llm:
            outputs = await asyncio.gather(*(llm.decide(text, [SPAM, TONE]) for text in texts))
            return [output.answers for output in outputs]

    assert asyncio.run(ask()) == [output.answers for output in alone]


def naive_in_blocks(
    predictor: ToyPredictor, before: str, length: int, labels: Sequence[str], block: int
) -> np.ndarray:
    """Return the probabilities of labels at the end of a text in blocks: each token from the text
    with the label's earlier blocks written, its own block masked, and ends up to the border.
    """
    letters, means = LetterTokenizer(), []
    ids = letters.encode(before).tolist()
    for label in labels:
        found = []
        for index, token in enumerate(letters.encode(label).tolist()):
            position = len(ids) + index
            start = position - position % block
            written = [
                t if len(ids) + i < start else TOY_MASK
                for i, t in enumerate(letters.encode(label).tolist())
            ]
            text = ids + written + [TOY_MASK] * (length - len(written))
            text += [TOY_END] * (-len(text) % block)
            found.append(logprobs_of(predictor, text)[position][token])
        means.append(sum(found) / len(found))
    return np.asarray(softmax(means))


@pytest.mark.parametrize("before", ["ab", "abc", "abcd", "abcde", "abcdef"])
def test_blocks_read_a_labels_earlier_tokens_never_their_masks(before: str) -> None:
    predictor = ToyPredictor(attention=BlockCausal(4))
    labels = ["a", "bc", "def", "bd"]
    question = ChoiceQuestion(instructions=before[1:], choices=labels)
    decided = LLM(predictor).decide(before[0], [question], CLOZE)
    expected = naive_in_blocks(predictor, before, 3, labels, 4)
    assert decided.answers[0].shares == pytest.approx(expected, abs=1e-5)
    across = sum(len(before) // 4 != (len(before) + len(label) - 1) // 4 for label in labels)
    assert decided.usage.nfe == across + (across < len(labels))
    assert len(predictor.batches) == 1


def test_questions_share_a_text_where_one_block_holds_all_slots() -> None:
    llm = LLM(ToyPredictor(attention=BlockCausal(4)))
    inside = ChoiceQuestion(instructions="", choices=["a", "b"])
    decided = llm.decide("a", [inside, inside], JOINT_CLOZE)
    assert (decided.is_joint, decided.usage.nfe) == (True, 1)


def in_blocks() -> ToyPredictor:
    return ToyPredictor(attention=BlockCausal(4))


def short() -> AsciiPredictor:
    """Its longest text holds the longer of two questions, and not both."""
    return AsciiPredictor(128)


ONE, OTHER = (ChoiceQuestion(instructions=text, choices=["a", "b"]) for text in "cd")
NO_JOINT = {
    "blocks": (in_blocks, [ONE, OTHER], "cloze", "their slots lie in several blocks of 4 tokens"),
    "length": (short, [SPAM, TONE], "questions", "more than the model's limit of 128"),
    "characters": (
        short,
        [PredicateQuestion(instructions=f"{'Is it so? ' * 4}{n}") for n in range(400)],
        "questions",
        "longer than this model's limit of 128 tokens",
    ),
}


@pytest.mark.parametrize("case", NO_JOINT)
def test_questions_that_cannot_share_a_text_are_asked_apart_with_a_warning(case: str) -> None:
    build, questions, layout, why = NO_JOINT[case]
    apart, joint = (
        LLM(build()).decide("a", questions, DecisionParams(layout=layout, joint=joint))  # type: ignore[arg-type]
        for joint in (False, True)
    )
    assert joint.answers == apart.answers
    assert (joint.is_joint, joint.usage.nfe) == (False, len(questions))
    [warning] = set(joint.warnings) - set(apart.warnings)
    assert warning.startswith("joint: each question was asked in a text of its own, because ")
    assert why in warning


def test_an_answer_does_not_depend_on_the_other_questions() -> None:
    llm = LLM(AsciiPredictor())
    together = llm.decide("You won!", FIVE).answers
    assert together == tuple(llm.decide("You won!", [each]).answers[0] for each in FIVE)


class Shy(AsciiPredictor):
    """A model that gives every token this log-probability."""

    def __init__(self, logprob: float) -> None:
        super().__init__()
        self.logprob = logprob

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        found = super().read(reads)
        return [Reading(r.token_ids, np.full_like(r.logprobs, self.logprob)) for r in found]


@pytest.mark.parametrize(("mass", "number"), [(0.099, 1), (0.101, 0)])
def test_a_label_mass_below_a_tenth_is_a_warning(mass: float, number: int) -> None:
    unnamed = PredicateQuestion(instructions="Ok?")
    decided = LLM(Shy(math.log(mass / 2))).decide("You won!", [SPAM, unnamed])
    assert [answer.diagnostics.label_mass for answer in decided.answers] == [
        pytest.approx(mass)
    ] * 2
    expected = [
        f"question {name}: the model gives its answers a probability of only {mass:.2g} in all, so "
        "how they compare tells little"
        for name in ("spam", 2)
    ]
    assert list(decided.warnings) == expected * number
    assert decided.to_dict()["warnings"] == expected * number


def test_labels_without_any_probability_are_alike_and_say_so() -> None:
    question = ChoiceQuestion(instructions="c", choices=["a", "b"])
    [answer] = LLM(Shy(-math.inf)).decide("a", [question], CLOZE).answers
    assert isinstance(answer, ChoiceAnswer)
    assert answer.shares == [0.5, 0.5]
    assert (answer.confidence, answer.diagnostics.label_mass) == (0, 0)
    assert answer.diagnostics.logprobs == (None, None)


def test_a_slot_that_just_fits_is_answered() -> None:
    num_tokens = len(
        "You won!\n\nQuestion: Is it spam?\nAnswer with one of these: yes, noAnswer: ###"
    )
    assert LLM(AsciiPredictor(num_tokens)).decide("You won!", [SPAM]).usage.nfe == 1
    with pytest.raises(TooLongError, match=f"limit of {num_tokens - 1}"):
        LLM(AsciiPredictor(num_tokens - 1)).decide("You won!", [SPAM])
    for longest, nfe in ((len(JOINT_TEXT), 1), (len(JOINT_TEXT) - 1, 3)):
        decided = LLM(AsciiPredictor(longest)).decide("You won!", [SPAM, TONE, URGENCY], JOINT)
        assert decided.usage.nfe == nfe


class Masked(LetterTokenizer):
    """Reads "i" as the mask token."""

    def encode(self, text: str) -> np.ndarray:
        ids = super().encode(text)
        return np.where(ids == 8, TOY_MASK, ids)

    def decode(self, ids: np.ndarray) -> str:
        return super().decode(np.where(ids == TOY_MASK, 8, ids))


def test_masks_stand_in_slots_only() -> None:
    predictor = ToyPredictor()
    predictor.tokenizer = Masked()
    with pytest.raises(InputError, match="the input holds the mask token"):
        LLM(predictor).decide("ai", [ChoiceQuestion(instructions="c", choices=["a", "b"])], CLOZE)
    with pytest.raises(InputError, match="the label 'i' holds the mask token"):
        LLM(predictor).decide("a", [ChoiceQuestion(instructions="c", choices=["a", "i"])], CLOZE)
    assert predictor.batches == []
    assert SPECIAL.mask_id == TOY_MASK


def test_a_question_without_instructions_is_refused_where_questions_are_listed() -> None:
    with pytest.raises(InputError, match="a question without instructions"):
        LLM(AsciiPredictor()).decide("a", [PredicateQuestion(instructions=" ")])


def test_the_same_labels_are_not_tokenized_again(monkeypatch: pytest.MonkeyPatch) -> None:
    predictor = AsciiPredictor()
    llm, seen = LLM(predictor), list[str]()
    encode = predictor.tokenizer.encode
    monkeypatch.setattr(
        predictor.tokenizer, "encode", lambda text: seen.append(text) or encode(text)
    )
    sky = ChoiceQuestion(instructions=" Sky: ", choices=["blue", "red"])
    first = llm.decide("It rains.", [sky, SPAM], CLOZE)
    assert {"blue", "red", "yes", "no", " Sky: ", "It rains."} <= set(seen)
    seen.clear()
    again = llm.decide("It rains.", [sky.model_copy(), SPAM], CLOZE)
    assert set(seen) == {"It rains.", " Sky: ", "Is it spam?"}
    assert [a.shares for a in again.answers] == [a.shares for a in first.answers]
    other = sky.model_copy(update={"choices": (Choice(value="grey"), Choice(value="red"))})
    [answer] = llm.decide("It rains.", [other], CLOZE).answers
    expected, _, _ = naive(predictor, "It rains. Sky: ####", 0, ["grey", "red"])
    assert answer.shares == pytest.approx(expected, abs=1e-5)


def test_an_answer_does_not_depend_on_the_order_in_which_options_are_given() -> None:
    llm, labels = LLM(AsciiPredictor()), ["calm", "angry", "true"]
    options: list[dict[str, Any]] = [{}, {"reading": "each"}]
    for params in (DecisionParams(**option) for option in options):
        forth, back = (
            llm.decide("You won!", [ChoiceQuestion(instructions="Q", choices=given)], params)
            for given in (labels, labels[::-1])
        )
        assert forth.answers[0].shares == pytest.approx(back.answers[0].shares[::-1])


def test_options_that_show_the_same_text_share_what_it_has() -> None:
    llm, red = LLM(AsciiPredictor()), Choice(value="x", description="it is red")
    again = red.model_copy(update={"value": "again"})
    one, two = (
        llm.decide("a", [ChoiceQuestion(instructions="Q", choices=given)], EACH)
        for given in ([red, "blue"], [red, again, "blue"])
    )
    whole, blue = one.answers[0].shares
    assert two.answers[0].shares == pytest.approx([whole / 2, whole / 2, blue])
    assert one.usage.nfe == two.usage.nfe


def test_labels_of_a_predicate_are_shown_where_yes_and_no_stand_for_them() -> None:
    told = Option(label="ham", description="wanted")
    question = PredicateQuestion(instructions="Which is it?", yes="spam", no=told)
    [asked] = asked_texts(question, EACH)
    assert [(answer.label, answer.note) for answer in asked.answers] == [
        ("yes", "spam"),
        ("no", "wanted"),
    ]
    plain = PredicateQuestion(instructions="Is it?", yes="Yes", no="no")
    first = next(asked_texts(plain, EACH))
    assert [answer.note for answer in first.answers] == [None, None]


def test_yes_and_no_are_asked_alike_whatever_the_type_of_the_question() -> None:
    choice = ChoiceQuestion(instructions="Is it spam?", choices=[False, True])
    score = ScoreQuestion(
        instructions="Is it spam?", levels=[Option(label="0", description="No"), "Yes"]
    )
    spam = PredicateQuestion(instructions="Is it spam?")
    decided = LLM(AsciiPredictor()).decide("a", [spam, choice, score], EACH)
    first, second, third = (answer.shares for answer in decided.answers)
    for other in (second, third):
        assert first == pytest.approx(other[::-1])


def test_each_definition_of_confidence() -> None:
    llm, naive = LLM(AsciiPredictor()), dict[str, float]()
    for confidence in get_args(ConfidenceName):
        [answer] = llm.decide("a", [URGENCY], DecisionParams(confidence=confidence)).answers
        assert isinstance(answer, ScoreAnswer)
        assert answer.diagnostics.confidence == confidence
        naive[confidence] = answer.confidence
    low, middle, top = sorted(answer.shares)
    entropy = -sum(p * math.log(p) for p in (low, middle, top))
    assert naive == {
        "label-mass": pytest.approx(top * answer.diagnostics.label_mass),
        "top": pytest.approx(top),
        "margin": pytest.approx(top - middle),
        "entropy": pytest.approx(1 - entropy / math.log(3)),
        "above-chance": pytest.approx((3 * top - 1) / 2),
    }


@pytest.mark.parametrize("option", [{"joint": True}, {"layout": "cloze"}])
def test_one_text_for_all_and_a_cloze_go_with_one_menu(option: dict[str, Any]) -> None:
    assert DecisionParams(**option).over(EACH) == DecisionParams(**option)
    assert EACH.over(DecisionParams(**option)) == EACH
