// All pages, one line each. A page's module has a component as its default export; it is loaded when first opened.
import { Box, ChartColumn, FolderGit2, Inbox, KeyRound, Layers, Package, Settings, SquareKanban, SquarePen, type LucideIcon } from "lucide-react";
import type { ComponentType } from "react";

export interface Page {
  path: string; // below /console; `$name` is a parameter
  title: string;
  load: () => Promise<{ default: ComponentType }>;
  nav?: { icon: LucideIcon; group: "work" | "sandboxes" | "manage"; key?: string; phone?: boolean };
  adminsOnly?: boolean;
}

export const PAGES: readonly Page[] = [
  { path: "/inbox", title: "Inbox", load: () => import("./inbox"), nav: { icon: Inbox, group: "work", key: "i", phone: true } },
  { path: "/board", title: "Board", load: () => import("./board"), nav: { icon: SquareKanban, group: "work", key: "b", phone: true } },
  { path: "/new", title: "New task", load: () => import("./new"), nav: { icon: SquarePen, group: "work", key: "n", phone: true } },
  { path: "/tasks/$id", title: "Task", load: () => import("./task") },
  { path: "/sandboxes", title: "Sandboxes", load: () => import("./sandboxes"), nav: { icon: Box, group: "sandboxes", key: "s" } },
  { path: "/sandboxes/$id", title: "Sandbox", load: () => import("./sandbox") },
  { path: "/sessions", title: "Sessions", load: () => import("./sessions"), nav: { icon: Layers, group: "sandboxes", key: "e" } },
  { path: "/templates", title: "Templates", load: () => import("./templates"), nav: { icon: Package, group: "sandboxes", key: "t" } },
  { path: "/templates/$id", title: "Template", load: () => import("./template") },
  { path: "/repositories", title: "Repositories", load: () => import("./repositories"), nav: { icon: FolderGit2, group: "manage", key: "r" } },
  { path: "/repositories/$name", title: "Repository", load: () => import("./repository") },
  { path: "/repositories/$name/pulls/$number", title: "Pull request", load: () => import("./pull") },
  { path: "/keys", title: "Keys", load: () => import("./keys"), nav: { icon: KeyRound, group: "manage", key: "k" } },
  { path: "/usage", title: "Usage", load: () => import("./usage"), nav: { icon: ChartColumn, group: "manage", key: "u" } },
  { path: "/settings", title: "Settings", load: () => import("./settings"), nav: { icon: Settings, group: "manage", key: "," }, adminsOnly: true },
];

export const HOME = "/board";
