// How this conversation is answered. An empty field leaves the choice to the server.
import { IconButton } from "../ui";
import type { Settings } from "./conversation";
import { NO_SETTINGS } from "./conversation";
import { settingsBody } from "./request";

const SAMPLING: [keyof Settings, string, string][] = [
  ["temperature", "Temperature", "0 always takes the likeliest token"],
  ["top_p", "Top p", "0 to 1"],
  ["top_k", "Top k", "a number of tokens"],
  ["min_p", "Min p", "0 to 1"],
  ["max_tokens", "Most tokens", "of a reply"],
  ["seed", "Seed", "the same reply again"],
  ["repetition_penalty", "Repetition penalty", "1 is none"],
  ["presence_penalty", "Presence penalty", "-2 to 2"],
  ["frequency_penalty", "Frequency penalty", "-2 to 2"],
];

const SCHEMA = `{
  "type": "object",
  "properties": {"answer": {"type": "string"}},
  "required": ["answer"]
}`;

const TOOLS = `[{
  "type": "function",
  "function": {
    "name": "get_weather",
    "parameters": {
      "type": "object",
      "properties": {"city": {"type": "string"}}
    }
  }
}]`;

interface PanelProps {
  settings: Settings;
  onChange(settings: Settings): void;
  onClose(): void;
}

function Area(props: {
  label: string;
  name: keyof Settings;
  rows: number;
  hint: string;
  panel: PanelProps;
  code?: boolean;
}) {
  const { settings, onChange } = props.panel;
  return (
    <label class="field">
      <span>{props.label}</span>
      <textarea
        class={props.code ? "mono" : ""}
        rows={props.rows}
        placeholder={props.hint}
        spellcheck={!props.code}
        value={settings[props.name]}
        onInput={(event) => onChange({ ...settings, [props.name]: event.currentTarget.value })}
      />
    </label>
  );
}

function problem(settings: Settings): string | null {
  try {
    settingsBody(settings);
    return null;
  } catch (error) {
    return (error as Error).message;
  }
}

export function SettingsPanel(props: PanelProps) {
  const { settings, onChange } = props;
  const wrong = problem(settings);
  return (
    <aside class="panel" aria-label="Settings of this chat">
      <header>
        <h2>Settings of this chat</h2>
        <IconButton icon="close" label="Close settings" onClick={props.onClose} />
      </header>
      <div class="panel-body">
        {wrong && (
          <p class="failed" role="alert">
            {wrong}
          </p>
        )}
        <Area
          label="System prompt"
          name="system"
          rows={4}
          hint="Who the model should be, and what it should know."
          panel={props}
        />
        <fieldset>
          <legend>Sampling</legend>
          <p class="hint">An empty field leaves the choice to the server and the model.</p>
          <div class="two">
            {SAMPLING.map(([name, label, hint]) => (
              <label class="field" key={name}>
                <span>{label}</span>
                <input
                  inputMode="decimal"
                  placeholder="default"
                  title={hint}
                  value={settings[name]}
                  onInput={(event) => onChange({ ...settings, [name]: event.currentTarget.value })}
                />
              </label>
            ))}
            <label class="field">
              <span>Thinking</span>
              <select
                value={settings.thinking}
                onChange={(event) =>
                  onChange({
                    ...settings,
                    thinking: event.currentTarget.value as Settings["thinking"],
                  })
                }
              >
                <option value="">default</option>
                <option value="on">on</option>
                <option value="off">off</option>
              </select>
            </label>
          </div>
        </fieldset>
        <Area label="Stop at (one per line)" name="stop" rows={2} hint="" panel={props} />
        <Area label="JSON schema of the reply" name="schema" rows={6} hint={SCHEMA} panel={props} code />
        <Area label="Tools (JSON)" name="tools" rows={6} hint={TOOLS} panel={props} code />
        <button type="button" onClick={() => onChange({ ...NO_SETTINGS })}>
          Reset all
        </button>
      </div>
    </aside>
  );
}
