"""A real HTTP server for tests, which answers as a test says."""

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

GOOD = {
    "id": "x", "object": "chat.completion", "created": 1, "model": "served",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "fine"}}],
    "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
}  # fmt: skip


def good(content="fine", **choice):
    return {**GOOD, "choices": [{**GOOD["choices"][0], "message": {"role": "assistant", "content": content}, **choice}]}


class Served:
    """What a server was asked, when, and how many at once."""

    def __init__(self):
        self.requests, self.times, self.at_once, self.most = [], [], 0, 0


@contextmanager
def server(reply):
    """A real HTTP server: `reply(request, number)` gives (status, body, headers), number from 0."""
    served, lock = Served(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                number = len(served.requests)
                served.requests.append({**request, "path": self.path, "key": self.headers["Authorization"]})
                served.times.append(time.monotonic())
                served.at_once += 1
                served.most = max(served.most, served.at_once)
            status, body, headers = reply(request, number)
            with lock:
                served.at_once -= 1
            payload = body if isinstance(body, bytes) else json.dumps(body).encode()
            named = {"Content-Type": "application/json", "Content-Length": len(payload), **headers}
            try:
                self.send_response(status)
                for name, value in named.items():
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(payload)
            except OSError:
                self.close_connection = True

        def log_message(self, *_):
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running.daemon_threads = True
    threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{running.server_port}/v1", served
    finally:
        running.shutdown()
        running.server_close()
