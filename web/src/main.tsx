import "./styles/mantine.css";
import "@mantine/notifications/styles.layer.css";
import "./styles/global.css";
import { MantineProvider } from "@mantine/core";
import { Notifications } from "@mantine/notifications";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { ApiError } from "./api/client";
import { KeysProvider } from "./app/keys";
import { router } from "./app/router";
import { SessionProvider } from "./app/session";
import { LiveProvider } from "./live/provider";
import { theme, variables } from "./styles/theme";

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 15_000,
      retry: (failures, error) => !(error instanceof ApiError && error.status >= 400 && error.status < 500) && failures < 3,
    },
  },
});

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <MantineProvider theme={theme} cssVariablesResolver={variables} defaultColorScheme="auto" deduplicateInlineStyles>
      <QueryClientProvider client={queries}>
        <SessionProvider>
          <LiveProvider>
            <KeysProvider>
              <RouterProvider router={router} />
            </KeysProvider>
          </LiveProvider>
        </SessionProvider>
        <Notifications position="bottom-right" limit={4} />
      </QueryClientProvider>
    </MantineProvider>
  </StrictMode>,
);
