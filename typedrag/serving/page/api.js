/** What the page asks of the server. */

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

/** What went wrong, in words. */
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

/** Whether requests are made with an API key. */
export const hasKey = () => Boolean(sessionStorage.getItem(KEY));

/** The names of the programs that are served, the default one first. */
export async function programs() {
  return (await json("v1/models")).data.map((model) => model.id);
}

/** Ask a question; events come as they happen. Aborting the signal ends the question on the server as well. */
export async function ask(question, program, signal) {
  const reply = await call("v1/answer", { question, program }, { signal, accept: "text/event-stream" });
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

/** Which sentence of a cited passage supports which of an answer. */
export const support = async (question, answer, passages) =>
  (await json("v1/support", { question, answer, passages: passages.map(({ id, text }) => ({ id, text })) })).support;

/** Which sub-questions an answer covers. */
export const coverage = (question, answer, program) => json("v1/coverage", { question, answer, program });

/** Say whether an answer is good. */
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
