"""Loads weights into transformers' own models; refuses checkpoints that do not fit exactly."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers

from dise_adapters.checkpoint.files import one_line
from dise_adapters.local.body import Body, OwnBody, WholeBody, check_implementation
from dise_adapters.local.dense import Dense, load_dense
from dise_adapters.local.devices import choose_device, choose_dtype, is_gpu
from dise_adapters.local.implementation import implementation_of
from dise_adapters.local.kv_cache import KVCache
from dise_adapters.local.linear import linear
from dise_adapters.local.placing import OnDevice, placing, spread_over
from dise_adapters.local.planning import cache_tokens, pass_bytes, states_per_token
from dise_adapters.local.quantization import Quantizer, linear_share
from dise_adapters.local.quiet import quiet, quiet_gguf
from dise_adapters.local.reader import TransformerReader
from dise_adapters.local.splitting import taken_apart
from dise_adapters.local.threads import THREADS
from dise_adapters.local.weighing import refuse_not_finite, weigh
from dise_core.errors import CheckpointError, InputError, ModelError
from dise_core.model import Attention
from dise_core.params import EngineConfig
from dise_core.records import Record

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from dise_adapters.families.family import Checkpoint, Family

PROBE = (0, 1, 2, 3)
"""Token ids on which body-then-head logits are compared with the whole model's."""


