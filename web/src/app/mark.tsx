export function Mark({ size = 20 }: { size?: number }) {
  return (
    <svg width={size} height={size} viewBox="0 0 24 24" aria-hidden>
      <rect width="24" height="24" rx="6" fill="#5b5bd6" />
      <path d="M12 4.5 19 12l-7 7.5L5 12Z" fill="none" stroke="#fff" strokeWidth="1.8" strokeLinejoin="round" />
      <circle cx="12" cy="12" r="2" fill="#fff" />
    </svg>
  );
}
