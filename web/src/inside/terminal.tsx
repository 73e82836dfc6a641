// Shells in a sandbox. A shell goes on when the connection ends: it is taken up again by its pid, after a reload too.
import "@xterm/xterm/css/xterm.css";
import { ActionIcon, Button, Tooltip, useComputedColorScheme } from "@mantine/core";
import { FitAddon } from "@xterm/addon-fit";
import { Terminal as Screen } from "@xterm/xterm";
import { Plus, X } from "lucide-react";
import { useCallback, useEffect, useRef, useState } from "react";
import { backoff } from "../live/sse";
import classes from "./terminal.module.css";

interface Shell {
  key: number;
  pid: number | null;
}
type State = "connecting" | "open" | "lost" | "ended";

export function Terminals({ sandboxId, cwd }: { sandboxId: string; cwd?: string }) {
  const place = `sandlot-shells-${sandboxId}`;
  const [shells, setShells] = useState<Shell[]>(() => {
    const kept = JSON.parse(sessionStorage.getItem(place) ?? "[]") as number[];
    return kept.length ? kept.map((pid, key) => ({ key, pid })) : [{ key: 0, pid: null }];
  });
  const [shown, setShown] = useState(shells[0]!.key);
  useEffect(() => {
    sessionStorage.setItem(place, JSON.stringify(shells.flatMap((shell) => shell.pid ?? [])));
  }, [place, shells]);
  const opened = useCallback((key: number, pid: number | null) => setShells((old) => old.map((shell) => (shell.key === key ? { ...shell, pid } : shell))), []);
  function add() {
    const key = Math.max(-1, ...shells.map((shell) => shell.key)) + 1;
    setShells([...shells, { key, pid: null }]);
    setShown(key);
  }
  function close(key: number) {
    const rest = shells.filter((shell) => shell.key !== key);
    setShells(rest.length ? rest : [{ key: key + 1, pid: null }]);
    if (key === shown) setShown(rest[0]?.key ?? key + 1);
  }
  return (
    <div className={classes.frame}>
      <div className={classes.bar}>
        {shells.map((shell, n) => (
          <span key={shell.key} className={classes.tab} data-on={shell.key === shown || undefined}>
            <button type="button" onClick={() => setShown(shell.key)} aria-pressed={shell.key === shown}>Shell {n + 1}</button>
            {shells.length > 1 && <button type="button" aria-label={`Close shell ${n + 1}`} onClick={() => close(shell.key)}><X size={12} /></button>}
          </span>
        ))}
        <Tooltip label="Another shell"><ActionIcon aria-label="Another shell" size={24} onClick={add}><Plus size={14} /></ActionIcon></Tooltip>
      </div>
      {shells.map((shell) => (
        <div key={shell.key} className={classes.place} hidden={shell.key !== shown}>
          <OneTerminal sandboxId={sandboxId} pid={shell.pid} cwd={cwd} isShown={shell.key === shown} onOpen={(pid) => opened(shell.key, pid)} />
        </div>
      ))}
    </div>
  );
}

const DARK = { background: "#121214", foreground: "#ededf0", cursor: "#a9a9fa", selectionBackground: "#3a3a62", black: "#26262b", brightBlack: "#92929d" };
const LIGHT = { background: "#ffffff", foreground: "#17171c", cursor: "#4f4fc9", selectionBackground: "#d8d8f6", black: "#17171c", red: "#c0292e", green: "#1a7f45", yellow: "#8a5200", blue: "#1667b7", magenta: "#7a3fb8", cyan: "#0b6e76", white: "#55555f", brightBlack: "#666671", brightRed: "#c0292e", brightGreen: "#1a7f45", brightYellow: "#8a5200", brightBlue: "#1667b7", brightMagenta: "#7a3fb8", brightCyan: "#0b6e76", brightWhite: "#17171c" };

