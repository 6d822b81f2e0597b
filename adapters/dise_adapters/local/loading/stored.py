"""Llama, Qwen2 and Qwen3 from a checkpoint's files, layer by layer straight to a device.

OwnBody computes these models and needs only their weights. Importing transformers'
classes for them takes longer than all the rest of a start, so they are used only where a
checkpoint is of any other kind, or does not fit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import silu

from dise_adapters.checkpoint.files import one_line, refused
from dise_adapters.local.decoder.layer import Traits
from dise_adapters.local.decoder.linear import can_pack
from dise_adapters.local.decoder.own import DecoderParts, Rotation
from dise_adapters.local.devices import is_gpu
from dise_adapters.local.free_memory import give_back_freed_memory
from dise_adapters.local.loading.quiet import counting
from dise_core import CheckpointError, ModelError

if TYPE_CHECKING:
    from dise_adapters.checkpoint.weights import WeightSource
    from dise_adapters.families.family import Checkpoint, ConfigFields

SETTINGS = frozenset(
    {"hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim"}
    | {"intermediate_size", "vocab_size", "max_position_embeddings", "rope_parameters"}
    | {"rms_norm_eps", "tie_word_embeddings", "use_sliding_window", "is_causal"}
)
"""The settings that are understood here; transformers loads a model with any other."""

CLASSES = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")

DTYPES = ("F32", "BF16", "F16", "packed")

EMBEDDING, NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"

RESIDUALS = 4
"""Copies of the hidden states that a layer holds beside its linear layers' outputs."""

Shapes = dict[str, tuple[int, ...]]
"""Of weights, by transformers' names."""


@dataclass(frozen=True, slots=True)
class StoredDecoder:
    """A decoder whose weights are read from its files when they are asked for.

    names: of each weight in its file. count: gets how many numbers were read.
    is_rounded: whether all matrices are to be rounded to integers. expert_states: numbers
    that a pass holds for each token in a mixture of experts.
    """

    source: WeightSource
    settings: ConfigFields
    shapes: Shapes
    names: Mapping[str, str]
    device: torch.device
    dtype: torch.dtype
    count: Callable[[int], None]
    is_rounded: bool
    expert_states: int = 0

    @property
    def is_tied(self) -> bool:
        return bool(self.settings["tie_word_embeddings"])

    @property
    def states_per_token(self) -> int:
        """How many numbers a forward pass holds for each token."""
        layer = (shape for name, shape in self.shapes.items() if ".layers.0." in name)
        outputs = sum(shape[0] for shape in layer if len(shape) == 2)
        return RESIDUALS * self.shapes[EMBEDDING][1] + outputs + self.expert_states

    def parts(self) -> DecoderParts:
        """Return the decoder, whose layers are read later. Raises what `read` raises."""
        weights, head_dim = self.read([EMBEDDING, NORM]), _head_dim(self.settings)
        rotation = _rotation(self.settings["rope_parameters"]["rope_theta"], head_dim, self.device)
        traits = Traits(head_dim, self.settings["rms_norm_eps"], silu)
        num_layers = self.settings["num_hidden_layers"]
        ends = (weights[EMBEDDING], None if self.is_tied else self._head, weights[NORM])
        return DecoderParts(*ends, rotation, traits, num_layers, self._layer)

    def _head(self) -> tuple[Tensor, None]:
        return self.read([HEAD])[HEAD], None

    def _layer(self, index: int) -> tuple[dict[str, Tensor], None]:
        prefix = f"model.layers.{index}."
        weights = self.read([name for name in self.shapes if name.startswith(prefix)])
        return {name.removeprefix(prefix): weight for name, weight in weights.items()}, None

    def read(self, names: Iterable[str]) -> dict[str, Tensor]:
        """Return weights by name, on the device and in the type of the model; those that
        a CPU packs or rounds, as they are in the files, where that loses nothing.

        Main memory holds these weights and no others beside the model, mapped from the
        files that are then closed. Raises CheckpointError for weights that are not
        finite, ModelError for files that cannot be read.
        """
        give_back_freed_memory()
        weights, ours = dict[str, Tensor](), {self.names[name]: name for name in names}
        with refused(f"cannot load {self.source.folder}", ModelError):
            for name, stored in self.source.read(ours, self.device):
                is_matrix = stored.dim() > 1 and (ours[name] != EMBEDDING or self.is_rounded)
                kinds = (stored.dtype, self.dtype, self.device, self.is_rounded)
                is_mapped = is_matrix and stays_mapped(*kinds)
                copied = None if is_mapped else stored.to(self.device, self.dtype, copy=True)
                weights[ours[name]] = stored if copied is None else copied
                self.count(stored.numel())
        refuse_not_finite(self.source.folder, weights.items())
        return weights


