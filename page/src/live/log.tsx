// The last lines of the server's log, for operators.
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiFailure, json } from "../api";

interface Line {
  number: number;
  level: string;
  text: string;
}

const MOST = 500;

export function LogTail() {
  const [lines, setLines] = useState<Line[]>([]);
  const [refused, setRefused] = useState<string | null>(null);
  const box = useRef<HTMLPreElement>(null);
  const atEnd = useRef(true);
  useEffect(() => {
    let open = true;
    let last = 0;
    const tick = async () => {
      if (!open) return;
      try {
        if (document.visibilityState === "visible") {
          const answer = await json<{ lines: Line[]; last: number }>("GET", `/v1/log?after=${last}`);
          // Numbers begin anew with a new server.
          if (answer.last < last) setLines([]);
          last = answer.last;
          if (answer.lines.length) setLines((all) => [...all, ...answer.lines].slice(-MOST));
          setRefused(null);
        }
      } catch (error) {
        if ((error as ApiFailure).status === 403) setRefused((error as ApiFailure).message);
      }
      if (open) setTimeout(tick, 2000);
    };
    void tick();
    return () => {
      open = false;
    };
  }, []);
  useEffect(() => {
    if (atEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines]);
  return (
    <section>
      <h2>Log</h2>
      {refused ? (
        <p class="hint">{refused}</p>
      ) : (
        <pre
          class="log card"
          ref={box}
          tabIndex={0}
          role="log"
          aria-live="off"
          aria-label="The server's log"
          onScroll={(event) => {
            const { scrollHeight, scrollTop, clientHeight } = event.currentTarget;
            atEnd.current = scrollHeight - scrollTop - clientHeight < 40;
          }}
        >
          {lines.map((line) => (
            <span key={line.number} class={`level-${line.level}`}>
              {line.text}
              {"\n"}
            </span>
          ))}
        </pre>
      )}
    </section>
  );
}
