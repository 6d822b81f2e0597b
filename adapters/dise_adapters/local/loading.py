"""Loads weights into transformers' own models; refuses checkpoints that do not fit exactly."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from transformers.utils import logging as transformers_logging

from dise_adapters.checkpoint.files import one_line
from dise_adapters.local.body import Body, OwnBody, WholeBody, check_implementation
from dise_adapters.local.dense import DenseModel, load_dense
from dise_adapters.local.implementation import implementation_of
from dise_adapters.local.kv_cache import KVCache
from dise_adapters.local.linear import linear
from dise_adapters.local.reader import TransformerReader
from dise_adapters.local.splitting import taken_apart
from dise_adapters.local.threads import THREADS
from dise_adapters.local.weighing import refuse_not_finite, weigh
from dise_core.errors import CheckpointError, InputError, ModelError
from dise_core.params import EngineConfig
from dise_core.records import Record

if TYPE_CHECKING:
    from dise_adapters.families.family import Checkpoint

PROBE = (0, 1, 2, 3)
"""Token ids on which body-then-head logits are compared with the whole model's."""


def load_reader(checkpoint: Checkpoint, config: EngineConfig) -> TransformerReader:
    """Return a reader of a checkpoint's safetensors, or of its GGUF file.

    Raises CheckpointError for missing, extra or misshapen weights, InputError for a device that
    cannot be used, ModelError if loading fails otherwise.
    """
    device = choose_device(config.device)
    dtype = choose_dtype(config.dtype, device)
    folder, family = checkpoint.folder, checkpoint.family
    if "/" in config.attn_implementation:  # transformers would fetch such a kernel and run it
        raise InputError(
            f"attn_implementation={config.attn_implementation!r:.80}: code from the hub never "
            'runs; take one that is installed, such as "sdpa" or "flash_attention_2"',
            "attn_implementation",
        )
    check_implementation(config.attn_implementation, checkpoint.attention)
    if config.attn_implementation == "sdpa":
        dense = load_dense(checkpoint, device, dtype)
        if dense is not None:
            refuse_not_finite(folder, dense)
            return _dense_reader(dense, device, dtype, checkpoint, config.max_cache_tokens)
    with quiet():
        try:
            weigh(checkpoint)
            model, report = getattr(transformers, family.model_class).from_pretrained(
                **_options(checkpoint),
                dtype=dtype,
                attn_implementation=implementation_of(checkpoint, config.attn_implementation),
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
    _refuse_misfits(folder, report, family.unused)
    refuse_not_finite(folder, model)
    return _reader(model.to(device).eval(), device, checkpoint, config.max_cache_tokens)


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
    if family.key_mapping:
        options["key_mapping"] = dict(family.key_mapping)
    if checkpoint.gguf_file is not None:
        options["gguf_file"] = checkpoint.gguf_file
    return options


@torch.inference_mode()
def _reader(
    model: Any, device: torch.device, checkpoint: Checkpoint, max_cache_tokens: int
) -> TransformerReader:
    """Return a reader that applies the head only at the positions read, if the logits are just the
    head's output.

    Models that scale or cap their logits after the head are read through their whole forward pass.
    """
    if device.type == "cpu":
        THREADS.fit(model.num_parameters())
    family, attention = checkpoint.family, checkpoint.attention
    body, head = model.base_model, model.get_output_embeddings()
    if family.head:
        head = torch.nn.Sequential(*(getattr(model, name) for name in family.head))
    probe = torch.tensor([PROBE], device=device)
    logits = model(probe, use_cache=False).logits
    own: Body
    if head is None or not torch.equal(
        head(body(probe, use_cache=False).last_hidden_state), logits
    ):
        own, head = WholeBody(model, attention, "logits"), torch.nn.Identity()
    elif OwnBody.covers(body):
        own, head = OwnBody(body, attention), linear(head)
    else:
        own = WholeBody(body, attention)
    shape = own.cache_shape
    room = None if shape is None else KVCache(shape, max_cache_tokens, device, model.dtype)
    kind = (family.answers_for, attention, room, checkpoint.mask_id)
    return TransformerReader(own, head, logits.shape[-1], device, *kind)


@torch.inference_mode()
def _dense_reader(
    model: DenseModel,
    device: torch.device,
    dtype: torch.dtype,
    checkpoint: Checkpoint,
    max_cache_tokens: int,
) -> TransformerReader:
    """Return a reader of a dense decoder."""
    if device.type == "cpu":
        THREADS.fit(sum(weight.numel() for weight in model.parameters()))
    body = OwnBody(model.model, checkpoint.attention)
    shape, num_logits = body.cache_shape, model.lm_head.out_features
    room = None if shape is None else KVCache(shape, max_cache_tokens, device, dtype)
    kind = (checkpoint.family.answers_for, checkpoint.attention, room, checkpoint.mask_id)
    return TransformerReader(body, linear(model.lm_head), num_logits, device, *kind)


def choose_device(name: str) -> torch.device:
    """Return the device of that name; "auto" is a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(
            f"device {name!r} cannot be used: {str(error).splitlines()[0]}", "device"
        ) from error
    return device


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """Return the torch dtype of that name; "auto" is bfloat16 on a GPU and float32 elsewhere."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[name]


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


@contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers' own report on the weights: our errors say it in one line."""
    log: Any = transformers_logging
    level = log.get_verbosity()
    log.set_verbosity(logging.CRITICAL)
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(level)
        log.enable_progress_bar()
