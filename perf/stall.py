#!/usr/bin/env python3
"""How long checkpoints hold up a core that has many topics and many remembered ids.

    perf/stall.py BROKER          prints one line of JSON; needs two processors and about a minute

One core and one shard keep 20 000 logged topics with a message each and 512 000 ids. While large publishes make the log go round, another
connection asks for /health without a pause: its longest waits are the stalls. The disk's and the publishes' own share is in them.
"""

import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

from waits import Prober, ask

TOPICS, IDS, MAKERS, ROUNDS = 20_000, 512_000, 16, 700


def make(address, numbers):
    connection = http.client.HTTPConnection(address)
    for number in numbers:
        ask(connection, "POST", "/topics", json.dumps({"name": f"t{number}"}))
        ask(connection, "POST", f"/topics/t{number}/publish", b"x")


def remember_ids(connection):
    for first in range(0, IDS, 20_000):
        lines = (json.dumps({"payload": "", "id": str(number)}) for number in range(first, min(first + 20_000, IDS)))
        target = f"/topics/t{first // 20_000 % 50}/publish"
        status, told = ask(connection, "POST", target, "\n".join(lines), {"Content-Type": "application/x-ndjson"})
        assert status == 202, told


def measure(address):
    makers = [threading.Thread(target=make, args=(address, range(at, TOPICS, MAKERS))) for at in range(MAKERS)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    connection = http.client.HTTPConnection(address)
    remember_ids(connection)
    payload = os.urandom(1 << 19)
    with Prober(address) as prober:
        for _ in range(ROUNDS):
            ask(connection, "POST", "/topics/t0/publish", payload)
            time.sleep(0.003)
    _, metrics = ask(connection, "GET", "/metrics")
    name = "ringmain_wal_checkpoints_total"
    checkpoints = [line.split()[-1] for line in metrics.decode().splitlines() if line.startswith(name)]
    return {
        "topics": TOPICS, "ids": IDS, "checkpoints": int(float(checkpoints[0])), "probes": len(prober.waits),
        "wait_ms_p50": prober.at(0.5), "wait_ms_p99": prober.at(0.99),
        "wait_ms_worst": [round(wait, 1) for wait in prober.waits[-12:][::-1]],
        "load_average_1m": round(os.getloadavg()[0], 2),
    }


def main():
    folder = tempfile.mkdtemp()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["serve", "--cores", "1", "--shards", "1", "--storage", "wal", "--wal-max-segments", "4", "--port", str(port)]
    broker = subprocess.Popen([os.path.abspath(sys.argv[1]), *words], cwd=folder, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        print(json.dumps(measure(f"127.0.0.1:{port}")))
    finally:
        broker.kill()
        broker.wait()
        shutil.rmtree(folder)


main()
