"""What is kept of texts' beginnings beside a naive dictionary of prefixes, and a memory that holds
in each row the text up to its token.
"""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from dise_adapters.local.decoder.prefixes import Lease, PrefixTree
from dise_core.arrays import Ids

STEP, FIRST_ROW = 2, 5

texts = st.lists(st.integers(0, 1), min_size=1, max_size=9).map(lambda ids: np.array(ids, np.int64))
"""Of few tokens, so that many begin alike."""

Move = tuple[Ids, int, int, bool]
"""A text, how many of its tokens may be known and are finished, and whether its lease goes on."""

moves = st.lists(st.tuples(texts, st.integers(0, 9), st.integers(0, 9), st.booleans()), max_size=30)

ONE, TWO = np.array([1, 1]), np.array([1, 0])

Memory = dict[int, tuple[int, ...]]


def assert_holds(memory: Memory, rows: Ids, ids: Ids) -> None:
    for place, found in enumerate(rows.tolist()):
        assert memory[found] == tuple(ids[: place + 1].tolist())


def compute(memory: Memory, lease: Lease, ids: Ids, num_finished: int) -> None:
    """Write what a pass would: each token's row, and what is finished of the text."""
    assert_holds(memory, lease.rows[: lease.num_known], ids)
    for place in range(lease.num_known, len(ids)):
        memory[int(lease.rows[place])] = tuple(ids[: place + 1].tolist())
    lease.finished = ids[: max(num_finished, lease.num_known)]


@given(moves)
def test_all_that_was_finished_is_known_where_all_fits(moves: list[Move]) -> None:
    tree, memory, finished = PrefixTree(np.arange(1000), STEP), Memory(), {()}
    for ids, most, num_finished, _ in moves:
        known = max(
            count for count in range(0, len(ids) + 1, STEP) if tuple(ids[:count]) in finished
        )
        assert len(tree.known(ids)) == known
        lease = tree.begin(ids, most)
        assert lease is not None
        assert lease.num_known == min(known, most // STEP * STEP)
        compute(memory, lease, ids, num_finished)
        tree.end(lease)
        finished |= {tuple(ids[:stop]) for stop in range(STEP, len(lease.finished) + 1, STEP)}
    assert tree.num_kept + tree.num_free == 1000


@given(moves, st.integers(0, 14))
def test_no_row_is_given_twice_or_read_after_another_text_took_it(
    moves: list[Move], size: int
) -> None:
    """Some leases go on while others begin; some fail, with nothing finished."""
    tree, memory = PrefixTree(np.arange(FIRST_ROW, FIRST_ROW + size), STEP), Memory()
    under_way = list[tuple[Lease, Ids]]()
    for ids, most, num_finished, goes_on in moves:
        if (lease := tree.begin(ids, most)) is not None:
            taken = {
                row for other, _ in under_way for row in other.rows[other.num_known :].tolist()
            }
            assert taken.isdisjoint(lease.rows.tolist())
            under_way.append((lease, ids))
        if not goes_on:
            for lease, text in under_way:
                compute(memory, lease, text, num_finished)
                tree.end(lease)
            under_way = []
        assert_holds(memory, tree.known(ids), ids)
        held = sum(len(other.rows) - other.num_known for other, _ in under_way)
        assert tree.num_kept + tree.num_free + held == size
    for lease, _ in under_way:
        tree.end(lease)
    whole = tree.begin(np.full(size, 7), size)  # nothing stays in use
    assert whole is not None
    assert sorted(whole.rows.tolist()) == list(range(FIRST_ROW, FIRST_ROW + size))


@given(st.lists(st.tuples(texts, st.sampled_from("ab")), max_size=20))
def test_texts_of_different_salts_share_nothing(ones: list[tuple[Ids, str]]) -> None:
    """One tree answers as a tree for each salt would."""
    shared = PrefixTree(np.arange(1000), STEP)
    own = {salt: PrefixTree(np.arange(1000), STEP) for salt in "ab"}
    for ids, salt in ones:
        for tree, its in ((shared, salt), (own[salt], "")):
            lease = tree.begin(ids, len(ids), its)
            assert lease is not None
            lease.finished = ids
            tree.end(lease)
        for other in "ab":
            assert len(shared.known(ids, other)) == len(own[other].known(ids))
            wanted, alone = shared.following(ids, 0, other), own[other].following(ids, 0)
            assert (wanted is None) == (alone is None)
    new = np.array([7, 7])
    assert shared.following(new, 0, "a") != shared.following(new, 0, "b")


@given(
    st.lists(st.tuples(texts, st.sampled_from(["read", "written", "failed"])), max_size=30),
    st.integers(4, 14),
)
@example([(ONE, "written"), (TWO, "written"), (ONE, "failed"), (TWO[::-1], "written")], 4)
def test_what_was_used_least_recently_goes_first_and_the_end_of_a_text_before_the_rest(
    moves: list[tuple[Ids, str]], size: int
) -> None:
    """Beside a dictionary of kept beginnings, with the number of the move that used each last."""
    tree, used = PrefixTree(np.arange(size), STEP), dict[tuple[int, ...], int]()
    for move, (ids, what) in enumerate(moves):
        beginnings = [tuple(ids[:stop].tolist()) for stop in range(STEP, len(ids) + 1, STEP)]
        known = [beginning for beginning in beginnings if beginning in used]
        if what != "read":
            missing = len(ids) - STEP * len(known)
            idle = sorted(used.keys() - known, key=lambda one: (used[one], -len(one)))
            lease = tree.begin(ids, len(ids))
            assert (lease is None) == (missing > size - STEP * len(known))
            if lease is None:
                continue
            for beginning in idle:
                if size - STEP * len(used) < missing:
                    del used[beginning]
            if what == "written":
                lease.finished, known = ids, beginnings
            tree.end(lease)
        else:
            assert len(tree.known(ids)) == STEP * len(known)
        used |= dict.fromkeys(known, move)
        assert tree.num_kept == STEP * len(used)
    for ids, _ in moves:
        kept = [stop for stop in range(len(ids) + 1) if tuple(ids[:stop].tolist()) in used]
        assert len(tree.known(ids)) == max(kept, default=0)
