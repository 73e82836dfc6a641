// A line over time, drawn as SVG: small enough to be on every page that has numbers.
import { useId, useMemo, useRef, useState, type PointerEvent } from "react";
import { timeOfDay } from "./time";
import classes from "./chart.module.css";

export interface Point {
  at: number; // milliseconds
  value: number;
}
export interface Mark {
  at: number;
  label: string;
}
interface ChartProps {
  title: string;
  points: readonly Point[];
  max?: number; // the top of the scale; else the largest value
  limit?: number; // a line that should not be reached
  format: (value: number) => string;
  marks?: readonly Mark[];
  height?: number;
}
const WIDTH = 600;

export function Chart({ title, points, max, limit, format, marks = [], height = 120 }: ChartProps) {
  const id = useId();
  const box = useRef<SVGSVGElement>(null);
  const [at, setAt] = useState<number | null>(null);
  const [from, to] = [points[0]?.at ?? 0, points.at(-1)?.at ?? 1];
  const top = (max ?? Math.max(limit ?? 0, ...points.map((point) => point.value))) || 1;
  const x = (time: number) => (to === from ? 0 : ((time - from) / (to - from)) * WIDTH);
  const y = (value: number) => height - 2 - Math.min(1, value / top) * (height - 8);
  const line = useMemo(() => (points.length === 1 ? `M0 ${y(points[0]!.value).toFixed(1)}H${WIDTH}` : "") || points.map((point, n) => `${n ? "L" : "M"}${x(point.at).toFixed(1)} ${y(point.value).toFixed(1)}`).join(""), [points, top, height]); // eslint-disable-line
  const seen = at === null ? points.at(-1) : points[at];
  function move(event: PointerEvent) {
    const frame = box.current!.getBoundingClientRect();
    const time = from + ((event.clientX - frame.left) / frame.width) * (to - from);
    let best = 0;
    points.forEach((point, n) => Math.abs(point.at - time) < Math.abs(points[best]!.at - time) && (best = n));
    setAt(best);
  }
  return (
    <figure className={classes.chart}>
      <figcaption><span>{title}</span>{seen && <span className="num"><b>{format(seen.value)}</b>{at !== null && <span className="faint"> {timeOfDay(seen.at)}</span>}</span>}</figcaption>
      <svg ref={box} viewBox={`0 0 ${WIDTH} ${height}`} preserveAspectRatio="none" style={{ height }} role="img" aria-label={`${title}: ${seen ? format(seen.value) : "no data"}`} onPointerMove={move} onPointerLeave={() => setAt(null)}>
        <defs><linearGradient id={id} x1="0" y1="0" x2="0" y2="1"><stop offset="0" stopColor="var(--accent)" stopOpacity=".22" /><stop offset="1" stopColor="var(--accent)" stopOpacity="0" /></linearGradient></defs>
        {[0.25, 0.5, 0.75].map((part) => <line key={part} x1="0" x2={WIDTH} y1={height * part} y2={height * part} className={classes.grid} />)}
        {limit !== undefined && limit <= top && <line x1="0" x2={WIDTH} y1={y(limit)} y2={y(limit)} className={classes.limit} />}
        {points.length > 1 && <path d={`${line}L${WIDTH} ${height}L0 ${height}Z`} fill={`url(#${CSS.escape(id)})`} />}
        <path d={line} className={classes.line} />
        {marks.filter((mark) => mark.at >= from && mark.at <= to).map((mark, n) => <line key={n} x1={x(mark.at)} x2={x(mark.at)} y1="0" y2={height} className={classes.mark}><title>{mark.label}</title></line>)}
        {at !== null && seen && <line x1={x(seen.at)} x2={x(seen.at)} y1="0" y2={height} className={classes.cursor} />}
      </svg>
      <div className={`${classes.axis} num`}><span>{points.length ? timeOfDay(from) : ""}</span><span>{points.length ? timeOfDay(to) : ""}</span></div>
    </figure>
  );
}
