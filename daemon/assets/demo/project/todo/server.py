"""HTTP on top of the service."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from todo.service import Invalid, NotFound, Service

service = Service()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        url = urlsplit(self.path)
        if url.path == "/todos":
            self.answer(200, service.list_todos())
        else:
            self.answer(404, {"error": "not found"})

    def do_POST(self):
        parts = urlsplit(self.path).path.strip("/").split("/")
        try:
            if parts == ["todos"]:
                length = int(self.headers.get("Content-Length", 0))
                body = json.loads(self.rfile.read(length) or "{}")
                self.answer(201, service.add_todo(body.get("title", "")))
            elif len(parts) == 3 and parts[0] == "todos" and parts[2] == "done":
                self.answer(200, service.finish_todo(int(parts[1])))
            else:
                self.answer(404, {"error": "not found"})
        except NotFound as error:
            self.answer(404, {"error": str(error)})
        except (Invalid, ValueError) as error:
            self.answer(400, {"error": str(error)})

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
