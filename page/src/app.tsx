// The page's frame: where to go, how the server is doing, and the view that was asked for.
import { useEffect, useRef, useState } from "preact/hooks";
import { refusedKey, ROOT } from "./api";
import { newId, titleOf } from "./chat/conversation";
import { importJson } from "./chat/export";
import { running } from "./chat/replies";
import { conversations, put, remove } from "./chat/storage";
import { ChatView } from "./chat/view";
import { ConnectView } from "./connect";
import { DocsView } from "./docs";
import { KeyForm } from "./key";
import { LiveView } from "./live/view";
import { ModelsView } from "./models/view";
import { health, models } from "./server";
import { kept, store, useStore } from "./store";
import { Announcer, Icon, IconButton, Notice, say, Toasts } from "./ui";
import type { IconName } from "./ui";

type Place = { view: "chat" | "live" | "models" | "connect" | "api"; id: string };

const VIEWS: { view: Place["view"]; label: string; icon: IconName; href: string }[] = [
  { view: "chat", label: "Chat", icon: "chat", href: `${ROOT}/#/chat` },
  { view: "live", label: "Live", icon: "live", href: `${ROOT}/#/live` },
  { view: "models", label: "Models", icon: "models", href: `${ROOT}/#/models` },
  { view: "connect", label: "Connect", icon: "connect", href: `${ROOT}/#/connect` },
  { view: "api", label: "API", icon: "api", href: `${ROOT}/docs` },
];

function placeNow(): Place {
  const [, view, id] = location.hash.split("/");
  if (location.pathname === `${ROOT}/docs` && !view) return { view: "api", id: "" };
  const known = VIEWS.find((one) => one.view === view);
  return { view: known?.view ?? "chat", id: id ?? "" };
}

const place = store<Place>(placeNow());
const theme = kept<"auto" | "light" | "dark">("bushel.theme", "auto");
/** The chat that is open when the address names none. */
const open = store(newId());

export function follow(): void {
  addEventListener("hashchange", () => place.set(placeNow()));
  const dress = () => (document.documentElement.dataset.theme = theme.get());
  theme.follow(dress);
  dress();
}

function ThemeButton() {
  const now = useStore(theme);
  const next = { auto: "light", light: "dark", dark: "auto" } as const;
  const icon = { auto: "auto", light: "sun", dark: "moon" } as const;
  const words = { auto: "as the system", light: "light", dark: "dark" };
  return (
    <IconButton
      icon={icon[now]}
      label={`Colours: ${words[now]}`}
      onClick={() => theme.set(next[now])}
    />
  );
}

function ServerLine() {
  const { state } = useStore(health);
  const words = {
    unknown: "Asking the server…",
    ready: "Server ready",
    busy: "Server not ready",
    gone: "Server gone",
  };
  return (
    <p class="server-line">
      <span class={`dot ${state}`} aria-hidden="true" /> {words[state]}
    </p>
  );
}

function Chats({ current, onGo }: { current: string; onGo(): void }) {
  const all = useStore(conversations) ?? [];
  const begun = all.filter((one) => one.turns.length);
  const busy = useStore(running);
  const picker = useRef<HTMLInputElement>(null);
  const forget = (id: string) => {
    const gone = all.find((one) => one.id === id)!;
    remove(id);
    if (id === current) location.hash = `#/chat/${newId()}`;
    say("Chat deleted.", () => put(gone));
  };
  return (
    <div class="chats">
      <div class="chats-head">
        <h2>Chats</h2>
        <IconButton icon="import" label="Import a chat" onClick={() => picker.current!.click()} />
        <input
          ref={picker}
          type="file"
          accept="application/json,.json"
          hidden
          aria-label="File of a chat"
          onChange={async (event) => {
            const input = event.currentTarget;
            try {
              const read = importJson(await input.files![0].text());
              put(read);
              location.hash = `#/chat/${read.id}`;
            } catch (error) {
              say(error instanceof SyntaxError ? "This file is no JSON." : (error as Error).message);
            }
            input.value = "";
          }}
        />
      </div>
      {!begun.length && <p class="hint">None yet. They are kept in this browser alone.</p>}
      <ul>
        {begun.map((one) => (
            <li key={one.id} class={one.id === current ? "current" : ""}>
              <a
                href={`${ROOT}/#/chat/${one.id}`}
                aria-current={one.id === current ? "page" : undefined}
                onClick={onGo}
              >
                {busy.has(one.id) && <span class="dot busy" aria-label="writing" role="img" />}
                {titleOf(one)}
              </a>
              <IconButton
                icon="remove"
                label={`Delete chat: ${titleOf(one)}`}
                onClick={() => forget(one.id)}
              />
            </li>
          ))}
      </ul>
    </div>
  );
}

