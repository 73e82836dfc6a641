from crewai_tools.tools.e2b_sandbox_tool import E2BExecTool, E2BPythonTool

print("answer", E2BPythonTool().run(code="6 * 7"))
print("answer", E2BExecTool(persistent=True).run(command="echo $((6*7))"))
