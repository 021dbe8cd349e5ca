// Small pieces that every view uses: icons, copying, notices, what is read aloud.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { store, useStore } from "./store";

const PATHS = {
  plus: "M8 3v10M3 8h10",
  send: "M8 13V3M3.500 7.500 8 3l4.500 4.500",
  stop: "M4.500 4.500h7v7h-7z",
  image: "M2.500 3.500h11v9h-11zM2.500 11l3.500-3.500 3 3 2-2 2.500 2.500M10 6.200h.01",
  copy: "M5.500 5.500h8v8h-8zM10.500 5.500v-3h-8v8h3",
  done: "m3 8.500 3.500 3.500L13 4.500",
  retry: "M13 8a5 5 0 1 1-1.500-3.600M13 2.500v3h-3",
  edit: "m3 13 .7-3L10.500 3.200l2.300 2.300L6 12.300zM9 4.700l2.300 2.300",
  close: "m4 4 8 8M12 4l-8 8",
  menu: "M2.500 4.500h11M2.500 8h11M2.500 11.500h11",
  chat: "M2.500 3.500h11v8H7l-3 2.500v-2.500H2.500z",
  live: "M1.500 8.500h3l2-5 3 9 2-5.500 1 1.500h2",
  models: "M8 2 14 5 8 8 2 5zM2 8l6 3 6-3M2 11l6 3 6-3",
  connect: "M6.500 9.500l3-3M7 4.500l1.500-1.500a3 3 0 0 1 4.200 4.200L11.200 8.800M9 11.500l-1.500 1.500a3 3 0 0 1-4.200-4.200L4.800 7.200",
  api: "M5.500 4 2 8l3.500 4M10.500 4 14 8l-3.500 4",
  key: "M9.500 6.500a3 3 0 1 0-1.200 2.400L9.500 10H11v1.500h1.500V13h2v-2.200L9.200 7.700M5.500 6.200h.01",
  sun: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6M8 1v1.500M8 13.500V15M1 8h1.500M13.500 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1",
  moon: "M13.500 9.500A6 6 0 0 1 6.500 2.500a6 6 0 1 0 7 7z",
  auto: "M8 2a6 6 0 1 0 0 12zM8 2a6 6 0 0 1 0 12",
  settings: "M2 4.500h7M12 4.500h2M2 11.500h2M7 11.500h7M10.500 3v3M5.500 10v3",
  remove: "M3 4.500h10M6.500 4.500V3h3v1.500M4.500 4.500l.5 8.500h6l.5-8.500",
  back: "M10 3.500 5.500 8l4.500 4.500",
  next: "M6 3.500 10.500 8 6 12.500",
  down: "M8 3v10M3.500 8.500 8 13l4.500-4.500",
  file: "M8 2.500v8M4.500 7 8 10.500 11.500 7M3 13.500h10",
  import: "M8 10.5v-8M4.500 6 8 2.500 11.500 6M3 13.500h10",
  pin: "M8 10v4M5 10h6l-1-2.500V2.500H6v5z",
  more: "M3 8a.5.5 0 1 0 1 0 .5.5 0 1 0-1 0M7.500 8a.5.5 0 1 0 1 0 .5.5 0 1 0-1 0M12 8a.5.5 0 1 0 1 0 .5.5 0 1 0-1 0",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}

interface IconButtonProps {
  icon: IconName;
  label: string;
  onClick: () => void;
  disabled?: boolean;
  pressed?: boolean;
  expanded?: boolean;
  class?: string;
}

export function IconButton(props: IconButtonProps) {
  return (
    <button
      type="button"
      class={`icon-button ${props.class ?? ""}`}
      aria-label={props.label}
      title={props.label}
      aria-pressed={props.pressed}
      aria-expanded={props.expanded}
      disabled={props.disabled}
      onClick={props.onClick}
    >
      <Icon name={props.icon} />
    </button>
  );
}

