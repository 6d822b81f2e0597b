"""Writes one response: its length controller, then its reviser if it has one."""

from dataclasses import dataclass, replace

from dise_core.arrays import Ids
from dise_core.plans.plan import Plan
from dise_core.scoring.contract import planned
from dise_core.scoring.sequence_scorer import SequenceScorer, regenerate
from dise_core.writing.contract import checked_generation, checked_revision
from dise_core.writing.denoise import Denoiser
from dise_core.writing.generation import Generation
from dise_core.writing.length import LengthController
from dise_core.writing.reviser import Reviser


@dataclass(frozen=True, slots=True)
class Writer:
    """What writes the responses of one request. What its strategies answer is checked."""

    controller: LengthController
    reviser: Reviser | None = None

    def write(self, prompt: Ids, denoiser: Denoiser, scorer: SequenceScorer) -> Plan[Generation]:
        scorer = replace(scorer, memory=denoiser.memory)
        if self.reviser is None:
            return (yield from self._first(prompt, denoiser, scorer))
        self.reviser.check(scorer)
        num_top = scorer.top_logprobs
        reporting = replace(scorer, top_logprobs=num_top or 0)
        first = yield from self._first(prompt, replace(denoiser, is_revised=True), reporting)
        revised = yield from self._revised(self.reviser, first, denoiser, reporting)
        tokens = None if num_top is None else revised.evaluation.tokens
        return replace(revised, evaluation=replace(revised.evaluation, tokens=tokens))

    def _first(self, prompt: Ids, denoiser: Denoiser, scorer: SequenceScorer) -> Plan[Generation]:
        role, generate = "length controller", self.controller.generate
        plan = planned(role, self.controller, generate, prompt, denoiser, scorer)
        generation = yield from plan
        ends, mask_id = (prompt, denoiser.suffix), denoiser.special.mask_id
        return checked_generation(role, self.controller, generation, *ends, mask_id)

    def _revised(
        self, reviser: Reviser, first: Generation, denoiser: Denoiser, scorer: SequenceScorer
    ) -> Plan[Generation]:
        """Return a plan of the revised response. The reviser gets a copy of the text."""
        text, evaluation = first.sequence, first.evaluation
        if evaluation.tokens is None:
            tokens = yield from regenerate(text, scorer.top_logprobs or 0)
            evaluation = replace(evaluation, tokens=tokens)
        copy = replace(first, sequence=replace(text, ids=text.ids.copy()), evaluation=evaluation)
        again = replace(denoiser, noise=denoiser.noise.for_revision(), is_revised=True)
        plan = planned("reviser", reviser, reviser.revise, copy, again, scorer)
        revised = yield from plan
        max_tokens = max(len(text.response), denoiser.max_tokens)
        max_tokens = min(max_tokens, denoiser.max_length - text.prompt_length - text.suffix_length)
        revised = checked_revision(reviser, revised, text, denoiser.info, max_tokens)
        after = revised.sequence
        if (writing := after.own_writing()) is None and text.writing is not None:
            writing = text.writing.onto(after.ids)
        return replace(
            first,
            sequence=replace(text, ids=after.ids, writing=writing),
            evaluation=revised.evaluation,
            revisions=revised.revisions,
        )
