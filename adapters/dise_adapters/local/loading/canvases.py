"""DiffusionGemma from a checkpoint's files, layer by layer straight to a device: its text
model alone, each weight once, and each expert rounded on its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from dise_adapters.local.decoder.canvases import IMPLEMENTATION, CanvasBody, attend
from dise_adapters.local.decoder.integers import Int8Linear
from dise_adapters.local.decoder.layer import JoinedExperts, SeparateExperts
from dise_adapters.local.decoder.linear import into_float32, linear
from dise_adapters.local.devices import is_gpu
from dise_adapters.local.free_memory import give_back_freed_memory
from dise_adapters.local.loading.placing import spread
from dise_adapters.local.loading.quantization import Quantizer
from dise_adapters.local.loading.quiet import counting, quiet
from dise_adapters.local.loading.stored import (
    EMBEDDING,
    HEAD,
    NORM,
    Shapes,
    StoredDecoder,
    refuse_misfits,
)
from dise_adapters.local.reading.conditioning import Conditioning
from dise_adapters.local.reading.layout import Layout
from dise_adapters.local.reading.reader import TransformerReader
from dise_adapters.local.threads import THREADS
from dise_core import EngineConfig

if TYPE_CHECKING:
    from dise_adapters.families.family import Checkpoint

MODEL_CLASS = "DiffusionGemmaForBlockDiffusion"

CONDITIONING = "model.self_conditioning."
"""What the names of the feed-forward block begin with that reads earlier predictions."""

ENCODER_SCALAR = "encoder_scalar"
"""What the encoder multiplies a layer's output by; the decoder's is `layer_scalar`."""


def stored_canvases(
    checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype, is_rounded: bool = False
) -> StoredDecoder | None:
    """Return the checkpoint's weights; None for a model of another class. Raises
    CheckpointError for missing, extra or misshapen ones.
    """
    family, settings, folder = checkpoint.family, checkpoint.settings or {}, checkpoint.folder
    if family.model_class != MODEL_CLASS:
        return None
    stored = checkpoint.weights.stored
    stored_names = {name for name in stored if not re.search(family.unused or "$^", name)}
    names = {family.renamed(name): name for name in sorted(stored_names, reverse=True)}
    if EMBEDDING in names:
        names[HEAD] = names[EMBEDDING]
    config = _config(checkpoint)
    shapes: Shapes = {
        EMBEDDING: (config.vocab_size, config.hidden_size),
        HEAD: (config.vocab_size, config.hidden_size),
        NORM: (config.hidden_size,),
    }
    for number, layer in enumerate(_layers(config)):
        parts = {name: tuple(part.shape) for name, part in layer.state_dict().items()}
        parts[ENCODER_SCALAR] = (1,)
        shapes |= {f"model.layers.{number}.{name}": shape for name, shape in parts.items()}
    parts = {name: tuple(part.shape) for name, part in _conditioning(config).state_dict().items()}
    shapes |= {f"{CONDITIONING}{name}": shape for name, shape in parts.items()}
    misshapen = {n for n in names.keys() & shapes.keys() if stored[names[n]].shape != shapes[n]}
    report = {
        "missing_keys": shapes.keys() - names.keys(),
        "unexpected_keys": {names[name] for name in names.keys() - shapes.keys()},
        "mismatched_keys": {names[name] for name in misshapen},
    }
    refuse_misfits(folder, report)
    total = sum(math.prod(shape) for name, shape in shapes.items() if name != HEAD)
    # States in and out; and gate, up, their product, or what is weighted in float32 and sorted.
    widest = max(3 * config.moe_intermediate_size, 4 * config.hidden_size)
    return StoredDecoder(
        checkpoint.weights,
        settings,
        shapes,
        names,
        device,
        dtype,
        counting(total, checkpoint.report),
        is_rounded,
        config.top_k_experts * (2 * config.hidden_size + widest),
    )


@torch.inference_mode()
def canvas_reader(
    checkpoint: Checkpoint, config: EngineConfig, device: torch.device, dtype: torch.dtype
) -> TransformerReader | None:
    """Return a reader of the checkpoint; None for a model of another class. Raises as
    `stored_canvases` and `load_reader` do.
    """
    quantizer = Quantizer.of(config, device)
    stored = stored_canvases(checkpoint, device, dtype, quantizer is not None)
    if stored is None:
        return None
    if not is_gpu(device):
        THREADS.fit(sum(math.prod(shape) for name, shape in stored.shapes.items() if name != HEAD))
    settings = _config(checkpoint)
    make_linear = quantizer.linear if quantizer else linear
    words = stored.read([EMBEDDING])[EMBEDDING]
    scale = torch.tensor(settings.hidden_size**0.5).to(device, dtype)
    head = Int8Linear([words], dtype=dtype) if quantizer else linear([words])

    def embedded(ids: Tensor) -> Tensor:
        rows = head.rows(ids) if isinstance(head, Int8Linear) else embedding(ids, words)
        return rows * scale

    # A map places layers as transformers has them, from main memory.
    is_spread, source, make_part = config.device_map is not None, stored, make_linear
    if is_spread:
        source, make_part = replace(stored, device=torch.device("cpu")), _unpacked
    layers, scalars = _layers(settings), list[Tensor]()
    for number, layer in enumerate(layers):
        scalars.append(_fill(layer, number, source, make_part, is_rounded=quantizer is not None))
    if is_spread:
        spread(layers, config)
    norm = _classes().DiffusionGemmaRMSNorm(settings.hidden_size, eps=settings.rms_norm_eps)
    norm.load_state_dict({"weight": stored.read([NORM])[NORM]}, assign=True)
    conditioning = _conditioning(settings)
    conditioning.load_state_dict(_weights(stored, CONDITIONING), assign=True)
    _replace_linear(conditioning, make_linear)
    rotation = _classes().DiffusionGemmaTextRotaryEmbedding(settings, device=device)
    body = CanvasBody(
        embedded, layers, torch.stack(scalars).to(device), rotation, norm, conditioning, device
    )
    give_back_freed_memory()
    to_logits, cap = into_float32(head), settings.final_logit_softcapping

    def capped(states: Tensor) -> Tensor:
        return to_logits(states).float().div_(cap).tanh_().mul_(cap)

    layout = Layout(checkpoint.attention)
    size, conditioned = settings.vocab_size, Conditioning(embedded, settings.vocab_size, device)
    return TransformerReader(body, capped, size, device, layout, conditioned)


def _fill(
    layer: Any, number: int, stored: StoredDecoder, make_linear: Any, is_rounded: bool
) -> Tensor:
    """Give a layer without weights its own; return what its output is multiplied by, of the
    text and of canvases, [2].
    """
    weights = _weights(stored, f"model.layers.{number}.")
    scalars = torch.cat([weights.pop(ENCODER_SCALAR), weights["layer_scalar"]])
    weights["layer_scalar"] = torch.ones_like(weights["layer_scalar"])
    layer.load_state_dict(weights, assign=True)
    layer.router.to(scalars.dtype)  # which is not rounded
    del weights
    for parent in (layer.self_attn, layer.mlp):
        _replace_linear(parent, make_linear)
    is_joined = JoinedExperts.covers(layer.experts)
    if is_rounded:
        layer.experts = (JoinedExperts if is_joined else SeparateExperts)(
            layer.experts, make_linear
        )
    else:
        layer.experts.config._experts_implementation = "grouped_mm" if is_joined else "eager"
    return scalars


def _weights(stored: StoredDecoder, prefix: str) -> dict[str, Tensor]:
    read = stored.read([name for name in stored.shapes if name.startswith(prefix)])
    return {name.removeprefix(prefix): weight for name, weight in read.items()}


def _replace_linear(parent: nn.Module, make_linear: Any) -> None:
    for name, part in list(parent.named_children()):
        if isinstance(part, nn.Linear):
            setattr(parent, name, make_linear([part.weight.detach()], None))


def _unpacked(weights: Sequence[Tensor], bias: Tensor | None = None) -> nn.Module:
    """Return a layer that may be moved to another device."""
    [weight] = weights
    assert bias is None, "these layers have none"
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    layer.weight = nn.Parameter(weight, requires_grad=False)
    return layer


def _classes() -> Any:
    """Return transformers' module, which takes seconds to import."""
    with quiet():
        from transformers.models.diffusion_gemma import modeling_diffusion_gemma

    return modeling_diffusion_gemma


def _config(checkpoint: Checkpoint) -> Any:
    """Return transformers' configuration of the text model."""
    classes = _classes()
    settings = dict(checkpoint.settings or {})
    del settings["is_causal"]
    config = classes.DiffusionGemmaTextConfig(**settings)
    config.final_logit_softcapping = settings["final_logit_softcapping"]
    classes.ALL_ATTENTION_FUNCTIONS.register(IMPLEMENTATION, attend)
    config._attn_implementation = IMPLEMENTATION
    return config


def _layers(config: Any) -> list[nn.Module]:
    """Return the layers without weights. Those of the decoder compute the encoder's, too."""
    make = _classes().DiffusionGemmaDecoderTextLayer
    with torch.device("meta"):
        layers = [make(config, number) for number in range(config.num_hidden_layers)]
    return [layer.eval().requires_grad_(False) for layer in layers]


def _conditioning(config: Any) -> nn.Module:
    """Return what joins a canvas's embeddings and what was predicted of it, without weights."""
    with torch.device("meta"):
        block: nn.Module = _classes().DiffusionGemmaSelfConditioning(config)
    return block.eval().requires_grad_(False)
