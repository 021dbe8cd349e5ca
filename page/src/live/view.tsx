// What the server does now: requests, batch, memory, reuse, speed, restarts, and its log.
import { useEffect, useState } from "preact/hooks";
import { ApiFailure, json } from "../api";
import { useStore } from "../store";
import { bytes, count, Empty, IconButton, say, seconds } from "../ui";
import { Chart } from "./chart";
import { LogTail } from "./log";
import { look, picture, points } from "./status";
import type { ModelStatus, Picture, RequestRow } from "./status";

const PHASES: Record<string, string> = {
  loading: "waits for its model",
  preparing: "is being prepared",
  queued: "waits",
  prefill: "reads the prompt",
  decode: "writes",
};

async function cancel(id: string): Promise<void> {
  try {
    await json("DELETE", `/v1/requests/${encodeURIComponent(id)}`);
    say("Cancelled.");
  } catch (error) {
    say((error as ApiFailure).message);
  }
}

/** Of a prompt: what was cached, what has run, what is left. */
function Progress({ row }: { row: RequestRow }) {
  const total = row.prompt_tokens || 1;
  const done = Math.max(row.prefilled_tokens, row.cached_tokens);
  const words = row.prompt_tokens
    ? `${count(done)} of ${count(row.prompt_tokens)} prompt tokens, ${count(row.cached_tokens)} cached`
    : "the prompt is not known yet";
  return (
    <svg class="progress" viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label={words}>
      <rect width="100" height="6" class="rest" />
      <rect width={(100 * done) / total} height="6" class="done" />
      <rect width={(100 * row.cached_tokens) / total} height="6" class="cached" />
    </svg>
  );
}

