# SPDX-License-Identifier: GPL-3.0-or-later
"""The routes of the API and of the page. engine/apps/web/openapi.py describes them."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from engine.apps.analysis.actions import described_networks
from engine.apps.analysis.errors import QueryError
from engine.apps.analysis.evaluation import batch_size, outputs
from engine.apps.analysis.fields import QueryFields
from engine.apps.analysis.query import read_game
from engine.apps.games.casual import HINT_NODES, CasualGame
from engine.apps.games.pgn_reading import PgnError
from engine.apps.games.text import TextError, text_of
from engine.apps.web import openapi, positions
from engine.apps.web.bodies import read_object, written
from engine.apps.web.levels import Levels
from engine.apps.web.limits import ApiSettings, Charge, ClientLimits
from engine.apps.web.reviews import ENDED, Reviews, StoredReview
from engine.apps.web.store import Store
from engine.apps.web.turns import Lane, Result
from engine.evaluation.errors import NoEvaluatorError, PipelineError
from engine.pages import FOLDER as PAGES
from engine.pages import board as board_page
from engine.workers.executor import play_together
from protocol.common.http.middleware import CLIENT_LEFT, HEADERS, HttpError
from protocol.common.http.sources import source_of
from protocol.common.printing import reason
from protocol.common.settings.spec import SettingsError, shown

if TYPE_CHECKING:
    from engine._core import Game
    from engine.apps.analysis.scheduler import QueryScheduler
    from engine.apps.review.people import Imitators
    from engine.options import Options

MOST_UNPACKED = 64 << 20
"""Maximum bytes of an unpacked file of a page."""

MOST_OF_GAME = 1 << 20
"""Maximum bytes of a stored game."""

API = "/api/v1"
NDJSON = "application/x-ndjson"

_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_INLINE = re.compile(r"<(style|script)[^>]*>(.*?)</\1>", re.DOTALL)


SHORT_BYTES = 4096
"""A request with at most these bytes is short work, which does not wait for long work."""

FREE_BYTES = 1 << 16
"""Bytes of a body that are read at once; clients take turns for more."""

EVALUATED_AT_ONCE = 3
"""Batches of a request that are in flight."""

ENQUEUED_AT_ONCE = 64
"""Queries that the scheduler reads before those of other requests."""


class HttpClient:
    """One request: a Client of the scheduler."""

    def __init__(self, owner: str, most_unread: int, resume: Callable[[HttpClient], None]) -> None:
        self.owner = owner
        self._most = most_unread // 2
        self._resume = resume
        self._unread = 0  # Bytes; only the event loop changes it.
        self._loop = asyncio.get_running_loop()
        self._answers: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.error: HttpError | None = None
        """Raised by `answers` after the last one."""

    def send(self, answer: bytes) -> None:
        self._loop.call_soon_threadsafe(self._put, answer)

    @property
    def congested(self) -> bool:
        return self._unread > self._most

    def done(self) -> None:
        self._loop.call_soon_threadsafe(self._put, None)

    async def answers(self) -> AsyncIterator[bytes]:
        """Iterate over the answers, encoded, until the last one. Raises HttpError."""
        while (answer := await self._answers.get()) is not None:
            congested = self.congested
            self._unread -= len(answer)
            if congested and not self.congested:
                self._resume(self)
            yield answer
        if self.error is not None:
            raise self.error

    def _put(self, answer: bytes | None) -> None:
        self._unread += len(answer or b"")
        self._answers.put_nowait(answer)


class WebService:
    """The API and the page. Only the event loop may use it."""

    def __init__(
        self,
        scheduler: QueryScheduler,
        options: Options,
        settings: ApiSettings,
        people: Imitators,
        folder: Path | None,
        log: Callable[[str], None],
    ) -> None:
        """folder: of games, next to that of reviews; None keeps both in memory."""
        self._scheduler = scheduler
        self._options = options
        self._settings = settings
        self._limits = ClientLimits(settings)
        self._levels = Levels(scheduler.pool, options, people, log)
        reviews, most = folder and folder.with_name("reviews"), settings.max_stored_bytes
        self._games = Store(folder, most, MOST_OF_GAME, log)
        store = Store(reviews, most, most, log)
        self._reviews = Reviews(scheduler.pool, options, log, settings.max_review_games, store, self._limits)
        self._clients: set[HttpClient] = set()
        self._bodies, self._short, self._long = Lane(16, 2), Lane(4, 2), Lane(2, 1)

    def routes(self) -> list[BaseRoute]:
        """Return the routes of the API and the page."""

        pages = dict.fromkeys(("", "game-{number}.html", "game-{number}.json"), "review_page")
        pages["game-{number}.pgn"] = "review_pgn"
        shown = {("get", f"/review/{{identity}}/{end}"): each for end, each in pages.items()}
        found = {
            key: openapi.Operation(each, {200: None}) for key, each in shown.items()
        } | openapi.operations()
        return [
            *(
                Route(
                    path.replace("number}", "number:int}"),
                    _Charged(self, each, self._limits) if each.charged else getattr(self, each.handler),
                    methods=[method.upper()],
                )
                for (method, path), each in found.items()
                if each.handler
            ),
            Route("/health", self._health),
            Route("/openapi.json", lambda _: JSONResponse(openapi.document(WebService))),
            *(Route(path, _file) for path in _files()),
        ]

    @staticmethod
    def without_token(path: str) -> bool:
        """Return True for what is no secret: the page's files, and reviews, whose ids nobody can guess."""
        return path in _files() or path == "/openapi.json" or path.startswith("/review/")

    def load(self) -> tuple[int, int]:
        """Return the number of moves of games that are searched, and of those since the start."""
        return self._levels.load()

    def end_infinite(self) -> None:
        """End infinite searches, which are answered with their results."""
        for client in self._clients:
            self._scheduler.end(client)

    def end_of(self, names: Collection[str]) -> int:
        """End what runs for clients whose tokens have these names. Return the number of their requests."""
        clients, error = [payer_of(name, "") for name in names], HttpError(403, "the token was removed")
        self._reviews.end(str(error), clients)
        return self._limits.end(clients, error)

    def close(self) -> None:
        """Stop all searches."""
        self._reviews.end(ENDED)
        self._levels.close()
        for lane in (self._short, self._long):
            lane.close()

    # -- the API -----------------------------------------------------------------------------------------

    async def answer(self, operation: openapi.Operation, request: Request, charge: Charge) -> Response:
        """Answer a request by an operation's handler, and convert errors. Fields count as a position."""
        handle, given = getattr(self, operation.handler), list[Any]([request])
        try:
            if operation.takes_body:
                body = await self._object(request)
                if operation.fields is not None:
                    self._limits.add(charge, 1)
                given.append(body if operation.fields is None else operation.fields().changed(**body))
            found = await _unless_gone(request, self._handled(request, handle, given))
        except (QueryError, SettingsError, PgnError, TextError) as error:
            raise HttpError(422, str(error)) from None
        except NoEvaluatorError as error:
            raise HttpError(503, str(error), Retry_After="2") from None
        except PipelineError as error:
            raise HttpError(502, str(error)) from None
        except ClientDisconnect:
            raise HttpError(CLIENT_LEFT, "the client left") from None
        if isinstance(found, Response):
            return found
        if found is None:
            return Response(status_code=204)
        return Response(found, min(operation.answers), media_type="application/json")

    async def _handled(
        self, request: Request, handle: Callable[..., Any], given: Sequence[Any]
    ) -> bytes | Response | None:
        """Return a handler's answer, a JSON value encoded. It runs in a thread if it is no coroutine."""
        if asyncio.iscoroutinefunction(handle):
            found = await handle(*given)
        else:
            found = await self._thread(request, partial(handle, *given))
        if found is None or isinstance(found, Response):
            return found
        return await self._thread(request, partial(written, found))

    async def _thread(self, request: Request, call: Callable[[], Result]) -> Result:
        """Return the result of a call in a thread: clients take turns, and short work has threads of its
        own."""
        path, size = request.url.path, request.scope.get("body_bytes", 0)
        lane = self._long if size > SHORT_BYTES or "/review" in path or "/games" in path else self._short
        return await lane.run(payer(request), call)

    async def _object(self, request: Request) -> dict[str, Any]:
        """Return the JSON object of a body. Raises HttpError and ClientDisconnect."""
        if not request.headers.get("content-type", "application/json").startswith("application/json"):
            raise HttpError(415, "the body is JSON: send `Content-Type: application/json`")
        parts, size = list[bytes](), 0
        async with AsyncExitStack() as stack:
            async for part in request.stream():
                parts.append(part)
                if size <= FREE_BYTES < size + len(part):
                    await stack.enter_async_context(self._bodies.turn(payer(request)))
                size += len(part)
            request.scope["body_bytes"] = size
            most = max(self._settings.max_positions, positions.MOST_NODES)
            read = partial(read_object, b"".join(parts), most)
            return await self._thread(request, read) if size > SHORT_BYTES else read()

    async def analyse(self, request: Request, body: Mapping[str, Any]) -> Response:
        """Search one query, or several. With `Accept: application/x-ndjson` the answers are lines, as they
        come. The search ends when the client disconnects."""
        queries = _list(body, "queries") if "queries" in body else [body]
        if not all(isinstance(query, dict) and "action" not in query for query in queries):
            raise HttpError(422, "queries is a list of query objects")
        streamed = NDJSON in request.headers.get("accept", "")
        infinite = any(query.get("infinite") is True for query in queries)
        if infinite and not streamed:
            raise HttpError(422, f"infinite needs `Accept: {NDJSON}`: it ends when the client leaves")
        turns = [query.get("analyze_turns") for query in queries]
        charge = request.scope["charge"]
        self._limits.add(charge, sum(len(each) if isinstance(each, list) else 1 for each in turns))
        client = HttpClient(charge.client, self._scheduler.settings.max_unread_bytes, self._scheduler.resume)

        def end(error: HttpError) -> None:
            client.error = error
            self._scheduler.end(client, at_once=True)

        async def answers() -> AsyncIterator[bytes]:
            charge.end = end
            self._clients.add(client)
            try:
                for start in range(0, len(queries), ENQUEUED_AT_ONCE):
                    await self._enqueue(client, queries, start)
                if not infinite:
                    self._scheduler.end(client)
                async for answer in client.answers():
                    yield answer
            finally:
                self._clients.discard(client)
                self._scheduler.leave(client)

        found = answers()
        # Raises HttpError before the answer begins.
        first = await anext(found, b"")
        if streamed:
            return StreamingResponse(_lines(first, found), media_type=NDJSON)
        made = [first, *[each async for each in found]] if first else []
        if len(queries) == 1 and len(made) == 1 and b'"error":' in made[0]:
            told = json.loads(made[0])
            raise HttpError(
                503 if told.get("turn") is not None and not told.get("field") else 422, told["error"]
            )
        return Response(b'{"answers":[' + b",".join(made) + b"]}", media_type="application/json")

    async def _enqueue(self, client: HttpClient, queries: Sequence[Mapping[str, Any]], start: int) -> None:
        """Let the scheduler read some queries, and wait until it has."""
        read = Future[None]()
        read.set_running_or_notify_cancel()  # The scheduler sets it, whether or not anybody waits.
        part = queries[start : start + ENQUEUED_AT_ONCE]
        for number, query in enumerate(part, start + 1):
            then = partial(read.set_result, None) if number == start + len(part) else None
            self._scheduler.receive(client, json.dumps({"id": f"{number}", **query}).encode(), then)
        await asyncio.wrap_future(read)

    async def evaluate(self, request: Request, body: Mapping[str, Any]) -> Response:
        """Evaluate positions by the network, without a search. `positions` of the answer have `q`, `wdl`,
        `moves_left`, `policy` and, if wanted, `logits`, in the same order."""
        given = _list(body, "positions")
        fields = openapi.EvaluateFields().changed(
            **{name: each for name, each in body.items() if name != "positions"}
        )
        self._limits.add(request.scope["charge"], len(given))
        pool, options = self._scheduler.pool, self._options
        if fields.network:
            options = replace(options, weights=self._network(fields.network), policy_head="", value_head="")
        links = pool.links(self._options)
        if not any(link.client for link in links):
            raise NoEvaluatorError("the evaluator is starting")
        size = batch_size(links, self._options)
        slots = asyncio.Semaphore(EVALUATED_AT_ONCE)

        async def one(start: int) -> bytes:
            async with slots:
                part = given[start : start + size]
                read = await self._thread(request, lambda: [_position_of(each) for each in part])
                games = [each for each in read if not isinstance(each, str)]
                batches = [await asyncio.wrap_future(pool.evaluate(games, options))] if games else []

                def encoded() -> bytes:
                    made = iter([each for batch in batches for each in outputs(games, *batch)])
                    answers = [{"error": each} if isinstance(each, str) else next(made) for each in read]
                    if not fields.include_logits:
                        for answer in answers:
                            answer.pop("logits", None)
                    return written(answers)[1:-1]

                return await self._thread(request, encoded)

        found = await play_together(one(start) for start in range(0, len(given), size))
        return Response(b'{"positions":[' + b",".join(found) + b"]}", media_type="application/json")

    def _network(self, name: str) -> str:
        """Return the content hash of a served network. Raises HttpError."""
        networks = self._scheduler.networks()
        if networks is None:
            raise NoEvaluatorError("the evaluator is starting")
        for network in networks:
            if name in (network.name, network.content_hash):
                return network.content_hash
        raise HttpError(422, f"the evaluator has no network {shown(name)}; /api/v1/networks lists them")

    def networks(self, _: Request) -> dict[str, Any]:
        """List the networks."""
        return described_networks(self._scheduler)

    def position(self, _: Request, fields: openapi.PositionFields) -> dict[str, Any]:
        """Return a position with its legal moves."""
        game = _game(fields)
        found = {"line": positions.line(game), "opening": positions.opening(game)}
        return {**positions.position(game), **found}

    async def move(self, request: Request, fields: openapi.MoveFields) -> dict[str, Any]:
        """Play the engine's move at a level."""
        game = await self._thread(request, partial(_game, fields))
        if game.end is not None:
            raise HttpError(422, f"the game is over: {game.end.reason}")
        nodes = fields.nodes or HINT_NODES
        report = await self._levels.move(game, elo=fields.elo, nodes=nodes)
        if report.best_move is None:
            raise PipelineError(report.ended_early or "the search found no move")

        def made() -> dict[str, Any]:
            move = game.board.parse_uci(str(report.best_move))
            told = {"move": report.best_move, "san": game.board.san(move)}
            game.board.push(move)
            game.judge()
            return {**told, "position": positions.position(game)}

        return await self._thread(request, made)

    async def human(self, request: Request, fields: openapi.HumanFields) -> dict[str, Any]:
        """Return what people of a rating play."""
        return await self._levels.human(await self._thread(request, partial(_game, fields)), fields.elo)

    async def read_pgn(self, request: Request, fields: openapi.PgnFields) -> dict[str, Any]:
        """Read a game of a PGN with its variations."""
        notes: list[str] = []
        pgn, thread = fields.pgn, partial(self._thread, request)
        if fields.data:
            pgn = await thread(
                lambda: text_of(_bytes_of(fields.data), "the file", notes.append, most=MOST_UNPACKED)
            )
        listed = await thread(partial(positions.games_of, pgn)) if not fields.game else []
        tree = await thread(partial(positions.tree_of, pgn, fields.game or 1))
        if len(listed) == positions.MOST_LISTED:
            notes.append(f"only the first {len(listed):,} games are listed")
        tree["faults"] = [*notes, *tree["faults"]]
        return {"games": listed, "game": tree} | ({"text": pgn} if fields.data else {})

    def write_pgn(self, _: Request, body: Mapping[str, Any]) -> dict[str, Any]:
        """Write a game as PGN."""
        fields = openapi.PositionFields().changed(
            **{name: body[name] for name in ("fen", "chess960") if name in body}
        )
        nodes, headers = _list(body, "nodes"), body.get("headers", {})
        comment = str(body.get("comment", ""))
        if not isinstance(headers, dict) or not all(isinstance(node, dict) for node in nodes):
            raise HttpError(422, "headers is an object, nodes a list of objects")
        try:
            return {"pgn": positions.pgn_of(fields.fen, nodes, headers, comment, chess960=fields.chess960)}
        except (ValueError, TypeError, RecursionError) as error:
            raise HttpError(422, str(error)) from None

    # -- games -------------------------------------------------------------------------------------------

    def list_games(self, request: Request) -> dict[str, Any]:
        """List the stored games, the newest first."""
        heads = self._games.listed(_owner(request))
        return {"games": [{"identity": each["identity"], "title": each["title"]} for each in heads]}

    def read_game(self, request: Request) -> dict[str, Any]:
        """Return a stored game."""
        head, state = self._games.read(request.path_params["identity"], _owner(request))
        return {"title": head.get("title", ""), "state": state}

    def keep_game(self, request: Request, fields: openapi.GameFields) -> None:
        """Store a game."""
        head = {"title": fields.title[:200].encode(errors="replace").decode()}
        self._games.write(request.path_params["identity"], _owner(request), head, fields.state)

    def delete_game(self, request: Request) -> None:
        """Delete a stored game."""
        self._games.delete(request.path_params["identity"], _owner(request))

    # -- reviews -----------------------------------------------------------------------------------------

    def list_reviews(self, request: Request) -> dict[str, Any]:
        """List the reviews, the newest first."""
        return {"reviews": self._reviews.listed(_owner(request))}

    async def start_review(self, request: Request, fields: openapi.ReviewFields) -> Response:
        """Start a review of games."""
        job = StoredReview(
            secrets.token_urlsafe(12), _owner(request), "", fields.pgn, fields.nodes, fields.board
        )
        job = await self._reviews.start(job, payer(request), await self._thread(request, job.sources))
        headers = {"Location": f"{API}/review/{job.identity}"}
        return Response(written(job.data()), 202, headers, "application/json")

    def _job(self, request: Request) -> StoredReview:
        return self._reviews.get(request.path_params["identity"])

    def review(self, request: Request) -> dict[str, Any]:
        """Return a review's progress."""
        return self._job(request).data()

    async def go_on(self, request: Request, fields: openapi.RunFields) -> dict[str, Any]:
        """Stop a review, or go on with it. What is reviewed stays."""
        job = await self._thread(request, partial(self._job, request))
        if fields.running:
            sources = await self._thread(request, job.sources)
            return (await self._reviews.start(job, payer(request), sources)).data()
        return (await self._reviews.stop(job)).data()

    async def delete_review(self, request: Request) -> None:
        """Cancel and delete a review."""
        await self._reviews.delete(await self._thread(request, partial(self._job, request)))

    def reviewed_game(self, request: Request) -> dict[str, Any]:
        """Return the review of a game, as far as it is."""
        return self._job(request).review(request.path_params["number"]).data()

    def review_pgn(self, request: Request) -> Response:
        """Return the annotated games."""
        text = self._job(request).pgn_of(request.path_params.get("number"))
        return Response(text, media_type="application/x-chess-pgn")

    def review_page(self, request: Request) -> Response | dict[str, Any]:
        """Return the page of a review's games or of one, or what changes on that while it is reviewed."""
        job, number = self._job(request), request.path_params.get("number")
        if number is None:
            return _page(job.index())
        return job.grown(number) if request.url.path.endswith(".json") else _page(job.page(number))

    async def _health(self, _: Request) -> Response:
        state = self._scheduler.state
        return JSONResponse({"state": state}, 200 if state == "ready" else 503)

    async def live(self, _: Request) -> Response:
        """Return 200 while the process runs."""
        return PlainTextResponse("live\n")

    async def ready(self, _: Request) -> Response:
        """Return 200 while the evaluator is ready."""
        state = self._scheduler.state
        return PlainTextResponse(f"{state}\n", 200 if state == "ready" else 503)


