"""Turns generations into answers: ranked outputs with their texts, tokens and cost."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat

import numpy as np

from dise_core.front.fields import Field, JsonAnswer
from dise_core.front.outputs import CompletionOutput, RequestOutput, Token, Usage
from dise_core.front.resolving import Resolved, ResolvedWriting
from dise_core.history import Writing
from dise_core.models.pieces import pieces
from dise_core.models.predictor import MaskPredictor
from dise_core.params.objects import name_of
from dise_core.plans.cost import Cost
from dise_core.scoring.explaining import Explanation, explain
from dise_core.sequence import TokenSequence
from dise_core.writing.generation import Generation
from dise_core.writing.revisions import Revision


@dataclass(frozen=True, slots=True)
class AnswerMaker:
    """Builds the answer to a request."""

    predictor: MaskPredictor
    request: Resolved

    def make(
        self, generations: Sequence[Generation], cost: Cost, max_outputs: int | None = None
    ) -> RequestOutput:
        """Return the responses, best score first. Ties keep their order."""
        ranked = sorted(
            enumerate(generations), key=lambda pair: -pair[1].evaluation.score.rank_value
        )[:max_outputs]
        prompt = self.request.prompt
        num_given = len(prompt.ids) + len(prompt.suffix)
        num_written = sum(len(generation.sequence.text_positions) for _, generation in ranked)
        num_cached = min(num_given, cost.reused)
        return RequestOutput(
            prompt.text,
            tuple(prompt.ids.tolist()),
            self.predictor.info.name,
            tuple(self._output(index, generation) for index, generation in ranked),
            Usage(num_given, num_written, cost.nfe, cost.computed, 0.0, num_cached),
            is_approximate=not cost.is_exact,
            suffix=prompt.suffix_text,
        )

    def _output(self, index: int, generation: Generation) -> CompletionOutput:
        request, sequence = self.request, generation.sequence
        calibration = request.calibrated.calibration
        writing = sequence.own_writing()
        value = generation.evaluation.score.value
        return CompletionOutput(
            text=self.predictor.tokenizer.decode(sequence.ids[sequence.text_positions]),
            token_ids=tuple(sequence.response.tolist()),
            finish_reason=None,
            score=generation.evaluation.score,
            scorer=name_of(request.params.scorer),
            selector=name_of(request.params.selector or ""),
            tokens=self._tokens(generation, None if request.params.logprobs is None else writing),
            index=index,
            trace=generation.trace,
            stopped_by=generation.stopped_by,
            probability=None if calibration is None else calibration.probability(value),
            abstained=None if calibration is None else calibration.abstains(value),
            uncalibrated=request.calibrated.reason,
            writing=writing,
            explanation=self._explanation(generation),
        )

    def _explanation(self, generation: Generation) -> Explanation | None:
        if (transcripts := generation.evaluation.transcripts) is None:
            return None
        tokenizer = self.predictor.tokenizer
        return explain(transcripts, self.request.scorer, generation.sequence, tokenizer)

    def _tokens(self, generation: Generation, writing: Writing | None) -> tuple[Token, ...]:
        sequence, report = generation.sequence, generation.evaluation.tokens
        response = sequence.response_positions
        selected = sequence.mask_of(generation.evaluation.score.positions)[response]
        is_end = sequence.special.is_end(sequence.response)
        text_of = self.predictor.tokenizer.token_text
        texts = iter(pieces(self.predictor.tokenizer, sequence.response[~is_end]))
        rows: Iterable[tuple[float | None, list[int], list[float]]] = repeat((None, [], []))
        if report is not None:
            reported = (report.logprobs, report.top_ids, report.top_logprobs)
            rows = zip(*(column.tolist() for column in reported), strict=True)
        written_logprobs: Iterable[float | None] = repeat(None)
        if writing is not None:
            values = writing.logprobs[response].tolist()
            written_logprobs = (None if math.isnan(value) else value for value in values)
        columns = (column.tolist() for column in (sequence.response, selected, is_end))
        return tuple(
            Token(
                token_id,
                text_of(token_id) if end else next(texts),
                logprob,
                is_selected,
                end,
                tuple(zip(ids, logprobs, strict=True)),
                tuple(map(text_of, ids)),
                value,
            )
            for token_id, is_selected, end, (logprob, ids, logprobs), value in zip(
                *columns, rows, written_logprobs, strict=False
            )
        )


@dataclass(frozen=True, slots=True)
class WrittenAnswers(AnswerMaker):
    """Builds the answer to a request for answers."""

    request: ResolvedWriting

    def make_written(self, generations: Sequence[Generation], cost: Cost) -> RequestOutput:
        params = self.request.params
        answer = self.make(generations, cost, params.n)
        outputs = tuple(
            self._finish(output, generations[output.index]) for output in answer.outputs
        )
        return replace(answer, outputs=outputs, cache=params.cache, seed=params.seed)

    def _finish(self, output: CompletionOutput, generation: Generation) -> CompletionOutput:
        """Return an output with what only written ones have, up to a stop text."""
        params, text = self.request.params, output.text
        stops = [start for stop in params.stop if (start := text.find(stop)) >= 0]
        return replace(
            output,
            text=text[: min(stops, default=len(text))],
            finish_reason="stop" if stops else self._finish_reason(generation),
            length_controller=name_of(params.length),
            reviser=None if params.reviser is None else name_of(params.reviser),
            revisions=tuple(map(self._revision, generation.revisions)),
            fields=self._fields(generation.sequence, output),
        )

    def _finish_reason(self, generation: Generation) -> str:
        sequence = generation.sequence
        has_end = len(sequence.text_positions) < len(sequence.response)
        # What meets a constraint is whole, even where no room was left for an end token.
        is_whole = has_end or self.request.constraint is not None
        return generation.finish_reason or ("stop" if is_whole else "length")

    def _fields(self, text: TokenSequence, output: CompletionOutput) -> Mapping[str, Field]:
        """Return the fields, by the report's log-probabilities, else the writing's."""
        tokens, writing = output.tokens, output.writing
        json = self.request.constraint
        if json is None or not json.is_json or writing is None:
            return {}
        response = text.response_positions
        written = writing.logprobs[response]
        logprobs = np.array([token.logprob for token in tokens], np.float64)
        logprobs = np.where(np.isnan(logprobs), written, logprobs)
        pieces = ["" if token.is_end else token.text for token in tokens]
        automaton, calibration = json.tokens.automaton, self.request.calibrated.calibration
        return JsonAnswer(automaton, pieces, logprobs, writing.forced[response]).fields(calibration)

    def _revision(self, revision: Revision) -> Revision:
        text_of = self.predictor.tokenizer.token_text
        tokens = tuple(
            token._replace(
                old_text=text_of(token.old),
                new_text=None if token.new is None else text_of(token.new),
            )
            for token in revision.tokens
        )
        return replace(revision, tokens=tokens)
