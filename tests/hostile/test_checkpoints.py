"""Checkpoints of strangers: configurations, indexes, headers, weights, each refused in one line."""

from __future__ import annotations

import json
import math
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from dise_adapters.checkpoint.files import MOST_NESTED
from dise_adapters.checkpoint.hub import read_config
from dise_adapters.checkpoint.weights import INDEX, WHOLE, stored_weights
from dise_adapters.families.a2d import A2D_QWEN3
from dise_adapters.families.causal import CAUSAL
from dise_adapters.families.dream import DREAM
from dise_adapters.families.llada import LLADA
from dise_adapters.families.llada2 import LLADA2
from dise_adapters.families.sdar import SDAR
from dise_adapters.predictor import predictor_of
from dise_core.errors import CheckpointError, DiseError, InputError, ModelError
from dise_core.params import EngineConfig
from tests import published, reference_a2d, reference_dream, reference_llada
from tests.hostile.bounds import bounded, cases
from tests.hostile.test_remote_code import write_whole

FAMILIES = {
    "llada": LLADA,
    "dream": DREAM,
    "a2d-qwen3": A2D_QWEN3,
    "sdar": SDAR,
    "llada2": LLADA2,
    "llama": CAUSAL,
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A checkpoint that works, of each kind."""
    root = tmp_path_factory.mktemp("checkpoints")
    for kind in FAMILIES:
        write_whole(root / kind, kind)
    return {kind: root / kind for kind in FAMILIES}


def load(folder: Path, kind: str = "llada") -> Any:
    """Load a checkpoint as that of a kind."""
    read_config.cache_clear()
    return predictor_of(FAMILIES[kind]).load(str(folder), EngineConfig())


@contextmanager
def one_line(match: str = "") -> Iterator[None]:
    """Assert that a refusal of one line, with that in it, is raised inside, within the bounds."""
    with bounded(), pytest.raises((ModelError, InputError), match=match) as caught:
        yield
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 1000


@contextmanager
def result_or_refusal() -> Iterator[None]:
    """Assert that inside all goes well, or ends in a refusal of one line, within the bounds."""
    with bounded():
        try:
            yield
        except DiseError as error:
            assert len(str(error).splitlines()) == 1  # noqa: PT017


@pytest.fixture
def folder(folders: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of the LLaDA checkpoint."""
    return Path(shutil.copytree(folders["llada"], tmp_path / "model"))


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("kind", FAMILIES)
def test_the_whole_ones_load(folders: dict[str, Path], kind: str) -> None:
    assert load(folders[kind], kind).info.vocab_size > 49


WRONG: dict[str, tuple[str, object]] = {
    "a million layers": ("n_layers", 10**6),
    "no heads": ("n_heads", 0),
    "negative": ("d_model", -64),
    "half a layer": ("n_layers", 1.5),
    "text": ("n_layers", "2"),
    "null": ("d_model", None),
    "a list": ("n_heads", [2]),
    "an object": ("n_kv_heads", {"a": 1}),
    "huge": ("d_model", 10**30),
    "a huge vocabulary": ("embedding_size", 10**12),
    "a huge length": ("max_sequence_length", 10**12),
    "true": ("n_layers", True),
    "NaN": ("rms_norm_eps", float("nan")),
    "infinite": ("rope_theta", float("inf")),
    "a huge float": ("rope_theta", 1e300),
    "no mask": ("mask_token_id", 10**30),
    "a text for a mask": ("mask_token_id", "49"),
    "ends": ("eos_token_id", [48, -1]),
    "no ends": ("eos_token_id", {"a": 1}),
    "an end beyond the vocabulary": ("eos_token_id", 10**6),
    "tied": ("weight_tying", "no"),
    "rope": ("rope_parameters", [1]),
    "control characters": ("n_heads", "\x1b[2J\n\x1e2"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_field_is_named(folder: Path, name: str) -> None:
    field, value = WRONG[name]
    edit(folder / "config.json", **{field: value})
    named = "cannot be an end token" if "beyond" in name else field
    with one_line(named):
        load(folder)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"n_heads": 3, "n_kv_heads": 3}, "3 heads do not divide the hidden size 64"),
        ({"n_heads": 4, "n_kv_heads": 3}, "3 heads of keys and values do not divide 4 heads"),
        ({"n_heads": 64, "n_kv_heads": 64}, "a head has the size 1"),
        ({"d_model": 2**16, "n_layers": 64}, "makes a model of .* weights, and its files hold"),
        ({"n_layers": 200, "d_model": 2**14}, "makes a model of .* weights"),
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
    ("text", "named"),
    [
        ("[" * 10**5 + "]" * 10**5, "cannot read .*config.json"),
        ('{"a":' * 100 + "1" + "}" * 100, f"nested more than {MOST_NESTED}"),
        ('{"n_layers": ' + "9" * 5000 + "}", "cannot read .*config.json"),
        ("{}" + " " * 2**20, "config.json: it has .* bytes"),
        ("\x00", "cannot read .*config.json"),
        ("null", "does not hold a JSON object"),
    ],
)
def test_a_config_that_is_none_is_one_line(folder: Path, text: str, named: str) -> None:
    (folder / "config.json").write_text(text)
    with one_line(named):
        load(folder)


