// The models of this server: how each is doing, and what an operator may do about it.
import { useEffect, useState } from "preact/hooks";
import { ApiFailure, json } from "./api";
import { askModels, models } from "./server";
import type { ModelCard } from "./server";
import { useStore } from "./store";
import { bytes, count, Empty, Icon, say } from "./ui";

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

function Model({ card, names, changes }: { card: ModelCard; names: string[]; changes: boolean }) {
  const [acting, setActing] = useState<Act | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const act = async (name: Act) => {
    setActing(name);
    setProblem(null);
    // So that `is being loaded` is seen while the answer is waited for.
    const looking = setInterval(() => void askModels(), 700);
    try {
      await json("POST", `/v1/models/${card.id.split("/").map(encodeURIComponent).join("/")}/${name}`);
      say(`${card.id} ${DONE[name]}.`);
    } catch (error) {
      setProblem((error as ApiFailure).message);
    } finally {
      clearInterval(looking);
      setActing(null);
      await askModels();
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
        <h2>
          {card.id}
          {changes && card.pinned && (
            <span class="tag">
              <Icon name="pin" /> pinned
            </span>
          )}
        </h2>
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
      {changes && (
        <div class="row">
          {loaded ? button("unload", "Unload") : button("load", "Load", true)}
          {card.pinned ? button("unpin", "Unpin") : button("pin", "Pin")}
        </div>
      )}
    </li>
  );
}

export function ModelsView() {
  const cards = useStore(models);
  const [several, setSeveral] = useState(false);
  useEffect(() => {
    void askModels();
    const looking = setInterval(() => void askModels(), 2000);
    json<object>("GET", "/v1/status")
      .then((status) => setSeveral("models" in status))
      .catch(() => {});
    return () => clearInterval(looking);
  }, []);
  const main = cards?.filter((card) => card.id === card.root) ?? [];
  return (
    <div class="view page">
      <header class="view-head">
        <h1>Models</h1>
        <span class="quiet">{cards ? `${main.length} on this server` : ""}</span>
      </header>
      <div class="scroller">
        <div class="wide">
          {cards === null && <Empty title="The models are not known yet" />}
          <ul class="models">
            {main.map((card) => (
              <Model
                key={card.id}
                card={card}
                changes={several}
                names={cards!.filter((one) => one.root === card.id && one !== card).map((one) => one.id)}
              />
            ))}
          </ul>
          {cards && !several && (
            <p class="hint">
              This server has one model, which stays. Start it with several (
              <code>bushel serve A B</code>, or a folder of checkpoints) to load and unload them here.
            </p>
          )}
        </div>
      </div>
    </div>
  );
}
