"""Finds a model's files: in a local folder, or in a snapshot from the hub, without any code."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from time import monotonic

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from dise_adapters.checkpoint.files import read_object
from dise_core.errors import DiseError, InputError, ModelError
from dise_core.records import Record

__all__ = ["config_if_any", "is_gguf", "is_transient", "model_folder", "read_config"]

CONFIG = ["config.json"]
_EVERYTHING = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
_ATTEMPTS = 4
_TRANSIENT_STATUS = {408, 425, 429, 500, 502, 503, 504}
_REMEMBERED_SECONDS = 10.0
_last_failure: dict[tuple[str, str | None], tuple[float, str]] = {}


@lru_cache(maxsize=32)
def read_config(model: str, revision: str | None = None) -> Record | None:
    """Return the config.json of a folder or hub id; None if `model` can be neither.

    Raises InputError for a path that does not exist, CheckpointError for a folder without a
    readable config.json, ModelError if the hub has no such model or cannot be reached.
    """
    if is_gguf(model) or (not _is_folder(model) and not _is_hub_id(model)):
        return None
    return read_object(_config_folder(model, revision) / "config.json")


def config_if_any(model: str, revision: str | None = None) -> Record | None:
    """Return read_config's answer, or None if it raises: nobody can claim an unreadable model."""
    try:
        return read_config(model, revision)
    except DiseError:
        return None


def _config_folder(model: str, revision: str | None) -> Path:
    when, failure = _last_failure.get((model, revision), (0.0, None))
    if failure is not None and monotonic() - when < _REMEMBERED_SECONDS:
        raise ModelError(failure)
    try:
        return model_folder(model, revision, CONFIG)
    except ModelError as error:
        _last_failure.clear()
        _last_failure[model, revision] = (monotonic(), str(error))
        raise


def model_folder(
    model: str, revision: str | None = None, patterns: list[str] | None = None
) -> Path:
    """Return a folder with the model's files, downloaded first if `model` is a hub id.

    Downloads only safetensors, configuration and tokenizer files, and retries transient errors.
    Raises InputError for a path that does not exist, ModelError if the download fails.
    """
    if _is_folder(model):
        return Path(model).expanduser()
    retrying = Retrying(
        retry=retry_if_exception(is_transient),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_exponential(multiplier=0.5, max=20),
        reraise=True,
    )
    from huggingface_hub import snapshot_download

    try:
        return Path(
            retrying(
                snapshot_download, model, revision=revision, allow_patterns=patterns or _EVERYTHING
            )
        )
    except Exception as error:
        raise ModelError(_download_problem(model, error)) from error


def is_gguf(model: str) -> bool:
    """Return whether `model` is the path of a GGUF file."""
    return model.endswith(".gguf")


def is_transient(error: BaseException) -> bool:
    """Return whether a retry may help: a lost connection, a timeout, a busy or failing server."""
    from huggingface_hub import errors

    if isinstance(error, errors.LocalEntryNotFoundError) and error.__cause__ is not None:
        return is_transient(error.__cause__)
    if isinstance(error, errors.HfHubHTTPError):
        return error.response is not None and error.response.status_code in _TRANSIENT_STATUS
    return isinstance(error, _connection_errors())


def _connection_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of a lost connection, whichever HTTP client the hub library uses."""
    from huggingface_hub.errors import HfHubHTTPError

    client_error = HfHubHTTPError.__mro__[1]
    assert issubclass(client_error, Exception)
    return client_error, ConnectionError, TimeoutError


def _is_folder(model: str) -> bool:
    try:
        if Path(model).expanduser().is_dir():
            return True
    except (
        OSError,
        RuntimeError,
        ValueError,
    ) as error:  # too long for a path, no such user, a null character
        problem = error.strerror if isinstance(error, OSError) else error
        raise InputError(
            f"{model!r:.80} cannot be the name of a folder: {problem}", "model"
        ) from error
    if model.startswith((".", "/", "~")):
        raise InputError(f"there is no folder {model!r}", "model")
    return False


def _is_hub_id(model: str) -> bool:
    return model.count("/") == 1 and all(
        part and not part.startswith(".") for part in model.split("/")
    )


def _download_problem(model: str, error: Exception) -> str:
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return (
            f"model {model!r} is gated: accept its terms on its page, then log in with `hf auth "
            "login`"
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return (
            f"the hub has no model {model!r} that you may read; check the name, or log in with "
            "`hf auth login`"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return f"model {model!r} has no such revision: {error}".splitlines()[0]
    refused = isinstance(error.__cause__, errors.HfHubHTTPError) and not is_transient(error)
    if not refused and isinstance(
        error, errors.LocalEntryNotFoundError | errors.OfflineModeIsEnabled
    ):
        return (
            f"model {model!r} is not on this machine and the hub cannot be reached; connect, or "
            "give the folder of a "
            "checkpoint that you have"
        )
    return f"model {model!r} cannot be downloaded: {error.__cause__ or error}".splitlines()[0]