@dataclass(frozen=True, slots=True)
class _Charged:
    """ASGI application of an operation: a request of its client from its header to the end of its answer."""

    service: WebService
    operation: openapi.Operation
    limits: ClientLimits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        with self.limits.charged(payer(request)) as charge:
            scope["charge"] = charge
            response = await self.service.answer(self.operation, request, charge)
            await response(scope, receive, send)


async def _file(request: Request) -> Response:
    body, kind = _files()[request.url.path]
    return Response(body, media_type=kind)


@cache
def _files() -> Mapping[str, tuple[bytes, str]]:
    """Return the files of the page by path: content and type."""
    found = {}
    for each in (PAGES / "web").iterdir():
        suffix = each.name[each.name.rfind(".") :]
        path = {"index.html": "/", "api.html": "/docs"}.get(each.name, f"/files/{each.name}")
        found[path] = each.read_bytes(), _TYPES[suffix]
    body, kind = found["/"]
    found["/"] = body.replace(b"<!-- pieces -->", board_page.pieces().encode()), kind
    found["/favicon.ico"] = found["/files/icon.svg"]  # For pages of reviews, which name none.
    found["/files/board.js"] = board_page.SCRIPT.read_bytes(), _TYPES[".js"]
    found["/files/board.css"] = board_page.STYLE.read_bytes(), _TYPES[".css"]
    return found


