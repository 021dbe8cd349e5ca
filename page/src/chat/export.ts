// A conversation as a file: all its branches as JSON, or the one that is shown as markdown.
import { branch, newId, NO_SETTINGS, titleOf } from "./conversation";
import type { Conversation, Turn } from "./conversation";

function save(text: string, name: string, type: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function fileName(conversation: Conversation, ending: string): string {
  const plain = titleOf(conversation).replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 60);
  return `${plain.replace(/^-|-$/g, "") || "chat"}.${ending}`;
}

export function exportJson(conversation: Conversation): void {
  const text = JSON.stringify({ bushel: 1, conversation }, null, 2);
  save(text, fileName(conversation, "json"), "application/json");
}

export function asMarkdown(conversation: Conversation): string {
  const parts = [`# ${titleOf(conversation)}`];
  const { system } = conversation.settings;
  if (system.trim()) parts.push("## System", system.trim());
  for (const turn of branch(conversation)) {
    const who = { user: "You", assistant: turn.model ?? "Assistant", tool: "Tool result" };
    parts.push(`## ${who[turn.role]}`);
    for (const image of turn.images ?? []) parts.push(`![picture](${image})`);
    if (turn.thoughts) parts.push(`> ${turn.thoughts.trim().replaceAll("\n", "\n> ")}`);
    if (turn.text) parts.push(turn.text.trim());
    for (const call of turn.calls ?? []) {
      parts.push(`\`${call.name}\`\n\n\`\`\`json\n${call.arguments}\n\`\`\``);
    }
    if (turn.error) parts.push(`*${turn.error}*`);
  }
  return `${parts.join("\n\n")}\n`;
}

export function exportMarkdown(conversation: Conversation): void {
  save(asMarkdown(conversation), fileName(conversation, "md"), "text/markdown");
}

/** From a file that `exportJson` made; throws if it is none. */
export function importJson(text: string): Conversation {
  const file = JSON.parse(text) as { bushel?: unknown; conversation?: Partial<Conversation> } | null;
  const read = file?.conversation;
  if (file?.bushel !== 1 || !Array.isArray(read?.turns)) throw new Error(NO_CHAT);
  const settings = { ...NO_SETTINGS };
  for (const name of Object.keys(settings) as (keyof typeof settings)[]) {
    const value: unknown = read.settings?.[name];
    if (typeof value === "string") settings[name] = value as never;
  }
  const known = new Set<string>();
  const turns = read.turns.map((turn) => importTurn(turn, known));
  return {
    id: newId(),
    title: typeof read.title === "string" ? read.title : "",
    changed: Date.now(),
    model: typeof read.model === "string" ? read.model : "",
    settings,
    turns,
    leaf: known.has(read.leaf ?? "") ? read.leaf! : (turns.at(-1)?.id ?? null),
  };
}

const NO_CHAT = "This file is no chat of this page.";
const ROLES = new Set(["user", "assistant", "tool"]);

/** known: ids of the turns before it, one of which is its parent, so that no branch is a circle. */
function importTurn(turn: Partial<Turn>, known: Set<string>): Turn {
  const { id, parent = null, role, text } = turn ?? {};
  const fits =
    typeof id === "string" &&
    typeof text === "string" &&
    ROLES.has(role as string) &&
    (parent === null || known.has(parent)) &&
    !known.has(id);
  if (!fits) throw new Error(NO_CHAT);
  known.add(id);
  const made: Turn = { id, parent, role: role!, text };
  for (const name of ["thoughts", "callId", "model", "error"] as const) {
    if (typeof turn[name] === "string") made[name] = turn[name];
  }
  if (turn.stopped === true) made.stopped = true;
  // Only pictures that are in the file: any other address would be asked for.
  if (Array.isArray(turn.images)) {
    made.images = turn.images.filter((url) => String(url).startsWith("data:image/"));
  }
  if (Array.isArray(turn.calls)) {
    made.calls = turn.calls.map((call) => ({
      id: String(call?.id),
      name: String(call?.name),
      arguments: String(call?.arguments),
    }));
  }
  return made;
}
