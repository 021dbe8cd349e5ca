// Conversations are kept in this browser's IndexedDB, pictures included, and nowhere else.
import { store } from "../store";
import type { Conversation } from "./conversation";

const TABLE = "conversations";
let database: Promise<IDBDatabase> | null = null;

/** All of them, the newest first; null: not read yet. */
export const conversations = store<Conversation[] | null>(null);
/** Why they are not kept, if so. */
export const notKept = store<string | null>(null);
const channel = "BroadcastChannel" in window ? new BroadcastChannel("bushel") : null;

function open(): Promise<IDBDatabase> {
  database ??= new Promise((resolve, reject) => {
    const opening = indexedDB.open("bushel", 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore(TABLE, { keyPath: "id" });
    opening.onsuccess = () => resolve(opening.result);
    opening.onerror = () => reject(opening.error);
  });
  return database;
}

async function act<T>(
  mode: IDBTransactionMode,
  work: (table: IDBObjectStore) => IDBRequest<T>,
): Promise<T> {
  const transaction = (await open()).transaction(TABLE, mode);
  return new Promise((resolve, reject) => {
    const asked = work(transaction.objectStore(TABLE));
    transaction.oncomplete = () => resolve(asked.result);
    transaction.onerror = transaction.onabort = () => reject(transaction.error);
  });
}

async function keep(work: () => Promise<unknown>): Promise<void> {
  try {
    await work();
    notKept.set(null);
    channel?.postMessage("changed");
  } catch {
    notKept.set("This browser does not keep conversations: they end with this tab.");
  }
}

function sorted(all: Conversation[]): Conversation[] {
  return [...all].sort((one, other) => other.changed - one.changed);
}

export async function readAll(): Promise<void> {
  try {
    const written = await act<Conversation[]>("readonly", (table) => table.getAll());
    const begun = (conversations.get() ?? []).filter((one) => !one.turns.length);
    conversations.set(sorted([...begun, ...written]));
  } catch {
    notKept.set("This browser does not keep conversations: they end with this tab.");
    conversations.set(conversations.get() ?? []);
  }
}

/** Shown at once; written where `write` says so, since a reply changes many times a second. */
export function put(conversation: Conversation, write = true): void {
  const others = (conversations.get() ?? []).filter((one) => one.id !== conversation.id);
  conversations.set(sorted([conversation, ...others]));
  if (write && conversation.turns.length) {
    void keep(() => act("readwrite", (table) => table.put(conversation)));
  }
}

export function remove(id: string): void {
  conversations.set((conversations.get() ?? []).filter((one) => one.id !== id));
  void keep(() => act("readwrite", (table) => table.delete(id)));
}

/** Other tabs' changes appear here, unless a reply is being written here. */
export function followOtherTabs(busy: () => boolean): void {
  channel?.addEventListener("message", () => {
    if (!busy()) void readAll();
  });
}
