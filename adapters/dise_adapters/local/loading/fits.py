"""Whether models fit: their weights into the memory that is free, before a byte of them is
read; and beside them a forward pass, and the keys and values that are kept.
"""

from __future__ import annotations

import logging
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self, get_args

import torch

from dise_adapters.local.decoder.integers import SLICE
from dise_adapters.local.decoder.kv_cache import KEYS_A_TOKEN
from dise_adapters.local.decoder.linear import can_pack
from dise_adapters.local.decoder.speed import is_slow, multiplies
from dise_adapters.local.devices import choose_device, choose_dtype, free_bytes, is_gpu
from dise_adapters.local.loading.canvases import stored_canvases
from dise_adapters.local.loading.quiet import configured
from dise_adapters.local.loading.stored import EMBEDDING, HEAD, stays_mapped, stored_decoder
from dise_adapters.local.reading.reader import CPU_TOKENS, rows_at_once
from dise_adapters.merging import Adapted
from dise_core import Attention, Bidirectional, Causal, CheckpointError, EngineConfig, InputError
from dise_core.params.engine import Quantization

if TYPE_CHECKING:
    from dise_adapters.families.family import Checkpoint

log = logging.getLogger(__name__)

GIB = 2**30

BYTES = {"int8": 1.0, "int4": 0.5 + 2 / 32}  # of a weight; in int4, 32 share a scale of 16 bits

HALVES = {"BF16": "bfloat16", "F16": "float16", "packed": "bfloat16"}

TYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}

SPARE = 1 / 16  # of a model that transformers loads as a whole, what a pass takes beside it

ALLOCATED, RESERVE = 1.25, GIB
"""What torch takes of a GPU for each byte planned (benchmarks/fake_gpu.py: up to 1.07, and what
is freed is not filled to the last byte), and what cuBLAS and the kernels take besides."""

LARGE = 2**29
"""Bytes in float32 of weights that "auto" leaves in the 16 bits of their file, where the processor
multiplies these: 134 million. Smaller ones take little time in any type."""

CACHE_TOKENS, PREFIX_TOKENS, CACHE_SHARE = 16384, 8192, 0.5
"""Tokens whose keys and values are kept where nobody says how many: of texts under way, on CUDA
more, up to this share of what is free, as far as one pass can read them; of their beginnings."""

