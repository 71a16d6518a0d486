/** The questions of this visit, kept by the browser until the tab is closed. */

import { button, element, show } from "./dom.js";

const PLACE = "typedrag-history";
const MOST = 20;

/** All questions, the latest first, each with the records of its answers. */
export const asked = () => JSON.parse(sessionStorage.getItem(PLACE) ?? "[]");

/** Add a question; if there is no room, the oldest ones are dropped. */
export function remember(question, records) {
  let entries = [{ question, records }, ...asked()].slice(0, MOST);
  while (entries.length) {
    try {
      sessionStorage.setItem(PLACE, JSON.stringify(entries));
      break;
    } catch {
      entries = entries.slice(0, -1);
    }
  }
}

/** List all questions; `again` is called with the chosen one. */
export function listAsked(nav, again) {
  const entries = asked();
  const item = (entry) => {
    const programs = entry.records.map((record) => record.program).join(", ");
    return element(
      "li",
      {},
      button(entry.question, { className: "earlier" }, () => again(entry)),
      " ",
      element("span", { className: "soft" }, programs),
    );
  };
  nav.querySelector("ol").replaceChildren(...entries.map(item));
  show(nav, entries.length > 0);
}
