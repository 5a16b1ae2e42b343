// The sixth page: what leaves it. Titles and marks, the projected release, a site, a workbook, files, charts, records.

import { $, attempt, data, fill, h, options, post, setText, spoken } from "./common.js";
import { pageLanguage } from "./language.js";

const name = data.name;
const FIELDS = ["title", "subtitle", "institution", "contact", "period", "licence", "language", "flags", "notes", "labels"];
const LANGUAGES = { en: "English", de: "Deutsch", fr: "Français" };
const FILES = [
  ["site.zip", "A site for any web server: tables, curves, a calculator"], ["tables.xlsx", "A workbook to send: cross-tables, flags, read me"],
  ["files.zip", "All formats: CSV with metadata, SDMX, PX, Parquet, workbook"], ["report.html", "The report, one file to pass on"],
  ["records.csv", "Synthetic records with about these answers"],
];
const address = (file, more = "") => `/download/${file}?name=${encodeURIComponent(name)}${more}`;

// numbers that an office does not print are left out of the files where it says so
const LEFT_OUT = ["tables.xlsx", "files.zip"];
const leftOut = () => ($("leave-out").checked && !$("offer-leave-out").hidden ? "&leave_out=1" : "");
function offerFiles() {
  $("office").href = address("office.toml", leftOut());
  fill($("files"), FILES.map(([file, text]) => h("li", {}, h("a", { href: address(file, LEFT_OUT.includes(file) ? leftOut() : ""), download: "" }, text))));
}

function show(told) {
  // until something is kept, pages for readers are in the language of this one
  const language = told.kept ? told.language : pageLanguage();
  options($("language"), told.languages.map((l) => [l, LANGUAGES[l] ?? l]), language);
  for (const field of FIELDS) if (field !== "language") $(field).value = told[field];
  $("labels").rows = Math.min(20, Math.max(5, told.labels.split("\n").length + 1));
  $("offer-leave-out").hidden = !/(^|,\s*)suppress=/.test(told.flags);
  offerFiles();
}

const tables = data.attributes.filter((a) => a.table).map((a) => [a.name, a.name]);
const groupings = (mean) => data.means.filter((m) => m.mean === mean).map((m) => m.by);
function chart() {
  const mean = $("c-of").value, file = `chart.${$("c-kind").value}`;
  const chosen = mean ? groupings(mean)[$("c1").value] : [...new Set([$("c1").value, $("c2").value].filter(Boolean))];
  const asked = chosen.map((a) => `&a=${encodeURIComponent(a)}`).join("") + (mean ? `&mean=${encodeURIComponent(mean)}` : "");
  const by = chosen.join(` ${spoken("by")} `), said = mean ? spoken(`mean of ${mean} by ${by}`) : by;
  fill($("chart-link"), h("a", { href: address(file, asked), download: "" }, `${said} ${spoken("as")} ${$("c-kind").value}`));
}
// counts are by any attributes of a table, means by those within which they were asked
function chartAxes() {
  const mean = $("c-of").value;
  options($("c1"), mean ? groupings(mean).map((by, i) => [String(i), by.join(" by ")]) : tables);
  $("c-and").hidden = Boolean(mean);
  chartPairs();
}
function chartPairs() {
  if (!$("c-of").value) {
    const others = data.attributes.map((a) => a.name).filter((a) => a !== $("c1").value);
    const beside = data.attributes.find((a) => a.name === $("c1").value).beside ?? others;
    options($("c2"), [["", "nothing else"], ...beside.map((b) => [b, b])], $("c2").value);
  }
  chart();
}

const shelf = () => options($("releases"), data.shelf.length ? data.shelf.map((n) => [n, n]) : [["", "none yet"]], name);
shelf();
$("releases").addEventListener("change", (event) => { location.href = `/publish?name=${encodeURIComponent(event.target.value)}`; });
if (data.error) { $("problem").hidden = false; setText($("problem"), data.error); }
if (data.told) {
  $("publishable").hidden = false;
  $("offer-cells").hidden = !data.cells.length;
  show(data.told);
  $("leave-out").addEventListener("change", offerFiles);
  const drawn = [...(tables.length ? [["", "counts"]] : []), ...[...new Set(data.means.map((m) => m.mean))].map((m) => [m, `means of ${m}`])];
  $("chart").hidden = !drawn.length;
  if (drawn.length) {
    options($("c-of"), drawn);
    $("c-of").addEventListener("change", chartAxes);
    $("c1").addEventListener("change", chartPairs);
    for (const id of ["c2", "c-kind"]) $(id).addEventListener("change", chart);
    chartAxes();
  }
  $("project").disabled = data.projected;
}
$("chart").addEventListener("submit", (event) => event.preventDefault());
$("told").addEventListener("submit", async (event) => {
  event.preventDefault();
  const told = Object.fromEntries(FIELDS.map((field) => [field, $(field).value]));
  fill($("kept"));
  const found = await attempt($("told"), () => post("told", { name, told }), (text) => {
    $("told-refused").hidden = !text; // beside the button that was pressed, and over nothing
    setText($("told-refused"), text);
  });
  if (found) { show(found); fill($("kept"), `Kept; the report was made anew. ${found.spec}`); }
});
const lineOf = (text) => text.split(" = ")[0].trim();
$("add-cells").addEventListener("click", () => {
  const there = new Set($("labels").value.split("\n").map(lineOf));
  const lines = data.cells.filter((cell) => !there.has(cell)).map((cell) => `${cell} = `);
  $("labels").value = [$("labels").value.trimEnd(), ...lines].filter(Boolean).join("\n");
  $("labels").rows = Math.min(20, $("labels").value.split("\n").length + 1);
  $("labels").focus();
});
$("project").addEventListener("click", async () => {
  fill($("projected"), h("progress", { "aria-label": "Projecting" }));
  const found = await attempt($("projected"), () => post("keep-projected", { name }));
  if (found && !data.shelf.includes(found.name)) {
    data.shelf.unshift(found.name);
    shelf();
    $("project").disabled = true;
  }
  fill($("projected"), found ? h("a", { href: `/publish?name=${encodeURIComponent(found.name)}` }, `It is there as ${found.name}`) : []);
});
