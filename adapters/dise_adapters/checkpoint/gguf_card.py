"""What a GGUF file says of itself: its card."""

import math
from collections import Counter
from pathlib import Path

from dise_adapters.checkpoint.files import refused
from dise_adapters.checkpoint.gguf import GgufFile
from dise_core.records import Record

CARD = {
    "name": "general.name",
    "by": "general.author",
    "from": "general.source.url",
    "license": "general.license",
    "architecture": "general.architecture",
    "layers": "{}.block_count",
    "hidden size": "{}.embedding_length",
    "context": "{}.context_length",
    "mask token": "tokenizer.ggml.mask_token_id",
    "end token": "tokenizer.ggml.eos_token_id",
}
"""What a file's card says, and where it stands in the file, {} being the architecture."""


def gguf_card(path: Path) -> Record:
    """Return what a file says of itself, whatever its model: what is known of its name,
    sizes, tokens and origin. Raises CheckpointError for one that cannot be right.
    """
    file, sizes = GgufFile.at(path), Counter[str]()
    metadata = file.metadata
    with refused(f"cannot load {path}"):
        for _, shape, kind, _ in file.listed:
            sizes[_kind_name(kind)] += math.prod(shape)
    name, tokens = metadata.get("general.architecture"), metadata.get("tokenizer.ggml.tokens", [])
    facts = {word: metadata.get(key.format(name)) for word, key in CARD.items()}
    for word in ("mask token", "end token"):
        if isinstance(place := facts[word], int) and place < len(tokens):
            facts[word] = f"{place} ({tokens[place]})"
    total = sum(sizes.values())
    shares = (f"{kind} {count / total:.0%}" for kind, count in sizes.most_common())
    facts |= {
        "parameters": total,
        "weights": ", ".join(shares),
        "file": f"{file.size / 2**20:,.1f} MiB",
        "vocabulary": len(tokens) or None,
        "chat template": "yes" if "tokenizer.chat_template" in metadata else "no",
    }
    return {word: fact for word, fact in facts.items() if fact is not None}


def _kind_name(kind: int) -> str:
    """Return gguf's name of a type of weights, where the package is there."""
    try:
        from gguf import GGMLQuantizationType
    except ImportError:
        return f"type {kind}"
    return GGMLQuantizationType(kind).name
