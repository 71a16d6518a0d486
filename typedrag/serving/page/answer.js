/** An answer on the page: its progress, its text with citations, and its actions. */

import * as api from "./api.js";
import { announce, copyOf, element, show } from "./dom.js";
import { coverageOf } from "./coverage.js";
import { citedBy, paragraphs, sources } from "./passages.js";
import * as snippets from "./snippets.js";
import { stepItems, Tree } from "./tree.js";
import { aboutType, cautionOf, costOf, count, FROM_KNOWLEDGE, seconds, titleOf, TYPE_UNSURE, TYPES } from "./words.js";

const KEPT = new Set(["classified", "searched", "read", "sub_answer", "step", "answer", "support"]);

/** A program's answer to a question.
 *  type: of the question, if the asker says it; onRefused: called where an API key is needed;
 *  again: asks the question once more, as of a type if one is given. */
export class AnswerView {
  constructor(question, program, { type = "", onRefused, again }) {
    Object.assign(this, { question, program, type, onRefused, again });
    this.article = copyOf("answer-template");
    this.part(".program").textContent = program;
    this.part(".again").onclick = () => again(type);
    this.tree = new Tree(this.part(".tree"), question);
    this.kept = [];
    this.requestId = "";
    this.#offer();
  }

  part(selector) {
    return this.article.querySelector(selector);
  }

  /** Ask, and show the events until the end, an error included. */
  async run(signal) {
    this.article.setAttribute("aria-busy", "true");
    this.part(".text").ariaBusy = "true";
    this.status("Asking");
    try {
      const { requestId, events } = await api.ask(asked(this), signal);
      this.requestId = requestId;
      for await (const event of events) {
        if (event.name === "error") throw new api.Failure(event.values.message);
        this.hear(event);
      }
      if (!this.answer) throw new api.Failure("The connection ended before the answer was whole.");
      await this.#support();
      announce("The answer is ready.");
    } catch (error) {
      this.tree.giveUp();
      if (signal.aborted) this.status("Stopped");
      else this.#fail(error);
    } finally {
      this.article.removeAttribute("aria-busy");
      this.part(".text").ariaBusy = "false";
    }
  }

  /** The record to show the answer again: its events without tokens. */
  get record() {
    const { question, program, type, requestId, kept } = this;
    return { question, program, type, requestId, kept };
  }

  /** Show the record of an answer. */
  replay({ kept, requestId }) {
    this.requestId = requestId;
    kept.forEach((event) => this.hear(event));
    return this;
  }

  /** Show an event. */
  hear(event) {
    const { name, values } = event;
    if (KEPT.has(name)) this.kept.push(event);
    this.tree.add(event);
    const text = this.part(".text");
    if (name === "classified") this.#classified(values);
    if (name === "searched") this.status("Searching");
    if (name === "read") this.#reads(values);
    if (name === "answer_started") {
      text.replaceChildren();
      this.status("Writing");
    }
    if (name === "token") text.append(values.text);
    if (name === "answer") this.#end(values.answer);
    if (name === "support") this.#cite(values.support);
  }

  status(words) {
    this.part(".status").textContent = words;
  }

