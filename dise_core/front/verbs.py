"""The verbs of LLM and AsyncLLM: each makes a Job, which one runs and the other awaits."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, cast, overload

from dise_core.engine import Outcome
from dise_core.errors import InputError, shown
from dise_core.front.outputs import RequestOutput, Usage
from dise_core.front.planner import Planner, Sampling
from dise_core.models.inputs import PromptInput, check_list, is_one, params_of, several
from dise_core.models.predictor import MaskPredictor
from dise_core.models.prompts import Prompt
from dise_core.models.tokenizer import FunctionTool, Message
from dise_core.params.requests import SamplingParams, ScoringParams
from dise_core.plans.plan import Plan

T = TypeVar("T")

OnError = Literal["raise", "return"]
"""raise: the first failed request's error, after all others are done. return: every request has an
answer, and that of a failed one has its `error` and no outputs.
"""


@dataclass(frozen=True)
class Job(Generic[T]):
    """Plans, and what is made of their outcomes, which come in any order. constrained: the settings
    that the planner may `prepare`, so that no plan waits for it.
    """

    plans: Sequence[Plan[Any]]
    finish: Callable[[Iterable[Outcome[Any]]], T]
    constrained: Sequence[SamplingParams] = ()


def results(outcomes: Iterable[Outcome[T]]) -> list[T]:
    """Return the results in the order of the requests, or raise the first one's error."""
    return [outcome.unwrap() for outcome in _in_order(outcomes)]


def _in_order(outcomes: Iterable[Outcome[T]]) -> list[Outcome[T]]:
    return sorted(outcomes, key=lambda outcome: outcome.index)


def one_result(outcomes: Iterable[Outcome[T]]) -> T:
    """Return the only result, or raise its error."""
    [result] = results(outcomes)
    return result


