/** The page's words for numbers, question types and kinds of answers. */

const ABOUT = {
  "evidence-based": "asks what something is, how it works or what is known about it",
  comparison: "asks how things differ, what they share, or which is better",
  experience: "asks for advice, or what people have lived through",
  reason: "asks why something is so or happens",
  instruction: "asks how to do something, step by step",
  debate: "asks for a judgement on which people disagree",
  factoid: "asks for one fact: a name, a date, a place, a number",
  "not-a-question": "asks nothing that could be looked up",
};

/** The names of the question types. */
export const TYPES = Object.keys(ABOUT);

/** What is said of a type that is unsure. */
export const TYPE_UNSURE = "perhaps: the type is unsure, so it was answered like any question. Is it another?";

/** The type of a question as a title: "Reason". */
export const titleOf = (type) => type.charAt(0).toUpperCase() + type.slice(1).replaceAll("-", " ");

/** The description of a question type; empty if the type is unknown. */
export const aboutType = (type) => ABOUT[type] ?? "";

/** A number of things: "1 passage", "2,100 tokens". */
export const count = (number, thing) => `${number.toLocaleString("en")} ${thing}${number === 1 ? "" : "s"}`;

/** A duration: "40 ms", "1.4 s", "12 s", "2 min 5 s". */
export function seconds(number) {
  if (number < 1) return `${Math.round(number * 1000)} ms`;
  if (number < 10) return `${number.toFixed(1)} s`;
  const whole = Math.round(number);
  return whole < 60 ? `${whole} s` : `${Math.floor(whole / 60)} min ${whole % 60} s`;
}

/** The cost of an answer or a step: LM calls and tokens. */
export function costOf(usage) {
  const tokens = usage.prompt_tokens + usage.completion_tokens;
  const untold = usage.uncounted ? ` without those of ${count(usage.uncounted, "call")}, which are not told` : "";
  return `${count(usage.lm_calls, "LM call")} · ${count(tokens, "token")}${untold}`;
}

/** The beginning of a text, with dots if there is more. */
export const beginning = (text, most) => (text.length > most ? `${text.slice(0, most).trimEnd()} …` : text);

/** The mark of an answer that no passage supports. */
export const FROM_KNOWLEDGE = [
  "Not from the collection.",
  "This is what the language model knows; no passage supports it.",
];

/** The caution to show with an answer: a word and a sentence; null if there is none. */
export function cautionOf(answer) {
  if (answer.answered === "nothing") return ["Not answered.", "The collection holds no answer to this question."];
  if (answer.answered === "knowledge") return FROM_KNOWLEDGE;
  if (!answer.citations.length) return ["No sources.", "The answer names no passage that it is from."];
  return null;
}
