"""How much memory a checkpoint will take, from its configuration alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from dise_adapters.local.body import OwnBody
from dise_adapters.local.dense import DenseModel, Shape
from dise_adapters.local.planning import states_per_token
from dise_adapters.local.quantization import LEAST_SHARE, linear_share, linear_weights
from dise_adapters.local.quiet import quiet
from dise_adapters.local.weighing import without_memory
from dise_core.model import Causal
from dise_core.needs import Needs

if TYPE_CHECKING:
    from dise_adapters.families.family import Checkpoint


def needs_of(checkpoint: Checkpoint) -> Needs:
    """Return what the checkpoint's model takes; no weights are read."""
    shape = Shape.of(checkpoint)
    with quiet():
        model: Any = DenseModel(shape) if shape else without_memory(checkpoint)
    body = model.model if shape else model.base_model
    weights = sum(weight.numel() for weight in model.parameters())
    if shape and shape.is_tied:
        weights -= model.lm_head.weight.numel()
    is_own = shape is not None or OwnBody.covers(body)
    can_shrink = linear_share(body, is_own) >= LEAST_SHARE
    quantizable = linear_weights(body, is_own) if can_shrink else 0
    lists = [list(each) for each in body.modules() if isinstance(each, nn.ModuleList)]
    layers = lists[0] if lists else []
    hidden = body.embed_tokens.embedding_dim if shape else model.config.hidden_size
    has_cache = is_own and not isinstance(checkpoint.attention, Causal)
    keys = [layer.get_submodule("self_attn.k_proj") for layer in layers if has_cache]
    cached = 2 * sum(each.out_features for each in keys if isinstance(each, nn.Linear))
    return Needs(quantizable, weights - quantizable, cached, states_per_token(layers, hidden))
