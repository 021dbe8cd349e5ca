// What a model writes, as markdown. Tokens become elements; HTML in them stays text, and an
// address is a link only if it is one of a few kinds. Nothing here ever sets innerHTML.
import { lexer } from "marked";
import type { Token, Tokens } from "marked";
import type { ComponentChildren } from "preact";
import { memo } from "preact/compat";
import { highlight } from "./highlight";
import { CopyButton } from "./ui";

const DEEPEST = 40; // elements in each other; what is deeper is shown as it was written

function safeAddress(address: string): string | null {
  try {
    const url = new URL(address);
    return ["https:", "http:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

const ENTITIES: Record<string, string> = {
  amp: "&",
  lt: "<",
  gt: ">",
  quot: '"',
  "#39": "'",
  nbsp: "\u00a0",
};

/** Markdown's own entities; the lexer leaves them as they are. */
function plain(text: string): string {
  return text.replace(/&(amp|lt|gt|quot|#39|nbsp);/g, (_, name: string) => ENTITIES[name]);
}

function CodeBlock({ text, language }: { text: string; language: string }) {
  return (
    <figure class="code">
      <figcaption>
        <span>{language || "code"}</span>
        <CopyButton text={text} label="Copy code" />
      </figcaption>
      <pre tabIndex={0} aria-label={`Code${language ? `, ${language}` : ""}`}>
        <code>{highlight(text, language)}</code>
      </pre>
    </figure>
  );
}

function Table({ token, depth }: { token: Tokens.Table; depth: number }) {
  const cell = (one: Tokens.TableCell, Tag: "th" | "td", key: number) => (
    <Tag key={key} class={one.align ? `align-${one.align}` : undefined}>
      {all(one.tokens, depth)}
    </Tag>
  );
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label="Table">
      <table>
        <thead>
          <tr>{token.header.map((one, at) => cell(one, "th", at))}</tr>
        </thead>
        <tbody>
          {token.rows.map((row, at) => (
            <tr key={at}>{row.map((one, column) => cell(one, "td", column))}</tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Link({ token, depth }: { token: Tokens.Link | Tokens.Image; depth: number }) {
  const shown = token.type === "image" ? token.text || "picture" : all(token.tokens, depth);
  const address = safeAddress(token.href);
  if (!address) return <>{token.raw}</>;
  return (
    <a href={address} target="_blank" rel="noopener noreferrer">
      {shown}
    </a>
  );
}

function one(token: Token, depth: number): ComponentChildren {
  if (depth > DEEPEST) return token.raw;
  const inner = () => all(("tokens" in token && token.tokens) || [], depth + 1);
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "paragraph":
      return <p>{inner()}</p>;
    case "heading": {
      // Below the page's own headings.
      const Tag = `h${Math.min(6, token.depth + 2)}` as "h3";
      return <Tag>{inner()}</Tag>;
    }
    case "code":
      return <CodeBlock text={token.text} language={(token.lang ?? "").split(/\s/)[0]} />;
    case "blockquote":
      return <blockquote>{inner()}</blockquote>;
    case "list": {
      const list = token as Tokens.List;
      const items = list.items.map((item, at) => (
        <li key={at}>
          {item.task && <input type="checkbox" checked={item.checked} disabled aria-label="Task" />}
          {all(
            item.tokens.filter((part) => (part.type as string) !== "checkbox"),
            depth + 1,
          )}
        </li>
      ));
      return list.ordered ? <ol start={Number(list.start) || 1}>{items}</ol> : <ul>{items}</ul>;
    }
    case "table":
      return <Table token={token as Tokens.Table} depth={depth + 1} />;
    case "hr":
      return <hr />;
    case "br":
      return <br />;
    case "strong":
      return <strong>{inner()}</strong>;
    case "em":
      return <em>{inner()}</em>;
    case "del":
      return <del>{inner()}</del>;
    case "codespan":
      return <code>{plain(token.text)}</code>;
    case "link":
    case "image":
      return <Link token={token as Tokens.Link | Tokens.Image} depth={depth + 1} />;
    case "escape":
      return token.text;
    case "text":
      return "tokens" in token && token.tokens ? inner() : plain(token.raw);
    default: // HTML, above all
      return token.raw;
  }
}

function all(tokens: Token[], depth: number): ComponentChildren {
  return tokens.map((token) => one(token, depth));
}

export const Markdown = memo(function Markdown({ text }: { text: string }) {
  let shown: ComponentChildren;
  try {
    shown = all(lexer(text, { gfm: true, breaks: false }), 0);
  } catch {
    shown = <p class="pre">{text}</p>;
  }
  return <div class="prose">{shown}</div>;
});
