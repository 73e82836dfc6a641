"""The sandbox's end of the tunnel: one program of the standard library alone, which the platform writes into sandboxes."""
