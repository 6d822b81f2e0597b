"""Ctrl-C, distinguished from what the code of a plugin raises like it."""

from dis import opname
from threading import current_thread, main_thread


def interrupt_in(error: BaseException) -> KeyboardInterrupt | None:
    """Return Ctrl-C's KeyboardInterrupt, which Python raises in the main thread alone, if
    the error is it or was made of it: model_dump wraps whatever a serializer raises.
    """
    if current_thread() is not main_thread():
        return None
    causes = (error, error.__cause__)
    return next((cause for cause in causes if isinstance(cause, KeyboardInterrupt)), None)


def is_leaving(error: BaseException, module: str) -> bool:
    """Return whether an error that comes out of a module's package is to end more than
    that code: Ctrl-C, or the closing of a generator. All else is the code's failure, a
    BaseException of its own too, such as a panic of a module in Rust, and a SystemExit,
    which would end the command for one broken plugin.

    Ctrl-C may come anywhere in that code; a KeyboardInterrupt that a `raise` of the
    package's own raised is a failure.
    """
    if isinstance(error, GeneratorExit):
        return True
    interrupt = interrupt_in(error)
    return interrupt is not None and not _is_raised_in(interrupt, module.partition(".")[0])


def _is_raised_in(error: BaseException, package: str) -> bool:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return False
    frame = trace.tb_frame
    home = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return home == package and opname[frame.f_code.co_code[trace.tb_lasti]] == "RAISE_VARARGS"
