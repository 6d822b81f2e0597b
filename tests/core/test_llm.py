"""The front door on a toy model: shapes of answers, order, and every bad request."""

import asyncio
import json
import math
import os
import subprocess
import sys
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dise import LLM, AsyncLLM
from dise_core import ClosedError, InputError, SamplingParams, ScoringParams
from dise_core.testing.toy_model import END, ToyPredictor
from dise_decide import PredicateQuestion
from tests.ascii_model import AsciiPredictor

SHORT = SamplingParams(max_tokens=8)
CHAT = [{"role": "user", "content": "ab"}]


def test_an_answer_shows_itself_in_few_short_lines() -> None:
    """The prompt's beginning, how many outputs, and the best one's text and score."""
    params = SamplingParams(max_tokens=8, n=3, temperature=1.0, seed=0)
    [answer] = LLM(AsciiPredictor()).generate("long " * 7, params)
    [best, *_] = answer.outputs
    lines = repr(answer).splitlines()
    assert len(lines) == 2
    assert max(map(len, lines)) < 200
    assert lines[0].startswith("RequestOutput(prompt='long long")
    assert "outputs: 3" in lines[0]
    assert lines[1] == f"  {best!r})"
    assert repr(best).startswith(
        f"CompletionOutput(text={best.text!r}, score={best.score.value:.4f}"
    )
    cut = repr(replace(answer, prompt="a\n" * 1000, outputs=(replace(best, text="b" * 1000),)))
    assert cut.count("\n") == 1
    assert len(cut) < 400
    failed = replace(answer, prompt=None, outputs=(), error=InputError("too\nlong"))
    assert "error=InputError: " in repr(failed)
    assert len(repr(failed).splitlines()) <= 10


@pytest.fixture
def llm() -> LLM:
    return LLM(ToyPredictor())


def naive_dise(llm: LLM, ids: list[int], positions: list[int]) -> float:
    assert isinstance(llm.predictor, ToyPredictor)
    logits = llm.predictor.logits(np.array(ids))
    logprobs = [
        logits[i, ids[i]] - math.log(sum(math.exp(x) for x in logits[i])) for i in positions
    ]
    return sum(logprobs) / len(logprobs)


def test_the_score_is_the_papers_equation(llm: LLM) -> None:
    [answer] = llm.score([[1, 2, 3]], [[4, 5, END, 6, END]], ScoringParams(selector="last-2"))
    [output] = answer.outputs
    assert output.score.value == pytest.approx(
        naive_dise(llm, [1, 2, 3, 4, 5, END, 6, END], [4, 6]), abs=1e-6
    )
    assert output.score.positions.tolist() == [4, 6]
    assert [token.selected for token in output.tokens] == [False, True, False, True, False]
    assert [token.is_end for token in output.tokens] == [False, False, True, False, True]
    assert answer.usage.nfe == 1


@pytest.mark.parametrize(
    ("response", "finished", "read"),
    [
        ("efg", None, [4, 5, 6, END]),
        ("efg", False, [4, 5, 6]),
        ([4, 5, 6], None, [4, 5, 6]),
        ([4, 5, 6], True, [4, 5, 6, END]),
        ([4, 5, 6, END], True, [4, 5, 6, END]),
    ],
)
def test_an_end_token_follows_a_text_and_no_selector_takes_it(
    llm: LLM, response: str | list[int], finished: bool | None, read: list[int]
) -> None:
    for selector, positions in (("last-2", [4, 5]), ("full", [*range(3 + len(response))])):
        asked = ([[1, 2, 3]], [response], ScoringParams(selector=selector))
        [output] = llm.score(*asked, finished=finished)[0].outputs
        expected = naive_dise(llm, [1, 2, 3, *read], positions)
        assert output.score.value == pytest.approx(expected, abs=1e-6)
        assert output.score.positions.tolist() == positions
        assert len(output.tokens) == len(output.token_ids) == len(response)
        whole = [naive_dise(llm, [1, 2, 3, *read], [row + 3]) for row in range(3)]
        assert [token.logprob for token in output.tokens[:3]] == pytest.approx(whole, abs=1e-6)


@pytest.mark.parametrize(("scorer", "max_length"), [("mc", 40), ("dise", 6)])
def test_nothing_follows_a_text_whose_likelihood_is_asked_or_that_fills_the_models_length(
    scorer: str, max_length: int
) -> None:
    llm, params = LLM(ToyPredictor(max_length)), ScoringParams(scorer=scorer, logprobs=None)
    [text], [goes_on] = (llm.score("abc", "efg", params, finished=its) for its in (None, False))
    assert text.outputs[0].score.value == goes_on.outputs[0].score.value


def test_the_report_regenerates_every_token_in_the_same_pass(llm: LLM) -> None:
    assert isinstance(llm.predictor, ToyPredictor)
    ids = [1, 2, 4, 5, END]
    [answer] = llm.score([ids[:2]], [ids[2:]], ScoringParams(selector="prompt-last-9", logprobs=3))
    for row, token in enumerate(answer.outputs[0].tokens):
        assert token.logprob == pytest.approx(naive_dise(llm, ids, [2 + row]), abs=1e-6)
        probabilities = np.exp(llm.predictor.logits(np.array(ids))[2 + row])
        assert [i for i, _ in token.top_logprobs] == np.argsort(-probabilities)[:3].tolist()
    assert answer.usage.nfe == 1
    assert len(llm.predictor.batches) == 1


