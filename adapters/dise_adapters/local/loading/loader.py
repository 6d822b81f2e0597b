"""Loads weights into transformers' models; refuses those that do not fit exactly."""

from __future__ import annotations

import math
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dise_adapters.checkpoint.files import one_line, refused
from dise_adapters.local.decoder.integers import Int8Linear, int8_linear
from dise_adapters.local.decoder.kv_cache import KVCache
from dise_adapters.local.decoder.linear import into_float32, linear
from dise_adapters.local.decoder.own import DecoderParts, OwnBody, decoder_parts
from dise_adapters.local.decoder.prefixes import whole_blocks
from dise_adapters.local.decoder.weights import LoadedWeights, WeightPlaces, built
from dise_adapters.local.decoder.whole import (
    WholeBody,
    check_implementation,
    head_beside,
    makes_logits,
)
from dise_adapters.local.devices import choose_device, choose_dtype, free_bytes, is_gpu
from dise_adapters.local.free_memory import give_back_freed_memory
from dise_adapters.local.loading.canvases import canvas_reader
from dise_adapters.local.loading.fits import cache_tokens, pass_bytes, weigh
from dise_adapters.local.loading.placing import placing, spread_over
from dise_adapters.local.loading.quantization import EXPERTS, Quantizer, linear_share
from dise_adapters.local.loading.quiet import configured, quiet, quiet_gguf, reporting
from dise_adapters.local.loading.stored import (
    RESIDUALS,
    StoredDecoder,
    refuse_misfits,
    refuse_not_finite,
    stored_decoder,
)
from dise_adapters.local.reading.layout import Layout
from dise_adapters.local.reading.reader import TransformerReader
from dise_adapters.local.threads import THREADS
from dise_adapters.merging import Adapted
from dise_core import CheckpointError, EngineConfig, InputError, ModelError
from dise_core.records import Record

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from dise_adapters.families.family import Checkpoint, Split

PROBE = (0, 1, 2, 3)
"""Token ids on which body-then-head logits are compared with the whole model's."""


def load_reader(checkpoint: Checkpoint, config: EngineConfig) -> TransformerReader:
    """Return a reader of a checkpoint's safetensors, or of its GGUF file.

    Raises CheckpointError for missing, extra or misshapen weights, InputError for a
    device that cannot be used and for options that do not fit it, ModelError if loading
    fails otherwise.
    """
    device = choose_device(config.device)
    dtype = choose_dtype(config.dtype, device)
    if "/" in config.attn_implementation:  # transformers would fetch such a kernel and run it
        raise InputError(
            f"attn_implementation={config.attn_implementation!r:.80}: code from the hub never "
            'runs; take one that is installed, such as "sdpa" or "flash_attention_2"',
            "attn_implementation",
        )
    check_implementation(config.attn_implementation, checkpoint.attention)
    if config.attn_implementation == "sdpa" and config.device_map is None:
        stored = stored_decoder(checkpoint, device, dtype, config.quantization is not None)
        if stored is not None:
            return stored_reader(stored, checkpoint, config)
    if (reader := canvas_reader(checkpoint, config, device, dtype)) is not None:
        return reader
    model = _from_pretrained(checkpoint, config, device, dtype)
    return _reader(model, device, checkpoint, config)


