"""MDLM, SEDD and BD3-LM for DiSE, as a distribution of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from dise_adapters import FastTokenizer, answer, architectures, hub, reader_of
from dise_core import (
    BlockCausal,
    CacheSlot,
    EngineConfig,
    Ids,
    MaskPredictor,
    ModelInfo,
    Read,
    Reading,
    SpecialTokens,
    completed,
    hookimpl,
    noise_levels,
)
from dise_noise_models.network import Network, Pairs, denoised, substituted

LEAST, MOST = 1e-3, 7.0  # the total noise sigma that models were trained with

BLOCK = 4


class NoiseModel(MaskPredictor):
    """A checkpoint in a folder. Texts of one length share a batch, whatever their noise."""

    heeds = frozenset()  # in float64, on the CPU
    architecture: ClassVar[str]

    @classmethod
    def claims(cls, model: str, revision: str | None = None) -> bool:
        return cls.architecture in architectures(hub.config_if_any(model, revision) or {})

    @classmethod
    def load(cls, model: str, config: EngineConfig) -> NoiseModel:  # noqa: ARG003
        return cls(model)

    def __init__(self, model: str) -> None:
        folder = hub.model_folder(model, None)
        self.fields = fields = dict[str, Any](hub.read_config(str(folder)) or {})
        self.tokenizer = FastTokenizer.from_folder(folder)
        size, end = fields["vocab_size"], fields["eos_token_id"]
        special = SpecialTokens(fields["mask_token_id"], frozenset({end}), end)
        self.info = ModelInfo(
            model, size, fields["max_position_embeddings"], special, **self.facts()
        )
        self.network = Network(size).double()
        self.network.load_state_dict(load_file(folder / "model.safetensors"))

    def facts(self) -> dict[str, Any]:
        """Return what else is to be known of the model."""
        return {"is_time_conditioned": True}

    def rows(self, ids: Tensor, sigma: Tensor, contexts: Tensor | None) -> Tensor:  # noqa: ARG002
        """Return log p(x0 | x_t) of ids [B, N], up to a constant a row: [B, N, V]."""
        return substituted(self.network(ids, sigma)[0], ids, self.info.special.masking_id)

    @torch.inference_mode()
    def read(self, reads: Sequence[Read]) -> Sequence[Reading]:
        whole = [completed(read, self.info) for read in reads]
        bare = [_unguided(read, self.info) for read in whole if read.guidance]
        logits = self._computed([*whole, *bare])
        bases = iter(logits[len(whole) :])
        readings = []
        for read, row in zip(whole, logits, strict=False):
            guided = row
            if read.guidance:
                base = next(bases)
                guided = base + (read.guidance.scale + 1) * (row - base)
                guided.masked_fill_(base.isneginf(), -torch.inf)  # it was inf - inf
            readings.append(answer(guided, read))
        return readings

    def _computed(self, reads: Sequence[Read]) -> list[Tensor]:
        """Return the rows at each read's positions, [M, V]."""
        rows: dict[int, Tensor] = {}
        for shape in {_shape_of(read) for read in reads}:
            batch = {i: read for i, read in enumerate(reads) if _shape_of(read) == shape}
            levels = [noise_levels(read, self.info)[0] for read in batch.values()]
            sigma = -torch.log1p(-torch.tensor(levels, dtype=torch.float64))
            ids = _stacked(read.token_ids for read in batch.values())
            contexts = _stacked(read.context_ids for read in batch.values()) if shape[1] else None
            logits = self.rows(ids, sigma.clamp(LEAST, MOST), contexts)
            rows |= zip(batch, logits, strict=True)
        return [rows[i][read.positions] for i, read in enumerate(reads)]


def _unguided(read: Read, info: ModelInfo) -> Read:
    """Return the read of the unconditional text, at the noise of the other."""
    assert read.guidance is not None
    ids, context = read.guidance.token_ids, read.guidance.context_ids
    level = float(noise_levels(read, info)[0])
    return replace(read, token_ids=ids, context_ids=context, noise=level, guidance=None)


def _shape_of(read: Read) -> tuple[int, bool]:
    return len(read.token_ids), read.context_ids is not None


def _stacked(texts: Iterable[Ids | None]) -> Tensor:
    return torch.from_numpy(np.stack([text for text in texts if text is not None]))


