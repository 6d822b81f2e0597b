"""What holds for the engine, whatever runs beside whatever."""

from collections import Counter
from itertools import pairwise

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dise_core import LLM, EngineConfig, Plan, Read, SamplingParams, TopLogProbs
from dise_core.engine import Engine
from dise_core.models.attention import BIDIRECTIONAL, Attention, BlockCausal
from dise_core.plans.plan import drive
from dise_core.testing.toy_model import MASK, VOCAB_SIZE, ToyPredictor
from tests.laws.generators import block_causal_params, prompts, sampling_params

Questions = list[list[list[int]]]
"""Of a plan: the texts of each of its rounds."""

rounds = st.lists(
    st.lists(st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=9), max_size=6),
    max_size=4,
)
limits = st.builds(
    EngineConfig, max_num_seqs=st.integers(1, 6), max_batch_tokens=st.integers(10, 40)
)


def asking(questions: Questions, fails_after: int | None = None) -> Plan[list[float]]:
    heard: list[float] = []
    for number, texts in enumerate(questions):
        reads = [Read(np.array(ids), np.array([len(ids) - 1]), TopLogProbs(2)) for ids in texts]
        heard.extend(
            float(value) for reading in (yield reads) for value in reading.logprobs.ravel()
        )
        if number == fails_after:
            raise RuntimeError("as planned")
    return heard


@given(st.lists(rounds, max_size=8), limits)
def test_alone_equals_in_a_crowd(all_questions: list[Questions], config: EngineConfig) -> None:
    engine = Engine({"target": ToyPredictor()}, config)
    outcomes = list(engine.run(asking(questions) for questions in all_questions))
    assert sorted(outcome.index for outcome in outcomes) == list(range(len(all_questions)))
    for outcome in outcomes:
        assert outcome.unwrap() == drive(asking(all_questions[outcome.index]), ToyPredictor().read)


@given(st.lists(rounds, max_size=8), limits)
def test_every_read_is_answered_once_within_the_limits(
    all_questions: list[Questions], config: EngineConfig
) -> None:
    predictor = ToyPredictor()
    engine = Engine({"target": predictor}, config)
    list(engine.run(asking(questions) for questions in all_questions))
    asked = Counter(
        tuple(ids) for questions in all_questions for texts in questions for ids in texts
    )
    answered = Counter(tuple(ids.tolist()) for batch in predictor.batches for ids in batch)
    assert answered == asked
    for batch in predictor.batches:
        texts = {ids.tobytes(): len(ids) for ids in batch}
        assert len(texts) <= config.max_num_seqs
        assert sum(texts.values()) <= config.max_batch_tokens


@given(st.lists(rounds, min_size=2, max_size=6), st.data(), limits)
def test_a_failing_plan_hurts_nobody(
    all_questions: list[Questions], data: st.DataObject, config: EngineConfig
) -> None:
    bad = data.draw(st.integers(0, len(all_questions) - 1))
    fails_after = data.draw(st.integers(0, 3))
    plans = [
        asking(questions, fails_after if i == bad else None)
        for i, questions in enumerate(all_questions)
    ]
    for outcome in Engine({"target": ToyPredictor()}, config).run(plans):
        if outcome.index == bad and fails_after < len(all_questions[bad]):
            assert str(outcome.error) == "RuntimeError: as planned"
            assert isinstance(outcome.error.__cause__, RuntimeError)
        else:
            assert outcome.unwrap() == drive(
                asking(all_questions[outcome.index]), ToyPredictor().read
            )


@given(st.integers(1, 5), st.integers(1, 30), limits)
def test_no_request_waits_for_those_that_came_later(
    num_before: int, num_after: int, config: EngineConfig
) -> None:
    """A request is done no later than if all the batches before it were spent on those that came
    earlier.
    """
    work = (
        [[[[1, 2]]] * 2 for _ in range(num_before)]
        + [[[[3, 4]]]]
        + [[[[5, 6]]] * 3 for _ in range(num_after)]
    )
    predictor = ToyPredictor()
    for outcome in Engine({"target": predictor}, config).run(
        asking(questions) for questions in work
    ):
        if outcome.index == num_before:
            assert len(predictor.batches) <= 2 * num_before + 1


attentions = st.just(BIDIRECTIONAL) | st.integers(1, 5).map(BlockCausal)


@settings(max_examples=min(30, settings().max_examples))
@given(attentions, st.data(), st.integers(1, 5))
def test_a_generation_does_not_depend_on_its_company(
    attention: Attention, data: st.DataObject, limit: int
) -> None:
    params_of = sampling_params if attention == BIDIRECTIONAL else block_causal_params
    requests = data.draw(st.lists(st.tuples(prompts, params_of), min_size=1, max_size=6))
    crowd = LLM(ToyPredictor(attention=attention), max_num_seqs=limit)
    plans = (crowd.planner.generate(prompt, params) for prompt, params in requests)
    for outcome in list(crowd.run(plans)):
        prompt, params = requests[outcome.index]
        [alone] = LLM(ToyPredictor(attention=attention)).generate([prompt], params)
        together = outcome.unwrap()
        assert together.outputs[0].token_ids == alone.outputs[0].token_ids
        assert together.outputs[0].score.value == alone.outputs[0].score.value
        assert together.usage.nfe == alone.usage.nfe


@given(prompts, sampling_params)
def test_committed_tokens_never_change_and_no_mask_stays(
    prompt: list[int], params: SamplingParams
) -> None:
    predictor = ToyPredictor()
    plain = {"length": "fixed", "scorer": "dise", "scorer_settings": {}, "reviser": None}
    params = params.model_copy(update=plain)
    policy = LLM(predictor).catalog.unmasking_policy(params.unmasking)
    assume(not policy.edits)
    [answer] = LLM(predictor).generate([prompt], params)
    final = np.array([*prompt, *answer.outputs[0].token_ids])
    assert MASK not in final
    canvases = [batch[0] for batch in predictor.batches]
    for canvas in canvases:
        written = canvas != MASK
        assert np.array_equal(canvas[written], final[written])
    num_masks = [int((canvas == MASK).sum()) for canvas in canvases]
    assert all(later < earlier + (not policy.uses_quota) for earlier, later in pairwise(num_masks))
