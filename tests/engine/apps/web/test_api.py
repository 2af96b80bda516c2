# SPDX-License-Identifier: GPL-3.0-or-later
"""The HTTP API of `wavefront web`, with real requests to a real server."""

from __future__ import annotations

import io
import json
import re
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import chess
import chess.pgn
import psutil
import pytest
from jsonschema import Draft202012Validator

from engine.apps.web.limits import ApiSettings, ClientLimits
from engine.apps.web.reviews import Reviews, StoredReview
from engine.apps.web.store import Store
from engine.options import Options
from engine.search.pool import SearchPool
from tests.engine.apps.web.serving import COMMAND, NDJSON, WAIT_S, Web, stream, web
from tests.programs import suspend

pytestmark = pytest.mark.integration

START = chess.STARTING_FEN
SCHOLARS = "1. e4 e5 2. Qh5 Nc6 3. Bc4 Nf6 4. Qxf7# 1-0\n"
TOKEN = "a-token-of-24-characters"


CALLING = """
import inspect, json, pkgutil, sys
from importlib import import_module
import client, client.api.default as operations
given, statuses = json.loads(sys.argv[1]), {}
names = [each.name for each in pkgutil.iter_modules(operations.__path__)]
for name in sorted(names, key=lambda name: name.startswith("delete")):
    call = import_module(f"client.api.default.{name}").sync_detailed
    arguments = {"client": client.Client(base_url=given["url"].rstrip("/"))}
    for parameter, told in inspect.signature(call).parameters.items():
        if parameter == "body":
            kinds = getattr(told.annotation, "__args__", (told.annotation,))
            arguments["body"] = kinds[-1].from_dict(given["bodies"].get(name, {}))
        elif parameter == "number":
            arguments["number"] = 1
        elif parameter == "identity":
            arguments["identity"] = "a-stored-game" if "_games_identity" in name else given["job"]
    statuses[name] = int(call(**arguments).status_code)
print(json.dumps(statuses))
"""
"""Calls each operation of a client that was generated into the package `client`."""


@pytest.fixture(scope="module")
def server() -> Iterator[Web]:
    with web("--max-body-bytes", "100000", "--max-positions", "500") as made:
        yield made


def schema_of(server: Web, path: str, status: str = "200") -> Draft202012Validator:
    document = server.get("/openapi.json").data
    methods = document["paths"][path]
    answer = next(iter(methods.values()))["responses"][status]
    schema = answer["content"]["application/json"]["schema"]
    return Draft202012Validator({**schema, "components": document["components"]})


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        ("analyse", {"nodes": 20, "multipv": 2, "include_san": True, "include_policy": True}, 200),
        ("analyse", {"queries": [{"nodes": 5}, {"moves": ["e4"], "nodes": 5}]}, 200),
        ("analyse", {"nodes": "many"}, 422),
        ("evaluate", {"positions": [START, "nonsense", {"moves": ["e4"]}], "include_logits": True}, 200),
        ("evaluate", {"positions": [START], "network": "none"}, 422),
        ("position", {"moves": ["e4", "e7e5"]}, 200),
        ("position", {"moves": ["e5"]}, 422),
        ("move", {"moves": ["e4"], "elo": 1500}, 200),
        ("move", {"moves": ["e4"], "nodes": 10}, 200),
        ("move", {"fen": "7k/5Q2/6K1/8/8/8/8/8 b - - 0 1", "elo": 800}, 422),
        ("human", {"elo": 1200}, 200),
        ("pgn/read", {"pgn": SCHOLARS}, 200),
        ("pgn/read", {"pgn": ""}, 422),
        ("pgn/write", {"nodes": [{"parent": -1, "uci": "e2e4"}, {"parent": 0, "uci": "e7e5"}]}, 200),
        ("pgn/write", {"nodes": [{"parent": 0, "uci": "e2e4"}]}, 422),
        ("review", {"pgn": SCHOLARS, "nodes": 5}, 202),
        ("review", {"pgn": "nothing"}, 422),
    ],
)
def test_answer_follows_the_description(server: Web, name: str, body: object, status: int) -> None:
    answer = server.post(name, body)
    assert answer.status == status, answer.body
    schema_of(server, f"/api/v1/{name}", str(status)).validate(answer.data)


