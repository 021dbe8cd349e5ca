// A conversation as a file: all its branches as JSON, or the one that is shown as markdown.
import { branch, newId, NO_SETTINGS, titleOf } from "./conversation";
import type { Conversation } from "./conversation";

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
  const { bushel, conversation } = JSON.parse(text) as {
    bushel?: number;
    conversation?: Conversation;
  };
  const turns = conversation?.turns;
  const fits =
    bushel === 1 &&
    Array.isArray(turns) &&
    turns.every((turn) => typeof turn.id === "string" && typeof turn.text === "string");
  if (!conversation || !fits) throw new Error("This file is no conversation of this page.");
  // Only pictures that are in the file: an address elsewhere would be asked for.
  const own = (turn: Conversation["turns"][number]) => ({
    ...turn,
    images: turn.images?.filter((url) => String(url).startsWith("data:image/")),
  });
  return {
    id: newId(),
    title: String(conversation.title ?? ""),
    changed: Date.now(),
    model: String(conversation.model ?? ""),
    settings: { ...NO_SETTINGS, ...conversation.settings },
    turns: conversation.turns.map(own),
    leaf: conversation.leaf ?? null,
  };
}
