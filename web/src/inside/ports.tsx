// Ports of a sandbox that something listens on, each opened on its own host by a grant that works once.
import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { ExternalLink, Globe } from "lucide-react";
import { api } from "../api/client";
import { failed } from "../tasks/acts";
import { CopyIcon } from "../ui/copy";
import { Empty, Shown } from "../ui/states";
import classes from "./ports.module.css";

export function Ports({ sandboxId }: { sandboxId: string }) {
  const ports = useQuery({
    queryKey: ["ports", sandboxId],
    queryFn: () => api.data(api.GET("/console/api/sandboxes/{sandbox_id}/ports", { params: { path: { sandbox_id: sandboxId } } })),
    refetchInterval: 5000,
  });
  async function open(port: number) {
    const tab = window.open("about:blank", "_blank"); // now, while the browser still knows that somebody clicked
    try {
      const granted = await api.data(api.POST("/console/api/sandboxes/{sandbox_id}/ports/{port}/grant", { params: { path: { sandbox_id: sandboxId, port } } }));
      if (tab) {
        tab.opener = null;
        tab.location.href = granted.url;
      }
    } catch (error) {
      tab?.close();
      failed(`Port ${port} was not opened`, error);
    }
  }
  return (
    <Shown query={ports}>
      {({ ports: list }) =>
        list.length ? (
          <ul className={classes.list}>
            {list.map((port) => (
              <li key={port.port}>
                <Globe size={15} aria-hidden />
                <b className="num">{port.port}</b>
                <code className="cut grow">{port.url}</code>
                <CopyIcon text={port.url} label="Copy the address" />
                <Button variant="default" rightSection={<ExternalLink size={13} aria-hidden />} onClick={() => void open(port.port)}>Open</Button>
              </li>
            ))}
          </ul>
        ) : (
          <Empty icon={Globe} title="Nothing listens yet">A server that the agent or you start in the sandbox appears here. It is opened on a host of its own, apart from this console.</Empty>
        )
      }
    </Shown>
  );
}