def test_analysis_comes_as_lines_when_they_are_asked_for(server: Web) -> None:
    body = {"nodes": 3000, "report_every": 0.05, "options": {"minibatch_size": 1}}
    answer = server.post("analyse", body, Accept=NDJSON)
    assert answer.headers["Content-Type"].startswith(NDJSON)
    lines = [json.loads(line) for line in answer.body.splitlines()]
    assert [line["during_search"] for line in lines] == [True] * (len(lines) - 1) + [False]
    assert lines[-1]["root"]["visits"] == 3000


@pytest.mark.skipif(sys.platform == "win32", reason="processes cannot be suspended by a signal")
@pytest.mark.parametrize(
    ("path", "body", "accept"),
    [
        ("analyse", {"nodes": 4_000_000_000}, "application/json"),
        ("analyse", {"infinite": True, "report_every": 0.05}, NDJSON),
        ("evaluate", {"positions": [START] * 500}, "application/json"),
        ("move", {"nodes": 100_000}, "application/json"),
        ("human", {"elo": 1500}, "application/json"),
    ],
)
def test_work_ends_with_its_client(server: Web, path: str, body: dict[str, object], accept: str) -> None:
    assert server.post("evaluate", {"positions": [START]}).status == 200
    (evaluator,) = psutil.Process(server.process.pid).children()
    connection = HTTPConnection(server.netloc, timeout=WAIT_S)
    if accept != NDJSON:
        suspend(evaluator)  # It never answers in time.
    try:
        connection.request("POST", f"/api/v1/{path}", json.dumps(body), {"Accept": accept})
        if accept == NDJSON:
            assert connection.getresponse().fp.readline()
        while in_flight(server) != 1:
            pass
        connection.close()
        if connection.sock is not None:
            connection.sock.close()
        while in_flight(server):
            pass
    finally:
        evaluator.resume()
    assert server.post("evaluate", {"positions": [START]}).status == 200


def in_flight(server: Web) -> int:
    """How many requests run besides this one."""
    text = server.get("/metrics").body.decode()
    line = next(
        line for line in text.splitlines() if line.startswith("wavefront_analysis_requests_in_flight ")
    )
    return int(float(line.split()[1])) - 1


def test_metrics_count_the_searches_of_reviews_and_games(server: Web) -> None:
    def counted(name: str) -> float:
        text = server.get("/metrics").body.decode()
        return float(re.search(rf"^wavefront_analysis_{name} (\S+)$", text, re.MULTILINE)[1])  # type: ignore[index]

    moves, searches = counted("game_moves_total"), counted("searches_total")
    server.post("move", {"elo": 1500})
    assert counted("game_moves_total") == moves + 1
    job = server.post("review", {"pgn": SCHOLARS * 20, "nodes": 100}).data["id"]
    while not counted("searching_positions") or counted("searches_total") == searches:
        pass
    server.ask("DELETE", f"/api/v1/review/{job}")


def test_evaluation_is_the_networks(server: Web) -> None:
    found = server.post("evaluate", {"positions": [START, {"moves": ["e4"]}]}).data["positions"]
    assert found[0] == server.post("evaluate", {"positions": ["startpos"]}).data["positions"][0]
    single = server.post("analyse", {"nodes": 0, "moves": ["e4"]}).data["answers"][0]
    assert found[1]["wdl"] == pytest.approx(single["wdl"], abs=1e-5)
    assert len(found[0]["policy"]) == 20
    assert "logits" not in found[0]


def test_position_has_legal_moves_and_the_end(server: Web) -> None:
    told = server.post("position", {"moves": ["f3", "e5", "g4"]}).data
    assert told["legal"]["d8h4"] == "Qh4#"
    assert [move["san"] for move in told["line"]] == ["f3", "e5", "g4"]
    told = server.post("position", {"moves": ["f3", "e5", "g4", "Qh4"]}).data
    assert (told["end"]["result"], told["check"], told["legal"]) == ("0-1", "e1", {})


def test_position_is_a_draw_to_claim_when_it_came_three_times(server: Web) -> None:
    shuffle = ["Nf3", "Nf6", "Ng1", "Ng8"] * 2
    told = server.post("position", {"moves": shuffle}).data
    assert told["end"] is None
    assert "repetition" in told["claim"]


