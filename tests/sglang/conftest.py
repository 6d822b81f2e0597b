"""The versions of SGLang that are here, for every module."""

from tests.sglang.wheel import version

__all__ = ["version"]
