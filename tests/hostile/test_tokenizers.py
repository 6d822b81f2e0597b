"""Tokenizer files of strangers: broken, or such that a text grows or its reading never ends."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dise_adapters.checkpoint.tokenizer import FastTokenizer
from dise_adapters.checkpoint.tokenizer_files import growth
from dise_core.errors import CheckpointError, InputError
from tests import reference_dream, reference_llada
from tests.hostile.bounds import bounded, cases
from tests.hostile.test_checkpoints import (
    VALUES,
    changed,
    edit,
    mutation,
    one_line,
    result_or_refusal,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    reference_llada.write_tokenizer(tmp_path, 50)
    return tmp_path


def test_the_whole_one_loads(folder: Path) -> None:
    tokenizer = FastTokenizer.from_folder(folder)
    assert tokenizer.decode(tokenizer.encode("ab c")) == "ab c"


def grow(times: int, steps: int = 1) -> dict[str, object]:
    """A normalizer that puts so many letters for each, several times over."""
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * times}
    return {"type": "Sequence", "normalizers": [step] * steps}


SPLIT = {"type": "Split", "behavior": "Isolated", "invert": False}
CHARSMAP = base64.b64encode(bytes(4) + b"a" * 10**5).decode()

WRONG: dict[str, tuple[dict[str, object], str]] = {
    "no model": ({"model": None}, "model=None"),
    "a model of no kind": ({"model": {"type": "Nonsense"}}, "cannot load the tokenizer"),
    "a vocabulary that is a list": (
        {"model": {"type": "WordLevel", "vocab": [1], "unk_token": "a"}},
        "cannot load the tokenizer",
    ),
    "negative ids": (
        {"model": {"type": "WordLevel", "vocab": {"a": -1}, "unk_token": "a"}},
        "cannot load the tokenizer",
    ),
    "no unknown token": (
        {"model": {"type": "WordLevel", "vocab": {"a": 1}, "unk_token": "b"}},
        "cannot load the tokenizer",
    ),
    "an empty Unigram": (
        {"model": {"type": "Unigram", "vocab": [], "unk_id": 5}},
        "cannot load the tokenizer",
    ),
    "merges of nothing": (
        {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["b", "c"]]}},
        "cannot load the tokenizer",
    ),
    "words without end": (
        {"model": {"type": "WordPiece", "max_input_chars_per_word": 10**9}},
        "max_input_chars_per_word=1000000000",
    ),
    "a long prefix": (
        {"model": {"type": "BPE", "continuing_subword_prefix": "#" * 10**6}},
        "continuing_subword_prefix=",
    ),
    "added tokens of no kind": ({"added_tokens": {"a": 1}}, "added_tokens="),
    "an added token without a text": ({"added_tokens": [{"id": 1}]}, "added_tokens.0.content"),
    "an added token far away": (
        {"added_tokens": [{"id": 10**12, "content": "x"}]},
        "added_tokens.0.id=1000000000000",
    ),
    "a normalizer that grows the text": ({"normalizer": grow(10**6)}, "its normalizer may make a"),
    "one that grows it step by step": ({"normalizer": grow(10, 9)}, "may make a text 1e.09 times"),
    "a thousand steps": ({"normalizer": grow(1, 1000)}, "it has 1000 steps"),
    "one that prepends": ({"normalizer": {"type": "Prepend", "prepend": "a" * 999}}, "1e.03 times"),
    "an expression": (
        {"normalizer": {"type": "Replace", "pattern": {"Regex": "x*"}, "content": "a" * 300}},
        "may make a text 301 times",
    ),
    "a table": (
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": CHARSMAP}},
        "may make a text 1.25e.04 times",
    ),
    "no table": (
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "a"}},
        "precompiled_charsmap is no base64",
    ),
    "a normalizer without its text": ({"normalizer": {"type": "Replace"}}, "normalizer: 'pattern'"),
    "a normalizer of no kind": ({"normalizer": {"type": "Nonsense"}}, "cannot load the tokenizer"),
    "a decoder that grows the text": (
        {"decoder": {"type": "Sequence", "decoders": grow(9, 9)["normalizers"]}},
        "its decoder may make a text",
    ),
    "a broken expression": (
        {"pre_tokenizer": SPLIT | {"pattern": {"Regex": "("}}},
        "cannot load the tokenizer",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_broken_tokenizer_is_one_line(folder: Path, name: str) -> None:
    changes, named = WRONG[name]
    edit(folder / "tokenizer.json", **changes)
    with one_line(named):
        FastTokenizer.from_folder(folder)


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"null", b"[" * 10**6, b'{"a":' * 10**5])
@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_file_that_is_no_object_is_one_line(folder: Path, content: bytes, name: str) -> None:
    (folder / name).write_bytes(content)
    with one_line(name):
        FastTokenizer.from_folder(folder)


SETTINGS: dict[str, tuple[dict[str, object], str]] = {
    "a class that is a number": ({"tokenizer_class": 7}, "tokenizer_class=7"),
    "a template that is a number": ({"chat_template": 7}, "chat_template"),
    "templates without names": ({"chat_template": [{"template": "a"}]}, "chat_template"),
    "templates without a default": (
        {"chat_template": [{"name": "rag", "template": "a"}]},
        "no default specified",
    ),
    "a huge template": ({"chat_template": "a" * (2**20 + 1)}, "1048577 characters"),
    "an added token far away": (
        {"added_tokens_decoder": {"99999999999": {"content": "a"}}},
        "added_tokens_decoder",
    ),
    "added tokens of no kind": ({"added_tokens_decoder": {"3": 7}}, "cannot load the tokenizer"),
    "a mask of no kind": ({"mask_token": 7}, "cannot load the tokenizer"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_broken_settings_are_one_line(folder: Path, name: str) -> None:
    changes, named = SETTINGS[name]
    edit(folder / "tokenizer_config.json", **changes)
    with one_line(named):
        FastTokenizer.from_folder(folder)


def test_a_file_beyond_all_sizes_is_not_read(folder: Path) -> None:
    for name, size in (("tokenizer.json", 2**40), ("chat_template.jinja", 2**21)):
        path = folder / name
        kept = path.read_bytes() if path.exists() else None
        with path.open("r+b" if kept else "wb") as file:
            file.truncate(size)  # without any blocks on the disk
        with one_line(f"{name}: it has {size} bytes"):
            FastTokenizer.from_folder(folder)
        path.unlink() if kept is None else path.write_bytes(kept)


def test_the_expression_of_a_panic_is_one_line(folder: Path) -> None:
    """Oniguruma gives up after ten million steps, and the tokenizers library panics."""
    pattern = {"Regex": "(a+)+$"}
    edit(folder / "tokenizer.json", pre_tokenizer=SPLIT | {"pattern": pattern})
    tokenizer = FastTokenizer.from_folder(folder)
    with bounded(), pytest.raises(CheckpointError, match="the tokenizer fails on the text"):
        tokenizer.encode("a" * 40 + "b")


def test_no_text_is_padded_or_cut(folder: Path) -> None:
    padding = {"strategy": {"Fixed": 10**7}, "direction": "Right", "pad_to_multiple_of": None}
    padding |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "a"}
    truncation = {"max_length": 2, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    edit(folder / "tokenizer.json", padding=padding, truncation=truncation)
    with bounded():
        assert len(FastTokenizer.from_folder(folder).encode("abcd")) == 4


def test_half_a_surrogate_pair_is_no_text(folder: Path) -> None:
    with pytest.raises(InputError, match="half a surrogate pair at 1"):
        FastTokenizer.from_folder(folder).encode("a\ud800")


@pytest.mark.parametrize(
    ("normalizer", "times"),
    [
        ({"type": "NFC"}, 1),
        ({"type": "Replace", "pattern": {"String": " "}, "content": "▁"}, 1),
        ({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
          {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}, 2),
        ({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}, 2),
    ],
)  # fmt: skip
def test_the_normalizers_of_real_models_are_allowed(
    normalizer: dict[str, object], times: float
) -> None:
    assert growth(normalizer) == times


FIELDS = ["version", "model", "added_tokens", "normalizer", "decoder", "pre_tokenizer", "padding",
          "truncation", "post_processor"]  # fmt: skip
STEPS = st.recursive(
    st.sampled_from([{"type": kind} for kind in ("NFC", "NFKD", "Lowercase", "ByteLevel", "Strip",
                     "BertNormalizer", "Nonsense", "Fuse", "Metaspace", "Digits")])
    | st.builds(lambda content, pattern: {"type": "Replace", "pattern": pattern,
                "content": content}, st.sampled_from(["", "a", "ab" * 50]),
                st.sampled_from([{"String": ""}, {"String": "a"}, {"Regex": ""}, {"Regex": "a+"},
                {"Regex": "("}, {}, None]))
    | VALUES,
    lambda inner: st.lists(inner, max_size=4).map(
        lambda steps: {"type": "Sequence", "normalizers": steps, "pretokenizers": steps,
                       "decoders": steps}),
    max_leaves=8,
)  # fmt: skip


def tried(folder: Path) -> None:
    """Load a folder's tokenizer and use it."""
    try:
        with result_or_refusal():
            tokenizer = FastTokenizer.from_folder(folder)
            tokenizer.id_of("a")
            for text in ("ab c", "aaa" * 50, "é漢 \U0001f600"):
                ids = tokenizer.encode(text)
                tokenizer.decode(ids)
                tokenizer.token_text(int(ids[0])) if len(ids) else None
    finally:
        shutil.rmtree(folder)