def test_chess960_castling_is_king_takes_rook(server: Web) -> None:
    fen = "1r2k1r1/6p1/8/8/8/8/8/1R3K1R w HBgb - 0 1"
    told = server.post("position", {"fen": fen, "chess960": True}).data
    assert told["legal"]["f1h1"] == "O-O"
    assert server.post("position", {"fen": fen, "chess960": True, "moves": ["f1h1"]}).status == 200
    assert server.post("move", {"fen": fen, "chess960": True, "elo": 1000}).status == 200


def test_pgn_is_written_with_all_that_was_read(server: Web) -> None:
    tags = '[Round "3"]\n[WhiteElo "1700"]\n[Annotator "\\"A\\" \\\\ B"]\n\n'
    text = (
        f"{tags}{{first}} 1. e4 {{best}} e5 (1... {{or}} c5 $1 2. Nf3 (2. c3)) (1... -- 2. d4) 2. Nf3 0~0 *"
    )
    told = server.post("pgn/read", {"pgn": text}).data["game"]
    assert [node["san"] for node in told["nodes"]] == ["e4", "e5", "Nf3", "c5", "Nf3", "c3", "--", "d4"]
    assert "'0' " in told["faults"][0] and "Unread from here" in told["nodes"][2]["comment"]
    assert server.post("position", {"moves": ["e4", told["nodes"][6]["uci"], "d4"]}).status == 200
    written = server.post("pgn/write", {key: told[key] for key in ("nodes", "headers", "comment")}).data[
        "pgn"
    ]
    again = server.post("pgn/read", {"pgn": written}).data["game"]
    assert all(again[key] == told[key] for key in ("nodes", "headers", "comment"))
    assert told["headers"]["Annotator"] == '"A" \\ B' and told["comment"] == "first"


def test_corrections_of_a_fen_are_reported(server: Web) -> None:
    answer = server.post("position", {"fen": "1r2k1r1/8/8/8/8/8/8/1R2K1R1 w KQkq - 0 1"}).data
    assert " - - " in answer["fen"] and answer["corrections"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/api/v1/analyse", 405), ("GET", "/api/v1/x", 404), ("PUT", "/api/v1/evaluate", 405)],
)
def test_each_error_is_json(server: Web, method: str, path: str, status: int) -> None:
    answer = server.ask(method, path)
    assert (answer.status, list(answer.data)) == (status, ["error"])


def test_pgn_text_cannot_forge_tags_and_games(server: Web) -> None:
    nodes = [{"parent": -1, "uci": "e2e4", "comment": 'a } 1-0 [Event "x"]\n\n[White "y"]'}]
    written = server.post("pgn/write", {"nodes": nodes, "headers": {"White": 'Eve"]\n[Black "z'}}).data["pgn"]
    source = io.StringIO(written)
    game = chess.pgn.read_game(source)
    assert game is not None
    assert game.headers["Black"] == "?"
    assert chess.pgn.read_game(source) is None


def test_pgn_with_deep_variations_is_no_fault(server: Web) -> None:
    """Each variation has a variation."""
    nodes, cycle = [{"parent": -1, "uci": "g1f3"}], ["g8f6", "f3g1", "f6g8", "g1f3"]
    for depth in range(1200):
        uci = cycle[depth % 4]
        nodes += [{"parent": 2 * depth, "uci": each} for each in ("a7a6" if depth % 2 == 0 else "a2a3", uci)]
    answer = server.post("pgn/write", {"nodes": nodes})
    assert answer.status in (200, 422), answer.body


def test_review_is_a_job_with_progress_pages_and_pgn(server: Web) -> None:
    started = server.post("review", {"pgn": SCHOLARS + "\n1. f3 e5 2. g4 Qh4# 0-1\n\n1. e5 *\n", "nodes": 5})
    where = started.headers["Location"]
    job = started.data
    while job["state"] in ("waiting", "running"):
        job = server.get(where).data
    assert (job["state"], job["done"], job["total"]) == ("done", 3, 3)
    assert [game["number"] for game in job["games"]] == [1, 2]
    assert len(job["skipped"]) == 1
    assert server.get(f"{where}/games/1").data["headers"]["Result"] == "1-0"
    assert server.get(f"{where}/games/7").status == 404
    folder = f"/review/{job['id']}/"
    assert b'"n":2' in server.get(folder).body
    page = server.get(f"{folder}game-1.html")
    assert b"Qxf7" in page.body
    assert "unsafe-inline" not in page.headers["Content-Security-Policy"].split("style-src-attr")[0]
    assert b"[Annotator" in server.get(f"{folder}games.pgn").body
    assert server.ask("DELETE", where).status == 204
    assert server.get(where).status == 404


