"use strict";
(() => {
  const PAGE = 100;
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const controls = Object.fromEntries(
    ["search", "type", "subset", "only", "measure", "order", "of"].map((id) => [id, byId(id)]),
  );
  let shown = [];
  let drawn = 0;

  // Texts are strangers' texts: they only ever become text nodes.
  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children.filter((child) => child !== null && child !== ""));
    return element;
  }

  function number(value) {
    if (value === null || value === undefined) return "-";
    const size = Math.abs(value);
    const places = Number.isInteger(value) || size >= 1000 ? 0 : size >= 10 ? 1 : 3;
    return value.toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places });
  }

  const swatch = (run) => make("span", { class: `swatch s${run % 8}`, "aria-hidden": "true" });
  const badge = (text, kind = "") => make("span", { class: `badge ${kind}` }, text);

  function option(select, value, text = value) {
    select.append(make("option", { value }, text));
  }

  function folded(summary, ...content) {
    return make("details", {}, make("summary", {}, summary), ...content);
  }

  // --- filters ---

  function fillControls() {
    for (const name of ["type", "subset"]) {
      const values = [...new Set(data.questions.map((q) => q[name]).filter(Boolean))];
      for (const value of values) option(controls[name], value);
      controls[name].parentElement.hidden = values.length < 2;
    }
    for (const measure of data.measures) option(controls.measure, measure.name);
    if (data.measure) controls.measure.value = data.measure;
    data.runs.forEach((run, i) => {
      if (i) option(controls.of, String(i), `${run} against ${data.runs[0]}`);
    });
    const single = data.runs.length < 2;
    controls.order.parentElement.hidden = single;
    controls.of.parentElement.hidden = data.runs.length < 3;
  }

  function matches(question) {
    const { search, type, subset, only } = controls;
    const results = question.results.filter(Boolean);
    if (type.value && question.type !== type.value) return false;
    if (subset.value && question.subset !== subset.value) return false;
    if (only.value === "failed" && !results.some((r) => r.error)) return false;
    if (only.value === "fallback" && !results.some((r) => r.answer && r.answer.fallback)) return false;
    if (["nothing", "knowledge"].includes(only.value)) {
      if (!results.some((r) => r.answer && r.answer.answered === only.value)) return false;
    }
    if (only.value === "ungrounded" && !results.some((r) => r.answer && !r.answer.grounded)) return false;
    if (only.value === "judge") {
      const failed = (r) => Object.values(r.metrics).some((m) => m.measurable && m.score === null);
      if (!results.some(failed)) return false;
    }
    const words = search.value.trim().toLowerCase();
    return !words || searchable(question).includes(words);
  }

  function searchable(question) {
    question.searchable ??= [
      question.id,
      question.question,
      ...question.results.map((r) => (r && r.answer ? r.answer.text : "")),
    ].join("\n").toLowerCase();
    return question.searchable;
  }

  function difference(question, run = Number(controls.of.value || 1), measure = controls.measure.value) {
    const values = question.values[measure];
    if (!values || values[0] === null || values[run] === null || values[run] === undefined) return null;
    const { higher } = data.measures.find((m) => m.name === measure);
    return (values[run] - values[0]) * (higher ? 1 : -1);
  }

  function ordered(questions) {
    const keys = { difference: Math.abs, gain: (d) => d, loss: (d) => -d };
    const key = keys[controls.order.value];
    if (!key) return questions;
    const rated = questions.map((question) => {
      const d = difference(question);
      return { question, key: d === null ? -Infinity : key(d) };
    });
    return rated.sort((a, b) => (a.key === b.key ? 0 : b.key - a.key)).map((r) => r.question);
  }

  function update() {
    shown = ordered(data.questions.filter(matches));
    drawn = 0;
    byId("list").replaceChildren();
    byId("count").textContent = `${shown.length} of ${data.questions.length} questions`;
    drawMore();
  }

  function drawMore() {
    const next = shown.slice(drawn, drawn + PAGE);
    drawn += next.length;
    byId("list").append(...next.map(questionRow));
    const more = byId("more");
    more.hidden = drawn >= shown.length;
    more.textContent = `Show ${Math.min(PAGE, shown.length - drawn)} more of ${shown.length - drawn}`;
  }

  // The two biggest gains and the two biggest losses of a run against the first, of questions that all answered.
  function drawMost() {
    const rated = data.questions
      .filter((question) => question.results.every((r) => r && r.answer))
      .map((question) => {
        const all = data.runs.slice(1).map((_, i) => difference(question, i + 1, data.measure) || 0);
        return { question, by: all.reduce((a, b) => (Math.abs(b) > Math.abs(a) ? b : a), 0) };
      })
      .sort((a, b) => b.by - a.by);
    const most = [...rated.filter((r) => r.by > 0).slice(0, 2), ...rated.filter((r) => r.by < 0).slice(-2).reverse()]
      .sort((a, b) => Math.abs(b.by) - Math.abs(a.by));
    byId("answers").hidden = !most.length;
    byId("most").append(...most.map(({ question }) => {
      const row = questionRow(question);
      row.open = true;
      return row;
    }));
  }

  // --- a question ---

  function questionRow(question) {
    const values = question.values[controls.measure.value] || [];
    const row = make(
      "details",
      { class: "question", "data-id": question.id },
      make(
        "summary",
        {},
        make("span", { class: "asked" }, question.question),
        make("span", { class: "about" }, [question.type, question.subset, question.id].filter(Boolean).join(" · ")),
        make(
          "span",
          { class: "values" },
          ...data.runs.map((run, i) =>
            make("span", { title: `${run}, ${controls.measure.value}` },
              swatch(i), make("span", { class: "hidden" }, `${run} `), valueOf(question, i, values)),
          ),
        ),
      ),
    );
    row.addEventListener("toggle", () => {
      if (row.open && !row.querySelector(".panel")) row.append(panel(question));
    });
    return row;
  }

  function valueOf(question, run, values) {
    const result = question.results[run];
    if (result && result.error) return badge("failed", "worse");
    return number(values[run]);
  }

  function panel(question) {
    const found = make(
      "div",
      { class: "panel" },
      make("div", { class: "answers" }, ...question.results.map((r, i) => answerCard(question, r, i))),
    );
    const covered = coverageTable(question);
    if (covered) found.append(covered);
    return found;
  }

  function answerCard(question, result, run) {
    const card = make("article", { class: `answer s${run % 8}` }, make("h3", {}, swatch(run), data.runs[run]));
    if (!result) {
      card.append(make("p", { class: "none" }, "not asked in this run"));
      return card;
    }
    if (!result.answer) {
      card.append(badge("no answer", "worse"), make("p", { class: "text" }, result.error));
      return card;
    }
    const { answer } = result;
    const badges = [];
    if (answer.type) {
      const as = answer.type === question.type ? "" : "warn";
      badges.push(badge(`answered as ${answer.type}`, as));
    }
    if (answer.answered === "knowledge") badges.push(badge("not from the collection", "warn"));
    else if (answer.answered === "nothing") badges.push(badge("not answered", "warn"));
    else if (!answer.grounded) badges.push(badge("cites nothing", "warn"));
    if (answer.fallback) badges.push(badge(`fallback: ${answer.fallback}`, "warn"));
    card.append(
      make("div", { class: "badges" }, ...badges),
      make("p", { class: "text" }, answer.text),
      make("p", { class: "none" }, `${number(answer.calls)} LM calls, ${number(answer.tokens)} tokens, ${answer.seconds.toFixed(1)} s`),
    );
    for (const [name, metric] of Object.entries(result.metrics)) card.append(metricBlock(name, metric));
    card.append(...passageBlocks(answer));
    if (answer.steps.length) {
      card.append(folded("How the answer came about", make("ul", { class: "steps" }, ...answer.steps.map(step))));
    }
    return card;
  }

  function metricBlock(name, metric) {
    if (metric.score === null) {
      const kind = metric.measurable ? "warn" : "";
      const what = metric.measurable ? "judge failed" : "not measurable";
      return make("div", { class: "metric" }, `${name}: `, badge(what, kind), " ", metric.problem);
    }
    const rows = Object.entries(metric.measures).map(([measure, value]) =>
      make("tr", {}, make("th", { scope: "row" }, measure), make("td", { class: "number" }, number(value))));
    const main = Object.entries(metric.measures)[0] || ["score", metric.score];
    const content = [make("table", {}, make("caption", {}, name), make("tbody", {}, ...rows))];
    const { probabilities, labels, ...rest } = metric.details;
    if (probabilities) content.push(rankTable(probabilities, labels || []));
    if (metric.feedback) content.push(make("p", { class: "text" }, metric.feedback));
    if (Object.keys(rest).length) content.push(folded("details", make("p", { class: "text" }, JSON.stringify(rest, null, 1))));
    return folded(`${name}: ${main[0]} ${number(main[1])}`, ...content);
  }

  function rankTable(probabilities, labels) {
    const head = (text) => make("th", { scope: "col", class: "number" }, text);
    const cell = (text) => make("td", { class: "number" }, text);
    return make(
      "table",
      {},
      make("caption", {}, "how probable the judge holds each rank"),
      make("thead", {}, make("tr", {}, head("rank"), head("probability"), head("reference's label"))),
      make("tbody", {}, ...probabilities.map((p, i) =>
        make("tr", {}, cell(String(i + 1)), cell(`${Math.round(p * 100)}%`), cell(i < labels.length ? String(labels[i]) : "-")))),
    );
  }

  function passageBlocks(answer) {
    const cited = new Set(answer.citations);
    const passages = answer.passages.map((place) => data.passages[place]);
    const block = (p) => make("div", { class: "passage" },
      make("h4", {}, p.title ? `${p.title} ` : "", make("span", { class: "none" }, p.id)), make("p", { class: "text" }, p.text));
    const blocks = [];
    for (const [title, found] of [
      ["passages cited", passages.filter((p) => cited.has(p.id))],
      ["passages seen and not cited", passages.filter((p) => !cited.has(p.id))],
    ]) {
      if (found.length) blocks.push(folded(`${found.length} ${title}`, ...found.map(block)));
    }
    return blocks;
  }

  function step(s) {
    const cost = [];
    if (s.calls) cost.push(`${s.calls} LM call${s.calls > 1 ? "s" : ""}, ${number(s.tokens)} tokens`);
    if (s.seconds) cost.push(`${s.seconds.toFixed(1)} s`);
    const inner = (s.steps || []).map(step);
    const item = make("li", {}, make("span", { class: "name" }, s.name), " ", make("span", { class: "cost" }, cost.join(", ")));
    if (s.input) item.append(make("div", {}, s.input));
    if (s.output) item.append(s.output.length > 300 ? folded(`→ ${s.output.slice(0, 120)}…`, make("div", { class: "text" }, s.output)) : make("div", {}, `→ ${s.output}`));
    if (s.passages) item.append(make("div", { class: "ids" }, s.passages.join("  ")));
    for (const dropped of s.dropped || []) item.append(make("div", { class: "dropped" }, `dropped: ${dropped}`));
    if (inner.length) item.append(make("ul", {}, ...inner));
    return item;
  }

  function coverageTable(question) {
    const byRun = question.results.map((r) => (r ? Object.values(r.metrics).flatMap((m) => m.subQuestions) : []));
    const asked = new Map();
    for (const found of byRun) for (const sub of found) asked.set(sub.text, sub.type);
    if (!asked.size) return null;
    const cell = (found, text) => {
      const sub = found.find((s) => s.text === text);
      if (!sub) return make("td", { class: "none" }, "-");
      const passages = sub.retrieved.filter(Boolean).length;
      const said = (yes, words) => make("span", { class: yes ? "yes" : "no" }, yes ? `✓ ${words}` : `✗ not ${words}`);
      return make("td", {}, said(sub.answered, "answered"),
        sub.retrieved.length ? said(passages, `retrieved${passages ? ` (${passages} of ${sub.retrieved.length})` : ""}`) : "",
        sub.invalid ? badge("quoted what is not there", "warn") : "",
        sub.fragment ? make("span", { class: "fragment" }, `“${sub.fragment}”`) : "");
    };
    const order = ["core", "background", "follow-up"];
    const rows = [...asked].sort((a, b) => order.indexOf(a[1]) - order.indexOf(b[1])).map(([text, type]) =>
      make("tr", {}, make("th", { scope: "row" }, text), make("td", {}, type), ...byRun.map((found) => cell(found, text))));
    return make("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": "Sub-questions covered" },
      make("table", { class: "covered" },
        make("caption", {}, "sub-questions covered"),
        make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "sub-question"), make("th", { scope: "col" }, "type"),
          ...data.runs.map((run, i) => make("th", { scope: "col" }, swatch(i), run)))),
        make("tbody", {}, ...rows)));
  }

  // --- the page ---

  byId("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.style.colorScheme
      ? root.style.colorScheme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.style.colorScheme = dark ? "light" : "dark";
  });
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  let typing;
  for (const control of Object.values(controls)) {
    if (control !== controls.search) control.addEventListener("change", update);
  }
  controls.search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(update, 120);
  });
  byId("more").addEventListener("click", drawMore);
  fillControls();
  if (byId("most")) drawMost();
  update();
})();
