// Addresses: one route per page of the registry, all inside the shell.
import { createRootRoute, createRoute, createRouter, lazyRouteComponent, redirect } from "@tanstack/react-router";
import { CircleSlash } from "lucide-react";
import { HOME, PAGES } from "../pages";
import { Failed, Loading, Notice } from "../ui/states";
import { Shell } from "./shell";

const root = createRootRoute({
  component: Shell,
  notFoundComponent: () => (
    <Notice icon={CircleSlash} title="There is no such page">The address may be mistyped, or from another version.</Notice>
  ),
});

const home = createRoute({
  getParentRoute: () => root,
  path: "/",
  beforeLoad: () => {
    throw redirect({ to: HOME, replace: true });
  },
});

const pages = PAGES.map((page) =>
  createRoute({
    getParentRoute: () => root,
    path: page.path,
    component: lazyRouteComponent(page.load),
    validateSearch: (search: Record<string, unknown>) => search,
  }),
);

export const router = createRouter({
  routeTree: root.addChildren([home, ...pages]),
  basepath: "/console",
  defaultPreload: "intent",
  defaultPendingComponent: Loading,
  defaultErrorComponent: ({ error }) => <Failed error={error} retry={() => location.reload()} />,
  defaultStructuralSharing: true,
});