Sizes = dict[str, tuple[float, float]]
"""By device, "cpu" for main memory: bytes that a model takes once loaded, and at most before."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A checkpoint that is to be loaded, by its files' headers, and the type its weights would get.

    embedding, head, layers, layer, weight: how many numbers these hold, of the last two the
    largest; the head none where it is the embedding or is not told apart. experts: those that
    transformers joins. stored: the type of most, or "packed". unpacked: float32 copies of the
    weight that is read from a GGUF file, or to which adapters add; is_unpacked_first: of all,
    before. states: numbers for each token of our own pass; 0 where it is transformers'.
    """

    where: object
    config: EngineConfig
    device: torch.device
    dtype: torch.dtype
    stored: str
    embedding: int
    head: int
    layers: int
    layer: int
    weight: int
    experts: int
    unpacked: int
    is_unpacked_first: bool
    states: int
    vocab_size: int

    @classmethod
    def of(cls, checkpoint: Checkpoint, config: EngineConfig) -> Self:
        """Return the claim. Raises CheckpointError for bad headers."""
        device, weights = choose_device(config.device), checkpoint.weights
        if str(device) == "cuda":  # one memory has one name
            device = torch.device("cuda", torch.cuda.current_device())
        types, layers, weight, stored = Counter[str](), Counter[str](), 0, weights.stored
        for part in stored.values():
            types[part.dtype] += math.prod(part.shape)
        kinds = torch.device("cpu"), torch.float32
        own = stored_decoder(checkpoint, *kinds) or stored_canvases(checkpoint, *kinds)
        shapes = own.shapes if own else {name: part.shape for name, part in stored.items()}
        counts = {name: math.prod(shape) for name, shape in shapes.items()}
        for name, count in counts.items():
            if (layer := re.match(r"(.*?\.\d+)\.", name)) is not None:
                layers[layer[1]] += count
                weight = max(weight, count)
        embedding, head = sum(counts.values()) - layers.total(), 0
        if own:
            embedding, head = counts[EMBEDDING], counts[HEAD]
        is_whole = own is None and checkpoint.is_gguf and checkpoint.settings is None
        experts = sum(counts[name] for name in counts if ".experts." in name)
        return cls(
            weights.hub_id or weights.path,
            config,
            device,
            choose_dtype(config.dtype, device),
            "packed" if is_whole else max(types, key=types.__getitem__, default="packed"),
            embedding,
            0 if own and own.is_tied else head,
            sum(counts.values()) - embedding - head,
            max(layers.values(), default=0),
            weight,
            0 if is_whole else experts,
            2 * checkpoint.is_gguf + isinstance(weights, Adapted),
            is_whole,
            own.states_per_token if own else 0,
            own.shapes[EMBEDDING][0] if own else 0,
        )

    def having(self, **changes: object) -> Self:
        """Return the claim with changes to its options."""
        config = self.config.model_copy(update=changes)
        return replace(self, config=config, dtype=choose_dtype(config.dtype, self.device))

    @property
    def narrowed(self) -> Self:
        """The same in the 16 bits of its file, where "auto" would be float32."""
        name = HALVES.get(self.stored)
        if self.config.dtype != "auto" or self.dtype != torch.float32 or name is None:
            return self
        half = self.having(dtype=name)
        other = self.having(dtype="bfloat16")
        return other if half.is_slow and not other.is_slow else half

    @property
    def is_quick(self) -> bool:
        """Whether large weights are multiplied by the processor as their file has them."""
        is_whole = self.config.quantization is None and not is_gpu(self.device)
        is_stored = self.dtype != torch.float32 and self.dtype == TYPES.get(self.stored)
        return is_whole and is_stored and self.is_large and multiplies(self.dtype)

    @property
    def is_large(self) -> bool:
        """Whether the weights take so long to multiply that their type is worth a word."""
        return 4 * (self.embedding + self.head + self.layers) >= LARGE

    @property
    def is_expanded(self) -> bool:
        """Whether large weights take several times the memory of their file."""
        return self.stored == "packed" and self.config.quantization is None and self.is_large

    @property
    def is_slow(self) -> bool:
        """Whether the processor multiplies the type of the weights slowly."""
        is_whole = self.config.quantization is None and not is_gpu(self.device)
        return is_whole and is_slow(self.dtype)

    @property
    def sizes(self) -> Sizes:
        """What loading it takes of the main memory and of the device's. Pages of a mapped file
        count nothing, as the system may drop them.
        """
        if self.states:
            return {str(self.device): self._own_size()}
        itemsize, quantization = self.dtype.itemsize, self.config.quantization
        tables = (self.embedding + self.head) * itemsize
        kept = size = float(tables + self.layers * itemsize)
        if quantization is not None:
            kept = tables + self.layers * BYTES[quantization]
        first = 4 * size / itemsize if self.is_unpacked_first else 0
        # Mapped weights take memory once converted, all before the first experts are joined.
        is_converted = self.unpacked > 0 or self.dtype != TYPES.get(self.stored)
        reading = max(self.layer, self.experts * is_converted) * itemsize
        reading += 4 * self.unpacked * self.weight
        if not is_gpu(self.device) or self.device.type == "cpu":
            return {"cpu": (kept, max(size, first) + reading)}
        is_straight = quantization is None and find_spec("accelerate") is not None
        passing = (0, first + (0 if is_straight else size) + reading)
        return {"cpu": passing, str(self.device): (kept, kept + self.layer * itemsize)}

    def _own_size(self) -> tuple[float, float]:
        """Return what our own decoder takes, whose layers are read one by one: first embedding
        and head stand beside what is made of them, later a layer beside all that is done.
        """
        size, quantization, stored = self.dtype.itemsize, self.config.quantization, None
        if not self.unpacked and self.stored in TYPES:
            stored = TYPES[self.stored]
        kinds = (self.dtype, self.device, quantization is not None)
        is_mapped = stored is not None and stays_mapped(stored, *kinds)
        unpacking, ends = 4 * self.unpacked, self.embedding + self.head
        if quantization is None:
            is_packed = not is_gpu(self.device) and can_pack(torch.empty(0, dtype=self.dtype))
            tied = self.embedding * is_packed if not self.head else 0
            kept: float = size * (ends + tied + self.layers)
            tables, rounding, copies = size * ends, 0, 2 - is_mapped
        else:
            kept = ends + BYTES[quantization] * self.layers
            tables, copies = (1 + size * (not is_mapped)) * ends, int(not is_mapped)
            rounding = 16 * min(self.weight, SLICE)  # in float32, with three more of that size
        tables += unpacking * max(self.embedding, self.head)
        layer = copies * size * self.layer + rounding + unpacking * self.weight
        return kept, max(tables, kept + layer)

    @property
    def sizes_in_use(self) -> Sizes:
        """The same, where a forward pass is to fit as well."""
        place, sizes = str(self.device), self.sizes
        kept, peak = sizes[place]
        working = SPARE * kept
        if self.states:
            where = "meta" if is_gpu(self.device) else None
            example = torch.empty(0, dtype=self.dtype, device=where)
            working = pass_bytes(self.states, self.vocab_size, self.config, example)
        return {**sizes, place: (kept, max(peak, kept + working))}


