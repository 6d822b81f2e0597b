"""Parameters: what is refused, and how it is said."""

import re

import pytest

from dise_core import EngineConfig, InputError, SamplingParams, ScoringParams
from dise_core.front.llm import EngineOptions
from dise_core.plugins.discovery import installed_catalog


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"max_tokens": 0}, "max_tokens=0: Input should be greater than or equal to 1"),
        ({"temperature": float("nan")}, "temperature=nan"),
        ({"colour": "red"}, "there is no setting 'colour'"),
        ({"selektor": "full"}, "there is no setting 'selektor'. Did you mean 'selector'?"),
        ({"max_token": 3}, "there is no setting 'max_token'. Did you mean 'max_tokens'?"),
        ({"remaskin": "random"}, "Did you mean 'remasking'?"),
        ({"max_tokens" * 10**5: 3}, "there is no setting 'max_tokens"),
        ({"early_exit": 0.9}, "option 'early_exit' was taken out: take length='until-end'"),
        ({"logits": "x"}, "option 'logits' was taken out: take logit_bias or a constraint"),
        ({"logit_bias": {"x": 1}}, "logit_bias.x='x': Input should be a valid integer"),
        ({"logit_bias": "7"}, """valid dictionary, written as JSON, such as {"name": 1}"""),
        ({"logit_bias": {2**31: 1}}, "should be less than 2147483648"),
        ({"logit_bias": {7: 100.5}}, "logit_bias.7=100.5: Input should be less than or equal to"),
        ({"n": 3, "best_of": 2}, "best_of=2 is less than n=3"),
        ({"max_tokens": 128, "steps": 3}, "steps=3 is less than one step for each of the 4 blocks"),
    ],
)
def test_a_bad_setting_is_one_line_that_names_it(settings: dict[str, object], text: str) -> None:
    with pytest.raises(InputError) as caught:
        SamplingParams(**settings)  # type: ignore[arg-type]
    problem = str(caught.value)
    assert text in problem
    assert "\n" not in problem


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


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"max_memory": {"cpu": "1GiB"}}, "max_memory needs a device_map"),
        ({"device_map": "auto", "device": "cpu"}, "device_map chooses the devices"),
        ({"device_map": "auto", "quantization": "int8"}, "leave out device_map"),
        ({"device_map": "auto", "max_memory": {"gpu0": "1GiB"}}, "a device is cpu or a GPU's"),
        ({"device_map": "auto", "max_memory": {"0": "much"}}, "'much' is no size"),
        ({"device_map": "auto", "max_memory": {"0": -3}}, "-3 is no size"),
    ],
)
def test_options_of_devices_that_do_not_fit_together(
    options: dict[str, object], problem: str
) -> None:
    with pytest.raises(InputError, match=re.escape(problem)):
        EngineConfig(**options)  # type: ignore[arg-type]


def test_options_of_devices_that_fit_together() -> None:
    assert EngineConfig(device_map="balanced", max_memory={"0": "20GiB", "cpu": "1.5GB"})
    assert EngineConfig(quantization="int4", device="cuda:1", judge_device="cpu")


@pytest.mark.parametrize("name", ["allowed_token_ids", "forbidden_token_ids"])
def test_a_token_that_is_named_often_counts_once(name: str) -> None:
    params = SamplingParams.model_validate({name: [5, *[3] * 100_000, 5]})
    assert getattr(params, name) == (5, 3)
