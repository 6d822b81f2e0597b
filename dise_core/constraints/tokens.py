"""Automata over the tokens of a model."""

import threading
from collections.abc import Collection, Iterator

import numpy as np

from dise_core.arrays import Ids, Mask
from dise_core.constraints.automaton import Automaton, States, distances
from dise_core.constraints.vocabulary import completion_tokens, vocabulary_of
from dise_core.errors import InputError
from dise_core.models.tokenizer import Tokenizer
from dise_core.sequence import SpecialTokens

MAX_WORK = 300_000_000
"""Edges that may be followed to find the possible lengths: less than a second."""

MAX_KEPT, MAX_WIDTH = 4_000_000, 4096
"""Entries of all kept maps of tokens, and states of the largest automata with maps."""


class TokenAutomaton:
    """An automaton over the tokens of one model; requests and threads may share it.

    Its states are the automaton's, `dead`, `end` behind an end token, and, if the first
    space of a text is dropped, one before all text. Special tokens and those of unknown
    bytes lead to `dead`, but end tokens from `accepting` states to the end. `unwritten`:
    tokens that `completion` lacks.
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
        self._vocabulary = vocabulary_of(tokenizer, vocab_size)
        more = [self.dead, 0][: self.num_states - self.end]  # like the end, and before all text
        self._next = automaton.table[: self.num_states]
        self.accepting = np.append(automaton.accepting, automaton.accepting[more])
        self.accepting[self.end] = True
        self._lock = threading.Lock()
        self._max_rows = MAX_KEPT // self.num_states if self.num_states <= MAX_WIDTH else 0
        self._kept = np.empty((0, self.num_states), np.int32)
        self._rows, self._num_rows = np.full(vocab_size, -1, np.int32), 0  # -1: none
        left_out = {*unwritten, *special.eos_ids, special.mask_id}
        spelled = self._vocabulary.spellings.items()
        spellings = {data: token for data, token in spelled if token not in left_out}
        ends = {special.eos_id} - {None, *unwritten}
        self._can_end = bool(ends)
        completing = completion_tokens(automaton, spellings, every_length=not ends)
        self.completion = np.array([*completing, *ends], np.int64)
        self._sources, self._targets = self._edges()
        self._least = distances(self.accepting, self._targets, self._sources)
        if self._least[self.start] < 0 and not spellings:
            raise InputError(
                "the model's tokenizer does not tell which bytes its tokens spell, so its answers "
                "cannot be constrained",
                "constraint",
            )
        if self._least[self.start] < 0:
            raise InputError(
                "the model's tokens cannot spell any answer that the constraint allows",
                "constraint",
            )
        self._exact = [np.packbits(self.accepting)]

    def _edges(self) -> tuple[States, States]:
        """Return each edge of the completion tokens once: from where, to where."""
        behind = self.maps(self.completion)
        sources = np.nonzero(behind != self.dead)[1]
        edges = np.unique(sources * self.num_states + behind[behind != self.dead])
        sources, targets = np.divmod(edges, self.num_states)
        return sources.astype(np.int32), targets.astype(np.int32)

    @property
    def num_bytes(self) -> int:
        """The bytes of its tables, the automaton's too."""
        tables = (self.accepting, self._kept, self._rows, self._sources, self._targets, self._least)
        exact = len(self._exact) * self._exact[0].nbytes
        return self.automaton.num_bytes + sum(table.nbytes for table in tables) + exact

    def knows(self, num_masks: int) -> bool:
        """Return whether `feasible` has seen that length, or need not be."""
        return self._can_end or len(self._exact) > num_masks

    @property
    def least(self) -> int:
        """The fewest tokens of `completion` that make an answer."""
        return int(self._least[self.start])

    def maps(self, token_ids: Ids) -> States:
        """Return the state behind each token from each state, int32 [T, num_states]."""
        return self.steps(token_ids, np.arange(self.num_states))

    def steps(self, token_ids: Ids, states: Ids) -> States:
        """Return the state behind each token [T] from these states [R], int32 [T, R]."""
        kept, rows = self.kept_maps(token_ids)
        return self._walk(token_ids, states) if kept is None else kept[rows[:, None], states]

    def kept_maps(self, token_ids: Ids) -> tuple[States | None, Ids]:
        """Return kept maps of tokens, int32 [., num_states], and which of them are those
        of each token, [T], to be looked up and not changed; None, and the tokens, if
        these are too many to keep.
        """
        if not self._max_rows:
            return None, token_ids
        with self._lock:
            rows = self._rows[token_ids]
            if (rows < 0).any():
                new = np.unique(token_ids[rows < 0])
                if self._num_rows + len(new) > self._max_rows:
                    new = np.unique(token_ids)
                    if len(new) > self._max_rows:
                        return None, token_ids
                    self._rows[:], self._num_rows = -1, 0
                    self._kept = np.empty((0, self.num_states), np.int32)
                self._keep(new)
                rows = self._rows[token_ids]
            return self._kept, rows.astype(np.int64)

    def _keep(self, token_ids: Ids) -> None:
        """Add the maps of tokens. Rows that are handed out stay as they are."""
        first, stop = self._num_rows, self._num_rows + len(token_ids)
        if stop > len(self._kept):
            size = min(2 * stop, self._max_rows)
            self._kept = np.resize(self._kept, (size, self.num_states))
        self._kept[first:stop] = self._walk(token_ids, np.arange(self.num_states))
        self._rows[token_ids], self._num_rows = np.arange(first, stop), stop

    def _walk(self, token_ids: Ids, states: Ids) -> States:
        data = [self._bytes(token_id) for token_id in token_ids.tolist()]
        lengths = np.array([len(spelling) for spelling in data])
        behind = np.full((len(data), len(states)), self.dead, np.int32)
        behind[lengths > 0] = states
        flat = self._next.ravel()
        at, rows = 0, np.flatnonzero(lengths > 0)
        while len(rows):
            values = np.array([data[row][at] for row in rows], np.int32)
            targets = flat[behind[rows] * 256 + values[:, None]]
            behind[rows] = targets
            at += 1
            rows = rows[(lengths[rows] > at) & (targets != self.dead).any(axis=1)]
        is_end = self._special.is_end(token_ids)
        behind[is_end] = np.where(self.accepting[states], self.end, self.dead)
        return behind

    def _bytes(self, token_id: int) -> bytes:
        """Return what a token spells; nothing for the mask, and where it is unknown."""
        if token_id == self._special.mask_id:
            return b""
        return self._tokenizer.token_bytes(token_id) or b""

    def feasible(self, num_masks: int) -> Mask:
        """Return the states [num_states] from which exactly that many completion tokens
        end a text.

        Raises InputError if finding out takes too much, which is so only without an end
        token.
        """
        if self._can_end:
            return (self._least >= 0) & (self._least <= num_masks)
        if num_masks * len(self._targets) > MAX_WORK:
            raise InputError(
                f"this constraint is too large for {num_masks} tokens without an end token; ask "
                "for fewer, or let the answer end",
                "constraint",
            )
        with self._lock:
            while len(self._exact) <= num_masks:
                self._exact.append(np.packbits(self._before(self._unpack(-1))))
            return self._unpack(num_masks)

    def _unpack(self, index: int) -> Mask:
        return np.unpackbits(self._exact[index], count=self.num_states).astype(np.bool_)

    def _before(self, final: Mask) -> Mask:
        before = np.zeros(self.num_states, np.bool_)
        before[self._sources[final[self._targets]]] = True
        return before

    def through(self, final: Mask, token_ids: Ids, is_open: Mask) -> Mask:
        """Return the states [num_states] from which positions [N] lead into `final`: each
        by its token, -1 for none, and where it is open by any of `completion`, too.
        """
        for token_id, may_differ in zip(token_ids[::-1].tolist(), is_open[::-1], strict=True):
            before = self._before(final) if may_differ else np.zeros_like(final)
            if token_id >= 0:
                before |= final[self.maps(np.array([token_id]))[0]]
            final = before
        return final

    def after(self, ids: Ids, state: int | None = None) -> int:
        """Return the state behind a text's tokens, from the start or from a state."""
        state = self.start if state is None else state
        for passed in self._walks(ids, state):
            state = passed[-1]
        return state

    def is_forced(self, ids: Ids) -> Mask:
        """Return which tokens of a finished response [R] were certain from those before
        them: each byte the only one, or an end where the text cannot go on, or behind the
        end.
        """
        forced = self.automaton.forced
        # A first space that is dropped is no choice.
        certain = np.append(forced, [False, forced[0]])
        is_forced = np.zeros(len(ids), np.bool_)
        for index, passed in enumerate(self._walks(ids, self.start)):
            if passed[-1] == self.end:
                is_forced[index] = (self._next[passed[0]] == self.dead).all()
            elif passed[-1] != self.dead:
                is_forced[index] = certain[passed[:-1]].all()
        return is_forced

    def _walks(self, ids: Ids, state: int) -> Iterator[list[int]]:
        """Yield the states that each of some tokens [R] passes: before each byte of it, or
        before an end, and behind it.
        """
        table = self._next
        for token_id, is_end in zip(ids.tolist(), self._special.is_end(ids), strict=True):
            passed = [state]
            for byte in () if is_end else self._bytes(token_id):
                passed.append(int(table[passed[-1], byte]))
            if len(passed) == 1:
                passed.append(self.end if is_end and self.accepting[state] else self.dead)
            yield passed
            state = passed[-1]