def fitted(pairs: Sequence[tuple[Checkpoint, EngineConfig]]) -> list[EngineConfig]:
    """Return the options with which the checkpoints fit into the memory that is free, all
    together. Where "auto" means float32, and that with a forward pass is too large or the
    processor multiplies the file's own 16 bits, it becomes those; the first checkpoint
    chooses first. Raises InputError where nothing
    fits. With a device map the options stay: what does not fit goes to the disk.
    """
    options = [config for _, config in pairs]
    wide = {number: Claim.of(*pair) for number, pair in enumerate(pairs) if not pair[1].device_map}
    claims = {number: claim.narrowed for number, claim in wide.items()}
    places = {place: torch.device(place) for claim in claims.values() for place in claim.sizes}
    known = {place: free_bytes(device) for place, device in places.items()}
    free = {place: size for place, size in known.items() if size is not None}
    if claims:
        _refuse_too_large(list(claims.values()), free)
    for number, claim in wide.items():
        if claim.config.dtype != "auto" and claim.is_slow:
            quick = "float32" if claim.having(dtype="bfloat16").is_slow else "bfloat16"
            log.warning(
                "This processor multiplies %s slowly: --dtype %s takes less time.",
                claim.config.dtype,
                quick,
            )
        others = [claims[index].sizes for index in claims if index != number]
        needed = _needed([claim.sizes_in_use, *others])
        place, narrow = _lacking(needed, free), claims[number]
        if narrow is claim or (place is None and not narrow.is_quick):
            claims[number] = claim
        else:
            options[number] = narrow.config
            how = ", as this processor multiplies float16 slowly"
            if narrow.config.dtype == HALVES[narrow.stored]:
                how = "" if narrow.stored == "packed" else ", as it is stored"
            why = "float32 rounds log-probabilities by 0.01 nats less, and takes longer."
            if place is not None:
                beside = ", with the model beside it" if others else ""
                why = (
                    f"float32 would need {needed[place] / GIB:.1f} GiB{beside}, and "
                    f"{free[place] / GIB:.1f} GiB are free."
                )
            log.warning(
                "The checkpoint in %s is loaded as %s%s: %s",
                narrow.where,
                narrow.config.dtype,
                how,
                why,
            )
        if claim.config.dtype == "auto" and claims[number].is_expanded:
            _advise_integers(claims[number])
        if pairs[number][0].weights.hub_id is not None:
            parts = [
                f"{size / GIB:.1f} GiB of {_memory(place)}"
                + (f", of which {free[place] / GIB:.1f} GiB are free" if place in free else "")
                for place, size in _needed([claims[number].sizes]).items()
            ]
            log.warning(
                "The checkpoint in %s is not on this machine yet. As %s it needs %s.",
                claim.where,
                _type(claims[number]),
                " and ".join(parts),
            )
    return options


def _advise_integers(claim: Claim) -> None:
    """Say what packed weights take once they are expanded, and what integers would."""
    sizes = [
        sum(size for size, _ in other.sizes.values()) / GIB
        for other in (claim, *(claim.having(quantization=name) for name in get_args(Quantization)))
    ]
    log.warning(
        "The packed weights in %s are expanded to %s, %.1f GiB: --quantization int8 and int4 take "
        "%.1f and %.1f.",
        claim.where,
        _type(claim),
        *sizes,
    )


def _refuse_too_large(claims: Sequence[Claim], free: dict[str, int]) -> None:
    """Raise InputError where the claims do not fit, with what would."""
    first, *judges = claims
    needed = _needed([claim.sizes for claim in claims])
    if (place := _lacking(needed, free)) is None:
        return
    changes: dict[str, dict[str, Any]] = {"--dtype bfloat16": {"dtype": "bfloat16"}}
    for name in get_args(Quantization):
        changes[f"--quantization {name}"] = {"dtype": "auto", "quantization": name}
    ways = []
    for option, change in changes.items():
        other = _needed([first.having(**change).narrowed.sizes, *(j.sizes for j in judges)])
        if _lacking(other, free) is None:
            ways.append(f"{option} needs {other[place] / GIB:.1f} GiB")
    beside = " and ".join(str(judge.where) for judge in judges)
    beside = f" and what is loaded beside it ({beside})" if judges else ""
    advice = f"What fits: {', '.join(ways)}." if ways else "No other type of weights fits either."
    raise InputError(
        f"The checkpoint in {first.where}{beside} needs {needed[place] / GIB:.1f} GiB of "
        f"{_memory(place)} as {_type(first)}, and {max(0, free[place]) / GIB:.1f} GiB are free. "
        f"{advice}",
        "model",
    )


