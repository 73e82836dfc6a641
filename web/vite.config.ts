import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// `./sandlot web dev` names the server whose API the development server passes on.
const server = process.env.SANDLOT_WEB_SERVER ?? "http://127.0.0.1:3900";
const apis = ["/console/api", "/console/login", "/console/logout", "/console/links", "/console/me"];
const routes = ["/tasks", "/events", "/repositories", "/sandboxes", "/platform"];

function proxied(path: string) {
  return [
    `^${path}(?:/|$|\\?)`,
    {
      target: server,
      ws: true,
      changeOrigin: true,
      // The server takes a cookie only from its own origin: to it, this one is it.
      headers: { origin: server, "sec-fetch-site": "same-origin" },
    },
  ] as const;
}

export default defineConfig({
  base: "/console/",
  plugins: [react()],
  build: {
    outDir: "../src/sandlot/console/static",
    emptyOutDir: true,
    target: "es2023",
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 1000,
  },
  css: { modules: { generateScopedName: "[local]_[hash:base64:5]" } },
  server: { proxy: Object.fromEntries([...apis, ...routes].map(proxied)) },
});
