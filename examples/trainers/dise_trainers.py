"""Log-probabilities with gradients: a score's terms, run through a module of your own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, NamedTuple, NoReturn, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from dise_core import (
    Bidirectional,
    Floats,
    Ids,
    InputError,
    ModelInfo,
    Read,
    Scorer,
    Selector,
    Terms,
    TokenLogProbs,
    TokenSequence,
    drive,
    installed_catalog,
)

Tokens = Ids | Tensor

Forward = Callable[[Any, Tensor], Tensor]
"""Runs a module on texts, int64 [r, N], without padding: logits [r, N, V]."""


def draw(
    scorer: Scorer,
    info: ModelInfo,
    prompts: Sequence[Sequence[int] | Ids],
    responses: Sequence[Sequence[int] | Ids],
    selector: Selector | None = None,
    seed: int | None = None,
) -> list[Terms]:
    """Return the terms of each response's score, the same as `dise score` sums.

    Random masks depend on the seed and the tokens of the sample alone, not on the batch:
    equal samples get equal masks. Draw once, and hand the same terms to policy, old
    policy and reference. selector None: the scorer's own. seed None: the scorer's.
    Raises InputError for a scorer without terms, or without a seed if one is given, for a
    model that is not bidirectional, and for a response of which nothing is selected.
    """
    if not isinstance(info.attention, Bidirectional):
        raise InputError(
            f"{info.name!r} has {info.attention}, but a plain forward reads a text at "
            "once, not each block after the finished ones before it (context_ids). Take "
            "a bidirectional model, or Terms built by hand for a forward that does so."
        )
    if scorer.needs_writing:
        raise InputError(
            f"{type(scorer).__name__} needs how a text was written, which ids do not "
            "tell. Give its terms a TokenSequence with its writing; Estimate runs them."
        )
    if seed is not None:
        scorer = _reseeded(scorer, seed)
    chosen = selector or installed_catalog().selector(scorer.default_selector)
    batch = []
    for index, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
        length = max(len(response), 1)
        text = TokenSequence.of(prompt, response, info.special, length, info.max_length)
        terms = drive(scorer.terms(text, chosen), _refuse_to_read)
        if len(terms.positions) == 0:
            raise InputError(
                f"responses[{index}] of {len(response)} tokens has none that the "
                "selector selects, so it has no score. Leave it out of the batch."
            )
        batch.append(terms)
    return batch


def terms_of(token_ids: Tokens, canvases: Tokens, weights: Floats | Tensor) -> Terms:
    """Return the terms of a trainer's own masks: the value is the sum over k and i of
    weights[k, i] log p(token_ids[i] | canvases[k]).

    token_ids: the finished text, [N]. canvases: what the model sees, [K, N]; DARE's
    perturbed_seq. weights: [K, N], 0 where nothing counts; mask_indices / p_mask / K.
    """
    text, seen = _array(token_ids).astype(np.int64), _array(canvases).astype(np.int64)
    counts = _array(weights).astype(np.float64)
    if not len(text) == seen.shape[-1] == counts.shape[-1] or seen.shape != counts.shape:
        raise InputError(
            f"A text of {len(text)} tokens with canvases {seen.shape} and weights "
            f"{counts.shape}: both must be [K, {len(text)}], one row a forward pass."
        )
    places = [np.flatnonzero(row) for row in counts]
    reads = [
        Read(canvas, positions, TokenLogProbs(text[positions]))
        for canvas, positions in zip(seen, places, strict=True)
    ]
    of_reads = [row[at] for row, at in zip(counts, places, strict=True)]
    return Terms(reads, of_reads, np.flatnonzero((counts != 0).any(axis=0)))


def logits_of(module: Any, token_ids: Tensor) -> Tensor:
    """Return the logits [r, N, V] of any language model of transformers."""
    return cast(Tensor, module(input_ids=token_ids).logits)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Runs terms through a module: the values, with gradients for its weights.

    The forward passes keep nothing, and the backward pass repeats them chunk by chunk
    (torch.utils.checkpoint), so that memory holds the activations of num_rows texts
    however many masks there are, for 4/3 of the compute. The gradient is exact. From two
    chunks on autograd holds one more set of gradients; `backward` does without. Texts
    are never padded: a chunk's are of one length.

    num_rows: texts in a forward pass. answers_for: "next" for a model whose row of logits
    i - 1 is about token i, as Dream's. forward: how the module is called; it must attend
    to the whole text, as `is_causal=False` in its configuration asks.
    """

    num_rows: int = 1
    answers_for: Literal["own", "next"] = "own"
    forward: Forward = logits_of

    def __call__(self, module: Any, batch: Sequence[Terms]) -> Tensor:
        """Return the value of each sample, float64 [B]."""
        return self.per_token(module, batch).sum(1)

    def per_token(self, module: Any, batch: Sequence[Terms]) -> Tensor:
        """Return what each token of the texts, prompts included, adds to the value of its
        sample, float64 [B, N]; N is the longest text's length.
        """
        width, device = _width(batch), next(module.parameters()).device
        total = torch.zeros(len(batch) * width, dtype=torch.float64, device=device)
        for chunk in self._chunks(batch):
            index, weights = _places(chunk, width, device)
            given = module, *self._tensors(chunk, device)
            logprobs: Tensor = checkpoint(self._run, *given, use_reentrant=False)
            total = total.index_add(0, index, weights * logprobs.double())
        return total.view(len(batch), width)

    def backward(self, module: Any, batch: Sequence[Terms], pull: Tensor) -> None:
        """Add the gradient of (pull * values).sum() to the weights' `.grad`, by chunks.

        pull: dL/dvalues, [B], or of per_token, [B, N]. For values that were computed
        without gradients: what autograd does through `__call__`, without its second set
        of gradients, which holds the sum over chunks. Dropout must be off.
        """
        width, device = _width(batch), next(module.parameters()).device
        of_tokens = pull.detach().to(device).view(len(batch), -1).expand(-1, width)
        for chunk in self._chunks(batch):
            index, weights = _places(chunk, width, device)
            logprobs = self._run(module, *self._tensors(chunk, device)).double()
            torch.autograd.backward(logprobs, of_tokens.flatten()[index] * weights)

    def _chunks(self, batch: Sequence[Terms]) -> Iterator[list[_Row]]:
        """Yield at most num_rows texts of one length at a time."""
        rows = [row for index, terms in enumerate(batch) for row in _rows(index, terms)]
        rows.sort(key=lambda row: len(row.read.token_ids))
        for _, group in groupby(rows, key=lambda row: len(row.read.token_ids)):
            alike = list(group)
            for start in range(0, len(alike), self.num_rows):
                yield alike[start : start + self.num_rows]

    def _tensors(self, chunk: Sequence[_Row], device: torch.device) -> list[Tensor]:
        """Return what `_run` takes of a chunk."""
        reads = [row.read for row in chunk]
        numbers = np.repeat(range(len(reads)), [len(read.positions) for read in reads])
        positions = np.concatenate([read.positions for read in reads])
        if self.answers_for == "next":
            positions = np.maximum(positions - 1, 0)
        parts = (
            np.stack([read.token_ids for read in reads]),
            numbers,
            positions,
            np.concatenate([row.targets for row in chunk]),
        )
        return [torch.from_numpy(part).to(device) for part in parts]

    def _run(
        self, module: Any, texts: Tensor, rows: Tensor, positions: Tensor, targets: Tensor
    ) -> Tensor:
        """Return log p(targets), [M], at positions [M] of rows [M] of the texts."""
        logits = self.forward(module, texts)[rows, positions]
        exact = logits if logits.dtype == torch.float64 else logits.float()
        return -torch.nn.functional.cross_entropy(exact, targets, reduction="none")


