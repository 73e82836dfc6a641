// What waits, with what led to it and everything to settle it.
import { ActionIcon, Button } from "@mantine/core";
import { ChevronLeft, ExternalLink } from "lucide-react";
import { Keycaps } from "../../app/keys";
import { useGo } from "../../app/navigation";
import type { Task } from "../../api/client";
import { Composer, useSay } from "../../tasks/composer";
import { Facts, StateLine } from "../../tasks/facts";
import { HeaderActs } from "../../tasks/header-acts";
import { useTask, useTaskUpdates } from "../../tasks/use-task";
import { useTimeline } from "../../timeline/store";
import { TimelineView } from "../../timeline/view";
import classes from "./inbox.module.css";

export function Answer({ task: brief, onBack, onNext, hasNext }: { task: Task; onBack?: () => void; onNext: () => void; hasNext: boolean }) {
  const go = useGo();
  const task = useTask(brief.id).data ?? brief;
  const timeline = useTimeline(brief.id, useTaskUpdates(brief.id));
  const say = useSay(task);
  return (
    <section className={classes.answer} aria-label={task.title}>
      <header className={classes.head}>
        <div className="row">
          {onBack && <ActionIcon aria-label="Back to the list" onClick={onBack}><ChevronLeft size={16} /></ActionIcon>}
          <h2 className="cut grow">{task.title}</h2>
          <HeaderActs task={task} />
        </div>
        <StateLine task={task} />
        <div className="row" style={{ flexWrap: "wrap" }}>
          <Facts task={task} />
          <span className="grow" />
          {task.state === "review" && <Button variant="default" size="compact-sm" rightSection={<ExternalLink size={12} aria-hidden />} onClick={() => go(`/tasks/${task.id}`, { tab: "changes" })}>Review the changes</Button>}
          {hasNext && <Button variant="subtle" color="gray" size="compact-sm" rightSection={<Keycaps keys="n" />} onClick={onNext}>Next</Button>}
        </div>
      </header>
      <div className={classes.timeline}><TimelineView store={timeline} tools={false} onAnswer={(text) => void say(text)} /></div>
      <Composer task={task} />
    </section>
  );
}
