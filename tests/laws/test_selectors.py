"""What holds for every selector on every text."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dise_core import TokenSequence
from dise_core.arrays import Mask
from dise_core.plugins.discovery import installed_catalog
from tests.laws.generators import counts, sequences

NAMES = [name for name in installed_catalog().selectors if not name.endswith("-K")]
NUMBERED = [name.removesuffix("K") for name in installed_catalog().selectors if name.endswith("-K")]
OF_THE_RESPONSE = {
    "response",
    "response-text",
    "first-blocks-",
    "last-block",
    "first-",
    "mid-",
    "last-",
    "answer",
}
OF_THE_PROMPT = {"prompt-last-"}

single_names = st.one_of(
    st.sampled_from(NAMES),
    st.builds(lambda name, k: f"{name}{k}", st.sampled_from(NUMBERED), counts),
)


def select(name: str, sequence: TokenSequence) -> Mask:
    return installed_catalog().selector(name).select(sequence)


def available(name: str, sequence: TokenSequence) -> int:
    if name == "prompt-last-":
        return sequence.prompt_length
    return len(sequence.text_positions)


@given(single_names, sequences)
def test_a_selection_is_a_mask_of_the_text_and_leaves_it_unchanged(
    name: str, sequence: TokenSequence
) -> None:
    before = sequence.ids.copy()
    mask = select(name, sequence)
    assert mask.dtype == np.bool_
    assert mask.shape == sequence.ids.shape
    assert np.array_equal(sequence.ids, before)


@given(single_names, sequences, st.lists(st.integers(0, 9), min_size=1, max_size=9))
def test_what_follows_a_gap_changes_no_selection_and_is_in_none(
    name: str, sequence: TokenSequence, suffix: list[int]
) -> None:
    ids = np.concatenate([sequence.ids, suffix])
    mask = select(name, replace(sequence, ids=ids, suffix_length=len(suffix)))
    expected = np.concatenate([select(name, sequence), np.zeros(len(suffix), np.bool_)])
    assert np.array_equal(mask, expected)


@given(single_names, sequences)
def test_a_selector_stays_in_its_part(name: str, sequence: TokenSequence) -> None:
    root = name.rstrip("0123456789")
    mask = select(name, sequence)
    if root in OF_THE_RESPONSE:
        assert not mask[: sequence.prompt_length].any()
    if root in OF_THE_PROMPT:
        assert not mask[sequence.prompt_length :].any()


@given(st.sampled_from(sorted({*NUMBERED} - {"first-blocks-"})), counts, sequences)
def test_a_counted_selector_takes_exactly_k_or_all_there_is(
    name: str, k: int, sequence: TokenSequence
) -> None:
    assert select(f"{name}{k}", sequence).sum() == min(k, available(name, sequence))


@given(counts, sequences)
def test_counted_blocks_are_the_first_k_or_the_whole_response(
    k: int, sequence: TokenSequence
) -> None:
    spans = list(sequence.blocks.spans(sequence.prompt_length, len(sequence)))[:k]
    expected = [position for span in spans for position in range(*span)]
    assert np.flatnonzero(select(f"first-blocks-{k}", sequence)).tolist() == expected


@given(st.sampled_from(["first-", "mid-", "last-"]), counts, sequences)
def test_first_mid_and_last_count_text_only(name: str, k: int, sequence: TokenSequence) -> None:
    assert not sequence.special.is_end(sequence.ids[select(f"{name}{k}", sequence)]).any()


@given(st.lists(single_names, min_size=1, max_size=4), sequences)
def test_a_union_is_a_union(names: list[str], sequence: TokenSequence) -> None:
    expected = np.logical_or.reduce([select(name, sequence) for name in names])
    assert np.array_equal(select("+".join(names), sequence), expected)


@given(sequences)
def test_the_prompt_and_the_response_are_all(sequence: TokenSequence) -> None:
    prompt = select(f"prompt-last-{len(sequence) + 1}", sequence)
    assert (prompt | select("response", sequence)).all()
    assert np.array_equal(prompt | select("response", sequence), select("full", sequence))
    assert not (prompt & select("response", sequence)).any()
