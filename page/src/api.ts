// Requests to the server that this page came from, with the key that the user gave.
import { store } from "./store";

export class ApiFailure extends Error {
  status: number; // 0: nobody answered
  code: string | null;

  constructor(status: number, message: string, code: string | null = null) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** The path below which this server is, where a proxy has others beside it; mostly empty. */
export const ROOT = location.pathname.replace(/\/[^/]*$/, "");
/** For clients elsewhere. */
export const ADDRESS = location.origin + ROOT;

const KEY = "bushel.key";

function readKey(): { key: string; remembered: boolean } {
  try {
    const own = sessionStorage.getItem(KEY);
    const remembered = localStorage.getItem(KEY);
    return { key: own ?? remembered ?? "", remembered: own === null && remembered !== null };
  } catch {
    return { key: "", remembered: false };
  }
}

/** The key in use. This tab alone has it, unless it is remembered. */
export const access = store(readKey());
/** Why the server refused this page, in its own words; null: it did not. */
export const refusedKey = store<string | null>(null);

export function setKey(key: string, remembered: boolean): void {
  try {
    sessionStorage.removeItem(KEY);
    localStorage.removeItem(KEY);
    if (key) (remembered ? localStorage : sessionStorage).setItem(KEY, key);
  } catch {
    // Kept until the page is closed.
  }
  access.set({ key, remembered });
}

function headers(body: boolean): Record<string, string> {
  const sent: Record<string, string> = {};
  if (body) sent["content-type"] = "application/json";
  const { key } = access.get();
  if (key) sent.authorization = `Bearer ${key}`;
  return sent;
}

export async function request(
  method: string,
  path: string,
  body?: unknown,
  signal?: AbortSignal,
): Promise<Response> {
  const { key } = access.get();
  let response: Response;
  try {
    response = await fetch(ROOT + path, {
      method,
      headers: headers(body !== undefined),
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: "no-store",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiFailure(0, "The server does not answer.");
  }
  if (response.ok) {
    // Of /health nobody needs a key, so it says nothing of one.
    if (path !== "/health" && refusedKey.get() !== null) refusedKey.set(null);
    return response;
  }
  const failure = await failureOf(response);
  if (failure.status === 401 && key === access.get().key) refusedKey.set(failure.message);
  throw failure;
}

async function failureOf(response: Response): Promise<ApiFailure> {
  const fallback = `The server answered ${response.status}.`;
  try {
    const { error } = (await response.json()) as { error?: { message?: string; code?: string } };
    return new ApiFailure(response.status, error?.message ?? fallback, error?.code ?? null);
  } catch {
    return new ApiFailure(response.status, fallback);
  }
}

export async function json<T>(method: string, path: string, body?: unknown): Promise<T> {
  return (await request(method, path, body)).json() as Promise<T>;
}

/** The data of each server-sent event. A stream that ends without [DONE] was cut. */
export async function* events(response: Response): AsyncGenerator<string> {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let done = false;
  try {
    while (!done) {
      let chunk: ReadableStreamReadResult<string>;
      try {
        chunk = await reader.read();
      } catch (error) {
        if (error instanceof DOMException && error.name === "AbortError") throw error;
        break;
      }
      if (chunk.done) break;
      const parts = (rest + chunk.value).split(/\r?\n\r?\n/);
      rest = parts.pop()!;
      for (const part of parts) {
        const data = part
          .split(/\r?\n/)
          .filter((line) => line.startsWith("data:"))
          .map((line) => line.slice(5).trimStart())
          .join("\n");
        if (data === "[DONE]") done = true;
        else if (data) yield data;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
  if (!done) throw new ApiFailure(0, "The connection was cut before the reply was complete.");
}
