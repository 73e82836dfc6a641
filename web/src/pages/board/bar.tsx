// The board's bar: search, filters, saved views, lanes or list.
import { ActionIcon, Button, Menu, Popover, SegmentedControl, TextInput, Tooltip } from "@mantine/core";
import { Bookmark, ListFilter, Plus, Rows3, SquareKanban, X } from "lucide-react";
import { useState, type FormEvent, type RefObject } from "react";
import { useGo, useSearchState } from "../../app/navigation";
import type { Task } from "../../api/client";
import { PageHead } from "../../ui/page";
import { FIELDS, isFiltered, NAMES, saveViews, savedViews, valuesOf, type Field } from "./filters";
import classes from "./bar.module.css";

export function BoardBar({ tasks, shown, field }: { tasks: readonly Task[]; shown: number; field: RefObject<HTMLInputElement | null> }) {
  const [search, change] = useSearchState();
  const go = useGo();
  return (
    <>
      <PageHead title="Board" note={isFiltered(search) ? `${shown} of ${tasks.length}` : null}>
        <TextInput ref={field} className={classes.search} placeholder="Filter" aria-label="Filter tasks by words" value={search["q"] ?? ""} onChange={(event) => change({ q: event.currentTarget.value })} />
        <FilterMenu tasks={tasks} />
        <Views />
        <SegmentedControl
          aria-label="Layout"
          value={search["view"] ?? "lanes"}
          onChange={(view) => change({ view: view === "lanes" ? undefined : view })}
          data={[
            { value: "lanes", label: <Tooltip label="Lanes"><span className={classes.icon}><SquareKanban size={15} aria-hidden /><span className="hidden-text">Lanes</span></span></Tooltip> },
            { value: "list", label: <Tooltip label="List"><span className={classes.icon}><Rows3 size={15} aria-hidden /><span className="hidden-text">List</span></span></Tooltip> },
          ]}
        />
        <Button leftSection={<Plus size={14} />} onClick={() => go("/new")} className={classes.make}>New task</Button>
      </PageHead>
      <Chosen />
    </>
  );
}

function FilterMenu({ tasks }: { tasks: readonly Task[] }) {
  const [, change] = useSearchState();
  const [field, setField] = useState<Field | null>(null);
  const values = field ? [...new Set(tasks.flatMap((task) => valuesOf(task, field)))].sort() : [];
  return (
    <Menu onClose={() => setField(null)} closeOnItemClick={false} width={220}>
      <Menu.Target>
        <Tooltip label="Add a filter"><ActionIcon variant="default" aria-label="Add a filter" size={30}><ListFilter size={15} /></ActionIcon></Tooltip>
      </Menu.Target>
      <Menu.Dropdown mah={360} style={{ overflow: "auto" }}>
        {field === null
          ? FIELDS.map((each) => <Menu.Item key={each} onClick={() => setField(each)}>{NAMES[each]}</Menu.Item>)
          : values.map((value) => <Menu.Item key={value} closeMenuOnClick onClick={() => change({ [field]: value })}>{value}</Menu.Item>)}
        {field !== null && !values.length && <Menu.Item disabled>No task has one</Menu.Item>}
      </Menu.Dropdown>
    </Menu>
  );
}

function Chosen() {
  const [search, change] = useSearchState();
  const set = FIELDS.filter((field) => search[field]);
  if (!set.length) return null;
  return (
    <div className={classes.chosen}>
      {set.map((field) => (
        <span key={field} className={classes.chip}>
          <span className="faint">{NAMES[field]}</span> {search[field]}
          <button type="button" aria-label={`Remove the filter ${NAMES[field]}`} onClick={() => change({ [field]: undefined })}><X size={12} /></button>
        </span>
      ))}
      <Button variant="subtle" color="gray" size="compact-xs" onClick={() => change(Object.fromEntries([...FIELDS, "q"].map((name) => [name, undefined])))}>Clear</Button>
    </div>
  );
}

function Views() {
  const [search, change] = useSearchState();
  const [views, setViews] = useState(savedViews);
  const [name, setName] = useState("");
  const [opened, setOpened] = useState(false);
  function keep(next: typeof views) {
    saveViews(next);
    setViews(next);
  }
  function save(event: FormEvent) {
    event.preventDefault();
    const { task: _, ...rest } = search;
    keep([...views.filter((view) => view.name !== name.trim()), { name: name.trim(), search: rest }]);
    setName("");
    setOpened(false);
  }
  function show(chosen: (typeof views)[number]) {
    change({ ...Object.fromEntries([...FIELDS, "q", "view"].map((field) => [field, undefined])), ...chosen.search }, { push: true });
    setOpened(false);
  }
  return (
    <Popover opened={opened} onChange={setOpened} position="bottom-end" width={260} shadow="md" trapFocus>
      <Popover.Target>
        <Tooltip label="Saved views"><ActionIcon variant="default" aria-label="Saved views" size={30} onClick={() => setOpened(!opened)}><Bookmark size={15} /></ActionIcon></Tooltip>
      </Popover.Target>
      <Popover.Dropdown p={8}>
        {views.map((view) => (
          <div key={view.name} className={classes.view}>
            <button type="button" onClick={() => show(view)}>{view.name}</button>
            <ActionIcon size={24} aria-label={`Forget the view ${view.name}`} onClick={() => keep(views.filter((each) => each !== view))}><X size={13} /></ActionIcon>
          </div>
        ))}
        <form className={classes.save} onSubmit={save}>
          <TextInput placeholder="Save these filters as…" aria-label="Name of the view" value={name} onChange={(event) => setName(event.currentTarget.value)} />
          <Button type="submit" variant="default" disabled={!name.trim()}>Save</Button>
        </form>
      </Popover.Dropdown>
    </Popover>
  );
}