function OneTerminal({ sandboxId, pid, cwd, isShown, onOpen }: { sandboxId: string; pid: number | null; cwd?: string; isShown: boolean; onOpen: (pid: number | null) => void }) {
  const box = useRef<HTMLDivElement>(null);
  const screen = useRef<Screen | null>(null);
  const fit = useRef<FitAddon | null>(null);
  const [state, setState] = useState<State>("connecting");
  const [words, setWords] = useState("");
  const [round, setRound] = useState(0);
  const scheme = useComputedColorScheme();
  const first = useRef({ pid, cwd, onOpen });
  first.current.onOpen = onOpen;
  useEffect(() => {
    const term = new Screen({ fontFamily: "'JetBrains Mono Variable', ui-monospace, Menlo, monospace", fontSize: 12.5, lineHeight: 1.25, cursorBlink: true, scrollback: 10_000, screenReaderMode: false, allowProposedApi: false });
    const fitting = new FitAddon();
    term.loadAddon(fitting);
    term.open(box.current!);
    [screen.current, fit.current] = [term, fitting];
    const ended = new AbortController();
    const connection = new Connection(sandboxId, term, first.current.pid, first.current.cwd, ended.signal, (next, why, at) => {
      setState(next);
      setWords(why);
      if (at !== undefined) first.current.onOpen(at);
    });
    const sized = new ResizeObserver(() => box.current?.clientHeight && fitting.fit());
    sized.observe(box.current!);
    fitting.fit();
    void connection.run();
    return () => (ended.abort(), sized.disconnect(), term.dispose());
  }, [sandboxId, round]);
  useEffect(() => {
    if (screen.current) screen.current.options.theme = scheme === "dark" ? DARK : LIGHT;
  }, [scheme, round]);
  useEffect(() => {
    if (isShown) (fit.current?.fit(), screen.current?.focus());
  }, [isShown]);
  return (
    <>
      <div ref={box} className={classes.screen} />
      {state !== "open" && (
        <div className={classes.state} role="status">
          {state === "connecting" ? "Connecting…" : state === "lost" ? "The connection was lost; reconnecting…" : words}
          {state === "ended" && <Button size="compact-sm" variant="default" onClick={() => { first.current.pid = null; setRound(round + 1); }}>New shell</Button>}
        </div>
      )}
    </>
  );
}

class Connection {
  private socket: WebSocket | null = null;
  private isOver = false;

  constructor(
    private readonly sandboxId: string,
    private readonly term: Screen,
    private pid: number | null,
    private readonly cwd: string | undefined,
    private readonly signal: AbortSignal,
    private readonly tell: (state: State, why: string, pid?: number | null) => void,
  ) {
    term.onData((data) => this.socket?.readyState === WebSocket.OPEN && this.socket.send(new TextEncoder().encode(data)));
    term.onBinary((data) => this.socket?.readyState === WebSocket.OPEN && this.socket.send(Uint8Array.from(data, (char) => char.charCodeAt(0))));
    term.onResize(({ cols, rows }) => this.socket?.readyState === WebSocket.OPEN && this.socket.send(JSON.stringify({ type: "resize", cols, rows })));
    signal.addEventListener("abort", () => this.socket?.close());
  }

  async run(): Promise<void> {
    let failures = 0;
    while (!this.signal.aborted && !this.isOver) {
      const wasOpen = await this.once();
      failures = wasOpen ? 0 : failures + 1;
      if (this.signal.aborted || this.isOver) return;
      if (!wasOpen && failures >= 2 && this.pid !== null) {
        this.pid = null; // the shell is gone, too
        failures = 0;
      } else if (failures >= 6) {
        return this.over("The sandbox cannot be reached. It may be paused, or have ended.");
      }
      this.tell("lost", "");
      await backoff(failures, this.signal);
    }
  }

  /** Until the connection ends; whether there was one. */
  private once(): Promise<boolean> {
    return new Promise((resolve) => {
      const query = new URLSearchParams({ cols: String(this.term.cols), rows: String(this.term.rows) });
      if (this.pid !== null) query.set("pid", String(this.pid));
      else if (this.cwd) query.set("cwd", this.cwd);
      const scheme = location.protocol === "https:" ? "wss" : "ws";
      const socket = new WebSocket(`${scheme}://${location.host}/console/api/sandboxes/${encodeURIComponent(this.sandboxId)}/terminal?${query}`);
      socket.binaryType = "arraybuffer";
      this.socket = socket;
      let opened = false;
      socket.onmessage = (message: MessageEvent<string | ArrayBuffer>) => {
        if (typeof message.data !== "string") return this.term.write(new Uint8Array(message.data));
        const said = JSON.parse(message.data) as { type: string; pid?: number; code?: number };
        if (said.type === "open") {
          opened = true;
          const isSame = this.pid === said.pid;
          this.pid = said.pid ?? null;
          this.tell("open", "", this.pid);
          socket.send(JSON.stringify({ type: "resize", cols: this.term.cols, rows: this.term.rows }));
          if (isSame) socket.send(new Uint8Array([12])); // Ctrl-L: the shell draws its line again
        } else if (said.type === "exit") this.over(`The shell ended with ${said.code ?? "?"}.`);
      };
      socket.onclose = (event) => {
        if (event.reason && event.code >= 4000) this.over(event.reason);
        resolve(opened);
      };
    });
  }

  private over(why: string): void {
    this.isOver = true;
    this.pid = null;
    this.tell("ended", why, null);
  }
}
