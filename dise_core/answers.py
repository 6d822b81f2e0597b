"""Turns generations into answers: ranked outputs with their texts, tokens and cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import repeat

from dise_core.calibration import Calibration
from dise_core.cost import Cost
from dise_core.model import MaskPredictor
from dise_core.outputs import CompletionOutput, Generation, RequestOutput, Token, Usage
from dise_core.params import SamplingParams, ScoringParams
from dise_core.pieces import pieces
from dise_core.prompts import GivenPrompt
from dise_core.revisions import Revision


@dataclass(frozen=True, slots=True)
class Answers:
    """Builds the answers of one loaded model. calibration: of its scores."""

    predictor: MaskPredictor
    calibration: Calibration | None = None

    def written(
        self,
        prompt: GivenPrompt,
        generations: Sequence[Generation],
        params: SamplingParams,
        cost: Cost,
    ) -> RequestOutput:
        """Return the n best-scored of the generated responses, best first."""
        best = _best_first(generations)[: params.n]
        outputs = [
            replace(
                self._output(index, generation, params),
                finish_reason=_finish_reason(generation),
                length_controller=params.length,
                reviser=params.reviser,
                revisions=tuple(map(self._revision, generation.revisions)),
            )
            for index, generation in best
        ]
        stopped = [_stopped(output, params.stop) for output in outputs]
        answer = self._answer(prompt, stopped, [generation for _, generation in best], cost)
        return replace(answer, cache=params.cache, seed=params.seed)

    def given(
        self,
        prompt: GivenPrompt,
        generations: Sequence[Generation],
        params: ScoringParams,
        cost: Cost,
    ) -> RequestOutput:
        """Return the given responses, best score first."""
        ranked = _best_first(generations)
        outputs = [self._output(index, generation, params) for index, generation in ranked]
        return self._answer(prompt, outputs, [generation for _, generation in ranked], cost)

    def _answer(
        self,
        prompt: GivenPrompt,
        outputs: Sequence[CompletionOutput],
        generations: Sequence[Generation],
        cost: Cost,
    ) -> RequestOutput:
        num_written = sum(len(generation.sequence.text_positions) for generation in generations)
        usage = Usage(len(prompt.ids), num_written, cost.nfe, cost.computed, seconds=0.0)
        return RequestOutput(
            prompt.text,
            tuple(prompt.ids.tolist()),
            self.predictor.info.name,
            tuple(outputs),
            usage,
            is_approximate=not cost.is_exact,
        )

    def _output(
        self, index: int, generation: Generation, params: ScoringParams
    ) -> CompletionOutput:
        sequence, calibration = generation.sequence, self.calibration
        value = generation.evaluation.score.value
        return CompletionOutput(
            text=self.predictor.tokenizer.decode(sequence.ids[sequence.text_positions]),
            token_ids=tuple(sequence.response.tolist()),
            finish_reason=None,
            score=generation.evaluation.score,
            scorer=params.scorer,
            selector=params.selector or "",
            tokens=self._tokens(generation),
            index=index,
            trace=generation.trace,
            stopped_by=generation.stopped_by,
            probability=None if calibration is None else calibration.probability(value),
            abstained=None if calibration is None else calibration.abstains(value),
        )

    def _revision(self, revision: Revision) -> Revision:
        """Return the revision with the texts of its tokens."""
        text_of = self.predictor.tokenizer.token_text
        tokens = tuple(
            token._replace(
                old_text=text_of(token.old),
                new_text=None if token.new is None else text_of(token.new),
            )
            for token in revision.tokens
        )
        return replace(revision, tokens=tokens)

    def _tokens(self, generation: Generation) -> tuple[Token, ...]:
        sequence, report = generation.sequence, generation.evaluation.tokens
        selected = sequence.mask_of(generation.evaluation.score.positions)[sequence.prompt_length :]
        is_end = sequence.special.is_end(sequence.response)
        text_of = self.predictor.tokenizer.token_text
        spelt = iter(pieces(self.predictor.tokenizer, sequence.response[~is_end]))
        written = zip(
            *(each.tolist() for each in (sequence.response, selected, is_end)), strict=True
        )
        read: Iterable[tuple[float | None, list[int], list[float]]] = repeat(
            (None, [], []), len(sequence.response)
        )
        if report is not None:
            columns = (report.logprobs, report.top_ids, report.top_logprobs)
            read = zip(*(each.tolist() for each in columns), strict=True)
        return tuple(
            Token(
                token_id,
                text_of(token_id) if end else next(spelt),
                logprob,
                chosen,
                end,
                tuple(zip(ids, logprobs, strict=True)),
                tuple(map(text_of, ids)),
            )
            for (token_id, chosen, end), (logprob, ids, logprobs) in zip(written, read, strict=True)
        )


def _best_first(generations: Sequence[Generation]) -> list[tuple[int, Generation]]:
    """Return the generations with their indices, best first; ties keep their order."""
    return sorted(enumerate(generations), key=lambda pair: -pair[1].evaluation.score.rank_value)


def _finish_reason(generation: Generation) -> str:
    """Return "stop" if the model or the length controller ended the text, else "length"."""
    sequence = generation.sequence
    has_end = len(sequence.text_positions) < len(sequence.response)
    return generation.finish_reason or ("stop" if has_end else "length")


def _stopped(output: CompletionOutput, stops: Sequence[str]) -> CompletionOutput:
    """Return the output with its text cut before the first stop text; unchanged without one."""
    found = [start for stop in stops if (start := output.text.find(stop)) >= 0]
    return (
        replace(output, text=output.text[: min(found)], finish_reason="stop") if found else output
    )
