// Who is logged in. Without a session there is the login page and nothing else.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { createContext, useContext, useEffect, type ReactNode } from "react";
import { api, ApiError, onLoggedOut, type Me } from "../api/client";
import { Failed } from "../ui/states";
import { Login } from "./login";

const Session = createContext<Me | null>(null);

export function SessionProvider({ children }: { children: ReactNode }) {
  const queries = useQueryClient();
  const me = useQuery({ queryKey: ["me"], queryFn: () => api.data(api.GET("/console/me")), retry: false, staleTime: 60_000 });
  useEffect(
    () => onLoggedOut(() => {
      // A key that was revoked ends the page that it opened, with everything that it had shown.
      queries.setQueryData(["me"], null);
      queries.removeQueries({ predicate: (query) => query.queryKey[0] !== "me" });
    }),
    [queries],
  );
  if (me.data) return <Session value={me.data}>{children}</Session>;
  if (me.data === null || (me.error instanceof ApiError && me.error.status === 401)) {
    return <Login onDone={() => void queries.resetQueries({ queryKey: ["me"] })} />;
  }
  if (me.isError) return <Failed error={me.error} retry={() => void me.refetch()} />;
  return null;
}

export function useMe(): Me {
  const me = useContext(Session);
  if (!me) throw new Error("nobody is logged in above this component");
  return me;
}

export function mayWrite(me: Me): boolean {
  return me.is_admin || me.scopes.includes("write");
}

export async function logOut(): Promise<void> {
  await api.POST("/console/logout").catch(() => undefined);
  location.assign("/console/");
}
