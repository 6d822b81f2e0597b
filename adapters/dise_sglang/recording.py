"""SGLang's diffusion algorithms, with a record of how each block was written."""

from __future__ import annotations

import copy
import logging
import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from sglang.srt.dllm.algorithm.base import DllmAlgorithm as Base
else:
    Base = object  # an algorithm stands behind it where it is used

logger = logging.getLogger(__name__)

RENOISE = "Gemma4Renoise"
RECORDED = (
    "LowConfidence", "JointThreshold", "JointThresholdInDel", "EBSampling", "EntropyThreshold",
    RENOISE,
)  # fmt: skip
"""The algorithms that keep a record, where their steps are SGLang's `step`."""

BLOCKS = "dise_blocks"
"""Where the records of a batch stand in the `customized_info` of its logits."""

ROWS = 32
"""How many rows of logits are worked on at once."""


@dataclass(slots=True, eq=False)
class Block:
    """A block under way. state: the algorithm's own. written: float32 [L], the
    log-probability in nats that each token had in the forward that wrote it last; NaN for
    one that is given, and for a mask. steps: int64 [L], the number of that forward among
    those that changed the block, from 1; 0 for none. count, edits: int64 [], such
    forwards, and written tokens that a later one replaced or removed. dise: float32 [L],
    the log-probability of each token in the last forward; was_there: bool [L], whether that
    forward saw the token in its place, as it does unless noise stands there.
    """

    state: Any
    written: Tensor
    steps: Tensor
    count: Tensor
    edits: Tensor
    dise: Tensor | None = None
    was_there: Tensor | None = None

    @classmethod
    def begun(cls, state: Any, length: int, device: torch.device) -> Block:
        steps = torch.zeros(length, dtype=torch.long, device=device)
        return cls(state, torch.full_like(steps, math.nan, dtype=torch.float32), steps,
                   steps[0], steps[0])  # fmt: skip

    def told(self) -> dict[str, Any]:
        """Return what is told of each token, None for an unknown number, and the edits."""
        dise = torch.full_like(self.written, math.nan) if self.dise is None else self.dise
        written, logprobs = torch.stack([self.written, dise]).tolist()
        known = [None] * len(written) if self.was_there is None else self.was_there.tolist()
        return {
            "step_maps": self.steps.tolist(),
            "written": [None if math.isnan(value) else value for value in written],
            "dise_logprobs": [None if math.isnan(value) else value for value in logprobs],
            "was_there": known,
            "edits": int(self.edits),
        }


def note(
    blocks: list[Block], values: Tensor, ids: tuple[Tensor, Tensor], origin: Tensor, mask_id: int
) -> None:
    """Note what a step made of blocks. values: float32 [B, L], the log-probability of each
    token after it; ids: int64 [B, L] before and after it; origin: int64 [B, L], where each
    token stood before, -1 for a new mask.
    """
    before, after = ids
    is_kept, source = origin >= 0, origin.clamp(min=0)
    steps = torch.stack([block.steps for block in blocks])
    written = torch.stack([block.written for block in blocks])
    is_new = ~is_kept | (after != before.gather(1, source))
    carried = torch.where(is_kept, steps.gather(1, source), 0)
    survives = ~is_new & (carried > 0)
    count = torch.stack([block.count for block in blocks]) + is_new.any(1)
    edits = torch.stack([block.edits for block in blocks])
    edits = edits + (steps > 0).sum(1) - survives.sum(1)
    values = values.masked_fill(after == mask_id, math.nan)
    steps = torch.where(is_new, count[:, None] * (after != mask_id), carried)
    written = torch.where(is_new, values, written.gather(1, source))
    for row, block in enumerate(blocks):
        block.written, block.steps = written[row], steps[row]
        block.count, block.edits = count[row], edits[row]


def own_logprobs(logits: Tensor, rows: Tensor, ids: Tensor) -> Tensor:
    """Return log p(ids[i]) under row rows[i] of the logits [M, V], float32, in nats.

    Few rows at a time, as the log-probabilities of a block over 262,144 tokens take 268 MB;
    and by the odds against all other tokens, which do not round a sure one's to 0.
    """
    values = []
    for start in range(0, len(rows), ROWS):
        own = ids[start : start + ROWS, None]
        part = logits[rows[start : start + ROWS]].float()
        others = part.scatter(-1, own, -math.inf).logsumexp(-1)
        values.append(torch.nn.functional.logsigmoid(part.gather(-1, own)[:, 0] - others))
    return torch.cat(values)


@cache
def recorded(algorithm: Any, _: str = "") -> Any:
    """Return the algorithm with a record of its blocks: the same tokens, and no forward
    more. One that is not RECORDED is itself, and so is one with a loop of its own.
    """
    from sglang.srt.dllm.algorithm.base import DllmAlgorithm

    if algorithm.__name__ not in RECORDED:
        return algorithm
    renoises = algorithm.__name__ == RENOISE
    # Renoising's own `run` encodes contexts, and leaves the steps to the common loop.
    if algorithm.run is not DllmAlgorithm.run and not renoises:
        logger.warning(
            "SGLang's %s has a loop of its own, which tells no step: dise_sglang gives its "
            "answers no scores.", algorithm.__name__,
        )  # fmt: skip
        return algorithm
    moves = hasattr(algorithm, "_apply_edit_operations")
    kind = RecordingNoise if renoises else RecordingMoves if moves else Recording
    return type(algorithm.__name__, (kind, algorithm), {})