def stays_mapped(
    stored: torch.dtype, dtype: torch.dtype, device: torch.device, is_rounded: bool
) -> bool:
    """Return whether a matrix of that type in its file makes a layer without a copy in
    the type of the model beside it.
    """
    if is_gpu(device):
        return False
    if is_rounded:
        return torch.promote_types(stored, dtype) == dtype
    return stored == dtype and can_pack(torch.empty(0, dtype=dtype))


def stored_decoder(
    checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype, is_rounded: bool = False
) -> StoredDecoder | None:
    """Return the checkpoint's decoder; None where its weights are not exactly those of
    one: what is wrong with them is then transformers' to say.

    Raises CheckpointError for files that cannot be right.
    """
    family, settings = checkpoint.family, checkpoint.settings or {}
    is_plain = settings and not family.split
    if family.model_class not in CLASSES or not is_plain or not SETTINGS.issuperset(settings):
        return None
    stored = checkpoint.weights.stored
    names = {family.renamed(name): name for name in stored}
    is_tied = settings["tie_word_embeddings"]
    if is_tied and HEAD not in names and EMBEDDING in names:
        names[HEAD] = names[EMBEDDING]
    elif is_tied or len(names) < len(stored):
        return None
    has_layers = settings["num_hidden_layers"] <= len(names)
    if not has_layers or any(weight.dtype not in DTYPES for weight in stored.values()):
        return None
    shapes = _shapes(settings, family.model_class)
    if {name: stored[source].shape for name, source in names.items()} != shapes:
        return None
    num_read = {name: shape for name, shape in shapes.items() if not (is_tied and name == HEAD)}
    count = counting(sum(map(math.prod, num_read.values())), checkpoint.report)
    kinds = (device, dtype, count, is_rounded)
    return StoredDecoder(checkpoint.weights, settings, shapes, names, *kinds)


MISFITS = {
    "missing_keys": "the checkpoint in {} lacks weights: {}",
    "unexpected_keys": "the checkpoint in {} has extra weights: {}",
    "mismatched_keys": "the checkpoint in {} has misshapen weights: {}",
}
"""What transformers reports of the weights, and the errors for it."""


def refuse_misfits(
    folder: object, report: Mapping[str, Iterable[Any]], unused: str | None = None
) -> None:
    """Raise CheckpointError for weights that a model lacks, has besides, or has in another
    shape, by their names in transformers' report. unused: a regular expression for those
    that it may have.
    """
    for key, sentence in MISFITS.items():
        names = sorted(name if isinstance(name, str) else str(name[0]) for name in report[key])
        if unused is not None and key == "unexpected_keys":
            names = [name for name in names if not re.search(unused, name)]
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise CheckpointError(sentence.format(folder, one_line(", ".join(names[:3])) + more))


@torch.inference_mode()
def refuse_not_finite(folder: object, weights: Iterable[tuple[str, Tensor]]) -> None:
    """Raise CheckpointError for NaN or infinite weights: every answer would be one."""
    for name, weight in weights:
        if weight.is_meta or not weight.is_floating_point() or weight.element_size() < 2:
            continue  # on the disk, or packed: a sum would mean nothing
        if not weight.sum().isfinite() and not weight.isfinite().all():
            raise CheckpointError(
                f"the checkpoint in {folder} has weights that are not finite numbers as "
                f"{str(weight.dtype).removeprefix('torch.')}: {name}"
            )


def _head_dim(settings: ConfigFields) -> int:
    size = settings.get("head_dim") or settings["hidden_size"] // settings["num_attention_heads"]
    return int(size)


def _shapes(settings: ConfigFields, model_class: str) -> Shapes:
    size, hidden = _head_dim(settings), settings["hidden_size"]
    inner, vocabulary = settings["intermediate_size"], settings["vocab_size"]
    queries, keys = (settings[f"num_{heads}_heads"] * size for heads in ("attention", "key_value"))
    layer: Shapes = {
        "self_attn.q_proj.weight": (queries, hidden),
        "self_attn.k_proj.weight": (keys, hidden),
        "self_attn.v_proj.weight": (keys, hidden),
        "self_attn.o_proj.weight": (hidden, queries),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
    }
    if model_class == "Qwen2ForCausalLM":
        outputs = {"q": queries, "k": keys, "v": keys}
        layer |= {f"self_attn.{name}_proj.bias": (count,) for name, count in outputs.items()}
    elif model_class == "Qwen3ForCausalLM":
        layer |= {f"self_attn.{name}_norm.weight": (size,) for name in "qk"}
    table = (vocabulary, hidden)
    return {EMBEDDING: table, HEAD: table, NORM: (hidden,)} | {
        f"model.layers.{index}.{name}": shape
        for index in range(settings["num_hidden_layers"])
        for name, shape in layer.items()
    }


def _rotation(theta: float, head_dim: int, device: torch.device) -> Rotation:
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float) / head_dim
    frequencies = (1.0 / theta**exponents).to(device)

    def rotate(states: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        angles = positions[..., None].float() * frequencies
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(states.dtype), angles.sin().to(states.dtype)

    return rotate
