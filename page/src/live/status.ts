// What `/v1/status` and `/metrics` say, in the form that this view draws.
import { json, request } from "../api";
import { store } from "../store";

export interface RequestRow {
  id: string;
  api: string;
  model: string;
  phase: string;
  prefilled_tokens: number;
  prompt_tokens: number;
  cached_tokens: number;
  hit: string;
  why: string;
  completion_tokens: number;
  age_seconds: number;
  first_token_seconds: number | null;
  tokens_per_second: number | null;
  largest_gap_seconds: number;
  total_seconds?: number;
  status?: number;
  error?: string | null;
  finish_reasons?: string[];
}

export interface ModelStatus {
  model: string;
  state?: string;
  reason?: string | null;
  engine: {
    ready: boolean;
    restarts: number;
    reason: string | null;
    running?: number;
    waiting?: number;
    lane?: string;
    lane_reason?: string | null;
    max_decode_batch?: number;
    preemptions?: number;
    memory?: Partial<
      Record<
        | "active_bytes"
        | "peak_bytes"
        | "cache_bytes"
        | "state_bytes"
        | "limit_bytes"
        | "weights_bytes",
        number
      >
    >;
    cache?: {
      on: boolean;
      why?: string;
      limit_bytes?: number;
      bytes?: number;
      edge_bytes?: number;
      snapshot_bytes?: number;
      feature_bytes?: number;
      tokens?: number;
    };
  };
  preparing: number;
  running: number;
  waiting: number;
  requests: RequestRow[];
  others: number;
  recent: RequestRow[];
}

type Whole = ModelStatus | { models: Record<string, ModelStatus> };

export interface Sample {
  at: number; // ms
  values: Map<string, number>; // a metric without its model, summed over models
}

export interface Point {
  at: number;
  generated: number | null; // tokens per second
  prompt: number | null;
  firstToken: number | null; // seconds
  gap: number | null;
  running: number;
  waiting: number;
}

export interface Picture {
  models: ModelStatus[];
  several: boolean;
  metrics: Map<string, number>;
}

export const picture = store<Picture | null>(null);
export const points = store<Point[]>([]);

const SHOWN = 150; // points: as many seconds while the view is open
const SMOOTHED = 5; // samples that a rate is taken over
const samples: Sample[] = [];

/** `name{label="value",...} number` lines, summed over models. */
export function readMetrics(text: string): Map<string, number> {
  const sums = new Map<string, number>();
  for (const line of text.split("\n")) {
    const match = /^([\w:]+)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!match) continue;
    const labels = (match[2] ?? "").match(/\w+="(?:[^"\\]|\\.)*"/g) ?? [];
    const kept = labels.filter((label) => !label.startsWith("model_name="));
    const name = kept.length ? `${match[1]}{${kept.join(",")}}` : match[1];
    sums.set(name, (sums.get(name) ?? 0) + Number(match[3]));
  }
  return sums;
}

function pointOf(last: Sample, first: Sample): Point {
  const grown = (name: string) => (last.values.get(name) ?? 0) - (first.values.get(name) ?? 0);
  const elapsed = (last.at - first.at) / 1000;
  const rate = (name: string) => (elapsed > 0 ? Math.max(0, grown(name)) / elapsed : null);
  const mean = (name: string) => {
    const events = grown(`${name}_count`);
    return events > 0 ? grown(`${name}_sum`) / events : null;
  };
  return {
    at: last.at,
    generated: rate("vllm:generation_tokens_total"),
    prompt: rate("vllm:prompt_tokens_total"),
    firstToken: mean("vllm:time_to_first_token_seconds"),
    gap: mean("vllm:inter_token_latency_seconds"),
    running: last.values.get("vllm:num_requests_running") ?? 0,
    waiting: last.values.get("vllm:num_requests_waiting") ?? 0,
  };
}

/** The counters know of a first token when its request has ended; until then the request does. */
function lateFirstToken(rows: RequestRow[]): number | null {
  const times = rows.flatMap(({ first_token_seconds: first, age_seconds: age }) =>
    first !== null && age - first < SMOOTHED ? [first] : [],
  );
  return times.length ? times.reduce((sum, time) => sum + time, 0) / times.length : null;
}

export async function look(): Promise<void> {
  const [status, metrics] = await Promise.all([
    json<Whole>("GET", "/v1/status"),
    request("GET", "/metrics").then((response) => response.text()),
  ]);
  const sample = { at: Date.now(), values: readMetrics(metrics) };
  samples.push(sample);
  if (samples.length > SMOOTHED + 1) samples.shift();
  const several = "models" in status;
  const each = several
    ? Object.entries(status.models).map(([model, one]) => ({ ...one, model }))
    : [status];
  if (samples.length > 1) {
    const point = pointOf(sample, samples[0]);
    point.firstToken ??= lateFirstToken(each.flatMap((one) => one.requests));
    points.set([...points.get(), point].slice(-SHOWN));
  }
  picture.set({ models: each, several, metrics: sample.values });
}
