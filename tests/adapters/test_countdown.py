"""The embedded model: its files, its chat template, and that it has learnt its trade."""

from random import Random

import pytest
from embedded_models.countdown.problems import held_out_problems, is_correct, solution

from dise_adapters.embedded import CountdownPredictor
from dise_core import LLM, InputError, SamplingParams, ScoringParams

ONE_A_STEP = SamplingParams(max_tokens=48, block_length=16, tokens_per_step=1)


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM("countdown")


def test_its_files_are_small_enough_to_ship() -> None:
    files = CountdownPredictor.folder().iterdir()
    assert sum(path.stat().st_size for path in files) < 4 * 2**20


def test_it_solves_most_problems_that_it_was_not_trained_on(llm: LLM) -> None:
    problems = held_out_problems(Random(3), 24)
    answers = llm.generate([problem.prompt for problem in problems], ONE_A_STEP)
    solved = [
        is_correct(answer.outputs[0].text, problem)
        for answer, problem in zip(answers, problems, strict=True)
    ]
    assert sum(solved) >= len(problems) / 2


@pytest.mark.parametrize("selector", ["response", "last-10"])
def test_it_is_surer_of_a_solution_than_of_its_tokens_in_another_order(
    llm: LLM, selector: str
) -> None:
    problems = held_out_problems(Random(3), 12)
    solutions = [
        llm.predictor.tokenizer.encode(str(solution(problem))).tolist() for problem in problems
    ]
    shuffled = [Random(0).sample(tokens, len(tokens)) for tokens in solutions]
    prompts = [problem.prompt for problem in problems]
    natural, random = (
        llm.score(prompts, texts, ScoringParams(selector=selector))
        for texts in (solutions, shuffled)
    )
    for one, other in zip(natural, random, strict=True):
        assert one.outputs[0].score.value > other.outputs[0].score.value


def test_dise_tells_its_right_answers_from_its_wrong_ones(llm: LLM) -> None:
    """The chance that a right answer scores above a wrong one, over 60 problems it was not trained
    on.
    """
    problems = held_out_problems(Random(5), 60)
    params = SamplingParams(
        max_tokens=48, block_length=16, temperature=1.0, n=3, selector="response-text", seed=0
    )
    right, wrong = [], []
    for answer, problem in zip(
        llm.generate([problem.prompt for problem in problems], params), problems, strict=True
    ):
        for output in answer.outputs:
            (right if is_correct(output.text, problem) else wrong).append(output.score.value)
    assert min(len(right), len(wrong)) > 10
    above = sum((r > w) + (r == w) / 2 for r in right for w in wrong)
    assert above / (len(right) * len(wrong)) > 0.65


def test_spaces_in_a_prompt_do_not_matter(llm: LLM) -> None:
    spaced, tight = llm.generate(["83, 18, 75 -> 10", "83,18,75->10"], ONE_A_STEP)
    assert spaced.prompt_token_ids == tight.prompt_token_ids


def test_a_chat_is_a_prompt_in_the_template(llm: LLM) -> None:
    turn = {"role": "user", "content": "83,18,75 -> 10"}
    [chatted] = llm.chat([turn], ONE_A_STEP)
    [several] = llm.chat([[turn]], ONE_A_STEP)
    [generated] = llm.generate("83,18,75 -> 10", ONE_A_STEP)
    assert (
        chatted.outputs[0].token_ids
        == generated.outputs[0].token_ids
        == several.outputs[0].token_ids
    )
    assert chatted.prompt == "83,18,75 -> 10"
    past = [turn, {"role": "assistant", "content": "18+75=93"}, turn]
    assert len(llm.chat(past, ONE_A_STEP)[0].prompt_token_ids) > 2 * len(generated.prompt_token_ids)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"role": "system", "content": "1"}, "knows the roles user and assistant, not system"),
        ({"content": "1"}, 'a message needs "role" and "content"'),
        ("hello", 'a message needs "role" and "content"'),
        ({"role": "user", "content": 5}, 'a message needs "role" and "content"'),
    ],
)
def test_a_bad_message_is_refused(llm: LLM, message: dict[str, str], text: str) -> None:
    with pytest.raises(InputError, match=text):
        llm.chat([[message]])


def test_no_chat_takes_the_text_as_it_is(llm: LLM) -> None:
    [raw] = llm.generate("83,18", ONE_A_STEP, chat=False)
    assert raw.prompt_token_ids == (8, 3, 15, 1, 8)


def test_a_character_that_it_does_not_know_is_refused(llm: LLM) -> None:
    with pytest.raises(InputError, match="vocabulary has no 'x'"):
        llm.generate("5,x -> 2", ONE_A_STEP)


@pytest.mark.parametrize("model", ["countdown", "countdown-blocks"])
def test_whoever_speaks_to_it_is_told_what_it_can_do(model: str) -> None:
    told = r"vocabulary has no 'H'.*'83,18,75 -> 10'.*word-problems answers.*dllm-hub/Qwen3-0\.6B"
    llm = LLM(model)
    with pytest.raises(InputError, match=told):
        llm.generate("How many legs do three spiders have?")
    with pytest.raises(InputError, match=told):
        llm.score("83,18,75 -> 10", "Hello")
