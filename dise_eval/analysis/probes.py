"""Probes of a model's predictions on natural texts: its own answers, or given ones."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dise_core import (
    Distribution,
    Floats,
    Plan,
    Read,
    SamplingParams,
    Score,
    Selector,
    TokenSequence,
    gather,
)
from dise_core.arrays import Ids
from dise_core.noise import Noise
from dise_core.records import Record
from dise_eval.datasets.dataset import Problem
from dise_eval.experiments.experiments import Experiment, what_fits
from dise_eval.experiments.usual import FIXED, params_with
from dise_strategies.scorers.dise import DiSE
from dise_strategies.selectors.counted import FirstK, LastK, MidK
from dise_strategies.selectors.whole import ResponseText

Pairwise = dict[str, dict[str, float]]

PAIRS = (("true", "mask"), ("random", "mask"), ("true", "random"))


@dataclass(frozen=True)
class Probe(Experiment[Record]):
    """Probes one text per question: the one in `texts`, else the model's own answer."""

    params: SamplingParams
    texts: Mapping[str, str]
    num_trials: int | None = None

    key: ClassVar[str]
    """The name in the record of what a probe finds."""
    findings_type: ClassVar[type[Any]] = list
    """The type of that, which a text without tokens gives none of."""

    @property
    def seed(self) -> int:
        return self.params.seed or 0

    @property
    def settings(self) -> dict[str, object]:
        return {
            "params": self.params.model_dump(mode="json"),
            "texts": dict(self.texts),
            "seed": self.seed,
            **({} if self.num_trials is None else {"trials": self.num_trials}),
        }

    @property
    def usual_settings(self) -> dict[str, object]:
        return {"params": params_with(FIXED), "texts": {}, "seed": 0, "trials": None}

    def plan(self, item: Problem) -> Plan[Record]:
        planner, chat = self.llm.planner, self.questions.chat
        response: str | Sequence[int] | None = self.texts.get(item.id)
        if response is None:
            answer = yield from planner.generate(item.prompt, self.params, chat)
            response = answer.outputs[0].token_ids
        [text] = planner.texts(item.prompt, [response], self.params, chat)
        random = Noise.for_request(self.seed, text.ids, 0).generator()
        has_tokens = len(text.text_positions) > 0
        findings = (yield from self.probe(text, random)) if has_tokens else self.findings_type()
        return {"id": item.id, self.key: findings}

    def remedy(self, item: Problem) -> str:
        if item.id in self.texts:
            return f"Shorten the response of {item.id} in --texts"
        return what_fits("--max-tokens", self.room(item))

    @abstractmethod
    def probe(self, text: TokenSequence, random: np.random.Generator) -> Plan[Any]:
        """Return a plan of what one text, which has tokens, shows; as JSON."""

    def random_tokens(self, random: np.random.Generator, count: int) -> Ids:
        """Return random token ids, int64 [count], never the mask or an end token."""
        special = self.llm.predictor.info.special
        allowed = np.setdiff1d(
            np.arange(self.llm.predictor.info.vocab_size), [*special.eos_ids, special.mask_id]
        )
        return random.choice(allowed, count)


@dataclass(frozen=True)
class Ranks(Probe):
    """The true token's rank where a random one stands; 0 is the likeliest."""

    kind: ClassVar[str] = "ranks"
    key: ClassVar[str] = "ranks"

    def probe(self, text: TokenSequence, random: np.random.Generator) -> Plan[list[int]]:
        num_trials = self.num_trials or 80
        positions = random.choice(text.text_positions, num_trials)
        ids = np.repeat(text.ids[None], num_trials, axis=0)
        ids[np.arange(num_trials), positions] = self.random_tokens(random, num_trials)
        readings = yield [
            Read(row, np.array([at]), Distribution(), start=text.prompt_length)
            for row, at in zip(ids, positions, strict=True)
        ]
        return [
            int((reading.logprobs[0] > reading.logprobs[0][text.ids[at]]).sum())
            for reading, at in zip(readings, positions, strict=True)
        ]


@dataclass(frozen=True)
class Distances(Probe):
    """Distances of predictions at the true token, the mask and a random token, for each
    trial by measure and pair of inputs.
    """

    kind: ClassVar[str] = "distances"
    key: ClassVar[str] = "distances"

    def probe(self, text: TokenSequence, random: np.random.Generator) -> Plan[list[Pairwise]]:
        num_trials = self.num_trials or 10
        positions = random.choice(text.text_positions, num_trials)
        tokens = self.random_tokens(random, num_trials)
        trials = zip(positions.tolist(), tokens.tolist(), strict=True)
        return (yield from gather(*(self._at(text, *trial) for trial in trials)))

    def _at(self, text: TokenSequence, position: int, token: int) -> Plan[Pairwise]:
        at = np.array([position])
        masked = text.with_masks(at)
        inputs = {"true": text.ids, "mask": masked, "random": masked.copy()}
        inputs["random"][position] = token
        start = text.prompt_length
        readings = yield [Read(ids, at, Distribution(), start=start) for ids in inputs.values()]
        predicted = {
            name: np.exp(reading.logprobs[0].astype(np.float64))
            for name, reading in zip(inputs, readings, strict=True)
        }
        return {
            name: {f"{a}-{b}": distance(predicted[a], predicted[b]) for a, b in PAIRS}
            for name, distance in (("js", jensen_shannon), ("wasserstein", wasserstein))
        }


@dataclass(frozen=True)
class Coherence(Probe):
    """DiSE of a natural text, and of that text with some tokens randomized, by which."""

    kind: ClassVar[str] = "coherence"
    key: ClassVar[str] = "scores"
    findings_type: ClassVar[type[Any]] = dict

    def probe(self, text: TokenSequence, random: np.random.Generator) -> Plan[Pairwise]:
        selectors: dict[str, Selector] = {
            "full": ResponseText(),
            "first-10": FirstK(k=10),
            "mid-10": MidK(k=10),
            "last-10": LastK(k=10),
        }
        plans: list[Plan[Score]] = []
        for selector in selectors.values():
            ids, is_selected = text.ids.copy(), selector.select(text)
            ids[is_selected] = self.random_tokens(random, int(is_selected.sum()))
            plans += [DiSE().score(read, selector) for read in (text, replace(text, ids=ids))]
        values = [score.value for score in (yield from gather(*plans))]
        pairs = zip(selectors, values[::2], values[1::2], strict=True)
        return {name: {"natural": n, "randomized": r} for name, n, r in pairs}


PROBES: Mapping[str, type[Probe]] = {probe.kind: probe for probe in (Ranks, Distances, Coherence)}


def jensen_shannon(p: Floats, q: Floats) -> float:
    """Return the Jensen-Shannon divergence of distributions [V], 0 to log 2 nats."""
    from scipy.special import rel_entr

    middle = (p + q) / 2
    return float((rel_entr(p, middle).sum() + rel_entr(q, middle).sum()) / 2)


def wasserstein(p: Floats, q: Floats) -> float:
    """Return the Wasserstein distance of distributions [V] over ids, divided by V."""
    return float(np.abs(np.cumsum(p / p.sum()) - np.cumsum(q / q.sum())).sum() / len(p))
