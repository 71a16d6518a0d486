/** The page's requests to the server. */

import { eventsOf } from "./events.js";

const KEY = "typedrag-key";
const IN_WORDS = {
  401: "This server answers only who has an API key that is valid.",
  403: "This API key may not ask this.",
  404: "The server does not know this.",
  413: "The question is too long.",
  429: "Too many questions were asked.",
  503: "The server cannot answer now.",
};

/** The message of an error. */
export class Failure extends Error {
  constructor(message, { status = 0, retryAfter = 0 } = {}) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

/** Keep the API key until the tab is closed. */
export function useKey(key) {
  sessionStorage.setItem(KEY, key);
}

/** True if requests have an API key. */
export const hasKey = () => Boolean(sessionStorage.getItem(KEY));

/** The names of the served programs, the default first. */
export async function programs() {
  return (await json("v1/models")).data.map((model) => model.id);
}

/** Ask a question; events come as they happen. Aborting the signal ends the question on the server as well. */
export async function ask(asked, signal) {
  const reply = await call("v1/answer", asked, { signal, accept: "text/event-stream" });
  return { requestId: reply.headers.get("X-Request-Id") ?? "", events: unlessLost(reply.body, signal) };
}

async function* unlessLost(body, signal) {
  try {
    yield* eventsOf(body);
  } catch (error) {
    if (signal.aborted) throw error;
    throw new Failure("The connection to the server was lost.");
  }
}

/** The sentences of cited passages that support an answer's sentences. */
export const support = async (question, answer, passages) =>
  (await json("v1/support", { question, answer, passages: passages.map(({ id, text }) => ({ id, text })) })).support;

/** The sub-questions that an answer covers. */
export const coverage = (question, answer, program) => json("v1/coverage", { question, answer, program });

/** Send feedback on an answer. */
export const feedback = (about) => call("v1/feedback", about);

async function json(path, body) {
  return (await call(path, body)).json();
}

async function call(path, body, { signal, accept = "application/json" } = {}) {
  const headers = { Accept: accept };
  if (hasKey()) headers.Authorization = `Bearer ${sessionStorage.getItem(KEY)}`;
  if (body) headers["Content-Type"] = "application/json";
  const request = { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal };
  let reply;
  try {
    reply = await fetch(path, request);
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Failure("The server cannot be reached.");
  }
  if (!reply.ok) throw await failureOf(reply);
  return reply;
}

async function failureOf(reply) {
  const said = reply.status === 401 ? null : await reply.json().catch(() => null);
  const message = said?.error?.message || IN_WORDS[reply.status] || `The server failed (${reply.status}).`;
  return new Failure(message, { status: reply.status, retryAfter: Number(reply.headers.get("Retry-After")) || 0 });
}
