// Settings for other programs, with this server's address and model in them, ready to copy.
import { useState } from "preact/hooks";
import { access, ADDRESS } from "./api";
import { chosen, currentModel, models } from "./server";
import { useStore } from "./store";
import { CopyButton } from "./ui";

interface Target {
  base: string; // for Anthropic's clients; OpenAI's take it with /v1
  model: string;
  key: string;
  context: number;
}

interface Client {
  name: string;
  kind: "Agents and editors" | "Chat" | "SDKs";
  where: string;
  text(target: Target): string;
  note?: string;
}

const CLIENTS: Client[] = [
  {
    name: "Claude Code",
    kind: "Agents and editors",
    where: "In a shell",
    text: (to) =>
      `export ANTHROPIC_BASE_URL=${to.base}\nexport ANTHROPIC_AUTH_TOKEN=${to.key}\n` +
      `export CLAUDE_CODE_MAX_CONTEXT_TOKENS=${to.context}\nclaude --model '${to.model}'\n`,
    note: "Without the line on the context it takes an unknown model for one of a million tokens.",
  },
  {
    name: "Codex",
    kind: "Agents and editors",
    where: "~/.codex/config.toml",
    text: (to) =>
      `model = "${to.model}"\nmodel_provider = "bushel"\nmodel_context_window = ${to.context}\n\n` +
      `[model_providers.bushel]\nname = "bushel"\nbase_url = "${to.base}/v1"\n` +
      `wire_api = "responses"\n${to.key === "any" ? "" : 'env_key = "BUSHEL_API_KEY"\n'}`,
  },
  {
    name: "OpenCode",
    kind: "Agents and editors",
    where: "opencode.json",
    text: (to) =>
      `${JSON.stringify(
        {
          provider: {
            bushel: {
              npm: "@ai-sdk/openai-compatible",
              options: { baseURL: `${to.base}/v1`, apiKey: to.key },
              models: {
                [to.model]: { tool_call: true, limit: { context: to.context, output: 8192 } },
              },
            },
          },
        },
        null,
        2,
      )}\n`,
  },
  {
    name: "Qwen Code",
    kind: "Agents and editors",
    where: "In a shell",
    text: (to) =>
      `export OPENAI_BASE_URL=${to.base}/v1\nexport OPENAI_API_KEY=${to.key}\n` +
      `export OPENAI_MODEL='${to.model}'\nqwen --auth-type openai\n`,
  },
  {
    name: "Zed",
    kind: "Agents and editors",
    where: "settings.json",
    text: (to) =>
      `${JSON.stringify(
        {
          language_models: {
            openai_compatible: {
              Bushel: {
                api_url: `${to.base}/v1`,
                available_models: [
                  {
                    name: to.model,
                    max_tokens: to.context,
                    capabilities: {
                      tools: true,
                      images: true,
                      parallel_tool_calls: true,
                      prompt_cache_key: false,
                    },
                  },
                ],
              },
            },
          },
        },
        null,
        2,
      )}\n`,
    note: "Zed asks for the key in its agent panel; any will do where this server has none.",
  },
  {
    name: "Cursor",
    kind: "Agents and editors",
    where: "Settings, Models: add the model, and override the OpenAI base URL",
    text: (to) => `Model:     ${to.model}\nBase URL:  ${to.base}/v1\nAPI key:   ${to.key}\n`,
    note: "Cursor calls models from its own servers, so the address must be one they can reach.",
  },
  {
    name: "Open WebUI",
    kind: "Chat",
    where: "In a shell",
    text: (to) =>
      `export OPENAI_API_BASE_URL=${to.base}/v1\nexport OPENAI_API_KEY=${to.key}\n` +
      "open-webui serve --port 8080\n",
    note: "In a container this machine is host.docker.internal, which --allowed-host must name.",
  },
  {
    name: "OpenAI for Python",
    kind: "SDKs",
    where: "pip install openai",
    text: (to) =>
      `from openai import OpenAI\n\nclient = OpenAI(base_url="${to.base}/v1", api_key="${to.key}")\n` +
      `reply = client.chat.completions.create(\n    model="${to.model}",\n` +
      '    messages=[{"role": "user", "content": "What is 3 + 4?"}],\n)\n' +
      "print(reply.choices[0].message.content)\n",
  },
  {
    name: "OpenAI for JavaScript",
    kind: "SDKs",
    where: "npm install openai",
    text: (to) =>
      `import OpenAI from "openai";\n\nconst client = new OpenAI({ baseURL: "${to.base}/v1", apiKey: "${to.key}" });\n` +
      `const reply = await client.chat.completions.create({\n  model: "${to.model}",\n` +
      '  messages: [{ role: "user", content: "What is 3 + 4?" }],\n});\n' +
      "console.log(reply.choices[0].message.content);\n",
  },
  {
    name: "Anthropic for Python",
    kind: "SDKs",
    where: "pip install anthropic",
    text: (to) =>
      `from anthropic import Anthropic\n\nclient = Anthropic(base_url="${to.base}", api_key="${to.key}")\n` +
      `reply = client.messages.create(\n    model="${to.model}",\n    max_tokens=1024,\n` +
      '    messages=[{"role": "user", "content": "What is 3 + 4?"}],\n)\nprint(reply.content[0].text)\n',
  },
  {
    name: "Anthropic for JavaScript",
    kind: "SDKs",
    where: "npm install @anthropic-ai/sdk",
    text: (to) =>
      `import Anthropic from "@anthropic-ai/sdk";\n\nconst client = new Anthropic({ baseURL: "${to.base}", apiKey: "${to.key}" });\n` +
      `const reply = await client.messages.create({\n  model: "${to.model}",\n  max_tokens: 1024,\n` +
      '  messages: [{ role: "user", content: "What is 3 + 4?" }],\n});\nconsole.log(reply.content);\n',
  },
  {
    name: "curl",
    kind: "SDKs",
    where: "In a shell",
    text: (to) =>
      `curl ${to.base}/v1/chat/completions \\\n  -H 'content-type: application/json' \\\n` +
      (to.key === "any" ? "" : `  -H 'authorization: Bearer ${to.key}' \\\n`) +
      `  -d '{"model": "${to.model}", "messages": [{"role": "user", "content": "What is 3 + 4?"}]}'\n`,
  },
];

