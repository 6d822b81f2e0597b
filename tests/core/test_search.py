"""Search among particles: sequential Monte Carlo over the blocks of one answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest

from dise_app.server.limits import Limits
from dise_core import (
    LLM,
    AsyncLLM,
    BlockCausal,
    InputError,
    Read,
    Reading,
    RequestOutput,
    SamplingParams,
)
from dise_core.plans.rows import distinct_rows
from dise_core.testing import ToyPredictor
from tests.app.serving import serving
from tests.core.test_memory import Caching

PLAIN = SamplingParams(
    max_tokens=12, block_length=4, tokens_per_step=2, temperature=1.0, seed=7, scorer="written",
    scorer_settings={"aggregate": "sum"}, selector="response",
)  # fmt: skip
PROMPT = [1, 2, 3]
MODELS = [ToyPredictor(), ToyPredictor(attention=BlockCausal(4))]


def with_(**settings: object) -> SamplingParams:
    return SamplingParams(**PLAIN.model_dump(exclude_unset=True) | settings)  # type: ignore[arg-type]


def answer_of(model: ToyPredictor, params: SamplingParams) -> RequestOutput:
    [answer] = LLM(model).generate([PROMPT], params)
    return answer


def told(answer: RequestOutput) -> list[object]:
    """Return what two equal answers have in common."""
    [output] = answer.outputs
    assert output.writing is not None
    steps = output.writing.steps.tolist()
    return [output.token_ids, output.score.value, output.tokens, steps, answer.usage.nfe]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "settings",
    [{}, {"steps": 5}, {"cache": "prefix"}, {"unmasking": "threshold"}, {"reviser": "remask"}],
)
def test_one_particle_is_plain_generation(model: ToyPredictor, settings: dict[str, Any]) -> None:
    plain = answer_of(model, with_(**settings))
    assert told(answer_of(model, with_(search="smc", particles=1, **settings))) == told(plain)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("seed", range(4))
def test_without_resampling_it_is_best_of_n_by_the_sum(model: ToyPredictor, seed: int) -> None:
    best = answer_of(model, with_(best_of=4, seed=seed))
    searched = answer_of(model, with_(search="smc", ess=0.0, seed=seed))
    assert told(searched) == told(best)


class Scripted(ToyPredictor):
    """Says of each candidate in the first block, by its id, how likely it is; later ones are sure.
    Keeps what the particles read.
    """

    def __init__(self, nats: float) -> None:
        super().__init__()
        self.nats = nats
        self.steps: list[Sequence[Read]] = []

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        self.steps.append(reads)
        return [
            replace(reading, logprobs=self._logprobs(read, reading))
            for read, reading in zip(reads, super().read(reads), strict=True)
        ]

    def _logprobs(self, read: Read, reading: Reading) -> np.ndarray:
        is_first = read.positions < len(PROMPT) + 4
        return (self.nats * reading.token_ids * is_first).astype(np.float32)

    def first_blocks(self, step: int) -> list[tuple[int, ...]]:
        """Return what stands in the first block of each particle at a step, by its number."""
        start = len(PROMPT)
        texts = {read.canvas.sample: read.token_ids for read in self.steps[step] if read.canvas}
        return [tuple(texts[k][start : start + 4].tolist()) for k in range(len(texts))]


def test_equal_weights_never_resample() -> None:
    for seed in range(5):
        searched = answer_of(Scripted(0.0), with_(search="smc", ess=1.0, seed=seed, particles=3))
        first = answer_of(Scripted(0.0), with_(seed=seed))
        assert told(searched)[:-1] == told(first)[:-1]


WARM = {"temperature": 2.0, "scorer": "dise", "scorer_settings": {}}


def test_a_dominant_particle_is_copied_and_its_copies_diverge() -> None:
    model = Scripted(-40.0)
    answer_of(model, with_(search="smc", **WARM))
    samples = [one.token_ids[:4] for one in answer_of(Scripted(-40.0), with_(n=4, **WARM)).outputs]
    assert len(set(samples)) == 4
    assert set(model.first_blocks(2)) == {min(samples, key=sum)}
    assert len(model.steps[2]) == 4
    assert len(distinct_rows(model.steps[2])) == 1
    assert len(distinct_rows(model.steps[3])) > 1


def test_weights_count_from_the_last_resampling() -> None:
    """Only the first block tells particles apart, so none is replaced after the second."""
    num_kept = []
    for seed in range(5):
        model = Scripted(-0.0625)
        answer_of(model, with_(search="smc", ess=1.0, seed=seed, particles=8, **WARM))
        assert model.first_blocks(2) == model.first_blocks(4)
        num_kept.append(len(set(model.first_blocks(2))))
    assert 1 < max(num_kept) < 8


@pytest.mark.parametrize("model", MODELS)
def test_the_same_seed_finds_the_same_answer_whatever_runs_beside_it(model: ToyPredictor) -> None:
    params = [with_(search="smc", ess=1.0, seed=seed) for seed in range(6)]
    alone = [answer_of(model, one) for one in params]
    together = LLM(model).generate([PROMPT] * 6, params)
    assert [told(answer)[:-1] for answer in together] == [told(answer)[:-1] for answer in alone]
    assert len({answer.outputs[0].token_ids for answer in alone}) > 1


def test_a_particle_that_is_replaced_caches_the_blocks_of_the_other() -> None:
    """Caching checks what each hint promises."""
    prompt, more = [1, 2, 3, 4, 5], {"max_tokens": 20, "length": "fixed", "search": "smc"}
    for seed in range(5):
        params = [with_(**more, ess=1.0, seed=seed, cache=cache) for cache in ("exact", "none")]
        model = Caching(4)
        [exact, plain] = (LLM(model).generate([prompt], one)[0] for one in params)
        assert any(model.windows)
        assert told(exact)[:3] == told(plain)[:3]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"temperature": 0.0}, "search 'smc' needs a temperature above 0"),
        ({"n": 2}, "search 'smc' returns one of its particles; leave out n, best_of and stop_at"),
        ({"best_of": 2, "stop_at": 0.1}, "leave out n, best_of and stop_at"),
        ({"length": "daedal"}, "needs length 'fixed' or 'until-end', not 'daedal'"),
        ({"length": "until-end"}, "until-end appends blocks, and 'toy' has none"),
        ({"particles": 65}, "particles=65: Input should be less than or equal to 64"),
        ({"search": "beam"}, "search='beam': Input should be 'smc'"),
        ({"search": None, "particles": 8}, "particles and ess need a search: name one"),
    ],
)
def test_what_a_search_cannot_do_is_refused_before_a_pass(
    settings: dict[str, Any], problem: str
) -> None:
    model = ToyPredictor()
    with pytest.raises(InputError, match=problem):
        answer_of(model, with_(**{"search": "smc", **settings}))
    assert model.batches == []


def test_a_server_searches_and_a_request_for_several_answers_replaces_its_default() -> None:
    asked = {"prompt": "abc", "max_tokens": 8, "temperature": 1, "seed": 0}
    limits = Limits(default={"search": "smc", "particles": 3})
    with serving(AsyncLLM(ToyPredictor()), limits) as url:

        def post(**more: object) -> httpx.Response:
            return httpx.post(f"{url}/v1/completions", json=asked | more, timeout=30)

        searched = post(dise={"search": "smc", "particles": 3}).json()
        assert post().json()["choices"] == searched["choices"]
        assert len(post(n=2).json()["choices"]) == 2
        assert post(dise={"search": "smc", "particles": 10**6}).status_code == 400
        assert "leave out n" in post(n=2, dise={"search": "smc"}).json()["error"]["message"]
