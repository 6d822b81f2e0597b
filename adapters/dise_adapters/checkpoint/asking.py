"""Questions to the hub, which are asked again where it is busy."""

from collections.abc import Callable
from typing import TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from dise_adapters.checkpoint.files import one_line
from dise_core import ModelError

T = TypeVar("T")

_ATTEMPTS = 4
_TRANSIENT_STATUS = {408, 425, 429, 500, 502, 503, 504}


def asked(model: str, question: Callable[[], T]) -> T:
    """Return what the hub answers about a model; transient errors are retried. Raises
    ModelError where it does not answer, or refuses.
    """
    from huggingface_hub import constants

    retrying = Retrying(
        retry=retry_if_exception(_is_transient),
        stop=stop_after_attempt(1 if constants.HF_HUB_OFFLINE else _ATTEMPTS),
        wait=wait_exponential(multiplier=0.5, max=20),
        reraise=True,
    )
    try:
        return retrying(question)
    except Exception as error:
        raise _unavailable(model, error) from None


def _is_transient(error: BaseException) -> bool:
    """Return whether a retry may help, as after a timeout or from a busy server."""
    from huggingface_hub import errors

    cause = _cause(error)
    if isinstance(cause, errors.HfHubHTTPError):
        return getattr(cause.response, "status_code", None) in _TRANSIENT_STATUS
    client_error = errors.HfHubHTTPError.__bases__[0]  # of whichever client the library uses
    return isinstance(cause, (client_error, ConnectionError, TimeoutError))


def _cause(error: BaseException) -> BaseException:
    """Return why the hub did not answer, if the error only says that nothing is here."""
    from huggingface_hub.errors import LocalEntryNotFoundError

    return (isinstance(error, LocalEntryNotFoundError) and error.__cause__) or error


def _unavailable(model: str, error: Exception) -> ModelError:
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return ModelError(
            f"model {model!r} is gated: accept its terms on its page, then log in with "
            "`hf auth login`"
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return ModelError(
            f"the hub has no model {model!r} that you may read; check the name, or log in with "
            "`hf auth login`"
        )
    if _is_transient(error):
        return ModelError(
            f"model {model!r} is not on this machine and the hub cannot be reached; connect, or "
            "give the folder of a checkpoint that you have"
        )
    return ModelError(f"model {model!r} cannot be downloaded: {one_line(_cause(error))}")
