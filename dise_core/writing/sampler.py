"""The settings with which one response is written, and the reads that its steps make."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import repeat

import numpy as np

from dise_core.arrays import Ids
from dise_core.constraints.constrained import Constrained
from dise_core.history import Writing
from dise_core.models.info import ModelInfo
from dise_core.noise import Noise
from dise_core.params.requests import SamplingParams
from dise_core.plans.reading import CacheHint, Canvas, Guidance, Read, Reading
from dise_core.plans.readouts import DRAWING, Candidates, Confidence, Readout
from dise_core.scoring.memory import Memory
from dise_core.sequence import SpecialTokens, Spell
from dise_core.writing.policy import UnmaskingPolicy
from dise_core.writing.schedule import Schedule, in_steps, in_time


@dataclass(frozen=True)
class Sampler:
    """Asks for the tokens of one response, with the settings of one request. The mask id
    is never written. sample: which of the request's responses it is. is_settled: see
    Canvas. is_revised: whether a reviser may change the response. most: the tokens that
    the text may grow to, if it is written more than once. recorded: the confidences that
    the text's Writing tells. suffix: what follows the response, int64 [S]. memory: see
    `memory_of`; shared with the response's scorer. spell: see TokenSequence.
    """

    info: ModelInfo
    policy: UnmaskingPolicy
    noise: Noise
    params: SamplingParams
    sample: int = 0
    is_settled: bool = False
    is_revised: bool = False
    most: int = 0
    recorded: tuple[Confidence, ...] = ()
    constraint: Constrained | None = None
    suffix: Ids = field(default_factory=lambda: np.zeros(0, np.int64), compare=False)
    memory: Memory = field(default_factory=Memory)
    spell: Spell | None = None

    @property
    def special(self) -> SpecialTokens:
        return self.info.special

    @cached_property
    def is_block_causal(self) -> bool:
        return self.info.block_length is not None

    @cached_property
    def mask_id(self) -> int:
        return self.special.masking_id

    @property
    def rate(self) -> int:
        """Tokens to commit per step where `denoise` gets no `steps`."""
        return self.policy.rate_of(self.params)

    def schedule(self, num_masked: int, num_steps: int | None) -> Schedule:
        """Return the schedule of a block; num_steps None: at `rate`."""
        if self.info.writes_canvases:
            return in_steps(num_masked, 1)
        if self.policy.eps is not None:
            return in_time(num_steps or -(-num_masked // self.rate), self.policy.eps)
        if num_steps is None:
            return Schedule(repeat(self.rate))
        return in_steps(num_masked, num_steps)

    def end_of(self, text: Ids, prompt_length: int) -> int | None:
        """Return the length to the response's first end; None if a mask comes first."""
        response = text[prompt_length:]
        is_end = self.special.is_end(response)
        stops = np.flatnonzero(is_end | (response == self.mask_id))
        if len(stops) == 0 or not is_end[stops[0]]:
            return None
        return prompt_length + int(stops[0]) + 1

    def candidates(self, noise: Noise, confidence: Confidence = "probability") -> Candidates:
        """Return a readout of one token per position. InputError without a mask."""
        return self._candidates(noise=noise, confidence=confidence)

    @property
    def _never_written(self) -> tuple[int, ...]:
        return (self.mask_id,) if self.info.noise == "masks" else ()

    @cached_property
    def _candidates(self) -> Callable[..., Candidates]:
        params, policy, end = self.params, self.policy, self.special.eos_id
        ends, is_tempered = tuple(sorted(self.special.eos_ids)), policy.tempered_confidence
        unwritten = (end,) if policy.logits_eos_inf and end is not None else ()
        if is_tempered is None:
            published = self.info.tempered_confidence
            is_tempered = params.is_drawn if published == "drawn" else published
        return partial(
            Candidates,
            **{name: getattr(params, name) for name in DRAWING},
            forbidden=(*self._never_written, *params.forbidden_token_ids),
            is_tempered=is_tempered,
            unranked=ends if policy.confidence_eos_eot_inf else unwritten,
            allowed=tuple(params.allowed_token_ids),
            bias=params.biases,
        )

    def ask(
        self,
        canvas: Ids,
        positions: Ids,
        readout: Readout,
        prompt_length: int,
        *,
        shown: Canvas | None = None,
        cache: CacheHint | None = None,
        is_complete: bool = False,
        draws: Noise | None = None,
    ) -> Read:
        """Return a Read of a copy of the canvas, with this request's guidance. shown:
        what a stream sees of it, the response alone if None. draws: what draws hidden
        tokens under uniform noise; None: anew whenever there are fewer of them. Raises
        PlanError for positions outside the canvas.
        """
        if shown is None:
            stop = len(canvas) - len(self.suffix)
            shown = Canvas(self.sample, prompt_length, self.is_settled, stop=stop)
        guidance = None
        if scale := self.params.cfg_scale:
            unconditional = canvas.copy()
            unconditional[:prompt_length] = self.mask_id
            guidance = Guidance(unconditional, scale)
        noise, by_count = None, None
        if self.info.is_time_conditioned or self.info.noise == "uniform":
            noise, by_count = self._noised(canvas, prompt_length)
        return Read(
            canvas.copy(),
            positions,
            readout,
            guidance=guidance,
            canvas=shown,
            cache=cache,
            is_complete=is_complete,
            noise=noise,
            draws=by_count and (draws or by_count),
            start=prompt_length,
        )

    def _noised(self, canvas: Ids, prompt_length: int) -> tuple[float | None, Noise]:
        """Return the noise level of the response, None where each block has its own, and
        what draws its hidden tokens: anew in each step that has fewer of them.
        """
        is_masked = canvas[prompt_length : len(canvas) - len(self.suffix)] == self.mask_id
        draws = self.noise.at_step(int(is_masked.sum()))
        if self.is_block_causal or not len(is_masked):
            return None, draws
        return float(is_masked.mean()), draws

    def recording(self, read: Read) -> list[Read]:
        """Return the Reads of recorded confidences, in the row of a step's Read."""
        if not self.recorded:
            return []
        plain = Candidates(forbidden=self._never_written)
        readouts = (replace(plain, confidence=kind) for kind in self.recorded)
        return [replace(read, readout=readout, canvas=None) for readout in readouts]

    def note(self, writing: Writing, read: Read, recorded: Sequence[Reading]) -> None:
        """Keep the answers to a step's `recording` until the step commits."""
        if not recorded:
            return
        pairs = zip(self.recorded, recorded, strict=True)
        writing.see(read.positions, {kind: reading.confidences for kind, reading in pairs})
