"""Automata over the tokens of a model."""

import threading
from collections.abc import Collection, Sequence

import numpy as np

from dise_core.arrays import Ids, Mask
from dise_core.constraints.automaton import Automaton, States, distances
from dise_core.constraints.completion import completion_tokens, spellings
from dise_core.errors import InputError
from dise_core.models.tokenizer import Tokenizer
from dise_core.sequence import SpecialTokens

MAX_WORK = 300_000_000
"""Edges that may be looked at to find out which lengths are possible: less than a second."""

MAX_KEPT, MAX_WIDTH = 4_000_000, 4096
"""Entries of tokens' maps that are kept, and states of the largest automata whose maps are."""

UNKNOWN = (
    "the model's tokenizer does not tell which bytes its tokens spell, so its answers cannot be "
    "constrained"
)
UNSPELLED = "the model's tokens cannot spell any answer that the constraint allows"


class TokenAutomaton:
    """An automaton over the tokens of one model; requests and threads may share it.

    Its states are the automaton's, `dead`, `end` behind an end token, and, if the first space of a
    text is dropped, one before all text. Special tokens and those of unknown bytes lead to `dead`,
    but end tokens from `accepting` states to the end. `unwritten`: tokens that `completion` lacks.
    Raises InputError if the vocabulary cannot spell an answer.
    """

    def __init__(
        self,
        automaton: Automaton,
        tokenizer: Tokenizer,
        special: SpecialTokens,
        unwritten: Collection[int],
        vocab_size: int,
    ) -> None:
        self.automaton = automaton
        self.dead, self.end = automaton.dead, automaton.dead + 1
        self.start = self.end + 1 if tokenizer.drops_first_space else 0
        self.num_states = self.end + 1 + tokenizer.drops_first_space
        self._tokenizer, self._special = tokenizer, special
        more = [self.dead, 0][: self.num_states - self.end]  # like the end, and before all text
        self._next = np.concatenate([automaton.next, automaton.next[more]])
        self._next[self.end + 1 :, ord(" ")] = 0
        self.accepting = np.append(automaton.accepting, automaton.accepting[more])
        self.accepting[self.end] = True
        self._lock = threading.Lock()
        self._rows: dict[int, int] = {}
        self._max_rows = MAX_KEPT // self.num_states if self.num_states <= MAX_WIDTH else 0
        self._kept = np.empty((0, self.num_states), np.int32)
        known = spellings(tokenizer, vocab_size)
        left_out = {*unwritten, *special.eos_ids, special.mask_id}
        known = {data: token for data, token in known.items() if token not in left_out}
        ends = {special.eos_id} - {None, *unwritten}
        self._can_end = bool(ends)
        completing = completion_tokens(automaton, known, every_length=not ends)
        self.completion = np.array([*completing, *ends], np.int64)
        self._sources, self._targets = self._edges()
        self._least = distances(self.accepting, self._targets, self._sources)
        if self._least[self.start] < 0:
            raise InputError(UNSPELLED if known else UNKNOWN, "constraint")
        self._exact = [np.packbits(self.accepting)]

    def _edges(self) -> tuple[States, States]:
        """Return the edges that the completion tokens are, each once: from where, to where."""
        behind = self.maps(self.completion)
        sources = np.nonzero(behind != self.dead)[1]
        edges = np.unique(sources * self.num_states + behind[behind != self.dead])
        sources, targets = np.divmod(edges, self.num_states)
        return sources.astype(np.int32), targets.astype(np.int32)

    @property
    def num_bytes(self) -> int:
        """The bytes of its tables, the automaton's too."""
        tables = (self._next, self.accepting, self._kept, self._sources, self._targets, self._least)
        exact = len(self._exact) * self._exact[0].nbytes
        return self.automaton.num_bytes + sum(table.nbytes for table in tables) + exact

    def knows(self, num_masks: int) -> bool:
        """Return whether `feasible` has been told of that length, or need not be."""
        return self._can_end or len(self._exact) > num_masks

    @property
    def least(self) -> int:
        """The fewest tokens of `completion` that make an answer."""
        return int(self._least[self.start])

    def maps(self, token_ids: Ids) -> States:
        """Return the state behind each token [T] from each state, int32 [T, num_states]."""
        return self.steps(token_ids, np.arange(self.num_states))

    def steps(self, token_ids: Ids, states: Ids) -> States:
        """Return the state behind each token [T] from each of these states [R], int32 [T, R]."""
        if len(token_ids) > self._max_rows:
            return self._walked(token_ids, states)
        with self._lock:
            rows = self._kept_rows(token_ids)
            return self._kept[rows[:, None], states]

    def _kept_rows(self, token_ids: Ids) -> Ids:
        """Return the rows of the kept maps that are these tokens', [T]; add those that are not."""
        new = np.unique([token for token in token_ids.tolist() if token not in self._rows])
        if len(self._rows) + len(new) > self._max_rows:
            self._rows, new = {}, np.unique(token_ids)
        if len(new):
            first, stop = len(self._rows), len(self._rows) + len(new)
            if stop > len(self._kept):
                size = min(2 * stop, self._max_rows)
                self._kept = np.resize(self._kept, (size, self.num_states))
            self._rows |= zip(new.tolist(), range(first, stop), strict=True)
            everywhere = np.arange(self.num_states)
            self._kept[first:stop] = self._walked(new.astype(np.int64), everywhere)
        return np.array([self._rows[token] for token in token_ids.tolist()], np.int64)

    def _walked(self, token_ids: Ids, states: Ids) -> States:
        data = [self._bytes(token_id) for token_id in token_ids.tolist()]
        lengths = np.array([len(one) for one in data])
        behind = np.full((len(data), len(states)), self.dead, np.int32)
        behind[lengths > 0] = states
        flat = self._next.ravel()
        at, rows = 0, np.flatnonzero(lengths > 0)
        while len(rows):
            values = np.array([data[row][at] for row in rows], np.int32)
            found = flat[behind[rows] * 256 + values[:, None]]
            behind[rows] = found
            at += 1
            rows = rows[(lengths[rows] > at) & (found != self.dead).any(axis=1)]
        is_end = self._special.is_end(token_ids)
        behind[is_end] = np.where(self.accepting[states], self.end, self.dead)
        return behind

    def _bytes(self, token_id: int) -> bytes:
        """Return what a token spells; nothing for the mask, and where it is unknown."""
        if token_id == self._special.mask_id:
            return b""
        return self._tokenizer.token_bytes(token_id) or b""

    def feasible(self, num_masks: int) -> Mask:
        """Return the states [num_states] from which exactly that many completion tokens end a text.

        Raises InputError if finding out takes too much, which is so only without an end token.
        """
        if self._can_end:
            return (self._least >= 0) & (self._least <= num_masks)
        if num_masks * len(self._targets) > MAX_WORK:
            problem = f"this constraint is too large for {num_masks} tokens without an end token"
            raise InputError(f"{problem}; ask for fewer, or let the answer end", "constraint")
        with self._lock:
            while len(self._exact) <= num_masks:
                self._exact.append(np.packbits(self._before(self._unpacked(-1))))
            return self._unpacked(num_masks)

    def _unpacked(self, index: int) -> Mask:
        return np.unpackbits(self._exact[index], count=self.num_states).astype(np.bool_)

    def _before(self, final: Mask) -> Mask:
        found = np.zeros(self.num_states, np.bool_)
        found[self._sources[final[self._targets]]] = True
        return found

    def through(self, final: Mask, options: Sequence[Ids]) -> Mask:
        """Return the states [num_states] from which such positions lead into those of `final`."""
        for token_ids in reversed(options):
            is_known = token_ids is self.completion
            final = self._before(final) if is_known else final[self.maps(token_ids)].max(axis=0)
        return final

    def after(self, ids: Ids, state: int | None = None) -> int:
        """Return the state behind a text's tokens, from the start or from a state."""
        state = self.start if state is None else state
        for index in range(len(ids)):
            state = int(self.steps(ids[index : index + 1], np.array([state]))[0, 0])
        return state

    def is_forced(self, ids: Ids) -> Mask:
        """Return which tokens of a finished response [R] were certain from those before them: each
        byte the only one, or an end where the text cannot go on, or behind the end.
        """
        forced = self.automaton.forced
        # A first space that is dropped is no choice.
        certain = np.append(forced, [False, forced[0]])
        is_forced, state = np.zeros(len(ids), np.bool_), self.start
        for index, token_id in enumerate(ids.tolist()):
            passed = [state]
            for byte in self._bytes(token_id):
                passed.append(int(self._next[passed[-1], byte]))
            state = self.after(ids[index : index + 1], state)
            if state == self.end:
                is_forced[index] = (self._next[passed[0]] == self.dead).all()
            elif state != self.dead:
                is_forced[index] = certain[passed[:-1]].all()
        return is_forced
