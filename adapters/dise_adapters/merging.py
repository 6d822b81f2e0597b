"""A checkpoint's weights, with LoRA adapters merged into each as it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dise_adapters.checkpoint.files import one_line
from dise_adapters.checkpoint.lora import CONFIG, Change, Lora
from dise_adapters.checkpoint.weights import Stored, WeightSource
from dise_adapters.families.names import checkpoint_names
from dise_core import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor, device


@dataclass(frozen=True)
class Adapted(WeightSource):
    """The weights of another source, changed."""

    path: Path
    base: WeightSource
    changes: Mapping[str, Sequence[Change]]

    @property
    def folder(self) -> Path:
        return self.base.folder

    @property
    def stored(self) -> Mapping[str, Stored]:
        return self.base.stored

    @property
    def hub_id(self) -> str | None:
        return self.base.hub_id

    def fetched(self) -> Adapted:
        return replace(self, base=self.base.fetched())

    def slices(self) -> dict[str, Any]:
        slices = self.base.slices()
        for name, changes in self.changes.items():
            slices[name] = Merged(slices[name], changes)
        return slices

    def read(self, names: Iterable[str], place: device) -> Iterator[tuple[str, Tensor]]:
        for name, weight in self.base.read(names, place):
            yield name, _changed(weight, self.changes.get(name, ()))


@dataclass(frozen=True, slots=True)
class Merged:
    """What reads a weight when it is indexed, changed. base: the same, unchanged."""

    base: Any
    changes: Sequence[Change]

    def __getitem__(self, index: Any) -> Tensor:
        return _changed(self.base[...], self.changes)[index]


def _changed(weight: Tensor, changes: Sequence[Change]) -> Tensor:
    for change in changes:
        weight = change.apply(weight)
    return weight


def adapted(
    base: WeightSource,
    adapters: Iterable[Lora],
    renamed: Callable[[str], str],
    tied_rows: int | None,
) -> Adapted:
    """Return a model's weights with all adapters merged. renamed: returns what
    transformers calls a weight. tied_rows: of the embedding, where that is the head, too.

    Raises InputError where there is no such folder, CheckpointError for an adapter that
    is no plain LoRA, and for one that does not fit.
    """
    stored, changes = base.stored, dict[str, list[Change]]()
    names = {renamed(name): name for name in stored} | {name: name for name in stored}
    for adapter in adapters:
        for target, change in adapter.changes():
            name = names.get(target) or names.get(renamed(target))
            if name is None:
                raise CheckpointError(
                    f"The adapter in {adapter.path} changes {one_line(target)}, and "
                    f"{base.path} has no such weight."
                )
            if change.shape != (shape := stored[name].shape):
                raise CheckpointError(
                    f"The adapter in {adapter.path} changes {name} as a weight of "
                    f"{list(change.shape)}, and in {base.path} it has {list(shape)}."
                )
            if shape[:1] == (tied_rows,):
                raise CheckpointError(
                    f"The adapter in {adapter.path} changes {name}, which in this model "
                    "is embedding and head at once, of which the adapter changed one."
                )
            _add(changes.setdefault(name, []), change, name)
    return Adapted(base.path, base, changes)


def _add(changes: list[Change], change: Change, name: str) -> None:
    """Add a change of the weight `name`, before products the replacements."""
    for other in changes:
        if other.adapter != change.adapter and None in (other.down, change.down):
            raise CheckpointError(
                f"The adapters in {other.adapter.path} and {change.adapter.path} both "
                f"change {name}, which one of them replaces: give one of them."
            )
    changes.insert(0 if change.down is None else len(changes), change)


def refuse_foreign(adapter: Lora, names: Sequence[str], is_file: bool) -> None:
    """Raise CheckpointError for an adapter of another model than that of these names. The
    name of a file only begins with its model's.
    """
    base, name = adapter.config.base_model_name_or_path, names[0]
    origin = checkpoint_names({"_name_or_path": base})[0].casefold()
    is_named = origin in map(str.casefold, names)
    if base and not is_named and not (is_file and name.casefold().startswith(origin)):
        raise CheckpointError(
            f"The adapter in {adapter.path} was trained on {one_line(base)!r}, and the "
            f"model is {name!r}. Load that model; or, where both are the same, write "
            f"{name!r} as base_model_name_or_path into its {CONFIG}."
        )
