// The sixth page: what was paid for, and that nothing of it was changed.

import { $, attempt, bar, data, fill, h, listing, post } from "./common.js";

const percent = (x) => `${(100 * x).toFixed(x && x < 0.1 ? 1 : 0)} %`;
const found = data.ledger;
$("verifying").hidden = found === null;
if (found === null) fill($("ledger"), h("p", {}, "There is no ledger yet; one is made where a release is paid."));
else {
  fill($("ledger"), bar([[found.spent_share, "spent"]], `Spent ${percent(found.spent_share)}, left ${percent(1 - found.spent_share)}`),
    h("dl", { className: "facts" }, [["File", data.file], ["In all", found.total], ["Spent", h("span", { title: `${found.spent} of ${found.of}` }, `${percent(found.spent_share)}: ${Number(found.spent).toPrecision(4)} of ${Number(found.of).toPrecision(4)} ${found.currency}`)],
      ["Left", found.left], ["Protects", found.protects], ["Table", found.table], ["Ledger", found.id], ["Anchor, to keep elsewhere", h("code", {}, found.anchor)]]
      .flatMap(([k, v]) => [h("dt", {}, k), h("dd", {}, v)])));
  fill($("waiting"), found.unreleased.length ? h("p", { className: "note" }, `${found.unreleased.join(", ")}: ${found.why_unreleased}.`) : null);
  fill($("entries"), found.entries.length ? listing(["line", "name", "guarantee by itself", "protects", "of the total", "time", "stored"],
    found.entries.map((e) => [e.line, data.shelf.includes(e.name) ? h("a", { href: `/read?name=${encodeURIComponent(e.name)}` }, e.name) : e.name, e.paid, e.unit, percent(e.share), e.time, e.stored ? "yes" : "no"]),
    { caption: found.more ? `The last ${found.entries.length}; the export has all` : null, numeric: [true, false, false, false, true, false, false] }) : h("p", {}, "Nothing yet."));
}
$("asked").hidden = data.transcripts.length === 0;
fill($("transcripts"), data.transcripts.map((t) => h("section", {}, h("h3", {}, h("a", { href: `/read?name=${encodeURIComponent(t.name)}` }, t.name)),
  t.kind === "broken" ? h("p", { className: "problem" }, t.text) : [
    h("p", { className: "quiet" }, "Anchor, to keep elsewhere: ", h("code", {}, t.anchor)),
    t.rows.length ? h("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": `What ${t.name} gave` }, listing(t.columns, t.rows,
      { caption: t.more ? `The last ${t.rows.length}` : null, numeric: t.kind === "stream" ? [true, false] : [true, false, true, true, true, false, false] })) : h("p", {}, t.kind === "stream" ? "No period yet." : "Nothing was asked yet.")])));
$("verify").addEventListener("submit", async (event) => {
  event.preventDefault();
  const checked = await attempt($("verified"), () => post("verify", { anchor: $("anchor").value.trim() || null }));
  fill($("verified"), checked ? h("p", { className: "done" }, checked.text, " ", h("code", {}, checked.anchor)) : null);
});
