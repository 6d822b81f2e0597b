"""A diffusion language model as lm-polygraph's Model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from lm_polygraph.utils.model import BlackboxModel

from dise_core import LLM, InputError, Message, RequestOutput, SamplingParams
from dise_core.front.verbs import Job, request, results

T = TypeVar("T")

Input = str | Sequence[Message]


class DiseModel(BlackboxModel):  # type: ignore[misc]
    """A diffusion language model behind lm-polygraph's interface.

    For lm-polygraph it is a black box, since there is no next token whose logits it could
    ask for: what its white-box estimators need comes from `calculators`. Estimators that
    need texts alone run with lm-polygraph's own `estimate_uncertainty` as well.
    """

    def __init__(
        self,
        llm: LLM,
        params: SamplingParams | None = None,
        *,
        sampling: SamplingParams | None = None,
        chat: bool | None = None,
    ) -> None:
        """params: how answers are generated; a max_tokens that they set takes precedence
        over the manager's max_new_tokens. sampling: how the samples of estimators that
        compare several answers are drawn; None: as the answers, at temperature 1. chat:
        whether texts go through the model's chat template; None: if it has one.
        """
        super().__init__(model_path=llm.predictor.info.name)
        self.llm, self.chat = llm, chat
        self.params = params or SamplingParams()
        self.sampling = sampling or change(self.params, temperature=1.0)

    def answers(self, inputs: Sequence[Input], max_new_tokens: int) -> list[RequestOutput]:
        """Return each input's answer, with its tokens' log-probabilities."""
        params = change(self.params, logprobs=self.params.logprobs or 0)
        return self._answered(inputs, limit_length(params, max_new_tokens))

    def samples(self, inputs: Sequence[Input], count: int, limit: int) -> list[RequestOutput]:
        """Return `count` answers to each input; limit: the manager's max_new_tokens."""
        params = ask_several(self.sampling, count, logprobs=self.sampling.logprobs or 0)
        return self._answered(inputs, limit_length(params, limit))

    def generate_texts(
        self, input_texts: Sequence[Input], **args: object
    ) -> list[str] | list[list[str]]:
        """Return the text of one answer to each input, or with n (num_return_sequences)
        above 1 the texts of that many.

        max_new_tokens, temperature and top_p take precedence over the params. Arguments
        that lm-polygraph's own black boxes ignore are ignored; others raise InputError.
        """
        arguments = self._validate_args(args)
        count = arguments.pop("n", 1)
        if unknown := sorted(set(arguments) - {"max_tokens", "temperature", "top_p"}):
            raise InputError(f"this model has no generation argument {unknown[0]!r}", unknown[0])
        if count == 1:
            answers = self._answered(input_texts, change(self.params, **arguments))
            return [answer.outputs[0].text for answer in answers]
        answers = self._answered(input_texts, ask_several(self.sampling, count, **arguments))
        return [[output.text for output in answer.outputs] for answer in answers]

    def generate(self, **_: object) -> None:
        raise InputError(
            "a diffusion language model has no logits of next tokens; give the manager "
            "dise_eval.polygraph.calculators()"
        )

    __call__ = generate

    def _answered(self, inputs: Sequence[Input], params: SamplingParams) -> list[RequestOutput]:
        plans = [request(self.llm.planner, text, params, self.chat) for text in inputs]
        return self.llm.do(Job(plans, results))


def change(params: SamplingParams, **fields: object) -> SamplingParams:
    """Return changed params. Raises InputError if the fields do not fit."""
    settings = {name: getattr(params, name) for name in params.model_fields_set}
    return SamplingParams(**{**settings, **fields})


def ask_several(params: SamplingParams, count: int, **fields: object) -> SamplingParams:
    """Return the params of `count` answers to each input."""
    return change(params, n=count, best_of=None, stop_at=None, **fields)


def limit_length(params: SamplingParams, max_new_tokens: int) -> SamplingParams:
    """Return the params with that max_tokens unless they set one."""
    is_set = "max_tokens" in params.model_fields_set
    return params if is_set else change(params, max_tokens=max_new_tokens)
