// Pictures that the user pastes, drops or picks, as data URLs that the server reads.

const SENT_AS_THEY_ARE = new Set(["image/png", "image/jpeg", "image/webp", "image/gif"]);
const LARGEST_BYTES = 4 << 20; // what is larger is drawn smaller
const LARGEST_SIDE = 2048;

export function pictures(transfer: DataTransfer | null): File[] {
  return [...(transfer?.files ?? [])].filter((file) => file.type.startsWith("image/"));
}

function asDataUrl(blob: Blob): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result as string);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });
}

/** Throws if it is no picture that this browser can read. */
export async function dataUrl(file: File): Promise<string> {
  if (SENT_AS_THEY_ARE.has(file.type) && file.size <= LARGEST_BYTES) return asDataUrl(file);
  const bitmap = await createImageBitmap(file);
  const scale = Math.min(1, LARGEST_SIDE / Math.max(bitmap.width, bitmap.height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(bitmap.width * scale);
  canvas.height = Math.round(bitmap.height * scale);
  canvas.getContext("2d")!.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/jpeg", 0.9);
}
