// The models of this server, and those on its disk.
import { useEffect, useState } from "preact/hooks";
import { access, json } from "../api";
import { askModels, models } from "../server";
import { useStore } from "../store";
import { Empty } from "../ui";
import { DiskSection } from "./disk";
import { watchHub } from "./hub";
import { InspectionDialog } from "./inspection";
import { ServedModel } from "./served";

export function ModelsView() {
  const cards = useStore(models);
  const { key } = useStore(access);
  const [several, setSeveral] = useState(false);
  const [inspected, setInspected] = useState<string | null>(null);
  useEffect(() => {
    void askModels();
    const looking = setInterval(() => void askModels(), 2000);
    json<object>("GET", "/v1/status")
      .then((status) => setSeveral("models" in status))
      .catch(() => {});
    const leave = watchHub();
    return () => {
      clearInterval(looking);
      leave();
    };
  }, [key]);
  const main = cards?.filter((card) => card.id === card.root) ?? [];
  return (
    <div class="view page">
      <header class="view-head">
        <h1>Models</h1>
        <span class="quiet">{cards ? `${main.length} on this server` : ""}</span>
      </header>
      <div class="scroller">
        <div class="wide">
          {cards === null && <Empty title="The models are not known yet" />}
          <section aria-labelledby="served">
            <h2 id="served">Served</h2>
            <ul class="models">
              {main.map((card) => (
                <ServedModel
                  key={card.id}
                  card={card}
                  changes={several}
                  names={cards!.filter((one) => one.root === card.id && one !== card).map((one) => one.id)}
                  onInspect={setInspected}
                />
              ))}
            </ul>
            {cards && !several && (
              <p class="hint">
                This server has one model, which stays. Start it with several (
                <code>bushel serve A B</code>, or a folder of checkpoints) to load and unload them here.
              </p>
            )}
          </section>
          <DiskSection onInspect={setInspected} />
        </div>
      </div>
      {inspected !== null && <InspectionDialog id={inspected} onClose={() => setInspected(null)} />}
    </div>
  );
}
