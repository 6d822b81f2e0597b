"""Probes of a model's predictions on natural texts: its own answers, or given ones."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dise_app.evaluation.experiments import Experiment, what_fits
from dise_app.evaluation.questions import Question
from dise_core import (
    Distribution,
    Floats,
    Plan,
    Read,
    Reading,
    SamplingParams,
    Score,
    Selector,
    TokenSequence,
    TopLogProbs,
    gather,
)
from dise_core.arrays import Ids, Mask
from dise_core.noise import Noise
from dise_core.records import Record
from dise_strategies.scorers.dise import DiSE

NUM_SHOWN = 8
"""The number of likeliest tokens of a distribution that are kept for the examples."""


@dataclass(frozen=True)
class Probe(Experiment):
    """Probes one text per question. texts: responses by question id; for a question without one the
    model writes its own.
    """

    params: SamplingParams
    texts: Mapping[str, str]
    seed: int = 0

    @property
    def settings(self) -> Record:
        return {
            "params": self.params.model_dump(mode="json"),
            "texts": dict(self.texts),
            "seed": self.seed,
        }

    def plan(self, item: Question) -> Plan[Record]:
        planner, given = self.llm.planner, self.texts.get(item.id)
        response: Any = given
        if given is None:
            answer = yield from planner.generate(item.prompt, self.params, self.questions.chat)
            response = answer.outputs[0].token_ids
        [text] = planner.texts(item.prompt, [response], self.params, self.questions.chat)
        random = Noise.for_request(self.seed, text.ids, 0).generator()
        return {"id": item.id, **(yield from self.probe(text, random))}

    def remedy(self, item: Question) -> str:
        """Return how long the model's own answers may be, or that a given text must be shorter."""
        if item.id in self.texts:
            return f"Shorten the response of {item.id} in --texts"
        return what_fits("--max-tokens", self.room(item))

    @abstractmethod
    def probe(self, text: TokenSequence, random: np.random.Generator) -> Plan[Record]:
        """Return a plan of the results for one text, as a record."""

    def random_tokens(self, random: np.random.Generator, count: int) -> Ids:
        """Return random token ids, int64 [count], never the mask or an end token."""
        special = self.llm.predictor.info.special
        allowed = np.setdiff1d(
            np.arange(self.llm.predictor.info.vocab_size), [*special.eos_ids, special.mask_id]
        )
        return random.choice(allowed, count)


@dataclass(frozen=True)
class Ranks(Probe):
    """The rank of the true token at a position that holds a random one; 0 is the likeliest."""

    num_trials: int = 80

    kind = "ranks"

    def probe(self, text: TokenSequence, random: np.random.Generator) -> Plan[Record]:
        """Return a plan of the ranks at `num_trials` random positions of the response, each with a
        random token of its own.
        """
        if len(text.text_positions) == 0:
            return {"ranks": []}
        positions = random.choice(text.text_positions, self.num_trials)
        replaced = []
        for position, token in zip(
            positions, self.random_tokens(random, self.num_trials), strict=True
        ):
            ids = text.ids.copy()
            ids[position] = token
            replaced.append((ids, np.array([position])))
        readings = yield [Read(ids, at, Distribution()) for ids, at in replaced]
        ranks = [
            int((reading.logprobs[0] > reading.logprobs[0][text.ids[at[0]]]).sum())
            for reading, (_, at) in zip(readings, replaced, strict=True)
        ]
        return {"ranks": ranks}


