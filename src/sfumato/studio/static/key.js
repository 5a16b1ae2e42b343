// The key of this browser: kept for this origin alone, port included, and sent in a header, never as a cookie.

const NAME = "sfumato-key";

export const keep = (key) => localStorage.setItem(NAME, key);

/** A request with the key. Raises an error in words where nobody answers. */
export async function request(path, given = {}) {
  const headers = { ...given.headers, authorization: `Bearer ${localStorage.getItem(NAME) ?? ""}` };
  try {
    return await fetch(path, { ...given, headers, credentials: "omit" });
  } catch {
    throw new Error("sfumato studio does not answer; is it still running in the terminal?");
  }
}

/** A call with JSON, and what it answers. Raises an error in the server's words where it refuses. */
export async function post(name, body) {
  const text = JSON.stringify(body);
  const answer = await request(`/api/${name}`, {
    method: "POST", headers: { "content-type": "application/json" }, body: text, keepalive: name === "change" && text.length < 60_000,
  });
  const found = await answer.json().catch(() => ({ error: "the answer could not be read" }));
  if (!answer.ok) throw new Error(found.error || "this was refused");
  return found;
}
