export { TaskPanel } from "../../tasks/panel";
