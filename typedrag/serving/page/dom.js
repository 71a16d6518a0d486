/** Elements of the page. Questions, answers and passages are set as text, never as HTML. */

/** An element with properties and children, which are elements or text; null ones are left out. */
export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** A button that does something. */
export function button(text, properties, onclick) {
  return element("button", { type: "button", ...properties, onclick }, text);
}

/** A copy of a template's content. */
export function copyOf(template) {
  return document.getElementById(template).content.firstElementChild.cloneNode(true);
}

/** Show an element if a condition holds, else hide it. */
export function show(shown, holds = true) {
  shown.hidden = !holds;
}

/** Announce a change to screen readers. */
export function announce(text) {
  document.getElementById("announcer").textContent = text;
}

/** Open a dialog; Escape or its button closes it and returns the focus. */
export function open(dialog) {
  dialog.querySelector(".close").onclick = () => dialog.close();
  dialog.showModal();
}
