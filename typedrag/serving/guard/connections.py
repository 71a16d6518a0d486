"""Connections that clients cannot hold open by sending or reading a byte now and then."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from typedrag.serving.faults import Fault
from typedrag.serving.guard.requests import SECURITY_HEADERS
from typedrag.serving.guard.sizes import HEAD_BYTES, INCOMPLETE
from typedrag.serving.settings import HTTPLimits

MALFORMED = Fault(400, "malformed", "This is no request of HTTP/1.1, or its head is too long.")


def connection_options(settings: HTTPLimits) -> dict[str, Any]:
    """The options of connections for uvicorn."""
    return {
        "http": partial(PatientProtocol, settings.read_seconds),
        "ws": "none",
        "server_header": False,
        "h11_max_incomplete_event_size": HEAD_BYTES,
        "log_level": "error",  # requests that are not HTTP are answered, not logged
        "access_log": False,
    }


class PatientProtocol(H11Protocol):
    """HTTP/1.1 with a time limit for receiving a whole request, and for a client to go on reading its reply.

    Args:
        patience: The limit in seconds.
        settings: The settings of uvicorn's protocol.
    """

    def __init__(self, patience: float, **settings: Any) -> None:
        super().__init__(**settings)
        self._patience = patience
        self._reading: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start waiting for a request."""
        super().connection_made(transport)
        self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all waiting."""
        self._stop_waiting()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read, and wait for the rest of an incomplete request."""
        super().data_received(data)
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._stop_waiting()
        elif self._reading is None:
            self._wait_for_request()

    def pause_writing(self) -> None:
        """Start waiting for the client to read."""
        super().pause_writing()
        self._writing = self.loop.call_later(self._patience, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on writing, since the client has read."""
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that is not HTTP."""
        self._refuse(MALFORMED)

    def _wait_for_request(self) -> None:
        self._reading = self.loop.call_later(self._patience, self._refuse, INCOMPLETE)

    def _stop_waiting(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _refuse(self, fault: Fault) -> None:
        """Close the connection, with a reply if a request has begun and its reply has not."""
        has_request = self.conn.their_state is not h11.IDLE or self.conn.trailing_data[0]
        if has_request and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps(fault.to_dict("")).encode()
            headers = {
                "Content-Type": "application/json",
                "Content-Length": str(len(body)),
                "Connection": "close",
                **SECURITY_HEADERS,
            }
            for event in (
                h11.Response(status_code=fault.status, headers=list(headers.items())),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
            if self.cycle is not None:
                self.cycle.disconnected = True  # the application may not have begun, and must not reply
        self.transport.close()
