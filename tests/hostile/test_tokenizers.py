"""Tokenizer files that are broken, each refused in one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dise_adapters.checkpoint.tokenizer import FastTokenizer
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


SPLIT = {"type": "Split", "behavior": "Isolated", "invert": False}

WRONG: dict[str, dict[str, object]] = {
    "no model": {"model": None},
    "a model of no kind": {"model": {"type": "Nonsense"}},
    "a vocabulary that is a list": {"model": {"type": "WordLevel", "vocab": [1], "unk_token": "a"}},
    "negative ids": {"model": {"type": "WordLevel", "vocab": {"a": -1}, "unk_token": "a"}},
    "no unknown token": {"model": {"type": "WordLevel", "vocab": {"a": 1}, "unk_token": "b"}},
    "an empty Unigram": {"model": {"type": "Unigram", "vocab": [], "unk_id": 5}},
    "merges of nothing": {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["b", "c"]]}},
    "added tokens of no kind": {"added_tokens": {"a": 1}},
    "an added token without a text": {"added_tokens": [{"id": 1}]},
    "an added token far away": {"added_tokens": [{"id": 10**12, "content": "x"}]},
    "a normalizer of no kind": {"normalizer": {"type": "Nonsense"}},
    "a broken expression": {"pre_tokenizer": SPLIT | {"pattern": {"Regex": "("}}},
}

SETTINGS: dict[str, dict[str, object]] = {
    "templates without names": {"chat_template": [{"template": "a"}]},
    "templates without a default": {"chat_template": [{"name": "rag", "template": "a"}]},
    "added tokens of no kind": {"added_tokens_decoder": {"3": 7}},
    "a mask of no kind": {"mask_token": 7},
}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        *(("tokenizer.json", changes) for changes in WRONG.values()),
        *(("tokenizer_config.json", changes) for changes in SETTINGS.values()),
    ],
    ids=[*WRONG, *SETTINGS],
)
def test_a_broken_tokenizer_is_one_line(
    folder: Path, name: str, changes: dict[str, object]
) -> None:
    edit(folder / name, **changes)
    with one_line(f"cannot load the tokenizer in {folder}: ."):
        FastTokenizer.from_folder(folder)


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"null", b"[" * 10**6, b'{"a":' * 10**5])
@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_file_that_is_no_object_is_one_line(folder: Path, content: bytes, name: str) -> None:
    (folder / name).write_bytes(content)
    with one_line(f"cannot load the tokenizer in {folder}: ."):
        FastTokenizer.from_folder(folder)


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


FIELDS = ["version", "model", "added_tokens", "normalizer", "decoder", "pre_tokenizer", "padding",
          "truncation", "post_processor"]  # fmt: skip
STEPS = st.recursive(
    st.sampled_from([{"type": kind} for kind in ("NFC", "NFKD", "Lowercase", "ByteLevel", "Strip",
                     "BertNormalizer", "Nonsense", "Fuse", "Metaspace", "Digits")])
    | st.builds(lambda content, pattern: {"type": "Replace", "pattern": pattern,
                "content": content}, st.sampled_from(["", "a", "ab"]),
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
