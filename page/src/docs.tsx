// The server's own description of its API, `/openapi.json`, for people.
import { useEffect, useState } from "preact/hooks";
import { access, json, ROOT } from "./api";
import { useStore } from "./store";
import { Empty } from "./ui";

interface Schema {
  $ref?: string;
  type?: string | string[];
  const?: unknown;
  enum?: unknown[];
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: string[];
  description?: string;
  minimum?: number;
  maximum?: number;
}

interface Operation {
  summary?: string;
  description?: string;
  parameters?: { name: string; in: string; required?: boolean; schema: Schema }[];
  requestBody?: { content: Record<string, { schema: Schema }> };
  responses: Record<string, { description: string; content?: Record<string, { schema?: Schema }> }>;
}

interface Api {
  info: { title: string; version: string };
  paths: Record<string, Record<string, Operation>>;
  components: { schemas: Record<string, Schema> };
}

function resolved(api: Api, schema: Schema): Schema {
  return schema.$ref ? (api.components.schemas[schema.$ref.split("/").at(-1)!] ?? {}) : schema;
}

function typeOf(schema: Schema, depth = 0): string {
  if (schema.$ref) return schema.$ref.split("/").at(-1)!;
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" or ");
  const among = schema.anyOf ?? schema.oneOf ?? schema.allOf;
  if (among && depth < 4) {
    const all = among.map((one) => typeOf(one, depth + 1)).filter((one) => one !== "null");
    return [...new Set(all)].join(" or ");
  }
  if (schema.type === "array") {
    return schema.items && depth < 4 ? `list of ${typeOf(schema.items, depth + 1)}` : "list";
  }
  const bounds = [
    schema.minimum === undefined ? "" : ` ≥ ${schema.minimum}`,
    schema.maximum === undefined ? "" : ` ≤ ${schema.maximum}`,
  ].join("");
  return `${[schema.type ?? "anything"].flat().join(" or ")}${bounds}`;
}

function Fields({ rows }: { rows: [string, string, boolean, string][] }) {
  const told = rows.some(([, , , about]) => about);
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label="Fields">
      <table>
        <thead>
          <tr>
            <th>Field</th>
            <th>Type</th>
            {told && <th>About</th>}
          </tr>
        </thead>
        <tbody>
          {rows.map(([name, type, needed, about]) => (
            <tr key={name}>
              <td>
                <code>{name}</code>
                {needed && <span class="tag">needed</span>}
              </td>
              <td class="wrap">{type}</td>
              {told && <td class="wrap">{about}</td>}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function OperationView(props: { api: Api; method: string; path: string; operation: Operation }) {
  const { api, operation } = props;
  const [open, setOpen] = useState(false);
  const body = Object.values(operation.requestBody?.content ?? {})[0]?.schema;
  const schema = body && resolved(api, body);
  const rows: [string, string, boolean, string][] = (operation.parameters ?? []).map((one) => [
    one.name,
    typeOf(one.schema),
    Boolean(one.required),
    one.in === "path" ? "in the path" : `in the ${one.in}`,
  ]);
  for (const [name, field] of Object.entries(schema?.properties ?? {})) {
    const needed = schema!.required?.includes(name) ?? false;
    rows.push([name, typeOf(field), needed, field.description ?? ""]);
  }
  rows.sort((one, other) => Number(other[2]) - Number(one[2]));
  return (
    <details class="operation card" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <span class={`method ${props.method}`}>{props.method.toUpperCase()}</span>
        <code>{props.path}</code>
        <span class="quiet">{operation.summary}</span>
      </summary>
      {open && (
        <>
          {rows.length > 0 && <Fields rows={rows} />}
          <h2>Answers</h2>
          <dl class="answers">
            {Object.entries(operation.responses).map(([status, answer]) => (
              <div key={status}>
                <dt>{status}</dt>
                <dd>
                  {answer.description}
                  {Object.keys(answer.content ?? {}).map((type) => (
                    <span key={type} class="sub">
                      {type}
                    </span>
                  ))}
                </dd>
              </div>
            ))}
          </dl>
        </>
      )}
    </details>
  );
}

export function DocsView() {
  const [api, setApi] = useState<Api | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const { key } = useStore(access);
  useEffect(() => {
    json<Api>("GET", "/openapi.json")
      .then((document) => {
        setApi(document);
        setProblem(null);
      })
      .catch((error: Error) => setProblem(error.message));
  }, [key]);
  return (
    <div class="view page">
      <header class="view-head">
        <h1>API</h1>
        <span class="quiet">
          {api && `Bushel ${api.info.version} · `}
          {key ? "from /openapi.json" : <a href={`${ROOT}/openapi.json`}>OpenAPI document</a>}
        </span>
      </header>
      <div class="scroller">
        <div class="wide">
          {problem && <Empty title={problem} />}
          {api &&
            Object.entries(api.paths).flatMap(([path, operations]) =>
              Object.entries(operations).map(([method, operation]) => (
                <OperationView
                  key={`${method} ${path}`}
                  api={api}
                  method={method}
                  path={path}
                  operation={operation}
                />
              )),
            )}
        </div>
      </div>
    </div>
  );
}
