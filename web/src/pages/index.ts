// All pages, one line each. A page's module has a component as its default export; it is loaded when first opened.
import { Inbox, SquareKanban, SquarePen, type LucideIcon } from "lucide-react";
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
];

export const HOME = "/board";
