/** The tree of a question's sub-queries, which grows while the question is answered. */

import { element, show } from "./dom.js";
import { passageButton } from "./passages.js";
import { beginning, count } from "./words.js";

const fold = (text) => text.trim().replace(/\s+/g, " ").toLowerCase();

/** A query, with the passages read for it and its answer. */
class Node {
  constructor(query, label) {
    this.query = query;
    this.nodes = new Map();
    this.passages = new Map();
    this.state = element("span", { className: "state" });
    this.said = element("div", { className: "said" });
    this.list = element("ul", { className: "passages" });
    this.unread = element("p", { className: "unread soft", hidden: true });
    const summary = element("summary", {}, element("span", { className: "query" }, label), " ", this.state);
    this.below = element("ul", { className: "below" });
    this.item = element(
      "li",
      { className: "node" },
      element("details", {}, summary, element("div", { className: "folded" }, this.said, this.list, this.unread)),
      this.below,
    );
    this.is("new", "");
  }

  is(state, words) {
    this.item.dataset.state = state;
    this.state.textContent = words;
  }

  say(text, className = "") {
    this.said.append(element("p", { className }, text));
  }

  get underWay() {
    return ["new", "searching", "reading"].includes(this.item.dataset.state);
  }

  read(passages) {
    for (const passage of passages) {
      if (this.passages.has(passage.id)) continue;
      this.passages.set(passage.id, passage);
      this.list.append(element("li", {}, passageButton(passage, { place: "Passage" })));
    }
  }

  child(query, label) {
    const key = fold(query);
    if (!this.nodes.has(key)) {
      this.nodes.set(key, new Node(query, label));
      this.below.append(this.nodes.get(key).item);
    }
    return this.nodes.get(key);
  }
}

/** The tree, within a list element. */
export class Tree {
  constructor(list, question) {
    this.question = question;
    this.root = new Node(question, "The question itself");
    this.read = new Map();
    list.replaceChildren(this.root.item);
  }

  /** Add an event. */
  add({ name, values }) {
    const node = this.#of(values.part);
    if (name === "searched") for (const query of values.queries) this.#of(query, node).is("searching", "searching");
    if (name === "read") this.#reads(node, values.passages);
    if (name === "sub_answer") this.#answers(node, values.sub_answer);
    if (name === "step") this.#ends(node, values.step);
    if (name === "answer") this.#settle(values.answer);
  }

  /** Mark unfinished queries as stopped. */
  giveUp(node = this.root) {
    if (node.underWay) node.is("silent", "not finished");
    for (const below of node.nodes.values()) this.giveUp(below);
  }

  /** The node of a query, created if new; a query that begins with the question is shown without it. */
  #of(query, above = this.root) {
    if (!query || fold(query) === fold(above.query)) return above;
    const rest = fold(query).startsWith(fold(above.query)) ? query.trim().slice(above.query.trim().length).trim() : query;
    return above.child(rest || query, rest || query);
  }

  #reads(node, passages) {
    node.read(passages);
    for (const passage of passages) this.read.set(passage.id, passage);
    node.is("reading", passages.length ? `reading ${count(passages.length, "passage")}` : "answering without passages");
  }

  #answers(node, sub) {
    if (sub.perspective) node.say(sub.perspective, "perspective");
    node.say(sub.answer);
    const from = sub.answered === "passages" ? `from ${count(sub.passage_ids.length, "passage")}` : "not from the collection";
    node.is("answered", `answered ${from}`);
  }

  #ends(node, step) {
    if (step.name === "fallback") node.say(step.output, "fallback");
    if (step.name === "answer" && step.output === "not answered" && node !== this.root) node.is("silent", "not answered");
    if (step.name === "decompose" || step.name === "sub-queries")
      for (const dropped of step.dropped) node.say(`Left out: ${beginning(dropped, 200)}`, "dropped soft");
  }

  /** Show the passages found, at the end: only then is it known which query found which. */
  #settle(answer) {
    for (const passage of answer.passages) this.read.set(passage.id, passage);
    this.#found(answer.steps, this.root);
    const cited = answer.citations.length ? `, ${answer.citations.length} cited` : "";
    const state = answer.answered === "nothing" ? "silent" : "answered";
    this.root.is(state, answer.passages.length ? `${count(answer.passages.length, "passage")} read${cited}` : "no passages");
  }

  #found(steps, above) {
    for (const step of steps) {
      if (step.name === "sub-query") this.#outcome(this.#of(step.input, above), step);
      else if (step.name === "retrieve") {
        const searches = step.steps.length ? step.steps : [step];
        for (const search of searches) this.#finds(this.#of(search.input, above), search.passage_ids);
      } else this.#found(step.steps, above);
    }
  }

  #outcome(node, step) {
    this.#found(step.steps, node);
    if (["answered", "silent"].includes(node.item.dataset.state)) return;
    node.say(step.output);
    node.is("silent", "not answered");
  }

  #finds(node, ids) {
    const known = ids.filter((id) => this.read.has(id));
    node.read(known.map((id) => this.read.get(id)));
    const unread = ids.filter((id) => !node.passages.has(id)).length;
    node.unread.textContent = `${count(unread, "passage")} found and not read`;
    show(node.unread, unread > 0);
    if (node.underWay) node.is("found", count(ids.length, "passage"));
  }
}

/** The steps of an answer as nested lists. */
export function stepItems(steps, tell) {
  return steps.map((step) =>
    element(
      "li",
      {},
      element("strong", {}, step.name),
      ` ${beginning(step.output || step.input, 160)}`,
      element("span", { className: "soft" }, ` ${tell(step)}`),
      step.steps.length ? element("ol", {}, ...stepItems(step.steps, tell)) : null,
    ),
  );
}
