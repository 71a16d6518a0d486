/** What the page says of numbers, types and ways to answer. */

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

/** The type of a question as a title: "Reason". */
export const titleOf = (type) => type.charAt(0).toUpperCase() + type.slice(1).replaceAll("-", " ");

/** What a question of a type asks for; empty if the type is not known here. */
export const aboutType = (type) => ABOUT[type] ?? "";

/** A number of things: "1 passage", "2,100 tokens". */
export const count = (number, thing) => `${number.toLocaleString("en")} ${thing}${number === 1 ? "" : "s"}`;

/** Seconds as people say them: "40 ms", "1.4 s", "12 s", "2 min 5 s". */
export function seconds(number) {
  if (number < 1) return `${Math.round(number * 1000)} ms`;
  if (number < 10) return `${number.toFixed(1)} s`;
  const whole = Math.round(number);
  return whole < 60 ? `${whole} s` : `${Math.floor(whole / 60)} min ${whole % 60} s`;
}

/** What an answer or a step cost: LM calls and tokens. */
export function costOf(usage) {
  const tokens = usage.prompt_tokens + usage.completion_tokens;
  const untold = usage.uncounted ? ` without those of ${count(usage.uncounted, "call")}, which are not told` : "";
  return `${count(usage.lm_calls, "LM call")} · ${count(tokens, "token")}${untold}`;
}

/** The beginning of a text, with dots if there is more. */
export const beginning = (text, most) => (text.length > most ? `${text.slice(0, most).trimEnd()} …` : text);

/** How an answer is marked that no passage supports. */
export const FROM_KNOWLEDGE = [
  "Not from the collection.",
  "This is what the language model knows; no passage supports it.",
];

/** How an answer is marked that a reader must not take for what the collection says: a word and a sentence. */
export function cautionOf(answer) {
  if (answer.answered === "nothing") return ["Not answered.", "The collection holds no answer to this question."];
  if (answer.answered === "knowledge") return FROM_KNOWLEDGE;
  if (!answer.citations.length) return ["No sources.", "The answer names no passage that it is from."];
  return null;
}
