"""How a model is loaded and run: EngineConfig, and which of its options fit together."""

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, PrivateAttr, model_validator

from dise_core.params.base import MAX_LENGTH, Name, Params, Settings, TokenId
from dise_core.params.marks import Mark, marked
from dise_core.records import Record

Dtype = Literal["auto", "float32", "bfloat16", "float16"]

Quantization = Literal["int8", "int4"]

DeviceMap = Literal["auto", "balanced", "balanced_low_0", "sequential"]

NOT_THE_JUDGES, CHANGES_ANSWERS = Mark.NOT_THE_JUDGES, Mark.CHANGES_ANSWERS
NOT_OF_LOADING, MODEL_ARG, RARE = Mark.NOT_OF_LOADING, Mark.MODEL_ARG, Mark.RARE


class EngineConfig(Params):
    """How a model is loaded and run. Other options are the engine's own."""

    model_config = ConfigDict(extra="allow")

    max_num_seqs: Annotated[int, NOT_OF_LOADING, RARE] = Field(default=64, ge=1, le=2**16)
    """The most sequences in one forward pass."""
    max_batch_tokens: Annotated[int, NOT_OF_LOADING, MODEL_ARG] = Field(
        default=16384, ge=1, le=2**24
    )
    """The most tokens in one forward pass."""
    device: str = "auto"
    """A torch device; "auto" takes a GPU if there is one."""
    dtype: Annotated[Dtype, CHANGES_ANSWERS] = "auto"
    """Type of the weights; "auto" is bfloat16 on a GPU, and on a CPU float32, or the
    file's own 16 bits where the processor multiplies these (AMX, AVX512-BF16, AVX512-FP16)
    and the weights take 512 MiB in float32, or more than the memory that is free."""
    device_map: Annotated[DeviceMap | None, NOT_THE_JUDGES, MODEL_ARG] = None
    """Spread the model's layers over all GPUs, then main memory, then the disk, in
    accelerate's way of that name. Without it the model is on `device` alone, which is
    faster where it fits."""
    max_memory: Annotated[Settings, NOT_THE_JUDGES, MODEL_ARG] = Field(default_factory=dict)
    """The most memory of a device that device_map may use, for example 0=20GiB or cpu=30GiB."""
    quantization: Annotated[Quantization | None, NOT_THE_JUDGES, RARE] = None
    """Keep the decoder's linear layers as integers of 8 or 4 bits; embeddings and head
    are int8 in both, where the forward pass is DiSE's own. Saves memory, and time on a
    CPU that multiplies integers, at a loss of precision."""
    judge_device: Annotated[str | None, NOT_OF_LOADING, MODEL_ARG] = None
    """The judge's device, where it is not the model's."""
    judge_dtype: Annotated[Dtype | None, NOT_OF_LOADING, MODEL_ARG] = None
    """The type of the judge's weights, where it is not the model's."""
    attn_implementation: Annotated[str, MODEL_ARG] = "sdpa"
    """Attention of transformers: "sdpa" ("eager" for a class that lacks it), "eager",
    "flash_attention_2", ...
    """
    revision: Annotated[str | None, NOT_THE_JUDGES, CHANGES_ANSWERS, MODEL_ARG] = None
    """Branch, tag or commit of a model on the hub."""
    adapter: Annotated[str | None, NOT_THE_JUDGES, CHANGES_ANSWERS, NOT_OF_LOADING, MODEL_ARG] = (
        None
    )
    """Name of the adapter that loads the model, whichever claim it; None asks them. A
    judge finds its own.
    """
    lora: Annotated[Path | dict[Name, Path] | None, NOT_THE_JUDGES, RARE] = None
    """The folder of a LoRA adapter in peft's format, which is merged as weights are read;
    or several folders by names of yours, all merged. The model's name then tells it."""
    mask_token_id: Annotated[TokenId | None, NOT_THE_JUDGES, CHANGES_ANSWERS, MODEL_ARG] = None
    """The id of the mask token, for a checkpoint that does not name it."""
    block_size: Annotated[
        Annotated[int, Field(ge=0, le=MAX_LENGTH)] | None,
        NOT_THE_JUDGES,
        CHANGES_ANSWERS,
        MODEL_ARG,
    ] = None
    """Tokens in a block of a block-diffusion model, for a checkpoint that does not say; 0
    for full attention."""
    engine: str = "transformers"
    """What runs the model's forward passes; see `dise plugins`."""
    max_cache_tokens: Annotated[int | None, MODEL_ARG] = Field(default=None, ge=1, le=2**24)
    """Tokens whose keys and values are kept for requests with a cache, all together;
    texts beyond wait for room. More than the device has memory for are refused. Without
    it 16384, on CUDA more if half of the free memory holds more, or as many as fit.
    """
    prefix_cache_tokens: Annotated[int | None, MODEL_ARG] = Field(default=None, ge=0, le=2**24)
    """Tokens of finished text whose keys and values are kept, beside those, for later
    texts that begin alike: exact under causal and block-causal attention, and unused
    under any other. Those used least recently make room. Without it 8192, or as many as
    fit; 0 keeps none."""
    calibration: Annotated[str | None, NOT_OF_LOADING] = None
    """A file that `dise calibrate` wrote: every answer then tells its probability of
    being right, and scores are computed as the file says where a request does not say
    otherwise.
    """

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.device_map is None and self.max_memory:
            raise ValueError("max_memory needs a device_map")
        if self.device_map is not None and self.device != "auto":
            raise ValueError("device_map chooses the devices; leave out device")
        if self.device_map is not None and self.quantization is not None:
            raise ValueError("quantization is for a model on one device; leave out device_map")
        for name, size in self.max_memory.items():
            if not re.fullmatch(r"cpu|[0-9]{1,4}", name):
                raise ValueError(f"max_memory of {name!r:.80}: a device is cpu or a GPU's number")
            if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?[KMGT]i?B", str(size)):
                raise ValueError(
                    f"max_memory of {name}: {size!r:.80} is no size; write it as in {name}=20GiB"
                )
        return self

    @property
    def loras(self) -> dict[str, Path]:
        """The folders of LoRA adapters, by what a model's name says of each."""
        if isinstance(self.lora, Path):
            return {str(self.lora): self.lora}
        return self.lora or {}

    _catalog: object | None = PrivateAttr(None)
    _shared: frozenset[str] = PrivateAttr(frozenset())

    @property
    def shared(self) -> frozenset[str]:
        """The options of a judge that were given for the model, which heeds them."""
        return self._shared

    @property
    def catalog(self) -> object | None:
        """The Catalog that loads a model with these options, if any."""
        return self._catalog

    def by(self, catalog: object) -> Self:
        """Return the options, with which that Catalog loads a model."""
        config = self.model_copy()
        config._catalog = catalog
        return config

    @property
    def own(self) -> Record:
        """The options that are not declared here, by name."""
        return self.model_extra or {}

    def for_judge(self) -> Self:
        """Return the judge's options: these, on its device, without the model's own."""
        model_only = marked(type(self), NOT_THE_JUDGES) | {"judge_device", "judge_dtype"}
        judge_only = {"device": self.judge_device, "dtype": self.judge_dtype}
        fields = self.model_dump(exclude=model_only)
        values = {name: value for name, value in judge_only.items() if value}
        config = type(self)(**fields | values)
        config._shared = frozenset(fields.keys() - values.keys())
        return config
