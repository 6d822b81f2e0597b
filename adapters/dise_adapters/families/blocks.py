"""The attention of a family, and where a checkpoint states its own if they differ."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dise_adapters.checkpoint.config import ConfigJson
from dise_core import Attention, Bidirectional, BlockCausal, Canvases, Causal, InputError
from dise_core.models.attention import BIDIRECTIONAL

WORDS: dict[type[Attention], str] = {Bidirectional: "full", Causal: "causal"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Varying:
    """Attention that differs between the checkpoints of a family.

    length_field: of config.json, which gives the length of a block, or of a canvas where
    `otherwise` is one. names: regular
    expressions for what a checkpoint is called, each with its attention; the first that
    matches a name counts.
    otherwise: the attention where neither tells; None if the user must give block_size.
    """

    length_field: str | None = None
    names: Mapping[str, Attention] = field(default_factory=dict)
    otherwise: Attention | None = None

    def sources(self, config: ConfigJson, names: Sequence[str]) -> Iterator[tuple[str, Attention]]:
        """Yield each source of the checkpoint's attention, with what it states."""
        if self.length_field is not None and config.fields.get(self.length_field) is not None:
            kind = Canvases if isinstance(self.otherwise, Canvases) else BlockCausal
            yield f"config.json's {self.length_field}", kind(config.whole(self.length_field))
        for name in names:
            for pattern, attention in self.names.items():
                if re.search(pattern, name, re.IGNORECASE):
                    yield f"its name ({name})", attention
                    break


def attention_of(
    family: Attention | Varying,
    config: ConfigJson,
    names: Sequence[str],
    block_size: int | None,
    otherwise: Attention | None = None,
) -> Attention:
    """Return a checkpoint's attention.

    family: that of its family. names: what the checkpoint is called. block_size: the
    user's option, 0 for full attention. otherwise: the attention where nothing tells.
    Raises CheckpointError if two sources disagree, InputError if block_size contradicts
    them or what the family has, and if nothing tells.
    """
    sources = dict(family.sources(config, names)) if isinstance(family, Varying) else {}
    stated = next(iter(sources.values()), None) if isinstance(family, Varying) else family
    listed = ", ".join(f"{shown(attention)} by {source}" for source, attention in sources.items())
    if len(set(sources.values())) > 1:
        raise config.error(f"the model's attention is told differently: {listed}")
    if block_size is not None:
        requested = BlockCausal(block_size) if block_size else BIDIRECTIONAL
        if stated not in (None, requested) or not (block_size or requested in variants(family)):
            problem = _contradiction(config.where, stated, listed, block_size)
            raise InputError(problem, "block_size")
        return requested
    if stated is None and isinstance(family, Varying):
        stated = family.otherwise or otherwise
    if stated is None:
        raise InputError(_unstated(family, config.where), "block_size")
    return stated


def variants(family: Attention | Varying) -> list[Attention]:
    """Return the attentions that checkpoints of a family are known to have."""
    if not isinstance(family, Varying):
        return [family]
    return [*family.names.values(), *filter(None, [family.otherwise])]


def in_words(family: Attention | Varying) -> str:
    """Return a family's attention as listings name it, as "block-causal of 4 or 8"."""
    kinds = variants(family)
    if isinstance(kinds[0], Canvases):
        return shown(kinds[0])
    words = [WORDS[type(attention)] for attention in kinds if type(attention) in WORDS]
    lengths = {attention.length for attention in kinds if isinstance(attention, BlockCausal)}
    if not lengths:
        return f"{' or '.join(words)} attention"
    return " or ".join([*words, f"block-causal of {' or '.join(map(str, sorted(lengths)))}"])


def shown(attention: Attention) -> str:
    """Return an attention as errors and listings name it."""
    if isinstance(attention, BlockCausal):
        return f"blocks of {attention.length}"
    if isinstance(attention, Canvases):
        return f"canvases of {attention.length}"
    return f"{type(attention).__name__.casefold()} attention"


def _unstated(family: Attention | Varying, where: str) -> str:
    if isinstance(family, Varying) and BIDIRECTIONAL in variants(family):
        return (
            f"{where} does not say whether it attends in blocks, and its name has neither "
            f"{' nor '.join(family.names)}: give block_size "
            "(--model-args block_size=32), the tokens in a block, or 0 for full attention"
        )
    return (
        f"{where} does not say how long its blocks are, and its format has several lengths: give "
        "block_size (--model-args block_size=32)"
    )


def _contradiction(where: str, stated: Attention | None, listed: str, block_size: int) -> str:
    if stated is None:
        return f"block_size=0: {where} is of a format that attends in blocks, of whatever length"
    if isinstance(stated, BlockCausal | Canvases):
        return f"block_size={block_size} is not that of {where}: {listed or shown(stated)}"
    by = f" ({listed})" if listed else ""
    return f"{where} attends to the whole text{by}, so it has no blocks: leave out block_size"
