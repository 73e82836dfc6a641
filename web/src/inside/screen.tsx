// A sandbox's desktop, live. It is for looking, which the sandbox enforces; whoever may write can take control.
import { ActionIcon, Button, Switch, Tooltip } from "@mantine/core";
import RFB from "@novnc/novnc";
import { Maximize, MonitorOff } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { mayWrite, useMe } from "../app/session";
import { backoff } from "../live/sse";
import { Notice } from "../ui/states";
import classes from "./screen.module.css";

type State = "connecting" | "open" | "lost";
const REFUSED = 1008; // the server says why, and asking again would not help
const EXAMPLE = `from e2b_desktop import Sandbox\ndesktop = Sandbox.create()`;

export function Screen({ sandboxId }: { sandboxId: string }) {
  const me = useMe();
  const frame = useRef<HTMLDivElement>(null);
  const place = useRef<HTMLDivElement>(null);
  const [control, setControl] = useState(false);
  const [state, setState] = useState<State>("connecting");
  const [refusal, setRefusal] = useState<string | null>(null);
  const [round, setRound] = useState(0);
  useEffect(() => {
    const ended = new AbortController();
    void keepOpen(sandboxId, place.current!, control, ended.signal, setState, setRefusal);
    return () => ended.abort();
  }, [sandboxId, control, round]);
  if (refusal !== null) {
    return (
      <Notice icon={MonitorOff} title="No screen to show" lines={EXAMPLE} action={<Button variant="default" onClick={() => { setRefusal(null); setControl(false); setRound(round + 1); }}>Try again</Button>}>
        {refusal}
      </Notice>
    );
  }
  const words = state === "connecting" ? "Connecting…" : state === "lost" ? "The connection was lost; reconnecting…" : control ? "You are in control" : "Looking on";
  return (
    <div className={classes.frame} ref={frame}>
      <div className={classes.bar}>
        <span className={classes.state} data-state={state} data-control={(control && state === "open") || undefined} role="status"><i aria-hidden />{words}</span>
        <span className="grow" />
        {mayWrite(me) && <Switch size="xs" label="Take control" checked={control} onChange={(event) => setControl(event.currentTarget.checked)} />}
        <Tooltip label="Full screen"><ActionIcon aria-label="Full screen" size={24} onClick={() => void frame.current?.requestFullscreen()}><Maximize size={14} /></ActionIcon></Tooltip>
      </div>
      <div className={classes.place} ref={place} role="application" aria-label="The sandbox's desktop" data-state={state} />
    </div>
  );
}

/** Until it is told to end, or the server refuses. */
async function keepOpen(sandboxId: string, place: HTMLElement, control: boolean, signal: AbortSignal, tell: (state: State) => void, refuse: (why: string) => void): Promise<void> {
  let failures = 0;
  tell("connecting");
  while (!signal.aborted) {
    const { opened, code, reason } = await once(sandboxId, place, control, signal, () => tell("open"));
    if (signal.aborted) return;
    if (code === REFUSED) return refuse(reason);
    failures = opened ? 0 : failures + 1;
    if (failures >= 6) return refuse("The sandbox cannot be reached. It may be paused, or have ended.");
    tell("lost");
    await backoff(failures, signal);
  }
}

interface Ending {
  opened: boolean;
  code: number;
  reason: string;
}

function once(sandboxId: string, place: HTMLElement, control: boolean, signal: AbortSignal, onOpen: () => void): Promise<Ending> {
  return new Promise((resolve) => {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}/console/api/sandboxes/${encodeURIComponent(sandboxId)}/screen${control ? "?control=true" : ""}`);
    socket.binaryType = "arraybuffer";
    let opened = false;
    socket.addEventListener("close", (event) => resolve({ opened, code: event.code, reason: event.reason }));
    const viewer = new RFB(place, socket, { shared: true });
    viewer.viewOnly = !control;
    viewer.scaleViewport = true;
    viewer.background = "transparent";
    viewer.addEventListener("connect", () => {
      opened = true;
      onOpen();
      if (control) viewer.focus();
    });
    signal.addEventListener("abort", () => viewer.disconnect(), { once: true });
  });
}