@pytest.mark.parametrize("scorer", ["dise", "interleaved", "mc"])
def test_the_score_alone_reads_no_other_position(llm: LLM, scorer: str) -> None:
    texts, params = ([1, 2, 3], [4, 5, END, 6]), ScoringParams(scorer=scorer, selector="last-1")
    without = params.model_copy(update={"logprobs": None})
    [reported], [alone] = (llm.score([texts[0]], [texts[1]], each) for each in (params, without))
    assert alone.outputs[0].score.value == reported.outputs[0].score.value
    assert alone.usage.nfe == reported.usage.nfe - (scorer != "dise")
    assert [token.logprob for token in alone.outputs[0].tokens] == [None] * 4
    assert alone.to_dict()["outputs"][0]["tokens"] == []
    assert len(reported.to_dict()["outputs"][0]["tokens"]) == 4
    reads = next(llm.planner.score(*texts, without.model_copy(update={"scorer": "dise"})))
    assert [read.positions.tolist() for read in reads] == [[6]]


def test_nothing_selected_scores_minus_infinity_and_null(llm: LLM) -> None:
    [answer] = llm.score([[1, 2]], [[END, END]])
    assert answer.outputs[0].score.value == -math.inf
    record = answer.to_dict()["outputs"][0]["score"]
    assert record == {
        "scorer": "dise", "selector": "last-10", "value": None, "num_positions": 0,
        "standard_error": None,
    }  # fmt: skip


def test_without_a_prompt_the_text_counts_from_its_start(llm: LLM) -> None:
    [answer] = llm.score("", "abcd", ScoringParams(selector="first-2"))
    assert answer.outputs[0].score.positions.tolist() == [0, 1]
    assert answer.usage.prompt_tokens == 0


def test_a_generation_has_the_documented_json(llm: LLM) -> None:
    [answer] = llm.generate("abc", SamplingParams(max_tokens=6, block_length=3, logprobs=1))
    record = json.loads(json.dumps(answer.to_dict(), allow_nan=False))
    [output] = record["outputs"]
    fields = {
        "prompt model seed outputs usage": record,
        "prompt_tokens completion_tokens nfe seconds cached_tokens": record["usage"],
        "index text token_ids finish_reason score written probability abstained tokens": output,
        "scorer selector value num_positions standard_error": output["score"],
        "id text logprob selected is_end written top_logprobs": output["tokens"][0],
    }
    for names, part in fields.items():
        assert set(part) == set(names.split())
    assert len(output["token_ids"]) == 6
    assert record["prompt"] == "abc"
    assert record["usage"]["nfe"] == 5


def test_outputs_come_best_first_and_best_of_keeps_n(llm: LLM) -> None:
    params = SamplingParams(max_tokens=8, temperature=2.0, n=6, seed=0)
    [answer] = llm.generate("abc", params)
    values = [output.score.value for output in answer.outputs]
    assert values == sorted(values, reverse=True)
    assert len({output.token_ids for output in answer.outputs}) > 1
    [best] = llm.generate("abc", params.model_copy(update={"n": 2, "best_of": 6}))
    assert [o.token_ids for o in best.outputs] == [o.token_ids for o in answer.outputs[:2]]


def test_finish_reason_says_whether_the_model_ended(llm: LLM) -> None:
    reasons = set()
    for seed in range(30):
        [answer] = llm.generate("abc", SamplingParams(max_tokens=4, temperature=3.0, seed=seed))
        [output] = answer.outputs
        assert output.finish_reason == ("stop" if END in output.token_ids else "length")
        reasons.add(output.finish_reason)
    assert reasons == {"stop", "length"}
    assert llm.score("a", "b")[0].outputs[0].finish_reason is None


def test_a_single_list_of_ids_is_one_prompt(llm: LLM) -> None:
    assert len(llm.generate([1, 2, 3], SamplingParams(max_tokens=2))) == 1
    assert len(llm.generate(np.array([1, 2, 3]), SamplingParams(max_tokens=2))) == 1  # type: ignore[arg-type]
    assert len(llm.generate([[1, 2], "ab"], SamplingParams(max_tokens=2))) == 2


def test_lists_pair_up_item_by_item(llm: LLM) -> None:
    params = [SamplingParams(max_tokens=2), SamplingParams(max_tokens=5)]
    answers = llm.generate(["ab", "ab"], params)
    assert [len(answer.outputs[0].token_ids) for answer in answers] == [2, 5]
    pairs = llm.rank(["a", "b"], [["c", "d"], ["e"]])
    alone = [llm.rank("a", ["c", "d"]), llm.rank("b", ["e"])]
    values = [[[o.score.value for o in each.outputs] for each in both] for both in (pairs, alone)]
    assert values[0] == values[1]


