// The sixth page: what was paid for, and that nothing of it was changed.

import { $, attempt, bar, data, described, fill, h, post, toTheLastDigit } from "./common.js";

const linked = (name) => h("a", { href: `/read?name=${encodeURIComponent(name)}` }, name);
const percent = (x) => `${(100 * x).toFixed(x && x < 0.1 ? 1 : 0)} %`;
const found = data.ledger;
$("verifying").hidden = found === null;
if (found === null) fill($("ledger"), h("p", {}, "There is no ledger yet; one is made where a release is paid."));
else {
  const [facts, spends] = found.described.blocks;
  fill($("ledger"), bar([[found.spent_share, "spent"]], `Spent ${percent(found.spent_share)}, left ${percent(1 - found.spent_share)}`),
    h("p", {}, `${data.file}: ${found.described.headline}, ${percent(found.spent_share)} spent`), described({ ...found.described, blocks: [facts] }), toTheLastDigit(found.exact));
  fill($("entries"), spends ? described({ ...found.described, blocks: [spends] }) : h("p", {}, "Nothing yet."));
  for (const cell of document.querySelectorAll("#entries td.t")) if (data.shelf.includes(cell.textContent)) fill(cell, linked(cell.textContent));
}
$("asked").hidden = data.transcripts.length === 0;
fill($("transcripts"), data.transcripts.map((t) => h("section", {}, h("h3", {}, linked(t.headline)), described(t))));
$("verify").addEventListener("submit", async (event) => {
  event.preventDefault();
  const checked = await attempt($("verified"), () => post("verify", { anchor: $("anchor").value.trim() || null }));
  fill($("verified"), checked ? h("p", { className: "done" }, checked.text, " ", h("code", {}, checked.anchor)) : null);
});
