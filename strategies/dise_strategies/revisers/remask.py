"""Remask: what a detector doubts is masked and written again."""

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from dise_core import Denoiser, Generation, InputError, Plan, Read, Reviser, TokenSequence
from dise_core.arrays import Floats, Ids
from dise_core.params.base import MAX_LENGTH, Length
from dise_core.plans.cost import count_nfe
from dise_core.plans.readouts import TokenLogProbs, TopLogProbs
from dise_core.scoring.score import TokenReport
from dise_core.scoring.sequence_scorer import SequenceScorer
from dise_core.writing.revisions import Revision, rewritten
from dise_strategies.unmasking.ranked import LowConfidence


def _default_threshold(settings: dict[str, object]) -> float:
    return 0.3 if settings.get("detector") == "drop" else 0.9


class Remask(Reviser):
    """Masks the response tokens that a detector doubts, and writes them again.

    A round masks the most doubted tokens, ties leftmost, each with `widen` neighbours on either
    side. It writes them one a step over the whole response, the surest first; on a block-causal
    model block by block, each against the finished ones before it. The new text takes the place of
    the old if it is better (`accept`, whose scores the trace tells). It ends after `rounds` rounds,
    when nothing is masked, when a round writes a text that there was, or when a text is not
    accepted. A round costs a pass for each masked token, and those of the score; read interleaved,
    two more, and two in the end. Training: on masks alone is enough with `read` interleaved, and
    with `accept` always, or score with a scorer for which it is. Source: T2M.
    """

    detector: Literal["low-prob", "other-token", "drop"] = "low-prob"
    """What is doubted: a token less probable than the threshold, one in whose place another is more
    probable than that, or one that is less probable by more than that than when it was written."""
    threshold: float = Field(
        default_factory=_default_threshold, json_schema_extra={"default": 0.9}, ge=0, le=1
    )
    """The detector's threshold. Left out: 0.9 for low-prob and other-token, 0.3 for drop."""
    read: Literal["visible", "interleaved"] = "visible"
    """Whether tokens are read where they stand, or in two passes that mask every second one."""
    max_tokens: Length = 16
    """The most tokens that a round doubts, beside their neighbours."""
    share: float = Field(default=1.0, gt=0, le=1)
    """The most of the response that a round doubts, but at least one token."""
    per_position: int = Field(default=64, ge=1, le=64)
    """The most rounds that mask one position."""
    widen: int = Field(default=0, ge=0, le=MAX_LENGTH)
    """Neighbours on either side that are masked with each."""
    rounds: int = Field(default=4, ge=1, le=64)
    """The most rounds."""
    accept: Literal["better", "score", "always"] = "better"
    """What a new text needs to take the place of the old: a higher DiSE over the whole response, a
    higher value of the request's own scorer, or nothing."""

    @property
    def top_logprobs(self) -> int:
        """The first candidate, and the next should that be the mask."""
        return 2 if self.detector == "other-token" else 0

    def check(self, scorer: SequenceScorer) -> None:
        if self.accept == "score" and scorer.scorer.needs_writing:
            problem = f"accept 'score' with {scorer.name}: what is written again is always surer"
            raise self._refusal(problem)

    def _refusal(self, why: str) -> InputError:
        return InputError(f"remask's {why}; take another", "reviser_settings")

    def revise(
        self, generation: Generation, denoiser: Denoiser, scorer: SequenceScorer
    ) -> Plan[Generation]:
        if self.detector == "drop" and generation.sequence.own_writing() is None:
            raise self._refusal("detector 'drop' needs a record of how the text was written")
        denoiser = replace(denoiser, policy=LowConfidence())
        now, revisions = generation, list[Revision]()
        seen = {now.sequence.ids.tobytes(): now}
        num_masked = np.zeros(len(now.sequence), np.int64)
        for number in range(self.rounds):
            report, num_reads = yield from count_nfe(self._report(now))
            masked = self._masked(now.sequence, report, num_masked)
            if len(masked) == 0:
                break
            num_masked[masked] += 1
            text = denoiser.rewrite(now.sequence, masked, number * MAX_LENGTH)
            (new, is_new), nfe = yield from count_nfe(_evaluated(text, scorer, seen))
            before, after = self._value(now), self._value(new)
            is_accepted = is_new and (self.accept == "always" or after > before)
            tokens = rewritten(now.sequence, new.sequence, masked)
            revisions.append(Revision(tokens, before, after, num_reads + nfe, is_accepted))
            if not is_accepted:
                break
            now = new
        return replace(
            generation, sequence=now.sequence, evaluation=now.evaluation, revisions=tuple(revisions)
        )

    def _report(self, generation: Generation) -> Plan[TokenReport]:
        if self.read == "visible":
            return _tokens(generation)
        text, size = generation.sequence, len(generation.sequence.response)
        likeliest = np.zeros((size, 2), np.int64), np.zeros((size, 2), np.float32)
        report = TokenReport(np.zeros(size, np.float32), *likeliest)
        for start in range(min(2, size)):
            half = text.response_positions[start::2]
            ids, readouts = text.with_masks(half), (TokenLogProbs(text.ids[half]), TopLogProbs(2))
            own, top = yield [
                Read(ids, half, readout, context_ids=text.ids) for readout in readouts
            ]
            report.logprobs[start::2] = own.logprobs
            report.top_ids[start::2], report.top_logprobs[start::2] = top.token_ids, top.logprobs
        return report

    def _masked(self, text: TokenSequence, report: TokenReport, num_masked: Ids) -> Ids:
        """Return the positions that are masked; num_masked: in how many rounds each was."""
        is_spent = num_masked[text.response_positions] >= self.per_position
        certainties, least = self._certainties(text, report)
        certainties[is_spent] = np.inf
        most = min(self.max_tokens, max(1, int(self.share * len(certainties))))
        order = np.argsort(certainties, kind="stable")[:most]
        is_masked = np.zeros(len(certainties), np.bool_)
        for index in order[certainties[order] < least].tolist():
            is_masked[max(index - self.widen, 0) : index + self.widen + 1] = True
        return text.prompt_length + np.flatnonzero(is_masked & ~is_spent)

    def _certainties(self, text: TokenSequence, report: TokenReport) -> tuple[Floats, float]:
        """Return what tokens are ranked by, [R], and the value below which they are doubted."""
        probabilities = np.exp(report.logprobs, dtype=np.float64)
        if self.detector == "low-prob":
            return probabilities, self.threshold
        if self.detector == "drop":
            writing = text.own_writing()
            assert writing is not None, "a rewritten text tells how it was written"
            written = np.exp(writing.logprobs[text.response_positions], dtype=np.float64)
            return probabilities - written, -self.threshold
        rows = np.arange(len(probabilities))
        first = rows, np.argmax(report.top_ids != text.special.mask_id, axis=1)
        others = np.exp(report.top_logprobs[first], dtype=np.float64)
        return np.where(report.top_ids[first] == text.response, np.inf, -others), -self.threshold

    def _value(self, generation: Generation) -> float:
        if self.accept == "score":
            return generation.evaluation.score.value
        return float(np.mean(_tokens(generation).logprobs, dtype=np.float64))


def _evaluated(
    plan: Plan[TokenSequence], scorer: SequenceScorer, seen: dict[bytes, Generation]
) -> Plan[tuple[Generation, bool]]:
    """Return a plan of a text, and whether it is new: then it is evaluated and put into `seen`."""
    text = yield from plan
    key = text.ids.tobytes()
    if key in seen:
        return seen[key], False
    seen[key] = Generation(text, (yield from scorer.evaluate(text)))
    return seen[key], True


def _tokens(generation: Generation) -> TokenReport:
    assert generation.evaluation.tokens is not None, "a reviser's scorer reports on every token"
    return generation.evaluation.tokens
