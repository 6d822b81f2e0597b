"""The embedded model that reads English: what it answers, and what its scores say of it."""

from random import Random

import pytest
from embedded_models.words.problems import OTHER_ANSWER, Problem, draw_problem
from hypothesis import given
from hypothesis import strategies as st

from dise_adapters.embedded import WordProblemsPredictor
from dise_core import LLM, SamplingParams
from dise_core.pieces import pieces

PARAMS = SamplingParams(
    max_tokens=24, block_length=24, tokens_per_step=1, selector="response-text", seed=0
)


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM("word-problems")


def test_its_files_are_small_enough_to_ship() -> None:
    files = WordProblemsPredictor.folder().iterdir()
    assert sum(path.stat().st_size for path in files) < 5 * 2**20


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("How many legs do three spiders have?", "3 * 8 = 24 legs"),
        ("Tom has 12 apples. He eats 5 of them. How many apples are left?", "12 - 5 = 7 apples"),
        ("What is 12 plus 7?", "12 + 7 = 19"),
        ("Hello! What can you do?", OTHER_ANSWER),
    ],
)
def test_it_answers_a_sentence(llm: LLM, text: str, answer: str) -> None:
    [output] = llm.generate(text, PARAMS)
    assert output.outputs[0].text == answer


def drawn(seed: int, count: int, held_out: bool) -> list[Problem]:
    random = Random(seed)
    asked = (draw_problem(random, held_out) for _ in range(2 * count))
    return [problem for problem in asked if problem.kind][:count]


def test_it_solves_most_problems_of_sentences_that_it_knows(llm: LLM) -> None:
    problems = drawn(3, 32, held_out=False)
    answers = llm.generate([problem.text for problem in problems], PARAMS)
    solved = [
        answer.outputs[0].text == problem.answer
        for answer, problem in zip(answers, problems, strict=True)
    ]
    assert sum(solved) >= len(problems) * 0.6


def test_dise_tells_right_answers_from_wrong_ones_to_sentences_that_it_does_not_know(
    llm: LLM,
) -> None:
    problems = drawn(5, 80, held_out=True)
    right, wrong = [], []
    answers = llm.generate([problem.text for problem in problems], PARAMS)
    for answer, problem in zip(answers, problems, strict=True):
        [output] = answer.outputs
        is_right = f"= {problem.result} " in f"{output.text} "
        (right if is_right else wrong).append(output.score.value)
    assert min(len(right), len(wrong)) >= 5
    above = sum((r > w) + (r == w) / 2 for r in right for w in wrong)
    assert above / (len(right) * len(wrong)) > 0.65


@given(st.text())
def test_it_spells_any_text(llm: LLM, text: str) -> None:
    ids = llm.predictor.tokenizer.encode(text)
    assert "".join(pieces(llm.predictor.tokenizer, ids)) == text


@pytest.mark.parametrize(
    ("template", "chat", "end"),
    [
        ("{% for m in messages %}{{ m['content'] }}<|eot_id|>{% endfor %}", None, "<|eot_id|>"),
        ("{% for m in messages %}{{ m['content'] }}<|eot_id|>{% endfor %}", False, "<|endoftext|>"),
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