function Sidebar(props: { at: Place; chat: string; shown: boolean; onClose(): void; onKey(): void }) {
  return (
    <header class={`sidebar${props.shown ? " shown" : ""}`}>
      <div class="brand">
        <img src={`${ROOT}/page/icon.svg`} alt="" width="26" height="26" />
        <span>Bushel</span>
        <IconButton icon="close" label="Close menu" class="phone-only" onClick={props.onClose} />
      </div>
      <a class="new-chat" href={`${ROOT}/#/chat/${newId()}`} onClick={props.onClose}>
        <Icon name="plus" /> New chat
      </a>
      <nav aria-label="Views">
        {VIEWS.map((one) => (
          <a
            key={one.view}
            href={one.view === "chat" ? `${ROOT}/#/chat/${props.chat}` : one.href}
            aria-current={props.at.view === one.view ? "page" : undefined}
            onClick={props.onClose}
          >
            <Icon name={one.icon} /> {one.label}
          </a>
        ))}
      </nav>
      <Chats current={props.at.view === "chat" ? props.chat : ""} onGo={props.onClose} />
      <div class="foot">
        <ServerLine />
        <IconButton icon="key" label="API key" onClick={props.onKey} />
        <ThemeButton />
      </div>
    </header>
  );
}

/** gate: whether there is nothing else to show yet. */
function Trouble({ gate }: { gate: boolean }) {
  const now = useStore(health);
  const refused = useStore(refusedKey);
  if (now.state === "gone") {
    return (
      <Notice kind="problem" title="The server does not answer.">
        <p>It may have been stopped. This page goes on by itself when it is back.</p>
      </Notice>
    );
  }
  if (refused !== null) {
    return (
      <div class={`notice key-notice${gate ? " gate" : ""}`}>
        <strong>This server asks for an API key.</strong>
        <KeyForm focus={gate} />
      </div>
    );
  }
  if (now.state === "busy") {
    const why = now.reason.replace(/^The server is not ready: /, "");
    return (
      <Notice kind="wait" title="The server is not ready yet.">
        <p>
          {why.charAt(0).toUpperCase() + why.slice(1)} This page notices when it is; what you send
          until then waits.
        </p>
      </Notice>
    );
  }
  return null;
}

function KeyDialog({ onClose }: { onClose(): void }) {
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => ref.current!.showModal(), []);
  return (
    <dialog ref={ref} onClose={onClose} aria-labelledby="key-title">
      <header>
        <h2 id="key-title">API key</h2>
        <IconButton icon="close" label="Close" onClick={() => ref.current!.close()} />
      </header>
      <KeyForm onDone={() => ref.current!.close()} />
    </dialog>
  );
}

export function App() {
  const at = useStore(place);
  const fresh = useStore(open);
  const refused = useStore(refusedKey);
  const gate = useStore(models) === null && refused !== null;
  const [menu, setMenu] = useState(false);
  const [asking, setAsking] = useState(false);
  const chat = at.view === "chat" && at.id ? at.id : fresh;
  useEffect(() => {
    if (at.view === "chat" && at.id) open.set(at.id);
    // So that a reload shows the same chat.
    if (at.view === "chat" && !at.id) history.replaceState(null, "", `${ROOT}/#/chat/${fresh}`);
    const label = VIEWS.find((one) => one.view === at.view)!.label;
    document.title = at.view === "chat" ? "Bushel" : `${label} · Bushel`;
  }, [at]);
  return (
    <div class="frame">
      <a class="skip" href="#main" onClick={(event) => {
        event.preventDefault();
        document.getElementById("main")!.focus();
      }}>
        Skip to content
      </a>
      <nav class="top phone-only" aria-label="Menu and new chat">
        <IconButton icon="menu" label="Menu" expanded={menu} onClick={() => setMenu(true)} />
        <span>Bushel</span>
        <a class="icon-button" href={`${ROOT}/#/chat/${newId()}`} aria-label="New chat" title="New chat">
          <Icon name="plus" />
        </a>
      </nav>
      <Sidebar
        at={at}
        chat={chat}
        shown={menu}
        onClose={() => setMenu(false)}
        onKey={() => setAsking(true)}
      />
      {menu && <div class="veil" onClick={() => setMenu(false)} />}
      <main id="main" tabIndex={-1}>
        <Trouble gate={gate} />
        {!gate && (
          <>
            {at.view === "chat" && <ChatView key={chat} id={chat} />}
            {at.view === "live" && <LiveView />}
            {at.view === "models" && <ModelsView />}
            {at.view === "connect" && <ConnectView />}
            {at.view === "api" && <DocsView />}
          </>
        )}
      </main>
      {asking && refused === null && <KeyDialog onClose={() => setAsking(false)} />}
      <Toasts />
      <Announcer />
    </div>
  );
}
