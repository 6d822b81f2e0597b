"""The embedded models: that they have learnt their trade, and what their scores say of it."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

import numpy as np
import pytest
from embedded_models.countdown.problems import held_out_problems, is_correct, solution
from embedded_models.words.problems import OTHER_ANSWER, draw_problem
from hypothesis import assume, given
from hypothesis import strategies as st

from dise_adapters.checkpoint.tokenizer import FastTokenizer
from dise_adapters.embedded import CountdownPredictor, WordProblemsPredictor
from dise_core import LLM, InputError, SamplingParams
from dise_core.front.outputs import CompletionOutput, RequestOutput
from dise_core.models.pieces import pieces
from dise_core.sequence import as_ids

ONE_A_STEP = SamplingParams(max_tokens=48, block_length=16, tokens_per_step=1)
SENTENCE = SamplingParams(
    max_tokens=24, block_length=24, tokens_per_step=1, selector="response-text", seed=0
)
SAMPLED = SamplingParams(
    max_tokens=48, block_length=16, temperature=1.0, n=3, selector="response-text", seed=0
)


@pytest.fixture(scope="module")
def countdown() -> LLM:
    return LLM("countdown")


@pytest.fixture(scope="module")
def words() -> LLM:
    return LLM("word-problems")


class Asked(NamedTuple):
    """A problem, and whether a text solves it."""

    prompt: str
    is_right: Callable[[str], bool]


def numbers(seed: int, count: int) -> list[Asked]:
    problems = held_out_problems(Random(seed), count)
    return [Asked(each.prompt, lambda text, each=each: is_correct(text, each)) for each in problems]


def sentences(seed: int, count: int, held_out: bool) -> list[Asked]:
    random = Random(seed)
    problems = (draw_problem(random, held_out) for _ in range(2 * count))
    return [
        Asked(each.text, lambda text, each=each: f"= {each.result} " in f"{text} ")
        for each in problems
        if each.kind
    ][:count]


def answered(
    model: str, params: SamplingParams, asked: list[Asked]
) -> list[tuple[bool, CompletionOutput]]:
    """Return the outputs, and whether each is right."""
    answers = LLM(model).generate([each.prompt for each in asked], params)
    return [
        (problem.is_right(output.text), output)
        for problem, answer in zip(asked, answers, strict=True)
        for output in answer.outputs
    ]


@pytest.mark.parametrize("predictor", [CountdownPredictor, WordProblemsPredictor])
def test_its_files_are_small_enough_to_ship(predictor: type[CountdownPredictor]) -> None:
    assert sum(path.stat().st_size for path in predictor.folder().iterdir()) < 5 * 2**20


@pytest.mark.parametrize(
    ("model", "params", "asked", "share"),
    [
        ("countdown", ONE_A_STEP, numbers(3, 24), 0.5),
        ("word-problems", SENTENCE, sentences(3, 32, held_out=False), 0.6),
    ],
)
def test_it_solves_most_problems(
    model: str, params: SamplingParams, asked: list[Asked], share: float
) -> None:
    solved = [is_right for is_right, _ in answered(model, params, asked)]
    assert sum(solved) >= len(solved) * share


@pytest.mark.parametrize(
    ("model", "params", "asked"),
    [
        ("countdown", SAMPLED, numbers(5, 36)),
        ("word-problems", SENTENCE, sentences(5, 40, held_out=True)),
    ],
)
def test_dise_tells_right_answers_from_wrong_ones_to_problems_that_it_does_not_know(
    model: str, params: SamplingParams, asked: list[Asked]
) -> None:
    outputs = answered(model, params, asked)
    right, wrong = (
        [output.score.value for is_right, output in outputs if is_right == wanted]
        for wanted in (True, False)
    )
    assert min(len(right), len(wrong)) >= 5
    above = sum((r > w) + (r == w) / 2 for r in right for w in wrong)
    assert above / (len(right) * len(wrong)) > 0.65


def test_it_is_surer_of_a_solution_than_of_its_tokens_in_another_order(countdown: LLM) -> None:
    problems = held_out_problems(Random(3), 12)
    encode = countdown.predictor.tokenizer.encode
    solutions = [encode(str(solution(problem))).tolist() for problem in problems]
    shuffled = [Random(0).sample(tokens, len(tokens)) for tokens in solutions]
    prompts = [problem.prompt for problem in problems]
    natural, random = (countdown.score(prompts, texts) for texts in (solutions, shuffled))
    for one, other in zip(natural, random, strict=True):
        assert one.outputs[0].score.value > other.outputs[0].score.value


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("How many legs do three spiders have?", "3 * 8 = 24 legs"),
        ("Tom has 12 apples. He eats 5 of them. How many apples are left?", "12 - 5 = 7 apples"),
        ("Hello! What can you do?", OTHER_ANSWER),
    ],
)
def test_it_answers_a_sentence(words: LLM, text: str, answer: str) -> None:
    assert words.generate(text, SENTENCE)[0].outputs[0].text == answer


@given(st.text())
def test_it_spells_any_text(words: LLM, text: str) -> None:
    # The name of a special token, as <|eot_id|>, is that token, which has no text.
    assume("<|" not in text)
    ids = words.predictor.tokenizer.encode(text)
    assert "".join(pieces(words.predictor.tokenizer, ids)) == text


@pytest.mark.parametrize("kind", [CountdownPredictor, WordProblemsPredictor])
def test_its_tokenizer_does_as_that_of_transformers(kind: type[CountdownPredictor]) -> None:
    def told(by: type[FastTokenizer]) -> list[object]:
        tokenizer = by.from_folder(kind.folder())
        ids = tokenizer.encode("8 3,1 -> 10")
        chat = [{"role": role, "content": "1+2 \n"} for role in ("user", "assistant", "user")]
        mixed = np.random.default_rng(0).choice([*range(20), *tokenizer.added_tokens.values()], 50)
        names = [[tokenizer.token_text(i), tokenizer.token_bytes(i)] for i in range(27)]
        known = tokenizer.id_of("<|user|>"), tokenizer.mask_id, tokenizer.added_tokens
        texts = tokenizer.chat_text(chat), tokenizer.chat_text(chat, False, [{"type": "function"}])
        return [ids.tolist(), tokenizer.decode(mixed), *names, *known, *texts]

    assert told(kind.tokenizer_kind) == told(FastTokenizer)


def test_a_chat_is_a_prompt_in_the_template(countdown: LLM) -> None:
    [chatted] = countdown.chat([{"role": "user", "content": "83,18,75 -> 10"}], ONE_A_STEP)
    [generated] = countdown.generate("83,18,75 -> 10", ONE_A_STEP)
    assert chatted.outputs[0].token_ids == generated.outputs[0].token_ids
    assert chatted.prompt == "83,18,75 -> 10"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"role": "system", "content": "1"}, "knows the roles user and assistant, not system"),
        ({"content": "1"}, 'a message needs "role" and "content"'),
    ],
)
def test_a_bad_message_is_refused(countdown: LLM, message: dict[str, str], text: str) -> None:
    with pytest.raises(InputError, match=text):
        countdown.chat([[message]])


@pytest.mark.parametrize("model", ["countdown", "countdown-blocks"])
def test_whoever_speaks_to_it_is_told_what_it_can_do(model: str) -> None:
    told = r"has no 'H' .in '.*How.*'83,18,75 -> 10'.*word-problems answers.*dllm-hub/Qwen3-0\.6B"
    with pytest.raises(InputError, match=told):
        LLM(model).generate("How many legs do three spiders have?")


ENDED = "{% for m in messages %}{{ m['content'] }}<|eot_id|>{% endfor %}"


@pytest.mark.parametrize(
    ("template", "chat", "end"),
    [
        (ENDED, None, "<|eot_id|>"),
        (ENDED, False, "<|endoftext|>"),
        ("{% for m in messages %}{{ m['content'] }}\n{% endfor %}", None, "<|endoftext|>"),
        ("{{ raise_exception('no') }}", None, "<|endoftext|>"),
    ],
)
def test_the_token_that_ends_a_turn_follows_a_response_in_a_conversation(
    template: str, chat: bool | None, end: str
) -> None:
    llm = LLM("word-problems")
    llm.predictor.tokenizer._tokenizer.chat_template = template  # type: ignore[attr-defined]
    assert llm.predictor.tokenizer.token_text(llm.planner.end_id([5, 6], chat) or 0) == end


def test_a_conversation_may_come_with_variables_of_the_chat_template() -> None:
    llm, turns = LLM("countdown"), [{"role": "user", "content": "83,18,75"}]
    tokenizer, kwargs = llm.predictor.tokenizer, {"x": [1, 0]}
    template = "{{ x | join('+') }}="
    tokenizer._tokenizer.chat_template = template  # type: ignore[attr-defined]
    params = SamplingParams(max_tokens=2)
    [answer] = llm.chat(turns, params, chat_template_kwargs=kwargs)
    *_, streamed = llm.stream(turns, params, chat_template_kwargs=kwargs)
    assert isinstance(streamed, RequestOutput)
    for each in (answer, streamed):
        assert tokenizer.decode(as_ids(each.prompt_token_ids)) == "1+0="
    [plain] = llm.chat(turns, params, chat_template_kwargs={})
    assert tokenizer.decode(as_ids(plain.prompt_token_ids)) == "="
    with pytest.raises(InputError, match="chat_template_kwargs are for a conversation"):
        llm.stream("83,18,75", params, chat_template_kwargs=kwargs)
