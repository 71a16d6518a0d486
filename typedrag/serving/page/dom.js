/** Elements of the page. Whatever a question, an answer or a passage says is set as text, never as HTML. */

/** An element with properties, and children that are elements or text; those that are null are left out. */
export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** A button that does something. */
export function button(text, properties, onclick) {
  return element("button", { type: "button", ...properties, onclick }, text);
}

/** A copy of what a template holds. */
export function copyOf(template) {
  return document.getElementById(template).content.firstElementChild.cloneNode(true);
}

/** Show an element where something holds, and hide it where not. */
export function show(shown, holds = true) {
  shown.hidden = !holds;
}

/** Tell who cannot see the page what has just happened on it. */
export function announce(text) {
  document.getElementById("announcer").textContent = text;
}

/** Open a dialog, which Escape and its button close, and from which the focus goes back to where it was. */
export function open(dialog) {
  dialog.querySelector(".close").onclick = () => dialog.close();
  dialog.showModal();
}