def test_a_config_that_is_no_file_is_not_waited_for(folder: Path) -> None:
    import os

    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    with one_line("config.json: it is not a file"):
        load(folder)


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("num_hidden_layers", 10**9, "num_hidden_layers=1000000000 must be at most 1024"),
        ("num_hidden_layers", "two", "num_hidden_layers"),
        ("num_attention_heads", 0, "cannot load"),
        ("hidden_size", 10**30, "hidden_size=.* must be at most"),
        ("hidden_size", 2**20, "makes a model of .* weights"),
        ("vocab_size", -1, "vocab_size"),
        ("transformers_weights", "../other.safetensors", "transformers_weights"),
        ("quantization_config", [1], "cannot load"),
        ("rope_parameters", {"rope_type": "nonsense"}, "cannot load"),
        ("dtype", "nonsense", "cannot load"),
    ],
)
def test_the_config_of_a_judge_is_bounded(
    folders: dict[str, Path], tmp_path: Path, field: str, value: object, named: str
) -> None:
    folder = Path(shutil.copytree(folders["llama"], tmp_path / "judge"))
    edit(folder / "config.json", **{field: value})
    with one_line(named):
        load(folder, "llama")


def sharded(folder: Path) -> Path:
    """Return the folder with its weights in two files and an index."""
    config = json.loads((folder / "config.json").read_text())
    weights = load_file(folder / WHOLE)
    (folder / WHOLE).unlink()
    reference_llada.write_checkpoint(folder, config, weights, shards=2)
    return folder


SHARD = "model-00001-of-00002.safetensors"


@pytest.mark.parametrize(
    ("index", "named"),
    [
        ([], "does not hold a JSON object"),
        ({}, "metadata: Field required"),
        ({"metadata": {}}, "weight_map: Field required"),
        ({"weight_map": {"a": SHARD}}, "metadata: Field required"),
        ({"metadata": [], "weight_map": {"a": SHARD}}, "metadata=.*dictionary"),
        ({"metadata": {}, "weight_map": []}, "weight_map="),
        ({"metadata": {}, "weight_map": {}}, "weight_map=.*at least 1 item"),
        ({"metadata": {}, "weight_map": {"a": 1}}, "weight_map.a=1"),
        ({"metadata": {}, "weight_map": {"a": "../model.safetensors"}}, "weight_map.a="),
        ({"metadata": {}, "weight_map": {"a": "/etc/passwd"}}, "weight_map.a="),
        ({"metadata": {}, "weight_map": {"\x1b\x1e\n": 1}}, "weight_map. =1"),
        ({"metadata": {}, "weight_map": {"a": "model.bin"}}, "weight_map.a="),
        ({"metadata": {}, "weight_map": {"a": "none.safetensors"}}, "names none.safetensors"),
    ],
)
def test_an_index_that_cannot_be_right_is_refused(folder: Path, index: object, named: str) -> None:
    (sharded(folder) / INDEX).write_text(json.dumps(index))
    with one_line(named):
        load(folder)


