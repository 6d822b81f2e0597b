"""What each type of weights takes of this machine: memory by the files' headers, and time by a
trial of a few layers with drawn weights, so that not a byte of the model's is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from dise_adapters.local.devices import free_bytes
from dise_adapters.local.loading.fits import GIB, Claim, fitted
from dise_adapters.local.loading.loader import stored_reader
from dise_adapters.local.loading.stored import StoredDecoder, stored_decoder
from dise_core import EngineConfig, InputError, Read, SamplingParams, TokenLogProbs

if TYPE_CHECKING:
    from dise_adapters.families.family import Checkpoint
    from dise_core import Reader

WAYS: dict[str, dict[str, Any]] = {
    **{f"--dtype {name}": {"dtype": name} for name in ("float32", "bfloat16", "float16")},
    **{f"--quantization {name}": {"quantization": name} for name in ("int8", "int4")},
}

PROMPT, SCORED, TRIED, ROUNDS, DRAWN = 64, 128, 3, 4, 64
"""Tokens of a prompt and of a text that is scored; layers of a trial; rounds, of which the
quickest counts; and rows of a weight that differ.
"""


@dataclass(frozen=True, slots=True)
class Advice:
    """What a model takes with one type of weights.

    option: that asks for it; is_default: whether it is what none asks for. memory: GiB, with a
    forward pass. scoring: seconds of the pass that scores a text of 128 tokens. writing: of an
    answer of 128 tokens by default options, after a prompt of 64. Both are None where the memory
    is not free.
    """

    option: str
    is_default: bool
    memory: float
    scoring: float | None
    writing: float | None


def advice(checkpoint: Checkpoint, config: EngineConfig) -> Iterator[Advice]:
    """Yield the advice for each type that the processor does not multiply slowly, as soon as
    it was tried. Raises InputError for a model that this project does not compute itself, and
    where no type fits.
    """
    [config] = fitted([(checkpoint, config)])
    default = Claim.of(checkpoint, config)
    free = free_bytes(default.device)
    for option, changes in WAYS.items():
        claim = default.having(**{"dtype": "auto", "quantization": None, **changes})
        is_default = (claim.dtype, claim.config.quantization) == (
            default.dtype,
            config.quantization,
        )
        if claim.is_slow and not is_default:
            continue
        memory = claim.sizes_in_use[str(claim.device)][1]
        kinds = claim.dtype, claim.config.quantization is not None
        decoder = stored_decoder(checkpoint, claim.device, *kinds)
        if decoder is None:
            raise InputError(
                "The time of a pass is tried for models that DiSE computes itself, and "
                f"{claim.where} is not one of them; time it by dise score.",
                "advise",
            )
        is_free = free is None or memory <= free
        times = _tried(decoder, checkpoint, claim.config) if is_free else (None, None)
        yield Advice(option, is_default, memory / GIB, *times)


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A source of weights as long as a checkpoint's, of which few rows differ."""

    of: StoredDecoder
    folder: str = "drawn weights"

    def read(self, names: Mapping[str, str], _: object) -> Iterable[tuple[str, Tensor]]:
        for name, ours in names.items():
            count, *columns = self.of.shapes[ours]
            drawn = torch.randn(min(count, DRAWN), *columns, dtype=self.of.dtype) / 50
            yield name, drawn.repeat(-(-count // DRAWN), *[1] * len(columns))[:count]


@torch.inference_mode()
def _tried(
    decoder: StoredDecoder, checkpoint: Checkpoint, config: EngineConfig
) -> tuple[float, float]:
    """Return the seconds of a pass that scores, and of an answer."""
    num_layers = decoder.settings["num_hidden_layers"]
    tried = min(TRIED, num_layers)
    prefixes = tuple(f"model.layers.{index}." for index in range(tried))
    few: Any = replace(
        decoder,
        settings={**decoder.settings, "num_hidden_layers": tried},
        shapes={
            name: shape
            for name, shape in decoder.shapes.items()
            if ".layers." not in name or name.startswith(prefixes)
        },
        count=lambda _: None,
    )
    few = replace(few, source=_Drawn(few), names={name: name for name in few.shapes})
    bare = config.model_copy(update={"max_cache_tokens": 0, "prefix_cache_tokens": 0})
    reader: Any = stored_reader(few, checkpoint, bare)
    options = SamplingParams()
    num_passes, length = options.max_tokens / options.tokens_per_step, PROMPT + options.max_tokens
    scoring = _seconds(reader, few, SCORED, SCORED)
    step = _seconds(reader, few, length, options.block_length)
    if num_layers > tried:
        # Each layer more takes what one less saves. One position is read, as the head's time is
        # large, and its noise would count as often as there are layers.
        with_all = [_seconds(reader, few, count, 1) for count in (SCORED, length)]
        del reader._body._layers[1:]
        with_one = [_seconds(reader, few, count, 1) for count in (SCORED, length)]
        pairs = zip(with_all, with_one, strict=True)
        of_scoring, of_step = (max(0, more - less) / (tried - 1) for more, less in pairs)
        scoring += (num_layers - tried) * of_scoring
        step += (num_layers - tried) * of_step
    return scoring, num_passes * step


def _seconds(reader: Reader, of: StoredDecoder, length: int, num_read: int) -> float:
    """Return the seconds of a pass over a text of so many tokens, of which the last are read."""
    ids = np.random.default_rng(0).integers(0, of.settings["vocab_size"], length)
    positions, times = np.arange(length - num_read, length), list[float]()
    for _ in range(ROUNDS):
        started = perf_counter()
        reader.read([Read(ids, positions, TokenLogProbs(ids[positions]))])
        times.append(perf_counter() - started)
    return min(times)
