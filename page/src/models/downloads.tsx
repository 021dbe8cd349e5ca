// Asking for a model of the hub, and watching it come.
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiFailure } from "../api";
import { useStore } from "../store";
import { bytes, say, seconds } from "../ui";
import { dropPull, lasts, pulls, speeds, startPull } from "./hub";
import type { Pull } from "./hub";

export function PullForm() {
  const [typed, setTyped] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const ask = async () => {
    // People copy the address of a model's page.
    const model = typed.trim().replace(/^https?:\/\/[^/]+\//, "").replace(/\/+$/, "");
    if (!model) return;
    setBusy(true);
    setProblem(null);
    try {
      await startPull(model);
      setTyped("");
    } catch (error) {
      setProblem((error as ApiFailure).message);
    } finally {
      setBusy(false);
    }
  };
  return (
    <form
      class="card pull-form"
      onSubmit={(event) => {
        event.preventDefault();
        void ask();
      }}
    >
      <label class="field">
        <span>Download a model from the hub</span>
        <input
          value={typed}
          placeholder="mlx-community/Qwen3-4B-4bit"
          autocomplete="off"
          autocapitalize="off"
          spellcheck={false}
          aria-invalid={problem !== null}
          onInput={(event) => setTyped(event.currentTarget.value)}
        />
      </label>
      <button type="submit" class="primary" disabled={busy || !typed.trim()}>
        Download
      </button>
      {problem && (
        <p class="failed" role="alert">
          {problem}
        </p>
      )}
    </form>
  );
}

function words(pull: Pull, speed: number | undefined): string {
  if (pull.state === "waiting") return "waits for another download";
  if (!pull.files_total) return "asks the hub what it has";
  const part = `${bytes(pull.bytes_done)} of ${bytes(pull.bytes_total)}`;
  const files = `${pull.files_done} of ${pull.files_total} files`;
  if (!speed || speed < 1) return `${part} · ${files}`;
  const left = seconds((pull.bytes_total - pull.bytes_done) / speed);
  return `${part} · ${files} · ${bytes(Math.round(speed))}/s · ${left} left`;
}

function Download({ pull }: { pull: Pull }) {
  const speed = useStore(speeds)[pull.model];
  const [acting, setActing] = useState(false);
  const going = lasts(pull);
  const last = useRef(pull.state);
  useEffect(() => {
    if (pull.state === "done" && last.current !== "done") say(`${pull.model} is here.`);
    last.current = pull.state;
  }, [pull.state]);
  const act = (work: (model: string) => Promise<void>) => async () => {
    setActing(true);
    try {
      await work(pull.model);
    } catch (error) {
      say((error as ApiFailure).message);
    } finally {
      setActing(false);
    }
  };
  const again = pull.state === "cancelled" || pull.code === "cut_off" ? "Go on" : "Try again";
  const part = pull.bytes_total ? pull.bytes_done / pull.bytes_total : 0;
  const title = { waiting: "", running: "", done: "is here", failed: "", cancelled: "cancelled" };
  return (
    <li class="card model download">
      <div>
        <h3>{pull.model}</h3>
        {going && (
          <>
            <progress
              max={1}
              value={pull.bytes_total ? part : undefined}
              aria-label={`Download of ${pull.model}`}
            />
            <p class="quiet">{words(pull, speed)}</p>
          </>
        )}
        {!going && title[pull.state] && <p class="quiet">{title[pull.state]}</p>}
        {pull.state === "failed" && (
          <p class="failed" role="alert">
            {pull.reason}
          </p>
        )}
      </div>
      <div class="row">
        {(pull.state === "failed" || pull.state === "cancelled") && (
          <button
            type="button"
            class="primary"
            disabled={acting}
            aria-label={`${again} with ${pull.model}`}
            onClick={act(startPull)}
          >
            {again}
          </button>
        )}
        <button
          type="button"
          disabled={acting}
          aria-label={`${going ? "Cancel" : "Dismiss"} the download of ${pull.model}`}
          onClick={act(dropPull)}
        >
          {going ? "Cancel" : "Dismiss"}
        </button>
      </div>
    </li>
  );
}

export function Downloads() {
  const all = useStore(pulls);
  if (!all.length) return null;
  return (
    <section aria-labelledby="downloads">
      <h2 id="downloads">Downloads</h2>
      <ul class="models">
        {all.map((pull) => (
          <Download key={pull.model} pull={pull} />
        ))}
      </ul>
    </section>
  );
}
