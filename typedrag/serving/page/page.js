/** The page to ask a question on. */

import { AnswerView } from "./answer.js";
import { Failure, programs, useKey } from "./api.js";
import { element, show } from "./dom.js";
import { listAsked, remember } from "./history.js";

const at = (id) => document.getElementById(id);
const question = at("question");
let underWay = null;
let last = [];

async function ask(text, type = "") {
  if (!text || underWay) return;
  last = [text, type];
  underWay = new AbortController();
  const { signal } = underWay;
  const names = at("compare").checked ? [at("program").value, at("other").value] : [at("program").value];
  const views = names.map((name) => viewOf(text, name, type));
  write("");
  display(text, views);
  if (matchMedia("(pointer: coarse)").matches) question.blur(); // its keyboard would hide the answer
  working(true);
  try {
    await Promise.all(views.map((view) => view.run(signal)));
  } finally {
    underWay = null;
    working(false);
  }
  const answered = views.filter((view) => view.answer);
  if (answered.length) remember(text, answered.map((view) => view.record));
  listAsked(at("history"), showAgain);
}

const viewOf = (text, program, type) =>
  new AnswerView(text, program, { type, onRefused: wantKey, again: (as) => ask(text, as) });

function display(text, views) {
  document.title = `${text} · typedrag`;
  at("asked").textContent = text;
  at("answers").replaceChildren(...views.map((view) => view.article));
  at("answers").classList.toggle("compared", views.length > 1);
  show(at("result"));
}

function showAgain({ question: text, records }) {
  if (underWay) return;
  display(text, records.map((record) => viewOf(text, record.program, record.type).replay(record)));
  at("asked").tabIndex = -1;
  at("asked").focus();
}

function working(busy) {
  const [shown, other] = busy ? [at("stop"), at("send")] : [at("send"), at("stop")];
  const focused = [other, document.body].includes(document.activeElement);
  show(shown);
  show(other, false);
  if (focused) shown.focus();
}

function wantKey() {
  show(at("key-form"));
  at("key").focus();
}

async function listPrograms() {
  let names;
  try {
    names = await programs();
  } catch (failure) {
    if (!(failure instanceof Failure)) throw failure;
    if (failure.status === 401) wantKey();
    else at("served").textContent = failure.message;
    return;
  }
  at("served").textContent = names.length === 1 ? names[0] : "";
  for (const list of [at("program"), at("other")])
    list.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
  at("other").value = names[1] ?? names[0];
  show(at("programs"), names.length > 1);
}

function write(text) {
  question.value = text;
  fit();
}

/** Fit the height of the field to its text. */
function fit() {
  question.placeholder = last.length ? "Ask another question" : "Why does …";
  question.style.height = "auto";
  question.style.height = `${question.scrollHeight}px`;
}

at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  ask(question.value.trim());
});
question.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  at("ask").requestSubmit();
});
question.addEventListener("input", fit);
at("stop").addEventListener("click", () => underWay?.abort());
at("compare").addEventListener("change", (event) => {
  at("other").disabled = !event.target.checked;
});
at("key-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  useKey(at("key").value.trim());
  at("key").value = "";
  show(at("key-form"), false);
  question.focus();
  await listPrograms();
  await ask(...last);
});

listAsked(at("history"), showAgain);
listPrograms();
