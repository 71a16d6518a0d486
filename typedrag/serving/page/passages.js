/** Passages, and their sentences that support an answer. */

import { button, element, open, show } from "./dom.js";

const MARKED_FOR_SENTENCE = "Marked is the sentence that has most words in common with it.";
const MARKED_FOR_ANSWER = "Marked are the sentences that sentences of the answer have most words in common with.";

/** Open a passage.
 *  place: what stands above it, such as "Source 1 of 3".
 *  claim: the sentence of the answer that it is opened for; empty if it is none in particular.
 *  marked: its sentences that support that. */
export function openPassage(passage, { place = "", claim = "", marked = [] } = {}) {
  const dialog = document.getElementById("passage");
  const part = (name) => dialog.querySelector(name);
  part(".place").textContent = [place, passage.id].filter(Boolean).join(" · ");
  part("h2").textContent = passage.title || "Passage";
  part("q").textContent = claim;
  show(part(".claim"), Boolean(claim));
  part(".how").textContent = claim ? MARKED_FOR_SENTENCE : MARKED_FOR_ANSWER;
  show(part(".how"), marked.length > 0);
  part(".text").replaceChildren(...withMarks(passage.text, marked));
  open(dialog);
  dialog.scrollTop = 0;
}

/** The answer as paragraphs, each sentence followed by the numbers of the passages that support it. */
export function paragraphs(answer, support) {
  const cited = citedBy(answer);
  const made = [element("p")];
  const write = (text) =>
    text.split(/\n+/).forEach((line, index) => {
      if (index && made.at(-1).hasChildNodes()) made.push(element("p"));
      if (line) made.at(-1).append(line);
    });
  let at = 0;
  for (const [sentence, supports] of Map.groupBy(support, (one) => one.sentence)) {
    const begin = answer.answer.indexOf(sentence, at);
    if (begin < 0) continue;
    write(answer.answer.slice(at, begin));
    made.at(-1).append(element("span", { className: "cited" }, sentence));
    for (const [index, passage] of cited.entries()) {
      const marked = supports.filter((one) => one.passage_id === passage.id).map((one) => one.passage_sentence);
      if (!marked.length) continue;
      const about = { place: `Source ${index + 1} of ${cited.length}`, claim: sentence, marked };
      const named = { className: "cite", ariaLabel: `Source ${index + 1}: ${titleOf(passage)}`, ariaHasPopup: "dialog" };
      made.at(-1).append(button(String(index + 1), named, () => openPassage(passage, about)));
    }
    at = begin + sentence.length;
  }
  write(answer.answer.slice(at));
  return made;
}

/** The passages that an answer cites, as items of a list. */
export function sources(answer, support) {
  const cited = citedBy(answer);
  return cited.map((passage, index) => {
    const marked = support.filter((one) => one.passage_id === passage.id).map((one) => one.passage_sentence);
    const place = `Source ${index + 1} of ${cited.length}`;
    return element("li", {}, passageButton(passage, { place, marked }));
  });
}

/** The passages that an answer cites, in the order of its citations. */
export function citedBy(answer) {
  const passages = new Map(answer.passages.map((passage) => [passage.id, passage]));
  return answer.citations.map((id) => passages.get(id)).filter(Boolean);
}

/** A button that opens a passage. */
export function passageButton(passage, about) {
  return button(titleOf(passage), { className: "passage", ariaHasPopup: "dialog" }, () => openPassage(passage, about));
}

const titleOf = (passage) => passage.title || passage.id;

function withMarks(text, marked) {
  const found = [...new Set(marked)]
    .map((sentence) => [text.indexOf(sentence), sentence])
    .filter(([at]) => at >= 0)
    .sort(([one], [other]) => one - other);
  const pieces = [];
  let at = 0;
  for (const [begin, sentence] of found) {
    pieces.push(text.slice(at, begin), element("mark", {}, sentence));
    at = begin + sentence.length;
  }
  return [...pieces, text.slice(at)];
}
