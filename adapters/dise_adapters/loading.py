"""Loads weights into transformers' own Llama, and refuses checkpoints that do not fit it exactly."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils import logging as transformers_logging

from dise_adapters.reader import TransformerReader
from dise_core.errors import CheckpointError, InputError, ModelError
from dise_core.params import EngineConfig


def load_llama(
    folder: Path, fields: Mapping[str, Any], key_mapping: Mapping[str, str], config: EngineConfig
) -> TransformerReader:
    """Return a reader of the safetensors checkpoint in `folder` as a Llama of these configuration fields.

    key_mapping: patterns of the checkpoint's weight names to Llama's. Raises CheckpointError for missing, extra or
    misshapen weights, InputError for a device or dtype that this machine lacks.
    """
    device = choose_device(config.device)
    dtype = choose_dtype(config.dtype, device)
    if not list(folder.glob("*.safetensors")):
        raise CheckpointError(f"{folder} holds no weights in safetensors (*.safetensors)")
    with _quiet():
        try:
            loaded: Any = LlamaForCausalLM.from_pretrained(
                folder,
                config=LlamaConfig(**fields),
                key_mapping=dict(key_mapping),
                dtype=dtype,
                attn_implementation=config.attn_implementation,
                use_safetensors=True,
                local_files_only=True,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
        except (OSError, ValueError, ImportError, RuntimeError, SafetensorError) as error:
            raise ModelError(f"cannot load {folder}: {' '.join(str(error).split())}") from error
    model, report = loaded
    _refuse_misfits(folder, report)
    model = model.to(device).eval()

    def body(input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        states: Tensor = model.model(input_ids, attention_mask=attention_mask, use_cache=False).last_hidden_state
        return states

    return TransformerReader(body, model.lm_head, device)


def choose_device(name: str) -> torch.device:
    """Return the device of that name; "auto" is a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {name!r} cannot be used: {str(error).splitlines()[0]}", "device") from error
    return device


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """Return the torch dtype of that name; "auto" is bfloat16 on a GPU and float32 elsewhere."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[name]


def _refuse_misfits(folder: Path, report: Mapping[str, Iterable[Any]]) -> None:
    for kind, verb in (
        ("missing_keys", "lacks"),
        ("unexpected_keys", "has extra"),
        ("mismatched_keys", "has misshapen"),
    ):
        names = sorted(name if isinstance(name, str) else str(name[0]) for name in report[kind])
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise CheckpointError(f"the checkpoint in {folder} {verb} weights: {', '.join(names[:3])}{more}")


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers' own report of the weights off the screen: ours says it in one line."""
    log: Any = transformers_logging
    level = log.get_verbosity()
    log.set_verbosity(logging.CRITICAL)
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(level)
        log.enable_progress_bar()
