// The page's first line: everything below runs in the browser, and asks no other host.
import { render } from "preact";
import { App, follow } from "./app";
import { running } from "./chat/replies";
import { followOtherTabs, readAll } from "./chat/storage";
import { watch } from "./server";
import "./style.css";

follow();
void readAll();
followOtherTabs(() => running.get().size > 0);
watch();
render(<App />, document.getElementById("page")!);
