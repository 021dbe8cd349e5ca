// What somebody who has just come may ask. The small model of the package knows little, so what it
// is offered is what it can do.

export interface Suggestion {
  label: string;
  text: string;
  picture?: () => string;
}

function drawn(paint: (pen: CanvasRenderingContext2D) => void): string {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 128;
  const pen = canvas.getContext("2d")!;
  pen.fillStyle = "white";
  pen.fillRect(0, 0, 128, 128);
  paint(pen);
  return canvas.toDataURL("image/png");
}

function redCircle(pen: CanvasRenderingContext2D): void {
  pen.fillStyle = "red";
  pen.beginPath();
  pen.arc(64, 64, 32, 0, 2 * Math.PI);
  pen.fill();
}

const OF_TINY: Suggestion[] = [
  { label: "What is 3 + 4?", text: "What is 3 + 4?" },
  {
    label: "Show it a red circle",
    text: "What colour is it?",
    picture: () => drawn(redCircle),
  },
  { label: "Who are you?", text: "Hello! Who are you?" },
];

const OF_OTHERS: Suggestion[] = [
  {
    label: "Explain something",
    text: "Explain how a prefix cache makes a language model answer sooner, for a curious beginner.",
  },
  {
    label: "Write a function",
    text: "Write a Python function that groups words which are anagrams of each other, with tests.",
  },
  {
    label: "Plan a weekend",
    text: "Plan a calm weekend by the sea for two people who like books and long walks.",
  },
];

export function suggestions(model: string): Suggestion[] {
  return model === "bushel:tiny" ? OF_TINY : OF_OTHERS;
}
