# Programs that are started from outside find the desktop, and write in letters of all languages.
export DISPLAY="${DISPLAY:-:0}" LANG="${LANG:-C.UTF-8}"
export DBUS_SESSION_BUS_ADDRESS="${DBUS_SESSION_BUS_ADDRESS:-unix:abstract=/desktop/bus}"
export XDG_CURRENT_DESKTOP="${XDG_CURRENT_DESKTOP:-XFCE}"
export NO_AT_BRIDGE=1 LIBGL_ALWAYS_SOFTWARE=1
