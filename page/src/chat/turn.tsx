// One turn of a conversation, with what can be done about it.
import { memo } from "preact/compat";
import { useEffect, useRef, useState } from "preact/hooks";
import { Markdown } from "../markdown";
import { CopyButton, Icon, IconButton, Menu } from "../ui";
import type { ToolCall, Turn } from "./conversation";
import { FiguresLine } from "./figures";

export interface TurnActions {
  retry(turn: Turn): void;
  edit(turn: Turn, text: string): void;
  show(turn: Turn): void; // another branch
  answer(turn: Turn, call: ToolCall, result: string): void;
  copyAs(turn: Turn, form: "curl" | "python"): void;
}

interface TurnProps {
  turn: Turn;
  alternatives: Turn[]; // itself among them
  writing: boolean;
  waiting: string; // what for, before the first token
  busy: boolean; // some reply of this conversation is being written
  answered: string[]; // calls that have a result
  actions: TurnActions;
}

function Branches({ turn, alternatives, actions, busy }: TurnProps) {
  if (alternatives.length < 2) return null;
  const at = alternatives.findIndex((other) => other.id === turn.id);
  return (
    <span class="branches" role="group" aria-label="Versions">
      <IconButton
        icon="back"
        label="Previous version"
        disabled={busy || at === 0}
        onClick={() => actions.show(alternatives[at - 1])}
      />
      <span aria-label={`Version ${at + 1} of ${alternatives.length}`} role="img">
        {at + 1}/{alternatives.length}
      </span>
      <IconButton
        icon="next"
        label="Next version"
        disabled={busy || at === alternatives.length - 1}
        onClick={() => actions.show(alternatives[at + 1])}
      />
    </span>
  );
}

function Editor(props: { text: string; onSend(text: string): void; onCancel(): void }) {
  const [text, setText] = useState(props.text);
  const ref = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    ref.current!.focus();
    ref.current!.setSelectionRange(text.length, text.length);
  }, []);
  return (
    <form
      class="editor"
      onSubmit={(event) => {
        event.preventDefault();
        props.onSend(text);
      }}
    >
      <textarea
        ref={ref}
        aria-label="Edit your message"
        rows={Math.min(12, text.split("\n").length + 1)}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") props.onCancel();
          if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
            event.preventDefault();
            props.onSend(text);
          }
        }}
      />
      <div class="row end">
        <button type="button" onClick={props.onCancel}>
          Cancel
        </button>
        <button type="submit" class="primary" disabled={!text.trim()}>
          Send
        </button>
      </div>
    </form>
  );
}

function User(props: TurnProps) {
  const { turn, actions, busy } = props;
  const [editing, setEditing] = useState(false);
  if (editing) {
    return (
      <Editor
        text={turn.text}
        onCancel={() => setEditing(false)}
        onSend={(text) => {
          setEditing(false);
          actions.edit(turn, text);
        }}
      />
    );
  }
  return (
    <>
      <div class="bubble">
        {turn.images?.map((url, at) => (
          <img key={at} src={url} alt={`Picture ${at + 1} that you sent`} />
        ))}
        {turn.text && <p class="pre">{turn.text}</p>}
      </div>
      <div class="actions">
        <Branches {...props} />
        <CopyButton text={turn.text} label="Copy message" />
        <IconButton
          icon="edit"
          label="Edit message"
          disabled={busy}
          onClick={() => setEditing(true)}
        />
      </div>
    </>
  );
}

function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text; // still being written
  }
}

function Call(props: { call: ToolCall; open: boolean; onAnswer(result: string): void }) {
  const { call } = props;
  const [result, setResult] = useState("");
  return (
    <section class="call" aria-label={`Tool call ${call.name}`}>
      <header>
        <Icon name="api" /> <code>{call.name}</code>
        <span class="quiet">tool call</span>
      </header>
      <pre tabIndex={0} aria-label="Arguments">
        {pretty(call.arguments)}
      </pre>
      {props.open && (
        <form
          class="row"
          onSubmit={(event) => {
            event.preventDefault();
            props.onAnswer(result);
          }}
        >
          <input
            aria-label={`Result of ${call.name}`}
            placeholder="What the tool answers…"
            value={result}
            onInput={(event) => setResult(event.currentTarget.value)}
          />
          <button type="submit" disabled={!result.trim()}>
            Send result
          </button>
        </form>
      )}
    </section>
  );
}

function Assistant(props: TurnProps) {
  const { turn, actions, busy, writing } = props;
  const silent = !turn.text && !turn.thoughts && !turn.calls?.length;
  return (
    <>
      {turn.thoughts && (
        <details class="thoughts" open={writing && !turn.text}>
          <summary>{writing && !turn.text ? "Thinking…" : "Thoughts"}</summary>
          <Markdown text={turn.thoughts} />
        </details>
      )}
      {turn.text && <Markdown text={turn.text} />}
      {turn.calls?.map((call) => (
        <Call
          key={call.id}
          call={call}
          open={!busy && !props.answered.includes(call.id)}
          onAnswer={(result) => actions.answer(turn, call, result)}
        />
      ))}
      {writing && silent && <p class="waiting">{props.waiting}</p>}
      {turn.error && (
        <p class="failed" role="alert">
          {turn.error}
        </p>
      )}
      {!writing && !turn.error && silent && !turn.stopped && <p class="quiet">An empty reply.</p>}
      {turn.stopped && <p class="quiet">You stopped this reply.</p>}
      {!writing && (
        <div class="actions">
          <Branches {...props} />
          <CopyButton text={turn.text} label="Copy reply" />
          <IconButton
            icon="retry"
            label="Retry"
            disabled={busy}
            onClick={() => actions.retry(turn)}
          />
          <Menu icon="more" label="More about this reply">
            <button type="button" onClick={() => actions.copyAs(turn, "curl")}>
              Copy request as curl
            </button>
            <button type="button" onClick={() => actions.copyAs(turn, "python")}>
              Copy request as Python
            </button>
          </Menu>
          {turn.figures && <FiguresLine figures={turn.figures} />}
        </div>
      )}
    </>
  );
}

const NAMES = { user: "You", assistant: "Reply", tool: "Tool result" };

export const TurnView = memo(
  function TurnView(props: TurnProps) {
    const { turn } = props;
    return (
      <article class={`turn ${turn.role}`} aria-label={NAMES[turn.role]} aria-busy={props.writing}>
        {turn.role === "user" && <User {...props} />}
        {turn.role === "assistant" && <Assistant {...props} />}
        {turn.role === "tool" && (
          <div class="call">
            <header>
              <span class="quiet">tool result</span>
            </header>
            <pre tabIndex={0} aria-label="Tool result">
              {turn.text}
            </pre>
          </div>
        )}
      </article>
    );
  },
  // Actions are made anew with each render, and always mean the conversation of that moment.
  (before, after) =>
    before.turn === after.turn &&
    before.writing === after.writing &&
    before.busy === after.busy &&
    before.waiting === after.waiting &&
    before.actions === after.actions &&
    before.alternatives.length === after.alternatives.length &&
    before.answered.length === after.answered.length,
);
