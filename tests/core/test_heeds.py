"""Options and readouts that an adapter does not take are refused by name."""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
import pytest

from dise_core import (
    LLM,
    AsyncLLM,
    Distribution,
    EngineConfig,
    InputError,
    MaskPredictor,
    Plan,
    Read,
    Reading,
    SamplingParams,
    Score,
    Scorer,
    Selector,
    TokenSequence,
)
from dise_core.models.attention import Causal
from dise_core.testing import ToyPredictor, check_mask_predictor


class Mine(ToyPredictor):
    """Heeds two options, and keeps them."""

    heeds: ClassVar[frozenset[str] | None] = frozenset({"device", "revision"})

    @classmethod
    def claims(cls, model: str, revision: str | None = None) -> bool:
        return model == "mine"

    @classmethod
    def load(cls, model: str, config: EngineConfig) -> Self:
        predictor = cls()
        predictor.config = config
        return predictor

    config: EngineConfig


class Everything(Mine):
    """Says nothing of what it heeds, as adapters did before they could."""

    heeds = None


class Judging(Mine):
    """An auto-regressive one."""

    def __init__(self) -> None:
        super().__init__(attention=Causal())


@pytest.mark.parametrize(
    "options",
    [
        {"quantization": "int4"},
        {"dtype": "bfloat16"},
        {"engine": "vllm"},
        {"engine": "vllm", "tensor_parallel_size": 2},
        {"prefix_cache_tokens": 0},
        {"block_size": 4, "device": "cpu"},
    ],
)
def test_an_option_that_an_adapter_does_not_heed_is_refused_before_it_loads(
    options: dict[str, Any],
) -> None:
    name = next(iter(options))
    with pytest.raises(InputError, match=f"does not heed {name}.*heeds device, revision") as caught:
        LLM("mine", plugins=[Mine], **options)
    assert caught.value.parameter == name
    LLM("mine", plugins=[Everything], **options)


def test_what_an_adapter_heeds_and_what_is_not_its_own_is_taken() -> None:
    more: dict[str, Any] = {"max_num_seqs": 3, "max_batch_tokens": 99, "adapter": "Mine"}
    llm = LLM("mine", plugins=[Mine], device="cuda:7", dtype="auto", **more)
    assert isinstance(llm.predictor, Mine)
    assert llm.predictor.config.device == "cuda:7"


@pytest.mark.parametrize("door", [LLM, AsyncLLM])
@pytest.mark.parametrize("option", ["device", "dtype", "engine", "quantization", "revision"])
def test_options_of_loading_are_refused_beside_a_loaded_model(
    door: type[LLM] | type[AsyncLLM], option: str
) -> None:
    values = {"device": "cuda:7", "dtype": "float32", "engine": "vllm", "revision": "main"}
    options: dict[str, Any] = {option: values.get(option, "int8")}
    with pytest.raises(InputError, match=f"^{option} is about how a model is loaded, and this"):
        door(ToyPredictor(), **options)
    door(ToyPredictor(), max_num_seqs=2, **{**options, option: getattr(EngineConfig(), option)})


def test_a_judge_takes_what_is_its_own() -> None:
    """The model's own options are none of a judge's; a loaded judge takes no others."""
    judge: Any = {"judge": "mine", "plugins": [Judging]}
    llm = LLM(ToyPredictor(), device="cuda:7", **judge)
    heard = llm.planner.predictors["judge"]
    assert isinstance(heard, Judging)
    assert heard.config.device == "cuda:7"
    LLM("countdown", dtype="float32", prefix_cache_tokens=9, lazy=True, **judge)
    with pytest.raises(InputError, match="does not heed dtype"):
        LLM("countdown", judge_dtype="float32", lazy=True, **judge)
    with pytest.raises(InputError, match=r"^quantization is about how a model is loaded"):
        LLM(ToyPredictor(), quantization="int8", **judge)
    with pytest.raises(InputError, match=r"^judge_device is about how a model is loaded"):
        LLM("countdown", judge=Judging(), judge_device="cpu", lazy=True)


class Whole(Scorer):
    """Asks for the whole distribution."""

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        places = np.flatnonzero(selector.select(sequence))
        [reading] = yield [Read(sequence.ids, places, Distribution())]
        return Score.mean_of(reading.logprobs.max(axis=1), places)


class Few(ToyPredictor):
    """Answers all but whole distributions."""

    readouts = MaskPredictor.readouts - {Distribution}

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        assert not any(isinstance(read.readout, Distribution) for read in reads)
        return super().read(reads)


def test_a_readout_that_an_adapter_does_not_answer_is_refused_before_the_pass() -> None:
    llm = LLM(Few())
    params = SamplingParams(scorer=Whole(), max_tokens=2)
    problem = "'toy' does not answer Distribution.*answers Candidates, TokenLogProbs, TopLogProbs"
    with pytest.raises(InputError, match=problem):
        llm.score("ab", "cd", params)
    [answer] = llm.generate("ab", SamplingParams(max_tokens=2, logprobs=2))
    assert len(answer.outputs[0].token_ids) == 2
    assert LLM(ToyPredictor()).score("ab", "cd", params)[0].outputs[0].score.value < 0


def test_the_kit_asks_an_adapter_for_the_readouts_that_it_answers() -> None:
    check_mask_predictor(Few())

    class Drifting(Few):
        def read(self, reads: Sequence[Read]) -> list[Reading]:
            return ToyPredictor(seed=int(len(reads) > 1)).read(reads)

    with pytest.raises(AssertionError, match="alone and in a batch"):
        check_mask_predictor(Drifting())
