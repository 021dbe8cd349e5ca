// A value that components read and follow: the page's state is a handful of these.
import { useEffect, useState } from "preact/hooks";

export interface Store<T> {
  get(): T;
  set(value: T): void;
  follow(listener: () => void): () => void;
}

export function store<T>(initial: T): Store<T> {
  let value = initial;
  const listeners = new Set<() => void>();
  return {
    get: () => value,
    set(next) {
      if (Object.is(next, value)) return;
      value = next;
      for (const listener of [...listeners]) listener();
    },
    follow(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

export function useStore<T>(source: Store<T>): T {
  const [value, setValue] = useState(() => source.get());
  useEffect(() => {
    const update = () => setValue(() => source.get());
    update();
    return source.follow(update);
  }, [source]);
  return value;
}

/** A setting that survives a reload, and is told to other tabs. */
export function kept<T>(name: string, initial: T): Store<T> {
  const read = (): T => {
    try {
      const text = localStorage.getItem(name);
      return text === null ? initial : (JSON.parse(text) as T);
    } catch {
      return initial;
    }
  };
  const made = store(read());
  made.follow(() => {
    try {
      localStorage.setItem(name, JSON.stringify(made.get()));
    } catch {
      // A browser that keeps nothing still works, until it is closed.
    }
  });
  return made;
}
