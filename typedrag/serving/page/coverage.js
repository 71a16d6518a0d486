/** The sub-questions that an answer covers, as elements of the page. */

import { element } from "./dom.js";
import { costOf } from "./words.js";

/** The elements that show a check. */
export function coverageOf({ sub_questions: all, usage }) {
  const core = all.filter((one) => one.type === "core");
  const others = all.filter((one) => one.type !== "core");
  const covered = (some) => some.filter((one) => one.covered).length;
  const made = [
    element("h4", {}, "What a full answer would cover"),
    element("p", {}, `${covered(core)} of ${core.length} core sub-questions are covered.`),
    listOf(core),
  ];
  if (others.length) {
    const summary = `${covered(others)} of ${others.length} others are covered`;
    made.push(element("details", {}, element("summary", {}, summary), listOf(others)));
  }
  return [...made, element("p", { className: "soft" }, costOf(usage))];
}

function listOf(some) {
  const item = ({ text, type, covered }) => {
    const said = covered ? "covered" : "not covered";
    const about = type === "core" ? said : `${type}, ${said}`;
    const made = element("li", {}, text, " ", element("span", { className: "state" }, about));
    made.dataset.covered = String(covered);
    return made;
  };
  return element("ul", { className: "covered" }, ...some.map(item));
}
