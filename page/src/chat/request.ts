// What is sent for a reply, and the same as a command and as a script.
import { access, ADDRESS } from "../api";
import type { Conversation, Settings, Turn } from "./conversation";

export class SettingsError extends Error {}

const NUMBERS = [
  "temperature",
  "top_p",
  "top_k",
  "min_p",
  "max_tokens",
  "seed",
  "presence_penalty",
  "frequency_penalty",
  "repetition_penalty",
] as const;

type Body = Record<string, unknown>;

function parsed(text: string, what: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new SettingsError(`${what} is not valid JSON: ${(error as Error).message}`);
  }
}

/** SettingsError if a field cannot be read. */
export function settingsBody(settings: Settings): Body {
  const body: Body = {};
  for (const name of NUMBERS) {
    const text = settings[name].trim();
    if (!text) continue;
    const value = Number(text);
    if (!Number.isFinite(value)) throw new SettingsError(`${name} is not a number: ${text}`);
    body[name] = value;
  }
  const stop = settings.stop.split("\n").filter((line) => line);
  if (stop.length) body.stop = stop;
  if (settings.thinking) body.enable_thinking = settings.thinking === "on";
  if (settings.schema.trim()) {
    const schema = parsed(settings.schema, "The JSON schema");
    body.response_format = { type: "json_schema", json_schema: { name: "reply", schema } };
  }
  if (settings.tools.trim()) {
    const tools = parsed(settings.tools, "The list of tools");
    body.tools = Array.isArray(tools) ? tools : [tools];
  }
  return body;
}

function message(turn: Turn): Body {
  if (turn.role === "tool") return { role: "tool", tool_call_id: turn.callId, content: turn.text };
  if (turn.role === "assistant") {
    const calls = turn.calls?.map((call) => ({
      id: call.id,
      type: "function",
      function: { name: call.name, arguments: call.arguments },
    }));
    return {
      role: "assistant",
      content: turn.text || (calls ? null : ""),
      ...(calls ? { tool_calls: calls } : {}),
    };
  }
  if (!turn.images?.length) return { role: "user", content: turn.text };
  const images = turn.images.map((url) => ({ type: "image_url", image_url: { url } }));
  const text = turn.text ? [{ type: "text", text: turn.text }] : [];
  return { role: "user", content: [...images, ...text] };
}

export function chatBody(conversation: Conversation, turns: Turn[]): Body {
  const { settings } = conversation;
  // What failed before it said anything is no part of the conversation.
  const said = turns.filter((turn) => !(turn.error && !turn.text && !turn.calls?.length));
  const system = settings.system.trim() ? [{ role: "system", content: settings.system }] : [];
  return {
    model: conversation.model,
    messages: [...system, ...said.map(message)],
    ...settingsBody(settings),
  };
}

// -- as a command and as a script ---------------------------------------------------------------

export function asCurl(body: Body): string {
  const text = JSON.stringify(body, null, 2).replaceAll("'", "'\\''");
  const key = access.get().key ? ` \\\n  -H "authorization: Bearer $BUSHEL_API_KEY"` : "";
  return (
    `curl ${ADDRESS}/v1/chat/completions \\\n` +
    `  -H 'content-type: application/json'${key} \\\n  -d '${text}'\n`
  );
}

function python(value: unknown, indent = ""): string {
  const inner = `${indent}    `;
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const list = Array.isArray(value);
  const items = list
    ? value.map((item) => inner + python(item, inner))
    : Object.entries(value).map(
        ([name, item]) => `${inner}${JSON.stringify(name)}: ${python(item, inner)}`,
      );
  const [open, close] = list ? "[]" : "{}";
  return items.length ? `${open}\n${items.join(",\n")},\n${indent}${close}` : open + close;
}

/** Fields that OpenAI's library has no argument for. */
const EXTRA = new Set(["top_k", "min_p", "repetition_penalty", "enable_thinking"]);

export function asPython(body: Body): string {
  const key = access.get().key ? 'os.environ["BUSHEL_API_KEY"]' : '"any"';
  const own = Object.entries(body).filter(([name]) => !EXTRA.has(name));
  const extra = Object.fromEntries(Object.entries(body).filter(([name]) => EXTRA.has(name)));
  const lines = own.map(([name, value]) => `    ${name}=${python(value, "    ")},\n`);
  if (Object.keys(extra).length) lines.push(`    extra_body=${python(extra, "    ")},\n`);
  return (
    (access.get().key ? "import os\n\n" : "") +
    "from openai import OpenAI\n\n" +
    `client = OpenAI(base_url="${ADDRESS}/v1", api_key=${key})\n` +
    `reply = client.chat.completions.create(\n${lines.join("")})\n` +
    "print(reply.choices[0].message.content)\n"
  );
}
