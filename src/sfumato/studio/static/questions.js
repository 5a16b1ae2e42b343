// The second page: what is asked, by clicks and conditions. Refusals are those of the spec's own grammar.

import { $, change, complain, data, fill, h, options, refuse, say, setText, spoken } from "./common.js";
import { complete } from "./completion.js";
import { doubtOfCondition, marksOf } from "./notation.js";

const MATRIX = 24; // attributes whose pairs fit a screen
const entries = () => (Array.isArray(data.spec?.queries) ? data.spec.queries : []);
// of a spec whose questions are still missing the server names no attributes: the columns that are declared do
const attributes = () => data.attributes ?? Object.entries(data.columns || {}).filter(([, c]) => c.cells)
  .map(([name, c]) => ({ name, size: c.cells, ordered: ["integer", "number", "date"].includes(data.spec.schema[name].type), summed: ["integer", "number"].includes(data.spec.schema[name].type), labels: listed(data.spec.schema[name].values) }));
const listed = (values) => (values === "discover" ? [] : given(values));
const given = (values) => (Array.isArray(values) ? values.map(String) : Object.values(values || {}));
const measures = () => Object.keys(data.spec?.measures ?? {});
const by = (names) => (names?.length ? ` within ${[].concat(names).join(", ")}` : "");

const levels = (q) => Object.entries(q.factors ?? {}).map(([name, kind]) => (kind === "levels" ? `, at every level of ${name}` : `, of ${name}: ${kind}`)).join("");

const WORDS = {
  marginals: (q) => `all tables of ${q.marginals} attributes`,
  upto: (q) => `all tables of up to ${q.upto} attributes, and the number of records`,
  sets: (q) => `tables: ${q.sets.map((s) => s.join(" × ") || "the number of records").join(" · ")}${levels(q)}`,
  prefix: (q) => `the distribution of ${q.prefix}${by(q.by)}`,
  ranges: (q) => `all ranges of ${q.ranges}${by(q.by)}`,
  windows: (q) => `windows of ${q.width} cells of ${q.windows}${by(q.by)}`,
  hierarchy: (q) => `the tree over ${q.hierarchy}${by(q.by)}`,
  means: (q) => `means of ${[].concat(q.means).join(", ")}${by(q.by)}`,
  moments: (q) => `sums, squares and products of ${[].concat(q.moments).join(", ")}${by(q.by)}`,
  gaps: (q) => `how far ${q.gaps} is from ${[].concat(q.at ?? "its knots").join(", ")}${by(q.by)}`,
  sums: (q) => `sums of ${q.sums}${q.centre ? ` about ${q.centre}` : ""}${q.power === 2 ? ", squared" : ""}${by(q.by)}`,
  identity: (q) => `the table ${[].concat(q.identity).join(" × ")}`,
  total: () => "the number of records",
};

/** Why a list is empty, and what to do. */
const NONE = {
  cdf: "No column has an order: declare one as whole numbers, numbers or dates on the page Table.",
  sums: "No column is declared as whole numbers or numbers, whose cells have middles. Declare one so on the page Table, or as numbers to add up: their means are below. Dates have distributions.",
  means: "No column is declared as numbers to add up: do so on the page Table.",
};

function named(wanted) {
  const taken = new Set(entries().map((q) => q.name));
  let name = wanted;
  for (let i = 2; taken.has(name); i += 1) name = `${wanted} ${i}`;
  return name;
}

const add = (wanted, asked) => change([{ place: ["queries", entries().length], value: { name: named(wanted), ...asked } }], show);

function entry(q, i) {
  const kind = Object.keys(WORDS).find((k) => k in q);
  const wrong = data.at === i;
  const told = "where" in q
    ? h("ul", {}, q.where.map((text, j) => h("li", {}, h("code", {}, text), " ", h("button", {
      type: "button", className: "small", "aria-label": `${spoken("take out")} ${text}`,
      onclick: () => change([q.where.length === 1 ? { place: ["queries", i], value: null } : { place: ["queries", i, "where", j], value: null }], show),
    }, "take out"))))
    : h("p", {}, kind ? WORDS[kind](q) : "asked in the file");
  return h("div", { className: wrong ? "entry wrong" : "entry", role: "group", "aria-label": q.name ?? `question ${i + 1}` },
    h("div", { className: "head" }, h("h3", {}, q.name ?? `(unnamed ${i + 1})`),
      h("button", { type: "button", className: "small", "aria-label": `${spoken("remove")} ${q.name ?? i + 1}`, onclick: () => change([{ place: ["queries", i], value: null }], show) }, "remove")),
    told, wrong ? h("p", { className: "problem" }, data.problem) : null);
}

function clicked(names, on) {
  const i = entries().findIndex((q) => q.name === "tables" && Array.isArray(q.sets));
  if (i < 0) return add("tables", { sets: [names] });
  const same = (s) => s.length === names.length && names.every((n) => s.includes(n));
  const left = on ? [...entries()[i].sets, names] : entries()[i].sets.filter((s) => !same(s));
  return change([left.length ? { place: ["queries", i, "sets"], value: left } : { place: ["queries", i], value: null }], show);
}

function asked(names) {
  const sets = entries().filter((q) => Array.isArray(q.sets)).flatMap((q) => q.sets);
  return sets.some((s) => s.length === names.length && names.every((n) => s.includes(n)));
}

