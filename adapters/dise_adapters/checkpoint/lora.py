"""LoRA adapters in peft's format: what they change of a checkpoint's weights."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict
from safetensors import safe_open

from dise_adapters.checkpoint.files import one_line, read_object, refused
from dise_adapters.checkpoint.weights import Safetensors
from dise_core import CheckpointError, InputError
from dise_core.patterns import compiled

if TYPE_CHECKING:
    from torch import Tensor, device

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"

PREFIX = "base_model.model."
"""What peft writes before each name."""

MATRIX = re.compile(rf"((?:{re.escape(PREFIX)})?(.+)\.lora_(embedding_)?)[AB](\.weight)?")
"""The name of one of two matrices whose product is added to a module's weight."""

NEUTRAL = frozenset(
    {"task_type", "auto_mapping", "peft_version", "revision", "inference_mode", "bias"}
    | {"r", "rank_pattern", "target_modules", "exclude_modules", "layers_to_transform"}
    | {"layers_pattern", "modules_to_save", "lora_dropout", "megatron_core", "eva_config"}
    | {"qalora_group_size", "loftq_config", "corda_config", "lora_ga_config"}
    | {"ensure_weight_tying"}
)
"""Fields that say nothing of the merged weights beyond what the file of weights says."""

FLOATS = frozenset({"F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2"})
"""The types of weights that can be merged."""

MAX_PATTERNS = 1024
"""Each is tried on every module."""

BEGINNINGS = (True, False, None, "gaussian", "eva", "orthogonal")

COVERED = {"peft_type": ("LORA",), "init_lora_weights": BEGINNINGS}
"""The values that other fields may have. Some ways to begin change the base, too."""


class LoraConfig(BaseModel):
    """The fields of adapter_config.json that merging depends on."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    base_model_name_or_path: str | None = None
    lora_alpha: float
    alpha_pattern: dict[str, float] | None = None
    use_rslora: bool = False
    fan_in_fan_out: bool = False

    def scale(self, module: str, rank: int) -> float:
        """Return the factor of a product of that rank, as peft chooses it."""
        name = module.encode(errors="replace")
        alphas = (alpha for pattern, alpha in self._alphas if pattern.match(name))
        alpha = next(alphas, self.lora_alpha)
        return alpha / (math.sqrt(rank) if self.use_rslora else rank)

    @cached_property
    def _alphas(self) -> list[tuple[Any, float]]:
        patterns = self.alpha_pattern or {}
        if len(patterns) > MAX_PATTERNS:
            raise ValueError(f"alpha_pattern has {len(patterns)} entries, and may have 1,024.")
        return [(compiled(rf"(.*\.)?({key})$"), alpha) for key, alpha in patterns.items()]


@dataclass(frozen=True)
class Lora(Safetensors):
    """The folder of an adapter."""

    @cached_property
    def config(self) -> LoraConfig:
        """Its configuration. Raises InputError where there is no such folder or file,
        CheckpointError for an adapter that is no plain LoRA.
        """
        if not self.path.is_dir():
            raise InputError(f"There is no folder {str(self.path)!r:.300}.", "lora")
        if not (self.path / CONFIG).exists():
            raise InputError(
                f"{self.path} holds no {CONFIG}: name the folder of a LoRA adapter in peft's "
                "format.",
                "lora",
            )
        neutral = NEUTRAL | LoraConfig.model_fields.keys()
        fields = {"peft_type": None, **read_object(self.path / CONFIG)}
        for name, value in fields.items():
            is_covered = value in COVERED[name] if name in COVERED else not value
            if name not in neutral and not is_covered:
                raise CheckpointError(
                    f"The adapter in {self.path} has {one_line(name)}={value!r:.80}, "
                    "which is not merged here: load what peft's merge_and_unload makes."
                )
        with refused(f"cannot read {self.path / CONFIG}"):
            return LoraConfig.model_validate(fields)

    def changes(self) -> Iterator[tuple[str, Change]]:
        """Yield what is changed, by the names of weights in the model. A matrix without
        the other keeps its own, which no model has.
        """
        for key, part in self.stored.items():
            if part.dtype not in FLOATS:
                raise CheckpointError(
                    f"The adapter in {self.path} holds {one_line(key)} as {part.dtype}, which "
                    "cannot be merged: save it as float32, float16 or bfloat16."
                )
            match = MATRIX.fullmatch(key)
            pair = [match.expand(rf"\1{letter}\4") for letter in "AB"] if match else []
            if match is None or not {*pair} <= self.stored.keys():
                name = key.removeprefix(PREFIX).replace(".base_layer.", ".")
                yield name, Change(self, key)
            elif key == pair[1]:
                up, down = part.shape, self.stored[pair[0]].shape
                if len(up) != 2 or len(down) != 2 or not up[1] == down[0] > 0:
                    raise CheckpointError(
                        f"The adapter in {self.path} has matrices of {[*down]} and {[*up]} for "
                        f"{one_line(match[2])}: they must be of [r, in] and [out, r], r above 0."
                    )
                with refused(f"cannot read {self.path / CONFIG}"):
                    scale = self.config.scale(match[2], down[0])
                is_turned = match[3] is not None or self.config.fan_in_fan_out
                change = Change(self, pair[1], pair[0], scale, is_turned)
                yield f"{match[2]}.weight", change

    def read(self, names: Iterable[str], place: device) -> Iterator[tuple[str, Tensor]]:
        """Yield weights by name. The file stays open, as its head would be read for each."""
        for name in names:
            yield name, self._opened.get_tensor(name).to(place)

    @cached_property
    def _opened(self) -> Any:
        return safe_open(self.path / WEIGHTS, framework="pt")

    @cached_property
    def _files(self) -> list[Path]:
        if not (self.path / WEIGHTS).is_file():
            raise CheckpointError(
                f"{self.path} holds no {WEIGHTS}: adapters are read from safetensors "
                "alone, as adapter_model.bin may hold code. Save it again by peft."
            )
        return [self.path / WEIGHTS]


@dataclass(frozen=True, slots=True)
class Change:
    """Adds scale * up @ down to a weight, turned or not; without `down`, replaces it. up,
    down: the names of matrices [out, r] and [r, in] in the adapter's file.
    """

    adapter: Lora
    up: str
    down: str | None = None
    scale: float = 1.0
    is_turned: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the weight that it is for."""
        stored = self.adapter.stored
        if self.down is None:
            return stored[self.up].shape
        shape = stored[self.up].shape[:1] + stored[self.down].shape[1:]
        return shape[::-1] if self.is_turned else shape

    def apply(self, weight: Tensor) -> Tensor:
        """Return the changed weight, the sum in float32, as a new tensor: besides that
        only the two matrices take memory.
        """
        names = filter(None, (self.up, self.down))
        parts = dict(self.adapter.read(names, weight.device))
        if self.down is None:
            return parts[self.up]
        up, down = parts[self.up].float(), parts[self.down].float()
        product = down.T @ up.T if self.is_turned else up @ down
        return product.mul_(self.scale).add_(weight)