function Running({ rows, others }: { rows: RequestRow[]; others: number }) {
  if (!rows.length && !others) {
    return (
      <Empty title="Nothing is running">
        <p>Requests of every client appear here while they are served.</p>
      </Empty>
    );
  }
  return (
    <>
      {rows.length > 0 && (
        <div class="scroll" tabIndex={0} role="group" aria-label="Requests">
          <table>
            <thead>
              <tr>
                <th>Request</th>
                <th>Phase</th>
                <th>Prompt</th>
                <th class="align-right">Written</th>
                <th class="align-right">Age</th>
                <th>
                  <span class="unseen">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {rows.map((row) => (
                <tr key={row.id}>
                  <td>
                    <code>{row.id.slice(0, 8)}</code>
                    <span class="sub">
                      {row.api} · {row.model}
                    </span>
                  </td>
                  <td>
                    <span class={`phase ${row.phase}`}>{PHASES[row.phase] ?? row.phase}</span>
                  </td>
                  <td>
                    <Progress row={row} />
                    <span class="sub">
                      {count(row.prompt_tokens)} tokens
                      {row.cached_tokens > 0 && `, ${count(row.cached_tokens)} cached`}
                    </span>
                  </td>
                  <td class="align-right">
                    {count(row.completion_tokens)}
                    {row.tokens_per_second !== null && (
                      <span class="sub">{row.tokens_per_second.toFixed(1)}/s</span>
                    )}
                  </td>
                  <td class="align-right">{seconds(row.age_seconds)}</td>
                  <td class="align-right">
                    <IconButton
                      icon="close"
                      label={`Cancel request ${row.id.slice(0, 8)}`}
                      onClick={() => void cancel(row.id)}
                    />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {others > 0 && <p class="hint">and {count(others)} of other keys, which yours does not see</p>}
    </>
  );
}

function Recent({ rows }: { rows: RequestRow[] }) {
  if (!rows.length) return null;
  return (
    <section>
      <h2>Lately</h2>
      <div class="scroll card flush" tabIndex={0} role="group" aria-label="Finished requests">
        <table>
          <thead>
            <tr>
              <th>Request</th>
              <th>End</th>
              <th class="align-right">Prompt</th>
              <th>Cached</th>
              <th class="align-right">Written</th>
              <th class="align-right">First token</th>
              <th class="align-right">Speed</th>
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, 12).map((row) => (
              <tr key={row.id}>
                <td>
                  <code>{row.id.slice(0, 8)}</code>
                  <span class="sub">
                    {row.api} · {row.model}
                  </span>
                </td>
                <td>
                  {row.error
                    ? `${row.status} ${row.error}`
                    : row.status === 499
                      ? "client left"
                      : (row.finish_reasons ?? []).join(", ")}
                </td>
                <td class="align-right">{count(row.prompt_tokens)}</td>
                <td>
                  {row.cached_tokens ? `${count(row.cached_tokens)} (${row.hit})` : "none"}
                  {row.why && <span class="sub wrap">{row.why}</span>}
                </td>
                <td class="align-right">{count(row.completion_tokens)}</td>
                <td class="align-right">
                  {row.first_token_seconds === null ? "–" : seconds(row.first_token_seconds)}
                </td>
                <td class="align-right">
                  {row.tokens_per_second === null ? "–" : `${row.tokens_per_second.toFixed(1)}/s`}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

/** Parts of what MLX has in use; what no part explains is the rest. */
function memoryParts(status: ModelStatus): [string, string, number][] {
  const { memory, cache } = status.engine;
  const active = memory?.active_bytes ?? 0;
  const parts: [string, string, number][] = [
    ["weights", "Weights", memory?.weights_bytes ?? 0],
    ["rows", "Running replies", memory?.state_bytes ?? 0],
    ["kv", "Kept keys and values", cache?.edge_bytes ?? 0],
    ["snapshots", "Kept snapshots", cache?.snapshot_bytes ?? 0],
    ["features", "Kept pictures", cache?.feature_bytes ?? 0],
  ];
  const explained = parts.reduce((sum, [, , size]) => sum + size, 0);
  parts.push(["other", "Other", Math.max(0, active - explained)]);
  parts.push(["free", "Free, kept by MLX", memory?.cache_bytes ?? 0]);
  return parts.filter(([, , size]) => size > 0);
}

function Engine({ status, named }: { status: ModelStatus; named: boolean }) {
  const { engine } = status;
  const parts = memoryParts(status);
  const used = parts.reduce((sum, [, , size]) => sum + size, 0);
  let left = 0;
  return (
    <section class="card" aria-label={`Engine of ${status.model}`}>
      <h3>{named ? status.model : "Engine"}</h3>
      {!engine.ready ? (
        <p>{engine.reason ?? status.reason ?? "It is not loaded."}</p>
      ) : (
        <>
          <dl class="facts">
            <div>
              <dt>Batch</dt>
              <dd>
                {engine.running ?? 0} running, {engine.waiting ?? 0} waiting
              </dd>
            </div>
            <div>
              <dt>Largest batch so far</dt>
              <dd>{engine.max_decode_batch ?? 0}</dd>
            </div>
            <div>
              <dt>Put back for memory</dt>
              <dd>{engine.preemptions ?? 0}</dd>
            </div>
            <div>
              <dt>Restarts</dt>
              <dd>{engine.restarts}</dd>
            </div>
          </dl>
          {engine.lane === "single" && <p class="hint">One reply at a time: {engine.lane_reason}</p>}
          <h4>
            Memory: {bytes(used)}
            {engine.memory?.limit_bytes ? ` of ${bytes(engine.memory.limit_bytes)}` : ""}
          </h4>
          <svg class="memory" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
            {parts.map(([kind, , size]) => {
              const x = left;
              left += (100 * size) / used;
              return <rect key={kind} x={x} width={(100 * size) / used} height="10" class={`m-${kind}`} />;
            })}
          </svg>
          <ul class="legend">
            {parts.map(([kind, label, size]) => (
              <li key={kind}>
                <span class={`swatch m-${kind}`} aria-hidden="true" />
                {label} <span class="quiet">{bytes(size)}</span>
              </li>
            ))}
          </ul>
          {engine.cache && !engine.cache.on && <p class="hint">Nothing is kept: {engine.cache.why}</p>}
        </>
      )}
    </section>
  );
}

const HIT_WORDS: Record<string, string> = {
  exact: "whole prompt",
  prefix: "same beginning",
  shorter: "shorter snapshot",
  fork: "fork",
  disk: "from disk",
};
const MISS_WORDS: Record<string, string> = {
  off: "reuse is off",
  prompt_logprobs: "prompt's probabilities were wanted",
  mean_pooling: "an embedding needs it whole",
  unknown: "nothing begins like it",
  no_state: "no state is kept there",
  diverged: "it parts before the first state",
  not_restored: "could not be restored",
  other: "other",
};

function byLabel(metrics: Map<string, number>, name: string): [string, number][] {
  const found: [string, number][] = [];
  for (const [key, value] of metrics) {
    const match = key.startsWith(`${name}{`) ? /="([^"]*)"/.exec(key) : null;
    if (match && value > 0) found.push([match[1], value]);
  }
  return found.sort((one, other) => other[1] - one[1]);
}

function Reuse({ metrics }: { metrics: Map<string, number> }) {
  const asked = metrics.get("vllm:prefix_cache_queries_total") ?? 0;
  const reused = metrics.get("vllm:prefix_cache_hits_total") ?? 0;
  const hits = byLabel(metrics, "bushel:prefix_cache_hit_requests_total");
  const misses = byLabel(metrics, "bushel:prefix_cache_missed_requests_total");
  const list = (rows: [string, number][], words: Record<string, string>) =>
    rows.map(([kind, times]) => (
      <div key={kind}>
        <dt>{words[kind] ?? kind}</dt>
        <dd>{count(times)}</dd>
      </div>
    ));
  return (
    <section class="card" aria-label="Reuse of prompts">
      <h3>Reuse of prompts</h3>
      <p>
        <span class="figure">{asked ? `${((100 * reused) / asked).toFixed(0)} %` : "–"}</span>{" "}
        <span class="quiet">
          {asked
            ? `${count(reused)} of ${count(asked)} prompt tokens were not computed again`
            : "no prompt so far"}
        </span>
      </p>
      {hits.length > 0 && (
        <>
          <h4>Requests that reused something</h4>
          <dl class="facts">{list(hits, HIT_WORDS)}</dl>
        </>
      )}
      {misses.length > 0 && (
        <>
          <h4>Requests that did not, and why</h4>
          <dl class="facts">{list(misses, MISS_WORDS)}</dl>
        </>
      )}
    </section>
  );
}

function Charts() {
  const all = useStore(points);
  const fixed = (unit: string) => (value: number) =>
    `${value >= 100 ? value.toFixed(0) : value.toFixed(1)} ${unit}`;
  return (
    <div class="cards charts">
      <Chart
        title="Written"
        values={all.map((point) => point.generated)}
        shown={fixed("tokens/s")}
        none="–"
      />
      <Chart
        title="Read"
        values={all.map((point) => point.prompt)}
        shown={fixed("tokens/s")}
        none="–"
      />
      <Chart
        title="First token"
        values={all.map((point) => point.firstToken)}
        shown={seconds}
        none="–"
      />
      <Chart
        title="Gap between tokens"
        values={all.map((point) => point.gap)}
        shown={seconds}
        none="–"
      />
    </div>
  );
}

function Restarts({ now }: { now: Picture }) {
  const causes = byLabel(now.metrics, "bushel:engine_restarts_total");
  if (!causes.length) return null;
  const words: Record<string, string> = { died: "it died", hung: "it made no progress" };
  return (
    <p class="notice wait" role="status">
      <strong>The engine was replaced.</strong>{" "}
      {causes.map(([cause, times]) => `${words[cause] ?? cause}: ${times}×`).join(", ")}
    </p>
  );
}

export function LiveView() {
  const now = useStore(picture);
  const [failure, setFailure] = useState<string | null>(null);
  useEffect(() => {
    let open = true;
    const tick = async () => {
      if (!open) return;
      if (document.visibilityState === "visible") {
        try {
          await look();
          setFailure(null);
        } catch (error) {
          setFailure((error as Error).message);
        }
      }
      if (open) setTimeout(tick, 1000);
    };
    void tick();
    return () => {
      open = false;
    };
  }, []);
  const rows = now?.models.flatMap((one) => one.requests) ?? [];
  const recent = now?.models.flatMap((one) => one.recent) ?? [];
  const others = now?.models.reduce((sum, one) => sum + one.others, 0) ?? 0;
  const engines = now?.models.filter((one) => !now.several || one.engine.ready) ?? [];
  return (
    <div class="view page">
      <header class="view-head">
        <h1>Live</h1>
        <span class="quiet">
          {failure ?? (now ? `${rows.length + others} requests now` : "asking the server…")}
        </span>
      </header>
      {now && (
        <div class="scroller">
          <div class="wide">
            <Restarts now={now} />
            <section>
              <h2>Now</h2>
              <div class="card flush">
                <Running rows={rows} others={others} />
              </div>
            </section>
            <Charts />
            <div class="cards">
              {engines.map((one) => (
                <Engine key={one.model} status={one} named={now.several} />
              ))}
              {engines.length === 0 && (
                <section class="card">
                  <h3>Engine</h3>
                  <p>No model is loaded. One is when somebody asks for it.</p>
                </section>
              )}
              <Reuse metrics={now.metrics} />
            </div>
            <Recent rows={recent.sort((one, other) => one.age_seconds - other.age_seconds)} />
            <LogTail />
          </div>
        </div>
      )}
    </div>
  );
}