class MDLM(NoiseModel):
    """MDLM, time-conditioned or not. Source: arXiv 2406.07524."""

    architecture = "MDLM"
    trained_on = "masks alone"

    def __init__(self, model: str) -> None:
        super().__init__(model)
        if not self.info.is_time_conditioned:
            reader = reader_of(self.forward, self.info)
            self.read, self.abilities = reader.read, reader.abilities  # type: ignore[method-assign]

    def facts(self) -> dict[str, Any]:
        return {"is_time_conditioned": self.fields["time_conditioning"]}

    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        allowed = None if attention_mask is None else attention_mask[:, None, None].bool()
        logits, _ = self.network(ids, torch.zeros(len(ids)), allowed)
        return substituted(logits, ids, self.info.special.masking_id)


class SEDD(NoiseModel):
    """SEDD, of absorbing or uniform noise. Source: arXiv 2310.16834."""

    architecture = "SEDD"

    def facts(self) -> dict[str, Any]:
        noise = "uniform" if self.fields["graph"] == "uniform" else "masks"
        return {"noise": noise, "is_time_conditioned": True}

    def rows(self, ids: Tensor, sigma: Tensor, contexts: Tensor | None) -> Tensor:  # noqa: ARG002
        return denoised(self.network(ids, sigma)[0], ids, sigma, self.info.mask_token_id)


class BD3LM(NoiseModel):
    """BD3-LM: blocks of four tokens, each read beside the finished ones before it, whose
    keys and values are kept while a response is written. It is told no noise. Source:
    arXiv 2503.09573.
    """

    architecture = "BD3LM"
    trained_on = "masks alone"
    abilities = frozenset({"two-stream"})

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self._kept: WeakKeyDictionary[CacheSlot, Pairs] = WeakKeyDictionary()

    def facts(self) -> dict[str, Any]:
        return {"attention": BlockCausal(BLOCK)}

    def rows(self, ids: Tensor, sigma: Tensor, contexts: Tensor | None) -> Tensor:
        places = torch.arange(ids.shape[1])
        both, allowed = ids, _allowed(places, places)
        if contexts is not None:  # two streams, x_t and x_0
            earlier, own = allowed & ~allowed.T, allowed & allowed.T
            x_t, x_0 = torch.cat([own, earlier], 1), torch.cat([own & ~own, allowed], 1)
            both, allowed = torch.cat([ids, contexts], 1), torch.cat([x_t, x_0])
            places = torch.cat([places, places])
        logits, _ = self.network(both, 0 * sigma, allowed, places)
        return substituted(logits[:, : ids.shape[1]], ids, self.info.special.masking_id)

    def read(self, reads: Sequence[Read]) -> Sequence[Reading]:
        others = iter(super().read([read for read in reads if read.cache is None]))
        return [self._continued(read) if read.cache else next(others) for read in reads]

    @torch.inference_mode()
    def _continued(self, read: Read) -> Reading:
        """Answer a Read from where its hint says that the text has changed."""
        read = completed(read, self.info)
        assert read.cache is not None
        slot, window, past = read.cache.slot, read.cache.window, None
        start = window[0] // BLOCK * BLOCK if window and slot in self._kept else 0
        if start:
            past = [(k[:, :, :start], v[:, :, :start]) for k, v in self._kept[slot]]
        places, ids = (
            torch.arange(len(read.token_ids)),
            torch.from_numpy(read.token_ids[start:])[None],
        )
        behind, allowed = places[start:], _allowed(places[start:], places)
        logits, self._kept[slot] = self.network(ids, torch.zeros(1), allowed, behind, past)
        rows = substituted(logits, ids, self.info.special.masking_id)[0]
        reading = answer(rows[read.positions - start], read)
        return replace(reading, share=len(behind) / len(places))


def _allowed(queries: Tensor, keys: Tensor) -> Tensor:
    return keys[None] // BLOCK <= queries[:, None] // BLOCK


@hookimpl
def dise_mask_predictors() -> dict[str, type[MaskPredictor]]:
    """Return the adapters by the names that `adapter` takes."""
    return {"mdlm": MDLM, "sedd": SEDD, "bd3lm": BD3LM}
