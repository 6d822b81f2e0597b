"""DiffusionGemma beside transformers' own encoder and decoder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from dise_adapters.local.decoder import integers
from dise_adapters.local.loading import fits
from dise_core import (
    LLM,
    Canvases,
    CheckpointError,
    Distribution,
    Floats,
    Ids,
    InputError,
    Read,
    SamplingParams,
    ScoringParams,
)
from dise_core.testing import check_mask_predictor
from tests import reference_diffusion_gemma as reference
from tests.adapters.test_quantization import in_int4, in_int8
from tests.reference_diffusion_gemma import CANVAS, END, PAD, TURN_END, Reference

PROMPTS = (5, 62, 63, 64, 150)
"""About as long as the window, 64, and about as long as one with a canvas before."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reference.write(tmp_path_factory.mktemp("diffusion-gemma"))


def text_of(num_prompt: int, num_canvases: int = 3) -> Ids:
    random = np.random.default_rng(num_prompt)
    return random.integers(8, 264, num_prompt + num_canvases * CANVAS)


def read_of(text: Ids, start: int) -> Read:
    return Read(text, np.arange(start, len(text)), Distribution(), start=start)


def logprobs(folder: Path, num_prompt: int = 70, **options: Any) -> Floats:
    model = LLM(str(folder), **options).predictor
    [reading] = model.read([read_of(text_of(num_prompt), num_prompt)])
    return reading.logprobs.astype(np.float64)


@pytest.mark.parametrize("num_prompt", PROMPTS)
def test_three_canvases_are_read_as_transformers_reads_them(folder: Path, num_prompt: int) -> None:
    expected = Reference(folder).logprobs(text_of(num_prompt), num_prompt)
    np.testing.assert_allclose(logprobs(folder, num_prompt), expected, atol=1e-4)


def test_texts_of_any_lengths_share_a_batch(folder: Path) -> None:
    """Of eight, of which some have no prompt and some one canvas; also where few are read."""
    model, shapes = (
        LLM(str(folder)).predictor,
        [(n, 3) for n in PROMPTS] + [(0, 2), (9, 1), (130, 2)],
    )
    reads = [read_of(text_of(*shape), shape[0]) for shape in shapes]
    together, alone = model.read(reads), [model.read([read])[0] for read in reads]
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-5)
    last = Read(reads[4].token_ids, np.array([150 + 2 * CANVAS]), Distribution(), start=150)
    [few] = model.read([last])
    np.testing.assert_allclose(few.logprobs[0], alone[4].logprobs[2 * CANVAS], atol=1e-5)


def test_bfloat16_is_as_near_to_float32_as_transformers_bfloat16(folder: Path) -> None:
    exact = Reference(folder).logprobs(text_of(70), 70)
    theirs = Reference(folder, torch.bfloat16).logprobs(text_of(70), 70)
    ours = logprobs(folder, dtype="bfloat16")
    assert 0 < np.abs(ours - exact).mean() < 1.5 * np.abs(theirs - exact).mean()


def rounded_by_hand(folder: Path, to: Path, rounded: Callable[[Tensor], Tensor]) -> Path:
    """Write the checkpoint with each expert's, and each linear layer's, weights rounded."""
    weights = load_file(folder / "model.safetensors")
    for name, weight in weights.items():
        if ".decoder.layers." in name and ".router." not in name and weight.ndim > 1:
            weights[name] = rounded(weight.flatten(0, -2)).view_as(weight)
        elif name.endswith("decoder.embed_tokens.weight"):
            weights[name] = in_int8(weight).nan_to_num()  # the row of the pad is zeros
    return copied(folder, to, weights)


def copied(folder: Path, to: Path, weights: dict[str, Tensor]) -> Path:
    to.mkdir(exist_ok=True)
    for path in folder.glob("*.json"):
        (to / path.name).write_bytes(path.read_bytes())
    for path in folder.glob("*.jinja"):
        (to / path.name).write_bytes(path.read_bytes())
    save_file(weights, to / "model.safetensors", metadata={"format": "pt"})
    return to


