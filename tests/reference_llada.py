"""An independent LLaDA in plain torch, and the published decoding loop written naively. Only tests
use it.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional

END_BY_NAME = 48
"""<|endoftext|> in the tokenizer, an end token whatever the configuration names."""


def default_config(**changes: object) -> dict[str, object]:
    """Return a config.json in LLaDA's format for a tiny model."""
    config: dict[str, object] = {
        "architectures": ["LLaDAModelLM"],
        "model_type": "llada",
        "block_type": "llama",
        "activation_type": "silu",
        "layer_norm_type": "rms",
        "d_model": 64,
        "n_layers": 2,
        "n_heads": 2,
        "n_kv_heads": 2,
        "mlp_hidden_size": 96,
        "vocab_size": 50,
        "embedding_size": 52,
        "max_sequence_length": 96,
        "rope": True,
        "rope_theta": 500000.0,
        "rms_norm_eps": 1e-5,
        "weight_tying": False,
        "include_bias": False,
        "include_qkv_bias": False,
        "alibi": False,
        "attention_layer_norm": False,
        "scale_logits": False,
        "input_emb_norm": False,
        "mask_token_id": 49,
        "eos_token_id": 48,
        "pad_token_id": 48,
    }
    return config | changes


def random_weights(
    config: dict[str, object], gain: float = 1.6, seed: int = 0
) -> dict[str, Tensor]:
    """Return weights under LLaDA's official names; a large gain makes every position look unlike
    the others.
    """
    generator = torch.Generator().manual_seed(seed)
    d, hidden, rows = (
        int(str(config[key])) for key in ("d_model", "mlp_hidden_size", "embedding_size")
    )
    heads, kv_heads = int(str(config["n_heads"])), int(str(config["n_kv_heads"]))
    kv = d // heads * kv_heads

    def matrix(out: int, into: int) -> Tensor:
        return torch.randn(out, into, generator=generator) * (gain / math.sqrt(into))

    def scale() -> Tensor:
        return 1 + 0.2 * torch.randn(d, generator=generator)

    weights = {
        "model.transformer.wte.weight": torch.randn(rows, d, generator=generator)
        / (8 if config["weight_tying"] else 1),
        "model.transformer.ln_f.weight": scale(),
        "model.transformer.ff_out.weight": matrix(rows, d),
    }
    shapes = {
        "q_proj": (d, d), "k_proj": (kv, d), "v_proj": (kv, d), "attn_out": (d, d),
        "ff_proj": (hidden, d), "up_proj": (hidden, d), "ff_out": (d, hidden),
    }  # fmt: skip
    for layer in range(int(str(config["n_layers"]))):
        prefix = f"model.transformer.blocks.{layer}"
        weights |= {f"{prefix}.{name}.weight": matrix(*shape) for name, shape in shapes.items()}
        weights |= {f"{prefix}.{name}.weight": scale() for name in ("attn_norm", "ff_norm")}
    return weights


