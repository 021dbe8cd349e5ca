// Colours for code in any language: comments, strings, numbers and words that most languages have.
import type { ComponentChildren } from "preact";

const WORDS = new Set(
  (
    "as async await bool break case catch char class const continue def default del do elif else " +
    "enum except export extends False false final finally float fn for from func function go if " +
    "impl implements import in int interface is lambda let long loop match mod mut namespace new " +
    "nil None nonlocal not null or and pass private protected pub public raise return self " +
    "static string struct super switch template this throw trait True true try type typedef " +
    "typeof undefined union unsafe use using var void where while with yield SELECT FROM WHERE " +
    "INSERT UPDATE DELETE JOIN GROUP ORDER BY echo then fi done esac"
  ).split(" "),
);
const HASH = /^(py|python|sh|bash|zsh|shell|console|ruby|rb|yaml|yml|toml|r|perl|make|dockerfile)$/i;
const LARGEST = 20_000; // characters; more is shown without colours

function pattern(language: string): RegExp {
  const line = HASH.test(language) ? "#[^\\n]*" : "\\/\\/[^\\n]*|\\/\\*[^]*?(?:\\*\\/|$)";
  const dashes = /^(sql|lua|haskell|hs)$/i.test(language) ? "|--[^\\n]*" : "";
  return new RegExp(
    `(?<comment>${line}${dashes})` +
      `|(?<string>"""[^]*?(?:"""|$)|"(?:\\\\.|[^"\\\\\\n])*"?|'(?:\\\\.|[^'\\\\\\n])*'|\`(?:\\\\.|[^\`\\\\])*\`)` +
      "|(?<number>\\b(?:0x[0-9a-fA-F]+|\\d+(?:\\.\\d+)?(?:[eE][+-]?\\d+)?)\\b)" +
      "|(?<word>[A-Za-z_]\\w*)",
    "g",
  );
}

export function highlight(text: string, language: string): ComponentChildren {
  if (text.length > LARGEST || /^(text|txt|plain|diff|markdown|md|)$/i.test(language)) return text;
  const parts: ComponentChildren[] = [];
  let at = 0;
  for (const match of text.matchAll(pattern(language))) {
    const groups = match.groups!;
    let kind = "";
    if (groups.comment !== undefined) kind = "comment";
    else if (groups.string !== undefined) kind = "string";
    else if (groups.number !== undefined) kind = "number";
    else if (WORDS.has(match[0])) kind = "word";
    if (!kind) continue;
    parts.push(text.slice(at, match.index), <span class={`hl-${kind}`}>{match[0]}</span>);
    at = match.index + match[0].length;
  }
  parts.push(text.slice(at));
  return parts;
}