@given(data=st.data())
@cases(1 / 9)
def test_any_tokenizer_file_works_or_is_refused(data: st.DataObject) -> None:
    folder = Path(mkdtemp())
    reference_llada.write_tokenizer(folder, 50)
    whole = json.loads((folder / "tokenizer.json").read_text())
    changes = data.draw(mutation(*FIELDS))
    for name in data.draw(st.sets(st.sampled_from(["normalizer", "decoder", "pre_tokenizer"]))):
        changes[name] = data.draw(STEPS)
    part: dict[str, Any] = whole["model"]
    whole["model"] = changed(part, data.draw(mutation(*sorted(part)) | st.just({})))
    (folder / "tokenizer.json").write_text(json.dumps(changed(whole, changes)))
    tried(folder)


@given(data=st.data(), is_dream=st.booleans())
@cases(1 / 36)
def test_any_settings_work_or_are_refused(data: st.DataObject, is_dream: bool) -> None:
    folder = Path(mkdtemp())
    if is_dream:
        reference_dream.write_tokenizer(folder)
    else:
        reference_llada.write_tokenizer(folder, 50)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    names = [*settings, "chat_template", "auto_map", "added_tokens_decoder", "model_max_length",
             "extra_special_tokens", "bos_token", "fast_tokenizer_files"]  # fmt: skip
    changes = data.draw(mutation(*names))
    (folder / "tokenizer_config.json").write_text(json.dumps(changed(settings, changes)))
    if is_dream and data.draw(st.booleans()):
        vocabulary = data.draw(VALUES | st.binary(max_size=8))
        is_bytes = isinstance(vocabulary, bytes)
        content = vocabulary if is_bytes else json.dumps(vocabulary).encode()
        (folder / data.draw(st.sampled_from(["vocab.json", "merges.txt"]))).write_bytes(content)
    tried(folder)
