"""From what a user asks for to a plan: checks, strategies by name, and the answer's shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from numbers import Integral
from typing import TypeVar

import numpy as np

from dise_core.arrays import Ids
from dise_core.catalog import Catalog
from dise_core.denoise import Denoiser
from dise_core.errors import InputError, TooLongError
from dise_core.interfaces import MaskPredictor, Scorer, UnmaskingPolicy
from dise_core.noise import Noise, drawn_seed
from dise_core.outputs import CompletionOutput, Generation, RequestOutput, Token, Usage
from dise_core.params import SamplingParams, ScoringParams
from dise_core.reading import Cost, Plan, count_cost, gather
from dise_core.scoring import SequenceScorer
from dise_core.sequence import TokenSequence, Translate, as_ids, check_token_ids

Prompt = str | Sequence[int]
"""A text, or token ids that are taken as they are."""

P = TypeVar("P", bound=ScoringParams)

Message = Mapping[str, str]
"""One turn of a conversation: {"role": ..., "content": ...}."""


@dataclass(frozen=True, slots=True)
class _Given:
    """A prompt as the model reads it, int64 [P], and as it was given: a text, a conversation, or neither."""

    ids: Ids
    text: str | None = None
    messages: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class Planner:
    """Turns requests into plans. A plan checks its request before it reads anything.

    predictors: the loaded models, "target" and perhaps "judge".
    """

    predictors: Mapping[str, MaskPredictor]
    catalog: Catalog

    @property
    def predictor(self) -> MaskPredictor:
        """The model that writes and scores."""
        return self.predictors["target"]

    def generate(self, prompt: Prompt, params: SamplingParams, chat: bool | None = None) -> Plan[RequestOutput]:
        """Return a plan of the responses to one prompt, best score first.

        chat: put a text prompt into the model's chat template; None means where it has one.
        """
        return (yield from self._generate(self._prompt(prompt, chat), params))

    def chat(self, messages: Sequence[Message], params: SamplingParams) -> Plan[RequestOutput]:
        """Return a plan of the responses to a conversation."""
        if not messages:
            raise InputError("the conversation is empty: it needs at least one message", "messages")
        ids = self.predictor.tokenizer.encode_chat(messages)
        return (yield from self._generate(_Given(ids, messages[-1]["content"], tuple(messages)), params))

    def score(
        self, prompt: Prompt, response: Prompt, params: ScoringParams, chat: bool | None = None
    ) -> Plan[RequestOutput]:
        """Return a plan of the score of a given response. An empty prompt means a text without one."""
        given = self._prompt(prompt, chat) if len(prompt) else self._no_prompt()
        return (yield from self._evaluate(given, [response], params))

    def rank(
        self, prompt: Prompt, candidates: Sequence[Prompt], params: ScoringParams, chat: bool | None = None
    ) -> Plan[RequestOutput]:
        """Return a plan of the candidates, likeliest first: by log-likelihood where the scorer has one, else by value."""
        if len(candidates) == 0:
            raise InputError("no candidate given", "candidates")
        given = self._prompt(prompt, chat) if len(prompt) else self._no_prompt()
        return (yield from self._evaluate(given, candidates, params))

    def generations(
        self, prompts: Prompt | Sequence[Prompt], params: SamplingParams | Sequence[SamplingParams] | None, chat: bool | None
    ) -> list[Plan[RequestOutput]]:
        """Return the plans of one or several prompts; params are for all, or one for each."""
        several = _several(prompts, "prompt")
        each = list(params) if isinstance(params, Sequence) else [params or SamplingParams()] * len(several)
        if len(several) != len(each):
            raise InputError(f"{len(several)} prompts do not pair up with {len(each)} params", "params")
        return [self.generate(prompt, its, chat) for prompt, its in zip(several, each, strict=True)]

    def conversations(
        self, conversations: Sequence[Message] | Sequence[Sequence[Message]], params: SamplingParams | None
    ) -> list[Plan[RequestOutput]]:
        """Return the plans of one or several conversations."""
        several: list[Sequence[Message]] = (
            [conversations] if conversations and isinstance(conversations[0], Mapping) else list(conversations)  # type: ignore[list-item, arg-type]
        )
        if not several:
            raise InputError("no conversation given", "conversations")
        return [self.chat(messages, params or SamplingParams()) for messages in several]

    def scores(
        self,
        prompts: Prompt | Sequence[Prompt],
        responses: Prompt | Sequence[Prompt],
        params: ScoringParams | None,
        chat: bool | None,
    ) -> list[Plan[RequestOutput]]:
        """Return the plans of one or several pairs of prompt and response."""
        several, answers = _several(prompts, "prompt"), _several(responses, "response")
        if len(several) != len(answers):
            raise InputError(f"{len(several)} prompts do not pair up with {len(answers)} responses", "responses")
        pairs = zip(several, answers, strict=True)
        return [self.score(prompt, response, params or ScoringParams(), chat) for prompt, response in pairs]

    def texts(
        self, prompt: Prompt, responses: Sequence[Prompt], params: ScoringParams, chat: bool | None = None
    ) -> list[TokenSequence]:
        """Return the checked texts that `score` would score, for those who score them with several scorers."""
        given = self._prompt(prompt, chat) if len(prompt) else self._no_prompt()
        return [self._finished_text(given, response, params) for response in responses]

    def prompt_ids(self, prompt: Prompt, chat: bool | None = None) -> Ids:
        """Return the prompt as the model reads it, int64 [P], for those who look at lengths before they ask."""
        return self._prompt(prompt, chat).ids

    def check_scorer(self, name: str, scorer: Scorer) -> None:
        """Raise InputError, which calls the scorer `name`, where the model that it asks is not loaded or of another kind."""
        if scorer.asks == "judge" and "judge" not in self.predictors:
            raise InputError(
                f"scorer {name!r} needs an auto-regressive judge; name one with --judge MODEL (judge=...)", "judge"
            )
        if scorer.asks == "target" and self.predictor.is_causal:
            raise InputError(
                f"scorer {name!r} needs a diffusion language model, and {self.predictor.name!r} is "
                "auto-regressive; score with 'ar-perplexity', or use another model",
                "scorer",
            )

    def _evaluate(self, prompt: _Given, responses: Sequence[Prompt], params: ScoringParams) -> Plan[RequestOutput]:
        scorer, params = self._scorer(params)
        sequences = [self._finished_text(prompt, response, params) for response in responses]
        evaluations, cost = yield from count_cost(gather(*(scorer.evaluate(sequence) for sequence in sequences)))
        generations = [Generation(*pair) for pair in zip(sequences, evaluations, strict=True)]
        return self._answer(prompt, generations, params, cost, is_given=True)

    def _finished_text(self, prompt: _Given, response: Prompt, params: ScoringParams) -> TokenSequence:
        response_ids = self._encode(response)
        if len(response_ids) == 0:
            raise InputError("the response is empty: it needs at least one token", "response")
        sequence = TokenSequence.of(
            prompt.ids,
            response_ids,
            self.predictor.special,
            params.block_length,
            self._translation(prompt),
            self.predictor.max_length,
        )
        self._refuse_masks(sequence.ids)
        self._refuse_longer(len(sequence), f"a text of {len(sequence)} tokens")
        return sequence

    def _generate(self, prompt: _Given, params: SamplingParams) -> Plan[RequestOutput]:
        if len(prompt.ids) == 0:
            raise InputError("the prompt is empty: it needs at least one token", "prompt")
        self._refuse_masks(prompt.ids)
        num_tokens = len(prompt.ids) + params.max_tokens
        self._refuse_longer(num_tokens, f"a prompt of {len(prompt.ids)} tokens with max_tokens={params.max_tokens}")
        if params.seed is None:
            params = params.model_copy(update={"seed": drawn_seed()})
        controller = self.catalog.length_controller(params.length, params.length_settings)
        policy = self._policy(params)
        scorer, params = self._scorer(params)
        samples = (
            controller.generate(prompt.ids, self._denoiser(prompt, params, policy, sample), scorer)
            for sample in range(params.num_samples)
        )
        generations, cost = yield from count_cost(gather(*samples))
        return self._answer(prompt, generations, params, cost)

    def _policy(self, params: SamplingParams) -> UnmaskingPolicy:
        policy = self.catalog.unmasking_policy(params.unmasking, params.unmasking_settings)
        if params.num_samples > 1 and params.temperature == 0 and not policy.is_random:
            raise InputError(
                f"{params.num_samples} responses at temperature 0 would all be the same; set a temperature above 0 or "
                "unmasking 'random'",
                "temperature",
            )
        return policy

    def _scorer(self, params: P) -> tuple[SequenceScorer, P]:
        """Return the scorer, and the params with the name of the selector that it scores over."""
        scorer = self.catalog.scorer(params.scorer, params.scorer_settings)
        self.check_scorer(params.scorer, scorer)
        selector = params.selector or scorer.default_selector
        bound = SequenceScorer(scorer, self.catalog.selector(selector), params.logprobs)
        return bound, params.model_copy(update={"selector": selector})

    def _denoiser(self, prompt: _Given, params: SamplingParams, policy: UnmaskingPolicy, sample: int) -> Denoiser:
        forbidden = self._forbidden(params)
        is_tempered = params.tempered_confidence
        return Denoiser(
            special=self.predictor.special,
            policy=policy,
            noise=Noise.for_request(params.seed or 0, prompt.ids, sample),
            max_tokens=params.max_tokens,
            max_length=self.predictor.max_length,
            block_length=params.block_length,
            tokens_per_step=params.tokens_per_step,
            steps=params.steps,
            eps=params.eps,
            temperature=params.temperature,
            top_p=params.top_p,
            top_k=params.top_k,
            cfg_scale=params.cfg_scale,
            forbidden=forbidden,
            translate=self._translation(prompt),
            sample=sample,
            cache=params.cache,
            early_exit=params.early_exit,
            is_tempered=self.predictor.tempered_confidence if is_tempered is None else is_tempered,
            unranked=self._unranked(params),
        )

    def _forbidden(self, params: SamplingParams) -> tuple[int, ...]:
        """Return the ids that are never written, beside the mask. Raises InputError if none is left."""
        special = self.predictor.special
        check_token_ids(as_ids(params.forbidden_token_ids), self.predictor.vocab_size, "forbidden_token_ids")
        end = () if special.eos_id is None or not params.logits_eos_inf else (special.eos_id,)
        if len({special.mask_id, *params.forbidden_token_ids, *end}) == self.predictor.vocab_size:
            raise InputError("every token is forbidden, so none could be written", "forbidden_token_ids")
        return (*params.forbidden_token_ids, *end)

    def _unranked(self, params: SamplingParams) -> tuple[int, ...]:
        """Return the end tokens that count for nothing in the confidences. Raises InputError for a model without any."""
        special = self.predictor.special
        for name in ("logits_eos_inf", "confidence_eos_eot_inf"):
            if getattr(params, name) and special.eos_id is None:
                raise InputError(f"{name} needs an end token, and {self.predictor.name!r} has none", name)
        if params.confidence_eos_eot_inf:
            return tuple(sorted(special.eos_ids))
        return (special.eos_id,) if params.logits_eos_inf and special.eos_id is not None else ()

    def _translation(self, prompt: _Given) -> Translate:
        """Return how a text with this prompt is put into another loaded model's tokens.

        A conversation goes through that model's chat template where it has one. Any other prompt, and token ids as the
        text that they stand for, goes in front of the response after the begin-of-text token.
        """

        def translate(sequence: TokenSequence, name: str) -> TokenSequence:
            other = self.predictors[name]
            mine, its = self.predictor.tokenizer, other.tokenizer
            if prompt.messages and its.has_chat_template:
                prompt_ids = its.encode_chat(prompt.messages)
            else:
                text = prompt.text if prompt.text is not None else mine.decode(sequence.prompt)
                prompt_ids = np.concatenate([its.start_ids, its.encode(text)])
            response_ids = its.encode(mine.decode(sequence.ids[sequence.text_positions]))
            if len(response_ids) == 0:
                raise InputError(f"the tokenizer of {other.name!r} makes no token of the response", "response")
            if (num_tokens := len(prompt_ids) + len(response_ids)) > other.max_length:
                raise TooLongError(
                    f"a text of {num_tokens} tokens is longer than the limit of {other.name!r}: {other.max_length}"
                )
            return TokenSequence.of(prompt_ids, response_ids, other.special, sequence.block_length)

        return translate

    def _answer(
        self,
        prompt: _Given,
        generations: Sequence[Generation],
        params: ScoringParams,
        cost: Cost,
        is_given: bool = False,
    ) -> RequestOutput:
        best_first = sorted(enumerate(generations), key=lambda pair: -pair[1].evaluation.score.rank_value)
        kept = best_first[: params.n] if isinstance(params, SamplingParams) else best_first
        num_written = sum(len(generation.sequence.text_positions) for _, generation in kept)
        outputs = tuple(self._output(index, generation, params, is_given) for index, generation in kept)
        cache, seed = (params.cache, params.seed) if isinstance(params, SamplingParams) else ("none", None)
        usage = Usage(len(prompt.ids), num_written, cost.nfe, cost.computed, seconds=0.0)
        return RequestOutput(prompt.text, tuple(prompt.ids.tolist()), self.predictor.name, outputs, usage, cache, seed)

    def _output(self, index: int, generation: Generation, params: ScoringParams, is_given: bool) -> CompletionOutput:
        sequence = generation.sequence
        written = sequence.ids[sequence.text_positions]
        text = self.predictor.tokenizer.decode(written)
        stop = _first(text, params.stop) if isinstance(params, SamplingParams) else None
        finish_reason = (
            "stop"
            if stop is not None
            else generation.finish_reason or ("stop" if len(written) < len(sequence.response) else "length")
        )
        return CompletionOutput(
            text=text[:stop],
            token_ids=tuple(sequence.response.tolist()),
            finish_reason=None if is_given else finish_reason,
            score=generation.evaluation.score,
            scorer=params.scorer,
            selector=params.selector or "",
            tokens=self._tokens(generation),
            index=index,
            length_controller=params.length if isinstance(params, SamplingParams) else None,
            trace=generation.trace,
            stopped_by=generation.stopped_by,
        )

    def _tokens(self, generation: Generation) -> tuple[Token, ...]:
        sequence, report = generation.sequence, generation.evaluation.tokens
        selected = sequence.mask_of(generation.evaluation.score.positions)[sequence.prompt_length :]
        is_end = sequence.special.is_end(sequence.response)
        text_of = self.predictor.tokenizer.token_text
        written = zip(*(each.tolist() for each in (sequence.response, selected, is_end)), strict=True)
        read: Iterable[tuple[float | None, list[int], list[float]]] = repeat((None, [], []), len(sequence.response))
        if report is not None:
            read = zip(*(each.tolist() for each in (report.logprobs, report.top_ids, report.top_logprobs)), strict=True)
        return tuple(
            Token(
                token_id,
                text_of(token_id),
                logprob,
                chosen,
                end,
                tuple(zip(ids, logprobs, strict=True)),
                tuple(map(text_of, ids)),
            )
            for (token_id, chosen, end), (logprob, ids, logprobs) in zip(written, read, strict=True)
        )

    def _prompt(self, prompt: Prompt, chat: bool | None) -> _Given:
        tokenizer = self.predictor.tokenizer
        if not isinstance(prompt, str):
            return _Given(self._encode(prompt))
        if chat and not tokenizer.has_chat_template:
            raise InputError(f"model {self.predictor.name!r} has no chat template; use --no-chat (chat=False)", "chat")
        if not prompt.strip():
            raise InputError("the prompt is empty", "prompt")
        messages = ({"role": "user", "content": prompt},)
        if chat or (chat is None and tokenizer.has_chat_template):
            return _Given(tokenizer.encode_chat(messages), prompt, messages)
        return _Given(tokenizer.encode(prompt), prompt, messages if chat is None else ())

    def _no_prompt(self) -> _Given:
        return _Given(self.predictor.tokenizer.start_ids if self.predictor.is_causal else as_ids([]), "")

    def _encode(self, text: Prompt) -> Ids:
        if isinstance(text, str):
            return self.predictor.tokenizer.encode(text)
        ids = as_ids(text)
        check_token_ids(ids, self.predictor.vocab_size)
        return ids

    def _refuse_masks(self, ids: Ids) -> None:
        masks = np.flatnonzero(ids == self.predictor.special.mask_id)
        if len(masks):
            name = self.predictor.tokenizer.token_text(int(ids[masks[0]]))
            raise InputError(f"the text holds the mask token {name} at position {masks[0]}; it must be finished text")

    def _refuse_longer(self, num_tokens: int, what: str) -> None:
        if num_tokens > self.predictor.max_length:
            raise TooLongError(f"{what} is longer than the model's limit of {self.predictor.max_length} tokens")


def _first(text: str, stops: Sequence[str]) -> int | None:
    """Return where the first of the stop texts begins, None if the text holds none."""
    places = [place for stop in stops if (place := text.find(stop)) >= 0]
    return min(places, default=None)


def with_seconds(output: RequestOutput, seconds: float) -> RequestOutput:
    """Return the output with the time that its request took."""
    return replace(output, usage=replace(output.usage, seconds=seconds))


def _several(prompts: Prompt | Sequence[Prompt], parameter: str) -> list[Prompt]:
    """Return a list of prompts; a text or a flat list of token ids is one prompt."""
    if isinstance(prompts, str):
        return [prompts]
    if len(prompts) == 0:
        raise InputError(f"no {parameter} given", f"{parameter}s")
    if all(isinstance(item, Integral) for item in prompts):
        return [prompts]  # type: ignore[list-item]
    return list(prompts)  # type: ignore[arg-type]
