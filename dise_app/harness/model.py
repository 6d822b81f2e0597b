"""The model "dise" of lm-evaluation-harness: its likelihoods are any of our scorers, its answers are denoised."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from tqdm import tqdm

from dise_core import LLM, SamplingParams, ScoringParams
from dise_core.arrays import Ids
from dise_core.errors import InputError, TooLongError
from dise_core.outputs import RequestOutput
from dise_core.params import EngineConfig
from dise_core.reading import Plan

log = logging.getLogger(__name__)

T = TypeVar("T")

DRAWING = ("temperature", "top_p", "top_k")
"""Settings of generation that count only where the task says do_sample."""

LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens")
"""What tasks call the longest answer."""


class DiseLM(LM):  # type: ignore[misc]
    """A diffusion language model, or with scorer="ar-perplexity" a causal one, as a task of the harness asks it.

    `--model_args` are the names of LLM's arguments and of SamplingParams: model=..., scorer=mc, selector=response,
    samples=32 (the scorer's num_samples), judge=..., block_length=..., tokens_per_step=..., length=..., dtype=... A task's
    own settings of generation (max_gen_toks, temperature, until) come before them.

    The second value of `loglikelihood`, "would greedy decoding write it?", is always False: a dLLM writes in any order.
    """

    def __init__(
        self,
        model: str = "countdown",
        *,
        judge: str | None = None,
        samples: int | None = None,
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,  # noqa: ARG002
        device: str = "auto",
        **settings: Any,
    ) -> None:
        """Load the model. Raises InputError for unknown settings.

        batch_size: max_num_seqs; "auto" leaves it to us. device: the harness says cuda:0 where nobody chose; without a GPU
        that means "auto".
        """
        super().__init__()
        engine: dict[str, Any] = {"device": device}
        if device.startswith("cuda") and not torch.cuda.is_available():
            log.warning("there is no GPU for device %s; the model runs on the CPU", device)
            engine["device"] = "auto"
        engine |= {name: settings.pop(name) for name in EngineConfig.model_fields if name in settings}
        if isinstance(batch_size, int) or str(batch_size).isdigit():
            engine.setdefault("max_num_seqs", int(str(batch_size)))
        if samples is not None:
            settings["scorer_settings"] = {**settings.get("scorer_settings", {}), "num_samples": samples}
        unknown = sorted(set(settings) - set(SamplingParams.model_fields))
        if unknown:
            raise InputError(f"there is no setting {unknown[0]!r}", unknown[0])
        self._settings = {"logprobs": None, **settings}
        self._scoring = ScoringParams(**{k: v for k, v in self._settings.items() if k in ScoringParams.model_fields})
        self._sampling({})
        self._llm = LLM(model, judge=judge, **engine)
        self._tokenizer = self._llm.predictor.tokenizer

    @property
    def tokenizer_name(self) -> str:
        """The model's name, by which the harness keys what it caches."""
        return self._llm.predictor.name.replace("/", "__")

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Return the conversation as the model's chat template writes it."""
        if not self._tokenizer.has_chat_template:
            raise InputError(
                f"model {self._llm.predictor.name!r} has no chat template; leave out --apply_chat_template", "chat"
            )
        return self._tokenizer.chat_text(chat_history, add_generation_prompt)

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Return what `dise rank` ranks by, in nats: the log-likelihood of each continuation where the scorer has one."""

        def plan_of(context: str, continuation: str) -> Plan[RequestOutput]:
            prompt, response = self._pair(context, continuation)
            return self._llm.planner.score(self._fitting(prompt, len(response)), response.tolist(), self._scoring, False)

        return self._run("loglikelihood", requests, plan_of, lambda answer: (_rank_value(answer), False), disable_tqdm)

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """Return the log-likelihood of each whole text. Raises InputError for a scorer that estimates none, as DiSE."""

        def plan_of(text: str) -> Plan[RequestOutput]:
            return self._llm.planner.score("", text, self._scoring, False)

        def value_of(answer: RequestOutput) -> float:
            score = answer.outputs[0].score
            if score.log_likelihood is None:
                raise InputError(f"scorer {self._scoring.scorer!r} is no log-likelihood; take scorer=mc,selector=response")
            return score.log_likelihood

        return self._run("loglikelihood_rolling", requests, plan_of, value_of, disable_tqdm)

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Return the text of each answer, up to the first of the task's stops."""

        def plan_of(context: str, asked: Mapping[str, Any]) -> Plan[RequestOutput]:
            params = self._sampling(asked)
            prompt = self._fitting(self._tokenizer.encode(context), params.max_tokens)
            return self._llm.planner.generate(prompt, params, False)

        return self._run("generate_until", requests, plan_of, lambda answer: answer.outputs[0].text, disable_tqdm)

    def _run(
        self,
        kind: str,
        requests: Sequence[Instance],
        plan_of: Callable[..., Plan[RequestOutput]],
        value_of: Callable[[RequestOutput], T],
        is_silent: bool,
    ) -> list[T]:
        """Return the value of each request's answer, in order; each goes into the harness's cache as soon as it is there."""
        values: dict[int, T] = {}
        plans: Iterator[Plan[RequestOutput]] = (plan_of(*request.args) for request in requests)
        bar = tqdm(total=len(requests), desc=f"Running {kind} requests", disable=is_silent)
        with bar:
            for outcome in self._llm.run(plans):
                value = values[outcome.index] = value_of(outcome.unwrap())
                self.cache_hook.add_partial(kind, requests[outcome.index].args, value)
                bar.update()
        return [values[index] for index in range(len(requests))]

    def _pair(self, context: str, continuation: str) -> tuple[Ids, Ids]:
        """Return the ids of both, as the harness splits them: spaces at the context's end go to the continuation."""
        stem = context.rstrip()
        prompt = self._tokenizer.encode(stem)
        whole = self._tokenizer.encode(stem + context[len(stem) :] + continuation)
        return prompt, whole[len(prompt) :]

    def _fitting(self, prompt: Ids, num_more: int) -> list[int]:
        """Return the prompt's ids, its beginning cut off where it leaves no room for `num_more` tokens."""
        limit = self._llm.predictor.max_length - num_more
        if limit < 0:
            raise TooLongError(f"{num_more} tokens are more than the model's limit of {self._llm.predictor.max_length}")
        if len(prompt) > limit:
            log.warning(
                "a context of %d tokens is cut to its last %d, which leave room for %d more", len(prompt), limit, num_more
            )
        kept: list[int] = prompt[max(0, len(prompt) - limit) :].tolist()
        return kept

    def _sampling(self, asked: Mapping[str, Any]) -> SamplingParams:
        """Return the params of an answer: the task's settings before those of the model."""
        stops = asked.get("until") or ()
        settings = {**self._settings, "stop": tuple(s for s in ([stops] if isinstance(stops, str) else stops) if s)}
        lengths = [asked[name] for name in LENGTHS if asked.get(name) is not None]
        if lengths:
            settings["max_tokens"] = lengths[0]
        if asked.get("do_sample"):
            settings |= {name: asked[name] for name in DRAWING if name in asked}
        elif asked.get("do_sample") is False:
            settings["temperature"] = 0.0
        return SamplingParams(**settings)


def _rank_value(answer: RequestOutput) -> float:
    return answer.outputs[0].score.rank_value
