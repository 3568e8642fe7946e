#!/usr/bin/env python3
"""How long a request takes, and how long another connection waits meanwhile.

    perf/waits.py HOST:PORT TARGET [TIMES]      prints one line of JSON

The other connection asks for /health without a pause. With one core both share it, so that its longest wait is how long that core was
held up; what the scheduler of a busy machine adds is in it, and shows in a line whose target is /health, too.
"""

import http.client
import json
import sys
import threading
import time


def ask(connection, method, target, body=None, headers=None):
    connection.request(method, target, body, headers or {})
    answer = connection.getresponse()
    return answer.status, answer.read()


class Prober:
    """Asks for /health on a thread and a connection of its own while the block runs; `waits` are in milliseconds."""

    def __init__(self, address):
        self.connection = http.client.HTTPConnection(address)
        self.waits, self.ended = [], threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.ended.is_set():
            begun = time.perf_counter()
            ask(self.connection, "GET", "/health")
            self.waits.append(1000 * (time.perf_counter() - begun))
            time.sleep(0.001)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()
        self.waits.sort()

    def at(self, share):
        return round(self.waits[int(share * (len(self.waits) - 1))], 2)


def main():
    address, target = sys.argv[1:3]
    connection, took, status, size = http.client.HTTPConnection(address), [], 0, 0
    with Prober(address) as prober:
        time.sleep(0.1)
        for _ in range(int((sys.argv[3:] or ["5"])[0])):
            begun = time.perf_counter()
            status, body = ask(connection, "GET", target)
            took.append(1000 * (time.perf_counter() - begun))
            size = len(body)
            time.sleep(0.05)
    took.sort()
    print(json.dumps({
        "status": status, "answer_bytes": size, "requests": len(took), "answer_ms": round(took[len(took) // 2], 2),
        "answer_ms_longest": round(took[-1], 2), "others_wait_ms_p50": prober.at(0.5), "others_wait_ms_longest": prober.at(1),
    }))


if __name__ == "__main__":
    main()
