"""Duel: the exact likelihood of a text under a deterministic unmasking policy."""

import math
from dataclasses import replace
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import Field, JsonValue, PositiveInt, PrivateAttr, ValidationInfo, model_validator

from dise_core import (
    Candidates,
    Floats,
    Ids,
    InputError,
    Noise,
    Plan,
    PlanError,
    Read,
    Reading,
    Score,
    Scorer,
    Selector,
    TokenLogProbs,
    TokenSequence,
    UnmaskingPolicy,
    UnmaskingStep,
    catalog_of,
)
from dise_likelihoods.texts import by_block, masked_read


class Duel(Scorer):
    """The exact log p(response | prompt), in nats, of a sampler with that policy.

    It picks positions by the confidences of the model's own candidates, and puts the
    text's tokens there. The whole response is replayed, in n / tokens_per_step passes for
    n tokens; the selector chooses the terms that are added. A block-causal model replays
    its blocks side by side, each after the given ones, in the passes of one. Random and
    editing policies are refused. Training: on masks alone is enough. Source: DUEL (arXiv
    2603.01367).
    """

    default_selector: ClassVar[str] = "response"
    reads_end: ClassVar[bool] = False
    needs_masks: ClassVar[bool] = True

    unmasking: str = "low-confidence"
    """The unmasking policy that is replayed."""
    unmasking_settings: dict[str, JsonValue] = Field({})
    """Settings of that policy."""
    tokens_per_step: PositiveInt = 1
    """Tokens that the schedule commits in each step."""
    block_length: PositiveInt | None = None
    """Tokens in a block; None: the text's."""
    aggregate: Literal["sum", "mean"] = "sum"
    """What is made of the selected log-probabilities. The mean favours no length."""

    _policy: UnmaskingPolicy = PrivateAttr()

    @model_validator(mode="after")
    def _replays(self, info: ValidationInfo) -> Self:
        policy = catalog_of(info).unmasking_policy(self.unmasking, self.unmasking_settings)
        if policy.is_random or policy.edits:
            raise ValueError(f"unmasking={self.unmasking!r} is random, or edits: it has no replay")
        self._policy = policy
        return self

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        response = sequence.response_positions
        positions = response[selector.select(sequence)[response]]
        if not len(positions):
            return Score.empty()
        terms = (yield from self._replay(sequence))[positions]
        total, perplexity = float(terms.sum()), math.exp(-terms.mean())
        if self.aggregate == "mean":
            return Score(total / len(terms), positions, perplexity=perplexity, is_mean=True)
        log_likelihood = total if len(positions) == len(response) else None
        return Score(total, positions, log_likelihood=log_likelihood, perplexity=perplexity)

    def _replay(self, text: TokenSequence) -> Plan[Floats]:
        """Return a plan of each token's log-probability when written, float64 [N]."""
        policy, hidden = self._policy, text.response_positions
        length = self.block_length or text.block_length
        if text.origin == "text" and length != text.block_length:
            raise InputError(f"this model's block_length is {text.block_length}", "scorer_settings")
        text = replace(text, block_length=length)
        candidates = Candidates(confidence=policy.confidence, forbidden=(text.special.masking_id,))
        terms, sure = np.zeros(len(text)), np.zeros(len(text))
        while len(hidden):
            blocks = by_block(text, hidden)[: 1 if text.origin == "response" else None]
            positions, commits = np.concatenate(blocks), list[Ids]()
            tokens, masks = _reads(text, hidden, positions)
            token, mask, best = yield [tokens, masks, replace(tokens, readout=candidates)]
            terms[positions], sure[positions] = _without_mask(token, mask), best.confidences
            for block in blocks:
                quota, start = (
                    min(self.tokens_per_step, len(block)),
                    text.blocks.start_of(int(block[0])),
                )
                step = UnmaskingStep(block, sure[block], quota, quota / len(block), Noise(0), start)
                commits.append(block[policy.choose(step)])
            if not any(map(len, commits)):
                raise PlanError(f"unmasking policy {policy!r} chose no token to replay")
            hidden = np.setdiff1d(hidden, np.concatenate(commits))
        return terms


def _reads(text: TokenSequence, hidden: Ids, positions: Ids) -> tuple[Read, Read]:
    """Return the Reads of the log-probability of the text's tokens, and of that of the
    mask, at positions, int64 [M], with masks at `hidden`. They share a row.
    """
    tokens = masked_read(text, hidden, positions)
    masks = TokenLogProbs(np.full(len(positions), text.special.masking_id))
    return tokens, replace(tokens, readout=masks)


def _without_mask(tokens: Reading, masks: Reading) -> Floats:
    """Return the tokens' log-probabilities, float64 [M], renormalised over all but the
    mask, which is never written. They stay bit for bit where the mask has probability 0.
    """
    share = np.minimum(np.exp(masks.logprobs.astype(np.float64)), 1 - 1e-7)
    return tokens.logprobs.astype(np.float64) - np.log1p(-share)
