"""GGUF files that cannot be right, or are of another kind: each is refused in one line."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dise_adapters.families.causal import CAUSAL
from dise_adapters.families.dream import DREAM
from dise_adapters.families.family import Family
from dise_adapters.families.llada import LLADA
from dise_adapters.predictor import predictor_of
from dise_core import EngineConfig
from dise_core.errors import DiseError
from tests import tiny_gguf
from tests.gguf_files import MODELS, convert
from tests.hostile.bounds import bounded, cases, one_line

TINY = MODELS["llada"]


def load(path: Path, family: Family = LLADA) -> None:
    predictor_of(family).load(str(path), EngineConfig()).load_weights()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TINY.folder(tmp_path_factory.mktemp("original"))


@pytest.fixture(scope="module")
def whole(folder: Path) -> bytes:
    path = folder / "model.gguf"
    convert(TINY, folder, path, "Q4_0")
    return path.read_bytes()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"diffusion__shift_logits": True}, "diffusion.shift_logits=True is not covered"),
        ({"llada__attention__causal": True}, "llada.attention.causal=True is not covered"),
        ({"llada__rope__scaling__type": "yarn"}, "rope.scaling.type='yarn' is not covered"),
        ({"llada__rope__dimension_count": 32}, "rope.dimension_count=32 is not covered"),
        ({"llada__block_count": None}, "model.gguf has no field 'n_layers'"),
        ({"llada__block_count": 10**6}, "model.gguf: n_layers=1000000 must be at most"),
        ({"llada__block_count": 3}, "lacks weights: model.layers.2"),
        ({"llada__block_count": 1}, "has extra weights: model.layers.1"),
        ({"llada__feed_forward_length": 320}, "has misshapen weights"),
        ({"llada__attention__head_count_kv": [2, 2]}, r"n_kv_heads=\[2, 2\] must be"),
        ({"tokenizer__ggml__mask_token_id": 400}, "name different mask tokens"),
        ({"tokenizer__ggml__pre": "gpt-2"}, "with pre='gpt-2' is not covered"),
        ({"tokenizer__ggml__model": "llama"}, "tokenizer.ggml.model='llama' with"),
        ({"tokenizer__ggml__token_type": [1]}, "cannot load the tokenizer"),
        ({"general__alignment": 0}, "cannot load .*model.gguf: ."),
    ],
)
def test_metadata_that_do_not_fit_are_named(
    folder: Path, changes: dict[str, object], named: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.gguf"
    convert(TINY, folder, path, **changes)  # type: ignore[arg-type]
    with one_line(named):
        load(path)


def test_a_file_of_another_architecture_is_refused_by_its_name(
    whole: bytes, tmp_path: Path
) -> None:
    judge, path = tiny_gguf.write(tmp_path / "judge.gguf"), tmp_path / "model.gguf"
    path.write_bytes(whole)
    for wrong, family, name in ((judge, LLADA, "llama"), (path, DREAM, "llada")):
        with one_line(f"its architecture, {name}, is not this adapter's"):
            load(wrong, family)
    with one_line("architecture llada is not supported"):
        load(path, CAUSAL)


@given(data=st.data())
@cases(1 / 40)
def test_a_file_that_ends_anywhere_is_refused(
    whole: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "cut.gguf"
    path.unlink(missing_ok=True)  # a thread of the last load may still map it
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    for family in (LLADA, CAUSAL):
        with one_line("cannot load .*cut.gguf: ."):
            load(path, family)


@given(data=st.data())
@cases(1 / 10)
def test_any_number_in_the_head_makes_a_model_or_a_refusal(
    whole: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path, content = tmp_path_factory.getbasetemp() / "changed.gguf", bytearray(whole)
    form, most = data.draw(st.sampled_from([("<I", 2**32 - 1), ("<Q", 2**64 - 1)]))
    number = data.draw(st.integers(0, 20) | st.sampled_from([2**31, 2**40, most]))
    at = data.draw(st.integers(0, whole.rindex(b".weight")))
    struct.pack_into(form, content, at, min(number, most))
    path.unlink(missing_ok=True)  # a thread of the last load may still map it
    path.write_bytes(content)
    with bounded():
        try:
            load(path)
        except DiseError as error:
            assert len(str(error).splitlines()) == 1  # noqa: PT017
