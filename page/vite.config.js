// Names without hashes: the server sends an etag with each file, and a rebuild changes only bytes.
import { defineConfig } from "vite";

export default defineConfig({
  base: "/page/",
  // Without the slash, so that files are found below whatever path a proxy has the server.
  plugins: [
    {
      name: "relative",
      transformIndexHtml: {
        order: "post",
        handler: (html) => html.replaceAll('"/page/', '"page/'),
      },
    },
  ],
  build: {
    outDir: "../bushel/server/page/built",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    license: { fileName: "licenses.md" },
    rolldownOptions: {
      output: {
        entryFileNames: "page.js",
        chunkFileNames: "[name].js",
        assetFileNames: "page[extname]",
      },
    },
  },
  // `npx vite` serves the source, and asks a server on this machine for everything else.
  server: { proxy: Object.fromEntries(
    ["/v1", "/health", "/metrics", "/openapi.json"].map((path) => [path, "http://127.0.0.1:8000"]),
  ) },
});
