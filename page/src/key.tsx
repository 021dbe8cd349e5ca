// The API key: asked for when the server wants one, and changed or forgotten at any time.
import { useEffect, useRef, useState } from "preact/hooks";
import { access, ApiFailure, json, refusedKey, setKey } from "./api";
import { useStore } from "./store";
import { say } from "./ui";

export function KeyForm({ onDone, focus }: { onDone?(): void; focus?: boolean }) {
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (focus) field.current!.focus();
  }, []);
  const kept = useStore(access);
  const refused = useStore(refusedKey);
  const [typed, setTyped] = useState(kept.key);
  const [remembered, setRemembered] = useState(kept.remembered);
  const [problem, setProblem] = useState<string | null>(null);
  const apply = async (next: string) => {
    setKey(next, remembered);
    setProblem(null);
    try {
      await json("GET", "/v1/models");
      say(next ? "The key fits." : "No key is used.");
      onDone?.();
    } catch (error) {
      setProblem((error as ApiFailure).message);
    }
  };
  return (
    <form
      class="key-form"
      onSubmit={(event) => {
        event.preventDefault();
        void apply(typed.trim());
      }}
    >
      <label class="field">
        <span>API key</span>
        <input
          ref={field}
          type="password"
          autocomplete="off"
          spellcheck={false}
          value={typed}
          aria-invalid={Boolean(problem ?? refused)}
          onInput={(event) => setTyped(event.currentTarget.value)}
        />
      </label>
      {(problem ?? refused) && (
        <p class="failed" role="alert">
          {problem ?? refused}
        </p>
      )}
      <label class="check">
        <input
          type="checkbox"
          checked={remembered}
          onChange={(event) => setRemembered(event.currentTarget.checked)}
        />
        Remember it in this browser
      </label>
      <p class="hint">
        {remembered
          ? "It is kept in this browser's local storage until you remove it."
          : "It is kept in this tab's session storage, and gone when the tab is closed."}{" "}
        It is sent to {location.host} and nowhere else.
      </p>
      <div class="row end">
        {kept.key && (
          <button
            type="button"
            onClick={() => {
              setTyped("");
              void apply("");
            }}
          >
            Forget it
          </button>
        )}
        <button type="submit" class="primary">
          Use this key
        </button>
      </div>
    </form>
  );
}
