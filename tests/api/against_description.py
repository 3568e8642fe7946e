"""Starts the broker, checks its description against the rules of OpenAPI, and has schemathesis check the broker against it."""

import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

import openapi_spec_validator
import requests
import schemathesis
from schemathesis.config import SchemathesisConfig

HERE = pathlib.Path(__file__).resolve().parent
BINARY = HERE.parents[1] / os.environ.get("RINGMAIN_BINARY", "target/debug/ringmain")
# Many times what it takes; only a fault makes the test wait this long.
LIMIT_SECONDS = 300


class Broker:
    """A broker on a free port, in a folder of its own."""

    def __init__(self, folder, mode):
        self.log = []
        self.port = None
        self.has_spoken = threading.Event()
        self.process = subprocess.Popen(
            [BINARY, "serve", "--log-format", "json", "--port", "0"],
            cwd=folder,
            env={**os.environ, "STORAGE_MODE": mode},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.reader = threading.Thread(target=self.read_log, daemon=True)
        self.reader.start()

    def read_log(self):
        """Reads for ever, so that the broker never waits on a full pipe."""
        for line in self.process.stderr:
            self.log.append(line)
            if '"listening"' in line:
                self.port = int(json.loads(line)["fields"]["address"].rpartition(":")[2])
                self.has_spoken.set()
        self.has_spoken.set()

    def url(self):
        self.has_spoken.wait(LIMIT_SECONDS)
        if self.port is None:
            raise SystemExit("the broker ended:\n" + "".join(self.log))
        return f"http://127.0.0.1:{self.port}"

    def end(self):
        """Ends it as an operator would. Gives what was wrong: it had ended, ends badly, or told of a fault of its own."""
        was_running = self.process.poll() is None
        self.process.terminate()
        try:
            status = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self.reader.join(60)
        # A panic is no line of JSON.
        faults = [line for line in self.log if not line.startswith("{") or json.loads(line)["level"] == "ERROR"]
        return faults + ([] if was_running and status == 0 else [f"ended with {status}, running until then: {was_running}"])


def check_document(url):
    """Checks the description itself, and how it is served."""
    got, head = requests.get(f"{url}/openapi.json"), requests.head(f"{url}/openapi.json")
    assert (got.status_code, head.status_code, head.content) == (200, 200, b"")
    for answer in (got, head):
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["content-length"] == str(len(got.content))
    document = got.json()
    openapi_spec_validator.validate(document, cls=openapi_spec_validator.OpenAPIV31SpecValidator)
    return document


def check_streams(document, url):
    """Streams are left to other tests; here their refusals are held against the description, and that SSE begins as it says."""
    schema = schemathesis.openapi.from_dict(document, config=SchemathesisConfig())
    requests.post(f"{url}/topics", json={"name": "stream"}).raise_for_status()
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    handshake = {**upgrade, "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
    refused = [
        ("nothing/subscribe/sse", {}, 404),
        ("stream/subscribe/sse?from_offset=x", {}, 400),
        ("stream/subscribe/sse?last_event_id=x", {}, 400),
        ("nothing/subscribe/ws", handshake, 404),
        ("stream/subscribe/ws?from_offset=x", handshake, 400),
        ("stream/subscribe/ws", upgrade, 400),
        ("stream/subscribe/ws", {}, 426),
    ]
    for path, headers, status in refused:
        answer = requests.get(f"{url}/topics/{path}", headers=headers)
        assert answer.status_code == status, (path, headers, answer.status_code)
        face = "sse" if "/sse" in path else "ws"
        schema[f"/topics/{{name}}/subscribe/{face}"]["GET"].validate_response(answer)
    with requests.get(f"{url}/topics/stream/subscribe/sse", stream=True) as stream:
        assert (stream.status_code, stream.headers["content-type"]) == (200, "text/event-stream")
    requests.delete(f"{url}/topics/stream").raise_for_status()


def run_schemathesis(mode, url, folder):
    """Whether schemathesis finds nothing, and every operation that it tried has succeeded once."""
    statuses = pathlib.Path(folder, "statuses.json")
    command = [sys.executable, "-m", "schemathesis.cli", "--no-color", "--config-file", HERE / "schemathesis.toml"]
    command += ["run", *sys.argv[2:], f"{url}/openapi.json"]
    variables = {"PYTHONPATH": str(HERE), "RINGMAIN_URL": url, "STORAGE_MODE": mode, "RINGMAIN_STATUSES": str(statuses)}
    outcome = subprocess.run(command, cwd=folder, env={**os.environ, **variables}, timeout=LIMIT_SECONDS)
    by_operation = collections.defaultdict(dict)
    for label, status, count in json.loads(statuses.read_text()):
        by_operation[label][status] = count
    for label, counts in sorted(by_operation.items()):
        print(f"{label}: " + ", ".join(f"{status} {count} times" for status, count in sorted(counts.items())))
    hollow = [label for label, counts in by_operation.items() if not any(200 <= status < 300 for status in counts)]
    if hollow:
        print(f"never succeeded, so that little was tested: {hollow}")
    return outcome.returncode == 0 and not hollow


def check(mode):
    """Whether the broker keeps to its description while it stores in `mode`."""
    with tempfile.TemporaryDirectory(prefix="ringmain-api-") as folder:
        broker = Broker(folder, mode)
        try:
            url = broker.url()
            check_streams(check_document(url), url)
            passed = run_schemathesis(mode, url, folder)
        finally:
            faults = broker.end()
        if faults:
            print("the broker was not well:\n" + "".join(faults))
        return passed and not faults


if __name__ == "__main__":
    sys.exit(0 if check(sys.argv[1]) else 1)
