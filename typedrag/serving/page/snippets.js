/** A question as a command or a program that asks it. */

import { hasKey } from "./api.js";
import { announce, open } from "./dom.js";

const address = () => new URL("v1/answer", document.baseURI).href;
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** The question as a shell command. */
export function curl(asked) {
  const lines = [`curl ${quoted(address())}`, `-H 'Content-Type: application/json'`];
  if (hasKey()) lines.push(`-H "Authorization: Bearer $TYPEDRAG_API_KEY"`);
  return [...lines, `-d ${quoted(JSON.stringify(asked))}`].join(" \\\n  ");
}

/** The question as Python code; JSON strings are valid Python strings. */
export function python(asked) {
  const key = 'headers={"Authorization": f"Bearer {os.environ[\'TYPEDRAG_API_KEY\']}"},';
  return [
    ...(hasKey() ? ["import os", ""] : []),
    "import httpx",
    "",
    "reply = httpx.post(",
    `    ${JSON.stringify(address())},`,
    `    json={${Object.entries(asked).map(([name, value]) => `"${name}": ${JSON.stringify(value)}`).join(", ")}},`,
    ...(hasKey() ? [`    ${key}`] : []),
    "    timeout=120,",
    ")",
    'print(reply.raise_for_status().json()["answer"])',
  ].join("\n");
}

/** Copy a text; if the browser forbids that, show it to be copied by hand. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    announce("Copied.");
    return true;
  } catch {
    const dialog = document.getElementById("snippet");
    const field = dialog.querySelector("textarea");
    field.value = text;
    open(dialog);
    field.select();
    return false;
  }
}
