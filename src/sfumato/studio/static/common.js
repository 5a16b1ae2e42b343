// Everything the pages share: elements made from text alone, requests, and the spec with its version.

import { post, request } from "./key.js";
import { chooseLanguage, numberMarks, pageLanguage, speakPage, spoken, staysEnglish, takeWords } from "./language.js";

export { post, spoken };
export const $ = (id) => document.getElementById(id);

/** An element; texts become text, never markup. */
export function h(tag, props, ...kids) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "aria-label") made.setAttribute(key, spoken(value));
    else if (key in made && key !== "list" && key !== "role") made[key] = value;
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...texts(kids.flat().filter((k) => k !== null && k !== undefined && k !== false)));
  return made;
}

const texts = (kids) => kids.map((kid) => (kid instanceof Node ? kid : spoken(kid)));

export function fill(place, ...kids) {
  place.replaceChildren(...texts(kids.flat().filter((k) => k !== null && k !== undefined)));
  return place;
}

/** Texts that people read; what they typed is never among them. */
export const setText = (place, text) => { place.textContent = spoken(text); };

export function say(text) { setText($("status"), text); }

export function complain(text) {
  const place = $("problem");
  place.hidden = !text;
  setText(place, text || "");
}

/** What is wrong with what was typed, said at its field; with no text nothing is. */
export function refuse(field, text) {
  const id = `${field.id}-refused`;
  $(id)?.remove();
  field.toggleAttribute("aria-invalid", Boolean(text));
  if (!text) { field.removeAttribute("aria-describedby"); return; }
  field.setAttribute("aria-invalid", "true");
  field.setAttribute("aria-describedby", id);
  field.closest("label").insertAdjacentElement("afterend", h("p", { id, className: "problem refused", role: "alert" }, text));
}

/** Run something that asks the server; what is refused is said, and the place is busy meanwhile. */
export async function attempt(place, work, tell = complain) {
  place?.setAttribute("aria-busy", "true");
  try {
    const found = await work();
    tell("");
    return found;
  } catch (error) {
    tell(error.message);
    return null;
  } finally {
    place?.removeAttribute("aria-busy");
  }
}

const waiting = new Set();
/** Do something a moment after the last keystroke in one field; what waits is done before the page is left. */
export function later(work, wait = 300) {
  let timer;
  let given;
  const now = () => {
    clearTimeout(timer);
    if (waiting.delete(now)) work(...given);
  };
  return (...fresh) => {
    given = fresh;
    waiting.add(now);
    clearTimeout(timer);
    timer = setTimeout(now, wait);
  };
}

let named = null;
/** What people called things, which no language changes: columns, labels, parts of the questions, releases. */
function givenNames(shown) {
  if (!named || named.version !== shown.version || named.header !== shown.header) {
    const { schema = {}, measures = {}, queries = [] } = shown.spec ?? {};
    const values = Object.values(schema).flatMap(({ values: held }) => (Array.isArray(held) ? held : Object.entries(held ?? {}).flat()));
    const about = (shown.attributes ?? shown.release?.attributes ?? []).flatMap((a) => [a.name, ...(a.labels ?? [])]);
    const parts = Array.isArray(queries) ? queries.map((q) => q.name) : [];
    const all = [...Object.keys(schema), ...Object.keys(measures), ...values, ...parts, ...about, ...(shown.header ?? []), ...(shown.shelf ?? [])];
    named = { version: shown.version, header: shown.header, all: new Set(all.map(String)) };
  }
  return named.all;
}

/** What this page shows; where it cannot be had, the page says why and does nothing more. */
async function shown() {
  try {
    const found = await post("page", { step: location.pathname.slice(1), query: Object.fromEntries(new URLSearchParams(location.search)), language: pageLanguage() });
    $("file").textContent = found.file;
    takeWords(found.words, () => givenNames(found.data));
    speakPage(pageLanguage());
    setTimeout(() => document.querySelector("main").removeAttribute("aria-busy")); // once the page's script has run
    return found.data;
  } catch (error) {
    document.querySelector("main").removeAttribute("aria-busy");
    complain(error.message);
    return new Promise(() => {});
  }
}
export const data = await shown();

$("ui-language").value = pageLanguage();
$("ui-language").addEventListener("change", (event) => { chooseLanguage(event.target.value); location.reload(); });

