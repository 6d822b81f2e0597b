"""DiffusionGemma's answers beside transformers' own `generate`, with the same random numbers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers.models.diffusion_gemma import generation_diffusion_gemma as loop

from dise_core import LLM, Candidates, Distribution, Ids, Noise, Read, SamplingParams
from dise_core.plans.reading import CacheHint, CacheSlot
from tests import reference_diffusion_gemma as reference
from tests.commands import Dise
from tests.reference_diffusion_gemma import CANVAS, END, PAD, TURN_END, VOCAB_SIZE, Reference

LENGTH = 2 * CANVAS
NAMES = "max_denoising_steps", "entropy_bound", "stability_threshold", "confidence_threshold"


class Injected:
    """Our random numbers, in transformers' loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.noise, self.step, self.places = Noise(0), 0, np.zeros(0, np.int64)
        mixin = loop.DiffusionGemmaGenerationMixin
        prepare: Any = mixin._prepare_denoiser_inputs

        def prepared(model: Any, decoder_attention_mask: Tensor, **inputs: Any) -> Any:
            stop = decoder_attention_mask.shape[1]
            self.places = np.arange(stop - CANVAS, stop)
            return prepare(model, decoder_attention_mask=decoder_attention_mask, **inputs)

        monkeypatch.setattr(mixin, "_prepare_denoiser_inputs", prepared)
        monkeypatch.setattr(loop.EntropyBoundSampler, "initialize_canvas", self._canvas)
        monkeypatch.setattr(torch, "multinomial", self._drawn)
        # It imports a compiler, which warns and takes seconds.
        monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: None)

    def begin(self, prompt: Ids, seed: int) -> None:
        self.noise, self.step = Noise.for_request(seed, prompt, 0), 0

    def _canvas(self, *_: object, **__: object) -> Tensor:
        uniforms = self.noise.at_step(self.step).uniforms(self.places, purpose=2)
        return torch.from_numpy((uniforms * VOCAB_SIZE).astype(np.int64))[None]

    def _drawn(self, probabilities: Tensor, num_samples: int) -> Tensor:
        uniforms = torch.from_numpy(self.noise.at_step(self.step).uniforms(self.places))[:, None]
        self.step += num_samples
        cumulative = probabilities.double().cumsum(-1)
        return (cumulative > uniforms * cumulative[:, -1:]).int().argmax(-1)[:, None]


@pytest.mark.parametrize(
    ("seed", "settings"), [(0, (6, 0.1, 1, 0.005)), (1, (6, 2.0, 0, 0.8)), (2, (6, 0.5, 0, 0.7))]
)
def test_answers_are_those_of_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, settings: tuple[float, ...]
) -> None:
    """Of tiny checkpoints, by few steps of two canvases, the second and third with settings by
    which canvases end early. All experts answer each token: which of them do is a matter of
    rounding where two tie. No number that counts lies within 9e-6 of a border between tokens,
    which rounding moves by 1e-6.
    """
    folder, injected = reference.write(tmp_path, seed, 30.0, top_k_experts=4), Injected(monkeypatch)
    prompts = [np.random.default_rng(n).integers(8, VOCAB_SIZE, 5 + 4 * n) for n in range(20)]
    given = dict(zip(NAMES, settings, strict=True))
    params = SamplingParams(max_tokens=LENGTH, seed=seed, unmasking_settings=given)
    answers = LLM(str(folder)).generate(prompts, params)
    model, num_steps = Reference(folder).model, set[int]()
    bound = loop.EntropyBoundSamplerConfig(given.pop("entropy_bound"))
    ends = {"eos_token_id": [END, TURN_END], "pad_token_id": PAD}
    for prompt, answer in zip(prompts, answers, strict=True):
        injected.begin(prompt, seed)
        ids, more = torch.from_numpy(prompt)[None], {**given, **ends, "sampler_config": bound}
        text = model.generate(ids, max_new_tokens=LENGTH, **more).sequences[0, len(prompt) :]
        response = answer.outputs[0].token_ids
        filled = np.append(response, np.full(len(text) - len(response), PAD))
        assert text.tolist() == filled.tolist()
        num_steps.add(injected.step)
    assert (len(num_steps) > 2) == (given["stability_threshold"] == 0)


def test_a_file_of_answers_names_the_policy_and_its_settings(dise: Dise, tmp_path: Path) -> None:
    folder, output = reference.write(tmp_path / "model"), tmp_path / "out.jsonl"
    (tmp_path / "in.jsonl").write_text('{"prompt": "a"}')
    line = "--input", tmp_path / "in.jsonl", "--output", output, "--model", folder
    setting = "--unmasking-setting", "max_denoising_steps=3"
    assert dise("generate", *line, *setting, "--max-tokens", 8).code == 0
    settings = json.loads((tmp_path / "out.jsonl.settings.json").read_text())["made_with"]
    assert settings["unmasking"] == "entropy-bound-renoise"
    assert settings["unmasking_settings"] == {"max_denoising_steps": 3}


def test_a_window_is_read_beside_what_its_slot_predicted_last(tmp_path: Path) -> None:
    """Alone and in a batch; other slots, and what begins anew, are read beside nothing."""
    folder, start = reference.write(tmp_path, 0, 10.0, top_k_experts=4), 70
    text = np.random.default_rng(0).integers(8, VOCAB_SIZE, start + CANVAS)
    places, model = np.arange(start, len(text)), LLM(str(folder)).predictor

    def read(slot: CacheSlot, window: tuple[int, int] | None = None) -> list[Read]:
        drawn, hint = Candidates(0.5, noise=Noise(1)), CacheHint(slot, window)
        first = Read(text, places, drawn, cache=hint, start=start)
        return [first, replace(first, readout=Distribution())]

    slot, other, window = CacheSlot(), CacheSlot(), (start, len(text))
    ours = [
        reading.logprobs
        for reads in (read(slot), [*read(other, window), *read(slot, window)], read(slot))
        for reading in model.read(reads)[1::2]
    ]
    theirs = Reference(folder)
    bare = theirs.logprobs(text, start)
    expected = bare, bare, theirs.logprobs(text, start, bare / 0.5), bare
    for logprobs, values in zip(ours, expected, strict=True):
        np.testing.assert_allclose(logprobs, values, atol=1e-4)
    assert (abs(ours[2] - ours[0]).max(axis=1) > 0.03).all()
