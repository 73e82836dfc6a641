// All pages, one line each. A page's module has a component as its default export; it is loaded when first opened.
import { Inbox, LayoutDashboard, type LucideIcon } from "lucide-react";
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
  { path: "/board", title: "Board", load: () => import("./board"), nav: { icon: LayoutDashboard, group: "work", key: "b", phone: true } },
];

export const HOME = "/board";