/** The button that takes back the last change, where the page has one. */
const undoable = () => { if ($("take-back")) $("take-back").disabled = !data.undoable; };
undoable();
$("take-back")?.addEventListener("click", async () => {
  for (const now of [...waiting]) now();
  await line;
  if (await attempt($("take-back"), () => post("undo", { version: data.version }))) location.reload();
});

/** How the payment that runs stands. */
export const payment = async () => (await request("/job")).json();

/** A file of the server's: a link alone would not carry the key. */
async function download(link) {
  const answer = await request(link.getAttribute("href"));
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error || "this was refused");
  const named = /filename\*=utf-8''([^;]+)/i.exec(answer.headers.get("content-disposition") ?? "");
  const plain = /filename="([^"]+)"/i.exec(answer.headers.get("content-disposition") ?? "");
  const address = URL.createObjectURL(await answer.blob());
  h("a", { href: address, download: named ? decodeURIComponent(named[1]) : plain?.[1] ?? "sfumato" }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

let line = Promise.resolve();
let unsaved = 0;
document.addEventListener("click", async (event) => {
  const link = event.target.closest?.("a[href^='/']");
  if (link?.hasAttribute("download")) {
    event.preventDefault();
    await attempt(link, () => download(link));
    return;
  }
  if (!link || (waiting.size === 0 && unsaved === 0)) return;
  event.preventDefault();
  for (const now of [...waiting]) now();
  await line;
  location.assign(link.href);
});
window.addEventListener("pagehide", () => { for (const now of [...waiting]) now(); });

/**
 * Write changes to the spec, one after another; `then` sees the state that they lead to. `sure` is a field, the place
 * `about` that it writes, and the conditions in it: what is wrong there is said at the field, and the spec stays.
 */
export function change(changes, then, sure) {
  for (const now of [...waiting]) now(); // in the order in which they were typed
  unsaved += 1;
  line = line.then(() => attempt(null, async () => {
    say("Saving…");
    Object.assign(data, { at: null }, await post("change", { version: data.version, changes, ...(sure ? { about: sure.about, conditions: sure.conditions ?? [] } : {}) }));
    say("Saved in the spec.");
    undoable();
    then?.();
    return true;
  }, sure && ((text) => refuse(sure.field, text && `${text}. The spec keeps what it had.`)))).then((done) => { unsaved -= 1; if (!done) say(""); });
  return line;
}

export const number = (text) => ({ number: String(text).trim() });

const words = new Intl.NumberFormat("en-US");
const three = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 3 });
export const count = (value) => (value === null || value === undefined ? "–" : words.format(value));
/** Three figures, as an error is told. */
export const size = (value) =>
  value === null || value === undefined ? "–" : Math.abs(value) >= 1000 ? words.format(Math.round(value)) : three.format(value);

/** A table of texts; numbers stand to the right. */
export function listing(columns, rows, { caption, numeric } = {}) {
  const right = (i) => (numeric ? numeric[i] : false);
  const head = h("tr", {}, columns.map((c, i) => h("th", { scope: "col", className: right(i) ? "n" : "" }, c)));
  const body = rows.map((row) => h("tr", {}, row.map((cell, i) =>
    h("td", { className: right(i) ? "n" : "t" }, cell instanceof Node ? cell : String(cell)))));
  return h("table", {}, caption ? h("caption", {}, caption) : null, h("thead", {}, head), h("tbody", {}, body));
}

export const scrolled = (label, ...kids) => h("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": label }, ...kids);

const LINES = 400; // of a table on a page; files and exports have all
const cellOf = (value) => value === null ? "–" : typeof value !== "number" ? value : Math.abs(value) < 1000 ? `${Number(value.toPrecision(4))}` : words.format(Math.round(value));

const ELSEWHERE = "More of it, in English, is in the report that sfumato report --language en writes.";
/**
 * What the server describes, as elements; `draw` makes one of a chart, below which its numbers are folded away. Of `technical`
 * facts those that stay English are left out of pages in other languages, as reports leave them out, and that is said.
 */
