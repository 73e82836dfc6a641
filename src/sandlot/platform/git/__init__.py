"""Git on the host: mirrors of repositories, a bare repository for each task, the server that sandboxes pull from and push to."""
