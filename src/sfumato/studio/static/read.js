// The fifth page: everything that follows from what was measured. All numbers are the server's.

import { $, attempt, data, described, fill, h, listing, options, post, refuse, scrolled, setText, spoken } from "./common.js";
import { complete } from "./completion.js";
import { numberMarks } from "./language.js";
import { doubtOfCondition, marksOf } from "./notation.js";
import { going } from "./talking.js";

const release = data.release;
const name = data.name;

/** A chart with its titles in the language of the page. */
const titled = (spec) => (Array.isArray(spec) ? spec.map(titled) : spec && typeof spec === "object"
  ? Object.fromEntries(Object.entries(spec).map(([k, v]) => [k, k === "title" && typeof v === "string" ? spoken(v) : k === "data" ? v : titled(v)])) : spec);

/** A chart, drawn by expressions that are interpreted; what cannot be drawn is said. */
function chart(spec, label) {
  if (!spec) return null;
  const place = h("div", { className: "chart", role: "img", "aria-label": label });
  const numbers = numberMarks();
  const options = { ...(numbers ? { formatLocale: { ...numbers, grouping: [3], currency: ["", ""] } } : {}), config: data.config, renderer: "svg", actions: false, defaultStyle: false, ast: true, logLevel: 1, tooltip: { disableDefaultStyle: true } };
  queueMicrotask(() => window.vegaEmbed(place, titled(spec), options).then(() => place.setAttribute("aria-label", spoken(label)),
    (reason) => { setText(place, `This chart could not be drawn: ${reason.message}`); }));
  return place;
}

const shown = (place, found, label) => fill(place, described({ ...found, headline: label }, chart));

const answer = (id, work) => $(id).addEventListener("submit", (event) => { event.preventDefault(); work(); });

const listed = (some) => some.map((a) => [a.name, a.shown]);

/** The attributes that were measured together with all of some others; of many attributes all. */
function beside(...names) {
  const chosen = release.attributes.filter((a) => names.includes(a.name));
  return listed(release.attributes.filter((a) => chosen.every((c) => c.beside === null || c.beside.includes(a.name))));
}

/** Offer beside a first attribute what can be answered with it, and keep what was chosen where that is offered still. */
function paired(two, three) {
  const first = $("a1").value;
  const seconds = beside(first);
  options($("a2"), [["", "–"], ...seconds], seconds.some(([n]) => n === two) ? two : "");
  const thirds = $("a2").value ? beside(first, $("a2").value) : [];
  options($("a3"), [["", "–"], ...thirds], thirds.some(([n]) => n === three) ? three : "");
}

/** What a statistic is of: numbers whose distribution follows, or for shares whatever has a table; and within what. */
function measured(of, within) {
  const all = listed(release.attributes.filter((a) => ($("what").value === "share" ? a.table : a.distribution)));
  options($("of"), all, all.some(([n]) => n === of) ? of : all[0]?.[0]);
  const groups = all.length ? beside($("of").value) : [];
  options($("within"), [["", "everybody"], ...groups], groups.some(([n]) => n === within) ? within : "");
}

function readable() {
  const tables = listed(release.attributes.filter((a) => a.table || a.beside?.length));
  const [one, two, three] = release.first.table;
  options($("a1"), tables, one);
  paired(two, three);
  if (!release.attributes.some((a) => a.distribution)) $("what").value = "share";
  measured(release.first.of, "");
  options($("rank-of"), listed(release.attributes.filter((a) => a.table)));
  options($("operation"), Object.entries(release.operations));
  options($("other"), data.shelf.map((n) => [n, n]), name);
  fill($("about"), release.note ? h("p", { className: "note" }, release.note) : null, described(release.about, chart, true));
  const files = [["tables.xlsx", "All tables as a workbook"], ["answers.parquet", "All answers as Parquet"], ["report.html", "The report, one file to pass on"], ["release.json", "The public facts"], ["measurements.npz", "The noisy measurements, which may be published"], ["stream.release", "All that is public of the stream, one file to pass on"]];
  fill($("files"), files.filter(([file]) => release.files.includes(file)).map(([file, text]) => h("li", {}, h("a", { href: `/download/${file}?name=${encodeURIComponent(name)}`, download: "" }, text))));
}

const completed = () => release.attributes.map((a) => ({ name: a.name, labels: a.labels, other: a.other }));