@dataclass(frozen=True)
class Distances(Probe):
    """The distances between the predictions at a position that holds the true token, the mask, or a
    random token.
    """

    num_trials: int = 10

    kind = "distances"

    def probe(self, text: TokenSequence, random: np.random.Generator) -> Plan[Record]:
        """Return a plan of the pairwise distances, and the likeliest tokens, at `num_trials` random
        positions of the response.
        """
        if len(text.text_positions) == 0:
            return {"distances": []}
        positions = random.choice(text.text_positions, self.num_trials)
        tokens = self.random_tokens(random, self.num_trials)
        return {
            "distances": (
                yield from gather(
                    *(
                        self._at(text, int(p), int(t))
                        for p, t in zip(positions, tokens, strict=True)
                    )
                )
            )
        }

    def _at(self, text: TokenSequence, position: int, token: int) -> Plan[Record]:
        variants: dict[str, Ids] = {}
        for name, value in (("true", text.ids[position]), ("mask", None), ("random", token)):
            variants[name] = text.with_masks(np.array([position]))
            if value is not None:
                variants[name][position] = value
        at = np.array([position])
        readings = yield [
            Read(ids, at, readout)
            for ids in variants.values()
            for readout in (Distribution(), TopLogProbs(NUM_SHOWN))
        ]
        distributions = {
            name: np.exp(readings[2 * i].logprobs[0].astype(np.float64))
            for i, name in enumerate(variants)
        }
        pairs = (("true", "mask"), ("random", "mask"), ("true", "random"))
        return {
            "token": self.llm.predictor.tokenizer.token_text(int(text.ids[position])),
            "random_token": self.llm.predictor.tokenizer.token_text(token),
            "js": {
                f"{a}-{b}": jensen_shannon(distributions[a], distributions[b]) for a, b in pairs
            },
            "wasserstein": {
                f"{a}-{b}": wasserstein(distributions[a], distributions[b]) for a, b in pairs
            },
            "top": {name: self._shown(readings[2 * i + 1]) for i, name in enumerate(variants)},
        }

    def _shown(self, reading: Reading) -> list[list[object]]:
        names = [
            self.llm.predictor.tokenizer.token_text(int(token)) for token in reading.token_ids[0]
        ]
        return [
            [name, round(float(np.exp(p)), 6)]
            for name, p in zip(names, reading.logprobs[0], strict=True)
        ]


@dataclass(frozen=True)
class Coherence(Probe):
    """DiSE of a natural text, and of the same text with some tokens replaced by random ones."""

    num_tokens: int = 10

    kind = "coherence"

    def probe(self, text: TokenSequence, random: np.random.Generator) -> Plan[Record]:
        """Return a plan of both scores over the replaced tokens: all, or the first, middle or last
        num_tokens of the response.
        """
        positions = text.text_positions
        if len(positions) == 0:
            return {"scores": {}}
        k = self.num_tokens
        middle = max(0, (len(positions) - k) // 2)
        parts = {
            "full": positions,
            f"first-{k}": positions[:k],
            f"mid-{k}": positions[middle : middle + k],
            f"last-{k}": positions[-k:],
        }
        plans: list[Plan[Score]] = []
        for chosen in parts.values():
            ids = text.ids.copy()
            ids[chosen] = self.random_tokens(random, len(chosen))
            these = _These(positions=tuple(chosen.tolist()))
            plans += [DiSE().score(each, these) for each in (text, replace(text, ids=ids))]
        values = [score.value for score in (yield from gather(*plans))]
        pairs = zip(parts, values[::2], values[1::2], strict=True)
        return {"scores": {name: {"natural": n, "randomized": r} for name, n, r in pairs}}


class _These(Selector):
    """Selects given positions."""

    positions: tuple[int, ...]

    def select(self, sequence: TokenSequence) -> Mask:
        return sequence.mask_of(list(self.positions))


def jensen_shannon(p: Floats, q: Floats) -> float:
    """Return the Jensen-Shannon divergence of two distributions [V], in nats: 0 to log 2."""
    from scipy.special import rel_entr

    middle = (p + q) / 2
    return float((rel_entr(p, middle).sum() + rel_entr(q, middle).sum()) / 2)


def wasserstein(p: Floats, q: Floats) -> float:
    """Return the Wasserstein distance of two distributions [V] over token ids, divided by V."""
    return float(np.abs(np.cumsum(p / p.sum()) - np.cumsum(q / q.sum())).sum() / len(p))
