"""What lm-polygraph's estimators depend on, computed by a diffusion language model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from lm_polygraph.defaults.register_default_stat_calculators import (
    register_default_stat_calculators,
)
from lm_polygraph.stat_calculators import EntropyCalculator, StatCalculator
from lm_polygraph.utils.factory_stat_calculator import StatCalculatorContainer

from dise_core import Distribution, LogProbs, Plan, Read, RequestOutput
from dise_core.front.outputs import CompletionOutput
from dise_core.front.verbs import Job, results
from dise_eval.polygraph.model import DiseModel

Stats = dict[str, list[Any]]
"""Statistics by name, with one entry per input."""


class StatBatch(NamedTuple):
    """What a calculator is given. known: the statistics that it depends on."""

    known: Stats
    texts: Sequence[str]
    model: DiseModel
    max_new_tokens: int


class Ours(StatCalculator):  # type: ignore[misc]
    """A calculator that asks a diffusion language model."""

    def __call__(
        self, dependencies: Stats, texts: Sequence[str], model: DiseModel, max_new_tokens: int = 100
    ) -> Stats:
        return self.of(StatBatch(dependencies, texts, model, max_new_tokens))

    @abstractmethod
    def of(self, batch: StatBatch) -> Stats:
        """Return the statistics of a batch."""


class AnswerStats(Ours):
    """One answer to each input. Its tokens are those of its text and the first end token,
    as for lm-polygraph's own models; their log-probabilities are of regenerating each
    given all others.
    """

    @staticmethod
    def meta_info() -> tuple[list[str], list[str]]:
        tokens = ["input_tokens", "greedy_tokens", "greedy_log_likelihoods"]
        return ["greedy_texts", *tokens, "dise_answers"], []

    def of(self, batch: StatBatch) -> Stats:
        answers = batch.model.answers(batch.texts, batch.max_new_tokens)
        tokens = [_tokens(answer.outputs[0]) for answer in answers]
        return {
            "input_tokens": [list(answer.prompt_token_ids) for answer in answers],
            "greedy_texts": [answer.outputs[0].text for answer in answers],
            "greedy_tokens": [ids for ids, _ in tokens],
            "greedy_log_likelihoods": [logprobs for _, logprobs in tokens],
            "dise_answers": answers,
        }


class DistributionStats(Ours):
    """The log-probability of every token of the vocabulary at each token of an answer."""

    @staticmethod
    def meta_info() -> tuple[list[str], list[str]]:
        return ["greedy_log_probs"], ["dise_answers"]

    def of(self, batch: StatBatch) -> Stats:
        """Return one array [tokens, vocabulary] per input."""
        plans = [distributions(answer) for answer in batch.known["dise_answers"]]
        return {"greedy_log_probs": batch.model.llm.do(Job(plans, results))}


class SampleStats(Ours):
    """Several answers to each input, drawn as the model's `sampling` says."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    @staticmethod
    def meta_info() -> tuple[list[str], list[str]]:
        logprobs = ["sample_log_likelihoods", "sample_log_probs"]
        return ["sample_texts", "sample_tokens", *logprobs], []

    def of(self, batch: StatBatch) -> Stats:
        answers = batch.model.samples(batch.texts, self.count, batch.max_new_tokens)
        tokens = [[_tokens(output) for output in answer.outputs] for answer in answers]
        logprobs = [[values for _, values in samples] for samples in tokens]
        return {
            "sample_texts": [[output.text for output in answer.outputs] for answer in answers],
            "sample_tokens": [[ids for ids, _ in samples] for samples in tokens],
            "sample_log_likelihoods": logprobs,
            "sample_log_probs": [[sum(values) for values in samples] for samples in logprobs],
        }


BUILT_ALIKE: tuple[type[StatCalculator], ...] = (AnswerStats, DistributionStats, EntropyCalculator)

REPLACED = ("BlackboxGreedyTextsCalculator", "BlackboxSamplingGenerationCalculator")


def calculators(num_samples: int = 10) -> list[StatCalculatorContainer]:
    """Return the manager's `available_stat_calculators`: lm-polygraph's own for black
    boxes, but with our answers, their log-probabilities and `num_samples` samples.

    Hidden states, attention weights and logits of prompts are not among them.
    """
    theirs = register_default_stat_calculators("Blackbox")
    return [
        *(calculator for calculator in theirs if calculator.name not in REPLACED),
        *(_container(calculator) for calculator in BUILT_ALIKE),
        _container(SampleStats, count=num_samples),
    ]


def load_stat_calculator(
    config: Mapping[str, Any],
    environment: object,  # noqa: ARG001
) -> StatCalculator:
    """Return the calculator of a container's config, for lm-polygraph's factory."""
    if config["obj"] == SampleStats.__name__:
        return SampleStats(config["count"])
    return next(calculator for calculator in BUILT_ALIKE if calculator.__name__ == config["obj"])()


def counting(output: CompletionOutput) -> list[int]:
    """Return the indices of the text's tokens and of the first end token."""
    ends = [index for index, token in enumerate(output.tokens) if token.is_end]
    return sorted(set(range(len(output.tokens))) - set(ends[1:]))


def distributions(answer: RequestOutput) -> Plan[LogProbs]:
    """Return a plan of the log-probabilities [tokens, vocabulary]: one forward pass."""
    output, prompt = answer.outputs[0], answer.prompt_token_ids
    ids = np.array([*prompt, *output.token_ids], np.int64)
    positions = np.array(counting(output), np.int64) + len(prompt)
    [reading] = yield [Read(ids, positions, Distribution())]
    return reading.logprobs


def _tokens(output: CompletionOutput) -> tuple[list[int], list[float]]:
    tokens = [output.tokens[index] for index in counting(output)]
    return [token.id for token in tokens], [float(token.logprob or 0) for token in tokens]


def _container(calculator: type[StatCalculator], **more: object) -> StatCalculatorContainer:
    stats, dependencies = calculator.meta_info()
    config = {"obj": calculator.__name__, **more}
    return StatCalculatorContainer(
        calculator.__name__, stats, dependencies, calculator, __name__, config
    )