class _Row(NamedTuple):
    """One text for the module, of the sample with this index. targets: int64 [M];
    weights: float64 [M].
    """

    sample: int
    read: Read
    targets: Ids
    weights: Floats


def _width(batch: Sequence[Terms]) -> int:
    reads = (read for terms in batch for read in terms.reads)
    return max((len(read.token_ids) for read in reads), default=0)


def _places(chunk: Sequence[_Row], width: int, device: torch.device) -> list[Tensor]:
    """Return where a chunk's log-probabilities stand in the flat [B * N], and weights."""
    index = np.concatenate([row.sample * width + row.read.positions for row in chunk])
    weights = np.concatenate([row.weights for row in chunk])
    return [torch.from_numpy(part).to(device) for part in (index, weights)]


def _rows(sample: int, terms: Terms) -> Iterator[_Row]:
    """Yield the Reads that ask; raise InputError for what no forward answers."""
    for read, weights in zip(terms.reads, terms.weights, strict=True):
        readout = read.readout
        if not isinstance(readout, TokenLogProbs):
            raise InputError(
                f"A term reads {type(readout).__name__}, of which no gradient is known. "
                "Take terms of TokenLogProbs, over the whole vocabulary."
            )
        if read.shadow or read.guidance is not None:
            raise InputError(
                "A term is of shadows or guided, which no plain forward computes. Take "
                "another scorer than 'shadow', and cfg_scale=0."
            )
        if len(read.positions):
            yield _Row(sample, read, readout.targets, weights)


def _array(values: Any) -> np.ndarray[Any, Any]:
    return torch.as_tensor(values).detach().cpu().numpy()


def _reseeded(scorer: Scorer, seed: int) -> Scorer:
    """Return the scorer with another seed; raise InputError if it has none."""
    if "seed" not in type(scorer).model_fields:
        raise InputError(
            f"seed={seed}, but {type(scorer).__name__} draws nothing at random. Omit it."
        )
    return type(scorer).model_validate({**scorer.model_dump(), "seed": seed})


def _refuse_to_read(reads: Sequence[Read]) -> NoReturn:
    raise InputError(
        f"The scorer reads {len(reads)} texts before it knows its terms, so they depend "
        "on the model. Take one whose terms do not, such as 'mc' or 'dise'."
    )
