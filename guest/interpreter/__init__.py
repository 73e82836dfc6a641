"""The code interpreter: a server inside the sandbox that runs cells in Jupyter kernels and streams what they show."""