def _page(text: str) -> Response:
    """Return a page of `wavefront review`: its own inline style and script may run, and no others."""
    hashes = {"style": set[str](), "script": set[str]()}
    for kind, content in _INLINE.findall(text):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        hashes[kind].add(f"'sha256-{digest}'")
    allowed = {kind: " ".join(sorted(found)) or "'none'" for kind, found in hashes.items()}
    policy = HEADERS["Content-Security-Policy"]
    policy = policy.replace("script-src 'self'", f"script-src {allowed['script']}")
    policy = policy.replace(
        "style-src 'self'", f"style-src {allowed['style']}; style-src-attr 'unsafe-inline'"
    )
    return Response(text, media_type="text/html", headers={"Content-Security-Policy": policy})


def _owner(request: Request) -> str:
    """Return whose stored games and reviews a request is about."""
    name = request.scope["token_name"]
    return f"token {name}" if name else request.client.host if request.client else ""


def payer_of(token_name: str | None, host: str) -> str:
    """Return whose limits a request counts for: a token's, or without one those of an address."""
    return source_of(host) if token_name is None else f"token {token_name}"


def payer(request: Request) -> str:
    return payer_of(request.scope["token_name"], request.client.host if request.client else "")


def _bytes_of(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise HttpError(422, "data is not base64") from None


def _list(body: Mapping[str, Any], name: str) -> list[Any]:
    value = body.get(name)
    if not isinstance(value, list):
        raise HttpError(422, f"{name} is a list, not {shown(value)}")
    return value


def _game(fields: openapi.PositionFields) -> CasualGame:
    if len(fields.moves) > openapi.MOST_MOVES:
        raise HttpError(422, f"moves: {len(fields.moves):,} are more than {openapi.MOST_MOVES:,}")
    try:
        return CasualGame.of(fields.fen, fields.moves, chess960=fields.chess960)
    except ValueError as error:
        raise HttpError(422, str(error)) from None


def _position_of(given: object) -> Game | str:
    """Return the position of an element of `positions`, or its error."""
    try:
        if isinstance(given, str):
            given = {"fen": given}
        if not isinstance(given, dict):
            return f"a position is a FEN or an object, not {shown(given)}"
        values = {name: given[name] for name in given.keys() & {"fen", "moves", "chess960"}}
        return read_game(QueryFields().changed(**values), playable=False)[0]
    except Exception as error:  # The other positions are evaluated, whatever it is.
        return reason(error)


async def _lines(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if first:
        yield first + b"\n"
    try:
        async for each in rest:
            yield each + b"\n"
    except HttpError as error:  # The status is sent already.
        yield written({"error": str(error)}) + b"\n"


async def _unless_gone(request: Request, work: Awaitable[Result]) -> Result:
    """Return the result, or cancel the work when the client disconnects."""
    task = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((task, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise HttpError(CLIENT_LEFT, "the client left")
        return task.result()
    finally:
        for each in (task, leaving):
            each.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
