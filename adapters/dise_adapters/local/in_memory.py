"""A reader of any forward pass that is in memory, such as a trainer's module."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from types import SimpleNamespace
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from dise_adapters.local.decoder.batch import TextBatch
from dise_adapters.local.decoder.linear import PackedLinear, can_pack, into_float32
from dise_adapters.local.decoder.whole import WholeBody, head_beside, makes_logits
from dise_adapters.local.reading.layout import Layout
from dise_adapters.local.reading.reader import TransformerReader
from dise_core import BlockCausal, Causal, InputError, ModelError, ModelInfo, Read, Reading
from dise_core.models.completion import check_abilities, completed
from dise_core.models.info import AnswersFor


class ModuleReader(TransformerReader):
    """Answers Reads as `info` says that they are run."""

    info: ModelInfo

    @torch.inference_mode()
    def read(self, reads: Sequence[Read]) -> list[Reading]:
        for read in reads:
            check_abilities(read, self.info, self.abilities)
        head = self._head
        if _is_plain(head) and can_pack(head.weight):
            self._head = PackedLinear(head.weight, head.bias)  # as the weights are now
        elif _is_plain(head):
            self._head = into_float32(head)
        try:
            return super().read([completed(read, self.info) for read in reads])
        finally:
            self._head = head


def reader_of(
    forward: Callable[..., Any],
    info: ModelInfo,
    *,
    answers_for: AnswersFor = "own",
    head: Callable[[Tensor], Tensor] | None = None,
    device: torch.device | str | None = None,
) -> ModuleReader:
    """Return a reader for the `read`, and the `abilities`, of a MaskPredictor: it
    batches, pads, runs the head in chunks, and halves a batch that memory does not hold.

    forward: returns the logits [B, N, V] of token ids, int64 [B, N], or an object with
    `logits`. An argument `attention_mask` gets, where texts are padded, 1 for tokens and
    0 for padding, int64 [B, N]; in blocks, and for overlays, the mask of transformers,
    [B, 1, N, N], to be added. A module runs without dropout and gradients, and with its
    weights of the moment. answers_for: "next" where row i of the logits predicts token
    i + 1. head: makes logits [R, V] of states [R, d], where `forward` returns states
    [B, N, d]: only what is read then costs V. A transformers model's own is found.
    device: of the ids; the module's, or else the CPU.

    Raises InputError for a model that attends otherwise than info.attention or has other
    than info.vocab_size logits, ModelError for one that returns something else.
    """
    if isinstance(info.attention, Causal) and answers_for == "own":
        raise InputError(
            'Causal attention predicts the next token: give answers_for="next".', "answers_for"
        )
    if info.is_time_conditioned:
        raise InputError(
            "reader_of tells the forward pass no noise level: a time-conditioned "
            "model answers Reads by dise_adapters.answer, at noise_levels' level.",
            "info",
        )
    called = Called(forward, device)
    if head is None and isinstance(forward, PreTrainedModel):
        called, head = _apart(forward, called)
    if isinstance(head, nn.Module) and not _is_plain(head):
        run: nn.Module = head
        head = evaluating(run)(lambda states: run(states.clone()))
    head = head or nn.Identity()
    body = WholeBody(called, info.attention, 0, called.device)
    _examine(body, head, info)
    layout = Layout(info.attention, answers_for, None, info.special.mask_id)
    reader = ModuleReader(body, head, info.vocab_size, called.device, layout)
    reader.info = info
    return reader


class Called:
    """A forward pass as WholeBody calls a model of transformers; its only output is 0."""

    def __init__(self, forward: Callable[..., Any], device: torch.device | str | None) -> None:
        self._forward = forward
        module = forward if isinstance(forward, nn.Module) else None
        weight = None if module is None else next(module.parameters(), None)
        own = "cpu" if weight is None else weight.device
        self.device = torch.device(own if device is None else device)
        self.dtype = torch.float32 if weight is None else weight.dtype
        unknown = SimpleNamespace(_attn_implementation=None)
        self.config = module.config if isinstance(module, PreTrainedModel) else unknown
        self._names = signature(forward if module is None else module.forward).parameters

    def __call__(self, ids: Tensor, **options: Any) -> tuple[Tensor]:
        with evaluating(self._forward):
            # Copies: what was made in inference mode cannot be changed outside it.
            arguments = {
                name: _copied(value)
                for name, value in options.items()
                if name in self._names and value is not None
            }
            result = self._forward(ids.clone(), **arguments)
            if not isinstance(result, Tensor):
                result = result.logits if hasattr(result, "logits") else result[0]
        if result.ndim != 3 or result.shape[:2] != ids.shape:
            raise ModelError(
                f"The forward pass must return [B, N, V] for ids of {list(ids.shape)}, "
                f"and returned {list(result.shape)}."
            )
        return (result,)


def _copied(value: Any) -> Any:
    """Return a copy of a tensor, or of the tensors of a dict; what else there is itself."""
    if isinstance(value, dict):
        return {name: part.clone() for name, part in value.items()}
    return value.clone() if isinstance(value, Tensor) else value


def _apart(model: PreTrainedModel, called: Called) -> tuple[Called, nn.Module | None]:
    """Return a model's body and its head: all modules beside the body, in their order,
    if they make its logits of the body's states; else the model itself, and None.
    """
    body, head = model.base_model, head_beside(model)
    its_body, ids = Called(body, called.device), torch.arange(4)[None].to(called.device)
    [logits] = called(ids, use_cache=False)
    try:
        [states] = its_body(ids, use_cache=False)
    except Exception:  # a body of any kind, which may be called otherwise
        return called, None
    with evaluating(head):
        is_head = body is not model and makes_logits(head, states, logits)
    return (its_body, head) if is_head else (called, None)


def _is_plain(head: object) -> TypeGuard[nn.Linear]:
    """Return whether a head is its weight and bias alone: no subclass and no hooks."""
    if type(head) is not nn.Linear:
        return False
    return not (head._forward_hooks or head._forward_pre_hooks)


@contextmanager
def evaluating(forward: object) -> Iterator[None]:
    """Let a module run without dropout and gradients, and leave it as it was."""
    parts = forward.modules() if isinstance(forward, nn.Module) else ()
    training = [part for part in parts if part.training]
    for part in training:
        part.training = False
    try:
        # Not in inference mode: what a module keeps of a pass its training step uses.
        with torch.inference_mode(False), torch.no_grad():
            yield
    finally:
        for part in training:
            part.training = True


@torch.no_grad()
def _examine(body: WholeBody, head: Callable[[Tensor], Tensor], info: ModelInfo) -> None:
    """Raise InputError for a model that attends to other tokens, or has other logits,
    than it is said to. Where padding changes its answers it gets none: texts of one
    length then share a batch.
    """
    attention = info.attention
    size = 2 * attention.length if isinstance(attention, BlockCausal) else 3
    places = np.arange(size)

    def states(changed: int, *padding: int) -> Tensor:
        text = np.where(places == changed, 3, places % 3)
        ids = np.append(text, padding).astype(np.int64)
        is_real = np.arange(len(ids))[None] < size if padding else None
        return body(TextBatch(ids[None], is_real, np.arange(len(ids))[None]), places)

    plain, first, last = states(-1), states(0), states(size - 1)
    if (num_logits := head(plain).shape[-1]) != info.vocab_size:
        raise InputError(
            f"The model has {num_logits} logits, and info.vocab_size is "
            f"{info.vocab_size}: give the number of its logits there.",
            "info",
        )
    noise = float(plain.abs().max()) * torch.finfo(plain.dtype).eps ** 0.5
    changes = (last - plain).abs().amax(-1).float().cpu().numpy()
    allowed = attention.allows(places, places[-1:])[:, 0]
    is_earlier_seen = not torch.equal(first[-1], plain[-1])
    is_deaf = allowed[0] and not changes[:-1].any() and is_earlier_seen
    if is_deaf or (changes[~allowed] > noise).any():
        raise InputError(
            f"The model does not attend as {attention} does: it must see later tokens as "
            "far as that does. Give the attention that it has (attention=), or set "
            "is_causal=False in the config of a transformers model that is to see them all.",
            "attention",
        )
    if not torch.equal(states(-1, 0, 0), states(-1, 3, 3)):
        body.max_padding = 0.0
