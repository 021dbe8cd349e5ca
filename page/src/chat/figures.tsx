// What a reply cost: tokens, speed, and how much of its prompt was known already.
import { count, seconds } from "../ui";
import type { Figures } from "./conversation";

const HITS: Record<string, string> = {
  exact: "the whole prompt had run before",
  prefix: "an earlier prompt begins the same",
  shorter: "from a snapshot before the shared part's end",
  fork: "where an earlier prompt parted from this one",
  disk: "read from disk",
};

const ENDS: Record<string, string> = {
  stop: "the model was done",
  length: "it reached the limit of tokens",
  tool_calls: "it called a tool",
};

export function FiguresLine({ figures }: { figures: Figures }) {
  const parts = [`${count(figures.tokens)} tokens`];
  if (figures.tokensPerSecond !== null) {
    parts.push(`${figures.tokensPerSecond.toFixed(1)} tokens/s`);
  }
  if (figures.firstTokenSeconds !== null) {
    parts.push(`first after ${seconds(figures.firstTokenSeconds)}`);
  }
  if (figures.cachedTokens) parts.push(`${count(figures.cachedTokens)} cached`);
  return (
    <details class="figures">
      <summary>{parts.join(" · ")}</summary>
      <dl>
        <div>
          <dt>Prompt</dt>
          <dd>
            {count(figures.promptTokens)} tokens, {count(figures.cachedTokens)} of them cached
            {figures.hit && `: ${HITS[figures.hit] ?? figures.hit}`}
          </dd>
        </div>
        {figures.why && (
          <div>
            <dt>{figures.cachedTokens ? "Why not more" : "Why none"}</dt>
            <dd>{figures.why}</dd>
          </div>
        )}
        {figures.finish && (
          <div>
            <dt>It ended because</dt>
            <dd>{ENDS[figures.finish] ?? figures.finish}</dd>
          </div>
        )}
      </dl>
    </details>
  );
}
