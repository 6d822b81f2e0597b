"""What the models' authors published, as plain greedy loops: the whole text at each step, by
transformers' own class. Probabilities are float64, so that the loops make no ties of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dise_adapters import CheckpointPredictor, Safetensors, hub

Ids = list[int]


class Step(NamedTuple):
    """The masks' positions [M], logits [M, V], confidences [M], and those that it writes [K]."""

    positions: Ids
    logits: Tensor
    confidences: Tensor
    chosen: Ids

    def written(self, stop: int) -> list[list[int]]:
        """Return the positions before `stop` that it writes, in order, each with its token."""
        tokens = self.logits.argmax(-1).tolist()
        pairs = ([self.positions[index], tokens[index]] for index in self.chosen)
        return sorted(pair for pair in pairs if pair[0] < stop)


class PlainModel:
    """A checkpoint in transformers' own class, by what its family's adapter knows of it."""

    def __init__(self, model: str, predictor: CheckpointPredictor, dtype: str) -> None:
        import transformers

        files, family = hub.fetch(model), predictor.family
        kind: Any = getattr(transformers, family.model_class)
        config = kind.config_class(**(family.settings(files.fields, model) or {}))
        self.module = kind.from_pretrained(
            None, config=config, state_dict=Safetensors(files.folder).slices(),
            key_mapping=dict(family.key_mapping) or None, dtype=getattr(torch, dtype),
            attn_implementation="sdpa", use_safetensors=True, trust_remote_code=False,
        ).to("cuda" if torch.cuda.is_available() else "cpu").eval()  # fmt: skip
        self.mask, self.ends = predictor.info.special.mask_id or 0, predictor.info.special.eos_ids
        self.block, self._is_shifted = predictor.info.block_length, family.answers_for == "next"

    @torch.inference_mode()
    def logits(self, ids: Sequence[int], positions: Sequence[int]) -> Tensor:
        """Return the logits for the tokens at positions, float64 [M, V]."""
        device, dtype, mask = self.module.device, self.module.dtype, None
        if self.block is not None:  # later blocks are hidden
            block = torch.arange(len(ids), device=device) // self.block
            mask = torch.zeros(1, 1, len(ids), len(ids), dtype=dtype, device=device)
            mask.masked_fill_(block[None, :] > block[:, None], torch.finfo(dtype).min)
        text = torch.tensor([list(ids)], device=device)
        rows = self.module(text, attention_mask=mask, use_cache=False).logits[0]
        places = [max(0, place - self._is_shifted) for place in positions]
        return rows[places].double().cpu()  # type: ignore[no-any-return]

    def guess(self, text: Ids, first: int, stop: int, seen: int) -> tuple[Ids, Tensor]:
        """Return the masks in [first, stop) and their logits, from the first `seen` tokens."""
        positions = [place for place in range(first, stop) if text[place] == self.mask]
        logits = self.logits(text[:seen], positions).clone()
        logits[:, self.mask] = -torch.inf  # the originals may write a mask again
        return positions, logits


def llada(plain: PlainModel, text: Ids, start: int, length: int) -> Iterator[Step]:
    """LLaDA's generate, a step a token, and dllm's MDLM and BD3LM: the block's surest mask."""
    for first in range(start, len(text), length):
        stop = min(first + length, len(text))
        for _ in range(stop - first):
            found = plain.guess(text, first, stop, stop if plain.block else len(text))
            confidences = found[1].softmax(-1).amax(-1)
            yield Step(*found, confidences, [int(confidences.argmax())])
        if plain.block and plain.ends & {*text[first:stop]}:
            return


def dream(plain: PlainModel, text: Ids, start: int, length: int) -> Iterator[Step]:
    """Dream's diffusion_generate, entropy, eps 0.001: as many masks as diffusion time says."""
    times = torch.linspace(1, 1e-3, length + 1)
    for number in range(length):
        share = 1 - times[number + 1] / times[number] if number < length - 1 else 1
        if count := int(text.count(plain.mask) * share):
            positions, logits = plain.guess(text, start, len(text), len(text))
            logprobs = logits.log_softmax(-1)
            confidences = (logprobs.exp() * logprobs).nansum(-1)
            yield Step(positions, logits, confidences, confidences.topk(count).indices.tolist())


def sdar(plain: PlainModel, text: Ids, start: int, length: int) -> Iterator[Step]:
    """SDAR's block_diffusion_generate, dynamic, as many steps as tokens: masks above 0.85."""
    for first in range(start // length * length, len(text), length):
        stop = first + length
        while plain.mask in text[first:stop]:
            found = plain.guess(text, first, stop, stop)
            confidences = found[1].softmax(-1).amax(-1)
            sure = (confidences > 0.85).nonzero()[:, 0].tolist()
            yield Step(*found, confidences, sure or [int(confidences.argmax())])
        if plain.ends & {*text[max(first, start) : stop]}:
            return


QWEN_ENDS = {151643, 151645}

PUBLISHED: dict[str, tuple[Any, dict[str, Any], int, set[int]]] = {
    "LLaDAModelLM": (llada, {"tokens_per_step": 1}, 126336, {126081, 126348}),
    "A2DQwen3LMHeadModel": (llada, {"tokens_per_step": 1}, 151669, QWEN_ENDS),
    "DreamModel": (
        dream,
        {"unmasking": "entropy", "unmasking_settings": {"eps": 1e-3}},
        151666,
        QWEN_ENDS,
    ),
    "SDARForCausalLM": (sdar, {"unmasking": "low-confidence-dynamic"}, 151669, QWEN_ENDS),
}
"""The authors' sampler, the options that ask DiSE for it, and the ids of mask and end tokens."""
