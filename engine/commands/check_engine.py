# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront check-engine PROGRAM`: whether any program follows UCI."""

from __future__ import annotations

import argparse
import asyncio
import json
from time import perf_counter
from typing import Any

HELP = "check whether a program follows the UCI protocol; the exit status is 1 if it does not"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("program", nargs=argparse.REMAINDER, help="the program and its arguments")
    parser.add_argument("--json", action="store_true", help="print JSON; written before the program")
    parser.usage = "%(prog)s [--json] PROGRAM [ARGUMENT …]"


def run(arguments: argparse.Namespace) -> int:
    if not arguments.program:
        print("wavefront check-engine: name the program to check")
        return 2
    results = asyncio.run(checked(arguments.program, quiet=arguments.json))
    failed = [str(each["check"]) for each in results if not each["ok"]]
    if arguments.json:
        print(json.dumps({"ok": not failed, "checks": results}))
    else:
        verdict = f"{len(failed)} of {len(results)} checks failed" if failed else "follows UCI"
        print(f"\n{' '.join(arguments.program)}: {verdict}")
    return 1 if failed else 0


async def checked(command: list[str], *, quiet: bool) -> list[dict[str, Any]]:
    """Run all checks and return their results; print them as they come unless quiet."""
    from engine.match.compliance import Compliance, ComplianceError
    from protocol.host.printing import printable

    results = []
    compliance = Compliance(command)
    try:
        async for name, check in compliance.checks():
            began = perf_counter()
            try:
                ok, detail = True, await check()
            except ComplianceError as error:
                ok, detail = False, str(error)
            seconds = round(perf_counter() - began, 3)
            detail = printable(detail)
            results.append({"check": name, "ok": ok, "detail": detail, "seconds": seconds})
            if not quiet:
                print(f"{'ok' if ok else 'FAILED':6}  {name}: {detail}", flush=True)
    finally:
        compliance.close()
    return results
