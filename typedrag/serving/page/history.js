/** What was asked in this visit: kept by the browser until the tab is closed. */

import { button, element, show } from "./dom.js";

const PLACE = "typedrag-history";
const MOST = 20;

/** All that was asked, the latest first: a question, and a record of each answer to it. */
export const asked = () => JSON.parse(sessionStorage.getItem(PLACE) ?? "[]");

/** Add what was asked; where there is no room, what is oldest is forgotten. */
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

/** List all that was asked; `again` is called with what is chosen. */
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