class Recording(Base):  # type: ignore[misc]
    """What stands before an algorithm: it keeps a Block of each row around the
    algorithm's own state, which are dropped together where a request is aborted.
    """

    stepped: list[Block]
    leaves_logits = False
    """Whether a step never changes the logits in place, as a penalty does."""

    def init_step_state(self, forward_batch: Any) -> list[Block]:
        states = super().init_step_state(forward_batch)
        device = forward_batch.input_ids.device
        return [Block.begun(state, self.block_size, device) for state in states]

    def prepare_inputs(self, model_runner: Any, forward_batch: Any, states: list[Block]) -> None:
        super().prepare_inputs(model_runner, forward_batch, [block.state for block in states])

    def run(self, *args: Any) -> Any:
        """Return what the algorithm's loop does, with what is told of the blocks that are
        done in the logits' `customized_info`, a row each.
        """
        self.stepped = []
        result = super().run(*args)
        accepted = result[2] or [True] * len(self.stepped)
        rows = zip(self.stepped, accepted, strict=True)
        told = [block.told() if is_done else None for block, is_done in rows]
        if told:  # a context that was encoded has no logits
            result[0].customized_info = {BLOCKS: told}
        self.stepped = []
        return result

    def step(self, forward_batch: Any, logits: Tensor, states: list[Block]) -> list[bool]:
        ids = forward_batch.input_ids.view(-1, self.block_size)
        seen, table = ids.clone(), logits.view(-1, logits.shape[-1])
        before = self._written(seen, states)
        table = table if self.leaves_logits else table.clone()
        done, origin = self._advance(forward_batch, logits, states)
        after = self._written(ids, states)
        firsts = torch.arange(0, ids.numel(), self.block_size, device=ids.device)[:, None]
        rows = firsts + origin.clamp(min=0)
        values = own_logprobs(table, rows.flatten(), after.flatten()).view_as(after)
        note(states, values, (before, after), origin, self.mask_id)
        if any(done):
            facts = zip(states, done, values, after == seen, strict=True)
            for block, is_done, logprobs, was_there in facts:
                if is_done and block.dise is None:
                    block.dise, block.was_there = logprobs, was_there
        self.stepped = states
        return done

    def _written(self, ids: Tensor, _blocks: list[Block]) -> Tensor:
        """Return what is written of the blocks, [B, L], with the mask's id where nothing
        is. ids: what a forward sees of them, [B, L].
        """
        return ids

    def _advance(
        self, forward_batch: Any, logits: Tensor, blocks: list[Block]
    ) -> tuple[list[bool], Tensor]:
        """Let the algorithm step. Return what is done, and where each token stood before."""
        states = [block.state for block in blocks]
        done = super().step(forward_batch, logits, states)
        for block, state in zip(blocks, states, strict=True):
            block.state = state
        places = torch.arange(self.block_size, device=forward_batch.input_ids.device)
        return done, places.expand(len(blocks), -1)


class RecordingMoves(Recording):
    """The same for an algorithm that inserts and deletes, which it does row by row."""

    moves: list[int]

    def _advance(
        self, forward_batch: Any, logits: Tensor, blocks: list[Block]
    ) -> tuple[list[bool], Tensor]:
        done, origins, length = [], [], self.block_size
        for row, block in enumerate(blocks):
            own, part = copy.copy(forward_batch), slice(row * length, (row + 1) * length)
            own.batch_size, own.input_ids = 1, forward_batch.input_ids[part]
            self.moves = list(range(length))
            done += super()._advance(own, logits[part], [block])[0]
            origins.append(self.moves)
        return done, torch.tensor(origins, device=forward_batch.input_ids.device)

    def _apply_edit_operations(
        self, block_tokens: Any, old_block_tokens: Any, is_orig_mask: Any, prompt_len: int
    ) -> Any:
        edit = super()._apply_edit_operations
        # Its marks move with the tokens, so that other marks tell where each token stood.
        places = list(range(1, self.block_size + 1))
        marks = edit(block_tokens, old_block_tokens, places, prompt_len)[1]
        self.moves = [int(mark) - 1 for mark in marks]
        return edit(block_tokens, old_block_tokens, is_orig_mask, prompt_len)


class RecordingNoise(Recording):
    """The same for Gemma4Renoise, whose forwards see noise: what it has written, and at
    last emits, are the likeliest tokens, none before its first step.
    """

    leaves_logits = True

    def _written(self, ids: Tensor, blocks: list[Block]) -> Tensor:
        empty, most = torch.full_like(ids[0], self.mask_id), self.max_denoising_steps
        states = [block.state for block in blocks]
        rows = [empty if state["step"] == most else state["argmax"] for state in states]
        return torch.stack(rows)
