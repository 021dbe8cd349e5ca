// What a model is and how much memory it needs, told without loading it.
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiFailure, request } from "../api";
import { bytes, count, IconButton } from "../ui";

interface Inspection {
  model_type: string;
  task: string;
  sees: boolean;
  parameters: number;
  quantization: string;
  dtype: string;
  disk: number;
  weights: number;
  context: number | null;
  layers: Record<string, number>;
  row_token: number;
  row_fixed: number;
  window: number | null;
  batching: string;
  prefixes: string;
  tools: string;
  thinking: string;
  template: {
    system?: boolean;
    images?: string[];
    tools?: boolean;
    parallel_calls?: boolean;
    thinking?: string;
    effort?: string[];
    error?: string;
  };
  sampling: Record<string, unknown>;
  memory: { rows: number; tokens: number; bytes: number }[];
}

function many(number: number): string {
  if (number >= 1e9) return `${(number / 1e9).toPrecision(3)} billion`;
  return number >= 1e6 ? `${(number / 1e6).toPrecision(3)} million` : count(number);
}

function templateWords(can: Inspection["template"]): string {
  if (can.error) return can.error;
  if (!Object.keys(can).length) return "none: chat is refused";
  const words = [
    can.system ? "system messages" : "no system messages",
    can.tools ? "tools" : "no tools",
  ];
  if (can.parallel_calls) words.push("parallel calls");
  if (can.images?.length) words.push(`images of ${can.images.join(" and ")}`);
  if (can.thinking) words.push(`thinking by ${can.thinking}`);
  if (can.effort?.length) words.push(`effort ${can.effort.join(", ")}`);
  return words.join(", ");
}

function facts(told: Inspection): [string, string][] {
  const kind = [told.model_type, `${many(told.parameters)} parameters`];
  if (told.quantization) kind.push(told.quantization);
  if (told.sees) kind.push("sees pictures");
  const shown: [string, string][] = [
    ["Architecture", kind.join(", ")],
    ["Weights", `${bytes(told.disk)} on disk, ${bytes(told.weights)} as ${told.dtype}`],
    ["Context", told.context ? `${count(told.context)} tokens` : "the config does not say"],
  ];
  if (told.task !== "generate") shown.push(["Made for", told.task]);
  const layers = Object.entries(told.layers).map(([name, number]) => `${number} ${name}`);
  if (layers.length) {
    const grows = told.row_token ? `${bytes(told.row_token)} a token` : "nothing that grows";
    const fixed = told.row_fixed ? `, and ${bytes(told.row_fixed)} at most beside` : "";
    shown.push(["Layers", layers.join(", ")], ["A reply keeps", grows + fixed]);
  }
  if (told.window) shown.push(["Window", `${count(told.window)} tokens`]);
  shown.push(["Batching", told.batching], ["Prompts reused", told.prefixes]);
  if (told.task === "generate") {
    shown.push(
      ["Tool calls", told.tools || "no format"],
      ["Thinking", told.thinking || "no"],
      ["Template", templateWords(told.template)],
    );
  }
  const settings = Object.entries(told.sampling).map(([name, value]) => `${name} ${String(value)}`);
  if (settings.length) shown.push(["Defaults", settings.join(", ")]);
  return shown;
}

function MemoryTable({ memory }: { memory: Inspection["memory"] }) {
  const lengths = [...new Set(memory.map((need) => need.tokens))];
  const rows = [...new Set(memory.map((need) => need.rows))];
  const need = (count: number, tokens: number) =>
    memory.find((one) => one.rows === count && one.tokens === tokens)!.bytes;
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label="Memory by replies and lengths">
      <table>
        <caption class="hint">Memory for weights and replies, by tokens of each reply</caption>
        <thead>
          <tr>
            <th scope="col">Replies</th>
            {lengths.map((tokens) => (
              <th key={tokens} scope="col" class="align-right">
                {count(tokens)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((number) => (
            <tr key={number}>
              <th scope="row">{number}</th>
              {lengths.map((tokens) => (
                <td key={tokens} class="align-right">
                  {bytes(need(number, tokens))}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function InspectionDialog({ id, onClose }: { id: string; onClose(): void }) {
  const ref = useRef<HTMLDialogElement>(null);
  const [told, setTold] = useState<Inspection | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    ref.current!.showModal();
    const leaving = new AbortController();
    request("GET", `/v1/inspection?model=${encodeURIComponent(id)}`, undefined, leaving.signal)
      .then(async (response) => setTold((await response.json()) as Inspection))
      .catch((error) => {
        if (!leaving.signal.aborted) setProblem((error as ApiFailure).message);
      });
    return () => leaving.abort();
  }, [id]);
  return (
    <dialog ref={ref} class="inspection" onClose={onClose} aria-labelledby="inspected">
      <header>
        <h2 id="inspected">{id}</h2>
        <IconButton icon="close" label="Close" onClick={() => ref.current!.close()} />
      </header>
      {told === null && problem === null && (
        <p class="quiet" role="status">
          Opening it, without reading its weights…
        </p>
      )}
      {problem && (
        <p class="failed" role="alert">
          {problem}
        </p>
      )}
      {told && (
        <>
          <dl class="facts">
            {facts(told).map(([name, value]) => (
              <div key={name}>
                <dt>{name}</dt>
                <dd>{value}</dd>
              </div>
            ))}
          </dl>
          {told.task === "generate" && <MemoryTable memory={told.memory} />}
        </>
      )}
    </dialog>
  );
}