// -- said to those who do not see ------------------------------------------------------------------

const announced = store("");

export function announce(text: string): void {
  announced.set("");
  setTimeout(() => announced.set(text), 50);
}

export function Announcer() {
  return (
    <div class="unseen" role="status" aria-live="polite">
      {useStore(announced)}
    </div>
  );
}

// -- a short word at the bottom --------------------------------------------------------------------

interface Toast {
  text: string;
  undo?: () => void;
}

const toast = store<Toast | null>(null);
let fading = 0;

export function say(text: string, undo?: () => void): void {
  toast.set({ text, undo });
  clearTimeout(fading);
  fading = window.setTimeout(() => toast.set(null), undo ? 8000 : 3000);
}

export function Toasts() {
  const shown = useStore(toast);
  // Readers follow a region that was there before its text.
  return (
    <div class={shown ? "toast" : "unseen"} role="status">
      <span>{shown?.text}</span>
      {shown?.undo && (
        <button
          type="button"
          class="link"
          onClick={() => {
            shown.undo!();
            toast.set(null);
          }}
        >
          Undo
        </button>
      )}
    </div>
  );
}

// -- copying -----------------------------------------------------------------------------------

export async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without https a browser has no clipboard but the old one.
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "unseen";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

export function CopyButton({ text, label }: { text: string | (() => string); label: string }) {
  const [done, setDone] = useState(false);
  const timer = useRef(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  const act = async () => {
    const copied = await copy(typeof text === "string" ? text : text());
    setDone(copied);
    announce(copied ? "Copied." : "It could not be copied.");
    timer.current = window.setTimeout(() => setDone(false), 1500);
  };
  return <IconButton icon={done ? "done" : "copy"} label={done ? "Copied" : label} onClick={act} />;
}

// -- a list that opens -------------------------------------------------------------------------

export function Menu(props: { icon: IconName; label: string; children: ComponentChildren }) {
  const ref = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    const close = (event: Event) => {
      const menu = ref.current;
      if (!menu?.open) return;
      const leaves = event instanceof KeyboardEvent && event.key === "Escape";
      const outside = event.type === "pointerdown" && !menu.contains(event.target as Node);
      if (!leaves && !outside) return;
      menu.open = false;
      if (leaves) menu.querySelector("summary")!.focus();
    };
    document.addEventListener("pointerdown", close);
    document.addEventListener("keydown", close);
    return () => {
      document.removeEventListener("pointerdown", close);
      document.removeEventListener("keydown", close);
    };
  }, []);
  return (
    <details class="menu" ref={ref}>
      <summary class="icon-button" aria-label={props.label} title={props.label}>
        <Icon name={props.icon} />
      </summary>
      <div
        class="menu-list"
        onClick={(event) => {
          if ((event.target as Element).closest("button")) ref.current!.open = false;
        }}
      >
        {props.children}
      </div>
    </details>
  );
}

export function Notice(props: {
  kind: "problem" | "wait";
  title: string;
  children?: ComponentChildren;
}) {
  return (
    <div class={`notice ${props.kind}`} role={props.kind === "problem" ? "alert" : "status"}>
      <strong>{props.title}</strong>
      {props.children}
    </div>
  );
}

export function Empty(props: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{props.title}</p>
      {props.children}
    </div>
  );
}

// -- numbers -----------------------------------------------------------------------------------

export function bytes(size: number): string {
  if (size >= 1e9) return `${(size / 1e9).toFixed(size >= 1e10 ? 1 : 2)} GB`;
  if (size >= 1e6) return `${(size / 1e6).toFixed(1)} MB`;
  return size >= 1e3 ? `${(size / 1e3).toFixed(0)} kB` : `${size} B`;
}

export function seconds(value: number): string {
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 90) return `${value.toFixed(value < 10 ? 2 : 0)} s`;
  return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
}

export function count(value: number): string {
  return value.toLocaleString("en");
}
