// A model of this server: how it is doing, and what an operator may do about it.
import { useState } from "preact/hooks";
import { ApiFailure, json } from "../api";
import { askModels } from "../server";
import type { ModelCard } from "../server";
import { bytes, count, Icon, say } from "../ui";
import { askDisk, inPath, refusedDisk } from "./hub";

const STATES: Record<ModelCard["state"], string> = {
  unloaded: "not loaded",
  queued: "waits for memory",
  loading: "is being loaded",
  ready: "ready",
  unloading: "is being unloaded",
  failed: "cannot be loaded",
};

type Act = "load" | "unload" | "pin" | "unpin";

const DONE: Record<Act, string> = {
  load: "is loaded",
  unload: "is unloaded",
  pin: "is loaded, and stays",
  unpin: "may be unloaded again",
};

interface ServedProps {
  card: ModelCard;
  names: string[];
  changes: boolean;
  onInspect(id: string): void;
}

export function ServedModel({ card, names, changes, onInspect }: ServedProps) {
  const [acting, setActing] = useState<Act | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const act = async (name: Act) => {
    setActing(name);
    setProblem(null);
    // So that `is being loaded` is seen while the answer is waited for.
    const looking = setInterval(() => void askModels(), 700);
    try {
      await json("POST", `/v1/models/${inPath(card.id)}/${name}`);
      say(`${card.id} ${DONE[name]}.`);
    } catch (error) {
      setProblem((error as ApiFailure).message);
    } finally {
      clearInterval(looking);
      setActing(null);
      await askModels();
      if (refusedDisk.get() === null) await askDisk();
    }
  };
  const button = (name: Act, label: string, primary = false) => (
    <button
      type="button"
      class={primary ? "primary" : ""}
      disabled={acting !== null}
      aria-label={`${label} ${card.id}`}
      onClick={() => void act(name)}
    >
      {label}
    </button>
  );
  const loaded = card.state === "ready";
  return (
    <li class="card model">
      <div>
        <h3>
          {card.id}
          {changes && card.pinned && (
            <span class="tag">
              <Icon name="pin" /> pinned
            </span>
          )}
        </h3>
        <p class="quiet">
          <span class={`dot ${card.state}`} aria-hidden="true" /> {STATES[card.state]}
          {card.max_model_len !== null && ` · context of ${count(card.max_model_len)} tokens`}
          {card.memory_bytes > 0 && ` · may use ${bytes(card.memory_bytes)}`}
        </p>
        {names.length > 0 && <p class="hint">also as {names.join(", ")}</p>}
        {card.reason && card.state !== "ready" && card.state !== "unloaded" && (
          <p class="hint">{card.reason}</p>
        )}
        {problem && (
          <p class="failed" role="alert">
            {problem}
          </p>
        )}
      </div>
      <div class="row">
        {changes && (
          <>
            {loaded ? button("unload", "Unload") : button("load", "Load", true)}
            {card.pinned ? button("unpin", "Unpin") : button("pin", "Pin")}
          </>
        )}
        <button
          type="button"
          aria-label={`Inspect ${card.id}, as it is served`}
          onClick={() => onInspect(card.id)}
        >
          Inspect
        </button>
      </div>
    </li>
  );
}