def test_two_files_with_one_tensor_are_refused(folder: Path) -> None:
    paths = sorted(sharded(folder).glob("*.safetensors"))
    both = load_file(paths[0]) | dict(list(load_file(paths[1]).items())[:1])
    assert load(folder)
    save_file(both, paths[0], metadata={"format": "pt"})
    with one_line(f"{paths[0].name} and {paths[1].name} both hold 'model"):
        load(folder)


def write_header(path: Path, header: bytes, length: int | None = None, body: bytes = b"") -> None:
    path.write_bytes(struct.pack("<Q", len(header) if length is None else length) + header + body)


F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("header", "length", "named"),
    [
        ({"a": F32}, 10**12, "header too large"),
        ({"a": F32}, 2**64 - 1, "header too large"),
        ({"a": F32}, 0, "invalid JSON in header"),
        ([1], None, "invalid JSON in header"),
        ({"a": 1}, None, "integer `1`, expected struct TensorInfo"),
        ({"a": F32, "b": F32}, None, "invalid offset for tensor"),
        ({"a": F32 | {"shape": [10**9]}}, None, "invalid shape, data type, or offset"),
        ({"a": F32 | {"shape": [-1]}}, None, "integer `-1`"),
        ({"a": F32 | {"shape": "2"}}, None, "expected a sequence"),
        ({"a": F32 | {"dtype": "F99"}}, None, "unknown variant `F99`"),
        ({"a": F32 | {"data_offsets": [8, 0]}}, None, "invalid offset for tensor"),
        (
            {"a": F32 | {"data_offsets": [0, 10**15], "shape": [25 * 10**13]}},
            None,
            "not fully covered",
        ),
        ({"a": F32 | {"data_offsets": [0]}}, None, "expected a tuple of size 2"),
        ({"a": {"b": {"c": [[[]]] * 9}}}, None, "missing field `dtype`"),
        ({}, None, "file not fully covered"),
    ],
)
def test_a_header_that_cannot_be_right_is_refused(
    folder: Path, header: object, length: int | None, named: str
) -> None:
    write_header(folder / WHOLE, json.dumps(header).encode(), length, bytes(8))
    with one_line(f"cannot load .*{WHOLE}: .*{named}"):
        load(folder)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_weights_that_are_not_finite_are_named(
    folder: Path, bad: float, dtype: torch.dtype
) -> None:
    weights = {name: weight.to(dtype) for name, weight in load_file(folder / WHOLE).items()}
    weights["model.transformer.ff_out.weight"][-1, -1] = bad
    save_file(weights, folder / WHOLE, metadata={"format": "pt"})
    with one_line("weights that are not finite numbers as float32: lm_head.weight"):
        load(folder)


def test_weights_whose_sum_alone_is_infinite_load(folder: Path) -> None:
    weights = load_file(folder / WHOLE)
    weights["model.transformer.ff_out.weight"].fill_(3e38)
    save_file(weights, folder / WHOLE, metadata={"format": "pt"})
    assert load(folder)


def gguf(keys: bytes = b"", num_keys: int = 0, num_tensors: int = 0, tensors: bytes = b"") -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, num_tensors, num_keys) + keys + tensors


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


GGUF_FILES = {
    "empty": b"",
    "another": b"GGML" + bytes(40),
    "of a later version": b"GGUF" + struct.pack("<IQQ", 9, 0, 0),
    "keys": gguf(num_keys=2**60),
    "tensors": gguf(num_tensors=2**60),
    "a name": gguf(struct.pack("<Q", 2**60), 1),
    "a type": gguf(text(b"a") + struct.pack("<I", 77), 1),
    "a tensor": gguf(num_tensors=1, tensors=text(b"w") + struct.pack("<IQQIQ", 2, 2**40, 2, 0, 0)),
    "an offset": gguf(num_tensors=1, tensors=text(b"w") + struct.pack("<IQIQ", 1, 2, 0, 2**60)),
    "no model": gguf(),
}


