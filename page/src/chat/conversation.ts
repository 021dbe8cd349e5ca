// A conversation is a tree of turns. Editing or retrying adds a sibling; nothing is overwritten.

export interface ToolCall {
  id: string;
  name: string;
  arguments: string;
}

export interface Figures {
  tokens: number;
  promptTokens: number;
  cachedTokens: number;
  firstTokenSeconds: number | null;
  tokensPerSecond: number | null;
  hit: string; // how the cached part was found; empty: nothing was
  why: string; // not more was cached
  finish: string;
}

export interface Turn {
  id: string;
  parent: string | null;
  role: "user" | "assistant" | "tool";
  text: string;
  images?: string[]; // data URLs
  thoughts?: string;
  calls?: ToolCall[];
  callId?: string; // of a tool's result
  model?: string;
  figures?: Figures;
  stopped?: boolean;
  error?: string;
}

export interface Settings {
  system: string;
  temperature: string;
  top_p: string;
  top_k: string;
  min_p: string;
  max_tokens: string;
  seed: string;
  presence_penalty: string;
  frequency_penalty: string;
  repetition_penalty: string;
  stop: string; // one per line
  thinking: "" | "on" | "off";
  schema: string;
  tools: string;
}

export const NO_SETTINGS: Settings = {
  system: "",
  temperature: "",
  top_p: "",
  top_k: "",
  min_p: "",
  max_tokens: "",
  seed: "",
  presence_penalty: "",
  frequency_penalty: "",
  repetition_penalty: "",
  stop: "",
  thinking: "",
  schema: "",
  tools: "",
};

export interface Conversation {
  id: string;
  title: string; // empty: made from the first message
  changed: number;
  model: string;
  settings: Settings;
  turns: Turn[];
  leaf: string | null; // the end of the branch that is shown
}

export function newId(): string {
  // randomUUID is missing where the page is not served over https or from this machine.
  const bytes = crypto.getRandomValues(new Uint8Array(10));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function newConversation(model: string): Conversation {
  return {
    id: newId(),
    title: "",
    changed: Date.now(),
    model,
    settings: { ...NO_SETTINGS },
    turns: [],
    leaf: null,
  };
}

export function titleOf(conversation: Conversation): string {
  if (conversation.title) return conversation.title;
  const first = conversation.turns.find((turn) => turn.role === "user");
  if (!first) return "New chat";
  const line = first.text.trim().split("\n")[0];
  return line.slice(0, 80) || (first.images?.length ? "Picture" : "New chat");
}

/** The branch that ends at `leaf`, from its first turn. */
export function branch(conversation: Conversation, leaf = conversation.leaf): Turn[] {
  const byId = new Map(conversation.turns.map((turn) => [turn.id, turn]));
  const path: Turn[] = [];
  for (let at = leaf; at !== null; ) {
    const turn = byId.get(at);
    if (!turn) break;
    path.push(turn);
    at = turn.parent;
  }
  return path.reverse();
}

export function siblings(conversation: Conversation, turn: Turn): Turn[] {
  return conversation.turns.filter(
    (other) => other.parent === turn.parent && other.role === turn.role,
  );
}

/** The end of the newest branch through a turn. */
export function newestLeaf(conversation: Conversation, from: string): string {
  for (let at = from; ; ) {
    const next = conversation.turns.filter((turn) => turn.parent === at).at(-1);
    if (!next) return at;
    at = next.id;
  }
}

export function add(conversation: Conversation, turn: Turn): Conversation {
  return {
    ...conversation,
    turns: [...conversation.turns, turn],
    leaf: turn.id,
    changed: Date.now(),
  };
}

export function change(
  conversation: Conversation,
  id: string,
  update: (turn: Turn) => Turn,
): Conversation {
  const turns = conversation.turns.map((turn) => (turn.id === id ? update(turn) : turn));
  return { ...conversation, turns };
}
