// The chat: the branch that is shown, the composer below it, the settings beside it.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { askModels, chosen, currentModel, models } from "../server";
import { kept, useStore } from "../store";
import { announce, copy, IconButton, Menu, say } from "../ui";
import { Composer } from "./composer";
import {
  add,
  branch,
  newConversation,
  newestLeaf,
  newId,
  siblings,
  titleOf,
} from "./conversation";
import type { Conversation, ToolCall, Turn } from "./conversation";
import { exportJson, exportMarkdown } from "./export";
import { reply, running, stop } from "./replies";
import { asCurl, asPython, chatBody } from "./request";
import { SettingsPanel } from "./settings";
import { conversations, notKept, put } from "./storage";
import { suggestions } from "./suggestions";
import { TurnView } from "./turn";
import type { TurnActions } from "./turn";

const settingsOpen = kept("bushel.settings", false);

function useConversation(id: string): Conversation | null {
  const all = useStore(conversations);
  const cards = useStore(models);
  const model = currentModel(cards, useStore(chosen));
  const fresh = useMemo(() => ({ ...newConversation(model), id }), [id]);
  if (all === null) return null;
  const found = all.find((one) => one.id === id);
  if (!found) return { ...fresh, model };
  // A model that is no longer served makes way for one that is.
  return cards?.some((card) => card.id === found.model) ? found : { ...found, model };
}

/** What can be done about turns; each looks up the conversation as it is by then. */
function makeActions(get: () => Conversation): TurnActions {
  const copyRequest = async (turn: Turn, form: "curl" | "python") => {
    const now = get();
    try {
      const body = chatBody({ ...now, model: turn.model ?? now.model }, branch(now, turn.parent));
      const text = form === "curl" ? asCurl(body) : asPython(body);
      say((await copy(text)) ? "Copied." : "It could not be copied.");
    } catch (error) {
      say((error as Error).message);
    }
  };
  return {
    retry: (turn) => void reply(get(), turn.parent!),
    edit(turn, text) {
      const edited: Turn = { ...turn, id: newId(), text };
      void reply(add(get(), edited), edited.id);
    },
    show(turn) {
      const now = get();
      put({ ...now, leaf: newestLeaf(now, turn.id) });
    },
    answer(turn, call: ToolCall, result) {
      const now = get();
      const parent = now.leaf ?? turn.id;
      const told: Turn = { id: newId(), parent, role: "tool", text: result, callId: call.id };
      const next = add(now, told);
      const given = branch(next)
        .filter((one) => one.role === "tool")
        .map((one) => one.callId);
      if (turn.calls!.every((one) => given.includes(one.id))) void reply(next, told.id);
      else put(next);
    },
    copyAs: (turn, form) => void copyRequest(turn, form),
  };
}

function Welcome(props: { model: string; onAsk(text: string, images: string[]): void }) {
  return (
    <div class="welcome">
      <h2>What can I do for you?</h2>
      {props.model && (
        <p class="quiet">
          You are talking to <strong>{props.model}</strong> on this server. Nothing leaves it.
        </p>
      )}
      <ul>
        {suggestions(props.model).map((one) => (
          <li key={one.label}>
            <button
              type="button"
              onClick={() => props.onAsk(one.text, one.picture ? [one.picture()] : [])}
            >
              {one.label}
            </button>
          </li>
        ))}
      </ul>
    </div>
  );
}

function Head(props: { conversation: Conversation; open: boolean; onToggle(): void }) {
  const { conversation } = props;
  const cards = useStore(models) ?? [];
  const begun = conversation.turns.length > 0;
  return (
    <header class="view-head">
      <h1 class="unseen">Chat</h1>
      <input
        class="title"
        aria-label="Title of this chat"
        value={titleOf(conversation)}
        disabled={!begun}
        onChange={(event) => put({ ...conversation, title: event.currentTarget.value.trim() })}
      />
      <select
        aria-label="Model"
        value={conversation.model}
        onChange={(event) => {
          chosen.set(event.currentTarget.value);
          if (begun) put({ ...conversation, model: event.currentTarget.value });
        }}
      >
        {cards.length === 0 && <option value={conversation.model}>{conversation.model || "…"}</option>}
        {cards.map((card) => (
          <option key={card.id} value={card.id}>
            {card.id}
          </option>
        ))}
      </select>
      {begun && (
        <Menu icon="file" label="Export this chat">
          <button type="button" onClick={() => exportMarkdown(conversation)}>
            Export as markdown
          </button>
          <button type="button" onClick={() => exportJson(conversation)}>
            Export with all versions (JSON)
          </button>
        </Menu>
      )}
      <IconButton
        icon="settings"
        label="Settings of this chat"
        expanded={props.open}
        onClick={props.onToggle}
      />
    </header>
  );
}

