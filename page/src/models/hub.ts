// Models of the hub on the server's disk, and downloads that it runs: asked for while somebody looks.
import { ApiFailure, json } from "../api";
import { askModels } from "../server";
import { store } from "../store";

export interface DiskModel {
  id: string;
  size_bytes: number;
  used_at: number;
  model_type: string;
  max_model_len: number | null;
  sees: boolean;
  served_as: string[];
  loaded: boolean;
}

export interface Disk {
  data: DiskModel[];
  partial: { id: string; size_bytes: number; used_at: number }[];
  free_bytes: number;
  serves_downloads: boolean;
}

export interface Pull {
  model: string;
  state: "waiting" | "running" | "done" | "failed" | "cancelled";
  bytes_done: number;
  bytes_total: number;
  files_done: number;
  files_total: number;
  code: string | null;
  reason: string | null;
}

export const disk = store<Disk | null>(null);
/** Why the disk cannot be shown. */
export const refusedDisk = store<ApiFailure | null>(null);
export const pulls = store<Pull[]>([]);
/** Bytes a second of each download that runs, smoothed. */
export const speeds = store<Record<string, number>>({});

const OFTEN = 1000;
const SELDOM = 5000;

export function lasts(pull: Pull): boolean {
  return pull.state === "waiting" || pull.state === "running";
}

/** An id as a part of an address. */
export function inPath(id: string): string {
  return id.split("/").map(encodeURIComponent).join("/");
}

export async function askDisk(): Promise<void> {
  try {
    disk.set(await json<Disk>("GET", "/v1/hub/models"));
    refusedDisk.set(null);
  } catch (error) {
    refusedDisk.set(error as ApiFailure);
  }
}

let looked = 0;

export async function askPulls(): Promise<void> {
  const before = pulls.get();
  const { data } = await json<{ data: Pull[] }>("GET", "/v1/hub/pulls");
  const now = performance.now();
  const past = (now - looked) / 1000;
  looked = now;
  const measured: Record<string, number> = {};
  for (const pull of data) {
    const last = before.find((one) => one.model === pull.model);
    if (pull.state !== "running" || last?.state !== "running" || past > 10) continue;
    const speed = (pull.bytes_done - last.bytes_done) / past;
    const known = speeds.get()[pull.model] ?? speed;
    measured[pull.model] = 0.7 * known + 0.3 * speed;
  }
  speeds.set(measured);
  pulls.set(data);
  const ended = (pull: Pull) => {
    const last = before.find((one) => one.model === pull.model);
    return last !== undefined && lasts(last) && !lasts(pull);
  };
  if (data.some(ended)) await Promise.all([askDisk(), askModels()]);
}

/** Begins to ask; returns what ends that. */
export function watchHub(): () => void {
  let over = false;
  let timer = 0;
  const look = async (first = false) => {
    try {
      if (first || (refusedDisk.get() && document.visibilityState === "visible")) await askDisk();
      const status = refusedDisk.get()?.status;
      if (status === 401 || status === 403) return; // until there is another key
      if (document.visibilityState === "visible") await askPulls();
    } catch {
      // The frame tells that nobody answers.
    }
    if (!over) timer = window.setTimeout(look, pulls.get().some(lasts) ? OFTEN : SELDOM);
  };
  void look(true);
  return () => {
    over = true;
    clearTimeout(timer);
  };
}

export async function startPull(model: string): Promise<void> {
  await json("POST", "/v1/hub/pulls", { model });
  await askPulls();
}

/** Cancels one that lasts, forgets one that has ended. */
export async function dropPull(model: string): Promise<void> {
  await json("DELETE", `/v1/hub/pulls/${inPath(model)}`);
  await askPulls();
  await askDisk();
}

export async function removeModel(id: string): Promise<number> {
  const gone = await json<{ freed_bytes: number }>("DELETE", `/v1/hub/models/${inPath(id)}`);
  await Promise.all([askDisk(), askPulls(), askModels()]);
  return gone.freed_bytes;
}
