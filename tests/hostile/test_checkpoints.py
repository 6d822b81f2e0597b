"""Checkpoints that cannot be right: each is refused in one line, before memory is allocated."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dise_adapters.checkpoint.weights import INDEX, SINGLE
from dise_adapters.families.a2d import A2D_QWEN3
from dise_adapters.families.causal import CAUSAL
from dise_adapters.families.dream import DREAM
from dise_adapters.families.family import Family
from dise_adapters.families.llada import LLADA
from dise_adapters.families.llada2 import LLADA2
from dise_adapters.families.sdar import SDAR
from dise_adapters.predictor import predictor_of
from dise_core.errors import CheckpointError, DiseError
from dise_core.params.engine import EngineConfig
from tests import published, reference_a2d, reference_dream, reference_llada
from tests.checkpoints import write
from tests.hostile.bounds import bounded, cases, one_line
from tests.reference_backbone import edited
from tests.tiny_format import edit


def load(path: Path, family: Family = LLADA) -> Any:
    """Load a checkpoint as that of a family."""
    predictor = predictor_of(family).load(str(path), EngineConfig())
    predictor.load_weights()
    return predictor


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write("llada", tmp_path / "model")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n_layers", 10**6),
        ("n_layers", 1.5),
        ("n_layers", "2"),
        ("n_heads", 0),
        ("n_heads", "\x1b[2J\n\x1e2"),
        ("d_model", None),
        ("d_model", 10**30),
        ("embedding_size", 10**12),
        ("rms_norm_eps", float("nan")),
        ("rope_theta", 1e300),
        ("rope_parameters", [1]),
        ("mask_token_id", 10**30),
        ("mask_token_id", "49"),
        ("max_sequence_length", None),
        ("n_heads", True),
        ("n_kv_heads", -1),
        ("eos_token_id", [48, -1]),
        ("weight_tying", "no"),
    ],
)
def test_a_wrong_field_is_named(folder: Path, field: str, value: object) -> None:
    edit(folder / "config.json", **{field: value})
    with one_line(field):
        load(folder)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"eos_token_id": 10**6}, "cannot be an end token"),
        ({"embedding_size": None, "vocab_size": None}, "vocab_size=null must be a number above 0"),
        ({"mlp_hidden_size": None, "mlp_ratio": None}, "mlp_ratio=null must be a number above 0"),
        ({"n_heads": 3, "n_kv_heads": 3}, "3 heads do not divide the hidden size 64"),
        ({"n_heads": 4, "n_kv_heads": 3}, "3 heads of keys and values do not divide 4 heads"),
        ({"n_heads": 64, "n_kv_heads": 64}, "a head has the size 1"),
        ({"d_model": 2**16, "n_layers": 64}, "makes a model of .* weights, and its files hold"),
        ({"embedding_size": 2**21, "vocab_size": 50}, "makes a model of .* weights"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_before_anything_is_allocated(
    folder: Path, changes: dict[str, object], named: str
) -> None:
    edit(folder / "config.json", **changes)
    with bounded(10.0, 0.5), pytest.raises(CheckpointError, match=named):
        load(folder)


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("num_hidden_layers", 10**9, "num_hidden_layers=1000000000 must be at most 1024"),
        ("num_attention_heads", 0, "cannot load"),
        ("hidden_size", 2**20, "makes a model of .* weights"),
        ("transformers_weights", "../other.safetensors", "transformers_weights"),
        ("rope_parameters", {"rope_type": "nonsense"}, "cannot load"),
    ],
)
def test_the_config_of_a_judge_is_bounded(
    tmp_path: Path, field: str, value: object, named: str
) -> None:
    folder = write("llama", tmp_path)
    edit(folder / "config.json", **{field: value})
    with one_line(named):
        load(folder, CAUSAL)


def sharded(folder: Path) -> Path:
    """Return the folder with its weights in two files and an index."""
    (folder / SINGLE).unlink()
    return reference_llada.checkpoint(folder, shards=2)


def index_of(weight_map: object) -> bytes:
    return json.dumps({"metadata": {}, "weight_map": weight_map}).encode()


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("config.json", b"[" * 10**5 + b"]" * 10**5, "cannot read .*config.json"),
        ("config.json", b'{"n_layers": ' + b"9" * 5000 + b"}", "cannot read .*config.json"),
        ("config.json", b"null", "does not hold a JSON object"),
        (INDEX, b"[]", "does not hold a JSON object"),
        (INDEX, b"{}", "weight_map must give the file of each weight"),
        (INDEX, index_of({"\x1b\x1e\n": 1}), "weight_map must give the file of each weight"),
        (INDEX, index_of({"a": "none.safetensors"}), "cannot load .*none.safetensors"),
        (INDEX, index_of({"a": "../x.safetensors"}), "weight_map must give .* in this folder"),
        (SINGLE, struct.pack("<Q", 3) + b"[1]" + bytes(8), f"cannot load .*{SINGLE}: ."),
        (SINGLE, bytes(8), f"cannot load .*{SINGLE}: ."),
    ],
)
def test_a_file_that_cannot_be_right_is_one_line(
    folder: Path, name: str, content: bytes, named: str
) -> None:
    (sharded(folder) if name == INDEX else folder).joinpath(name).write_bytes(content)
    with one_line(named):
        load(folder)


def test_a_weight_in_two_files_is_refused(folder: Path) -> None:
    index = json.loads((sharded(folder) / INDEX).read_text())
    one, other = sorted(set(index["weight_map"].values()))
    shutil.copy(folder / one, folder / other)
    with one_line(f"{one} and {other} hold "):
        load(folder)


@pytest.mark.parametrize("content", [b"", b"GGUF" + struct.pack("<IQQ", 3, 2**60, 2**60)])
def test_a_gguf_file_that_its_reader_refuses_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.gguf").write_bytes(content)
    with one_line("cannot load .*model.gguf: ."):
        load(tmp_path / "model.gguf", CAUSAL)


def test_a_gguf_file_tells_of_its_model(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    from tests import tiny_gguf

    info = load(tiny_gguf.write(tmp_path / "model.gguf"), CAUSAL).info
    assert (info.vocab_size, info.max_length) == (len(tiny_gguf.WORDS), 128)
    assert info.special.eos_ids == {1}


@pytest.mark.parametrize("bad", [torch.nan, -torch.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_that_are_not_finite_are_named(
    folder: Path, bad: float, dtype: torch.dtype
) -> None:
    with edited(folder) as weights:
        weights.update({name: weight.to(dtype) for name, weight in weights.items()})
        weights["model.transformer.ff_out.weight"][-1, -1] = bad
    with one_line("weights that are not finite numbers as float32: lm_head.weight"):
        load(folder)


def test_weights_whose_sum_alone_is_infinite_load(folder: Path) -> None:
    with edited(folder) as weights:
        weights["model.transformer.ff_out.weight"].fill_(3e38)
    assert load(folder)


CONFIGS: dict[str, tuple[Family, Callable[..., dict[str, object]]]] = {
    "llada": (LLADA, reference_llada.default_config),
    "dream": (DREAM, reference_dream.default_config),
    "a2d-qwen3": (A2D_QWEN3, reference_a2d.default_config),
    "sdar": (SDAR, published.SDAR.fields),
    "llada2": (LLADA2, published.LLADA2.fields),
}
NUMBERS = st.sampled_from([0, -1, 1, 2, 3, 7, 10**6, 10**9, 2**31, 2**63, 10**30, 0.5, 1e300])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=4,
)
GONE = object()


@given(data=st.data(), kind=st.sampled_from(sorted(CONFIGS)))
@cases(1 / 9)
def test_any_config_makes_settings_or_a_refusal(data: st.DataObject, kind: str) -> None:
    family, fields_of = CONFIGS[kind]
    fields = fields_of()
    names, values = st.sampled_from(sorted(fields)), VALUES | st.just(GONE)
    fields |= data.draw(st.dictionaries(names, values, min_size=1, max_size=3))
    fields = {name: value for name, value in fields.items() if value is not GONE}
    with bounded():
        try:
            settings = family.settings(fields, "a folder")
        except DiseError as error:
            assert len(str(error).splitlines()) == 1  # noqa: PT017
            return
    assert settings is not None
    assert all(settings[name] >= 1 for name in ("hidden_size", "num_hidden_layers"))
