"""Logits processors: what they dictate is written at every door, and their faults are their own.
The rows that they change are compared with a naive loop's in tests/adapters/test_writing.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dise_core import (
    LLM,
    InputError,
    LogitsContext,
    LogitsProcessor,
    PluginError,
    SamplingParams,
    ScoringParams,
)
from dise_core.models.predictor import MaskPredictor
from dise_core.testing import ToyPredictor
from tests.guests import with_guests
from tests.streamed import parted


class Dictated(LogitsProcessor):
    """Leaves one token at each position, which the position says."""

    def process(self, rows: Any, context: LogitsContext) -> Any:
        rows[:] = -np.inf
        for row, position in zip(rows, context.positions.tolist(), strict=True):
            row[1 + position % 5] = 0.0
        return rows


class Moved(LogitsProcessor):
    """Adds a number to the logits of some tokens."""

    tokens: tuple[int, ...]
    by: float

    def process(self, rows: Any, context: LogitsContext) -> Any:
        rows[:, list(self.tokens)] += self.by
        return rows


REMASK = {"threshold": 1.0, "accept": "always"}
LONGER = {"max_gen_length": 24}


@pytest.mark.parametrize(
    ("model", "more"),
    [
        ("toy", {}),
        ("toy", {"scorer": "written", "scorer_settings": {"signal": "entropy"}}),
        ("toy", {"temperature": 2.0, "top_p": 0.5, "n": 2}),
        ("toy", {"logit_bias": {"9": 100.0}, "cfg_scale": 2.0}),
        ("toy", {"reviser": "remask", "reviser_settings": REMASK}),
        ("toy", {"length": "dise-flexible"}),
        ("toy", {"length": "daedal", "length_settings": LONGER}),
        ("toy", {"length": "rho-eos", "length_settings": LONGER}),
        ("toy", {"length": "cal"}),
        ("countdown", {"cache": "prefix"}),
        ("countdown", {"cache": "dual"}),
        ("countdown-blocks", {}),
    ],
    ids=str,
)
def test_what_a_processor_dictates_is_written_and_streamed_and_scores_are_the_models_own(
    model: str, more: dict[str, Any]
) -> None:
    llm = LLM(ToyPredictor() if model == "toy" else model)
    blocks = {} if model == "countdown-blocks" else {"block_length": 4}
    params = SamplingParams(
        max_tokens=8, seed=0, selector="response", logits=Dictated(), **blocks, **more
    )
    updates, streamed = parted(llm.stream([1, 2, 3], params))
    [answer] = llm.generate([[1, 2, 3]], params)
    assert updates
    for output in (*answer.outputs, *streamed.outputs):
        stop = 3 + len(output.token_ids)
        assert output.token_ids == tuple(1 + position % 5 for position in range(3, stop))
        assert output.written == pytest.approx(0.0)
        [scored] = llm.score([[1, 2, 3]], [output.token_ids], ScoringParams(selector="response"))
        score = scored.outputs[0].score.value if output.scorer == "dise" else 0.0
        assert output.score.value == pytest.approx(score, abs=1e-5)


@pytest.mark.parametrize(
    ("processor", "texts"),
    [
        (Moved(tokens=(0, 1), by=50), {"ab"}),
        (Moved(tokens=(2, 3), by=50), {"cd"}),
        (Moved(tokens=(0, 1, 2, 3), by=-np.inf), {"ab", "cd"}),
    ],
)
@pytest.mark.parametrize("unmasking", ["low-confidence", "entropy"])
def test_a_constraint_allows_what_it_allows_and_the_processor_chooses_there(
    processor: LogitsProcessor, texts: set[str], unmasking: str
) -> None:
    choice = {"constraint": "choice", "constraint_settings": {"choices": ["ab", "cd"]}}
    params = SamplingParams(max_tokens=3, logits=processor, unmasking=unmasking, **choice)
    [output] = LLM(ToyPredictor()).generate("j", params)[0].outputs
    assert output.text in texts
    assert output.writing is not None
    assert np.isfinite(output.writing.logprobs[1:3]).all()


BAD: list[tuple[Callable[[Any], Any], str]] = [
    (lambda rows: rows[:-1], r"rows like its own, \['ndarray', '\(\d, 12\)', 'float64'.*, not "),
    (lambda rows: rows.astype(np.float32), "rows like its own, .*, not .*'float32'"),
    (lambda rows: rows + np.inf, r"rows without NaN and \+inf"),
    (lambda rows: rows * np.nan, r"rows without NaN and \+inf"),
]


@pytest.mark.parametrize(("answer", "promise"), BAD)
def test_bad_rows_end_their_own_request_by_name(answer: Callable[[Any], Any], promise: str) -> None:
    class Bad(LogitsProcessor):
        def process(self, rows: Any, context: LogitsContext) -> Any:
            return answer(rows)

    llm = LLM(ToyPredictor(), catalog=with_guests(logits={"bad": Bad, "moved": Moved}))
    moved = {"logits": "moved", "logits_settings": {"tokens": (1,), "by": 2.0}}
    asked = [SamplingParams(max_tokens=4, **each) for each in ({"logits": "bad"}, {}, moved)]
    plans = [llm.planner.generate([1, 2], params) for params in asked]
    failed, *others = sorted(llm.run(plans), key=lambda outcome: outcome.index)
    for outcome, params in zip(others, asked[1:], strict=True):
        [alone] = llm.generate([[1, 2]], params)
        assert outcome.unwrap().outputs[0].token_ids == alone.outputs[0].token_ids
    with pytest.raises(
        PluginError, match=f"^logits processor 'bad' of plugin 'guest' must return {promise}"
    ) as caught:
        failed.unwrap()
    assert caught.value.plugin == "guest"


def test_one_that_fails_late_fails_alone_beside_texts_that_are_cached() -> None:
    class Late(LogitsProcessor):
        def process(self, rows: Any, context: LogitsContext) -> Any:
            assert (context.token_ids == context.mask_id).sum() > 4
            return rows

    llm, prompts = LLM("countdown"), ["83,18,75 -> 10", "1,2,3 -> 6", "44,19,35 -> 98"]
    params = SamplingParams(max_tokens=12, block_length=6, cache="prefix")
    late = params.model_copy(update={"logits": Late()})
    asked = [(prompt, each) for prompt in prompts for each in (late, params)]
    outcomes = sorted(
        llm.run(llm.planner.generate(*each) for each in asked), key=lambda each: each.index
    )
    for failed, fine, prompt in zip(outcomes[::2], outcomes[1::2], prompts, strict=True):
        [alone] = llm.generate(prompt, params)
        assert fine.unwrap().outputs[0].token_ids == alone.outputs[0].token_ids
        assert str(failed.error).startswith(f"logits processor {Late.__qualname__} of ")


def test_a_processor_cannot_change_the_text_that_is_read() -> None:
    class Meddling(LogitsProcessor):
        def process(self, rows: Any, context: LogitsContext) -> Any:
            context.token_ids[:], context.positions[:] = 0, 0
            return rows

    llm = LLM(ToyPredictor())
    texts = [
        llm.generate([[1, 2]], SamplingParams(max_tokens=6, logits=processor))[0].outputs[0].text
        for processor in (None, Meddling())
    ]
    assert texts[0] == texts[1]


def test_a_predictor_that_cannot_is_not_asked() -> None:
    class Plain(ToyPredictor):
        abilities = MaskPredictor.abilities

    toy = Plain()
    advice = "cannot read what a logits processor changes .*leave `logits` out"
    with pytest.raises(InputError, match=advice) as refused:
        LLM(toy).generate("ab", SamplingParams(max_tokens=4, logits=Dictated()))
    assert refused.value.parameter == "logits"
    assert toy.batches == []


def test_settings_need_a_name_and_a_name_must_be_installed() -> None:
    with pytest.raises(InputError, match="logits_settings need a logits processor: name one"):
        SamplingParams(logits_settings={"by": 1})
    with pytest.raises(InputError, match="unknown logits processor 'nobody'"):
        LLM(ToyPredictor()).generate("ab", SamplingParams(max_tokens=4, logits="nobody"))