  #reads({ part, passages }) {
    this.status(part ? "Answering the sub-queries" : "Reading");
    if (!part && !passages.length) this.#caution(FROM_KNOWLEDGE);
  }

  #caution(said) {
    show(this.part(".caution"), Boolean(said));
    if (said) [this.part(".caution strong").textContent, this.part(".caution span").textContent] = said;
  }

  #classified({ question_type: type, type_unsure: unsure, route }) {
    const menu = this.part(".type");
    menu.replaceChildren(...TYPES.map((value) => element("option", { value }, titleOf(value))));
    menu.value = type;
    menu.onchange = () => this.#askAs(menu.value);
    show(menu, Boolean(type));
    this.part(".route").textContent = type ? "" : titleOf(route);
    this.part(".about").textContent = unsure ? TYPE_UNSURE : type ? aboutType(type) : "is the way that it takes";
    show(this.part(".kind"), Boolean(type || route));
  }

  /** Ask again as a question of the type that the asker says, and let the server know it. */
  #askAs(type) {
    if (this.requestId && document.body.dataset.feedback === "on")
      api.feedback({ request_id: this.requestId, question_type: type }).catch(() => {}); // the answer matters more
    this.again(type);
  }

  #end(answer) {
    this.answer = answer;
    this.status("");
    this.part(".way h4").textContent = "How it was answered";
    this.#cite([]);
    this.#caution(cautionOf(answer));
    this.part(".main .fallback").textContent = `On the way: ${answer.fallback}.`;
    show(this.part(".main .fallback"), Boolean(answer.fallback));
    this.part(".cost").textContent = `${costOf(answer.usage)} · ${seconds(answer.seconds)}`;
    this.part(".steps ol").replaceChildren(...stepItems(answer.steps, costOfStep));
    for (const name of [".cost", ".actions", ".steps"]) show(this.part(name));
  }

  /** Load the supporting sentences; the answer is shown even if this fails. */
  async #support() {
    const cited = citedBy(this.answer);
    if (!cited.length) return;
    try {
      const support = await api.support(this.question, this.answer.answer, cited);
      this.hear({ name: "support", values: { support } });
    } catch (error) {
      if (!(error instanceof api.Failure)) throw error;
    }
  }

  #cite(support) {
    this.part(".text").replaceChildren(...paragraphs(this.answer, support));
    this.part(".sources ol").replaceChildren(...sources(this.answer, support));
    show(this.part(".sources"), this.answer.citations.length > 0);
  }

  #fail(error) {
    if (!(error instanceof api.Failure)) throw error;
    this.status("");
    this.part(".problem").textContent = error.message;
    const wait = error.retryAfter;
    this.part(".advice").textContent = wait ? `It is worth asking again in ${count(wait, "second")}.` : "";
    show(this.part(".failure"));
    if (error.status === 401) this.onRefused();
  }

  #offer() {
    this.part(".copy-curl").onclick = () => snippets.copy(snippets.curl(asked(this)));
    this.part(".copy-python").onclick = () => snippets.copy(snippets.python(asked(this)));
    this.part(".check-coverage").onclick = () => this.#checkCoverage();
    show(this.part(".thumbs"), document.body.dataset.feedback === "on");
    const form = this.part(".correction");
    this.part(".up").onclick = () => this.#rate("up");
    this.part(".down").onclick = () => {
      show(form);
      form.querySelector("textarea").focus();
    };
    form.onsubmit = (event) => {
      event.preventDefault();
      this.#rate("down", form.querySelector("textarea").value.trim());
    };
  }

  async #checkCoverage() {
    const [pressed, section] = [this.part(".check-coverage"), this.part(".coverage")];
    pressed.disabled = true;
    show(section);
    section.replaceChildren(element("p", { className: "soft" }, "Looking for what a full answer would cover"));
    try {
      section.replaceChildren(...coverageOf(await api.coverage(this.question, this.answer.answer, this.program)));
    } catch (error) {
      if (!(error instanceof api.Failure)) throw error;
      section.replaceChildren(element("p", {}, error.message));
    } finally {
      pressed.disabled = false;
    }
  }

  async #rate(rating, correction = "") {
    const about = { request_id: this.requestId, rating, correction };
    const thanks = this.part(".thanks");
    try {
      await api.feedback(about);
      this.part(".up").ariaPressed = String(rating === "up");
      this.part(".down").ariaPressed = String(rating === "down");
      show(this.part(".correction"), false);
      thanks.textContent = "Thank you; this is kept.";
    } catch (error) {
      if (!(error instanceof api.Failure)) throw error;
      thanks.textContent = error.message;
      if (error.status === 404) for (const name of [".thumbs", ".correction"]) show(this.part(name), false);
    }
    show(thanks);
  }
}

/** The body of a request for an answer. */
const asked = ({ question, program, type }) => ({ question, program, ...(type && { question_type: type }) });

const costOfStep = (step) =>
  [step.seconds ? seconds(step.seconds) : "", step.usage.lm_calls ? costOf(step.usage) : ""].filter(Boolean).join(" · ");
