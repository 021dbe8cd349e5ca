// How the server is doing, and which models it has: asked for while somebody looks.
import { access, ApiFailure, json, request } from "./api";
import { kept, store } from "./store";

export interface ModelCard {
  id: string;
  root: string;
  max_model_len: number | null;
  state: "unloaded" | "queued" | "loading" | "ready" | "unloading" | "failed";
  reason: string | null;
  pinned: boolean;
  memory_bytes: number;
}

export interface Health {
  state: "unknown" | "ready" | "busy" | "gone";
  reason: string;
}

export const health = store<Health>({ state: "unknown", reason: "" });
export const models = store<ModelCard[] | null>(null);
/** The model that new conversations are with. */
export const chosen = kept<string>("bushel.model", "");

/** The chosen model if the server has it, or the first. */
export function currentModel(cards: ModelCard[] | null, name: string): string {
  if (!cards || cards.length === 0) return name;
  return cards.some((card) => card.id === name) ? name : cards[0].id;
}

async function askHealth(): Promise<void> {
  let next: Health;
  try {
    await request("GET", "/health");
    next = { state: "ready", reason: "" };
  } catch (error) {
    const failure = error as ApiFailure;
    next =
      failure.status === 0
        ? { state: "gone", reason: "The server does not answer." }
        : { state: "busy", reason: failure.message };
  }
  const last = health.get();
  if (last.state !== next.state || last.reason !== next.reason) health.set(next);
  if (last.state !== next.state && next.state !== "gone") void askModels();
}

export async function askModels(): Promise<void> {
  try {
    const list = await json<{ data: ModelCard[] }>("GET", "/v1/models");
    if (JSON.stringify(list.data) !== JSON.stringify(models.get())) models.set(list.data);
  } catch {
    // The banner tells; what was known before stays on the page.
  }
}

/** Begins to ask, for as long as the page is open. */
export function watch(): void {
  const tick = async () => {
    if (document.visibilityState === "visible") await askHealth();
    const { state } = health.get();
    setTimeout(tick, state === "ready" ? 5000 : 1000);
  };
  void tick();
  setInterval(() => {
    if (document.visibilityState === "visible" && health.get().state !== "gone") void askModels();
  }, 10_000);
  access.follow(() => void askModels());
}