def test_json_lists_one_end_token_and_python_all(llm: LLM) -> None:
    [answer] = llm.score("abc", [3, END, 4, END, END], ScoringParams(selector="response"))
    [output] = answer.outputs
    record = output.to_dict()
    assert [token.id for token in output.tokens] == [3, END, 4, END, END]
    assert [token["id"] for token in record["tokens"]] == [3, END, 4]
    assert record["token_ids"] == [3, END, 4, END, END]
    assert record["score"]["num_positions"] == 5


def test_without_a_seed_each_request_draws_one_and_tells_it(llm: LLM) -> None:
    """26 ** -8 is the chance that two texts of 8 letters at this temperature are the same."""
    params = SamplingParams(max_tokens=8, temperature=1e6, n=2)
    first, second, other = llm.generate([[1, 2], [1, 2], [3]], params)
    texts = [[output.token_ids for output in answer.outputs] for answer in (first, second, other)]
    assert texts[0] != texts[1]
    assert first.seed != second.seed
    for answer, text in zip((first, second, other), texts, strict=True):
        again = params.model_copy(update={"seed": answer.seed})
        [repeated] = llm.generate([list(answer.prompt_token_ids)], again)
        assert [output.token_ids for output in repeated.outputs] == text
        assert repeated.seed == answer.seed == answer.to_dict()["seed"]


CALLS: list[Callable[[Any], object]] = [
    lambda llm: llm.generate([1]),
    lambda llm: llm.chat(CHAT),
    lambda llm: llm.score([1], [2]),
    lambda llm: llm.rank([1], [[2]]),
    lambda llm: llm.decide("a", [PredicateQuestion(instructions="b")]),
    lambda llm: llm.planner,
]


def test_leaving_the_context_frees_the_model_and_later_calls_say_so() -> None:
    with LLM(ToyPredictor()) as llm:
        llm.generate([1, 2, 3], SHORT)
        model = weakref.ref(llm.predictor)
    assert model() is None
    for call in (*CALLS, lambda llm: next(llm.stream([1])), lambda llm: llm.run([])):
        with pytest.raises(ClosedError, match=r"LLM\('toy'\) is closed; load the model again"):
            call(llm)
    llm.close()


def test_leaving_the_context_of_an_async_model_does_so_too() -> None:
    async def test() -> None:
        async with AsyncLLM("countdown") as llm:
            model = weakref.ref(llm.predictor)
        assert model() is None
        for call in CALLS:
            with pytest.raises(ClosedError, match="is closed; load the model again"):
                await call(llm)  # type: ignore[misc]
        await llm.close()

    asyncio.run(test())


FORKING = """
import asyncio, os, sys
from dise_core import LLM, AsyncLLM, DiseError
from dise_core.testing import ToyPredictor

def tell(ask):
    if (child := os.fork()) == 0:
        try:
            ask()
        except DiseError as error:
            print(type(error).__name__, error, flush=True)
        os._exit(0)
    os.waitpid(child, 0)

async def score(llm):
    await llm.score("ab", "cd")

llm = LLM(ToyPredictor())
llm.score("ab", "cd")
tell(lambda: llm.score("ab", "cd"))
tell(lambda: next(llm.stream("ab")))
other = AsyncLLM(ToyPredictor())
tell(lambda: asyncio.run(score(other)))
print("here", len(llm.score("ab", "cd")))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_loaded_model_in_a_forked_child_refuses_in_one_line() -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    *refused, here = done.stdout.splitlines()
    assert (done.returncode, done.stderr, here) == (0, "", "here 1")
    assert len(refused) == 3
    assert all(line.startswith("ModelError LLM(") for line in refused)
    assert all("this is a fork of it" in line for line in refused)


@pytest.mark.parametrize(
    ("verb", "given"), [("generate", ["ab"]), ("chat", [CHAT]), ("fill", ["a", "b"])]
)
def test_params_may_have_vllms_name(verb: str, given: list[Any]) -> None:
    """AsyncLLM has the same verbs: tests/typing."""
    params = SamplingParams(max_tokens=4, seed=1)
    ask = getattr(LLM(AsciiPredictor(has_chat_template=True)), verb)
    [answer] = ask(*given, sampling_params=params)
    assert (len(answer.outputs[0].token_ids), answer.seed) == (4, 1)
    with pytest.raises(InputError, match="two names for one argument") as raised:
        ask(*given, params, sampling_params=params)
    assert raised.value.parameter == "sampling_params"


def test_a_stream_says_a_thing_once_however_many_steps_its_reads_take() -> None:
    params = SamplingParams(max_tokens=32, length="cal", seed=1)

    def streamed(**options: Any) -> int:
        return len(list(LLM(ToyPredictor(max_length=40), **options).stream("ab", params)))

    assert streamed(max_num_seqs=1) == streamed(max_batch_tokens=40) == streamed()


def test_two_samples_at_temperature_0_need_a_random_policy(llm: LLM) -> None:
    [answer] = llm.generate("abc", SamplingParams(max_tokens=8, n=2, remasking="random"))  # type: ignore[call-arg]
    assert len(answer.outputs) == 2