/** The question that asks for all tables of so many attributes, this one among them. */
const covered = (names) => entries().find((q) => q.marginals === names.length || q.upto >= names.length);

function matrix() {
  const all = attributes().slice(0, MATRIX);
  const box = (names) => h("input", {
    type: "checkbox", "aria-label": names.join(" by "), checked: asked(names) || Boolean(covered(names)),
    disabled: Boolean(covered(names)) && !asked(names), title: covered(names) ? `asked under ${covered(names).name}` : names.join(" × "), id: `m-${names.join("\u0000")}`,
    onchange: (event) => clicked(names, event.target.checked),
  });
  const head = h("tr", {}, h("td", {}), all.map((a, j) => h("th", { scope: "col" }, h("span", { title: a.name }, `${j + 1}`))));
  const rows = all.map((a, i) => h("tr", {}, h("th", { scope: "row" }, `${i + 1} ${a.name}`),
    all.map((b, j) => h("td", {}, j > i ? null : box(i === j ? [a.name] : [b.name, a.name])))));
  return h("table", { className: "matrix" }, h("caption", {}, "Columns are numbered as rows are; the last of each row is the attribute by itself"), h("thead", {}, head), h("tbody", {}, rows));
}

function show() {
  const focused = document.activeElement?.id;
  const found = entries();
  complain(data.problem && data.at === null && found.length && !data.broken ? data.problem : data.broken);
  fill($("entries"), found.length ? found.map(entry) : h("p", { className: "quiet" }, "Nothing yet."));
  const all = attributes();
  $("add").hidden = all.length === 0 && measures().length === 0;
  if ($("add").hidden) { complain("Declare the table's columns first."); return; }
  fill($("matrix"), matrix());
  const names = all.map((a) => [a.name, a.name]);
  const those = (what) => all.filter((a) => a[what]).map((a) => [a.name, a.name]);
  const lists = { cdf: those("ordered"), sums: those("summed"), means: measures().map((m) => [m, m]) };
  for (const id of ["t1", "t2", "t3"]) options($(id), names, $(id).value || all[Math.min(all.length - 1, Number(id[1]) - 1)]?.name);
  for (const [id, found] of Object.entries(lists)) {
    options($(id), found, $(id).value);
    setText($(`${id}-none`), found.length ? "" : NONE[id]);
    for (const control of [$(id), $(`${id}-by`), $(`add-${id}`)]) control.disabled = !found.length;
  }
  for (const id of ["cdf-by", "sums-by", "means-by"]) options($(id), [["", "everybody"], ...names], $(id).value);
  const deep = all.filter((a) => a.levels?.length > 1);
  $("levels").hidden = deep.length === 0;
  options($("level-of"), deep.map((a) => [a.name, `${a.name} (${a.levels.join(", ")})`]), $("level-of").value);
  options($("level-by"), [["", "everybody"], ...names], $("level-by").value);
  if (focused) $(focused)?.focus();
  if (data.queries) say(`${data.queries} queries are asked.`);
}

$("add-upto").addEventListener("click", () => add("main", { upto: Number($("upto").value) }));
$("add-triple").addEventListener("click", () => {
  const set = [...new Set([$("t1").value, $("t2").value, $("t3").value])];
  clicked(set, true);
});
$("add-levels").addEventListener("click", () => {
  const [place, group] = [$("level-of").value, $("level-by").value];
  if (place === group) return;
  add(`levels of ${place}`, { sets: [group ? [group] : []], factors: { [place]: "levels" } });
});
$("add-cdf").addEventListener("click", () => {
  const group = $("cdf-by").value;
  add(`${$("cdf").value} distribution`, { prefix: $("cdf").value, ...(group ? { by: [group] } : {}) });
});
$("add-sums").addEventListener("click", () => {
  const group = $("sums-by").value;
  add(`sum of ${$("sums").value}`, { sums: $("sums").value, ...(group ? { by: [group] } : {}) });
});
$("add-means").addEventListener("click", () => {
  const [measure, group, spread] = [$("means").value, $("means-by").value, $("spread").checked];
  if (!measure) { refuse($("means"), "Declare a column of numbers to add up first."); return; }
  refuse($("means"), "");
  add(`means of ${measure}`, { [spread ? "moments" : "means"]: spread ? [measure] : measure, ...(group ? { by: [group] } : {}) });
});
$("add-total").addEventListener("click", () => add("people", { total: true }));
$("add-where").addEventListener("click", () => {
  const text = $("where").value.trim();
  if (!text) return;
  const doubt = doubtOfCondition(text, marksOf(data.spec.data));
  refuse($("where"), doubt);
  if (doubt) return;
  const i = entries().findIndex((q) => q.name === "counts" && Array.isArray(q.where));
  const done = () => { show(); $("where").value = ""; };
  const sure = { field: $("where"), about: `queries.${(i < 0 ? entries().length : i) + 1}`, conditions: [text] };
  if (i < 0) change([{ place: ["queries", entries().length], value: { name: named("counts"), where: [text] } }], done, sure);
  else change([{ place: ["queries", i, "where", entries()[i].where.length], value: text }], done, sure);
});
$("where").addEventListener("input", () => refuse($("where"), ""));
complete($("where"), () => [...attributes(), ...(data.groups ?? [])]); // first, so that an Enter that takes an offer is no more
$("where").addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.defaultPrevented) $("add-where").click(); });
show();
