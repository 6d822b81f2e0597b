"""Scores of answers under a constraint: about what it leaves open."""

from dataclasses import replace
from typing import TypeVar

import numpy as np

from dise_core.arrays import Ids, Mask
from dise_core.plans.plan import Plan, mapped
from dise_core.plans.reading import Read
from dise_core.plans.readouts import TokenLogProbs
from dise_core.scoring.scorer import Narrowing
from dise_core.sequence import TokenSequence, are_within
from dise_core.token_sets import EVERY, TextRule, TokenSets

T = TypeVar("T")


def among_allowed(plan: Plan[T], text: TokenSequence) -> Plan[T]:
    """Return the plan with its Reads of the text's own tokens answered among the tokens
    that may stand in their places, where they ask the model itself. All other Reads are
    yielded unchanged.
    """
    if text.rule is None or not text.rule.is_told:
        return (yield from plan)
    sets = allowed_in(text, text.rule)
    return (yield from mapped(plan, lambda read: _restricted(read, text, sets)))


def allowed_in(text: TokenSequence, rule: TextRule) -> TokenSets:
    """Return the tokens that may stand in place of each of a text's response, [R]. Under
    block-causal attention the model sees nothing behind a block.
    """
    start, stop = text.prompt_length, text.response_end
    is_seen_by_block = text.origin == "text"
    spans = text.blocks.spans(start, stop) if is_seen_by_block else ()
    return rule.allowed(text.response, {end - start for _, end in spans})


def _restricted(read: Read, text: TokenSequence, sets: TokenSets) -> Read:
    readout, positions = read.readout, read.positions
    if (
        isinstance(readout, TokenLogProbs)
        and readout.among is None
        and read.predictor == "target"
        and are_within(positions, len(text))
        and np.array_equal(readout.targets, text.ids[positions])
    ):
        return replace(read, readout=replace(readout, among=_at(positions, text, sets)))
    return read


def _at(positions: Ids, text: TokenSequence, sets: TokenSets) -> TokenSets:
    """Return the sets at positions. Outside of the response any token may stand."""
    numbers = np.full(len(text), EVERY)
    numbers[text.response_positions] = sets.which
    return replace(sets, which=numbers[positions])


class Unforced(Narrowing):
    """Selects what another selector does, except tokens that a constraint forced."""

    def select(self, sequence: TokenSequence) -> Mask:
        mask = self.inner.select(sequence)
        if (rule := sequence.rule) is None:
            return mask
        free = mask.copy()
        free[sequence.response_positions] &= ~rule.is_forced(sequence.response)
        return free