function forms() {
  const asked = [];
  answer("ask", async () => {
    const question = $("question").value.trim();
    const doubt = doubtOfCondition(question, marksOf(data.spec?.data));
    refuse($("question"), doubt);
    const found = question && !doubt && await attempt($("answers"), () => post("ask", { name, question }));
    if (!found) return;
    asked.unshift([found.question, found.value, found.low, found.high, found.error]);
    fill($("answers"), scrolled("Answers", listing(["question", "answer", "from", "to", "standard error"], asked, { numeric: [false, true, true, true, true] })));
  });
  answer("tables", async () => {
    const attributes = [...new Set([$("a1").value, $("a2").value, $("a3").value].filter(Boolean))];
    const found = await attempt($("table"), () => post("table", { name, attributes }));
    if (!found) { fill($("table")); return; } // what stood there is no answer to what the fields say now
    const label = attributes.join(" × ");
    shown($("table"), found, label);
    const query = attributes.map((a) => `&a=${encodeURIComponent(a)}`).join("");
    $("table").append(h("p", {}, h("a", { href: `/download/table.csv?name=${encodeURIComponent(name)}${query}`, download: "" }, `${label} as CSV`)));
  });
  answer("statistics", async () => {
    const within = $("within").value;
    const at = $("at").value.split(",").map(Number);
    const found = await attempt($("statistic"), () => post("statistic", { name, what: $("what").value, attribute: $("of").value, by: within ? [within] : [], at }));
    if (!found) fill($("statistic"));
    else shown($("statistic"), found, `${$("what").selectedOptions[0].textContent} ${spoken("of")} ${$("of").value}${within ? ` ${spoken("within")} ${within}` : ""}`);
  });
  answer("calculator", async () => {
    const found = await attempt($("calculated"), () => post("calculate", { name, other: $("other").value, operation: $("operation").value, a: $("calc-a").value, b: $("calc-b").value }));
    if (!found) { fill($("calculated")); return; }
    const [value, low, high] = found.shown;
    fill($("calculated"), h("p", { className: "result" }, `${value}, with 95 % confidence between ${low} and ${high}`));
    Object.assign($("calculated").dataset, { value: found.value, low: found.low, high: found.high });
  });
  answer("ranking", async () => {
    const found = await attempt($("ranked"), () => post("ranks", { name, attribute: $("rank-of").value }));
    if (!found) fill($("ranked"));
    else shown($("ranked"), found, "Places, which hold together with 95 % confidence");
  });
  $("what").addEventListener("change", () => {
    $("at-field").hidden = $("what").value !== "quantiles";
    measured($("of").value, $("within").value);
  });
  $("of").addEventListener("change", () => measured($("of").value, $("within").value));
  for (const id of ["a1", "a2"]) $(id).addEventListener("change", () => paired($("a2").value, $("a3").value));
  $("show-maps").addEventListener("click", async () => {
    const found = await attempt($("maps"), () => post("maps", { name }));
    if (found) fill($("maps"), described(found, chart));
  });
  $("project").disabled = !release.projectable && !release.projected;
  $("project").addEventListener("click", async () => {
    fill($("projected"), h("progress", { "aria-label": "Projecting" }), h("p", { className: "quiet" }, "This can take a minute, and costs no budget."));
    const found = await attempt($("projected"), () => post("project", { name }));
    fill($("projected"), found ? described(found, chart) : []);
  });
  for (const id of ["question", "calc-a", "calc-b"]) complete($(id), completed);
}

options($("releases"), data.shelf.length ? data.shelf.map((n) => [n, n]) : [["", "none yet"]], name);
$("releases").addEventListener("change", (event) => { location.href = `/read?name=${encodeURIComponent(event.target.value)}`; });
if (data.error) { $("problem").hidden = false; setText($("problem"), data.error); }
if (!data.shelf.length) { $("told").hidden = false; fill($("told"), h("p", {}, "Nothing was released here yet.")); }
if (data.standing) going(data.standing);
if (release?.kind === "told" && data.standing?.kind !== "session") { $("told").hidden = false; fill($("told"), h("p", { className: "note" }, release.note), described(release.about)); }
if (release?.kind === "tables") { $("readable").hidden = false; readable(); forms(); $("tables").hidden = !$("a1").options.length; $("ranking").hidden = !$("rank-of").options.length; if (release.first.table.length) $("tables").requestSubmit(); if (!$("of").options.length) $("statistics").hidden = true; else if (release.first.of) $("statistics").requestSubmit(); }