def write_checkpoint(
    folder: Path, config: dict[str, object], weights: dict[str, Tensor], shards: int = 1
) -> Path:
    """Write a checkpoint in LLaDA's format, with a tokenizer of one character a token, in one or
    several shards.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder, int(str(config["vocab_size"])))
    names = sorted(weights)
    if shards == 1:
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        return folder
    index: dict[str, str] = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        part = {name: weights[name] for name in names[shard::shards]}
        save_file(part, folder / file, metadata={"format": "pt"})
        index |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": index})
    )
    return folder


def write_tokenizer(folder: Path, vocab_size: int) -> None:
    """Write a tokenizer of the letters a-z, space and special tokens; the last two ids are end and
    mask.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    letters = "abcdefghijklmnopqrstuvwxyz "
    names = [
        *letters,
        "<unk>",
        *(f"<{i}>" for i in range(vocab_size - len(letters) - 3)),
        "<|endoftext|>",
        "<|mdm_mask|>",
    ]
    tokenizer = Tokenizer(
        models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(["<unk>", "<|endoftext|>", "<|mdm_mask|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "<unk>",
        "mask_token": "<|mdm_mask|>",
    }
    settings |= {"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


Kept = dict[int, dict[str, Tensor]]
"""Keys, not rotated, and values by layer."""


class ReferenceLLaDA:
    """LLaDA's computation written out: one sequence at a time, all logits, nothing shared with the
    adapter.
    """

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float32) -> None:
        self.config = json.loads((folder / "config.json").read_text())
        self.weights: dict[str, Tensor] = {}
        for file in folder.glob("*.safetensors"):
            self.weights |= {name: tensor.to(dtype) for name, tensor in load_file(file).items()}

    def logits(
        self, ids: list[int], kept: Kept | None = None, window: tuple[int, int] | None = None
    ) -> Tensor:
        """Return float32 logits [N, rows] of one sequence, or of its window, whose keys and values
        replace those kept.
        """
        w, layers = self.weights, self.config["n_layers"]
        first, stop = window or (0, len(ids))
        kept = {} if kept is None else kept
        x = w["model.transformer.wte.weight"][torch.tensor(ids[first:stop])]
        for layer in range(layers):
            block = {
                name.split(".")[-2]: tensor
                for name, tensor in w.items()
                if name.startswith(f"model.transformer.blocks.{layer}.")
            }
            x = x + self._attention(
                self._norm(x, block["attn_norm"]), block, first, kept.setdefault(layer, {})
            )
            h = self._norm(x, block["ff_norm"])
            x = (
                x
                + (functional.silu(h @ block["ff_proj"].T) * (h @ block["up_proj"].T))
                @ block["ff_out"].T
            )
        head = "wte" if self.config["weight_tying"] else "ff_out"
        return (
            self._norm(x, w["model.transformer.ln_f.weight"])
            @ w[f"model.transformer.{head}.weight"].T
        )

    def _norm(self, x: Tensor, scale: Tensor) -> Tensor:
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + self.config["rms_norm_eps"]) * scale

    def _attention(
        self, x: Tensor, block: dict[str, Tensor], first: int, kept: dict[str, Tensor]
    ) -> Tensor:
        heads, kv_heads = (
            self.config["n_heads"],
            self.config.get("n_kv_heads") or self.config["n_heads"],
        )
        head_dim = x.shape[-1] // heads
        q, k, v = (x @ block[name].T for name in ("q_proj", "k_proj", "v_proj"))
        for name, fresh in (("k", k), ("v", v)):
            before = kept.get(name, fresh)
            kept[name] = torch.cat([before[:first], fresh, before[first + len(fresh) :]])
        k, v = kept["k"], kept["v"]
        mixed = []
        for head in range(heads):
            shared = head * kv_heads // heads
            q_h = self._rotate(q[:, head * head_dim : (head + 1) * head_dim], first)
            k_h = self._rotate(k[:, shared * head_dim : (shared + 1) * head_dim])
            v_h = v[:, shared * head_dim : (shared + 1) * head_dim]
            mixed.append(torch.softmax(q_h @ k_h.T / math.sqrt(head_dim), dim=-1) @ v_h)
        return torch.cat(mixed, dim=-1) @ block["attn_out"].T

    def _rotate(self, x: Tensor, first: int = 0) -> Tensor:
        half = x.shape[-1] // 2
        frequencies = self.config["rope_theta"] ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = torch.arange(first, first + len(x), dtype=torch.float64)[:, None] * frequencies
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        left, right = x[:, :half], x[:, half:]
        return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)


def naive_decode(
    model: ReferenceLLaDA,
    prompt: list[int],
    length: int,
    block_length: int,
    tokens_per_step: int | None = None,
    steps: int | None = None,
    cfg_scale: float = 0.0,
    cache: str = "none",
    logits_eos_inf: bool = False,
    confidence_eos_eot_inf: bool = False,
) -> list[int]:
    """Return prompt + response as LLaDA's published sampler writes it at temperature 0, in float64,
    one by one.

    cache: "prefix" or "dual", as Fast-dLLM's samplers. logits_eos_inf, confidence_eos_eot_inf: as
    LLaDA's.
    """
    end = model.config["eos_token_id"]
    ends = ([end] if logits_eos_inf else [], [end, END_BY_NAME] if confidence_eos_eot_inf else [])
    ids = prompt + [model.config["mask_token_id"]] * length
    num_blocks = math.ceil(length / block_length)
    for block in range(num_blocks):
        start = len(prompt) + block * block_length
        end = min(start + block_length, len(ids))
        if tokens_per_step is not None:
            quotas = even_quotas(end - start, tokens_per_step)
        else:
            assert steps is not None
            size, block_steps = end - start, steps // num_blocks
            quotas = [
                size // block_steps + (step < size % block_steps) for step in range(block_steps)
            ]
        naive_block(model, ids, (start, end), quotas, cache, {}, 0, len(prompt), cfg_scale, ends)
    return ids


