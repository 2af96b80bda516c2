// SPDX-License-Identifier: GPL-3.0-or-later
// A page to try the API: every operation of /openapi.json, with a body to send.

import { token } from "./api.js";
import { made } from "./dom.js";

const EXAMPLES = {
  "/api/v1/analyse": {moves: ["e4", "e5"], nodes: 400, multipv: 2},
  "/api/v1/evaluate": {positions: ["rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"]},
  "/api/v1/position": {moves: ["e4"]},
  "/api/v1/move": {moves: ["e4"], elo: 1500},
  "/api/v1/human": {moves: ["e4"], elo: 1500},
  "/api/v1/pgn/read": {pgn: "1. e4 e5 2. Nf3 *"},
  "/api/v1/pgn/write": {nodes: [{parent: -1, uci: "e2e4"}]},
  "/api/v1/review": {pgn: "1. f3 e5 2. g4 Qh4# 0-1", nodes: 100},
};

function section(path, method, {summary, requestBody, responses}) {
  const where = made("input", {value: path, spellcheck: false});
  const body = requestBody && made("textarea", {rows: 4, spellcheck: false, value: JSON.stringify(EXAMPLES[path] ?? {}, null, 1)});
  where.setAttribute("aria-label", "path");
  body?.setAttribute("aria-label", "body");
  const answer = made("pre");
  answer.setAttribute("role", "status");
  const send = made("button", {textContent: "Send"});
  send.addEventListener("click", async () => {
    const headers = {...(body && {"Content-Type": "application/json"}), ...(token() && {Authorization: `Bearer ${token()}`})};
    try {
      const reply = await fetch(where.value, {method: method.toUpperCase(), headers, body: body?.value});
      const text = await reply.text();
      answer.textContent = `${reply.status} (${reply.headers.get("x-request-id")})\n${pretty(text)}`;
    } catch (error) {
      answer.textContent = error.message;
    }
  });
  const codes = `answers: ${Object.keys(responses).join(", ")}`;
  return made("section", {}, made("h2", {textContent: `${method.toUpperCase()} ${path}`}), made("p", {}, ...summary.split("`").map((part, index) => index % 2 ? made("code", {}, part) : part)),
    made("p", {className: "quiet", textContent: codes}), where, ...(body ? [body] : []), send, answer);
}

function pretty(text) {
  try { return JSON.stringify(JSON.parse(text), null, 1); } catch { return text; }
}

const {paths} = await (await fetch("/openapi.json")).json();
document.getElementById("operations").append(
  ...Object.entries(paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, each]) => section(path, method, each))));