def _from_pretrained(
    checkpoint: Checkpoint, config: EngineConfig, device: torch.device, dtype: torch.dtype
) -> PreTrainedModel:
    """Return transformers' model, on the device or spread by a device map."""
    folder, (placement, home) = checkpoint.folder, placing(config, device)
    failure = refused(f"cannot load {folder}", ModelError)
    with quiet(), quiet_gguf(), reporting(checkpoint.report), failure:
        model_class, settings = configured(checkpoint)  # imports transformers' models
        if isinstance(checkpoint.weights, Adapted):  # an Auto class takes files alone
            model_class = _concrete(model_class, settings)
        weigh(checkpoint)
        attention = config.attn_implementation
        if attention == "sdpa" and not _has_sdpa(model_class, settings):
            attention = "eager"
        model, report = model_class.from_pretrained(
            **_weights(checkpoint, is_spread=home is None),
            **placement,
            key_mapping=dict(checkpoint.family.key_mapping) or None,
            config=settings,
            dtype=dtype,
            attn_implementation=attention,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    refuse_misfits(folder, report, checkpoint.family.unused)
    refuse_not_finite(folder, model.named_parameters())
    if not _takes_grouped_matmul(model):
        model.set_experts_implementation("eager")
    if home is None:
        weakref.finalize(model, rmtree, placement["offload_folder"], ignore_errors=True)
    else:
        model = model.to(home)
    return model.eval()


def _concrete(model_class: Any, config: object) -> Any:
    """Return the class that an Auto class takes for that configuration."""
    is_auto = not hasattr(model_class, "config_class")
    return model_class._model_mapping.get(type(config), None) if is_auto else model_class


def _has_sdpa(model_class: Any, config: object) -> bool:
    """Return whether a class, or an Auto class for that configuration, has torch's
    attention: from transformers 5.20 on not Gemma 2, whose capped scores it cannot
    compute.
    """
    return getattr(_concrete(model_class, config), "_supports_sdpa", True)


def _takes_grouped_matmul(model: PreTrainedModel) -> bool:
    """Return whether torch's grouped matmul takes the model's experts, if it has any. For
    rows of a size that is no multiple of 16 bytes it raises a bare RuntimeError.
    """
    weights = (part for name, part in model.named_parameters() if name.endswith(EXPERTS))
    return not any(part.shape[-1] * part.element_size() % 16 for part in weights)


def _weights(checkpoint: Checkpoint, is_spread: bool) -> Record:
    """Return from_pretrained's arguments that give the weights: as they are read here, or
    the files where transformers reads config.json, and where it leaves weights in them
    (is_spread), unless they are changed.
    """
    source, split = checkpoint.weights, checkpoint.family.split
    is_left = is_spread and not (split or checkpoint.is_gguf)
    is_theirs = checkpoint.settings is None or is_left
    if is_theirs and not isinstance(source, Adapted):
        file = source.path.name if checkpoint.is_gguf else None
        return {"pretrained_model_name_or_path": source.folder, "gguf_file": file}
    slices = source.slices()
    if split is not None and checkpoint.settings is not None:
        slices = _take_apart(slices, split, split.rows(checkpoint.settings), source.folder)
    return {"pretrained_model_name_or_path": None, "state_dict": slices}


def _take_apart(
    slices: Mapping[str, Any], split: Split, rows: Sequence[int], folder: Path
) -> dict[str, Any]:
    """Return the weights, split ones in parts. Raises CheckpointError for other rows."""
    by_name = dict[str, Any]()
    for name, weights in slices.items():
        if not re.search(split.pattern, name):
            by_name[name] = weights
            continue
        weight = weights[...]
        if weight.shape[:1] != (sum(rows),):
            raise CheckpointError(
                f"the checkpoint in {folder} has misshapen weights: {one_line(name)} of "
                f"{list(weight.shape)}, not of {' + '.join(map(str, rows))} rows"
            )
        for part, weight_part in zip(split.parts, weight.split(rows), strict=True):
            by_name[re.sub(split.pattern, part, name)] = weight_part
    return by_name


@torch.inference_mode()
def _reader(
    model: PreTrainedModel, device: torch.device, checkpoint: Checkpoint, config: EngineConfig
) -> TransformerReader:
    """Return a reader that applies the head only at the positions read, if the logits are
    just the head's output.

    Models that scale or cap their logits after the head are read through their whole
    forward pass, and models on several devices through transformers' and accelerate's.
    device: where a model goes that is quantized; until then it is in main memory.
    """
    (is_spread, home), quantizer = spread_over(model), Quantizer.of(config, device)
    device = home if is_spread or quantizer is None else device
    if not is_gpu(device):
        THREADS.fit(model.num_parameters())
    body, head, vocab_size = _parts(model, home)
    if isinstance(head, torch.nn.Linear) and not is_spread and OwnBody.covers(body):
        if quantizer:
            quantizer.refuse_few(linear_share(body, has_experts=True), type(body).__name__)
        width = max((_states(layer, body.config.hidden_size) for layer in body.layers), default=0)
        return _own_reader(decoder_parts(body, head, device), width, checkpoint, config)
    if quantizer:
        quantizer.modules(body, checkpoint.folder, device)
        model.to(device)
    part, output = (model, "logits") if head is None else (body, "last_hidden_state")
    whole = WholeBody(part, checkpoint.attention, output, device)
    head = torch.nn.Identity() if head is None else head
    to_logits = _on(device, head) if is_spread else into_float32(head)
    reader = TransformerReader(whole, to_logits, vocab_size, device, _layout(checkpoint))
    if not (quantizer or is_spread or checkpoint.is_gguf):
        reader.weights = LoadedWeights.of(model, checkpoint.family.renamed)
    return reader


def _states(layer: torch.nn.Module, hidden: int) -> int:
    """Return how many numbers a pass holds for each token in a layer."""
    linear = [module for module in layer.modules() if isinstance(module, torch.nn.Linear)]
    numbers = RESIDUALS * hidden + sum(module.out_features for module in linear)
    mlp = getattr(layer, "mlp", None)
    if mlp is not None and hasattr(mlp, "experts"):
        # States in and out; and gate, up, their product, or what is weighted in float32 and sorted.
        widest = max(3 * mlp.experts.intermediate_dim, 4 * hidden)
        numbers += int(mlp.gate.top_k * (2 * hidden + widest))
    return numbers


def _on(device: torch.device, head: torch.nn.Module) -> Callable[[Tensor], Tensor]:
    """Return the head with its logits on the device, which may not be its own."""
    return lambda states: head(states).to(device)


def _parts(
    model: PreTrainedModel, device: torch.device
) -> tuple[PreTrainedModel, torch.nn.Module | None, int]:
    """Return a model's body, its head, and how many logits there are; None for the head
    where the logits are not just what the head makes of the body's states.
    """
    body, probe = model.base_model, torch.tensor([PROBE], device=device)
    logits = model(probe, use_cache=False).logits
    states = body(probe, use_cache=False).last_hidden_state
    heads = (model.get_output_embeddings(), head_beside(model))
    made = (head for head in heads if head is not None and makes_logits(head, states, logits))
    return body, next(made, None), logits.shape[-1]


@torch.inference_mode()
def stored_reader(
    stored: StoredDecoder, checkpoint: Checkpoint, config: EngineConfig
) -> TransformerReader:
    """Return a reader of a decoder with our forward pass. Raises what its `read` raises."""
    if not is_gpu(stored.device):
        THREADS.fit(sum(map(math.prod, stored.shapes.values())))
    return _own_reader(stored.parts(), stored.states_per_token, checkpoint, config)


def _own_reader(
    parts: DecoderParts, width: int, checkpoint: Checkpoint, config: EngineConfig
) -> TransformerReader:
    """Return a reader with our forward pass. width: numbers that it holds for a token."""
    quantizer = Quantizer.of(config, parts.norm.device)
    places: WeightPlaces = {}
    parts, head, vocab_size = _with_head(parts, places, is_int8=quantizer is not None)
    attention, example, room = checkpoint.attention, parts.norm, None
    body = OwnBody(parts, attention, quantizer.linear if quantizer else linear)
    give_back_freed_memory()
    working = pass_bytes(width, vocab_size, config, example)
    free = free_bytes(example.device)
    tokens, prefix = cache_tokens(config, attention, body.cache_shape, example, working, free)
    if tokens or prefix:
        options = (example.device, example.dtype, prefix, whole_blocks(attention))
        room = KVCache(body.cache_shape, tokens, *options)
    layout = _layout(checkpoint, room)
    reader = TransformerReader(body, into_float32(head), vocab_size, example.device, layout)
    if not (quantizer or checkpoint.is_gguf):
        places |= body.places
        reader.weights = LoadedWeights(places, room, checkpoint.family.renamed)
    return reader


def _with_head(
    parts: DecoderParts, places: WeightPlaces, is_int8: bool
) -> tuple[DecoderParts, torch.nn.Module, int]:
    """Return the parts with the embedding that the body takes, the head, and how many
    logits it has; one is the other where they are tied and int8. places: gets theirs.
    """
    words = parts.embedding
    assert isinstance(words, torch.Tensor)
    if not is_int8:
        weight, bias = (words, None) if parts.head is None else parts.head()
        weights = {"lm_head.weight": weight}
        if bias is not None:
            weights["lm_head.bias"] = bias
        head = built(linear, weights, places, "lm_head")
        places["model.embed_tokens.weight"] = [words]
        if parts.head is None:
            places["model.embed_tokens.weight"] += places["lm_head.weight"]
            places["lm_head.weight"] = places["model.embed_tokens.weight"]
        return parts, head, len(words)
    head = table = Int8Linear([words], dtype=parts.norm.dtype)
    if parts.head is not None:
        weight, bias = parts.head()
        head = int8_linear([weight], bias)
    return replace(parts, embedding=table), head, len(words)


def _layout(checkpoint: Checkpoint, room: KVCache | None = None) -> Layout:
    return Layout(checkpoint.attention, checkpoint.family.answers_for, room, checkpoint.mask_id)
