/* A field above the tables of config keys and environment variables hides the rows that lack its words. */
document.addEventListener("DOMContentLoaded", () => {
  const article = document.querySelector(".md-content article");
  if (!article || !/reference\/(config|environment)\.html$/.test(location.pathname)) return;
  const field = document.createElement("input");
  Object.assign(field, { type: "search", className: "filter", placeholder: "Filter: a command, a key or a word of its meaning" });
  field.setAttribute("aria-label", field.placeholder);
  article.querySelector("h1").after(field);
  let title = "";
  const rows = [];
  for (const element of article.querySelectorAll("h2, h3, tbody tr")) {
    if (element.matches("h2, h3")) title = element.textContent;
    else rows.push([element, `${title} ${element.textContent}`.toLowerCase()]);
  }
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const [row, text] of rows) row.hidden = !words.every((word) => text.includes(word));
    for (const table of article.querySelectorAll("table")) table.hidden = ![...table.tBodies[0].rows].some((row) => !row.hidden);
  });
});