@pytest.mark.parametrize("name", GGUF_FILES)
def test_a_gguf_file_that_cannot_be_right_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(GGUF_FILES[name])
    with one_line("cannot load .*model.gguf: ."):
        predictor_of(CAUSAL).load(str(path), EngineConfig())


def test_a_gguf_file_tells_of_its_model(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    from tests import tiny_gguf

    path = tiny_gguf.write(tmp_path / "model.gguf")
    info = predictor_of(CAUSAL).load(str(path), EngineConfig()).info
    assert (info.vocab_size, info.max_length) == (len(tiny_gguf.WORDS), 128)
    assert info.special.eos_ids == {1}


# Generators: a file that is right, changed at random.

NUMBERS = st.sampled_from([0, -1, 1, 2, 3, 7, 10**6, 10**9, 2**31, 2**63, 10**30, 0.5, 1e300])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=4,
)
GONE = object()


def changed(fields: dict[str, Any], changes: dict[str, object]) -> dict[str, Any]:
    fields = fields | changes
    return {name: value for name, value in fields.items() if value is not GONE}


@cache
def mutation(*names: str) -> st.SearchStrategy[dict[str, object]]:
    """Changes of one to three of the named fields."""
    values = VALUES | st.just(GONE)
    return st.dictionaries(st.sampled_from(names), values, min_size=1, max_size=3)


CONFIGS: dict[str, Callable[..., dict[str, object]]] = {
    "llada": reference_llada.default_config,
    "dream": reference_dream.default_config,
    "a2d-qwen3": reference_a2d.default_config,
    "sdar": published.SDAR.fields,
    "llada2": published.LLADA2.fields,
}


@given(data=st.data(), kind=st.sampled_from(sorted(CONFIGS)))
@cases(1 / 9)
def test_any_config_makes_settings_or_a_refusal(data: st.DataObject, kind: str) -> None:
    config = CONFIGS[kind]()
    changes = data.draw(mutation(*sorted(config)))
    with result_or_refusal():
        settings = FAMILIES[kind].settings(changed(config, changes), "a folder")
        assert settings is not None
        assert all(settings[name] >= 1 for name in ("hidden_size", "num_hidden_layers"))


@given(data=st.data(), kind=st.sampled_from(sorted(FAMILIES)))
@cases(1 / 36)
def test_any_folder_loads_or_is_refused(
    folders: dict[str, Path], data: st.DataObject, kind: str
) -> None:
    folder = Path(mkdtemp()) / "model"
    shutil.copytree(folders[kind], folder, symlinks=True)
    config = json.loads((folder / "config.json").read_text())
    changes = data.draw(mutation(*sorted(config)))
    (folder / "config.json").write_text(json.dumps(changed(config, changes)))
    try:
        with result_or_refusal():
            load(folder, kind)
    finally:
        shutil.rmtree(folder.parent)


@given(data=st.data())
@cases(1 / 9)
def test_any_index_or_header_is_weighed_or_refused(data: st.DataObject) -> None:
    folder = Path(mkdtemp())
    header = {"a": F32, "b": F32 | {"data_offsets": [8, 16]}, "__metadata__": {"format": "pt"}}
    header["a"] = changed(F32, data.draw(mutation(*sorted(F32)) | st.just({})))
    header = changed(header, data.draw(mutation(*sorted(header)) | st.just({})))
    body = data.draw(st.just(bytes(16)) | st.binary(max_size=20))
    length = data.draw(st.none() | st.sampled_from([0, 1, 7, 10**6, 2**40, 2**64 - 1]))
    write_header(folder / SHARD, json.dumps(header).encode(), length, body)
    index = {"metadata": {}, "weight_map": {"a": SHARD, "b": SHARD}}
    index["weight_map"] = changed(index["weight_map"], data.draw(mutation("a") | st.just({})))
    index = changed(index, data.draw(mutation("metadata", "weight_map") | st.just({})))
    (folder / INDEX).write_text(json.dumps(index))
    try:
        with result_or_refusal():
            stored = stored_weights(folder).values()
            assert sum(4 * math.prod(weight.shape) for weight in stored) == len(body)
    finally:
        shutil.rmtree(folder)