export function described(found, draw, technical = false) {
  const titled = (title, ...kids) => [title ? h("h3", {}, title) : null, ...kids];
  const facts = (rows) => h("dl", { className: "facts" }, rows.flatMap(([k, v]) => [h("dt", {}, k), h("dd", {}, v)]));
  const sentences = (texts, quiet) => texts.map((t) => h("p", { className: quiet ? "quiet" : "" }, t));
  const kinds = {
    facts: (b) => {
      const rows = technical ? b.rows.filter((row) => !row.some(staysEnglish)) : b.rows;
      const rest = rows.length < b.rows.length ? sentences([ELSEWHERE], true) : [];
      return titled(b.title, ...sentences(rows.filter(([k]) => !k).map(([, v]) => v)), facts(rows.filter(([k]) => k)), ...rest);
    },
    figures: (b) => h("dl", { className: "figures" }, b.rows.map(([k, v, small]) => h("div", {}, h("dt", {}, k), h("dd", {}, v, small ? h("small", {}, small) : null)))),
    sentences: (b) => titled(b.title, b.listed ? h("ul", {}, b.texts.map((t) => h("li", {}, t))) : sentences(b.texts, b.quiet)),
    warnings: (b) => h("div", { className: "note careful", role: "note" }, b.title ? h("p", {}, h("strong", {}, b.title), ` ${b.before}`) : null,
      h("ul", {}, b.texts.map((t) => h("li", {}, t))), b.after ? h("p", { className: "quiet" }, b.after) : null),
    table: (b) => {
      const numeric = b.columns.map((c, i) => b.numbers.includes(c) || b.rows.every((row) => typeof row[i] === "number" || row[i] === null));
      const kept = b.columns.map((_, i) => i).filter((i) => b.rows.some((row) => row[i] !== ""));
      const rows = b.rows.slice(0, LINES).map((row) => kept.map((i) => cellOf(row[i])));
      const table = listing(kept.map((i) => (numberMarks() ? b.columns[i].replaceAll("_", " ") : b.columns[i])), rows, { caption: b.title || null, numeric: kept.map((i) => numeric[i]) });
      const shown = scrolled(b.label || b.title || found.headline || "Table", table);
      return draw && found.blocks.some((o) => o.type === "chart" && o.name === "shown") ? h("details", {}, h("summary", {}, "As numbers"), shown) : shown;
    },
    bars: (b) => facts(b.rows.map((r) => [r.name, `${r.shown} ${r.note}`])),
    chart: (b) => h("figure", {}, titled(b.title, b.caption ? h("figcaption", {}, b.caption) : null, draw ? draw(b.spec, b.title || b.caption || found.headline) : null)),
    code: (b) => h("pre", { tabIndex: 0 }, b.text),
    description: (b) => h("details", {}, h("summary", {}, b.headline), described(b, draw, technical)),
  };
  return found.blocks.map((b) => kinds[b.type](b)).flat(2);
}

/** Amounts of a ledger with every digit, folded away. */
export const toTheLastDigit = (rows) => (rows.length
  ? h("details", {}, h("summary", {}, "To the last digit"), h("dl", { className: "facts" }, rows.flatMap(([k, v]) => [h("dt", {}, k), h("dd", {}, v)]))) : null);

export function options(select, values, chosen) {
  fill(select, values.map(([value, text]) => h("option", { value, selected: value === chosen }, text)));
  return select;
}

/** A bar of shares, drawn without styles: spent, this, left. */
export function bar(parts, label) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  made.setAttribute("class", "bar");
  made.setAttribute("role", "img");
  made.setAttribute("aria-label", spoken(label));
  made.setAttribute("viewBox", "0 0 1000 24");
  made.setAttribute("preserveAspectRatio", "none");
  let start = 0;
  for (const [share, kind] of parts) {
    const width = Math.max(0, Math.min(1000 - start, 1000 * share));
    const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    for (const [k, v] of Object.entries({ x: start, y: 0, width, height: 24, class: kind })) rect.setAttribute(k, v);
    made.append(rect);
    start += width;
  }
  return made;
}

/** What the budget fields of a form say, and which of them are shown. */
export function budgetOf(kind, parameter, delta) {
  const names = { approx: "epsilon", pure: "epsilon", zcdp: "rho", gdp: "mu" };
  return { [names[kind]]: parameter.trim(), ...(kind === "approx" ? { delta: delta.trim() } : {}) };
}

export function budgetFields() {
  const letters = { approx: "ε", pure: "ε", zcdp: "ρ", gdp: "μ" };
  $("parameter-name").textContent = letters[$("kind").value];
  $("delta-field").hidden = $("kind").value !== "approx";
}
