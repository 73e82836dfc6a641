// What people do to tasks: sent to the server, shown at once where it can be undone, taken back with its sentence.
import { notifications } from "@mantine/notifications";
import { useQueryClient } from "@tanstack/react-query";
import { useCallback } from "react";
import { api, ApiError, type Task, type TaskState } from "../api/client";
import { useGo } from "../app/navigation";
import { ACT_NAMES, type Act } from "./lanes";
import { keep, TASKS, type TaskTable } from "./store";

const BECOMES: Partial<Record<Act, TaskState>> = { start: "queued", retry: "queued", shelve: "todo", done: "done" };

async function send(id: string, act: Act): Promise<Task> {
  const params = { params: { path: { id } } };
  switch (act) {
    case "start": return api.data(api.POST("/tasks/{id}/start", params));
    case "retry": return api.data(api.POST("/tasks/{id}/retry", params));
    case "done": return api.data(api.POST("/tasks/{id}/done", params));
    case "stop": return api.data(api.POST("/tasks/{id}/stop", params));
    case "pause": return api.data(api.POST("/tasks/{id}/pause", params));
    case "shelve": return api.data(api.PATCH("/tasks/{id}", { ...params, body: { state: "todo" } }));
  }
}

export function failed(what: string, error: unknown): void {
  const request = error instanceof ApiError && error.requestId ? ` (request ${error.requestId})` : "";
  notifications.show({ color: "red", title: what, message: `${error instanceof Error ? error.message : String(error)}${request}`, autoClose: 8000 });
}

export function useActs() {
  const queries = useQueryClient();
  return useCallback(
    async (tasks: readonly Task[], act: Act): Promise<void> => {
      const becomes = BECOMES[act];
      if (becomes) {
        queries.setQueryData<TaskTable>(TASKS, (table) => {
          if (!table) return table;
          const byId = new Map(table.byId);
          for (const task of tasks) byId.set(task.id, { ...task, state: becomes });
          return { ...table, byId };
        });
      }
      const answers = await Promise.allSettled(tasks.map((task) => send(task.id, act)));
      answers.forEach((answer, n) => {
        const task = tasks[n]!;
        if (answer.status === "fulfilled") {
          keep(queries, answer.value);
          void queries.invalidateQueries({ queryKey: ["task", task.id] });
        } else {
          queries.setQueryData<TaskTable>(TASKS, (table) => table && { ...table, byId: new Map(table.byId).set(task.id, task) });
          failed(`${ACT_NAMES[act]}: “${task.title}” stays where it was`, answer.reason);
        }
      });
    },
    [queries],
  );
}

const FORK_S = 3600;

/** A second sandbox that begins with the state of the task's own: to look around, or to try something, without disturbing its agent. */
export function useFork() {
  const go = useGo();
  return useCallback(
    async (task: Task): Promise<void> => {
      try {
        const made = await api.data(api.POST("/console/api/sandboxes/{sandbox_id}/fork", { params: { path: { sandbox_id: task.sandbox_id! } }, body: { timeout: FORK_S } }));
        go(`/sandboxes/${made.id}`);
      } catch (error) {
        failed(`The sandbox of “${task.title}” was not forked`, error);
      }
    },
    [go],
  );
}

export function useDelete() {
  const queries = useQueryClient();
  return useCallback(
    async (tasks: readonly Task[]): Promise<void> => {
      const answers = await Promise.allSettled(tasks.map((task) => api.DELETE("/tasks/{id}", { params: { path: { id: task.id } } })));
      queries.setQueryData<TaskTable>(TASKS, (table) => {
        if (!table) return table;
        const byId = new Map(table.byId);
        answers.forEach((answer, n) => answer.status === "fulfilled" && byId.delete(tasks[n]!.id));
        return { ...table, byId };
      });
      answers.forEach((answer, n) => answer.status === "rejected" && failed(`“${tasks[n]!.title}” was not deleted`, answer.reason));
    },
    [queries],
  );
}
