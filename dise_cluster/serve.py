"""`dise serve` on replicas: `serve run dise_cluster.serve:build model=MODEL num_replicas=2`."""

from __future__ import annotations

import re

from fastapi import FastAPI, Response
from ray import serve

from dise_app.files.texts import json_or_text
from dise_app.server.app import create_app
from dise_app.server.guards.hosts import Hosts
from dise_app.server.limits import Limits, api_keys
from dise_app.server.run import MARGIN
from dise_app.server.service import Service
from dise_core import AsyncLLM, EngineConfig
from dise_core.params.base import Params
from dise_core.plugins.discovery import installed_catalog, installed_plugins
from dise_core.records import Fields, Record


def build(arguments: Fields) -> serve.Application:
    """Return the application. arguments, as JSON or text: num_replicas and max_replicas;
    num_cpus and num_gpus of each; the options of `dise serve`, with underscores.
    """
    options: Record = {}
    for name, value in arguments.items():
        options[name] = json_or_text(value) if isinstance(value, str) else value
    min_replicas = options.pop("num_replicas", 1)
    max_replicas = options.pop("max_replicas", min_replicas)
    resources = {name: options.pop(name) for name in ("num_cpus", "num_gpus") if name in options}
    limits = Limits(**_take(options, Limits))
    routes = _take(options, *(entry.load() for entry in installed_plugins().route_options.values()))
    config = EngineConfig(**{n: options[n] for n in options.keys() - {"model", "judge"}})
    installed_catalog().check_engine(config)
    replicas = serve.deployment(
        serve.ingress()(Replica),
        name="DiSE",
        autoscaling_config={
            "min_replicas": min_replicas,
            "max_replicas": max_replicas,
            "target_ongoing_requests": config.max_num_seqs,
        },
        max_ongoing_requests=config.max_num_seqs + limits.max_waiting,
        max_queued_requests=limits.max_waiting,
        backpressure_config={"status_code": 429, "retry_after_s": 1},
        graceful_shutdown_timeout_s=limits.grace + MARGIN,
        ray_actor_options=resources,
    )
    return replicas.bind(options, limits, routes, api_keys(limits.api_key_file))


def _take(options: Record, *classes: type[Params]) -> Record:
    return {n: options.pop(n) for cls in classes for n in options.keys() & cls.model_fields}


class Replica:
    """A model behind the routes of `dise serve`."""

    def __init__(
        self, options: Record, limits: Limits, routes: Fields, keys: tuple[str, ...]
    ) -> None:
        llm = AsyncLLM(**options, max_waiting=limits.max_waiting, budget=limits.budget)
        self._service, self._keys = Service(limits, llm, routes), keys

    def __serve_build_asgi_app__(self) -> FastAPI:
        hosts = Hosts("localhost", self._service.limits.allowed_host)
        app = create_app(self._service, api_key=self._keys, hosts=hosts)
        [single] = [route for route in app.routes if getattr(route, "path", None) == "/metrics"]
        app.router.routes.remove(single)
        app.add_api_route("/metrics", _all_metrics, include_in_schema=False)
        return app

    def check_health(self) -> None:
        """Raise RuntimeError if the model is dead, so that Ray starts another replica."""
        if (death := self._service.llm.engine.death) is not None:
            raise RuntimeError(death)

    def metrics(self) -> str:
        """Return the replica's metrics, with its name in each sample."""
        text, name = self._service.metrics.text().decode(), serve.get_replica_context().replica_tag
        return re.sub(r"(?m)^(\w+)(?:{(.*)})? ", rf'\1{{replica="{name}",\2}} ', text)


async def _all_metrics() -> Response:
    """Answer with the metrics of all replicas."""
    here = serve.get_replica_context()
    replies = serve.get_deployment_handle(here.deployment, here.app_name).broadcast("metrics")
    texts = await replies.results_async(timeout_s=10, return_exceptions=True)
    families: dict[str, str] = {}
    for text in texts:
        for head, samples in re.findall(r"(# HELP .*\n# TYPE .*\n)((?:\w.*\n)*)", str(text)):
            families[head] = families.get(head, head) + samples
    return Response("".join(families.values()), media_type="text/plain; version=0.0.4")
