"""dise-lm-eval: lm-evaluation-harness's own command, with "dise" registered as a model.

Its releases up to 0.4.13 do not look for plugins; later ones find our entry point in the
group lm_eval.models without this command.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from dise_app.extras import missing
from dise_core.models.named import refuse_server
from dise_core.records import Fields
from dise_core.threads import choose_threads


def main() -> None:
    """Register the model, then run lm_eval with this command's arguments. Errors are a
    line, and with --debug a traceback. Exit code 2: bad usage or input; 1: failure.
    """
    choose_threads()
    is_debugged = "--debug" in sys.argv
    sys.argv[1:] = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        _run()
    except Exception as error:
        if is_debugged:
            raise
        _fail(error)


def _run() -> None:
    try:
        # Fills the registry, which must not be empty when ours joins.
        import lm_eval.models  # noqa: F401
        from lm_eval.__main__ import cli_evaluate
        from lm_eval.api.registry import MODEL_REGISTRY, register_model
    except ImportError as error:
        print(f"dise-lm-eval: {missing(error, 'dise-lm-eval') or error}", file=sys.stderr)
        sys.exit(2)
    from dise_eval.harness.model import DiseLM

    if "dise" not in MODEL_REGISTRY:
        register_model("dise")(DiseLM)
    sys.argv[1:] = with_batch_size(sys.argv[1:])
    cli_evaluate()


def _fail(error: Exception) -> NoReturn:
    """Print what went wrong, and exit."""
    from pydantic import ValidationError

    from dise_core import DiseError, InputError
    from dise_core.errors import error_line
    from dise_core.params.base import input_error

    problem = input_error(error) if isinstance(error, ValidationError) else error
    # lm_eval raises these for a model, a task or an argument that it does not know.
    is_usage = isinstance(problem, (InputError, ValueError, KeyError))
    is_ours = isinstance(problem, DiseError)
    message = str(problem) if is_ours else f"{error_line(problem)} (--debug shows where)"
    print(f"dise-lm-eval: {message}", file=sys.stderr)
    sys.exit(2 if is_usage else 1)


def with_batch_size(arguments: Sequence[str]) -> list[str]:
    """Return lm_eval's arguments, with `--batch_size auto` added if model "dise" is to
    run and no batch size is named. Raises InputError where a YAML file names a server.

    lm_eval's own default is 1, which would mean one sequence per forward pass. A batch
    size in the arguments, or in the YAML file that they name with --config, is left as it
    is.
    """
    parser = argparse.ArgumentParser(
        add_help=False, exit_on_error=False, argument_default=argparse.SUPPRESS
    )
    parser.add_argument("--model", "-m", "-M")
    parser.add_argument("--batch_size", "-b")
    parser.add_argument("--config", "-C")
    parser.add_argument("--model_args", "-a", nargs="+")
    try:
        options = vars(parser.parse_known_args(arguments)[0])
    except argparse.ArgumentError:
        return list(arguments)
    written = _yaml(options.get("config"))
    settings = {**written, **options}
    if settings.get("model") == "dise" and "model_args" not in options:
        _refuse_servers(written.get("model_args"), str(options.get("config")))
    if settings.get("model") == "dise" and "batch_size" not in settings:
        return [*arguments, "--batch_size", "auto"]
    return list(arguments)


def _refuse_servers(model_args: object, file: str) -> None:
    pairs = model_args.split(",") if isinstance(model_args, str) else ()
    arguments: Fields = dict(pair.strip().partition("=")[::2] for pair in pairs)
    arguments = model_args if isinstance(model_args, dict) else arguments
    for role in ("model", "judge"):
        refuse_server(arguments.get(role), file, role, f"--model_args {role}=URL")


def _yaml(path: str | None) -> Fields:
    import yaml

    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8")) if path is not None else {}
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return content if isinstance(content, dict) else {}


if __name__ == "__main__":
    main()
