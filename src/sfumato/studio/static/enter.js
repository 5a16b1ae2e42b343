// The first page: the token of the address, which works once, is exchanged for the key of this browser.

import { keep, post } from "./key.js";

const token = location.hash.slice(1);
history.replaceState(null, "", location.pathname); // the token leaves the address at once
try {
  keep((await post("enter", { token })).key);
  location.replace("/");
} catch (error) {
  document.getElementById("problem").textContent = error.message;
}
