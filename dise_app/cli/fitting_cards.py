"""dise models --memory NAME: how much memory a model takes, and which card it fits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dise_core import EngineConfig

if TYPE_CHECKING:
    from dise_adapters.families.family import Checkpoint

BITS = {"float32": 32.0, "bfloat16": 16.0, "int8": 8.0, "int4": 4.5}
"""The memory of a weight: in int4, 32 weights share a scale of 16 bits."""

CARDS = (4, 6, 8, 12, 16, 24, 32, 40, 48, 80, 96, 141)
"""The memory of GPUs that are sold, in GiB."""

OVERHEAD = 0.6
"""What a GPU's libraries take beside the model, in GiB."""

SHORT_PASS = 2048
"""The tokens of a forward pass that most models can do with: one long text."""

GIB = 2**30

CardRow = dict[str, str | float | None]


def show_memory(model: str, as_json: bool) -> None:
    """Print what each type of weights takes. Raises InputError without a config.json."""
    rows, free = _rows(_checkpoint(model)), _free_memory()
    if not as_json:
        return _print(model, rows, free)
    print(json.dumps({"model": model, "memory": rows, "free": free}))


def _checkpoint(model: str) -> Checkpoint:
    from dise_adapters.checkpoint.hub import CONFIG, gguf_path, is_gguf, model_folder, read_config
    from dise_adapters.embedded import EmbeddedPredictor
    from dise_adapters.families.family import Checkpoint
    from dise_adapters.predictor import CheckpointPredictor
    from dise_core import InputError
    from dise_core.plugins.discovery import installed_catalog

    adapter = installed_catalog().adapter(model).load()
    if not issubclass(adapter, CheckpointPredictor) or (
        is_gguf(model) and adapter.family.takes_gguf
    ):
        raise InputError(f"the adapter of {model!r} cannot say how much memory it takes", "model")
    file = gguf_path(model) if is_gguf(model) else None
    if file is not None:
        folder = file.parent
    elif issubclass(adapter, EmbeddedPredictor):
        folder = adapter.folder()
    else:
        folder = model_folder(model, None, CONFIG)
    settings = adapter.family.settings(read_config(str(file or folder)) or {}, model)
    return Checkpoint(adapter.family, folder, settings, None if file is None else file.name)


def _rows(checkpoint: Checkpoint) -> list[CardRow]:
    """Return the GiB of weights, cache and a pass for each type of weights, and the smallest cards
    that hold the weights with one text, and all of it; None for more than the largest.
    """
    num_linear, num_in_tables, num_others, num_cached, num_states = _counts(checkpoint)
    rows = list[CardRow]()
    for name, bits in BITS.items():
        if bits < 16 and not num_linear:  # quantization does not cover the model
            continue
        size = (4 if name == "float32" else 2) / GIB
        table = 1 / GIB if bits < 16 else size
        weights = num_linear * bits / 8 / GIB + num_in_tables * table + num_others * size
        cache, token = num_cached * size, num_states * size
        forward = EngineConfig().max_batch_tokens * token
        sizes = {"weights_gib": weights, "cache_gib": cache, "pass_gib": forward}
        row: CardRow = {"weights": name, **{part: round(gib, 2) for part, gib in sizes.items()}}
        row["least_card"] = _card(weights + SHORT_PASS * token)
        rows.append(row | {"card_for_all": _card(weights + cache + forward)})
    return rows


def _counts(checkpoint: Checkpoint) -> tuple[int, int, int, int, int]:
    """Return the numbers in linear weights, in an embedding and a head that quantization makes
    int8, in others, of cached keys and values, of a token's states.
    """
    from torch import nn

    from dise_adapters.local.decoder.own import OwnBody
    from dise_adapters.local.loading.planning import default_tokens, states_per_token
    from dise_adapters.local.loading.quantization import LEAST_SHARE, linear_share, linear_weights
    from dise_adapters.local.loading.quiet import quiet
    from dise_adapters.local.loading.weighing import without_memory

    with quiet():
        model: Any = without_memory(checkpoint)
    body = model.base_model
    is_own = OwnBody.covers(body)
    layers: list[Any]
    layers = next((list(part) for part in body.modules() if isinstance(part, nn.ModuleList)), [])
    keys = sum(layer.self_attn.k_proj.out_features for layer in layers if is_own)
    num_kept = sum(default_tokens(checkpoint.family.attention)) * 2 * keys
    can_shrink = linear_share(body, is_own) >= LEAST_SHARE
    num_linear = linear_weights(body, is_own) if can_shrink else 0
    ends = (model.get_input_embeddings(), model.get_output_embeddings()) if is_own else ()
    num_in_tables = sum(weight.numel() for weight in {end.weight for end in ends})
    num_weights = sum(weight.numel() for weight in model.parameters())
    num_others = num_weights - num_linear - num_in_tables
    num_states = states_per_token(layers, model.config.hidden_size)
    return num_linear, num_in_tables, num_others, num_kept, num_states


def _card(size: float) -> int | None:
    return next((card for card in CARDS if size + OVERHEAD <= card), None)


def _free_memory() -> dict[str, float]:
    import torch

    from dise_adapters.local.devices import free_bytes

    names = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    sizes = {name: free_bytes(torch.device(name)) for name in names}
    return {name: round(size / GIB, 2) for name, size in sizes.items() if size is not None}


def _print(model: str, rows: list[CardRow], free: dict[str, float]) -> None:
    from rich.console import Console
    from rich.table import Table

    tokens, console = EngineConfig().max_batch_tokens, Console()
    heads = ("keys and values kept", f"pass of {tokens:,} tokens")
    table = Table(
        "weights", "GiB", *heads, "one text fits", "all fits", title=f"Memory of {model}, in GiB",
        box=None, pad_edge=False, title_justify="left",
    )  # fmt: skip
    for name, *sizes, least, whole in (row.values() for row in rows):
        cards = ("several cards" if card is None else f"{card} GB" for card in (least, whole))
        table.add_row(str(name), *(f"{size:.2f}" for size in sizes), *cards)
    console.print(table)
    listed = ", ".join(f"{name} {size:.1f} GiB" for name, size in free.items())
    console.print(f"Free on this machine: {listed or 'unknown'}")
    if len(rows) < len(BITS):
        console.print("Its decoder is not of linear layers, which alone --quantization covers.")
