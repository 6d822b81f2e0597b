"""Beginnings of texts whose keys and values are kept for later texts that begin alike.

Exact where no token sees a later one, or one of a later block: then keys and values
depend on the tokens up to the end of their block alone, and those are what a block is
found by.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from dise_core import Attention, BlockCausal, Ids

STEP = 4
"""The fewest tokens in a block."""

Key = tuple[int | str, bytes]
"""The number of the block before, for a text's first the text's salt, and the tokens: no
two beginnings share one, and no two salts a beginning.
"""


def whole_blocks(attention: Attention) -> int:
    """Return the tokens in a block of a tree: 4, or whole blocks of the attention."""
    length = attention.length if isinstance(attention, BlockCausal) else 1
    return -(-STEP // length) * length


@dataclass(slots=True, eq=False)
class _Block:
    """rows: of memory, int64 [step]. users: the leases that read it."""

    number: int
    rows: Ids
    users: int = 0


@dataclass(slots=True, eq=False)
class Lease:
    """Rows of memory for one text, int64 [N]: first those of `num_known` tokens that are
    kept, and stay as long as it lasts, then free ones. finished: the tokens from the
    text's start whose keys and values a pass has put there, to be kept, int64 [<= N].
    salt: that of the text.
    """

    rows: Ids
    num_known: int
    blocks: tuple[_Block, ...]
    salt: str
    finished: Ids = field(default_factory=lambda: np.zeros(0, np.int64))


class PrefixTree:
    """A tree of blocks of `step` tokens, each with its rows of memory. Where rows are
    missing the blocks that were used least recently go, the last of a beginning first.
    Texts of different salts share none.
    """

    def __init__(self, rows: Ids, step: int) -> None:
        """rows: of memory, int64 [T]; the tree and its leases never hold more."""
        self._free, self.step = rows, step
        self._numbers = count(1)
        self._blocks: OrderedDict[Key, _Block] = OrderedDict()
        """The least recently used first, each block before the one that it follows."""
        self._num_used = 0

    @property
    def num_kept(self) -> int:
        """The number of tokens that are kept."""
        return len(self._blocks) * self.step

    @property
    def num_free(self) -> int:
        """The number of rows without a token."""
        return len(self._free)

    def known(self, ids: Ids, salt: str = "") -> Ids:
        """Return the rows of the kept blocks that a text, int64 [N], begins with: [<= N]."""
        path = self._path(ids, salt)
        self._use(path)
        return _rows(path)

    def in_blocks(self, count: int) -> int:
        """Return how many of so many tokens fill whole blocks."""
        return count // self.step * self.step

    def following(self, ids: Ids, count: int, salt: str = "") -> Key | None:
        """Return what stands for the first tokens, at least `count` and a block, that
        follow the kept ones of a text, int64 [N]; None if fewer do.
        """
        path, size = self._path(ids, salt), max(count, self.step)
        start = len(path) * self.step
        if start + size > len(ids):
            return None
        return _last(path, salt), ids[start : start + size].tobytes()

    def begin(self, ids: Ids, limit: int, salt: str = "") -> Lease | None:
        """Return rows for a text, int64 [N], at most `limit` of its tokens known; None if
        there are too few. Every lease must `end`.
        """
        path = self._path(ids[:limit], salt)
        num_known = len(path) * self.step
        idle = len(self._blocks) - self._num_used - sum(not part.users for part in path.values())
        if len(self._free) + idle * self.step < len(ids) - num_known:
            return None
        self._num_used += sum(not part.users for part in path.values())
        for block in path.values():
            block.users += 1
        self._use(path)
        self._evict(len(ids) - num_known)
        fresh, self._free = np.split(self._free, [len(ids) - num_known])
        return Lease(np.concatenate([_rows(path), fresh]), num_known, tuple(path.values()), salt)

    def end(self, lease: Lease) -> None:
        """Keep the finished blocks of a lease that are new, and free its other rows."""
        for block in lease.blocks:
            block.users -= 1
            self._num_used -= not block.users
        path = self._path(lease.finished, lease.salt)
        first = max(len(path) * self.step, lease.num_known)
        stop = max(self.in_blocks(len(lease.finished)), first)
        number = _last(path, lease.salt)
        for start in range(first, stop, self.step):
            part = slice(start, start + self.step)
            block = _Block(next(self._numbers), lease.rows[part])
            path[number, lease.finished[part].tobytes()] = block
            number = block.number
        self._blocks |= path
        self._use(path)
        unused = lease.rows[lease.num_known : first], lease.rows[stop:]
        self._free = np.concatenate([self._free, *unused])

    def clear(self) -> None:
        """Forget all that is kept, while there is no lease."""
        self._evict(self.num_free + self.num_kept)

    def _use(self, path: dict[Key, _Block]) -> None:
        """Count the blocks of a beginning as used, each after those that follow it."""
        # Backwards, so that a block always stands behind its followers: the one that goes first
        # is a leaf, and no follower is left that nobody can find.
        for key in reversed(path):
            self._blocks.move_to_end(key)

    def _evict(self, missing: int) -> None:
        """Free the rows of idle blocks until so many are free. One block's users use all
        before it, so that the first idle one has none behind it.
        """
        while len(self._free) < missing:
            key = next(key for key, block in self._blocks.items() if not block.users)
            self._free = np.concatenate([self._free, self._blocks.pop(key).rows])

    def _path(self, ids: Ids, salt: str) -> dict[Key, _Block]:
        """Return the kept blocks with which the tokens begin, in order."""
        path, number = dict[Key, _Block](), _last({}, salt)
        for start in range(0, len(ids) - self.step + 1, self.step):
            key = number, ids[start : start + self.step].tobytes()
            if (block := self._blocks.get(key)) is None:
                break
            path[key], number = block, block.number
        return path


def _last(path: dict[Key, _Block], salt: str) -> int | str:
    """Return the number of a beginning's last block, the salt for an empty one."""
    return next(reversed(path.values())).number if path else salt


def _rows(path: dict[Key, _Block]) -> Ids:
    return np.concatenate([np.zeros(0, np.int64), *(block.rows for block in path.values())])
