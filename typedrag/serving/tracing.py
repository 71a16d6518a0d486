"""Checks OpenTelemetry's standard variables, without importing its SDK."""

from __future__ import annotations

import os

from typedrag.errors import InputError

_ENDPOINT, _TRACES_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
_PROTOCOL, _TRACES_PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
_SPOKEN = "http/protobuf"


def spans_wanted() -> bool:
    """True if the variables ask for spans to be sent.

    Raises:
        InputError: If they ask for another protocol than HTTP/protobuf.
    """
    if not (os.environ.get(_ENDPOINT) or os.environ.get(_TRACES_ENDPOINT)):
        return False
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or os.environ.get("OTEL_TRACES_EXPORTER") == "none":
        return False
    for name in (_TRACES_PROTOCOL, _PROTOCOL):
        if spoken := os.environ.get(name):
            if spoken != _SPOKEN:
                raise InputError(f"{name} is '{spoken}'", f"Set it to {_SPOKEN}, and the endpoint to one for it")
            break
    return True
