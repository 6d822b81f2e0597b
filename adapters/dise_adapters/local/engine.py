"""The engine `transformers`."""

from collections.abc import Sequence

from dise_adapters.families.family import Checkpoint
from dise_core import Backend, EngineConfig, MaskPredictor, Reader
from dise_core.models.backend import LoadedModule


class TransformersBackend(Backend[Checkpoint]):
    """Runs models in this process, on the weights that transformers loads."""

    @classmethod
    def fitted(cls, wanted: Sequence[tuple[Checkpoint, EngineConfig]]) -> Sequence[EngineConfig]:
        from dise_adapters.local.loading.fits import fitted

        return fitted(wanted)

    @classmethod
    def dtype_of(cls, config: EngineConfig) -> str:
        from dise_adapters.local.devices import choose_device, choose_dtype

        dtype = choose_dtype(config.dtype, choose_device(config.device))
        return str(dtype).removeprefix("torch.")

    @classmethod
    def hold(cls, loaded: LoadedModule) -> MaskPredictor:
        from dise_adapters.local.module import ModulePredictor

        return ModulePredictor(loaded)

    @classmethod
    def open(cls, checkpoint: Checkpoint, config: EngineConfig) -> Reader:
        """Return a reader of the checkpoint. Raises what `loader.load_reader` does."""
        from dise_adapters.local.loading.loader import load_reader

        return load_reader(checkpoint, config)
