"""A command like `vllm` that serves no model: `fake_vllm.py serve MODEL [--port N] …`.

It has a child, as vLLM has, writes what it was started with to the file of FAKE_VLLM_STARTS, and takes options of its
own: `--wait FILE` to start once a file is there, `--fail TEXT` to not start at all.
"""

import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


def option(name: str, default: str) -> str:
    return sys.argv[len(sys.argv) - sys.argv[::-1].index(name)] if name in sys.argv else default


MODELS = [*sys.argv[2:3], *(part.partition("=")[0] for part in [option("--lora-modules", "")] if part)]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/health":
            self.send(200, {})
        elif self.known():
            self.send(200, {"object": "list", "data": [{"id": name} for name in MODELS]})

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.known():
            return
        message = {"role": "assistant", "content": json.dumps({"answer": f"{os.getpid()} at {time.time()}"})}
        usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        self.send(200, {"id": "1", "object": "chat.completion", "created": 0, "model": request["model"],
                        "choices": [choice], "usage": usage})  # fmt: skip

    def known(self) -> bool:
        key = os.environ.get("VLLM_API_KEY")
        if key and self.headers["Authorization"] != f"Bearer {key}":
            self.send(401, {"error": "Unauthorized"})
            return False
        return True

    def send(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    child = subprocess.Popen(["sleep", "600"])
    signal.signal(signal.SIGTERM, lambda *_: (child.kill(), os._exit(0)))  # vLLM ends its processes, too
    started = {"pid": os.getpid(), "child": child.pid, "argv": sys.argv[1:]}
    if starts := os.environ.get("FAKE_VLLM_STARTS"):
        with Path(starts).open("a") as file:
            file.write(json.dumps(started) + "\n")
    print("INFO loading weights", flush=True)
    while (file := option("--wait", "")) and not Path(file).exists():
        time.sleep(0.05)
    if text := option("--fail", ""):
        print(f"ERROR {text}", flush=True)
        sys.exit(1)
    host, port = option("--host", "127.0.0.1"), int(option("--port", "8000"))
    ThreadingHTTPServer((host, port), Handler).serve_forever()


if __name__ == "__main__":
    main()