def load_reader(checkpoint: Checkpoint, config: EngineConfig) -> TransformerReader:
    """Return a reader of a checkpoint's safetensors, or of its GGUF file.

    Raises CheckpointError for missing, extra or misshapen weights, InputError for a device that
    cannot be used and for options that do not fit it, ModelError if loading fails otherwise.
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
    quantizer = Quantizer(config.quantization, device, dtype) if config.quantization else None
    if config.attn_implementation == "sdpa" and config.device_map is None:
        dense = load_dense(checkpoint, device, dtype)
        if dense is not None:
            return _dense_reader(dense, torch.empty(0, device=device, dtype=dtype), checkpoint,
                                 config, quantizer)  # fmt: skip
    model = _from_pretrained(checkpoint, config, device, dtype)
    return _reader(model, device, checkpoint, config, quantizer)


def _from_pretrained(
    checkpoint: Checkpoint, config: EngineConfig, device: torch.device, dtype: torch.dtype
) -> PreTrainedModel:
    """Return transformers' model with its weights, on the device or spread by a device map."""
    folder, placement = checkpoint.folder, placing(config, device)
    with quiet(), quiet_gguf():
        try:
            options = _options(checkpoint)  # imports transformers' models
            weigh(checkpoint)
            kind = getattr(transformers, checkpoint.family.model_class)
            attention = implementation_of(kind, options["config"], config.attn_implementation)
            model, report = kind.from_pretrained(
                **options,
                **placement.options,
                dtype=dtype,
                attn_implementation=attention,
                use_safetensors=True,
                local_files_only=True,
                trust_remote_code=False,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
        except CheckpointError:
            raise
        except Exception as error:
            raise ModelError(f"cannot load {folder}: {one_line(error)}") from error
    _refuse_misfits(folder, report, checkpoint.family.unused)
    refuse_not_finite(folder, model)
    return placement.placed(model).eval()


def _options(checkpoint: Checkpoint) -> Record:
    """Return the checkpoint's own arguments for from_pretrained."""
    family = checkpoint.family
    is_whole = family.split is None
    options: Record = {"pretrained_model_name_or_path": checkpoint.folder if is_whole else None}
    if family.split is not None:
        options["state_dict"] = taken_apart(checkpoint.folder, family.split, checkpoint.settings)
    if checkpoint.settings is not None:
        config_class = getattr(transformers, family.model_class).config_class
        options["config"] = config_class(**checkpoint.settings)
    else:
        options["gguf_file"] = checkpoint.gguf_file
        options["config"] = transformers.AutoConfig.from_pretrained(
            checkpoint.folder,
            gguf_file=checkpoint.gguf_file,
            local_files_only=True,
            trust_remote_code=False,
        )
    if family.key_mapping:
        options["key_mapping"] = dict(family.key_mapping)
    return options


@torch.inference_mode()
def _reader(
    model: PreTrainedModel,
    device: torch.device,
    checkpoint: Checkpoint,
    config: EngineConfig,
    quantizer: Quantizer | None,
) -> TransformerReader:
    """Return a reader that applies the head only at the positions read, if the logits are just the
    head's output.

    Models that scale or cap their logits after the head are read through their whole forward pass,
    and models on several devices through transformers' and accelerate's. device: where a model goes
    that is quantized; until then it is in main memory.
    """
    is_spread, home = spread_over(model)
    device = home if is_spread or quantizer is None else device
    if not is_gpu(device):
        THREADS.fit(model.num_parameters())
    body, head, vocab_size = _parts(model, checkpoint.family, home)
    attention, width = checkpoint.attention, 0
    own: Body
    if isinstance(head, torch.nn.Linear) and not is_spread and OwnBody.covers(body):
        width = states_per_token(body.layers, body.config.hidden_size)
        own, head = _own_body(body, attention, device, quantizer), linear(head.to(device))
    else:
        if quantizer:
            quantizer.modules(body, checkpoint.folder, device)
            model.to(device)
        part, output = (model, "logits") if head is None else (body, "last_hidden_state")
        own = WholeBody(part, attention, output, device)
        head = torch.nn.Identity() if head is None else OnDevice(head, device)
    kind = torch.empty(0, device=device, dtype=model.dtype)
    room = _room(own, width, vocab_size, config, kind)
    return _finished(own, head, vocab_size, checkpoint, room, device)


def _parts(
    model: PreTrainedModel, family: Family, device: torch.device
) -> tuple[PreTrainedModel, torch.nn.Module | None, int]:
    """Return a model's body, its head, and how many logits there are; None for the head where the
    logits are not just what the head makes of the body's states.
    """
    body, head = model.base_model, model.get_output_embeddings()
    if family.head:
        head = torch.nn.Sequential(*(getattr(model, name) for name in family.head))
    probe = torch.tensor([PROBE], device=device)
    logits = model(probe, use_cache=False).logits
    if head is not None:
        found = head(body(probe, use_cache=False).last_hidden_state).to(device)
        head = head if torch.equal(found, logits) else None
    return body, head, logits.shape[-1]


def _own_body(
    body: PreTrainedModel, attention: Attention, device: torch.device, quantizer: Quantizer | None
) -> OwnBody:
    """Return our forward pass of a body, quantized layer by layer on its way to the device."""
    if quantizer is None:
        return OwnBody(body, attention)
    quantizer.refuse_few(linear_share(body, has_experts=True), type(body).__name__)
    for part in (body.embed_tokens, body.norm, body.rotary_emb):
        part.to(device)
    return OwnBody(body, attention, quantizer.linear, lambda layer: layer.to(device))


@torch.inference_mode()
def _dense_reader(
    dense: Dense,
    kind: torch.Tensor,
    checkpoint: Checkpoint,
    config: EngineConfig,
    quantizer: Quantizer | None,
) -> TransformerReader:
    """Return a reader of a dense decoder, which is loaded here. kind: any tensor of its type on its
    device.
    """
    model = dense.model
    if not is_gpu(kind.device):
        THREADS.fit(sum(weight.numel() for weight in model.parameters()))
    num_logits, hidden = model.lm_head.out_features, model.lm_head.in_features
    width = states_per_token(model.model.layers, hidden)
    head = linear(dense.head())
    del model.lm_head  # on a CPU its weights have been packed, and need not be there twice
    join = quantizer.linear if quantizer else linear
    body = OwnBody(dense.body(), checkpoint.attention, join, dense.layer)
    room = _room(body, width, num_logits, config, kind)
    return _finished(body, head, num_logits, checkpoint, room, kind.device)


def _finished(
    body: Body,
    head: torch.nn.Module,
    num_logits: int,
    checkpoint: Checkpoint,
    room: KVCache | None,
    device: torch.device,
) -> TransformerReader:
    kind = (checkpoint.family.answers_for, checkpoint.attention, room, checkpoint.mask_id)
    return TransformerReader(body, head, num_logits, device, *kind)


def _room(
    body: Body, width: int, vocab_size: int, config: EngineConfig, kind: torch.Tensor
) -> KVCache | None:
    """Return the KV cache of a loaded body. width: numbers that a pass holds for each token. kind:
    any tensor of the cache's type on its device.
    """
    if body.cache_shape is None:
        return None
    working = pass_bytes(width, vocab_size, config, kind)
    tokens = cache_tokens(config, body.cache_shape, kind, working)
    return KVCache(body.cache_shape, tokens, kind.device, kind.dtype)


def _refuse_misfits(folder: Path, report: Mapping[str, Iterable[Any]], unused: str | None) -> None:
    for kind, verb in (
        ("missing_keys", "lacks"),
        ("unexpected_keys", "has extra"),
        ("mismatched_keys", "has misshapen"),
    ):
        names = sorted(name if isinstance(name, str) else str(name[0]) for name in report[kind])
        if unused is not None and kind == "unexpected_keys":
            names = [name for name in names if not re.search(unused, name)]
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise CheckpointError(
                f"the checkpoint in {folder} {verb} weights: {one_line(', '.join(names[:3]))}{more}"
            )
