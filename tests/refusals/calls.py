"""Python's door: what a model is asked, which makes no pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dise import LLM
from dise_core import BlockCausal, Causal, SamplingParams, ScoringParams, SpecialTokens
from dise_core.plugins.discovery import installed_catalog
from dise_core.testing import ToyPredictor
from dise_core.testing.toy_model import END, MASK, LetterTokenizer
from dise_decide import ChoiceQuestion, DecisionParams, PredicateQuestion, Question
from dise_decide.questions import MAX_QUESTIONS
from tests.ascii_model import AsciiPredictor
from tests.calibrations import made
from tests.refusals.table import Row, Table, asked, raised

SHORT = SamplingParams(max_tokens=8)
CHAT = [{"role": "user", "content": "ab"}]
WRITTEN = ScoringParams(scorer="written")
WORDS = "(red|green|greenish|blue)( and (red|green|blue)){0,3}"
CLOZE, EACH = DecisionParams(layout="cloze"), DecisionParams(reading="each")
SPAM = PredicateQuestion(instructions="Is it spam?", name="spam")
TONE = ChoiceQuestion(instructions="Which tone?", name="tone", choices=("calm", "angry"))

PROMPTS: list[Row] = [
    (([], {}), "prompts", "no prompt given"),
    (("  ", {}), "prompt", "the prompt is empty"),
    (([[]], {}), "prompt", "the prompt is empty: it needs at least one token"),
    (("abc", {"max_tokens": 38}), "prompt, max_tokens",
     "3 tokens with max_tokens=38 is longer than the model's limit"),
    (("abc", {"scorer": "disco"}), "scorer", "unknown scorer 'disco'. Did you mean 'dise'"),
    (("abc", {"unmasking": "x"}), "unmasking", "unknown unmasking policy 'x'"),
    (("abc", {"n": 2}), "temperature", "2 responses at temperature 0 would all be the same"),
    (("abc", {"forbidden_token_ids": tuple(range(12))}), "forbidden_token_ids",
     "every token is forbidden"),
    (("abc", {"allowed_token_ids": (3, 12)}), "allowed_token_ids",
     "token id 12 at position 1 is outside"),
    (("abc", {"allowed_token_ids": (MASK,)}), "allowed_token_ids",
     "none of the allowed tokens may be written"),
    (("abc", {"logit_bias": {"12": 1}}), "logit_bias", "token id 12 at position 0 is outside"),
    (([[1, 12]], {}), "token_ids",
     "token id 12 at position 1 is outside the vocabulary: ids are 0 to 11"),
    (([[1, MASK]], {}), "text", "the text holds the mask token <mask> at position 1"),
    (([[1.5]], {}), "token_ids", "token ids must be a flat list of integers"),
    (("abc", {"reviser": "remake"}), "reviser", "unknown reviser 'remake'. Did you mean 'remask'?"),
    (("abc", {"reviser": "remask", "reviser_settings": {"treshold": 1}}), "treshold",
     "there is no setting 'treshold'"),
    (("abc", {"reviser": "remask", "reviser_settings": {"threshold": 2}}), "threshold",
     "threshold=2"),
    (("abc", {"reviser_settings": {"threshold": 0.7}}), "reviser_settings, reviser",
     "reviser_settings need a reviser"),
    (("abc", {"reviser": "remask", "reviser_settings": {"accept": "score"}, "scorer": "written"}),
     "reviser_settings=remask's accept",
     "'score' with written … what is written again is always surer"),
    (("abc", {"length": "until-end"}), "length=until-end",
     "until-end appends blocks, and 'toy' has none of its own"),
    (("abc", {"max_tokens": 9, "length": "daedal", "length_settings": {"max_gen_length": 8}}),
     "max_tokens", "max_tokens=9, the length to start from, is"),
]  # fmt: skip

ASKS: list[Row] = [
    (lambda llm: llm.chat([[], []]), "messages", "conversation 1: the conversation is empty"),
    (lambda llm: llm.chat([[]]), "messages", "the conversation is empty"),
    (lambda llm: llm.chat([]), "conversations", "no conversation given"),
    (lambda llm: llm.generate("abc", chat=True), "chat", "model 'toy' has no chat template"),
    (lambda llm: llm.score("abc", "efg", finished="no"), "finished",
     "finished must be True, False or None, not str: 'no'"),
    (lambda llm: llm.decide(["a", "b"], [PredicateQuestion(instructions="a")]), "input",
     "input 1: the model's vocabulary has no"),
    (lambda llm: llm.generate("ab", [SHORT] * 2), "params", "1 prompts do not pair up with 2"),
    (lambda llm: llm.chat(CHAT, [SHORT] * 2), "params", "1 conversations do not pair up with 2"),
    (lambda llm: llm.score(["a", "b"], ["c"]), "responses", "2 prompts do not pair up"),
    (lambda llm: llm.rank(["a", "b"], [["c"]]), "candidates", "2 prompts do not pair up"),
    (lambda llm: llm.generate("abc", SHORT, on_error="ignore"), "on_error",
     "on_error must be 'raise' or 'return', not 'ignore'"),
    (lambda llm: llm.score("abc", "def", WRITTEN), "scorer=written",
     "written reads how a text was written"),
    (lambda llm: llm.score("abc", [[3, 4]], WRITTEN), "scorer=written",
     "written reads how a text was written"),
    (lambda llm: llm.rank("abc", ["de", "ef"], WRITTEN), "scorer=written",
     "written reads how a text was written"),
    (lambda llm: llm.score("abc", "def", ScoringParams(scorer="dise+written")),
     "scorer=dise+written", "dise+written reads how a text was written"),
    (lambda llm: llm.score("ab", "c", ScoringParams(scorer="ar-perplexity")), "judge",
     "needs an auto-regressive judge; name one with --judge MODEL"),
    (lambda llm: llm.generate("ab", SamplingParams(scorer="ar-perplexity", max_tokens=4)), "judge",
     "needs an auto-regressive judge; name one with --judge MODEL"),
    (lambda llm: llm.fill("a", ""), "suffix", "the suffix is empty, so there is no gap"),
    (lambda llm: llm.fill(["a", "b"], ["c"]), "suffixes",
     "2 prefixes do not pair up with 1 suffixes"),
    (lambda llm: llm.fill("a", [1, MASK]), "text",
     "the text holds the mask token <mask> at position 1"),
]  # fmt: skip

AMONG_OTHERS: list[Row] = [
    (lambda llm: llm.generate(["abc", ""], SHORT), "prompt", "prompt 2: the prompt is empty"),
    (lambda llm: llm.generate(["abc", [9999]], SHORT), "token_ids", "prompt 2: token id 9999"),
    (lambda llm: llm.generate([[1], [1] * 99], SHORT), "prompt, max_tokens",
     "prompt 2: a prompt of 99 tokens"),
    (lambda llm: llm.score(["a", "b"], ["c", ""]), "response", "text 2: the response is empty"),
    (lambda llm: llm.rank("a", ["b", ""]), "response", "candidate 2: the response is empty"),
    (lambda llm: llm.rank(["a", "b"], [["c"], ["d", "e", ""]]), "response",
     "prompt 2: candidate 3: the response is empty"),
    (lambda llm: llm.generate(["bad", "hello"], SHORT), "prompt", "vocabulary has no"),
]  # fmt: skip
"""Requests whose neighbours are answered."""

GAPS: list[Row] = [
    *(({"length": name}, "length", f"{name!r} fills no gap")
      for name in ("until-end", "dise-flexible", "daedal", "rho-eos")),
    ({"allowed_token_ids": [END]}, "allowed_token_ids", "none of the allowed"),
    ({"max_tokens": 39}, "suffix, max_tokens",
     "prompt of 1 tokens and a suffix of 1 with max_tokens=39"),
    ({"scorer": "ar-perplexity"}, "scorer", "asks a judge, which does not see what follows"),
]  # fmt: skip

IN_BLOCKS: list[Row] = [
    (lambda llm: llm.fill("a", "e", SamplingParams(max_tokens=4)), "suffix",
     "'toy' is block-causal … full attention"),
    (lambda llm: llm.generate([[1, 2]], SamplingParams(max_tokens=9, block_length=8)),
     "block_length", "block_length=8: 'toy' has blocks of 4 tokens"),
    (lambda llm: llm.generate([[1, 2]], SamplingParams(steps=3, max_tokens=13)), "steps",
     "less than one step for each of the 4 blocks of 4"),
    (lambda llm: llm.score([[1, 2]], [[3, 4]], ScoringParams(block_length=5)), "block_length",
     "block_length=5"),
]  # fmt: skip

LOOKING_AHEAD: list[Row] = [
    (name, "length", f"{name} looks ahead … 'until-end', which finds")
    for name in ("cal", "rho-eos")
]

ENDLESS: list[Row] = [(name, "length", "has no end token") for name in ("daedal", "rho-eos")]

STOPS: list[Row] = [(at, "stop_at", "at most 0.9000") for at in (0.91, 1.0, 0.0, -0.5, 7.0)]

CONTROLLERS = sorted({*installed_catalog().length_controllers} - {"fixed", "until-end"})

MATCHES: list[Row] = [
    *(({"length": name}, "length", f"length='{name}' cannot be comb") for name in CONTROLLERS),
    ({"unmasking": "llada2-editing"}, "unmasking", "cannot be combined with a constraint"),
    ({"stop": ["x"]}, "stop", "cannot be combined with a constraint"),
    ({"allowed_token_ids": [65]}, "allowed_token_ids", "cannot be combined with a constraint"),
    ({"max_tokens": 2}, "max_tokens=2 tokens", "meets the constraint"),
    ({"unmasking_settings": {"logits_eos_inf": True}, "max_tokens": 60}, "max_tokens=60 tokens",
     "meets the constraint"),
    ({"forbidden_token_ids": [ord("e")]}, "constraint", "tokens cannot spell any answer"),
    ({"constraint_settings": {"regex": "a{20001}"}}, "constraint=a{20001}", "20,000 states"),
]  # fmt: skip

INPUTS: list[Row] = [
    (("", None), "input", "the input is empty"),
    (([], None), "input", "no input given"),
    ((7, None), "input", "input must be a text, a conversation or a list of either"),
    (("a" * 600_000, None), "input=a text of 600000 characters", "longer than this model's limit"),
    (("a", "joint"), "params", "params must be DecisionParams"),
    (("a" * 1000, None), "questions", "1 question with … a slot of 3 tokens … limit of 1000"),
]  # fmt: skip


class Folding(LetterTokenizer):
    """Writes some letters as others, or not at all, as tokenizers do."""

    def encode(self, text: str) -> np.ndarray:
        return super().encode(text.lower().replace("j", ""))

    def decode(self, ids: np.ndarray) -> str:
        return "" if 8 in ids else super().decode(ids)


def choices(*labels: object) -> list[Question]:
    return [ChoiceQuestion(instructions="c", choices=labels)]  # type: ignore[arg-type]


PAIRS = [f"{one}{other}c" for one in "abcdefgh" for other in "abcdefgh"]

QUESTIONS: list[Row] = [
    (lambda: choices("a"), "choices", "at least 2 items"),
    (lambda: choices(*(f"a{i}" for i in range(300))), "choices", "at most 255 items"),
    (lambda: choices("a", " "), "choices.1.value.constrained-str", "should match pattern"),
    (lambda: choices("a", "A"), "questions", "'A' and 'a' of the question 'c' are the same tokens"),
    (lambda: choices("a", "z"), "label='z'", "the model's vocabulary has no 'z'"),
    (lambda: choices("a", "i"), "questions=label 'i'", "cannot write the label 'i'"),
    (lambda: choices("a", "j"), "questions=label 'j'", "cannot write the label 'j'"),
    (list, "questions", "at least 1 item"),
    (lambda: choices("a", "b") * (MAX_QUESTIONS + 1), "questions", "at most 400 items"),
    (lambda: choices(*PAIRS) * 400, "questions", "need more than 32768 tokens of labels"),
    (lambda: "Is it?", "questions", "questions: Input should be a valid list"),
    (lambda: ["Is it?"], "0=Is it?", "0='Is it?': Input should be a valid dictionary"),
    (lambda: [SPAM, SPAM], "questions", "two questions have the name 'spam'"),
]  # fmt: skip

MANY: list[Row] = [
    ((255, 400, {}), "questions", "need more than 32768 tokens of labels"),
    ((255, 400, {"reading": "each"}), "questions", "need more than 2048 texts"),
    ((255, 9, {"reading": "each"}), "questions", "need more than 2048 texts"),
]  # fmt: skip

READINGS: list[Row] = [
    (option, "reading", "goes with reading menu alone, not with each")
    for option in ({"joint": True}, {"layout": "cloze"})
]


def in_blocks() -> ToyPredictor:
    return ToyPredictor(attention=BlockCausal(4))


def folding() -> ToyPredictor:
    toy = ToyPredictor()
    toy.tokenizer = Folding()
    return toy


def endless() -> ToyPredictor:
    toy = ToyPredictor()
    toy.info = replace(toy.info, special=SpecialTokens(MASK, frozenset()))
    return toy


def generate(llm: LLM, given: tuple[Any, dict[str, Any]]) -> object:
    prompts, more = given
    return llm.generate(prompts, SamplingParams(**({"max_tokens": 4} | more)))


def fill(llm: LLM, more: dict[str, Any]) -> object:
    params = SamplingParams.model_validate({"max_tokens": 4, **more})
    return LLM(llm.predictor, judge=ToyPredictor(attention=Causal())).fill("a", "e", params)


def match(llm: LLM, more: dict[str, Any]) -> object:
    held = {"constraint": "regex", "constraint_settings": {"regex": WORDS}}
    params = SamplingParams(max_tokens=24, logprobs=None, seed=3, **held)
    return llm.generate([1, 2], params.model_copy(update=more))


def lengthen(llm: LLM, name: str) -> object:
    return llm.generate([[1, 2]], SamplingParams(max_tokens=9, length=name))


def stop(llm: LLM, at: float) -> object:
    params = SamplingParams(max_tokens=4, temperature=2.0, best_of=8)
    return llm.generate([[1, 2]], params.model_copy(update={"stop_at": at}))


def decide_many(llm: LLM, given: tuple[int, int, dict[str, Any]]) -> object:
    num_choices, num_questions, params = given
    labels = [f"{number:03}" for number in range(num_choices)]
    questions = [ChoiceQuestion(instructions="Q", choices=labels)] * num_questions
    return llm.decide("a", questions, DecisionParams(**params))


TABLES = [
    Table("generate", asked(ToyPredictor, generate), PROMPTS),
    Table("LLM", asked(ToyPredictor, lambda llm, ask: ask(llm)), ASKS),
    Table("LLM", raised(lambda ask: ask(LLM(ToyPredictor()))), AMONG_OTHERS),
    Table("fill", asked(ToyPredictor, fill), GAPS),
    Table("blocks", asked(in_blocks, lambda llm, ask: ask(llm)), IN_BLOCKS),
    Table("blocks", asked(in_blocks, lengthen), LOOKING_AHEAD),
    Table("endless", asked(endless, lengthen), ENDLESS),
    Table("stop_at", asked(ToyPredictor, stop, calibration=made()), STOPS),
    Table("matching", asked(AsciiPredictor, match), MATCHES),
    Table(
        "decide",
        asked(AsciiPredictor, lambda llm, given: llm.decide(given[0], [SPAM, TONE], given[1])),
        INPUTS,
    ),
    Table("questions", asked(folding, lambda llm, ask: llm.decide("a", ask(), CLOZE)), QUESTIONS),
    Table("many questions", asked(lambda: AsciiPredictor(4000), decide_many), MANY),
    Table(
        "DecisionParams", raised(lambda option: DecisionParams(reading="each", **option)), READINGS
    ),
]
