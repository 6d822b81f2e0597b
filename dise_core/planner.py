"""From what a user asks for to a plan: checks, strategies by name, and the answer's shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dise_core.arrays import Ids
from dise_core.catalog import Catalog
from dise_core.denoise import Denoiser
from dise_core.errors import InputError, TooLongError
from dise_core.interfaces import MaskPredictor, UnmaskingPolicy
from dise_core.noise import Noise
from dise_core.outputs import CompletionOutput, Generation, RequestOutput, Token, Usage
from dise_core.params import SamplingParams, ScoringParams
from dise_core.reading import Plan, count_nfe, gather
from dise_core.scoring import SequenceScorer
from dise_core.sequence import TokenSequence, as_ids, check_token_ids

Prompt = str | Sequence[int]
"""A text, or token ids that are taken as they are."""

Message = Mapping[str, str]
"""One turn of a conversation: {"role": ..., "content": ...}."""


@dataclass(frozen=True, slots=True)
class Planner:
    """Turns requests to one model into plans. A plan checks its request before it reads anything."""

    predictor: MaskPredictor
    catalog: Catalog

    def generate(self, prompt: Prompt, params: SamplingParams, chat: bool | None = None) -> Plan[RequestOutput]:
        """Return a plan of the responses to one prompt, best score first.

        chat: put a text prompt into the model's chat template; None means where it has one.
        """
        ids = self._prompt_ids(prompt, chat)
        text = prompt if isinstance(prompt, str) else None
        return (yield from self._generate(ids, text, params))

    def chat(self, messages: Sequence[Message], params: SamplingParams) -> Plan[RequestOutput]:
        """Return a plan of the responses to a conversation."""
        if not messages:
            raise InputError("the conversation is empty: it needs at least one message", "messages")
        ids = self.predictor.tokenizer.encode_chat(messages)
        return (yield from self._generate(ids, messages[-1]["content"], params))

    def score(
        self, prompt: Prompt, response: Prompt, params: ScoringParams, chat: bool | None = None
    ) -> Plan[RequestOutput]:
        """Return a plan of the score of a given response. An empty prompt means a text without one."""
        prompt_ids = self._prompt_ids(prompt, chat) if len(prompt) else as_ids([])
        response_ids = self._encode(response)
        if len(response_ids) == 0:
            raise InputError("the response is empty: it needs at least one token", "response")
        sequence = TokenSequence.of(prompt_ids, response_ids, self.predictor.special, params.block_length)
        self._refuse_masks(sequence.ids)
        self._refuse_longer(len(sequence), f"a text of {len(sequence)} tokens")
        evaluation, nfe = yield from count_nfe(self._scorer(params).score(sequence))
        text = prompt if isinstance(prompt, str) else None
        return self._answer(prompt_ids, text, [Generation(sequence, evaluation)], params, nfe, is_given=True)

    def _generate(self, prompt: Ids, text: str | None, params: SamplingParams) -> Plan[RequestOutput]:
        if len(prompt) == 0:
            raise InputError("the prompt is empty: it needs at least one token", "prompt")
        self._refuse_masks(prompt)
        num_tokens = len(prompt) + params.max_tokens
        self._refuse_longer(num_tokens, f"a prompt of {len(prompt)} tokens with max_tokens={params.max_tokens}")
        controller = self.catalog.length_controller(params.length, params.length_settings)
        policy = self._policy(params)
        scorer = self._scorer(params)
        samples = (
            controller.generate(prompt, self._denoiser(prompt, params, policy, sample), scorer)
            for sample in range(params.num_samples)
        )
        generations, nfe = yield from count_nfe(gather(*samples))
        return self._answer(prompt, text, generations, params, nfe)

    def _policy(self, params: SamplingParams) -> UnmaskingPolicy:
        policy = self.catalog.unmasking_policy(params.unmasking, params.unmasking_settings)
        if params.num_samples > 1 and params.temperature == 0 and not policy.is_random:
            raise InputError(
                f"{params.num_samples} responses at temperature 0 would all be the same; set a temperature above 0 or "
                "unmasking 'random'",
                "temperature",
            )
        return policy

    def _scorer(self, params: ScoringParams) -> SequenceScorer:
        scorer = self.catalog.scorer(params.scorer, params.scorer_settings)
        return SequenceScorer(scorer, self.catalog.selector(params.selector), params.logprobs)

    def _denoiser(self, prompt: Ids, params: SamplingParams, policy: UnmaskingPolicy, sample: int) -> Denoiser:
        check_token_ids(as_ids(params.forbidden_token_ids), self.predictor.vocab_size, "forbidden_token_ids")
        return Denoiser(
            special=self.predictor.special,
            policy=policy,
            noise=Noise.for_request(params.seed, prompt, sample),
            max_tokens=params.max_tokens,
            max_length=self.predictor.max_length,
            block_length=params.block_length,
            tokens_per_step=params.tokens_per_step,
            steps=params.steps,
            temperature=params.temperature,
            top_p=params.top_p,
            top_k=params.top_k,
            cfg_scale=params.cfg_scale,
            forbidden=params.forbidden_token_ids,
        )

    def _answer(
        self,
        prompt: Ids,
        text: str | None,
        generations: Sequence[Generation],
        params: ScoringParams,
        nfe: int,
        is_given: bool = False,
    ) -> RequestOutput:
        best_first = sorted(generations, key=lambda generation: -generation.evaluation.score.value)
        kept = best_first[: params.n] if isinstance(params, SamplingParams) else best_first
        num_written = sum(len(generation.sequence.text_positions) for generation in kept)
        outputs = tuple(self._output(generation, params, is_given) for generation in kept)
        usage = Usage(prompt_tokens=len(prompt), completion_tokens=num_written, nfe=nfe, seconds=0.0)
        return RequestOutput(text, tuple(prompt.tolist()), self.predictor.name, outputs, usage)

    def _output(self, generation: Generation, params: ScoringParams, is_given: bool) -> CompletionOutput:
        sequence = generation.sequence
        written = sequence.ids[sequence.text_positions]
        ended = len(written) < len(sequence.response)
        return CompletionOutput(
            text=self.predictor.tokenizer.decode(written),
            token_ids=tuple(sequence.response.tolist()),
            finish_reason=None if is_given else "stop" if ended else "length",
            score=generation.evaluation.score,
            scorer=params.scorer,
            selector=params.selector,
            tokens=self._tokens(generation),
            length_controller=params.length if isinstance(params, SamplingParams) else None,
            trace=generation.trace,
            stopped_by=generation.stopped_by,
        )

    def _tokens(self, generation: Generation) -> tuple[Token, ...]:
        sequence, report = generation.sequence, generation.evaluation.tokens
        selected = sequence.mask_of(generation.evaluation.score.positions)[sequence.prompt_length :]
        is_end = sequence.special.is_end(sequence.response)
        return tuple(
            Token(
                id=token_id,
                text=self.predictor.tokenizer.token_text(token_id),
                logprob=float(report.logprobs[row]),
                selected=bool(selected[row]),
                is_end=bool(is_end[row]),
                top_logprobs=tuple(zip(report.top_ids[row].tolist(), report.top_logprobs[row].tolist(), strict=True)),
            )
            for row, token_id in enumerate(sequence.response.tolist())
        )

    def _prompt_ids(self, prompt: Prompt, chat: bool | None) -> Ids:
        tokenizer = self.predictor.tokenizer
        if not isinstance(prompt, str):
            return self._encode(prompt)
        if chat and not tokenizer.has_chat_template:
            raise InputError(f"model {self.predictor.name!r} has no chat template; use --no-chat (chat=False)", "chat")
        if not prompt.strip():
            raise InputError("the prompt is empty", "prompt")
        if chat or (chat is None and tokenizer.has_chat_template):
            return tokenizer.encode_chat([{"role": "user", "content": prompt}])
        return tokenizer.encode(prompt)

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


def with_seconds(output: RequestOutput, seconds: float) -> RequestOutput:
    """Return the output with the time that its request took."""
    return replace(output, usage=replace(output.usage, seconds=seconds))