const KINDS = ["Agents and editors", "Chat", "SDKs"] as const;

export function ConnectView() {
  const cards = useStore(models);
  const model = currentModel(cards, useStore(chosen));
  const { key } = useStore(access);
  const [shown, setShown] = useState(false);
  const [name, setName] = useState(CLIENTS[0].name);
  const client = CLIENTS.find((one) => one.name === name)!;
  const context = cards?.find((card) => card.id === model)?.max_model_len ?? 32768;
  const target: Target = {
    base: ADDRESS,
    model: model || "MODEL",
    key: key ? (shown ? key : "YOUR_KEY") : "any",
    context,
  };
  const text = client.text(target);
  return (
    <div class="view page">
      <header class="view-head">
        <h1>Connect</h1>
        <span class="quiet">Point other programs at this server</span>
      </header>
      <div class="scroller">
        <div class="wide connect">
          <dl class="facts addresses">
            <div>
              <dt>OpenAI clients</dt>
              <dd>
                <code>{ADDRESS}/v1</code>
                <CopyButton text={`${ADDRESS}/v1`} label="Copy address for OpenAI clients" />
              </dd>
            </div>
            <div>
              <dt>Anthropic clients</dt>
              <dd>
                <code>{ADDRESS}</code>
                <CopyButton text={ADDRESS} label="Copy address for Anthropic clients" />
              </dd>
            </div>
            <div>
              <dt>Model</dt>
              <dd>
                <select
                  aria-label="Model in these settings"
                  value={model}
                  onChange={(event) => chosen.set(event.currentTarget.value)}
                >
                  {(cards ?? []).map((card) => (
                    <option key={card.id} value={card.id}>
                      {card.id}
                    </option>
                  ))}
                </select>
              </dd>
            </div>
            {key && (
              <div>
                <dt>API key</dt>
                <dd>
                  <label class="check">
                    <input
                      type="checkbox"
                      checked={shown}
                      onChange={(event) => setShown(event.currentTarget.checked)}
                    />
                    put my key into these settings
                  </label>
                </dd>
              </div>
            )}
          </dl>
          <div class="picker">
            <nav aria-label="Programs">
              {KINDS.map((kind) => (
                <div key={kind}>
                  <h2>{kind}</h2>
                  {CLIENTS.filter((one) => one.kind === kind).map((one) => (
                    <button
                      key={one.name}
                      type="button"
                      aria-pressed={one.name === name}
                      onClick={() => setName(one.name)}
                    >
                      {one.name}
                    </button>
                  ))}
                </div>
              ))}
            </nav>
            <section class="card" aria-label={`Settings for ${client.name}`}>
              <h2>{client.name}</h2>
              <figure class="code">
                <figcaption>
                  <span>{client.where}</span>
                  <CopyButton text={text} label={`Copy settings for ${client.name}`} />
                </figcaption>
                <pre tabIndex={0} aria-label={`Settings for ${client.name}`}>
                  <code>{text}</code>
                </pre>
              </figure>
              {client.note && <p class="hint">{client.note}</p>}
            </section>
          </div>
        </div>
      </div>
    </div>
  );
}
