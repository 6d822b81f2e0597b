"""dise models --memory NAME: how much memory a model takes, and which card it fits."""

from __future__ import annotations

import json

from dise_core.needs import BITS, CACHE_TOKENS, OVERHEAD, Needs
from dise_core.params import EngineConfig
from dise_core.records import Record

CARDS = (4, 6, 8, 12, 16, 24, 32, 40, 48, 80, 96, 141)
"""The memory of GPUs that are sold, in GiB."""

SHORT_PASS = 2048
"""The tokens of a forward pass that most models can do with: one long text."""

GIB = 2**30


def show_memory(model: str, as_json: bool) -> None:
    """Print what each type of weights takes. Raises InputError for an unknown model, and for one
    whose adapter cannot say.
    """
    from dise_core.errors import InputError
    from dise_core.plugins import installed_catalog

    found = installed_catalog().adapter(model).cls.needs(model)
    if found is None:
        raise InputError(f"the adapter of {model!r} cannot say how much memory it takes", "model")
    rows = [row_of(found, kind) for kind in BITS if BITS[kind] >= 16 or found.quantizable]
    free = free_memory()
    if as_json:
        print(json.dumps({"model": model, "memory": rows, "free": free}))
    else:
        _print(model, rows, free)


def row_of(needs: Needs, kind: str) -> Record:
    """Return one type's figures: GiB for weights, cache and a pass, and the smallest cards that
    hold the weights with one text, and all of it; None for more than the largest.
    """
    tokens = EngineConfig().max_batch_tokens
    weights, cache, forward = (
        needs.weights(kind), needs.cache(kind), needs.forward(kind, tokens))  # fmt: skip
    least = weights + needs.forward(kind, SHORT_PASS)
    return {
        "weights": kind,
        "weights_gib": round(weights / GIB, 2),
        "cache_gib": round(cache / GIB, 2),
        "pass_gib": round(forward / GIB, 2),
        "least_card": _card(least),
        "card_for_all": _card(weights + cache + forward),
    }


def _card(size: float) -> int | None:
    """Return the smallest card that holds so many bytes beside a GPU's libraries."""
    return next((card for card in CARDS if size + OVERHEAD <= card * GIB), None)


def free_memory() -> dict[str, float]:
    """Return the GiB that this machine's devices have free, by their names."""
    import torch

    from dise_adapters.local.devices import free_bytes

    names = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    found = {name: free_bytes(torch.device(name)) for name in names}
    return {name: round(free / GIB, 2) for name, free in found.items() if free is not None}


def _print(model: str, rows: list[Record], free: dict[str, float]) -> None:
    from rich.console import Console
    from rich.table import Table

    tokens, console = EngineConfig().max_batch_tokens, Console()
    heads = (f"cache of {CACHE_TOKENS:,} tokens", f"pass of {tokens:,} tokens")
    table = Table(
        "weights", "GiB", *heads, "one text fits", "all fits", title=f"Memory of {model}, in GiB",
        box=None, pad_edge=False, title_justify="left",
    )  # fmt: skip
    for row in rows:
        sizes = (f"{row[name]:.2f}" for name in ("weights_gib", "cache_gib", "pass_gib"))
        cards = (_named(row[name]) for name in ("least_card", "card_for_all"))
        table.add_row(str(row["weights"]), *sizes, *cards)
    console.print(table)
    said = ", ".join(f"{name} {size:.1f} GiB" for name, size in free.items())
    console.print(f"Free on this machine: {said or 'unknown'}")
    if len(rows) < len(BITS):
        console.print("Its decoder is not of linear layers, which alone --quantization covers.")


def _named(card: object) -> str:
    return "several cards" if card is None else f"{card} GB"
