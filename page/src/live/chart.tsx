// A line over time, drawn without a library: the number now is in words beside it.

interface ChartProps {
  title: string;
  values: (number | null)[];
  shown(value: number): string;
  none: string; // instead of a number
}

const WIDTH = 300;
const HEIGHT = 64;

function path(values: (number | null)[], most: number): string {
  const step = WIDTH / Math.max(1, values.length - 1);
  let text = "";
  let pen = "M";
  values.forEach((value, at) => {
    if (value === null) {
      pen = "M";
      return;
    }
    const y = HEIGHT - 3 - (value / most) * (HEIGHT - 8);
    text += `${pen}${(at * step).toFixed(1)} ${y.toFixed(1)}`;
    pen = "L";
  });
  return text;
}

export function Chart({ title, values, shown, none }: ChartProps) {
  const known = values.filter((value) => value !== null);
  const most = Math.max(...known, 0);
  // What was measured last, while nothing new is.
  const last = known.at(-1) ?? null;
  const words = last === null ? none : shown(last);
  return (
    <section class="chart card">
      <h3>{title}</h3>
      <p class="figure">{words}</p>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${title}: ${words}, at most ${shown(most)} in the time shown`}
      >
        <path d={`M0 ${HEIGHT - 1}H${WIDTH}`} class="base" />
        {last !== null && <path d={path(values, most || 1)} class="line" />}
      </svg>
      <p class="hint">{last === null ? "nothing measured yet" : `at most ${shown(most)}`}</p>
    </section>
  );
}
