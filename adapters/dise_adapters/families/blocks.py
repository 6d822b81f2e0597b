"""The attention of a family whose checkpoints differ in it, and where each tells its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dise_adapters.checkpoint.config import ConfigJson
from dise_core.errors import InputError
from dise_core.model import BIDIRECTIONAL, Attention, Bidirectional, BlockCausal, Causal


@dataclass(frozen=True, slots=True, kw_only=True)
class Varying:
    """Attention that differs between the checkpoints of a family.

    field: of config.json, which gives the length of a block. names: regular expressions for what a
    checkpoint is called, each with the attention that it tells; the first that matches a name
    counts. otherwise: the attention where neither tells; None if the user must give block_size.
    """

    length_field: str | None = None
    names: Mapping[str, Attention] = field(default_factory=dict)
    otherwise: Attention | None = None

    def told(self, config: ConfigJson, names: Sequence[str]) -> Iterator[tuple[str, Attention]]:
        """Yield each source that tells the checkpoint's attention, with what it tells."""
        if self.length_field is not None and config.fields.get(self.length_field) is not None:
            yield f"config.json's {self.length_field}", BlockCausal(config.whole(self.length_field))
        for name in dict.fromkeys(names):
            matching = [each for each in self.names if re.search(each, name, re.IGNORECASE)]
            if matching:
                yield f"its name ({name})", self.names[matching[0]]


def attention_of(
    kind: Attention | Varying,
    config: ConfigJson,
    names: Sequence[str],
    block_size: int | None,
    otherwise: Attention | None = None,
) -> Attention:
    """Return a checkpoint's attention.

    kind: its family's. names: what the checkpoint is called. block_size: the user's option, 0 for
    full attention. otherwise: the attention where nothing tells. Raises CheckpointError if two
    sources disagree, InputError if block_size contradicts what is told or what the family has, and
    if nothing tells.
    """
    fixed = None if isinstance(kind, Varying) else kind
    told = dict(kind.told(config, names)) if isinstance(kind, Varying) else {}
    said = ", ".join(f"{shown(each)} by {source}" for source, each in told.items())
    if len(set(told.values())) > 1:
        raise config.error(f"the model's attention is told differently: {said}")
    found = fixed or next(iter(told.values()), None)
    if block_size is not None:
        asked = BlockCausal(block_size) if block_size else BIDIRECTIONAL
        if found not in (None, asked) or not (block_size or asked in kinds_of(kind)):
            raise InputError(_contradiction(config.where, found, said, block_size), "block_size")
        return asked
    if found is None and isinstance(kind, Varying):
        found = kind.otherwise or otherwise
    if found is None:
        raise InputError(_untold(kind, config.where), "block_size")
    return found


def kinds_of(kind: Attention | Varying) -> list[Attention]:
    """Return the attentions that checkpoints of a family are known to have."""
    if not isinstance(kind, Varying):
        return [kind]
    return [*kind.names.values(), *filter(None, [kind.otherwise])]


def in_words(kind: Attention | Varying) -> str:
    """Return the attention of a family as listings name it, such as "block-causal of 4 or 8"."""
    kinds = kinds_of(kind)
    if isinstance(kind, Varying):
        names = [] if all(isinstance(each, BlockCausal) for each in kinds) else ["full"]
    else:
        full = {Bidirectional: "full", Causal: "causal"}.get(type(kind))
        names = [] if full is None else [full]
    lengths = sorted({each.length for each in kinds if isinstance(each, BlockCausal)})
    if lengths:
        names.append("block-causal of " + " or ".join(map(str, lengths)))
    return f"{' or '.join(names)} attention" if not lengths else " or ".join(names)


def shown(attention: Attention) -> str:
    """Return an attention as errors and listings name it."""
    if isinstance(attention, BlockCausal):
        return f"blocks of {attention.length}"
    return f"{type(attention).__name__.casefold()} attention"


def _untold(kind: Attention | Varying, where: str) -> str:
    if isinstance(kind, Varying) and BIDIRECTIONAL in kinds_of(kind):
        names = " nor ".join(kind.names)
        return (
            f"{where} does not say whether it attends in blocks, and its name has neither {names}: "
            "give block_size (--block-size), the tokens in a block, or 0 for full attention"
        )
    return (
        f"{where} does not say how long its blocks are, and its format has several lengths: give "
        "block_size (--block-size)"
    )


def _contradiction(where: str, found: Attention | None, said: str, block_size: int) -> str:
    if block_size == 0 and found is None:
        return f"block_size=0: {where} is of a format that attends in blocks, of whatever length"
    if not isinstance(found, BlockCausal):
        by = f" ({said})" if said else ""
        return f"{where} attends to the whole text{by}, so it has no blocks: leave out block_size"
    return f"block_size={block_size} is not that of {where}: {said or shown(found)}"