export function ChatView({ id }: { id: string }) {
  const conversation = useConversation(id);
  const open = useStore(settingsOpen);
  const lost = useStore(notKept);
  const writing = useStore(running).has(id);
  const latest = useRef(conversation);
  latest.current = conversation;
  const actions = useMemo(() => makeActions(() => latest.current!), [id]);
  const scroller = useRef<HTMLDivElement>(null);
  const [below, setBelow] = useState(false);
  const follows = useRef(true);

  const turns = useMemo(() => (conversation ? branch(conversation) : []), [conversation]);

  const toEnd = () => {
    const box = scroller.current;
    if (box) box.scrollTop = box.scrollHeight;
  };
  useEffect(() => {
    follows.current = true;
    toEnd();
  }, [id]);
  useEffect(() => {
    if (follows.current) toEnd();
  }, [turns, conversation]);

  const wasWriting = useRef(false);
  useEffect(() => {
    const last = turns.at(-1);
    if (wasWriting.current && !writing && last) {
      announce(last.error ? last.error : `Reply complete. ${last.text.slice(0, 500)}`);
    }
    wasWriting.current = writing;
  }, [writing]);

  const state = useStore(models)?.find((card) => card.id === conversation?.model)?.state;
  const loading = writing && state !== "ready";
  useEffect(() => {
    if (!loading) return;
    const looking = setInterval(() => void askModels(), 1500);
    return () => clearInterval(looking);
  }, [loading]);

  if (!conversation) return <div class="view" aria-busy="true" />;

  const send = (text: string, images: string[]) => {
    const turn: Turn = { id: newId(), parent: conversation.leaf, role: "user", text };
    if (images.length) turn.images = images;
    follows.current = true;
    void reply(add(conversation, turn), turn.id);
  };
  const answered = turns.flatMap((turn) => (turn.callId ? [turn.callId] : []));

  return (
    <div class={`view chat${open ? " with-panel" : ""}`}>
      <div class="chat-main">
        <Head conversation={conversation} open={open} onToggle={() => settingsOpen.set(!open)} />
        <div
          class="scroller"
          ref={scroller}
          onScroll={(event) => {
            const box = event.currentTarget;
            const away = box.scrollHeight - box.scrollTop - box.clientHeight;
            follows.current = away < 60;
            setBelow(away > 300);
          }}
        >
          <div class="column">
            {lost && <p class="hint">{lost}</p>}
            {turns.length === 0 ? (
              <Welcome model={conversation.model} onAsk={send} />
            ) : (
              turns.map((turn, at) => (
                <TurnView
                  key={turn.id}
                  turn={turn}
                  alternatives={siblings(conversation, turn)}
                  writing={writing && at === turns.length - 1}
                  waiting={loading ? "The model is being loaded" : "Waiting for the first token"}
                  busy={writing}
                  answered={answered}
                  actions={actions}
                />
              ))
            )}
          </div>
        </div>
        <div class="dock">
          {below && <IconButton icon="down" label="To the newest" class="to-end" onClick={toEnd} />}
          <Composer
            writing={writing}
            focusKey={id}
            placeholder={`Message ${conversation.model || "the model"}`}
            onSend={send}
            onStop={() => stop(id)}
          />
        </div>
      </div>
      {open && (
        <SettingsPanel
          settings={conversation.settings}
          onChange={(settings) => put({ ...conversation, settings })}
          onClose={() => settingsOpen.set(false)}
        />
      )}
    </div>
  );
}
