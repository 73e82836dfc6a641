// One task, whole: with its prompt and what its checks wrote, which the table of all tasks leaves out.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback } from "react";
import { api, type Task } from "../api/client";
import { keep } from "./store";

export function useTask(id: string) {
  return useQuery({ queryKey: ["task", id], queryFn: () => api.data(api.GET("/tasks/{id}", { params: { path: { id } } })) });
}

/** For the task's own stream, which carries the whole task at every change. */
export function useTaskUpdates(id: string) {
  const queries = useQueryClient();
  return useCallback(
    (task: Task) => {
      queries.setQueryData<Task>(["task", id], (known) => (known && known.revision > task.revision ? known : task));
      keep(queries, task);
    },
    [queries, id],
  );
}
