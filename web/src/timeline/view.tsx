// A timeline on a page: filters, search, raw log; only what is in sight is drawn; it follows until one scrolls up.
import { Button, Checkbox, Popover, Select, TextInput } from "@mantine/core";
import { useVirtualizer } from "@tanstack/react-virtual";
import { ArrowDown, ListFilter } from "lucide-react";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import type { Entry } from "../api/client";
import { plural } from "../ui/format";
import { Failed, Loading } from "../ui/states";
import { timeOfDay } from "../ui/time";
import { EntryRow } from "./entry";
import { RawLog } from "./raw";
import type { TimelineStore } from "./store";
import classes from "./view.module.css";

const GROUPS: readonly { name: string; kinds: readonly Entry["kind"][] }[] = [
  { name: "Talk", kinds: ["message", "prompt", "question", "result"] },
  { name: "Commands", kinds: ["command", "tool"] },
  { name: "Edits", kinds: ["edit"] },
  { name: "Tests and git", kinds: ["test", "git"] },
  { name: "Thinking", kinds: ["thinking"] },
  { name: "Steps", kinds: ["step", "usage"] },
];
const BY_HAND_MS = 1000;
const OFF_AT_FIRST: readonly Entry["kind"][] = ["usage"];

export function TimelineView({ store, onAnswer, tools = true }: { store: TimelineStore; onAnswer?: (text: string) => void; tools?: boolean }) {
  const [off, setOff] = useState<ReadonlySet<string>>(new Set());
  const [words, setWords] = useState("");
  const [attempt, setAttempt] = useState(0);
  const [raw, setRaw] = useState(false);
  const hidden = useMemo(() => new Set<string>([...OFF_AT_FIRST, ...GROUPS.filter((group) => off.has(group.name)).flatMap((group) => group.kinds)]), [off]);
  const attempts = useMemo(() => [...new Set(store.items.map((item) => item.entry.attempt))].sort(), [store.items]);
  const items = useMemo(() => {
    const sought = words.toLowerCase();
    return store.items.filter(
      ({ entry }) =>
        !hidden.has(entry.kind) && (!attempt || entry.attempt === attempt) && (!sought || `${entry.text} ${JSON.stringify(entry.data)}`.toLowerCase().includes(sought)),
    );
  }, [store.items, hidden, words, attempt]);
  const flip = (name: string) => setOff((old) => (old.has(name) ? new Set([...old].filter((each) => each !== name)) : new Set([...old, name])));
  return (
    <div className={classes.frame}>
      {tools && (
        <div className={classes.tools}>
          <Filters off={off} onFlip={flip} attempts={attempts} attempt={attempt} onAttempt={setAttempt} />
          <TextInput size="xs" placeholder="Search" aria-label="Search the timeline" value={words} onChange={(event) => setWords(event.currentTarget.value)} className={classes.search} />
          <Button variant={raw ? "light" : "subtle"} color="gray" size="compact-sm" aria-pressed={raw} onClick={() => setRaw(!raw)}>Raw log</Button>
        </div>
      )}
      {store.state === "failed" ? (
        <Failed error={store.error} />
      ) : raw ? (
        <RawLog id={store.id} />
      ) : store.state === "loading" && !store.items.length ? (
        <Loading />
      ) : (
        <Rows store={store} items={items} onAnswer={onAnswer} isFiltered={words !== "" || attempt !== 0} />
      )}
    </div>
  );
}

