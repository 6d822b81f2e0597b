"""Writes tiny checkpoints of random weights: python -m dise_noise_models FOLDER."""

import json
import re
import sys
from pathlib import Path
from string import ascii_lowercase

import torch
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from dise_noise_models.network import Network

TINY: dict[str, dict[str, object]] = {
    "mdlm": {"architectures": ["MDLM"], "time_conditioning": False},
    "mdlm-time": {"architectures": ["MDLM"], "time_conditioning": True},
    "sedd": {"architectures": ["SEDD"], "graph": "absorb"},
    "sedd-uniform": {"architectures": ["SEDD"], "graph": "uniform"},
    "bd3lm": {"architectures": ["BD3LM"]},
}


def write(folder: Path, name: str) -> Path:
    """Return the folder of a checkpoint of one token per letter."""
    path, more = folder / name, ["<end>"] if name == "sedd-uniform" else ["<end>", "<mask>"]
    tokens = [*ascii_lowercase, *more]
    path.mkdir(parents=True)
    tokenizer = Tokenizer(models.WordLevel({token: i for i, token in enumerate(tokens)}, "<end>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(more)
    tokenizer.save(str(path / "tokenizer.json"))
    sizes = {"vocab_size": len(tokens), "max_position_embeddings": 64}
    special = {"eos_token_id": 26, "mask_token_id": 27 if "<mask>" in more else None}
    (path / "config.json").write_text(json.dumps({**sizes, **special, **TINY[name]}))
    torch.manual_seed(0)
    weights = Network(len(tokens)).state_dict()
    louder = {name: 3 if re.search("modulation|qkv|out", name) else 1 for name in weights}
    save_file(
        {name: louder[name] * weight for name, weight in weights.items()},
        path / "model.safetensors",
    )
    return path


if __name__ == "__main__":
    for each in TINY:
        print(write(Path(sys.argv[1]), each))
