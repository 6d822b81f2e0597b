"""Libraries that report on what they load, silenced: our errors say it in one line."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

NOISY = ("torchao", "torch.utils._pytree", "accelerate.big_modeling")
"""Loggers that warn of kernels for other devices, and of weights that are on the disk as asked."""


@contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers' report on the weights, and warnings that say nothing to a user."""
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
    """Silence transformers' progress bar of a GGUF file's tensors, which its switch leaves on."""
    from tqdm.auto import tqdm
    from transformers import modeling_gguf_pytorch_utils

    reading: Any = modeling_gguf_pytorch_utils
    reading.tqdm = partial(tqdm, disable=True)
    try:
        yield
    finally:
        reading.tqdm = tqdm