@pytest.mark.parametrize(("kind", "rounded"), [("int8", in_int8), ("int4", in_int4)])
@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
def test_experts_are_rounded_one_by_one(
    folder: Path,
    tmp_path: Path,
    kind: str,
    rounded: Callable[[Tensor], Tensor],
    stored: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(integers, "multiplies_integers", lambda: False)  # states: not rounded
    weights = {n: w.to(stored) for n, w in load_file(folder / "model.safetensors").items()}
    folder = copied(folder, tmp_path / "stored", weights)
    plain, found = logprobs(folder, dtype="float32"), logprobs(folder, quantization=kind)
    widened = {name: weight.float() for name, weight in weights.items()}
    folder = rounded_by_hand(copied(folder, tmp_path / "wide", widened), tmp_path / "by", rounded)
    expected = Reference(folder).logprobs(text_of(70), 70)
    np.testing.assert_allclose(np.median(np.abs(found - expected)), 0, atol=1e-3)
    assert np.abs(plain - found).mean() > 5 * np.abs(found - expected).mean()


def test_it_keeps_the_contract_of_a_predictor(folder: Path) -> None:
    model = LLM(str(folder)).predictor
    assert model.info.attention == Canvases(CANVAS)
    assert model.info.special.eos_ids == {END, TURN_END}
    assert (model.info.special.eos_id, model.info.fill_id) == (TURN_END, PAD)
    assert (model.info.noise, model.info.is_time_conditioned) == ("uniform", False)
    check_mask_predictor(model)


def test_a_short_answer_is_read_with_its_turns_end_and_filled_behind(folder: Path) -> None:
    """Of a chat: the end of the turn is read, and no fill is scored."""
    llm, messages = LLM(str(folder)), [{"role": "user", "content": "Hi"}]
    prompt = llm.predictor.tokenizer.encode_chat(messages)
    answer = llm.predictor.tokenizer.encode("Hello")
    [scored] = llm.score(["Hi"], ["Hello"])
    text = np.concatenate([prompt, answer, [TURN_END], np.full(CANVAS - 6, PAD)])
    rows = Reference(folder).logprobs(text, len(prompt))[np.arange(5), answer]
    assert scored.outputs[0].score.value == pytest.approx(rows.mean(), abs=1e-4)
    text[len(prompt) + 6 :] = END
    others = Reference(folder).logprobs(text, len(prompt))[np.arange(5), answer]
    assert abs(others - rows).max() > 1e-2, "the fill makes no difference, so no test of it"


def test_the_chat_template_begins_a_thought_where_it_is_asked_to(folder: Path) -> None:
    tokenizer, messages = LLM(str(folder)).predictor.tokenizer, [{"role": "user", "content": "Hi"}]
    plain = tokenizer.chat_text(messages)
    assert plain == "<bos><|turn>user\nHi<turn|>\n<|turn>model\n"
    thinking = tokenizer.with_template_kwargs({"enable_thinking": True}).chat_text(messages)
    assert thinking == f"{plain}<|channel>thought\n"


@pytest.mark.parametrize("is_in_prompt", [False, True])
def test_a_thought_is_scored_where_it_is_given_as_part_of_the_response(
    folder: Path, is_in_prompt: bool
) -> None:
    """In front of it a thought is prompt: no part of the canvas, and of no score."""
    llm, tokenizer = LLM(str(folder)), LLM(str(folder)).predictor.tokenizer
    thought = tokenizer.encode("<|channel>thought\n<channel|>")
    assert (thought[0], thought[-1]) == (5, 6)
    prompt = tokenizer.encode_chat([{"role": "user", "content": "Hi"}])
    answer, params = tokenizer.encode("Hello"), ScoringParams(selector="response")
    if is_in_prompt:
        prompt = np.append(prompt, thought)
    else:
        answer = np.append(thought, answer)
    [scored] = llm.score([prompt.tolist()], [answer.tolist()], params, finished=True)
    fills = np.full(CANVAS - len(answer) - 1, PAD)
    text = np.concatenate([prompt, answer, [TURN_END], fills])
    rows = Reference(folder).logprobs(text, len(prompt))[np.arange(len(answer)), answer]
    assert scored.outputs[0].score.value == pytest.approx(rows.mean(), abs=1e-4)


def test_a_message_with_an_image_is_refused_by_one_sentence(folder: Path) -> None:
    """The server's refusal stands in tests/refusals/http.py, of any model."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    messages: Any = [{"role": "user", "content": [{"type": "text", "text": "What?"}, image]}]
    llm, said = LLM(str(folder)), "both text, as DiSE reads text alone: .*'What"
    with pytest.raises(InputError, match=said):
        llm.chat([messages])
    with pytest.raises(InputError, match=said):
        llm.predictor.tokenizer.encode_chat(messages)
    with pytest.raises(InputError, match="token ids must be a flat list of integers"):
        llm.score([messages], ["Yes"])


def test_it_ranks_writes_and_reads_with_random_tokens_in_place(folder: Path) -> None:
    llm = LLM(str(folder))
    params = ScoringParams(scorer="interleaved", scorer_settings={"k": 3})
    [ranked] = llm.rank(["Hi"], [["Yes", "No"]], params)
    assert len({output.score.value for output in ranked.outputs}) == 2
    written = SamplingParams(max_tokens=CANVAS + 8, seed=1, length="fixed")
    [answer] = llm.generate(["Hi"], written)
    [again] = llm.score(["Hi"], [answer.outputs[0].token_ids], ScoringParams.of(written))
    assert answer.outputs[0].score.value == pytest.approx(again.outputs[0].score.value, abs=1e-4)


def without_vision(weights: dict[str, Tensor]) -> None:
    for name in [name for name in weights if "vision" in name]:
        del weights[name]


def test_weights_that_no_text_needs_are_not_read(folder: Path, tmp_path: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    without_vision(weights)
    bare = copied(folder, tmp_path, weights)
    np.testing.assert_array_equal(logprobs(bare), logprobs(folder))


@pytest.mark.parametrize(
    ("name", "weight", "said"),
    [
        ("model.decoder.layers.2.router.scale", None, "lacks weights: model.layers.2.router.scale"),
        ("model.decoder.layers.9.layer_scalar", torch.ones(1), "has extra weights: .*layers.9"),
        ("model.decoder.norm.weight", torch.ones(3), r"has misshapen weights: .*norm\.weight"),
        ("model.decoder.norm.weight", torch.full((64,), torch.nan), "not finite numbers"),
        ("model.encoder.language_model.layers.0.layer_scalar", None, "lacks weights: .*encoder"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(
    folder: Path, tmp_path: Path, name: str, weight: Tensor | None, said: str
) -> None:
    weights = load_file(folder / "model.safetensors")
    weights.pop(name, None)
    if weight is not None:
        weights[name] = weight
    with pytest.raises(CheckpointError, match=said):
        logprobs(copied(folder, tmp_path, weights))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"attn_implementation": "eager"}, "'eager' cannot attend in canvases; take 'sdpa'"),
        ({"block_size": 8}, "block_size=8 is not that of .*: canvases of 32 by config.json's"),
        ({"mask_token_id": 3}, "has uniform noise and no mask: leave mask_token_id out"),
        (
            {"engine": "vllm"},
            "is read in canvases, which our plugin does not run inside vLLM: start `vllm serve`",
        ),
    ],
)
def test_what_it_does_not_take_is_refused_by_one_sentence(
    folder: Path, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        logprobs(folder, **options)


@pytest.mark.parametrize(
    ("field", "value"),
    [("hidden_activation", "silu"), ("use_bidirectional_attention", "all"), ("top_k_experts", 5)],
)
def test_a_variant_is_refused_by_field_and_value(
    folder: Path, tmp_path: Path, field: str, value: object
) -> None:
    other = copied(folder, tmp_path, load_file(folder / "model.safetensors"))
    config = json.loads((other / "config.json").read_text())
    config["text_config"][field] = value
    (other / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=f"{field}='?{value}'?"):
        LLM(str(other))


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({"dtype": "bfloat16"}, 46.9),
        ({"quantization": "int8"}, 23.5),
        ({"quantization": "int4"}, 13.5),
    ],
)
def test_memory_is_planned_by_the_headers_of_the_published_size(
    tmp_path: Path, options: dict[str, Any], size: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """25.2 billion weights; the plan of 16 bits has a packed copy of the head besides."""
    folder = reference.write_headers(tmp_path)
    monkeypatch.setattr(fits, "free_bytes", lambda _: 2**32)
    with pytest.raises(InputError) as refused:
        LLM(str(folder), device="cpu", **options)
    told = float(str(refused.value).partition(" needs ")[2].split()[0])
    assert size <= told < 1.1 * size, str(refused.value)
    assert "4.0 GiB are free. No other type of weights fits either" in str(refused.value)
