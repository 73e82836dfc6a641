"""The console's server side: logging browsers in, its files, and everything it shows of sandboxes."""
