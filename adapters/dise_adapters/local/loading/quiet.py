"""Silences libraries that report on what they load, and reports how much is loaded."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from dise_core.models.predictor import ReportShare

if TYPE_CHECKING:
    from dise_adapters.checkpoint.weights import WeightSource
    from dise_adapters.families.family import Checkpoint

T = TypeVar("T")

NOISY = ("torchao", "torch.utils._pytree", "accelerate.big_modeling")
"""Loggers that warn of kernels for other devices, and of weights put on the disk."""


def counting(total: int, report: ReportShare) -> Callable[[int], None]:
    """Return a function that adds up numbers, and reports their share of the total."""
    num_read = 0

    def count(number: int) -> None:
        nonlocal num_read
        num_read += number
        report(num_read / total)

    return count


def _counted(items: Collection[T], count: Callable[[int], None]) -> Iterator[T]:
    for item in items:
        yield item
        count(1)


@contextmanager
def reporting(report: ReportShare) -> Iterator[None]:
    """Tell the share of the weights that transformers loads meanwhile, if it counts."""
    from transformers.utils import logging as transformers_logging

    log: Any = transformers_logging

    def hook(factory: Callable[..., Any], args: Any, options: Any) -> Any:
        if (
            options.get("desc") != "Loading weights"
            or not args
            or not isinstance(args[0], Collection)
        ):
            return factory(*args, **options)
        return _counted(args[0], counting(len(args[0]), report))

    before = log.set_tqdm_hook(hook)
    try:
        yield
    finally:
        log.set_tqdm_hook(before)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers' report on the weights, and warnings that help no user."""
    from transformers.utils import logging as transformers_logging

    log: Any = transformers_logging
    level = log.get_verbosity()
    log.set_verbosity(logging.CRITICAL)
    log.disable_progress_bar()
    loggers = [logging.getLogger(name) for name in NOISY]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, before in zip(loggers, levels, strict=True):
            logger.setLevel(before)
        log.set_verbosity(level)
        log.enable_progress_bar()


@contextmanager
def quiet_gguf() -> Iterator[None]:
    """Silence transformers' progress bar of a GGUF file, which its switch leaves on."""
    from tqdm.auto import tqdm
    from transformers import modeling_gguf_pytorch_utils

    reading: Any = modeling_gguf_pytorch_utils
    reading.tqdm = partial(tqdm, disable=True)
    try:
        yield
    finally:
        reading.tqdm = tqdm


def read_by_transformers(weights: WeightSource) -> Any:
    """Return transformers' configuration of a folder or of a GGUF file."""
    from transformers import AutoConfig

    file = weights.path.name if weights.path != weights.folder else None
    with quiet():
        return AutoConfig.from_pretrained(
            weights.folder, gguf_file=file, local_files_only=True, trust_remote_code=False
        )


def configured(checkpoint: Checkpoint) -> tuple[Any, Any]:
    """Return transformers' class of the checkpoint's model, and its configuration."""
    import transformers

    model_class: Any = getattr(transformers, checkpoint.family.model_class)
    if checkpoint.settings is not None:
        return model_class, model_class.config_class(**checkpoint.settings)
    config = checkpoint.config or read_by_transformers(checkpoint.weights)
    return model_class, config
