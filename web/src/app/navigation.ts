// Going to pages by plain addresses: pages are registered as data, so the router cannot know them as types.
import { useNavigate, useParams, useRouterState } from "@tanstack/react-router";
import { useCallback } from "react";

export type Search = Record<string, string | undefined>;

export function useGo() {
  const navigate = useNavigate();
  return useCallback(
    (path: string, search: Search = {}, options: { replace?: boolean; hash?: string } = {}) =>
      void navigate({ to: path, search: search as never, replace: options.replace, hash: options.hash } as never),
    [navigate],
  );
}

export function useParam(name: string): string {
  const params = useParams({ strict: false }) as Record<string, string | undefined>;
  return params[name] ?? "";
}

/** The address's query, and how to change parts of it. */
export function useSearchState(): [Search, (changes: Search, options?: { push?: boolean }) => void] {
  const search = useRouterState({ select: (state) => state.location.search as Search });
  const navigate = useNavigate();
  const change = useCallback(
    (changes: Search, options: { push?: boolean } = {}) =>
      void navigate({
        to: ".",
        replace: !options.push,
        resetScroll: false,
        search: ((old: Search) => Object.fromEntries(Object.entries({ ...old, ...changes }).filter(([, v]) => v))) as never,
      } as never),
    [navigate],
  );
  return [search, change];
}

export function usePath(): string {
  return useRouterState({ select: (state) => state.location.pathname });
}
