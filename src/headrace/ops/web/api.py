"""The API: each route once, from which both the server and its OpenAPI description are made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from headrace.errors import InvalidDurationError
from headrace.metrics import GOLDEN, METRICS
from headrace.ops.exposition import expose, grafana_dashboard, registry
from headrace.ops.watch import Watch
from headrace.pipeline.alarms import DEFAULTS
from headrace.pipeline.durations import parse_duration

_LONGEST_SPAN = 12 * 3600
Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Endpoint:
    """A path, what it answers, and how it is described."""

    path: str
    name: str
    summary: str
    handler: Handler
    parameters: tuple[tuple[str, str, str], ...] = ()
    """Name, place (path or query) and meaning."""
    kind: str = "application/json"


def endpoints(watch: Watch, version: str) -> list[Endpoint]:
    """All routes of the API."""
    found = registry(watch)
    pipeline = ("pipeline", "path", "name of the pipeline")

    async def summary(request: Request) -> Response:
        return JSONResponse(watch.summary())

    async def detail(request: Request) -> Response:
        got = watch.detail(request.path_params["pipeline"])
        return JSONResponse(got) if got is not None else _unknown(watch, request.path_params["pipeline"])

    async def history(request: Request) -> Response:
        name = request.path_params["pipeline"]
        if name not in watch.runs.pipelines:
            return _unknown(watch, name)
        asked = request.query_params.get("metrics", ",".join(METRICS)).split(",")
        wrong = [m for m in asked if m not in METRICS]
        try:
            span = parse_duration(request.query_params.get("span", "5m")) / 1000
        except InvalidDurationError as problem:
            return _error(400, problem.what)
        if wrong:
            return _error(400, f"there is no metric `{wrong[0][:80]}`", "see /api/metrics")
        return JSONResponse({"pipeline": name, "series": watch.history(name, asked, min(span, _LONGEST_SPAN))})

    async def results(request: Request) -> Response:
        topic = request.path_params["topic"]
        if not any(topic in p.outputs for p in list(watch.runs.pipelines.values())):
            return _error(404, f"no pipeline writes to a topic `{topic[:80]}`")
        return JSONResponse({"topic": topic, "results": watch.results(topic)})

    async def alarms(request: Request) -> Response:
        lines = watch.summary()["pipelines"]
        return JSONResponse(
            {
                "alarms": [{"pipeline": line["name"], **alarm} for line in lines for alarm in line["alarms"]],
                "changes": list(reversed(watch.alarms.changes)),
                "defaults": list(DEFAULTS),
            }
        )

    async def metrics(request: Request) -> Response:
        return JSONResponse(
            {
                "golden": GOLDEN,
                "metrics": [
                    {
                        "name": m.name,
                        "unit": m.unit,
                        "title": m.title,
                        "help": m.help,
                        "golden": m.golden,
                        "prometheus": m.exposed,
                    }
                    for m in METRICS.values()
                ],
            }
        )

    async def prometheus(request: Request) -> Response:
        text = await run_in_threadpool(expose, found)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def grafana(request: Request) -> Response:
        return JSONResponse(grafana_dashboard())

    async def health(request: Request) -> Response:
        return JSONResponse({"ok": watch.problem is None and watch.looks > 0}, 200 if watch.problem is None else 503)

    listed = [
        Endpoint("/api/pipelines", "pipelines", "Every pipeline with its numbers and alarms", summary),
        Endpoint(
            "/api/pipelines/{pipeline}",
            "pipeline",
            "Everything about one pipeline: topics, partitions, graph, hot keys, runs, newest results",
            detail,
            (pipeline,),
        ),
        Endpoint(
            "/api/pipelines/{pipeline}/history",
            "history",
            "Numbers over time: for each metric a list of [seconds since 1970, value]",
            history,
            (
                pipeline,
                ("metrics", "query", "names, separated by commas; all if left out"),
                ("span", "query", "how far back, like 5m (the default), 1h or 12h (the most)"),
            ),
        ),
        Endpoint(
            "/api/topics/{topic}/results",
            "results",
            "The newest sampled records of an output topic",
            results,
            (("topic", "path", "name of the topic"),),
        ),
        Endpoint("/api/alarms", "alarms", "Every alarm with its state, and the latest changes", alarms),
        Endpoint("/api/metrics", "metrics", "What is measured: names, units, meanings", metrics),
        Endpoint("/metrics", "prometheus", "The numbers for Prometheus", prometheus, kind="text/plain"),
        Endpoint("/grafana.json", "grafana", "A Grafana dashboard to import", grafana),
        Endpoint("/health", "health", "Whether the dashboard sees its cluster", health),
    ]

    async def description(request: Request) -> Response:
        return JSONResponse(openapi(listed, version))

    listed.append(Endpoint("/openapi.json", "openapi", "This description", description))
    return listed


def openapi(listed: list[Endpoint], version: str) -> dict[str, Any]:
    """The OpenAPI description of the routes."""
    paths = {}
    for endpoint in listed:
        answers: dict[str, Any] = {
            "200": {"description": endpoint.summary, "content": {endpoint.kind: {"schema": _schema(endpoint.kind)}}}
        }
        if any(place == "path" for _, place, _ in endpoint.parameters):
            answers["404"] = {"description": "There is no such pipeline or topic"}
        paths[endpoint.path] = {
            "get": {
                "operationId": endpoint.name,
                "summary": endpoint.summary,
                "parameters": [
                    {
                        "name": name,
                        "in": place,
                        "required": place == "path",
                        "description": meaning,
                        "schema": {"type": "string"},
                    }
                    for name, place, meaning in endpoint.parameters
                ],
                "responses": answers,
            }
        }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headrace dashboard",
            "version": version,
            "description": "Everything that the page shows. Live, over WebSocket: /ws.",
        },
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"token": []}],
        "paths": paths,
    }


def _schema(kind: str) -> dict[str, str]:
    return {"type": "object" if kind == "application/json" else "string"}


def _error(status: int, what: str, fix: str | None = None) -> Response:
    return JSONResponse({"error": what, "fix": fix}, status)


def _unknown(watch: Watch, name: str) -> Response:
    known = ", ".join(sorted(watch.runs.pipelines)[:20]) or "none yet"
    return _error(404, f"there is no pipeline `{name[:80]}`", f"there are: {known}")