def test_review_survives_a_killed_server_and_goes_on(tmp_path: Path) -> None:
    def states(server: Web) -> dict[str, str]:
        return {row["id"]: row["state"] for row in server.get("/api/v1/review").data["reviews"]}

    with web(data=tmp_path) as server:
        done = server.post("review", {"pgn": SCHOLARS, "nodes": 5}).data["id"]
        while states(server)[done] != "done":
            pass
        page = server.get(f"/review/{done}/game-1.html").body
        cut = server.post("review", {"pgn": "1. f3 e5 2. g4 *", "nodes": 25_000}).data["id"]
    with web(data=tmp_path) as server:
        assert states(server) == {done: "done", cut: "stopped"}
        assert server.get(f"/review/{done}/game-1.html").body == page
        assert server.get(f"/api/v1/review/{cut}").data["reason"] == "the server ended"
        assert server.ask("PUT", f"/api/v1/review/{cut}", {"running": True}).data["state"] == "waiting"
        assert server.ask("PUT", f"/api/v1/review/{cut}", {"running": False}).data["state"] == "stopped"
        for identity in (done, cut):
            assert server.ask("DELETE", f"/api/v1/review/{identity}").status == 204
        assert states(server) == {} and not list((tmp_path / "wavefront" / "reviews").iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="needs another process's limits")
def test_full_disk_ends_no_request_and_loses_no_game(tmp_path: Path) -> None:
    with web(data=tmp_path) as server:
        process, where, game = (
            psutil.Process(server.process.pid),
            "/api/v1/games/a-first-game",
            {"state": "1. e4"},
        )
        usual = process.rlimit(psutil.RLIMIT_FSIZE)
        process.rlimit(psutil.RLIMIT_FSIZE, (0, usual[1]))
        assert server.ask("PUT", where, game).status == 204
        assert server.get(where).data["state"] == "1. e4"
        assert server.post("review", {"pgn": SCHOLARS, "nodes": 5}).status == 202
        assert not list(tmp_path.rglob("*.json"))
        process.rlimit(psutil.RLIMIT_FSIZE, usual)
        assert server.ask("PUT", where, game).status == 204
        assert b"1. e4" in next(tmp_path.rglob("games/*.json")).read_bytes()
        assert server.process.stderr is not None
        assert "games: File too large; what is new is lost at the end" in server.process.stderr.readline()


def test_review_grows_and_keeps_its_searches_when_it_stops(server: Web) -> None:
    identity = server.post("review", {"pgn": "1. f3 e5 2. g4 d6 *", "nodes": 25_000}).data["id"]
    where = f"/api/v1/review/{identity}"
    while not (games := server.get(where).data["games"]) or games[0]["searched"] < 5:
        pass
    assert len(server.get(f"{where}/games/1").data["moves"]) == 4
    (before,) = server.ask("PUT", where, {"running": False}).data["games"]
    server.ask("PUT", where, {"running": True})
    (after,) = server.get(where).data["games"]
    assert after["searched"] >= before["searched"] >= 5
    server.ask("DELETE", where)


