// Cmd-K: go anywhere, do anything, find a task.
import { Modal } from "@mantine/core";
import { useMantineColorScheme } from "@mantine/core";
import { LogOut, Moon, Search, Sun, type LucideIcon } from "lucide-react";
import { useEffect, useId, useMemo, useRef, useState, type KeyboardEvent, type ReactNode } from "react";
import { StateIcon } from "../tasks/state-icon";
import { useTaskList } from "../tasks/store";
import { useGo } from "./navigation";
import { logOut } from "./session";
import { usePages } from "./shell";
import classes from "./palette.module.css";

interface Item {
  id: string;
  label: string;
  hint?: string;
  icon: ReactNode;
  run: () => void;
}

export function Palette({ opened, onClose }: { opened: boolean; onClose: () => void }) {
  return (
    <Modal.Root opened={opened} onClose={onClose} padding={0} size={580}>
      <Modal.Overlay />
      <Modal.Content aria-label="Search and commands">
        <Modal.Body>{opened && <Content onClose={onClose} />}</Modal.Body>
      </Modal.Content>
    </Modal.Root>
  );
}

function Content({ onClose }: { onClose: () => void }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const list = useItems(text);
  const id = useId();
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => setAt(0), [text]);
  useEffect(() => {
    void box.current?.querySelector(`[data-n="${at}"]`)?.scrollIntoView({ block: "nearest" });
  }, [at]);
  function run(item: Item | undefined) {
    if (!item) return;
    onClose();
    item.run();
  }
  function press(event: KeyboardEvent) {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step && list.length) {
      event.preventDefault();
      setAt((at + step + list.length) % list.length);
    } else if (event.key === "Enter") {
      event.preventDefault();
      run(list[at]);
    }
  }
  return (
    <>
      <div className={classes.field}>
        <Search size={16} aria-hidden />
        <input
          data-autofocus
          autoFocus
          placeholder="Find a task, a page, a command"
          aria-label="Find a task, a page, a command"
          role="combobox"
          aria-expanded
          aria-controls={id}
          aria-activedescendant={list[at] ? `${id}-${at}` : undefined}
          value={text}
          onChange={(event) => setText(event.currentTarget.value)}
          onKeyDown={press}
        />
      </div>
      <div className={classes.list} role="listbox" id={id} aria-label="Found" ref={box}>
        {list.map((item, n) => (
          <div key={item.id} id={`${id}-${n}`} data-n={n} role="option" aria-selected={n === at} className={classes.item} onMouseMove={() => setAt(n)} onClick={() => run(item)}>
            {item.icon}
            <span className="cut grow">{item.label}</span>
            {item.hint && <span className="faint cut">{item.hint}</span>}
          </div>
        ))}
        {!list.length && <div className={classes.none}>Nothing is called that</div>}
      </div>
    </>
  );
}

function useItems(text: string): Item[] {
  const go = useGo();
  const pages = usePages();
  const tasks = useTaskList();
  const { setColorScheme } = useMantineColorScheme();
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return useMemo(() => {
    const icon = (Icon: LucideIcon) => <Icon size={15} strokeWidth={1.75} aria-hidden />;
    const fixed: Item[] = [
      ...pages.map((page) => ({ id: page.path, label: page.title, hint: "Page", icon: icon(page.nav!.icon), run: () => go(page.path) })),
      { id: "light", label: "Light theme", icon: icon(Sun), run: () => setColorScheme("light") },
      { id: "dark", label: "Dark theme", icon: icon(Moon), run: () => setColorScheme("dark") },
      { id: "logout", label: "Log out", icon: icon(LogOut), run: () => void logOut() },
    ];
    const fits = (...fields: string[]) => words.every((word) => fields.some((field) => field.toLowerCase().includes(word)));
    const found = tasks.filter((task) => fits(task.title, task.repository, task.id, task.agent)).slice(0, words.length ? 30 : 6);
    return [
      ...fixed.filter((item) => fits(item.label)),
      ...found.map((task) => ({ id: task.id, label: task.title, hint: task.repository, icon: <StateIcon state={task.state} labelled />, run: () => go(`/tasks/${task.id}`) })),
    ];
  }, [text, pages, tasks, go, setColorScheme]); // eslint-disable-line
}
