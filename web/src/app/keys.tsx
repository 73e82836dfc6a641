// Keys: every component says which it understands, `?` lists them, and single letters can be switched off.
import { Modal, Switch } from "@mantine/core";
import { createContext, useContext, useEffect, useMemo, useRef, useState, type ReactNode } from "react";
import classes from "./keys.module.css";

export interface Shortcut {
  keys: string; // "n", "g b" (one after the other), "mod+k", "shift+j", "escape"
  label: string;
  group: string;
  run: (event: KeyboardEvent) => void;
  hidden?: boolean;
}

const OFF = "sandlot-single-keys-off";
const CHORD_MS = 900;

class Registry {
  private readonly sets = new Map<symbol, readonly Shortcut[]>();
  private pending: { key: string; at: number } | null = null;
  lettersOff = localStorage.getItem(OFF) === "1";

  add(list: readonly Shortcut[]): () => void {
    const name = Symbol();
    this.sets.set(name, list);
    return () => void this.sets.delete(name);
  }
  all(): Shortcut[] {
    return [...this.sets.values()].flat();
  }
  press(event: KeyboardEvent): void {
    if (event.defaultPrevented || event.isComposing) return;
    const key = nameOf(event);
    if (key === null) return;
    const plain = !key.includes("mod+");
    const target = event.target as HTMLElement;
    if (plain && key !== "escape" && (isTyping(target) || this.lettersOff)) return;
    if (plain && target.closest("[role=dialog],[role=menu],[role=listbox]") && key !== "escape") return;
    const chord = this.pending && Date.now() - this.pending.at < CHORD_MS ? `${this.pending.key} ${key}` : null;
    const found = [...this.all()].reverse().find((each) => (chord && each.keys === chord) || each.keys === key);
    const begins = this.all().some((each) => each.keys.startsWith(`${key} `));
    this.pending = !found && begins ? { key, at: Date.now() } : null;
    if (!found) return;
    event.preventDefault();
    found.run(event);
  }
}

function nameOf(event: KeyboardEvent): string | null {
  if (["Shift", "Control", "Meta", "Alt"].includes(event.key) || event.altKey) return null;
  const key = event.key === " " ? "space" : event.key.toLowerCase();
  const mod = event.metaKey || event.ctrlKey ? "mod+" : "";
  const shift = event.shiftKey && /^[a-z]$|^arrow|^enter$/.test(key) ? "shift+" : "";
  return mod + shift + key;
}

function isTyping(target: HTMLElement): boolean {
  return target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || target.closest(".xterm") !== null;
}

const Keys = createContext<Registry | null>(null);

export function KeysProvider({ children }: { children: ReactNode }) {
  const registry = useMemo(() => new Registry(), []);
  const [listed, setListed] = useState(false);
  useEffect(() => {
    const press = (event: KeyboardEvent) => registry.press(event);
    document.addEventListener("keydown", press);
    const forget = registry.add([{ keys: "?", label: "Show all keys", group: "Anywhere", run: () => setListed(true) }]);
    return () => (document.removeEventListener("keydown", press), forget());
  }, [registry]);
  return (
    <Keys value={registry}>
      {children}
      <KeyList registry={registry} opened={listed} onClose={() => setListed(false)} />
    </Keys>
  );
}

/** `list` may be made anew at every drawing: the newest one counts. */
export function useKeys(list: readonly Shortcut[]): void {
  const registry = useContext(Keys);
  const newest = useRef(list);
  newest.current = list;
  const names = list.map((each) => each.keys).join();
  useEffect(() => {
    if (!registry) return;
    const stable = newest.current.map((each, n) => ({ ...each, run: (event: KeyboardEvent) => newest.current[n]?.run(event) }));
    return registry.add(stable);
  }, [registry, names]);
}

function KeyList({ registry, opened, onClose }: { registry: Registry; opened: boolean; onClose: () => void }) {
  const [off, setOff] = useState(registry.lettersOff);
  const groups = Map.groupBy(registry.all().filter((each) => !each.hidden), (each) => each.group);
  function change(on: boolean) {
    registry.lettersOff = !on;
    localStorage.setItem(OFF, on ? "0" : "1");
    setOff(!on);
  }
  return (
    <Modal opened={opened} onClose={onClose} title="Keys" size={640}>
      <div className={classes.groups}>
        {[...groups].map(([group, list]) => (
          <section key={group}>
            <h3 className={classes.group}>{group}</h3>
            <dl className={classes.list}>
              {list.map((each) => (
                <div key={each.keys} className={classes.item}>
                  <dt>{each.label}</dt>
                  <dd><Keycaps keys={each.keys} /></dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
      <Switch mt="md" label="Keys without Ctrl or Cmd" checked={!off} onChange={(event) => change(event.currentTarget.checked)} />
    </Modal>
  );
}

const IS_MAC = /Mac|iP/.test(navigator.platform);

export function Keycaps({ keys }: { keys: string }) {
  const caps = keys.split(/[ +]/).map((key) => ({ mod: IS_MAC ? "⌘" : "Ctrl", shift: "⇧", escape: "Esc", enter: "↵", arrowup: "↑", arrowdown: "↓", arrowleft: "←", arrowright: "→" })[key] ?? (key.length === 1 ? key.toUpperCase() : key));
  return (
    <span className={classes.caps}>
      {caps.map((cap, n) => <kbd key={n}>{cap}</kbd>)}
    </span>
  );
}