def even_quotas(size: int, tokens_per_step: int) -> list[int]:
    """Return how many tokens each step commits."""
    return [min(tokens_per_step, size - done) for done in range(0, size, tokens_per_step)]


def naive_block(
    model: ReferenceLLaDA,
    ids: list[int],
    block: tuple[int, int],
    quotas: list[int],
    cache: str,
    kept: Kept,
    first: int,
    prompt_length: int = 0,
    cfg_scale: float = 0.0,
    ends: tuple[list[int], list[int]] = ([], []),
) -> None:
    """Fill a block in place. `first`: what the block's first pass runs from; before it all comes
    from `kept`.

    ends: tokens whose logits are -inf, and those whose logits are -inf once the candidates are
    chosen.
    """
    mask, (start, end) = model.config["mask_token_id"], block
    for step, quota in enumerate(quotas):
        window = (start, len(ids) if cache == "prefix" else end)
        if cache == "none" or step == 0:
            window = (first, len(ids))
        logits = torch.full(
            (len(ids), model.config["embedding_size"]), -math.inf, dtype=torch.float64
        )
        logits[window[0] : window[1]] = model.logits(ids, kept, window).double()
        if cfg_scale:
            bare = model.logits([mask] * prompt_length + ids[prompt_length:]).double()
            logits = bare + (cfg_scale + 1) * (logits - bare)
        logits[:, ends[0]] = -math.inf
        allowed = logits.clone()
        allowed[:, mask] = -math.inf
        best = allowed.argmax(-1)
        logits[:, ends[1]] = -math.inf
        probabilities = torch.softmax(logits, dim=-1)
        sure = {i: float(probabilities[i, best[i]]) for i in range(start, end) if ids[i] == mask}
        for i in sorted(sure, key=lambda i: -sure[i])[:quota]:
            ids[i] = int(best[i])


def naive_flexible(
    model: ReferenceLLaDA,
    prompt: list[int],
    length: int,
    block_length: int,
    tokens_per_step: int,
    cache: str,
    mask_size: int,
) -> list[tuple[list[int], float]]:
    """Return the texts of the paper's Algorithm 1, 10 in all, with their DiSE over the last ten
    tokens that are no end.

    With a cache, what stands before the tail is kept from the first pass of the first extension,
    for all of them; where the whole response is the tail, each block's first pass runs it all.
    """
    mask, end_token, size = model.config["mask_token_id"], model.config["eos_token_id"], len(prompt)
    ids = naive_decode(model, prompt, length, block_length, tokens_per_step, cache=cache)
    ids = prompt + [token for token in ids[size:] if token != end_token]
    texts: list[tuple[list[int], float]] = []
    kept: Kept = {}
    for extension in range(10):
        if extension:
            num_masked = min(mask_size + extension - 1, len(ids) - size)
            tail = len(ids) - num_masked
            ids = ids[:tail] + [mask] * (num_masked + 1)
            for start in range(tail, len(ids), block_length):
                end = min(start + block_length, len(ids))
                is_new = cache == "none" or tail == size or not kept
                naive_block(
                    model,
                    ids,
                    (start, end),
                    even_quotas(end - start, tokens_per_step),
                    cache,
                    kept,
                    0 if is_new else tail,
                )
        logprobs = torch.log_softmax(model.logits(ids).double(), dim=-1)
        last = [i for i in range(size, len(ids)) if ids[i] != end_token][-10:]
        texts.append((list(ids), float(logprobs[last, [ids[i] for i in last]].mean())))
    return texts
