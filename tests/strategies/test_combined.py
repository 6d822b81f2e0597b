"""The combination of several scores: the sum of what its parts give alone, in the passes they
share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from dise_core import LLM, InputError, SamplingParams, ScoringParams
from dise_core.testing import ToyPredictor
from dise_strategies.scorers.combined import Combined
from dise_strategies.scorers.dise import DiSE
from tests.guests import with_guests

PARTS: list[dict[str, Any]] = [
    {"scorer": "dise", "selector": "response", "weight": 2.0},
    {"scorer": "dise", "selector": "last-2", "weight": -1.0},
    {"scorer": "mc", "scorer_settings": {"num_samples": 3}, "weight": 0.5},
]


def scored(predictor: ToyPredictor, finished: bool, **scoring: Any) -> float:
    params = ScoringParams(**scoring)
    [answer] = LLM(predictor).score([[1, 2]], [[3, 4, 5]], params, finished=finished)
    return answer.outputs[0].score.value


@pytest.mark.parametrize("finished", [True, False])
def test_it_is_the_weighted_sum_of_what_its_parts_give_alone(finished: bool) -> None:
    toy = ToyPredictor()
    settings = {"parts": PARTS, "intercept": 0.25}
    value = scored(toy, finished, scorer="combined", scorer_settings=settings)
    parts = [{k: v for k, v in part.items() if k != "weight"} for part in PARTS]
    alone = [part["weight"] * scored(toy, finished, **own) for part, own in zip(PARTS, parts)]  # noqa: B905
    assert value == pytest.approx(0.25 + sum(alone))


def test_parts_that_read_the_same_text_cost_one_pass() -> None:
    parts = [{"scorer": "dise", "selector": name} for name in ("full", "last-2", "response")]
    params = ScoringParams(scorer="combined", scorer_settings={"parts": parts}, logprobs=None)
    [answer] = LLM(ToyPredictor()).score([[1, 2]], [[3, 4, 5]], params)
    assert answer.usage.nfe == 1


def test_an_answer_that_one_part_cannot_score_ranks_last() -> None:
    parts = [{"scorer": "dise"}, {"scorer": "dise", "selector": "response-text", "weight": -1}]
    params = ScoringParams(scorer="combined", scorer_settings={"parts": parts})
    ended, text = LLM(ToyPredictor()).score([[1], [1]], [[10], [3]], params)
    assert ended.outputs[0].score.value == -math.inf
    assert math.isfinite(text.outputs[0].score.value)


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ({"scorer": "nothing"}, "unknown scorer 'nothing'"),
        ({"scorer": "combined"}, "scorer 'combined' cannot be a part of itself"),
        ({"scorer": "ar-perplexity"}, "scorer 'ar-perplexity' asks the judge"),
        ({"scorer": "dise", "selector": "none"}, "unknown selector 'none'"),
        ({"scorer": "mc", "scorer_settings": {"num_samples": 0}}, "scorer 'mc': num_samples=0"),
        ({"scorer": "dise", "weight": math.inf}, "parts.0.weight=inf"),
        ({"scorer": "dise", "weights": 1}, "there is no setting 'parts.0.weights'"),
    ],
)
def test_what_cannot_be_a_part_is_refused_by_name(part: Mapping[str, Any], told: str) -> None:
    toy = ToyPredictor()
    params = SamplingParams(scorer="combined", scorer_settings={"parts": [part]}, max_tokens=4)
    with pytest.raises(InputError, match=told):
        LLM(toy).generate([[1]], params)
    assert toy.batches == []


class Reading(DiSE):
    needs_writing: ClassVar[bool] = True


def test_it_needs_the_writing_that_a_part_of_a_plugin_does() -> None:
    catalog = with_guests(scorers={"reading": Reading})
    scorer = catalog.scorer("combined", {"parts": [{"scorer": "dise"}, {"scorer": "reading"}]})
    assert isinstance(scorer, Combined)
    assert scorer.needs_writing
    assert not catalog.scorer("combined").needs_writing