class Verbs(ABC):
    """What a loaded model does with prompts, conversations and responses."""

    @property
    @abstractmethod
    def planner(self) -> Planner:
        """What turns requests into plans for `run`."""

    @abstractmethod
    def do(self, job: Job[T]) -> T:
        """Run a job's plans and return what it makes of them. Raises what it raises."""

    @property
    def predictor(self) -> MaskPredictor:
        return self.planner.predictor

    def generate(
        self,
        prompts: PromptInput,
        params: Sampling = None,
        *,
        sampling_params: Sampling = None,
        chat: bool | None = None,
        on_error: OnError = "raise",
    ) -> list[RequestOutput]:
        """Return one answer per prompt (a text or token ids), in order; params, which vLLM calls
        sampling_params, apply to all prompts or are a sequence, one per prompt.

        A text goes through the model's chat template if it has one (chat=None), always (True) or
        never (False). on_error: "raise" raises the first failed request's error after all others
        are done; "return" gives it an answer with the `error` and without outputs.
        """
        params = _one_of_both(params, sampling_params)
        plans = self.planner.generations(prompts, params, chat)
        return self.do(self._answers(plans, on_error, several(prompts, "prompt"), params))

    def chat(
        self,
        conversations: Sequence[Message] | Sequence[Sequence[Message]],
        params: Sampling = None,
        *,
        sampling_params: Sampling = None,
        tools: Sequence[FunctionTool] = (),
        on_error: OnError = "raise",
    ) -> list[RequestOutput]:
        """Return one answer per conversation, a list of {"role", "content"} messages, in order.
        tools: functions in OpenAI's format, shown to the model. The others: see `generate`.
        """
        params = _one_of_both(params, sampling_params)
        plans = self.planner.conversations(conversations, params, tools)
        return self.do(self._answers(plans, on_error, params=params))

    def fill(
        self,
        prefixes: PromptInput,
        suffixes: PromptInput,
        params: Sampling = None,
        *,
        sampling_params: Sampling = None,
        on_error: OnError = "raise",
    ) -> list[RequestOutput]:
        """Return what fills each gap, between a prefix, which may be empty, and a suffix, in order.

        Both are used as they are, without a chat template, and tokenized apart. An output's text,
        tokens and score are the gap's, and the model has read all three. `max_tokens` is the gap's
        length, or with length "cal" or "lr-length" the longest that it may have. Raises InputError
        for a block-causal model. params, sampling_params, on_error: see `generate`.
        """
        params = _one_of_both(params, sampling_params)
        plans = self.planner.gaps(prefixes, suffixes, params)
        return self.do(self._answers(plans, on_error, several(prefixes, "prefix"), params))

    def score(
        self,
        prompts: PromptInput,
        responses: PromptInput,
        params: ScoringParams | None = None,
        *,
        chat: bool | None = None,
        finished: bool | None = None,
        on_error: OnError = "raise",
    ) -> list[RequestOutput]:
        """Return the score of each response given its prompt, in order: an answer with one output,
        its finish_reason None. on_error: see `generate`.

        Prompts and responses pair up one to one; an empty prompt scores the response alone.
        finished: whether a response ends here, so that the scorers read an end token after it;
        None: if it is a text. Token ids are whole as they are.
        """
        plans = self.planner.scores(prompts, responses, params, chat, finished)
        return self.do(self._answers(plans, on_error, several(prompts, "prompt")))

    @overload
    def rank(  # type: ignore[overload-overlap]
        self,
        prompts: Prompt,
        candidates: Sequence[Prompt],
        params: ScoringParams | None = None,
        *,
        chat: bool | None = None,
    ) -> RequestOutput: ...

    @overload
    def rank(
        self,
        prompts: Sequence[Prompt],
        candidates: Sequence[Sequence[Prompt]],
        params: ScoringParams | None = None,
        *,
        chat: bool | None = None,
    ) -> list[RequestOutput]: ...

    def rank(
        self,
        prompts: PromptInput,
        candidates: Sequence[Prompt] | Sequence[Sequence[Prompt]],
        params: ScoringParams | None = None,
        *,
        chat: bool | None = None,
    ) -> RequestOutput | list[RequestOutput]:
        """Return one prompt's candidates, likeliest first; for several prompts, a list with one
        such answer each. An output's `index` is the candidate's index in the argument.

        Candidates are ranked by log-likelihood if the scorer estimates it, else by score. Raises
        InputError if prompts and lists of candidates do not pair up, or if a list is empty.
        """
        if is_one(prompts):
            one = cast("Prompt", prompts), cast("Sequence[Prompt]", candidates)
            plan = self.planner.rank(*one, params_of(params, ScoringParams), chat)
            return self.do(Job[RequestOutput]([plan], one_result))
        lists = cast("Sequence[Sequence[Prompt]]", candidates)
        many = cast("Sequence[Prompt]", prompts)
        return self.do(Job(self.planner.rankings(many, lists, params, chat), results))

    def request(
        self,
        prompt: Prompt | Sequence[Message],
        params: SamplingParams | None,
        chat: bool | None,
        suffix: Prompt | None = None,
        tools: Sequence[FunctionTool] = (),
    ) -> Plan[RequestOutput]:
        """Return the plan of a prompt, of a conversation if `prompt` is a list of messages, or with
        a suffix of the gap between the two.
        """
        checked = params_of(params, SamplingParams)
        if suffix is not None:
            return self.planner.fill(cast("Prompt", prompt), suffix, checked)
        if not isinstance(prompt, str):
            check_list(prompt, "prompt", "a text, token ids or a conversation")
            if any(isinstance(item, Mapping) for item in prompt):
                return self.planner.chat(cast("Sequence[Message]", prompt), checked, tools)
        return self.planner.generate(cast("Prompt", prompt), checked, chat)

    def _answers(
        self,
        plans: list[Plan[RequestOutput]],
        on_error: OnError,
        prompts: Sequence[object] = (),
        params: Sampling = None,
    ) -> Job[list[RequestOutput]]:
        """Return the job of all answers. prompts: what a failed request's answer names."""
        if on_error not in ("raise", "return"):
            problem = f"on_error must be 'raise' or 'return', not {shown(on_error, 40)}"
            raise InputError(problem, "on_error")
        if on_error == "raise":
            return Job(plans, results, constrained(params))
        model = self.predictor.info.name

        def answer(outcome: Outcome[RequestOutput]) -> RequestOutput:
            if outcome.error is None:
                return outcome.unwrap()
            prompt = prompts[outcome.index] if prompts else None
            text = prompt if isinstance(prompt, str) else None
            usage = Usage(0, 0, 0, 0.0, outcome.seconds)
            return RequestOutput(text, (), model, (), usage, error=outcome.error)

        settings = constrained(params)
        return Job(plans, lambda ended: list(map(answer, _in_order(ended))), settings)


def constrained(params: Sampling) -> list[SamplingParams]:
    """Return the settings with a constraint, each once."""
    settings = [params] if isinstance(params, SamplingParams) else params or ()
    found = {id(one): one for one in settings if one.constraint is not None}
    return list(found.values())


def _one_of_both(params: Sampling, sampling_params: Sampling) -> Sampling:
    """Return the params, which vLLM calls sampling_params. Raises InputError for both."""
    if params is not None and sampling_params is not None:
        problem = "params and sampling_params are two names for one argument; give one of them"
        raise InputError(problem, "sampling_params")
    return params if sampling_params is None else sampling_params
