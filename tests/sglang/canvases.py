"""A tiny DiffusionGemma as SGLang runs it, on the modules of transformers' own class."""

from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import (
    DiffusionGemmaConfig,
    DiffusionGemmaForBlockDiffusion,
    DiffusionGemmaTextConfig,
    DynamicCache,
)
from transformers.models.gemma4.configuration_gemma4 import Gemma4VisionConfig

from dise_core import ModelInfo, SpecialTokens

LENGTH, SIZE, WINDOW, END = 16, 97, 24, 3
STEPS, T_MIN, T_MAX, CONFIDENCE = 12, 0.4, 0.8, 5.0
SETTINGS = {
    "max_denoising_steps": STEPS, "sampler_config": {"entropy_bound": 20.0},
    "stopping_config": {"confidence_threshold": CONFIDENCE},
}  # fmt: skip
"""Of SGLang's algorithm: some canvases of the network are stable soon, others never."""


def network() -> Any:
    """Return the model with random weights, in float32."""
    torch.manual_seed(0)
    text = DiffusionGemmaTextConfig(
        vocab_size=SIZE, hidden_size=32, intermediate_size=48, num_hidden_layers=3,
        num_attention_heads=2, num_key_value_heads=1, head_dim=16, global_head_dim=32,
        num_global_key_value_heads=1, max_position_embeddings=256, sliding_window=WINDOW,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        num_experts=4, top_k_experts=2, moe_intermediate_size=16, initializer_range=0.3,
    )  # fmt: skip
    vision = Gemma4VisionConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, head_dim=8, patch_size=4, position_embedding_size=64,
    )  # fmt: skip
    config = DiffusionGemmaConfig(text_config=text, vision_config=vision, canvas_length=LENGTH)
    network = DiffusionGemmaForBlockDiffusion(config).eval()
    with torch.no_grad():  # a random model is sure of nothing
        network.get_input_embeddings().weight.mul_(60)
    return network


class Seen(NamedTuple):
    """What a forward saw of a canvas, and what it told: ids [L], logits [L, V]."""

    context: tuple[int, ...]
    ids: Tensor
    logits: Tensor


class CanvasRunner:
    """The model behind a loop. It keeps what its forwards saw; a context tells nothing."""

    def __init__(self, network: Any) -> None:
        self.network, self.model, self.num_forwards = network, self, 0
        self.model_config = SimpleNamespace(hf_config=network.config)
        special = SpecialTokens(SIZE, frozenset({END}), END)
        info = ModelInfo("tiny", SIZE, 256, special, noise="uniform")
        self.predictor, self.seen = SimpleNamespace(info=info), list[Seen]()

    def get_input_embeddings(self) -> Any:
        return self.network.model.decoder.embed_tokens

    def prepare_dllm_input_embeds(self, ids: Tensor, signal: Tensor | None) -> Tensor:
        embeds = self.get_input_embeddings()(ids)
        signal = torch.zeros_like(embeds) if signal is None else signal
        made: Tensor = self.network.model.decoder.self_conditioning(embeds, signal)
        return made

    @torch.inference_mode()
    def forward(self, forward_batch: Any, **_: object) -> Any:
        self.num_forwards += 1
        if not forward_batch.forward_mode.is_dllm_extend():
            return SimpleNamespace(logits_output=None, can_run_graph=False)
        rows = zip(
            forward_batch.contexts, forward_batch.input_ids.view(-1, LENGTH),
            forward_batch.input_embeds.view(-1, LENGTH, 32), strict=True,
        )  # fmt: skip
        told = []
        for context, ids, embeds in rows:
            told.append(self._logits(torch.from_numpy(context), embeds))
            self.seen.append(Seen(tuple(context.tolist()), ids.clone(), told[-1].clone()))
        output = SimpleNamespace(full_logits=torch.cat(told), customized_info=None)
        return SimpleNamespace(logits_output=output, can_run_graph=False)

    def _logits(self, context: Tensor, embeds: Tensor) -> Tensor:
        """Return a canvas's logits [L, V], by one pass over its context and it."""
        encoder, start = self.network.model.encoder.language_model, len(context)
        places = torch.arange(start + LENGTH)
        last = places.clamp(max=start - 1)  # of the context, what a token sees
        causal = places <= last[:, None]
        own = (places >= start) & (places >= start)[:, None]
        near = places > torch.where(places < start, last - WINDOW, start - WINDOW)[:, None]
        masks = {"full_attention": causal | own, "sliding_attention": causal & near | own}
        states = encoder(
            inputs_embeds=torch.cat([encoder.embed_tokens(context), embeds])[None],
            attention_mask={
                kind: torch.zeros(1, 1, *mask.shape).masked_fill(~mask, -1e30)
                for kind, mask in masks.items()
            },
            position_ids=places[None],
        ).last_hidden_state[0, start:]
        logits = self.network.lm_head(states).float()
        capped: Tensor = 30 * torch.tanh(logits / 30)
        return capped

    @torch.inference_mode()
    def published(self, seen: Seen, conditioning: Tensor | None) -> Tensor:
        """Return what transformers' encoder and decoder tell of a canvas, [L, V].
        conditioning: the logits before, tempered.
        """
        cache = DynamicCache(config=self.network.config.get_text_config(decoder=True))
        self.network.model.encoder(input_ids=torch.tensor([seen.context]), past_key_values=cache)
        before = None if conditioning is None else conditioning[None]
        answer = self.network(
            decoder_input_ids=seen.ids[None], past_key_values=cache, self_conditioning_logits=before
        )
        logits: Tensor = answer.logits[0]
        return logits
