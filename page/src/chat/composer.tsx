// Where a message is written: text, and pictures by paste, drop or file.
import { useEffect, useRef, useState } from "preact/hooks";
import { Icon, IconButton, say } from "../ui";
import { dataUrl, pictures } from "./images";

interface ComposerProps {
  writing: boolean;
  focusKey: string; // a new one takes the focus
  placeholder: string;
  onSend(text: string, images: string[]): void;
  onStop(): void;
}

export function Composer(props: ComposerProps) {
  const [text, setText] = useState("");
  const [images, setImages] = useState<string[]>([]);
  const [over, setOver] = useState(false);
  const area = useRef<HTMLTextAreaElement>(null);
  const picker = useRef<HTMLInputElement>(null);

  useEffect(() => {
    // A phone's keyboard should not jump up by itself.
    if (matchMedia("(min-width: 48rem)").matches) area.current!.focus();
  }, [props.focusKey]);

  const attach = async (files: File[]) => {
    for (const file of files) {
      try {
        const url = await dataUrl(file);
        setImages((all) => [...all, url]);
      } catch {
        say(`${file.name || "This file"} is no picture that this browser can read.`);
      }
    }
    area.current!.focus();
  };

  useEffect(() => {
    const hasFiles = (event: DragEvent) => event.dataTransfer?.types.includes("Files");
    const drag = (event: DragEvent) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      setOver(true);
    };
    const leave = (event: DragEvent) => {
      if (event.relatedTarget === null) setOver(false);
    };
    const drop = (event: DragEvent) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      setOver(false);
      void attach(pictures(event.dataTransfer));
    };
    document.addEventListener("dragover", drag);
    document.addEventListener("dragleave", leave);
    document.addEventListener("drop", drop);
    return () => {
      document.removeEventListener("dragover", drag);
      document.removeEventListener("dragleave", leave);
      document.removeEventListener("drop", drop);
    };
  }, []);

  const ready = Boolean(text.trim() || images.length);
  const send = () => {
    if (!ready || props.writing) return;
    props.onSend(text.trim(), images);
    setText("");
    setImages([]);
  };

  return (
    <form
      class={`composer${over ? " over" : ""}`}
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      {over && <p class="drop-hint">Drop pictures here</p>}
      {images.length > 0 && (
        <ul class="attached" aria-label="Pictures to send">
          {images.map((url, at) => (
            <li key={at}>
              <img src={url} alt={`Picture ${at + 1} to send`} />
              <IconButton
                icon="close"
                label={`Remove picture ${at + 1}`}
                onClick={() => setImages(images.filter((_, other) => other !== at))}
              />
            </li>
          ))}
        </ul>
      )}
      <div class="composer-row">
        <IconButton
          icon="image"
          label="Attach pictures"
          onClick={() => picker.current!.click()}
        />
        <input
          ref={picker}
          type="file"
          accept="image/*"
          multiple
          hidden
          aria-label="Pictures"
          onChange={(event) => {
            void attach([...(event.currentTarget.files ?? [])]);
            event.currentTarget.value = "";
          }}
        />
        <div class="grow-wrap" data-text={`${text}\n`}>
          <textarea
            ref={area}
            rows={1}
            aria-label="Message"
            placeholder={props.placeholder}
            value={text}
            onInput={(event) => setText(event.currentTarget.value)}
            onPaste={(event) => {
              const files = pictures(event.clipboardData);
              if (!files.length) return;
              event.preventDefault();
              void attach(files);
            }}
            onKeyDown={(event) => {
              if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
                event.preventDefault();
                send();
              }
            }}
          />
        </div>
        {props.writing ? (
          <button type="button" class="round" aria-label="Stop" title="Stop" onClick={props.onStop}>
            <Icon name="stop" />
          </button>
        ) : (
          <button type="submit" class="round" aria-label="Send" title="Send" disabled={!ready}>
            <Icon name="send" />
          </button>
        )}
      </div>
    </form>
  );
}
