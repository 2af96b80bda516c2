# SPDX-License-Identifier: GPL-3.0-or-later
"""What many browsers at one `wavefront web` get: waits for lines of an analysis, and times of moves.

    python -m benchmarks.service.browsers --browsers 30 --seconds 24

Each browser streams endless analyses, one after the other, as the page does. One more plays moves meanwhile.
To reach: lines each second for all, 99 % of the moves within 200 ms, with the shipped network on two cores.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import subprocess
import sys
import threading
import time
from http.client import HTTPConnection
from itertools import pairwise
from statistics import median

OPENINGS = (["e2e4"], ["d2d4"], ["c2c4"], ["g1f3"], ["e2e4", "c7c5"], ["d2d4", "g8f6"])
STEP_S = 8.0
QUERY = {"infinite": True, "keep_tree": True, "report_every": 0.25, "multipv": 3, "pv_length": 10}
QUERY |= {"include_san": True, "include_policy": True}


def browse(url: str, number: int, times: list[float], end: float) -> None:
    """Analyse one position after the other. times: receives the times of answers."""
    headers = {"Content-Type": "application/json", "Accept": "application/x-ndjson"}
    step = 0
    while time.perf_counter() < end:
        step += 1
        connection = HTTPConnection(url, timeout=60)
        body = json.dumps({"moves": OPENINGS[(number + step) % len(OPENINGS)], **QUERY})
        connection.request("POST", "/api/v1/analyse", body, headers)
        until = min(end, time.perf_counter() + STEP_S)
        with contextlib.closing(connection), connection.getresponse() as response:
            while time.perf_counter() < until:
                if "moves" in json.loads(response.readline()):
                    times.append(time.perf_counter())


def play(url: str, taken: list[float], end: float) -> None:
    """Ask for a move ten times a second. taken: receives the seconds of each answer."""
    connection = HTTPConnection(url, timeout=60)
    while time.perf_counter() < end:
        began = time.perf_counter()
        body = json.dumps({"elo": 1500, "moves": OPENINGS[len(taken) % len(OPENINGS)]})
        connection.request("POST", "/api/v1/move", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read()
        if response.status == 200:
            taken.append(time.perf_counter() - began)
        time.sleep(0.1)


def measure(url: str, browsers: int, seconds: float) -> None:
    begin = time.perf_counter() + 4.0  # All have their first lines by then.
    end = begin + seconds
    times: list[list[float]] = [[] for _ in range(browsers)]
    taken: list[float] = []
    threads = [threading.Thread(target=play, args=(url, taken, end))]
    threads += [
        threading.Thread(target=browse, args=(url, number, each, end)) for number, each in enumerate(times)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    waits = []
    for each in times:
        marks = [begin, *(at for at in each if begin < at < end), end]
        waits.append(max(after - before for before, after in pairwise(marks)))
    taken.sort()
    longest, p99 = max(waits), taken[int(0.99 * (len(taken) - 1))]
    print(f"{browsers} browsers: wait for lines {longest:.2f} s, median {median(waits):.2f} s (to reach: 1)")
    print(
        f"{len(taken)} moves: median {1000 * median(taken):.0f} ms, 99 % {1000 * p99:.0f} ms (to reach: 200)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--browsers", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=24.0)
    arguments = parser.parse_args()
    command = [sys.executable, "-P", "-c", "from engine.cli import console; console()", "web"]
    with subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        found = re.search(r"http://([^/]+)/", process.stdout.readline())
        assert found is not None
        try:
            measure(found[1], arguments.browsers, arguments.seconds)
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
