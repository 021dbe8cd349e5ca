// Replies on their way: from a request's first byte to the figures behind its last.
import { ApiFailure, events, json, request } from "../api";
import { store } from "../store";
import { add, branch, change, newId } from "./conversation";
import type { Conversation, Figures, Turn } from "./conversation";
import { chatBody, SettingsError } from "./request";
import { conversations, put } from "./storage";

/** Conversations whose reply is being written, by id. */
export const running = store<ReadonlyMap<string, AbortController>>(new Map());

interface Chunk {
  id: string;
  error?: { message: string };
  choices?: {
    delta: {
      content?: string;
      reasoning_content?: string;
      tool_calls?: {
        index: number;
        id?: string;
        function?: { name?: string; arguments?: string };
      }[];
    };
    finish_reason: string | null;
  }[];
  usage?: {
    prompt_tokens: number;
    completion_tokens: number;
    prompt_tokens_details?: { cached_tokens?: number };
  } | null;
}

interface Finished {
  id: string;
  hit: string;
  why: string;
  first_token_seconds: number | null;
  tokens_per_second: number | null;
  cached_tokens: number;
  completion_tokens: number;
  prompt_tokens: number;
}

function find(id: string): Conversation | undefined {
  return conversations.get()?.find((one) => one.id === id);
}

function setRunning(id: string, controller: AbortController | null): void {
  const next = new Map(running.get());
  if (controller) next.set(id, controller);
  else next.delete(id);
  running.set(next);
}

export function stop(id: string): void {
  running.get().get(id)?.abort();
}

/** Adds a reply below `parent` and writes into it until it ends. Never throws: what goes wrong is
 * the turn's `error`. */
export async function reply(conversation: Conversation, parent: string): Promise<void> {
  const { id } = conversation;
  if (running.get().has(id)) return;
  const controller = new AbortController();
  const turn: Turn = {
    id: newId(),
    parent,
    role: "assistant",
    text: "",
    model: conversation.model,
  };
  put(add(conversation, turn));
  setRunning(id, controller);
  const draft = new Draft(turn, (next) => {
    const now = find(id);
    if (now) put(change(now, turn.id, () => next), false);
  });
  try {
    const body = chatBody(conversation, branch(conversation, parent));
    await read(body, draft, controller.signal);
  } catch (error) {
    if (controller.signal.aborted) draft.turn = { ...draft.turn, stopped: true };
    else if (error instanceof ApiFailure || error instanceof SettingsError) {
      draft.turn = { ...draft.turn, error: error.message };
    } else throw error;
  } finally {
    draft.flush();
    setRunning(id, null);
    const now = find(id);
    if (now) put(change(now, turn.id, () => draft.turn));
  }
  await addFigures(id, draft);
}

/** A reply so far. Shows itself once per frame, however many pieces come. */
class Draft {
  requestId = "";
  began = performance.now();
  first: number | null = null;
  last = 0;
  pieces = 0;
  usage: Chunk["usage"] = null;
  finish = "";
  turn: Turn;
  #show: (turn: Turn) => void;
  #timer = 0;

  constructor(turn: Turn, show: (turn: Turn) => void) {
    this.turn = turn;
    this.#show = show;
  }

  take(chunk: Chunk): void {
    if (chunk.error) throw new ApiFailure(500, chunk.error.message);
    this.requestId ||= chunk.id.split("-").at(-1)!;
    if (chunk.usage) this.usage = chunk.usage;
    const choice = chunk.choices?.[0];
    if (!choice) return;
    if (choice.finish_reason) this.finish = choice.finish_reason;
    const { content, reasoning_content: thoughts, tool_calls: calls } = choice.delta;
    if (!content && !thoughts && !calls) return;
    this.first ??= performance.now();
    this.last = performance.now();
    this.pieces += 1;
    const turn = { ...this.turn };
    if (content) turn.text += content;
    if (thoughts) turn.thoughts = (turn.thoughts ?? "") + thoughts;
    for (const call of calls ?? []) {
      const all = [...(turn.calls ?? [])];
      const begun = all[call.index] ?? { id: call.id ?? "", name: "", arguments: "" };
      all[call.index] = {
        id: begun.id || (call.id ?? ""),
        name: begun.name + (call.function?.name ?? ""),
        arguments: begun.arguments + (call.function?.arguments ?? ""),
      };
      turn.calls = all;
    }
    this.turn = turn;
    // A hidden tab gets no frames, so a timer.
    this.#timer ||= window.setTimeout(() => this.flush(), 30);
  }

  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.#show(this.turn);
  }
}

async function read(body: Record<string, unknown>, draft: Draft, signal: AbortSignal) {
  const streamed = { ...body, stream: true, stream_options: { include_usage: true } };
  const response = await request("POST", "/v1/chat/completions", streamed, signal);
  for await (const data of events(response)) {
    draft.take(JSON.parse(data) as Chunk);
  }
}

/** As the server measured them; where it does not say, as they looked from here. */
async function addFigures(id: string, draft: Draft): Promise<void> {
  if (draft.first === null) return;
  const { usage } = draft;
  const seconds = (draft.last - draft.first) / 1000;
  const tokens = usage?.completion_tokens ?? draft.pieces;
  const figures: Figures = {
    tokens,
    promptTokens: usage?.prompt_tokens ?? 0,
    cachedTokens: usage?.prompt_tokens_details?.cached_tokens ?? 0,
    firstTokenSeconds: (draft.first - draft.began) / 1000,
    tokensPerSecond: seconds > 0 && tokens > 1 ? (tokens - 1) / seconds : null,
    hit: "",
    why: "",
    finish: draft.finish,
  };
  const known = await finished(draft.turn.model ?? "", draft.requestId);
  if (known) {
    figures.tokens = known.completion_tokens;
    figures.promptTokens = known.prompt_tokens;
    figures.cachedTokens = known.cached_tokens;
    figures.firstTokenSeconds = known.first_token_seconds;
    figures.tokensPerSecond = known.tokens_per_second;
    figures.hit = known.hit;
    figures.why = known.why;
  }
  const now = find(id);
  if (now) put(change(now, draft.turn.id, (turn) => ({ ...turn, figures })));
}

async function finished(model: string, requestId: string): Promise<Finished | undefined> {
  for (const wait of [0, 300]) {
    await new Promise((done) => setTimeout(done, wait));
    try {
      const path = `/v1/status?model=${encodeURIComponent(model)}`;
      const status = await json<{ recent: Finished[] }>("GET", path);
      const found = status.recent.find((one) => one.id === requestId);
      if (found) return found;
    } catch {
      return undefined;
    }
  }
  return undefined;
}
