// What the server is asked over HTTP. Addresses are relative, so that the page also works behind a proxy's prefix.

let key = "";

/** Send this key with every request from now on. It is held in memory alone. */
export function useKey(text) {
  key = text;
}

/** A request that was not answered: `status` is HTTP's (0: no connection), the message one line for the reader. */
export class Refused extends Error {
  constructor(status, message, retryAfter = null) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

/** The models that are served, as `GET /models` lists them. */
export async function listModels() {
  return (await send("models")).content;
}

/** One model's answer, and the milliseconds that the server spent on it. */
export async function ask(model, data, parameters) {
  const body = JSON.stringify({ data, parameters });
  const { content, milliseconds } = await send(`models/${encodeURIComponent(model)}`, body);
  return { result: content.result, milliseconds };
}

async function send(address, body) {
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  if (key) headers.Authorization = `Bearer ${key}`;
  const began = performance.now();
  let response, text;
  try {
    response = await fetch(address, { method: body === undefined ? "GET" : "POST", headers, body });
    text = await response.text();
  } catch {
    throw new Refused(0, "The server cannot be reached. Is it still running?");
  }
  const content = parse(text);
  if (!response.ok) {
    const retry = Number(response.headers.get("Retry-After")) || null;
    throw new Refused(response.status, lineOf(content) || `The server answered ${response.status}.`, retry);
  }
  if (content === undefined) throw new Refused(response.status, "The server's answer is not JSON.");
  const header = response.headers.get("X-Tersely-Milliseconds");
  return { content, milliseconds: header === null ? performance.now() - began : Number(header) };
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function lineOf(content) {
  const line = content?.error ?? content?.detail ?? content?.message;
  return typeof line === "string" ? line : line?.message ?? "";
}