@pytest.mark.parametrize(
    ("weights", "nodes", "used"),
    [("", 5, ""), ("", 400, "wavefront-gpu"), ("wavefront-cpu", 400, "wavefront-cpu")],
)
async def test_review_has_its_network_and_an_end_whatever_fails(weights: str, nodes: int, used: str) -> None:
    log: list[str] = []
    asked: list[str] = []

    def recommended_games(options: Options) -> int:
        asked.append(options.weights)
        return 1

    # A pool without other methods: the next step fails by an error that nobody thought of.
    pool = SimpleNamespace(recommended_games=recommended_games)
    store, limits = Store(None, 10**6, 10**6, print), ClientLimits(ApiSettings())
    reviews = Reviews(cast(SearchPool, pool), Options(weights=weights), log.append, 10, store, limits)
    job = StoredReview("an-identity", "me", "", SCHOLARS, nodes)
    await reviews.start(job, "me", job.sources())
    assert job.task is not None
    await job.task
    assert asked == [used]
    assert job.state == "failed" and "AttributeError" in job.reason
    assert log == [f"review {job.identity} failed: {job.reason}"]


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("evaluate", b"{", {}, 400),
        ("evaluate", b"[" * 90_000, {}, 400),
        ("evaluate", [], {}, 422),
        ("evaluate", {"positions": "all"}, {}, 422),
        ("evaluate", {"positions": [START] * 501}, {}, 413),
        ("evaluate", b" " * 100_001, {}, 413),
        ("evaluate", {"positions": []}, {"Content_Type": "text/plain"}, 415),
        ("position", {"moves": ["e4"] * 3001}, {}, 422),
        ("pgn/read", {"pgn": "1. e4 " + "{a} " * 26_000}, {}, 413),
        ("pgn/write", {"nodes": [{"parent": index - 1, "uci": "e2e4"} for index in range(900)]}, {}, 422),
        ("review", {"pgn": SCHOLARS, "nodes": 10**6}, {}, 422),
        ("analyse", {"infinite": True}, {}, 422),
        ("analyse", {"action": "clear_cache"}, {}, 422),
        ("nothing", {}, {}, 404),
    ],
)
def test_bad_request_is_refused(
    server: Web, path: str, body: object, headers: dict[str, str], status: int
) -> None:
    answer = server.post(path, body, **headers)
    assert answer.status == status
    assert answer.headers["X-Request-Id"]


def test_page_of_another_origin_gets_nothing(server: Web) -> None:
    for headers in (
        {"Origin": "http://evil.example"},
        {"Host": "evil.example"},
        {"Sec_Fetch_Site": "cross-site"},
    ):
        for path in (
            "/",
            "/api/v1/networks",
            "/metrics",
            "/openapi.json",
            "/files/board.js",
            "/files/icon.svg",
        ):
            answer = server.get(path, **headers)
            assert answer.status in (403, 421), (path, headers)
            assert answer.headers["Access-Control-Allow-Origin"] is None
        assert server.post("position", {}, **headers).status in (403, 421)


def test_page_of_an_accepted_origin_is_answered_with_cors() -> None:
    with web("--origin", "https://chess.example") as server:
        asked = {"Origin": "https://chess.example", "Access_Control_Request_Method": "POST"}
        preflight = server.ask("OPTIONS", "/api/v1/position", **asked)
        assert preflight.status == 204
        assert "content-type" in preflight.headers["Access-Control-Allow-Headers"]
        answer = server.post("position", {}, Origin="https://chess.example")
        assert answer.status == 200
        assert answer.headers["Access-Control-Allow-Origin"] == "https://chess.example"
        foreign = server.ask("OPTIONS", "/api/v1/position", Origin="https://evil.example")
        assert foreign.status == 403
        assert foreign.headers["Access-Control-Allow-Origin"] is None


