from haystack_integrations.tools.e2b import E2BSandbox, ReadFileTool, RunBashCommandTool, WriteFileTool

sandbox = E2BSandbox()
sandbox.warm_up()
try:
    WriteFileTool(sandbox).invoke(path="/home/user/six.py", content="print(6 * 7)")
    print("answer", RunBashCommandTool(sandbox).invoke(command="python3 /home/user/six.py"))
    assert "6 * 7" in ReadFileTool(sandbox).invoke(path="/home/user/six.py")
finally:
    sandbox.close()
