// Models on the server's disk: what each takes, whether it is served, and removing it.
import { useState } from "preact/hooks";
import { ApiFailure } from "../api";
import { useStore } from "../store";
import { bytes, CopyButton, count, Empty, IconButton, say } from "../ui";
import { Downloads, PullForm } from "./downloads";
import { askDisk, disk, lasts, pulls, refusedDisk, removeModel, startPull } from "./hub";
import type { Disk, DiskModel } from "./hub";

function age(since: number): string {
  const days = Math.floor((Date.now() / 1000 - since) / 86_400);
  if (days < 1) return "today";
  return days === 1 ? "yesterday" : `${count(days)} days ago`;
}

/** A button that asks once more. */
function Remove({ id, size, disabled }: { id: string; size: number; disabled?: boolean }) {
  const [sure, setSure] = useState(false);
  const [acting, setActing] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const act = async () => {
    setActing(true);
    try {
      say(`${id} is gone: ${bytes(await removeModel(id))} are free again.`);
    } catch (error) {
      setProblem((error as ApiFailure).message);
    } finally {
      setActing(false);
      setSure(false);
    }
  };
  return (
    <>
      {problem && (
        <p class="failed" role="alert">
          {problem}
        </p>
      )}
      {sure ? (
        <>
          <button type="button" class="danger" disabled={acting} onClick={() => void act()}>
            Delete {bytes(size)}
          </button>
          <button type="button" disabled={acting} onClick={() => setSure(false)}>
            Keep
          </button>
        </>
      ) : (
        <button
          type="button"
          aria-label={`Remove ${id}`}
          disabled={disabled}
          onClick={() => {
            setProblem(null);
            setSure(true);
          }}
        >
          Remove
        </button>
      )}
    </>
  );
}

function OnDisk({ model, onInspect }: { model: DiskModel; onInspect(id: string): void }) {
  const command = `bushel serve ${model.id}`;
  return (
    <li class="card model">
      <div>
        <h3>
          {model.id}
          {model.served_as.length > 0 && <span class="tag">served</span>}
        </h3>
        <p class="quiet">
          {bytes(model.size_bytes)} · {model.model_type}
          {model.sees && ", sees"}
          {model.max_model_len !== null && ` · context of ${count(model.max_model_len)} tokens`} · used{" "}
          {age(model.used_at)}
        </p>
        {!model.served_as.length && (
          <p class="hint command">
            To serve it: <code>{command}</code>
            <CopyButton text={command} label={`Copy the command that serves ${model.id}`} />
          </p>
        )}
      </div>
      <div class="row">
        <button type="button" aria-label={`Inspect ${model.id}`} onClick={() => onInspect(model.id)}>
          Inspect
        </button>
        <Remove id={model.id} size={model.size_bytes} disabled={model.loaded} />
      </div>
    </li>
  );
}

function Partly({ part }: { part: Disk["partial"][number] }) {
  const [acting, setActing] = useState(false);
  const resume = async () => {
    setActing(true);
    try {
      await startPull(part.id);
    } catch (error) {
      say((error as ApiFailure).message);
    } finally {
      setActing(false);
    }
  };
  return (
    <li class="card model">
      <div>
        <h3>
          {part.id}
          <span class="tag">incomplete</span>
        </h3>
        <p class="quiet">
          {bytes(part.size_bytes)} · {age(part.used_at)}
        </p>
      </div>
      <div class="row">
        <button
          type="button"
          disabled={acting}
          aria-label={`Download the rest of ${part.id}`}
          onClick={() => void resume()}
        >
          Download the rest
        </button>
        <Remove id={part.id} size={part.size_bytes} />
      </div>
    </li>
  );
}

export function DiskSection({ onInspect }: { onInspect(id: string): void }) {
  const found = useStore(disk);
  const refused = useStore(refusedDisk);
  const going = useStore(pulls);
  if (refused !== null) {
    return (
      <section aria-labelledby="on-disk">
        <h2 id="on-disk">On this machine</h2>
        <p class="hint">{refused.message}</p>
      </section>
    );
  }
  const named = new Set(going.map((pull) => pull.model));
  const busy = new Set(going.filter(lasts).map((pull) => pull.model));
  const partial = found?.partial.filter((part) => !named.has(part.id)) ?? [];
  return (
    <>
      <PullForm />
      <Downloads />
      <section aria-labelledby="on-disk">
        <div class="row spread">
          <h2 id="on-disk">On this machine</h2>
          <span class="quiet">{found && `${bytes(found.free_bytes)} free`}</span>
          <IconButton icon="retry" label="Look at the disk again" onClick={() => void askDisk()} />
        </div>
        {found === null && <p class="hint">Looking at the disk…</p>}
        {found && !found.data.length && !partial.length && (
          <Empty title="No model was downloaded yet">
            <p>What the hub's cache on this machine has is listed here.</p>
          </Empty>
        )}
        {found && (
          <ul class="models">
            {found.data
              .filter((model) => !busy.has(model.id))
              .map((model) => (
                <OnDisk key={model.id} model={model} onInspect={onInspect} />
              ))}
            {partial.map((part) => (
              <Partly key={part.id} part={part} />
            ))}
          </ul>
        )}
        {found && !found.serves_downloads && found.data.some((model) => !model.served_as.length) && (
          <p class="hint">
            A server that was started with <code>bushel serve --downloaded</code> serves all of
            these, and whatever is downloaded here.
          </p>
        )}
      </section>
    </>
  );
}
