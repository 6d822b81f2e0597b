"""Where a loaded model's weights are, so that others can be copied there."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Size, Tensor, nn

from dise_adapters.local.decoder.kv_cache import KVCache
from dise_adapters.local.decoder.linear import MakeLinear, PackedLinear, joined
from dise_core import InputError
from dise_core.errors import did_you_mean


@dataclass(frozen=True, slots=True, eq=False)
class PackedRows:
    """Rows of a packed weight, [R, in], which take new values as a tensor does."""

    layer: PackedLinear
    rows: slice
    shape: Size

    def copy_(self, values: Tensor) -> None:
        """Replace the rows."""
        weight = self.layer.weight.to_dense()
        weight[self.rows] = values
        self.layer.pack(weight)


WeightPlaces = dict[str, list[Tensor | PackedRows]]
"""By a weight's name, all that hold it."""


def built(
    make: MakeLinear, weights: Mapping[str, Tensor], places: WeightPlaces, *names: str
) -> nn.Module:
    """Return the layer that joins the outputs of several, and add where it has the weight
    and the bias of each to `places`, unless it rounds them.
    """
    layer: Any = make(*joined(weights, *names))
    start = 0
    for name in names if isinstance(layer, PackedLinear | nn.Linear) else ():
        shape = weights[f"{name}.weight"].shape
        rows, start = slice(start, start + shape[0]), start + shape[0]
        is_packed = isinstance(layer, PackedLinear)
        weight = PackedRows(layer, rows, shape) if is_packed else layer.weight[rows]
        places[f"{name}.weight"] = [weight]
        if layer.bias is not None:
            places[f"{name}.bias"] = [layer.bias[rows]]
    return layer  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True, eq=False)
class LoadedWeights:
    """places: where they are. room: the KV cache of what they computed. renamed: returns
    the model's name of a weight by that of its checkpoint.
    """

    places: WeightPlaces
    room: KVCache | None = None
    renamed: Callable[[str], str] = str

    @classmethod
    def of(cls, module: nn.Module, renamed: Callable[[str], str] = str) -> Self:
        """Return a module's weights, by its names."""
        places = {name: [weight] for name, weight in module.state_dict().items()}
        return cls(places, renamed=renamed)

    @torch.no_grad()
    def update(self, weights: Mapping[str, Any]) -> None:
        """Replace weights as MaskPredictor.update_weights says."""
        tensors = {name: torch.as_tensor(values) for name, values in weights.items()}
        targets = [self._places(name, values.shape) for name, values in tensors.items()]
        for places, values in zip(targets, tensors.values(), strict=True):
            for place in places:
                is_inference = isinstance(place, Tensor) and place.is_inference()
                with torch.inference_mode(is_inference):  # else it could not be changed
                    place.copy_(values)
        if self.room is not None:
            self.room.forget()

    def _places(self, name: str, shape: Size) -> list[Tensor | PackedRows]:
        """Return what holds a weight. Raises InputError for a wrong name or shape."""
        places = self.places.get(name) or self.places.get(self.renamed(name))
        if places is None:
            hint = did_you_mean(name, self.places)
            raise InputError(f"The model has no weight {name!r:.200}{hint}", "named")
        if shape != places[0].shape:
            raise InputError(
                f"The weight {name!r:.200} is of {list(places[0].shape)}, the new one "
                f"of {list(shape)}.",
                "named",
            )
        return places
