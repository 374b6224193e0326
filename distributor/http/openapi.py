"""OpenAPI 3.1 of the API, made from the routes and their models."""

import re
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from distributor import api
from distributor.http.routes import PREFIX, REPORT, REPORTS, ROUTES, WATCH, WATCH_ROLE
from srtm import __version__
from srtm.http.callers import Role
from srtm.http.exchange import REPORTS_PROTOCOL

_Documented = tuple[str, str, dict[str, Any]]
"""path, method and operation"""
_ALWAYS = (413, 500, 503)
_OF_KNOWN_CALLERS = (401, 403)
_WORDS = {
    400: "The request is wrong; the error says where.",
    401: "The bearer token is missing or wrong, and no client certificate names a caller.",
    403: "The caller's role is too small, or an agent speaks for another broker than its own.",
    404: "No such broker, topic, publisher or placement.",
    409: "The state of things does not allow it.",
    413: "The body is too long: a report has 4 MiB at most, lists 16 MiB, any other 64 KiB.",
    426: "The path is for another protocol than HTTP.",
    500: "A fault of the distributor.",
    503: "Another distributor leads, the store takes nothing, or too many requests are under way.",
}


def document() -> dict[str, Any]:
    """The whole description."""
    models: list[type[BaseModel]] = [api.ErrorAnswer, api.Health, api.WatchAsked, api.Place]
    for route in ROUTES:
        models += [each for each in (route.body, route.answer) if each is not None]
    _, definitions = models_json_schema(
        [(each, "validation") for each in dict.fromkeys(models)],
        ref_template="#/components/schemas/{model}",
    )
    paths: dict[str, dict[str, Any]] = {}
    for path, method, operation in (*_routes(), *_watches(), *_reports(), *_others()):
        paths.setdefault(path, {})[method] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "SRTM Load Distributor",
            "version": __version__,
            "description": "Rates are messages/s, bursts messages, times seconds.",
        },
        "paths": paths,
        "components": {
            "schemas": definitions["$defs"],
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "certificate": {"type": "mutualTLS"},
            },
        },
        "security": [{}, {"token": []}, {"certificate": []}],
    }


def _routes() -> Iterator[_Documented]:
    for route in ROUTES:
        operation = _operation(route.summary, route.path, route.body, route.statuses, route.role)
        operation["responses"]["200"] = _json("The answer.", route.answer)
        if route.answer is api.Publishers:
            operation["parameters"].append(_query("after", {"type": "string"}, required=False))
        if route.is_stored:
            stale = {
                "type": "string",
                "enum": ["yes"],
                "description": "Whoever stands by answers too, by what the leader has written; the "
                "header Age and age_seconds say how old that is.",
            }
            operation["parameters"].append(_query("stale", stale, required=False))
        yield PREFIX + route.path, route.method.lower(), operation


def _watches() -> Iterator[_Documented]:
    summary = (
        "Where publishers are now, and each move: a JSON line (Place) each time, and "
        '{"beat": true} every 10 seconds.'
    )
    for method, body in (("get", None), ("post", api.WatchAsked)):
        operation = _operation(summary, WATCH, body, (400,), WATCH_ROLE)
        if body is None:
            ids = {"type": "array", "items": {"type": "string"}}
            operation["parameters"].append(_query("id", ids, required=True))
        operation["responses"]["200"] = {
            "description": "Lines without an end.",
            "content": {"application/x-ndjson": {"schema": _ref(api.Place)}},
        }
        yield PREFIX + WATCH, method, operation


def _reports() -> Iterator[_Documented]:
    summary = (
        f"Reports on one connection (Upgrade: {REPORTS_PROTOCOL}): each line is a Report, and "
        "each answer a line with a status and a length, and so many bytes, which are a Desired or "
        "an error."
    )
    operation = _operation(summary, REPORTS, None, (404, 426), REPORT.role)
    operation["responses"]["101"] = {"description": "Lines and answers follow."}
    yield PREFIX + REPORTS, "get", operation


def _others() -> Iterator[_Documented]:
    """What is no route of the API."""
    json, read = "application/json", Role.READ
    for path, summary, kind, schema, role in (
        ("/v1/health", "Does this distributor lead?", json, _ref(api.Health), None),
        ("/v1/openapi.json", "This document.", json, {"type": "object"}, read),
        ("/metrics", "Prometheus text.", "text/plain", {"type": "string"}, read),
    ):
        operation = _operation(summary, path, None, (), role)
        operation["responses"]["200"] = {
            "description": summary,
            "content": {kind: {"schema": schema}},
        }
        yield path, "get", operation


def _operation(
    summary: str,
    path: str,
    body: type[BaseModel] | None,
    statuses: tuple[int, ...],
    role: Role | None,
) -> dict[str, Any]:
    """role: that a caller needs; None: everybody may call"""
    refused = _OF_KNOWN_CALLERS if role else ()
    operation: dict[str, Any] = {
        "summary": summary,
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in re.findall(r"\{(\w+)\}", path)
        ],
        "responses": {
            str(status): _json(_WORDS[status], api.ErrorAnswer)
            for status in sorted({*statuses, *refused, *_ALWAYS})
        },
    }
    if role:
        operation["x-role"] = str(role)
    else:
        operation["security"] = []
    if body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _ref(body)}},
        }
    return operation


def _query(name: str, schema: dict[str, Any], required: bool) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": required, "schema": schema}


def _json(description: str, model: type[BaseModel]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": _ref(model)}}}


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}
