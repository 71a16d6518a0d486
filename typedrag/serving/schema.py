"""`/openapi.json`: what the server sends, with what the middleware adds to all replies."""

from typing import Any

from pydantic import TypeAdapter

from typedrag.serving.admission import RATE_HEADERS
from typedrag.serving.responses import EVENTS, OPENAI_PATHS, ErrorReply

ANSWERING = (404, 502, 503, 504)
"""The statuses of errors of questions, besides those of all requests."""
_ERRORS = {
    400: "The request is malformed or, on paths of OpenAI, asks for what cannot be done.",
    401: "No valid key was given.",
    404: "Nothing is served by this name, or no answer is kept by this id.",
    408: "The body did not come whole in time.",
    413: "The body is too large.",
    421: "A server without keys was asked by another name than localhost.",
    422: "A field of the request is wrong.",
    429: "A limit is reached, or too many questions wait.",
    431: "The request's target and headers are too large.",
    500: "The server failed.",
    502: "No answer could be read from what the LM replied.",
    503: "The LM or the index cannot be used, or the server is being stopped.",
    504: "No answer was ready in time.",
    507: "The feedback could not be kept.",
}
_OPEN = ("/healthz", "/readyz")
_OF_ALL, _OF_KEYS, _OF_BODIES = {400, 421, 431, 500}, {401, 429}, {408, 413, 422}
_OF_ERRORS = {429: ["Retry-After"], 502: ["Retry-After"], 503: ["Retry-After"], 504: ["X-Should-Retry"]}
_HEADERS = {
    "X-Request-ID": ("The server's id of the request.", "string"),
    "Retry-After": ("Seconds after which to ask again.", "integer"),
    "X-Should-Retry": ("`false`: the question would take as long again.", "string"),
    "X-Typedrag-Turns-Read": ("How many of the earlier turns of a chat were read.", "string"),
    **dict.fromkeys(RATE_HEADERS, ("What the client may ask, where that is limited.", "string")),
}
_REF = "#/components/{}/{}".format


def replies(model: Any, *errors: int, events: Any = None) -> dict[int | str, dict[str, Any]]:
    """The replies of a route: its model, the events of its stream, if it has one, and its own statuses of errors."""
    reply: dict[str, Any] = {"model": model}
    if events:
        data = TypeAdapter(events).json_schema(ref_template=_REF("schemas", "{model}"), mode="serialization")
        json = {"type": "string", "contentMediaType": "application/json", "contentSchema": data}
        properties = {"event": {"type": "string"}, "data": {"anyOf": [json, {"const": "[DONE]"}]}}
        item = {"type": "object", "properties": properties, "required": ["data"]}
        reply["content"] = {EVENTS: {"schema": item}}
    return {200: reply, **{status: {} for status in errors}}


def complete_schema(document: dict[str, Any], *, keys: bool) -> None:
    """Add to an OpenAPI document what all paths have in common: errors, headers and, perhaps needed, keys."""
    schemas = document["components"]["schemas"]
    error = TypeAdapter(ErrorReply).json_schema(ref_template=_REF("schemas", "{model}"))
    schemas |= {**error.pop("$defs"), "ErrorReply": error}
    for needless in ("HTTPValidationError", "ValidationError"):
        schemas.pop(needless, None)
    document["components"] |= {
        "headers": {name: {"description": about, "schema": {"type": kind}} for name, (about, kind) in _HEADERS.items()},
        "responses": {
            str(status): {
                "description": about,
                "headers": _headers("X-Request-ID", *_OF_ERRORS.get(status, [])),
                "content": {"application/json": {"schema": {"$ref": _REF("schemas", "ErrorReply")}}},
            }
            for status, about in _ERRORS.items()
        },
        "securitySchemes": {
            "bearer": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        },
    }
    for path, operations in document["paths"].items():
        for operation in operations.values():
            has_key, responses = path not in _OPEN, operation["responses"]
            operation["security"] = [*([] if keys else [{}]), {"bearer": []}, {"header": []}] if has_key else []
            for reply in responses.values():
                more = ["X-Typedrag-Turns-Read"] if path in OPENAI_PATHS else []
                reply["headers"] = _headers("X-Request-ID", *(RATE_HEADERS if has_key else []), *more)
                if stream := reply.get("content", {}).get(EVENTS):
                    [json, _] = stream["schema"]["properties"]["data"]["anyOf"]
                    schemas |= {**json["contentSchema"].pop("$defs", {}), **schemas}
            errors = _OF_ALL | (_OF_KEYS if has_key else set()) | (_OF_BODIES if "requestBody" in operation else set())
            own = {int(status) for status in responses if status >= "400" and "content" not in responses[status]}
            errors |= own | ({422} if "422" in responses else set())  # FastAPI's own, with another body
            responses |= {str(status): {"$ref": _REF("responses", status)} for status in sorted(errors)}
            if path in OPENAI_PATHS:
                del responses["422"]


def _headers(*names: str) -> dict[str, Any]:
    return {name: {"$ref": _REF("headers", name)} for name in names}