def _memory(place: str) -> str:
    return "main memory" if place == "cpu" else f"the memory of {place}"


def _type(claim: Claim) -> str:
    return claim.config.quantization or str(claim.dtype).removeprefix("torch.")


def _needed(models: Sequence[Sizes]) -> dict[str, float]:
    """Return what models take at most of each memory, loaded one after the other."""
    parts: dict[str, list[tuple[float, float]]] = {}
    for sizes in models:
        for place, size in sizes.items():
            parts.setdefault(place, []).append(size)
    return {
        place: sum(kept for kept, _ in sizes) + max(peak - kept for kept, peak in sizes)
        for place, sizes in parts.items()
    }


def _lacking(needed: dict[str, float], free: dict[str, int]) -> str | None:
    """Return the memory of which too little is free; None where all fits."""
    return next((place for place in needed if needed[place] > free.get(place, math.inf)), None)


def pass_bytes(states: int, vocab_size: int, config: EngineConfig, example: torch.Tensor) -> int:
    """Return what a forward pass takes. states: numbers for each token; example: any tensor of
    the pass's type on its device. Three copies of the logits stand there at a time.
    """
    device = example.device
    tokens = config.max_batch_tokens if is_gpu(device) else CPU_TOKENS
    logits = rows_at_once(vocab_size, device) * vocab_size * 3 * 4
    needed = tokens * states * example.element_size() + logits
    return int(ALLOCATED * needed) + RESERVE if is_gpu(device) else needed


def cache_tokens(
    config: EngineConfig,
    attention: Attention,
    shape: tuple[int, int, int],
    example: torch.Tensor,
    working: int,
    free: int | None,
) -> tuple[int, int]:
    """Return how many tokens' keys and values to keep, of texts under way and of their
    beginnings: what the options say, or else as many of the defaults as fit on the device
    beside a forward pass of `working` bytes: no texts of a model that writes none, no
    beginnings that are not exact. shape: layers, key-value heads, head dimension. example: any
    tensor of the cache's type on its device. free: bytes of that; where it is unknown, all fit.
    Raises InputError for more tokens than fit.
    """
    layers, heads, size = shape
    token = layers * 2 * heads * size * example.element_size()
    free = 2**62 if free is None else free
    capacity, of_texts = max(0, free - working) // token, CACHE_TOKENS
    if example.device.type == "cuda":
        most_read = config.max_batch_tokens * KEYS_A_TOKEN
        of_texts = max(of_texts, min(int(CACHE_SHARE * capacity), most_read))
    defaults = {
        "max_cache_tokens": 0 if isinstance(attention, Causal) else of_texts,
        "prefix_cache_tokens": 0 if isinstance(attention, Bidirectional) else PREFIX_TOKENS,
    }
    counts = list[int]()
    for name, default in defaults.items():
        requested: int | None = getattr(config, name) if default else None
        tokens = default if requested is None else requested
        if tokens > capacity and requested is not None:
            raise InputError(
                f"{name}={tokens} takes {tokens * token / GIB:.1f} GiB, and a forward pass "
                f"{working / GIB:.1f} GiB, but {example.device} has {free / GIB:.1f} GiB free: "
                f"at most {capacity} tokens fit; or lower max_batch_tokens, or take "
                "quantization='int8'",
                name,
            )
        if tokens > capacity:
            log.warning("%s is %d, since no more memory is free", name, capacity)
        counts.append(min(tokens, capacity))
        capacity -= counts[-1]
    return counts[0], counts[1]


def weigh(checkpoint: Checkpoint) -> None:
    """Raise CheckpointError for weights that cannot be read, and for a model of many more
    elements than its files hold, or could, packed at two bits each: nobody allocates those.
    """
    folder, stored = checkpoint.folder, checkpoint.weights.stored.values()
    if checkpoint.is_gguf and checkpoint.settings is None:
        return  # its file is its configuration too
    model_class, config = configured(checkpoint)
    is_auto = not hasattr(model_class, "config_class")
    make = partial(model_class.from_config, trust_remote_code=False) if is_auto else model_class
    with torch.device("meta"):
        model = make(config)
    num_elements = sum(part.numel() for part in (*model.parameters(), *model.buffers()))
    num_stored = sum(math.prod(weight.shape) for weight in stored)
    num_bytes = sum(path.stat().st_size for path in {weight.path for weight in stored})
    if num_elements > 2**24 + max(
        4 * num_bytes, 2 * num_stored
    ):  # what is lacking has an error that names it
        raise CheckpointError(
            f"cannot load {folder}: its config.json makes a model of {num_elements} weights, and "
            f"its files hold {num_stored}"
        )