def test_certificate_serves_tls(tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl")
    files = [tmp_path / "chain.pem", tmp_path / "key.pem"]
    made = "req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    command = [openssl, *made.split(), "-out", str(files[0]), "-keyout", str(files[1])]
    subprocess.run(command, check=True, capture_output=True)
    flags = [*COMMAND, "--listen", "127.0.0.1:0", "--backend", "random"]
    flags += ["--certificate", str(files[0]), "--key", str(files[1])]
    with subprocess.Popen(flags, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = re.search(r"https://127.0.0.1:(\d+)/", process.stdout.readline())
        assert address is not None
        trusting = ssl.create_default_context(cafile=str(files[0]))
        connection = HTTPSConnection("127.0.0.1", int(address[1]), timeout=WAIT_S, context=trusting)
        connection.request("GET", "/live")
        assert connection.getresponse().read() == b"live\n"
        connection.close()
        process.kill()


def test_description_is_valid_openapi(server: Web) -> None:
    validator = pytest.importorskip("openapi_spec_validator")
    validator.validate(server.get("/openapi.json").data)


def test_api_survives_requests_made_from_its_description(server: Web) -> None:
    schemathesis: Any = pytest.importorskip("schemathesis")
    from hypothesis import HealthCheck, given, settings
    from schemathesis.specs.openapi import checks as openapi

    checks = [
        schemathesis.checks.not_a_server_error,
        openapi.status_code_conformance,
        openapi.content_type_conformance,
        openapi.response_headers_conformance,
        openapi.response_schema_conformance,
    ]
    schema = schemathesis.openapi.from_url(f"{server.url}openapi.json")
    for result in schema.get_all_operations():
        operation = result.ok()

        @settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy())
        def check(case: Any) -> None:
            if case.path == "/api/v1/analyse" and isinstance(case.body, dict):
                queries = case.body.get("queries", [case.body])
                for query in queries:
                    query |= {"nodes": 1, "infinite": False}
            case.call_and_validate(checks=checks)

        check()


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of files as POSIX has them")
def test_token_and_limits_of_each_client(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.touch(0o600)
    file.write_text(f"ann {TOKEN}-ann\nbob {TOKEN}-bob\n")
    ann, bob = ({"Authorization": f"Bearer {TOKEN}-{name}"} for name in ("ann", "bob"))
    with web("--token-file", str(file), "--max-requests", "1", "--max-seconds", "0.5") as server:
        assert server.get("/").status == 200
        assert server.get("/api/v1/networks").status == 401
        assert server.get("/api/v1/networks", Authorization=f"Bearer {TOKEN}-eve").status == 403
        assert server.get("/api/v1/networks", **ann).status == 200
        with stream(server, f"{TOKEN}-ann"):
            refused = server.post("analyse", {"nodes": 1}, **ann)
            assert refused.status == 429
            assert int(refused.headers["Retry-After"]) >= 1
            assert server.post("analyse", {"nodes": 1}, **bob).status == 200
        while (
            spent := server.post("analyse", {"nodes": 1}, **ann)
        ).status != 429 or b"per minute" not in spent.body:
            pass
        assert int(spent.headers["Retry-After"]) >= 1


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGTERM")
def test_requests_end_with_the_service() -> None:
    with web() as server:
        kept = HTTPConnection(server.netloc, timeout=WAIT_S)
        kept.request("GET", "/live")
        kept.getresponse().read()
        running = HTTPConnection(server.netloc, timeout=WAIT_S)
        running.request("POST", "/api/v1/analyse", json.dumps({"movetime": 1500}))
        while in_flight(server) != 1:
            pass
        server.process.send_signal(signal.SIGTERM)
        status = 0
        while status != 503:
            kept.request("POST", "/api/v1/position", "{}")
            answer = kept.getresponse()
            status = answer.status
            answer.read()
        assert answer.headers["Retry-After"]
        assert running.getresponse().status == 200
        assert server.process.wait(WAIT_S) == 0


def test_a_generated_client_can_call_every_operation(server: Web, tmp_path: Path) -> None:
    pytest.importorskip("openapi_python_client", reason="needs the extra http-check")
    described, package = tmp_path / "openapi.json", tmp_path / "client"
    described.write_bytes(server.get("/openapi.json").body)
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none"]
    command += ["--path", str(described), "--output-path", str(package)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    job = server.post("review", {"pgn": SCHOLARS, "nodes": 5}).data["id"]
    while server.get(f"/api/v1/review/{job}").data["state"] != "done":
        pass
    bodies = {
        "post_analyse": {"nodes": 5},
        "post_evaluate": {"positions": [START]},
        "post_pgn_read": {"pgn": SCHOLARS},
        "post_pgn_write": {"nodes": []},
        "post_review": {"pgn": SCHOLARS, "nodes": 1},
        "put_games_identity": {"state": "a game"},
    }
    (tmp_path / "call.py").write_text(CALLING)
    data = json.dumps({"url": server.url, "bodies": bodies, "job": job})
    done = subprocess.run([sys.executable, "call.py", data], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    statuses = json.loads(done.stdout)
    assert len(statuses) >= 20
    assert {name: status for name, status in statuses.items() if status >= 400} == {}