const entryOfAddress = () => Number(/^#?e(\d+)$/.exec(location.hash)?.[1] ?? 0);

interface FiltersProps {
  off: ReadonlySet<string>;
  onFlip: (name: string) => void;
  attempts: readonly number[];
  attempt: number;
  onAttempt: (attempt: number) => void;
}

function Filters({ off, onFlip, attempts, attempt, onAttempt }: FiltersProps) {
  return (
    <div className={classes.filters}>
      <Popover position="bottom-start" width={200} shadow="md" trapFocus>
        <Popover.Target>
          <Button variant={off.size ? "light" : "default"} size="compact-sm" leftSection={<ListFilter size={13} aria-hidden />}>{off.size ? `${off.size} hidden` : "Filter"}</Button>
        </Popover.Target>
        <Popover.Dropdown p={12}>
          <div role="group" aria-label="What the timeline shows" className={classes.kinds}>
            {GROUPS.map((group) => <Checkbox key={group.name} label={group.name} checked={!off.has(group.name)} onChange={() => onFlip(group.name)} />)}
          </div>
        </Popover.Dropdown>
      </Popover>
      {attempts.length > 1 && (
        <Select aria-label="Attempt" w={124} allowDeselect={false} value={String(attempt)} onChange={(value) => onAttempt(Number(value))} data={[{ value: "0", label: "All attempts" }, ...attempts.map((n) => ({ value: String(n), label: `Attempt ${n}` }))]} />
      )}
    </div>
  );
}

function Rows({ store, items, onAnswer, isFiltered }: { store: TimelineStore; items: TimelineStore["items"]; onAnswer?: (text: string) => void; isFiltered: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  const [marked, setMarked] = useState(entryOfAddress);
  const stuck = useRef(marked === 0); // to the end
  useEffect(() => {
    const follow = () => ((stuck.current = entryOfAddress() === 0), setMarked(entryOfAddress()));
    window.addEventListener("hashchange", follow);
    return () => window.removeEventListener("hashchange", follow);
  }, []);
  const [seen, setSeen] = useState(0); // how many there were when one scrolled up
  const rows = useVirtualizer({
    count: items.length,
    getScrollElement: () => box.current,
    estimateSize: () => 34,
    overscan: 12,
    getItemKey: (n) => items[n]!.seq,
  });
  const total = rows.getTotalSize();
  useLayoutEffect(() => {
    if (stuck.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [total, items.length]);
  useEffect(() => {
    const at = marked ? items.findIndex((item) => item.seq >= marked) : -1;
    if (at >= 0 && !stuck.current) rows.scrollToIndex(at, { align: "center" });
  }, [marked, items.length > 0]); // eslint-disable-line
  // Rows that are measured move the rest, too: only what a person does lets go of the end.
  const moved = useRef(0);
  const moves = () => void (moved.current = Date.now());
  const scrolled = () => {
    const element = box.current!;
    const atEnd = element.scrollHeight - element.scrollTop - element.clientHeight < 40;
    if (atEnd === stuck.current || (!atEnd && Date.now() - moved.current > BY_HAND_MS)) return;
    stuck.current = atEnd;
    setSeen(items.length);
  };
  const mark = useCallback((seq: number) => {
    setMarked(seq);
    history.replaceState(history.state, "", `#e${seq}`);
    void navigator.clipboard?.writeText(location.href).catch(() => undefined);
  }, []);
  const news = stuck.current ? 0 : items.length - seen;
  if (!items.length) return <p className={classes.none}>{isFiltered ? "Nothing in the timeline matches." : "Nothing has happened yet."}</p>;
  return (
    <div className={classes.place}>
      {store.state === "stale" && <div className={classes.stale} role="status">As of {timeOfDay(store.since)}, reconnecting…</div>}
      <div ref={box} className={classes.scroll} onScroll={scrolled} onWheel={moves} onTouchMove={moves} onKeyDown={moves} onPointerDown={moves} onPointerMove={(event) => event.buttons && moves()} tabIndex={0} role="log" aria-live="off" aria-label="Timeline">
        <div style={{ height: total, position: "relative" }}>
          {rows.getVirtualItems().map((row) => (
            <div key={row.key} ref={rows.measureElement} data-index={row.index} className={classes.row} style={{ transform: `translateY(${row.start}px)` }}>
              <EntryRow item={items[row.index]!} isMarked={items[row.index]!.seq === marked} onMark={mark} onAnswer={onAnswer} />
            </div>
          ))}
        </div>
      </div>
      {news > 0 && (
        <button type="button" className={classes.news} onClick={() => ((stuck.current = true), setSeen(items.length), rows.scrollToIndex(items.length - 1, { align: "end" }))}>
          <ArrowDown size={13} aria-hidden /> {plural(news, "new entry", "new entries")}
        </button>
      )}
    </div>
  );
}
