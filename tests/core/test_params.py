"""Parameters: what is refused, and how it is said."""

import pytest

from dise_core import EngineConfig, SamplingParams, ScoringParams
from dise_core.front.llm import EngineOptions
from dise_core.plugins.discovery import installed_catalog


def test_engine_options_are_the_fields_of_engine_config_and_of_the_engines() -> None:
    engines = installed_catalog().engines.values()
    own = {name for entry in engines for name in entry.load().options.model_fields}
    typed = {*EngineConfig.model_fields, *own, "engine_options"}
    assert set(EngineOptions.__annotations__) == typed


def test_the_defaults_are_the_documented_ones() -> None:
    params = SamplingParams()
    assert (params.max_tokens, params.block_length, params.tokens_per_step) == (128, 32, 2)
    assert (params.temperature, params.unmasking, params.n) == (0, "low-confidence", 1)
    assert (params.length, params.seed) == (None, None)
    assert (ScoringParams().scorer, ScoringParams().selector) == ("dise", None)


def test_options_of_devices_that_fit_together() -> None:
    assert EngineConfig(device_map="balanced", max_memory={"0": "20GiB", "cpu": "1.5GB"})
    assert EngineConfig(quantization="int4", device="cuda:1", judge_device="cpu")


@pytest.mark.parametrize("name", ["allowed_token_ids", "forbidden_token_ids"])
def test_a_token_that_is_named_often_counts_once(name: str) -> None:
    params = SamplingParams.model_validate({name: [5, *[3] * 100_000, 5]})
    assert getattr(params, name) == (5, 3)
