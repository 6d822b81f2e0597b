"""The scorer "shadow" beside transformers' own models: one text and one shadow at a time, each with
an explicit 4D mask, in float64.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from dise_core import LLM, ScoringParams
from tests import reference_dream, reference_llada

LLADA_NAMES = {
    "attn_norm": "input_layernorm", "ff_norm": "post_attention_layernorm",
    "q_proj": "self_attn.q_proj", "k_proj": "self_attn.k_proj", "v_proj": "self_attn.v_proj",
    "attn_out": "self_attn.o_proj", "ff_proj": "mlp.gate_proj", "up_proj": "mlp.up_proj",
    "ff_out": "mlp.down_proj", "wte": "embed_tokens", "ln_f": "norm",
}  # fmt: skip
BLOCKS = Path(__file__).parents[2] / "adapters/dise_adapters/embedded/countdown_blocks"


def shape_of(config: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """Return the sizes that all three configurations have, from a config.json that names them."""
    sizes = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    more = ("num_key_value_heads", "vocab_size", "max_position_embeddings", "rms_norm_eps")
    rope = {"rope_type": "default", "rope_theta": config["rope_theta"]}
    every = {name: config[names.get(name, name)] for name in (*sizes, *more)}
    return {**every, "rope_parameters": rope, "attn_implementation": "eager"}


def loaded(model: Any, weights: dict[str, Tensor]) -> Any:
    model.load_state_dict(weights)
    return model.double().eval()


class Reference:
    """A model of transformers. block: the length of its blocks, None for full attention."""

    def __init__(self, model: Any, mask: int, block: int | None, is_shifted: bool) -> None:
        self.model, self.mask, self.block, self.is_shifted = model, mask, block, is_shifted

    def shadow(self, ids: list[int], position: int) -> float:
        """Return log p(ids[position]) where it alone is hidden, but from the rest of the text.

        The text's own tokens attend as ever. Behind them stands a mask, which attends to itself and
        to the text without the token at its position. Where row i - 1 answers for token i, a second
        token i - 1 stands behind that, and the two see each other.
        """
        size, answering = len(ids), position - 1 if self.is_shifted and position else position
        extra = [position] if answering == position else [position, answering]
        places = [*range(size), *extra]
        shown = [*ids, self.mask, *(ids[place] for place in extra[1:])]
        sees = torch.zeros(len(shown), len(shown), dtype=torch.bool)
        for query, place in enumerate(places):
            for key, other in enumerate(places):
                reaches = self.block is None or other // self.block <= place // self.block
                is_text, is_own = key < size, query >= size and key >= size
                is_hidden = query >= size and other in extra
                sees[query, key] = is_own or (is_text and reaches and not is_hidden)
        added = torch.zeros(1, 1, *sees.shape, dtype=torch.float64).masked_fill(~sees, -math.inf)
        with torch.no_grad():
            logits = self.model(
                torch.tensor([shown]), attention_mask=added, position_ids=torch.tensor([places])
            ).logits[0, -1]
        return float(torch.log_softmax(logits, -1)[ids[position]])


def llada(folder: Path) -> tuple[str, Reference]:
    config: Any = reference_llada.default_config(n_kv_heads=1)
    weights = reference_llada.random_weights(config)
    reference_llada.write_checkpoint(folder, config, weights)
    names = {
        "hidden_size": "d_model", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads",
        "num_key_value_heads": "n_kv_heads", "intermediate_size": "mlp_hidden_size",
        "vocab_size": "embedding_size", "max_position_embeddings": "max_sequence_length",
    }  # fmt: skip
    model = LlamaForCausalLM(LlamaConfig(**shape_of(config, names)))
    renamed = {}
    for name, weight in weights.items():
        *path, last, _ = name.removeprefix("model.transformer.").split(".")
        if path:
            renamed[f"model.layers.{path[1]}.{LLADA_NAMES[last]}.weight"] = weight
        else:
            ours = "lm_head" if last == "ff_out" else f"model.{LLADA_NAMES[last]}"
            renamed[f"{ours}.weight"] = weight
    return str(folder), Reference(loaded(model, renamed), config["mask_token_id"], None, False)


def dream(folder: Path) -> tuple[str, Reference]:
    config: Any = reference_dream.default_config()
    reference_dream.write_checkpoint(folder, config, gain=1.0)
    model = Qwen2ForCausalLM(Qwen2Config(**shape_of(config, {})))
    weights = load_file(folder / "model.safetensors")
    return str(folder), Reference(loaded(model, weights), config["mask_token_id"], None, True)


def blocks(_: Path) -> tuple[str, Reference]:
    config = json.loads((BLOCKS / "config.json").read_text())
    shape = shape_of(config, {}) | {"head_dim": config["head_dim"]}
    model = loaded(Qwen3ForCausalLM(Qwen3Config(**shape)), load_file(BLOCKS / "model.safetensors"))
    return "countdown-blocks", Reference(
        model, config["mask_token_id"], config["block_size"], False
    )


@pytest.mark.parametrize("make", [llada, dream, blocks])
def test_the_score_is_that_of_one_shadow_at_a_time(make: Any, tmp_path: Path) -> None:
    model, reference = make(tmp_path / "model")
    llm, random = LLM(model), np.random.default_rng(1)
    for prompt, response in ((5, 11), (1, 1), (8, 8), (3, 20)):
        ids = random.integers(0, 20, prompt + response).tolist()
        params = ScoringParams(scorer="shadow", selector="response")
        [answer] = llm.score([ids[:prompt]], [ids[prompt:]], params)
        end = llm.predictor.info.special.eos_id
        text = ids + [end] * (-len(ids) % (reference.block or 1))
        expected = [reference.shadow(text, at) for at in range(prompt, len(ids))]
        assert answer.outputs[0].score.value == pytest.approx(np.mean(expected), abs=1e-5)
        assert answer.usage.nfe == 1
        assert answer.usage.nfe_computed == pytest.approx((len(ids) + response) / len(ids))


def test_texts_that_are_scored_together_get_the_scores_that_they_get_alone(tmp_path: Path) -> None:
    model, _ = dream(tmp_path / "model")
    llm, random = LLM(model), np.random.default_rng(2)
    texts = [random.integers(0, 20, 4 + length).tolist() for length in (3, 9, 17)]
    prompts, responses = [text[:4] for text in texts], [text[4:] for text in texts]
    params = ScoringParams(scorer="shadow", selector="last-5")
    together = llm.score(prompts, responses, params)
    for prompt, response, answer in zip(prompts, responses, together, strict=True):
        [alone] = llm.score([prompt], [response], params)
        value = alone.outputs[0].score.value
        assert answer.outputs[0].score.value == pytest.approx(value, abs=1e-5)
        num_shadows, num_tokens = min(5, len(response)), len(prompt) + len(response)
        assert answer.usage.nfe_computed == pytest.approx(1 + num_shadows / num_tokens)
