// The component library's theme, in terms of our own tokens (global.css). Components go by name here: importing them
// would put all of them into the first load.
import { createTheme, type CSSVariablesResolver, type MantineColorsTuple } from "@mantine/core";

const iris: MantineColorsTuple = [
  "#f0f0fe", "#e2e2fc", "#c6c6f8", "#a8a8f4", "#8d8df0", "#7474e8", "#6262dc", "#5353cf", "#4747ba", "#3b3ba0",
];
const small = { defaultProps: { size: "xs" as const } };

export const theme = createTheme({
  primaryColor: "iris",
  primaryShade: { light: 7, dark: 6 },
  colors: { iris },
  fontFamily: "var(--sans)",
  fontFamilyMonospace: "var(--mono)",
  fontSizes: { xs: "12px", sm: "13px", md: "13px", lg: "15px", xl: "18px" },
  defaultRadius: "6px",
  cursorType: "pointer",
  respectReducedMotion: true,
  components: {
    Button: { defaultProps: { size: "xs" }, styles: { root: { fontWeight: 500, height: 30 } } },
    ActionIcon: { defaultProps: { variant: "subtle", color: "gray", size: 28 } },
    TextInput: { defaultProps: { size: "xs" } },
    Textarea: { defaultProps: { size: "sm" } },
    NumberInput: { defaultProps: { size: "xs" } },
    Select: { defaultProps: { size: "xs", comboboxProps: { shadow: "md" } } },
    TagsInput: small,
    Checkbox: small,
    Switch: small,
    SegmentedControl: small,
    Tooltip: { defaultProps: { openDelay: 400, withArrow: false, fz: 12 } },
    Menu: { defaultProps: { shadow: "md", position: "bottom-end", withinPortal: true } },
    Modal: { defaultProps: { centered: false, yOffset: "12vh", transitionProps: { duration: 120 } } },
    Drawer: { defaultProps: { transitionProps: { duration: 160 } } },
  },
});

export const variables: CSSVariablesResolver = () => {
  const shared = {
    "--mantine-color-body": "var(--surface)",
    "--mantine-color-text": "var(--text)",
    "--mantine-color-dimmed": "var(--dim)",
    "--mantine-color-placeholder": "var(--faint)",
    "--mantine-color-default": "var(--surface)",
    "--mantine-color-default-hover": "var(--hover)",
    "--mantine-color-default-color": "var(--text)",
    "--mantine-color-default-border": "var(--line-strong)",
    "--mantine-color-error": "var(--red)",
  };
  return { variables: {}, light: shared, dark: shared };
};
